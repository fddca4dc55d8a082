//! Honest clients beside a crowd: one that asks and stores at a steady pace, and slow ones.

use std::io::{BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

use super::wire::{Dialer, Wire};

/// Keys of the steady client, and the length of their values.
const KEYS: usize = 100;
const VALUE_BYTES: usize = 1024;
/// Between two of its requests; each eleventh is a set.
const PACE: Duration = Duration::from_micros(4545);
const SET_EACH: usize = 11;
/// From so late on it counts from when the request was due: who waits for an answer asks nothing
/// meanwhile.
const LATE: Duration = Duration::from_millis(1);
/// How long it waits for one answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pieces of slow clients in a second.
const PIECES_PER_S: u32 = 10;
/// How long a slow client may be kept waiting at one place.
const SLOW_PATIENCE: Duration = Duration::from_secs(90);
/// What a slow taker lets lie unread, so that the server sees it take.
const SLOW_RECEIVE_BYTES: usize = 16 << 10;

/// Who a client says it is.
pub const ACCOUNT: &str = "user secret";

/// What the steady client saw, in milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Steady {
    /// Of each get.
    pub gets_ms: Vec<f64>,
    /// Of each set.
    pub sets_ms: Vec<f64>,
    /// Requests that failed, and connections that were closed.
    pub errors: u64,
    /// Gets of keys that were not there.
    pub misses: u64,
}

/// The figure below which this part of all lies.
pub fn quantile(figures: &[f64], part: f64) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len().saturating_sub(1) as f64 * part).round() as usize;
    sorted.get(at).copied().unwrap_or_default()
}

/// Connects, and says who it is if asked to.
fn connect(dialer: &Dialer, says_who: bool, limit: Duration) -> Result<BufReader<Wire>, String> {
    let wire = dialer.dial_and_wait(limit).map_err(|error| format!("no connection: {error}"))?;
    let mut client = BufReader::new(wire);
    if says_who {
        let said = ask(&mut client, format!("set a 0 0 {}\r\n{ACCOUNT}\r\n", ACCOUNT.len()).as_bytes())?;
        if said != "STORED" {
            return Err(format!("not let in: {said}"));
        }
    }
    Ok(client)
}

fn send(client: &mut BufReader<Wire>, bytes: &[u8]) -> Result<(), String> {
    let wire = client.get_mut();
    wire.write_all(bytes).and_then(|()| wire.flush()).map_err(|error| format!("not sent: {error}"))
}

fn line(client: &mut BufReader<Wire>) -> Result<String, String> {
    let mut line = String::new();
    client.read_line(&mut line).map_err(|error| format!("no answer: {error}"))?;
    line.strip_suffix("\r\n").map(str::to_owned).ok_or_else(|| format!("closed after `{line}`"))
}

fn ask(client: &mut BufReader<Wire>, bytes: &[u8]) -> Result<String, String> {
    send(client, bytes)?;
    line(client)
}

/// Asks for a key; whether it is there.
fn get(client: &mut BufReader<Wire>, key: &str, value: &mut Vec<u8>) -> Result<bool, String> {
    let said = ask(client, format!("get {key}\r\n").as_bytes())?;
    if said == "END" {
        return Ok(false);
    }
    let bytes = said.rsplit(' ').next().and_then(|bytes| bytes.parse::<usize>().ok());
    let bytes = bytes.filter(|_| said.starts_with("VALUE ")).ok_or_else(|| format!("answered `{said}`"))?;
    value.resize(bytes + 2, 0);
    client.read_exact(value).map_err(|error| format!("half an answer: {error}"))?;
    value.truncate(bytes);
    match line(client)?.as_str() {
        "END" => Ok(true),
        other => Err(format!("`{other}` in the place of END")),
    }
}

