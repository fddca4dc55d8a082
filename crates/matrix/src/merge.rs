//! Many cursors as one, and what of it a reader sees.

use std::cmp::Ordering;
use std::ops::Bound;

use stratakv_base::{Key, Wall};

use crate::cursor::{Cursor, Stop};
use crate::entry::{Body, Meta};
use crate::ranges::RangeDeletes;
use crate::walk::Walk;

/// The versions of several cursors in one order. A step costs O(log cursors) comparisons of keys,
/// most of them of what the heap has of each.
pub struct Merge<'a> {
    cursors: Vec<Box<dyn Cursor + 'a>>,
    /// A binary heap of the cursors that are not at their end: the next one is the first.
    heap: Vec<Contender>,
    reverse: bool,
}

/// A cursor that is not at its end, and how its key begins.
#[derive(Clone, Copy)]
struct Contender {
    cursor: usize,
    beginning: u128,
}

/// The first 16 bytes of a key, zeros behind its end, as a number. Keys are in the order of these,
/// as far as these differ.
fn beginning(key: &[u8]) -> u128 {
    if let Some(first) = key.first_chunk() {
        return u128::from_be_bytes(*first);
    }
    let mut bytes = [0; 16];
    bytes[..key.len()].copy_from_slice(key);
    u128::from_be_bytes(bytes)
}

impl<'a> Merge<'a> {
    /// Over these. No version of a key is in two of them.
    pub fn new(cursors: Vec<Box<dyn Cursor + 'a>>) -> Merge<'a> {
        Merge { cursors, heap: Vec::new(), reverse: false }
    }

    /// Whether the cursor `a` comes before `b`.
    fn is_before(&self, a: Contender, b: Contender) -> bool {
        let order = a.beginning.cmp(&b.beginning).then_with(|| self.order_of_keys(a.cursor, b.cursor));
        if self.reverse { order.is_gt() } else { order.is_lt() }
    }

    fn order_of_keys(&self, a: usize, b: usize) -> Ordering {
        let (Some(a), Some(b)) = (self.cursors.get(a), self.cursors.get(b)) else { return Ordering::Equal };
        let newer_first = || b.meta().map(|meta| meta.version).cmp(&a.meta().map(|meta| meta.version));
        a.key().cmp(&b.key()).then_with(newer_first)
    }

    /// More cursors, which were sought as these were.
    pub(crate) fn join(&mut self, sought: impl Iterator<Item = Box<dyn Cursor + 'a>>) {
        self.cursors.extend(sought);
        self.gather(self.reverse);
    }

    fn gather(&mut self, reverse: bool) {
        self.reverse = reverse;
        let keys = self.cursors.iter().map(|cursor| cursor.key()).enumerate();
        let contenders = keys.filter_map(|(cursor, key)| Some(Contender { cursor, beginning: beginning(key?) }));
        self.heap = contenders.collect();
        for at in (0..self.heap.len() / 2).rev() {
            self.sink(at);
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let mut first = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.is_before(self.heap[child], self.heap[first]) {
                    first = child;
                }
            }
            if first == at {
                return;
            }
            self.heap.swap(at, first);
            at = first;
        }
    }

    fn head(&self) -> Option<&(dyn Cursor + 'a)> {
        self.heap.first().and_then(|first| self.cursors.get(first.cursor)).map(AsRef::as_ref)
    }

    /// Moves the first one: to its end, or to a later place.
    fn step(&mut self) -> Result<(), Stop> {
        let Some(first) = self.heap.first_mut() else { return Ok(()) };
        let cursor = &mut self.cursors[first.cursor];
        if self.reverse {
            cursor.prev()?
        } else {
            cursor.next()?
        }
        match cursor.key() {
            Some(key) => first.beginning = beginning(key),
            None => _ = self.heap.swap_remove(0),
        }
        self.sink(0);
        Ok(())
    }
}

