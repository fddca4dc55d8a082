//! The classic text commands, and lines that are none.

use super::command::{Command, CommandPiece, Shape};
use super::draw::Draw;

/// Longer than any value may be.
pub const TOO_LARGE_BYTES: usize = (1 << 20) + 4096;
/// A key that nothing else names.
pub const UNUSED: &[u8] = b"unused";

/// A command.
pub fn command(draw: &mut Draw) -> Command {
    match draw.below(100) {
        0..=29 => store(draw),
        30..=49 => get(draw),
        50..=57 => delete(draw),
        58..=77 => arithmetic(draw),
        78..=83 => touch(draw),
        84 | 85 => flush(draw),
        86..=93 => bad(draw),
        94..=97 => about_server(draw),
        _ => statistics(draw),
    }
}

fn words(words: &[&[u8]]) -> Vec<u8> {
    words.join(&b' ')
}

/// `noreply`, not, or nearly.
fn noreply(draw: &mut Draw) -> &'static str {
    match draw.below(12) {
        0 | 1 => " noreply",
        2 => draw.one(&[" NOREPLY", " noreply ", " no", " noreply x", "  noreply"]),
        _ => "",
    }
}

fn store(draw: &mut Draw) -> Command {
    let verb = draw.one(&["set", "set", "set", "add", "replace", "append", "prepend", "cas"]);
    let key = if draw.once_in(40) { draw.bad_key() } else { draw.key() };
    let (flags, time) = (draw.flags(), draw.time());
    let value = draw.value();
    let length = match draw.below(40) {
        0 => draw.one(&["-1", "x", "", "2147483647", "2147483646", "+3", "3x"]).to_owned(),
        _ => value.len().to_string(),
    };
    let front = words(&[verb.as_bytes(), &key, flags.as_bytes(), time.as_bytes(), length.as_bytes()]);
    let mut parts = vec![CommandPiece::Bytes(front)];
    if verb == "cas" {
        parts.push(CommandPiece::Bytes(b" ".to_vec()));
        parts.push(match draw.below(10) {
            0 => CommandPiece::Bytes(draw.one(&["0", "x", "", "-1", "18446744073709551616"]).into()),
            _ => CommandPiece::Version(draw.which()),
        });
    }
    parts.push(CommandPiece::Bytes(format!("{}\r\n", noreply(draw)).into_bytes()));
    if length != value.len().to_string() {
        // Of a block that is not as long as it should be nobody knows where the next command
        // begins. So none is sent.
        let block = if length == "+3" { b"abc\r\n".to_vec() } else { Vec::new() };
        parts.push(CommandPiece::Bytes(block));
        return Command::of(parts, false).key(&key);
    }
    if draw.once_in(30) {
        return wrong_block(draw, parts, &value).key(&key);
    }
    Command::of(parts, false).data(&value).key(&key)
}

/// A block that is longer or shorter than was said; line ends make up for what is missing.
fn wrong_block(draw: &mut Draw, parts: Vec<CommandPiece>, value: &[u8]) -> Command {
    let block = match draw.below(3) {
        0 => [value, b"x"].concat(),
        1 => [value, b" abc\r\nfoo bar"].concat(),
        _ if value.is_empty() => b"\n".to_vec(),
        _ => [&value[..value.len() - 1], b"\r\n"].concat(),
    };
    Command::of(parts, false).data(&block)
}

/// A value that is too long, whatever the server. What a set does to the value that was there is a
/// matter of the engine.
pub fn too_large(draw: &mut Draw) -> Command {
    let verb = draw.one(&["set", "add", "append"]);
    let key = if verb == "set" { UNUSED.to_vec() } else { draw.key() };
    let front = words(&[verb.as_bytes(), &key, b"0 0", TOO_LARGE_BYTES.to_string().as_bytes()]);
    let end = noreply(draw);
    Command::line([&front[..], end.as_bytes()].concat()).data(&vec![b'l'; TOO_LARGE_BYTES]).key(&key)
}

fn get(draw: &mut Draw) -> Command {
    let verb = draw.one(&["get", "get", "gets", "gets", "bget", "gat", "gats"]);
    let touches = verb.starts_with("gat");
    let mut line = verb.as_bytes().to_vec();
    if touches {
        line.extend([&b" "[..], draw.time().as_bytes()].concat());
    }
    let mut keys = Vec::new();
    for _ in 0..draw.below(4) + u64::from(!draw.once_in(12)) {
        let key = draw.key();
        line.extend([&b" "[..], &key[..]].concat());
        keys.push(key);
    }
    if draw.once_in(60) {
        (0..100).for_each(|number| line.extend(format!(" missing{number}").into_bytes()));
    }
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    Command::line(line).shape(Shape::Values).touching(if touches { &keys } else { &[] })
}

