//! The page of suite `matrixkv`: random writes by length of values, with the four figures of the
//! paper, by themselves or beside what a comparison has measured.

use stratakv_base::quantity::format_bytes;

use crate::environment::DEBUG_BUILD;
use crate::page::claims::ClaimCheck;
use crate::page::figures::{count, figure, percent, spread, times};
use crate::page::standing::{Ratio, Spread};
use crate::page::{DataCell, DataTable, NamedFigure, Page, PageFigure, PageSection, VerdictLine};
use crate::plot::{Axes, Highlight, Line, inline};
use crate::suite::matrixkv::{FillReport, FillsReport, Series};
use crate::target::BenchError;

const PERCENTILES: [&str; 5] = ["p50", "p99", "p99.9", "p99.99", "max"];
const SOURCE: &str = "MatrixKV, USENIX ATC 2020, section 5";

/// A figure of which more, or less, is better.
struct FillFigure {
    name: &'static str,
    unit: &'static str,
    more_is_better: bool,
    of: fn(&FillReport) -> Option<f64>,
}

const PUTS: usize = 0;
const P99: usize = 3;
const AMPLIFICATION: usize = 7;

const fn less(name: &'static str, unit: &'static str, of: fn(&FillReport) -> Option<f64>) -> FillFigure {
    FillFigure { name, unit, more_is_better: false, of }
}

const FIGURES: [FillFigure; 9] = [
    FillFigure { name: "puts", unit: "/s", more_is_better: true, of: |one| Some(one.puts_per_s) },
    FillFigure {
        name: "slowest second by the mean one",
        unit: "%",
        more_is_better: true,
        of: FillReport::worst_second,
    },
    less("p50", "µs", |one| Some(one.latency_us_p50)),
    less("p99", "µs", |one| Some(one.latency_us_p99)),
    less("p99.9", "µs", |one| Some(one.latency_us_p99_9)),
    less("p99.99", "µs", |one| Some(one.latency_us_p99_99)),
    less("max", "µs", |one| Some(one.latency_us_max)),
    less("write amplification, settled", "", amplification),
    less("processor time of a put", "µs", |one| Some(one.cpu_us_per_put)),
];

/// Published: in a figure, beside stores whose names begin so, for values of these lengths.
struct FillClaim {
    figure: usize,
    peer: &'static str,
    value_bytes: std::ops::RangeInclusive<usize>,
    at_least: f64,
    published: &'static str,
}

const ANY_LENGTH: std::ops::RangeInclusive<usize> = 0..=usize::MAX;
const CLAIMS: [FillClaim; 4] = [
    FillClaim {
        figure: PUTS,
        peer: "rocksdb_over_memory",
        value_bytes: 64..=64 << 10,
        at_least: 1.86,
        published: "1.86 to 3.61 times RocksDB with L0 in persistent memory, 3.6 at 4 KiB",
    },
    FillClaim {
        figure: P99,
        peer: "rocksdb-",
        value_bytes: ANY_LENGTH,
        at_least: 5.0,
        published: "5 times lower than RocksDB",
    },
    FillClaim {
        figure: AMPLIFICATION,
        peer: "rocksdb-",
        value_bytes: ANY_LENGTH,
        at_least: 2.56,
        published: "2.56 times lower than RocksDB on the SSD",
    },
    FillClaim {
        figure: AMPLIFICATION,
        peer: "rocksdb_over_memory",
        value_bytes: ANY_LENGTH,
        at_least: 1.99,
        published: "1.99 times lower than RocksDB with L0 in persistent memory",
    },
];

/// `None` if nothing was seen to be written: the medium was not counted, or nothing was moved yet.
fn amplification(one: &FillReport) -> Option<f64> {
    (one.write_amplification > 0.0).then_some(one.write_amplification)
}

/// A store in the report.
struct FillColumn<'a> {
    /// Its name, told apart if another run has it too.
    name: String,
    is_ours: bool,
    series: Vec<Series<'a>>,
}

impl FillColumn<'_> {
    fn of(&self, value_bytes: usize) -> Option<&Series<'_>> {
        self.series.iter().find(|one| one.value_bytes == value_bytes)
    }

    fn spread(&self, value_bytes: usize, of: fn(&FillReport) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.of(value_bytes)?.rounds.iter().filter_map(|round| of(round)))
    }
}

/// All stores, and all lengths of values.
struct Fills<'a> {
    columns: Vec<FillColumn<'a>>,
    sizes: Vec<usize>,
}

