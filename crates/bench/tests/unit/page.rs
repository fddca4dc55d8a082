//! Pages, read again by a parser of HTML as browsers have one.

use std::collections::BTreeSet;

use scraper::{ElementRef, Html, Selector};
use serde_json::Value;

use super::claims::KVELL;
use super::figures::{count, figure};
use super::runs::{of_runs, settings};
use super::*;
use crate::environment::{Environment, StoreSettings};
use crate::explain::{Explanation, RequestReport};
use crate::phase::PhaseReport;
use crate::report::{CURVE, OperationReport, Report};
use crate::stages::{StageTime, StagesOfKind};
use crate::suite::matrixkv::fills::tests::{fill, report as fills_report};
use crate::suite::ukv::{ServedReport, UkvReport};
use crate::wire::WireReport;
use crate::workload::Kind;

fn all<'a>(page: &'a Html, selector: &str) -> Vec<ElementRef<'a>> {
    page.select(&Selector::parse(selector).expect("a selector")).collect()
}

fn text(element: ElementRef<'_>) -> String {
    element.text().collect::<String>().trim().to_owned()
}

/// Parses a page, and holds it to what is true of every page.
fn parsed(page: &Page) -> Html {
    let html = render(page);
    let found = Html::parse_document(&html);
    assert_eq!(found.errors, Vec::<String>::new(), "a browser would have to guess");
    for table in all(&found, "table") {
        let inner = |selector: &str| table.select(&Selector::parse(selector).expect("a selector")).count();
        let caption = table.select(&Selector::parse("caption").expect("a selector")).map(text).collect::<String>();
        assert!(!caption.is_empty(), "{}", table.html());
        let heads = inner("thead th[scope=col]");
        assert_eq!(heads, inner("thead th"), "{caption}");
        let rows = Selector::parse("tbody tr").expect("a selector");
        for row in table.select(&rows) {
            let cells: Vec<_> = row.child_elements().collect();
            assert_eq!(cells.len(), heads, "{caption}: {}", row.html());
            assert!(cells[0].value().name() == "th" && cells[0].attr("scope") == Some("row"), "{}", row.html());
        }
    }
    for elsewhere in ["script", "link", "img", "iframe", "object", "embed", "image", "use", "base", "form"] {
        assert!(all(&found, elsewhere).is_empty(), "{elsewhere}");
    }
    for element in all(&found, "*") {
        for (name, value) in element.value().attrs() {
            let is_reference = ["src", "href", "xlink:href", "srcset", "action", "data", "poster"].contains(&name);
            assert!(!is_reference || value.starts_with('#'), "{name}={value}");
            assert!(!name.starts_with("on") && !value.contains("url("), "{name}={value}");
        }
    }
    let style: String = all(&found, "style").into_iter().map(text).collect();
    assert!(!style.contains("url(") && !style.contains("@import"));
    // Every link leads somewhere, and no two things have one name.
    let ids: Vec<&str> = all(&found, "[id]").into_iter().filter_map(|one| one.attr("id")).collect();
    assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len(), "{ids:?}");
    for link in all(&found, "a") {
        let target = link.attr("href").and_then(|href| href.strip_prefix('#')).unwrap_or_default();
        assert!(ids.contains(&target), "{target}");
    }
    for plot in all(&found, ".plot svg") {
        assert!(plot.attr("role") == Some("img") && plot.attr("aria-label").is_some_and(|label| !label.is_empty()));
    }
    found
}

/// The texts of all cells.
fn cells(page: &Html) -> Vec<String> {
    all(page, "td, tbody th").into_iter().map(text).collect()
}

fn operation(kind: Kind, scale: f64) -> OperationReport {
    OperationReport {
        kind,
        count: (12_345.0 * scale) as u64,
        latency_us_mean: 11.5 * scale,
        latency_us_p50: 7.25 * scale,
        latency_us_p90: 20.5 * scale,
        latency_us_p99: 77.0 * scale,
        latency_us_p99_9: 303.0 * scale,
        latency_us_p99_99: 1234.0 * scale,
        latency_us_max: 98_765.0 * scale,
        latency_us_curve: (1..=CURVE.len()).map(|place| place as f64 * 13.7 * scale).collect(),
    }
}

