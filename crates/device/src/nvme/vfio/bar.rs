//! [`Bar`]: the registers of a controller (BAR 0), mapped where the kernel lets them be mapped.

#![expect(unsafe_code, reason = "registers are mapped, and accessed as volatile memory")]

use std::fs::File;
use std::io;
use std::mem::{offset_of, size_of};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use vfio_bindings::bindings::vfio::{
    VFIO_REGION_INFO_CAP_SPARSE_MMAP, VFIO_REGION_INFO_FLAG_CAPS, VFIO_REGION_INFO_FLAG_MMAP, vfio_region_info,
    vfio_region_info_cap_sparse_mmap,
};

use super::calls::{Answer, Info, info};

const PAGE_BYTES: u64 = 4096;

/// A region of a VFIO device: where it lies in the device's file, and which parts can be mapped.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) mappable: Vec<Range<u64>>,
}

impl Region {
    /// VFIO_DEVICE_GET_REGION_INFO.
    pub(super) fn ask(device: &File, index: u32) -> io::Result<Region> {
        let answer = info(device.as_fd(), Info::Region(index), size_of::<vfio_region_info>())?;
        Region::parse(&answer).ok_or_else(|| io::Error::other("the kernel's answer is cut off"))
    }

    fn parse(answer: &Answer) -> Option<Region> {
        let flags = answer.u32(offset_of!(vfio_region_info, flags))?;
        let bytes = answer.u64(offset_of!(vfio_region_info, size))?;
        let offset = answer.u64(offset_of!(vfio_region_info, offset))?;
        let first = if flags & VFIO_REGION_INFO_FLAG_CAPS != 0 {
            answer.u32(offset_of!(vfio_region_info, cap_offset))?
        } else {
            0
        };
        // Without the list, all of it; with it, only what it names (not the table of MSI-X).
        let areas = match answer.capability(first, VFIO_REGION_INFO_CAP_SPARSE_MMAP as u16) {
            _ if flags & VFIO_REGION_INFO_FLAG_MMAP == 0 => Vec::new(),
            None => vec![(0, bytes)],
            Some(at) => {
                let count = answer.u32(at + offset_of!(vfio_region_info_cap_sparse_mmap, nr_areas))?;
                answer.pairs(at + offset_of!(vfio_region_info_cap_sparse_mmap, areas), count)
            }
        };
        let mappable = areas.into_iter().filter_map(|(start, len)| {
            let start = start.checked_next_multiple_of(PAGE_BYTES)?;
            let end = start.checked_add(len)?.min(bytes) / PAGE_BYTES * PAGE_BYTES;
            (start < end).then_some(start..end)
        });
        Some(Region { offset, bytes, mappable: mappable.collect() })
    }
}

/// Registers, by volatile access where they are mapped, else by the device's file.
#[derive(Debug)]
pub(super) struct Bar {
    areas: Vec<Area>,
    device: File,
    offset: u64,
    bytes: usize,
}

/// A mapped part.
#[derive(Debug)]
struct Area {
    range: Range<usize>,
    memory: NonNull<u8>,
}

// SAFETY: the mapping belongs to no thread. It is accessed by whole registers only, never by
// reference; what two threads do to the same register is ordered by the device.
unsafe impl Send for Bar {}
// SAFETY: as above.
unsafe impl Sync for Bar {}

impl Bar {
    /// Maps what can be mapped of `region`.
    pub(super) fn map(device: File, region: &Region) -> io::Result<Bar> {
        let too_long = |_| io::Error::other("the registers are too long for this machine");
        let bytes = usize::try_from(region.bytes).map_err(too_long)?;
        let mut bar = Bar { areas: Vec::new(), device, offset: region.offset, bytes };
        for range in &region.mappable {
            let (start, end) = (range.start as usize, range.end as usize);
            let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
            let at = region.offset.saturating_add(range.start);
            // SAFETY: a new mapping, wherever there is room.
            let memory = unsafe { mmap(std::ptr::null_mut(), end - start, access, flags, &bar.device, at) };
            // What cannot be mapped is reached by the file.
            let Ok(memory) = memory else { continue };
            if let Some(memory) = NonNull::new(memory.cast::<u8>()) {
                bar.areas.push(Area { range: start..end, memory });
            }
        }
        Ok(bar)
    }

    pub(super) fn len_bytes(&self) -> usize {
        self.bytes
    }

    /// How many of them are mapped.
    pub(super) fn mapped_bytes(&self) -> usize {
        self.areas.iter().map(|area| area.range.len()).sum()
    }

    /// All ones if it cannot be read, as PCI Express does.
    pub(super) fn read_u32(&self, offset: usize) -> u32 {
        if let Some(register) = self.register::<u32>(offset) {
            // SAFETY: `register` is aligned, mapped, and stays so as long as `self`.
            let value = unsafe { register.read_volatile() };
            after_read();
            return value;
        }
        self.read_file(offset).map_or(u32::MAX, u32::from_le_bytes)
    }

    pub(super) fn read_u64(&self, offset: usize) -> u64 {
        if let Some(register) = self.register::<u64>(offset) {
            // SAFETY: as in `read_u32`.
            let value = unsafe { register.read_volatile() };
            after_read();
            return value;
        }
        self.read_file(offset).map_or(u64::MAX, u64::from_le_bytes)
    }

    pub(super) fn write_u32(&self, offset: usize, value: u32) {
        match self.register::<u32>(offset) {
            Some(register) => {
                before_write();
                // SAFETY: as in `read_u32`.
                unsafe { register.write_volatile(value) };
            }
            None => self.write_file(offset, &value.to_le_bytes()),
        }
    }

