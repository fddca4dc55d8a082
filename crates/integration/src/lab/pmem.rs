//! Regions of engine `hash` on emulated persistent memory: a file of ext4 mounted with
//! `dax=always`, and a devdax device. The machine is killed in the middle of its writes, boots
//! again, and compares.
//!
//! The emulated memory is a file of the host, where every store arrives at once: a flush that was
//! forgotten is not seen here, but by the simulator. What is seen: that the kernel's way to such
//! memory is found (`MAP_SYNC`, the device, the domain it names), that files and devices are there
//! as they were after a machine that stopped between any two instructions, and that a store opens
//! on them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::system::finit_module;
use stratakv::raw::{Change, ChangeKind};
use stratakv::{CollectionId, Expect, Expiry, Key};
use stratakv_base::Wall;
use stratakv_base::random::Random;
use stratakv_hash::{Hash, HashOptions};
use stratakv_pmem::{Domain, MapOptions, Mapping};

use super::doctor;
use super::guest::text;
use super::machine::{CPU, Machine};

/// Where process 1 finds the kernel's modules, and the program that makes file systems.
pub(super) const MODULES: &str = "modules";
/// In the order in which they can be loaded, below `drivers/` of the kernel's modules.
pub(super) const MODULE_FILES: [&str; 6] = [
    "nvdimm/libnvdimm.ko",
    "acpi/nfit/nfit.ko",
    "nvdimm/nd_btt.ko",
    "nvdimm/nd_pmem.ko",
    "dax/device_dax.ko",
    "dax/dax_pmem.ko",
];
const BUS: &str = "/sys/bus/nd";
pub(super) const DIMM_BYTES: u64 = 128 << 20;
const REGION_BYTES: u64 = 64 << 20;
const NOW: Wall = Wall(1000);
const KEYS: u64 = 48;
/// Steps after the last one that the host heard of: the console lags.
const UNHEARD_MAX: u64 = 5000;
/// Devices appear so soon.
const DEVICE_MAX: Duration = Duration::from_secs(20);

/// What the machine of a boot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hardware {
    /// What its reserve of power keeps alive when the power fails: the memory's controllers, or the
    /// caches too.
    domain: Domain,
    /// The best instruction of its processor that writes lines back.
    pub(super) flush: &'static str,
}

impl Hardware {
    /// All take their turns.
    pub(super) fn of(boot: u32) -> Hardware {
        let domain = if boot.is_multiple_of(2) { Domain::Adr } else { Domain::Eadr };
        Hardware { domain, flush: ["clwb", "clflushopt", "clflush"][boot as usize % 3] }
    }

    pub(super) fn domain_name(self) -> &'static str {
        if self.domain == Domain::Eadr { "eadr" } else { "adr" }
    }

    /// For QEMU.
    fn board(self) -> [String; 6] {
        let kept = if self.domain == Domain::Eadr { "cpu" } else { "mem-ctrl" };
        let flushes = match self.flush {
            "clwb" => "+clwb,+clflushopt",
            "clflushopt" => "-clwb,+clflushopt",
            _ => "-clwb,-clflushopt",
        };
        let (machine, processor) =
            (format!("q35,accel=tcg,nvdimm=on,nvdimm-persistence={kept}"), format!("{CPU},{flushes}"));
        ["-M".into(), machine, "-m".into(), "1G,slots=2,maxmem=3G".into(), "-cpu".into(), processor]
    }
}

/// What the kernel's command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmemTask {
    /// Which it is: it says what hardware there is.
    boot: u32,
    seed: u64,
    /// Steps that the host knows to be acknowledged; `None`: there is nothing yet.
    acknowledged: Option<u64>,
    /// Only compares.
    is_last: bool,
}

impl PmemTask {
    /// As words for a command line.
    fn to_words(self) -> String {
        let acknowledged = self.acknowledged.map_or("none".to_owned(), |steps| steps.to_string());
        let what = if self.is_last { "compare" } else { "write" };
        format!("{} pmem {what} {} {} {acknowledged}", super::guest::GUEST, self.boot, self.seed)
    }