fn run(workload: &str, scale: f64) -> Report {
    let stage = |stage: &str, us_mean| StageTime { stage: stage.into(), us_mean, us_p99: us_mean * 9.0 };
    let stages = vec![StagesOfKind {
        operation: "get".into(),
        measured: 9,
        stages: vec![stage("read", 31.25), stage("outside", 4.5)],
    }];
    let reads = RequestReport { per_s: 5592.0, latency_us_p50: 1049.0, latency_us_p99: 4194.0, in_flight: 37.1 };
    Report {
        schema: 1,
        workload: workload.into(),
        distribution: "zipfian".into(),
        target: "embedded".into(),
        durability: "power_loss".into(),
        records: 100_000,
        value_size: "1024".into(),
        threads: 2,
        clients: 64,
        seconds: 12,
        cpu: "A processor".into(),
        cores: 2,
        kernel: "6.18".into(),
        version: "0.1.0".into(),
        operations_per_s: 50_123.4 * scale,
        operations_per_s_min: (41_007.0 * scale) as u64,
        operations_per_s_each: [50_001.0, 41_007.0, 58_113.0].map(|each| (each * scale) as u64).to_vec(),
        operations: vec![operation(Kind::Read, 1.0 / scale), operation(Kind::Update, 2.0 / scale)],
        cpu_us_per_operation: 15.4 / scale,
        device_read_bytes_per_operation: 2935.0,
        device_write_bytes_per_operation: 1801.0,
        user_write_bytes_per_operation: 524.0,
        store_write_bytes_per_operation: 1777.0,
        explanation: Some(Explanation { reads, processors: 0.5, cores: 2.0, stages, ..Explanation::default() }),
        environment: Some(Environment {
            file_system: "ext4".into(),
            date: "2026-11-30T18:00:00Z".into(),
            ..Environment::default()
        }),
        store: Some(StoreSettings { engine: "slab".into(), placement: "packed".into(), ..StoreSettings::default() }),
        ..Report::default()
    }
}

fn page_of(runs: &[(&str, bool, Report)]) -> Page {
    let runs = runs.iter().map(|(store, is_ours, report)| ((*store).to_owned(), *is_ours, report.clone()));
    of_runs("Runs", &settings(runs), KVELL).expect("a page")
}

/// Numbers of a JSON, each with the name it has there.
fn numbers(name: &str, json: &Value, into: &mut Vec<(String, f64)>) {
    match json {
        Value::Number(number) => into.push((name.to_owned(), number.as_f64().expect("a number"))),
        Value::Array(all) => all.iter().for_each(|one| numbers(name, one, into)),
        Value::Object(all) => all.iter().for_each(|(name, one)| numbers(name, one, into)),
        _ => {}
    }
}

/// Not results: what was asked for, and what follows from others.
const NOT_SHOWN: &[&str] = &[
    "schema",
    "seed",
    "missing",
    "records_scanned",
    "records_after",
    "measured",
    "busiest_thread",
    "volumes",
    "clients",
];

#[test]
fn every_number_of_the_json_is_on_the_page() {
    let report = run("a", 1.0);
    let page = parsed(&page_of(&[("slab packed", true, report.clone())]));
    let shown: Vec<String> = cells(&page);
    let mut found = Vec::new();
    numbers("", &serde_json::to_value(&report).expect("JSON"), &mut found);
    assert!(found.len() > 60, "{found:?}");
    let words: BTreeSet<&str> = shown.iter().flat_map(|cell| cell.split([' ', '/'])).collect();
    for (name, number) in found {
        if number == 0.0 || NOT_SHOWN.contains(&name.as_str()) || (name == "us_p99" && number < 50.0) {
            continue;
        }
        // What bound the run is told in words; shares are shown as what they are a share of.
        if ["processors", "cores", "in_flight_max", "latency_us_p50", "per_s"].contains(&name.as_str())
            && number != 7.25
        {
            continue;
        }
        let wanted = [figure(number), count(number as u64)];
        assert!(wanted.iter().any(|one| words.contains(one.trim_end_matches(','))), "{name}: {wanted:?} in {words:?}");
    }
}

