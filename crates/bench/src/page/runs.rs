//! The page of runs of YCSB workloads: one run, several stores side by side, a suite, or the
//! comparison with other stores.

use crate::page::claims::{ClaimCheck, RunClaim};
use crate::page::figures::{count, figure, percent, spread};
use crate::page::standing::{Ratio, Spread};
use crate::page::{DataCell, DataTable, NamedFigure, Page, PageFigure, PageSection, VerdictLine};
use crate::plot::{Axes, Highlight, Line, inline};
use crate::report::{CURVE, OperationReport, Report};
use crate::stages::StagesOfKind;
use crate::target::BenchError;
use crate::workload::Kind;

mod facts;

pub use facts::facts_of;

const PLOT_SIZE: (u32, u32) = (560, 280);

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunFigure {
    /// Operations a second.
    Throughput,
    /// The slowest second, as a share of the mean one.
    Slowest,
    /// Median latency of a kind.
    P50(Kind),
    /// 99 % of a kind were faster.
    P99(Kind),
    /// 99 % were faster, of the kind that has the slowest.
    P99Any,
    /// The slowest operation of any kind.
    Highest,
    /// Bytes to the device for each byte of users.
    Amplification,
    /// Processor time of an operation.
    Cpu,
    /// Share of the processors that is not used.
    ProcessorsIdle,
}

impl RunFigure {
    /// Those in which stores stand beside each other.
    fn all() -> Vec<RunFigure> {
        let latencies = Kind::ALL.into_iter().flat_map(|kind| [RunFigure::P50(kind), RunFigure::P99(kind)]);
        let others = [RunFigure::Highest, RunFigure::Amplification, RunFigure::Cpu];
        [RunFigure::Throughput, RunFigure::Slowest].into_iter().chain(latencies).chain(others).collect()
    }

    fn name(self) -> String {
        match self {
            RunFigure::Throughput => "throughput".into(),
            RunFigure::Slowest => "slowest second by the mean one".into(),
            RunFigure::P50(kind) => format!("p50 of {}", kind.name()),
            RunFigure::P99(kind) => format!("p99 of {}", kind.name()),
            RunFigure::P99Any => "p99 of the slowest kind".into(),
            RunFigure::Highest => "highest latency".into(),
            RunFigure::Amplification => "write amplification".into(),
            RunFigure::Cpu => "processor time of an operation".into(),
            RunFigure::ProcessorsIdle => "processors that wait".into(),
        }
    }

    fn unit(self) -> &'static str {
        match self {
            RunFigure::Throughput => "operations/s",
            RunFigure::Slowest | RunFigure::ProcessorsIdle => "%",
            RunFigure::Amplification => "",
            _ => "µs",
        }
    }

    fn more_is_better(self) -> bool {
        matches!(self, RunFigure::Throughput | RunFigure::Slowest | RunFigure::ProcessorsIdle)
    }

    fn of(self, report: &Report) -> Option<f64> {
        let kind = |kind: Kind| report.operations.iter().find(|one| one.kind == kind);
        let most = |figure: fn(&OperationReport) -> f64| report.operations.iter().map(figure).reduce(f64::max);
        match self {
            RunFigure::Throughput => Some(report.operations_per_s),
            RunFigure::Slowest => report.slowest_share(),
            RunFigure::P50(of) => kind(of).map(|one| one.latency_us_p50),
            RunFigure::P99(of) => kind(of).map(|one| one.latency_us_p99),
            RunFigure::P99Any => most(|one| one.latency_us_p99),
            RunFigure::Highest => most(|one| one.latency_us_max),
            RunFigure::Amplification => report.write_amplification(),
            RunFigure::Cpu => (!report.is_of_server()).then_some(report.cpu_us_per_operation),
            RunFigure::ProcessorsIdle => {
                report.explanation.as_ref().map(|found| 1.0 - found.processors / found.cores.max(1.0))
            }
        }
    }
}

/// The rounds of one store in one setting.
#[derive(Clone, Debug)]
pub struct RunColumn {
    /// The store.
    pub store: String,
    /// Whether it is ours; the others are what it stands beside.
    pub is_ours: bool,
    /// In their order; never empty.
    pub rounds: Vec<Report>,
}

impl RunColumn {
    fn spread(&self, figure: RunFigure) -> Option<Spread> {
        Spread::of(self.rounds.iter().filter_map(|round| figure.of(round)))
    }

    /// The round whose throughput is the median.
    fn middle(&self) -> Option<&Report> {
        let median = self.spread(RunFigure::Throughput)?.median;
        self.rounds.iter().find(|round| round.operations_per_s.total_cmp(&median).is_eq())
    }

