//! The checksum at the end of an RDB file: CRC-64 of Jones, reflected, without inversion.

const POLYNOMIAL: u64 = 0x95AC_9329_AC4B_C9B5;
const TABLE: [u64; 256] = table();

const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u64, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// Of bytes so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Crc64(u64);

impl Crc64 {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = TABLE[usize::from(self.0 as u8 ^ byte)] ^ self.0 >> 8;
        }
    }

    pub(super) fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value that Redis's own test has.
    #[test]
    fn it_is_that_of_redis() {
        let mut crc = Crc64::default();
        crc.add(b"12345");
        crc.add(b"6789");
        assert_eq!(crc.value(), 0xE9C6_D914_C4B8_D9CA);
    }
}
