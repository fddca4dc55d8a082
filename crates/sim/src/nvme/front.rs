//! The driver and its controller in front of a simulated disk: requests go through both, and the
//! disk sees the controller's.

use std::sync::Arc;
use std::time::Duration;

use stratakv_base::random::Random;
use stratakv_device::nvme::{Bus, Controller, EmulatedBus, IoPair, Namespace, NvmeOptions, NvmeVolume};
use stratakv_device::{Block, BlockPart, Class, DiskOutcome, DiskRequest, IoFault, Pool};

use super::controller::{Command, ControllerTraits, EmulatedController, Opcode, Quirk};
use super::transfer::{self, Run};
use crate::disk::{Disk, DiskOptions};

const PAGE_BYTES: u64 = 4096;
const TIMEOUT: Duration = Duration::from_millis(100);
/// More looks in vain: a request is never answered.
const LOOKS_MAX: u32 = 10_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct NvmeFront {
    bus: Arc<EmulatedBus<EmulatedController>>,
    volume: Arc<NvmeVolume>,
    pair: IoPair,
    /// Of the commands that the disk has, by its tags.
    commands: Vec<Option<Taken>>,
    /// Commands that complete once more, when the next one does.
    echoes: Vec<(u16, u16)>,
    /// Commands that are held back, and until when.
    late: Vec<(Duration, Command)>,
    /// The disk's side of transfers.
    pool: Pool,
    done: Vec<(u64, DiskOutcome)>,
    /// Resets that the disk knows of.
    resets: u32,
    /// Something was done wrong on purpose: requests may fail.
    pub(crate) has_misbehaved: bool,
}

#[derive(Debug)]
struct Taken {
    command: Command,
    runs: Vec<Run>,
    completes_twice: bool,
}

