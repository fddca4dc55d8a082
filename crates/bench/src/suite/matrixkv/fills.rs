//! What was measured of random writes, as JSON that later versions read too, and as a table.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::environment::{Environment, cpu_model, read_line};

/// Version of the JSON's shape. Fields are added without a new one; a new one is for fields that
/// change what they mean, or go.
pub const SCHEMA: u32 = 1;
/// What the JSON names itself.
pub const SUITE: &str = "matrixkv";

/// All that was measured in one run of the suite, or of the comparison with others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FillsReport {
    /// Version of this JSON's shape.
    pub schema: u32,
    /// `matrixkv`.
    pub suite: String,
    /// CPU model.
    pub cpu: String,
    /// Cores.
    pub cores: usize,
    /// Kernel.
    pub kernel: String,
    /// Version of this program.
    pub version: String,
    /// Bytes of values that were written for each length of them.
    pub bytes: u64,
    /// Bytes of fast memory that a store may use for its log and first level.
    pub region_bytes: u64,
    /// Bytes of it besides that a store may use for further levels; 0 for none.
    #[serde(default, alias = "layer_bytes")]
    pub pmem_levels_bytes: u64,
    /// Cap on the memory of a store; of others their cache and write buffers.
    pub memory_bytes: u64,
    /// Puts in flight.
    pub clients: usize,
    /// Seed of the first round.
    pub seed: u64,
    /// Where and how it was measured; `None` in reports of earlier versions.
    #[serde(default)]
    pub environment: Option<Environment>,
    /// Each store, each length of values, each round, in the order in which they ran.
    pub fills: Vec<FillReport>,
}

/// Random puts into one store that was empty, all values as long, once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FillReport {
    /// Which store; in a comparison as its `--stores` names it.
    pub store: String,
    /// What the memory is that its log and first level lie in; empty: they lie where the rest does.
    pub fast_memory: String,
    /// Length of values.
    pub value_bytes: usize,
    /// From 1.
    pub round: usize,
    /// Threads that put.
    pub threads: usize,
    /// Of the PMEM levels, bytes that tables took once the store was settled.
    #[serde(default, alias = "layer_table_bytes")]
    pub pmem_levels_table_bytes: u64,
    /// Puts.
    pub puts: u64,
    /// From the first put to the last answer.
    pub seconds: f64,
    /// Mean over all of it.
    pub puts_per_s: f64,
    /// In each whole second; none if all was over in less than one.
    pub puts_per_s_each: Vec<u64>,
    /// Processor time of the process meanwhile, for each put.
    pub cpu_us_per_put: f64,
    /// From submission to answer: half were faster.
    pub latency_us_p50: f64,
    /// 99 %.
    pub latency_us_p99: f64,
    /// 99.9 %.
    pub latency_us_p99_9: f64,
    /// 99.99 %.
    pub latency_us_p99_99: f64,
    /// The slowest.
    pub latency_us_max: f64,
    /// Bytes of keys and values that were put.
    pub user_bytes: u64,
    /// Bytes to the disk until the last put was answered.
    pub written_bytes_unsettled: u64,
    /// Bytes to the disk until the store was settled: compaction had nothing more to write.
    pub written_bytes: u64,
    /// How long that took after the last answer.
    pub settling_seconds: f64,
    /// It was reached. Otherwise `written_bytes` lacks what is still owed.
    pub is_settled: bool,
    /// `written_bytes` for each byte of `user_bytes`.
    pub write_amplification: f64,
}

impl FillReport {
    /// Puts of the slowest second for each of a mean second; `None` without a whole second.
    pub fn worst_second(&self) -> Option<f64> {
        let worst = self.puts_per_s_each.iter().min()?;
        Some(*worst as f64 / self.puts_per_s.max(1e-9))
    }

    /// Bytes of values in a second, in MB.
    pub fn megabytes_per_s(&self) -> f64 {
        self.puts_per_s * self.value_bytes as f64 / 1e6
    }
}

/// The rounds of one store and one length of values.
#[derive(Clone, Debug)]
pub struct Series<'a> {
    /// Which store.
    pub store: &'a str,
    /// Length of values.
    pub value_bytes: usize,
    /// In their order; never empty.
    pub rounds: Vec<&'a FillReport>,
}

impl<'a> Series<'a> {
    /// The middle one of a figure; of an even number the upper of both.
    pub fn median(&self, figure: impl Fn(&FillReport) -> f64) -> f64 {
        let mut sorted: Vec<f64> = self.rounds.iter().map(|round| figure(round)).collect();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    /// The round whose throughput is the median.
    pub fn middle_round(&self) -> Option<&'a FillReport> {
        let median = self.median(|round| round.puts_per_s);
        self.rounds.iter().copied().find(|round| round.puts_per_s.total_cmp(&median).is_eq())
    }

    /// The median of the slowest second by the mean one; `None` if a round had no whole second.
    pub fn worst_second(&self) -> Option<f64> {
        let each: Option<Vec<f64>> = self.rounds.iter().map(|round| round.worst_second()).collect();
        each.map(|_| self.median(|round| round.worst_second().unwrap_or_default()))
    }
}

