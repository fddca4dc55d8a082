//! The system calls of VFIO (`<linux/vfio.h>`), and the answers of variable length that some give.

#![expect(unsafe_code, reason = "ioctl takes addresses")]

use std::ffi::CStr;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use vfio_bindings::bindings::vfio::{
    VFIO_BASE, VFIO_TYPE, vfio_group_status, vfio_info_cap_header, vfio_iommu_type1_dma_map,
    vfio_iommu_type1_dma_unmap, vfio_irq_info,
};

/// Answers with capabilities have a few hundred bytes; a kernel that wants more is not believed.
const INFO_MAX_BYTES: usize = 64 << 10;
/// Capabilities in one answer.
const CAPABILITIES_MAX: usize = 64;

/// A request without a direction in its number: `_IO(VFIO_TYPE, VFIO_BASE + number)`.
const fn request(number: u8) -> libc::Ioctl {
    ((VFIO_TYPE as libc::Ioctl) << 8) | (VFIO_BASE as libc::Ioctl + number as libc::Ioctl)
}

/// Requests whose argument is a number, or none.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plain {
    GetApiVersion,
    CheckExtension(u32),
    SetIommu(u32),
    DeviceReset,
}

/// Does a plain request; what it returns.
pub(super) fn plain(file: BorrowedFd<'_>, what: Plain) -> io::Result<i32> {
    let (number, argument) = match what {
        Plain::GetApiVersion => (0, 0),
        Plain::CheckExtension(extension) => (1, extension),
        Plain::SetIommu(kind) => (2, kind),
        Plain::DeviceReset => (11, 0),
    };
    // SAFETY: the argument is a number, not an address.
    result(unsafe { libc::ioctl(file.as_raw_fd(), request(number), libc::c_ulong::from(argument)) })
}

/// VFIO_GROUP_GET_STATUS: its flags.
pub(super) fn group_flags(group: BorrowedFd<'_>) -> io::Result<u32> {
    let mut status = vfio_group_status { argsz: size_of::<vfio_group_status>() as u32, flags: 0 };
    // SAFETY: the structure of this request, with its length in it.
    result(unsafe { libc::ioctl(group.as_raw_fd(), request(3), &raw mut status) })?;
    Ok(status.flags)
}

/// VFIO_GROUP_SET_CONTAINER.
pub(super) fn set_container(group: BorrowedFd<'_>, container: BorrowedFd<'_>) -> io::Result<()> {
    let mut descriptor: i32 = container.as_raw_fd();
    // SAFETY: the request reads one descriptor from there.
    result(unsafe { libc::ioctl(group.as_raw_fd(), request(4), &raw mut descriptor) }).map(drop)
}

/// VFIO_GROUP_GET_DEVICE_FD.
pub(super) fn device_descriptor(group: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the request reads a text up to its zero.
    let descriptor = result(unsafe { libc::ioctl(group.as_raw_fd(), request(6), name.as_ptr()) })?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// VFIO_DEVICE_GET_IRQ_INFO: interrupts of the kind `index`, and whether eventfds can have them.
pub(super) fn irq_info(device: BorrowedFd<'_>, index: u32) -> io::Result<(u32, u32)> {
    let mut info = vfio_irq_info { argsz: size_of::<vfio_irq_info>() as u32, flags: 0, index, count: 0 };
    // SAFETY: the structure of this request, with its length in it.
    result(unsafe { libc::ioctl(device.as_raw_fd(), request(9), &raw mut info) })?;
    Ok((info.flags, info.count))
}

/// VFIO_DEVICE_SET_IRQS with `vfio_irq_set` as words: flags, index, start, count, then the data.
pub(super) fn set_irqs(device: BorrowedFd<'_>, words: [u32; 4], data: &[i32]) -> io::Result<()> {
    let mut set = vec![((5 + data.len()) * 4) as u32];
    set.extend_from_slice(&words);
    set.extend(data.iter().map(|descriptor| descriptor.cast_unsigned()));
    // SAFETY: `argsz`, the four words of the structure, and as many descriptors as `argsz` has room
    // for; only read.
    result(unsafe { libc::ioctl(device.as_raw_fd(), request(10), set.as_ptr()) }).map(drop)
}

/// VFIO_IOMMU_MAP_DMA.
///
/// # Safety
/// `map.vaddr` and `map.size` are memory that stays valid until it is unmapped; the device may
/// write to it.
pub(super) unsafe fn map_dma(container: BorrowedFd<'_>, map: &vfio_iommu_type1_dma_map) -> io::Result<()> {
    // SAFETY: the structure of this request, with its length in it; the rest is the caller's.
    result(unsafe { libc::ioctl(container.as_raw_fd(), request(13), std::ptr::from_ref(map)) }).map(drop)
}

/// VFIO_IOMMU_UNMAP_DMA: how many bytes were unmapped.
pub(super) fn unmap_dma(container: BorrowedFd<'_>, iova: u64, size: u64) -> io::Result<u64> {
    let mut unmap = vfio_iommu_type1_dma_unmap {
        argsz: size_of::<vfio_iommu_type1_dma_unmap>() as u32,
        iova,
        size,
        ..Default::default()
    };
    // SAFETY: the structure of this request, with its length in it. Taking memory away from the
    // device endangers none.
    result(unsafe { libc::ioctl(container.as_raw_fd(), request(14), &raw mut unmap) })?;
    Ok(unmap.size)
}

/// Requests that answer with a structure, and capabilities behind it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Info {
    Device,
    Region(u32),
    Iommu,
}

