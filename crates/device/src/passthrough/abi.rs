//! Commands as the kernel takes them (`linux/nvme_ioctl.h`).

use crate::nvme::command::Command;

/// A command, and where its data lies in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PassthroughCommand {
    /// Its data pointers are the kernel's to fill in.
    pub(crate) command: Command,
    /// Of the data, or of a list of pieces.
    pub(crate) address: u64,
    /// Bytes of the data, or pieces of the list.
    pub(crate) len: u32,
    /// The address is that of a list (struct iovec).
    pub(crate) is_list: bool,
}

/// Struct nvme_passthru_cmd64. The first 72 bytes are struct nvme_uring_cmd, too.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KernelCommand {
    opcode: u8,
    flags: u8,
    rsvd1: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: [u32; 6],
    /// 0: the kernel's own (`nvme_core.io_timeout`).
    timeout_ms: u32,
    rsvd2: u32,
    result: u64,
}

const KERNEL_COMMAND_BYTES: u32 = size_of::<KernelCommand>() as u32;
const URING_COMMAND_BYTES: u32 = 72;
const _: () = assert!(KERNEL_COMMAND_BYTES == 80, "as the kernel has it");

/// `_IOWR('N', number, bytes)`.
const fn read_write(number: u32, bytes: u32) -> u32 {
    3 << 30 | bytes << 16 | (b'N' as u32) << 8 | number
}

/// NVME_IOCTL_ID: gives the namespace's identifier.
pub(super) const IOCTL_ID: u32 = (b'N' as u32) << 8 | 0x40;
/// NVME_IOCTL_ADMIN64_CMD.
pub(super) const IOCTL_ADMIN: u32 = read_write(0x47, KERNEL_COMMAND_BYTES);
/// NVME_IOCTL_IO64_CMD.
const IOCTL_IO: u32 = read_write(0x48, KERNEL_COMMAND_BYTES);
/// NVME_IOCTL_IO64_CMD_VEC.
const IOCTL_IO_LIST: u32 = read_write(0x49, KERNEL_COMMAND_BYTES);
/// NVME_URING_CMD_IO.
const URING_IO: u32 = read_write(0x80, URING_COMMAND_BYTES);
/// NVME_URING_CMD_IO_VEC.
const URING_IO_LIST: u32 = read_write(0x81, URING_COMMAND_BYTES);

impl PassthroughCommand {
    /// A command with its data in one piece.
    pub(super) fn plain(command: Command, address: u64, len: u32) -> PassthroughCommand {
        PassthroughCommand { command, address, len, is_list: false }
    }

    /// For ioctl(2).
    pub(super) fn for_kernel(&self) -> KernelCommand {
        let [head, nsid, cdw2, cdw3, .., ten, eleven, twelve, thirteen, fourteen, fifteen] = self.command.0;
        KernelCommand {
            opcode: head as u8,
            nsid,
            cdw2,
            cdw3,
            addr: self.address,
            data_len: self.len,
            cdw10: [ten, eleven, twelve, thirteen, fourteen, fifteen],
            ..KernelCommand::default()
        }
    }

    /// The ioctl that it is for.
    pub(super) fn ioctl(&self) -> u32 {
        if self.is_list { IOCTL_IO_LIST } else { IOCTL_IO }
    }

    /// The operation of an io_uring entry.
    pub(super) fn operation(&self) -> u32 {
        if self.is_list { URING_IO_LIST } else { URING_IO }
    }

    /// For an io_uring entry of 128 bytes.
    pub(super) fn for_uring(&self) -> [u8; 80] {
        let KernelCommand { opcode, nsid, cdw2, cdw3, addr, data_len, cdw10, .. } = self.for_kernel();
        let mut bytes = [0; 80];
        let words = [u32::from(opcode), nsid, cdw2, cdw3, 0, 0, addr as u32, (addr >> 32) as u32, 0, data_len];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words.into_iter().chain(cdw10)) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        if cfg!(target_endian = "big") {
            // The opcode is the first byte, and the address one number.
            bytes[..4].copy_from_slice(&[opcode, 0, 0, 0]);
            bytes[24..32].copy_from_slice(&addr.to_ne_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvme::command::{Cns, DataPointer, Extent};

    #[test]
    fn numbers_are_those_of_the_kernels_header() {
        assert_eq!((IOCTL_ID, IOCTL_ADMIN), (0x4E40, 0xC050_4E47));
        assert_eq!((IOCTL_IO, IOCTL_IO_LIST), (0xC050_4E48, 0xC050_4E49));
        assert_eq!((URING_IO, URING_IO_LIST), (0xC048_4E80, 0xC048_4E81));
    }

    #[test]
    fn a_command_is_laid_as_the_kernel_has_it() {
        let extent = Extent { nsid: 3, slba: 0x1_2345_6789, blocks: 8 };
        let command = Command::write(extent, DataPointer::Prp([0, 0]), true).with_cid(9);
        let command = PassthroughCommand { command, address: 0xA_0000_1000, len: 2, is_list: true };
        let bytes = command.for_uring();
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(
            (bytes[0], bytes[1..4].iter().max(), word(4)),
            (1, Some(&0), 3),
            "no identifier: the kernel draws it"
        );
        assert_eq!(bytes[24..32], 0xA_0000_1000_u64.to_ne_bytes(), "addr");
        assert_eq!((word(32), word(36)), (0, 2), "metadata_len, data_len");
        assert_eq!([word(40), word(44), word(48)], [0x2345_6789, 1, 1 << 30 | 7], "cdw10 to cdw12");
        assert!(bytes[64..].iter().all(|byte| *byte == 0), "timeout_ms, and what is reserved");
        assert_eq!((command.operation(), command.ioctl()), (URING_IO_LIST, IOCTL_IO_LIST));
        let kernel = command.for_kernel();
        assert_eq!((kernel.opcode, kernel.nsid, kernel.addr, kernel.data_len), (1, 3, 0xA_0000_1000, 2));
        let identify = PassthroughCommand::plain(Command::identify(Cns::Controller, 0, 0), 0x1000, 4096).for_kernel();
        assert_eq!((identify.opcode, identify.cdw10[0], identify.data_len), (6, 1, 4096));
    }
}