#[test]
fn losses_come_first_and_say_so() {
    let rounds = |store: &'static str, is_ours, scale: f64| {
        [0.98, 1.0, 1.02].map(|round| (store, is_ours, run("b", scale * round)))
    };
    let page = page_of(&[rounds("ours", true, 1.0), rounds("peer", false, 1.5), rounds("slow", false, 0.5)].concat());
    let html = parsed(&page);
    let verdicts = all(&html, "#verdicts table");
    let rows = Selector::parse("tbody tr").expect("a selector");
    let each: Vec<Vec<String>> =
        verdicts[0].select(&rows).map(|row| row.child_elements().map(text).collect()).collect();
    let words: Vec<&str> = each.iter().map(|row| row[1].as_str()).collect();
    let place =
        |word: &str| words.iter().position(|other| *other == word).unwrap_or_else(|| panic!("no {word}: {words:?}"));
    assert!(place("behind") < place("even within spread") && place("even within spread") < place("ahead"));
    let throughput = each.iter().find(|row| row[0].ends_with("throughput")).expect("a row");
    assert_eq!(throughput[4], "ours: 50,123 operations/s (49,121 to 51,126)");
    assert_eq!(throughput[5], "peer: 75,185 operations/s (73,681 to 76,689)");
    assert_eq!((throughput[2].as_str(), throughput[3].as_str()), ("0.67", "0.64 to 0.69"));
    let counts: Vec<String> = all(&html, ".counts li").into_iter().map(text).collect();
    assert_eq!(counts.len(), 2, "{counts:?}");
    // Latencies, throughput and processor time are worse; bytes and the share of a second are even.
    assert!(
        counts[0].contains("ours beside peer: behind in 7, even within spread in 2, ahead in 0 of 9"),
        "{counts:?}"
    );
    assert!(
        counts[1].contains("ours beside slow: behind in 0, even within spread in 2, ahead in 7 of 9"),
        "{counts:?}"
    );
}

#[test]
fn a_run_by_itself_says_what_could_stand_beside_it() {
    let html = parsed(&page_of(&[("slab packed", true, run("b", 1.0))]));
    let verdicts: String = all(&html, "#verdicts").into_iter().map(text).collect();
    assert!(verdicts.contains("Nothing stands beside this run") && verdicts.contains("bench report"), "{verdicts}");
    for id in ["throughput", "latency", "amplification", "cpu", "explanation"] {
        assert_eq!(all(&html, &format!("section#{id}")).len(), 1, "{id}");
    }
    // One timeline, and a curve for each of two kinds.
    assert_eq!(all(&html, "#throughput .plot svg").len() + all(&html, "#latency .plot svg").len(), 3);
    let plot = all(&html, "#throughput .plot svg")[0];
    assert!(plot.text().any(|word| word.trim() == "41,007"), "the slowest second is marked: {}", plot.html());
}

#[test]
fn published_figures_are_reached_or_missed() {
    let peer = run("a", 0.2);
    let page = page_of(&[("packed", true, run("a", 1.0)), ("rocksdb-sync", false, peer)]);
    let claims: Vec<(String, bool)> = page
        .verdicts
        .iter()
        .filter_map(|line| line.claim.as_ref().map(|claim| (claim.published.clone(), claim.is_met)))
        .collect();
    let met = |words: &str| claims.iter().find(|(published, _)| published.contains(words)).map(|(_, is_met)| *is_met);
    // 82 % of the mean; 25 % busy; 5 times as fast.
    assert_eq!((met("95 %"), met("waiting"), met("8 times RocksDB")), (Some(false), Some(true), Some(false)));
    assert_eq!((met("WiredTiger"), claims.len()), (None, 4), "{claims:?}");
    let html = parsed(&page);
    let words: String = all(&html, "#verdicts").into_iter().map(text).collect();
    assert!(words.contains("KVell, SOSP 2019, section 6") && words.contains("missed") && words.contains("reached"));
    // One store stands beside nobody's: there were two empty columns.
    let heads = |html: &Html| all(html, "#verdicts h3 ~ div thead th").into_iter().map(text).collect::<Vec<_>>();
    let alone = parsed(&page_of(&[("packed", true, run("a", 1.0))]));
    assert_eq!(heads(&alone), ["figure", "verdict", "published", "where", "ours"]);
    assert_eq!(heads(&html).last().map(String::as_str), Some("ratio"));
}

