//! A list: elements in an order of the user's.

use std::collections::VecDeque;

use crate::packed::{self, ElementPart, Elements};
use crate::{Damaged, Kind, TooLong, header};

/// Elements, slices of a record's value and of a command. Any change of them makes a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List<'a> {
    /// In their order.
    pub elements: VecDeque<&'a [u8]>,
}

impl<'a> List<'a> {
    /// The list in a record's value.
    ///
    /// # Errors
    /// The value holds no list, or a damaged one.
    pub fn parse(value: &'a [u8]) -> Result<List<'a>, Damaged> {
        let mut walk = Elements::new(Kind::List, value)?;
        let mut elements = VecDeque::with_capacity(walk.capacity(1));
        while walk.next()? {
            elements.push_back(walk.bytes()?);
        }
        Ok(List { elements })
    }

    /// The element at a place from the front, or below zero from the end (-1), in a record's value,
    /// which is walked up to there.
    ///
    /// # Errors
    /// The value holds no list, or one that is damaged before the element.
    pub fn lookup(value: &'a [u8], place: i64) -> Result<Option<&'a [u8]>, Damaged> {
        let mut walk = Elements::new(Kind::List, value)?;
        let Some(place) = from_front(place, header::len(value)?) else { return Ok(None) };
        let mut at = 0;
        while walk.next()? {
            let element = walk.bytes()?;
            if at == place {
                return Ok(Some(element));
            }
            at += 1;
        }
        Ok(None)
    }

    /// The value of the record; `None`: no elements are left, so there is no record.
    ///
    /// # Errors
    /// It would be longer than `bytes_max`.
    pub fn encode(&self, bytes_max: usize) -> Result<Option<Vec<u8>>, TooLong> {
        let parts = self.elements.iter().map(|element| ElementPart::Bytes(element));
        packed::encode(Kind::List, self.elements.len(), bytes_max, parts)
    }
}

/// A place from the front, of one that counts below zero from the end; `None`: there is none.
pub fn from_front(place: i64, len: usize) -> Option<usize> {
    let len = i64::try_from(len).ok()?;
    let place = if place < 0 { place.checked_add(len)? } else { place };
    (0..len).contains(&place).then_some(place as usize)
}

/// The first place and the one behind the last, of a range whose ends count from the front, or
/// below zero from the end, both included.
pub fn range(first: i64, last: i64, len: usize) -> std::ops::Range<usize> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let from_front = |place: i64| if place < 0 { place.saturating_add(len) } else { place };
    let first = from_front(first).clamp(0, len);
    let behind = from_front(last).saturating_add(1).clamp(first, len);
    first as usize..behind as usize
}