impl FillsReport {
    /// With nothing measured yet, on this machine, in this directory.
    pub fn here(directory: &Path) -> FillsReport {
        FillsReport {
            schema: SCHEMA,
            suite: SUITE.into(),
            cpu: cpu_model(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: read_line("/proc/sys/kernel/osrelease"),
            version: env!("CARGO_PKG_VERSION").into(),
            environment: Some(Environment::here(Some(directory))),
            ..FillsReport::default()
        }
    }

    /// From the JSON that this suite or the comparison has written.
    ///
    /// # Errors
    /// It is something else, of a newer shape, or without figures; the message says what to do.
    pub fn read(text: &str) -> Result<FillsReport, String> {
        const FIX: &str = "`stratakv bench suite matrixkv --json FILE` and `cargo xtask compare --matrixkv --out DIR` (DIR/matrixkv.json) write what can stand beside";
        let any: serde_json::Value = serde_json::from_str(text).map_err(|error| format!("no JSON ({error}). {FIX}"))?;
        match any.get("suite").and_then(|suite| suite.as_str()) {
            Some(SUITE) => {}
            Some(other) => return Err(format!("a report of suite `{}`. {FIX}", other.escape_debug())),
            None => return Err(format!("no report of suite `{SUITE}`. {FIX}")),
        }
        match any.get("schema").and_then(serde_json::Value::as_u64) {
            Some(schema) if schema <= u64::from(SCHEMA) => {}
            Some(schema) => {
                return Err(format!(
                    "of schema {schema}; this program reads up to {SCHEMA}: use the one that wrote it"
                ));
            }
            None => return Err(format!("without a `schema`. {FIX}")),
        }
        let report: FillsReport =
            serde_json::from_value(any).map_err(|error| format!("not as this suite writes it: {error}. {FIX}"))?;
        match report.fills.is_empty() {
            true => Err(format!("without any fill: nothing was measured. {FIX}")),
            false => Ok(report),
        }
    }

    /// By store and length of values, in the order in which they come first.
    pub fn series(&self) -> Vec<Series<'_>> {
        let mut all: Vec<Series<'_>> = Vec::new();
        for fill in &self.fills {
            let is_it = |one: &&mut Series<'_>| one.store == fill.store && one.value_bytes == fill.value_bytes;
            match all.iter_mut().find(is_it) {
                Some(series) => series.rounds.push(fill),
                None => {
                    all.push(Series { store: &fill.store, value_bytes: fill.value_bytes, rounds: vec![fill] });
                }
            }
        }
        all
    }

    /// Names of the stores, in the order in which they come first.
    pub fn stores(&self) -> Vec<&str> {
        let mut stores: Vec<&str> = Vec::new();
        for fill in &self.fills {
            if !stores.contains(&fill.store.as_str()) {
                stores.push(&fill.store);
            }
        }
        stores
    }

    /// How many times the container was written; below 5 its tree has not taken its shape, so
    /// nothing is settled, however long is waited.
    pub fn containers_written(&self) -> f64 {
        self.bytes as f64 / self.region_bytes.max(1) as f64
    }
}