#[test]
fn what_is_not_equal_is_said() {
    let mut other = run("a", 1.0);
    other.durability = "process_crash".into();
    other.environment = Some(Environment { file_system: "tmpfs".into(), ..Environment::default() });
    let notes = |runs: &[(&str, bool, Report)]| page_of(runs).notes.join("\n");
    let told = notes(&[("ours", true, run("a", 1.0)), ("other", false, other)]);
    assert!(
        told.contains("Not equal between the stores: durability, file system.") && told.contains("tmpfs"),
        "{told}"
    );
    assert_eq!(notes(&[("ours", true, run("a", 1.0)), ("other", false, run("a", 1.0))]), "");
    let environment = Environment { build: "debug".into(), ..Environment::default() };
    let debug = Report { environment: Some(environment), ..run("a", 1.0) };
    assert!(notes(&[("ours", true, debug)]).contains("A debug build"));
    let short = Report { seconds: 1, missing: 5, ..run("a", 1.0) };
    let told = notes(&[("ours", true, short)]);
    assert!(told.contains("less than ten seconds") && told.contains("ours 5"), "{told}");
}

/// Names come from files, and a command line from anywhere.
#[test]
fn nothing_that_was_measured_is_html() {
    let evil = "<script>alert('&\"')</script>";
    let mut report = run(evil, 1.0);
    report.cpu = evil.into();
    report.environment = Some(Environment { command: vec![evil.into()], ..Environment::default() });
    let html = parsed(&page_of(&[(evil, true, report.clone()), ("other", false, report)]));
    assert!(cells(&html).iter().any(|cell| cell == evil));
    let phases =
        [PhaseReport { subject: evil.into(), phase: evil.into(), operations_per_s: 1.0, ..PhaseReport::default() }];
    let page = of_phases(&PhasesContext { title: evil.into(), ..PhasesContext::default() }, &phases).expect("a page");
    assert!(all(&parsed(&page), "h1").into_iter().any(|one| text(one) == evil));
    parsed(&of_fills(&fills_report(vec![fill(evil, 64, 1, 1.0)]), None).expect("a page"));
    let served = ServedReport { server: evil.into(), case: "ssd".into(), mix: "get".into(), ..ServedReport::default() };
    parsed(&of_served(&UkvReport { served: vec![served], ..UkvReport::default() }, &[]).expect("a page"));
}

/// A colour that only one of the two themes has would be seen in that one only.
#[test]
fn the_page_is_for_light_and_dark_and_paper() {
    let html = render(&page_of(&[("ours", true, run("a", 1.0))]));
    let style = html.split("<style>").nth(1).and_then(|rest| rest.split("</style>").next()).expect("a style");
    let block =
        |from: &str| style.split(from).nth(1).and_then(|rest| rest.split('}').next()).expect("a block").to_owned();
    let names = |block: &str| -> BTreeSet<String> {
        block.split("--").skip(1).filter_map(|part| part.split(':').next()).map(str::to_owned).collect()
    };
    let light = names(&block(":root {"));
    assert_eq!(light, names(&block("prefers-color-scheme: dark) {\n  :root {")));
    assert_eq!(light, names(&block("@media print {\n  :root {")));
    let used = html.split("var(--").skip(1).filter_map(|rest| rest.split(')').next());
    used.for_each(|name| assert!(light.contains(name), "--{name} is not defined"));
    assert!(light.contains("store-5") && style.contains("details::details-content"));
}

