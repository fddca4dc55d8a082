//! `stratakv serve`.

mod cluster;
mod listen;
mod signals;
mod systemd;
mod user;
mod xdp;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{ArgMatches, Args, CommandFactory, ValueEnum};
use stratakv::limits::VALUE_BYTES_MAX;
use stratakv::{Engine, Rejoin, Rejoined, Store, StoreEvent};
use stratakv_base::quantity::{format_bytes, format_count, parse_bytes, parse_duration};
use stratakv_server::{Admin, ClientLimits, Server, ServerOptions, TlsOptions, client_memory_bytes};

use crate::Output;
use crate::backup::parse_rate;
use crate::count::parse_usize;
use crate::doctor::choose_depth;
use crate::failure::{Exit, Failure};
use crate::logging::{self, LogFormat};
use crate::opening::{
    DurabilityArguments, EngineArgument, EngineArguments, OpenArguments, Placed, disk_of, opened,
    refuse_another_format, tell_growth,
};
use crate::say::say;
use cluster::ClusterArguments;
use listen::{Listen, address, as_named, mode};
use signals::Signals;
use user::{Paths, UserArguments};
use xdp::XdpArguments;

/// Serve a store to memcache clients; it is created if there is none
#[derive(Args)]
#[command(after_help = "Examples:\n  stratakv serve
  stratakv serve --data /mnt/nvme/store --memory 8G
  stratakv serve --memcache 127.0.0.1:11211 --memcache [::1]:11211
  stratakv serve --data /srv/store --device /dev/disk/by-id/nvme-XYZ
  stratakv serve --durability process_crash --threads 4
  stratakv serve --engine hash --region 64G --data /mnt/pmem/store
  stratakv serve --backup-dir /mnt/backup
  stratakv serve --config /etc/stratakv.toml      with lines such as: memory = '8G'

SIGTERM, SIGINT or SIGUSR1: no new connections; commands received are answered, the store is \
closed, exit code 0. Another signal more than a second later ends the process at once; nothing \
acknowledged is lost.

SIGHUP reads the files of --config, of TLS and of --auth-file again.

Exit code 5: another process has the store or the port.

Without --auth-file or --tls-client-ca, whoever can connect can read and change everything. So \
addresses other than loopback are refused without --insecure.")]
pub(crate) struct Arguments {
    /// Take options from a file of TOML, by their names; the command line and the environment win
    /// over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    open: OpenArguments,
    #[command(flatten)]
    durability: DurabilityArguments,
    #[command(flatten)]
    network: ConnectionArguments,
    #[command(flatten)]
    security: SecurityArguments,
    #[command(flatten)]
    user: UserArguments,
    #[command(flatten)]
    xdp: XdpArguments,
    #[command(flatten)]
    engine: EngineArguments,
    /// Shards; fixed when the store is created [default: one for each core; one with the engines
    /// `hash`, which has no more, and `matrix`]
    #[arg(long, value_name = "N")]
    shards: Option<usize>,
    #[command(flatten)]
    depth: DepthArguments,
    /// Most bytes the store may take on disk [default: all that the disk has]. With engine `tier`:
    /// length of the second tier, 0 for none [default: eight times the memory]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    capacity: Option<u64>,
    /// Save the memory of a cache (--engine tier --capacity 0) in --data at a clean shutdown, and
    /// load it at the next start: best on tmpfs. Remembered [default: as before, off for a new
    /// store; was --park]
    #[arg(
        long,
        alias = "park",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "on"
    )]
    save_at_shutdown: Option<Switch>,
    /// What a cache (--engine tier) that was away begins with, as clients may have written
    /// elsewhere meanwhile: `warm` (all that it had), `cold` (nothing), or `warm-within=TIME` (all
    /// if it was away no longer, nothing otherwise and after a reboot) [default: warm]
    #[arg(long, value_name = "HOW", value_parser = parse_rejoin)]
    rejoin: Option<Rejoin>,
    /// Empty the cache, and close all connections, once a client could not be reached for so long
    /// (3s to 1h), as it may have written elsewhere: for servers whose clients are proxies that
    /// wait at least as long before they leave a server out. Needs --rejoin cold or warm-within
    /// [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    rejoin_cut_off: Option<Duration>,
    /// Take backups into this directory when asked by `backup --server` on this machine; it must
    /// exist [default: take none]
    #[arg(long, value_name = "DIR")]
    backup_dir: Option<PathBuf>,
    /// Write such backups with at most so many bytes a second [default: as fast as it goes]
    #[arg(long, value_name = "BYTES", value_parser = parse_rate)]
    backup_rate: Option<NonZeroU64>,
    #[command(flatten)]
    monitor: MonitorArguments,
    #[command(flatten)]
    pub(crate) log: LogArguments,
}