/// It goes one way after a seek: `next` after [`Cursor::seek`], `prev` after
/// [`Cursor::seek_before`]; the other way it seeks first.
impl Cursor for Merge<'_> {
    fn seek(&mut self, key: &[u8]) -> Result<(), Stop> {
        all(self.cursors.iter_mut().map(|cursor| cursor.seek(key)))?;
        self.gather(false);
        Ok(())
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<(), Stop> {
        all(self.cursors.iter_mut().map(|cursor| cursor.seek_before(key)))?;
        self.gather(true);
        Ok(())
    }

    fn next(&mut self) -> Result<(), Stop> {
        debug_assert!(!self.reverse || self.heap.is_empty(), "it was sought backwards");
        self.step()
    }

    fn prev(&mut self) -> Result<(), Stop> {
        debug_assert!(self.reverse || self.heap.is_empty(), "it was sought forwards");
        self.step()
    }

    fn key(&self) -> Option<&[u8]> {
        self.head()?.key()
    }

    fn meta(&self) -> Option<Meta> {
        self.head()?.meta()
    }

    fn value(&self, into: &mut Vec<u8>) -> Result<(), Stop> {
        self.head().map_or(Ok(()), |head| head.value(into))
    }
}

/// All of them, even if one stops: so everything that is missing is asked for at once. Damage goes
/// before absence.
fn all(steps: impl Iterator<Item = Result<(), Stop>>) -> Result<(), Stop> {
    let mut sum = Ok(());
    for step in steps {
        let is_worse = matches!((&sum, &step), (Ok(()), Err(_)) | (Err(Stop::Missing), Err(Stop::Damaged(_))));
        if is_worse {
            sum = step;
        }
    }
    sum
}

/// Which versions a reader sees.
#[derive(Clone, Copy, Debug)]
pub struct ReadView {
    /// None above this one.
    pub at: u64,
    /// None that is expired then.
    pub now: Wall,
}

impl ReadView {
    pub(crate) fn sees(self, meta: Meta) -> bool {
        meta.body != Body::Delete && !meta.expiry.is_past(self.now)
    }
}

/// Goes over the keys that a reader sees, each with the newest version that it sees. Call
/// [`Visible::forward`] or [`Visible::backward`] again and again.
pub struct Visible<'c, C> {
    cursor: &'c mut C,
    read_view: ReadView,
    ranges: &'c RangeDeletes,
    key: Vec<u8>,
    meta: Option<Meta>,
    value: Vec<u8>,
    /// The key of a version that is too new, met last on the way forward.
    too_new: Vec<u8>,
    /// The reader sees it.
    is_visible: bool,
    /// The key was found, and an error came before it was shown.
    owes: bool,
    /// How far it goes. Without: over everything.
    walk: Option<Walk<'c>>,
}

