//! Other clients: slow, many, broken. Honest ones go on, the server's memory and descriptors stay
//! bounded.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stratakv_base::random::Random;

use super::parts::{ClientRole, LARGE, LARGE_BYTES, Player, large};
use super::{ScenarioOutcome, Setting, connect, honest};
use crate::memcache::Client;
use crate::process;
use crate::value;

/// Writes acknowledged to go on in spite of it.
const GO_ON: u64 = 500;
/// `--memory` of the server: an eighth of it is for clients, and holds what all stopped ones may
/// cost. With less, those are closed.
const MEMORY: &str = "512M";
/// `--memory` of the other scenarios, and what the program, its threads and its rings take beside
/// that.
const SMALL_BYTES: u64 = 64 << 20;
const PROGRAM_BYTES: u64 = 64 << 20;
/// What the store and the program take of memory when honest clients have written and read what
/// they have.
const MEANWHILE_BYTES: u64 = 192 << 20;
/// What each stopped client may cost: its answers or its value, and what is lost to fragments.
const CLIENT_BYTES: u64 = 4 << 20;
/// Most connections that are refused or come back late.
const SLACK: usize = 4;

pub(super) fn stopped_readers(setting: &Setting<'_>) -> Result<ScenarioOutcome, String> {
    stopped(setting, ClientRole::Reader)
}

pub(super) fn stopped_senders(setting: &Setting<'_>) -> Result<ScenarioOutcome, String> {
    stopped(setting, ClientRole::Sender)
}

fn stopped(setting: &Setting<'_>, part: ClientRole) -> Result<ScenarioOutcome, String> {
    let mut trial = setting.trial(&setting.place.join("data"), 4, honest());
    if let Some(memory) = trial.serve.options.iter().position(|option| option == "--memory") {
        trial.serve.options[memory + 1] = MEMORY.into();
    }
    let served = trial.start()?;
    let mut client = connect(&served)?;
    for number in 0..LARGE {
        let (key, id) = large(number);
        let answer =
            client.set(key.as_bytes(), &value::encode(id, 1, LARGE_BYTES)).map_err(|error| error.to_string())?;
        if answer != "STORED" {
            return Err(format!("{key}: {answer}"));
        }
    }
    let load = trial.load(&served);
    load.go_on(GO_ON)?;
    let count = setting.either(12, 60);
    let before = process::memory_bytes(served.id(), "VmRSS")?;
    let players = (0..count).map(|number| Player::stopped(part, served.address(), LARGE + number));
    let players = players.collect::<Result<Vec<_>, _>>()?;
    load.go_on(GO_ON)?;
    let (during, most) = (process::memory_bytes(served.id(), "VmRSS")?, process::memory_bytes(served.id(), "VmHWM")?);
    let allowed = before + MEANWHILE_BYTES + count * CLIENT_BYTES;
    if most > allowed {
        return Err(format!(
            "{count} stopped clients made the server grow from {before} to {most} bytes; {allowed} are allowed"
        ));
    }
    let of_clients = statistic(served.address(), "client_memory_peak_bytes")?;
    if of_clients > count * CLIENT_BYTES {
        return Err(format!("{count} stopped clients made the server hold {of_clients} bytes for them"));
    }
    players.into_iter().try_for_each(Player::go_on)?;
    load.go_on(GO_ON)?;
    for number in 0..LARGE {
        client.ask(&format!("delete {}", large(number).0)).map_err(|error| error.to_string())?;
    }
    trial.kill(served, load)?;
    let tally = trial.finish()?;
    let mib = |bytes: u64| bytes >> 20;
    let (before, during, most) = (mib(before), mib(during), mib(most));
    Ok(ScenarioOutcome::Held(format!(
        "{count} stopped; RSS {before} MiB before, {during} with them, {most} at most; {tally:?}"
    )))
}

/// One of those that `stats` tells.
fn statistic(address: SocketAddr, name: &str) -> Result<u64, String> {
    let value = Client::connect(address).and_then(|mut client| client.statistic(name));
    value.map_err(|error| format!("stats: {error}"))?.ok_or_else(|| format!("there is no statistic {name}"))
}

pub(super) fn connections(setting: &Setting<'_>) -> Result<ScenarioOutcome, String> {
    let wanted = setting.either(1000, 5000);
    let allowed = process::allow_open_files(wanted + 500);
    if allowed < wanted + 200 {
        return Ok(ScenarioOutcome::Skipped(format!(
            "only {allowed} files may be open, {wanted} connections are wanted"
        )));
    }
    let mut trial = setting.trial(&setting.place.join("data"), setting.either(8, 50), honest());
    let served = trial.start()?;
    let load = trial.load(&served);
    load.go_on(GO_ON)?;
    let before = process::descriptors(served.id())?;
    let memory_before = process::memory_bytes(served.id(), "VmRSS")?;
    let idle = (0..wanted).map(|_| connect(&served)).collect::<Result<Vec<_>, _>>()?;
    load.wait_until("all are accepted", || {
        process::descriptors(served.id()).is_ok_and(|open| open >= before + wanted as usize)
    })?;
    load.go_on(GO_ON)?;
    let memory = process::memory_bytes(served.id(), "VmRSS")?;
    // Each is served, after all that time.
    for (number, mut client) in idle.into_iter().enumerate() {
        if number % 10 == 0 {
            let line = client.ask("version").map_err(|error| format!("idle connection {number}: {error}"))?;
            if !line.starts_with("VERSION") {
                return Err(format!("idle connection {number}: {line}"));
            }
        }
    }
    process::wait_for_descriptors(served.id(), before + SLACK)?;
    let storm = setting.either(2000, 20_000);
    storm_of(storm, served.address())?;
    load.go_on(GO_ON)?;
    process::wait_for_descriptors(served.id(), before + SLACK)?;
    trial.kill(served, load)?;
    let tally = trial.finish()?;
    let each = memory.saturating_sub(memory_before) / wanted;
    Ok(ScenarioOutcome::Held(format!("{wanted} idle ({each} bytes of RSS each), {storm} short ones; {tally:?}")))
}

