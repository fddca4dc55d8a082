//! `stratakv serve`.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level::pipe};
use stratakv::limits::VALUE_BYTES_MAX;
use stratakv::{Engine, Placement, Store, StoreEvent};
use stratakv_base::quantity::{format_bytes, format_count, parse_bytes, parse_duration};
use stratakv_server::{Admin, Server, ServerOptions};

use crate::Output;
use crate::doctor::{choose_depth, choose_placement};
use crate::failure::{Exit, Failure};
use crate::logging::{self, LogFormat};
use crate::opening::{
    DurabilityArguments, EngineArgument, EngineArguments, OpenArguments, PlacementArgument, refuse_another_format,
    tell_growth,
};

/// Serve a store to memcache clients; it is created if there is none
#[derive(Args)]
#[command(after_help = "Examples:\n  stratakv serve
  stratakv serve --data /mnt/nvme/store --memory 8G --memcache 127.0.0.1:11211 --memcache [::1]:11211
  stratakv serve --data /srv/store --device /dev/disk/by-id/nvme-XYZ
  stratakv serve --durability process_crash --threads 4
  stratakv serve --engine hash --region 64G --data /mnt/pmem/store
  stratakv serve --backup-dir /mnt/backup
  stratakv serve --config /etc/stratakv.toml      with lines such as: memory = '8G'

SIGTERM or SIGINT: no new connections, commands received are answered, the store is closed, exit code 0. A second signal ends
the process at once; nothing acknowledged is lost. Exit code 5 if another process has the store or the port.
Without --auth-file whoever can connect can read and change everything, and nothing is encrypted, so other addresses than
loopback are refused without --insecure.")]
pub(crate) struct Arguments {
    /// Take options from a file of TOML, by their names; the command line and the environment win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    open: OpenArguments,
    #[command(flatten)]
    durability: DurabilityArguments,
    /// Address for memcache clients; may be given several times; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:11211", value_parser = address)]
    memcache: Vec<SocketAddr>,
    #[command(flatten)]
    engine: EngineArguments,
    /// Server threads [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Shards; fixed when the store is created [default: one for each core]
    #[arg(long, value_name = "N")]
    shards: Option<usize>,
    /// Where small records go; fixed when the store is created [default: what suits the disk, measured for a second then]
    #[arg(long, value_enum)]
    placement: Option<PlacementArgument>,
    /// Longest value a client may store, up to 64M
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = parse_bytes)]
    item_bytes_max: u64,
    /// Most connections at once
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    connections: usize,
    /// Most requests in flight on the device
    #[arg(long, value_name = "N", default_value_t = 128)]
    depth: u32,
    /// Instead of a depth: the longest that 99 of 100 reads of the device may take, such as 500us or 2ms; it is measured for a second
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "depth")]
    max_latency: Option<Duration>,
    /// Most bytes the store may take on disk [default: what the disk has]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    capacity: Option<u64>,
    /// Take backups into this directory when asked by `backup --server` on this machine; it must exist [default: take none]
    #[arg(long, value_name = "DIR")]
    backup_dir: Option<PathBuf>,
    /// Clients have to say who they are: a file of lines `user:password` (memcached's -Y, and SASL PLAIN)
    #[arg(long, value_name = "FILE")]
    auth_file: Option<PathBuf>,
    /// Let clients stop the server by `shutdown`
    #[arg(long)]
    enable_shutdown: bool,
    /// Listen on other addresses than loopback: nothing that is sent there is encrypted
    #[arg(long)]
    insecure: bool,
    /// Address for those who look after the server: status page, /metrics, /healthz, /readyz, /stats.json over HTTP; port 0 takes a free one [default: none]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    admin: Option<SocketAddr>,
    /// A host name under which --admin answers too, beside localhost and IP addresses; may be given several times
    #[arg(long, value_name = "NAME", requires = "admin")]
    admin_name: Vec<String>,
    /// Close connections that wait for their client for so long, such as 60s [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    idle_timeout: Option<Duration>,
    /// Log operations that take at least so many milliseconds, with the beginning of their key, up to ten a second for each thread [default: none]
    #[arg(long, value_name = "MS")]
    slow_log_ms: Option<u64>,
    #[command(flatten)]
    pub(crate) log: LogArguments,
}

/// What is logged, and how.
#[derive(Args)]
pub(crate) struct LogArguments {
    /// What is logged: error, warn, info, debug, trace, or a filter such as stratakv_slab=debug,warn
    #[arg(long, value_name = "FILTER", env = "STRATAKV_LOG", default_value = "warn")]
    log: String,
    /// How lines of the log look
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
}

