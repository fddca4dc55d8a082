//! The table of requests in flight.

use stratakv_base::slots::Slots;

use crate::effects::Io;

/// Hands out [`Io`] names and remembers what each request is for: [`Slots`] with the words of
/// requests.
#[derive(Debug)]
pub struct IoTable<T>(Slots<T, Io>);

impl<T> Default for IoTable<T> {
    fn default() -> Self {
        IoTable::new()
    }
}

impl<T> IoTable<T> {
    /// Without requests.
    pub fn new() -> Self {
        IoTable(Slots::default())
    }

    /// Names a new request.
    #[inline]
    pub fn start(&mut self, purpose: T) -> Io {
        self.0.insert(purpose)
    }

    /// Takes back the purpose of a finished request; `None` if there is no such request.
    #[inline]
    pub fn finish(&mut self, io: Io) -> Option<T> {
        self.0.remove(io)
    }

    /// Requests in flight.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none is in flight.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
