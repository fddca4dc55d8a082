//! Snapshots, opened, paged through and closed among everything else: a page shows what was there
//! when its snapshot was opened, whatever came since.

use std::ops::Bound;

use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Key, Wall};
use stratakv_engine::{Error, Operation, PageRequest, Reply, SnapshotOp};

use super::World;
use super::requests::{Asked, Scanned, Sees, key, number_of};
use crate::machine::Engine;
use crate::model::{Cut, History, Seen};
use crate::plan::{Request, What};

/// An engine may refuse to open more at a time.
const OPEN_MAX: usize = 64;

/// Those of this life, and one of the life before, which must be gone.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    known: Vec<Snapshot>,
    /// Those that ended because they kept too much, and were met so.
    ended_early: u64,
}

#[derive(Debug)]
struct Snapshot {
    id: u64,
    version: u64,
    /// What it sees of each key.
    cuts: Vec<Cut>,
    state: State,
    /// Where the next page begins, upwards and downwards.
    next: [Option<Key>; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Its end is asked for.
    Closing,
    /// No page of it may come any more.
    Gone,
}

impl Snapshots {
    /// The process ends. One is remembered: nothing may be found under its number.
    pub(super) fn are_forgotten(&mut self) {
        self.ended_early = 0;
        self.known.truncate(1);
        self.known.iter_mut().for_each(|snapshot| snapshot.state = State::Gone);
    }

    /// Nothing is known any more of what the key held.
    pub(super) fn lose(&mut self, key: usize) {
        self.known.iter_mut().for_each(|snapshot| snapshot.cuts[key].is_lost = true);
    }

    fn get(&self, id: u64) -> Option<&Snapshot> {
        self.known.iter().find(|snapshot| snapshot.id == id)
    }

    fn get_mut(&mut self, id: u64) -> Option<&mut Snapshot> {
        self.known.iter_mut().find(|snapshot| snapshot.id == id)
    }

    /// Whether a page of it may show this.
    pub(super) fn show(&mut self, id: u64, key: usize, history: &History, seen: Seen<'_>, wall: Wall) -> bool {
        let Some(snapshot) = self.get_mut(id) else { return false };
        history.shows(&mut snapshot.cuts[key], snapshot.version, seen, wall)
    }

    /// Whether a page of it may meet damage of the key.
    pub(super) fn may_be_damaged(&self, id: u64, key: usize, history: &History) -> bool {
        let cut = self.get(id).map(|snapshot| snapshot.cuts[key]);
        cut.is_some_and(|cut| cut.is_lost || history.may_be_damaged(cut.from))
    }

    /// For messages.
    pub(super) fn describe(&self, id: u64, key: usize) -> String {
        let known = self.get(id).map(|snapshot| (snapshot.version, snapshot.cuts[key]));
        format!("version and cut {known:?}")
    }

    /// One by its number among them; where some are gone, these more seldom.
    fn chosen(&self, which: u8) -> Option<&Snapshot> {
        let (open, gone): (Vec<&Snapshot>, Vec<&Snapshot>) =
            self.known.iter().partition(|snapshot| snapshot.state != State::Gone);
        let from = if open.is_empty() || which.is_multiple_of(16) { gone } else { open };
        from.get(usize::from(which / 16) % from.len().max(1)).copied()
    }
}

impl<E: Engine> World<'_, E> {
    /// Opens, looks at or closes one, if the engine has them.
    pub(super) fn ask_snapshots(&mut self, request: &Request) -> Result<(), String> {
        if !self.machine.opens_snapshots() {
            return Ok(());
        }
        match request.what {
            What::OpenSnapshot => {
                // Each life counts anew: it may get the number of one of the life before.
                self.snapshots.known.retain(|snapshot| snapshot.state != State::Gone);
                let from = self.histories.iter().map(History::acked).collect();
                let asked = Asked::OpenSnapshot { from, version: self.highest };
                self.hand_over(Operation::Snapshot(SnapshotOp::Open), asked)
            }
            What::CloseSnapshot { which } => {
                let Some(id) = self.snapshots.chosen(which).map(|snapshot| snapshot.id) else { return Ok(()) };
                if let Some(snapshot) = self.snapshots.get_mut(id).filter(|snapshot| snapshot.state == State::Open) {
                    snapshot.state = State::Closing;
                }
                self.hand_over(Operation::Snapshot(SnapshotOp::Close(id)), Asked::CloseSnapshot { id })
            }
            What::PageSnapshot { which, reverse, keys_only, items } => {
                self.page_of_snapshot(request.key, which, (reverse, keys_only), items)
            }
            _ => Ok(()),
        }
    }

    fn page_of_snapshot(
        &mut self,
        start: u16,
        which: u8,
        (reverse, keys_only): (bool, bool),
        items: u8,
    ) -> Result<(), String> {
        let Some(snapshot) = self.snapshots.chosen(which) else { return Ok(()) };
        let id = snapshot.id;
        // Below the first key nothing lies: it begins anew.
        let is_end = |key: &&Key| reverse && number_of(key.user()) == Some(0);
        let next = snapshot.next[usize::from(reverse)].as_ref().filter(|key| !is_end(key));
        let bound = next.cloned().map_or_else(|| Bound::Included(key(start)), Bound::Excluded);
        let keys = match (next.and_then(|key| number_of(key.user())), reverse) {
            (None, false) => start..=u16::MAX,
            (None, true) => 0..=start,
            (Some(last), false) => last + 1..=u16::MAX,
            (Some(last), true) => 0..=last.saturating_sub(1),
        };
        let (from, to) = if reverse { (Bound::Unbounded, bound) } else { (bound, Bound::Unbounded) };
        let (items_max, bytes_max) = (u32::from(items), [1 << 20, 4_000, 300][usize::from(items) % 3]);
        let request = PageRequest { from, to, reverse, keys_only, items_max, bytes_max, at: Some(id) };
        let scanned = Scanned { keys, reverse, keys_only, items_max, bytes_max, sees: Sees::At(id) };
        self.hand_over(Operation::Page(request.into()), Asked::Scan(scanned))
    }