/// Of one report by itself, or with another one beside it: ours, and what it is held against.
///
/// # Errors
/// A plot cannot be drawn.
pub fn of_fills(ours: &FillsReport, beside: Option<&FillsReport>) -> Result<Page, BenchError> {
    let fills = Fills::new(ours, beside);
    let mut verdicts = fills.beside_stores();
    verdicts.extend(CLAIMS.iter().flat_map(|claim| fills.beside_paper(claim)));
    let mut sections =
        vec![throughput(&fills)?, timelines(&fills)?, latencies(&fills)?, amplifications(&fills)?, processor(&fills)];
    sections.extend(comparison(&fills));
    let lead = "Puts of keys of 24 B drawn evenly, out of as many as are put, into stores that were empty, acknowledged when \
                the process may die. Figures are medians of the rounds, with the lowest and the highest of them.";
    Ok(Page {
        title: "Random writes, as MatrixKV was measured".into(),
        lead: vec![lead.into()],
        notes: notes(ours, beside),
        verdicts,
        facts: facts(ours, beside),
        sections,
    })
}

impl<'a> Fills<'a> {
    fn new(ours: &'a FillsReport, beside: Option<&'a FillsReport>) -> Fills<'a> {
        let mine = ours.stores();
        let of = |report: &'a FillsReport, is_beside: bool| -> Vec<FillColumn<'a>> {
            let column = |store: &'a str| {
                let series = report.series().into_iter().filter(|one| one.store == store).collect();
                let is_taken = is_beside && mine.contains(&store);
                let name = if is_taken { format!("{store} (beside)") } else { store.to_owned() };
                FillColumn { name, is_ours: !is_beside && store.starts_with("matrix"), series }
            };
            report.stores().into_iter().map(column).collect()
        };
        let mut columns = of(ours, false);
        columns.extend(beside.into_iter().flat_map(|other| of(other, true)));
        let mut sizes: Vec<usize> =
            columns.iter().flat_map(|one| &one.series).map(|series| series.value_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        Fills { columns, sizes }
    }

    fn pairs(&self) -> Vec<(&FillColumn<'a>, &FillColumn<'a>)> {
        let (ours, peers): (Vec<_>, Vec<_>) = self.columns.iter().partition(|one| one.is_ours);
        ours.iter().flat_map(|one| peers.iter().map(|peer| (*one, *peer))).collect()
    }

    fn line(
        &self,
        (ours, peer): (&FillColumn<'_>, &FillColumn<'_>),
        size: usize,
        of: &FillFigure,
    ) -> Option<VerdictLine> {
        let (mine, theirs) = (ours.spread(size, of.of)?, peer.spread(size, of.of)?);
        let named =
            |column: &FillColumn<'_>, found| NamedFigure { store: column.name.clone(), text: spread(found, of.unit) };
        Some(VerdictLine {
            question: format!("{} values: {}", length(size), of.name),
            ours: named(ours, mine),
            peer: Some(named(peer, theirs)),
            ratio: Ratio::new(mine, theirs, of.more_is_better),
            claim: None,
        })
    }

    fn beside_stores(&self) -> Vec<VerdictLine> {
        let mut lines = Vec::new();
        for pair in self.pairs() {
            for size in &self.sizes {
                lines.extend(FIGURES.iter().filter_map(|of| self.line(pair, *size, of)));
            }
        }
        lines
    }

    fn beside_paper(&self, claim: &FillClaim) -> Vec<VerdictLine> {
        let of = &FIGURES[claim.figure];
        let pairs = self.pairs().into_iter().filter(|(_, peer)| peer.name.starts_with(claim.peer));
        let sizes =
            |pair| self.sizes.iter().filter(|size| claim.value_bytes.contains(size)).map(move |size| (pair, *size));
        let lines = pairs.flat_map(sizes).filter_map(|(pair, size)| {
            let line = self.line(pair, size, of)?;
            let is_met = line.ratio?.median >= claim.at_least;
            let claim = ClaimCheck { published: claim.published.into(), source: SOURCE.into(), is_met };
            Some(VerdictLine { claim: Some(claim), ..line })
        });
        lines.collect()
    }

    fn legend(&self) -> Vec<String> {
        self.columns.iter().map(|one| one.name.clone()).collect()
    }

    fn places(&self) -> Vec<String> {
        self.sizes.iter().map(|size| length(*size)).collect()
    }

    /// A row for each store, a column for each length of values.
    fn table<T: Into<DataCell>>(&self, caption: &str, cell: impl Fn(&Series<'_>) -> T) -> DataTable {
        let places = self.places();
        let head: Vec<&str> = ["store"].into_iter().chain(places.iter().map(String::as_str)).collect();
        let mut table = DataTable::new(caption, &head);
        for one in &self.columns {
            let cells =
                self.sizes.iter().map(|size| one.of(*size).map_or(DataCell::default(), |found| cell(found).into()));
            table.push(&one.name, cells.collect::<Vec<_>>());
        }
        table
    }

    /// Lines over lengths of values.
    fn lines(&self, of: fn(&FillReport) -> Option<f64>) -> Vec<Line> {
        let line = |(store, one): (usize, &FillColumn<'_>)| {
            let point = |(place, size): (usize, &usize)| Some((place as i32, one.spread(*size, of)?.median));
            Line { store, name: String::new(), points: self.sizes.iter().enumerate().filter_map(point).collect() }
        };
        self.columns.iter().enumerate().map(line).collect()
    }
}

