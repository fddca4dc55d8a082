//! What holds for any bytes: run by the fuzzers (docs/fuzzing.md), and over their corpus by a test.

use std::borrow::Cow;

use stratakv_base::random::Random;

use super::{
    BinaryCommand, BinaryParsed, BinaryParser, Body, CollectionsAction, CollectionsRequest, Command, Detail, DumpKind,
    KEY_BYTES_MAX, Meta, MetaRange, MetaVerb, Parsed, Parser, Statistics, Store, Verb, Watched, reply,
};

/// Small, so that refused blocks are met too.
const ITEM_BYTES_MAX: usize = 300;
/// Repeats the byte before it, 16 times the byte behind it: lines and blocks beyond the limits,
/// from short inputs.
const REPEAT: u8 = 0x1B;

/// Parses the stream in `input` whole and cut into pieces (drawn from its first byte): the same
/// comes out, each command as its plain wording says it.
///
/// # Panics
/// A property does not hold.
pub fn memcache(input: &[u8]) {
    let Some((seed, input)) = input.split_first() else { return };
    let stream = repeated(input);
    let whole = run(&stream, |left| left);
    let mut random = Random::new(u64::from(*seed));
    let longest = [3, 40, 2100][usize::from(*seed) % 3];
    assert_eq!(run(&stream, |_| 1 + random.below(longest) as usize), whole);
    if stream.len() < 200 {
        assert_eq!(run(&stream, |_| 1), whole);
    }
}

/// The same for the binary protocol: the stream in `input` whole and cut into pieces.
///
/// # Panics
/// A property does not hold.
pub fn memcache_binary(input: &[u8]) {
    let Some((seed, input)) = input.split_first() else { return };
    let stream = repeated(input);
    let whole = run_binary(&stream, |left| left);
    let mut random = Random::new(u64::from(*seed));
    let longest = [3, 40, 2100][usize::from(*seed) % 3];
    assert_eq!(run_binary(&stream, |_| 1 + random.below(longest) as usize), whole);
    if stream.len() < 200 {
        assert_eq!(run_binary(&stream, |_| 1), whole);
    }
}

/// Feeds the stream in pieces of `piece(bytes left)`.
fn run_binary(stream: &[u8], mut piece: impl FnMut(usize) -> usize) -> Vec<String> {
    let mut parser = BinaryParser::new(ITEM_BYTES_MAX);
    let (mut received, mut body, mut out) = (Vec::new(), None, Vec::new());
    let mut skipped = 0;
    let mut left = stream;
    while !left.is_empty() {
        let (fresh, rest) = left.split_at(piece(left.len()).min(left.len()));
        left = rest;
        received.extend_from_slice(fresh);
        loop {
            match step_binary(&mut parser, &mut received, &mut body, &mut skipped, &mut out) {
                Some(true) => {}
                Some(false) => break,
                None => return out,
            }
        }
    }
    out
}

/// Takes one thing off the front of what was received; false if it is not whole, `None` if that
/// ends it.
fn step_binary(
    parser: &mut BinaryParser,
    received: &mut Vec<u8>,
    body: &mut Option<Body>,
    skipped: &mut usize,
    out: &mut Vec<String>,
) -> Option<bool> {
    if *skipped > 0 {
        return Some(skip(received, skipped));
    }
    if let Some(mut collected) = body.take() {
        let taken = collected.push(received);
        received.drain(..taken);
        if collected.missing() > 0 {
            *body = Some(collected);
            return Some(false);
        }
        out.push(format!("{:?}", collected.finish().expect("a bare block has no end to miss")));
        return Some(true);
    }
    let consumed = match parser.parse(received) {
        BinaryParsed::Incomplete => return Some(false),
        BinaryParsed::Skip { consumed } => consumed,
        BinaryParsed::Request { request, consumed } => {
            if let BinaryCommand::Store { key, data_bytes, .. } = request.command {
                assert!(data_bytes <= ITEM_BYTES_MAX && (1..=KEY_BYTES_MAX).contains(&key.len()));
                *body = Some(Body::bare(data_bytes));
            }
            out.push(format!("{request:?}"));
            consumed
        }
        BinaryParsed::TooLarge { request, consumed } => {
            if let BinaryCommand::Store { data_bytes, .. } = request.command {
                assert!(data_bytes > ITEM_BYTES_MAX);
                *skipped = data_bytes;
            }
            out.push(format!("too large: {request:?}"));
            consumed
        }
        BinaryParsed::Error { tag, status, consumed, close } => {
            assert!(close || tag.is_some());
            out.push(format!("{tag:?} {status:?} {close}"));
            if close {
                return None;
            }
            consumed
        }
    };
    assert!((1..=received.len()).contains(&consumed), "progress, within the input");
    received.drain(..consumed);
    Some(true)
}