    fn kinds(&self) -> impl Iterator<Item = Kind> + '_ {
        let has = |kind: &Kind| self.rounds.iter().any(|round| round.operations.iter().any(|one| one.kind == *kind));
        Kind::ALL.into_iter().filter(has)
    }
}

/// What was run, and the stores that it was run on.
#[derive(Clone, Debug)]
pub struct RunSetting {
    /// Workload, distribution, requests in flight.
    pub name: String,
    /// Stores, in the order of the page.
    pub columns: Vec<RunColumn>,
}

/// Sorts runs into settings and stores, in the order in which they come first. Each is a store's
/// name, whether it is ours, and a round.
pub fn settings(runs: impl IntoIterator<Item = (String, bool, Report)>) -> Vec<RunSetting> {
    let mut settings: Vec<RunSetting> = Vec::new();
    for (store, is_ours, report) in runs {
        let workload =
            if report.workload.len() == 1 { report.workload.to_uppercase() } else { report.workload.clone() };
        let name = format!("{workload} {}, {} in flight", report.distribution, report.clients);
        let at = settings.iter().position(|one| one.name == name).unwrap_or(settings.len());
        if at == settings.len() {
            settings.push(RunSetting { name, columns: Vec::new() });
        }
        let columns = &mut settings[at].columns;
        match columns.iter_mut().find(|one| one.store == store) {
            Some(column) => column.rounds.push(report),
            None => columns.push(RunColumn { store, is_ours, rounds: vec![report] }),
        }
    }
    settings
}

/// Names of the stores of all settings, in the order in which they come first: a store has one
/// colour on the whole page.
fn stores(settings: &[RunSetting]) -> Vec<String> {
    let mut stores: Vec<String> = Vec::new();
    for column in settings.iter().flat_map(|setting| &setting.columns) {
        if !stores.contains(&column.store) {
            stores.push(column.store.clone());
        }
    }
    stores
}

/// The page.
///
/// # Errors
/// A plot cannot be drawn.
pub fn of_runs(title: &str, settings: &[RunSetting], claims: &[RunClaim]) -> Result<Page, BenchError> {
    let stores = stores(settings);
    let mut verdicts: Vec<VerdictLine> = settings.iter().flat_map(beside_each_other).collect();
    verdicts.extend(settings.iter().flat_map(|setting| beside_papers(setting, claims)));
    let (facts, notes) = facts::of(settings);
    let sections = [
        Some(throughput(settings, &stores)?),
        Some(latency(settings, &stores)?),
        amplification(settings, &stores),
        processor(settings, &stores),
        explanations(settings),
    ];
    let lead = vec![
        "Figures are medians of the rounds, with the lowest and the highest of them. Latency is from submission to answer."
            .into(),
    ];
    Ok(Page { title: title.into(), lead, notes, verdicts, facts, sections: sections.into_iter().flatten().collect() })
}

/// Each of ours beside each other store; where there is no other one, the first of ours beside the
/// rest.
fn pairs(setting: &RunSetting) -> Vec<(&RunColumn, &RunColumn)> {
    let (ours, peers): (Vec<_>, Vec<_>) = setting.columns.iter().partition(|one| one.is_ours);
    match (ours.split_first(), peers.is_empty()) {
        (Some((first, rest)), true) => rest.iter().map(|other| (*first, *other)).collect(),
        _ => ours.iter().flat_map(|one| peers.iter().map(|peer| (*one, *peer))).collect(),
    }
}

fn beside_each_other(setting: &RunSetting) -> Vec<VerdictLine> {
    let line = |(ours, peer): (&RunColumn, &RunColumn), of: RunFigure| {
        let (mine, theirs) = (ours.spread(of)?, peer.spread(of)?);
        let named =
            |column: &RunColumn, found| NamedFigure { store: column.store.clone(), text: spread(found, of.unit()) };
        Some(VerdictLine {
            question: format!("{}: {}", setting.name, of.name()),
            ours: named(ours, mine),
            peer: Some(named(peer, theirs)),
            ratio: Ratio::new(mine, theirs, of.more_is_better()),
            claim: None,
        })
    };
    let lines = pairs(setting).into_iter().flat_map(|pair| RunFigure::all().into_iter().map(move |of| (pair, of)));
    lines.filter_map(|(pair, of)| line(pair, of)).collect()
}

fn beside_papers(setting: &RunSetting, claims: &[RunClaim]) -> Vec<VerdictLine> {
    let is_of = |claim: &&RunClaim| {
        let run = setting.columns.first().and_then(|column| column.rounds.first());
        run.is_some_and(|run| {
            run.workload == claim.workload && (claim.distribution.is_empty() || run.distribution == claim.distribution)
        })
    };
    claims.iter().filter(is_of).flat_map(|claim| beside_paper(setting, claim)).collect()
}

