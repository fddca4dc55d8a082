//! A disk in memory, for tests: an image, and what the requests do to it; and a ring over such
//! images.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stratakv_base::limits::PAGE_BYTES;

use crate::geometry::Geometry;
use crate::request::{DiskOutcome, DiskRequest, IoFault};
use crate::ring::{Completion, NetOutcome, NetRequest, Ring, Socket, Wait, Waker};
use crate::volume::{Medium, Volume};

/// The bytes of a volume in memory. Grows with writes, up to its capacity.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// The content.
    pub bytes: Vec<u8>,
    /// Writes beyond this many bytes are answered [`IoFault::Full`]; `None` for no limit.
    pub capacity_bytes: Option<u64>,
}

impl Image {
    /// Does `request` at once. Alignment is checked as O_DIRECT would: a misaligned request is
    /// refused with EINVAL.
    pub fn execute(&mut self, request: DiskRequest) -> DiskOutcome {
        match request {
            DiskRequest::Read { offset, mut block, len } => {
                let result = self.read(offset, block.get_mut(..len as usize));
                DiskOutcome::Read(block, result)
            }
            DiskRequest::Write { mut offset, parts, .. } => {
                let mut result = Ok(());
                for part in &parts {
                    result = result.and_then(|()| self.write(offset, part.bytes()));
                    offset = offset.saturating_add(u64::from(part.len));
                }
                DiskOutcome::Write(result)
            }
            DiskRequest::Flush => DiskOutcome::Flush(Ok(())),
            DiskRequest::Allocate { offset, len } if !is_aligned(offset, len as usize) => {
                DiskOutcome::Allocate(Err(MISALIGNED))
            }
            DiskRequest::Allocate { offset, len } => {
                let fits = |end: &u64| self.capacity_bytes.is_none_or(|capacity| *end <= capacity);
                match offset.checked_add(len).filter(fits) {
                    Some(end) => {
                        self.bytes.resize(self.bytes.len().max(end as usize), 0);
                        DiskOutcome::Allocate(Ok(()))
                    }
                    None => DiskOutcome::Allocate(Err(IoFault::Full)),
                }
            }
            DiskRequest::Discard { offset, len } if !is_aligned(offset, len as usize) => {
                DiskOutcome::Discard(Err(MISALIGNED))
            }
            DiskRequest::Discard { offset, len } => {
                let range = offset as usize..(offset.saturating_add(len) as usize).min(self.bytes.len());
                self.bytes.get_mut(range).into_iter().for_each(|bytes| bytes.fill(0));
                DiskOutcome::Discard(Ok(()))
            }
        }
    }

    fn read(&self, offset: u64, into: Option<&mut [u8]>) -> Result<(), IoFault> {
        let into = into.filter(|into| is_aligned(offset, into.len())).ok_or(MISALIGNED)?;
        let from = self.bytes.get(offset as usize..).and_then(|bytes| bytes.get(..into.len())).ok_or(IoFault::Short)?;
        into.copy_from_slice(from);
        Ok(())
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), IoFault> {
        if !is_aligned(offset, from.len()) {
            return Err(MISALIGNED);
        }
        let end = offset.checked_add(from.len() as u64).ok_or(IoFault::Full)?;
        if self.capacity_bytes.is_some_and(|capacity| end > capacity) {
            return Err(IoFault::Full);
        }
        if self.bytes.len() < end as usize {
            self.bytes.resize(end as usize, 0);
        }
        self.bytes[offset as usize..end as usize].copy_from_slice(from);
        Ok(())
    }
}

/// A [`Ring`] whose volumes are images in memory. Requests are done in [`Ring::submit`], in the
/// order given. It has no network: socket requests complete with `Unsupported`.
pub struct MemoryRing {
    images: HashMap<PathBuf, Image>,
    queued: Vec<(u64, Arc<Volume>, DiskRequest)>,
    done: Vec<Completion>,
    waker: Waker,
}

impl MemoryRing {
    /// A ring without volumes.
    ///
    /// # Errors
    /// No descriptor for the waker.
    pub fn new() -> io::Result<MemoryRing> {
        Ok(MemoryRing { images: HashMap::new(), queued: Vec::new(), done: Vec::new(), waker: Waker::new()? })
    }

    /// Adds `image` under `name`, replacing one of that name, and gives a volume to pass to
    /// [`Ring::disk`]. The volume is known by its name only: on another ring its requests fail.
    ///
    /// # Errors
    /// The null device, which stands in for the file, cannot be opened.
    pub fn add(&mut self, name: impl Into<PathBuf>, image: Image) -> io::Result<Arc<Volume>> {
        let path = name.into();
        let file = std::fs::File::open("/dev/null")?;
        self.images.insert(path.clone(), image);
        let geometry = Geometry { survives_power_loss: false, volatile_cache: false, ..Geometry::unknown() };
        Ok(Arc::new(Volume { medium: Medium::File(file), path, geometry, direct: true, share: None }))
    }

    /// The image under `name`, as the requests submitted so far left it.
    pub fn image(&mut self, name: &Path) -> Option<&mut Image> {
        self.images.get_mut(name)
    }
}

