//! The table of requests in flight.

use crate::effects::Io;

/// Hands out [`Io`] names and remembers what each request is for. O(1) each; as many slots as were
/// ever in flight at once.
#[derive(Debug)]
pub struct IoTable<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for IoTable<T> {
    fn default() -> Self {
        IoTable::new()
    }
}

impl<T> IoTable<T> {
    /// Without requests.
    pub fn new() -> Self {
        IoTable { slots: Vec::new(), free: Vec::new() }
    }

    /// Names a new request.
    pub fn start(&mut self, purpose: T) -> Io {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        entry.0 = entry.0.wrapping_add(1);
        entry.1 = Some(purpose);
        Io { slot, generation: entry.0 }
    }

    /// Takes back the purpose of a finished request; `None` if there is no such request.
    pub fn finish(&mut self, io: Io) -> Option<T> {
        let entry = self.slots.get_mut(io.slot as usize).filter(|entry| entry.0 == io.generation)?;
        let purpose = entry.1.take()?;
        self.free.push(io.slot);
        Some(purpose)
    }

    /// Requests in flight.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether none is in flight.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
