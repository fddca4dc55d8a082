//! Commands and completions (NVMe Base Specification 2.0, sections 3.3.3 and 5; NVM Command Set
//! Specification 1.0, section 3), as the double words that lie in a queue.

/// Bytes of a submission queue entry.
pub(crate) const COMMAND_BYTES: usize = 64;
/// Bytes of a completion queue entry.
pub(crate) const COMPLETION_BYTES: usize = 16;

/// A submission queue entry: Command Dwords 0 to 15.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Command(pub(crate) [u32; 16]);

/// Opcodes of the admin command set.
mod admin {
    pub(crate) const DELETE_IO_SUBMISSION_QUEUE: u32 = 0x00;
    pub(crate) const CREATE_IO_SUBMISSION_QUEUE: u32 = 0x01;
    pub(crate) const DELETE_IO_COMPLETION_QUEUE: u32 = 0x04;
    pub(crate) const CREATE_IO_COMPLETION_QUEUE: u32 = 0x05;
    pub(crate) const IDENTIFY: u32 = 0x06;
    pub(crate) const ABORT: u32 = 0x08;
    pub(crate) const SET_FEATURES: u32 = 0x09;
}

/// Opcodes of the NVM command set.
mod nvm {
    pub(crate) const FLUSH: u32 = 0x00;
    pub(crate) const WRITE: u32 = 0x01;
    pub(crate) const READ: u32 = 0x02;
    pub(crate) const DATASET_MANAGEMENT: u32 = 0x09;
}

/// Feature Identifier: Number of Queues.
const FEATURE_NUMBER_OF_QUEUES: u32 = 0x07;
/// Force Unit Access, in dword 12 of a write.
const FUA: u32 = 1 << 30;
/// PSDT in dword 0: the Data Pointer is an SGL.
const PSDT_SGL: u32 = 1 << 14;
/// SGL descriptor type of a last segment.
const LAST_SEGMENT: u64 = 3;
/// Attribute of Dataset Management: Deallocate.
const AD: u32 = 1 << 2;

/// What Identify tells of (Controller or Namespace Structure).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cns {
    Namespace = 0x00,
    Controller = 0x01,
}

/// A run of logical blocks of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Namespace Identifier.
    pub(crate) nsid: u32,
    /// Starting LBA.
    pub(crate) slba: u64,
    /// How many; at least 1, at most 65,536.
    pub(crate) blocks: u32,
}

/// Where a command's data lies: its Data Pointer (DPTR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataPointer {
    /// PRP Entry 1 and 2 (4.1.1).
    Prp([u64; 2]),
    /// SGL Entry 1 (4.1.2).
    Sgl(SglDescriptor),
}

/// An SGL descriptor, as two words of 64 bits.
pub(crate) type SglDescriptor = [u64; 2];

/// An SGL Data Block descriptor (4.1.2.1, figure 89): `bytes` of data at an address.
pub(crate) fn data_block(address: u64, bytes: u32) -> SglDescriptor {
    [address, bytes.into()]
}

/// An SGL Last Segment descriptor (figure 92): descriptors of `bytes` in all lie at an address.
pub(crate) fn last_segment(address: u64, bytes: u32) -> SglDescriptor {
    [address, u64::from(bytes) | LAST_SEGMENT << 60]
}

impl Command {
    fn new(opcode: u32, nsid: u32) -> Command {
        let mut command = Command::default();
        command.0[0] = opcode;
        command.0[1] = nsid;
        command
    }

    fn page(self, address: u64) -> Command {
        self.data(DataPointer::Prp([address, 0]))
    }

    fn data(mut self, pointer: DataPointer) -> Command {
        let ([one, two], psdt) = match pointer {
            DataPointer::Prp(entries) => (entries, 0),
            DataPointer::Sgl(descriptor) => (descriptor, PSDT_SGL),
        };
        self.0[0] |= psdt;
        self.set_u64(6, one);
        self.set_u64(8, two);
        self
    }

