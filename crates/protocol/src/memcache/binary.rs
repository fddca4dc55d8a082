//! The binary protocol (memcached's `doc/protocol-binary.txt`, replies checked against memcached
//! 1.6.18).
//!
//! A client that begins with [`REQUEST_MAGIC`] speaks it, for as long as the connection lasts.

use super::parser::LENGTH_MAX;
use super::{Detail, KEY_BYTES_MAX, Statistics, StoreMode};

/// First byte of every request.
pub const REQUEST_MAGIC: u8 = 0x80;
const RESPONSE_MAGIC: u8 = 0x81;
const HEADER_BYTES: usize = 24;
/// Longest value of a request that is no storage command (what SASL sends), in bytes.
const ARGUMENT_BYTES_MAX: usize = 4096;
/// Longest name of a way to say who one is.
const MECHANISM_BYTES_MAX: usize = 32;

/// What a response says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// There is no such key.
    NotFound = 1,
    /// The key is there, or has another version.
    Exists = 2,
    /// The value is longer than the limit.
    TooLarge = 3,
    /// The request is not well formed; the connection is closed.
    Invalid = 4,
    /// There is nothing to append to.
    NotStored = 5,
    /// The value is no number of 64 bits.
    NotANumber = 6,
    /// The client has to say who it is.
    AuthError = 0x20,
    /// It goes on by another step.
    AuthContinue = 0x21,
    /// No such command.
    UnknownCommand = 0x81,
    /// The store is full.
    OutOfMemory = 0x82,
    /// The operation failed.
    Internal = 0x84,
    /// Too much is waiting.
    Busy = 0x85,
}

impl Status {
    /// What memcached says with it.
    pub fn text(self) -> &'static str {
        match self {
            Status::Ok => "",
            Status::NotFound => "Not found",
            Status::Exists => "Data exists for key.",
            Status::TooLarge => "Too large.",
            Status::Invalid => "Invalid arguments",
            Status::NotStored => "Not stored.",
            Status::NotANumber => "Non-numeric server-side value for incr or decr",
            Status::AuthError => "Auth failure.",
            Status::AuthContinue => "Continue.",
            Status::UnknownCommand => "Unknown command",
            Status::OutOfMemory => "Out of memory",
            Status::Internal => "Internal error",
            Status::Busy => "Busy",
        }
    }
}

/// What a response repeats of its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// The command.
    pub opcode: u8,
    /// The client's own number.
    pub opaque: u32,
}

/// A request, complete but for the value of [`BinaryCommand::Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryRequest<'a> {
    /// For its response.
    pub tag: Tag,
    /// Only if this is the version.
    pub compare: Option<u64>,
    /// The usual answer is not wanted.
    pub quiet: bool,
    /// What to do.
    pub command: BinaryCommand<'a>,
}

/// What a request asks for. Keys have 1 to [`KEY_BYTES_MAX`] bytes, any bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryCommand<'a> {
    /// `get`, `getk`, `touch`, `gat`, `gatk`.
    Get {
        /// The key.
        key: &'a [u8],
        /// Answer with the key.
        with_key: bool,
        /// Answer with the value: not for `touch`.
        with_value: bool,
        /// New expiry time.
        touch: Option<u32>,
    },
    /// `set`, `add`, `replace`, `append`, `prepend`. The value follows, without a line end: collect
    /// it with [`Body::bare`](super::Body::bare).
    Store {
        /// Which kind of storing.
        mode: StoreMode,
        /// The key.
        key: &'a [u8],
        /// Opaque to the server.
        flags: u32,
        /// Expiry time.
        exptime: u32,
        /// Length of the value, in bytes.
        data_bytes: usize,
    },
    /// `delete`.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// `increment`, `decrement`.
    Arithmetic {
        /// The key.
        key: &'a [u8],
        /// Subtract.
        decrement: bool,
        /// By how much.
        delta: u64,
        /// Value and expiry time of what is made if it is not there.
        initial: Option<(u64, u32)>,
    },
    /// `flush`.
    Flush {
        /// When, as expiry times are read.
        delay: u32,
    },
    /// `stat`; `None`: there is no such group.
    Stat(Option<Statistics>),
    /// `stat` of `detail on`, `detail off`, `detail dump`.
    Detail(Detail),
    /// `sasl list mechs`.
    SaslList,
    /// `sasl auth`, `sasl step`.
    SaslAuth {
        /// It goes on with what was begun before.
        step: bool,
        /// The mechanism.
        mechanism: &'a [u8],
        /// What it sends.
        data: &'a [u8],
    },
    /// The same, of a mechanism whose name is too long for one.
    SaslUnnamed,
    /// `noop`.
    Noop,
    /// `version`.
    Version,
    /// `verbosity`: understood and without effect.
    Verbosity,
    /// `quit`.
    Quit,
}