/// The keys of the steady client are stored; asked for at its pace for so long.
///
/// # Errors
/// They cannot be stored.
pub fn steady(dialer: &Dialer, says_who: bool, duration: Duration) -> Result<Steady, String> {
    // Where that is allowed it does not wait for the processor behind the crowd: what the server
    // does is measured.
    let _ = rustix::process::setpriority_process(None, -10);
    let value = "h".repeat(VALUE_BYTES);
    let set = |number: usize| format!("set honest{number} 0 0 {VALUE_BYTES}\r\n{value}\r\n");
    let mut client = connect(dialer, says_who, PATIENCE)?;
    for number in 0..KEYS {
        let said = ask(&mut client, set(number).as_bytes())?;
        if said != "STORED" {
            return Err(format!("the steady client's set: {said}"));
        }
    }
    let (mut seen, mut got) = (Steady::default(), Vec::new());
    let began = Instant::now();
    for tick in 0.. {
        let due = began + PACE * tick as u32;
        if due - began > duration {
            break;
        }
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let now = Instant::now();
        let from = if now - due > LATE { due } else { now };
        // Each key in turn, in an order that is not theirs.
        let number = tick * 37 % KEYS;
        let is_set = tick % SET_EACH == SET_EACH - 1;
        let answered = match is_set {
            true => ask(&mut client, set(number).as_bytes()).map(|said| said == "STORED"),
            false => get(&mut client, &format!("honest{number}"), &mut got),
        };
        let took_ms = from.elapsed().as_secs_f64() * 1e3;
        if is_set { &mut seen.sets_ms } else { &mut seen.gets_ms }.push(took_ms);
        match answered {
            Ok(true) => {}
            Ok(false) if is_set => seen.errors += 1,
            Ok(false) => seen.misses += 1,
            Err(_) => {
                seen.errors += 1;
                client = connect(dialer, says_who, PATIENCE)?;
            }
        }
    }
    Ok(seen)
}

/// Stores a value of so many bytes at so many a second; how long it took.
///
/// # Errors
/// It was not served.
pub fn slow_sender(dialer: &Dialer, says_who: bool, bytes: usize, bytes_per_s: usize) -> Result<Duration, String> {
    let began = Instant::now();
    let mut client = connect(dialer, says_who, SLOW_PATIENCE)?;
    let value = slow_value(bytes);
    send(&mut client, format!("set slow 0 0 {bytes}\r\n").as_bytes())?;
    let piece = (bytes_per_s / PIECES_PER_S as usize).max(1);
    for (number, part) in value.chunks(piece).enumerate() {
        let due = began + Duration::from_secs(1) / PIECES_PER_S * number as u32;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        send(&mut client, part).map_err(|why| format!("after {} of {bytes} bytes: {why}", number * piece))?;
    }
    match ask(&mut client, b"\r\n")?.as_str() {
        "STORED" => Ok(began.elapsed()),
        said => Err(said.to_owned()),
    }
}

/// What slow clients store and take.
pub fn slow_value(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| b'a' + (at % 23) as u8).collect()
}

/// Takes the value of this key, which is [`slow_value`] of so many bytes, at so many a second; how
/// long it took.
///
/// # Errors
/// It was not served, or not with those bytes.
pub fn slow_taker(
    dialer: &Dialer,
    says_who: bool,
    key: &str,
    bytes: usize,
    bytes_per_s: usize,
) -> Result<Duration, String> {
    let began = Instant::now();
    let dialer = dialer.clone().receive_bytes(SLOW_RECEIVE_BYTES);
    let mut client = connect(&dialer, says_who, SLOW_PATIENCE)?;
    let said = ask(&mut client, format!("get {key}\r\n").as_bytes())?;
    if said != format!("VALUE {key} 0 {bytes}") {
        return Err(format!("answered `{said}`"));
    }
    let (mut value, taking) = (Vec::with_capacity(bytes + 7), Instant::now());
    let mut piece = vec![0; (bytes_per_s / PIECES_PER_S as usize).max(1)];
    for number in 0.. {
        let left = bytes + b"\r\nEND\r\n".len() - value.len();
        if left == 0 {
            break;
        }
        let due = taking + Duration::from_secs(1) / PIECES_PER_S * number;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let part = &mut piece[..left.min(bytes_per_s / PIECES_PER_S as usize).max(1)];
        client.read_exact(part).map_err(|error| format!("after {} of {bytes} bytes: {error}", value.len()))?;
        value.extend_from_slice(part);
    }
    match value == [slow_value(bytes), b"\r\nEND\r\n".to_vec()].concat() {
        true => Ok(began.elapsed()),
        false => Err("other bytes than were stored".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_among_the_figures() {
        let figures: Vec<f64> = (0..101).rev().map(f64::from).collect();
        assert_eq!((quantile(&figures, 0.5), quantile(&figures, 0.99), quantile(&[], 0.5)), (50.0, 99.0, 0.0));
    }
}
