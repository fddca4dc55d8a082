//! Bytes, lengths, strings and scores of an RDB file, with their place and their checksum.

use std::io::{self, Read};

use super::crc::Crc64;
use crate::room::Room;

/// The longest string: twice what Redis allows by default.
const STRING_BYTES_MAX: u64 = 1 << 30;
/// A string for which there is no room is passed in steps of so many bytes.
const PASSED_BYTES: u64 = 64 << 10;
/// Of `REDIS` and the version.
const HEADER_BYTES: u64 = 9;
/// LZF makes at most so many bytes of one.
const LZF_FACTOR: u64 = 264;

/// Where a file is wrong, and why.
#[derive(Debug, thiserror::Error)]
#[error("at byte {offset}{}: {why}", self.shown_key())]
pub(crate) struct RdbError {
    pub(crate) offset: u64,
    key: Option<Vec<u8>>,
    why: String,
    /// The file was begun well, and is damaged or cut short.
    pub(crate) is_damage: bool,
}

impl RdbError {
    /// The same, in the value of a key.
    pub(super) fn of_key(self, key: &[u8]) -> RdbError {
        RdbError { key: Some(key.get(..80).unwrap_or(key).to_vec()), ..self }
    }

    fn shown_key(&self) -> String {
        self.key.as_ref().map_or(String::new(), |key| format!(", in the value of `{}`", key.escape_ascii()))
    }
}

/// A length, or the way in which a string is written.
pub(super) enum Length {
    Bytes(u64),
    /// An integer of one, two or four bytes.
    Integer(usize),
    /// Compressed by LZF.
    Compressed,
}

/// Reads a file in its order.
pub(super) struct RdbBytes<R> {
    source: R,
    offset: u64,
    crc: Crc64,
}

