//! Files of a newer program: every one is refused with exit code 6 and the same words, and is left
//! as it is. With its version back the store opens.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use stratakv::{Engine, ErrorKind, Options, Placement, Store};
use stratakv_base::checksum::{crc32c, seed};
use stratakv_base::format::ENCRYPTED_FORMAT;
use stratakv_integration::{place, program};

/// No format has this version.
const NEWER: u32 = 999;
const REGION: &str = "pmem/region-000";
const GROWN: &str = "second part of a region";

/// Where a kind of file has its version, from the start of each copy.
#[derive(Clone, Copy)]
struct Versioned {
    /// Where the copies are.
    copies: &'static [u64],
    format_at: usize,
    /// The checksum follows all that it covers.
    crc_at: usize,
    /// Where the store's UUID is, if the checksum begins with it.
    seeded_by: Option<usize>,
}

impl Versioned {
    /// Makes every copy one of this version, whole.
    fn forge(&self, file: &Path, version: u32) {
        let file = File::options().read(true).write(true).open(file).expect("a file of a store");
        for copy in self.copies {
            let mut bytes = vec![0; self.crc_at + 4];
            file.read_exact_at(&mut bytes, *copy).expect("a superblock");
            bytes[self.format_at..][..4].copy_from_slice(&version.to_le_bytes());
            let uuid = self.seeded_by.map(|at| bytes[at..at + 16].try_into().expect("16 bytes"));
            let crc = crc32c(uuid.map_or(0, |uuid| seed(&uuid, 0, 0)), &bytes[..self.crc_at]);
            bytes[self.crc_at..].copy_from_slice(&crc.to_le_bytes());
            file.write_all_at(&bytes, *copy).expect("written");
        }
    }
}

const SLAB: Versioned = Versioned { copies: &[0, 4096], format_at: 8, crc_at: 88, seeded_by: Some(16) };
const TIER: Versioned = Versioned { copies: &[0, 4096], format_at: 16, crc_at: 176, seeded_by: Some(32) };
const MATRIX: Versioned = Versioned { copies: &[0, 4096], format_at: 16, crc_at: 124, seeded_by: None };
const CONTAINER: Versioned = Versioned { copies: &[0], format_at: 16, crc_at: 60, seeded_by: None };
const HASH: Versioned = Versioned { copies: &[0, 4096], format_at: 16, crc_at: 56, seeded_by: None };
/// Of the second part of a region whose first one has 4 MiB.
const PART: Versioned = Versioned { copies: &[4 << 20, (4 << 20) + 4096], ..HASH };

/// Every file of a store, as it is, but for the number of the process that has it.
fn contents(data: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(data).expect("a directory") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            _ if path.ends_with("LOCK") => {}
            true => files.extend(contents(&path)),
            false => _ = files.insert(path.clone(), std::fs::read(path).expect("a file")),
        }
    }
    files
}

/// A store with a record.
fn store(data: &Path, options: Options) -> Store {
    let store = options.memory_bytes(32 << 20).open(data).expect("a new store");
    store.put("key", "value").expect("a put");
    store
}

fn slab() -> Options {
    Options::new().shards(1)
}

/// `get`, `check` and `serve` on a store that is too new.
fn is_refused(data: &Path, words: &str, of: &str) {
    let text = data.to_str().expect("a name");
    let before = contents(data);
    for command in [&["get", "--data", text, "key"][..], &["check", "--data", text], &["serve", "--data", text]] {
        let output = program::run(command);
        let said = program::said(&output);
        assert_eq!(output.status.code(), Some(6), "{of}: {command:?}: {said}");
        assert!(said.contains(words), "{of}: {command:?}: {said}");
    }
    assert!(contents(data) == before, "{of}: a refused opening changes nothing");
}

#[test]
fn files_of_a_newer_program_are_refused_and_left_as_they_are() {
    let of = |engine| slab().engine(engine);
    let matrix = || of(Engine::Matrix).region_bytes(8 << 20);
    let hash = || of(Engine::Hash).region_bytes(4 << 20);
    let cases = [
        ("volume of in_place", slab(), SLAB, "shard-000.vol"),
        ("volume of packed", slab().placement(Placement::Packed), SLAB, "shard-000.vol"),
        ("volume of tier", of(Engine::Tier), TIER, "shard-000.vol"),
        ("volume of matrix", matrix(), MATRIX, "shard-000.vol"),
        ("region of matrix", matrix(), CONTAINER, REGION),
        ("region of hash", hash(), HASH, REGION),
        (GROWN, hash(), PART, REGION),
    ];
    for (of, options, versioned, name) in cases {
        let place = place::directory();
        let data = place.path().join("data");
        store(&data, options).close().expect("closed");
        if of == GROWN {
            Options::new().region_bytes(8 << 20).open(&data).expect("it grows").close().expect("closed");
        }
        let file = data.join(name);
        let whole = std::fs::read(&file).expect("a file of the store");
        versioned.forge(&file, NEWER);
        is_refused(&data, "has format 999, this program knows up to", of);
        is_refused(&data, "use a newer stratakv", of);
        let error = Options::new().create(false).open(&data).expect_err("a newer format");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{of}: {error}");
        versioned.forge(&file, ENCRYPTED_FORMAT | 1);
        is_refused(&data, "is encrypted, and this program cannot decrypt", of);
        std::fs::write(&file, whole).expect("written");
        let store = Options::new().create(false).open(&data).expect("its version is back");
        assert_eq!(store.get("key").expect("a get").expect("it was put").to_bytes(), "value", "{of}");
    }
}

#[test]
fn a_manifest_of_a_newer_program_is_refused() {
    let place = place::directory();
    let data = place.path().join("data");
    store(&data, slab()).close().expect("closed");
    let manifest = data.join("store.toml");
    let text = std::fs::read_to_string(&manifest).expect("a manifest");
    std::fs::write(&manifest, text.replace("format = 1", "format = 999\nsomething = \"new\"")).expect("written");
    is_refused(&data, "has format 999, this program knows up to 6: use a newer stratakv", "store.toml");
    std::fs::write(&manifest, text).expect("written");
    drop(Options::new().create(false).open(&data).expect("its version is back"));
}

#[test]
fn a_backup_of_a_newer_program_is_refused() {
    let place = place::directory();
    let (data, backup) = (place.path().join("data"), place.path().join("backup"));
    let store = store(&data, slab());
    store.backup(&backup).expect("a backup");
    store.close().expect("closed");
    let manifest = backup.join("backup.toml");
    let text = std::fs::read_to_string(&manifest).expect("a manifest");
    let (shard, copy) = (backup.join("shard-000.backup"), place.path().join("copy"));
    let restored = |words: &str, of: &str| {
        let (from, to) = (backup.to_str().expect("a name"), copy.to_str().expect("a name"));
        let output = program::run(&["restore", from, "--data", to]);
        assert_eq!(output.status.code(), Some(6), "{of}: {}", program::said(&output));
        assert!(program::said(&output).contains(words), "{of}: {}", program::said(&output));
    };
    std::fs::write(&manifest, text.replace("format = 1", "format = 999").replace("records = ", "all = "))
        .expect("written");
    restored("has format 999, this program knows up to 1: use a newer stratakv", "backup.toml");
    std::fs::write(&manifest, &text).expect("written");
    let file = File::options().write(true).open(&shard).expect("a shard's file");
    file.write_all_at(&NEWER.to_le_bytes(), 8).expect("written");
    restored("has format 999, this program knows up to 1: use a newer stratakv", "a shard's file");
}