#[test]
fn phases_stand_beside_each_other_and_beside_the_paper() {
    let phase = |subject: &str, phase: &str, operations_per_s| PhaseReport {
        subject: subject.into(),
        phase: phase.into(),
        operations: 1000,
        operations_per_s,
        operations_per_cpu_s: operations_per_s * 2.0,
        latency_us_p50: 1e6 / operations_per_s,
        latency_us_p99: 2e6 / operations_per_s,
        ..PhaseReport::default()
    };
    let rounds = [
        phase("hash", "strings read", 1000.0),
        phase("hash", "strings update", 700.0),
        phase("hash", "graph edges", 90.0),
        phase("rocksdb-no_log", "graph edges", 10.0),
        phase("slab", "strings read", 2000.0),
    ];
    let context = PhasesContext { title: "Phases".into(), ours: vec!["hash".into()], ..PhasesContext::default() };
    let page = of_phases(&context, &rounds).expect("a page");
    let claims: Vec<_> =
        page.verdicts.iter().filter_map(|line| Some((line.question.clone(), line.claim.clone()?.is_met))).collect();
    let expected = [("strings update: throughput".to_owned(), true), ("graph edges: throughput".to_owned(), false)];
    assert_eq!(claims, expected);
    let html = parsed(&page);
    let counts: Vec<String> = all(&html, ".counts li").into_iter().map(text).collect();
    // The store that ours is behind stands first.
    assert!(counts[0].contains("hash beside slab") && counts[0].contains("behind in 4"), "{counts:?}");
    assert!(counts[1].contains("hash beside rocksdb-no_log") && counts[1].contains("ahead in 4 of 4"), "{counts:?}");
    assert!(cells(&html).iter().any(|cell| cell == "2. strings update"));
}

fn rocksdb() -> crate::suite::matrixkv::FillsReport {
    fills_report(vec![fill("rocksdb-async", 64, 1, 400_000.0), fill("rocksdb-async", 4096, 1, 25_000.0)])
}

fn matrix() -> crate::suite::matrixkv::FillsReport {
    fills_report(vec![fill("matrix", 64, 1, 200_000.0), fill("matrix", 4096, 1, 50_000.0)])
}

#[test]
fn all_four_figures_of_matrixkv_are_there() {
    let html = parsed(&of_fills(&matrix(), None).expect("a page"));
    for figure in ["throughput", "timeline", "latency", "amplification"] {
        assert_eq!(all(&html, &format!("section#{figure}")).len(), 1, "{figure}");
    }
    // Two figures have a plot for each of the two lengths.
    assert_eq!(all(&html, ".plot svg").len(), 6);
    assert!(all(&html, "#comparison").is_empty());
    assert!(all(&html, ".note").into_iter().any(|note| text(note).contains("DRAM here, not persistent memory")));
}

#[test]
fn losses_of_matrix_are_shown_as_plainly_as_wins() {
    let page = of_fills(&matrix(), Some(&rocksdb())).expect("a page");
    let html = parsed(&page);
    let rows = all(&html, "#comparison tbody tr");
    let row = |name: &str| {
        rows.iter().map(|row| row.child_elements().map(text).collect::<Vec<_>>()).find(|row| row[0] == name)
    };
    // At 64 B half as good in all but what is equal by construction, at 4 KiB twice as good.
    assert_eq!(row("puts").expect("a row")[1..], ["0.50 behind", "2.00 ahead"]);
    assert_eq!(row("p99").expect("a row")[1..], ["0.50 behind", "2.00 ahead"]);
    assert_eq!(row("slowest second by the mean one").expect("a row")[1..], ["1.00 even within spread"; 2]);
    let counts: String = all(&html, ".counts li").into_iter().map(text).collect();
    assert!(counts.contains("behind in 7, even within spread in 4, ahead in 7 of 18 figures"), "{counts}");
    let claims = page.verdicts.iter().filter(|line| line.claim.is_some()).count();
    assert_eq!(claims, 4, "p99 and bytes, of both lengths, beside RocksDB on the disk");
}