fn beside_paper(setting: &RunSetting, claim: &RunClaim) -> Vec<VerdictLine> {
    let of = claim.figure;
    let line = |ours: &RunColumn, peer: Option<&RunColumn>| {
        let mine = ours.spread(of)?;
        let theirs = peer.and_then(|peer| peer.spread(of));
        let ratio = theirs.and_then(|theirs| Ratio::new(mine, theirs, of.more_is_better()));
        let reached = if peer.is_some() { ratio?.median } else { mine.median };
        let named =
            |column: &RunColumn, found| NamedFigure { store: column.store.clone(), text: spread(found, of.unit()) };
        Some(VerdictLine {
            question: format!("{}: {}", setting.name, of.name()),
            ours: named(ours, mine),
            peer: peer.zip(theirs).map(|(peer, theirs)| named(peer, theirs)),
            ratio,
            claim: Some(ClaimCheck {
                published: claim.published.into(),
                source: claim.source.into(),
                is_met: reached >= claim.at_least,
            }),
        })
    };
    let ours = setting.columns.iter().filter(|one| one.is_ours);
    if claim.peer.is_empty() {
        return ours.filter_map(|one| line(one, None)).collect();
    }
    let is_peer = |one: &&RunColumn| !one.is_ours && one.store.to_lowercase().starts_with(claim.peer);
    let peers = || setting.columns.iter().filter(is_peer);
    ours.flat_map(|one| peers().filter_map(move |peer| line(one, Some(peer)))).collect()
}

fn place(stores: &[String], name: &str) -> usize {
    stores.iter().position(|store| store == name).unwrap_or_default()
}

/// The seconds of each store's middle round, and where its slowest one is.
fn throughput(settings: &[RunSetting], stores: &[String]) -> Result<PageSection, BenchError> {
    let figures = settings.iter().map(|setting| timeline(setting, stores));
    Ok(PageSection {
        id: "throughput".into(),
        title: "Throughput in each second".into(),
        text: vec!["Of the round whose throughput is the median. A ring marks its slowest second.".into()],
        legend: stores.to_vec(),
        figures: figures.collect::<Result<_, _>>()?,
    })
}

fn timeline(setting: &RunSetting, stores: &[String]) -> Result<PageFigure, BenchError> {
    let (mut lines, mut rings) = (Vec::new(), Vec::new());
    let head = ["store", "operations/s", "lowest round", "highest round", "slowest second", "of the mean"];
    let mut table = DataTable::new(format!("{}: operations a second", setting.name), &head);
    let mut further =
        DataTable::new(format!("{}: operations in each second of each round", setting.name), &["store", "operations"]);
    let mut bars = Vec::new();
    for column in &setting.columns {
        let (store, Some(found)) = (place(stores, &column.store), column.spread(RunFigure::Throughput)) else {
            continue;
        };
        let Some(middle) = column.middle() else { continue };
        let each = &middle.operations_per_s_each;
        let points =
            each.iter().enumerate().map(|(second, operations)| (second as i32 + 1, *operations as f64)).collect();
        lines.push(Line { store, name: String::new(), points });
        let slowest = each.iter().enumerate().min_by_key(|(_, operations)| **operations);
        rings.extend(slowest.map(|(second, operations)| Highlight {
            store,
            point: (second as i32 + 1, *operations as f64),
            text: count(*operations),
        }));
        let at = slowest.map_or(String::new(), |(second, _)| {
            format!("{} (second {})", count(middle.operations_per_s_min), second + 1)
        });
        let share = middle.slowest_share().map(percent).unwrap_or_default();
        table.push(&column.store, [figure(found.median), figure(found.min), figure(found.max), at, share]);
        bars.push((Some(found.median), store));
        for (round, report) in column.rounds.iter().enumerate() {
            let each: Vec<String> = report.operations_per_s_each.iter().map(|operations| count(*operations)).collect();
            further.push(format!("{}, round {}", column.store, round + 1), [each.join(" · ")]);
        }
    }
    let axes = Axes {
        title: setting.name.clone(),
        x: "second",
        y: "operations in it",
        places: Vec::new(),
        is_logarithmic: false,
        size: PLOT_SIZE,
    };
    let plot = inline(&axes, &lines, &rings)?;
    Ok(PageFigure { plot, table: Some(table.with_bars(&bars)), further: Some(further) })
}

