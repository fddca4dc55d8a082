//! Registers, queues and admin commands (NVMe Base Specification 2.0, sections 3.1.3, 3.3 and 5).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use stratakv_device::nvme::{DeviceMemory, EmulatedDevice, IDENTIFY_BYTES};

const CAP: usize = 0x00;
const VS: usize = 0x08;
const CC: usize = 0x14;
const CSTS: usize = 0x1C;
const AQA: usize = 0x24;
const ASQ: usize = 0x28;
const ACQ: usize = 0x30;
const DOORBELLS: usize = 0x1000;

/// What kind of controller it is.
#[derive(Clone, Copy, Debug)]
pub struct ControllerTraits {
    /// Size of namespace 1, in logical blocks.
    pub blocks: u64,
    /// LBADS: a logical block has 2 to the power of this many bytes.
    pub lbads: u8,
    /// MDTS: a transfer has at most 4096 times 2 to the power of this many bytes; 0: no limit.
    pub mdts: u8,
    /// Entries of a queue at most; at least 2.
    pub queue_entries: u32,
    /// A volatile write cache.
    pub volatile_cache: bool,
    /// I/O queue pairs.
    pub pairs: u16,
    /// SGLS: takes scatter gather lists.
    pub sgls: bool,
}

impl Default for ControllerTraits {
    fn default() -> ControllerTraits {
        ControllerTraits {
            blocks: 1 << 20,
            lbads: 12,
            mdts: 4,
            queue_entries: 64,
            volatile_cache: true,
            pairs: 4,
            sgls: true,
        }
    }
}

/// What it does wrong, once each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quirk {
    /// The command is never completed. An abort of it succeeds, or changes nothing.
    Lost {
        /// Whether it can be aborted.
        abortable: bool,
    },
    /// It is done after this many milliseconds: perhaps too late.
    Late(u16),
    /// Namespace Not Ready: the same command may succeed later.
    NotReady,
    /// Its completion comes twice.
    Twice,
    /// CSTS.CFS.
    Fatal,
    /// The device is removed.
    Gone,
    /// Its completion names a command that is not in flight.
    UnknownCommand,
    /// Its completion has a submission queue head that is out of range.
    WrongHead,
}

/// Opcodes of the NVM command set that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// 00h.
    Flush,
    /// 01h.
    Write,
    /// 02h.
    Read,
    /// 08h.
    WriteZeroes,
    /// 09h.
    DatasetManagement,
}

/// A command that was fetched from an I/O queue.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// The submission queue's number.
    pub queue: u16,
    /// Command Dwords 0 to 15.
    pub dwords: [u32; 16],
}

impl Command {
    /// Command Identifier.
    pub fn cid(&self) -> u16 {
        (self.dwords[0] >> 16) as u16
    }

    /// What it is; `None`: an opcode that is not taken.
    pub fn opcode(&self) -> Option<Opcode> {
        Some(match self.dwords[0] & 0xFF {
            0x00 => Opcode::Flush,
            0x01 => Opcode::Write,
            0x02 => Opcode::Read,
            0x08 => Opcode::WriteZeroes,
            0x09 => Opcode::DatasetManagement,
            _ => return None,
        })
    }

    /// Starting LBA.
    pub fn slba(&self) -> u64 {
        u64::from(self.dwords[10]) | u64::from(self.dwords[11]) << 32
    }

    /// Number of Logical Blocks.
    pub fn blocks(&self) -> u64 {
        u64::from(self.dwords[12] & 0xFFFF) + 1
    }

    /// Force Unit Access.
    pub fn fua(&self) -> bool {
        self.dwords[12] >> 30 & 1 == 1
    }

    /// Whether its Data Pointer is an SGL (PSDT).
    pub fn has_sgl(&self) -> bool {
        self.dwords[0] >> 14 & 3 != 0
    }

