//! Regions whose parts lie on several nodes of the machine: threads write near.

use std::cell::Cell;

use stratakv_base::{CollectionId, Expiry, Key, Wall};
use stratakv_engine::{Error, Expect};
use stratakv_hash::{Hash, HashOptions, NodeReport};
use stratakv_pmem::{Pmem, PmemError};
use stratakv_sim::pmem::Region;

const NOW: Wall = Wall(1000);
const OPTIONS: HashOptions = HashOptions { uuid: *b"a store on nodes", block_bytes: 64, segment_bytes: 4096 };
const PART_BYTES: u64 = 64 * 4096;

thread_local! {
    static NODE: Cell<usize> = const { Cell::new(0) };
}

/// A region on two nodes, part by part in turn; the calling thread is where it says.
struct OnNodes(Region);

impl Pmem for OnNodes {
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }
    fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), PmemError> {
        self.0.load(offset, into)
    }
    fn load_u64(&self, offset: u64) -> Result<u64, PmemError> {
        self.0.load_u64(offset)
    }
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.0.store(offset, bytes)
    }
    fn store_u64(&self, offset: u64, value: u64) -> Result<(), PmemError> {
        self.0.store_u64(offset, value)
    }
    fn store_nt(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.0.store_nt(offset, bytes)
    }
    fn flush(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError> {
        self.0.flush(offset, len_bytes)
    }
    fn fence(&self) -> Result<(), PmemError> {
        self.0.fence()
    }
    fn node_count(&self) -> usize {
        2
    }
    fn node_here(&self) -> usize {
        NODE.get()
    }
    fn node_of(&self, offset: u64) -> usize {
        (offset / PART_BYTES % 2) as usize
    }
    fn node_number(&self, node: usize) -> u32 {
        [0, 7][node]
    }
}

/// A new store of so many parts.
fn store(parts: u64) -> Hash<OnNodes> {
    let region = Region::new((parts * PART_BYTES) as usize);
    let first = Region::new(PART_BYTES as usize);
    drop(Hash::create(&first, OPTIONS).expect("created"));
    let mut image = vec![0; PART_BYTES as usize];
    first.load(0, &mut image).expect("in bounds");
    region.store(0, &image).expect("in bounds");
    for _ in 1..parts {
        Hash::add_part(&&region, PART_BYTES, 9).expect("grown");
    }
    Hash::open(OnNodes(region), 2).expect("opened")
}

fn key(number: u32) -> Key {
    Key::new(CollectionId(0), &number.to_be_bytes()).expect("a key")
}

/// On this node.
fn put(hash: &Hash<OnNodes>, node: usize, number: u32, bytes: usize) -> Result<(), Error> {
    NODE.set(node);
    hash.put(&key(number), &vec![number as u8; bytes], (0, Expiry::NEVER), Expect::Any, NOW).map(drop)
}

fn nodes(hash: &Hash<OnNodes>) -> [NodeReport; 2] {
    hash.report().nodes.try_into().expect("two of them")
}

fn holds(hash: &Hash<OnNodes>, numbers: std::ops::Range<u32>, bytes: usize) {
    for number in numbers {
        let record = hash.get(&key(number), NOW).expect("sound").expect("there");
        assert_eq!(record.value.to_bytes(), vec![number as u8; bytes]);
    }
}

#[test]
fn what_a_thread_writes_lies_on_its_node() {
    let hash = store(2);
    for number in 0..300 {
        put(&hash, (number % 3 == 0).into(), number, 100).expect("there is room");
    }
    let [first, second] = nodes(&hash);
    assert_eq!((first.number, second.number), (0, 7));
    assert_eq!((first.used_bytes, second.used_bytes), (200 * 192, 100 * 192));
    assert!(first.local > 0 && second.local > 0 && first.remote + second.remote == 0, "{first:?} {second:?}");
    // An update too, whoever wrote the key before; what was there comes back to where it was.
    for number in 0..300 {
        put(&hash, 1, number, 100).expect("there is room");
    }
    put(&hash, 0, 1000, 100).expect("there is room");
    let used_bytes = nodes(&hash).map(|node| node.used_bytes);
    // What was freed last may still be looked at.
    let retired_bytes = hash.report().retired_bytes;
    assert_eq!(used_bytes[0] + used_bytes[1], 301 * 192 + retired_bytes);
    assert!(retired_bytes < 70 * 192 && used_bytes[1] >= 300 * 192, "{used_bytes:?}");
    holds(&hash, 0..300, 100);
    // And when it is opened again.
    let region = hash.into_pmem();
    let hash = Hash::open(region, 2).expect("opened");
    let [first, second] = nodes(&hash);
    assert_eq!((first.used_bytes, second.used_bytes), (192, 300 * 192));
    assert_eq!(first.bytes + second.bytes, hash.report().used_bytes + hash.report().unused_bytes);
}

#[test]
fn a_node_without_room_takes_it_from_the_others() {
    for node in [0, 1] {
        let hash = store(4);
        let count = (0..).find(|number| put(&hash, node, *number, 400).is_err()).expect("it gets full");
        let nodes = nodes(&hash);
        let (own, other) = (nodes[node], nodes[1 - node]);
        assert_eq!(u64::from(count), (own.bytes + other.bytes) / 4096 * 9, "{nodes:?}");
        assert!(own.local > 0 && own.remote > 0 && other.local + other.remote == 0, "{nodes:?}");
        holds(&hash, 0..count, 400);
        // Room that comes back near is taken before what comes back far.
        for number in 0..count {
            hash.delete(&key(number), Expect::Any, NOW).expect("deleted");
        }
        let remote = hash.report().nodes[node].remote;
        (0..200).for_each(|number| put(&hash, node, number, 400).expect("there is room"));
        assert_eq!(hash.report().nodes[node].remote, remote);
    }
}

#[test]
fn records_longer_than_what_a_node_has_side_by_side_lie_on_one_of_them() {
    let hash = store(2);
    put(&hash, 0, 0, 40 * 4096).expect("on its node");
    put(&hash, 0, 1, 40 * 4096).expect("on the other one");
    assert!(matches!(put(&hash, 0, 2, 40 * 4096), Err(Error::Full(_))));
    let [first, second] = nodes(&hash);
    assert!(first.used_bytes > 40 * 4096 && second.used_bytes > 40 * 4096, "{first:?} {second:?}");
    holds(&hash, 0..2, 40 * 4096);
}

#[test]
fn threads_of_several_nodes_write_beside_each_other() {
    let hash = store(4);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let hash = &hash;
            scope.spawn(move || {
                for number in 0..2000_u32 {
                    let number = thread * 100 + number % 100;
                    put(hash, thread as usize % 2, number, 300 + number as usize % 50).expect("there is room");
                }
            });
        }
    });
    let [first, second] = nodes(&hash);
    assert!(first.local > 0 && second.local > 0 && first.remote + second.remote == 0, "{first:?} {second:?}");
    assert_eq!(hash.report().records, 400);
}
