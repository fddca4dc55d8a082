//! What a region of engine `matrix` in the directory would promise, and what a commit of its log
//! takes there.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stratakv::Level;
use stratakv_pmem::{Domain, MapError, MapOptions, Mapping, Pmem};

use super::measure::median_us;

/// A record of the log: a short key and a value of 100 bytes.
const COMMIT_BYTES: u64 = 128;
const REGION_BYTES: u64 = 2 << 20;
const COMMITS: u64 = 200;
/// A disk may take its time: so long in all.
const LENGTH_MAX: Duration = Duration::from_secs(1);

/// What was found.
#[derive(Debug)]
pub(super) struct Commits {
    pub(super) domain: Domain,
    /// Median time until one record of the log is as durable as it gets there.
    pub(super) commit_us_p50: f64,
}

/// A file that is gone however this ends.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Appends records to a region as the log does, each with a fence of its own.
///
/// # Errors
/// There can be no region there, or it failed.
pub(super) fn measure(directory: &Path) -> Result<Commits, String> {
    let file = Temporary(directory.join(format!(".stratakv-doctor-region-{}", std::process::id())));
    // Left by a process that was killed here, and had our number.
    let _ = std::fs::remove_file(&file.0);
    let region =
        Mapping::create(&file.0, REGION_BYTES, MapOptions::default()).map_err(|error: MapError| error.to_string())?;
    let (record, began) = ([0x5A; COMMIT_BYTES as usize], Instant::now());
    let commit = |offset| region.store(offset, &record).and_then(|()| region.flush(offset, COMMIT_BYTES));
    let mut times = Vec::new();
    for number in 0..COMMITS {
        let started = Instant::now();
        commit(number * COMMIT_BYTES).and_then(|()| region.fence()).map_err(|error| error.to_string())?;
        times.push(started.elapsed());
        if began.elapsed() > LENGTH_MAX {
            break;
        }
    }
    Ok(Commits { domain: region.domain(), commit_us_p50: median_us(times) })
}

impl Commits {
    /// The strongest durability that is to be had.
    pub(super) fn level(&self) -> Level {
        if self.domain.survives_power_loss() { Level::PowerLoss } else { Level::ProcessCrash }
    }

    /// How long a commit takes: a hundredth of a microsecond counts in memory, and not on a disk.
    pub(super) fn time(&self) -> String {
        match self.commit_us_p50 {
            short if short < 10.0 => format!("{short:.2} µs"),
            long => format!("{long:.0} µs"),
        }
    }

    /// The advice; `disk_us`: a durable write of a page to a file there takes so long. `survives`:
    /// what is written to a file there, and flushed, survives a power cut.
    pub(super) fn advice(&self, disk_us: f64, survives: bool) -> String {
        let commit = format!("one commit of {COMMIT_BYTES} bytes to its log takes {} there", self.time());
        match self.domain {
            Domain::Adr | Domain::Eadr => format!(
                "--engine matrix with its region here: persistent memory with flush and fence, durable at power_loss; {commit}, and no request to a disk"
            ),
            Domain::Volatile => format!(
                "--engine matrix --durability process_crash with its region here: memory, which survives the process and no power cut, so power_loss is \
                 refused; {commit}"
            ),
            Domain::File if survives => format!(
                "--engine matrix with its region here: a plain file, durable at power_loss by an msync for each commit, which commits at once share; \
                 {commit}, and a durable write of 4 KiB to the disk {disk_us:.0} µs. Persistent memory (--region-path) would take about one µs; \
                 --durability process_crash waits for neither"
            ),
            Domain::File => format!(
                "--engine matrix --durability process_crash with its region here: a plain file of which nothing survives a power cut; {commit} with an msync"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_as_many_digits_as_count() {
        let time = |commit_us_p50| Commits { domain: Domain::File, commit_us_p50 }.time();
        assert_eq!([0.784, 3998.93].map(time), ["0.78 µs", "3999 µs"]);
    }

    #[test]
    fn the_promise_of_a_region_follows_its_domain() {
        let of = |domain, survives| {
            let commits = Commits { domain, commit_us_p50: 1234.5 };
            let advice = commits.advice(987.0, survives);
            assert!(advice.contains("--engine matrix") && advice.contains(" 1234 µs there"), "{advice}");
            (commits.level(), advice)
        };
        for domain in [Domain::Adr, Domain::Eadr] {
            let (level, advice) = of(domain, true);
            assert!(level == Level::PowerLoss && advice.contains("flush and fence") && !advice.contains("987"));
        }
        let (level, advice) = of(Domain::Volatile, false);
        assert!(level == Level::ProcessCrash && advice.contains("--durability process_crash"), "{advice}");
        assert!(advice.contains("power_loss is refused"), "{advice}");
        let (level, advice) = of(Domain::File, true);
        assert!(level == Level::PowerLoss && advice.contains("msync") && advice.contains("987 µs"), "{advice}");
        assert!(of(Domain::File, false).1.contains("nothing survives a power cut"));
    }

    #[test]
    fn commits_are_measured_and_nothing_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let commits = measure(directory.path()).expect("measured");
        assert!(commits.commit_us_p50 > 0.0, "{commits:?}");
        assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 0);
        assert!(measure(Path::new("/no/such/directory")).is_err());
    }
}