    pub(super) fn from_words(words: &[String]) -> Option<PmemTask> {
        let [.., guest, pmem, what, boot, seed, acknowledged] = words else { return None };
        let is_ours = guest == super::guest::GUEST && pmem == "pmem";
        let (boot, seed, acknowledged) = (boot.parse().ok()?, seed.parse().ok()?, acknowledged.parse().ok());
        is_ours.then_some(PmemTask { boot, seed, acknowledged, is_last: what == "compare" })
    }
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PmemTally {
    /// Machines killed while they wrote.
    pub kills: u32,
    /// Steps that were acknowledged, over all of them.
    pub acknowledged: u64,
    /// What the last machine said of its regions.
    pub said: String,
}

/// Boots, kills and boots again, in `cache`.
///
/// # Errors
/// A machine did not come up, or what it found is not what was acknowledged: its console's end.
pub fn run(
    machine: &Machine,
    cache: &Path,
    (kills, seed): (u32, u64),
    report: &mut dyn FnMut(String),
) -> Result<PmemTally, String> {
    let dimms = dimms(cache)?;
    let (mut tally, mut acknowledged, mut random) = (PmemTally::default(), None, Random::new(seed));
    for kill in 0..kills {
        let until = acknowledged.unwrap_or(0) + 50 + random.below(1500);
        let words = PmemTask { boot: kill, seed, acknowledged, is_last: false }.to_words();
        let is_enough = |said: &str| steps_in(said) >= Some(until);
        let said = machine.boot_until(&Hardware::of(kill).board(), &memory(&dimms), &words, &is_enough)?;
        let heard = steps_in(&said).filter(|steps| *steps >= until).ok_or("the machine ended before it was killed")?;
        tally.kills += 1;
        tally.acknowledged = heard;
        report(format!("kill {}: after {heard} acknowledged steps; {}", tally.kills, regions_in(&said)));
        acknowledged = Some(heard);
    }
    let words = PmemTask { boot: kills, seed, acknowledged, is_last: true }.to_words();
    tally.said = machine.boot_on(&Hardware::of(kills).board(), &memory(&dimms), &words)?;
    dimms.iter().for_each(|dimm| _ = fs::remove_file(dimm));
    Ok(tally)
}

/// New memory, as files of the host.
pub(super) fn dimms(cache: &Path) -> Result<[PathBuf; 2], String> {
    let dimms = [cache.join("dimm0.img"), cache.join("dimm1.img")];
    for dimm in &dimms {
        let made = File::create(dimm).and_then(|file| file.set_len(DIMM_BYTES));
        made.map_err(|error| format!("cannot make {}: {error}", dimm.display()))?;
    }
    Ok(dimms)
}

fn memory(dimms: &[PathBuf]) -> Vec<String> {
    let parts = dimms.iter().enumerate().flat_map(|(number, dimm)| {
        let file = format!("memory-backend-file,id=m{number},share=on,mem-path={},size={DIMM_BYTES}", dimm.display());
        ["-object".to_owned(), file, "-device".to_owned(), format!("nvdimm,id=d{number},memdev=m{number}")]
    });
    parts.collect()
}

/// The last acknowledged step that the console tells whole.
fn steps_in(said: &str) -> Option<u64> {
    let whole = &said[..=said.rfind('\n')?];
    whole.lines().rev().find_map(|line| line.split_once("acknowledged ")?.1.trim().parse().ok())
}

fn regions_in(said: &str) -> &str {
    said.lines().find_map(|line| line.split_once("lab: regions: ")).map_or("", |(_, regions)| regions.trim())
}

/// Mounts, loads the kernel's modules, and makes a namespace of files and a devdax device of new
/// memory.
fn begin(is_new: bool) -> Result<(), String> {
    for (kind, at) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys")] {
        mount(kind, at, kind, MountFlags::empty(), None).map_err(text(&format!("mount {kind}")))?;
    }
    for module in MODULE_FILES {
        let path = format!("/{MODULES}/{}", module.replace('/', "_"));
        let file = File::open(&path).map_err(text(&format!("open {path}")))?;
        finit_module(&file, c"", 0).map_err(text(&format!("load {path}")))?;
    }
    if is_new {
        set_up("pfn", "region0", "namespace0.0", "nd_pmem")?;
        set_up("dax", "region1", "namespace1.0", "dax_pmem")?;
    }
    Ok(())
}

