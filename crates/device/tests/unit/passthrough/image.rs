//! [`Image`]: a namespace in memory with a volatile cache, whose kernel does wrong at random.

use std::collections::BTreeSet;

use stratakv_base::random::Random;

use super::{EmulatedData, EmulatedNamespace, IDENTIFY_BYTES};

const PAGE_BYTES: usize = 4096;

/// How often something goes wrong with a command: once in so many; 0: never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quirks {
    /// Namespace Not Ready, or EAGAIN.
    pub retry: u64,
    /// Unrecovered Read Error, Write Fault.
    pub fail: u64,
    /// The kernel resets the controller and cancels it: any part of the cache is lost.
    pub reset: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Image {
    /// What reads see.
    bytes: Vec<u8>,
    /// What a power cut leaves.
    medium: Vec<u8>,
    /// Pages that are not the same in both.
    dirty: BTreeSet<usize>,
    random: Random,
    quirks: Quirks,
    /// Commands end in any order, and not at once.
    is_slow: bool,
    /// MDTS.
    mdts: u8,
    pub resets: u32,
    pub commands: u64,
}

impl Image {
    pub fn new(pages: usize, seed: u64, quirks: Quirks) -> Image {
        let bytes = vec![0; pages * PAGE_BYTES];
        Image {
            medium: bytes.clone(),
            bytes,
            dirty: BTreeSet::new(),
            random: Random::new(seed),
            quirks,
            is_slow: seed != 0,
            mdts: 1 + (seed % 4) as u8,
            resets: 0,
            commands: 0,
        }
    }

    /// The power fails, and comes back.
    pub fn lose_power(&mut self) {
        self.bytes.copy_from_slice(&self.medium);
        self.dirty.clear();
    }

    /// Nothing goes wrong from now on.
    pub fn calm_down(&mut self) {
        self.quirks = Quirks::default();
    }

    pub fn page(&self, page: usize) -> &[u8] {
        &self.bytes[page * PAGE_BYTES..][..PAGE_BYTES]
    }

    fn meets(&mut self, once_in: u64) -> bool {
        once_in > 0 && self.random.below(once_in) == 0
    }

    fn store(&mut self, page: usize) {
        let run = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
        self.medium[run.clone()].copy_from_slice(&self.bytes[run]);
        self.dirty.remove(&page);
    }

    fn reset(&mut self) -> i32 {
        self.resets += 1;
        for page in std::mem::take(&mut self.dirty) {
            let run = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
            if self.random.below(4) == 0 {
                self.store(page);
            } else {
                self.bytes[run.clone()].copy_from_slice(&self.medium[run]);
            }
        }
        -rustix::io::Errno::INTR.raw_os_error()
    }
}

impl EmulatedNamespace for Image {
    fn identify(&self) -> [[u8; IDENTIFY_BYTES]; 2] {
        let (mut controller, mut namespace) = ([0; IDENTIFY_BYTES], [0; IDENTIFY_BYTES]);
        controller[77] = self.mdts;
        controller[516] = 1;
        // Dataset Management; a volatile write cache.
        (controller[520], controller[525]) = (1 << 2, 1);
        namespace[..8].copy_from_slice(&((self.bytes.len() / 512) as u64).to_le_bytes());
        namespace[130] = 9;
        [controller, namespace]
    }

    fn next(&mut self, pending: usize) -> Option<usize> {
        if !self.is_slow {
            return Some(0);
        }
        (self.random.below(6) > 0).then(|| self.random.below(pending as u64) as usize)
    }

    fn execute(&mut self, dwords: &[u32; 16], data: &mut EmulatedData<'_>) -> i32 {
        self.commands += 1;
        if self.meets(self.quirks.retry) {
            return if self.random.below(4) == 0 { -rustix::io::Errno::AGAIN.raw_os_error() } else { 0x82 };
        }
        if self.meets(self.quirks.fail) {
            return if dwords[0] == 2 { 0x4281 } else { 0x4280 };
        }
        if self.meets(self.quirks.reset) {
            return self.reset();
        }
        let (slba, blocks) = (u64::from(dwords[11]) << 32 | u64::from(dwords[10]), (dwords[12] & 0xFFFF) as usize + 1);
        let (at, len) = (slba as usize * 512, blocks * 512);
        let pages = at / PAGE_BYTES..(at + len).div_ceil(PAGE_BYTES);
        match dwords[0] {
            0x00 => std::mem::take(&mut self.dirty).into_iter().for_each(|page| self.store(page)),
            0x01 | 0x02 if at + len > self.bytes.len() => return 0x4080,
            // Invalid Field: longer than MDTS says.
            0x01 | 0x02 if len > 4096 << self.mdts => return 0x4002,
            0x01 => {
                let written = data.read();
                if written.len() != len {
                    return 0x4004;
                }
                self.bytes[at..at + len].copy_from_slice(&written);
                self.dirty.extend(pages.clone());
                if dwords[12] >> 30 & 1 == 1 {
                    pages.for_each(|page| self.store(page));
                }
            }
            0x02 => return if data.write(&self.bytes[at..at + len]) { 0 } else { 0x4004 },
            // What it deallocates stays.
            0x09 => return if data.read().len() == 16 { 0 } else { 0x4004 },
            _ => return 0x4001,
        }
        0
    }
}
