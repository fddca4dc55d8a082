//! What to change, from what was found.

use super::measure::Measured;
use super::system::System;

/// Below this, io_uring cannot pin its buffers on kernels before 5.12.
const MEMLOCK_BYTES_MIN: u64 = 8 << 20;
const OPEN_FILES_MIN: u64 = 10_256;
/// Drives with power-loss protection take less than this, others more.
const FLUSH_US_SLOW: f64 = 1000.0;
/// No flush of a volatile cache to flash or disk is as quick as this.
const FLUSH_US_QUICK: f64 = 100.0;

pub(super) fn advice(system: &System, measured: &Measured) -> Vec<String> {
    let geometry = &measured.geometry;
    let mut lines = Vec::new();
    let mut say = |applies: bool, line: String| lines.extend(applies.then_some(line));
    if let Err(refusal) = &system.io_uring {
        say(
            true,
            format!(
                "io_uring is refused and threads carry the I/O, which costs more CPU. To allow it: {}",
                refusal.remedy
            ),
        );
    }
    say(
        !geometry.survives_power_loss,
        "nothing here survives a power cut: put the data on a disk, or serve with --durability process_crash".into(),
    );
    say(
        !measured.direct && geometry.survives_power_loss,
        "the file system takes no direct I/O, so the kernel caches what the store caches already: use ext4 or xfs"
            .into(),
    );
    say(
        geometry.file_system.as_deref() == Some("overlayfs"),
        "overlayfs is a container's own layer: mount a volume".into(),
    );
    say(
        geometry.file_system.as_deref() == Some("btrfs"),
        "btrfs copies every page that is written in place: use ext4 or xfs".into(),
    );
    say(
        geometry.rotational,
        "the system says that this disk rotates; random reads will be slow if that is true".into(),
    );
    let flush_us = measured.fdatasync_us_p50.min(measured.dsync_us_p50);
    say(
        flush_us > FLUSH_US_SLOW,
        format!(
            "a durable write takes {flush_us:.0} µs: keep many in flight, or use a drive with power-loss protection. \
             --durability process_crash does not wait for it, and loses what was acknowledged last at a power cut"
        ),
    );
    say(
        geometry.volatile_cache && geometry.survives_power_loss && flush_us < FLUSH_US_QUICK,
        format!(
            "a durable write takes only {flush_us:.0} µs although the disk is said to have a volatile cache: a hypervisor or drive may \
             be ignoring flushes; ask whoever runs it before you rely on power_loss"
        ),
    );
    let gain = measured.read_64.iops / measured.read_1.iops.max(1.0);
    say(
        gain < 2.0,
        format!("64 reads in flight give only {gain:.1} times the IOPS of one: this disk has little parallelism"),
    );
    say(
        system.memlock_bytes.is_some_and(|bytes| bytes < MEMLOCK_BYTES_MIN),
        "little memory may be locked: ulimit -l unlimited, if io_uring is refused with `Cannot allocate memory`".into(),
    );
    say(
        system.open_files.is_some_and(|files| files < OPEN_FILES_MIN),
        "few files may be open (the server raises it as far as it may): ulimit -n 65536 for ten thousand connections"
            .into(),
    );
    lines
}
