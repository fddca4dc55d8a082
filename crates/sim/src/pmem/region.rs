//! A region in ordinary memory that knows what a power cut may take.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use stratakv_base::random::Random;

use super::lines::{LINE, Lines, WordOrder};
use super::{LINE_BYTES, Pmem, PmemError};

const PAGE_BYTES: u64 = 4096;

/// What a flush writes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Domain {
    /// Lines: persistent memory, with clwb and sfence.
    #[default]
    Adr,
    /// Pages of 4096 bytes: a plain file, with `msync`. A line may be written back without its
    /// page, as the kernel may do it at any time and the disk may tear it.
    File,
}

impl Domain {
    fn flush_bytes(self) -> u64 {
        match self {
            Domain::Adr => LINE_BYTES,
            Domain::File => PAGE_BYTES,
        }
    }
}

/// What was done to a region, and what of it was in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls of `store` and `store_u64`.
    pub stores: u64,
    /// Calls of `store_nt`.
    pub stores_nt: u64,
    /// Lines (pages of a file) flushed.
    pub flushes: u64,
    /// Flushes of lines without a store since their last flush.
    pub redundant_flushes: u64,
    /// Fences.
    pub fences: u64,
    /// Fences with nothing to wait for.
    pub redundant_fences: u64,
    /// Lines with stores that are not flushed: at the end of a workload, a durability bug or
    /// scratch space.
    pub unflushed_lines: u64,
    /// Lines flushed, or stored past the cache, with no fence after it: at the end of a workload, a
    /// durability bug.
    pub unfenced_lines: u64,
}

/// What happened to a region, in order.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Store { offset: u64, bytes: Box<[u8]>, non_temporal: bool },
    Flush { offset: u64, len_bytes: u64 },
    Fence,
    Acknowledge,
}

/// A simulated region; see the [module](super). Loads and stores cost a lock and a copy, and some
/// bookkeeping for each word stored.
#[derive(Debug)]
pub struct Region {
    domain: Domain,
    state: Mutex<State>,
}

/// What loads see, and what the medium lacks of it.
#[derive(Debug)]
pub(super) struct State {
    pub(super) image: Vec<u8>,
    pub(super) lines: Lines,
    file_bytes: u64,
    poisoned: BTreeSet<u64>,
    counters: Counters,
    recording: Option<Vec<Event>>,
    /// Lines as they were before each store, to be put back.
    journal: Option<Vec<(usize, [u8; LINE])>>,
}

impl Region {
    /// A region of zeros.
    ///
    /// # Panics
    /// Its length is no multiple of [`LINE_BYTES`].
    pub fn new(len_bytes: usize) -> Region {
        Region::open(vec![0; len_bytes], Domain::Adr)
    }

    /// A region that a cut left, or a plain file. Nothing is pending.
    ///
    /// # Panics
    /// Its length is no multiple of [`LINE_BYTES`].
    pub fn open(image: Vec<u8>, domain: Domain) -> Region {
        assert!(image.len().is_multiple_of(LINE), "a region of {} bytes is no multiple of a line", image.len());
        Region { domain, state: Mutex::new(State::new(image)) }
    }

    /// As [`Region::open`]; what happens is recorded.
    pub(super) fn recorded(image: Vec<u8>, domain: Domain) -> Region {
        let region = Region::open(image, domain);
        region.state().recording = Some(Vec::new());
        region
    }

    /// A region for checks: it borrows its memory, and can be rewound.
    pub(super) fn rewindable(domain: Domain) -> Region {
        let region = Region::recorded(Vec::new(), domain);
        region.state().journal = Some(Vec::new());
        region
    }

    /// Marks an operation of a recorded workload as acknowledged: a check after a later cut is told
    /// how many were. Nothing otherwise.
    pub fn acknowledge(&self) {
        self.state().record(|| Event::Acknowledge);
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        let state = self.state();
        let (unflushed_lines, unfenced_lines) = state.lines.unfinished();
        Counters { unflushed_lines, unfenced_lines, ..state.counters }
    }

