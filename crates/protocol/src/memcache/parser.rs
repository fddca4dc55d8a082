//! From received bytes to commands.

use super::command::{Command, Keys, Statistics, Store, Verb};
use super::line::{Tokens, is_backup_name, is_key, signed, unsigned, words};
use super::{GET_LINE_BYTES_MAX, LINE_BYTES_MAX, reply};
use super::{admin, collections, meta, range};

/// Lengths above this are no lengths: memcached's INT_MAX - 2.
pub(super) const LENGTH_MAX: u64 = i32::MAX as u64 - 2;

/// What the bytes at the front of the input are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// Not yet a whole line: call again with the same bytes and more behind them.
    Incomplete,
    /// A command. Remove `consumed` bytes; after [`Command::Store`] the data block follows, which
    /// is [`Body`](super::Body)'s.
    Command {
        /// The command.
        command: Command<'a>,
        /// Its length on the wire.
        consumed: usize,
    },
    /// A storage command whose data block is longer than the limit. Remove `consumed` bytes, then
    /// the data block with its line end, and only then answer [`reply::TOO_LARGE`] if one is
    /// wanted.
    TooLarge {
        /// The command; [`Command::data_bytes`] says how long its block is.
        command: Command<'a>,
        /// Its length on the wire.
        consumed: usize,
    },
    /// Bytes without meaning (the data block of a refused command), to be removed.
    Skip {
        /// How many.
        consumed: usize,
    },
    /// No command. Send `reply` (empty if the client wants none), remove `consumed` bytes and close
    /// if told to.
    Error {
        /// What to answer.
        reply: &'static [u8],
        /// How many bytes to remove.
        consumed: usize,
        /// Hang up once the reply is sent.
        close: bool,
    },
}

/// Parses the stream of one connection. Cheap: two numbers of state, no copy of the input.
#[derive(Clone, Debug)]
pub struct Parser {
    item_bytes_max: usize,
    /// Bytes of the input already searched for a line end.
    searched: usize,
    /// Bytes of a refused data block still to come.
    swallow: u64,
}

/// Why a line is no command.
pub(super) struct LineError {
    pub(super) reply: &'static [u8],
    /// Bytes behind the line that belong to it.
    pub(super) swallow: u64,
    pub(super) close: bool,
}

impl From<&'static [u8]> for LineError {
    fn from(reply: &'static [u8]) -> Self {
        LineError { reply, swallow: 0, close: false }
    }
}

impl Parser {
    /// A parser for which data blocks of more than `item_bytes_max` are too large.
    pub fn new(item_bytes_max: usize) -> Parser {
        Parser { item_bytes_max, searched: 0, swallow: 0 }
    }

