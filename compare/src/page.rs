//! The report of a comparison: the page of `stratakv bench --report`, with other stores.

use std::fs::{self, File};
use std::path::Path;

use stratakv_bench::BenchError;
use stratakv_bench::page::claims::KVELL;
use stratakv_bench::page::{Page, render, runs};

use crate::table::Run;

/// Refuses a file that the report could not be written to, before anything is measured. Leaves
/// nothing that was not there.
///
/// # Errors
/// It cannot be written.
pub fn refuse_unwritable(path: Option<&Path>) -> Result<(), String> {
    let Some(path) = path else { return Ok(()) };
    let was_there = path.exists();
    File::options().append(true).create(true).open(path).map_err(|error| {
        let shown = path.display();
        format!("cannot write {shown}: {error}; nothing was measured: name a file that can be written with --report")
    })?;
    if !was_there {
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// Writes the page, if one is wanted.
///
/// # Errors
/// It cannot be made or written.
pub fn write(path: Option<&Path>, page: impl FnOnce() -> Result<Page, BenchError>) -> Result<(), String> {
    let Some(path) = path else { return Ok(()) };
    let html = render(&page().map_err(|error| error.to_string())?);
    fs::write(path, html).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Of YCSB: each of ours beside each other store.
///
/// # Errors
/// A plot cannot be drawn.
pub fn of(runs: &[Run]) -> Result<Page, BenchError> {
    let named = runs.iter().filter_map(|run| {
        let report = run.done.report.clone()?;
        Some((run.subject.to_string(), run.subject.is_ours(), report))
    });
    let mut page = runs::of_runs("StrataKV beside other stores", &runs::settings(named), KVELL)?;
    page.notes.extend(NOTES.map(str::to_owned));
    Ok(page)
}

/// What is not equal by the nature of the stores; docs/compare.md has all of it.
const NOTES: [&str; 3] = [
    "Durability is as each store's name says: of `-async` stores the kernel has the log when a write is acknowledged, of ours and of \
     `-sync` ones the device has it.",
    "Requests in flight are as many for all: ours from as few threads as there are cores, the others from a thread for each, since \
     their calls block.",
    "Each store runs in a process of its own and starts with cold caches; a debt of compaction that a run leaves is paid in that \
     store's next run.",
];

#[cfg(test)]
mod tests {
    use stratakv_bench::Report;

    use super::*;
    use crate::job::Done;

    #[test]
    fn ours_stand_beside_each_other_store() {
        let run = |name: &str, operations_per_s| {
            let report = Report { workload: "a".into(), operations_per_s, ..Report::default() };
            let done = Done { report: Some(report), ..Done::default() };
            Run { subject: name.parse().expect("a name"), round: 1, setting: "A".into(), done }
        };
        let page = of(&[run("packed", 900.0), run("rocksdb-sync", 100.0), run("lmdb-sync", 300.0)]).expect("a page");
        let beside: Vec<_> =
            page.verdicts.iter().filter(|line| line.claim.is_none() && line.question.contains("throughput")).collect();
        let ratios: Vec<f64> = beside.iter().filter_map(|line| Some(line.ratio?.median)).collect();
        assert_eq!(ratios, [9.0, 3.0]);
        // Nine times RocksDB is more than what was published.
        let published = page
            .verdicts
            .iter()
            .filter_map(|line| line.claim.as_ref())
            .find(|claim| claim.published.contains("RocksDB"));
        assert!(published.is_some_and(|claim| claim.is_met), "{published:?}");
        assert!(render(&page).contains("rocksdb-sync"));
    }

    #[test]
    fn a_report_that_cannot_be_written_is_refused_and_nothing_is_left() {
        let folder = std::env::temp_dir().join(format!("stratakv-compare-page-{}", std::process::id()));
        assert!(
            refuse_unwritable(Some(&folder.join("no/report.html")))
                .is_err_and(|why| why.contains("nothing was measured"))
        );
        fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("report.html");
        assert_eq!((refuse_unwritable(Some(&file)), file.exists()), (Ok(()), false));
        fs::remove_dir_all(&folder).expect("removed");
    }
}