    pub(super) fn judge_opening(&mut self, from: &[usize], version: u64, reply: &Reply) -> Result<(), String> {
        let (id, seen) = match reply {
            Reply::Number { number, version } => (*number, *version),
            Reply::Failed(Error::TooManySnapshots { .. }) if self.snapshots.known.len() >= OPEN_MAX => return Ok(()),
            Reply::Failed(error) => return self.failed(error, false, None),
            other => return Err(format!("{other:?}")),
        };
        if seen < version && !self.lies() {
            return Err(format!("it sees up to version {seen}, and {version} was known before it was asked for"));
        }
        if self.snapshots.get(id).is_some() {
            return Err(format!("number {id} is that of another open snapshot"));
        }
        let cut = |(from, history): (&usize, &History)| Cut { from: *from, to: history.writes(), is_lost: false };
        let cuts = from.iter().zip(&self.histories).map(cut).collect();
        self.snapshots.known.push(Snapshot { id, version: seen, cuts, state: State::Open, next: [None, None] });
        self.statistics.snapshots[0] += 1;
        Ok(())
    }

    pub(super) fn judge_closing(&mut self, id: u64, reply: &Reply) -> Result<(), String> {
        let state = self.snapshots.get(id).map(|snapshot| snapshot.state);
        match reply {
            Reply::Number { number, .. } if *number == id && state == Some(State::Closing) => {
                self.gone(id);
                Ok(())
            }
            Reply::Failed(Error::NoSnapshot { id: named }) if *named == id && state == Some(State::Closing) => {
                self.ended_early(id)
            }
            Reply::Failed(Error::NoSnapshot { id: named }) if *named == id && state != Some(State::Open) => Ok(()),
            Reply::Failed(error) => self.failed(error, false, None),
            other => Err(format!("{other:?}, and it is {state:?}")),
        }
    }

    pub(super) fn judge_page_of_snapshot(&mut self, id: u64, scanned: &Scanned, reply: &Reply) -> Result<(), String> {
        let state = self.snapshots.get(id).map(|snapshot| snapshot.state);
        match (reply, state) {
            (Reply::Failed(Error::NoSnapshot { id: named }), _) if *named != id => Err(format!("{reply:?}")),
            (Reply::Failed(Error::NoSnapshot { .. }), Some(State::Open)) => self.ended_early(id),
            (Reply::Failed(Error::NoSnapshot { .. }), _) => Ok(()),
            (Reply::Page { .. }, None | Some(State::Gone)) => Err(format!("the snapshot is gone, and shows {reply:?}")),
            (Reply::Page { next, .. }, _) => {
                self.judge_scan(scanned, reply)?;
                self.statistics.snapshots[1] += 1;
                if let Some(snapshot) = self.snapshots.get_mut(id) {
                    snapshot.next[usize::from(scanned.reverse)] = match next {
                        Some(Bound::Excluded(key)) => Some(key.clone()),
                        _ => None,
                    };
                }
                Ok(())
            }
            _ => self.judge_scan(scanned, reply),
        }
    }

    /// It is gone before anybody closed it: the oldest ones go first, and only if they may keep
    /// much; and the engine counts them.
    fn ended_early(&mut self, id: u64) -> Result<(), String> {
        let pages = |(number, history): (u16, &History)| history.pages_of_all(key(number).encoded().len());
        let pages: u64 = (0..).zip(&self.histories).map(pages).sum();
        let room_pages = self.setup.capacity_bytes.unwrap_or(self.setup.disk_bytes) / PAGE_BYTES as u64;
        // What is kept for snapshots may take as much as the container in any case.
        let container_bytes =
            self.machine.statistic("container_units") * self.machine.statistic("container_unit_bytes");
        let container_pages = container_bytes / PAGE_BYTES as u64;
        if 3 * pages <= room_pages && pages <= container_pages && !self.is_excused() {
            return Err(format!(
                "the snapshot ended early, and all that was written has {pages} of {room_pages} pages, the container {container_pages}"
            ));
        }
        let older: Vec<u64> =
            self.snapshots.known.iter().map(|snapshot| snapshot.id).filter(|one| *one <= id).collect();
        for one in older {
            let open = self.snapshots.get(one).is_some_and(|snapshot| snapshot.state == State::Open);
            if open || one == id {
                self.gone(one);
                self.snapshots.ended_early += 1;
                self.statistics.snapshots[2] += 1;
            }
        }
        let told = self.machine.statistic("snapshots_ended_early");
        if self.snapshots.ended_early > told {
            return Err(format!("{} snapshots ended early, and {told} are told of", self.snapshots.ended_early));
        }
        Ok(())
    }

    /// Of those that are gone only this one is remembered.
    fn gone(&mut self, id: u64) {
        self.snapshots.known.retain(|snapshot| snapshot.state != State::Gone);
        if let Some(snapshot) = self.snapshots.get_mut(id) {
            (snapshot.state, snapshot.next) = (State::Gone, [None, None]);
        }
    }
}