/// Throws away what was received of a data block that is too large; whether something was.
fn skip(received: &mut Vec<u8>, left: &mut usize) -> bool {
    let skipped = received.len().min(*left);
    received.drain(..skipped);
    *left -= skipped;
    skipped > 0
}

fn repeated(input: &[u8]) -> Cow<'_, [u8]> {
    if !input.contains(&REPEAT) {
        return Cow::Borrowed(input);
    }
    let (mut stream, mut bytes) = (Vec::new(), input.iter());
    while let Some(byte) = bytes.next() {
        match (*byte, stream.last()) {
            (REPEAT, Some(last)) if stream.len() < 1 << 16 => {
                let times = bytes.next().map_or(0, |times| 16 * usize::from(*times));
                stream.extend(vec![*last; times]);
            }
            _ => stream.push(*byte),
        }
    }
    Cow::Owned(stream)
}

/// What came out of a stream.
#[derive(Debug, PartialEq, Eq)]
enum Out {
    Command(Vec<u8>),
    Data(Vec<u8>),
    Reply(&'static [u8]),
    Closed,
}

/// A connection without a socket.
struct Session {
    parser: Parser,
    received: Vec<u8>,
    body: Option<Body>,
    /// Bytes of a block that is too large.
    skipped: usize,
    out: Vec<Out>,
}

/// Feeds the stream in pieces of `piece(bytes left)`.
fn run(stream: &[u8], mut piece: impl FnMut(usize) -> usize) -> Vec<Out> {
    let parser = Parser::new(ITEM_BYTES_MAX);
    let mut session = Session { parser, received: Vec::new(), body: None, skipped: 0, out: Vec::new() };
    let mut left = stream;
    while !left.is_empty() && session.out.last() != Some(&Out::Closed) {
        let (fresh, rest) = left.split_at(piece(left.len()).min(left.len()));
        left = rest;
        session.received.extend_from_slice(fresh);
        while session.out.last() != Some(&Out::Closed) && session.step() {}
    }
    session.out
}

impl Session {
    /// Takes one thing off the front of what was received; false if it is not whole.
    fn step(&mut self) -> bool {
        if self.skipped > 0 {
            return skip(&mut self.received, &mut self.skipped);
        }
        if let Some(body) = &mut self.body {
            let taken = body.push(&self.received);
            self.received.drain(..taken);
            if body.missing() > 0 {
                assert!(self.received.is_empty(), "a block takes what there is");
                return false;
            }
            self.out.push(match self.body.take().map(Body::finish) {
                Some(Ok(data)) => Out::Data(data.to_vec()),
                _ => Out::Reply(reply::BAD_DATA_CHUNK),
            });
            return true;
        }
        let consumed = match self.parser.parse(&self.received) {
            Parsed::Incomplete => return false,
            Parsed::Skip { consumed } => consumed,
            Parsed::Command { command, consumed } => {
                assert_eq!(self.received.get(consumed - 1), Some(&b'\n'));
                if let Some(data_bytes) = command.data_bytes() {
                    assert!(data_bytes <= ITEM_BYTES_MAX);
                    self.body = Some(Body::new(data_bytes));
                }
                self.out.push(Out::Command(plain(&command)));
                consumed
            }
            Parsed::TooLarge { command, consumed } => {
                let data_bytes = command.data_bytes().unwrap_or_default();
                assert!(data_bytes > ITEM_BYTES_MAX);
                self.skipped = data_bytes + 2;
                self.out.push(Out::Reply(reply::TOO_LARGE));
                consumed
            }
            Parsed::Error { reply, consumed, close } => {
                assert!(reply.is_empty() || reply.ends_with(b"\r\n"));
                self.out.push(Out::Reply(reply));
                if close {
                    self.out.push(Out::Closed);
                }
                consumed
            }
        };
        assert!((1..=self.received.len()).contains(&consumed), "progress, within the input");
        self.received.drain(..consumed);
        true
    }
}

/// The plain wording of a command; parsing that gives the same command.
fn plain(command: &Command<'_>) -> Vec<u8> {
    let line = worded(command);
    let Parsed::Command { command: again, consumed } = Parser::new(ITEM_BYTES_MAX).parse(&line) else {
        panic!("{command:?} is refused as {}", line.escape_ascii());
    };
    assert_eq!((worded(&again), consumed), (line.clone(), line.len()));
    line
}

fn worded(command: &Command<'_>) -> Vec<u8> {
    let quiet = |noreply: bool| if noreply { " noreply" } else { "" };
    let (name, key, rest) = match *command {
        Command::Get { keys, cas, touch } => return worded_get(keys.iter(), cas, touch),
        Command::Store(store) => worded_store(&store),
        Command::Delete { key, noreply } => ("delete", Some(key), quiet(noreply).to_owned()),
        Command::Arithmetic { key, delta, decrement, noreply } => {
            (if decrement { "decr" } else { "incr" }, Some(key), format!(" {delta}{}", quiet(noreply)))
        }
        Command::Touch { key, exptime, noreply } => ("touch", Some(key), format!(" {exptime}{}", quiet(noreply))),
        Command::FlushAll { delay, noreply } => ("flush_all", None, format!(" {delay}{}", quiet(noreply))),
        Command::Version => ("version", None, String::new()),
        Command::Verbosity { noreply } => ("verbosity", None, format!(" 1{}", quiet(noreply))),
        Command::Backup { name } => {
            assert!(super::is_backup_name(name));
            ("backup", None, format!(" {name}"))
        }
        Command::Collections(CollectionsRequest { token, action }) => {
            let action = match action {
                CollectionsAction::List => "list".to_owned(),
                CollectionsAction::Describe => "describe".to_owned(),
                CollectionsAction::Create { name, order: None } => format!("create {name}"),
                CollectionsAction::Create { name, order: Some(order) } => format!("create {name} {order}"),
                CollectionsAction::Drop { name } => format!("drop {name}"),
            };
            ("collections", None, format!(" {token} {action}"))
        }
        Command::Stats(which) => ("stats", None, worded_statistics(which).to_owned()),
        Command::Detail(Detail::On) => ("stats", None, " detail on".to_owned()),
        Command::Detail(Detail::Off) => ("stats", None, " detail off".to_owned()),
        Command::Detail(Detail::Dump) => ("stats", None, " detail dump".to_owned()),
        Command::Meta(meta) => return worded_meta(&meta),
        Command::MetaRange(range) => return worded_range(&range),
        Command::MemoryLimit { mebibytes, noreply } => {
            ("cache_memlimit", None, format!(" {mebibytes}{}", quiet(noreply)))
        }
        Command::Answered { noreply, .. } => ("cache_memlimit", None, format!(" 7{}", quiet(noreply))),
        Command::RefreshCertificates => ("refresh_certs", None, String::new()),
        Command::Dump(DumpKind::Meta) => ("lru_crawler", None, " metadump all".to_owned()),
        Command::Dump(DumpKind::MetaGet) => ("lru_crawler", None, " mgdump all".to_owned()),
        Command::Dump(DumpKind::Cache { items_max }) => ("stats", None, format!(" cachedump 1 {items_max}")),
        Command::Shutdown { valid } => ("shutdown", None, (if valid { "" } else { " x" }).to_owned()),
        Command::MetaNoop => ("mn", None, String::new()),
        Command::Watch(kinds) => ("watch", None, worded_kinds(kinds)),
        Command::Quit => ("quit", None, String::new()),
    };
    let mut line = name.as_bytes().to_vec();
    if let Some(key) = key {
        push_key(&mut line, key);
    }
    line.extend_from_slice(rest.as_bytes());
    line.extend_from_slice(b"\r\n");
    line
}

fn worded_range(range: &MetaRange<'_>) -> Vec<u8> {
    assert!(range.bounds().is_some() && (1..=super::RANGE_COUNT_MAX).contains(&range.count));
    let count = if range.reverse { format!("-{}", range.count) } else { range.count.to_string() };
    [b"mr ", range.from, b" ", range.to, b" ", count.as_bytes(), b" ", range.line, b"\r\n"].concat()
}

fn worded_kinds(kinds: Watched) -> String {
    let names = ["fetchers", "mutations", "evictions", "sysevents", "connevents", "rawcmds"];
    let named = |name: &&&str| Watched::named(name.as_bytes()).is_some_and(|kind| kinds.meets(kind));
    names.iter().filter(named).map(|name| format!(" {name}")).collect()
}

fn worded_store<'a>(store: &Store<'a>) -> (&'static str, Option<&'a [u8]>, String) {
    let (name, cas) = match store.verb {
        Verb::Set => ("set", None),
        Verb::Add => ("add", None),
        Verb::Replace => ("replace", None),
        Verb::Append => ("append", None),
        Verb::Prepend => ("prepend", None),
        Verb::Cas(version) => ("cas", Some(version)),
    };
    let cas = cas.map(|version| format!(" {version}")).unwrap_or_default();
    let noreply = if store.noreply { " noreply" } else { "" };
    (name, Some(store.key), format!(" {} {} {}{cas}{noreply}", store.flags, store.exptime, store.data_bytes))
}

