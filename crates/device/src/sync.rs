//! One disk request, done at once in the calling thread.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::{Errno, IoSlice, ReadWriteFlags};
use stratakv_base::limits::PAGE_BYTES;

use crate::block::BlockPart;
use crate::geometry::Geometry;
use crate::request::{DiskOutcome, DiskRequest, IoFault};
use crate::volume::{Medium, OpenMode, Volume};

/// Does `request` now: pread, pwritev2, fdatasync, fallocate. Blocks until it is done.
pub fn execute(volume: &Volume, request: DiskRequest) -> DiskOutcome {
    let request = match volume.place(request) {
        Ok(request) => request,
        Err(outcome) => return outcome,
    };
    let file = match &volume.medium {
        Medium::File(file) => file,
        Medium::Nvme(volume) => return volume.namespace().execute(volume, request),
        Medium::Passthrough(volume) => return volume.namespace().execute(volume.state(), request),
    };
    match request {
        DiskRequest::Read { offset, mut block, len } => {
            let result = match block.get_mut(..len as usize) {
                Some(into) => read(file, offset, into),
                None => Err(IoFault::Os(libc::EINVAL)),
            };
            DiskOutcome::Read(block, result)
        }
        DiskRequest::Write { offset, parts, durable } => {
            let flags = write_flags(volume, total_of(&parts), durable);
            DiskOutcome::Write(write(file, offset, &parts, flags))
        }
        DiskRequest::Flush => DiskOutcome::Flush(retry(|| rustix::fs::fdatasync(file))),
        DiskRequest::Allocate { offset, len } => {
            let done = retry(|| rustix::fs::fallocate(file, FallocateFlags::empty(), offset, len));
            DiskOutcome::Allocate(IoFault::of_allocation(done))
        }
        DiskRequest::Discard { offset, len } => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            DiskOutcome::Discard(retry(|| rustix::fs::fallocate(file, flags, offset, len)))
        }
    }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> Result<T, IoFault> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other.map_err(|errno| IoFault::from_errno(errno.raw_os_error())),
        }
    }
}

fn read(file: &File, mut offset: u64, mut into: &mut [u8]) -> Result<(), IoFault> {
    while !into.is_empty() {
        let read = retry(|| rustix::io::pread(file, &mut *into, offset))?;
        into = into.get_mut(read..).unwrap_or_default();
        offset += read as u64;
        if !into.is_empty() && (read == 0 || !goes_on_at(offset)) {
            return Err(IoFault::Short);
        }
    }
    Ok(())
}

/// Whether a short read may go on at `offset`. One that stopped within a sector met the end of a
/// file cut there; direct I/O would answer EINVAL from that offset.
pub(crate) fn goes_on_at(offset: u64) -> bool {
    offset.is_multiple_of(512)
}

fn total_of(parts: &[BlockPart]) -> usize {
    parts.iter().map(|part| part.len as usize).sum()
}

fn write(file: &File, offset: u64, parts: &[BlockPart], flags: i32) -> Result<(), IoFault> {
    let total = total_of(parts);
    let flags = ReadWriteFlags::from_bits_retain(flags as u32);
    let mut done = 0;
    while done < total {
        let slices = remaining(parts, done);
        let written = retry(|| rustix::io::pwritev2(file, &slices, offset + done as u64, flags))?;
        if written == 0 {
            return Err(IoFault::Full);
        }
        done += written;
    }
    Ok(())
}

/// Flags of pwritev2(2): write-through where asked, and untorn for a single page where the device
/// and the file system promise it (RWF_ATOMIC; without the flag the promise does not bind the
/// kernel).
pub(crate) fn write_flags(volume: &Volume, total: usize, durable: bool) -> i32 {
    const RWF_ATOMIC: i32 = 0x40;
    let durable = if durable { libc::RWF_DSYNC } else { 0 };
    let untorn = total == PAGE_BYTES && volume.direct && volume.geometry.atomic_write_bytes as usize >= PAGE_BYTES;
    durable | if untorn { RWF_ATOMIC } else { 0 }
}

/// The parts' bytes from `skip` on, as many as one call takes (IOV_MAX is 1,024).
fn remaining(parts: &[BlockPart], mut skip: usize) -> Vec<IoSlice<'_>> {
    let mut slices = Vec::with_capacity(parts.len().min(1024));
    for part in parts {
        let bytes = part.bytes();
        if skip >= bytes.len() {
            skip -= bytes.len();
            continue;
        }
        slices.push(IoSlice::new(&bytes[skip..]));
        skip = 0;
        if slices.len() == 1024 {
            break;
        }
    }
    slices
}

/// How long a device's lock is waited for: requests in flight of a process that was just killed
/// hold it.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(2);
/// The same of a volume's file. Who opens it has the lock of its directory already, so hardly
/// anybody else can have it open; and a disk that others load takes seconds over a flush.
const FILE_LOCK_WAIT: Duration = Duration::from_secs(10);

pub(crate) fn open_volume(path: &Path, mode: OpenMode) -> io::Result<Volume> {
    // On a block device O_EXCL refuses what is mounted or otherwise claimed (EBUSY).
    let is_device = std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device());
    let exclusive = if is_device && !mode.read_only { libc::O_EXCL } else { 0 };
    let open = |flags: i32| {
        let mut options = OpenOptions::new();
        options.read(true).write(!mode.read_only).create_new(mode.create).mode(0o600).custom_flags(flags);
        options.open(path)
    };
    let (file, direct) = match wait_while_busy(|| open(libc::O_DIRECT | exclusive)) {
        // A file system without direct I/O; a file just created by the failed try is opened, not
        // created again.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => (open_buffered(path, mode)?, false),
        other => (other?, true),
    };
    lock(&file, mode.read_only, if is_device { LOCK_WAIT } else { FILE_LOCK_WAIT })?;
    if mode.create
        && let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty())
    {
        File::open(parent)?.sync_all()?;
    }
    let mut geometry = Geometry::probe(&file);
    geometry.volatile_cache |= !direct && geometry.survives_power_loss;
    Ok(Volume { medium: Medium::File(file), path: path.to_path_buf(), geometry, direct, share: None })
}

/// Tries `open` again while a device is claimed by a process that may just have died, as [`lock`]
/// does for files.
pub(crate) fn wait_while_busy<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match open() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                if Instant::now() >= deadline {
                    let text = "the device is mounted or open elsewhere; unmount it or stop the other process";
                    return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

fn open_buffered(path: &Path, mode: OpenMode) -> io::Result<File> {
    OpenOptions::new().read(true).write(!mode.read_only).create(mode.create).truncate(false).mode(0o600).open(path)
}

pub(crate) fn lock(file: &File, shared: bool, wait: Duration) -> io::Result<()> {
    let kind = if shared { FlockOperation::NonBlockingLockShared } else { FlockOperation::NonBlockingLockExclusive };
    let deadline = Instant::now() + wait;
    loop {
        match rustix::fs::flock(file, kind) {
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            other => return Ok(other?),
        }
    }
}

/// A file's size, or a device's.
pub(crate) fn file_len(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    if metadata.file_type().is_block_device() {
        // The number of BLKGETSIZE64, without an unsafe call.
        return Ok(rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))?);
    }
    Ok(metadata.len())
}
