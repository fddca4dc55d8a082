//! A hash: fields with values, in byte order of the fields.

use crate::packed::{self, ElementPart, Elements};
use crate::{Damaged, Kind, TooLong};

/// Fields and their values, slices of a record's value and of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hash<'a> {
    /// In order of the fields, each once.
    entries: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> Hash<'a> {
    /// The hash in a record's value.
    ///
    /// # Errors
    /// The value holds no hash, or a damaged one.
    pub fn parse(value: &'a [u8]) -> Result<Hash<'a>, Damaged> {
        let mut elements = Elements::new(Kind::Hash, value)?;
        let mut entries: Vec<(&[u8], &[u8])> = Vec::with_capacity(elements.capacity(2));
        while elements.next()? {
            let entry = (elements.bytes()?, elements.bytes()?);
            if entries.last().is_some_and(|last| last.0 >= entry.0) {
                return Err(Damaged::new("its fields are out of order"));
            }
            entries.push(entry);
        }
        Ok(Hash { entries })
    }

    /// The value of one field in a record's value, which is walked up to there.
    ///
    /// # Errors
    /// The value holds no hash, or one that is damaged before the field.
    pub fn lookup(value: &'a [u8], field: &[u8]) -> Result<Option<&'a [u8]>, Damaged> {
        let mut elements = Elements::new(Kind::Hash, value)?;
        while elements.next()? {
            let (found, value) = (elements.bytes()?, elements.bytes()?);
            if found >= field {
                return Ok((found == field).then_some(value));
            }
        }
        Ok(None)
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of a field.
    pub fn get(&self, field: &[u8]) -> Option<&'a [u8]> {
        self.place(field).ok().and_then(|place| self.entries.get(place)).map(|entry| entry.1)
    }

    /// The field at a place in the order of fields, and its value.
    pub fn get_at(&self, place: usize) -> Option<(&'a [u8], &'a [u8])> {
        self.entries.get(place).copied()
    }

    /// All fields in their order, with their values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> {
        self.entries.iter().copied()
    }

    /// Gives a field a value; whether it is a new field.
    pub fn insert(&mut self, field: &'a [u8], value: &'a [u8]) -> bool {
        match self.place(field) {
            Ok(place) => {
                if let Some(entry) = self.entries.get_mut(place) {
                    entry.1 = value;
                }
                false
            }
            Err(place) => {
                self.entries.insert(place, (field, value));
                true
            }
        }
    }

    /// Gives many fields their values, the last one of a field counts; how many fields are new.
    pub fn insert_all(&mut self, entries: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> usize {
        let before = self.entries.len();
        self.entries.extend(entries);
        // Those of one field stay in their order. `dedup_by` removes the later one: it is the one
        // that counts.
        self.entries.sort_by_key(|entry| entry.0);
        self.entries.dedup_by(|later, earlier| {
            let is_same = later.0 == earlier.0;
            if is_same {
                earlier.1 = later.1;
            }
            is_same
        });
        self.entries.len() - before
    }

    /// Removes a field; whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match self.place(field) {
            Ok(place) => {
                self.entries.remove(place);
                true
            }
            Err(_) => false,
        }
    }

    /// Removes many fields; how many were there.
    pub fn remove_all<'b>(&mut self, fields: impl IntoIterator<Item = &'b [u8]>) -> usize {
        let mut fields: Vec<&[u8]> = fields.into_iter().collect();
        fields.sort_unstable();
        let before = self.entries.len();
        self.entries.retain(|entry| fields.binary_search(&entry.0).is_err());
        before - self.entries.len()
    }

    /// The value of the record; `None`: no fields are left, so there is no record.
    ///
    /// # Errors
    /// It would be longer than `bytes_max`.
    pub fn encode(&self, bytes_max: usize) -> Result<Option<Vec<u8>>, TooLong> {
        let parts = self.entries.iter().flat_map(|entry| [ElementPart::Bytes(entry.0), ElementPart::Bytes(entry.1)]);
        packed::encode(Kind::Hash, self.len(), bytes_max, parts)
    }

    fn place(&self, field: &[u8]) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&field, |entry| entry.0)
    }
}
