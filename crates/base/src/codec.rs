//! Checked reading of bytes that came from a medium or the wire, and plain writing.

/// The bytes ended before the field did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} bytes wanted at {at}, {left} left")]
pub struct Truncated {
    /// Offset of the field that did not fit.
    pub at: usize,
    /// Bytes the field has.
    pub wanted: usize,
    /// Bytes that were left.
    pub left: usize,
}

/// Reads little-endian fields off the front of a slice; never panics, never trusts a length.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    /// Offset of the next field.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Bytes not yet read.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `len` bytes.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Truncated> {
        let left = self.left();
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or(Truncated { at: self.at, wanted: len, left })?;
        let field = self.bytes.get(self.at..end).unwrap_or_default();
        self.at = end;
        Ok(field)
    }

    /// The next `N` bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        let left = self.bytes.get(self.at..).and_then(|left| left.first_chunk());
        let field = left.ok_or(Truncated { at: self.at, wanted: N, left: self.left() })?;
        self.at += N;
        Ok(*field)
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Truncated> {
        Ok(u8::from_le_bytes(self.array()?))
    }
    /// Two bytes, little-endian.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Truncated> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    /// Four bytes, little-endian.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Truncated> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    /// Eight bytes, little-endian.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Truncated> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}

/// Writes little-endian fields into a fixed buffer, front to back.
///
/// The caller sized the buffer from the same constants, so running over is a defect and panics.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// A writer at the start of `bytes`.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Writer { bytes, at: 0 }
    }
    /// Bytes written so far.
    pub fn at(&self) -> usize {
        self.at
    }
    /// Appends `field`.
    pub fn bytes(&mut self, field: &[u8]) -> &mut Self {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
        self
    }
    /// Appends one byte.
    pub fn u8(&mut self, field: u8) -> &mut Self {
        self.bytes(&[field])
    }
    /// Appends two bytes.
    pub fn u16(&mut self, field: u16) -> &mut Self {
        self.bytes(&field.to_le_bytes())
    }
    /// Appends four bytes.
    pub fn u32(&mut self, field: u32) -> &mut Self {
        self.bytes(&field.to_le_bytes())
    }
    /// Appends eight bytes.
    pub fn u64(&mut self, field: u64) -> &mut Self {
        self.bytes(&field.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_was_written() {
        let mut buffer = [0u8; 18];
        let mut writer = Writer::new(&mut buffer);
        writer.u8(1).u16(2).u32(3).u64(4).bytes(b"abc");
        assert_eq!(writer.at(), 18);
        let mut reader = Reader::new(&buffer);
        assert_eq!(reader.u8(), Ok(1));
        assert_eq!(reader.u16(), Ok(2));
        assert_eq!(reader.u32(), Ok(3));
        assert_eq!(reader.u64(), Ok(4));
        assert_eq!(reader.bytes(3), Ok(&b"abc"[..]));
        assert_eq!(reader.u8(), Err(Truncated { at: 18, wanted: 1, left: 0 }));
    }

    #[test]
    fn a_huge_length_is_an_error_not_a_panic() {
        let mut reader = Reader::new(b"abc");
        reader.u8().unwrap();
        assert_eq!(reader.bytes(usize::MAX), Err(Truncated { at: 1, wanted: usize::MAX, left: 2 }));
        assert_eq!(reader.left(), 2, "a failed read consumes nothing");
    }
}
