//! Where and how a run took place: what a reader must know to repeat it.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use stratakv::Store;
use stratakv_device::Geometry;

/// The commit that the program was built from, where who built it has told: `cargo xtask compare`,
/// `release` and `package` do.
const COMMIT: Option<&str> = option_env!("STRATAKV_COMMIT");

/// Machine, medium and command of a run. What is not known is empty, or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// When it began, in UTC: `2026-11-30T18:00:00Z`.
    pub date: String,
    /// Words of the command line.
    pub command: Vec<String>,
    /// Commit that the program was built from.
    pub commit: String,
    /// How it was built: `release`, or `debug`, whose speed tells nothing.
    pub build: String,
    /// Memory of the machine.
    pub machine_memory_bytes: u64,
    /// File system of the directory that was measured in.
    pub file_system: String,
    /// Its device, as the kernel calls it.
    pub device: String,
}

impl Environment {
    /// Of this process, measuring in `directory`; without one, against a server.
    pub fn here(directory: Option<&Path>) -> Environment {
        let geometry = directory.and_then(|path| Some(Geometry::probe(&existing(path)?)));
        let (file_system, device) = geometry.map(|found| (found.file_system, found.device)).unwrap_or_default();
        Environment {
            date: date(SystemTime::now()),
            command: command(std::env::args()),
            commit: COMMIT.unwrap_or_default().to_owned(),
            build: if cfg!(debug_assertions) { "debug" } else { "release" }.into(),
            machine_memory_bytes: memory_bytes(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default()),
            file_system: file_system.unwrap_or_default(),
            device: device.unwrap_or_default(),
        }
    }
}

/// What a page says of a build whose speed tells nothing.
pub(crate) const DEBUG_BUILD: &str = "A debug build was measured: its speed says nothing of the released program.";

/// The directory, or the nearest one above it that is there.
fn existing(path: &Path) -> Option<File> {
    let path = std::path::absolute(path).ok()?;
    path.ancestors().find_map(|path| File::open(path).ok())
}

fn date(now: SystemTime) -> String {
    // Years beyond 9999 are not printed.
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().min(253_402_300_799));
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string()
}

/// The program by its name alone: where it lies is nobody's concern.
fn command(mut words: impl Iterator<Item = String>) -> Vec<String> {
    let program = words.next().unwrap_or_default();
    let name = Path::new(&program).file_name().map(|name| name.to_string_lossy().into_owned());
    name.into_iter().chain(words).collect()
}

fn memory_bytes(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default().saturating_mul(1024)
}

/// What a store was opened with. What is not known is empty, or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoreSettings {
    /// `slab`, `hash`, `matrix` or `tier`; of another store its name.
    pub engine: String,
    /// Of engine `slab`: `in_place` or `packed`.
    pub placement: String,
    /// Shards.
    pub shards: usize,
    /// Cap on memory.
    pub memory_bytes: u64,
    /// Requests in flight on the volumes.
    pub depth: u32,
    /// Length of the region in persistent memory.
    pub region_bytes: u64,
    /// What that memory is, in words.
    pub region_medium: String,
}

impl StoreSettings {
    /// Of an open store.
    pub fn of(store: &Store, memory_bytes: u64, depth: u32) -> StoreSettings {
        let region = store.region();
        StoreSettings {
            engine: store.engine().name().to_owned(),
            placement: store.placement().map(|placement| placement.name().to_owned()).unwrap_or_default(),
            shards: store.shards(),
            memory_bytes,
            depth,
            region_bytes: region.map_or(0, |region| region.len_bytes),
            region_medium: region.map(|region| region.domain.clone()).unwrap_or_default(),
        }
    }

    /// Engine and placement.
    pub fn name(&self) -> String {
        match self.placement.as_str() {
            "" => self.engine.clone(),
            placement => format!("{} {placement}", self.engine),
        }
    }
}

/// What processor, kernel and program a run had; each report has these four by themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// CPU model.
    pub cpu: String,
    /// Cores.
    pub cores: usize,
    /// Kernel.
    pub kernel: String,
    /// Version of the program.
    pub version: String,
}

impl Machine {
    /// This one.
    pub fn here() -> Machine {
        Machine {
            cpu: cpu_model(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: read_line("/proc/sys/kernel/osrelease"),
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }
}

pub(crate) fn read_line(path: &str) -> String {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

pub(crate) fn cpu_model() -> String {
    let text = read_line("/proc/cpuinfo");
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    line.map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_yet_has_the_file_system_of_the_one_above() {
        let place = tempfile::tempdir().expect("a directory");
        let here = Environment::here(Some(place.path()));
        let below = Environment::here(Some(&place.path().join("not/yet")));
        assert_eq!(here.file_system, below.file_system);
        assert_eq!(Environment::here(None).file_system, "");
        assert!(here.machine_memory_bytes > 1 << 20 && here.date.ends_with('Z'), "{here:?}");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| date(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!((at(0), at(1_796_061_600)), ("1970-01-01T00:00:00Z".into(), "2026-11-30T18:00:00Z".into()));
        assert_eq!(at(u64::from(u32::MAX) * 1000), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn the_command_names_the_program_but_not_its_folder() {
        let words = ["/opt/x/stratakv", "bench", "ycsb"].map(str::to_owned);
        assert_eq!(command(words.into_iter()), ["stratakv", "bench", "ycsb"]);
        assert_eq!(memory_bytes("MemTotal:       2048 kB\nMemFree: 1 kB\n"), 2 << 20);
        assert_eq!(memory_bytes("nothing"), 0);
    }
}
