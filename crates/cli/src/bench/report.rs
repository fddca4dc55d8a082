//! Reports: one page of HTML of what was measured. `--report` writes it after a run, and
//! `bench report` of runs that were saved.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use stratakv_bench::page::claims::{KVELL, RunClaim};
use stratakv_bench::page::{self, Page, runs};
use stratakv_bench::saved::SavedReport;
use stratakv_bench::suite::SuiteReport;
use stratakv_bench::suite::matrixkv::FillsReport;
use stratakv_bench::{BenchError, Report};

use super::refuse_unwritable;
use crate::failure::Failure;
use crate::say::say;

/// A run of a store: its name, whether it is ours, what came out.
type NamedRun = (String, bool, Report);

/// Where the page of a run goes, and what stands beside it.
#[derive(Args)]
pub(super) struct ReportArguments {
    /// Write a report here: one HTML file, with plots and every number
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Show in the report, beside ours, what an earlier --json has, or runs.json of
    /// `cargo xtask compare --out DIR`; repeat it for several
    #[arg(long, value_name = "FILE", requires = "report")]
    beside: Vec<PathBuf>,
}

impl ReportArguments {
    /// Where the page goes, if one is wanted.
    pub(super) fn path(&self) -> Option<&Path> {
        self.report.as_deref()
    }

    /// What stands beside, read before anything is measured.
    pub(super) fn read_beside(&self) -> Result<Vec<NamedRun>, Failure> {
        let mut all = Vec::new();
        for path in &self.beside {
            let found = read(path).map_err(|failure| failure.at("--beside"))?;
            all.extend(runs_of(path, found)?.into_iter().map(|(store, _, report)| (store, false, report)));
        }
        Ok(all)
    }

    /// Writes the page of these runs and of what stands beside, if one is wanted.
    pub(super) fn write(
        &self,
        title: &str,
        mut all: Vec<NamedRun>,
        mut beside: Vec<NamedRun>,
        claims: &[RunClaim],
    ) -> Result<(), Failure> {
        let Some(path) = &self.report else { return Ok(()) };
        // What stands beside may be an earlier run of the same store.
        let is_taken = |name: &String| all.iter().any(|(taken, ..)| taken == name);
        beside.iter_mut().filter(|(name, ..)| is_taken(name)).for_each(|(name, ..)| name.push_str(" (beside)"));
        all.append(&mut beside);
        write(path, runs::of_runs(title, &runs::settings(all), claims))
    }
}

/// Arguments of `bench report`.
#[derive(Args)]
pub(super) struct Saved {
    /// What --json has saved; the first one is ours, the others stand beside it, named after their
    /// files
    #[arg(value_name = "RUN.json", required = true)]
    files: Vec<PathBuf>,
    /// Write the page here
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Heading of the page
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
}

/// Carries out `bench report`.
pub(super) fn run(saved: &Saved) -> Result<(), Failure> {
    let found: Vec<(&PathBuf, SavedReport)> =
        saved.files.iter().map(|path| Ok((path, read(path)?))).collect::<Result<_, Failure>>()?;
    let is_output = |path: &&PathBuf| {
        fs::canonicalize(path).ok().is_some_and(|path| fs::canonicalize(&saved.output).ok() == Some(path))
    };
    if let Some(path) = saved.files.iter().find(is_output) {
        return Err(Failure::usage(format!(
            "{} is read, and the page would be written over it: name another file with --output",
            path.display()
        )));
    }
    refuse_unwritable([saved.output.as_path()])?;
    let mut page = match &found[..] {
        [(_, SavedReport::Kvdk(one))] => of_kvdk(one),
        [(_, SavedReport::Ukv(one))] => page::of_served(one, &OURS),
        [(_, SavedReport::Matrixkv(one))] => page::of_fills(one, None),
        [(_, SavedReport::Matrixkv(one)), (_, SavedReport::Matrixkv(other))] => page::of_fills(one, Some(other)),
        _ => return write(&saved.output, of_runs(found, saved.title.as_deref())?),
    }?;
    if let Some(title) = &saved.title {
        page.title.clone_from(title);
    }
    write(&saved.output, Ok(page))
}

/// Servers of suite `ukv` that are ours.
pub(super) const OURS: [&str; 2] = ["tier", "slab"];

pub(super) fn of_kvdk(report: &SuiteReport) -> Result<Page, BenchError> {
    page::of_phases(&report.context(), &report.each_round)
}

/// Runs of several files side by side.
fn of_runs(found: Vec<(&PathBuf, SavedReport)>, title: Option<&str>) -> Result<Result<Page, BenchError>, Failure> {
    let has_suite = found.iter().any(|(_, one)| matches!(one, SavedReport::Stores(_)));
    let claims = if has_suite { KVELL } else { &[] };
    let mut all: Vec<NamedRun> = Vec::new();
    for (number, (path, one)) in found.into_iter().enumerate() {
        let is_suite = matches!(one, SavedReport::Stores(_));
        let mut these = runs_of(path, one)?;
        // Two files of the same name.
        let is_taken = |name: &String| all.iter().any(|(taken, ..)| taken == name);
        if these.iter().any(|(name, ..)| is_taken(name)) {
            these.iter_mut().for_each(|(name, ..)| name.push_str(&format!(" ({})", number + 1)));
        }
        these.iter_mut().for_each(|(_, is_ours, _)| *is_ours = if is_suite { *is_ours } else { number == 0 });
        all.extend(these);
    }
    Ok(runs::of_runs(title.unwrap_or("YCSB workloads"), &runs::settings(all), claims))
}

fn read(path: &Path) -> Result<SavedReport, Failure> {
    let shown = path.display();
    let text = fs::read_to_string(path).map_err(|error| Failure::usage(format!("cannot read {shown}: {error}")))?;
    SavedReport::read(&text).map_err(|why| Failure::usage(format!("{shown} is {why}")))
}

/// The runs of a file; the rounds of one store are named after the file.
fn runs_of(path: &Path, found: SavedReport) -> Result<Vec<NamedRun>, Failure> {
    match found {
        SavedReport::Stores(all) => Ok(all),
        SavedReport::Rounds(all) => {
            let name =
                path.file_stem().map_or_else(|| path.display().to_string(), |stem| stem.to_string_lossy().into_owned());
            Ok(all.into_iter().map(|report| (name.clone(), true, report)).collect())
        }
        SavedReport::Kvdk(_) | SavedReport::Matrixkv(_) | SavedReport::Ukv(_) => Err(Failure::usage(format!(
            "{} is of a suite that cannot stand beside runs of YCSB workloads: name it alone (two of suite `matrixkv` may stand \
             side by side)",
            path.display()
        ))),
    }
}

/// Writes the page of suite `matrixkv`.
pub(super) fn write_fills(path: &Path, ours: &FillsReport, beside: Option<&FillsReport>) -> Result<(), Failure> {
    write(path, page::of_fills(ours, beside))
}

/// Writes a page, and says so if another file was there.
pub(super) fn write(path: &Path, page: Result<Page, BenchError>) -> Result<(), Failure> {
    let html = page::render(&page?);
    let is_replaced = fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0);
    fs::write(path, html).map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))?;
    if is_replaced {
        say!("{} was there, and has been replaced", path.display());
    }
    Ok(())
}
