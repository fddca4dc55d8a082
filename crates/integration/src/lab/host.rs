//! The host's side: boots, cuts, compares, counts.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use stratakv::IoBackend;
use stratakv_base::random::Random;

use super::guest::Task;
use super::log::{self, LogEntry};
use super::machine::{Machine, tool};
use super::replay::{Fate, Lies, Replayer};
use super::verify::Bench;
use super::workload::{self, DEVICE_BYTES, FILE_SYSTEM_BYTES, LANES};
use super::{errors, trace};

/// Findings reported in full; they are all counted.
const REPORTS_MAX: u32 = 5;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Boots with the workload; they take turns with io_uring and blocking I/O.
    pub boots: u32,
    /// Power cuts replayed in all.
    pub prefixes: u32,
    /// Of workload and cuts.
    pub seed: u64,
    /// Steps of each of the 20 lanes.
    pub steps: u32,
    /// Other than none, the oracle must find losses.
    pub lies: Lies,
}

impl Default for Plan {
    fn default() -> Self {
        Plan { boots: 2, prefixes: 200, seed: 1, steps: 100, lies: Lies::default() }
    }
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Machines booted.
    pub boots: u32,
    /// Writes in the logs.
    pub writes: u64,
    /// Of these, durable by themselves.
    pub fua: u64,
    /// Flushes in the logs.
    pub flushes: u64,
    /// Power cuts.
    pub prefixes: u32,
    /// Acknowledged steps that had to be there, over all cuts.
    pub acknowledged: u64,
    /// Keys compared, over all cuts.
    pub compared: u64,
    /// Power cuts after which something was lost, torn or not sound.
    pub lost: u32,
}

/// Runs the plan in `cache`, telling `report` about each boot and each finding.
///
/// # Errors
/// A boot failed, or its log cannot be read. What the oracle finds is counted, not an error.
pub fn run(machine: &Machine, cache: &Path, plan: &Plan, report: &mut dyn FnMut(String)) -> Result<Tally, String> {
    let mut tally = Tally::default();
    for boot in 0..plan.boots {
        let io = if boot % 2 == 0 { IoBackend::IoUring } else { IoBackend::Blocking };
        let task = Task { errors: false, io, seed: plan.seed.wrapping_add(u64::from(boot)), steps: plan.steps };
        let files = Files::create(cache)?;
        let base = read(&files.device)?;
        let said = machine.boot(&files.logged(), &task.to_words())?;
        tally.boots += 1;
        report(format!("boot {}, {}: {said}", tally.boots, task.to_words()));
        let log = read(&files.log)?;
        let entries = files.entries(&log, &mut tally)?;
        let share = plan.prefixes / plan.boots + u32::from(boot < plan.prefixes % plan.boots);
        let bench = Bench::new()?;
        let verify = |device: &[u8], acknowledged: &[u32]| {
            bench.verify(device, &workload::known(task.seed, acknowledged, task.steps))
        };
        let cuts = Cuts { seed: task.seed, count: share, words: task.to_words(), verify: &verify };
        cuts.run(Replayer::new(base, &log, &entries, plan.lies), (&log, &entries), &mut tally, report);
        if tally.lost > 0 {
            // The next boot would write over the log that shows it.
            return Ok(tally);
        }
        if boot + 1 == plan.boots && plan.lies.is_honest() {
            let said = machine.boot(&files.failing(), &Task { errors: true, ..task }.to_words())?;
            tally.boots += 1;
            report(format!("boot {}, I/O errors: {said}", tally.boots));
        }
    }
    Ok(tally)
}

/// Compares what a cut left with how many steps of each lane were acknowledged, and says how many
/// keys.
pub(super) type Verify<'a> = dyn Fn(&[u8], &[u32]) -> Result<u64, String> + 'a;

/// Power cuts over one log: what was asked for, and how a device that lost its power is looked at.
pub(super) struct Cuts<'a> {
    /// Of the workload.
    pub(super) seed: u64,
    pub(super) count: u32,
    /// What the boot did, for findings.
    pub(super) words: String,
    pub(super) verify: &'a Verify<'a>,
}

impl Cuts<'_> {
    /// Cuts the power of what `replayer` replays, and counts.
    pub(super) fn run(
        &self,
        mut replayer: Replayer<'_>,
        (log, entries): (&[u8], &[LogEntry]),
        tally: &mut Tally,
        report: &mut dyn FnMut(String),
    ) {
        let mut acknowledged = vec![0; LANES as usize];
        let mut seen = 0;
        for (cut, fate) in cuts(log, entries, self.seed, self.count) {
            for entry in entries.get(seen..cut).unwrap_or_default() {
                if let LogEntry::Write { at, data, .. } = entry {
                    workload::decode_witness(*at, log.get(data.clone()).unwrap_or_default(), &mut acknowledged);
                }
            }
            seen = cut;
            tally.prefixes += 1;
            tally.acknowledged += acknowledged.iter().map(|count| u64::from(*count)).sum::<u64>();
            match (self.verify)(&replayer.cut(cut, fate), &acknowledged) {
                Ok(compared) => tally.compared += compared,
                Err(why) => {
                    tally.lost += 1;
                    if tally.lost > REPORTS_MAX {
                        continue;
                    }
                    report(format!("cut at entry {cut} of {}, {fate:?}, {}: {why}", entries.len(), self.words));
                }
            }
        }
    }
}