    /// What a power cut now may leave: of every line with pending stores a third keep nothing, a
    /// third all, a third something.
    pub fn cut(&self, random: &mut Random) -> Vec<u8> {
        let state = self.state();
        let mut image = state.image.clone();
        for (start, bytes) in state.draw(random) {
            image[start..start + LINE].copy_from_slice(&bytes);
        }
        image
    }

    /// Loses the line that holds `offset`: accesses fail until [`Region::clear_poison`].
    pub fn poison(&self, offset: u64) {
        self.state().poisoned.insert(offset / LINE_BYTES);
    }

    /// Makes the line that holds `offset` usable again, with zeros.
    ///
    /// # Errors
    /// Out of bounds.
    pub fn clear_poison(&self, offset: u64) -> Result<(), PmemError> {
        let start = offset - offset % LINE_BYTES;
        self.state().poisoned.remove(&(offset / LINE_BYTES));
        self.store_nt(start, &[0; LINE])
    }

    /// Shrinks the file under the region; the mapping stays as long as it is, and what lies beyond
    /// is gone.
    pub fn shrink(&self, file_bytes: u64) {
        let mut state = self.state();
        state.file_bytes = state.file_bytes.min(file_bytes);
    }

    /// Lends it memory, or takes it back.
    pub(super) fn swap_image(&self, image: &mut Vec<u8>) {
        let mut state = self.state();
        std::mem::swap(&mut state.image, image);
        state.file_bytes = state.image.len() as u64;
    }

    /// Replaces a line by what a cut left of it.
    pub(super) fn set_line(&self, start: usize, bytes: &[u8; LINE]) {
        self.state().image[start..start + LINE].copy_from_slice(bytes);
    }

    /// A copy of what loads see.
    pub(super) fn image(&self) -> Vec<u8> {
        self.state().image.clone()
    }

    /// Undoes what was done since the last time; what that was, if there was a store.
    pub(super) fn rewind(&self) -> Vec<Event> {
        let state = &mut *self.state();
        let journal = state.journal.get_or_insert_default();
        let changed = !journal.is_empty();
        for (start, bytes) in journal.drain(..).rev() {
            state.image[start..start + LINE].copy_from_slice(&bytes);
        }
        state.lines.clear();
        state.poisoned.clear();
        state.file_bytes = state.image.len() as u64;
        let events = state.recording.get_or_insert_default();
        if changed {
            return std::mem::take(events);
        }
        events.clear();
        Vec::new()
    }

    /// What was recorded.
    pub(super) fn take_events(&self) -> Vec<Event> {
        self.state().recording.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store_by(&self, offset: u64, bytes: &[u8], non_temporal: bool) -> Result<(), PmemError> {
        let mut state = self.state();
        state.check(offset, bytes.len() as u64)?;
        let calls = if non_temporal { &mut state.counters.stores_nt } else { &mut state.counters.stores };
        *calls += 1;
        state.record(|| Event::Store { offset, bytes: bytes.into(), non_temporal });
        state.store(offset, bytes, non_temporal);
        Ok(())
    }
}

impl State {
    pub(super) fn new(image: Vec<u8>) -> State {
        State {
            file_bytes: image.len() as u64,
            image,
            lines: Lines::default(),
            poisoned: BTreeSet::new(),
            counters: Counters::default(),
            recording: None,
            journal: None,
        }
    }

    /// Does what was recorded once more.
    pub(super) fn apply(&mut self, event: &Event, domain: Domain) {
        match event {
            Event::Store { offset, bytes, non_temporal } => self.store(*offset, bytes, *non_temporal),
            Event::Flush { offset, len_bytes } => self.flush(*offset, *len_bytes, domain),
            Event::Fence => self.fence(),
            Event::Acknowledge => {}
        }
    }

