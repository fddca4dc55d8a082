//! Rings over simulated disks and sockets: what the runtime's drivers of one process submit to, all
//! in one thread.
//!
//! A [`World`] is a machine with its disks, its network and the rings of the process that runs on
//! it. Requests go in by [`Ring::submit`]; [`World::step`] carries out one of them, drawn by the
//! seed, and its completion comes out of the ring that asked. A [`World::crash`] ends the process:
//! its rings answer nothing any more, and what was in flight is up to the disk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stratakv_base::random::Random;
use stratakv_base::slots::Slots;
use stratakv_device::memory::{Image, MemoryRing};
use stratakv_device::{Completion, DiskRequest, NetRequest, Ring, Socket, Volume, Wait, Waker};

use crate::disk::Disk;
use crate::net::Net;

/// See the module. Clones are the same machine.
#[derive(Clone)]
pub struct World(Arc<Mutex<State>>);

struct State {
    random: Random,
    disks: Vec<(PathBuf, Disk)>,
    net: Net,
    /// Which process this is: rings of earlier ones are dead.
    life: u32,
    rings: Vec<RingState>,
    /// By a disk's tag: whose request it is.
    requests: Slots<Asked, u64>,
}

/// Where a completion goes.
#[derive(Clone, Copy)]
struct Asked {
    ring: usize,
    tag: u64,
}

#[derive(Default)]
struct RingState {
    done: Vec<Completion>,
    disk_in_flight: usize,
}

impl World {
    /// A machine without disks. Everything that happens on it is drawn from `seed`.
    pub fn new(seed: u64) -> World {
        World(Arc::new(Mutex::new(State {
            random: Random::new(seed),
            disks: Vec::new(),
            net: Net::default(),
            life: 0,
            rings: Vec::new(),
            requests: Slots::default(),
        })))
    }

    /// Adds a disk under a name.
    pub fn add_disk(&self, name: impl Into<PathBuf>, disk: Disk) {
        self.state().disks.push((name.into(), disk));
    }

    /// The volume on the disk of that name, for the requests of this machine's rings. On any other
    /// ring they fail.
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub fn volume(&self, name: impl Into<PathBuf>) -> io::Result<Arc<Volume>> {
        MemoryRing::new()?.add(name, Image::default())
    }

    /// Looks at a disk, or changes it.
    ///
    /// # Panics
    /// There is none of that name.
    pub fn with_disk<R>(&self, name: &Path, look: impl FnOnce(&mut Disk) -> R) -> R {
        look(disk(&mut self.state().disks, name))
    }

    /// The network, and the numbers it draws from: clients act through it.
    pub fn with_net<R>(&self, act: impl FnOnce(&mut Net, &mut Random) -> R) -> R {
        let state = &mut *self.state();
        act(&mut state.net, &mut state.random)
    }

    /// A ring of the process that runs now.
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub fn ring(&self) -> io::Result<SimRing> {
        let waker = MemoryRing::new()?.waker();
        let mut state = self.state();
        state.rings.push(RingState::default());
        let (number, life) = (state.rings.len() - 1, state.life);
        drop(state);
        Ok(SimRing { world: self.clone(), number, life, queued: Vec::new(), waker, in_flight: 0 })
    }

    /// One thing happens: a disk carries out a request, or bytes move on a connection. False if
    /// nothing can.
    pub fn step(&self) -> bool {
        self.state().step()
    }

    /// Requests in flight on all disks.
    pub fn disk_in_flight(&self) -> usize {
        self.state().disks.iter().map(|(_, disk)| disk.in_flight()).sum()
    }

    /// The process ends, by a power cut or by a kill. Drop what belonged to it afterwards: its
    /// rings fail from now on.
    pub fn crash(&self, power: bool) {
        let state = &mut *self.state();
        state.life += 1;
        state.rings.clear();
        state.requests.take_all();
        for (_, disk) in &mut state.disks {
            if power {
                disk.cut_power(&mut state.random);
            } else {
                disk.kill(&mut state.random);
            }
        }
        state.net.crash(&mut state.random);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // One thread only: a panic in it ends the run.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn submit_disk(&mut self, asked: Asked, volume: &Volume, request: DiskRequest) {
        let tag = self.requests.insert(asked);
        self.rings[asked.ring].disk_in_flight += 1;
        disk(&mut self.disks, volume.path()).submit(tag, request, &mut self.random);
    }

