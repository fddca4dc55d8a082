//! Aligned buffers for direct I/O, leased from a pool.

#![expect(unsafe_code, reason = "hands out disjoint pieces of raw aligned memory as slices")]

use std::alloc::Layout;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fork::Lineage;

/// Size of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// 4 KiB.
    Page,
    /// 64 KiB.
    Slice,
}

impl Class {
    /// Length of a block of this class, in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Class::Page => stratakv_base::limits::PAGE_BYTES,
            Class::Slice => stratakv_base::limits::SLICE_BYTES,
        }
    }
}

/// A run of bytes of a shared block, to be written or sent from where it lies.
#[derive(Clone, Debug)]
pub struct BlockPart {
    /// The block.
    pub block: Arc<Block>,
    /// First byte.
    pub start: u32,
    /// How many bytes.
    pub len: u32,
}

impl BlockPart {
    /// The whole of `block`.
    pub fn whole(block: Arc<Block>) -> BlockPart {
        let len = block.len() as u32;
        BlockPart { block, start: 0, len }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.block[self.start as usize..][..self.len as usize]
    }
}

/// An aligned buffer, owned by one holder at a time; given back to its pool when dropped.
///
/// Fresh blocks hold arbitrary (initialised) bytes.
pub struct Block {
    pointer: NonNull<u8>,
    class: Class,
    chunk: u32,
    pool: Arc<Inner>,
}

// SAFETY: a Block owns its bytes exclusively, like Box<[u8]>; the pool it returns to is Sync.
unsafe impl Send for Block {}
// SAFETY: `&Block` gives only `&[u8]`.
unsafe impl Sync for Block {}

impl Block {
    /// The block's class.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Copies `bytes` to `at`: for what is not read again soon. From 16 KiB on it goes past the
    /// processor's caches, where it knows how (x86-64): memory that is written whole is not read
    /// first, and what lies in the caches stays there.
    ///
    /// # Panics
    /// They reach beyond the block.
    pub fn store(&mut self, at: usize, bytes: &[u8]) {
        let place = &mut self[at..at + bytes.len()];
        if bytes.len() < STREAMED_BYTES_MIN {
            return place.copy_from_slice(bytes);
        }
        stream(place, bytes);
    }

    /// Its byte `at`, and what finds the start of its chunk: for a device that reaches memory by
    /// chunks. `None` beyond its end.
    pub(crate) fn reach(&self, at: usize) -> Option<(NonNull<u8>, impl FnOnce() -> Option<NonNull<u8>>)> {
        if at >= self.class.bytes() {
            return None;
        }
        // SAFETY: within the block.
        let byte = unsafe { self.pointer.add(at) };
        Some((byte, || self.pool.state().chunks.get(self.chunk as usize)?.as_ref().map(|chunk| chunk.memory)))
    }

    /// The 1 MiB chunk the block lies in, for [`Pool::retire_chunk`].
    pub fn chunk(&self) -> ChunkId {
        ChunkId(self.chunk)
    }
}

/// Shorter copies are likely to be read while they are in a cache.
const STREAMED_BYTES_MIN: usize = 16 << 10;

/// Copies with non-temporal stores: 13 us instead of 19 for 64 KiB into memory that no cache has.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn stream(place: &mut [u8], bytes: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    let head = place.as_ptr().align_offset(64).min(bytes.len());
    let (first, rest) = bytes.split_at(head);
    let (place_first, place_rest) = place.split_at_mut(head);
    place_first.copy_from_slice(first);
    let (mut to, mut from) = (place_rest.chunks_exact_mut(64), rest.chunks_exact(64));
    for (to, from) in (&mut to).zip(&mut from) {
        for at in [0, 16, 32, 48] {
            // SAFETY: both chunks have 64 bytes, so 16 from `at` on are within them; `to` begins at
            // a multiple of 64, so 16 bytes are aligned. SSE2 is part of x86-64.
            unsafe {
                let lane = _mm_loadu_si128(from.as_ptr().add(at).cast::<__m128i>());
                _mm_stream_si128(to.as_mut_ptr().add(at).cast::<__m128i>(), lane);
            }
        }
    }
    to.into_remainder().copy_from_slice(from.remainder());
    // Such stores are not ordered with others: before another thread is told of the block, they are
    // done. SAFETY: SSE is part of x86-64.
    unsafe { _mm_sfence() }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn stream(place: &mut [u8], bytes: &[u8]) {
    place.copy_from_slice(bytes);
}

impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: pointer is valid for class.bytes() initialised bytes (the chunk is allocated
        // zeroed) until the Block drops.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.class.bytes()) }
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in deref, and `&mut self` proves there is no other reference.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.class.bytes()) }
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({:?}, {:p})", self.class, self.pointer)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.pool.1.is_forked() {
            // A thread of the parent may have held the pool's lock.
            return;
        }
        self.pool.give_back(self.pointer, self.class, self.chunk);
    }
}

/// Number of a pool's chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(u32);

/// Bytes of one chunk: the unit in which a pool takes memory from its limit and gives it back.
pub const CHUNK_BYTES: usize = 1 << 20;

/// A pool of aligned blocks under one limit. Clones share it; any thread may drop a block.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

impl Pool {
    /// A pool that holds at most `limit_bytes`, rounded down to whole chunks, at least two (one for
    /// each class).
    pub fn new(limit_bytes: usize) -> Pool {
        let state = State { limit_chunks: (limit_bytes / CHUNK_BYTES).max(2), ..State::default() };
        Pool(Arc::new(Inner(Mutex::new(state), Lineage::here())))
    }

    /// A free block, or `None` when the limit is reached: evict something and ask again. O(1).
    pub fn take(&self, class: Class) -> Option<Block> {
        let (pointer, chunk) = self.0.state().take(class)?;
        Some(Block { pointer, class, chunk, pool: Arc::clone(&self.0) })
    }

    /// Changes the limit. Above it, no new chunk is taken; [`Pool::retire_chunk`] brings an
    /// over-full pool down.
    pub fn set_limit_bytes(&self, limit_bytes: usize) {
        self.0.state().limit_chunks = (limit_bytes / CHUNK_BYTES).max(2);
    }

    /// As if the system had no memory left, or had again: no chunk is taken meanwhile, whatever the
    /// limit. For tests and simulations.
    pub fn refuse_chunks(&self, refuses: bool) {
        self.0.state().refuses_chunks = refuses;
    }

    /// The limit in bytes.
    pub fn limit_bytes(&self) -> usize {
        self.0.state().limit_chunks * CHUNK_BYTES
    }

    /// Bytes of chunks held from the system now, used or free.
    pub fn held_bytes(&self) -> usize {
        self.0.state().held_chunks * CHUNK_BYTES
    }

    /// Bytes of blocks that are out.
    pub fn used_bytes(&self) -> usize {
        let state = self.0.state();
        state.chunks.iter().flatten().map(|chunk| chunk.used as usize * chunk.class.bytes()).sum()
    }

    /// If the pool holds more than its limit: picks the least used chunk, lends none of its blocks
    /// any more, and frees it when the last one is back. Whoever caches blocks should drop those
    /// whose [`Block::chunk`] is the one returned. O(chunks).
    pub fn retire_chunk(&self) -> Option<ChunkId> {
        self.0.state().retire_chunk().map(ChunkId)
    }

    /// Where all chunks that may be held are of the other class: retires the least used of them, so
    /// that one of this class may take its place. O(chunks).
    pub fn exchange_chunk(&self, class: Class) {
        self.0.state().exchange_chunk(class);
    }

    /// Chunks that were retired so far: a chunk that is freed leaves its number to a later one,
    /// which may be retired as well.
    pub fn retirements(&self) -> u64 {
        self.0.state().retirements
    }

    /// Whether a retired chunk waits for its last blocks.
    pub fn is_retiring(&self) -> bool {
        self.0.state().retiring > 0
    }

    /// Chunks that are retired and wait for their last blocks, in order. O(chunks).
    pub fn retiring_chunks(&self) -> Vec<ChunkId> {
        let state = self.0.state();
        let chunks = (0u32..).zip(&state.chunks);
        chunks
            .filter(|(_, chunk)| chunk.as_ref().is_some_and(|chunk| chunk.retiring))
            .map(|(number, _)| ChunkId(number))
            .collect()
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} of {} bytes)", self.held_bytes(), self.limit_bytes())
    }
}

struct Inner(Mutex<State>, Lineage);

#[derive(Default)]
struct State {
    limit_chunks: usize,
    /// See [`Pool::refuse_chunks`].
    refuses_chunks: bool,
    held_chunks: usize,
    /// By chunk number; `None` where a chunk was freed.
    chunks: Vec<Option<Chunk>>,
    /// Chunks of each class that have free blocks and are not retiring; the last one is used first.
    open: [Vec<u32>; 2],
    /// Chunks that are retired and not free yet.
    retiring: usize,
    /// Chunks that were retired so far.
    retirements: u64,
}

struct Chunk {
    memory: NonNull<u8>,
    class: Class,
    /// Blocks out.
    used: u32,
    free: Vec<u16>,
    retiring: bool,
}

