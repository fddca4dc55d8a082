//! The report: one HTML file with the four figures of the paper as plots, and every number as a
//! table.

use std::fmt::Write;

use stratakv_base::quantity::format_bytes;

use crate::plot::{Axes, Line, colour, mark, short, svg};
use crate::suite::matrixkv::fills::{FillReport, FillsReport, Series};
use crate::target::BenchError;

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:1180px;margin:2em auto;padding:0 1em;color:#222;background:#fff}\
h1,h2{line-height:1.2}table{border-collapse:collapse;margin:1em 0;font-size:13px}th,td{border:1px solid #ccc;padding:2px 8px;text-align:right}\
th:first-child,td:first-child,td.left{text-align:left}.plots{display:flex;flex-wrap:wrap;gap:8px}.better{background:#d6ebf7}.worse{background:#fbe0cf}.legend span{margin-right:1.5em}\
.note{border-left:4px solid #d55e00;padding-left:1em}";
/// Ratios nearer to 1 than that count as equal: rounds of the same store differ as much.
const EQUAL: f64 = 0.05;
const PERCENTILES: [&str; 5] = ["p50", "p99", "p99.9", "p99.99", "max"];

/// A figure of which more, or less, is better.
struct Figure {
    name: &'static str,
    more_is_better: bool,
    of: fn(&Series<'_>) -> Option<f64>,
}

const FIGURES: [Figure; 9] = [
    Figure { name: "puts/s", more_is_better: true, of: |one| Some(one.median(|round| round.puts_per_s)) },
    Figure { name: "worst second / mean", more_is_better: true, of: |one| one.worst_second() },
    Figure { name: "p50, µs", more_is_better: false, of: |one| Some(one.median(|round| round.latency_us_p50)) },
    Figure { name: "p99, µs", more_is_better: false, of: |one| Some(one.median(|round| round.latency_us_p99)) },
    Figure { name: "p99.9, µs", more_is_better: false, of: |one| Some(one.median(|round| round.latency_us_p99_9)) },
    Figure { name: "p99.99, µs", more_is_better: false, of: |one| Some(one.median(|round| round.latency_us_p99_99)) },
    Figure { name: "max, µs", more_is_better: false, of: |one| Some(one.median(|round| round.latency_us_max)) },
    Figure { name: "write amplification, settled", more_is_better: false, of: |one| amplification(one) },
    Figure { name: "CPU, µs a put", more_is_better: false, of: |one| Some(one.median(|round| round.cpu_us_per_put)) },
];

/// `None` if nothing was seen to be written: the medium was not counted, or nothing was moved yet.
fn amplification(one: &Series<'_>) -> Option<f64> {
    let median = one.median(|round| round.write_amplification);
    (median > 0.0).then_some(median)
}

/// A store in the report.
struct Column<'a> {
    /// Its name, told apart if another run has it too.
    name: String,
    series: Vec<Series<'a>>,
}

impl Column<'_> {
    fn of(&self, value_bytes: usize) -> Option<&Series<'_>> {
        self.series.iter().find(|one| one.value_bytes == value_bytes)
    }
}

/// Of one report by itself, or with another one beside it: ours, and what it is held against.
///
/// # Errors
/// A plot cannot be drawn.
pub fn page(ours: &FillsReport, beside: Option<&FillsReport>) -> Result<String, BenchError> {
    let mut columns = columns(ours, |_| false);
    let count = columns.len();
    let mine = ours.stores();
    columns.extend(beside.into_iter().flat_map(|other| self::columns(other, |store| mine.contains(&store))));
    let mut sizes: Vec<usize> = columns.iter().flat_map(|one| &one.series).map(|series| series.value_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>StrataKV: suite matrixkv</title><style>{STYLE}</style></head>\n<body>\n<h1>Random writes, as MatrixKV was measured</h1>\n"
    );
    facts(&mut html, ours, beside);
    notes(&mut html, ours, beside);
    verdict(&mut html, &columns, count, &sizes);
    throughput(&mut html, &columns, &sizes)?;
    timelines(&mut html, &columns, &sizes)?;
    latencies(&mut html, &columns, &sizes)?;
    amplifications(&mut html, &columns, &sizes)?;
    comparisons(&mut html, &columns, count, &sizes);
    html.push_str("</body></html>\n");
    Ok(html)
}

fn columns(report: &FillsReport, is_taken: impl Fn(&str) -> bool) -> Vec<Column<'_>> {
    let column = |store: &str| {
        let series = report.series().into_iter().filter(|one| one.store == store).collect();
        let name = if is_taken(store) { format!("{store} (beside)") } else { store.to_owned() };
        Column { name, series }
    };
    report.stores().into_iter().map(column).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn length(value_bytes: usize) -> String {
    format_bytes(value_bytes as u64).replace(".00", "").replace(".0 ", " ")
}

/// What was asked, and where it ran: a line for each report.
fn facts(html: &mut String, ours: &FillsReport, beside: Option<&FillsReport>) {
    html.push_str("<table><tr><th>run</th><th>values of each length</th><th>fast memory</th><th>memory</th><th>in flight</th><th>rounds</th><th>machine</th></tr>\n");
    for (name, one) in [("this", Some(ours)), ("beside", beside)] {
        let Some(one) = one else { continue };
        let rounds = one.fills.iter().map(|fill| fill.round).max().unwrap_or_default();
        let _ = writeln!(
            html,
            "<tr><td>{name}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{rounds}</td><td class=\"left\">{}, {} cores, Linux {}, StrataKV {}</td></tr>",
            format_bytes(one.bytes),
            format_bytes(one.region_bytes + one.pmem_levels_bytes),
            format_bytes(one.memory_bytes),
            one.clients,
            escaped(&one.cpu),
            one.cores,
            escaped(&one.kernel),
            escaped(&one.version)
        );
    }
    html.push_str("</table>\n<p>Puts of keys of 24 B drawn evenly, out of as many as are put, into stores that were empty, acknowledged when the process may die. Shown are medians of the rounds.</p>\n");
}

/// What a reader must know before the figures.
fn notes(html: &mut String, ours: &FillsReport, beside: Option<&FillsReport>) {
    let all = || [Some(ours), beside].into_iter().flatten();
    let mut note = |text: &str| {
        let _ = writeln!(html, "<p class=\"note\">{text}</p>");
    };
    if all().flat_map(|one| &one.fills).any(|fill| fill.fast_memory.starts_with("volatile")) {
        note(
            "Fast memory is DRAM here, not persistent memory, whose lower write bandwidth these figures do not show; what lies there is lost with the power.",
        );
    }
    if all().any(|one| one.containers_written() < 5.0) {
        note(
            "Less than five times the fast memory was written: the tree has not taken its shape, so these figures say little about a store in use.",
        );
    }
    if all().flat_map(|one| &one.fills).any(|fill| !fill.is_settled) {
        note("A store still wrote when waiting for it ended: its write amplification, marked +, lacks what it owes.");
    }
    let Some(other) = beside else { return };
    let means = |one: &FillsReport| (one.bytes, one.region_bytes, one.pmem_levels_bytes, one.memory_bytes, one.clients);
    if means(ours) != means(other) {
        note(
            "What stands beside was measured with other means (see the table above): the ratios mix that with what the stores do.",
        );
    }
    let machine = |one: &FillsReport| (one.cpu.clone(), one.cores, one.kernel.clone());
    if machine(ours) != machine(other) {
        note("What stands beside was measured on another machine or kernel.");
    }
}

fn legend(html: &mut String, columns: &[Column<'_>]) {
    html.push_str("<p class=\"legend\">");
    for (place, one) in columns.iter().enumerate() {
        let _ = write!(
            html,
            "<span><b style=\"color:{}\">{}</b> {}</span>",
            colour(place),
            mark(place),
            escaped(&one.name)
        );
    }
    html.push_str("</p>\n");
}

/// A table of one figure: stores by lengths of values.
fn table(html: &mut String, columns: &[Column<'_>], sizes: &[usize], cell: impl Fn(&Series<'_>) -> String) {
    html.push_str("<table><tr><th>store</th>");
    sizes.iter().for_each(|size| {
        let _ = write!(html, "<th>{}</th>", length(*size));
    });
    html.push_str("</tr>\n");
    for one in columns {
        let _ = write!(html, "<tr><td>{}</td>", escaped(&one.name));
        for size in sizes {
            let _ = write!(html, "<td>{}</td>", one.of(*size).map(&cell).unwrap_or_default());
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table>\n");
}

/// Lines over lengths of values.
fn lines(columns: &[Column<'_>], sizes: &[usize], figure: impl Fn(&Series<'_>) -> Option<f64>) -> Vec<Line> {
    let line = |(store, one): (usize, &Column<'_>)| {
        let point = |(place, size): (usize, &usize)| Some((place as i32, figure(one.of(*size)?)?));
        Line { store, name: String::new(), points: sizes.iter().enumerate().filter_map(point).collect() }
    };
    columns.iter().enumerate().map(line).collect()
}

fn throughput(html: &mut String, columns: &[Column<'_>], sizes: &[usize]) -> Result<(), BenchError> {
    html.push_str("<h2 id=\"throughput\">1. Throughput by length of values</h2>\n");
    legend(html, columns);
    let axes = Axes {
        title: "Random writes".into(),
        x: "length of values",
        y: "MB of values a second",
        places: sizes.iter().map(|size| length(*size)).collect(),
        is_logarithmic: true,
        size: (900, 360),
    };
    html.push_str(&svg(&axes, &lines(columns, sizes, |one| Some(one.median(FillReport::megabytes_per_s))))?);
    html.push_str("<p>Puts a second, and of several rounds the lowest and the highest:</p>\n");
    table(html, columns, sizes, |one| {
        let each = || one.rounds.iter().map(|round| round.puts_per_s);
        let median = short(one.median(|round| round.puts_per_s));
        match one.rounds.len() {
            1 => median,
            _ => format!(
                "{median} ({} to {})",
                short(each().fold(f64::INFINITY, f64::min)),
                short(each().fold(0.0, f64::max))
            ),
        }
    });
    Ok(())
}

fn timelines(html: &mut String, columns: &[Column<'_>], sizes: &[usize]) -> Result<(), BenchError> {
    html.push_str("<h2 id=\"timeline\">2. Throughput in each second</h2>\n<p>Of the round whose throughput is the median. A stall is a second near the bottom. All begin at 0: a line that ends sooner was done sooner.</p>\n");
    legend(html, columns);
    html.push_str("<div class=\"plots\">");
    for size in sizes {
        let line = |(store, one): (usize, &Column<'_>)| {
            let round = one.of(*size)?.middle_round()?;
            let each = round.puts_per_s_each.iter().enumerate();
            Some(Line {
                store,
                name: String::new(),
                points: each.map(|(second, puts)| (second as i32, *puts as f64)).collect(),
            })
        };
        let lines: Vec<Line> = columns.iter().enumerate().filter_map(line).collect();
        let title = format!("{} values", length(*size));
        if lines.iter().all(|line| line.points.is_empty()) {
            let _ = write!(html, "<p>{title}: all was over in less than a second, so there is no timeline.</p>");
            continue;
        }
        let axes = Axes { title, x: "second", y: "puts", places: Vec::new(), is_logarithmic: false, size: (560, 260) };
        html.push_str(&svg(&axes, &lines)?);
    }
    html.push_str("</div>\n<p>The slowest second by the mean one (1: perfectly flat):</p>\n");
    table(html, columns, sizes, |one| one.worst_second().map_or("".into(), |share| format!("{share:.2}")));
    Ok(())
}

fn latencies(html: &mut String, columns: &[Column<'_>], sizes: &[usize]) -> Result<(), BenchError> {
    html.push_str("<h2 id=\"latency\">3. Latency of puts</h2>\n<p>From submission to answer, in microseconds. Each step up is ten times as long.</p>\n");
    legend(html, columns);
    html.push_str("<div class=\"plots\">");
    let steps = |round: &FillReport| {
        let FillReport { latency_us_p50, latency_us_p99, latency_us_p99_9, latency_us_p99_99, latency_us_max, .. } =
            *round;
        [latency_us_p50, latency_us_p99, latency_us_p99_9, latency_us_p99_99, latency_us_max]
    };
    let medians = |one: &Series<'_>| [0, 1, 2, 3, 4].map(|step| one.median(|round| steps(round)[step]));
    for size in sizes {
        let line = |(store, one): (usize, &Column<'_>)| {
            let each = medians(one.of(*size)?).into_iter().enumerate();
            Some(Line {
                store,
                name: String::new(),
                points: each.map(|(step, figure)| (step as i32, figure)).collect(),
            })
        };
        let axes = Axes {
            title: format!("{} values", length(*size)),
            x: "share of puts that were faster",
            y: "µs",
            places: PERCENTILES.map(str::to_owned).into(),
            is_logarithmic: true,
            size: (560, 260),
        };
        let lines: Vec<Line> = columns.iter().enumerate().filter_map(line).collect();
        html.push_str(&svg(&axes, &lines)?);
    }
    let _ = writeln!(html, "</div>\n<p>{} in µs:</p>", PERCENTILES.join(" / "));
    table(html, columns, sizes, |one| medians(one).map(short).join(" / "));
    Ok(())
}

fn amplifications(html: &mut String, columns: &[Column<'_>], sizes: &[usize]) -> Result<(), BenchError> {
    html.push_str("<h2 id=\"amplification\">4. Write amplification, settled</h2>\n<p>Bytes to the disk for each byte of keys and values, until compaction had nothing more to write. Logs on the disk count; fast memory does not.</p>\n");
    legend(html, columns);
    let axes = Axes {
        title: "Written to the disk for each byte put".into(),
        x: "length of values",
        y: "times",
        places: sizes.iter().map(|size| length(*size)).collect(),
        is_logarithmic: false,
        size: (900, 360),
    };
    html.push_str(&svg(&axes, &lines(columns, sizes, amplification))?);
    html.push_str("<p>Settled, and in brackets at the last answer:</p>\n");
    table(html, columns, sizes, |one| {
        let Some(settled) = amplification(one) else { return "none seen".into() };
        let by_then = one.median(|round| round.written_bytes_unsettled as f64 / round.user_bytes.max(1) as f64);
        let mark = if one.rounds.iter().all(|round| round.is_settled) { "" } else { "+" };
        format!("{settled:.2}{mark} ({by_then:.2})")
    });
    Ok(())
}

/// How many times better ours is in a figure; below 1: how much worse.
fn advantage(figure: &Figure, ours: &Series<'_>, other: &Series<'_>) -> Option<f64> {
    let (ours, other) = ((figure.of)(ours)?, (figure.of)(other)?);
    let ratio = if figure.more_is_better { ours / other } else { other / ours };
    (ratio.is_finite() && ratio > 0.0).then_some(ratio)
}

/// Every figure and length of `columns[0]` beside those of another store.
fn advantages<'a>(
    columns: &'a [Column<'a>],
    other: &'a Column<'a>,
    sizes: &'a [usize],
) -> impl Iterator<Item = (&'static str, usize, f64)> + 'a {
    FIGURES.iter().flat_map(move |figure| {
        sizes.iter().filter_map(move |size| {
            let ratio = advantage(figure, columns.first()?.of(*size)?, other.of(*size)?)?;
            Some((figure.name, *size, ratio))
        })
    })
}

/// In how many figures ours is better, and in how many worse, said before any figure.
fn verdict(html: &mut String, columns: &[Column<'_>], ours: usize, sizes: &[usize]) {
    for other in columns.iter().skip(ours) {
        let all: Vec<_> = advantages(columns, other, sizes).collect();
        let count = |is: &dyn Fn(f64) -> bool| all.iter().filter(|(_, _, ratio)| is(*ratio)).count();
        let _ = writeln!(
            html,
            "<p>Beside <b>{}</b>, {} is better in {} of {} figures, worse in {}, and within {:.0} % in {} (<a href=\"#comparison\">each of them</a>).</p>",
            escaped(&other.name),
            columns.first().map(|one| escaped(&one.name)).unwrap_or_default(),
            count(&is_better),
            all.len(),
            count(&is_worse),
            EQUAL * 100.0,
            count(&|ratio| !is_better(ratio) && !is_worse(ratio)),
        );
    }
}

fn is_better(ratio: f64) -> bool {
    ratio > 1.0 + EQUAL
}

fn is_worse(ratio: f64) -> bool {
    ratio < 1.0 / (1.0 + EQUAL)
}

/// A table for each other store: how many times better ours is.
fn comparisons(html: &mut String, columns: &[Column<'_>], ours: usize, sizes: &[usize]) {
    if columns.len() <= ours {
        return;
    }
    html.push_str("<h2 id=\"comparison\">Beside others</h2>\n<p>How many times better ours is: 2 is twice the throughput, or half the latency; 0.5 is twice as bad.</p>\n");
    for other in columns.iter().skip(ours) {
        let _ = write!(html, "<h3>{}</h3>\n<table><tr><th>figure</th>", escaped(&other.name));
        sizes.iter().for_each(|size| {
            let _ = write!(html, "<th>{}</th>", length(*size));
        });
        html.push_str("</tr>\n");
        let all: Vec<_> = advantages(columns, other, sizes).collect();
        for figure in &FIGURES {
            let _ = write!(html, "<tr><td>{}</td>", figure.name);
            for size in sizes {
                let found = all.iter().find(|(name, of, _)| *name == figure.name && of == size);
                let _ = match found {
                    Some((_, _, ratio)) if is_better(*ratio) => {
                        write!(html, "<td class=\"better\">{ratio:.2} better</td>")
                    }
                    Some((_, _, ratio)) if is_worse(*ratio) => {
                        write!(html, "<td class=\"worse\">{ratio:.2} worse</td>")
                    }
                    Some((_, _, ratio)) => write!(html, "<td>{ratio:.2}</td>"),
                    None => write!(html, "<td></td>"),
                };
            }
            html.push_str("</tr>\n");
        }
        html.push_str("</table>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::matrixkv::fills::tests::{fill, report};

    const PLOTS: usize = 4;

    fn ours() -> FillsReport {
        report(vec![fill("matrix", 64, 1, 200_000.0), fill("matrix", 4096, 1, 50_000.0)])
    }

    fn rocksdb() -> FillsReport {
        report(vec![fill("rocksdb-async", 64, 1, 400_000.0), fill("rocksdb-async", 4096, 1, 25_000.0)])
    }

    #[test]
    fn all_four_figures_are_there_and_nothing_from_elsewhere() {
        let html = page(&ours(), None).expect("a page");
        for figure in ["throughput", "timeline", "latency", "amplification"] {
            assert_eq!(html.matches(&format!("<h2 id=\"{figure}\">")).count(), 1, "{figure}");
        }
        // Two figures have a plot for each of the two lengths.
        assert_eq!((html.matches("<svg").count(), html.matches("</svg>").count()), (PLOTS + 2, PLOTS + 2));
        assert!(html.contains("p50 / p99 / p99.9 / p99.99 / max in µs"), "{html}");
        for elsewhere in ["<script", "<link", "<img", "src=", "url(", "@import"] {
            assert!(!html.contains(elsewhere), "{elsewhere}");
        }
        assert!(!html.contains("Beside others"));
        assert!(html.contains("DRAM here, not persistent memory"));
    }

    #[test]
    fn losses_are_shown_as_plainly_as_wins() {
        let html = page(&ours(), Some(&rocksdb())).expect("a page");
        // At 64 B half as good in all but what is equal by construction, at 4 KiB twice as good.
        assert!(
            html.contains("<td>puts/s</td><td class=\"worse\">0.50 worse</td><td class=\"better\">2.00 better</td>")
        );
        assert!(
            html.contains("<td>p99, µs</td><td class=\"worse\">0.50 worse</td><td class=\"better\">2.00 better</td>")
        );
        assert!(html.contains("<td>worst second / mean</td><td>1.00</td><td>1.00</td>"), "{html}");
        assert!(html.contains("matrix is better in 7 of 18 figures, worse in 7, and within 5 % in 4"), "{html}");
    }

    #[test]
    fn figures_that_one_side_lacks_are_left_out_and_said() {
        let mut other = report(vec![fill("rocksdb-async", 4096, 1, 25_000.0)]);
        other.fills[0].write_amplification = 0.0;
        other.fills[0].puts_per_s_each = Vec::new();
        let html = page(&ours(), Some(&other)).expect("a page");
        assert!(html.contains("of 7 figures"), "{html}");
        assert!(html.contains("<td>write amplification, settled</td><td></td><td></td>"), "{html}");
        assert!(html.contains("none seen"));
    }

    #[test]
    fn an_earlier_run_of_the_same_store_is_told_apart() {
        let html = page(&ours(), Some(&report(vec![fill("matrix", 64, 1, 100_000.0)]))).expect("a page");
        assert!(html.contains("<h3>matrix (beside)</h3>"), "{html}");
        assert!(html.contains("<td>puts/s</td><td class=\"better\">2.00 better</td><td></td>"), "{html}");
    }

    #[test]
    fn what_makes_figures_unlike_is_said() {
        let said = |html: String, words: &str| html.contains(words);
        let (unlike, machine, owes) = ("with other means", "on another machine", "lacks what it owes");
        let plain = page(&ours(), Some(&rocksdb())).expect("a page");
        assert!(![unlike, machine, owes, "five times"].into_iter().any(|words| plain.contains(words)));
        let other = |change: fn(&mut FillsReport)| {
            let mut other = rocksdb();
            change(&mut other);
            page(&ours(), Some(&other)).expect("a page")
        };
        assert!(said(other(|one| one.memory_bytes += 1), unlike));
        assert!(said(other(|one| one.kernel = "another".into()), machine));
        assert!(said(other(|one| one.fills[0].is_settled = false), owes));
        assert!(said(other(|one| one.region_bytes = one.bytes), "Less than five times"));
    }

    #[test]
    fn names_from_a_file_are_no_html() {
        let html = page(&ours(), Some(&report(vec![fill("<script>&", 64, 1, 1.0)]))).expect("a page");
        assert!(html.contains("&lt;script&gt;&amp;") && !html.contains("<script"), "{html}");
    }
}
