//! The meta commands: `mg`, `ms`, `md`, `ma`, `me`.
//!
//! Every command takes the flags of all, as memcached does; it heeds its own. `E` (explicit
//! version) and `x` (clear the value) are of memcached later than 1.6.18, and so are `N` and the
//! answer to `s` of `ms`.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

use super::command::Command;
use super::line::{Tokens, is_key, signed, unsigned};
use super::parser::{LENGTH_MAX, LineError};
use super::{KEY_BYTES_MAX, reply};

/// Longest opaque, in bytes.
pub const META_OPAQUE_BYTES_MAX: usize = 31;

/// Most flags of a command.
pub(super) const FLAGS_MAX: usize = 17;

/// Bits behind the last whole byte may be anything, as memcached takes them.
pub(super) const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// A meta command, complete but for the data block of [`MetaVerb::Set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// Which command.
    pub verb: MetaVerb,
    /// The key as it was sent: base64 if [`MetaFlags::base64`].
    pub word: &'a [u8],
    /// Its flags.
    pub flags: MetaFlags<'a>,
}

/// Which meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVerb {
    /// `mg`.
    Get,
    /// `ms`.
    Set {
        /// Which kind of storing.
        mode: StoreMode,
        /// Length of the data block without its line end, in bytes.
        data_bytes: usize,
    },
    /// `md`.
    Delete,
    /// `ma`.
    Arithmetic {
        /// Subtract.
        decrement: bool,
    },
    /// `me`.
    Debug,
}

/// What `ms` does with a key that is there, or is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreMode {
    /// Whatever is there.
    #[default]
    Set,
    /// If the key is absent.
    Add,
    /// If the key is present.
    Replace,
    /// Behind the present value.
    Append,
    /// Before the present value.
    Prepend,
}

/// The flags of a meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaFlags<'a> {
    line: &'a [u8],
    /// `b`: the key is base64.
    pub base64: bool,
    /// `q`: the usual answer is not wanted.
    pub quiet: bool,
    /// `v`: the value is wanted.
    pub value: bool,
    /// `u`: it is not counted as a use.
    pub unnoticed: bool,
    /// `x`: the value goes, the item stays.
    pub clear: bool,
    /// `I`: mark as stale; or store as stale what comes late.
    pub invalidate: bool,
    /// When the item expires, and what comes before.
    pub times: MetaTimes,
    /// `C`: only if this is the version.
    pub compare: Option<u64>,
    /// `E`: the version that the item gets.
    pub version: Option<u64>,
    /// `F`: the client's flags.
    pub client_flags: u32,
    /// What arithmetic does.
    pub arithmetic: MetaArithmetic,
    mode: Option<u8>,
    /// `O` is longer than it may be.
    opaque_too_long: bool,
}

/// Times among the flags of a meta command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaTimes {
    /// `T`: new expiry time.
    pub exptime: Option<i64>,
    /// `N`: make an item where there is none, with this expiry time.
    pub vivify: Option<i64>,
    /// `R`: who asks when less than this is left is to make the value anew.
    pub recache: Option<i64>,
}

/// Numbers of `ma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaArithmetic {
    /// `D`: by how much.
    pub delta: u64,
    /// `J`: of an item that is made.
    pub initial: u64,
}

impl<'a> Meta<'a> {
    /// The key's bytes. O(length).
    pub fn key(&self) -> Cow<'a, [u8]> {
        match self.flags.base64 {
            // Decoded once already, by the parser.
            true => Cow::Owned(BASE64.decode(self.word).unwrap_or_default()),
            false => Cow::Borrowed(self.word),
        }
    }
}

