//! Whole numbers of any length: seven bits a byte, the lowest first; the high bit of a byte says
//! that another follows.

use stratakv_base::codec::Reader;

use crate::Damaged;

/// Most bytes of one.
const BYTES_MAX: u32 = 10;
const CUT_SHORT: Damaged = Damaged::new("it is cut short");

/// Reads a number. It has its shortest form.
#[inline]
pub(crate) fn read(reader: &mut Reader<'_>) -> Result<u64, Damaged> {
    let first = reader.u8().map_err(|_| CUT_SHORT)?;
    if first < 0x80 { Ok(u64::from(first)) } else { read_rest(first, reader) }
}

/// A number of more than one byte.
fn read_rest(first: u8, reader: &mut Reader<'_>) -> Result<u64, Damaged> {
    let mut number = u64::from(first & 0x7F);
    for place in 1..BYTES_MAX {
        let byte = reader.u8().map_err(|_| CUT_SHORT)?;
        let bits = u64::from(byte & 0x7F);
        if place == BYTES_MAX - 1 && byte > 1 {
            break;
        }
        number |= bits << (7 * place);
        if byte & 0x80 == 0 {
            return match byte == 0 {
                true => Err(Damaged::new("a number is not in its shortest form")),
                false => Ok(number),
            };
        }
    }
    Err(Damaged::new("a number is too large"))
}

pub(crate) fn write(number: u64, out: &mut Vec<u8>) {
    let mut left = number;
    while left >= 0x80 {
        out.push((left & 0x7F) as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

/// Bytes that a number takes.
pub(crate) fn bytes(number: u64) -> usize {
    (u64::BITS - number.leading_zeros()).div_ceil(7).max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_form() {
        for number in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), 1 << 63, u64::MAX] {
            let mut out = Vec::new();
            write(number, &mut out);
            assert_eq!(out.len(), bytes(number));
            assert_eq!(read(&mut Reader::new(&out)), Ok(number));
            out.pop();
            assert!(read(&mut Reader::new(&out)).is_err(), "{number} cut short");
        }
        let too_large = [0xFF; 10];
        for bad in [&b"\x80\x00"[..], b"\xff\x80\x00", &too_large, b""] {
            assert!(read(&mut Reader::new(bad)).is_err(), "{bad:?}");
        }
    }
}
