//! A disk in memory, for tests: an image, and what the requests do to it.

use stratakv_base::limits::PAGE_BYTES;

use crate::request::{DiskOutcome, DiskRequest, IoFault};

/// The bytes of a volume in memory. Grows with writes, up to its capacity.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// The content.
    pub bytes: Vec<u8>,
    /// Writes beyond this many bytes are answered [`IoFault::Full`]; `None` for no limit.
    pub capacity_bytes: Option<u64>,
}

impl Image {
    /// Does `request` at once. Alignment is checked as O_DIRECT would: a misaligned request is refused with EINVAL.
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
                    offset += u64::from(part.len);
                }
                DiskOutcome::Write(result)
            }
            DiskRequest::Flush => DiskOutcome::Flush(Ok(())),
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
        let end = offset + from.len() as u64;
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

const MISALIGNED: IoFault = IoFault::Os(libc::EINVAL);

fn is_aligned(offset: u64, len: usize) -> bool {
    offset.is_multiple_of(PAGE_BYTES as u64) && len.is_multiple_of(PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Class, Part, Pool};
    use std::sync::Arc;

    #[test]
    fn reads_back_and_refuses_what_a_disk_would() {
        let pool = Pool::new(2 << 20);
        let mut image = Image { capacity_bytes: Some(8192), ..Image::default() };
        let mut block = pool.take(Class::Page).unwrap();
        block.fill(7);
        let parts = vec![Part::whole(Arc::new(block))];
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
}
