//! Value files.

use stratakv_base::random::Random;

use super::*;
use crate::table::values::{ValuesWriter, pages_of, value};

fn bytes(random: &mut Random, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    random.fill(&mut bytes);
    bytes
}

/// Values, their places and the file's pages.
fn file(random: &mut Random, lens: &[u64]) -> (Vec<(Vec<u8>, Pointer)>, Vec<BlockPart>) {
    let (mut writer, mut packed) = (ValuesWriter::default(), Packed::new());
    let mut values = Vec::new();
    for (version, len) in lens.iter().enumerate() {
        let value = bytes(random, *len);
        let offset = writer.add(&value, &mut |page| packed.push(page));
        let checksum = value_checksum(version as u64, &value);
        values.push((value, Pointer { file: FILE, offset, value_bytes: *len as u32, checksum }));
    }
    let facts = writer.finish(&mut |page| packed.push(page));
    let parts = packed.parts();
    assert_eq!((facts.pages, facts.value_bytes), (parts.len() as u64, lens.iter().sum()));
    (values, parts)
}

fn read<'a>(pointer: &Pointer, parts: &'a [BlockPart]) -> &'a [BlockPart] {
    let pages = pages_of(pointer);
    &parts[pages.start as usize..pages.end as usize]
}

#[test]
fn every_value_comes_back_from_its_pages() {
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let lens: Vec<u64> = (0..60)
            .map(|_| match random.below(10) {
                0 => random.below(300_000),
                1 => 4096 * random.below(4),
                2 => 4096 * (1 + random.below(4)) + random.below(3) - 1,
                _ => 512 + random.below(5_000),
            })
            .collect();
        let (values, parts) = file(&mut random, &lens);
        let mut end = 0;
        for (version, (wanted, pointer)) in values.iter().enumerate() {
            let pieces = value(pointer, version as u64, read(pointer, &parts)).unwrap();
            assert!(pieces.iter().flat_map(BlockPart::bytes).eq(wanted), "seed {seed}, value {version}");
            let gap = pointer.offset - end;
            assert!(gap <= wanted.len() as u64 / 8, "a gap of {gap} before {} bytes", wanted.len());
            end = pointer.offset + wanted.len() as u64;
        }
    }
}

#[test]
fn a_gap_is_left_where_it_saves_a_page_and_is_small() {
    let mut random = Random::new(1);
    let (values, _) = file(&mut random, &[4000, 1000, 900, 700, 4096, 600]);
    let offsets: Vec<u64> = values.iter().map(|(_, pointer)| pointer.offset).collect();
    // 96 bytes before 1000 are a small gap; of the second page 1496 are left before 4096: too many.
    // 600 fit where they are.
    assert_eq!(offsets, [0, 4096, 5096, 5996, 6696, 10_792]);
}

#[test]
fn every_bit_of_a_value_counts() {
    let mut random = Random::new(2);
    let (values, parts) = file(&mut random, &[700, 5_000]);
    let (_, pointer) = &values[1];
    let pool = Pool::new(1 << 22);
    for bit in 0..parts.len() * PAGE_BYTES * 8 {
        let (page, bit) = (bit / (PAGE_BYTES * 8), bit % (PAGE_BYTES * 8));
        let mut block = pool.take(Class::Page).unwrap();
        block.copy_from_slice(parts[page].bytes());
        block[bit / 8] ^= 1 << (bit % 8);
        let mut turned = parts.clone();
        turned[page] = BlockPart::whole(Arc::new(block));
        let at = (page * PAGE_BYTES + bit / 8) as u64;
        let inside = (pointer.offset..pointer.offset + 5_000).contains(&at);
        assert_eq!(value(pointer, 1, read(pointer, &turned)).is_err(), inside, "byte {at}");
    }
    assert!(value(pointer, 2, read(pointer, &parts)).is_err(), "another version");
    assert!(value(pointer, 1, &read(pointer, &parts)[1..]).is_err(), "a page less");
    assert!(value(&Pointer { value_bytes: 4_999, ..*pointer }, 1, read(pointer, &parts)).is_err());
    let far = Pointer { offset: u64::MAX, value_bytes: u32::MAX, ..*pointer };
    assert!(pages_of(&far).start > 1 << 50 && value(&far, 1, &parts).is_err());
}