/// Who may connect, and how much a connection may ask for.
#[derive(Args)]
struct ConnectionArguments {
    /// Where memcache clients may connect: ADDRESS:PORT, tls:ADDRESS:PORT or unix:PATH; may be
    /// given several times; port 0 takes a free one [default: 127.0.0.1:11211, or the sockets that
    /// systemd hands over]
    #[arg(long, value_name = "LISTEN")]
    memcache: Vec<Listen>,
    /// Where Redis clients may connect, to the same data: ADDRESS:PORT, tls:ADDRESS:PORT or
    /// unix:PATH; may be given several times; port 0 takes a free one [default: nowhere]
    #[arg(long, value_name = "LISTEN")]
    resp: Vec<Listen>,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Who may connect to unix: sockets: the mode of their files
    #[arg(long, value_name = "MODE", default_value = "0700", value_parser = mode)]
    unix_mode: u32,
    /// Server threads [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Longest value a client may store, up to 64M
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = parse_bytes)]
    item_bytes_max: u64,
    /// Most connections at once
    #[arg(long, value_name = "N", default_value = "10K", value_parser = parse_usize)]
    connections: usize,
    /// Close connections that wait for their client for so long, such as 60s [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    idle_timeout: Option<Duration>,
    /// Close connections whose client neither continues its request nor takes its reply for so
    /// long; `never` for no limit
    #[arg(long, value_name = "TIME", value_parser = limit, default_value = "60s")]
    request_timeout: Limit,
}

/// Who is let in, and what he may do.
#[derive(Args)]
struct SecurityArguments {
    /// Certificate of tls: addresses, in PEM, with those between it and its authority behind it
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Certificates of authorities, in PEM: clients of tls: addresses must show a certificate that
    /// one of them has signed
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Let only clients in that log in: a file of lines `user:password` (memcached's -Y, and SASL
    /// PLAIN)
    #[arg(long, value_name = "FILE")]
    auth_file: Option<PathBuf>,
    /// Let clients stop the server by `shutdown`
    #[arg(long)]
    enable_shutdown: bool,
    /// Allow addresses other than loopback, though nothing that is sent there is encrypted
    #[arg(long)]
    insecure: bool,
}

/// How many requests the device has at once.
#[derive(Args)]
struct DepthArguments {
    /// Most requests in flight on the device
    #[arg(long, value_name = "N", default_value_t = 128)]
    depth: u32,
    /// Instead of a depth: the longest that 99 of 100 reads of the device may take, such as 500us
    /// or 2ms; it is measured for a second
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "depth")]
    max_latency: Option<Duration>,
}