/// Connects, asks, leaves; some leave without a word.
fn storm_of(count: u64, address: SocketAddr) -> Result<(), String> {
    const THREADS: u64 = 8;
    let run = |number: u64| -> std::io::Result<()> {
        for tick in 0..count / THREADS {
            let mut client = Client::connect(address)?;
            if !(number + tick).is_multiple_of(3) {
                client.ask("version")?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || run(number))).collect();
        threads.into_iter().try_for_each(|thread| {
            let ended = thread.join().map_err(|_| "a client panicked".to_owned())?;
            ended.map_err(|error| format!("a short connection: {error}"))
        })
    })
}

pub(super) fn descriptors(setting: &Setting<'_>) -> Result<ScenarioOutcome, String> {
    let limit = 120;
    let mut trial = setting.trial(&setting.place.join("data"), 4, honest());
    trial.serve.before = Some(format!("ulimit -n {limit}"));
    let served = trial.start()?;
    let load = trial.load(&served);
    load.go_on(GO_ON)?;
    let before = process::descriptors(served.id())?;
    let mut most = 0;
    for round in 0..setting.either(2, 20) {
        let mut held = Vec::new();
        let mut refused = 0;
        for _ in 0..2 * limit {
            let mut client = connect(&served)?;
            match client.ask("version") {
                Ok(line) if line.starts_with("VERSION") => held.push(client),
                Ok(line) if line.contains("Too many open connections") => {
                    refused += 1;
                    // Reset, if our question came after it.
                    if let Ok(1..) = client.stream().read(&mut [0]) {
                        return Err("a refused connection is answered".into());
                    }
                }
                // The refusal was sent before our question came: the reset took it away.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => refused += 1,
                other => return Err(format!("round {round}, connection {}: {other:?}", held.len() + refused)),
            }
        }
        if refused == 0 {
            return Err(format!("{} connections with {limit} descriptors, and none was refused", held.len()));
        }
        most = most.max(held.len());
        load.go_on(GO_ON)?;
        drop(held);
        process::wait_for_descriptors(served.id(), before + SLACK)?;
    }
    trial.kill(served, load)?;
    let tally = trial.finish()?;
    Ok(ScenarioOutcome::Held(format!("{most} connections with {limit} descriptors, the others refused; {tally:?}")))
}

pub(super) fn garbage(setting: &Setting<'_>) -> Result<ScenarioOutcome, String> {
    let mut trial = setting.trial(&setting.place.join("data"), 4, honest());
    let served = trial.start()?;
    let load = trial.load(&served);
    load.go_on(GO_ON)?;
    let before = process::descriptors(served.id())?;
    let (stop, address) = (AtomicBool::new(false), served.address());
    let sent = std::thread::scope(|scope| {
        let attacks: Vec<_> = (0..8)
            .map(|number| {
                let (stop, mut random) = (&stop, Random::new(setting.seed ^ number << 8));
                scope.spawn(move || {
                    let mut connections = 0;
                    while !stop.load(Ordering::Relaxed) {
                        // Whatever becomes of it: only honest clients are promised anything.
                        let _ = attack(address, &mut random);
                        connections += 1;
                    }
                    connections
                })
            })
            .collect();
        let went_on = (0..setting.either(4, 40)).try_for_each(|_| load.go_on(GO_ON));
        stop.store(true, Ordering::Relaxed);
        let sent: u64 = attacks.into_iter().map(|attack| attack.join().unwrap_or(0)).sum();
        went_on.map(|()| sent)
    })?;
    process::wait_for_descriptors(served.id(), before + SLACK)?;
    let most = process::memory_bytes(served.id(), "VmHWM")?;
    if most > SMALL_BYTES + PROGRAM_BYTES {
        return Err(format!("garbage made the server grow to {most} bytes"));
    }
    trial.kill(served, load)?;
    let tally = trial.finish()?;
    Ok(ScenarioOutcome::Held(format!("{sent} connections with garbage; RSS {} MiB at most; {tally:?}", most >> 20)))
}

/// One connection's nonsense. Nothing in it is a whole command that would change a record.
fn attack(address: SocketAddr, random: &mut Random) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_millis(50)))?;
    stream.set_write_timeout(Some(Duration::from_millis(500)))?;
    for _ in 0..1 + random.below(4) {
        let sent = match random.below(8) {
            0 => {
                let mut bytes = vec![0; random.below(5000) as usize];
                random.fill(&mut bytes);
                bytes
            }
            1 => b"set garbage 0 0 1000000\r\nonly a few bytes of it".to_vec(),
            2 => b"set garbage 0 0 99999999999999999999\r\n".to_vec(),
            3 => [&b"get "[..], &vec![b'k'; random.below(100_000) as usize], b"\r\n"].concat(),
            4 => b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
            5 => b"get nothing\r\n".repeat(random.below(3000) as usize),
            6 => vec![0; random.below(70_000) as usize],
            _ => b"cas garbage 0 0 3 x\r\nabc\r\ndelete\r\nincr garbage\r\ngets".to_vec(),
        };
        stream.write_all(&sent)?;
        // Some listen for a moment, so that answers come into it.
        if random.below(2) == 0 {
            let _ = stream.read(&mut [0; 1000])?;
        }
    }
    Ok(())
}