/// What the bytes at the front of the input are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryParsed<'a> {
    /// Not yet a whole request: call again with the same bytes and more behind them.
    Incomplete,
    /// A request. Remove `consumed` bytes; after [`BinaryCommand::Store`] its value follows.
    Request {
        /// The request.
        request: BinaryRequest<'a>,
        /// Its length, without the value of a storage command.
        consumed: usize,
    },
    /// A storage command whose value is longer than the limit. Remove `consumed` bytes, then the
    /// value, and only then answer [`Status::TooLarge`].
    TooLarge {
        /// The request.
        request: BinaryRequest<'a>,
        /// Its length without the value.
        consumed: usize,
    },
    /// Bytes without meaning (the body of a refused request), to be removed.
    Skip {
        /// How many.
        consumed: usize,
    },
    /// No request. Answer with the status, remove `consumed` bytes and close if told to.
    Error {
        /// For the response; `None`: there is none, these bytes are of no request.
        tag: Option<Tag>,
        /// What to answer.
        status: Status,
        /// How many bytes to remove.
        consumed: usize,
        /// Hang up once the response is sent.
        close: bool,
    },
}

/// Parses the stream of one connection. Cheap: two numbers of state, no copy of the input.
#[derive(Clone, Debug)]
pub struct BinaryParser {
    item_bytes_max: usize,
    /// Bytes of a refused body still to come.
    swallow: u64,
}

/// The fields of a header that count.
struct Header {
    tag: Tag,
    key_bytes: usize,
    extras_bytes: usize,
    body_bytes: usize,
    cas: u64,
}

impl Header {
    fn read(bytes: &[u8; HEADER_BYTES]) -> Header {
        let [_, opcode, k0, k1, extras, _, _, _, b0, b1, b2, b3, o0, o1, o2, o3, cas @ ..] = *bytes;
        Header {
            tag: Tag { opcode, opaque: u32::from_be_bytes([o0, o1, o2, o3]) },
            key_bytes: u16::from_be_bytes([k0, k1]).into(),
            extras_bytes: extras.into(),
            body_bytes: u32::from_be_bytes([b0, b1, b2, b3]) as usize,
            cas: u64::from_be_bytes(cas),
        }
    }
}

/// A quiet command's opcode is that of its plain form and this flag.
fn plain(opcode: u8) -> (u8, bool) {
    match opcode {
        0x09 => (0x00, true),
        0x0D => (0x0C, true),
        0x11..=0x18 => (opcode - 0x10, true),
        0x19 => (0x0E, true),
        0x1A => (0x0F, true),
        0x1E => (0x1D, true),
        0x24 => (0x23, true),
        _ => (opcode, false),
    }
}

impl BinaryParser {
    /// A parser for which values of more than `item_bytes_max` are too large.
    pub fn new(item_bytes_max: usize) -> BinaryParser {
        BinaryParser { item_bytes_max, swallow: 0 }
    }