    fn set_u64(&mut self, dword: usize, value: u64) {
        self.0[dword] = value as u32;
        self.0[dword + 1] = (value >> 32) as u32;
    }

    fn of_extent(opcode: u32, extent: Extent) -> Command {
        let mut command = Command::new(opcode, extent.nsid);
        command.set_u64(10, extent.slba);
        command.0[12] = extent.blocks.saturating_sub(1) & 0xFFFF;
        command
    }

    /// Identify (5.17): 4096 bytes to `page`.
    pub(crate) fn identify(cns: Cns, nsid: u32, page: u64) -> Command {
        let mut command = Command::new(admin::IDENTIFY, nsid).page(page);
        command.0[10] = cns as u32;
        command
    }

    /// Set Features, Number of Queues (5.27.1.5): asks for `pairs` of queues.
    pub(crate) fn number_of_queues(pairs: u16) -> Command {
        let mut command = Command::new(admin::SET_FEATURES, 0);
        command.0[10] = FEATURE_NUMBER_OF_QUEUES;
        let count = u32::from(pairs.saturating_sub(1));
        command.0[11] = count << 16 | count;
        command
    }

    /// Create I/O Completion Queue (5.4): in one piece at `address`; interrupts by `vector`.
    pub(crate) fn create_completion_queue(id: u16, entries: u16, address: u64, vector: Option<u16>) -> Command {
        let mut command = Command::new(admin::CREATE_IO_COMPLETION_QUEUE, 0).page(address);
        command.0[10] = u32::from(entries.saturating_sub(1)) << 16 | u32::from(id);
        let interrupts = vector.map_or(0, |vector| u32::from(vector) << 16 | 2);
        command.0[11] = interrupts | 1;
        command
    }

    /// Create I/O Submission Queue (5.5): in one piece at `address`, completed in the queue of the
    /// same number.
    pub(crate) fn create_submission_queue(id: u16, entries: u16, address: u64) -> Command {
        let mut command = Command::new(admin::CREATE_IO_SUBMISSION_QUEUE, 0).page(address);
        command.0[10] = u32::from(entries.saturating_sub(1)) << 16 | u32::from(id);
        command.0[11] = u32::from(id) << 16 | 1;
        command
    }

    /// Delete I/O Submission Queue (5.7).
    pub(crate) fn delete_submission_queue(id: u16) -> Command {
        let mut command = Command::new(admin::DELETE_IO_SUBMISSION_QUEUE, 0);
        command.0[10] = u32::from(id);
        command
    }

    /// Delete I/O Completion Queue (5.6).
    pub(crate) fn delete_completion_queue(id: u16) -> Command {
        let mut command = Command::new(admin::DELETE_IO_COMPLETION_QUEUE, 0);
        command.0[10] = u32::from(id);
        command
    }

    /// Abort (5.1) of the command `cid` of a submission queue.
    pub(crate) fn abort(queue: u16, cid: u16) -> Command {
        let mut command = Command::new(admin::ABORT, 0);
        command.0[10] = u32::from(cid) << 16 | u32::from(queue);
        command
    }

    /// Read (NVM 3.2.4).
    pub(crate) fn read(extent: Extent, data: DataPointer) -> Command {
        Command::of_extent(nvm::READ, extent).data(data)
    }

    /// Write (NVM 3.2.6); with `fua` it completes when it is on the medium.
    pub(crate) fn write(extent: Extent, data: DataPointer, fua: bool) -> Command {
        let mut command = Command::of_extent(nvm::WRITE, extent).data(data);
        command.0[12] |= if fua { FUA } else { 0 };
        command
    }

    /// Flush (NVM 3.2.2).
    pub(crate) fn flush(nsid: u32) -> Command {
        Command::new(nvm::FLUSH, nsid)
    }

    /// Dataset Management (NVM 3.2.1): deallocates the one range that lies at `page`.
    pub(crate) fn deallocate(nsid: u32, page: u64) -> Command {
        let mut command = Command::new(nvm::DATASET_MANAGEMENT, nsid).page(page);
        command.0[11] = AD;
        command
    }

