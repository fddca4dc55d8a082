//! The page of servers under gets and sets by length of values: suite `ukv`, and the cache beside
//! memcached and Redis.

use crate::environment::DEBUG_BUILD;
use crate::page::claims::ClaimCheck;
use crate::page::figures::{count, figure, percent, spread};
use crate::page::standing::{Ratio, Spread};
use crate::page::{DataTable, NamedFigure, Page, PageFigure, PageSection, VerdictLine};
use crate::plot::{Axes, Line, inline};
use crate::suite::ukv::{ServedReport, UkvReport, length};
use crate::target::BenchError;

/// What papers have published, of which store beside which.
const SOURCE: &str =
    "UKV, J. Computer Research and Development 57(3), 2020, abstract; its peer was Fatcache, here it is extstore";

/// A figure of a server.
struct ServedFigure {
    name: &'static str,
    unit: &'static str,
    more_is_better: bool,
    of: fn(&ServedReport) -> Option<f64>,
}

const FIGURES: [ServedFigure; 4] = [
    ServedFigure { name: "requests served", unit: "/s", more_is_better: true, of: |one| Some(one.served_per_s()) },
    ServedFigure { name: "p95", unit: "µs", more_is_better: false, of: |one| Some(one.wire.latency_us_p95) },
    ServedFigure { name: "p99", unit: "µs", more_is_better: false, of: |one| Some(one.wire.latency_us_p99) },
    ServedFigure {
        name: "processor time of a request",
        unit: "µs",
        more_is_better: false,
        of: |one| one.server_cpu_us_per_operation,
    },
];

/// Published for requests that involve the SSD: a mix, which of [`FIGURES`], and how many times
/// better at the least.
const CLAIMS: [(&str, usize, f64, &str); 4] = [
    ("get", 0, 1.146, "14.60 to 51.81 % more requests/s"),
    ("get", 1, 1.178, "p95 15.10 to 24.36 % lower"),
    ("set", 0, 1.1497, "14.97 to 97.78 % more requests/s"),
    ("set", 1, 1.353, "p95 26.12 to 40.90 % lower"),
];

/// What was asked of a server: where the records are, which requests, and how many at once.
type Load = (String, String, usize, usize);

/// All that was measured, by what was asked.
struct Served<'a> {
    all: &'a [ServedReport],
    servers: Vec<&'a str>,
    loads: Vec<Load>,
}

/// The page.
///
/// # Errors
/// A plot cannot be drawn.
pub fn of_served(report: &UkvReport, ours: &[&str]) -> Result<Page, BenchError> {
    let served = Served::new(&report.served);
    let mut verdicts = served.verdicts(ours, false);
    verdicts.extend(served.verdicts(ours, true));
    let mut sections = Vec::new();
    for load in &served.loads {
        sections.push(section(&served, load)?);
    }
    sections.push(processor(&served));
    let lead = "Gets and sets over loopback, by length of values. Figures are medians of the rounds, with the lowest and the \
                highest of them. Latency is from the submission of a batch to each of its answers. Gets that found nothing are \
                not served.";
    Ok(Page {
        title: report.title.clone(),
        lead: vec![lead.into()],
        notes: notes(report),
        verdicts,
        facts: facts(report),
        sections,
    })
}

impl<'a> Served<'a> {
    fn new(all: &'a [ServedReport]) -> Served<'a> {
        let (mut servers, mut loads) = (Vec::new(), Vec::new());
        for one in all {
            if !servers.contains(&one.server.as_str()) {
                servers.push(&one.server);
            }
            let load = one.load();
            if !loads.contains(&load) {
                loads.push(load);
            }
        }
        Served { all, servers, loads }
    }

    fn lengths(&self, load: &Load) -> Vec<usize> {
        let of = self.all.iter().filter(|one| one.load() == *load);
        let mut lengths: Vec<usize> = of.map(|one| one.value_bytes).collect();
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }

    fn rounds(&self, load: &Load, server: &str, value_bytes: usize) -> Vec<&'a ServedReport> {
        let is_it = |one: &&ServedReport| one.server == server && one.value_bytes == value_bytes && one.load() == *load;
        self.all.iter().filter(is_it).collect()
    }