// SAFETY: the chunk's memory is reached only through blocks it lent (exclusive) or under the pool's
// mutex.
unsafe impl Send for Chunk {}

impl Chunk {
    const LAYOUT: Layout = match Layout::from_size_align(CHUNK_BYTES, 4096) {
        Ok(layout) => layout,
        Err(_) => panic!("a chunk's size and alignment are powers of two"),
    };

    fn new(class: Class) -> Option<Chunk> {
        // SAFETY: LAYOUT has a non-zero size.
        let memory = NonNull::new(unsafe { std::alloc::alloc_zeroed(Self::LAYOUT) })?;
        let blocks = (CHUNK_BYTES / class.bytes()) as u16;
        Some(Chunk { memory, class, used: 0, free: (0..blocks).rev().collect(), retiring: false })
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        debug_assert_eq!(self.used, 0);
        // What a device may still reach is never used for anything else.
        if !crate::nvme::release(self.memory) {
            return;
        }
        // SAFETY: allocated in `new` with the same layout; no block of it is out (each holds an Arc
        // of the pool, and State frees a chunk only when `used` is 0).
        unsafe { std::alloc::dealloc(self.memory.as_ptr(), Self::LAYOUT) }
    }
}

impl State {
    fn take(&mut self, class: Class) -> Option<(NonNull<u8>, u32)> {
        if self.open[class as usize].is_empty() {
            self.add_chunk(class)?;
        }
        let number = *self.open[class as usize].last()?;
        let chunk = self.chunks[number as usize].as_mut()?;
        let block = chunk.free.pop()?;
        chunk.used += 1;
        if chunk.free.is_empty() {
            self.open[class as usize].pop();
        }
        // SAFETY: block < CHUNK_BYTES / class.bytes(), so the offset stays inside the chunk.
        let pointer = unsafe { chunk.memory.add(usize::from(block) * class.bytes()) };
        Some((pointer, number))
    }

    fn add_chunk(&mut self, class: Class) -> Option<()> {
        if self.refuses_chunks || self.held_chunks >= self.limit_chunks {
            return None;
        }
        let chunk = Chunk::new(class)?;
        self.held_chunks += 1;
        let number = match self.chunks.iter().position(Option::is_none) {
            Some(number) => number,
            None => {
                self.chunks.push(None);
                self.chunks.len() - 1
            }
        };
        self.chunks[number] = Some(chunk);
        self.open[class as usize].push(number as u32);
        Some(())
    }

    fn give_back(&mut self, pointer: NonNull<u8>, class: Class, number: u32) {
        let Some(chunk) = self.chunks[number as usize].as_mut() else { return };
        let offset = pointer.as_ptr() as usize - chunk.memory.as_ptr() as usize;
        chunk.free.push((offset / class.bytes()) as u16);
        chunk.used -= 1;
        if chunk.retiring {
            if chunk.used == 0 {
                self.free_chunk(number);
            }
        } else if chunk.free.len() == 1 {
            self.open[class as usize].push(number);
        }
    }

    fn retire_chunk(&mut self) -> Option<u32> {
        if self.held_chunks - self.retiring <= self.limit_chunks {
            return None;
        }
        // The last chunk of a class that is used goes last: nobody else lends such blocks.
        let counts = [Class::Page, Class::Slice].map(|class| self.serving(class).count());
        let used_bytes = |chunk: &Chunk| {
            let is_last = chunk.used > 0 && counts[chunk.class as usize] == 1;
            (is_last, chunk.used as usize * chunk.class.bytes())
        };
        let serving = self.serving(Class::Page).chain(self.serving(Class::Slice));
        let (number, _) = serving.min_by_key(|(number, chunk)| (used_bytes(chunk), *number))?;
        self.retire(number);
        Some(number)
    }

    fn exchange_chunk(&mut self, class: Class) {
        if self.retiring > 0 || self.held_chunks < self.limit_chunks || self.serving(class).next().is_some() {
            return;
        }
        let other = if class == Class::Page { Class::Slice } else { Class::Page };
        let least = self.serving(other).min_by_key(|(_, chunk)| chunk.used).map(|(number, _)| number);
        least.into_iter().for_each(|number| self.retire(number));
    }

    /// Chunks of a class that are not retiring.
    fn serving(&self, class: Class) -> impl Iterator<Item = (u32, &Chunk)> {
        let chunks = (0u32..).zip(&self.chunks).filter_map(|(number, chunk)| Some((number, chunk.as_ref()?)));
        chunks.filter(move |(_, chunk)| chunk.class == class && !chunk.retiring)
    }