    /// Its Data Pointer: PRP Entries 1 and 2, or an SGL descriptor.
    pub fn data_pointer(&self) -> [u64; 2] {
        [6, 8].map(|at| u64::from(self.dwords[at]) | u64::from(self.dwords[at + 1]) << 32)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Submissions {
    base: u64,
    entries: u32,
    head: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Completions {
    base: u64,
    entries: u32,
    tail: u32,
    /// The phase tag of this round.
    phase: bool,
    /// Told by the driver.
    head: u32,
    /// Its interrupt, if the driver wants one.
    vector: Option<u16>,
}

/// See [the module](super).
#[derive(Debug)]
pub struct EmulatedController {
    traits: ControllerTraits,
    registers: BTreeMap<usize, u32>,
    submissions: BTreeMap<u16, Submissions>,
    completions: BTreeMap<u16, Completions>,
    /// I/O commands that were fetched and nobody has taken.
    fetched: VecDeque<Command>,
    /// Commands that will never complete: queue, identifier, whether they can be aborted.
    lost: Vec<(u16, u16, bool)>,
    resets: u32,
    is_gone: bool,
    now: Duration,
    /// Doorbells written so far.
    doorbells: u64,
}

impl EmulatedController {
    /// A controller that waits to be enabled.
    pub fn new(traits: ControllerTraits) -> EmulatedController {
        EmulatedController {
            traits,
            registers: BTreeMap::new(),
            submissions: BTreeMap::new(),
            completions: BTreeMap::new(),
            fetched: VecDeque::new(),
            lost: Vec::new(),
            resets: 0,
            is_gone: false,
            now: Duration::ZERO,
            doorbells: 0,
        }
    }

    /// What it is.
    pub fn traits(&self) -> ControllerTraits {
        self.traits
    }

    /// Times that it was taken out of service while it had queues.
    pub fn resets(&self) -> u32 {
        self.resets
    }

    /// Doorbells written so far.
    pub fn doorbells(&self) -> u64 {
        self.doorbells
    }

    /// The time that has passed.
    pub fn time(&self) -> Duration {
        self.now
    }

    /// Time passes.
    pub fn advance(&mut self, by: Duration) {
        self.now += by;
    }

    /// Takes the next I/O command.
    pub fn take(&mut self) -> Option<Command> {
        self.fetched.pop_front()
    }

    /// Does something wrong in place of a command.
    pub fn misbehave(&mut self, command: &Command, quirk: Quirk, memory: &DeviceMemory) {
        let (queue, cid) = (command.queue, command.cid());
        match quirk {
            Quirk::Lost { abortable } => self.lost.push((queue, cid, abortable)),
            // For who has the medium to do.
            Quirk::Late(_) => {}
            Quirk::NotReady => self.complete(queue, cid, 0x82, memory),
            Quirk::Twice => {
                self.complete(queue, cid, 0, memory);
                self.complete_again(queue, cid, memory);
            }
            Quirk::Fatal => {
                self.lost.push((queue, cid, false));
                self.registers.insert(CSTS, self.register(CSTS) | 2);
            }
            Quirk::Gone => self.remove(),
            Quirk::UnknownCommand => self.complete(queue, 0x3FF, 0, memory),
            Quirk::WrongHead => self.post(queue, cid, 0, 0, Some(0xFFFF), memory),
        }
    }

    /// Nothing is wrong with it any more. Gives the commands that were lost, by queue and
    /// identifier: they may complete.
    pub fn mend(&mut self) -> Vec<(u16, u16)> {
        self.registers.insert(CSTS, self.register(CSTS) & !2);
        self.lost.drain(..).map(|(queue, cid, _)| (queue, cid)).collect()
    }

    /// The device is pulled out.
    pub fn remove(&mut self) {
        self.is_gone = true;
        self.forget();
    }

    /// Completes a command once more, if that takes no room from others.
    pub fn complete_again(&mut self, queue: u16, cid: u16, memory: &DeviceMemory) {
        let has_room = |queue: &Completions| (1..=2).all(|more| (queue.tail + more) % queue.entries != queue.head);
        if self.completions.get(&queue).is_some_and(has_room) {
            self.complete(queue, cid, 0, memory);
        }
    }

    /// Completes a command with a status field (0: success).
    pub fn complete(&mut self, queue: u16, cid: u16, status: u16, memory: &DeviceMemory) {
        self.post(queue, cid, status, 0, None, memory);
    }

    fn post(&mut self, queue: u16, cid: u16, status: u16, result: u32, head: Option<u32>, memory: &DeviceMemory) {
        let sqhd = self.submissions.get(&queue).map_or(0, |queue| queue.head);
        let Some(completions) = self.completions.get_mut(&queue) else { return };
        let next = (completions.tail + 1) % completions.entries;
        assert!(next != completions.head, "the driver lets completion queue {queue} overflow");
        let at = completions.base + u64::from(completions.tail) * 16;
        let mut words = [result, 0, head.unwrap_or(sqhd) | u32::from(queue) << 16, 0].map(u32::to_le_bytes);
        words[3] = (u32::from(cid) | u32::from(completions.phase) << 16 | u32::from(status) << 17).to_le_bytes();
        let was_told = memory.write(at, &words.concat());
        assert!(was_told, "completion queue {queue} lies nowhere");
        completions.tail = next;
        completions.phase ^= next == 0;
        completions.vector.into_iter().for_each(|vector| memory.interrupt(vector));
    }

    fn register(&self, at: usize) -> u32 {
        self.registers.get(&at).copied().unwrap_or(0)
    }

    fn register_u64(&self, at: usize) -> u64 {
        u64::from(self.register(at)) | u64::from(self.register(at + 4)) << 32
    }

    fn forget(&mut self) {
        self.submissions.clear();
        self.completions.clear();
        self.fetched.clear();
        self.lost.clear();
    }

    fn configure(&mut self, value: u32) {
        let was_enabled = self.register(CC) & 1 == 1;
        self.registers.insert(CC, value);
        if value & 1 == 0 {
            self.resets += u32::from(was_enabled);
            self.registers.insert(CSTS, 0);
            return self.forget();
        }
        if !was_enabled {
            let attributes = self.register(AQA);
            let entries = |shift: u32| (attributes >> shift & 0xFFF) + 1;
            let (submissions, completions) = (self.register_u64(ASQ), self.register_u64(ACQ));
            self.submissions.insert(0, Submissions { base: submissions, entries: entries(0), head: 0 });
            let fresh = Completions { base: completions, entries: entries(16), phase: true, ..Completions::default() };
            self.completions.insert(0, fresh);
            self.registers.insert(CSTS, 1);
        }
        if value >> 14 & 3 != 0 {
            // Shutdown Status: complete.
            self.registers.insert(CSTS, self.register(CSTS) | 2 << 2);
        }
    }

    fn ring(&mut self, queue: u16, tail: u32, memory: &DeviceMemory) {
        let Some(submissions) = self.submissions.get_mut(&queue) else { return };
        if tail >= submissions.entries {
            self.registers.insert(CSTS, self.register(CSTS) | 2);
            return;
        }
        let mut commands = Vec::new();
        while submissions.head != tail {
            let mut bytes = [0; 64];
            let was_read = memory.read(submissions.base + u64::from(submissions.head) * 64, &mut bytes);
            assert!(was_read, "submission queue {queue} lies nowhere");
            let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap_or_default()));
            let mut dwords = [0; 16];
            dwords.iter_mut().zip(words).for_each(|(place, word)| *place = word);
            commands.push(Command { queue, dwords });
            submissions.head = (submissions.head + 1) % submissions.entries;
        }
        for command in commands {
            if queue == 0 { self.administrate(&command, memory) } else { self.fetched.push_back(command) }
        }
    }

    fn administrate(&mut self, command: &Command, memory: &DeviceMemory) {
        let (status, result) = self.admin_command(command, memory);
        self.post(0, command.cid(), status, result, None, memory);
    }

    /// The status field and Dword 0 of the completion.
    fn admin_command(&mut self, command: &Command, memory: &DeviceMemory) -> (u16, u32) {
        let [prp, _] = command.data_pointer();
        let (ten, eleven) = (command.dwords[10], command.dwords[11]);
        let (id, entries) = (ten as u16, (ten >> 16) + 1);
        match command.dwords[0] & 0xFF {
            // Delete I/O Submission Queue, Delete I/O Completion Queue.
            0x00 if self.submissions.remove(&id).is_some() => (0, 0),
            0x04 if self.completions.remove(&id).is_some() => (0, 0),
            0x00 | 0x04 => (0x101, 0),
            // Create I/O Submission Queue, Create I/O Completion Queue.
            0x01 | 0x05 if id == 0 || id > self.traits.pairs => (0x101, 0),
            0x01 | 0x05 if entries < 2 || entries > self.traits.queue_entries => (0x102, 0),
            0x01 if !self.completions.contains_key(&((eleven >> 16) as u16)) => (0x100, 0),
            0x01 => {
                self.submissions.insert(id, Submissions { base: prp, entries, head: 0 });
                (0, 0)
            }
            0x05 => {
                let vector = (eleven >> 1 & 1 == 1).then_some((eleven >> 16) as u16);
                let fresh = Completions { base: prp, entries, phase: true, vector, ..Completions::default() };
                self.completions.insert(id, fresh);
                (0, 0)
            }
            0x06 => (self.identify(ten & 0xFF, command.dwords[1], prp, memory), 0),
            0x08 => (0, self.abort((ten & 0xFFFF) as u16, (ten >> 16) as u16, memory)),
            // Set Features, Number of Queues.
            0x09 if ten & 0xFF == 7 => {
                let count = u32::from(self.traits.pairs - 1).min(eleven & 0xFFFF);
                (0, count << 16 | count)
            }
            _ => (0x01, 0),
        }
    }

    /// 0 if the command was aborted, 1 if not.
    fn abort(&mut self, queue: u16, cid: u16, memory: &DeviceMemory) -> u32 {
        let found = self.lost.iter().position(|(of, lost, can)| (*of, *lost) == (queue, cid) && *can);
        let Some(found) = found else { return 1 };
        self.lost.swap_remove(found);
        self.complete(queue, cid, 0x07, memory);
        0
    }

    fn identify(&self, cns: u32, nsid: u32, page: u64, memory: &DeviceMemory) -> u16 {
        let traits = self.traits;
        let mut bytes = [0; IDENTIFY_BYTES];
        match (cns, nsid) {
            (1, _) => {
                bytes[4..24].copy_from_slice(b"EMULATED            ");
                bytes[24..32].copy_from_slice(b"StrataKV");
                bytes[77] = traits.mdts;
                bytes[516] = 1;
                bytes[520] = 0b1100;
                bytes[536] = u8::from(traits.sgls);
                bytes[525] = u8::from(traits.volatile_cache);
            }
            (0, 1) => {
                bytes[..8].copy_from_slice(&traits.blocks.to_le_bytes());
                bytes[130] = traits.lbads;
            }
            _ => return 0x0B,
        }
        if memory.write(page, &bytes) { 0 } else { 0x04 }
    }
}

impl EmulatedDevice for EmulatedController {
    fn read_register(&mut self, offset: usize) -> u32 {
        if self.is_gone {
            return u32::MAX;
        }
        match offset {
            // Maximum Queue Entries Supported; a timeout of 1 s.
            CAP => (self.traits.queue_entries - 1) & 0xFFFF | 2 << 24,
            // The NVM command set; a stride of 4 bytes.
            0x04 => 1 << 5,
            VS => 0x0002_0000,
            other => self.register(other),
        }
    }

    fn write_register(&mut self, offset: usize, value: u32, memory: &DeviceMemory) {
        match offset {
            _ if self.is_gone => {}
            CC => self.configure(value),
            DOORBELLS.. => {
                self.doorbells += 1;
                let index = (offset - DOORBELLS) / 4;
                let queue = (index / 2) as u16;
                if index.is_multiple_of(2) {
                    self.ring(queue, value, memory);
                } else if let Some(completions) = self.completions.get_mut(&queue) {
                    completions.head = value;
                }
            }
            _ => _ = self.registers.insert(offset, value),
        }
    }

    fn reset(&mut self) -> bool {
        self.configure(0);
        true
    }

    fn now(&mut self) -> Duration {
        self.now
    }

    fn pause(&mut self, _memory: &DeviceMemory) {
        self.now += Duration::from_millis(1);
    }
}
