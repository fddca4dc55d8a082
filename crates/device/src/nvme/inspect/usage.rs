//! [`NamespaceUse`]: what the kernel uses a controller's block devices for.

use std::fs;
use std::path::Path;

use super::{names_in, read_word};

/// A block device of a controller, and who has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceUse {
    /// `nvme0n1`.
    pub name: String,
    /// Its size.
    pub len_bytes: u64,
    /// Partitions on it: `nvme0n1p1`.
    pub partitions: Vec<String>,
    /// Devices made of it or of its partitions: `dm-0`, `md0`.
    pub holders: Vec<String>,
    /// Where it, or a partition of it, is mounted.
    pub mounted_at: Vec<String>,
    /// Whether `/proc/self/mountinfo` could be read.
    pub is_mount_known: bool,
    /// It, or a partition of it, is swapped to.
    pub is_swap: bool,
}

impl NamespaceUse {
    /// Whether the kernel does I/O on it for somebody.
    pub fn is_in_use(&self) -> bool {
        !self.holders.is_empty() || !self.mounted_at.is_empty() || !self.is_mount_known || self.is_swap
    }
}

/// Those of the function with the folder `function`.
pub(super) fn namespaces(root: &Path, function: &Path) -> Vec<NamespaceUse> {
    let controllers = names_in(&function.join("nvme"));
    let names = controllers.iter().flat_map(|name| names_in(&function.join("nvme").join(name)));
    let mut names: Vec<String> = names.filter_map(|name| block_device(&name)).collect();
    names.sort();
    names.dedup();
    names.into_iter().filter_map(|name| namespace(root, name)).collect()
}

/// The block device of a namespace with the folder `name` in its controller's: one with several
/// paths (`nvme0c1n1`) has its device (`nvme0n1`) elsewhere.
fn block_device(name: &str) -> Option<String> {
    let (controller, namespace) = name.strip_prefix("nvme")?.rsplit_once('n')?;
    let subsystem = controller.split_once('c').map_or(controller, |(subsystem, _)| subsystem);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(subsystem) && is_number(namespace)).then(|| format!("nvme{subsystem}n{namespace}"))
}

fn namespace(root: &Path, name: String) -> Option<NamespaceUse> {
    let folder = root.join("sys/class/block").join(&name);
    let sectors: u64 = read_word(&folder.join("size"))?.parse().ok()?;
    let inner = names_in(&folder);
    let is_partition = |inner: &String| folder.join(inner).join("partition").exists();
    let partitions: Vec<String> = inner.into_iter().filter(is_partition).collect();
    let mut holders = names_in(&folder.join("holders"));
    holders.extend(partitions.iter().flat_map(|partition| names_in(&folder.join(partition).join("holders"))));
    let parts: Vec<&String> = [&name].into_iter().chain(&partitions).collect();
    let numbers: Vec<String> = parts
        .iter()
        .filter_map(|part| {
            if **part == name { read_word(&folder.join("dev")) } else { read_word(&folder.join(part).join("dev")) }
        })
        .collect();
    let devices: Vec<String> = parts.iter().map(|part| format!("/dev/{part}")).collect();
    let mounted_at = mount_points(root, &numbers, &devices);
    let is_mount_known = mounted_at.is_some();
    let (mounted_at, is_swap) = (mounted_at.unwrap_or_default(), is_swap(root, &devices));
    let len_bytes = sectors.saturating_mul(512);
    Some(NamespaceUse { name, len_bytes, partitions, holders, mounted_at, is_mount_known, is_swap })
}

/// Of `/proc/self/mountinfo`: by the device's number, or (btrfs has numbers of its own) its path.
/// `None`: it cannot be read.
fn mount_points(root: &Path, numbers: &[String], devices: &[String]) -> Option<Vec<String>> {
    // `None` is an obstacle to binding: nothing is taken for unmounted.
    let text = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let points = text.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (number, point) = (words.nth(2)?, words.nth(1)?);
        let source = line.split_once(" - ").and_then(|(_, end)| end.split(' ').nth(1));
        let is_ours = numbers.iter().any(|ours| ours == number)
            || source.is_some_and(|source| devices.iter().any(|device| device == source));
        is_ours.then(|| point.to_owned())
    });
    Some(points.collect())
}

fn is_swap(root: &Path, devices: &[String]) -> bool {
    // A kernel without swap has no such file.
    let text = fs::read_to_string(root.join("proc/swaps")).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_whitespace().next())
        .any(|path| devices.iter().any(|device| device == path))
}
