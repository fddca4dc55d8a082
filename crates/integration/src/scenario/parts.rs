//! Clients that are processes of their own, so that they can be stopped in the middle of what they
//! do.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::memcache::Client;
use crate::{program, value};

/// Values of the large replies.
pub(super) const LARGE: u64 = 64;
/// Their length: just below what a server takes.
pub(super) const LARGE_BYTES: usize = 1_000_000;
/// Said when it is in the middle.
const BEGUN: &str = "begun";

/// What a client of its own does.
#[derive(Clone, Copy, Debug)]
pub(super) enum ClientRole {
    /// Asks for all large values at once and reads them.
    Reader,
    /// Sends a large value in two halves.
    Sender,
}

/// A process that plays a part; killed when dropped.
pub(super) struct Player {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Player {
    /// Starts one, waits until it is in the middle, and stops it there.
    pub(super) fn stopped(part: ClientRole, address: SocketAddr, number: u64) -> Result<Player, String> {
        let name = match part {
            ClientRole::Reader => "reader",
            ClientRole::Sender => "sender",
        };
        let mut command = Command::new(program::harness());
        command.args([name, &address.to_string(), &number.to_string()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("cannot start a client: {error}"))?;
        let said = BufReader::new(child.stdout.take().ok_or("a client has no stdout")?);
        let mut player = Player { child, said };
        match player.line()?.as_str() {
            BEGUN => {
                player.signal(Signal::STOP)?;
                Ok(player)
            }
            other => Err(format!("a client said `{other}`")),
        }
    }

    /// Lets it go on to its end, which must be good.
    pub(super) fn go_on(mut self) -> Result<(), String> {
        self.signal(Signal::CONT)?;
        let said = self.line()?;
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("a client that was stopped and continued: {said}")) }
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.said.read_line(&mut line).map_err(|error| error.to_string())?;
        Ok(line.trim_end().to_owned())
    }

    fn signal(&self, signal: Signal) -> Result<(), String> {
        kill_process(Pid::from_child(&self.child), signal).map_err(|error| error.to_string())
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A large value's key and identity.
pub(super) fn large(number: u64) -> (String, u64) {
    (format!("large{number}"), 1 << 50 | number)
}

/// The other end of `Player`: what a process started with these words does. `say` is told its
/// lines.
///
/// # Errors
/// The server's answers are not what they must be.
pub fn play(part: &str, words: &[String], say: &mut dyn FnMut(&str)) -> Result<(), String> {
    let [address, number] = words else { return Err("a part needs an address and a number".into()) };
    let address = address.parse().map_err(|_| format!("`{address}` is no address"))?;
    let number = number.parse().map_err(|_| format!("`{number}` is no number"))?;
    let mut client = Client::connect(address).map_err(|error| error.to_string())?;
    let played = match part {
        "reader" => read(&mut client, say),
        _ => send(&mut client, number, say),
    };
    played.map_err(|error| error.to_string())?;
    say("intact");
    Ok(())
}

fn read(client: &mut Client, say: &mut dyn FnMut(&str)) -> io::Result<()> {
    let gets: String = (0..LARGE).map(|number| format!("get {}\r\n", large(number).0)).collect();
    client.send(gets.as_bytes())?;
    // One byte: the rest is on its way, or in the server.
    client.stream().peek(&mut [0])?;
    say(BEGUN);
    for number in 0..LARGE {
        let (key, id) = large(number);
        let hits = client.hits()?;
        let intact = hits.len() == 1 && hits[0].key == key.as_bytes() && value::decode(id, &hits[0].value) == Ok(1);
        if !intact {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{key} is not what was written")));
        }
    }
    Ok(())
}

fn send(client: &mut Client, number: u64, say: &mut dyn FnMut(&str)) -> io::Result<()> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let (key, id) = large(number);
    let command = crate::memcache::set_command(key.as_bytes(), 0, &value::encode(id, 1, LARGE_BYTES));
    let (first, second) = command.split_at(command.len() / 2);
    client.send(first)?;
    say(BEGUN);
    client.send(second)?;
    let line = client.line()?;
    if line != "STORED" {
        return Err(wrong(format!("{key}: {line}")));
    }
    match client.get(key.as_bytes())? {
        Some(found) if value::decode(id, &found) == Ok(1) => {}
        _ => return Err(wrong(format!("{key} is not what was written"))),
    }
    match client.ask(&format!("delete {key}"))?.as_str() {
        "DELETED" => Ok(()),
        other => Err(wrong(format!("{key}: {other}"))),
    }
}
