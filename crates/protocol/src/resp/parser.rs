//! From bytes to requests: arrays of bulk strings, and inline commands.

use std::ops::Range;

use super::{ARGUMENT_BYTES_MAX, INLINE_BYTES_MAX, LONG_BYTES_MIN, number};

/// Longest line of a count or a length, its type and line end included.
const LENGTH_LINE_BYTES_MAX: usize = 32;
/// So many parsed bytes of a request that is not whole are handed over, so that the rest of it does
/// not need one buffer for all.
const PART_BYTES: usize = 16 << 10;
/// Places of arguments for which room is kept between requests.
const SPANS_KEPT: usize = 64;
/// What an argument counts for beside its bytes: where it lies has to be kept.
const ARGUMENT_COST_BYTES: usize = 16;

/// What a request may have. It may differ from call to call, as a client that logs in may have
/// more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest argument, in bytes.
    pub argument_bytes_max: usize,
    /// Bytes of all arguments, with 16 for each.
    pub request_bytes_max: usize,
    /// Most arguments. More are a [`ProtocolError`].
    pub arguments_max: usize,
}

/// What of a request is over its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestExcess {
    /// An argument has so many bytes.
    Argument(u64),
    /// All arguments together have more bytes than they may.
    Request,
}

/// Bytes that are no request. The connection cannot go on: where the next request begins is not
/// known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A count of arguments that is no number, or too large.
    #[error("invalid multibulk length")]
    Count,
    /// A length of an argument that is no number, negative, or too large.
    #[error("invalid bulk length")]
    Length,
    /// Something else where an argument should begin.
    #[error("expected '$', got '{}'", .0.escape_ascii())]
    NoArgument(u8),
    /// An argument does not end where its length says.
    #[error("expected a line end behind an argument")]
    NoLineEnd,
    /// An inline command without end.
    #[error("too big inline request")]
    Inline,
    /// Quotes of an inline command that do not match.
    #[error("unbalanced quotes in request")]
    Quotes,
}

/// What the bytes at the front of the input are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Not yet a whole request: call again with the same bytes and more behind them.
    Incomplete,
    /// Bytes without meaning: remove them.
    Skip {
        /// How many.
        consumed: usize,
    },
    /// Arguments of a request that goes on: keep [`Parser::spans`] and remove the bytes.
    Part {
        /// How many.
        consumed: usize,
    },
    /// The same, and a long argument comes next: remove the bytes, then collect so many and a line
    /// end.
    Long {
        /// Its length.
        bytes: usize,
        /// How many bytes to remove before.
        consumed: usize,
    },
    /// [`Parser::spans`] are the last arguments of a request.
    Request {
        /// How many bytes to remove.
        consumed: usize,
    },
    /// An inline command: a line of so many bytes, which [`words`](super::words) takes apart.
    Inline {
        /// Without its line end.
        bytes: usize,
        /// With it.
        consumed: usize,
    },
    /// A request over its limits has ended: forget what was kept of it, and answer.
    TooLarge {
        /// What was too large.
        excess: RequestExcess,
        /// How many bytes to remove.
        consumed: usize,
    },
    /// No request: answer, and close.
    Error(ProtocolError),
}

/// Parses the requests of one connection. It remembers how far it came, so that no byte of a
/// request is looked at twice but those of the line at its end.
#[derive(Debug, Default)]
pub struct Parser {
    /// Arguments still to come of the request under way.
    left: Option<usize>,
    /// So many bytes of the input are parsed.
    at: usize,
    spans: Vec<Range<usize>>,
    /// What the last call returned was taken: `at` and `spans` begin anew.
    is_taken: bool,
    /// What the arguments of the request count for so far.
    request_bytes: usize,
    excess: Option<RequestExcess>,
    /// Bytes of an argument of such a request that are thrown away.
    skipped: u64,
    /// In so many bytes of an inline command there is no line end.
    searched: usize,
}

/// Why parsing stops for now.
enum Stop {
    Incomplete,
    Error(ProtocolError),
}

impl Parser {
    /// Where in the input the arguments lie that the last call found.
    pub fn spans(&self) -> &[Range<usize>] {
        &self.spans
    }

