//! What to change, from what was found.

use std::time::Duration;

use stratakv::{Engine, Placement};
use stratakv_device::Geometry;

use super::measure::{Measured, Rates};
use super::system::System;

/// Below this, io_uring cannot pin its buffers on kernels before 5.12.
const MEMLOCK_BYTES_MIN: u64 = 8 << 20;
const OPEN_FILES_MIN: u64 = 10_256;
/// Drives with power-loss protection take less than this, others more.
const FLUSH_US_SLOW: f64 = 1000.0;
/// No flush of a volatile cache to flash or disk is as quick as this.
const FLUSH_US_QUICK: f64 = 100.0;

/// Bytes `packed` writes for an update of 1 KiB at 80 % fill: the record, and what is moved to make
/// room for it.
const PACKED_UPDATE_BYTES: f64 = 1080.0 * 2.5;
/// So many times cheaper must an update of `packed` be to the device before its cleaning is worth
/// its processor time.
const PACKED_GAIN_MIN: f64 = 3.0;
/// Processor time of an operation of `in_place`, half of them updates
/// (docs/measurements/2026-11-placements.md: 9 to 22).
const IN_PLACE_OPERATION_US: f64 = 15.0;

/// Which placement suits the device, and why: `in_place` writes a page at random for an update,
/// `packed` a part of a large batch. Where the device carries out more reads and updates than the
/// processors, packing saves nothing, and `in_place` has no cleaning and reads a page less.
pub(super) fn placement(rates: &Rates, cores: usize) -> (Placement, String) {
    let Rates { page_reads_per_s, page_writes_per_s, batch_bytes_per_s } = *rates;
    let packed_per_s = batch_bytes_per_s / PACKED_UPDATE_BYTES;
    let gain = packed_per_s / page_writes_per_s.max(1.0);
    let device_per_s = 2.0 / (1.0 / page_reads_per_s.max(1.0) + 1.0 / page_writes_per_s.max(1.0));
    let processors_per_s = cores as f64 * 1e6 / IN_PLACE_OPERATION_US;
    let figures = format!(
        "updates of 1 KiB that the disk can take: {page_writes_per_s:.0}/s in place, a page each; {packed_per_s:.0}/s packed, in batches \
         of 256 KiB with cleaning at 80 % fill; {gain:.1} times as many"
    );
    let both = format!(
        "half reads, half updates in place: {device_per_s:.0}/s for the disk, {processors_per_s:.0}/s for {cores} cores"
    );
    if gain < PACKED_GAIN_MIN {
        (Placement::InPlace, format!("--placement in_place: {figures}, and cleaning costs processor"))
    } else if device_per_s >= processors_per_s {
        (Placement::InPlace, format!("--placement in_place: {figures}; but {both}, so the disk does not bind"))
    } else {
        (Placement::Packed, format!("--placement packed: {figures}; {both}, so the disk binds"))
    }
}

/// As [`placement`], with the reason in a few words.
pub(super) fn placement_in_brief(rates: &Rates, cores: usize) -> (Placement, String) {
    let gain = rates.batch_bytes_per_s / PACKED_UPDATE_BYTES / rates.page_writes_per_s.max(1.0);
    let placement = placement(rates, cores).0;
    let why = match placement {
        Placement::Packed => format!("{gain:.1} times the updates of in_place"),
        Placement::InPlace if gain < PACKED_GAIN_MIN => "packed gains too little here".to_owned(),
        Placement::InPlace => "the disk is not the bottleneck".to_owned(),
    };
    (placement, why)
}

/// The greatest depth up to which no read is slower than `max`, of `(depth, p99 in µs)`, and why.
pub(super) fn depth(latency_us_p99: &[(u64, f64)], max: Duration) -> (u32, String) {
    let max_us = max.as_secs_f64() * 1e6;
    let kept = latency_us_p99.iter().take_while(|(_, p99)| *p99 <= max_us).last();
    let said = |(depth, p99): &(u64, f64)| format!("{p99:.0} µs with {depth} in flight");
    match (kept, latency_us_p99.first()) {
        (Some(kept), _) => {
            let next = latency_us_p99.iter().find(|(depth, _)| *depth > kept.0);
            let beyond = next.map_or(String::new(), |next| format!(", and {}", said(next)));
            (kept.0 as u32, format!("--depth {}: 99 % of reads take up to {}{beyond}", kept.0, said(kept)))
        }
        (None, Some(first)) => {
            (1, format!("--depth 1: this disk cannot keep {max_us:.0} µs: 99 % of reads take up to {}", said(first)))
        }
        (None, None) => (1, "--depth 1: nothing was measured".into()),
    }
}

/// What the kernel's scheduler costs, and how to be rid of it. Virtual disks often say that they
/// rotate, so it is told of those too.
fn scheduler(geometry: &Geometry) -> Option<String> {
    let name = geometry.scheduler.as_deref().filter(|name| *name != "none")?;
    let unless = if geometry.rotational { "Unless it does rotate, as root: " } else { "As root: " };
    let device = geometry.device.as_deref().unwrap_or("DEVICE");
    Some(format!(
        "the I/O scheduler of {device} is {name}: every request of every core goes through its one lock, and it puts requests in another order \
         than the store submits them, which a disk without moving parts gains nothing from. {unless}echo none > \
         /sys/block/{device}/queue/scheduler (a udev rule keeps it after a restart)"
    ))
}