fn length(value_bytes: usize) -> String {
    format_bytes(value_bytes as u64).replace(".00", "").replace(".0 ", " ")
}

/// What was asked, and where it ran: a column for each report.
fn facts(ours: &FillsReport, beside: Option<&FillsReport>) -> DataTable {
    let runs: Vec<&FillsReport> = [Some(ours), beside].into_iter().flatten().collect();
    let head: Vec<&str> = ["condition", "this run", "beside"].into_iter().take(1 + runs.len()).collect();
    let mut table = DataTable::new("Conditions", &head);
    let mut fact = |name: &str, words: &dyn Fn(&FillsReport) -> String| {
        let shown =
            |run: &&FillsReport| Some(words(run)).filter(|words| !words.is_empty()).unwrap_or("not known".into());
        table.push(name, runs.iter().map(shown).collect::<Vec<_>>());
    };
    let here = |run: &FillsReport| run.environment.clone().unwrap_or_default();
    fact("values of each length", &|run| format_bytes(run.bytes));
    fact("fast memory", &|run| format_bytes(run.region_bytes + run.pmem_levels_bytes));
    fact("memory of the store", &|run| format_bytes(run.memory_bytes));
    fact("puts in flight", &|run| run.clients.to_string());
    fact("durability", &|_| "process_crash".into());
    fact("rounds", &|run| run.fills.iter().map(|fill| fill.round).max().unwrap_or_default().to_string());
    fact("machine", &|run| format!("{}, {} cores", run.cpu, run.cores));
    fact("memory of the machine", &|run| match here(run).machine_memory_bytes {
        0 => String::new(),
        bytes => format_bytes(bytes),
    });
    fact("kernel", &|run| run.kernel.clone());
    fact("file system", &|run| here(run).file_system);
    fact("device", &|run| here(run).device);
    fact("version", &|run| run.version.clone());
    fact("commit", &|run| here(run).commit);
    fact("build", &|run| here(run).build);
    fact("date", &|run| here(run).date);
    fact("command", &|run| here(run).command.join(" "));
    table
}

/// What a reader must know before the figures.
fn notes(ours: &FillsReport, beside: Option<&FillsReport>) -> Vec<String> {
    let all = || [Some(ours), beside].into_iter().flatten();
    let mut notes = Vec::new();
    let mut note = |applies: bool, text: &str| notes.extend(applies.then(|| text.to_owned()));
    note(
        all().flat_map(|one| &one.fills).any(|fill| fill.fast_memory.starts_with("volatile")),
        "Fast memory is DRAM here, not persistent memory, whose lower write bandwidth these figures do not show; what lies there is lost with the power.",
    );
    note(
        all().any(|one| one.containers_written() < 5.0),
        "Less than five times the fast memory was written: the tree has not taken its shape, so these figures say little about a store in use.",
    );
    note(
        all().flat_map(|one| &one.fills).any(|fill| !fill.is_settled),
        "A store still wrote when waiting for it ended: its write amplification, marked +, lacks what it owes.",
    );
    note(all().any(|one| one.environment.as_ref().is_some_and(|here| here.build == "debug")), DEBUG_BUILD);
    let Some(other) = beside else { return notes };
    let means = |one: &FillsReport| (one.bytes, one.region_bytes, one.pmem_levels_bytes, one.memory_bytes, one.clients);
    note(
        means(ours) != means(other),
        "What stands beside was measured with other means (see the table below): the ratios mix that with what the stores do.",
    );
    let machine = |one: &FillsReport| (one.cpu.clone(), one.cores, one.kernel.clone());
    note(machine(ours) != machine(other), "What stands beside was measured on another machine or kernel.");
    notes
}

