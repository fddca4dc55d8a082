//! How much of a file is written for what was stored to it. By itself: what a process writes is
//! counted for all of its threads.

use std::path::Path;

use rustix::fs::Advice;
use stratakv_pmem::{Domain, MapOptions, Mapping, Pmem};

const LEN_BYTES: u64 = 64 << 20;
const STORES: u64 = 200;

/// Bytes that this process has had written to storage; `None` where the system does not tell.
fn written_bytes() -> Option<u64> {
    let told = std::fs::read_to_string("/proc/self/io").ok()?;
    told.lines().find_map(|line| line.strip_prefix("write_bytes: "))?.parse().ok()
}

/// For a word stored, in bytes.
fn written_for_a_store(mapping: &Mapping) -> Option<u64> {
    let before = written_bytes()?;
    for number in 0..STORES {
        // Far from each other, in no order.
        mapping.store_u64(number * 7919 % (LEN_BYTES / 4096) * 4096, number).unwrap();
        mapping.persist(number * 7919 % (LEN_BYTES / 4096) * 4096, 8).unwrap();
    }
    Some((written_bytes()? - before) / STORES)
}

/// Half of it announced, half of it not.
fn read_all(mapping: &Mapping) {
    let mut piece = vec![0; 1 << 20];
    for at in (0..LEN_BYTES).step_by(piece.len()) {
        if at < LEN_BYTES / 2 {
            mapping.will_read(at, piece.len() as u64);
        }
        mapping.load(at, &mut piece).unwrap();
    }
}

fn forget(at: &Path) {
    let file = std::fs::File::open(at).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
}

/// The page cache held it in folios of up to 2 MiB, and each word that was stored had all of one
/// written: 1.0 to 1.6 MB on ext4 of Linux 6.18.
#[test]
fn a_word_that_is_stored_costs_a_page_and_not_what_lies_around_it() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = directory.path().join("region");
    let mapping = Mapping::create(&at, LEN_BYTES, MapOptions::default()).unwrap();
    let Some(after_creation) = written_for_a_store(&mapping).filter(|_| mapping.domain() == Domain::File) else {
        // No disk, or nothing told of what is written.
        return;
    };
    drop(mapping);
    forget(&at);
    let mapping = Mapping::open(&at, MapOptions::default()).unwrap();
    read_all(&mapping);
    let after_reading = written_for_a_store(&mapping).unwrap();
    assert!(after_creation.max(after_reading) <= 16 << 10, "{after_creation} B, {after_reading} B");
}
