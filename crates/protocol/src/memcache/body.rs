//! The data block of a storage command.

use bytes::Bytes;

/// Bytes asked of the allocator and of a receive at once while little has come: a declared length
/// alone costs nothing.
const FIRST_BYTES: usize = 16 << 10;
/// Once a block's first kilobyte has come, so much of it gets its room at once, so that what comes
/// is not moved again and again. Room that nothing came for is only reserved.
const RESERVED_BYTES_MAX: usize = 1 << 20;
const RESERVED_FROM_BYTES: usize = 1 << 10;

/// The line end of a data block was not where its length says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the data block does not end where its length says")]
pub struct BadDataChunk;

/// Collects a data block and its line end, if it has one: exactly so many bytes, whatever they are.
///
/// Memory grows with the bytes that came, at most to twice their number (or that of a buffer that
/// was adopted), or to a mebibyte beyond the first that came; never with the length declared.
#[derive(Debug, Default)]
pub struct Body {
    data: Vec<u8>,
    /// Where the block begins in it.
    from: usize,
    total: usize,
    line_end: &'static [u8],
}

impl Body {
    /// For a block of `data_bytes`, at most the parser's limit, and a line end.
    pub fn new(data_bytes: usize) -> Body {
        Body { data: Vec::new(), from: 0, total: data_bytes.saturating_add(2), line_end: b"\r\n" }
    }

    /// For a block of `data_bytes` that nothing ends.
    pub fn bare(data_bytes: usize) -> Body {
        Body { data: Vec::new(), from: 0, total: data_bytes, line_end: b"" }
    }

    /// Bytes still to come.
    pub fn missing(&self) -> usize {
        self.total.saturating_sub(self.data.len().saturating_sub(self.from))
    }

    /// Bytes of the whole block, its line end included.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Whether nothing has come yet.
    pub fn is_untouched(&self) -> bool {
        self.data.is_empty()
    }

    /// Takes a buffer over whose bytes from `from` on are the front of the block, without a copy.
    /// Nothing has come before, and nothing in it lies beyond the block.
    pub fn adopt(&mut self, buffer: Vec<u8>, from: usize) {
        debug_assert!(self.is_untouched() && from <= buffer.len() && buffer.len() - from <= self.total);
        self.from = from.min(buffer.len());
        self.data = buffer;
    }

    /// The data of a block that came as a whole.
    ///
    /// # Errors
    /// It is another length than the block, or does not end in a line end.
    pub fn whole(&self, mut block: Bytes) -> Result<Bytes, BadDataChunk> {
        if block.len() != self.total || !block.ends_with(self.line_end) {
            return Err(BadDataChunk);
        }
        block.truncate(self.total - self.line_end.len());
        Ok(block)
    }

    /// Takes the bytes of the block from the front of `input`; returns how many. O(taken).
    pub fn push(&mut self, input: &[u8]) -> usize {
        let (taken, _) = input.split_at(input.len().min(self.missing()));
        self.reserve(taken.len(), taken.len());
        self.data.extend_from_slice(taken);
        taken.len()
    }

    /// Lends the collected bytes as a buffer with room for more, to receive into without a copy.
    /// Give it back by [`Body::restore`].
    pub fn lend(&mut self) -> Vec<u8> {
        self.reserve(self.missing().min(FIRST_BYTES), 0);
        std::mem::take(&mut self.data)
    }

    /// Takes the buffer back. Returns the bytes beyond the block, if the buffer had room for some.
    pub fn restore(&mut self, mut buffer: Vec<u8>) -> Vec<u8> {
        let end = self.from.saturating_add(self.total);
        let beyond = if buffer.len() > end { buffer.split_off(end) } else { Vec::new() };
        self.data = buffer;
        beyond
    }

    /// The data, once nothing is missing. No copy.
    ///
    /// # Errors
    /// The block is incomplete or does not end in a line end.
    pub fn finish(mut self) -> Result<Bytes, BadDataChunk> {
        if self.missing() > 0 || !self.data.ends_with(self.line_end) {
            return Err(BadDataChunk);
        }
        self.data.truncate(self.data.len() - self.line_end.len());
        let data = Bytes::from(self.data);
        Ok(if self.from > 0 { data.slice(self.from..) } else { data })
    }