/// Where to cut, in rising order. Half of the cuts come right after a witness: no later flush helps
/// what it vouches for.
fn cuts(log: &[u8], entries: &[LogEntry], seed: u64, count: u32) -> Vec<(usize, Fate)> {
    let is_witness = |entry: &LogEntry| match entry {
        LogEntry::Write { at, data, .. } => {
            let data = log.get(data.clone()).unwrap_or_default();
            workload::decode_witness(*at, data, &mut [])
        }
        _ => false,
    };
    let witnesses: Vec<usize> =
        entries.iter().enumerate().filter(|(_, entry)| is_witness(entry)).map(|(index, _)| index + 1).collect();
    let mut random = Random::new(seed);
    let mut cuts: Vec<(usize, Fate)> = (0..count)
        .map(|number| {
            let anywhere = random.below(entries.len() as u64 + 1) as usize;
            let witness = witnesses.get(random.below(witnesses.len() as u64) as usize);
            let fate = match number % 8 {
                0..=3 => Fate::Lost,
                4 => Fate::Kept,
                _ => Fate::Mixed(random.next_u64()),
            };
            (*witness.filter(|_| number % 2 == 0).unwrap_or(&anywhere), fate)
        })
        .collect();
    cuts.sort_by_key(|(cut, _)| *cut);
    cuts
}

/// The files of one boot's drives.
struct Files {
    device: PathBuf,
    log: PathBuf,
    mail: PathBuf,
}

impl Files {
    /// A fresh file system, an empty log, an empty box for the guest's mail.
    fn create(cache: &Path) -> Result<Files, String> {
        let files =
            Files { device: cache.join("device.img"), log: cache.join("log.img"), mail: cache.join("mail.img") };
        for (path, bytes) in [(&files.device, DEVICE_BYTES), (&files.log, 0), (&files.mail, 64 << 20)] {
            let made = File::create(path).and_then(|file| file.set_len(bytes));
            made.map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        }
        make_file_system("device.img", cache)?;
        Ok(files)
    }

    /// The device with every write and flush logged. `no-flush` below the log: a flush takes its
    /// place in it at once, so writes that come in while it is carried out do not seem covered by
    /// it.
    fn logged(&self) -> Vec<String> {
        let top = "driver=blklogwrites,node-name=b0,file=f0,log=l0,log-sector-size=512".to_owned();
        let log = format!("driver=file,node-name=l0,filename={},cache.no-flush=on", self.log.display());
        self.drives(&[log, top])
    }

    /// The device with I/O errors.
    fn failing(&self) -> Vec<String> {
        self.drives(&[format!("driver=blkdebug,node-name=b0,image=f0{}", errors::rules())])
    }

    fn drives(&self, nodes: &[String]) -> Vec<String> {
        let file = format!("driver=file,node-name=f0,filename={},cache.no-flush=on", self.device.display());
        let mail = format!("driver=file,node-name=m0,filename={},cache.no-flush=on", self.mail.display());
        let nodes = [file, mail].into_iter().chain(nodes.iter().cloned());
        let nodes = nodes.flat_map(|node| ["-blockdev".to_owned(), node]);
        let devices = ["nvme,serial=TEST,drive=b0,addr=4", "nvme,serial=MAIL,drive=m0,addr=5"];
        nodes.chain(devices.iter().flat_map(|device| ["-device".to_owned(), (*device).to_owned()])).collect()
    }

    /// The log's entries, with FUA as the guest's kernel told it.
    fn entries(&self, log: &[u8], tally: &mut Tally) -> Result<Vec<LogEntry>, String> {
        let mut entries = log::parse(log)?;
        let mail = read_mail(&self.mail)?;
        let (device, trace) = mail.split_once('\n').ok_or("the guest's mail is empty")?;
        tally.fua += trace::mark_fua(trace, device, &mut entries)?;
        tally.writes += entries.iter().filter(|entry| matches!(entry, LogEntry::Write { .. })).count() as u64;
        tally.flushes += entries.iter().filter(|entry| **entry == LogEntry::Flush).count() as u64;
        Ok(entries)
    }
}

/// A file system of [`FILE_SYSTEM_BYTES`] at the begin of a file in `cache`.
pub(super) fn make_file_system(file: &str, cache: &Path) -> Result<(), String> {
    let blocks = (FILE_SYSTEM_BYTES / 4096).to_string();
    // Without checksums of its own metadata: it takes its superblock of two sectors for atomic, and
    // one torn by the cut is not our loss.
    let plain = ["-q", "-F", "-b", "4096", "-J", "size=4", "-O", "^metadata_csum"];
    let options = [&plain[..], &["-E", "lazy_itable_init=0,nodiscard", file, &blocks]].concat();
    let made = tool("mkfs.ext4", &options, cache)?;
    if made.status.success() { Ok(()) } else { Err(format!("mkfs.ext4: {}", String::from_utf8_lossy(&made.stderr))) }
}

/// What a guest mailed: its length, then so many bytes.
pub(super) fn read_mail(path: &Path) -> Result<String, String> {
    let mail = read(path)?;
    let len = mail.get(..8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes) as usize;
    let mail = mail.get(8..).and_then(|mail| mail.get(..len)).ok_or("the guest's mail is cut off")?;
    Ok(String::from_utf8_lossy(mail).into_owned())
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}