    /// Looks at the front of `input`, which must start where the last `consumed` ended.
    /// Never panics; each byte is searched once however the input grows.
    pub fn parse<'a>(&mut self, input: &'a [u8]) -> Parsed<'a> {
        if input.is_empty() {
            return Parsed::Incomplete;
        }
        if self.swallow > 0 {
            let consumed = usize::try_from(self.swallow).unwrap_or(usize::MAX).min(input.len());
            self.swallow -= consumed as u64;
            return Parsed::Skip { consumed };
        }
        let found = input.get(self.searched..).and_then(|fresh| fresh.iter().position(|byte| *byte == b'\n'));
        let length = found.map(|at| self.searched + at);
        let so_far = length.unwrap_or(input.len());
        if so_far > LINE_BYTES_MAX && so_far > line_bytes_max(input) {
            return Parsed::Error { reply: b"", consumed: input.len(), close: true };
        }
        let Some(length) = length else {
            self.searched = input.len();
            return Parsed::Incomplete;
        };
        self.searched = 0;
        let consumed = length + 1;
        let line = input.get(..length).unwrap_or_default();
        match Self::line(line.strip_suffix(b"\r").unwrap_or(line)) {
            Ok(command) if command.data_bytes().is_some_and(|bytes| bytes > self.item_bytes_max) => {
                Parsed::TooLarge { command, consumed }
            }
            Ok(command) => Parsed::Command { command, consumed },
            Err(refusal) => {
                self.swallow = refusal.swallow;
                Parsed::Error { reply: refusal.reply, consumed, close: refusal.close }
            }
        }
    }

    fn line<'a>(line: &'a [u8]) -> Result<Command<'a>, LineError> {
        let mut tokens = Tokens::new(line);
        let Some(name) = tokens.next() else { return Err(reply::ERROR.into()) };
        match name {
            b"get" | b"gets" | b"bget" => get(tokens, name == b"gets", None),
            b"gat" | b"gats" => get_and_touch(tokens, name == b"gats"),
            b"set" => Self::store(tokens, |_| Some(Verb::Set), false),
            b"add" => Self::store(tokens, |_| Some(Verb::Add), false),
            b"replace" => Self::store(tokens, |_| Some(Verb::Replace), false),
            b"append" => Self::store(tokens, |_| Some(Verb::Append), false),
            b"prepend" => Self::store(tokens, |_| Some(Verb::Prepend), false),
            b"cas" => Self::store(tokens, |word| unsigned(word).map(Verb::Cas), true),
            b"delete" => delete(tokens),
            b"incr" | b"decr" => arithmetic(tokens, name == b"decr"),
            b"touch" => touch(tokens),
            b"flush_all" => flush_all(tokens),
            b"version" => Ok(Command::Version),
            b"verbosity" => verbosity(tokens),
            b"stats" => stats(tokens),
            b"backup" => backup(tokens),
            b"collections" => collections::parse(tokens).map(Command::Collections),
            b"slabs" => admin::slabs(tokens),
            b"lru" => admin::lru(tokens),
            b"lru_crawler" => admin::crawler(tokens),
            b"cache_memlimit" => admin::memory_limit(tokens),
            b"refresh_certs" => Ok(Command::RefreshCertificates),
            b"shutdown" => admin::shutdown(tokens),
            b"watch" => admin::watch(tokens),
            b"mg" => meta::get(tokens),
            b"ms" => meta::set(tokens),
            b"md" => meta::delete(tokens),
            b"ma" => meta::arithmetic(tokens),
            b"me" => meta::debug(tokens),
            b"mr" => range::parse(tokens),
            b"mn" => Ok(Command::MetaNoop),
            b"quit" => Ok(Command::Quit),
            _ => Err(unknown(name, tokens)),
        }
    }

    /// `<verb> <key> <flags> <exptime> <bytes> [<cas>] [noreply]`.
    fn store<'a>(
        tokens: Tokens<'a>,
        verb: impl Fn(&[u8]) -> Option<Verb>,
        has_cas: bool,
    ) -> Result<Command<'a>, LineError> {
        let needed = 4 + usize::from(has_cas);
        let Some(([key, flags, exptime, bytes, fifth, sixth], count)) = words::<6>(tokens) else {
            return Err(reply::ERROR.into());
        };
        if count < needed || count > needed + 1 {
            return Err(reply::ERROR.into());
        }
        let cas = if has_cas { fifth } else { &[][..] };
        // The last word says so, also where another one is missing.
        let noreply = [key, flags, exptime, bytes, fifth, sixth].get(count - 1) == Some(&&b"noreply"[..]);
        let refuse = |text| Err(unless(noreply, text));
        let numbers = (unsigned::<u32>(flags), signed(exptime), unsigned::<u64>(bytes), verb(cas));
        let (Some(flags), Some(exptime), Some(length @ ..=LENGTH_MAX), Some(verb)) = numbers else {
            return refuse(reply::BAD_LINE);
        };
        if !is_key(key) {
            return refuse(reply::BAD_LINE);
        }
        match usize::try_from(length) {
            Ok(data_bytes) => Ok(Command::Store(Store { verb, key, flags, exptime, data_bytes, noreply })),
            Err(_) => refuse(reply::BAD_LINE),
        }
    }
}

/// How long the line at the front of `input` may be, once it is longer than most may be.
fn line_bytes_max(input: &[u8]) -> usize {
    match Tokens::new(input.get(..LINE_BYTES_MAX).unwrap_or(input)).next() {
        Some(b"get" | b"gets" | b"bget" | b"gat" | b"gats" | b"mr") => GET_LINE_BYTES_MAX,
        _ => LINE_BYTES_MAX,
    }
}

/// A command nobody knows. Browsers made to speak to a local port are hung up on, before they send
/// a body.
fn unknown(name: &[u8], tokens: Tokens<'_>) -> LineError {
    let http = name == b"POST"
        || name.eq_ignore_ascii_case(b"host:")
        || tokens.into_iter().last().unwrap_or(name).starts_with(b"HTTP/");
    LineError { reply: if http { b"" } else { reply::ERROR }, swallow: 0, close: http }
}

