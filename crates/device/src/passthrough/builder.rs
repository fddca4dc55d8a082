//! Commands of requests: which blocks, and where their data lies in this process.

use stratakv_base::fault_point;

use crate::nvme::command::{Command, DataPointer};
use crate::nvme::requests::{Kind, MISALIGNED, Request};
use crate::passthrough::abi::PassthroughCommand;
use crate::request::IoFault;

/// The kernel says where data lies.
const NO_DATA: DataPointer = DataPointer::Prp([0, 0]);

/// What a command points to besides its request's blocks. It stays where it is until the command
/// has ended.
#[derive(Debug, Default)]
pub(super) struct CommandData {
    pieces: Vec<Piece>,
    /// Of Dataset Management.
    range: [u32; 4],
}

/// Struct iovec.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) address: usize,
    pub(super) bytes: usize,
}

impl CommandData {
    /// The next command of a request, and how many bytes of the request it does.
    pub(super) fn command(&mut self, request: &Request) -> Result<(PassthroughCommand, u64), IoFault> {
        let nsid = request.volume.shape().nsid;
        match &request.kind {
            Kind::Flush => Ok((PassthroughCommand { command: Command::flush(nsid), ..Default::default() }, 1)),
            Kind::Discard => {
                let (range, bytes) = request.next_range();
                self.range = range.map(u32::to_le);
                let address = self.range.as_ptr() as u64;
                Ok((PassthroughCommand::plain(Command::deallocate(nsid, 0), address, 16), bytes))
            }
            Kind::Read { .. } | Kind::Write { .. } => {
                let (extent, bytes) = request.next_extent(u64::MAX);
                self.gather(request, bytes)?;
                let command = match &request.kind {
                    Kind::Write { durable, .. } => {
                        let mut fua = *durable;
                        fault_point!("passthrough_fua_lost", fua = false);
                        Command::write(extent, NO_DATA, fua)
                    }
                    _ => Command::read(extent, NO_DATA),
                };
                Ok((self.point_to(command), bytes))
            }
        }
    }

    /// Finds the next `bytes` of a request's data.
    fn gather(&mut self, request: &Request, bytes: u64) -> Result<(), IoFault> {
        self.pieces.clear();
        let mut left = bytes as usize;
        let mut from = request.issued;
        fault_point!("passthrough_split_repeats_data", from = 0);
        for (block, run) in request.runs(from) {
            let (byte, _) = block.reach(run.start).ok_or(MISALIGNED)?;
            let bytes = run.len().min(left);
            self.pieces.push(Piece { address: byte.as_ptr() as usize, bytes });
            left -= bytes;
            if left == 0 {
                return Ok(());
            }
        }
        Err(MISALIGNED)
    }

    fn point_to(&self, command: Command) -> PassthroughCommand {
        match self.pieces[..] {
            [Piece { address, bytes }] => PassthroughCommand::plain(command, address as u64, bytes as u32),
            _ => PassthroughCommand {
                command,
                address: self.pieces.as_ptr() as u64,
                len: self.pieces.len() as u32,
                is_list: true,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::block::{Block, BlockPart, Class, Pool};
    use crate::nvme::shape::{NamespaceShape, VolumeState};
    use crate::request::DiskRequest;

    const SHAPE: NamespaceShape = NamespaceShape {
        nsid: 2,
        lba_bytes: 512,
        len_bytes: 1 << 30,
        transfer_bytes_max: 128 << 10,
        atomic_write_bytes: 512,
        has_volatile_cache: true,
        takes_dataset_management: true,
        takes_sgls: true,
    };

    /// All commands of a request, with the pieces of each.
    fn commands(request: DiskRequest) -> Vec<([u32; 16], Vec<Piece>)> {
        let mut request = Request::new(0, &VolumeState::new(SHAPE, 0), 0, request).expect("it is taken");
        let mut data = CommandData::default();
        let mut all = Vec::new();
        while !request.is_issued() {
            let (command, bytes) = data.command(&request).expect("a command");
            let pieces = if command.is_list { data.pieces.clone() } else { Vec::new() };
            let plain = Piece { address: command.address as usize, bytes: command.len as usize };
            assert_eq!(command.is_list, pieces.len() > 1);
            all.push((command.command.0, if command.is_list { pieces } else { vec![plain] }));
            request.issued += bytes;
        }
        all
    }

    #[test]
    fn a_long_write_is_split_by_the_largest_transfer() {
        let pool = Pool::new(4 << 20);
        let slices: Vec<Arc<Block>> = (0..3).map(|_| Arc::new(pool.take(Class::Slice).unwrap())).collect();
        let parts = slices.iter().map(|slice| BlockPart::whole(Arc::clone(slice))).collect();
        let all = commands(DiskRequest::Write { offset: 1 << 20, parts, durable: true });
        let at = |slice: usize| slices[slice].as_ptr() as usize;
        let [(first, pieces), (second, rest)] = &all[..] else { panic!("{all:?}") };
        assert_eq!(first[10..13], [2048, 0, 1 << 30 | 255], "256 blocks, FUA");
        assert_eq!(second[10..13], [2304, 0, 1 << 30 | 127]);
        assert_eq!(*pieces, [0, 1].map(|slice| Piece { address: at(slice), bytes: 65536 }));
        assert_eq!(*rest, [Piece { address: at(2), bytes: 65536 }]);
    }

    #[test]
    fn a_discard_and_a_flush_are_one_command() {
        let all = commands(DiskRequest::Discard { offset: 1 << 20, len: 1 << 20 });
        assert_eq!((all.len(), all[0].0[0], all[0].0[11], all[0].1[0].bytes), (1, 9, 4, 16));
        let all = commands(DiskRequest::Flush);
        assert_eq!((all.len(), all[0].0[..2].to_vec(), all[0].1[0].bytes), (1, vec![0, 2], 0));
        let mut request =
            Request::new(0, &VolumeState::new(SHAPE, 0), 0, DiskRequest::Discard { offset: 4096, len: 8192 })
                .expect("it is taken");
        let mut data = CommandData::default();
        data.command(&request).expect("a command");
        assert_eq!(data.range, [0, 16_u32.to_le(), 8_u32.to_le(), 0]);
        request.issued = request.total;
        assert!(request.is_issued());
    }
}