    /// What a cut may leave of each line with pending stores, by its first byte.
    pub(super) fn draw(&self, random: &mut Random) -> Vec<(usize, [u8; LINE])> {
        let survivors = self.lines.iter().map(|(start, line)| {
            let choices = line.choices(WordOrder::Any);
            let choice = match random.below(3) {
                0 => 0,
                1 => choices - 1,
                _ => random.below(choices),
            };
            (start, line.survivor(WordOrder::Any, choice))
        });
        survivors.collect()
    }

    fn store(&mut self, offset: u64, bytes: &[u8], non_temporal: bool) {
        if let Some(journal) = &mut self.journal {
            let first = offset as usize / LINE * LINE;
            let lines = (first..offset as usize + bytes.len()).step_by(LINE);
            journal.extend(lines.filter_map(|start| Some((start, *self.image.get(start..)?.first_chunk()?))));
        }
        self.lines.store(&mut self.image, offset as usize, bytes, non_temporal);
    }

    fn flush(&mut self, offset: u64, len_bytes: u64, domain: Domain) {
        if len_bytes == 0 {
            return;
        }
        let unit_lines = domain.flush_bytes() / LINE_BYTES;
        for unit in offset / domain.flush_bytes()..=(offset + len_bytes - 1) / domain.flush_bytes() {
            let first = unit * unit_lines;
            let needed = self.lines.flush(first..=first + unit_lines - 1);
            self.counters.flushes += 1;
            self.counters.redundant_flushes += u64::from(!needed);
        }
    }

    fn fence(&mut self) {
        let needed = self.lines.fence();
        self.counters.fences += 1;
        self.counters.redundant_fences += u64::from(!needed);
    }

    fn record(&mut self, event: impl FnOnce() -> Event) {
        if let Some(events) = &mut self.recording {
            events.push(event());
        }
    }

    fn check_bounds(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError> {
        let region_bytes = self.image.len() as u64;
        match offset.checked_add(len_bytes) {
            Some(end) if end <= region_bytes => Ok(()),
            _ => Err(PmemError::OutOfBounds { offset, len_bytes, region_bytes }),
        }
    }

    fn check(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError> {
        self.check_bounds(offset, len_bytes)?;
        let end = offset + len_bytes;
        if end > self.file_bytes && len_bytes > 0 {
            return Err(PmemError::Shrunk { offset: offset.max(self.file_bytes), file_bytes: self.file_bytes });
        }
        if self.poisoned.is_empty() || len_bytes == 0 {
            return Ok(());
        }
        match self.poisoned.range(offset / LINE_BYTES..end.div_ceil(LINE_BYTES)).next() {
            Some(line) => Err(PmemError::Poisoned { offset: line * LINE_BYTES }),
            None => Ok(()),
        }
    }
}

impl Pmem for Region {
    fn len_bytes(&self) -> u64 {
        self.state().image.len() as u64
    }

    fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), PmemError> {
        let state = self.state();
        state.check(offset, into.len() as u64)?;
        let start = offset as usize;
        into.copy_from_slice(&state.image[start..start + into.len()]);
        Ok(())
    }

    fn load_u64(&self, offset: u64) -> Result<u64, PmemError> {
        aligned(offset)?;
        let mut bytes = [0; 8];
        self.load(offset, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.store_by(offset, bytes, false)
    }

    fn store_u64(&self, offset: u64, value: u64) -> Result<(), PmemError> {
        aligned(offset)?;
        self.store_by(offset, &value.to_ne_bytes(), false)
    }

    fn store_nt(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.store_by(offset, bytes, true)
    }

    fn flush(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError> {
        let mut state = self.state();
        state.check_bounds(offset, len_bytes)?;
        state.record(|| Event::Flush { offset, len_bytes });
        state.flush(offset, len_bytes, self.domain);
        Ok(())
    }

    fn fence(&self) -> Result<(), PmemError> {
        let mut state = self.state();
        state.record(|| Event::Fence);
        state.fence();
        Ok(())
    }
}

fn aligned(offset: u64) -> Result<(), PmemError> {
    if offset.is_multiple_of(8) { Ok(()) } else { Err(PmemError::Misaligned { offset }) }
}