    pub(super) fn write_u64(&self, offset: usize, value: u64) {
        match self.register::<u64>(offset) {
            Some(register) => {
                before_write();
                // SAFETY: as in `read_u32`.
                unsafe { register.write_volatile(value) };
            }
            None => self.write_file(offset, &value.to_le_bytes()),
        }
    }

    /// The mapped register at `offset`, if it lies whole and aligned in a mapped part.
    fn register<T>(&self, offset: usize) -> Option<*mut T> {
        let end = offset.checked_add(size_of::<T>())?;
        let area = self.areas.iter().find(|area| area.range.start <= offset && end <= area.range.end)?;
        let at = offset - area.range.start;
        // SAFETY: `at` lies in the mapping.
        offset.is_multiple_of(size_of::<T>()).then(|| unsafe { area.memory.as_ptr().add(at).cast::<T>() })
    }

    fn read_file<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let at = self.place(offset, N)?;
        self.device.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }

    fn write_file(&self, offset: usize, bytes: &[u8]) {
        let Some(at) = self.place(offset, bytes.len()) else { return };
        // Dropped: a device that has gone shows when it is read.
        let _ = self.device.write_all_at(bytes, at);
    }

    /// Where a register lies in the device's file.
    fn place(&self, offset: usize, len: usize) -> Option<u64> {
        let end = offset.checked_add(len).filter(|end| *end <= self.bytes)?;
        offset.is_multiple_of(len).then(|| self.offset.checked_add((end - len) as u64)).flatten()
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        for area in &self.areas {
            // SAFETY: mapped in `map`, and no register is accessed any more. A failure leaves it
            // mapped, which harms nobody.
            let _ = unsafe { munmap(area.memory.as_ptr().cast(), area.range.len()) };
        }
    }
}

/// Memory written before is seen by the device before the register that is written next.
fn before_write() {
    // x86 keeps the order of stores, also to uncached memory: the compiler must keep it, too.
    std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier.
    unsafe {
        std::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
}

/// Memory is read after the register that was read before.
fn after_read() {
    std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier.
    unsafe {
        std::arch::asm!("dsb ld", options(nostack, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 4 * PAGE_BYTES;

    fn whole() -> Vec<Range<u64>> {
        std::iter::once(0..BYTES).collect()
    }

    /// A device's file with the registers behind a page of something else.
    fn bar(mappable: Vec<Range<u64>>) -> Bar {
        let file = tempfile::tempfile().unwrap();
        file.set_len(PAGE_BYTES + BYTES).unwrap();
        Bar::map(file, &Region { offset: PAGE_BYTES, bytes: BYTES, mappable }).unwrap()
    }

    #[test]
    fn registers_are_the_same_mapped_or_not() {
        let ranges = [whole(), vec![], vec![0..PAGE_BYTES, 2 * PAGE_BYTES..BYTES]];
        for (bar, mapped) in ranges.map(bar).into_iter().zip([BYTES, 0, 3 * PAGE_BYTES]) {
            assert_eq!(bar.mapped_bytes() as u64, mapped);
            for offset in [0, 0x14, 0x1000, 0x1ff8, 0x2000, BYTES as usize - 8] {
                bar.write_u32(offset, 0xdead_beef);
                assert_eq!(bar.read_u32(offset), 0xdead_beef);
                if offset % 8 == 0 {
                    bar.write_u64(offset, 0x0123_4567_89ab_cdef);
                    assert_eq!((bar.read_u64(offset), bar.read_u32(offset + 4)), (0x0123_4567_89ab_cdef, 0x0123_4567));
                }
            }
        }
    }

    #[test]
    fn an_access_beyond_the_registers_reads_ones_and_writes_nothing() {
        for bar in [bar(whole()), bar(vec![])] {
            for offset in [BYTES as usize, BYTES as usize - 2, usize::MAX, usize::MAX - 7, 2] {
                bar.write_u32(offset, 1);
                bar.write_u64(offset, 1);
                assert_eq!((bar.read_u32(offset), bar.read_u64(offset)), (u32::MAX, u64::MAX), "{offset:#x}");
            }
            let len = bar.device.metadata().unwrap().len();
            assert_eq!(len, PAGE_BYTES + BYTES);
            assert!((0..BYTES as usize).step_by(4).all(|offset| bar.read_u32(offset) == 0));
        }
    }

    #[test]
    fn only_what_the_kernel_names_is_mapped() {
        let head = |flags, cap: u32| vec![0, flags, 0, cap, BYTES as u32, 0, 0x1000, 0];
        let all = Region::parse(&Answer::of(head(VFIO_REGION_INFO_FLAG_MMAP, 0))).unwrap();
        assert_eq!(all, Region { offset: 0x1000, bytes: BYTES, mappable: whole() });
        let none = Region::parse(&Answer::of(head(1, 0))).unwrap();
        assert!(none.mappable.is_empty());
        let flags = VFIO_REGION_INFO_FLAG_MMAP | VFIO_REGION_INFO_FLAG_CAPS;
        let mut words = head(flags, 32);
        words.extend([1 | 1 << 16, 0, 3, 0, 0, 0, 0x2000, 0, 0x3000, 0, 0x9000, 0, 0x100, 0, 0x100, 0]);
        let sparse = Region::parse(&Answer::of(words)).unwrap();
        assert_eq!(sparse.mappable, [0..0x2000, 0x3000..BYTES], "not the page between, not what is no page");
        assert_eq!(Region::parse(&Answer::of(vec![0, flags])), None);
    }
}