/// `get <key>*`.
fn get(tokens: Tokens<'_>, cas: bool, touch: Option<i64>) -> Result<Command<'_>, LineError> {
    let keys = Keys { line: tokens.rest() };
    if touch.is_none() && keys.iter().next().is_none() {
        return Err(reply::ERROR.into());
    }
    if !keys.iter().all(is_key) {
        return Err(reply::BAD_LINE.into());
    }
    Ok(Command::Get { keys, cas, touch })
}

/// `gat <exptime> <key>*`.
fn get_and_touch(mut tokens: Tokens<'_>, cas: bool) -> Result<Command<'_>, LineError> {
    let Some(exptime) = tokens.next() else { return Err(reply::ERROR.into()) };
    let Some(exptime) = signed(exptime) else { return Err(reply::BAD_EXPTIME.into()) };
    get(tokens, cas, Some(exptime))
}

/// `delete <key> [0] [noreply]`; the 0 is what is left of an old time argument.
fn delete(tokens: Tokens<'_>) -> Result<Command<'_>, LineError> {
    let Some(([key, second, third], count)) = words::<3>(tokens) else { return Err(reply::ERROR.into()) };
    let noreply = match (count, second, third) {
        (1, ..) | (2, b"0", _) => false,
        (2, b"noreply", _) | (3, b"0", b"noreply") => true,
        (0, ..) => return Err(reply::ERROR.into()),
        (_, _, b"noreply") => return Err(b"".as_slice().into()),
        _ => return Err(reply::BAD_DELETE.into()),
    };
    match is_key(key) {
        true => Ok(Command::Delete { key, noreply }),
        false => Err(unless(noreply, reply::BAD_LINE)),
    }
}

/// `incr <key> <delta> [noreply]`.
fn arithmetic(tokens: Tokens<'_>, decrement: bool) -> Result<Command<'_>, LineError> {
    let ([key, delta], noreply) = two_words(tokens)?;
    if !is_key(key) {
        return Err(unless(noreply, reply::BAD_LINE));
    }
    match unsigned(delta) {
        Some(delta) => Ok(Command::Arithmetic { key, delta, decrement, noreply }),
        None => Err(unless(noreply, reply::BAD_DELTA)),
    }
}

/// `touch <key> <exptime> [noreply]`.
fn touch(tokens: Tokens<'_>) -> Result<Command<'_>, LineError> {
    let ([key, exptime], noreply) = two_words(tokens)?;
    if !is_key(key) {
        return Err(unless(noreply, reply::BAD_LINE));
    }
    match signed(exptime) {
        Some(exptime) => Ok(Command::Touch { key, exptime, noreply }),
        None => Err(unless(noreply, reply::BAD_EXPTIME)),
    }
}

/// `flush_all [<delay>] [noreply]`.
fn flush_all(tokens: Tokens<'_>) -> Result<Command<'_>, LineError> {
    let Some(([first, second], count)) = words::<2>(tokens) else { return Err(reply::ERROR.into()) };
    let noreply = first == b"noreply" && count == 1 || second == b"noreply";
    let delay = if count == 0 || (count == 1 && noreply) { Some(0) } else { signed(first) };
    match delay {
        Some(delay) => Ok(Command::FlushAll { delay, noreply }),
        None => Err(unless(noreply, reply::BAD_EXPTIME)),
    }
}

/// `verbosity <level> [noreply]`.
fn verbosity(tokens: Tokens<'_>) -> Result<Command<'_>, LineError> {
    let Some(([level, second], count @ 1..)) = words::<2>(tokens) else { return Err(reply::ERROR.into()) };
    let noreply = second == b"noreply" || (count == 1 && level == b"noreply");
    match unsigned::<u64>(level) {
        Some(_) => Ok(Command::Verbosity { noreply }),
        None => Err(unless(noreply, reply::BAD_LINE)),
    }
}

/// `stats [<group>]`.
fn stats(mut tokens: Tokens<'_>) -> Result<Command<'_>, LineError> {
    let group = tokens.next().unwrap_or_default();
    match Statistics::named(group) {
        _ if group == b"detail" => admin::detail(tokens),
        _ if group == b"cachedump" => admin::cachedump(tokens),
        Some(which) => Ok(Command::Stats(which)),
        None => Err(reply::ERROR.into()),
    }
}

/// `backup <name>`.
fn backup(tokens: Tokens<'_>) -> Result<Command<'_>, LineError> {
    let Some(([name], 1)) = words::<1>(tokens) else { return Err(reply::ERROR.into()) };
    match std::str::from_utf8(name) {
        Ok(name) if is_backup_name(name) => Ok(Command::Backup { name }),
        _ => Err(reply::BAD_BACKUP_NAME.into()),
    }
}

/// Two words and perhaps a third, which is `noreply` or ignored; the second may be `noreply` by
/// mistake.
fn two_words(tokens: Tokens<'_>) -> Result<([&[u8]; 2], bool), LineError> {
    match words::<3>(tokens) {
        Some(([first, second, third], count @ 2..)) => {
            Ok(([first, second], third == b"noreply" || (count == 2 && second == b"noreply")))
        }
        _ => Err(reply::ERROR.into()),
    }
}

/// A refusal that a client which wants no replies does not hear.
fn unless(noreply: bool, reply: &'static [u8]) -> LineError {
    (if noreply { b"" } else { reply }).into()
}