    fn step(&mut self) -> bool {
        let disks_first = self.random.below(2) == 0;
        (disks_first && self.step_disks()) || self.step_net() || (!disks_first && self.step_disks())
    }

    fn step_disks(&mut self) -> bool {
        let count = self.disks.len();
        let first = self.random.below(count as u64) as usize;
        for at in (0..count).map(|step| (first + step) % count) {
            let Some((tag, outcome)) = self.disks[at].1.complete(&mut self.random) else { continue };
            if let Some(Asked { ring, tag }) = self.requests.remove(tag) {
                self.rings[ring].disk_in_flight -= 1;
                self.rings[ring].done.push(Completion::Disk { tag, outcome });
            }
            return true;
        }
        false
    }

    fn step_net(&mut self) -> bool {
        match self.net.step(&mut self.random) {
            Some((ring, tag, Some(outcome))) => {
                self.rings[ring].done.push(Completion::Net { tag, outcome });
                true
            }
            Some((_, _, None)) => true,
            None => false,
        }
    }

    /// The thread of a ring sleeps: others act, until it has something or nothing happens any more.
    /// May end early, as any wait.
    fn wait(&mut self, ring: usize) {
        while self.rings[ring].done.is_empty() && self.random.below(16) > 0 && self.step() {}
    }
}

fn disk<'d>(disks: &'d mut [(PathBuf, Disk)], name: &Path) -> &'d mut Disk {
    match disks.iter_mut().find(|(known, _)| known == name) {
        Some((_, disk)) => disk,
        None => panic!("this machine has no disk {}", name.display()),
    }
}

/// One thread's ring on a simulated machine. It never blocks: a wait lets the machine go on for a
/// while.
pub struct SimRing {
    world: World,
    number: usize,
    life: u32,
    queued: Vec<Queued>,
    waker: Waker,
    in_flight: usize,
}

enum Queued {
    Disk(u64, Arc<Volume>, DiskRequest),
    Net(u64, NetRequest),
}

impl SimRing {
    /// The machine, unless the process has ended.
    fn alive(&self) -> Option<MutexGuard<'_, State>> {
        Some(self.world.state()).filter(|state| state.life == self.life)
    }
}

impl Ring for SimRing {
    fn disk(&mut self, tag: u64, volume: &Arc<Volume>, request: DiskRequest) {
        self.in_flight += 1;
        self.queued.push(Queued::Disk(tag, Arc::clone(volume), request));
    }

    fn net(&mut self, tag: u64, request: NetRequest) {
        self.in_flight += 1;
        self.queued.push(Queued::Net(tag, request));
    }

    fn shutdown(&mut self, socket: &Socket) {
        if let Some(mut state) = self.alive() {
            state.net.shutdown(socket);
        }
    }

    fn submit(&mut self, wait: Wait) -> io::Result<()> {
        self.waker.awake();
        let queued = std::mem::take(&mut self.queued);
        let mut guard = self.alive().ok_or_else(|| io::Error::other("the process has ended"))?;
        let state = &mut *guard;
        for request in queued {
            match request {
                Queued::Disk(tag, volume, request) => {
                    state.submit_disk(Asked { ring: self.number, tag }, &volume, request);
                }
                Queued::Net(tag, request) => state.net.submit(self.number, tag, request),
            }
        }
        if matches!(wait, Wait::For { .. }) {
            state.wait(self.number);
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let Some(mut state) = self.alive() else { return };
        let done = std::mem::take(&mut state.rings[self.number].done);
        drop(state);
        self.in_flight -= done.len();
        completions.extend(done);
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn name(&self) -> &'static str {
        "simulated"
    }
}

impl Drop for SimRing {
    fn drop(&mut self) {
        let Some(mut guard) = self.alive() else { return };
        let state = &mut *guard;
        state.net.cancel(self.number);
        while state.rings[self.number].disk_in_flight > 0 && state.step_disks() {}
        state.rings[self.number].done.clear();
    }
}

#[cfg(test)]
mod tests;
