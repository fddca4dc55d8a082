//! Nodes of the machine (NUMA): on which one memory lies, and which processors are near.

#![expect(unsafe_code, reason = "asks the kernel where new memory is to lie")]

use std::io;
use std::path::Path;

use rustix::thread::CpuSet;

/// Where the kernel describes nodes.
const NODES: &str = "/sys/devices/system/node";
/// Bits of the mask of nodes.
const NODES_MAX: usize = 1024;
/// Of `set_mempolicy`.
const MPOL_DEFAULT: libc::c_int = 0;
const MPOL_BIND: libc::c_int = 2;

/// A node with memory of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number in the machine.
    pub number: u32,
    /// Numbers of its processors; memory may be without any.
    pub processors: Vec<usize>,
}

/// The nodes that parts of a region lie on.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// Each once. Where there is one only, or of some parts it is not known: none.
    pub(crate) all: Vec<Node>,
    /// By processor the index of its node among them, if it is there.
    of_processor: Vec<Option<usize>>,
}

impl Nodes {
    /// Of parts on these nodes.
    pub(crate) fn of(numbers: impl IntoIterator<Item = Option<u32>>) -> Nodes {
        Nodes::described(numbers, Path::new(NODES))
    }

    fn described(numbers: impl IntoIterator<Item = Option<u32>>, sys: &Path) -> Nodes {
        let none = Nodes { all: Vec::new(), of_processor: Vec::new() };
        let Some(mut numbers) = numbers.into_iter().collect::<Option<Vec<u32>>>() else { return none };
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.len() < 2 {
            return none;
        }
        let all: Vec<Node> = numbers
            .into_iter()
            .map(|number| {
                // Without a list threads are kept nowhere: slower, nothing else.
                let list = std::fs::read_to_string(sys.join(format!("node{number}/cpulist"))).unwrap_or_default();
                Node { number, processors: listed(&list) }
            })
            .collect();
        let last = all.iter().flat_map(|node| &node.processors).max().map_or(0, |last| last + 1);
        let mut of_processor = vec![None; last];
        for (index, node) in all.iter().enumerate() {
            node.processors.iter().for_each(|processor| of_processor[*processor] = Some(index));
        }
        Nodes { all, of_processor }
    }

    /// How many: one at least.
    pub(crate) fn count(&self) -> usize {
        self.all.len().max(1)
    }

    pub(crate) fn index_of(&self, number: Option<u32>) -> usize {
        self.all.iter().position(|node| Some(node.number) == number).unwrap_or(0)
    }

    /// That of the calling thread, now. Who is on none of them has any, the same each time.
    pub(crate) fn here(&self) -> usize {
        if self.all.is_empty() {
            return 0;
        }
        let processor = rustix::thread::sched_getcpu();
        self.of_processor.get(processor).copied().flatten().unwrap_or(processor % self.all.len())
    }
}

/// Numbers in a list of the kernel's: `0-3,8`.
fn listed(list: &str) -> Vec<usize> {
    let mut numbers = Vec::new();
    for range in list.trim().split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(from), Ok(to)) = (from.parse::<usize>(), to.parse::<usize>())
            && to < CpuSet::MAX_CPU
        {
            numbers.extend(from..=to);
        }
    }
    numbers
}

/// The node of a device (a path in `/sys/dev`), if the kernel says so.
pub(crate) fn of_device(device: &Path) -> Option<u32> {
    // As above.
    let device = std::fs::canonicalize(device).ok()?;
    // −1: of none.
    let named = |above: &Path| std::fs::read_to_string(above.join("numa_node")).ok()?.trim().parse::<i64>().ok();
    let number = device.ancestors().find_map(|above| named(above).filter(|number| *number >= 0))?;
    u32::try_from(number).ok().filter(|number| (*number as usize) < NODES_MAX)
}

/// Does something in which the calling thread gets new memory of the system: on this node only.
///
/// # Errors
/// There is no such node, or the system has none; nothing was done.
pub(crate) fn bound_to<T>(node: Option<u32>, what: impl FnOnce() -> T) -> io::Result<T> {
    let Some(node) = node.map(|node| node as usize) else { return Ok(what()) };
    if node >= NODES_MAX {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut mask = [0_u64; NODES_MAX / 64];
    mask[node / 64] = 1 << (node % 64);
    set_policy(MPOL_BIND, Some(&mask))?;
    let done = what();
    set_policy(MPOL_DEFAULT, None)?;
    Ok(done)
}

fn set_policy(mode: libc::c_int, mask: Option<&[u64; NODES_MAX / 64]>) -> io::Result<()> {
    // One more than there are bits: the kernel takes one off.
    let (at, bits) = mask.map_or((std::ptr::null(), 0), |mask| (mask.as_ptr(), NODES_MAX + 1));
    // SAFETY: the kernel reads the mask during the call, and changes nothing that a program can
    // see.
    let done = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, at, bits) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        for (node, list) in [(0, "0-1,8\n"), (1, "2-3\n"), (3, "\n")] {
            std::fs::create_dir(sys.path().join(format!("node{node}"))).unwrap();
            std::fs::write(sys.path().join(format!("node{node}/cpulist")), list).unwrap();
        }
        sys
    }

    #[test]
    fn processors_are_on_the_nodes_that_the_kernel_says() {
        let sys = machine();
        let nodes = Nodes::described([Some(1), Some(0), Some(1)], sys.path());
        let node = |number, processors: &[usize]| Node { number, processors: processors.into() };
        assert_eq!(nodes.all, [node(0, &[0, 1, 8]), node(1, &[2, 3])]);
        assert_eq!((nodes.index_of(Some(1)), nodes.count()), (1, 2));
        assert_eq!(nodes.of_processor[..4], [Some(0), Some(0), Some(1), Some(1)]);
        assert_eq!((nodes.of_processor[7], nodes.of_processor[8]), (None, Some(0)));
        assert!(nodes.here() < 2);
        // Without processors; and where there is nothing to choose.
        assert_eq!(Nodes::described([Some(0), Some(3)], sys.path()).all[1], node(3, &[]));
        for numbers in [vec![Some(1), Some(1)], vec![Some(0), None, Some(1)], vec![]] {
            let nodes = Nodes::described(numbers, sys.path());
            assert_eq!((nodes.count(), nodes.here(), nodes.index_of(Some(1))), (1, 0, 0));
        }
    }

    #[test]
    fn lists_of_the_kernel_are_read() {
        assert_eq!(listed("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(listed("7"), [7]);
        for bad in ["", "\n", "a-b", "3-1", "-4", "0-99999999999"] {
            assert_eq!(listed(bad), [0; 0], "{bad:?}");
        }
    }

    #[test]
    fn a_device_is_on_the_node_of_the_nearest_that_names_one() {
        let directory = tempfile::tempdir().unwrap();
        let region = directory.path().join("ndbus0/region1");
        let device = region.join("namespace1.0/block/pmem1");
        std::fs::create_dir_all(&device).unwrap();
        assert_eq!(of_device(&device), None);
        for (named, node) in [("1\n", Some(1)), ("-1\n", None), ("x", None), ("99999", None)] {
            std::fs::write(region.join("numa_node"), named).unwrap();
            assert_eq!(of_device(&device), node, "{named:?}");
        }
        assert_eq!(of_device(Path::new("/nowhere")), None);
    }

    #[test]
    fn memory_of_a_node_that_is_not_there_is_refused() {
        assert!(bound_to(Some(1000), || panic!("not done")).is_err());
        assert!(bound_to(Some(5000), || panic!("not done")).is_err());
        assert_eq!(bound_to(None, || 7).unwrap(), 7);
    }
}
