//! Each deliberate defect in the container's sources is caught by the checks of cuts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use stratakv_base::fault_point;
use stratakv_sim::pmem::Domain;

use super::cuts::{kinds, mix};
use super::world::{blank, record};

/// The sources of a folder, and of those in it.
fn sources(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).expect("the sources").map(|entry| entry.expect("an entry").path());
    let text = |path: &Path| if path.is_dir() { sources(path) } else { std::fs::read_to_string(path).expect("text") };
    entries.map(|path| text(&path)).collect()
}

/// The defects that checks of cuts are to find: those for the unit harness (`trial_…`) are hunted
/// by the engine's own tests.
fn names() -> Vec<String> {
    let all = sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/container")));
    let names = all.split("fault_point!(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with("trial_")).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

/// Which of the checks find a defect.
fn caught_by(name: &str) -> Vec<String> {
    let mut caught = Vec::new();
    for (kind, before, steps, _) in kinds() {
        let start = blank(16);
        fault_point::release(Some(name));
        let is_caught = catch_unwind(AssertUnwindSafe(|| {
            let (trace, journal, _) = record(start, &before, &steps, Domain::Adr);
            trace.random(3, 1_000, |region, acknowledged| journal.check_and_go_on(region, acknowledged)).is_err()
        }));
        fault_point::release(None);
        if is_caught.unwrap_or(true) {
            caught.push(kind.to_owned());
        }
        if caught.len() >= 2 {
            return caught;
        }
    }
    for seed in 0..40 {
        fault_point::release(Some(name));
        let is_caught = catch_unwind(AssertUnwindSafe(|| mix(seed, 150).is_err()));
        fault_point::release(None);
        if is_caught.unwrap_or(true) {
            caught.push(format!("mix {seed}"));
        }
        if caught.len() >= 2 {
            break;
        }
    }
    caught
}

#[test]
#[expect(clippy::print_stdout, reason = "what caught it is what one wants to know")]
fn every_deliberate_defect_is_caught() {
    let names = names();
    assert!(names.len() >= 12, "{names:?}");
    let mut missed = Vec::new();
    for name in names {
        let caught = caught_by(&name);
        println!("{name}: {caught:?}");
        // Twice: once may be luck.
        if caught.len() < 2 {
            missed.push(name);
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
