//! What a get reads of the device: a value that is longer than was expected is read once.

use std::io::{Read, Write};
use std::net::TcpStream;

use stratakv::{Engine, Level, Options, Placement, Store};
use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_server::Server;

use super::{connect, options_on};

const MIB: usize = 1 << 20;

/// Engines whose values lie on a device.
fn engines() -> [(&'static str, Options); 4] {
    let options = |engine| Options::new().engine(engine).memory_bytes(64 << 20).shards(1);
    let durable = Level::ProcessCrash;
    [
        ("in_place", options(Engine::Slab).level(durable)),
        ("packed", options(Engine::Slab).placement(Placement::Packed).level(durable)),
        ("matrix", options(Engine::Matrix).region_bytes(8 << 20).level(durable)),
        ("tier", options(Engine::Tier).capacity_bytes(512 << 20)),
    ]
}

fn value(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 7 + at % 251 + bytes) as u8).collect()
}

fn key(bytes: usize, copy: usize) -> String {
    format!("{bytes}-{copy}")
}

/// A store of which nothing is in memory, with copies of values of these lengths, and a server.
fn cold(options: &Options, lengths: &[usize], copies: usize) -> (Server, Store, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let fill = |store: &Store| {
        for copy in 0..copies {
            lengths.iter().for_each(|bytes| _ = store.put(key(*bytes, copy).as_bytes(), value(*bytes)).unwrap());
        }
        // A cache writes what has no room in memory.
        let filler = vec![b'f'; MIB / 2];
        let fillers = if store.engine() == Engine::Tier { 120 } else { 0 };
        (0..fillers).for_each(|number| _ = store.put(format!("filler{number}").as_bytes(), &filler).unwrap());
    };
    let mut store = options.open(&path).unwrap();
    fill(&store);
    if store.engine() != Engine::Tier {
        store.close().unwrap();
        drop(store);
        store = options.open(&path).unwrap();
    }
    let mut server_options = options_on(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    server_options.limits.item_bytes_max = 4 * MIB;
    (Server::start(store.clone(), server_options).unwrap(), store, directory)
}

/// Bytes that were read from the device. A cache counts reads alone, of a slice each.
fn read_bytes(store: &Store) -> u64 {
    let name = if store.engine() == Engine::Tier { "ssd_reads" } else { "read_bytes" };
    let counted = store.stats().iter().find(|statistic| statistic.name == name).map(|statistic| statistic.value);
    counted.expect(name) * if store.engine() == Engine::Tier { SLICE_BYTES as u64 } else { 1 }
}

/// What has to be read for a value: it, what stands in front of it, and the rest of its last page.
fn most_read(store: &Store, bytes: usize) -> usize {
    let around = 2 * PAGE_BYTES;
    if store.engine() == Engine::Tier { (bytes + around).next_multiple_of(SLICE_BYTES) } else { bytes + around }
}

fn get(stream: &mut TcpStream, keys: &[(usize, usize)]) {
    let names: Vec<_> = keys.iter().map(|(bytes, copy)| key(*bytes, *copy)).collect();
    stream.write_all(format!("get {}\r\n", names.join(" ")).as_bytes()).unwrap();
    for ((bytes, _), name) in keys.iter().zip(&names) {
        let expected = [format!("VALUE {name} 0 {bytes}\r\n").as_bytes(), &value(*bytes), b"\r\n"].concat();
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).unwrap();
        assert!(answer == expected, "{name}");
    }
    let mut end = [0; 5];
    stream.read_exact(&mut end).unwrap();
    assert_eq!(&end, b"END\r\n");
}

/// On a fresh connection, which expects short values, the beginning of a long one was read twice
/// (`in_place`), or all of one for which there was no room (`matrix`).
#[test]
fn a_value_longer_than_expected_is_read_from_the_device_once() {
    let lengths = [20_000, 70_000, 100_000, 200_000, MIB - 1000, 3 * MIB];
    for (name, options) in engines() {
        let (server, store, _directory) = cold(&options, &lengths, 8);
        for bytes in lengths {
            for copies in [0..1, 1..8] {
                let before = read_bytes(&store);
                let keys: Vec<_> = copies.map(|copy| (bytes, copy)).collect();
                get(&mut connect(server.addresses()[0]), &keys);
                let read = read_bytes(&store) - before;
                let most = keys.len() * most_read(&store, bytes);
                assert!(read <= most as u64, "{name}, {} of {bytes} bytes: {read} were read", keys.len());
            }
        }
        server.shutdown();
        server.join().unwrap();
    }
}