    /// Looks at the front of `input`, which must start where the last `consumed` ended. Never
    /// panics. O(1).
    pub fn parse<'a>(&mut self, input: &'a [u8]) -> BinaryParsed<'a> {
        if self.swallow > 0 && !input.is_empty() {
            let consumed = usize::try_from(self.swallow).unwrap_or(usize::MAX).min(input.len());
            self.swallow -= consumed as u64;
            return BinaryParsed::Skip { consumed };
        }
        match input.first() {
            None => return BinaryParsed::Incomplete,
            Some(&REQUEST_MAGIC) => {}
            Some(_) => {
                let consumed = input.len();
                return BinaryParsed::Error { tag: None, status: Status::Invalid, consumed, close: true };
            }
        }
        let Some((header, body)) = input.split_first_chunk() else { return BinaryParsed::Incomplete };
        let header = Header::read(header);
        match Self::request(&header, body) {
            Ok(Some((request, used))) if self.is_too_large(&request) => {
                BinaryParsed::TooLarge { request, consumed: HEADER_BYTES + used }
            }
            Ok(Some((request, used))) => BinaryParsed::Request { request, consumed: HEADER_BYTES + used },
            Ok(None) => BinaryParsed::Incomplete,
            Err((status, close)) => {
                self.swallow = if close { 0 } else { header.body_bytes as u64 };
                BinaryParsed::Error { tag: Some(header.tag), status, consumed: HEADER_BYTES, close }
            }
        }
    }

    fn is_too_large(&self, request: &BinaryRequest<'_>) -> bool {
        matches!(request.command, BinaryCommand::Store { data_bytes, .. } if data_bytes > self.item_bytes_max)
    }

    /// The request and how many bytes of `body` it took; `None` while some are missing.
    fn request<'a>(header: &Header, body: &'a [u8]) -> Result<Option<(BinaryRequest<'a>, usize)>, (Status, bool)> {
        const INVALID: (Status, bool) = (Status::Invalid, true);
        let Header { tag, key_bytes, extras_bytes, body_bytes, cas } = *header;
        let Some(value_bytes) = body_bytes.checked_sub(key_bytes + extras_bytes) else {
            return Err((Status::UnknownCommand, true));
        };
        if key_bytes > KEY_BYTES_MAX {
            return Err(INVALID);
        }
        let (opcode, quiet) = plain(tag.opcode);
        if !well_formed(opcode, key_bytes, extras_bytes, value_bytes)? {
            return Err(INVALID);
        }
        let stores = matches!(opcode, 0x01..=0x03 | 0x0E | 0x0F);
        if stores && value_bytes as u64 > LENGTH_MAX {
            return Err((Status::TooLarge, true));
        }
        let used = key_bytes + extras_bytes + if stores { 0 } else { value_bytes };
        let Some((used_body, _)) = body.split_at_checked(used) else { return Ok(None) };
        let (extras, rest) = used_body.split_at_checked(extras_bytes).ok_or(INVALID)?;
        let (key, argument) = rest.split_at_checked(key_bytes).ok_or(INVALID)?;
        let command = command(opcode, key, extras, argument, value_bytes).ok_or(INVALID)?;
        let compare = (cas != 0).then_some(cas);
        Ok(Some((BinaryRequest { tag, compare, quiet, command }, used)))
    }
}

/// Whether a command has the parts that it needs and no others.
fn well_formed(opcode: u8, key: usize, extras: usize, value: usize) -> Result<bool, (Status, bool)> {
    Ok(match opcode {
        // get, getk, delete
        0x00 | 0x0C | 0x04 => key > 0 && extras == 0 && value == 0,
        0x01..=0x03 => key > 0 && extras == 8,
        0x05 | 0x06 => key > 0 && extras == 20 && value == 0,
        // append, prepend
        0x0E | 0x0F => key > 0 && extras == 0,
        // touch, gat, gatk
        0x1C | 0x1D | 0x23 => key > 0 && extras == 4 && value == 0,
        // flush
        0x08 => key == 0 && value == 0 && (extras == 0 || extras == 4),
        0x10 => extras == 0 && value == 0,
        // quit, noop, version, sasl list
        0x07 | 0x0A | 0x0B | 0x20 => key == 0 && extras == 0 && value == 0,
        0x1B => key == 0 && extras == 4 && value == 0,
        // sasl auth, sasl step
        0x21 | 0x22 => key > 0 && extras == 0 && value <= ARGUMENT_BYTES_MAX,
        _ => return Err((Status::UnknownCommand, false)),
    })
}