impl<'c, C: Cursor> Visible<'c, C> {
    /// Over a cursor that was sought, without what these ranges hide.
    pub fn new(cursor: &'c mut C, read_view: ReadView, ranges: &'c RangeDeletes) -> Visible<'c, C> {
        let (key, value, too_new) = Default::default();
        let (is_visible, owes, walk) = (false, false, None);
        Visible { cursor, read_view, ranges, key, meta: None, value, too_new, is_visible, owes, walk }
    }

    /// No further than that. Where nothing is found then, [`Visible::pause`] tells whether there is
    /// more.
    pub(crate) fn on(self, walk: Walk<'c>) -> Visible<'c, C> {
        Visible { walk: Some(walk), ..self }
    }

    /// Where it paused, everything before it having been seen, and whether it passed what is not
    /// shown.
    pub(crate) fn pause(&mut self) -> Option<(Vec<u8>, bool)> {
        self.walk.as_mut()?.take_pause()
    }

    /// The key found last.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value found last, if it lies beside its key.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// As [`Visible::passed`]; the walk learns that everything before is seen.
    pub(crate) fn stop(&mut self, reverse: bool) -> Option<Bound<Key>> {
        let passed = self.passed(reverse);
        if let Some(walk) = &mut self.walk
            && let Some(passed) = &passed
        {
            walk.stop_at(passed);
        }
        passed
    }

    /// From where a seek goes on after an error, everything before it having been seen: forward
    /// behind the last key of which the newest version was found, or at one of which only too new
    /// ones were; backward up to the last key met, of which newer versions may follow. `None`:
    /// nothing was met.
    pub fn passed(&self, reverse: bool) -> Option<Bound<Key>> {
        if !reverse && self.too_new > self.key {
            return Some(Bound::Included(Key::from_encoded(&self.too_new)?));
        }
        let key = Key::from_encoded(self.meta.is_some().then_some(&self.key)?)?;
        Some(if reverse || self.owes { Bound::Included(key) } else { Bound::Excluded(key) })
    }

    /// The next key in order.
    ///
    /// # Errors
    /// [`Stop`]: seek again.
    pub fn forward(&mut self, with_value: bool) -> Result<Option<Meta>, Stop> {
        while let Some((key, meta)) = self.cursor.key().zip(self.cursor.meta()) {
            let is_same = self.meta.is_some() && key == self.key;
            if let Some(walk) = &mut self.walk {
                if walk.is_beyond(key) {
                    break;
                }
                // Between two keys: where it goes on is told by a key.
                if !is_same && key != self.too_new && walk.pauses_at(key) {
                    return Ok(None);
                }
                walk.visit();
            }
            if meta.version > self.read_view.at || is_same {
                if meta.version > self.read_view.at && key != self.too_new {
                    self.too_new.clear();
                    self.too_new.extend_from_slice(key);
                }
                self.cursor.next()?;
                continue;
            }
            self.take(meta, with_value)?;
            note(&mut self.walk, &self.key, meta, self.is_visible);
            self.owes = self.is_visible;
            self.cursor.next()?;
            if std::mem::take(&mut self.owes) {
                return Ok(Some(meta));
            }
        }
        self.end_walk();
        Ok(None)
    }

    /// The previous key in order. Of one key the oldest version comes first, so the one before the
    /// next key, or before one that is too new, is it.
    ///
    /// # Errors
    /// [`Stop`]: seek again.
    pub fn backward(&mut self, with_value: bool) -> Result<Option<Meta>, Stop> {
        let mut found: Option<Meta> = None;
        while let Some((key, meta)) = self.cursor.key().zip(self.cursor.meta()) {
            let is_same = self.meta.is_some() && key == self.key;
            if let Some(last) = found.filter(|_| !is_same) {
                note(&mut self.walk, &self.key, last, self.is_visible);
                if self.is_visible {
                    return Ok(found);
                }
                found = None;
            }
            if let Some(walk) = &mut self.walk {
                if walk.is_beyond(key) {
                    break;
                }
                if !is_same && key != self.too_new && walk.pauses_at(key) {
                    return Ok(None);
                }
                walk.visit();
            }
            if meta.version <= self.read_view.at {
                self.take(meta, with_value)?;
                found = Some(meta);
            } else if found.is_none() && key != self.too_new {
                self.too_new.clear();
                self.too_new.extend_from_slice(key);
            }
            self.cursor.prev()?;
        }
        if let Some(last) = found {
            note(&mut self.walk, &self.key, last, self.is_visible);
            if self.is_visible {
                return Ok(found);
            }
        }
        self.end_walk();
        Ok(None)
    }

    fn end_walk(&mut self) {
        if let Some(walk) = &mut self.walk {
            walk.reach_end();
        }
    }

    fn take(&mut self, meta: Meta, with_value: bool) -> Result<(), Stop> {
        self.key.clear();
        self.key.extend_from_slice(self.cursor.key().unwrap_or_default());
        self.meta = Some(meta);
        self.value.clear();
        let is_hidden = self.ranges.hiding(&self.key, meta.version, self.read_view.at).is_some();
        self.is_visible = self.read_view.sees(meta) && !is_hidden;
        if with_value && self.is_visible {
            self.cursor.value(&mut self.value)?;
        }
        Ok(())
    }
}

