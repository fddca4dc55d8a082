//! Arguments of a request: those that lie in what was received, and those that were kept.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use stratakv_base::{CollectionId, Key};
use stratakv_protocol::resp::number;

/// Why a request is not carried out: the text of an error reply.
pub(crate) type RequestRefusal = Cow<'static, str>;

/// Arguments of a request that has not come whole. Each takes 12 bytes beside its own.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    bytes: Vec<u8>,
    places: Vec<ArgumentPlace>,
    long: Vec<Bytes>,
}

#[derive(Clone, Copy, Debug)]
enum ArgumentPlace {
    Short { start: u32, len: u32 },
    Long(u32),
}

impl Gathered {
    /// Keeps these parts of the input.
    pub(crate) fn keep(&mut self, input: &[u8], spans: &[Range<usize>]) {
        for argument in spans.iter().filter_map(|span| input.get(span.clone())) {
            self.push(argument);
        }
    }

    /// Keeps an argument.
    pub(crate) fn push(&mut self, argument: &[u8]) {
        // A request has less than 4 GiB: the parser's limits say so.
        self.places.push(ArgumentPlace::Short { start: self.bytes.len() as u32, len: argument.len() as u32 });
        self.bytes.extend_from_slice(argument);
    }

    /// Keeps one that has a buffer of its own.
    pub(crate) fn push_long(&mut self, argument: Bytes) {
        self.places.push(ArgumentPlace::Long(self.long.len() as u32));
        self.long.push(argument);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes of memory that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        let long: usize = self.long.iter().map(Bytes::len).sum();
        self.bytes.capacity() + self.places.capacity() * size_of::<ArgumentPlace>() + long
    }

    /// Forgets all, and gives room back.
    pub(crate) fn clear(&mut self) {
        if !self.is_empty() {
            *self = Gathered::default();
        }
    }
}

/// The arguments of a whole request, the command's name first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arguments<'a> {
    gathered: &'a Gathered,
    input: &'a [u8],
    spans: &'a [Range<usize>],
}

impl<'a> Arguments<'a> {
    /// Those that were kept, and behind them those in `input`.
    pub(crate) fn new(gathered: &'a Gathered, input: &'a [u8], spans: &'a [Range<usize>]) -> Arguments<'a> {
        Arguments { gathered, input, spans }
    }

    pub(crate) fn len(&self) -> usize {
        self.gathered.places.len() + self.spans.len()
    }

    /// The same, kept: short ones are copied.
    pub(crate) fn gather(&self) -> Gathered {
        let bytes =
            self.from(0).map(<[u8]>::len).sum::<usize>() - self.gathered.long.iter().map(Bytes::len).sum::<usize>();
        let mut gathered =
            Gathered { bytes: Vec::with_capacity(bytes), places: Vec::with_capacity(self.len()), long: Vec::new() };
        for index in 0..self.len() {
            match self.gathered.places.get(index) {
                Some(ArgumentPlace::Long(_)) => gathered.push_long(self.bytes(index)),
                _ => gathered.push(self.get(index)),
            }
        }
        gathered
    }

    /// The argument at `index`; an empty one if there is none.
    pub(crate) fn get(&self, index: usize) -> &'a [u8] {
        let found = match self.gathered.places.get(index) {
            Some(ArgumentPlace::Short { start, len }) => {
                let start = *start as usize;
                self.gathered.bytes.get(start..start.saturating_add(*len as usize))
            }
            Some(ArgumentPlace::Long(number)) => self.gathered.long.get(*number as usize).map(|bytes| &bytes[..]),
            None => {
                let span = index.checked_sub(self.gathered.places.len()).and_then(|index| self.spans.get(index));
                span.and_then(|span| self.input.get(span.clone()))
            }
        };
        found.unwrap_or_default()
    }

    /// The same as bytes of its own; a long one is not copied.
    pub(crate) fn bytes(&self, index: usize) -> Bytes {
        match self.gathered.places.get(index) {
            Some(ArgumentPlace::Long(number)) => self.gathered.long.get(*number as usize).cloned().unwrap_or_default(),
            _ => Bytes::copy_from_slice(self.get(index)),
        }
    }

    /// Those from `index` on.
    pub(crate) fn from(self, index: usize) -> impl Iterator<Item = &'a [u8]> {
        (index..self.len()).map(move |index| self.get(index))
    }

    /// The key at `index`.
    pub(crate) fn key(&self, index: usize) -> Result<Key, RequestRefusal> {
        key(self.get(index))
    }

    /// The whole number at `index`.
    pub(crate) fn integer(&self, index: usize) -> Result<i64, RequestRefusal> {
        number::integer(self.get(index)).ok_or(Cow::Borrowed(NOT_AN_INTEGER))
    }

    /// Whether the argument is this word, in letters of any case.
    pub(crate) fn is(&self, index: usize, word: &str) -> bool {
        index < self.len() && self.get(index).eq_ignore_ascii_case(word.as_bytes())
    }
}

/// A key of the default collection: what memcache clients see.
pub(crate) fn key(name: &[u8]) -> Result<Key, RequestRefusal> {
    Key::new(CollectionId::default(), name).map_err(|error| Cow::Owned(format!("ERR {error}")))
}

pub(crate) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub(crate) const SYNTAX: &str = "ERR syntax error";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_arguments_come_before_those_received() {
        let mut gathered = Gathered::default();
        gathered.keep(b"xGETy", &[1..4, 0..0]);
        gathered.push_long(Bytes::from_static(b"long"));
        let (input, spans) = (b"12 tail", [0..2, 3..7, 0..99]);
        let arguments = Arguments::new(&gathered, input, &spans);
        let all: Vec<&[u8]> = arguments.from(0).collect();
        assert_eq!(all, [&b"GET"[..], b"", b"long", b"12", b"tail", b""], "what is not there is empty");
        assert!(arguments.is(0, "get") && !arguments.is(9, "") && arguments.get(9).is_empty());
        assert_eq!((arguments.integer(3), arguments.bytes(2)), (Ok(12), Bytes::from_static(b"long")));
        assert!(arguments.integer(4).is_err() && arguments.key(1).is_err() && arguments.key(0).is_ok());
        assert!(gathered.held_bytes() >= 3 + 3 * 12 + 4);
        gathered.clear();
        assert!(gathered.is_empty() && gathered.held_bytes() == 0);
    }
}