fn throughput(fills: &Fills<'_>) -> Result<PageSection, BenchError> {
    let axes = Axes {
        title: "Random writes".into(),
        x: "length of values",
        y: "MB of values a second",
        places: fills.places(),
        is_logarithmic: true,
        size: (880, 340),
    };
    let plot = inline(&axes, &fills.lines(|one| Some(one.megabytes_per_s())), &[])?;
    let table = fills.table("Puts a second, and the range of the rounds", |one| {
        Spread::of(one.rounds.iter().map(|round| round.puts_per_s)).map_or(String::new(), |found| spread(found, ""))
    });
    Ok(PageSection {
        id: "throughput".into(),
        title: "1. Throughput by length of values".into(),
        text: Vec::new(),
        legend: fills.legend(),
        figures: vec![
            PageFigure { plot, ..PageFigure::default() },
            PageFigure { table: Some(table), ..PageFigure::default() },
        ],
    })
}

fn timelines(fills: &Fills<'_>) -> Result<PageSection, BenchError> {
    let (mut figures, mut too_short) = (Vec::new(), Vec::new());
    for size in &fills.sizes {
        match timeline(fills, *size)? {
            Some(found) => figures.push(found),
            None => too_short.push(length(*size)),
        }
    }
    let slowest = fills.table("The slowest second by the mean one: 100 % is perfectly flat", |one| {
        one.worst_second().map_or(String::new(), percent)
    });
    figures.push(PageFigure { table: Some(slowest), ..PageFigure::default() });
    let mut text = vec![
        "Of the round whose throughput is the median. A stall is a second near the bottom; a ring marks the slowest second. \
         All begin at 0: a line that ends sooner was done sooner."
            .to_owned(),
    ];
    if !too_short.is_empty() {
        text.push(format!("{}: all was over in less than a second, so there is no timeline.", too_short.join(", ")));
    }
    let title = "2. Throughput in each second".into();
    Ok(PageSection { id: "timeline".into(), title, text, legend: fills.legend(), figures })
}

fn timeline(fills: &Fills<'_>, size: usize) -> Result<Option<PageFigure>, BenchError> {
    let (mut lines, mut rings) = (Vec::new(), Vec::new());
    let title = format!("{} values", length(size));
    let mut further = DataTable::new(format!("{title}: puts in each second of each round"), &["store", "puts"]);
    for (store, one) in fills.columns.iter().enumerate() {
        let Some(series) = one.of(size) else { continue };
        for round in &series.rounds {
            let each: Vec<String> = round.puts_per_s_each.iter().map(|puts| count(*puts)).collect();
            further.push(format!("{}, round {}", one.name, round.round), [each.join(" · ")]);
        }
        let Some(round) = series.middle_round() else { continue };
        let each = || round.puts_per_s_each.iter().enumerate().map(|(second, puts)| (second as i32 + 1, *puts));
        let slowest = each().min_by_key(|(_, puts)| *puts);
        rings.extend(slowest.map(|(second, puts)| Highlight {
            store,
            point: (second, puts as f64),
            text: count(puts),
        }));
        let points = each().map(|(second, puts)| (second, puts as f64)).collect();
        lines.push(Line { store, name: String::new(), points });
    }
    if lines.iter().all(|line| line.points.is_empty()) {
        return Ok(None);
    }
    let axes =
        Axes { title, x: "second", y: "puts in it", places: Vec::new(), is_logarithmic: false, size: (560, 260) };
    Ok(Some(PageFigure { plot: inline(&axes, &lines, &rings)?, table: None, further: Some(further) }))
}

fn latencies(fills: &Fills<'_>) -> Result<PageSection, BenchError> {
    let steps: [fn(&FillReport) -> Option<f64>; 5] =
        [FIGURES[2].of, FIGURES[3].of, FIGURES[4].of, FIGURES[5].of, FIGURES[6].of];
    let mut figures = Vec::new();
    for size in &fills.sizes {
        let line = |(store, one): (usize, &FillColumn<'_>)| {
            let point = |(step, of): (usize, &fn(&FillReport) -> Option<f64>)| {
                Some((step as i32, one.spread(*size, *of)?.median))
            };
            Line { store, name: String::new(), points: steps.iter().enumerate().filter_map(point).collect() }
        };
        let axes = Axes {
            title: format!("{} values", length(*size)),
            x: "share of puts that were faster",
            y: "µs",
            places: PERCENTILES.map(str::to_owned).into(),
            is_logarithmic: true,
            size: (560, 260),
        };
        let lines: Vec<Line> = fills.columns.iter().enumerate().map(line).collect();
        figures.push(PageFigure { plot: inline(&axes, &lines, &[])?, ..PageFigure::default() });
    }
    let table = fills.table(&format!("{} in µs", PERCENTILES.join(" / ")), |one| {
        let median = |of: &fn(&FillReport) -> Option<f64>| {
            Spread::of(one.rounds.iter().filter_map(|round| of(round)))
                .map_or(String::new(), |found| figure(found.median))
        };
        steps.iter().map(median).collect::<Vec<_>>().join(" / ")
    });
    figures.push(PageFigure { table: Some(table), ..PageFigure::default() });
    Ok(PageSection {
        id: "latency".into(),
        title: "3. Latency of puts".into(),
        text: vec!["From submission to answer, in microseconds. Each step up is ten times as long.".into()],
        legend: fills.legend(),
        figures,
    })
}

