//! The page of suite `kvdk`, and of the graph over other stores: phases, each over several stores.

use crate::page::claims::{ClaimCheck, KVDK, KVDK_SOURCE, PhaseBeside, PhaseClaim};
use crate::page::figures::{count, figure, spread};
use crate::page::standing::{Ratio, Spread};
use crate::page::{DataTable, NamedFigure, Page, PageFigure, PageSection, VerdictLine};
use crate::phase::PhaseReport;
use crate::plot::{Axes, Line, inline};
use crate::target::BenchError;

/// What the page says beside the phases.
#[derive(Clone, Debug, Default)]
pub struct PhasesContext {
    /// What was measured.
    pub title: String,
    /// Conditions and what they were, the same for all stores.
    pub facts: Vec<(String, String)>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// Names of stores that others stand beside; the first one measured if none is named.
    pub ours: Vec<String>,
}

/// A figure of a phase.
struct PhaseFigure {
    name: &'static str,
    unit: &'static str,
    more_is_better: bool,
    of: fn(&PhaseReport) -> f64,
}

const FIGURES: [PhaseFigure; 4] = [
    PhaseFigure { name: "throughput", unit: "operations/s", more_is_better: true, of: |one| one.operations_per_s },
    PhaseFigure {
        name: "throughput of one processor",
        unit: "operations/CPU-s",
        more_is_better: true,
        of: |one| one.operations_per_cpu_s,
    },
    PhaseFigure { name: "p50", unit: "µs", more_is_better: false, of: |one| one.latency_us_p50 },
    PhaseFigure { name: "p99", unit: "µs", more_is_better: false, of: |one| one.latency_us_p99 },
];

/// Every round of every store, by name.
struct Phases<'a> {
    rounds: &'a [PhaseReport],
    stores: Vec<&'a str>,
    phases: Vec<&'a str>,
}

impl<'a> Phases<'a> {
    fn new(rounds: &'a [PhaseReport]) -> Phases<'a> {
        let (mut stores, mut phases) = (Vec::new(), Vec::new());
        for one in rounds {
            if !stores.contains(&one.subject.as_str()) {
                stores.push(&one.subject);
            }
            if !phases.contains(&one.phase.as_str()) {
                phases.push(&one.phase);
            }
        }
        Phases { rounds, stores, phases }
    }

    fn of<'b>(&'b self, store: &'b str, phase: &'b str) -> impl Iterator<Item = &'a PhaseReport> + 'b {
        self.rounds.iter().filter(move |one| one.subject == store && one.phase == phase)
    }

    fn spread(&self, store: &str, phase: &str, of: fn(&PhaseReport) -> f64) -> Option<Spread> {
        Spread::of(self.of(store, phase).map(of))
    }

    fn median(&self, store: &str, phase: &str, of: fn(&PhaseReport) -> f64) -> String {
        self.spread(store, phase, of).map_or(String::new(), |found| figure(found.median))
    }
}

/// The page.
///
/// # Errors
/// A plot cannot be drawn.
pub fn of_phases(context: &PhasesContext, rounds: &[PhaseReport]) -> Result<Page, BenchError> {
    let phases = Phases::new(rounds);
    let ours: Vec<&str> =
        phases.stores.iter().copied().filter(|store| context.ours.iter().any(|one| one == store)).collect();
    let ours = if ours.is_empty() { phases.stores.iter().copied().take(1).collect() } else { ours };
    let mut verdicts = beside_stores(&phases, &ours);
    verdicts.extend(KVDK.iter().flat_map(|claim| beside_paper(&phases, &ours, claim)));
    let mut facts = DataTable::new("Conditions, the same for all stores", &["condition", "what"]);
    for (name, words) in &context.facts {
        facts.push(name, [words.as_str()]);
    }
    let most = phases.stores.iter().flat_map(|store| phases.phases.iter().map(|phase| phases.of(store, phase).count()));
    facts.push("rounds", [count(most.max().unwrap_or_default() as u64)]);
    Ok(Page {
        title: context.title.clone(),
        lead: vec!["Figures are medians of the rounds, with the lowest and the highest of them.".into()],
        notes: context.notes.clone(),
        verdicts,
        facts,
        sections: vec![throughput(&phases)?, latency(&phases)?, processor(&phases)],
    })
}