/// How the server is watched.
#[derive(Args)]
struct MonitorArguments {
    /// Monitor the server over HTTP at this address: status page, /metrics, /healthz, /readyz,
    /// /stats.json; port 0 takes a free one [default: none]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    admin: Option<SocketAddr>,
    /// A host name under which --admin answers too, beside localhost and IP addresses; may be given
    /// several times
    #[arg(long, value_name = "NAME", requires = "admin")]
    admin_name: Vec<String>,
    /// Log operations that take at least so many milliseconds, with the beginning of their key, up
    /// to ten a second for each thread [default: none]
    #[arg(long, value_name = "MS")]
    slow_log_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// A time after which something ends, if it does.
#[derive(Clone, Copy, Debug)]
struct Limit(Option<Duration>);

fn limit(text: &str) -> Result<Limit, String> {
    match text.trim() {
        "never" => Ok(Limit(None)),
        text => parse_duration(text).map(|limit| Limit(Some(limit))),
    }
}

/// What is logged, and how.
#[derive(Args)]
pub(crate) struct LogArguments {
    /// Log from this level on: error, warn, info, debug, trace, or a filter such as
    /// stratakv_slab=debug,warn
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

impl Arguments {
    fn server_options(&self) -> Result<ServerOptions, Failure> {
        self.refuse_open_addresses()?;
        let item_bytes_max = usize::try_from(self.network.item_bytes_max).unwrap_or(usize::MAX);
        if !(1..=VALUE_BYTES_MAX).contains(&item_bytes_max) {
            return Err(Failure::usage(format!(
                "--item-bytes-max {item_bytes_max}: values may have 1 to {VALUE_BYTES_MAX} bytes (64M)"
            )));
        }
        if self.rejoin_cut_off.is_some() && matches!(self.rejoin, None | Some(Rejoin::Warm)) {
            return Err(Failure::usage(
                "--rejoin-cut-off empties a cache, which --rejoin warm (the default) keeps: say --rejoin cold or warm-within=TIME too, or leave it out",
            ));
        }
        let inherited = systemd::inherited()?;
        let limits = ClientLimits {
            connections_max: self.network.connections,
            item_bytes_max,
            idle_limit: self.network.idle_timeout,
            request_limit: self.network.request_timeout.0,
            client_memory_bytes: Some(client_memory_bytes(self.open.memory)),
            cut_off: self.rejoin_cut_off,
        };
        let mut options = ServerOptions {
            memcache: Vec::new(),
            tls: self.tls(),
            unix_mode: self.network.unix_mode,
            limits,
            backup_directory: self.backup_dir.clone(),
            backup_rate: self.backup_rate,
            slow_from: self.slow_from(),
            inherited,
            auth_file: self.security.auth_file.clone(),
            shutdown_command: self.security.enable_shutdown,
            xdp: self.xdp.options(self.network.connections),
            ..ServerOptions::default()
        };
        options.threads = self.network.threads.unwrap_or(options.threads);
        for listen in self.network.memcache.iter().cloned() {
            match listen {
                Listen::Tcp(address) => options.memcache.push(address),
                Listen::Tls(address) => options.tls_memcache.push(address),
                Listen::Unix(path) => options.unix.push(path),
            }
        }
        for listen in self.network.resp.iter().cloned() {
            match listen {
                Listen::Tcp(address) => options.resp.addresses.push(address),
                Listen::Tls(address) => options.resp.tls_addresses.push(address),
                Listen::Unix(path) => options.resp.unix.push(path),
            }
        }
        options.resp.cluster = self.network.cluster.slots(&self.network.resp)?;
        if self.network.memcache.is_empty() && options.inherited.is_empty() {
            options.memcache = ServerOptions::default().memcache;
        }
        Ok(options)
    }

    /// Whether the options fit together, and the files of TLS and of accounts can be read. Nothing
    /// is opened.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        logging::check(&self.log.log)?;
        self.server_options()?.check().map_err(failure)
    }

