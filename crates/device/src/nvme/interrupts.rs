//! Interrupts by MSI-X: each I/O queue pair has the vector of its number, and what that signals.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::nvme::Bus;

/// What each vector signals.
#[derive(Debug)]
pub(super) struct Interrupts {
    /// By vector. All are enabled from the first one on: some kernels stop all of them to enable
    /// one more.
    events: Vec<Option<OwnedFd>>,
    /// What the others signal; nobody reads it.
    nobody: OwnedFd,
}

impl Interrupts {
    /// For queue pairs 1 to `pairs`, as far as the device has vectors.
    pub(super) fn new(bus: &dyn Bus, pairs: u16) -> io::Result<Interrupts> {
        let count = usize::from(bus.vectors()).min(usize::from(pairs) + 1);
        let nobody = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Interrupts { events: (0..count).map(|_| None).collect(), nobody })
    }

    /// From now on the vector of a pair signals `event`, or nobody. Gives the vector; `None` if the
    /// device has none for it.
    pub(super) fn set(&mut self, bus: &dyn Bus, pair: u16, event: Option<OwnedFd>) -> io::Result<Option<u16>> {
        let Some(place) = self.events.get_mut(usize::from(pair)) else { return Ok(None) };
        *place = event;
        let events = self.events.iter().map(|event| Some(event.as_ref().unwrap_or(&self.nobody).as_fd()));
        bus.interrupts(&events.collect::<Vec<_>>())?;
        Ok(Some(pair))
    }
}
