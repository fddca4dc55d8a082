//! The operator's way, by the program: `doctor`, bind, `serve`, a kill, give back, `check` under
//! the kernel's driver. Each step's output is mailed to the host.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::Value;

use super::super::guest::{send_mail, text};
use super::VOLUME;
use super::binding;
use super::work::block_device;

const PROGRAM: &str = "/stratakv";
const DATA: &str = "/data/store";
const SOCKET: &str = "/data/memcache";
const KEYS: u32 = 300;
/// A server is up, or a device appears, so soon.
const SOON: Duration = Duration::from_secs(60);

pub(super) fn run() -> Result<String, String> {
    let home = block_device("HOME")?;
    mount(&home, "/data", "ext4", MountFlags::empty(), None).map_err(text("mount the file system"))?;
    let mut steps = Transcript::default();
    steps.program(&["doctor", "--nvme", VOLUME], true)?;
    steps.run_list("bind")?;
    steps.program(&["doctor", "--nvme", VOLUME], true)?;
    let serve = ["serve", "--data", DATA, "--nvme", VOLUME, "--memcache", "unix:/data/memcache", "--memory", "64M"];
    steps.say(&format!("stratakv {}", serve.join(" ")));
    let mut server = Command::new(PROGRAM);
    server.args(serve).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = server.spawn().map_err(text("start the server"))?;
    let written = write_keys(&mut server);
    server.kill().map_err(text("kill the server"))?;
    let output = server.wait_with_output().map_err(text("hear the server"))?;
    steps.add(&output.stdout);
    steps.add(&output.stderr);
    written?;
    steps.say(&format!("# {KEYS} keys are set; then: kill -9"));
    steps.run_list("give_back")?;
    let device = device_of_volume()?;
    steps.program(&["check", "--data", DATA, "--device", &device], true)?;
    // It is as it was: somebody's data, which doctor does not offer to take.
    steps.program(&["doctor", "--nvme", VOLUME], true)?;
    steps.program(&["get", "--data", DATA, "--device", &device, "key7"], true)?;
    unmount("/data", UnmountFlags::empty()).map_err(text("unmount the file system"))?;
    send_mail(&block_device("MAIL")?, steps.0.as_bytes())?;
    Ok(format!("{KEYS} keys set, {} lines of output", steps.0.lines().count()))
}

/// What an operator typed and saw.
#[derive(Default)]
struct Transcript(String);

impl Transcript {
    fn say(&mut self, command: &str) {
        self.0 += &format!("$ {command}\n");
    }

    fn add(&mut self, output: &[u8]) {
        self.0 += &String::from_utf8_lossy(output);
    }

    fn program(&mut self, arguments: &[&str], must_succeed: bool) -> Result<(), String> {
        self.say(&format!("stratakv {}", arguments.join(" ")));
        let output = Command::new(PROGRAM).args(arguments).output().map_err(text("start the program"))?;
        self.add(&output.stdout);
        self.add(&output.stderr);
        if must_succeed && !output.status.success() {
            return Err(format!("stratakv {arguments:?}: {}\n{}", output.status, self.0));
        }
        Ok(())
    }

    /// The commands that `doctor` gives.
    fn run_list(&mut self, name: &str) -> Result<(), String> {
        let output = Command::new(PROGRAM).args(["doctor", "--nvme", VOLUME, "--json"]).output();
        let output = output.map_err(text("start doctor"))?;
        let report: Value = serde_json::from_slice(&output.stdout).map_err(text("read what doctor says"))?;
        let commands = report["controllers"][0][name].as_array().cloned();
        let commands = commands.ok_or_else(|| format!("doctor gives no commands to {name}: {report}"))?;
        for command in commands.iter().filter_map(Value::as_str) {
            self.say(command);
            binding::run(command)?;
        }
        Ok(())
    }
}

/// Sets keys as a client, when the server takes one.
fn write_keys(server: &mut Child) -> Result<(), String> {
    use std::io::{BufRead, BufReader, Write};
    let begin = Instant::now();
    let stream = loop {
        if let Ok(stream) = UnixStream::connect(SOCKET) {
            break stream;
        }
        if let Ok(Some(status)) = server.try_wait() {
            return Err(format!("the server ended: {status}"));
        }
        if begin.elapsed() > SOON {
            return Err("the server takes no client".into());
        }
        thread::sleep(Duration::from_millis(50));
    };
    let mut replies = BufReader::new(stream.try_clone().map_err(text("read from the server"))?).lines();
    let mut stream = stream;
    for key in 0..KEYS {
        let value = format!("value {key} ").repeat(1 + key as usize % 300);
        write!(stream, "set key{key} 0 0 {}\r\n{value}\r\n", value.len()).map_err(text("send a set"))?;
        let reply = replies.next().ok_or("the server closed")?.map_err(text("read a reply"))?;
        if reply.trim() != "STORED" {
            return Err(format!("key{key} was answered {reply}"));
        }
    }
    Ok(())
}

/// The kernel's device of the controller, when it is there again.
fn device_of_volume() -> Result<String, String> {
    let begin = Instant::now();
    loop {
        match block_device("VOLUME") {
            Ok(device) if Path::new(&device).exists() => return Ok(device),
            Err(why) if begin.elapsed() > SOON => return Err(why),
            _ => thread::sleep(Duration::from_millis(20)),
        }
    }
}
