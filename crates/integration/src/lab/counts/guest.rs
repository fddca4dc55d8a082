//! The guest: one server after the other on the same store, as the host asks for by a line on a
//! connection of its own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount};
use rustix::system::finit_module;

use super::super::bypass::{VOLUME, bind, block_device, give_back};
use super::super::guest::{TRACE, text};
use super::super::pmem::MODULES;
use super::{CONTROL_PORT, KERNEL_ADDRESS, MODULE_FILES, PREFIX, ServerKind, XDP_ADDRESS};

/// What a client may have cached of it is little: `--memory` is the least that the store takes.
const SERVE: &str = "serve --data /data/store --memory 16M --shards 1 --threads 1 --engine slab --placement in_place \
                     --durability power_loss --memcache 0.0.0.0:11211 --insecure --log warn";
/// A device appears so soon.
const SOON: Duration = Duration::from_secs(60);

/// Serves the host until it says `end`.
pub(in super::super) fn run() -> Result<String, String> {
    for (kind, at) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys"), ("tracefs", TRACE)] {
        mount(kind, at, kind, MountFlags::empty(), None).map_err(text(&format!("mount {kind}")))?;
    }
    mount(&block_device("HOME")?, "/data", "ext4", MountFlags::empty(), None).map_err(text("mount the file system"))?;
    load_modules()?;
    for words in
        ["link set lo up".to_owned(), "link set eth0 up".into(), format!("addr add {KERNEL_ADDRESS}/{PREFIX} dev eth0")]
    {
        succeed("/ip", &words)?;
    }
    let listener = TcpListener::bind(("0.0.0.0", CONTROL_PORT)).map_err(text("listen"))?;
    let mut host = Host { server: None, is_bound: false, served: 0 };
    loop {
        let (mut stream, _) = listener.accept().map_err(text("accept"))?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).map_err(text("read a command"))?;
        if line.trim() == "end" {
            break;
        }
        let answer = host.obey(line.trim()).unwrap_or_else(|why| format!("failed: {}", why.replace('\n', "; ")));
        writeln!(stream, "{answer}").map_err(text("answer"))?;
    }
    if host.is_bound {
        give_back(VOLUME)?;
    }
    let clock = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    Ok(format!("{} servers; clock {}", host.served, clock.unwrap_or_default().trim()))
}

/// A server.
struct Running {
    process: Child,
    /// What it says afterwards is little, and nobody reads it; but it must not be closed.
    _voice: Lines<BufReader<ChildStdout>>,
}

/// What the host asks of the guest.
struct Host {
    server: Option<Running>,
    is_bound: bool,
    served: u32,
}

impl Host {
    fn obey(&mut self, command: &str) -> Result<String, String> {
        match command.split_once(' ') {
            None if command == "interrupts" => interrupts(),
            None if command == "stop" => self.stop(),
            Some(("start", kind)) => {
                let kind = ServerKind::of(kind).ok_or_else(|| format!("no server {kind}"))?;
                self.start(kind)
            }
            _ => Err(format!("no command `{command}`")),
        }
    }

    fn start(&mut self, kind: ServerKind) -> Result<String, String> {
        match (self.is_bound, kind.has_nvme()) {
            (false, true) => drop(bind(VOLUME)?),
            (true, false) => drop(give_back(VOLUME)?),
            _ => {}
        }
        self.is_bound = kind.has_nvme();
        let device = if kind.has_nvme() { VOLUME.to_owned() } else { appeared()? };
        let option = if kind.has_nvme() { "--nvme" } else { "--device" };
        let address = format!("{XDP_ADDRESS}/{PREFIX}");
        let mut command = Command::new("/stratakv");
        command.args(SERVE.split_whitespace()).args([option, &device]);
        if kind.has_xdp() {
            command.args(["--xdp", "eth0", "--address", &address]);
        }
        let mut server = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().map_err(text("start it"))?;
        let mut lines = BufReader::new(server.stdout.take().ok_or("a server without a voice")?).lines();
        let ready = if kind.has_xdp() { "xdp " } else { "memcache " };
        if !lines.any(|line| line.is_ok_and(|line| line.starts_with(ready))) {
            let status = server.wait().map_err(text("wait for the server"))?;
            return Err(format!("server {} did not start: {status}", kind.name()));
        }
        self.server = Some(Running { process: server, _voice: lines });
        self.served += 1;
        Ok("ok".into())
    }

    fn stop(&mut self) -> Result<String, String> {
        let mut server = self.server.take().ok_or("there is no server")?;
        let pid = rustix::process::Pid::from_child(&server.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).map_err(text("end the server"))?;
        let status = server.process.wait().map_err(text("wait for the server"))?;
        if status.success() { Ok("ok".into()) } else { Err(format!("the server's end was {status}")) }
    }
}

/// The kernel's device, when it is there again.
fn appeared() -> Result<String, String> {
    let begin = Instant::now();
    loop {
        match block_device("VOLUME") {
            Ok(device) if Path::new(&device).exists() => return Ok(device),
            Err(why) if begin.elapsed() > SOON => return Err(why),
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Interrupts so far: of the controller, of the network card, of the timer.
fn interrupts() -> Result<String, String> {
    let table = fs::read_to_string("/proc/interrupts").map_err(text("read /proc/interrupts"))?;
    let home = block_device("HOME")?;
    let home = home.trim_start_matches("/dev/").trim_end_matches("n1").to_owned() + "q";
    let (mut device, mut network, mut timer) = (0, 0, 0);
    for line in table.lines() {
        let count = line.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        if line.trim_start().starts_with("LOC:") {
            timer += count;
        } else if line.contains("virtio") {
            network += count;
        } else if line.contains("vfio") || line.contains("nvme") && !line.contains(&home) {
            device += count;
        }
    }
    Ok(format!("{device} {network} {timer}"))
}

fn load_modules() -> Result<(), String> {
    for module in MODULE_FILES {
        let path = format!("/{MODULES}/{}", module.replace('/', "_"));
        let file = File::open(&path).map_err(text(&format!("open {path}")))?;
        finit_module(&file, c"", 0).map_err(text(&format!("load {path}")))?;
    }
    Ok(())
}

fn succeed(program: &str, words: &str) -> Result<(), String> {
    let output = Command::new(program).args(words.split(' ')).output().map_err(text(&format!("run {program}")))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program} {words}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
