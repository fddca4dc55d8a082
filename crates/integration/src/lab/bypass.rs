//! The lab of the data path in user space: controllers behind an emulated IOMMU, which the guest
//! takes from the kernel and drives itself.
//!
//! Three NVMe controllers: one bound to vfio-pci with the store's volumes, a spare one bound
//! likewise, and the kernel's, which carries the store's directory, witnesses and mail.

mod binding;
mod cuts;
mod drive;
mod look;
mod operate;
mod pages;
mod passthrough;
mod serve;
mod trace;
mod work;

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, mount};

use stratakv::{Engine, Options, Placement};

pub(super) use binding::{bind, give_back};
use serve::{ServeKind, ServeTask};
pub(super) use work::block_device;

use super::guest::{GUEST, TRACE, text};
use super::host::{Plan, Tally};
use super::machine::{CPU, Machine};

/// Modules of the kernel in the order in which they are loaded, below its folder `kernel/`; newer
/// kernels lack `vfio_virqfd`.
pub(super) const MODULE_FILES: [&str; 6] = [
    "virt/lib/irqbypass.ko",
    "drivers/vfio/vfio.ko",
    "drivers/vfio/vfio_iommu_type1.ko",
    "drivers/vfio/vfio_virqfd.ko",
    "drivers/vfio/pci/vfio-pci-core.ko",
    "drivers/vfio/pci/vfio-pci.ko",
];
/// The module of cables between network namespaces.
pub(super) const VETH_MODULE: &str = "drivers/net/veth.ko";
/// The controllers that the guest takes, by where QEMU plugs them in.
pub(super) const VOLUME: &str = "0000:00:04.0";
const SPARE: &str = "0000:00:05.0";
const SPARE_BYTES: u64 = 64 << 20;

/// What the kernel's command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BypassTask {
    /// Take the controllers, open them, read their registers, give them back.
    Look,
    /// Write, read, flush and discard by the driver; a reset of the controller, and a process that
    /// is killed.
    Drive {
        /// Of what is written where.
        seed: u64,
    },
    /// The same by commands through the kernel's driver, and what any ring does.
    Commands {
        /// Of what is written where.
        seed: u64,
    },
    /// Do what an operator does, by the program.
    Operate,
    /// Write the lab's workload to a store.
    Work(WorkTask),
    /// Serve clients by both halves.
    Serve(ServeTask),
}

/// A store, and what is done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkTask {
    kind: StoreKind,
    driver: Driver,
    /// I/O errors on the store that the workload left, instead of the workload.
    errors: bool,
    seed: u64,
    steps: u32,
}

/// What drives the controller with the volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The kernel: a raw block device.
    Kernel,
    /// This process, by VFIO.
    Here,
    /// The kernel, which takes NVMe commands by io_uring.
    Passthrough,
}

impl Driver {
    const ALL: [Driver; 3] = [Driver::Kernel, Driver::Here, Driver::Passthrough];

    fn name(self) -> &'static str {
        match self {
            Driver::Kernel => "kernel",
            Driver::Here => "here",
            Driver::Passthrough => "passthrough",
        }
    }
}

/// A store whose volumes lie on the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// Engine `slab`, placement `in_place`.
    InPlace,
    /// Engine `slab`, placement `packed`.
    Packed,
    /// Engine `matrix`; its region is in the store's directory.
    Matrix,
}

impl StoreKind {
    /// All of them.
    pub const ALL: [StoreKind; 3] = [StoreKind::InPlace, StoreKind::Packed, StoreKind::Matrix];

    fn name(self) -> &'static str {
        match self {
            StoreKind::InPlace => "in_place",
            StoreKind::Packed => "packed",
            StoreKind::Matrix => "matrix",
        }
    }

    fn of(name: &str) -> Option<StoreKind> {
        StoreKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    fn add_to(self, options: Options) -> Options {
        match self {
            StoreKind::InPlace => options.engine(Engine::Slab).placement(Placement::InPlace),
            StoreKind::Packed => options.engine(Engine::Slab).placement(Placement::Packed),
            StoreKind::Matrix => options.engine(Engine::Matrix).region_bytes(16 << 20),
        }
    }
}

