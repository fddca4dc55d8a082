//! Real data through every door: loaded by the command line and by memcache clients, dumped and
//! compared byte for byte, scanned both ways, updated with other sizes, half deleted, loaded again
//! into the space that was freed.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;

use serde_json::{Value, json};

use crate::memcache::{Client, set_command};
use crate::packages::Packages;
use crate::place;
use crate::program::{self, Serve};

/// Connections that load at the same time.
const CONNECTIONS: usize = 4;

/// Commands sent before their replies are read.
const PIPELINE: usize = 32;

/// Does all of it in `folder`, with further options for `serve`; `report` is told each step.
///
/// # Errors
/// What differs, or which program failed and what it said.
pub fn run(folder: &Path, packages: &Packages, options: &[&str], report: &mut dyn FnMut(&str)) -> Result<(), String> {
    let by_line = folder.join("by-command-line");
    load(&by_line, packages)?;
    compare(&by_line, packages)?;
    report("loaded by the command line, dumped: equal");

    let by_net = folder.join("by-memcache");
    let serve = Serve::on(&by_net).options(options);
    let served = serve.start();
    set_all(served.address(), packages)?;
    get_all(served.address(), packages)?;
    stop(served)?;
    compare(&by_net, packages)?;
    report("loaded by memcache, read back, dumped: equal");

    for prefix in ["lib", "python3-", "z", "0ad", ""] {
        compare_scan(&by_net, packages, prefix)?;
    }
    report("prefixes scanned in both directions: in order and complete");

    let size = size_bytes(&by_net);
    let updated = with_other_sizes(packages);
    let served = serve.start();
    set_all(served.address(), &updated)?;
    let (gone, kept): (Packages, Packages) =
        updated.iter().enumerate().fold(Default::default(), |(mut gone, mut kept), (index, (key, value))| {
            let side = if index % 2 == 0 { &mut gone } else { &mut kept };
            side.insert(key.clone(), value.clone());
            (gone, kept)
        });
    delete_all(served.address(), &gone)?;
    stop(served)?;
    compare(&by_net, &kept)?;
    report("updated with other sizes, half deleted, dumped: equal");

    let served = serve.start();
    for _ in 0..3 {
        set_all(served.address(), &gone)?;
        delete_all(served.address(), &gone)?;
    }
    set_all(served.address(), &gone)?;
    get_all(served.address(), &updated)?;
    stop(served)?;
    compare(&by_net, &updated)?;
    let now = size_bytes(&by_net);
    // Values were made longer by half on average; what was freed three times over must not have
    // been appended.
    if now > size * 2 {
        return Err(format!("the volumes grew from {size} to {now} bytes: freed space is not used again"));
    }
    report(&format!("deleted and loaded again three times: volumes of {size} bytes, now {now}"));
    check(&by_line)?;
    check(&by_net)
}

/// Every third value longer, every third shorter.
fn with_other_sizes(packages: &Packages) -> Packages {
    let changed = packages.iter().enumerate().map(|(index, (key, value))| {
        let value = match index % 3 {
            0 => [&value[..], value].concat(),
            1 => value[..value.len() / 3].to_vec(),
            _ => [b"changed\n", &value[..]].concat(),
        };
        (key.clone(), value)
    });
    changed.collect()
}

fn size_bytes(data: &Path) -> u64 {
    place::volumes(data).iter().filter_map(|path| path.metadata().ok()).map(|metadata| metadata.len()).sum()
}

fn text(path: &Path) -> Result<&str, String> {
    path.to_str().ok_or_else(|| format!("{} is no text", path.display()))
}

fn stop(served: program::Served) -> Result<(), String> {
    let status = served.stop();
    if status.success() { Ok(()) } else { Err(format!("the server ended with {status} on SIGTERM")) }
}

fn check(data: &Path) -> Result<(), String> {
    let output = program::run(&["check", "--data", text(data)?]);
    if output.status.success() { Ok(()) } else { Err(format!("check: {}", program::said(&output))) }
}

