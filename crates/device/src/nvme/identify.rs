//! What a controller and its namespaces say of themselves (NVMe Base Specification 2.0, section
//! 5.17; NVM Command Set Specification 1.0, section 4.1.5). Bytes of a device: nothing is trusted.

use stratakv_base::limits::PAGE_BYTES;

/// The Identify Controller data structure, as far as it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerIdentity {
    /// SN: Serial Number.
    pub serial_number: String,
    /// MN: Model Number.
    pub model_number: String,
    /// FR: Firmware Revision.
    pub firmware_revision: String,
    /// MDTS: Maximum Data Transfer Size, in bytes; `None` if there is no limit.
    pub mdts_bytes: Option<u64>,
    /// NN: Number of Namespaces, the largest identifier.
    pub nn: u32,
    /// ONCS: takes Dataset Management.
    pub takes_dataset_management: bool,
    /// ONCS: takes Write Zeroes.
    pub takes_write_zeroes: bool,
    /// SGLS: takes scatter gather lists.
    pub takes_sgls: bool,
    /// VWC: a volatile write cache is present.
    pub volatile_write_cache: bool,
    /// AWUPF: Atomic Write Unit Power Fail, in logical blocks; at least 1.
    pub awupf_blocks: u32,
}

/// The Identify Namespace data structure, as far as it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceIdentity {
    /// NSZE: Namespace Size, in logical blocks. 0: there is no such namespace.
    pub nsze_blocks: u64,
    /// LBADS: bytes of a logical block.
    pub lba_bytes: u32,
    /// MS: bytes of metadata of each logical block.
    pub metadata_bytes: u16,
    /// DPS: end-to-end protection is on.
    pub is_protected: bool,
    /// NAWUPF, if the namespace has its own: in logical blocks; at least 1.
    pub nawupf_blocks: Option<u32>,
    /// NGUID: what names the namespace anywhere; zero if it has none.
    pub nguid: [u8; 16],
    /// EUI64: the same in 64 bits; zero if it has none.
    pub eui64: [u8; 8],
}

/// Bytes of an identify data structure.
pub const IDENTIFY_BYTES: usize = PAGE_BYTES;

impl ControllerIdentity {
    /// From the page that Identify gives; `mpsmin_bytes` is the unit of MDTS.
    pub fn parse(page: &[u8; IDENTIFY_BYTES], mpsmin_bytes: u64) -> ControllerIdentity {
        let oncs = u16_at(page, 520);
        let mdts = match page[77] {
            0 => None,
            // More than any transfer is.
            shift => Some(mpsmin_bytes.checked_shl(shift.into()).filter(|bytes| *bytes > 0).unwrap_or(u64::MAX)),
        };
        ControllerIdentity {
            serial_number: text(&page[4..24]),
            model_number: text(&page[24..64]),
            firmware_revision: text(&page[64..72]),
            mdts_bytes: mdts,
            nn: u32_at(page, 516),
            takes_dataset_management: oncs >> 2 & 1 == 1,
            takes_write_zeroes: oncs >> 3 & 1 == 1,
            takes_sgls: matches!(u32_at(page, 536) & 3, 1 | 2),
            volatile_write_cache: page[525] & 1 == 1,
            awupf_blocks: u32::from(u16_at(page, 528)) + 1,
        }
    }
}

impl NamespaceIdentity {
    /// From the page that Identify gives; `None` if its format is none of those that it lists, or
    /// has blocks of an impossible size.
    pub fn parse(page: &[u8; IDENTIFY_BYTES]) -> Option<NamespaceIdentity> {
        let (nsfeat, nlbaf, flbas) = (page[24], page[25], page[26]);
        let format = usize::from(flbas & 0xF) | usize::from(flbas >> 5 & 3) << 4;
        if format > usize::from(nlbaf) || format > 63 {
            return None;
        }
        let lbaf = page.get(128 + 4 * format..132 + 4 * format)?;
        let lbads = lbaf[2];
        Some(NamespaceIdentity {
            nsze_blocks: u64::from_le_bytes(array(page, 0)),
            lba_bytes: 1u32.checked_shl(lbads.into()).filter(|_| (9..=30).contains(&lbads))?,
            metadata_bytes: u16::from_le_bytes([lbaf[0], lbaf[1]]),
            is_protected: page[29] & 7 != 0,
            nawupf_blocks: (nsfeat & 2 == 2).then(|| u32::from(u16_at(page, 36)) + 1),
            nguid: array(page, 104),
            eui64: array(page, 120),
        })
    }

