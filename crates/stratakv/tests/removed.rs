//! The store's files are removed while it is open: it is said, and the end is not orderly.

use stratakv::{Engine, Error, Level, Options};

/// The data was gone with the process, which said that it was closed in order.
#[test]
fn removed_files_are_noticed() {
    for (engine, file) in [
        (Engine::Slab, None),
        (Engine::Slab, Some("shard-001.vol")),
        (Engine::Tier, None),
        (Engine::Hash, None),
        (Engine::Matrix, None),
        (Engine::Matrix, Some("pmem/region-000")),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let options = Options::new().engine(engine).memory_bytes(64 << 20);
        let options = match engine {
            Engine::Slab => options.shards(2),
            Engine::Tier => options.shards(1).capacity_bytes(64 << 20),
            _ => options.region_bytes(32 << 20).level(Level::ProcessCrash),
        };
        let store = options.open(&data).unwrap();
        store.put(b"key", b"value").unwrap();
        assert!(store.failure().is_none(), "{engine:?}");
        match file {
            None => std::fs::remove_dir_all(&data).unwrap(),
            Some(file) => std::fs::remove_file(data.join(file)).unwrap_or_else(|error| {
                let there: Vec<_> = std::fs::read_dir(data.join("pmem")).unwrap().collect();
                panic!("{file}: {error}; there are {there:?}")
            }),
        }
        assert_eq!(store.get(b"key").unwrap().unwrap().to_bytes(), "value", "it can be copied out");
        assert!(matches!(store.failure(), Some(Error::Removed { .. })), "{engine:?}, {file:?}");
        let end = store.close();
        assert!(matches!(end, Err(Error::Removed { .. })), "{engine:?}, {file:?}: {end:?}");
    }
}