fn worded_get<'a>(keys: impl Iterator<Item = &'a [u8]>, cas: bool, touch: Option<i64>) -> Vec<u8> {
    let mut line = if touch.is_some() { b"gat".to_vec() } else { b"get".to_vec() };
    if cas {
        line.push(b's');
    }
    if let Some(exptime) = touch {
        line.extend_from_slice(format!(" {exptime}").as_bytes());
    }
    keys.for_each(|key| push_key(&mut line, key));
    line.extend_from_slice(b"\r\n");
    line
}

/// The key is given back as it was sent: decoding and encoding it again may change bits that do not
/// count.
fn worded_meta(meta: &Meta<'_>) -> Vec<u8> {
    assert!((1..=KEY_BYTES_MAX).contains(&meta.key().len()));
    let (name, length) = match meta.verb {
        MetaVerb::Get => ("mg", None),
        MetaVerb::Set { data_bytes, .. } => ("ms", Some(data_bytes)),
        MetaVerb::Delete => ("md", None),
        MetaVerb::Arithmetic { .. } => ("ma", None),
        MetaVerb::Debug => ("me", None),
    };
    let mut line = name.as_bytes().to_vec();
    push_key(&mut line, meta.word);
    line.extend(length.map(|length| format!(" {length}")).unwrap_or_default().bytes());
    if meta.verb == MetaVerb::Debug && meta.flags.base64 {
        line.extend_from_slice(b" b");
    }
    for (letter, rest) in meta.flags.words() {
        line.extend_from_slice(&[b' ', letter]);
        line.extend_from_slice(rest);
    }
    line.extend_from_slice(b"\r\n");
    line
}

