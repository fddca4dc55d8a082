//! Short structures of Redis as one string: ziplist, listpack, intset, zipmap. One byte may be an
//! element, which takes many in memory: so each needs room.

use crate::room::Room;

/// Why there are no elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PackedError {
    /// What is wrong with them.
    Damaged(&'static str),
    /// There is no room for them.
    TooLarge,
}

impl From<&'static str> for PackedError {
    fn from(why: &'static str) -> PackedError {
        PackedError::Damaged(why)
    }
}

type Elements = Result<Vec<Vec<u8>>, PackedError>;
/// Fields and their values.
type Pairs = Result<Vec<(Vec<u8>, Vec<u8>)>, PackedError>;

const CUT: &str = "its packed elements are cut short";
const LONGER: &str = "bytes follow its packed elements";
const UNKNOWN: &str = "an encoding of its packed elements is not known";
const UNPAIRED: &str = "one of its elements has no partner";

/// Bytes that are taken from the front.
struct Front<'a>(&'a [u8]);

impl<'a> Front<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(CUT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, &'static str> {
        self.take(1).map(|taken| taken.first().copied().unwrap_or(0))
    }

    /// A signed integer of up to eight bytes, the low one first.
    fn integer(&mut self, bytes: usize) -> Result<i64, &'static str> {
        let taken = self.take(bytes)?;
        let sign = if taken.last().is_some_and(|last| *last >= 0x80) { 0xFF } else { 0 };
        let mut whole = [sign; 8];
        whole.iter_mut().zip(taken).for_each(|(to, from)| *to = *from);
        Ok(i64::from_le_bytes(whole))
    }

    /// A length of four bytes, the low one first.
    fn length(&mut self) -> Result<usize, &'static str> {
        let taken = self.take(4)?;
        Ok(taken.iter().rev().fold(0, |length, byte| length << 8 | usize::from(*byte)))
    }

    fn number(&mut self, bytes: usize) -> Result<Vec<u8>, &'static str> {
        Ok(self.integer(bytes)?.to_string().into_bytes())
    }
}

/// The elements so far.
struct Taken<'r> {
    elements: Vec<Vec<u8>>,
    room: &'r mut Room,
}

impl<'r> Taken<'r> {
    fn none(room: &'r mut Room) -> Taken<'r> {
        Taken { elements: Vec::new(), room }
    }

    fn push(&mut self, element: Vec<u8>) -> Result<(), PackedError> {
        if !self.room.takes(element.len() as u64) {
            return Err(PackedError::TooLarge);
        }
        self.elements.push(element);
        Ok(())
    }
}

/// Elements of a ziplist.
pub(super) fn ziplist(text: &[u8], room: &mut Room) -> Elements {
    let mut front = Front(text);
    // Its length, the place of its last element, and their number.
    front.take(10)?;
    let mut taken = Taken::none(room);
    loop {
        match front.byte()? {
            0xFF => break,
            0xFE => drop(front.take(4)?),
            _ => {}
        }
        let encoding = front.byte()?;
        let low = usize::from(encoding & 0x3F);
        taken.push(match encoding {
            0x00..=0x3F => front.take(low)?.to_vec(),
            0x40..=0x7F => {
                let length = low << 8 | usize::from(front.byte()?);
                front.take(length)?.to_vec()
            }
            0x80..=0xBF => {
                let length = front.take(4)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
                front.take(length)?.to_vec()
            }
            0xC0 => front.number(2)?,
            0xD0 => front.number(4)?,
            0xE0 => front.number(8)?,
            0xF0 => front.number(3)?,
            0xFE => front.number(1)?,
            0xF1..=0xFD => (encoding - 0xF1).to_string().into_bytes(),
            _ => return Err(UNKNOWN.into()),
        })?;
    }
    if front.0.is_empty() { Ok(taken.elements) } else { Err(LONGER.into()) }
}

/// Elements of a listpack.
pub(super) fn listpack(text: &[u8], room: &mut Room) -> Elements {
    let mut front = Front(text);
    // Its length, and the number of its elements.
    front.take(6)?;
    let mut taken = Taken::none(room);
    loop {
        let before = front.0.len();
        let encoding = front.byte()?;
        taken.push(match encoding {
            0xFF => break,
            0x00..=0x7F => encoding.to_string().into_bytes(),
            0x80..=0xBF => front.take(usize::from(encoding & 0x3F))?.to_vec(),
            0xC0..=0xDF => {
                let value = i64::from(encoding & 0x1F) << 8 | i64::from(front.byte()?);
                let value = if value >= 1 << 12 { value - (1 << 13) } else { value };
                value.to_string().into_bytes()
            }
            0xE0..=0xEF => {
                let length = usize::from(encoding & 0x0F) << 8 | usize::from(front.byte()?);
                front.take(length)?.to_vec()
            }
            0xF0 => {
                let length = front.length()?;
                front.take(length)?.to_vec()
            }
            0xF1 => front.number(2)?,
            0xF2 => front.number(3)?,
            0xF3 => front.number(4)?,
            0xF4 => front.number(8)?,
            _ => return Err(UNKNOWN.into()),
        })?;
        // The element's length once more, to be read backwards: seven bits in each byte.
        front.take(match before - front.0.len() {
            // Redis takes a byte more for the last length that would fit.
            0..=0x7F => 1,
            0x80..=0x3FFE => 2,
            0x3FFF..=0x1F_FFFE => 3,
            0x1F_FFFF..=0xFFF_FFFE => 4,
            _ => 5,
        })?;
    }
    if front.0.is_empty() { Ok(taken.elements) } else { Err(LONGER.into()) }
}

/// Members of an intset.
pub(super) fn intset(text: &[u8], room: &mut Room) -> Elements {
    let mut front = Front(text);
    let (width, count) = (front.length()?, front.length()?);
    if !matches!(width, 2 | 4 | 8) {
        return Err(UNKNOWN.into());
    }
    let mut taken = Taken::none(room);
    for _ in 0..count {
        taken.push(front.number(width)?)?;
    }
    if front.0.is_empty() { Ok(taken.elements) } else { Err(LONGER.into()) }
}

/// Fields and values of a zipmap.
pub(super) fn zipmap(text: &[u8], room: &mut Room) -> Pairs {
    let mut front = Front(text);
    front.byte()?;
    let mut taken = Taken::none(room);
    loop {
        let length = match front.byte()? {
            0xFF => break,
            0xFE => front.length()?,
            length => length.into(),
        };
        taken.push(front.take(length)?.to_vec())?;
        let length = match front.byte()? {
            0xFF => return Err(UNKNOWN.into()),
            0xFE => front.length()?,
            length => length.into(),
        };
        let unused = front.byte()?;
        taken.push(front.take(length)?.to_vec())?;
        front.take(unused.into())?;
    }
    if front.0.is_empty() { pairs(taken.elements) } else { Err(LONGER.into()) }
}

/// Two elements each: a field and its value, a member and its score.
pub(super) fn pairs(elements: Vec<Vec<u8>>) -> Pairs {
    let mut pairs = Vec::with_capacity(elements.len() / 2);
    let mut elements = elements.into_iter();
    while let Some(first) = elements.next() {
        pairs.push((first, elements.next().ok_or(UNPAIRED)?));
    }
    Ok(pairs)
}