/// A curve for each kind of operation.
fn latency(settings: &[RunSetting], stores: &[String]) -> Result<PageSection, BenchError> {
    let mut figures = Vec::new();
    for setting in settings {
        let is_there = |kind: &Kind| setting.columns.iter().any(|column| column.kinds().any(|other| other == *kind));
        for kind in Kind::ALL.into_iter().filter(is_there) {
            figures.push(curves(setting, kind, stores)?);
        }
    }
    let text = "Medians of the rounds, of the slowest the worst round. Each step up is ten times as long; each step to \
                the right is further into the tail.";
    Ok(PageSection {
        id: "latency".into(),
        title: "Latency".into(),
        text: vec![text.into()],
        legend: stores.to_vec(),
        figures,
    })
}

fn curves(setting: &RunSetting, kind: Kind, stores: &[String]) -> Result<PageFigure, BenchError> {
    let name = format!("{}: {}", setting.name, kind.name());
    let head = ["store", "operations", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"];
    let mut table = DataTable::new(format!("{name}, µs"), &head);
    let mut all = vec!["store"];
    all.extend(CURVE.iter().map(|(_, name)| *name));
    let mut further = DataTable::new(format!("{name}: the curve, µs"), &all);
    let mut lines = Vec::new();
    for column in &setting.columns {
        let these: Vec<&OperationReport> =
            column.rounds.iter().flat_map(|round| &round.operations).filter(|one| one.kind == kind).collect();
        let median = |of: fn(&OperationReport) -> f64| {
            Spread::of(these.iter().map(|one| of(one))).map_or(String::new(), |found| figure(found.median))
        };
        if these.is_empty() {
            continue;
        }
        let cells = [
            count(these.iter().map(|one| one.count).sum()),
            median(|one| one.latency_us_mean),
            median(|one| one.latency_us_p50),
            median(|one| one.latency_us_p90),
            median(|one| one.latency_us_p99),
            median(|one| one.latency_us_p99_9),
            median(|one| one.latency_us_p99_99),
            figure(these.iter().map(|one| one.latency_us_max).fold(0.0, f64::max)),
        ];
        table.push(&column.store, cells);
        let points = curve(&these);
        let at = |place: usize| {
            points.iter().find(|(at, _)| *at as usize == place).map_or(String::new(), |one| figure(one.1))
        };
        further.push(&column.store, (0..CURVE.len()).map(at));
        lines.push(Line { store: place(stores, &column.store), name: String::new(), points });
    }
    let axes = Axes {
        title: name,
        x: "share of the operations that were faster",
        y: "µs",
        places: CURVE
            .iter()
            .map(|(share, name)| if is_between(*share) { String::new() } else { (*name).into() })
            .collect(),
        is_logarithmic: true,
        size: PLOT_SIZE,
    };
    Ok(PageFigure { plot: inline(&axes, &lines, &[])?, table: Some(table), further: Some(further) })
}

/// Steps of the tail whose names would touch those of their neighbours.
fn is_between(share: f64) -> bool {
    [0.995, 0.9995, 0.99999].contains(&share)
}

/// At each place of the curve the median of the rounds that have it; of the slowest the worst.
fn curve(rounds: &[&OperationReport]) -> Vec<(i32, f64)> {
    let at = |place: usize| {
        let figures = || rounds.iter().flat_map(|one| one.curve()).filter(move |one| one.0 == place).map(|one| one.1);
        let found = Spread::of(figures())?;
        Some((place as i32, if place + 1 == CURVE.len() { found.max } else { found.median }))
    };
    (0..CURVE.len()).filter_map(at).collect()
}

/// A row for each setting and store that has the figure, drawn as bars.
fn bars(settings: &[RunSetting], stores: &[String], of: RunFigure, further: &Further<'_>) -> DataTable {
    let heads: Vec<&str> =
        ["setting and store", further.unit].into_iter().chain(further.heads.iter().copied()).collect();
    let (mut table, mut all) = (DataTable::new(further.caption, &heads), Vec::new());
    for setting in settings {
        for column in &setting.columns {
            let found = column.spread(of);
            let text = found.map_or("not seen".to_owned(), |found| spread(found, ""));
            let cells: Vec<DataCell> = [text].into_iter().chain((further.cells)(column)).map(DataCell::from).collect();
            table.push(format!("{}: {}", setting.name, column.store), cells);
            all.push((found.map(|found| found.median), place(stores, &column.store)));
        }
    }
    table.with_bars(&all)
}

/// What stands beside the bars.
struct Further<'a> {
    caption: &'a str,
    unit: &'a str,
    heads: &'a [&'a str],
    cells: fn(&RunColumn) -> Vec<String>,
}