fn command<'a>(
    opcode: u8,
    key: &'a [u8],
    extras: &[u8],
    argument: &'a [u8],
    data_bytes: usize,
) -> Option<BinaryCommand<'a>> {
    let first = || extras.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
    let last = || extras.last_chunk().map(|bytes| u32::from_be_bytes(*bytes));
    let store = |mode, flags, exptime| BinaryCommand::Store { mode, key, flags, exptime, data_bytes };
    let get = |with_key, with_value, touch| BinaryCommand::Get { key, with_key, with_value, touch };
    Some(match opcode {
        0x00 => get(false, true, None),
        0x0C => get(true, true, None),
        0x1C => get(false, false, Some(first()?)),
        0x1D => get(false, true, Some(first()?)),
        0x23 => get(true, true, Some(first()?)),
        0x01 => store(StoreMode::Set, first()?, last()?),
        0x02 => store(StoreMode::Add, first()?, last()?),
        0x03 => store(StoreMode::Replace, first()?, last()?),
        0x0E => store(StoreMode::Append, 0, 0),
        0x0F => store(StoreMode::Prepend, 0, 0),
        0x04 => BinaryCommand::Delete { key },
        0x05 | 0x06 => {
            let (delta, rest) = extras.split_first_chunk()?;
            let initial = u64::from_be_bytes(*rest.first_chunk()?);
            // An expiry of all ones: nothing is made.
            let initial = Some((initial, last()?)).filter(|(_, exptime)| *exptime != u32::MAX);
            BinaryCommand::Arithmetic { key, decrement: opcode == 0x06, delta: u64::from_be_bytes(*delta), initial }
        }
        0x08 => BinaryCommand::Flush { delay: first().unwrap_or_default() },
        0x10 => statistics(key),
        0x20 => BinaryCommand::SaslList,
        0x21 | 0x22 if key.len() > MECHANISM_BYTES_MAX => BinaryCommand::SaslUnnamed,
        0x21 | 0x22 => BinaryCommand::SaslAuth { step: opcode == 0x22, mechanism: key, data: argument },
        0x0A => BinaryCommand::Noop,
        0x0B => BinaryCommand::Version,
        0x1B => BinaryCommand::Verbosity,
        0x07 => BinaryCommand::Quit,
        _ => return None,
    })
}

/// What a `stat` of this name asks for. memcached reads no further than the word that counts.
fn statistics(name: &[u8]) -> BinaryCommand<'static> {
    match name.strip_prefix(b"detail") {
        Some(rest) if rest.starts_with(b" dump") => BinaryCommand::Detail(Detail::Dump),
        Some(rest) if rest.starts_with(b" on") => BinaryCommand::Detail(Detail::On),
        Some(rest) if rest.starts_with(b" off") => BinaryCommand::Detail(Detail::Off),
        Some(_) => BinaryCommand::Stat(None),
        None => BinaryCommand::Stat(Statistics::named(name)),
    }
}

