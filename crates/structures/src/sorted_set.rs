//! A sorted set: members with scores, in order of score and member.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;

use crate::packed::{self, ElementPart, Elements};
use crate::{Damaged, Kind, TooLong};

/// Members and their scores, slices of a record's value and of a command.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SortedSet<'a> {
    /// In order of score and member; each member once, no score is NaN.
    entries: Vec<(f64, &'a [u8])>,
}

fn order(one: &(f64, &[u8]), other: &(f64, &[u8])) -> Ordering {
    // No score is NaN, so all compare; the two zeros are equal.
    one.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal).then_with(|| one.1.cmp(other.1))
}

impl<'a> SortedSet<'a> {
    /// The sorted set in a record's value. That a member comes once is not checked.
    ///
    /// # Errors
    /// The value holds no sorted set, or a damaged one.
    pub fn parse(value: &'a [u8]) -> Result<SortedSet<'a>, Damaged> {
        let mut elements = Elements::new(Kind::SortedSet, value)?;
        let mut entries: Vec<(f64, &[u8])> = Vec::with_capacity(elements.capacity(9));
        while elements.next()? {
            let entry = (elements.score()?, elements.bytes()?);
            if entries.last().is_some_and(|last| order(last, &entry) != Ordering::Less) {
                return Err(Damaged::new("its members are out of order"));
            }
            entries.push(entry);
        }
        Ok(SortedSet { entries })
    }

    /// The score of one member in a record's value, which is walked up to there.
    ///
    /// # Errors
    /// The value holds no sorted set, or one that is damaged before the member.
    pub fn lookup(value: &[u8], member: &[u8]) -> Result<Option<f64>, Damaged> {
        let mut elements = Elements::new(Kind::SortedSet, value)?;
        while elements.next()? {
            let score = elements.score()?;
            if elements.bytes()? == member {
                return Ok(Some(score));
            }
        }
        Ok(None)
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The place of a member in the order.
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        self.entries.iter().position(|entry| entry.1 == member)
    }

    /// The member at a place in the order, and its score.
    pub fn get_at(&self, place: usize) -> Option<(&'a [u8], f64)> {
        self.entries.get(place).map(|(score, member)| (*member, *score))
    }

    /// All members in their order, with their scores.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a [u8], f64)> + DoubleEndedIterator {
        self.entries.iter().map(|(score, member)| (*member, *score))
    }

    /// How many members come before the first one for which `is_before` does not hold. It holds for
    /// all that come before another one for which it holds.
    pub fn count_while(&self, is_before: impl Fn(&[u8], f64) -> bool) -> usize {
        self.entries.partition_point(|(score, member)| is_before(member, *score))
    }

    /// These members with the scores that they have here.
    pub fn scores_of<'b>(&self, members: impl IntoIterator<Item = &'b [u8]>) -> BTreeMap<&'b [u8], Option<f64>> {
        let mut scores: BTreeMap<&[u8], Option<f64>> = members.into_iter().map(|member| (member, None)).collect();
        for (score, member) in &self.entries {
            if let Some(found) = scores.get_mut::<[u8]>(member) {
                *found = Some(*score);
            }
        }
        scores
    }

    /// Gives members their scores; the last one of a member counts. NaN is left out, and zero has
    /// no sign.
    pub fn insert_all(&mut self, scores: impl IntoIterator<Item = (&'a [u8], f64)>) {
        let scores = scores.into_iter().filter(|(_, score)| !score.is_nan());
        let scores: BTreeMap<&[u8], f64> = scores.map(|(member, score)| (member, score + 0.0)).collect();
        self.entries.retain(|(_, member)| !scores.contains_key(member));
        self.entries.extend(scores.into_iter().map(|(member, score)| (score, member)));
        // Stable sorts are fast where much is in order already.
        self.entries.sort_by(order);
    }

    /// Removes members; how many were there.
    pub fn remove_all<'b>(&mut self, members: impl IntoIterator<Item = &'b [u8]>) -> usize {
        let mut members: Vec<&[u8]> = members.into_iter().collect();
        members.sort();
        let before = self.entries.len();
        self.entries.retain(|(_, member)| members.binary_search(member).is_err());
        before - self.entries.len()
    }

    /// Removes the members at these places, and gives them in their order.
    pub fn remove_places(&mut self, places: Range<usize>) -> Vec<(&'a [u8], f64)> {
        let end = places.end.min(self.entries.len());
        let start = places.start.min(end);
        self.entries.drain(start..end).map(|(score, member)| (member, score)).collect()
    }

    /// The value of the record; `None`: no members are left, so there is no record.
    ///
    /// # Errors
    /// It would be longer than `bytes_max`.
    pub fn encode(&self, bytes_max: usize) -> Result<Option<Vec<u8>>, TooLong> {
        let parts =
            self.entries.iter().flat_map(|(score, member)| [ElementPart::Score(*score), ElementPart::Bytes(member)]);
        packed::encode(Kind::SortedSet, self.len(), bytes_max, parts)
    }
}