/// Makes the machine ready, with the file system of the one memory, new or not, at `/data`: its
/// disk, and the device of the other memory.
pub(super) fn set_out(is_new: bool) -> Result<(PathBuf, PathBuf), String> {
    begin(is_new)?;
    let (disk, device) = (device_below("/sys/class/block", "pmem")?, device_below("/sys/bus/dax/devices", "dax")?);
    if is_new {
        make_file_system(&disk)?;
    }
    mount(&disk, "/data", "ext4", MountFlags::empty(), c"dax=always").map_err(text("mount the file system"))?;
    Ok((disk, device))
}

fn make_file_system(disk: &Path) -> Result<(), String> {
    let made = std::process::Command::new("/mkfs.ext4").args(["-q", "-F", "-b", "4096"]).arg(disk).output();
    let made = made.map_err(text("start mkfs.ext4"))?;
    if made.status.success() { Ok(()) } else { Err(format!("mkfs.ext4: {}", String::from_utf8_lossy(&made.stderr))) }
}

/// The guest's side: never ends in order unless it only compares.
pub(super) fn guest(task: PmemTask) -> Result<String, String> {
    let (disk, device) = set_out(task.acknowledged.is_none())?;
    doctor::check(Hardware::of(task.boot), (&disk, Path::new("/data")), &device)?;
    let said = write(task, Path::new("/data/region"), &device)?;
    unmount("/data", UnmountFlags::empty()).map_err(text("unmount the file system"))?;
    Ok(said)
}

/// Makes a namespace one of files (`pfn`) or a device (`dax`), as
/// `ndctl create-namespace --map=mem` does.
fn set_up(kind: &str, region: &str, namespace: &str, driver: &str) -> Result<(), String> {
    let seed_at = format!("{BUS}/devices/{region}/{kind}_seed");
    wait_for(Path::new(&seed_at))?;
    let set = |path: String, what: &str| fs::write(&path, what).map_err(text(&format!("write `{what}` to {path}")));
    // It was bound as it is, without a map of its pages.
    let _ = fs::write(format!("{BUS}/drivers/nd_pmem/unbind"), namespace);
    let seed = fs::read_to_string(&seed_at).map_err(text(&format!("read {seed_at}")))?;
    let made = format!("{BUS}/devices/{}", seed.trim());
    set(format!("{made}/mode"), "ram")?;
    set(format!("{made}/align"), "4096")?;
    set(format!("{made}/uuid"), &format!("5eed0000-0000-4000-8000-00000000000{}", u8::from(kind == "dax")))?;
    set(format!("{made}/namespace"), namespace)?;
    set(format!("{BUS}/drivers/{driver}/bind"), seed.trim())
}