fn delete(draw: &mut Draw) -> Command {
    let (key, end) = (draw.key(), noreply(draw));
    let zero = match draw.below(12) {
        0 => draw.one(&[" 0", " 1", " x", " 0 0"]),
        _ => "",
    };
    Command::line([&b"delete "[..], &key[..], zero.as_bytes(), end.as_bytes()].concat()).key(&key)
}

fn arithmetic(draw: &mut Draw) -> Command {
    let verb = draw.one(&["incr", "incr", "decr"]);
    let key = if draw.once_in(60) { draw.bad_key() } else { draw.key() };
    let (delta, end) = (draw.delta(), noreply(draw));
    Command::line([&words(&[verb.as_bytes(), &key, delta.as_bytes()])[..], end.as_bytes()].concat()).key(&key)
}

fn touch(draw: &mut Draw) -> Command {
    let (key, time, end) = (draw.key(), draw.time(), noreply(draw));
    let line = [&words(&[b"touch", &key, time.as_bytes()])[..], end.as_bytes()].concat();
    Command::line(line).key(&key).touching(&[&key])
}

fn flush(draw: &mut Draw) -> Command {
    // A delay would have to be waited for; one that never comes is taken back by the next flush.
    let delay = draw.one(&["", "", " 0", " -1", " -2", " 10000", " 0 0", " 0 0 0", " +0"]);
    Command::line([&b"flush_all"[..], delay.as_bytes(), noreply(draw).as_bytes()].concat())
}

/// Lines that are no commands, or have too many words, or too few.
fn bad(draw: &mut Draw) -> Command {
    const LINES: &[&str] = &[
        "",
        " ",
        "foo",
        "get",
        "gets",
        "gat",
        "gat 0",
        "gat x",
        "gats",
        "set",
        "set a",
        "set a 0",
        "set a 0 0",
        "set a 0 0 1 2 3 4",
        "add",
        "cas a 0 0 1",
        "cas a 0 0 1 2 3 4",
        "delete",
        "delete a b c d",
        "incr",
        "incr a",
        "incr a 1 2 3 4",
        "touch",
        "touch a",
        "touch a 0 1 2",
        "GET a",
        "Set a 0 0 1",
        "gettt a",
        "get\ta",
        "mn",
        "mn x",
        "mn x y",
        "m",
        "mx a",
        "flush_all x",
        "flush_all noreply noreply",
        "verbosity",
        "verbosity x",
        "verbosity 1 2",
        "verbosity 1 2 3",
        "verbosity noreply",
        "verbosity 1 noreply",
        "verbosity 4294967296",
        "verbosity -1",
        "verbosity +1",
        "quit1",
        "shutdown x",
        "shutdown",
        "decr a",
        "append a",
        "prepend",
        "replace a b c d",
        "stats foo",
        "stats reset x",
        "stats detail",
        "stats detail x",
        "stats cachedump",
        "stats cachedump x y",
        "stats sizes x",
    ];
    Command::line(draw.one(LINES))
}

/// Commands that are not about keys.
fn about_server(draw: &mut Draw) -> Command {
    const LINES: &[&str] = &[
        "verbosity 0",
        "verbosity 1",
        "verbosity 1 noreply",
        "shutdown",
        "lru_crawler sleep 100",
        "lru_crawler sleep 1000001",
        "lru_crawler sleep x",
        "lru_crawler tocrawl 0",
        "lru_crawler tocrawl x",
        "lru_crawler",
        "lru_crawler x",
        "lru_crawler crawl 70",
        "lru_crawler crawl x",
        "slabs",
        "slabs x",
        "slabs reassign",
        "slabs reassign x y",
        "slabs automove",
        "slabs automove x",
        "slabs automove 3",
        "lru",
        "lru x",
        "lru mode x",
        "lru tune 50 50 1 1",
        "lru temp_ttl x",
        "cache_memlimit",
        "cache_memlimit x",
        "cache_memlimit 1",
        "cache_memlimit 1 noreply",
        "cache_memlimit 4000000000",
        "refresh_certs",
    ];
    match draw.below(4) {
        0 => Command::line(draw.one(&["version", "version", "version x", "version x y"])).shape(Shape::ServerVersion),
        _ => Command::line(draw.one(LINES)),
    }
}

fn statistics(draw: &mut Draw) -> Command {
    const GROUPS: &[&str] = &["", " settings", " items", " slabs", " conns", " sizes", " extstore", " reset"];
    let group = draw.one(GROUPS);
    Command::line(format!("stats{group}")).shape(Shape::Statistics)
}

/// What ends a connection.
pub fn last(draw: &mut Draw) -> Command {
    const LINES: &[&str] = &["quit", "quit x", "GET / HTTP/1.1", "foo HTTP/1.0", "host: x HTTP/1.0", "POST / HTTP/1.1"];
    match draw.below(3) {
        0 => Command::line(draw.one(LINES)).closing(),
        _ => Command::line("quit").closing(),
    }
}