fn named(store: &str, found: Spread, unit: &str) -> NamedFigure {
    NamedFigure { store: store.into(), text: spread(found, unit) }
}

/// Ours beside each store that is none of ours; if all are, the first one beside the rest.
fn beside_stores(phases: &Phases<'_>, ours: &[&str]) -> Vec<VerdictLine> {
    let peers: Vec<&str> = phases.stores.iter().copied().filter(|store| !ours.contains(store)).collect();
    let pairs: Vec<(&str, &str)> = match (peers.is_empty(), ours.split_first()) {
        (true, Some((first, rest))) => rest.iter().map(|other| (*first, *other)).collect(),
        _ => ours.iter().flat_map(|one| peers.iter().map(|peer| (*one, *peer))).collect(),
    };
    let mut lines = Vec::new();
    for (one, peer) in pairs {
        for (phase, of) in phases.phases.iter().flat_map(|phase| FIGURES.iter().map(move |of| (phase, of))) {
            let (Some(mine), Some(theirs)) = (phases.spread(one, phase, of.of), phases.spread(peer, phase, of.of))
            else {
                continue;
            };
            lines.push(VerdictLine {
                question: format!("{phase}: {}", of.name),
                ours: named(one, mine, of.unit),
                peer: Some(named(peer, theirs, of.unit)),
                ratio: Ratio::new(mine, theirs, of.more_is_better),
                claim: None,
            });
        }
    }
    lines
}

/// Engine `hash` is what the paper's figures are about.
fn beside_paper(phases: &Phases<'_>, ours: &[&str], claim: &PhaseClaim) -> Vec<VerdictLine> {
    let Some(hash) = ours.iter().copied().find(|store| store.starts_with("hash")) else { return Vec::new() };
    let peers: Vec<(&str, &str)> = match claim.beside {
        PhaseBeside::Store(name) => {
            phases.stores.iter().filter(|store| store.starts_with(name)).map(|store| (*store, claim.phase)).collect()
        }
        PhaseBeside::Phase(phase) => vec![(hash, phase)],
    };
    let rate: fn(&PhaseReport) -> f64 = |one| one.operations_per_s;
    let line = |(store, phase): (&str, &str)| {
        let (mine, theirs) = (phases.spread(hash, claim.phase, rate)?, phases.spread(store, phase, rate)?);
        let ratio = Ratio::new(mine, theirs, true)?;
        let peer = if store == hash { format!("{store}, {phase}") } else { store.to_owned() };
        Some(VerdictLine {
            question: format!("{}: throughput", claim.phase),
            ours: named(hash, mine, "operations/s"),
            peer: Some(named(&peer, theirs, "operations/s")),
            ratio: Some(ratio),
            claim: Some(ClaimCheck {
                published: claim.published.into(),
                source: KVDK_SOURCE.into(),
                is_met: ratio.median >= claim.at_least,
            }),
        })
    };
    peers.into_iter().filter_map(line).collect()
}

/// One line for each store over the phases.
fn plot(phases: &Phases<'_>, title: &str, y: &'static str, of: fn(&PhaseReport) -> f64) -> Result<String, BenchError> {
    let line = |(store, name): (usize, &&str)| {
        let point = |(place, phase): (usize, &&str)| Some((place as i32, phases.spread(name, phase, of)?.median));
        Line { store, name: String::new(), points: phases.phases.iter().enumerate().filter_map(point).collect() }
    };
    let lines: Vec<Line> = phases.stores.iter().enumerate().map(line).collect();
    let axes = Axes {
        title: title.into(),
        x: "phase, by the number of its row",
        y,
        places: (1..=phases.phases.len()).map(|number| number.to_string()).collect(),
        is_logarithmic: true,
        size: (880, 320),
    };
    inline(&axes, &lines, &[])
}

