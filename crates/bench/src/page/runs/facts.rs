//! Where and how runs were made, a column for each store, and what was not equal.

use stratakv_base::quantity::format_bytes;

use super::{RunColumn, RunSetting};
use crate::environment::{DEBUG_BUILD, Environment, StoreSettings};
use crate::page::figures::count;
use crate::page::{DataCell, DataTable};
use crate::report::Report;

/// A fact: its name, whether stores that differ in it are compared unequally, and its words.
type Fact = (&'static str, bool, fn(&Report) -> String);

const UNKNOWN: &str = "not known";

const FACTS: &[Fact] = &[
    ("store", false, |run| run.store.as_ref().map_or_else(|| run.target.clone(), StoreSettings::name)),
    ("reached by", false, |run| run.target.clone()),
    ("durability", true, |run| run.durability.clone()),
    ("records", true, |run| count(run.records)),
    ("length of values, bytes", true, |run| run.value_size.clone()),
    ("memory of the store", true, |run| of_store(run, |store| bytes(store.memory_bytes))),
    ("shards", false, |run| of_store(run, |store| store.shards.to_string())),
    ("requests in flight on volumes", false, |run| of_store(run, |store| store.depth.to_string())),
    ("region", false, |run| of_store(run, region)),
    ("requests in flight, threads", true, |run| format!("{}, {}", run.clients, run.threads)),
    ("seconds that count", true, |run| run.seconds.to_string()),
    ("machine", true, |run| format!("{}, {} cores", run.cpu, run.cores)),
    ("memory of the machine", true, |run| of_environment(run, |found| bytes(found.machine_memory_bytes))),
    ("kernel", true, |run| run.kernel.clone()),
    ("file system", true, |run| of_environment(run, |found| found.file_system.clone())),
    ("device", true, |run| of_environment(run, |found| found.device.clone())),
    ("version", false, |run| run.version.clone()),
    ("commit", false, |run| of_environment(run, |found| found.commit.clone())),
    ("build", true, |run| of_environment(run, |found| found.build.clone())),
    ("date", false, |run| of_environment(run, |found| found.date.clone())),
    ("command", false, |run| of_environment(run, |found| found.command.join(" "))),
];

fn of_store(run: &Report, words: fn(&StoreSettings) -> String) -> String {
    run.store.as_ref().map_or(String::new(), words)
}

fn of_environment(run: &Report, words: fn(&Environment) -> String) -> String {
    run.environment.as_ref().map_or(String::new(), words)
}

fn bytes(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { format_bytes(bytes) }
}

fn region(store: &StoreSettings) -> String {
    match store.region_bytes {
        0 => "none".into(),
        bytes => format!("{}: {}", format_bytes(bytes), store.region_medium),
    }
}

/// The facts of one run by themselves, as of a suite that has the same for all stores.
pub fn facts_of(run: &Report) -> Vec<(&'static str, String)> {
    FACTS.iter().map(|(name, _, words)| (*name, words(run))).collect()
}

/// A column for each store, and what a reader must know.
pub(super) fn of(settings: &[RunSetting]) -> (DataTable, Vec<String>) {
    let mut columns: Vec<(&str, Vec<&Report>)> = Vec::new();
    for RunColumn { store, rounds, .. } in settings.iter().flat_map(|setting| &setting.columns) {
        match columns.iter_mut().find(|(name, _)| name == store) {
            Some((_, all)) => all.extend(rounds),
            None => columns.push((store, rounds.iter().collect())),
        }
    }
    let head: Vec<&str> = ["condition"].into_iter().chain(columns.iter().map(|(name, _)| *name)).collect();
    let mut table = DataTable::new("Conditions of each store", &head);
    let mut unequal = Vec::new();
    for (name, matters, words) in FACTS {
        let each: Vec<String> = columns.iter().map(|(_, runs)| distinct(runs, *words)).collect();
        let is_known = |words: &&String| !words.is_empty();
        if each.iter().filter(is_known).any(|words| Some(words) != each.iter().find(is_known)) && *matters {
            unequal.push(*name);
        }
        let shown = |words: &String| DataCell::from(if words.is_empty() { UNKNOWN } else { words });
        table.push(*name, each.iter().map(shown).collect::<Vec<_>>());
    }
    let rounds = |(name, _): &(&str, Vec<&Report>)| {
        let most = settings.iter().flat_map(|setting| &setting.columns).filter(|column| column.store == *name);
        most.map(|column| column.rounds.len()).max().unwrap_or_default().to_string()
    };
    table.push("rounds", columns.iter().map(rounds).collect::<Vec<_>>());
    (table, notes(&columns, &unequal))
}

/// What all runs say of it; where they differ, each once.
fn distinct(runs: &[&Report], words: fn(&Report) -> String) -> String {
    let mut all: Vec<String> = Vec::new();
    for run in runs {
        let words = words(run);
        if !words.is_empty() && !all.contains(&words) {
            all.push(words);
        }
    }
    all.join("; ")
}

fn notes(columns: &[(&str, Vec<&Report>)], unequal: &[&str]) -> Vec<String> {
    let mut notes = Vec::new();
    let runs = || columns.iter().flat_map(|(_, runs)| runs);
    if !unequal.is_empty() {
        notes.push(format!(
            "Not equal between the stores: {}. Their ratios mix that with what the stores do.",
            unequal.join(", ")
        ));
    }
    if runs().any(|run| run.environment.as_ref().is_some_and(|found| found.build == "debug")) {
        notes.push(DEBUG_BUILD.into());
    }
    let on_tmpfs = |run: &&&Report| run.environment.as_ref().is_some_and(|found| found.file_system == "tmpfs");
    if runs().any(|run| on_tmpfs(&run)) {
        notes.push(
            "Measured on tmpfs, which is memory: no device was waited for, and nothing survives a power cut.".into(),
        );
    }
    if runs().any(|run| run.is_of_server()) {
        notes.push(
            "Against a server the processor time and the bytes of its own process are not seen: they are left out."
                .into(),
        );
    }
    if runs().any(|run| run.missing > 0) {
        let missing = columns.iter().map(|(name, runs)| (name, runs.iter().map(|run| run.missing).sum::<u64>()));
        let told =
            missing.filter(|(_, missing)| *missing > 0).map(|(name, missing)| format!("{name} {}", count(missing)));
        notes.push(format!("Reads that found no record: {}.", told.collect::<Vec<_>>().join(", ")));
    }
    if runs().any(|run| run.seconds < 10) {
        notes.push(
            "Some runs counted for less than ten seconds: caches and background work had not taken their shape.".into(),
        );
    }
    notes
}