/// A walk has come past the newest version of a key that its reader sees.
fn note(walk: &mut Option<Walk<'_>>, key: &[u8], meta: Meta, is_visible: bool) {
    match walk {
        Some(walk) if is_visible => walk.note_visible(key),
        Some(walk) => walk.pass_dead(meta),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use stratakv_base::Expiry;
    use stratakv_base::random::Random;

    use super::*;
    use crate::ranges::RangeDelete;

    /// Versions in memory.
    struct List {
        versions: Vec<(Vec<u8>, Meta)>,
        /// One beyond the place: 0 is before the first.
        at: usize,
    }

    impl List {
        fn here(&self) -> Option<&(Vec<u8>, Meta)> {
            self.versions.get(self.at.checked_sub(1)?)
        }
    }

    impl Cursor for List {
        fn seek(&mut self, key: &[u8]) -> Result<(), Stop> {
            self.at = self.versions.partition_point(|(other, _)| &other[..] < key) + 1;
            Ok(())
        }
        fn seek_before(&mut self, key: Option<&[u8]>) -> Result<(), Stop> {
            self.at = self.versions.partition_point(|(other, _)| key.is_none_or(|key| &other[..] < key));
            Ok(())
        }
        fn next(&mut self) -> Result<(), Stop> {
            self.at = (self.at + 1).min(self.versions.len() + 1);
            Ok(())
        }
        fn prev(&mut self) -> Result<(), Stop> {
            self.at = self.at.saturating_sub(1);
            Ok(())
        }
        fn key(&self) -> Option<&[u8]> {
            self.here().map(|(key, _)| &key[..])
        }
        fn meta(&self) -> Option<Meta> {
            self.here().map(|(_, meta)| *meta)
        }
        fn value(&self, into: &mut Vec<u8>) -> Result<(), Stop> {
            into.extend_from_slice(&self.meta().map_or(0, |meta| meta.version).to_le_bytes());
            Ok(())
        }
    }

    type History = BTreeMap<Vec<u8>, BTreeMap<u64, Meta>>;

    /// Versions at random, shared out among lists as an LSM tree does: newer ones in earlier lists.
    fn draw(random: &mut Random) -> (History, Vec<List>) {
        let (mut history, mut lists, mut version) = (History::new(), Vec::new(), 1);
        for _ in 0..random.below(6) {
            let mut versions = Vec::new();
            for _ in 0..random.below(20) {
                let key = vec![b'a' + random.below(12) as u8; 1 + random.below(2) as usize];
                let body = match random.below(3) {
                    0 => Body::Delete,
                    _ => Body::Here { value_bytes: 8, checksum: 0 },
                };
                let expiry = if random.below(5) == 0 { Expiry(50) } else { Expiry::NEVER };
                let meta = Meta { version, flags: 0, expiry, body };
                history.entry(key.clone()).or_default().insert(version, meta);
                versions.push((key, meta));
                version += 1;
            }
            versions.sort_by(|(a, x), (b, y)| a.cmp(b).then(y.version.cmp(&x.version)));
            lists.push(List { versions, at: 0 });
        }
        (history, lists)
    }

    fn draw_ranges(random: &mut Random) -> RangeDeletes {
        let key = |random: &mut Random| vec![b'a' + random.below(12) as u8].into();
        let range =
            |random: &mut Random| RangeDelete { from: key(random), to: key(random), version: random.below(100) };
        RangeDeletes::new((0..random.below(4)).map(|_| range(random)).collect())
    }

    fn expected(history: &History, ranges: &RangeDeletes, read_view: ReadView) -> Vec<(Vec<u8>, u64)> {
        let newest =
            |versions: &BTreeMap<u64, Meta>| versions.range(..=read_view.at).next_back().map(|(_, meta)| *meta);
        let seen = history.iter().filter_map(|(key, versions)| Some((key, newest(versions)?)));
        let is_visible = |key: &[u8], meta: Meta| {
            let hides = |range: &RangeDelete| {
                range.version <= read_view.at && meta.version < range.version && range.meets(key, key)
            };
            read_view.sees(meta) && !ranges.all().iter().any(hides)
        };
        seen.filter(|(key, meta)| is_visible(key, *meta)).map(|(key, meta)| (key.clone(), meta.version)).collect()
    }

    proptest! {
        #[test]
        fn readers_see_the_newest_version_of_each_key(seed in any::<u64>()) {
            let mut random = Random::new(seed);
            let (history, lists) = draw(&mut random);
            let read_view = ReadView { at: random.below(100), now: Wall(if random.below(2) == 0 { 40 } else { 60 }) };
            let mut merge = Merge::new(lists.into_iter().map(|list| Box::new(list) as Box<dyn Cursor>).collect());
            let ranges = draw_ranges(&mut random);
            let all = expected(&history, &ranges, read_view);
            let from = vec![b'a' + random.below(12) as u8];

            merge.seek(&from).unwrap();
            let (mut found, mut visible) = (Vec::new(), Visible::new(&mut merge, read_view, &ranges));
            while let Some(meta) = visible.forward(true).unwrap() {
                prop_assert_eq!(visible.value(), meta.version.to_le_bytes());
                found.push((visible.key().to_vec(), meta.version));
            }
            let after: Vec<_> = all.iter().filter(|(key, _)| *key >= from).cloned().collect();
            prop_assert_eq!(found, after);

            drop(visible);
            merge.seek_before(Some(&from)).unwrap();
            let (mut found, mut visible) = (Vec::new(), Visible::new(&mut merge, read_view, &ranges));
            while let Some(meta) = visible.backward(true).unwrap() {
                prop_assert_eq!(visible.value(), meta.version.to_le_bytes());
                found.push((visible.key().to_vec(), meta.version));
            }
            found.reverse();
            let before: Vec<_> = all.into_iter().filter(|(key, _)| *key < from).collect();
            prop_assert_eq!(found, before);
        }
    }
}