impl BypassTask {
    fn to_words(self) -> String {
        match self {
            BypassTask::Look => format!("{GUEST} bypass look"),
            BypassTask::Operate => format!("{GUEST} bypass operate"),
            BypassTask::Serve(task) => format!("{GUEST} bypass serve {}", task.to_words()),
            BypassTask::Drive { seed } => format!("{GUEST} bypass drive {seed}"),
            BypassTask::Commands { seed } => format!("{GUEST} bypass commands {seed}"),
            BypassTask::Work(WorkTask { kind, driver, errors, seed, steps }) => {
                let what = if errors { "errors" } else { "work" };
                format!("{GUEST} bypass {what} {} {} {seed} {steps}", driver.name(), kind.name())
            }
        }
    }

    pub(super) fn from_words(words: &[String]) -> Option<BypassTask> {
        // A kernel hands on words of its own that it does not know, before ours.
        let at = words.iter().position(|word| word == GUEST)?;
        let words: Vec<&str> = words.get(at + 1..)?.iter().map(String::as_str).collect();
        match words[..] {
            ["bypass", "look"] => Some(BypassTask::Look),
            ["bypass", "operate"] => Some(BypassTask::Operate),
            ["bypass", "serve", ref words @ ..] => ServeTask::from_words(words).map(BypassTask::Serve),
            ["bypass", "drive", seed] => Some(BypassTask::Drive { seed: seed.parse().ok()? }),
            ["bypass", "commands", seed] => Some(BypassTask::Commands { seed: seed.parse().ok()? }),
            ["bypass", what @ ("work" | "errors"), driver, kind, seed, steps] => Some(BypassTask::Work(WorkTask {
                kind: StoreKind::of(kind)?,
                driver: Driver::ALL.into_iter().find(|known| known.name() == driver)?,
                errors: what == "errors",
                seed: seed.parse().ok()?,
                steps: steps.parse().ok()?,
            })),
            _ => None,
        }
    }
}

/// Whether this process is one that the guest starts to kill it.
pub fn is_victim(words: &[String]) -> bool {
    matches!(words, [victim, _] if victim == drive::VICTIM)
}

/// What such a process does; it never ends by itself.
///
/// # Errors
/// It cannot.
pub fn victim(words: &[String]) -> Result<(), String> {
    let seed = words.get(1).and_then(|seed| seed.parse().ok()).ok_or("a victim without a seed")?;
    drive::victim(seed)
}

/// A machine with an IOMMU.
fn board() -> Vec<String> {
    ["-M", "q35,accel=tcg", "-m", "1G", "-cpu", CPU, "-device", "intel-iommu,intremap=on"].map(str::to_owned).into()
}

/// Boots, looks at the controllers and drives one, then cuts the power of stores of these kinds.
/// With several kinds, goes the operator's way at the end.
///
/// # Errors
/// A boot failed, or something is not as it should be. What the oracle finds is counted.
pub fn run(
    machine: &Machine,
    cache: &Path,
    plan: &Plan,
    (driver, kinds): (Driver, &[StoreKind]),
    report: &mut dyn FnMut(String),
) -> Result<Tally, String> {
    if plan.lies.is_honest() && driver == Driver::Here {
        drive_controllers(machine, cache, report)?;
    }
    if plan.lies.is_honest() && driver == Driver::Passthrough {
        let drives = Drives::create(cache)?;
        report(machine.boot_on(&board(), &drives.plain(), &BypassTask::Commands { seed: 1 }.to_words())?);
    }
    let tally = cuts::run(machine, cache, plan, (driver, kinds), report)?;
    if plan.lies.is_honest() && driver == Driver::Here && kinds.len() > 1 && tally.lost == 0 {
        report(cuts::operate(machine, cache)?);
    }
    Ok(tally)
}