    /// Command Identifier.
    pub(crate) fn cid(&self) -> u16 {
        (self.0[0] >> 16) as u16
    }

    /// Tells of a command of the NVM command set, as an event of target `nvme`: the writes that
    /// were FUA, say, which no emulated device remembers.
    pub(crate) fn trace(&self, device: &str) {
        let [head, nsid, .., low, high, count, _, _, _] = self.0;
        let opcode = head & 0xFF;
        let has_extent = matches!(opcode, nvm::READ | nvm::WRITE);
        let (slba, blocks, fua) = match has_extent {
            true => (u64::from(high) << 32 | u64::from(low), (count & 0xFFFF) + 1, count & FUA != 0),
            false => (0, 0, false),
        };
        tracing::trace!(target: "nvme", device, nsid, opcode, slba, blocks, fua, "command");
    }

    /// The same with its identifier.
    pub(crate) fn with_cid(mut self, cid: u16) -> Command {
        self.0[0] = self.0[0] & 0xFFFF | u32::from(cid) << 16;
        self
    }
}

/// A completion queue entry (3.3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommandCompletion(pub(crate) [u32; 4]);

impl CommandCompletion {
    /// What the command answers (Dword 0).
    pub(crate) fn result(self) -> u32 {
        self.0[0]
    }

    /// SQ Head Pointer.
    pub(crate) fn sqhd(self) -> u16 {
        self.0[2] as u16
    }

    /// SQ Identifier.
    pub(crate) fn sqid(self) -> u16 {
        (self.0[2] >> 16) as u16
    }

    /// Command Identifier.
    pub(crate) fn cid(self) -> u16 {
        self.0[3] as u16
    }

    /// Status Field.
    pub(crate) fn status(self) -> u16 {
        (self.0[3] >> 17) as u16
    }
}

/// The Phase Tag in Dword 3 of a completion.
pub(crate) fn phase_tag(dword: u32) -> bool {
    dword >> 16 & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_laid_as_the_specification_says() {
        let extent = Extent { nsid: 1, slba: 0x1_2345_6789, blocks: 8 };
        let write = Command::write(extent, DataPointer::Prp([0xA_0000_1000, 0xB_0000_2000]), true).with_cid(7).0;
        assert_eq!(write[0], 7 << 16 | 1);
        assert_eq!(write[6..10], [0x1000, 0xA, 0x2000, 0xB]);
        assert_eq!(write[10..13], [0x2345_6789, 1, 1 << 30 | 7]);
        assert_eq!(Command::read(extent, DataPointer::Prp([0, 0])).0[12], 7);
        let read = Command::read(extent, DataPointer::Sgl(data_block(0xA_0000_1000, 0x1_0000))).with_cid(7).0;
        assert_eq!(read[0], 7 << 16 | 1 << 14 | 2);
        assert_eq!(read[6..10], [0x1000, 0xA, 0x1_0000, 0]);
        assert_eq!(last_segment(0x5000, 48), [0x5000, 3 << 60 | 48]);
        let queue = Command::create_completion_queue(3, 128, 0x5000, Some(3)).0;
        assert_eq!((queue[0], queue[6], queue[10], queue[11]), (5, 0x5000, 127 << 16 | 3, 3 << 16 | 3));
        assert_eq!(Command::create_submission_queue(3, 128, 0x6000).0[11], 3 << 16 | 1);
        assert_eq!(Command::number_of_queues(4).0[11], 3 << 16 | 3);
        assert_eq!(Command::abort(2, 9).0[10], 9 << 16 | 2);
    }

    #[test]
    fn a_completion_is_taken_apart() {
        let one = CommandCompletion([5, 0, 3 << 16 | 40, 0x4281 << 17 | 1 << 16 | 77]);
        assert_eq!((one.result(), one.sqhd(), one.sqid(), one.cid(), one.status()), (5, 40, 3, 77, 0x4281));
        assert!(phase_tag(one.0[3]) && !phase_tag(77));
    }
}