/// The device whose name begins so, as soon as there is one.
fn device_below(class: &str, name: &str) -> Result<PathBuf, String> {
    let started = Instant::now();
    loop {
        let entries = fs::read_dir(class).into_iter().flatten().flatten();
        let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        if let Some(found) = names.find(|found| found.starts_with(name)) {
            let device = Path::new("/dev").join(found);
            wait_for(&device)?;
            return Ok(device);
        }
        if started.elapsed() > DEVICE_MAX {
            return Err(format!("no {name} device came up below {class}"));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn wait_for(path: &Path) -> Result<(), String> {
    let started = Instant::now();
    while !path.exists() {
        if started.elapsed() > DEVICE_MAX {
            return Err(format!("{} did not come up", path.display()));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Opens both stores, compares, and goes on where they are until the machine is killed.
#[expect(clippy::print_stdout, reason = "the console is the way to the host")]
fn write(task: PmemTask, file: &Path, device: &Path) -> Result<String, String> {
    let is_new = task.acknowledged.is_none();
    let file = if is_new {
        Mapping::create(file, REGION_BYTES, MapOptions::default())
    } else {
        Mapping::open(file, MapOptions::default())
    };
    let regions = [file, Mapping::open(device, MapOptions::default())];
    let hardware = Hardware::of(task.boot);
    let (mut said, mut stores) = (String::new(), Vec::new());
    for region in regions {
        let region = region.map_err(|error| error.to_string())?;
        said += &format!("{} is {}; ", region.path().display(), region.domain());
        if region.domain() != hardware.domain {
            return Err(format!("{said}it is {:?}", hardware.domain));
        }
        let made = if is_new { Hash::create(region, HashOptions::default()) } else { Hash::open(region, 1) };
        stores.push(made.map_err(|error| error.to_string())?);
    }
    said += &format!("lines are written back by {}; so says doctor", hardware.flush);
    println!("lab: regions: {said}");
    let mut at = Vec::new();
    for store in &stores {
        at.push(match task.acknowledged {
            Some(steps) => steps_done(store, task.seed, steps)?,
            None => 0,
        });
    }
    if task.is_last {
        return Ok(format!("{said}; they have {at:?} steps"));
    }
    let from = at.iter().copied().min().unwrap_or(0);
    for number in from.. {
        for (store, at) in stores.iter().zip(&at) {
            if number >= *at {
                store.write(&step(task.seed, number), NOW).map_err(|error| format!("step {number}: {error}"))?;
            }
        }
        println!("acknowledged {}", number + 1);
    }
    Ok(said)
}

fn key(number: u64) -> Key {
    Key::bound(CollectionId(number as u32 % 2), format!("key {number}").as_bytes())
}

/// What a step changes: one key or a batch of some.
fn step(seed: u64, number: u64) -> Vec<Change> {
    let mut random = Random::new(seed ^ number << 20);
    let (first, count) = (random.below(KEYS), if random.below(4) == 0 { 1 + random.below(6) } else { 1 });
    let change = |at: u64| {
        let longest = if random.below(30) == 0 { 60_000 } else { 700 };
        let mut value = vec![0; random.below(longest) as usize];
        random.fill(&mut value);
        let kind = match random.below(5) {
            0 => ChangeKind::Delete,
            _ => ChangeKind::Put { value: Bytes::from(value), flags: number as u32, expiry: Expiry::NEVER },
        };
        Change { key: key((first + at * 7) % KEYS), expect: Expect::Any, kind }
    };
    (0..count).map(change).collect()
}

/// The number of steps whose outcome a store has: at least those acknowledged.
fn steps_done(store: &Hash<Mapping>, seed: u64, acknowledged: u64) -> Result<u64, String> {
    let mut found = Vec::new();
    for number in 0..KEYS {
        let record = store.get(&key(number), NOW).map_err(|error| format!("key {number}: {error}"))?;
        found.push(record.map(|record| (record.flags, record.value.to_bytes())));
    }
    let report = store.report();
    if report.damaged > 0 || report.lost_bytes > 0 {
        return Err(format!("{report:?}: {:?}", store.damage()));
    }
    let mut state = vec![None; KEYS as usize];
    for number in 0..acknowledged + UNHEARD_MAX {
        if number >= acknowledged && state == found {
            return Ok(number);
        }
        for change in step(seed, number) {
            let at = (0..KEYS).position(|number| key(number) == change.key).ok_or("a key of no step")?;
            state[at] = match change.kind {
                ChangeKind::Put { value, flags, .. } => Some((flags, value)),
                ChangeKind::Delete => None,
                ChangeKind::Check => continue,
            };
        }
    }
    Err(format!(
        "what is there is no state of the steps from {acknowledged} on: something acknowledged is lost, or something is torn"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_goes_through_a_command_line_and_acknowledgements_through_a_console() {
        for task in [
            PmemTask { boot: 2, seed: 7, acknowledged: None, is_last: false },
            PmemTask { boot: 3, seed: 8, acknowledged: Some(41), is_last: true },
        ] {
            let words: Vec<String> = task.to_words().split(' ').map(str::to_owned).collect();
            assert_eq!(PmemTask::from_words(&words), Some(task));
            assert!(super::super::guest::Task::from_words(&words).is_none());
        }
        let said = "lab: up\r\nlab: regions: a is b\r\nacknowledged 8\r\nacknowledged 9\r\nacknowledged 1";
        assert_eq!((steps_in(said), regions_in(said)), (Some(9), "a is b"));
        assert_eq!(steps_in("lab: up"), None);
    }

    #[test]
    fn a_state_is_known_by_its_steps() {
        let region = Mapping::anonymous(16 << 20, MapOptions::default()).unwrap();
        let store = Hash::create(region, HashOptions::default()).unwrap();
        for number in 0..300 {
            store.write(&step(3, number), NOW).unwrap();
        }
        assert_eq!(steps_done(&store, 3, 290), Ok(300));
        assert!(steps_done(&store, 3, 301).is_err(), "a step that was acknowledged is not there");
        store.delete(&key(5), Expect::Any, NOW).unwrap();
        store.delete(&key(6), Expect::Any, NOW).unwrap();
        assert!(steps_done(&store, 3, 290).is_err());
    }
}