    /// Its bytes, if so many can be counted.
    pub fn len_bytes(&self) -> Option<u64> {
        self.nsze_blocks.checked_mul(self.lba_bytes.into())
    }
}

fn array<const N: usize>(page: &[u8; IDENTIFY_BYTES], at: usize) -> [u8; N] {
    page.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
}

fn u16_at(page: &[u8; IDENTIFY_BYTES], at: usize) -> u16 {
    u16::from_le_bytes(array(page, at))
}

fn u32_at(page: &[u8; IDENTIFY_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(array(page, at))
}

/// ASCII, padded with spaces. What is no printable character becomes `?`: it goes to terminals.
fn text(bytes: &[u8]) -> String {
    let shown = |byte: &u8| if (0x20..0x7F).contains(byte) { char::from(*byte) } else { '?' };
    let end = bytes.iter().rposition(|byte| !matches!(byte, b' ' | 0)).map_or(0, |at| at + 1);
    bytes.iter().take(end).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(blocks: u64, lbads: u8) -> [u8; IDENTIFY_BYTES] {
        let mut page = [0; IDENTIFY_BYTES];
        page[..8].copy_from_slice(&blocks.to_le_bytes());
        page[130] = lbads;
        page
    }

    #[test]
    fn a_controller_is_read() {
        let mut page = [0; IDENTIFY_BYTES];
        page[4..24].copy_from_slice(b"SERIAL 1            ");
        page[24..32].copy_from_slice(b"mod\x1b[2Jx");
        page[77] = 7;
        page[516] = 2;
        page[520] = 0b1100;
        page[525] = 7;
        page[528] = 7;
        let identity = ControllerIdentity::parse(&page, 4096);
        assert_eq!((identity.serial_number.as_str(), identity.model_number.as_str()), ("SERIAL 1", "mod?[2Jx"));
        assert_eq!((identity.mdts_bytes, identity.nn, identity.awupf_blocks), (Some(512 << 10), 2, 8));
        assert!(identity.takes_dataset_management && identity.takes_write_zeroes && identity.volatile_write_cache);
    }

    /// A transfer size that no number holds is no limit, and 0 says that there is none.
    #[test]
    fn impossible_transfer_sizes_do_no_harm() {
        let mut page = [0; IDENTIFY_BYTES];
        assert_eq!(ControllerIdentity::parse(&page, 4096).mdts_bytes, None);
        for shift in 1..=255 {
            page[77] = shift;
            assert!(ControllerIdentity::parse(&page, 1 << 27).mdts_bytes.is_some_and(|bytes| bytes >= 1 << 27));
        }
    }

    #[test]
    fn formats_are_taken_from_the_list_and_from_nowhere_else() {
        let four = NamespaceIdentity::parse(&namespace(1000, 12)).unwrap();
        assert_eq!((four.lba_bytes, four.len_bytes(), four.nawupf_blocks), (4096, Some(4_096_000), None));
        for lbads in [0, 8, 31, 64, 255] {
            assert_eq!(NamespaceIdentity::parse(&namespace(1, lbads)), None, "{lbads}");
        }
        let mut page = namespace(8, 9);
        page[26] = 0x21;
        assert_eq!(NamespaceIdentity::parse(&page), None, "a format that is not listed");
        page[25] = 63;
        page[128 + 4 * 17 + 2] = 9;
        assert_eq!(NamespaceIdentity::parse(&page).map(|found| found.lba_bytes), Some(512));
        assert_eq!(NamespaceIdentity::parse(&namespace(u64::MAX, 12)).and_then(|huge| huge.len_bytes()), None);
    }
}
