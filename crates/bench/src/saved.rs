//! What earlier runs have saved as JSON, told apart by what it says of itself.

use serde::Deserialize;
use serde_json::Value;

use crate::report::Report;
use crate::suite::SuiteReport;
use crate::suite::kvell::{self, KvellReport};
use crate::suite::matrixkv::FillsReport;
use crate::suite::ukv::{self, UkvReport};

/// Newest shape of reports of runs and suites that this program reads.
const SCHEMA_MAX: u64 = 1;
const FIX: &str = "`stratakv bench` writes what can be shown here with --json FILE, and `cargo xtask compare --out DIR` as \
                   DIR/runs.json";

/// What a file holds.
#[derive(Debug)]
pub enum SavedReport {
    /// Rounds of one store: `bench ycsb --json`.
    Rounds(Vec<Report>),
    /// Runs of several stores: suite `kvell`, or the comparison with others. Each has the store's
    /// name, and whether it is ours.
    Stores(Vec<(String, bool, Report)>),
    /// Suite `kvdk`.
    Kvdk(Box<SuiteReport>),
    /// Suite `matrixkv`.
    Matrixkv(Box<FillsReport>),
    /// Suite `ukv`.
    Ukv(Box<UkvReport>),
}

/// A run of the comparison with others, as far as it is shown.
#[derive(Deserialize)]
struct ComparedRun {
    store: String,
    done: ComparedOutcome,
}

#[derive(Deserialize)]
struct ComparedOutcome {
    report: Option<Report>,
}

/// Whether a store of the comparison with others is ours, by its name there.
pub fn is_ours(store: &str) -> bool {
    ["in_place", "packed", "hash", "matrix", "slab", "tier"].iter().any(|name| store.starts_with(name))
}

impl SavedReport {
    /// From the text of a file.
    ///
    /// # Errors
    /// It is something else, or of a newer shape; the message says what to do.
    pub fn read(text: &str) -> Result<SavedReport, String> {
        let any: Value = serde_json::from_str(text).map_err(|error| format!("no JSON ({error}). {FIX}"))?;
        let suite = any.get("suite").and_then(Value::as_str).map(str::to_owned);
        if suite.as_deref() == Some("matrixkv") {
            return FillsReport::read(text).map(|found| SavedReport::Matrixkv(Box::new(found)));
        }
        expect_schema(&any)?;
        match suite.as_deref() {
            Some("kvdk") => Ok(SavedReport::Kvdk(as_written(any)?)),
            Some(ukv::SUITE) => Ok(SavedReport::Ukv(as_written(any)?)),
            Some(kvell::SUITE) => {
                let found: KvellReport = as_written(any)?;
                Ok(SavedReport::Stores(found.runs.into_iter().map(|run| (run.store, true, run.report)).collect()))
            }
            Some(other) => Err(format!("a report of suite `{}`, which is not known here. {FIX}", other.escape_debug())),
            None => read_runs(any),
        }
    }
}

fn expect_schema(any: &Value) -> Result<(), String> {
    let all = any.as_array().map_or(std::slice::from_ref(any), Vec::as_slice);
    let newest = all.iter().filter_map(|one| one.get("schema")?.as_u64()).max().unwrap_or_default();
    match newest {
        ..=SCHEMA_MAX => Ok(()),
        newer => Err(format!("of schema {newer}; this program reads up to {SCHEMA_MAX}: use the one that wrote it")),
    }
}

fn as_written<T: serde::de::DeserializeOwned>(any: Value) -> Result<T, String> {
    serde_json::from_value(any).map_err(|error| format!("not as `stratakv bench` writes it: {error}. {FIX}"))
}