/// Appends a response: its header, `extras` and `key`; `value_bytes` of a value follow.
pub fn response(out: &mut Vec<u8>, tag: Tag, status: Status, cas: u64, extras: &[u8], key: &[u8], value_bytes: usize) {
    let body_bytes = u32::try_from(extras.len() + key.len() + value_bytes).unwrap_or(u32::MAX);
    out.extend_from_slice(&[RESPONSE_MAGIC, tag.opcode]);
    out.extend_from_slice(&u16::try_from(key.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(&[u8::try_from(extras.len()).unwrap_or(u8::MAX), 0]);
    out.extend_from_slice(&(status as u16).to_be_bytes());
    out.extend_from_slice(&body_bytes.to_be_bytes());
    out.extend_from_slice(&tag.opaque.to_be_bytes());
    out.extend_from_slice(&cas.to_be_bytes());
    out.extend_from_slice(extras);
    out.extend_from_slice(key);
}

/// Appends a response that is nothing but its status and what memcached says with it.
pub fn status(out: &mut Vec<u8>, tag: Tag, status: Status) {
    refusal(out, tag, status, status.text());
}

/// Appends a response that is nothing but its status and a text.
pub fn refusal(out: &mut Vec<u8>, tag: Tag, status: Status, text: &str) {
    response(out, tag, status, 0, b"", b"", text.len());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request of these parts, its lengths as they are.
    fn request(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        response(&mut out, Tag { opcode, opaque: 7 }, Status::Ok, 9, extras, key, value.len());
        out[0] = REQUEST_MAGIC;
        out.extend_from_slice(value);
        out
    }

    #[test]
    fn quiet_forms_are_their_plain_ones() {
        let pairs = [
            (0x09, 0x00),
            (0x0D, 0x0C),
            (0x11, 0x01),
            (0x12, 0x02),
            (0x13, 0x03),
            (0x14, 0x04),
            (0x15, 0x05),
            (0x16, 0x06),
            (0x17, 0x07),
            (0x18, 0x08),
            (0x19, 0x0E),
            (0x1A, 0x0F),
            (0x1E, 0x1D),
            (0x24, 0x23),
        ];
        for opcode in 0..=255 {
            let expected =
                pairs.iter().find(|(quiet, _)| *quiet == opcode).map_or((opcode, false), |(_, to)| (*to, true));
            assert_eq!(plain(opcode), expected, "{opcode:#x}");
        }
    }

    #[test]
    fn requests_are_read_with_their_parts() {
        let mut parser = BinaryParser::new(100);
        let bytes = request(0x15, &[0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1], b"n", b"");
        let BinaryParsed::Request { request: found, consumed } = parser.parse(&bytes) else { panic!("a request") };
        let command = BinaryCommand::Arithmetic { key: b"n", decrement: false, delta: 2, initial: Some((5, 1)) };
        let tag = Tag { opcode: 0x15, opaque: 7 };
        assert_eq!(found, BinaryRequest { tag, compare: Some(9), quiet: true, command });
        assert_eq!(consumed, bytes.len());
        // A store's value is left to its body.
        let bytes = request(0x01, &[0, 0, 0, 3, 0, 0, 0, 4], b"key", b"value");
        let BinaryParsed::Request { request: found, consumed } = parser.parse(&bytes) else { panic!("a request") };
        let (flags, exptime) = (3, 4);
        let command = BinaryCommand::Store { mode: StoreMode::Set, key: b"key", flags, exptime, data_bytes: 5 };
        assert_eq!((found.command, &bytes[consumed..]), (command, &b"value"[..]));
    }

    #[test]
    fn what_is_not_well_formed_is_refused_and_closes() {
        let bad: [(Vec<u8>, Status, bool); 12] = [
            (request(0x00, b"", b"", b""), Status::Invalid, true),
            (request(0x00, b"1234", b"a", b""), Status::Invalid, true),
            (request(0x00, b"", b"a", b"v"), Status::Invalid, true),
            (request(0x00, b"", &[b'k'; 251], b""), Status::Invalid, true),
            (request(0x01, b"", b"a", b"v"), Status::Invalid, true),
            (request(0x05, b"1234", b"a", b""), Status::Invalid, true),
            (request(0x08, b"", b"a", b""), Status::Invalid, true),
            (request(0x0A, b"", b"a", b""), Status::Invalid, true),
            (request(0x1C, b"", b"a", b""), Status::Invalid, true),
            (request(0x21, b"", b"PLAIN", &[0; 5000]), Status::Invalid, true),
            (request(0x50, b"", b"k", b"v"), Status::UnknownCommand, false),
            (request(0x30, b"", b"", b""), Status::UnknownCommand, false),
        ];
        for (bytes, status, close) in bad {
            let mut parser = BinaryParser::new(100);
            let tag = Some(Tag { opcode: bytes[1], opaque: 7 });
            assert_eq!(parser.parse(&bytes), BinaryParsed::Error { tag, status, consumed: 24, close });
            if !close && bytes.len() > 24 {
                assert_eq!(parser.parse(&bytes[24..]), BinaryParsed::Skip { consumed: bytes.len() - 24 });
            }
        }
        let mut bytes = request(0x00, b"", b"abc", b"");
        bytes[11] = 2;
        let error = BinaryParsed::Error {
            tag: Some(Tag { opcode: 0, opaque: 7 }),
            status: Status::UnknownCommand,
            consumed: 24,
            close: true,
        };
        assert_eq!(BinaryParser::new(0).parse(&bytes), error, "the body is shorter than its parts");
        let text = BinaryParser::new(0).parse(b"get a\r\n");
        assert!(matches!(text, BinaryParsed::Error { tag: None, consumed: 7, close: true, .. }));
    }

    #[test]
    fn a_value_that_is_too_large_is_known_by_its_key() {
        let bytes = request(0x11, &[0; 8], b"a", &[0; 101]);
        let mut parser = BinaryParser::new(100);
        assert_eq!(parser.parse(&bytes[..32]), BinaryParsed::Incomplete, "its key has not come");
        let BinaryParsed::TooLarge { request, consumed } = parser.parse(&bytes) else { panic!("it is too large") };
        let (key, mode) = (b"a", StoreMode::Set);
        let command = BinaryCommand::Store { mode, key, flags: 0, exptime: 0, data_bytes: 101 };
        assert_eq!((request.command, request.quiet, consumed), (command, true, 33));
    }

    #[test]
    fn no_length_is_believed_before_its_bytes_have_come() {
        let mut bytes = request(0x01, &[0; 8], b"a", b"");
        bytes[8..12].fill(0xFF);
        let parsed = BinaryParser::new(64 << 20).parse(&bytes);
        assert!(matches!(parsed, BinaryParsed::Error { status: Status::TooLarge, close: true, .. }), "{parsed:?}");
        let whole = request(0x00, b"", b"abc", b"");
        for length in 0..whole.len() {
            assert_eq!(BinaryParser::new(0).parse(&whole[..length]), BinaryParsed::Incomplete);
        }
    }
}
