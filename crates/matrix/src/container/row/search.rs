//! Searching rows: by hints from the next newer row, or in full.

use std::cell::Cell;
use std::cmp::Ordering;

use stratakv_base::{Corruption, fault_point};
use stratakv_pmem::Pmem;

use super::super::directory::Rotation;
use super::super::medium::Medium;
use super::super::record::Head;
use super::Row;

/// What searching cost.
#[derive(Debug, Default)]
pub(in super::super) struct Tally {
    pub(in super::super) elements: Cell<u64>,
    pub(in super::super) hints: Cell<u64>,
    pub(in super::super) searched_in_full: Cell<u64>,
    pub(in super::super) searched: Cell<u64>,
}

fn count(cell: &Cell<u64>) {
    cell.set(cell.get() + 1);
}

/// Where hints say that the first element not before a key is, ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Window {
    pub(in super::super) from: u32,
    pub(in super::super) to: u32,
}

/// A row being searched.
#[derive(Clone, Copy)]
pub(in super::super) struct View<'a, P> {
    pub(in super::super) medium: &'a Medium<P>,
    pub(in super::super) row: &'a Row,
    pub(in super::super) rotation: &'a Rotation,
    pub(in super::super) tally: Option<&'a Tally>,
}

/// A key, taken apart for a row.
struct Target<'a> {
    key: &'a [u8],
    prefix: u64,
}

/// The first 8 bytes behind a common prefix.
pub(super) fn prefix_of(key: &[u8], common: usize) -> u64 {
    let mut bytes = [0; 8];
    let rest = key.get(common..).unwrap_or_default();
    let len = rest.len().min(8);
    bytes[..len].copy_from_slice(&rest[..len]);
    u64::from_be_bytes(bytes)
}