/// An answer; its fields are read by their places, checked.
#[derive(Debug)]
pub(super) struct Answer {
    words: Vec<u32>,
}

/// Asks, and asks again with as much room as the kernel wants.
pub(super) fn info(file: BorrowedFd<'_>, what: Info, bytes: usize) -> io::Result<Answer> {
    let number = match what {
        Info::Device => 7,
        Info::Region(_) => 8,
        Info::Iommu => 12,
    };
    let mut room = bytes;
    loop {
        let mut words = vec![0_u32; room.div_ceil(4)];
        if let Some(argsz) = words.first_mut() {
            *argsz = room as u32;
        }
        if let (Info::Region(index), Some(word)) = (what, words.get_mut(2)) {
            *word = index;
        }
        // SAFETY: the kernel reads how much room there is from the first word, and writes no more.
        result(unsafe { libc::ioctl(file.as_raw_fd(), request(number), words.as_mut_ptr()) })?;
        let wanted = words.first().map_or(0, |word| *word as usize);
        if wanted <= room {
            return Ok(Answer { words });
        }
        if wanted > INFO_MAX_BYTES {
            return Err(io::Error::other("the kernel's answer is too long"));
        }
        room = wanted;
    }
}

impl Answer {
    #[cfg(test)]
    pub(super) fn of(words: Vec<u32>) -> Answer {
        Answer { words }
    }

    /// The field of 32 bits at byte `at`.
    pub(super) fn u32(&self, at: usize) -> Option<u32> {
        self.words.get(at / 4).copied().filter(|_| at.is_multiple_of(4))
    }

    /// The field of 64 bits at byte `at`.
    pub(super) fn u64(&self, at: usize) -> Option<u64> {
        let [low, high] = [at, at.checked_add(4)?].map(|at| self.u32(at).map(u64::from));
        let [first, second] = if cfg!(target_endian = "little") { [low?, high?] } else { [high?, low?] };
        Some(first | second << 32)
    }

    /// Where the capability `id` begins, in the chain that begins at `first` (0: no chain).
    pub(super) fn capability(&self, first: u32, id: u16) -> Option<usize> {
        let mut at = first as usize;
        for _ in 0..CAPABILITIES_MAX {
            if at == 0 {
                return None;
            }
            // The identification is the first half of the first word, whatever the byte order.
            let head = self.u32(at + offset_of!(vfio_info_cap_header, id))?.to_ne_bytes();
            let [one, two, ..] = head;
            if u16::from_ne_bytes([one, two]) == id {
                return Some(at);
            }
            at = self.u32(at + offset_of!(vfio_info_cap_header, next))? as usize;
        }
        None
    }

    /// Pairs of 64 bits: `count` (as the kernel says) from byte `at` on, those that are there.
    pub(super) fn pairs(&self, at: usize, count: u32) -> Vec<(u64, u64)> {
        let places = (0..count as usize).map_while(|index| at.checked_add(index.checked_mul(16)?));
        places.map_while(|at| Some((self.u64(at)?, self.u64(at.checked_add(8)?)?))).collect()
    }
}

fn result(code: i32) -> io::Result<i32> {
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_requests_are_those_of_the_header() {
        assert_eq!((request(0), request(13)), (0x3b64, 0x3b71));
    }

    #[test]
    fn a_capability_is_found_in_its_chain() {
        // Two capabilities: id 9 at byte 8, then id 1 at byte 24, of two pairs.
        let words = vec![80, 0, 9, 24, 0, 0, 1 | 1 << 16, 0, 2, 0, 5, 0, 6, 1, 7, 0, 8, 0];
        let answer = Answer::of(words);
        assert_eq!(
            (answer.capability(8, 1), answer.capability(8, 9), answer.capability(8, 2)),
            (Some(24), Some(8), None)
        );
        assert_eq!(answer.capability(0, 1), None);
        assert_eq!(answer.pairs(40, 2), [(5, 6 | 1 << 32), (7, 8)]);
        assert_eq!((answer.pairs(40, u32::MAX).len(), answer.pairs(usize::MAX - 4, 3).len()), (2, 0));
    }

    #[test]
    fn a_chain_that_goes_round_or_out_ends() {
        assert_eq!(Answer::of(vec![0, 0, 5, 8]).capability(8, 1), None);
        assert_eq!(Answer::of(vec![0, 0, 5, 4096]).capability(8, 1), None);
        assert_eq!(Answer::of(vec![0, 0, 5, 6]).capability(8, 1), None);
        assert_eq!(Answer::of(vec![0, 0, 5, 3]).capability(u32::MAX, 1), None);
    }
}
