//! The bytes of a table are part of the store's format: a change of these makes every existing
//! store unreadable.

use stratakv_base::checksum::crc32c;

use super::*;

fn versions() -> Vec<Version> {
    let pointer = Pointer { file: 300, offset: 1 << 20, value_bytes: 600, checksum: 0x0403_0201 };
    let mut versions = vec![put(b"aa", 3, b"one"), delete(b"aa", 2), blob(b"ab", 130, pointer)];
    versions[0].meta.flags = 0x1122_3344;
    versions[0].meta.expiry = Expiry::at_second(0x5566_7788);
    versions.extend((0..400u32).map(|number| put(format!("key {number:06}").as_bytes(), 9, &number.to_le_bytes())));
    versions
}

#[test]
fn a_data_block_begins_as_drawn() {
    let (facts, parts) = build(&versions(), 10);
    assert_eq!((facts.pages, facts.data_pages, facts.root, facts.index_levels, facts.filter_pages), (4, 2, 2, 1, 1));
    let page = parts[0].bytes();
    assert_eq!(page[4..6], [1, 0], "a data block of one page");
    assert_eq!(page[12..16], [0; 4]);
    let checksum = value_checksum(3, b"one").to_le_bytes();
    let first =
        [&[0, 2, 3, 1 | 4 | 8, 0x44, 0x33, 0x22, 0x11, 0x88, 0x77, 0x66, 0x55, 3][..], &checksum, b"aaone"].concat();
    let rest = [2, 0, 2, 2, 1, 1, 0x82, 0x01, 3, 0xd8, 0x04, 1, 2, 3, 4, 0xac, 0x02, 0x80, 0x80, 0x40, b'b'];
    assert_eq!(page[16..][..first.len()], first);
    assert_eq!(page[16 + first.len()..][..rest.len()], rest);
}

#[test]
fn a_table_is_what_it_always_was() {
    let (_, parts) = build(&versions(), 10);
    let checksums: Vec<u32> = parts.iter().map(|part| crc32c(0, part.bytes())).collect();
    assert_eq!(checksums, [1_354_877_138, 2_687_145_922, 1_736_561_945, 3_461_611_722]);
}