impl NvmeFront {
    /// A controller for a disk; of what kind is drawn from its size.
    pub(crate) fn new(options: DiskOptions) -> NvmeFront {
        let drawn = options.capacity_bytes / PAGE_BYTES;
        let lbads = if drawn.is_multiple_of(3) { 9 } else { 12 };
        let traits = ControllerTraits {
            blocks: options.capacity_bytes >> lbads,
            lbads,
            mdts: [1, 3, 4][(drawn % 3) as usize],
            queue_entries: [64, 5, 2][(drawn / 3 % 3) as usize],
            volatile_cache: options.volatile_cache,
            pairs: 2,
            sgls: (drawn / 9).is_multiple_of(2),
        };
        let bus = Arc::new(EmulatedBus::new("emulated", EmulatedController::new(traits)));
        let driver = NvmeOptions { command_timeout: TIMEOUT, depth: 32 };
        let controller = Controller::start(Arc::clone(&bus) as Arc<dyn Bus>, driver);
        let opened = controller.and_then(|controller| {
            Ok((NvmeVolume::new(&Namespace::open(&controller, 1)?), IoPair::open(&controller)?))
        });
        match opened {
            Ok((volume, pair)) => {
                let resets = bus.with(|device, _| device.resets());
                let (commands, done, pool) = (Vec::new(), Vec::new(), Pool::new(64 << 20));
                NvmeFront {
                    bus,
                    volume,
                    pair,
                    commands,
                    echoes: Vec::new(),
                    late: Vec::new(),
                    pool,
                    done,
                    resets,
                    has_misbehaved: false,
                }
            }
            Err(error) => panic!("the driver refuses the emulated controller: {error}"),
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.pair.in_flight() + self.done.len()
    }

    pub(crate) fn submit(&mut self, tag: u64, request: DiskRequest, disk: &mut Disk, random: &mut Random) {
        self.pair.submit(tag, &self.volume, request);
        self.feed(disk, random);
    }

    /// One request of the driver's ends, if it has any.
    pub(crate) fn complete(&mut self, disk: &mut Disk, random: &mut Random) -> Option<(u64, DiskOutcome)> {
        let mut looks = 0;
        if disk.is_calm() {
            self.calm_down(disk, random);
        }
        loop {
            self.bus.with(|device, _| device.advance(Duration::from_micros(50)));
            self.pair.poll(&mut self.done);
            self.hear_of_resets(disk, random);
            self.feed(disk, random);
            self.begin_late(disk, random);
            if let Some(ended) = self.done.pop() {
                return Some(ended);
            }
            if self.pair.in_flight() == 0 {
                return None;
            }
            match disk.carry_out(random) {
                Some((tag, outcome)) => self.carried_out(tag, outcome),
                // Only time brings it on.
                None => self.bus.with(|device, _| device.advance(TIMEOUT / 8)),
            }
            looks += 1;
            assert!(looks < LOOKS_MAX, "a request was never answered");
        }
    }

    /// Hands what the controller fetches to the disk.
    fn feed(&mut self, disk: &mut Disk, random: &mut Random) {
        self.pair.ring();
        while let Some(command) = self.bus.with(|device, _| device.take()) {
            match disk.draw_quirk(random) {
                Some(Quirk::Late(milliseconds)) => {
                    self.has_misbehaved = true;
                    let from = self.bus.with(|device, _| device.time());
                    self.late.push((from + Duration::from_millis(milliseconds.into()), command));
                }
                Some(quirk) if quirk != Quirk::Twice => {
                    if matches!(quirk, Quirk::Lost { .. } | Quirk::Fatal) {
                        self.late.push((Duration::MAX, command));
                    }
                    tracing::debug!(?quirk, cid = command.cid(), "the controller misbehaves");
                    self.has_misbehaved |= quirk != Quirk::NotReady;
                    self.bus.with(|device, memory| device.misbehave(&command, quirk, memory));
                }
                quirk => self.begin(command, quirk.is_some(), disk, random),
            }
        }
    }

    /// Nothing is to go wrong from now on: what was lost or held back is done.
    fn calm_down(&mut self, disk: &mut Disk, random: &mut Random) {
        self.echoes.clear();
        let lost = self.bus.with(|device, _| device.mend());
        for (from, command) in std::mem::take(&mut self.late) {
            // One that was aborted has ended.
            if from != Duration::MAX || lost.contains(&(command.queue, command.cid())) {
                self.begin(command, false, disk, random);
            }
        }
    }

    /// What was held back is begun when its time has come.
    fn begin_late(&mut self, disk: &mut Disk, random: &mut Random) {
        let now = self.bus.with(|device, _| device.time());
        while let Some(at) = self.late.iter().position(|(from, _)| *from <= now) {
            let (_, command) = self.late.swap_remove(at);
            self.begin(command, false, disk, random);
        }
    }

    fn begin(&mut self, command: Command, completes_twice: bool, disk: &mut Disk, random: &mut Random) {
        let Some((request, runs)) = self.request(&command) else {
            return self.bus.with(|device, memory| device.complete(command.queue, command.cid(), 0x04, memory));
        };
        self.has_misbehaved |= completes_twice;
        let taken = Taken { command, runs, completes_twice };
        let free = self.commands.iter().position(Option::is_none).unwrap_or(self.commands.len());
        if free == self.commands.len() {
            self.commands.push(None);
        }
        self.commands[free] = Some(taken);
        disk.accept(free as u64, request, random);
    }

    /// What a command asks of the disk; `None` if its data lies nowhere.
    fn request(&self, command: &Command) -> Option<(DiskRequest, Vec<Run>)> {
        let lbads = self.bus.with(|device, _| device.traits().lbads);
        let (mut offset, mut len) = (command.slba() << lbads, command.blocks() << lbads);
        let runs = |len: u64| self.bus.with(|_, memory| transfer::runs(command, len as usize, memory));
        Some(match command.opcode()? {
            Opcode::Flush => (DiskRequest::Flush, Vec::new()),
            Opcode::Write => {
                let (runs, mut block) = (runs(len)?, self.block()?);
                let data = block.get_mut(..len as usize)?;
                if !self.bus.with(|_, memory| transfer::gather(&runs, data, memory)) {
                    return None;
                }
                let parts = vec![BlockPart { block: Arc::new(block), start: 0, len: len as u32 }];
                (DiskRequest::Write { offset, parts, durable: command.fua() }, runs)
            }
            Opcode::Read => (DiskRequest::Read { offset, block: self.block()?, len: len as u32 }, runs(len)?),
            Opcode::DatasetManagement | Opcode::WriteZeroes => {
                if command.opcode() == Some(Opcode::DatasetManagement) {
                    let mut range = [0; 16];
                    if !self.bus.with(|_, memory| memory.read(command.data_pointer()[0], &mut range)) {
                        return None;
                    }
                    let blocks = u32::from_le_bytes(range[4..8].try_into().ok()?);
                    (offset, len) =
                        (u64::from_le_bytes(range[8..].try_into().ok()?) << lbads, u64::from(blocks) << lbads);
                }
                (DiskRequest::Discard { offset, len }, Vec::new())
            }
        })
    }

    fn block(&self) -> Option<Block> {
        self.pool.take(Class::Slice)
    }

    /// The disk has done a command.
    fn carried_out(&mut self, tag: u64, outcome: DiskOutcome) {
        let Some(taken) = self.commands.get_mut(tag as usize).and_then(Option::take) else { return };
        let Taken { command, runs, completes_twice } = taken;
        let (result, failed) = match &outcome {
            DiskOutcome::Read(block, result) => {
                self.bus.with(|_, memory| transfer::scatter(&runs, block, memory));
                (*result, 0x281)
            }
            DiskOutcome::Write(result) | DiskOutcome::Discard(result) => (*result, 0x280),
            DiskOutcome::Flush(result) | DiskOutcome::Allocate(result) => (*result, 0x4006),
        };
        let status = match result {
            Ok(()) => 0,
            Err(IoFault::Full) => 0x81,
            Err(IoFault::Short) => 0x80,
            Err(IoFault::Os(_)) => failed,
        };
        self.bus.with(|device, memory| {
            device.complete(command.queue, command.cid(), status, memory);
            // Those of earlier commands: meanwhile others may have their slots.
            for (queue, cid) in self.echoes.drain(..) {
                device.complete_again(queue, cid, memory);
            }
        });
        if completes_twice {
            self.echoes.push((command.queue, command.cid()));
        }
    }

    /// A reset forgets commands, of which any part may be done, and may lose what the cache held.
    fn hear_of_resets(&mut self, disk: &mut Disk, random: &mut Random) {
        let resets = self.bus.with(|device, _| device.resets());
        if resets != self.resets {
            self.resets = resets;
            self.commands.clear();
            self.echoes.clear();
            self.late.clear();
            disk.reset(random);
        }
    }
}

impl Drop for NvmeFront {
    /// The process is gone, and what it had asked for.
    fn drop(&mut self) {
        self.bus.with(|device, _| device.remove());
    }
}