fn amplifications(fills: &Fills<'_>) -> Result<PageSection, BenchError> {
    let axes = Axes {
        title: "Written to the disk for each byte put".into(),
        x: "length of values",
        y: "times",
        places: fills.places(),
        is_logarithmic: false,
        size: (880, 340),
    };
    let plot = inline(&axes, &fills.lines(amplification), &[])?;
    let table = fills.table("Settled, and in brackets at the last answer", |one| {
        let Some(settled) = Spread::of(one.rounds.iter().filter_map(|round| amplification(round))) else {
            return "none seen".to_owned();
        };
        let by_then = one.median(|round| round.written_bytes_unsettled as f64 / round.user_bytes.max(1) as f64);
        let mark = if one.rounds.iter().all(|round| round.is_settled) { "" } else { "+" };
        format!("{}{mark} ({})", times(settled.median), times(by_then))
    });
    let bytes = fills.table("Bytes put / bytes to the disk once settled / seconds that settling took", |one| {
        let of = |figure: fn(&FillReport) -> f64| self::figure(one.median(figure));
        [of(|fill| fill.user_bytes as f64), of(|fill| fill.written_bytes as f64), of(|fill| fill.settling_seconds)]
            .join(" / ")
    });
    let text = "Bytes to the disk for each byte of keys and values, until compaction had nothing more to write. Logs on the \
                disk count; fast memory does not.";
    Ok(PageSection {
        id: "amplification".into(),
        title: "4. Write amplification, settled".into(),
        text: vec![text.into()],
        legend: fills.legend(),
        figures: vec![
            PageFigure { plot, ..PageFigure::default() },
            PageFigure { table: Some(table), further: Some(bytes), ..PageFigure::default() },
        ],
    })
}

fn processor(fills: &Fills<'_>) -> PageSection {
    let (mut table, mut bars) = (DataTable::new("Processor time of a put", &["values and store", "µs"]), Vec::new());
    for size in &fills.sizes {
        for (store, one) in fills.columns.iter().enumerate() {
            let Some(found) = one.spread(*size, FIGURES[8].of) else { continue };
            table.push(format!("{}: {}", length(*size), one.name), [spread(found, "")]);
            bars.push((Some(found.median), store));
        }
    }
    let figures = vec![PageFigure { table: Some(table.with_bars(&bars)), ..PageFigure::default() }];
    PageSection { id: "cpu".into(), title: "Processor time".into(), figures, ..PageSection::default() }
}

/// A table for each other store: how many times better ours is.
fn comparison(fills: &Fills<'_>) -> Option<PageSection> {
    let places = fills.places();
    let head: Vec<&str> = ["figure"].into_iter().chain(places.iter().map(String::as_str)).collect();
    let table = |pair: (&FillColumn<'_>, &FillColumn<'_>)| {
        let mut table = DataTable::new(format!("{} beside {}", pair.0.name, pair.1.name), &head);
        for of in &FIGURES {
            let cell = |size: &usize| {
                let ratio = fills.line(pair, *size, of).and_then(|line| line.ratio);
                let text =
                    ratio.map_or(String::new(), |ratio| format!("{} {}", times(ratio.median), ratio.standing.word()));
                DataCell { standing: ratio.map(|ratio| ratio.standing), ..text.into() }
            };
            table.push(of.name, fills.sizes.iter().map(cell).collect::<Vec<_>>());
        }
        PageFigure { table: Some(table), ..PageFigure::default() }
    };
    let figures: Vec<PageFigure> = fills.pairs().into_iter().map(table).collect();
    let text = "How many times better ours is: 2 is twice the throughput, or half the latency; 0.5 is twice as bad.";
    (!figures.is_empty()).then(|| PageSection {
        id: "comparison".into(),
        title: "Beside others".into(),
        text: vec![text.into()],
        legend: Vec::new(),
        figures,
    })
}