    /// Addresses at which anybody could read and change everything.
    fn refuse_open_addresses(&self) -> Result<(), Failure> {
        let listens = self.network.memcache.iter().chain(&self.network.resp);
        let mut open = listens.filter_map(|listen| match listen {
            Listen::Tcp(address) => Some(address),
            // With it clients show who they are.
            Listen::Tls(address) if self.security.tls_client_ca.is_none() && self.security.auth_file.is_none() => {
                Some(address)
            }
            _ => None,
        });
        let is_open = |address: &&SocketAddr| !self.security.insecure && !address.ip().is_loopback();
        self.refuse_open_xdp()?;
        if let Some(address) = open.find(is_open) {
            let why = match self.security.auth_file {
                None => "there is no authentication",
                Some(_) => "nothing that is sent is encrypted, passwords neither",
            };
            return Err(Failure::usage(format!(
                "{address} can be reached from other machines and {why}: listen on 127.0.0.1, on tls:{address} with --tls-client-ca or --auth-file, or say --insecure"
            )));
        }
        // It speaks no TLS, and knows no accounts.
        match self.monitor.admin.as_ref().filter(is_open) {
            Some(address) => Err(Failure::usage(format!(
                "--admin {address} can be reached from other machines, and has no authentication: listen on 127.0.0.1:{}, or say --insecure",
                address.port()
            ))),
            None => Ok(()),
        }
    }

    /// AF_XDP serves the ports of all TCP addresses, those of loopback too.
    fn refuse_open_xdp(&self) -> Result<(), Failure> {
        let speaks_plainly = |listen: &Listen| matches!(listen, Listen::Tcp(_));
        let is_plain = self.network.memcache.is_empty() || self.network.memcache.iter().any(speaks_plainly);
        let has_authority = self.security.tls_client_ca.is_some() || self.security.auth_file.is_some();
        let Some(address) = self.xdp.addresses().next() else { return Ok(()) };
        if self.security.insecure || (!is_plain && has_authority) {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "--address {} can be reached from other machines, and what is sent there is neither encrypted nor authenticated: let all of --memcache be tls: with --tls-client-ca or --auth-file, or say --insecure",
            address.ip()
        )))
    }

    /// What is done to files while it serves.
    fn paths(&self) -> Paths {
        let folder = |path: &Path| match path.parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        let listens = self.network.memcache.iter().chain(&self.network.resp);
        let sockets = listens.filter_map(Listen::path).map(folder);
        let files = [
            &self.config,
            &self.security.tls_cert,
            &self.security.tls_key,
            &self.security.tls_client_ca,
            &self.security.auth_file,
        ];
        Paths {
            written: sockets.chain(self.backup_dir.clone()).collect(),
            store: self.open.data.all().map(Path::to_owned).collect(),
            read: files.into_iter().flatten().cloned().collect(),
        }
    }

    fn tls(&self) -> Option<TlsOptions> {
        let (certificate, key) = (self.security.tls_cert.clone()?, self.security.tls_key.clone()?);
        Some(TlsOptions { certificate, key, client_authority: self.security.tls_client_ca.clone() })
    }

    fn slow_from(&self) -> Option<Duration> {
        self.monitor.slow_log_ms.map(Duration::from_millis)
    }

    /// Before the store is opened: it tells meanwhile that it is not ready.
    fn start_admin(&self) -> Result<Option<Admin>, Failure> {
        let start = |address| Admin::start(address, self.monitor.admin_name.clone()).map_err(failure);
        self.monitor.admin.map(start).transpose()
    }

    /// As asked for, or measured.
    fn depth(&self) -> Result<u32, Failure> {
        let Some(max) = self.depth.max_latency else { return Ok(self.depth.depth) };
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
        say!("{why}");
        Ok(depth)
    }

    fn open(&self) -> Result<Store, Failure> {
        refuse_another_format(self.open.data.all(), self.engine.engine, self.shards, self.engine.placement)?;
        let mut options = self.durability.add_to(self.open.options().create(true));
        // The rest is for clients.
        options = options.memory_bytes(self.open.memory - client_memory_bytes(self.open.memory));
        options = options.depth(self.depth()?);
        let placed = Placed::choose(self.engine.placement, &self.open.data, self.open.io)?;
        options = placed.add_to(options);
        if let Some(shards) = self.shards {
            options = options.shards(shards);
        }
        if let Some(capacity) = self.capacity {
            options = options.capacity_bytes(capacity);
        }
        if let Some(save) = self.save_at_shutdown {
            options = options.save_at_shutdown(matches!(save, Switch::On));
        }
        if let Some(rejoin) = self.rejoin {
            options = options.rejoin(rejoin);
        }
        options = self.engine.add_to(options.on_event(Arc::new(tell)));
        let store = opened(&options, self.open.data.first())?;
        placed.tell(&store);
        if let Some(line) = store.rejoined().and_then(came_back) {
            say!("{line}");
        }
        Ok(store)
    }
}