/// One run, several rounds of one, or the runs of a comparison.
fn read_runs(any: Value) -> Result<SavedReport, String> {
    let nothing = || format!("without any run: nothing was measured. {FIX}");
    let Value::Array(all) = any else { return Ok(SavedReport::Rounds(vec![as_written(any)?])) };
    if all.is_empty() {
        return Err(nothing());
    }
    if all.iter().all(|one| one.get("done").is_none()) {
        return Ok(SavedReport::Rounds(all.into_iter().map(as_written).collect::<Result<_, _>>()?));
    }
    let runs: Vec<ComparedRun> = all.into_iter().map(as_written).collect::<Result<_, _>>()?;
    let runs: Vec<(String, bool, Report)> =
        runs.into_iter().filter_map(|run| Some((run.store.clone(), is_ours(&run.store), run.done.report?))).collect();
    if runs.is_empty() { Err(nothing()) } else { Ok(SavedReport::Stores(runs)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(value: &impl serde::Serialize) -> String {
        serde_json::to_string(value).expect("JSON")
    }

    #[test]
    fn what_a_file_holds_is_told_by_the_file() {
        let run = Report { schema: 1, workload: "a".into(), ..Report::default() };
        let read = |text: &str| SavedReport::read(text).expect("a report");
        assert!(matches!(read(&json(&run)), SavedReport::Rounds(all) if all.len() == 1));
        assert!(matches!(read(&json(&[&run, &run])), SavedReport::Rounds(all) if all.len() == 2));
        let compared = serde_json::json!([
            { "store": "packed", "round": 1, "setting": "A", "done": { "report": run, "open_s": 1.0 } },
            { "store": "rocksdb-sync", "round": 1, "setting": "A", "done": { "report": run } },
            { "store": "rocksdb-sync", "round": 1, "setting": "load", "done": { "report": null } },
        ]);
        let SavedReport::Stores(stores) = read(&compared.to_string()) else { panic!("stores") };
        let names: Vec<_> = stores.iter().map(|(store, is_ours, _)| (store.as_str(), *is_ours)).collect();
        assert_eq!(names, [("packed", true), ("rocksdb-sync", false)]);
        let kvdk = SuiteReport { schema: 1, suite: "kvdk".into(), ..SuiteReport::default() };
        assert!(matches!(read(&json(&kvdk)), SavedReport::Kvdk(_)));
        let ukv = UkvReport { schema: 1, suite: "ukv".into(), ..UkvReport::default() };
        assert!(matches!(read(&json(&ukv)), SavedReport::Ukv(_)));
        let kvell = KvellReport { schema: 1, suite: "kvell".into(), runs: Vec::new() };
        assert!(matches!(read(&json(&kvell)), SavedReport::Stores(all) if all.is_empty()));
    }

    /// Reports of earlier versions lack what came later.
    #[test]
    fn a_report_of_an_earlier_version_is_read() {
        let mut old = serde_json::to_value(Report { schema: 1, ..Report::default() }).expect("JSON");
        let fields = old.as_object_mut().expect("an object");
        for later in ["environment", "store", "user_write_bytes_per_operation", "store_write_bytes_per_operation"] {
            assert!(fields.remove(later).is_some(), "{later}");
        }
        assert!(matches!(SavedReport::read(&old.to_string()), Ok(SavedReport::Rounds(_))));
    }

    #[test]
    fn what_is_no_report_is_refused_with_what_to_do() {
        for (text, told) in [
            ("no", "no JSON"),
            ("[]", "nothing was measured"),
            ("{}", "not as `stratakv bench` writes it"),
            ("{\"suite\":\"what\"}", "a report of suite `what`"),
            ("{\"schema\":9}", "of schema 9; this program reads up to 1"),
            ("[{\"schema\":9}]", "of schema 9"),
            ("{\"suite\":\"ukv\",\"schema\":1}", "not as `stratakv bench` writes it"),
            ("{\"suite\":\"matrixkv\",\"schema\":9}", "of schema 9"),
            ("[{\"done\":{},\"store\":\"packed\"}]", "nothing was measured"),
        ] {
            let error = SavedReport::read(text).expect_err(told);
            assert!(error.contains(told), "{error}");
            assert!(error.contains("--json FILE") || error.contains("use the one that wrote it"), "{error}");
        }
    }
}