impl Ring for MemoryRing {
    fn disk(&mut self, tag: u64, volume: &Arc<Volume>, request: DiskRequest) {
        self.queued.push((tag, Arc::clone(volume), request));
    }

    fn net(&mut self, tag: u64, request: NetRequest) {
        let refused = || io::Error::new(io::ErrorKind::Unsupported, "a ring in memory has no network");
        let outcome = match request {
            NetRequest::Accept { .. } => NetOutcome::Accept(Err(refused())),
            NetRequest::Recv { buffer, .. } => NetOutcome::Recv(buffer, Err(refused())),
            NetRequest::Send { .. } => NetOutcome::Send(Err(refused())),
        };
        self.done.push(Completion::Net { tag, outcome });
    }

    fn shutdown(&mut self, _socket: &Socket) {}

    fn submit(&mut self, wait: Wait) -> io::Result<()> {
        for (tag, volume, request) in std::mem::take(&mut self.queued) {
            // An unknown volume is an empty one that takes nothing.
            let mut unknown = Image { bytes: Vec::new(), capacity_bytes: Some(0) };
            let outcome = self.images.get_mut(&volume.path).unwrap_or(&mut unknown).execute(request);
            self.done.push(Completion::Disk { tag, outcome });
        }
        if let Wait::For { timeout, .. } = wait
            && self.done.is_empty()
        {
            self.sleep(timeout)?;
        }
        self.waker.awake();
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.queued.len()
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn name(&self) -> &'static str {
        "memory"
    }
}

impl MemoryRing {
    /// Nothing is in flight that could complete: only the waker or the timeout ends this.
    fn sleep(&self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map(|timeout| rustix::time::Timespec {
            tv_sec: timeout.as_secs() as _,
            tv_nsec: timeout.subsec_nanos() as _,
        });
        let event = rustix::event::PollFd::new(&self.waker.0.event, rustix::event::PollFlags::IN);
        match rustix::event::poll(&mut [event], timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(()),
            Ok(_) => {
                rustix::io::read(&self.waker.0.event, &mut [0; 8])?;
                Ok(())
            }
            Err(errno) => Err(errno.into()),
        }
    }
}

const MISALIGNED: IoFault = IoFault::Os(libc::EINVAL);

fn is_aligned(offset: u64, len: usize) -> bool {
    offset.is_multiple_of(PAGE_BYTES as u64) && len.is_multiple_of(PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{BlockPart, Class, Pool};
    use std::sync::Arc;

    #[test]
    fn reads_back_and_refuses_what_a_disk_would() {
        let pool = Pool::new(2 << 20);
        let mut image = Image { capacity_bytes: Some(8192), ..Image::default() };
        let mut block = pool.take(Class::Page).unwrap();
        block.fill(7);
        let parts = vec![BlockPart::whole(Arc::new(block))];
        let mut write = |offset| image.execute(DiskRequest::Write { offset, parts: parts.clone(), durable: false });
        assert!(matches!(write(4096), DiskOutcome::Write(Ok(()))));
        assert!(matches!(write(8192), DiskOutcome::Write(Err(IoFault::Full))));
        assert!(matches!(write(512), DiskOutcome::Write(Err(IoFault::Os(libc::EINVAL)))));
        let block = pool.take(Class::Page).unwrap();
        let outcome = image.execute(DiskRequest::Read { offset: 4096, block, len: 4096 });
        assert!(matches!(outcome, DiskOutcome::Read(block, Ok(())) if block.iter().all(|byte| *byte == 7)));
        let block = pool.take(Class::Page).unwrap();
        let outcome = image.execute(DiskRequest::Read { offset: 8192, block, len: 4096 });
        assert!(matches!(outcome, DiskOutcome::Read(_, Err(IoFault::Short))));
    }

    #[test]
    fn a_ring_over_images_answers_and_can_be_woken() {
        let pool = Pool::new(2 << 20);
        let mut ring = MemoryRing::new().unwrap();
        let volume = ring.add("v", Image { bytes: vec![3; 8192], capacity_bytes: None }).unwrap();
        let read = |offset| DiskRequest::Read { offset, block: pool.take(Class::Page).unwrap(), len: 4096 };
        ring.disk(1, &volume, read(4096));
        ring.disk(2, &volume, read(8192));
        assert_eq!(ring.in_flight(), 2);
        ring.submit(Wait::For { completions: 2, timeout: None }).unwrap();
        let mut done = Vec::new();
        ring.reap(&mut done);
        let [
            Completion::Disk { tag: 1, outcome: DiskOutcome::Read(block, Ok(())) },
            Completion::Disk { tag: 2, outcome: DiskOutcome::Read(_, Err(IoFault::Short)) },
        ] = &done[..]
        else {
            panic!("{done:?}")
        };
        assert!(block.iter().all(|byte| *byte == 3));
        assert_eq!(ring.image(Path::new("v")).unwrap().bytes.len(), 8192);
        let waker = ring.waker();
        waker.announce_sleep();
        let other = std::thread::spawn(move || waker.wake());
        ring.submit(Wait::For { completions: 1, timeout: None }).unwrap();
        other.join().unwrap();
    }
}