impl<'a> MetaFlags<'a> {
    /// The bytes the flags lie in; [`MetaFlags::split`] reads them again.
    pub fn line(self) -> &'a [u8] {
        self.line
    }

    /// The flags as they were sent: a letter, and what stands behind it.
    pub fn words(self) -> impl Iterator<Item = (u8, &'a [u8])> {
        MetaFlags::split(self.line)
    }

    /// The flags of a line.
    pub fn split(line: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
        Tokens::new(line).filter_map(|word| word.split_first().map(|(letter, rest)| (*letter, rest)))
    }

    /// The flags behind the key `word`. What is no flag, or there twice, ends it; of what is wrong
    /// with arguments the last is told, as memcached does.
    fn parse(word: &[u8], line: &'a [u8]) -> Result<MetaFlags<'a>, &'static [u8]> {
        let mut flags = MetaFlags { line, ..MetaFlags::default() };
        let (mut seen, mut wrong) = (0u128, None);
        for (letter, rest) in flags.words() {
            let bit = 1u128.checked_shl(u32::from(letter)).unwrap_or_default();
            if bit == 0 || letter == 127 || seen & bit != 0 {
                return Err(reply::META_DUPLICATE_FLAG);
            }
            seen |= bit;
            match flags.take(letter, rest, word) {
                Ok(()) => {}
                Err(reply::META_INVALID_FLAG) => return Err(reply::META_INVALID_FLAG),
                // Of wrong flags of the client it is told only where nothing else is.
                Err(reply::BAD_LINE) => wrong = wrong.or(Some(reply::BAD_LINE)),
                Err(why) => wrong = Some(why),
            }
        }
        wrong.map_or(Ok(flags), Err)
    }

    fn take(&mut self, letter: u8, rest: &[u8], word: &[u8]) -> Result<(), &'static [u8]> {
        let time = || signed(rest).map(Some).ok_or(reply::META_BAD_TOKEN);
        let version = || unsigned(rest).map(Some).ok_or(reply::META_BAD_TOKEN);
        match letter {
            b'b' => {
                self.base64 = true;
                if !BASE64.decode(word).is_ok_and(|key| (1..=KEY_BYTES_MAX).contains(&key.len())) {
                    return Err(reply::META_BAD_BASE64);
                }
            }
            b'q' => self.quiet = true,
            b'v' => self.value = true,
            b'u' => self.unnoticed = true,
            b'x' => self.clear = true,
            b'I' => self.invalidate = true,
            b'T' => self.times.exptime = time()?,
            b'N' => self.times.vivify = time()?,
            b'R' => self.times.recache = time()?,
            b'C' => self.compare = version()?,
            b'E' => self.version = version()?,
            b'F' => self.client_flags = unsigned(rest).ok_or(reply::BAD_LINE)?,
            b'D' => self.arithmetic.delta = unsigned(rest).ok_or(reply::META_BAD_DELTA)?,
            b'J' => self.arithmetic.initial = unsigned(rest).ok_or(reply::META_BAD_INITIAL)?,
            b'M' => match rest {
                [mode] => self.mode = Some(*mode),
                _ => return Err(reply::META_MODE_LENGTH),
            },
            b'O' => self.opaque_too_long = rest.len() > META_OPAQUE_BYTES_MAX,
            b'k' | b's' | b't' | b'c' | b'f' | b'h' | b'l' => {}
            // For proxies on the way.
            b'P' | b'L' => {}
            _ => return Err(reply::META_INVALID_FLAG),
        }
        Ok(())
    }
}

impl Default for MetaFlags<'_> {
    fn default() -> Self {
        MetaFlags {
            line: b"",
            base64: false,
            quiet: false,
            value: false,
            unnoticed: false,
            clear: false,
            invalidate: false,
            times: MetaTimes::default(),
            compare: None,
            version: None,
            client_flags: 0,
            arithmetic: MetaArithmetic { delta: 1, initial: 0 },
            mode: None,
            opaque_too_long: false,
        }
    }
}

/// Appends a key as flag `k` of an answer shows it: base64 if it was asked by that.
pub fn encode_key(out: &mut Vec<u8>, key: &[u8], base64: bool) {
    match base64 {
        true => out.extend_from_slice(BASE64.encode(key).as_bytes()),
        false => out.extend_from_slice(key),
    }
}