    /// Room for `more` bytes, of which `coming` are there: for the front of the block at once, then
    /// it doubles; never beyond the block.
    fn reserve(&mut self, more: usize, coming: usize) {
        if self.data.capacity() - self.data.len() < more {
            let held = self.data.len() - self.from;
            let front = if held + coming >= RESERVED_FROM_BYTES { RESERVED_BYTES_MAX.saturating_sub(held) } else { 0 };
            let wanted = more.max(self.data.len()).max(front).min(self.missing());
            self.data.reserve_exact(wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_exactly_its_bytes() {
        let mut body = Body::new(3);
        assert_eq!(body.push(b"ab"), 2);
        assert_eq!(body.missing(), 3);
        assert_eq!(body.push(b"c\r\nget a"), 3);
        assert_eq!(body.finish().unwrap(), &b"abc"[..]);
    }

    #[test]
    fn a_bare_block_ends_where_its_length_says() {
        let mut body = Body::bare(3);
        assert_eq!(body.push(b"a\r\nb"), 3);
        assert_eq!(body.finish().unwrap(), &b"a\r\n"[..]);
        assert_eq!(Body::bare(0).finish().unwrap(), &b""[..]);
    }

    #[test]
    fn a_missing_line_end_is_bad() {
        let mut body = Body::new(3);
        body.push(b"abcd\r\n");
        assert_eq!(body.finish(), Err(BadDataChunk));
        assert_eq!(Body::new(0).finish(), Err(BadDataChunk), "incomplete");
    }

    #[test]
    fn memory_follows_what_came_not_what_was_declared() {
        let mut body = Body::new(1 << 30);
        body.push(b"x");
        let buffer = body.lend();
        assert!(buffer.capacity() <= 2 * FIRST_BYTES, "{}", buffer.capacity());
        assert!(body.restore(buffer).is_empty());
        for _ in 0..2000 {
            body.push(&[b'x'; 1000]);
            assert!(body.data.capacity() <= RESERVED_BYTES_MAX.max(2 * body.data.len()));
        }
    }

    #[test]
    fn a_block_is_not_moved_while_its_first_mebibyte_comes() {
        let mut body = Body::new(2 << 20);
        body.push(&[b'x'; 2000]);
        let at = body.data.as_ptr();
        for _ in 0..300 {
            body.push(&[b'x'; 3000]);
            let mut buffer = body.lend();
            buffer.push(b'x');
            assert!(body.restore(buffer).is_empty());
        }
        assert_eq!((body.data.as_ptr(), body.data.len()), (at, 302_300 + 600_000));
    }

    #[test]
    fn a_buffer_that_is_adopted_is_not_copied() {
        let mut body = Body::new(5);
        let mut buffer = Vec::with_capacity(64);
        buffer.extend_from_slice(b"set k 0 0 5\r\nval");
        let at = buffer.as_ptr();
        body.adopt(buffer, 13);
        assert_eq!(body.missing(), 4);
        let mut buffer = body.lend();
        buffer.extend_from_slice(b"ue\r\nget k");
        assert_eq!(body.restore(buffer), b"get k");
        let value = body.finish().unwrap();
        assert_eq!((&value[..], value.as_ptr()), (&b"value"[..], at.wrapping_add(13)));
    }

    #[test]
    fn a_block_that_came_as_a_whole_is_checked_alike() {
        let body = Body::new(3);
        assert_eq!(body.whole(Bytes::from_static(b"abc\r\n")).unwrap(), &b"abc"[..]);
        assert_eq!(body.whole(Bytes::from_static(b"abcd\n")), Err(BadDataChunk));
        assert_eq!(body.whole(Bytes::from_static(b"abc\r")), Err(BadDataChunk));
        assert_eq!(Body::bare(3).whole(Bytes::from_static(b"abc")).unwrap(), &b"abc"[..]);
    }

    #[test]
    fn a_lent_buffer_may_come_back_with_more_than_the_block() {
        let mut body = Body::new(3);
        let mut buffer = body.lend();
        buffer.extend_from_slice(b"abc\r\nget");
        assert_eq!(body.restore(buffer), b"get");
        assert_eq!(body.finish().unwrap(), &b"abc"[..]);
    }
}
