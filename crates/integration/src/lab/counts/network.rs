//! The host's end: a tap in a network namespace of its own, gone with it.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::super::guest::text;
use super::super::machine::find;
use super::{CONTROL_PORT, KERNEL_ADDRESS, PREFIX};

pub(super) const TAP: &str = "tap0";
/// A guest is up so soon.
const BOOT: Duration = Duration::from_secs(100);
/// It answers so soon.
const ANSWER: Duration = Duration::from_secs(60);

/// See the module.
pub(super) struct HostNetwork {
    name: String,
    file: File,
}

impl HostNetwork {
    pub(super) fn make() -> Result<HostNetwork, String> {
        let name = format!("stratakv-lab-{}", std::process::id());
        ip(&format!("netns add {name}"))?;
        let file = File::open(format!("/run/netns/{name}")).map_err(text("open the namespace"))?;
        let network = HostNetwork { name, file };
        let name = &network.name;
        // With headers that say what is left to the card: so it does checksums and segmentation.
        ip(&format!("-n {name} tuntap add {TAP} mode tap vnet_hdr"))?;
        ip(&format!("-n {name} addr add 10.78.0.1/{PREFIX} dev {TAP}"))?;
        ip(&format!("-n {name} link set {TAP} up"))?;
        Ok(network)
    }

    /// Has the calling thread, and what it starts, be there.
    pub(super) fn enter(&self) -> Result<(), String> {
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(text("enter a namespace"))
    }
}

impl Drop for HostNetwork {
    fn drop(&mut self) {
        // It is named after this process: nobody else's.
        drop(ip(&format!("netns del {}", self.name)));
    }
}

fn ip(words: &str) -> Result<(), String> {
    let program = find("ip").ok_or("ip is not installed")?;
    let output = Command::new(program).args(words.split(' ')).output().map_err(text("run ip"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {words}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// The machine, as far as the one who measures knows of it.
#[derive(Clone, Copy)]
pub(super) struct Guest<'a> {
    /// It has ended.
    pub(super) gone: &'a AtomicBool,
}

impl Guest<'_> {
    fn is_gone(self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

/// Has the guest do something: its answer.
pub(super) fn ask(guest: Guest<'_>, command: &str, answers: bool) -> Result<String, String> {
    let address = format!("{KERNEL_ADDRESS}:{CONTROL_PORT}").parse().map_err(text("read an address"))?;
    let begin = Instant::now();
    let mut stream = loop {
        match TcpStream::connect_timeout(&address, Duration::from_secs(2)) {
            Ok(stream) => break stream,
            Err(_) if guest.is_gone() => return Err("the guest is gone".into()),
            Err(error) if begin.elapsed() > BOOT => return Err(format!("the guest takes no commands: {error}")),
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    };
    stream.set_read_timeout(Some(ANSWER)).map_err(text("set a timeout"))?;
    writeln!(stream, "{command}").map_err(text("send a command"))?;
    if !answers {
        return Ok(String::new());
    }
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(text(&format!("hear of `{command}`")))?;
    match answer.trim() {
        "" => Err(format!("`{command}` was not answered")),
        answer if answer.starts_with("failed") => Err(format!("`{command}` {answer}")),
        answer => Ok(answer.to_owned()),
    }
}
