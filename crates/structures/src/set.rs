//! A set: members in byte order, each once.

use crate::packed::{self, ElementPart, Elements};
use crate::{Damaged, Kind, TooLong};

/// Members, slices of a record's value and of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set<'a> {
    /// In byte order, each once.
    members: Vec<&'a [u8]>,
}

impl<'a> Set<'a> {
    /// The set in a record's value.
    ///
    /// # Errors
    /// The value holds no set, or a damaged one.
    pub fn parse(value: &'a [u8]) -> Result<Set<'a>, Damaged> {
        let mut elements = Elements::new(Kind::Set, value)?;
        let mut members: Vec<&[u8]> = Vec::with_capacity(elements.capacity(1));
        while elements.next()? {
            let member = elements.bytes()?;
            if members.last().is_some_and(|last| *last >= member) {
                return Err(Damaged::new("its members are out of order"));
            }
            members.push(member);
        }
        Ok(Set { members })
    }

    /// Whether a member is in the set of a record's value, which is walked up to there.
    ///
    /// # Errors
    /// The value holds no set, or one that is damaged before the member.
    pub fn lookup(value: &[u8], member: &[u8]) -> Result<bool, Damaged> {
        let mut elements = Elements::new(Kind::Set, value)?;
        while elements.next()? {
            let found = elements.bytes()?;
            if found >= member {
                return Ok(found == member);
            }
        }
        Ok(false)
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether it has this member.
    pub fn contains(&self, member: &[u8]) -> bool {
        self.members.binary_search(&member).is_ok()
    }

    /// The member at a place in the order of bytes.
    pub fn get_at(&self, place: usize) -> Option<&'a [u8]> {
        self.members.get(place).copied()
    }

    /// All members in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        self.members.iter().copied()
    }

    /// Adds members; how many are new.
    pub fn insert_all(&mut self, members: impl IntoIterator<Item = &'a [u8]>) -> usize {
        let before = self.members.len();
        self.members.extend(members);
        // Stable sorts are fast where much is in order already.
        self.members.sort();
        self.members.dedup();
        self.members.len() - before
    }

    /// Removes members; how many were there.
    pub fn remove_all<'b>(&mut self, members: impl IntoIterator<Item = &'b [u8]>) -> usize {
        let mut members: Vec<&[u8]> = members.into_iter().collect();
        members.sort();
        let before = self.members.len();
        self.members.retain(|member| members.binary_search(member).is_err());
        before - self.members.len()
    }

    /// Keeps those that the other set has, too.
    pub fn intersect(&mut self, other: &Set<'_>) {
        self.members.retain(|member| other.contains(member));
    }

    /// The value of the record; `None`: no members are left, so there is no record.
    ///
    /// # Errors
    /// It would be longer than `bytes_max`.
    pub fn encode(&self, bytes_max: usize) -> Result<Option<Vec<u8>>, TooLong> {
        let parts = self.members.iter().map(|member| ElementPart::Bytes(member));
        packed::encode(Kind::Set, self.len(), bytes_max, parts)
    }
}