pub(crate) fn run(arguments: &Arguments, given: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let options = arguments.server_options()?;
    options.check().map_err(failure)?;
    let resp = options.resp.addresses.iter().chain(&options.resp.tls_addresses);
    refuse_busy_ports(options.memcache.iter().chain(&options.tls_memcache).chain(resp))?;
    for path in options.unix.iter().chain(&options.resp.unix) {
        stratakv_server::check_socket_path(path, arguments.open.data.all()).map_err(failure)?;
    }
    let becoming = arguments.user.prepare(arguments.paths())?;
    let prepared = Server::prepare(options).map_err(failure)?;
    let started = Instant::now();
    systemd::opening();
    let admin = arguments.start_admin()?;
    let store = arguments.open()?;
    let signals = Signals::register()?;
    let server = Arc::new(prepared.start(store.clone()).map_err(failure)?);
    if let Some(becoming) = becoming {
        becoming.become_it()?;
    }
    if let Some(admin) = &admin {
        admin.serve(&server);
    }
    // A server is not given up because nobody reads what it says.
    if let Err(error) = announce(&store, arguments, (&server, admin.as_ref()), started, output) {
        tracing::warn!(%error, "cannot write to stdout what is served where");
        // Nor is the end told as a failure then: the lines are thrown away.
        let unwritten = std::mem::replace(output, io::BufWriter::new(io::stdout().lock()));
        drop(unwritten.into_parts());
    }
    let given = given.clone();
    signals.attend(Arc::clone(&server), move |server| reload(&given, server))?;
    systemd::ready();
    let ended = server.join().map_err(failure);
    let closed = closing(|| store.close());
    tell_dropped(&store);
    closed?;
    ended?;
    say!("closed in order");
    Ok(())
}

fn parse_rejoin(text: &str) -> Result<Rejoin, String> {
    match text {
        "warm" => Ok(Rejoin::Warm),
        "cold" => Ok(Rejoin::Cold),
        _ => match text.strip_prefix("warm-within").and_then(|rest| rest.strip_prefix(['=', ' '])) {
            Some(time) => parse_duration(time.trim()).map(Rejoin::WarmWithin),
            None => Err("it is `warm`, `cold` or `warm-within=TIME`, as in warm-within=10s".into()),
        },
    }
}

/// Says that a cache was emptied because it had been away.
fn came_back(rejoined: Rejoined) -> Option<String> {
    let absence = match rejoined.absence {
        Some(absence) => format!("was away for {:.1} s", absence.as_secs_f64()),
        None => "was away for nobody knows how long".to_owned(),
    };
    let line = format!("the cache {absence}, and begins empty as --rejoin says");
    rejoined.was_emptied.then_some(line)
}

/// Says what the end of a cache dropped, as nobody can ask for it later.
fn tell_dropped(store: &Store) {
    if store.engine() != Engine::Tier {
        return;
    }
    let statistics = store.stats();
    let figure = |name: &str| statistics.iter().filter(|one| one.name == name).map(|one| one.value).sum::<u64>();
    if let Some(line) = dropped(figure("evictions_at_end"), figure("items"), figure("ssd_capacity_bytes")) {
        say!("{line}");
    }
}