#[test]
fn figures_of_fills_that_one_side_lacks_are_left_out() {
    let mut other = fills_report(vec![fill("rocksdb-async", 4096, 1, 25_000.0)]);
    other.fills[0].write_amplification = 0.0;
    other.fills[0].puts_per_s_each = Vec::new();
    let html = parsed(&of_fills(&matrix(), Some(&other)).expect("a page"));
    let counts: String = all(&html, ".counts li").into_iter().map(text).collect();
    assert!(counts.contains("of 7 figures") && cells(&html).iter().any(|cell| cell == "none seen"), "{counts}");
    let earlier = fills_report(vec![fill("matrix", 64, 1, 100_000.0)]);
    let html = parsed(&of_fills(&matrix(), Some(&earlier)).expect("a page"));
    assert!(all(&html, "#comparison caption").into_iter().any(|one| text(one) == "matrix beside matrix (beside)"));
}

#[test]
fn what_makes_fills_unlike_is_said() {
    let (unlike, machine, owes) = ("with other means", "on another machine", "lacks what it owes");
    let told = |change: fn(&mut crate::suite::matrixkv::FillsReport)| {
        let mut other = rocksdb();
        change(&mut other);
        of_fills(&matrix(), Some(&other)).expect("a page").notes.join("\n")
    };
    let plain = told(|_| {});
    assert!(![unlike, machine, owes, "five times"].into_iter().any(|words| plain.contains(words)), "{plain}");
    assert!(told(|one| one.memory_bytes += 1).contains(unlike));
    assert!(told(|one| one.kernel = "another".into()).contains(machine));
    assert!(told(|one| one.fills[0].is_settled = false).contains(owes));
    assert!(told(|one| one.region_bytes = one.bytes).contains("Less than five times"));
}

#[test]
fn servers_stand_beside_each_other_by_length_of_values() {
    let one = |server: &str, mix: &str, round, operations_per_s: f64| ServedReport {
        server: server.into(),
        case: "ssd".into(),
        mix: mix.into(),
        value_bytes: 4096,
        connections: 32,
        pipeline: 1,
        round,
        wire: WireReport {
            operations: 100,
            gets: 100,
            hits: if server == "extstore" { 50 } else { 100 },
            operations_per_s,
            latency_us_p95: 1e6 / operations_per_s,
            latency_us_p99: 2e6 / operations_per_s,
            ..WireReport::default()
        },
        server_cpu_us_per_operation: (server != "extstore").then_some(20.0),
        ..ServedReport::default()
    };
    let served = vec![
        one("tier", "get", 1, 1000.0),
        one("tier", "get", 2, 1020.0),
        one("extstore", "get", 1, 1200.0),
        one("extstore", "get", 2, 1210.0),
        one("tier", "set", 1, 100.0),
        one("extstore", "set", 1, 200.0),
    ];
    let page =
        of_served(&UkvReport { title: "Servers".into(), served, ..UkvReport::default() }, &["tier"]).expect("a page");
    let html = parsed(&page);
    let line = |words: &str| page.verdicts.iter().find(|line| line.question.contains(words)).expect("a line");
    // Half of extstore's gets found nothing.
    let gets = line("ssd, get, 32 connections, batches of 1, 4 KiB values: requests served");
    assert!(gets.ratio.is_some_and(|ratio| ratio.median > 1.6 && ratio.standing == Standing::Ahead), "{gets:?}");
    assert!(
        line("set, 32 connections, batches of 1, 4 KiB values: requests served")
            .ratio
            .is_some_and(|one| one.median == 0.5)
    );
    let claims: Vec<bool> = page.verdicts.iter().filter_map(|line| Some(line.claim.as_ref()?.is_met)).collect();
    assert_eq!(claims, [true, false, false, false], "gets served; p95 of gets; sets");
    assert!(!page.verdicts.iter().any(|line| line.question.contains("processor time")), "extstore's is not known");
    assert_eq!(all(&html, ".plot svg").len(), 4);
}