/// `mg <key> <flags>*`.
pub(super) fn get(tokens: Tokens<'_>) -> Result<Command<'_>, LineError> {
    let (word, line) = key_and_rest(tokens, reply::MG_TOO_MANY_FLAGS)?;
    whole(MetaVerb::Get, word, MetaFlags::parse(word, line)?)
}

/// `ms <key> <bytes> <flags>*`. What is wrong behind the length leaves the data block to be thrown
/// away.
pub(super) fn set(tokens: Tokens<'_>) -> Result<Command<'_>, LineError> {
    let (word, line) = key_and_rest(tokens, reply::META_TOO_MANY_FLAGS)?;
    let mut rest = Tokens::new(line);
    let Some(length @ ..=LENGTH_MAX) = rest.next().and_then(unsigned::<u64>) else {
        return Err(reply::BAD_LINE.into());
    };
    let command = || {
        let flags = MetaFlags::parse(word, rest.rest())?;
        let mode = match flags.mode {
            None | Some(b'S') => StoreMode::Set,
            Some(b'E') => StoreMode::Add,
            Some(b'R') => StoreMode::Replace,
            Some(b'A') => StoreMode::Append,
            Some(b'P') => StoreMode::Prepend,
            Some(_) => return Err(reply::META_BAD_STORE_MODE.into()),
        };
        let data_bytes = usize::try_from(length).unwrap_or(usize::MAX);
        whole(MetaVerb::Set { mode, data_bytes }, word, flags)
    };
    command().map_err(|refusal: LineError| LineError { swallow: length + 2, ..refusal })
}

/// `md <key> <flags>*`.
pub(super) fn delete(tokens: Tokens<'_>) -> Result<Command<'_>, LineError> {
    let (word, line) = key_and_rest(tokens, reply::META_TOO_MANY_FLAGS)?;
    whole(MetaVerb::Delete, word, untold(MetaFlags::parse(word, line))?)
}

/// `ma <key> <flags>*`.
pub(super) fn arithmetic(tokens: Tokens<'_>) -> Result<Command<'_>, LineError> {
    let (word, line) = key_and_rest(tokens, reply::META_TOO_MANY_FLAGS)?;
    let flags = untold(MetaFlags::parse(word, line))?;
    let decrement = match flags.mode {
        None | Some(b'I' | b'+') => false,
        Some(b'D' | b'-') => true,
        Some(_) => return Err(reply::META_BAD_ARITHMETIC_MODE.into()),
    };
    whole(MetaVerb::Arithmetic { decrement }, word, flags)
}

/// `me <key> [b]`. What else stands behind the key is ignored.
pub(super) fn debug(mut tokens: Tokens<'_>) -> Result<Command<'_>, LineError> {
    let word = tokens.next().unwrap_or_default();
    let base64 = tokens.next() == Some(b"b");
    if !is_key(word) {
        return Err(reply::BAD_LINE.into());
    }
    let mut flags = MetaFlags::default();
    if base64 {
        flags.take(b'b', b"", word).map_err(|_| reply::BAD_LINE)?;
    }
    whole(MetaVerb::Debug, word, flags)
}

/// The key's word, not yet decoded, and what follows it.
fn key_and_rest<'a>(mut tokens: Tokens<'a>, too_many: &'static [u8]) -> Result<(&'a [u8], &'a [u8]), LineError> {
    let Some(word) = tokens.next() else { return Err(reply::ERROR.into()) };
    if !is_key(word) {
        return Err(reply::BAD_LINE.into());
    }
    let rest = tokens.rest();
    match tokens.count() > FLAGS_MAX {
        true => Err(too_many.into()),
        false => Ok((word, rest)),
    }
}

/// A command whose flags are right. That an opaque is too long is told last.
fn whole<'a>(verb: MetaVerb, word: &'a [u8], flags: MetaFlags<'a>) -> Result<Command<'a>, LineError> {
    match flags.opaque_too_long {
        true => Err(reply::META_OPAQUE_TOO_LONG.into()),
        false => Ok(Command::Meta(Meta { verb, word, flags })),
    }
}

/// md and ma tell of flags only that they are wrong.
fn untold<T>(parsed: Result<T, &'static [u8]>) -> Result<T, &'static [u8]> {
    parsed.map_err(|_| reply::META_BAD_FLAGS)
}