fn median(column: &RunColumn, of: fn(&Report) -> f64) -> String {
    Spread::of(column.rounds.iter().map(of)).map_or(String::new(), |found| figure(found.median))
}

fn amplification(settings: &[RunSetting], stores: &[String]) -> Option<PageSection> {
    let mut rounds = settings.iter().flat_map(|setting| &setting.columns).flat_map(|column| &column.rounds);
    if rounds.all(|round| round.user_write_bytes_per_operation == 0.0) {
        return None;
    }
    let further = Further {
        caption: "Bytes written to the device for each byte of keys and values that users wrote",
        unit: "write amplification",
        heads: &["user bytes an operation", "the kernel's account", "the store's account", "bytes read an operation"],
        cells: |column| {
            vec![
                median(column, |round| round.user_write_bytes_per_operation),
                median(column, |round| round.device_write_bytes_per_operation),
                median(column, |round| round.store_write_bytes_per_operation),
                median(column, |round| round.device_read_bytes_per_operation),
            ]
        },
    };
    let text = "The larger of two accounts counts: the kernel's of the process, which sees nothing on tmpfs, and the store's \
                own. What compaction or cleaning still owes at the end of a run is not in it.";
    Some(PageSection {
        id: "amplification".into(),
        title: "Write amplification".into(),
        text: vec![text.into()],
        legend: Vec::new(),
        figures: vec![PageFigure {
            table: Some(bars(settings, stores, RunFigure::Amplification, &further)),
            ..PageFigure::default()
        }],
    })
}

fn processor(settings: &[RunSetting], stores: &[String]) -> Option<PageSection> {
    let mut rounds = settings.iter().flat_map(|setting| &setting.columns).flat_map(|column| &column.rounds);
    if rounds.all(Report::is_of_server) {
        return None;
    }
    let further = Further {
        caption: "Processor time of the process for each operation, the kernel's work for it included",
        unit: "µs",
        heads: &["operations a second of one processor"],
        cells: |column| vec![median(column, |round| 1e6 / round.cpu_us_per_operation.max(1e-9))],
    };
    Some(PageSection {
        id: "cpu".into(),
        title: "Processor time of an operation".into(),
        text: Vec::new(),
        legend: Vec::new(),
        figures: vec![PageFigure {
            table: Some(bars(settings, stores, RunFigure::Cpu, &further)),
            ..PageFigure::default()
        }],
    })
}

/// What bound each store of ours in its middle round, and where its operations were.
fn explanations(settings: &[RunSetting]) -> Option<PageSection> {
    let (mut figures, mut bound) = (Vec::new(), DataTable::new("What bound each store in its middle round", BOUND));
    for setting in settings {
        for column in &setting.columns {
            let Some(found) = column.middle().and_then(|middle| middle.explanation.as_ref()) else { continue };
            let name = format!("{}: {}", setting.name, column.store);
            let requests = |one: &crate::explain::RequestReport| {
                format!(
                    "{}/s, p99 {} µs, {} in flight",
                    figure(one.per_s),
                    figure(one.latency_us_p99),
                    figure(one.in_flight)
                )
            };
            let cells = [found.sentence(), requests(&found.reads), requests(&found.writes), requests(&found.flushes)];
            bound.push(&name, cells);
            figures.extend(stages(&name, &found.stages));
        }
    }
    if bound.rows.is_empty() {
        return None;
    }
    figures.insert(0, PageFigure { table: Some(bound), ..PageFigure::default() });
    let text = "Stages are what an operation waited for within the store, on average over all operations of its kind. One in \
                sixteen is measured.";
    Some(PageSection {
        id: "explanation".into(),
        title: "Where the time went".into(),
        text: vec![text.into()],
        legend: Vec::new(),
        figures,
    })
}

const BOUND: &[&str] = &["setting and store", "what bound it", "reads of volumes", "writes", "flushes"];

fn stages(name: &str, all: &[StagesOfKind]) -> Option<PageFigure> {
    let (mut table, mut bars) =
        (DataTable::new(format!("{name}: stages"), &["stage", "mean, µs", "p99, µs"]), Vec::new());
    for (kind, of) in all.iter().enumerate() {
        for stage in &of.stages {
            // Of what is left over there is no p99.
            let p99 = if stage.stage == "outside" { String::new() } else { figure(stage.us_p99) };
            table.push(format!("{}: {}", of.operation, stage.stage), [figure(stage.us_mean), p99]);
            bars.push((Some(stage.us_mean), kind));
        }
    }
    let table = table.with_bars(&bars);
    (!table.rows.is_empty()).then(|| PageFigure { table: Some(table), ..PageFigure::default() })
}