    fn spread(
        &self,
        load: &Load,
        server: &str,
        value_bytes: usize,
        of: fn(&ServedReport) -> Option<f64>,
    ) -> Option<Spread> {
        Spread::of(self.rounds(load, server, value_bytes).into_iter().filter_map(of))
    }

    /// Ours beside each other server; without another one, the first of ours beside the rest. Or
    /// what was published, beside the server that stands for the paper's peer.
    fn verdicts(&self, ours: &[&str], of_papers: bool) -> Vec<VerdictLine> {
        let (mine, peers): (Vec<&str>, Vec<&str>) = self.servers.iter().partition(|server| ours.contains(server));
        let pairs: Vec<(&str, &str)> = match (peers.is_empty(), mine.split_first()) {
            (true, Some((first, rest))) => rest.iter().map(|other| (*first, *other)).collect(),
            _ => mine.iter().flat_map(|one| peers.iter().map(|peer| (*one, *peer))).collect(),
        };
        let mut lines = Vec::new();
        for (load, pair) in self.loads.iter().flat_map(|load| pairs.iter().map(move |pair| (load, *pair))) {
            for value_bytes in self.lengths(load) {
                match of_papers {
                    false => lines.extend(FIGURES.iter().filter_map(|of| self.line(load, pair, value_bytes, of))),
                    true => lines.extend(CLAIMS.iter().filter_map(|claim| self.claim(load, pair, value_bytes, claim))),
                }
            }
        }
        lines
    }

    fn line(
        &self,
        load: &Load,
        (ours, peer): (&str, &str),
        value_bytes: usize,
        of: &ServedFigure,
    ) -> Option<VerdictLine> {
        let found = |server| self.spread(load, server, value_bytes, of.of);
        let (mine, theirs) = (found(ours)?, found(peer)?);
        let named = |store: &str, found| NamedFigure { store: store.to_owned(), text: spread(found, of.unit) };
        Some(VerdictLine {
            question: format!("{}, {} values: {}", words(load), length(value_bytes), of.name),
            ours: named(ours, mine),
            peer: Some(named(peer, theirs)),
            ratio: Ratio::new(mine, theirs, of.more_is_better),
            claim: None,
        })
    }

    fn claim(
        &self,
        load: &Load,
        pair: (&str, &str),
        value_bytes: usize,
        (mix, of, at_least, published): &(&str, usize, f64, &str),
    ) -> Option<VerdictLine> {
        if load.0 != "ssd" || load.1 != *mix || pair.1 != "extstore" {
            return None;
        }
        let line = self.line(load, pair, value_bytes, FIGURES.get(*of)?)?;
        let is_met = line.ratio?.median >= *at_least;
        let claim = ClaimCheck { published: (*published).to_owned(), source: SOURCE.into(), is_met };
        Some(VerdictLine { claim: Some(claim), ..line })
    }
}

fn words((case, mix, connections, pipeline): &Load) -> String {
    format!("{case}, {mix}, {connections} connections, batches of {pipeline}")
}

/// Throughput and p95 by length of values, and all numbers.
fn section(served: &Served<'_>, load: &Load) -> Result<PageSection, BenchError> {
    let lengths = served.lengths(load);
    let plot = |title: String, y, of: fn(&ServedReport) -> Option<f64>| {
        let line = |(store, server): (usize, &&str)| {
            let point = |(place, value_bytes): (usize, &usize)| {
                Some((place as i32, served.spread(load, server, *value_bytes, of)?.median))
            };
            Line { store, name: String::new(), points: lengths.iter().enumerate().filter_map(point).collect() }
        };
        let lines: Vec<Line> = served.servers.iter().enumerate().map(line).collect();
        let places = lengths.iter().map(|one| length(*one)).collect();
        let axes = Axes { title, x: "length of values", y, places, is_logarithmic: true, size: (560, 280) };
        inline(&axes, &lines, &[]).map(|plot| PageFigure { plot, ..PageFigure::default() })
    };
    let (case, mix, connections, pipeline) = load;
    Ok(PageSection {
        id: format!("{case}-{mix}-{connections}-{pipeline}"),
        title: words(load),
        text: vec!["Each step up is ten times as much.".into()],
        legend: served.servers.iter().map(|server| (*server).to_owned()).collect(),
        figures: vec![
            plot(format!("{case}, {mix}: requests served"), "requests a second", FIGURES[0].of)?,
            plot(format!("{case}, {mix}: p95"), "µs", FIGURES[1].of)?,
            PageFigure { table: Some(numbers(served, load, &lengths)), ..PageFigure::default() },
        ],
    })
}