impl LogArguments {
    /// Begins to log to stderr.
    pub(crate) fn begin(&self) -> Result<(), Failure> {
        logging::begin(&self.log, self.log_format)
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let mut found = text.to_socket_addrs().map_err(|error| format!("{error}; write for example 127.0.0.1:11211"))?;
    found.next().ok_or_else(|| format!("`{text}` has no address"))
}

impl Arguments {
    fn server_options(&self) -> Result<ServerOptions, Failure> {
        let open = self.memcache.iter().chain(&self.admin).find(|address| !address.ip().is_loopback());
        if let (Some(address), false) = (open, self.insecure) {
            let why = match self.auth_file {
                None => "there is no authentication",
                Some(_) => "nothing that is sent is encrypted, passwords neither",
            };
            return Err(Failure::usage(format!(
                "{address} can be reached from other machines and {why}: listen on 127.0.0.1, or say --insecure"
            )));
        }
        let item_bytes_max = usize::try_from(self.item_bytes_max).unwrap_or(usize::MAX);
        if !(1..=VALUE_BYTES_MAX).contains(&item_bytes_max) {
            return Err(Failure::usage(format!("--item-bytes-max: 1 to {VALUE_BYTES_MAX} bytes")));
        }
        let defaults = ServerOptions::default();
        let threads = self.threads.unwrap_or(defaults.threads);
        let (memcache, backup_directory) = (self.memcache.clone(), self.backup_dir.clone());
        let (connections_max, idle_limit) = (self.connections, self.idle_timeout);
        let slow_from = self.slow_log_ms.map(Duration::from_millis);
        let (auth_file, shutdown_command) = (self.auth_file.clone(), self.enable_shutdown);
        Ok(ServerOptions {
            memcache,
            threads,
            connections_max,
            item_bytes_max,
            backup_directory,
            slow_from,
            idle_limit,
            auth_file,
            shutdown_command,
            ..defaults
        })
    }

    /// Before the store is opened: it tells meanwhile that it is not ready.
    fn start_admin(&self) -> Result<Option<Admin>, Failure> {
        let start = |address| Admin::start(address, self.admin_name.clone()).map_err(failure);
        self.admin.map(start).transpose()
    }

    /// As asked for; for a new store, what suits the slowest of its disks.
    fn placement(&self) -> Result<Placement, Failure> {
        if let Some(asked) = self.placement {
            return Ok(asked.into());
        }
        let data = &self.open.data;
        if let Some(format) = stratakv::format_of(data.first())? {
            return Ok(format.placement);
        }
        let names_region = self.engine.region.is_some() || !data.regions().is_empty();
        // With a region and no engine it is refused: not after a second of measuring.
        if !matches!(self.engine.engine, None | Some(EngineArgument::Slab)) || names_region {
            return Ok(Placement::InPlace);
        }
        if !data.devices().is_empty() {
            // Measuring writes, and a device may turn out to be somebody's.
            eprintln!("stratakv: a new store on raw devices: placement in_place, unmeasured; --placement chooses");
            return Ok(Placement::InPlace);
        }
        let mut chosen = Placement::InPlace;
        // What is no directory is refused later.
        for directory in data.all().filter(|path| path.is_dir() || !path.exists()) {
            match choose_placement(disk_of(directory), self.open.io) {
                Ok((placement, why)) => {
                    eprintln!("stratakv: a new store: {why}");
                    if placement == Placement::Packed {
                        chosen = placement;
                    }
                }
                Err(failure) => tracing::warn!("--placement in_place, unmeasured: {}", failure.message),
            }
        }
        Ok(chosen)
    }

    /// As asked for, or measured.
    fn depth(&self) -> Result<u32, Failure> {
        let Some(max) = self.max_latency else { return Ok(self.depth) };
        let data = &self.open.data;
        let format = stratakv::format_of(data.first())?;
        if format.map_or(self.engine.engine == Some(EngineArgument::Hash), |format| format.engine == Engine::Hash) {
            return Err(Failure::usage(
                "--max-latency chooses a depth, and the engine `hash` has no requests in flight",
            ));
        }
        let on_devices = format.is_some_and(|format| format.devices > 0);
        if on_devices || !data.devices().is_empty() {
            return Err(Failure::usage("--max-latency measures files, not raw devices: say --depth"));
        }
        let (depth, why) = choose_depth(disk_of(data.first()), self.open.io, max)?;
        eprintln!("stratakv: {why}");
        Ok(depth)
    }

    fn open(&self) -> Result<Store, Failure> {
        refuse_another_format(self.open.data.all(), self.shards, self.placement)?;
        let mut options = self.durability.add_to(self.open.options().create(true));
        options = options.depth(self.depth()?);
        options = options.placement(self.placement()?);
        if let Some(shards) = self.shards {
            options = options.shards(shards);
        }
        if let Some(capacity) = self.capacity {
            options = options.capacity_bytes(capacity);
        }
        options = self.engine.add_to(options.on_event(Arc::new(tell)));
        Ok(options.open(self.open.data.first())?)
    }
}

/// A directory on the disk that a store's directory is on, or will be made on.
fn disk_of(directory: &Path) -> &Path {
    directory.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("."))
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let options = arguments.server_options()?;
    options.check().map_err(failure)?;
    refuse_busy_ports(&options.memcache)?;
    let started = Instant::now();
    let admin = arguments.start_admin()?;
    let store = arguments.open()?;
    let signals = Signals::register()?;
    let server = Server::start(store.clone(), options).map_err(failure)?;
    let server = Arc::new(server);
    if let Some(admin) = &admin {
        admin.serve(&server);
        writeln!(output, "admin     http://{}/", admin.address()).map_err(Failure::output)?;
    }
    announce(&store, arguments, &server, started, output).map_err(Failure::output)?;
    signals.shut_down(Arc::clone(&server))?;
    let ended = server.join().map_err(failure);
    store.close()?;
    ended?;
    eprintln!("stratakv: closed in order");
    Ok(())
}