/// `stratakv load` from a pipe.
fn load(data: &Path, packages: &Packages) -> Result<(), String> {
    let mut command = program::command();
    command.args(["load", "--data", text(data)?]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let stdin = child.stdin.take().ok_or("a pipe was asked for")?;
    let written = write_lines(BufWriter::new(stdin), packages);
    let status = child.wait().map_err(|error| error.to_string())?;
    match (status.success(), written) {
        (true, Ok(())) => Ok(()),
        (_, written) => Err(format!("load ended with {status}; its input: {written:?}")),
    }
}

fn write_lines(mut to: impl Write, packages: &Packages) -> std::io::Result<()> {
    for (key, value) in packages {
        let line = match std::str::from_utf8(value) {
            Ok(value) => json!({ "key": key, "value": value }),
            Err(_) => json!({ "key": key, "value_base64": base64(value) }),
        };
        writeln!(to, "{line}")?;
    }
    to.flush()
}

/// `stratakv dump`, compared with what it should hold.
fn compare(data: &Path, packages: &Packages) -> Result<(), String> {
    let mut command = program::command();
    command.args(["dump", "--data", text(data)?]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let outcome = compare_lines(&mut child, packages);
    let status = child.wait().map_err(|error| error.to_string())?;
    outcome.and_then(|()| if status.success() { Ok(()) } else { Err(format!("dump ended with {status}")) })
}

fn compare_lines(child: &mut Child, packages: &Packages) -> Result<(), String> {
    let stdout = child.stdout.take().ok_or("a pipe was asked for")?;
    let mut expected = packages.iter();
    for line in BufReader::new(stdout).lines() {
        let line = line.map_err(|error| error.to_string())?;
        let item: Value = serde_json::from_str(&line).map_err(|error| format!("dump printed `{line}`: {error}"))?;
        let (key, value) = (field(&item, "key")?, field(&item, "value")?);
        let shown = key.escape_ascii();
        let Some((wanted, bytes)) = expected.next() else { return Err(format!("dump has {shown}, which is too much")) };
        if key != wanted.as_bytes() {
            return Err(format!("dump has {shown} where {wanted} should be"));
        }
        if value != *bytes {
            return Err(format!(
                "the value of {wanted} has {} bytes, or others than the {} expected",
                value.len(),
                bytes.len()
            ));
        }
    }
    match expected.next() {
        None => Ok(()),
        Some((wanted, _)) => Err(format!("dump ends before {wanted}")),
    }
}

/// A field given as text, or as base64 under another name.
fn field(item: &Value, name: &str) -> Result<Vec<u8>, String> {
    if let Some(text) = item.get(name).and_then(Value::as_str) {
        return Ok(text.as_bytes().to_vec());
    }
    let encoded = item.get(format!("{name}_base64")).and_then(Value::as_str);
    encoded.and_then(from_base64).ok_or_else(|| format!("a line of dump has no {name}: {item}"))
}

fn compare_scan(data: &Path, packages: &Packages, prefix: &str) -> Result<(), String> {
    let mut wanted: Vec<&str> = packages.keys().map(String::as_str).filter(|key| key.starts_with(prefix)).collect();
    for reverse in [false, true] {
        let mut arguments = vec!["scan", "--data", text(data)?, "--keys-only", "--prefix", prefix];
        if reverse {
            arguments.push("--reverse");
            wanted.reverse();
        }
        let output = program::run(&arguments);
        if !output.status.success() {
            return Err(format!("scan: {}", program::said(&output)));
        }
        let found = String::from_utf8_lossy(&output.stdout);
        let found: Vec<&str> = found.lines().collect();
        if found != wanted {
            let first = found.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
            return Err(format!(
                "scan of `{prefix}`, reverse {reverse}: {} keys, {} expected, first other {first:?}",
                found.len(),
                wanted.len()
            ));
        }
    }
    Ok(())
}

/// Runs `commands` over several connections, each with its share of the packages, and checks each
/// one-line reply.
fn on_connections(
    address: SocketAddr,
    packages: &Packages,
    command: fn(&str, &[u8]) -> Vec<u8>,
    reply: &str,
) -> Result<(), String> {
    let all: Vec<(&String, &Vec<u8>)> = packages.iter().collect();
    let share = |chunk: &[(&String, &Vec<u8>)]| -> Result<(), String> {
        let mut client = Client::connect(address).map_err(|error| error.to_string())?;
        for group in chunk.chunks(PIPELINE) {
            let bytes: Vec<u8> = group.iter().flat_map(|(key, value)| command(key, value)).collect();
            client.send(&bytes).map_err(|error| error.to_string())?;
            for (key, _) in group {
                let line = client.line().map_err(|error| error.to_string())?;
                if line != reply {
                    return Err(format!("{key} was answered `{line}`"));
                }
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let chunks = all.chunks(all.len().div_ceil(CONNECTIONS).max(1));
        let threads: Vec<_> = chunks.map(|chunk| scope.spawn(move || share(chunk))).collect();
        let panicked = |_| Err("a connection's thread panicked".to_owned());
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(panicked))
    })
}

fn set_all(address: SocketAddr, packages: &Packages) -> Result<(), String> {
    on_connections(address, packages, |key, value| set_command(key.as_bytes(), 0, value), "STORED")
}

fn delete_all(address: SocketAddr, packages: &Packages) -> Result<(), String> {
    on_connections(address, packages, |key, _| format!("delete {key}\r\n").into_bytes(), "DELETED")
}

fn get_all(address: SocketAddr, packages: &Packages) -> Result<(), String> {
    let mut client = Client::connect(address).map_err(|error| error.to_string())?;
    let all: Vec<(&String, &Vec<u8>)> = packages.iter().collect();
    for group in all.chunks(PIPELINE) {
        let keys: Vec<&str> = group.iter().map(|(key, _)| key.as_str()).collect();
        client.send(format!("get {}\r\n", keys.join(" ")).as_bytes()).map_err(|error| error.to_string())?;
        let hits = client.hits().map_err(|error| error.to_string())?;
        for ((key, value), hit) in group.iter().zip(&hits) {
            if hit.key != key.as_bytes() || hit.value != **value {
                return Err(format!("{key} is not what was stored"));
            }
        }
        if hits.len() != group.len() {
            return Err(format!("{} of {} keys were found", hits.len(), group.len()));
        }
    }
    Ok(())
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let digit = BASE64[(word >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= group.len() { digit as char } else { '=' });
        }
    }
    text
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').bytes();
    let (mut bytes, mut word, mut bits) = (Vec::new(), 0u32, 0);
    for digit in digits {
        word = word << 6 | BASE64.iter().position(|known| *known == digit)? as u32;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits) as u8);
            word &= (1 << bits) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
            assert_eq!(from_base64(text).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(from_base64("Zm!v"), None);
    }
}