fn dropped(items: u64, kept: u64, capacity_bytes: u64) -> Option<String> {
    let advice = match capacity_bytes {
        0 => "memory ends with the process; --save-at-shutdown keeps it",
        _ => "memory found no more room in the second tier; raise --capacity",
    };
    (items > 0).then(|| format!("the end dropped {items} of {} items: {advice}", items + kept))
}

/// How often a close that takes long is told of.
const CLOSING_EVERY: Duration = Duration::from_secs(5);

/// Closes, and says every few seconds that it is still at it.
fn closing<R>(close: impl FnOnce() -> R) -> R {
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let begun = Instant::now();
    let watch = std::thread::Builder::new().name("closing".into()).spawn(move || {
        while let Err(std::sync::mpsc::RecvTimeoutError::Timeout) = wait.recv_timeout(CLOSING_EVERY) {
            say!("closing the store: {} s so far; what is in memory is written down", begun.elapsed().as_secs());
        }
    });
    let closed = close();
    drop(done);
    // Without a thread nothing is told; the store is closed all the same.
    if let Ok(watch) = watch {
        drop(watch.join());
    }
    closed
}

/// Options that SIGHUP can change; of `--auth-file` it has what is in the file read again. The
/// log's format, and all others, are fixed until the next start.
const RELOADED: [&str; 7] =
    ["log", "slow_log_ms", "idle_timeout", "request_timeout", "tls_cert", "tls_key", "tls_client_ca"];

/// Takes over what has changed in the file of `--config`, and reads the files of TLS and of
/// accounts again.
fn reload(given: &ArgMatches, server: &Server) {
    systemd::reloading();
    match try_reload(given, server) {
        Ok(()) => say!("options are read again"),
        Err(failure) => say!("nothing is changed: {}", failure.message),
    }
    systemd::ready();
}

fn try_reload(given: &ArgMatches, server: &Server) -> Result<(), Failure> {
    let (crate::Command::Serve(arguments), now) = crate::parse_again()? else { return Ok(()) };
    logging::check(&arguments.log.log)?;
    server.reload(arguments.tls()).map_err(failure)?;
    logging::change(&arguments.log.log)?;
    server.set_slow_from(arguments.slow_from());
    server.set_idle_limit(arguments.network.idle_timeout);
    server.set_request_limit(arguments.network.request_timeout.0);
    let command = crate::Arguments::command();
    let options = command.find_subcommand("serve").into_iter().flat_map(clap::Command::get_arguments);
    let raw = |matches: &ArgMatches, id: &str| -> Option<Vec<_>> {
        Some(matches.try_get_raw(id).ok()??.map(std::ffi::OsStr::to_owned).collect())
    };
    for id in options.map(|option| option.get_id().as_str()).filter(|id| !RELOADED.contains(id)) {
        if raw(given, id) != raw(&now, id) {
            say!("--{} has changed: that takes effect at the next start", id.replace('_', "-"));
        }
    }
    Ok(())
}