/// A row for each phase, a column for each store.
fn by_phase(phases: &Phases<'_>, caption: &str, cell: impl Fn(&str, &str) -> String) -> DataTable {
    let head: Vec<&str> = ["phase"].into_iter().chain(phases.stores.iter().copied()).collect();
    let mut table = DataTable::new(caption, &head);
    for (number, phase) in phases.phases.iter().enumerate() {
        let cells: Vec<String> = phases.stores.iter().map(|store| cell(store, phase)).collect();
        table.push(format!("{}. {phase}", number + 1), cells);
    }
    table
}

fn legend(phases: &Phases<'_>) -> Vec<String> {
    phases.stores.iter().map(|store| (*store).to_owned()).collect()
}

fn throughput(phases: &Phases<'_>) -> Result<PageSection, BenchError> {
    let rate: fn(&PhaseReport) -> f64 = |one| one.operations_per_s;
    let table = by_phase(phases, "Operations a second, and the range of the rounds", |store, phase| {
        phases.spread(store, phase, rate).map_or(String::new(), |found| spread(found, ""))
    });
    let mut further =
        DataTable::new("Each round", &["store, phase", "operations", "seconds", "processor seconds", "operations/s"]);
    for one in phases.rounds {
        let cells = [count(one.operations), figure(one.seconds), figure(one.cpu_seconds), figure(one.operations_per_s)];
        further.push(format!("{}, {}", one.subject, one.phase), cells);
    }
    let plot = plot(phases, "Throughput of each phase", "operations a second", rate)?;
    Ok(PageSection {
        id: "throughput".into(),
        title: "Throughput".into(),
        text: vec!["Each step up is ten times as much.".into()],
        legend: legend(phases),
        figures: vec![
            PageFigure { plot, ..PageFigure::default() },
            PageFigure { table: Some(table), further: Some(further), ..PageFigure::default() },
        ],
    })
}

fn latency(phases: &Phases<'_>) -> Result<PageSection, BenchError> {
    let table = by_phase(phases, "p50 / p99 / p99.9, µs", |store, phase| {
        let of = |figure: fn(&PhaseReport) -> f64| phases.median(store, phase, figure);
        let each = [of(|one| one.latency_us_p50), of(|one| one.latency_us_p99), of(|one| one.latency_us_p99_9)];
        if each[0].is_empty() { String::new() } else { each.join(" / ") }
    });
    Ok(PageSection {
        id: "latency".into(),
        title: "Latency".into(),
        text: vec!["Each step up is ten times as long.".into()],
        legend: legend(phases),
        figures: vec![
            PageFigure {
                plot: plot(phases, "p50 of each phase", "µs", |one| one.latency_us_p50)?,
                ..PageFigure::default()
            },
            PageFigure {
                plot: plot(phases, "p99 of each phase", "µs", |one| one.latency_us_p99)?,
                ..PageFigure::default()
            },
            PageFigure { table: Some(table), ..PageFigure::default() },
        ],
    })
}

fn processor(phases: &Phases<'_>) -> PageSection {
    let (mut table, mut bars) = (
        DataTable::new(
            "Processor time of an operation",
            &["phase and store", "µs", "operations a second of one processor"],
        ),
        Vec::new(),
    );
    for phase in &phases.phases {
        for (place, store) in phases.stores.iter().enumerate() {
            let Some(found) = phases.spread(store, phase, |one| one.operations_per_cpu_s) else { continue };
            let us = 1e6 / found.median.max(1e-9);
            table.push(format!("{phase}: {store}"), [figure(us), figure(found.median)]);
            bars.push((Some(us), place));
        }
    }
    PageSection {
        id: "cpu".into(),
        title: "Processor time".into(),
        text: vec!["On a machine with other work this is the figure that repeats.".into()],
        legend: Vec::new(),
        figures: vec![PageFigure { table: Some(table.with_bars(&bars)), ..PageFigure::default() }],
    }
}