fn push_key(line: &mut Vec<u8>, key: &[u8]) {
    assert!((1..=KEY_BYTES_MAX).contains(&key.len()) && !key.iter().any(|byte| b"\0 \n".contains(byte)));
    line.push(b' ');
    line.extend_from_slice(key);
}

fn worded_statistics(which: Statistics) -> &'static str {
    match which {
        Statistics::General => "",
        Statistics::Settings => " settings",
        Statistics::Items => " items",
        Statistics::Slabs => " slabs",
        Statistics::Sizes => " sizes",
        Statistics::SizesOn => " sizes_enable",
        Statistics::SizesOff => " sizes_disable",
        Statistics::Connections => " conns",
        Statistics::Extstore => " extstore",
        Statistics::Backup => " backup",
        Statistics::Collections => " collections",
        Statistics::Reset => " reset",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/memcache");
        for file in std::fs::read_dir(folder).unwrap() {
            memcache(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }

    #[test]
    fn the_binary_corpus_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/memcache_binary");
        for file in std::fs::read_dir(folder).unwrap() {
            memcache_binary(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }

    #[test]
    fn a_repeated_byte_makes_long_lines() {
        assert_eq!(*repeated(b"ab\x1b\x01c"), *b"abbbbbbbbbbbbbbbbbc");
    }
}