/// What an operator wants to see in the log. Damage and failures are told by the engine itself,
/// with more detail.
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
fn refuse_busy_ports<'a>(addresses: impl Iterator<Item = &'a SocketAddr>) -> Result<(), Failure> {
    let mut asked = addresses.copied().filter(|address| address.port() != 0);
    asked.try_for_each(|address| stratakv_server::check_free(address).map_err(failure))
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

/// The first line: what is served where, and how to end it.
fn sentence(store: &Store, server: &Server, arguments: &Arguments) -> String {
    let memcache = as_named(server.addresses(), &arguments.network.memcache);
    let redis = as_named(server.resp_addresses(), &arguments.network.resp);
    let at = match &memcache[..] {
        [] => "the sockets of systemd".to_owned(),
        addresses => addresses.join(" and "),
    };
    let and_redis = match &redis[..] {
        [] => String::new(),
        addresses => format!(", to Redis clients at {}", addresses.join(" and ")),
    };
    format!("Serving {} to memcache clients at {at}{and_redis}. Ctrl-C ends it in order.", store.path().display())
}

/// On stdout, flushed at once: whoever started the server waits for these lines.
fn announce(
    store: &Store,
    arguments: &Arguments,
    (server, admin): (&Server, Option<&Admin>),
    started: Instant,
    output: &mut Output,
) -> io::Result<()> {
    writeln!(output, "{}", sentence(store, server, arguments))?;
    if let Some(admin) = admin {
        writeln!(output, "admin     http://{}/", admin.address())?;
    }
    let recovery = store.recovery();
    let records = format_count(recovery.records, "record");
    let was_emptied = store.rejoined().is_some_and(|rejoined| rejoined.was_emptied);
    let state = match (recovery.created, recovery.clean) {
        (true, _) => "created".to_owned(),
        (_, true) => records,
        (_, false) if was_emptied => "emptied, as --rejoin says".to_owned(),
        (_, false) => format!("{records}, recovered after a crash"),
    };
    let ring = store.driver().map_or("unknown", |driver| driver.ring_name());
    let level = store.default_level().name();
    writeln!(output, "data      {} ({state} in {:.1} s)", store.path().display(), started.elapsed().as_secs_f64())?;
    writeln!(output, "engine    {}, durability {level}, I/O by {ring}", engine_of(store))?;
    if let Some(file) = &arguments.config {
        writeln!(output, "options   {}", file.display())?;
    }
    if let Some(directory) = &arguments.backup_dir {
        writeln!(output, "backups   {}", directory.display())?;
    }
    if arguments.backup_rate.is_some() && arguments.backup_dir.is_none() {
        say!("--backup-rate does nothing without --backup-dir: no client can begin a backup");
    }
    tell_growth(store);
    if !recovery.corrupt.is_empty() {
        let places = format_count(recovery.corrupt.len() as u64, "damaged place");
        say!("{places}: run `stratakv check`");
    }
    announce_addresses(arguments, server, output)?;
    output.flush()
}

/// The engine, and what the store's records lie in.
fn engine_of(store: &Store) -> String {
    let engine = store.engine().name();
    if let Some(region) = store.region() {
        let (bytes, domain) = (format_bytes(region.len_bytes), &region.domain);
        let paths: Vec<String> = region.paths.iter().map(|path| path.display().to_string()).collect();
        return format!("{engine}, {bytes} in {} ({domain})", paths.join(" and "));
    }
    let shards = format_count(store.shards() as u64, "shard");
    match store.placement() {
        Some(placement) => format!("{engine}, placement {}, {shards}", placement.name()),
        None => format!("{engine}, {shards}"),
    }
}

/// Where clients find the server.
fn announce_addresses(arguments: &Arguments, server: &Server, output: &mut Output) -> io::Result<()> {
    for path in arguments.network.memcache.iter().filter_map(Listen::path) {
        writeln!(output, "unix      {}", path.display())?;
    }
    // Those of TLS come last, as the server has them.
    let tls = arguments.network.memcache.iter().filter(|listen| matches!(listen, Listen::Tls(_))).count();
    let (plain, tls) = server.addresses().split_at(server.addresses().len() - tls);
    for address in tls {
        writeln!(output, "tls       {address}")?;
    }
    for path in arguments.network.resp.iter().filter_map(Listen::path) {
        writeln!(output, "resp      unix:{}", path.display())?;
    }
    for address in server.resp_addresses() {
        writeln!(output, "resp      {address}")?;
    }
    for address in plain {
        writeln!(output, "memcache  {address}")?;
    }
    for address in server.xdp_addresses() {
        writeln!(output, "xdp       {address}")?;
    }
    if plain.is_empty() {
        writeln!(output, "memcache  {}", if tls.is_empty() { "at sockets" } else { "by TLS" })?;
    }
    Ok(())
}