/// Medians of the rounds, the stores of each length of values together.
impl fmt::Display for FillsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>7} {:<26}{:>10}{:>10}{:>12}{:>9}{:>9}{:>10}{:>10}{:>9}{:>9}{:>9}",
            "value",
            "store",
            "puts/s",
            "MB/s",
            "worst/mean",
            "p50 µs",
            "p99 µs",
            "p99.9 µs",
            "p99.99 µs",
            "max ms",
            "WA",
            "CPU µs"
        )?;
        let mut all = self.series();
        all.sort_by_key(|series| series.value_bytes);
        for one in all {
            let worst = one.worst_second().map_or("".into(), |share| format!("{share:.2}"));
            let unsettled = if one.rounds.iter().all(|round| round.is_settled) { "" } else { "+" };
            let amplification = format!("{:.2}{unsettled}", one.median(|round| round.write_amplification));
            writeln!(
                f,
                "{:>7} {:<26}{:>10.0}{:>10.1}{worst:>12}{:>9.1}{:>9.0}{:>10.0}{:>10.0}{:>9.1}{amplification:>9}{:>9.1}",
                one.value_bytes,
                one.store,
                one.median(|round| round.puts_per_s),
                one.median(FillReport::megabytes_per_s),
                one.median(|round| round.latency_us_p50),
                one.median(|round| round.latency_us_p99),
                one.median(|round| round.latency_us_p99_9),
                one.median(|round| round.latency_us_p99_99),
                one.median(|round| round.latency_us_max) / 1e3,
                one.median(|round| round.cpu_us_per_put),
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn fill(store: &str, value_bytes: usize, round: usize, puts_per_s: f64) -> FillReport {
        FillReport {
            store: store.into(),
            fast_memory: "volatile (memory: lost with the power)".into(),
            value_bytes,
            pmem_levels_table_bytes: 0,
            round,
            threads: 2,
            puts: 3 * puts_per_s as u64,
            seconds: 3.0,
            puts_per_s,
            puts_per_s_each: vec![puts_per_s as u64, puts_per_s as u64 / 2, puts_per_s as u64 * 3 / 2],
            cpu_us_per_put: 5.0,
            latency_us_p50: 1e6 / puts_per_s,
            latency_us_p99: 2e7 / puts_per_s,
            latency_us_p99_9: 1e8 / puts_per_s,
            latency_us_p99_99: 2e8 / puts_per_s,
            latency_us_max: 1e9 / puts_per_s,
            user_bytes: 3 * puts_per_s as u64 * (value_bytes as u64 + 24),
            written_bytes_unsettled: 1 << 20,
            written_bytes: 2 << 20,
            settling_seconds: 1.5,
            is_settled: true,
            write_amplification: 1e5 / puts_per_s,
        }
    }

    pub(crate) fn report(fills: Vec<FillReport>) -> FillsReport {
        let (bytes, region_bytes, memory_bytes) = (2 << 30, 205 << 20, 128 << 20);
        FillsReport {
            bytes,
            region_bytes,
            memory_bytes,
            clients: 4,
            seed: 1,
            fills,
            ..FillsReport::here(Path::new("."))
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let written = report(vec![fill("matrix", 64, 1, 130_000.0), fill("matrix", 4096, 1, 66_000.5)]);
        let text = serde_json::to_string(&written).expect("JSON");
        assert_eq!(FillsReport::read(&text).expect("the same"), written);
        let with_more = text.replacen('{', "{\"of_a_later_version\":1,", 1);
        assert_eq!(FillsReport::read(&with_more).expect("fields are added without a new schema"), written);
    }

    /// A field that is renamed or removed is a new schema: others read these names.
    #[test]
    fn the_schema_has_the_fields_that_are_documented() {
        let book = include_str!("../../../../../docs/matrixkv.md");
        let json = serde_json::to_value(report(vec![fill("matrix", 64, 1, 1000.0)])).expect("JSON");
        let names = |value: &serde_json::Value| -> Vec<String> {
            value.as_object().into_iter().flat_map(|object| object.keys().cloned()).collect()
        };
        let all = [names(&json), names(&json["fills"][0])].concat();
        assert_eq!(all.len(), 14 + 22);
        for name in all {
            assert!(book.contains(&format!("`{name}`")), "{name} is not in the book");
        }
    }

    #[test]
    fn what_is_no_report_is_refused_with_what_to_do() {
        let good = serde_json::to_value(report(vec![fill("matrix", 64, 1, 1000.0)])).expect("JSON");
        let with = |name: &str, value: serde_json::Value| {
            let mut other = good.clone();
            other[name] = value;
            other.to_string()
        };
        let without = |name: &str| {
            let mut other = good.clone();
            other.as_object_mut().and_then(|object| object.remove(name)).expect("it was there");
            other.to_string()
        };
        for (text, told) in [
            ("value_bytes,store".into(), "no JSON"),
            ("[]".into(), "no report of suite `matrixkv`"),
            (with("suite", "kvdk".into()), "a report of suite `kvdk`"),
            (with("schema", 2.into()), "of schema 2; this program reads up to 1"),
            (without("schema"), "without a `schema`"),
            (with("fills", serde_json::json!([])), "nothing was measured"),
            (without("region_bytes"), "missing field `region_bytes`"),
            (with("fills", serde_json::json!([{ "store": "matrix" }])), "missing field"),
        ] {
            let error = FillsReport::read(&text).expect_err(told);
            assert!(error.contains(told), "{error}");
            assert!(error.contains("compare --matrixkv") || error.contains("use the one that wrote it"), "{error}");
        }
    }

    #[test]
    fn medians_are_of_one_store_and_one_length() {
        let all = report(vec![
            fill("matrix", 64, 1, 300.0),
            fill("rocksdb-async", 64, 1, 900.0),
            fill("matrix", 64, 2, 100.0),
            fill("matrix", 256, 1, 700.0),
            fill("matrix", 64, 3, 200.0),
        ]);
        let series = all.series();
        let medians: Vec<_> =
            series.iter().map(|one| (one.store, one.value_bytes, one.median(|round| round.puts_per_s))).collect();
        assert_eq!(medians, [("matrix", 64, 200.0), ("rocksdb-async", 64, 900.0), ("matrix", 256, 700.0)]);
        assert_eq!(series[0].middle_round().map(|round| round.round), Some(3));
        assert_eq!((all.stores(), series[0].worst_second()), (vec!["matrix", "rocksdb-async"], Some(0.5)));
        let shown = all.to_string();
        assert!(shown.contains("64 matrix                           200"), "{shown}");
    }

    #[test]
    fn a_fill_of_less_than_a_second_has_no_worst_second() {
        let short = FillReport { puts_per_s_each: Vec::new(), ..fill("matrix", 64, 1, 100.0) };
        assert_eq!(short.worst_second(), None);
        let all = report(vec![fill("matrix", 64, 2, 100.0), short]);
        assert_eq!(all.series()[0].worst_second(), None);
    }
}