/// Boots servers on both halves, one for each kind of store and a cache, cuts the power under them;
/// the controller fails under others. With `short`, one store only, which the seed draws.
///
/// # Errors
/// As [`run`]: a boot failed, or something is not as it should be.
pub fn serve(
    machine: &Machine,
    cache: &Path,
    plan: &Plan,
    short: bool,
    report: &mut dyn FnMut(String),
) -> Result<Tally, String> {
    let all = ServeKind::ALL;
    let stores = StoreKind::ALL.len();
    let kinds = if short { all.get(plan.seed as usize % stores..).unwrap_or_default() } else { &all[..] };
    let kinds = if short { kinds.get(..1).unwrap_or_default() } else { kinds };
    serve::host::run(machine, cache, plan, kinds, report)
}

/// Programs of this host that the guest needs to lay cables; `None`: they are not installed.
pub fn network_tools() -> Option<Vec<PathBuf>> {
    serve::tools()
}

/// Everything below a store.
fn drive_controllers(machine: &Machine, cache: &Path, report: &mut dyn FnMut(String)) -> Result<(), String> {
    let drives = Drives::create(cache)?;
    let said = machine.boot_on(&board(), &drives.plain(), &BypassTask::Look.to_words())?;
    report(said);
    let said = machine.boot_on(&board(), &drives.plain(), &BypassTask::Drive { seed: 1 }.to_words())?;
    report(said);
    Ok(())
}

/// Files behind the controllers.
struct Drives {
    volume: PathBuf,
    spare: PathBuf,
}

impl Drives {
    fn create(cache: &Path) -> Result<Drives, String> {
        let drives = Drives { volume: cache.join("volume.img"), spare: cache.join("spare.img") };
        for path in [&drives.volume, &drives.spare] {
            let made = File::create(path).and_then(|file| file.set_len(SPARE_BYTES));
            made.map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        }
        Ok(drives)
    }

    fn plain(&self) -> Vec<String> {
        let node = |name: &str, path: &Path| {
            format!("driver=file,node-name={name},filename={},cache.no-flush=on", path.display())
        };
        let words = [
            "-blockdev".to_owned(),
            node("v0", &self.volume),
            "-blockdev".to_owned(),
            node("s0", &self.spare),
            "-device".to_owned(),
            "nvme,serial=VOLUME,drive=v0,addr=4".to_owned(),
            "-device".to_owned(),
            "nvme,serial=SPARE,drive=s0,addr=5".to_owned(),
        ];
        words.into()
    }
}

/// The guest's side.
pub(super) fn guest(task: BypassTask) -> Result<String, String> {
    for (kind, at) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys"), ("tracefs", TRACE)] {
        mount(kind, at, kind, MountFlags::empty(), None).map_err(text(&format!("mount {kind}")))?;
    }
    match task {
        BypassTask::Look => look::run(),
        BypassTask::Operate => operate::run(),
        BypassTask::Drive { seed } => drive::run(seed),
        BypassTask::Commands { seed } => passthrough::run(seed),
        BypassTask::Work(task) => work::run(task),
        BypassTask::Serve(task) => serve::run(task),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_read_from_the_words_that_they_are_written_as() {
        let work = |kind, driver, errors| BypassTask::Work(WorkTask { kind, driver, errors, seed: 7, steps: 60 });
        let works = StoreKind::ALL.map(|kind| work(kind, Driver::Here, true));
        let others =
            [BypassTask::Look, BypassTask::Operate, BypassTask::Drive { seed: 3 }, BypassTask::Commands { seed: 4 }];
        let drivers = Driver::ALL.map(|driver| work(StoreKind::Packed, driver, false));
        let serve = ServeTask { kind: ServeKind::Tier, trouble: serve::Trouble::Reset, seed: 1, steps: 2 };
        for task in works.into_iter().chain(others).chain(drivers).chain([BypassTask::Serve(serve)]) {
            let words: Vec<String> = format!("noapic {}", task.to_words()).split(' ').map(str::to_owned).collect();
            assert_eq!(BypassTask::from_words(&words), Some(task));
            assert!(super::super::guest::Task::from_words(&words).is_none(), "{words:?}");
        }
        for words in ["lab-guest bypass", "bypass look", "lab-guest bypass work here tier 1 2", "lab-guest look"] {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            assert_eq!(BypassTask::from_words(&words), None, "{words:?}");
        }
    }
}