/// What an operator wants to see in the log. Damage and failures are told by the engine itself, with more detail.
fn tell(event: &StoreEvent) {
    match event {
        StoreEvent::Full { .. }
        | StoreEvent::Room { .. }
        | StoreEvent::CannotGrow { .. }
        | StoreEvent::ReadInFull { .. } => tracing::warn!("{event}"),
        other => tracing::info!("{other}"),
    }
}

/// Recovery may take minutes: a port that is taken should be told before, not after it.
fn refuse_busy_ports(addresses: &[SocketAddr]) -> Result<(), Failure> {
    let asked = addresses.iter().filter(|address| address.port() != 0);
    asked.copied().try_for_each(|address| stratakv_server::check_free(address).map_err(failure))
}

fn failure(error: stratakv_server::Error) -> Failure {
    use stratakv_server::Error;
    match error {
        Error::Listen { error: ref why, .. } if why.kind() == io::ErrorKind::AddrInUse => {
            Failure::new(Exit::Busy, error.to_string())
        }
        Error::Option(why) => Failure::usage(why),
        Error::Store(error) => error.into(),
        other => Failure::failed(other.to_string()),
    }
}

/// On stdout, flushed at once: whoever started the server waits for these lines.
fn announce(
    store: &Store,
    arguments: &Arguments,
    server: &Server,
    started: Instant,
    output: &mut Output,
) -> io::Result<()> {
    let recovery = store.recovery();
    let records = format_count(recovery.records, "record");
    let state = match (recovery.created, recovery.clean) {
        (true, _) => "created".to_owned(),
        (_, true) => records,
        (_, false) => format!("{records}, recovered after a crash"),
    };
    let ring = store.driver().map_or("unknown", |driver| driver.ring_name());
    let level = store.default_level().name();
    writeln!(output, "data      {} ({state} in {:.1} s)", store.path().display(), started.elapsed().as_secs_f64())?;
    let engine = match store.region() {
        Some(region) => {
            let (bytes, domain) = (format_bytes(region.len_bytes), &region.domain);
            let paths: Vec<String> = region.paths.iter().map(|path| path.display().to_string()).collect();
            format!("{}, {bytes} in {} ({domain})", store.engine().name(), paths.join(" and "))
        }
        None => {
            let format = stratakv::format_of(store.path()).ok().flatten();
            let placement = format.map_or("unknown", |format| format.placement.name());
            let shards = format_count(store.shards() as u64, "shard");
            match store.engine() {
                Engine::Slab => format!("slab, placement {placement}, {shards}"),
                engine => format!("{}, {shards}", engine.name()),
            }
        }
    };
    writeln!(output, "engine    {engine}, durability {level}, I/O by {ring}")?;
    if let Some(file) = &arguments.config {
        writeln!(output, "options   {}", file.display())?;
    }
    if let Some(directory) = &arguments.backup_dir {
        writeln!(output, "backups   {}", directory.display())?;
    }
    tell_growth(store);
    if !recovery.corrupt.is_empty() {
        let places = format_count(recovery.corrupt.len() as u64, "damaged place");
        eprintln!("stratakv: {places}: run `stratakv check`");
    }
    for address in server.addresses() {
        writeln!(output, "memcache  {address}")?;
    }
    output.flush()
}

/// SIGTERM and SIGINT: the first asks for an end, the second makes one.
struct Signals(UnixStream);

impl Signals {
    fn register() -> Result<Signals, Failure> {
        let register = || {
            let (heard, rung) = UnixStream::pair()?;
            let asked = Arc::new(AtomicBool::new(false));
            for signal in [SIGTERM, SIGINT] {
                // In this order: the second signal finds `asked` set by the first.
                flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))?;
                flag::register(signal, Arc::clone(&asked))?;
                pipe::register(signal, rung.try_clone()?)?;
            }
            Ok(Signals(heard))
        };
        register().map_err(|error: io::Error| Failure::failed(format!("cannot handle signals: {error}")))
    }

    /// From now on the first signal shuts the server down.
    fn shut_down(mut self, server: Arc<Server>) -> Result<(), Failure> {
        let wait = move || {
            if self.0.read_exact(&mut [0]).is_ok() {
                eprintln!("stratakv: finishing; a second signal ends at once");
                server.shutdown();
            }
        };
        let spawned = std::thread::Builder::new().name("signals".into()).spawn(wait);
        spawned.map(drop).map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))
    }
}