    fn retire(&mut self, number: u32) {
        let Some(chunk) = self.chunks[number as usize].as_mut() else { return };
        chunk.retiring = true;
        let (class, unused) = (chunk.class, chunk.used == 0);
        self.retiring += 1;
        self.retirements += 1;
        self.open[class as usize].retain(|open| *open != number);
        if unused {
            self.free_chunk(number);
        }
    }

    fn free_chunk(&mut self, number: u32) {
        if self.chunks[number as usize].take().is_some_and(|chunk| chunk.retiring) {
            self.retiring -= 1;
        }
        self.held_chunks -= 1;
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while the lock is held cannot leave the lists half changed in a way that lends a
        // block twice.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, pointer: NonNull<u8>, class: Class, chunk: u32) {
        self.state().give_back(pointer, class, chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lends_each_block_once_and_takes_it_back() {
        let pool = Pool::new(2 * CHUNK_BYTES);
        let mut pages: Vec<Block> = std::iter::from_fn(|| pool.take(Class::Page)).collect();
        assert_eq!(pages.len(), 512, "two chunks of 256 pages");
        for (number, page) in pages.iter_mut().enumerate() {
            assert_eq!(page.as_ptr() as usize % 4096, 0);
            page.fill(number as u8);
        }
        assert!(pages.iter().enumerate().all(|(number, page)| page.iter().all(|b| *b == number as u8)));
        pages.clear();
        assert_eq!(pool.used_bytes(), 0);
        assert!(pool.take(Class::Page).is_some());
    }

    /// The pool had as many chunks as it may, all of one class, and no block of the other one was
    /// ever to be had.
    #[test]
    fn a_chunk_of_one_class_makes_room_for_one_of_the_other() {
        let pool = Pool::new(2 * CHUNK_BYTES);
        let mut pages: Vec<Block> = (0..512).map_while(|_| pool.take(Class::Page)).collect();
        assert!(pages.len() == 512 && pool.take(Class::Slice).is_none());
        pool.exchange_chunk(Class::Slice);
        let retiring = pool.retiring_chunks();
        assert!(pool.is_retiring() && retiring.len() == 1 && pool.take(Class::Slice).is_none());
        pages.retain(|page| page.chunk() != retiring[0]);
        assert!(!pool.is_retiring() && pages.len() == 256);
        assert!(pool.take(Class::Slice).is_some() && pool.held_bytes() == 2 * CHUNK_BYTES);
        // Each class has one now.
        pool.exchange_chunk(Class::Slice);
        assert!(!pool.is_retiring());
        // And keeps it, though the other one is used less.
        pool.set_limit_bytes(3 * CHUNK_BYTES);
        let slices: Vec<Block> = (0..32).map_while(|_| pool.take(Class::Slice)).collect();
        pages.truncate(1);
        pool.set_limit_bytes(2 * CHUNK_BYTES);
        let retired = pool.retire_chunk();
        assert!(retired.is_some() && slices.iter().any(|slice| Some(slice.chunk()) == retired));
    }

    #[test]
    fn what_is_stored_is_there_wherever_it_begins_and_ends() {
        let pool = Pool::new(2 * CHUNK_BYTES);
        let bytes: Vec<u8> = (0..65536u32).map(|at| (at % 251) as u8).collect();
        for (at, from, len) in [(0, 0, 65536), (1, 0, 40_000), (63, 5, 16 << 10), (64, 1, 20_001), (8, 3, 100)] {
            let mut block = pool.take(Class::Slice).unwrap();
            block.fill(0xFF);
            block.store(at, &bytes[from..from + len]);
            assert_eq!(block[at..at + len], bytes[from..from + len]);
            assert!(block[..at].iter().chain(&block[at + len..]).all(|byte| *byte == 0xFF), "{at} {from} {len}");
        }
    }

    #[test]
    fn a_retired_chunk_goes_back_when_its_last_block_does() {
        let pool = Pool::new(4 * CHUNK_BYTES);
        let mut pages: Vec<Block> = (0..1024).map_while(|_| pool.take(Class::Page)).collect();
        assert_eq!(pool.held_bytes(), 4 * CHUNK_BYTES);
        pool.set_limit_bytes(3 * CHUNK_BYTES);
        let chunk = pool.retire_chunk().expect("one chunk is over the limit");
        assert_eq!(pool.retire_chunk(), None, "one is enough");
        assert_eq!(pool.retiring_chunks(), [chunk]);
        pages.retain(|page| page.chunk() != chunk);
        assert_eq!(pool.held_bytes(), 3 * CHUNK_BYTES);
        assert!(pool.take(Class::Page).is_none());
    }
}
