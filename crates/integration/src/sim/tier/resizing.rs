//! The cap on memory goes up and down while the shard serves, and what it holds follows.

use super::World;

/// Turns after which a lower cap has been reached, once nothing else is under way: a sixteenth of
/// the memory goes in each, then chunks one by one.
const TICKS_MAX: u32 = 3000;
/// The pool keeps two chunks, of 1 MiB each, whatever its limit: below this a cap cannot count
/// them.
const POOLED_MIN: u64 = 4 << 20;

impl World<'_> {
    /// Another cap, of a quarter of what the shard was opened with to four times as much.
    pub(super) fn resize(&mut self) {
        let opened = self.machine.opening().memory_bytes;
        let bytes = match self.random.below(4) {
            0 => opened,
            1 => opened + self.random.below(3 * opened),
            _ => (opened / 4 + self.random.below(opened)).max(96 << 10),
        };
        self.set_memory(bytes);
    }

    pub(super) fn set_memory(&mut self, bytes: u64) {
        self.machine.set_memory_bytes(bytes);
        self.memory_bytes = bytes;
        self.memory_bytes_min = self.memory_bytes_min.min(bytes);
        self.statistics.resizes += 1;
    }

    /// At rest, what is held is under the cap, or soon is.
    pub(super) fn check_memory(&mut self) -> Result<(), String> {
        for _ in 0..TICKS_MAX {
            if self.held_bytes() <= self.memory_bytes {
                self.take_replies()?;
                return Ok(());
            }
            self.machine.tick(8, &mut self.random);
        }
        let (held, cap) = (self.held_bytes(), self.memory_bytes);
        Err(format!("{held} bytes are held, and the cap is {cap}"))
    }

    fn held_bytes(&self) -> u64 {
        let dram = self.machine.shard().dram_bytes();
        if self.memory_bytes < POOLED_MIN {
            return dram;
        }
        let mut found = Vec::new();
        stratakv_engine::Shard::statistics(self.machine.shard(), &mut found);
        let apart = found.iter().filter(|found| matches!(found.name, "index_bytes" | "ghost_queue_bytes"));
        dram.max(self.machine.pool().held_bytes() as u64 + apart.map(|found| found.value).sum::<u64>())
    }
}
