//! Bytes received on a connection and not parsed yet. Long values are cut out of them without a
//! copy.

use bytes::Bytes;

/// Values from this length on share the buffer they were received in: shorter ones would keep much
/// more than themselves.
pub(crate) const SHARED_BYTES_MIN: usize = 1 << 10;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Received {
    buffer: Buffer,
    /// Bytes already parsed.
    at: usize,
}

#[derive(Debug)]
enum Buffer {
    Own(Vec<u8>),
    /// Values were cut out of it.
    Shared(Bytes),
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer::Own(Vec::new())
    }
}

impl Received {
    /// What a receive brought.
    pub(crate) fn new(buffer: Vec<u8>) -> Received {
        Received { buffer: Buffer::Own(buffer), at: 0 }
    }

    /// What came behind it.
    pub(crate) fn append(&mut self, more: Vec<u8>) {
        if self.fresh().is_empty() {
            *self = Received::new(more);
        } else if !more.is_empty() {
            let mut all = std::mem::take(self).into_buffer();
            all.extend_from_slice(&more);
            *self = Received::new(all);
        }
    }

    /// What is not parsed yet.
    pub(crate) fn fresh(&self) -> &[u8] {
        let all = match &self.buffer {
            Buffer::Own(bytes) => &bytes[..],
            Buffer::Shared(bytes) => &bytes[..],
        };
        all.get(self.at..).unwrap_or_default()
    }

    /// Bytes of memory that it has, shared or not.
    pub(crate) fn capacity(&self) -> usize {
        match &self.buffer {
            Buffer::Own(bytes) => bytes.capacity(),
            Buffer::Shared(bytes) => bytes.len(),
        }
    }

    /// So many bytes of it are parsed.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// The next `bytes` bytes, which are there, as a part of the buffer.
    pub(crate) fn cut(&mut self, bytes: usize) -> Bytes {
        let all = match std::mem::take(&mut self.buffer) {
            Buffer::Own(bytes) => Bytes::from(bytes),
            Buffer::Shared(bytes) => bytes,
        };
        let end = (self.at + bytes).min(all.len());
        let cut = all.slice(self.at.min(end)..end);
        self.buffer = Buffer::Shared(all);
        self.at = end;
        cut
    }

    /// The buffer itself, and its first fresh byte: all that is fresh is somebody's from now on.
    /// `None`: it is shared.
    pub(crate) fn surrender(&mut self) -> Option<(Vec<u8>, usize)> {
        match std::mem::take(&mut self.buffer) {
            Buffer::Own(bytes) => Some((bytes, std::mem::take(&mut self.at))),
            shared => {
                self.buffer = shared;
                None
            }
        }
    }

    /// The buffer for the next receive, with what is fresh at its front; of its own, and used again
    /// if it can be.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        let at = self.at;
        match self.buffer {
            Buffer::Own(mut bytes) => {
                bytes.drain(..at.min(bytes.len()));
                bytes
            }
            // Whoever got a part of it may be done with it by now.
            Buffer::Shared(bytes) => match bytes.try_into_mut() {
                Ok(bytes) => {
                    let mut bytes = Vec::from(bytes);
                    bytes.drain(..at.min(bytes.len()));
                    bytes
                }
                Err(bytes) => bytes.get(at..).unwrap_or_default().to_vec(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_cut_out_where_they_lie() {
        let mut received = Received::new(b"set\r\nvalue\r\nget".to_vec());
        received.consume(5);
        let at = received.fresh().as_ptr();
        let value = received.cut(5);
        assert_eq!((&value[..], value.as_ptr()), (&b"value"[..], at));
        received.consume(2);
        assert_eq!(received.fresh(), b"get");
        assert_eq!(received.surrender(), None, "it is shared");
        assert_eq!(received.cut(9), &b"get"[..], "no more than there is");
        assert!(received.fresh().is_empty());
        assert_eq!(value, &b"value"[..]);
    }

    #[test]
    fn what_is_fresh_begins_the_next_buffer() {
        for shares in [false, true] {
            let mut received = Received::new(b"abcdef".to_vec());
            let kept = shares.then(|| received.cut(2));
            received.consume(if shares { 1 } else { 3 });
            assert_eq!(received.into_buffer(), b"def");
            drop(kept);
        }
    }

    #[test]
    fn a_buffer_is_given_away_with_the_place_where_fresh_bytes_begin() {
        let mut received = Received::new(b"abc".to_vec());
        received.consume(1);
        assert_eq!(received.surrender(), Some((b"abc".to_vec(), 1)));
        assert!(received.fresh().is_empty());
    }
}
