//! A region on two nodes of an emulated machine (QEMU's `-numa`), a file on the memory of one and a
//! device on that of the other: what a thread writes lies on its node. The machine is killed while
//! two threads write; then everything is compared, and the region grows.

use std::path::{Path, PathBuf};
use std::thread;

use rustix::mount::{UnmountFlags, unmount};
use stratakv::{Engine, Level, Options, Store};

use super::guest::{GUEST, text};
use super::machine::{CPU, Machine};
use super::pmem::{DIMM_BYTES, dimms, set_out};

const NODES: usize = 2;
/// Of the values that the threads write: so long that it shows where they went.
const VALUE_BYTES: [usize; NODES] = [300, 3000];
/// Of a record more than its value, and what the store notes for itself.
const RECORD_BYTES: u64 = 160;
const NOTES_BYTES: u64 = 64 << 10;
/// Each thread has done as many when the machine is killed.
const STEPS: u64 = 300;
/// Steps after the last one that the host heard of: the console lags.
const UNHEARD_MAX: u64 = 5000;
const GROWN_BYTES: u64 = 8 << 20;

/// What the kernel's command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumaTask {
    /// Steps of each thread that the host knows to be acknowledged; `None`: there is nothing yet,
    /// and they are to be done.
    acknowledged: Option<[u64; NODES]>,
}

impl NumaTask {
    fn to_words(self) -> String {
        match self.acknowledged {
            None => format!("{GUEST} numa write"),
            Some([first, second]) => format!("{GUEST} numa compare {first} {second}"),
        }
    }

    pub(super) fn from_words(words: &[String]) -> Option<NumaTask> {
        match words {
            [.., guest, numa, write] if guest == GUEST && numa == "numa" && write == "write" => {
                Some(NumaTask { acknowledged: None })
            }
            [.., guest, numa, compare, first, second] if guest == GUEST && numa == "numa" && compare == "compare" => {
                Some(NumaTask { acknowledged: Some([first.parse().ok()?, second.parse().ok()?]) })
            }
            _ => None,
        }
    }
}

/// A machine with two nodes, each with a processor and half of the memory.
fn board() -> Vec<String> {
    let processor = format!("{CPU},+clwb,+clflushopt");
    // One thread of the host for both processors: with one each the emulation has locked up.
    let words =
        ["-M", "q35,nvdimm=on,nvdimm-persistence=mem-ctrl", "-accel", "tcg,thread=single", "-smp", "2,sockets=2"];
    let mut board: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    board.extend(["-m".into(), "1G,slots=2,maxmem=3G".into(), "-cpu".into(), processor]);
    for node in 0..NODES {
        board.extend(["-object".into(), format!("memory-backend-ram,id=n{node},size=512M")]);
        board.extend(["-numa".into(), format!("node,nodeid={node},cpus={node},memdev=n{node}")]);
    }
    board
}

/// Persistent memory of each node.
fn memory(dimms: &[PathBuf]) -> Vec<String> {
    let parts = dimms.iter().enumerate().flat_map(|(number, dimm)| {
        let file = format!("memory-backend-file,id=m{number},share=on,mem-path={},size={DIMM_BYTES}", dimm.display());
        let device = format!("nvdimm,id=d{number},memdev=m{number},node={number}");
        ["-object".to_owned(), file, "-device".to_owned(), device]
    });
    parts.collect()
}

/// Boots, kills, boots again, in `cache`: what the second machine found.
///
/// # Errors
/// A machine did not come up, or what it found is not what was acknowledged, or lies elsewhere: its
/// console's end.
pub fn run(machine: &Machine, cache: &Path, report: &mut dyn FnMut(String)) -> Result<String, String> {
    let dimms = dimms(cache)?;
    let is_enough = |said: &str| heard(said).iter().all(|steps| *steps >= STEPS);
    let words = NumaTask { acknowledged: None }.to_words();
    let said = machine.boot_until(&board(), &memory(&dimms), &words, &is_enough)?;
    let acknowledged = heard(&said);
    report(format!("two nodes: killed after {acknowledged:?} acknowledged steps"));
    let words = NumaTask { acknowledged: Some(acknowledged) }.to_words();
    let said = machine.boot_on(&board(), &memory(&dimms), &words)?;
    dimms.iter().for_each(|dimm| _ = std::fs::remove_file(dimm));
    Ok(said)
}

/// The last step of each thread that the console tells whole.
fn heard(said: &str) -> [u64; NODES] {
    let whole = said.rfind('\n').map_or("", |end| &said[..=end]);
    std::array::from_fn(|node| {
        let of_node = |line: &str| line.split_once(&format!("node {node} acknowledged "))?.1.trim().parse().ok();
        whole.lines().rev().find_map(of_node).unwrap_or(0)
    })
}

/// The guest's side: never ends in order unless it compares.
pub(super) fn guest(task: NumaTask) -> Result<String, String> {
    let (_, device) = set_out(task.acknowledged.is_none())?;
    let options = Options::new().level(Level::PowerLoss).memory_bytes(32 << 20);
    let Some(acknowledged) = task.acknowledged else {
        let options = options.engine(Engine::Hash).region_paths([Path::new("/data/region"), &device]);
        return write(&open(&options)?);
    };
    let (counts, said, region_bytes) = look(&options, acknowledged)?;
    // Only the file can: on its node.
    let (_, grown, grown_bytes) = look(&options.region_bytes(region_bytes + GROWN_BYTES), counts)?;
    if grown_bytes != region_bytes + GROWN_BYTES {
        return Err(format!("a region of {region_bytes} bytes grew to {grown_bytes}"));
    }
    let said = format!("{said}; {counts:?} records, each on its node; grown: {grown}");
    unmount("/data", UnmountFlags::empty()).map_err(text("unmount the file system"))?;
    Ok(said)
}