/// A last quarter of less than half of the first one's writes: a cache has filled, or credit has
/// run out.
pub(super) fn collapse(iops_each_second: &[u64]) -> Option<String> {
    let quarter = iops_each_second.len() / 4;
    let (first, last) = (iops_each_second.get(..quarter)?, iops_each_second.get(iops_each_second.len() - quarter..)?);
    let mean = |seconds: &[u64]| seconds.iter().sum::<u64>() as f64 / seconds.len().max(1) as f64;
    let (first, last) = (mean(first), mean(last));
    (quarter > 0 && last < first / 2.0).then(|| {
        format!(
            "writes fell from {first:.0} to {last:.0} a second: a cache of the disk has filled, or its credit has run out. Count on the \
             lower figure, and keep part of the disk empty"
        )
    })
}

/// What to change, for a store of the engine that was advised.
pub(super) fn advice(system: &System, measured: &Measured, engine: Engine) -> Vec<String> {
    let mut lines = Vec::new();
    if let Err(refusal) = &system.io_uring {
        lines.push(format!(
            "io_uring is refused and threads carry the I/O, which costs more CPU. To allow it: {}",
            refusal.remedy
        ));
    }
    // A region is mapped: requests to the disk, and where slab puts records, are nothing to it.
    if engine == Engine::Slab {
        lines.extend(of_disk(measured));
        lines.push(placement(&measured.rates(), system.cores).1);
    }
    let mut say = |applies: bool, line: &str| lines.extend(applies.then(|| line.to_owned()));
    say(
        system.memlock_bytes.is_some_and(|bytes| bytes < MEMLOCK_BYTES_MIN),
        "little memory may be locked: ulimit -l unlimited, if io_uring is refused with `Cannot allocate memory`",
    );
    say(
        system.open_files.is_some_and(|files| files < OPEN_FILES_MIN),
        "few files may be open (the server raises it as far as it may): ulimit -n 65536 for ten thousand connections",
    );
    lines
}

/// What the disk and its file system cost the engine `slab`.
fn of_disk(measured: &Measured) -> Vec<String> {
    let geometry = &measured.geometry;
    let mut lines = Vec::new();
    let mut say = |applies: bool, line: String| lines.extend(applies.then_some(line));
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
    lines.extend(scheduler(geometry));
    lines.extend(of_requests(measured));
    lines.extend(collapse(&measured.write_iops_each_second));
    lines
}

/// What was measured of requests, and seems odd or slow.
fn of_requests(measured: &Measured) -> Vec<String> {
    let geometry = &measured.geometry;
    let mut lines = Vec::new();
    let mut say = |applies: bool, line: String| lines.extend(applies.then_some(line));
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
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_placement_follows_the_device() {
        let of = |page_reads_per_s, page_writes_per_s, batch_bytes_per_s, cores| {
            placement(&Rates { page_reads_per_s, page_writes_per_s, batch_bytes_per_s }, cores).0
        };
        // A virtual disk bound by IOPS, on two days; memory behind a loop device, with as many
        // cores, and with many more.
        assert_eq!(of(63_000.0, 72_000.0, 4.1e9, 2), Placement::Packed);
        assert_eq!(of(63_000.0, 127_000.0, 3.1e9, 2), Placement::Packed);
        assert_eq!(of(200_000.0, 268_000.0, 5.5e9, 2), Placement::InPlace);
        assert_eq!(of(200_000.0, 268_000.0, 5.5e9, 16), Placement::Packed);
        assert_eq!(of(400_000.0, 400_000.0, 2.5e9, 64), Placement::InPlace);
        assert_eq!(of(0.0, 0.0, 0.0, 2), Placement::InPlace);
    }

    #[test]
    fn the_depth_follows_the_latency_asked_for() {
        let measured = [(1, 90.0), (2, 95.0), (4, 130.0), (8, 420.0), (16, 300.0)];
        let (depth, why) = super::depth(&measured, Duration::from_micros(200));
        assert_eq!(
            (depth, why.as_str()),
            (4, "--depth 4: 99 % of reads take up to 130 µs with 4 in flight, and 420 µs with 8 in flight")
        );
        assert_eq!(super::depth(&measured, Duration::from_millis(1)).0, 16);
        let (depth, why) = super::depth(&measured, Duration::from_micros(50));
        assert!(depth == 1 && why.contains("cannot keep 50 µs"), "{why}");
        assert_eq!(super::depth(&[], Duration::from_millis(1)).0, 1);
    }

    #[test]
    fn a_scheduler_other_than_none_is_advised_against() {
        let of = |name: Option<&str>, rotational| {
            let device = Some("sda".to_owned());
            scheduler(&Geometry { scheduler: name.map(str::to_owned), rotational, device, ..Geometry::unknown() })
        };
        for name in ["mq-deadline", "bfq", "kyber"] {
            let line = of(Some(name), false).expect(name);
            assert!(line.contains(name) && line.contains("echo none > /sys/block/sda/queue/scheduler"), "{line}");
            assert!(
                !line.contains("does rotate") && of(Some(name), true).is_some_and(|line| line.contains("does rotate"))
            );
        }
        assert_eq!((of(Some("none"), false), of(None, false)), (None, None));
    }

    #[test]
    fn a_disk_whose_cache_fills_is_seen() {
        let steady: Vec<u64> = (0..60).map(|second| 40_000 + second % 7 * 1000).collect();
        assert_eq!(collapse(&steady), None);
        let filled: Vec<u64> = (0..60).map(|second| if second < 25 { 90_000 } else { 9_000 }).collect();
        assert!(collapse(&filled).is_some_and(|line| line.contains("from 90000 to 9000")));
        assert_eq!((collapse(&[]), collapse(&[9, 1, 1])), (None, None));
    }
}
