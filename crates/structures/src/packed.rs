//! Elements behind a header: lengths, bytes and scores, read one after the other.

use stratakv_base::codec::{Reader, Truncated};

use crate::header::{self, HEADER_BYTES};
use crate::{Damaged, Kind, TooLong, varint};

/// A part of an element: what is written for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ElementPart<'a> {
    /// A length and these bytes.
    Bytes(&'a [u8]),
    /// Eight bytes.
    Score(f64),
}

impl ElementPart<'_> {
    fn encoded_bytes(self) -> usize {
        match self {
            ElementPart::Bytes(bytes) => varint::bytes(bytes.len() as u64) + bytes.len(),
            ElementPart::Score(_) => 8,
        }
    }

    fn write(self, out: &mut Vec<u8>) {
        match self {
            ElementPart::Bytes(bytes) => {
                varint::write(bytes.len() as u64, out);
                out.extend_from_slice(bytes);
            }
            ElementPart::Score(score) => out.extend_from_slice(&score.to_bits().to_le_bytes()),
        }
    }
}

/// Walks over the elements of a packed value.
#[derive(Clone, Debug)]
pub(crate) struct Elements<'a> {
    reader: Reader<'a>,
    left: u32,
}

impl<'a> Elements<'a> {
    /// Those of a value that holds this kind of structure.
    pub(crate) fn new(kind: Kind, value: &'a [u8]) -> Result<Elements<'a>, Damaged> {
        let (found, left) = header::read(value)?;
        if found != kind {
            return Err(Damaged::new("its type is another one"));
        }
        let mut reader = Reader::new(value);
        reader.bytes(HEADER_BYTES).map_err(cut_short)?;
        Ok(Elements { reader, left })
    }

    /// Room to reserve for the elements, each of at least so many bytes: not what a count promises.
    pub(crate) fn capacity(&self, element_bytes_min: usize) -> usize {
        (self.left as usize).min(self.reader.left() / element_bytes_min.max(1))
    }

    /// Whether another element begins here.
    ///
    /// # Errors
    /// Bytes follow the last element.
    pub(crate) fn next(&mut self) -> Result<bool, Damaged> {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Ok(true)
            }
            None if self.reader.left() > 0 => Err(Damaged::new("bytes follow its last element")),
            None => Ok(false),
        }
    }

    /// A length and so many bytes.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Damaged> {
        let len = read_length(&mut self.reader)?;
        self.reader.bytes(len).map_err(cut_short)
    }

    /// A score.
    pub(crate) fn score(&mut self) -> Result<f64, Damaged> {
        let score = f64::from_bits(self.reader.u64().map_err(cut_short)?);
        if score.is_nan() { Err(Damaged::new("a score is not a number")) } else { Ok(score) }
    }
}

fn cut_short(_: Truncated) -> Damaged {
    Damaged::new("it is cut short")
}

fn read_length(reader: &mut Reader<'_>) -> Result<usize, Damaged> {
    let length = varint::read(reader)?;
    u32::try_from(length).map(|length| length as usize).map_err(|_| Damaged::new("a length is too large"))
}

/// The value of a structure; `None`: it has no elements, so there is no record.
pub(crate) fn encode<'a>(
    kind: Kind,
    count: usize,
    bytes_max: usize,
    parts: impl Iterator<Item = ElementPart<'a>> + Clone,
) -> Result<Option<Vec<u8>>, TooLong> {
    if count == 0 {
        return Ok(None);
    }
    let bytes = HEADER_BYTES + parts.clone().map(ElementPart::encoded_bytes).sum::<usize>();
    let count = u32::try_from(count).ok().filter(|_| bytes <= bytes_max).ok_or(TooLong { bytes })?;
    let mut out = Vec::with_capacity(bytes);
    header::write(kind, count, &mut out);
    parts.for_each(|part| part.write(&mut out));
    Ok(Some(out))
}