fn numbers(served: &Served<'_>, load: &Load, lengths: &[usize]) -> DataTable {
    let head = [
        "values and server",
        "requests/s",
        "gets that hit",
        "sets refused",
        "p50, µs",
        "p95, µs",
        "p99, µs",
        "p99.9, µs",
        "max, µs",
        "generator CPU",
    ];
    let mut table = DataTable::new(format!("{}: medians of the rounds", words(load)), &head);
    for value_bytes in lengths {
        for server in &served.servers {
            let rounds = served.rounds(load, server, *value_bytes);
            let Some(rate) = Spread::of(rounds.iter().map(|one| one.wire.operations_per_s)) else { continue };
            let median = |of: fn(&ServedReport) -> f64| {
                Spread::of(rounds.iter().map(|one| of(one))).map_or(String::new(), |found| figure(found.median))
            };
            let hits = Spread::of(rounds.iter().filter_map(|one| one.wire.hit_percent()));
            let refused: u64 = rounds.iter().map(|one| one.wire.refused).sum();
            let busy = Spread::of(rounds.iter().map(|one| one.wire.generator_cpu));
            let cells = [
                spread(rate, ""),
                hits.map_or("no gets".into(), |found| percent(found.median / 100.0)),
                count(refused),
                median(|one| one.wire.latency_us_p50),
                median(|one| one.wire.latency_us_p95),
                median(|one| one.wire.latency_us_p99),
                median(|one| one.wire.latency_us_p99_9),
                median(|one| one.wire.latency_us_max),
                busy.map_or(String::new(), |found| percent(found.median)),
            ];
            table.push(format!("{}: {server}", length(*value_bytes)), cells);
        }
    }
    table
}

fn processor(served: &Served<'_>) -> PageSection {
    let head = ["load and server", "µs", "most memory of the process, MiB"];
    let (mut table, mut bars) =
        (DataTable::new("Processor time of a request, of the server's process", &head), Vec::new());
    for load in &served.loads {
        for value_bytes in served.lengths(load) {
            for (store, server) in served.servers.iter().enumerate() {
                let Some(found) = served.spread(load, server, value_bytes, FIGURES[3].of) else { continue };
                let peak = served.spread(load, server, value_bytes, |one| Some(one.memory_peak_bytes as f64));
                let peak = peak.map_or(String::new(), |found| figure(found.max / 1_048_576.0));
                table.push(format!("{}, {}: {server}", words(load), length(value_bytes)), [spread(found, ""), peak]);
                bars.push((Some(found.median), store));
            }
        }
    }
    let figures = vec![PageFigure { table: Some(table.with_bars(&bars)), ..PageFigure::default() }];
    PageSection { id: "cpu".into(), title: "Processor time".into(), figures, ..PageSection::default() }
}

fn facts(report: &UkvReport) -> DataTable {
    let mut table = DataTable::new("Conditions, the same for all servers", &["condition", "what"]);
    for (name, words) in report.facts() {
        table.push(name, [if words.is_empty() { "not known".to_owned() } else { words }]);
    }
    table
}

fn notes(report: &UkvReport) -> Vec<String> {
    let mut notes = report.notes.clone();
    notes.extend((report.environment.build == "debug").then(|| DEBUG_BUILD.to_owned()));
    notes.extend(report.left_out.iter().map(|why| format!("Left out: {why}.")));
    // Near a whole processor the generator is what binds.
    if report.served.iter().any(|one| one.wire.generator_cpu > 0.9) {
        notes.push("In some runs the load generator used a whole processor (generator CPU near 100 %): there it was what bound.".into());
    }
    if report.served.iter().any(|one| one.wire.refused > 0) {
        notes.push("Some sets were refused: see the tables.".into());
    }
    notes
}