impl<'a, P: Pmem> View<'a, P> {
    /// One whose searches are not counted.
    pub(in super::super) fn silent(medium: &'a Medium<P>, row: &'a Row, rotation: &'a Rotation) -> View<'a, P> {
        View { medium, row, rotation, tally: None }
    }

    /// How an element that is down compares with a key that is not: by where the columns are.
    fn order_of_down(&self, element: u32, key: &[u8]) -> Ordering {
        let is_before =
            if self.row.down.wrapped { element < self.row.down.to } else { key >= &self.rotation.cursor[..] };
        if is_before { Ordering::Less } else { Ordering::Greater }
    }

    /// How an element's key compares with the target.
    fn order(&self, element: u32, target: &Target<'_>) -> Result<Ordering, Corruption> {
        if self.row.is_down(element) {
            return Ok(self.order_of_down(element, target.key));
        }
        if let Some(tally) = self.tally {
            count(&tally.elements);
        }
        let prefix = self.row.prefix_of(self.medium, element)?;
        if prefix != target.prefix {
            return Ok(prefix.cmp(&target.prefix));
        }
        Ok(self.row.head(self.medium, element)?.key().cmp(target.key))
    }

    /// The first element in `[from, to)` that is not before the target, or `to`; and whether its
    /// key is the target's, as far as it was seen.
    fn search(&self, target: &Target<'_>, mut from: u32, mut to: u32) -> Result<(u32, bool), Corruption> {
        let mut found = false;
        while from < to {
            let middle = from + (to - from) / 2;
            match self.order(middle, target)? {
                Ordering::Less => from = middle + 1,
                order => (to, found) = (middle, order == Ordering::Equal),
            }
        }
        Ok((to, found))
    }

    /// As [`View::search`] in what hints say, if that holds: the element found is not before the
    /// target, the one before it is.
    fn search_window(&self, target: &Target<'_>, window: Window) -> Result<Option<(u32, bool)>, Corruption> {
        let Window { from, to } = window;
        let elements = self.row.elements;
        if from > to || to > elements {
            return Ok(None);
        }
        fault_point!("matrix_hint_off_by_one", return Ok(Some(self.search(target, (from + 1).min(to), to)?)));
        let (at, mut found) = self.search(target, from, to)?;
        // What the search compared is known; the ends of the window are not.
        if at == from && from > 0 && self.order(from - 1, target)? != Ordering::Less {
            return Ok(None);
        }
        if at == to && to < elements {
            match self.order(to, target)? {
                Ordering::Less => return Ok(None),
                order => found = order == Ordering::Equal,
            }
        }
        Ok(Some((at, found)))
    }

    /// The first element that is not before a key, and whether it has that key. A key outside of
    /// the row costs nothing.
    pub(in super::super) fn find(&self, key: &[u8], window: Option<Window>) -> Result<(u32, bool), Corruption> {
        let Some((first, last)) = self.row.live_ends() else { return Ok((0, false)) };
        if key < &self.row.first_key[..] {
            return Ok((first, false));
        }
        if key > &self.row.last_key[..] {
            return Ok((last + 1, false));
        }
        let target = Target { key, prefix: prefix_of(key, self.row.prefix.len()) };
        if let Some(tally) = self.tally {
            count(&tally.searched);
        }
        if let Some(window) = window
            && let Some(found) = self.search_window(&target, window)?
        {
            return Ok(found);
        }
        if let Some(tally) = self.tally {
            count(&tally.searched_in_full);
        }
        self.search(&target, first, last + 1)
    }

    /// Whether the metadata alone tells that an element lies at or behind `end`, in reverse before
    /// `end`. False tells nothing.
    pub(in super::super) fn is_surely_beyond(
        &self,
        element: u32,
        end: &[u8],
        reverse: bool,
    ) -> Result<bool, Corruption> {
        fault_point!("trial_rows_end_early", return Ok(true));
        if self.row.is_down(element) {
            return Ok(false);
        }
        // Only keys between a row's ends begin as all of its keys do.
        if end < &self.row.first_key[..] || end > &self.row.last_key[..] {
            return Ok(if reverse { end > &self.row.last_key[..] } else { end < &self.row.first_key[..] });
        }
        let (prefix, ends) = (self.row.prefix_of(self.medium, element)?, prefix_of(end, self.row.prefix.len()));
        Ok(if reverse { prefix < ends } else { prefix > ends })
    }

    pub(in super::super) fn first_at_or_after(&self, key: &[u8]) -> Result<u32, Corruption> {
        Ok(self.find(key, None)?.0)
    }

    /// What the hints say of the next older row, for a key whose first element not before it is
    /// `at`.
    pub(in super::super) fn window(&self, at: u32, older: &Row) -> Result<Window, Corruption> {
        let hint = |element: u32| {
            if let Some(tally) = self.tally {
                count(&tally.hints);
            }
            self.row.hint(self.medium, element)
        };
        let from = if at > 0 { hint(at - 1)? } else { 0 };
        let to = if at < self.row.elements { hint(at)? } else { older.elements };
        Ok(Window { from, to })
    }

    /// The newest version of a key, whose first element is `element`, that is not newer than `at`.
    pub(in super::super) fn version(&self, key: &[u8], mut element: u32, at: u64) -> Result<Option<Head>, Corruption> {
        while element < self.row.elements && !self.row.is_down(element) {
            let head = self.row.head(self.medium, element)?;
            if head.key() != key {
                break;
            }
            if head.version() <= at {
                return Ok(Some(head));
            }
            element += 1;
        }
        Ok(None)
    }

    /// The first element that is not before a key, walked to from one that is not behind it: for
    /// keys in ascending order.
    pub(in super::super) fn gallop(&self, key: &[u8], from: u32) -> Result<u32, Corruption> {
        let Some((first, last)) = self.row.live_ends() else { return Ok(from) };
        // Only keys between its ends begin as all of a row's do.
        if key < &self.row.first_key[..] {
            return Ok(from.max(first));
        }
        if key > &self.row.last_key[..] {
            return Ok(from.max(last + 1));
        }
        let target = Target { key, prefix: prefix_of(key, self.row.prefix.len()) };
        let elements = self.row.elements;
        let (mut low, mut step) = (from.min(elements), 1);
        loop {
            let probe = low.saturating_add(step - 1).min(elements);
            if probe == elements || self.order(probe, &target)? != Ordering::Less {
                return Ok(self.search(&target, low, probe)?.0);
            }
            (low, step) = (probe + 1, step * 2);
        }
    }
}