    /// Bytes of memory that it holds.
    pub fn held_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Range<usize>>()
    }

    /// The last request has been taken: what it needed room for beyond a few arguments is given
    /// back.
    pub fn shrink(&mut self) {
        if self.spans.capacity() > SPANS_KEPT {
            self.spans = Vec::new();
        }
    }

    /// Whether a request has begun and not ended.
    pub fn is_between_requests(&self) -> bool {
        self.left.is_none() && self.skipped == 0
    }

    /// Looks at the front of `input`: all that was received and not removed.
    pub fn parse(&mut self, input: &[u8], limits: Limits) -> Parsed {
        if std::mem::take(&mut self.is_taken) {
            self.at = 0;
            self.spans.clear();
        }
        match self.request(input, limits) {
            Ok(Parsed::Incomplete) | Err(Stop::Incomplete) => self.pause(),
            Ok(parsed) => {
                self.is_taken = true;
                parsed
            }
            Err(Stop::Error(error)) => Parsed::Error(error),
        }
    }

    /// The input has ended before the request.
    fn pause(&mut self) -> Parsed {
        let consumed = self.at;
        let is_thrown_away = self.excess.is_some() && consumed > 0;
        if !is_thrown_away && consumed < PART_BYTES {
            return Parsed::Incomplete;
        }
        self.is_taken = true;
        if is_thrown_away { Parsed::Skip { consumed } } else { Parsed::Part { consumed } }
    }

    fn request(&mut self, input: &[u8], limits: Limits) -> Result<Parsed, Stop> {
        if self.left.is_none() {
            match input.first() {
                None => return Ok(Parsed::Incomplete),
                Some(b'*') => {}
                Some(_) => return self.inline(input),
            }
            let (count, end) = length_line(input, 0, ProtocolError::Count)?;
            if count <= 0 {
                return Ok(Parsed::Skip { consumed: end });
            }
            let count = usize::try_from(count).ok().filter(|count| *count <= limits.arguments_max);
            self.left = Some(count.ok_or(Stop::Error(ProtocolError::Count))?);
            (self.at, self.request_bytes, self.excess) = (end, 0, None);
        }
        while let Some(left @ 1..) = self.left {
            self.skip(input)?;
            if self.left != Some(left) {
                continue;
            }
            if let Some(long) = self.argument(input, left, limits)? {
                return Ok(long);
            }
        }
        self.left = None;
        let consumed = self.at;
        Ok(match self.excess.take() {
            Some(excess) => Parsed::TooLarge { excess, consumed },
            None => Parsed::Request { consumed },
        })
    }

    /// Takes the next argument; one that is long is for the caller.
    fn argument(&mut self, input: &[u8], left: usize, limits: Limits) -> Result<Option<Parsed>, Stop> {
        match input.get(self.at) {
            None => return Err(Stop::Incomplete),
            Some(b'$') => {}
            Some(byte) => return Err(Stop::Error(ProtocolError::NoArgument(*byte))),
        }
        let (length, begin) = length_line(input, self.at, ProtocolError::Length)?;
        let length = u64::try_from(length).ok().filter(|length| *length <= ARGUMENT_BYTES_MAX);
        let length = length.ok_or(Stop::Error(ProtocolError::Length))?;
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        let request_bytes = self.request_bytes.saturating_add(bytes).saturating_add(ARGUMENT_COST_BYTES);
        if self.excess.is_none() {
            self.excess = match () {
                () if bytes > limits.argument_bytes_max => Some(RequestExcess::Argument(length)),
                () if request_bytes > limits.request_bytes_max => Some(RequestExcess::Request),
                () => None,
            };
        }
        if self.excess.is_some() {
            self.spans.clear();
            (self.at, self.skipped) = (begin, length.saturating_add(2));
            return Ok(None);
        }
        if bytes >= LONG_BYTES_MIN {
            (self.left, self.request_bytes, self.at) = (Some(left - 1), request_bytes, begin);
            return Ok(Some(Parsed::Long { bytes, consumed: begin }));
        }
        let end = begin.saturating_add(bytes);
        let next = end.saturating_add(2);
        match input.get(end..next) {
            None => return Err(Stop::Incomplete),
            Some(b"\r\n") => {}
            Some(_) => return Err(Stop::Error(ProtocolError::NoLineEnd)),
        }
        self.spans.push(begin..end);
        (self.left, self.request_bytes, self.at) = (Some(left - 1), request_bytes, next);
        Ok(None)
    }

    /// Throws away what there is of an argument that is too long.
    fn skip(&mut self, input: &[u8]) -> Result<(), Stop> {
        if self.skipped == 0 {
            return Ok(());
        }
        let there = input.len().saturating_sub(self.at);
        let taken = usize::try_from(self.skipped).map_or(there, |skipped| skipped.min(there));
        self.at += taken;
        self.skipped -= taken as u64;
        if self.skipped > 0 {
            return Err(Stop::Incomplete);
        }
        self.left = self.left.map(|left| left.saturating_sub(1));
        Ok(())
    }

    fn inline(&mut self, input: &[u8]) -> Result<Parsed, Stop> {
        let fresh = input.get(self.searched..).unwrap_or_default();
        let Some(end) = fresh.iter().position(|byte| *byte == b'\n').map(|end| end + self.searched) else {
            self.searched = input.len();
            return if input.len() > INLINE_BYTES_MAX {
                Err(Stop::Error(ProtocolError::Inline))
            } else {
                Ok(Parsed::Incomplete)
            };
        };
        self.searched = 0;
        let line = input.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line.len() {
            bytes if bytes > INLINE_BYTES_MAX => Err(Stop::Error(ProtocolError::Inline)),
            bytes => Ok(Parsed::Inline { bytes, consumed: end + 1 }),
        }
    }
}

/// The number behind the type at `at`, and where the next line begins.
fn length_line(input: &[u8], at: usize, error: ProtocolError) -> Result<(i64, usize), Stop> {
    let rest = input.get(at..).unwrap_or_default();
    let window = rest.get(..LENGTH_LINE_BYTES_MAX).unwrap_or(rest);
    let Some(end) = window.iter().position(|byte| *byte == b'\r') else {
        return Err(if window.len() < LENGTH_LINE_BYTES_MAX { Stop::Incomplete } else { Stop::Error(error) });
    };
    match window.get(end + 1) {
        None if window.len() < LENGTH_LINE_BYTES_MAX => return Err(Stop::Incomplete),
        Some(b'\n') => {}
        _ => return Err(Stop::Error(error)),
    }
    let number = window.get(1..end).and_then(number::integer).ok_or(Stop::Error(error))?;
    Ok((number, at + end + 2))
}

#[cfg(test)]
#[path = "../../tests/unit/resp.rs"]
mod tests;
