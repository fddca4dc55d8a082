//! How much memory this process may have: of the machine, and of its control groups.

use std::fs::read_to_string;
use std::path::Path;

use stratakv_base::quantity::format_bytes;

use crate::say::say;

/// A cap above what the process may have is none: the system ends the process before it is reached.
pub(crate) fn warn_of_too_much(memory_bytes: u64) {
    let Some((limit_bytes, whose)) = limit(Path::new("/")) else { return };
    if memory_bytes > limit_bytes {
        let (asked, has) = (format_bytes(memory_bytes), format_bytes(limit_bytes));
        say!("warning: --memory {asked} is more than the {has} of this {whose}: give less");
    }
}

/// The least limit, and whose it is. `root` is `/`, but in tests.
fn limit(root: &Path) -> Option<(u64, &'static str)> {
    let machine = read_to_string(root.join("proc/meminfo")).ok()?;
    let machine = machine.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let machine_bytes = machine.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)?;
    Some(match group_limit_bytes(root).filter(|group_bytes| *group_bytes < machine_bytes) {
        Some(group_bytes) => (group_bytes, "control group"),
        None => (machine_bytes, "machine"),
    })
}

/// The least limit of the process's control groups: its own and those above it. Of version 2 and of
/// version 1.
fn group_limit_bytes(root: &Path) -> Option<u64> {
    let groups = read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().flat_map(|line| {
        // `0::/path`, or `4:memory:/path`.
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let (mount, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            listed if listed.split(',').any(|name| name == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        let mount = root.join(mount);
        let own = mount.join(path.trim_start_matches('/'));
        let above = own.ancestors().take_while(|folder| folder.starts_with(&mount));
        // `max` is no number, and no limit.
        above.filter_map(|folder| read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok()).collect()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [("proc/meminfo", "MemTotal:        1048576 kB\nMemFree: 1 kB\n")].iter().chain(files) {
            std::fs::create_dir_all(root.path().join(path).parent().unwrap()).unwrap();
            std::fs::write(root.path().join(path), text).unwrap();
        }
        root
    }

    #[test]
    fn the_least_limit_counts() {
        let of = |files: &[(&str, &str)]| limit(machine(files).path());
        let (all, whole) = (1 << 30, "machine");
        assert_eq!(of(&[]), Some((all, whole)));
        let two = ("proc/self/cgroup", "0::/system.slice/stratakv.service\n");
        assert_eq!(of(&[two, ("sys/fs/cgroup/system.slice/stratakv.service/memory.max", "max\n")]), Some((all, whole)));
        let own = ("sys/fs/cgroup/system.slice/stratakv.service/memory.max", "500\n");
        assert_eq!(of(&[two, own]), Some((500, "control group")));
        assert_eq!(of(&[two, own, ("sys/fs/cgroup/system.slice/memory.max", "300\n")]), Some((300, "control group")));
        let one = ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n");
        let limit = ("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "700\n");
        assert_eq!(of(&[one, limit]), Some((700, "control group")));
        // No limit at all, as version 1 writes it.
        let none = ("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(of(&[one, none]), Some((all, whole)));
        assert_eq!(limit_of_nothing(), None);
    }

    fn limit_of_nothing() -> Option<(u64, &'static str)> {
        limit(tempfile::tempdir().unwrap().path())
    }
}
