//! The server's process: started, heard, killed. Its log has every command that its driver gave the
//! controller, written before the controller hears of it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::super::guest::text;
use super::super::VOLUME;
use super::network::INTERFACE;

const PROGRAM: &str = "/stratakv";
/// An orderly end takes no longer.
const END_MAX: Duration = Duration::from_secs(60);
/// What the driver says when it finds a completion by looking, after it has slept in vain.
const LOST: &str = "a completion came without its interrupt";

/// See the module.
pub(super) struct Server {
    process: Child,
    said: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts one, and waits until it takes clients.
    pub(super) fn start(engine: &[&str]) -> Result<Server, String> {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--data", "/data/store", "--nvme", VOLUME, "--memory", "48M", "--shards", "2"]);
        command.args(["--xdp", INTERFACE, "--address", "10.77.0.2/24", "--xdp-memory", "4M", "--threads", "2"]);
        command.args(["--memcache", "0.0.0.0:11211", "--insecure", "--log-format", "json"]);
        command.args(["--log", "nvme=trace,stratakv_device=debug,warn"]).args(engine);
        let mut process =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(text("start the server"))?;
        let said = Arc::new(Mutex::new(String::new()));
        let stderr = process.stderr.take().ok_or("a server without a log")?;
        let mut stdout = BufReader::new(process.stdout.take().ok_or("a server without a voice")?);
        let mut readers = vec![listen(stderr, &said)];
        let mut line = String::new();
        while !line.starts_with("xdp ") {
            line.clear();
            if stdout.read_line(&mut line).map_err(text("hear the server"))? == 0 {
                let status = process.wait().map_err(text("wait for the server"))?;
                readers.drain(..).for_each(|reader| drop(reader.join()));
                let said = said.lock().unwrap_or_else(PoisonError::into_inner);
                return Err(format!("the server did not start, {status}: {}", without_commands(&said)));
            }
        }
        readers.push(listen(stdout, &Arc::default()));
        Ok(Server { process, said, readers })
    }

    /// What its log says, but for commands.
    pub(super) fn said(&self) -> String {
        without_commands(&self.said.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// # Errors
    /// It has ended by itself.
    pub(super) fn must_run(&mut self) -> Result<(), String> {
        match self.process.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("the server ended by itself, {status}: {}", self.said())),
            Err(error) => Err(format!("cannot look at the server: {error}")),
        }
    }

    /// `kill -9`: the commands that it gave the controller, as lines.
    pub(super) fn kill(mut self) -> Result<String, String> {
        self.process.kill().map_err(text("kill the server"))?;
        self.process.wait().map_err(text("wait for the server"))?;
        self.commands()
    }

    /// An orderly end; as [`Server::kill`].
    pub(super) fn stop(mut self) -> Result<String, String> {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).map_err(text("end the server"))?;
        let begin = Instant::now();
        while begin.elapsed() < END_MAX {
            match self.process.try_wait().map_err(text("wait for the server"))? {
                Some(status) if status.success() => return self.commands(),
                Some(status) => return Err(format!("the server's end was {status}: {}", self.said())),
                None => thread::sleep(Duration::from_millis(10)),
            }
        }
        Err(format!("the server does not end: {}", self.said()))
    }

    fn commands(mut self) -> Result<String, String> {
        for reader in self.readers.drain(..) {
            reader.join().map_err(|_| "who listens to the server panicked".to_owned())?;
        }
        Ok(commands(&self.said.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended, but for errors.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn listen(from: impl Read + Send + 'static, to: &Arc<Mutex<String>>) -> JoinHandle<()> {
    let to = Arc::clone(to);
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let mut said = to.lock().unwrap_or_else(PoisonError::into_inner);
            said.push_str(&line);
            said.push('\n');
        }
    })
}

/// Commands in a log of JSON, as lines of opcode, block, blocks, FUA. A line that a kill has cut
/// off tells of a command that the controller did not hear of.
fn commands(log: &str) -> String {
    let mut lines = String::new();
    for event in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let number = |name: &str| event[name].as_u64();
        if event["target"] == "nvme"
            && let (Some(opcode), Some(slba), Some(blocks)) = (number("opcode"), number("slba"), number("blocks"))
        {
            lines += &format!("{opcode} {slba} {blocks} {}\n", u8::from(event["fua"] == true));
        }
    }
    lines
}

fn without_commands(log: &str) -> String {
    log.lines().filter(|line| !line.contains("\"target\":\"nvme\"")).map(|line| format!("{line}\n")).collect()
}

/// How often the driver found a completion without its interrupt.
pub(super) fn lost_interrupts(said: &str) -> usize {
    said.lines().filter(|line| line.contains(LOST)).count()
}

/// Interrupts of the controller that the kernel has handed to this driver.
pub(super) fn interrupts() -> Result<u64, String> {
    let table = fs::read_to_string("/proc/interrupts").map_err(text("read /proc/interrupts"))?;
    Ok(sum_of_interrupts(&table))
}

fn sum_of_interrupts(table: &str) -> u64 {
    let lines = table.lines().filter(|line| line.contains("vfio") && line.contains(VOLUME));
    let counts = lines.flat_map(|line| line.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok()));
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = r#"{"level":"TRACE","message":"command","device":"0000:00:04.0","nsid":1,"opcode":1,"slba":24,"blocks":8,"fua":true,"target":"nvme"}
{"level":"WARN","message":"something","target":"stratakv_device::nvme::ring"}
{"level":"TRACE","message":"command","device":"0000:00:04.0","nsid":1,"opcode":0,"slba":0,"blocks":0,"fua":false,"target":"nvme"}
{"level":"TRACE","message":"command","device":"0000:00:04.0","nsi"#;

    #[test]
    fn commands_are_read_from_the_log_and_one_cut_off_is_not() {
        assert_eq!(commands(LOG), "1 24 8 1\n0 0 0 0\n");
        assert_eq!(without_commands(LOG).lines().count(), 2);
    }

    #[test]
    fn interrupts_of_the_controller_are_counted_on_all_processors() {
        let table = "           CPU0       CPU1\n  24:  5  6  IR-PCI-MSIX-0000:00:04.0   1-edge  vfio-msix[1](0000:00:04.0)\n  \
                     25:  100  0  IR-PCI-MSI  nvme0q0\n";
        assert_eq!(sum_of_interrupts(table), 11);
    }
}