impl<R: Read> RdbBytes<R> {
    pub(super) fn new(source: R) -> RdbBytes<R> {
        RdbBytes { source, offset: 0, crc: Crc64::default() }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Of all that is read so far.
    pub(super) fn checksum(&self) -> u64 {
        self.crc.value()
    }

    /// The file is wrong here.
    pub(super) fn wrong(&self, why: &str) -> RdbError {
        // Before the version is read it is no such file at all.
        RdbError { offset: self.offset, key: None, why: why.to_owned(), is_damage: self.offset > HEADER_BYTES }
    }

    fn broken(&self, error: &io::Error) -> RdbError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.wrong("the file ends here, in the middle of something"),
            _ => self.wrong(&format!("it cannot be read: {error}")),
        }
    }

    fn passed(&mut self, bytes: &[u8]) {
        self.offset = self.offset.saturating_add(bytes.len() as u64);
        self.crc.add(bytes);
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], RdbError> {
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes).map_err(|error| self.broken(&error))?;
        self.passed(&bytes);
        Ok(bytes)
    }

    pub(super) fn byte(&mut self) -> Result<u8, RdbError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn bytes(&mut self, length: u64) -> Result<Vec<u8>, RdbError> {
        let mut bytes = Vec::new();
        let read = self.source.by_ref().take(length).read_to_end(&mut bytes);
        read.map_err(|error| self.broken(&error))?;
        self.passed(&bytes);
        match bytes.len() as u64 == length {
            true => Ok(bytes),
            false => Err(self.broken(&io::ErrorKind::UnexpectedEof.into())),
        }
    }

    pub(super) fn length(&mut self) -> Result<Length, RdbError> {
        let first = self.byte()?;
        let low = first & 0x3F;
        Ok(match (first >> 6, low) {
            (0, _) => Length::Bytes(low.into()),
            (1, _) => Length::Bytes(u64::from(low) << 8 | u64::from(self.byte()?)),
            (2, 0) => Length::Bytes(u32::from_be_bytes(self.array()?).into()),
            (2, 1) => Length::Bytes(u64::from_be_bytes(self.array()?)),
            (3, 0) => Length::Integer(1),
            (3, 1) => Length::Integer(2),
            (3, 2) => Length::Integer(4),
            (3, 3) => Length::Compressed,
            _ => return Err(self.wrong(&format!("{first:#04x} begins no length"))),
        })
    }

    /// A number of things.
    pub(super) fn count(&mut self) -> Result<u64, RdbError> {
        match self.length()? {
            Length::Bytes(count) => Ok(count),
            _ => Err(self.wrong("a count stands as a string")),
        }
    }

    /// A string that is no part of a value.
    pub(super) fn string(&mut self) -> Result<Vec<u8>, RdbError> {
        let string = self.string_within(&mut Room::of_value())?;
        string.ok_or_else(|| self.wrong("a name is longer than any that Redis writes"))
    }

    /// A string, if there is room for it; otherwise its bytes are passed.
    pub(super) fn string_within(&mut self, room: &mut Room) -> Result<Option<Vec<u8>>, RdbError> {
        let number = |number: i32| number.to_string().into_bytes();
        let number = match self.length()? {
            Length::Bytes(length) => return self.bytes_within(length, length, room),
            Length::Compressed => {
                let (packed_bytes, bytes) = (self.count()?, self.count()?);
                if bytes > STRING_BYTES_MAX || bytes > packed_bytes.saturating_mul(LZF_FACTOR) {
                    return Err(self.wrong(&format!("LZF makes no {bytes} bytes of {packed_bytes}")));
                }
                let Some(packed) = self.bytes_within(packed_bytes, bytes.max(packed_bytes), room)? else {
                    return Ok(None);
                };
                let whole = unpacked(&packed, bytes as usize);
                return whole.map(Some).ok_or_else(|| self.wrong("a compressed string is damaged"));
            }
            Length::Integer(1) => number(i8::from_le_bytes(self.array()?).into()),
            Length::Integer(2) => number(i16::from_le_bytes(self.array()?).into()),
            Length::Integer(_) => number(i32::from_le_bytes(self.array()?)),
        };
        Ok(room.takes(number.len() as u64).then_some(number))
    }

    /// So many bytes, if there is room for what they become.
    fn bytes_within(&mut self, length: u64, room_bytes: u64, room: &mut Room) -> Result<Option<Vec<u8>>, RdbError> {
        if length > STRING_BYTES_MAX {
            return Err(self.wrong(&format!("a string of {length} bytes is longer than any that Redis writes")));
        }
        if room.takes(room_bytes) {
            return self.bytes(length).map(Some);
        }
        let mut left = length;
        while left > 0 {
            let step = left.min(PASSED_BYTES);
            self.bytes(step)?;
            left -= step;
        }
        Ok(None)
    }

    /// A score as text.
    pub(super) fn written_score(&mut self) -> Result<f64, RdbError> {
        match self.byte()? {
            255 => Ok(f64::NEG_INFINITY),
            254 => Ok(f64::INFINITY),
            253 => Ok(f64::NAN),
            length => {
                let text = self.bytes(length.into())?;
                let score = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
                score.ok_or_else(|| self.wrong("a score is no number"))
            }
        }
    }
}

/// What LZF has compressed, if it gives just so many bytes.
pub(super) fn unpacked(packed: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = packed;
    while let Some((control, behind)) = rest.split_first() {
        rest = behind;
        let control = usize::from(*control);
        if control < 32 {
            let (literal, behind) = rest.split_at_checked(control + 1)?;
            out.extend_from_slice(literal);
            rest = behind;
        } else {
            let mut length = control >> 5;
            if length == 7 {
                let (more, behind) = rest.split_first()?;
                length += usize::from(*more);
                rest = behind;
            }
            let (low, behind) = rest.split_first()?;
            rest = behind;
            let distance = ((control & 0x1F) << 8 | usize::from(*low)) + 1;
            let from = out.len().checked_sub(distance)?;
            // It may overlap what it makes.
            for place in from..from + length + 2 {
                out.push(*out.get(place)?);
            }
        }
        if out.len() > bytes {
            return None;
        }
    }
    (out.len() == bytes).then_some(out)
}