/// Opens the store and compares; how many records of each thread there are, what is where, and how
/// long the region is. Nothing is mapped on return.
fn look(options: &Options, acknowledged: [u64; NODES]) -> Result<([u64; NODES], String, u64), String> {
    let store = open(options)?;
    let (counts, said) = (compare(&store, acknowledged)?, figures(&store)?.said());
    let region_bytes = store.region().map_or(0, |region| region.len_bytes);
    store.close().map_err(|error| error.to_string())?;
    Ok((counts, said, region_bytes))
}

fn open(options: &Options) -> Result<Store, String> {
    options.open("/data/store").map_err(|error| error.to_string())
}

/// By node.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    bytes: [u64; NODES],
    used_bytes: [u64; NODES],
    local: [u64; NODES],
    remote: [u64; NODES],
}

impl Figures {
    fn said(&self) -> String {
        let mib = self.bytes.map(|bytes| bytes >> 20);
        format!(
            "nodes of {mib:?} MiB with {:?} bytes, {:?} extents near and {:?} far",
            self.used_bytes, self.local, self.remote
        )
    }
}

fn figures(store: &Store) -> Result<Figures, String> {
    let stats = store.stats();
    let of = |node: usize, what: &str| {
        let name = format!("node{node}_{what}");
        let found = stats.iter().find(|statistic| statistic.name == name);
        found
            .map(|statistic| statistic.value)
            .ok_or_else(|| format!("no figure {name}: the region is not on two nodes"))
    };
    let mut figures = Figures::default();
    for node in 0..NODES {
        figures.bytes[node] = of(node, "bytes")?;
        figures.used_bytes[node] = of(node, "used_bytes")?;
        figures.local[node] = of(node, "local")?;
        figures.remote[node] = of(node, "remote")?;
    }
    Ok(figures)
}

fn key(node: usize, number: u64) -> String {
    format!("{node}/{number}")
}

fn value(node: usize, number: u64) -> Vec<u8> {
    (0..VALUE_BYTES[node]).map(|at| (number as usize * 31 + at + node) as u8).collect()
}

/// A thread on each node writes until the machine is killed.
#[expect(clippy::print_stdout, reason = "the console is the way to the host")]
fn write(store: &Store) -> Result<String, String> {
    let one = |node: usize| -> Result<(), String> {
        store.stay_near(node);
        for number in 0..1 << 20 {
            store.put(key(node, number).as_bytes(), value(node, number)).map_err(|error| error.to_string())?;
            println!("node {node} acknowledged {}", number + 1);
            let figures = figures(store)?;
            if figures.remote != [0, 0] {
                return Err(format!("{}: what node {node} writes lies elsewhere", figures.said()));
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..NODES).map(|node| scope.spawn(move || one(node))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a writer panicked".to_owned())?)
    })?;
    Err("it was not killed".into())
}

/// How many records of each thread there are: at least those acknowledged, whole, and on its node.
fn compare(store: &Store, acknowledged: [u64; NODES]) -> Result<[u64; NODES], String> {
    let mut counts = [0; NODES];
    for (node, count) in counts.iter_mut().enumerate() {
        for number in 0..acknowledged[node] + UNHEARD_MAX {
            let found = store.get(key(node, number).as_bytes()).map_err(|error| error.to_string())?;
            let Some(found) = found else { break };
            if found.to_bytes()[..] != value(node, number) {
                return Err(format!("{} is another value than was put", key(node, number)));
            }
            *count = number + 1;
        }
        if *count < acknowledged[node] {
            return Err(format!("{} was acknowledged and is not there", key(node, *count)));
        }
    }
    let figures = figures(store)?;
    for node in 0..NODES {
        let (least, used) = (counts[node] * VALUE_BYTES[node] as u64, figures.used_bytes[node]);
        if used < least || used > least + counts[node] * RECORD_BYTES + NOTES_BYTES {
            return Err(format!("{} do not fit {counts:?} records of {VALUE_BYTES:?}", figures.said()));
        }
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_of_nodes_goes_through_a_command_line() {
        for task in [NumaTask { acknowledged: None }, NumaTask { acknowledged: Some([41, 7]) }] {
            let words: Vec<String> = format!("quiet {}", task.to_words()).split(' ').map(str::to_owned).collect();
            assert_eq!(NumaTask::from_words(&words), Some(task));
            assert!(super::super::guest::Task::from_words(&words).is_none());
            assert!(super::super::pmem::PmemTask::from_words(&words).is_none());
        }
        let said = "node 0 acknowledged 8\r\nnode 1 acknowledged 3\r\nnode 0 acknowledged 9\r\nnode 1 acknowledged 4";
        assert_eq!(heard(said), [9, 3]);
        assert_eq!(heard("lab: up"), [0, 0]);
    }
}
