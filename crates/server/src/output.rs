//! Bytes waiting to be sent on one connection.

use std::collections::VecDeque;

use stratakv_device::ring::Chunk;
use stratakv_engine::Value;

use crate::block_budget::BlockPermit;

/// Values from this length on are sent from where they lie; shorter ones are copied behind their
/// header.
pub(crate) const COPY_BYTES_MAX: u64 = 4096;

/// Chunks handed over with one send: half of what one sendmsg takes (IOV_MAX).
const SEND_CHUNKS_MAX: usize = 512;

/// Room for small replies at first: as much as they took last, within these.
const TAIL_BYTES_MIN: usize = 64;
const TAIL_BYTES_MAX: usize = 64 << 10;

/// Replies in wire form, in order.
#[derive(Debug, Default)]
pub(crate) struct Output {
    chunks: VecDeque<Chunk>,
    /// Small replies, gathered behind the last chunk.
    tail: Vec<u8>,
    /// How long it was last, for its room the next time.
    tail_bytes: usize,
    bytes: u64,
    /// Of the chunks.
    block_permits: Vec<BlockPermit>,
}

impl Output {
    /// Appends what `write` adds to the headers and small replies behind the last chunk.
    pub(crate) fn text(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.tail.capacity() == 0 {
            self.tail.reserve(self.tail_bytes.clamp(TAIL_BYTES_MIN, TAIL_BYTES_MAX));
        }
        let before = self.tail.len();
        write(&mut self.tail);
        self.bytes += (self.tail.len() - before) as u64;
    }

    /// Appends fixed bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.text(|out| out.extend_from_slice(bytes));
    }

    /// Appends a value: a long one as it is.
    pub(crate) fn push_value(&mut self, value: Value) {
        match value {
            Value::Blocks { blocks, start, len } if len >= COPY_BYTES_MAX => {
                self.seal_tail();
                let (mut start, mut left) = (start as usize, len as usize);
                for block in blocks {
                    let (whole, from) = (block.len(), start);
                    let piece = whole.saturating_sub(from).min(left);
                    if piece > 0 {
                        self.chunks.push_back(Chunk::Block { block, start: from as u32, len: piece as u32 });
                    }
                    start = from.saturating_sub(whole);
                    left -= piece;
                }
                self.bytes += len - left as u64;
            }
            Value::Inline(bytes) if bytes.len() as u64 >= COPY_BYTES_MAX => {
                self.seal_tail();
                self.bytes += bytes.len() as u64;
                // No copy, if nobody else has it.
                self.chunks.push_back(Chunk::Bytes(bytes.into()));
            }
            value => value.slices().for_each(|slice| self.push(slice)),
        }
    }

    /// Keeps the block permit of what was appended last.
    pub(crate) fn hold(&mut self, block_permit: Option<BlockPermit>) {
        self.block_permits.extend(block_permit);
    }

    /// Bytes waiting.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The chunks of the next send, their bytes, and what is over with it.
    pub(crate) fn take(&mut self) -> (Vec<Chunk>, u64, Vec<BlockPermit>) {
        self.seal_tail();
        let count = self.chunks.len().min(SEND_CHUNKS_MAX);
        let chunks: Vec<Chunk> = self.chunks.drain(..count).collect();
        let bytes = chunks.iter().map(chunk_bytes).sum();
        self.bytes -= bytes;
        // What is left of a send cut in two keeps them all.
        let block_permits = if self.chunks.is_empty() { std::mem::take(&mut self.block_permits) } else { Vec::new() };
        (chunks, bytes, block_permits)
    }

    fn seal_tail(&mut self) {
        if !self.tail.is_empty() {
            self.tail_bytes = self.tail.len();
            self.chunks.push_back(Chunk::Bytes(std::mem::take(&mut self.tail)));
        }
    }
}

fn chunk_bytes(chunk: &Chunk) -> u64 {
    match chunk {
        Chunk::Bytes(bytes) => bytes.len() as u64,
        Chunk::Block { len, .. } => u64::from(*len),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stratakv_device::{Class, Pool};

    use super::*;

    fn bytes(chunks: &[Chunk]) -> Vec<u8> {
        let piece = |chunk: &Chunk| match chunk {
            Chunk::Bytes(bytes) => bytes.clone(),
            Chunk::Block { block, start, len } => block[*start as usize..][..*len as usize].to_vec(),
        };
        chunks.iter().flat_map(piece).collect()
    }

    #[test]
    fn long_values_are_sent_from_their_blocks_short_ones_copied() {
        let pool = Pool::new(1 << 20);
        let mut blocks: Vec<_> = (0..3).map(|_| pool.take(Class::Page).unwrap()).collect();
        for (number, block) in blocks.iter_mut().enumerate() {
            block.fill(b'a' + number as u8);
        }
        let blocks: Vec<_> = blocks.into_iter().map(Arc::new).collect();
        let value = |len| Value::Blocks { blocks: blocks.clone(), start: 4000, len };
        let mut output = Output::default();
        output.push(b"<");
        output.push_value(value(100));
        output.push_value(value(5000));
        output.push(b">");
        assert_eq!(output.bytes(), 5102);
        let (chunks, sent, _) = output.take();
        assert_eq!((sent, output.is_empty(), chunks.len()), (5102, true, 5));
        let expected = [
            b"<".to_vec(),
            vec![b'a'; 96],
            vec![b'b'; 4],
            vec![b'a'; 96],
            vec![b'b'; 4096],
            vec![b'c'; 808],
            b">".to_vec(),
        ];
        assert!(bytes(&chunks) == expected.concat());
    }

    #[test]
    fn a_long_value_that_nobody_else_has_is_not_copied() {
        let value = bytes::Bytes::from(vec![b'v'; COPY_BYTES_MAX as usize]);
        let at = value.as_ptr();
        let mut output = Output::default();
        output.push(b"<");
        output.push_value(Value::Inline(value));
        output.push(b">");
        let (chunks, sent, _) = output.take();
        assert_eq!(sent, COPY_BYTES_MAX + 2);
        assert!(matches!(&chunks[1], Chunk::Bytes(bytes) if bytes.as_ptr() == at));
    }
}
