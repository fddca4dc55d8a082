//! What an import left out, by reason.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stratakv_base::quantity::format_count;

use crate::failure::{Exit, Failure};
use crate::say::say;

/// Why a record is not in the store, and what that means for the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reason {
    /// Nothing is lost: it had expired, was deleted meanwhile, or was to be kept as it is.
    Harmless,
    /// A store here cannot hold it.
    Unsupported,
    /// It could not be read.
    Failed,
}

/// Records of one reason.
#[derive(Clone, Debug, PartialEq)]
struct LeftOut {
    count: u64,
    /// One of them, as it is shown.
    example: String,
}

/// The same, as a checkpoint has it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedReason {
    reason: Reason,
    what: String,
    count: u64,
    example: String,
}

/// All of an import.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "Vec<SavedReason>", from = "Vec<SavedReason>")]
pub(crate) struct Tally {
    left_out: BTreeMap<(Reason, String), LeftOut>,
}

impl From<Tally> for Vec<SavedReason> {
    fn from(tally: Tally) -> Vec<SavedReason> {
        let saved =
            |((reason, what), LeftOut { count, example }): (_, LeftOut)| SavedReason { reason, what, count, example };
        tally.left_out.into_iter().map(saved).collect()
    }
}

impl From<Vec<SavedReason>> for Tally {
    fn from(saved: Vec<SavedReason>) -> Tally {
        let known = |SavedReason { reason, what, count, example }| ((reason, what), LeftOut { count, example });
        Tally { left_out: saved.into_iter().map(known).collect() }
    }
}

impl Tally {
    /// Counts a record. `what`: of several records, such as "streams".
    pub(super) fn add(&mut self, reason: Reason, what: impl Into<String>, key: &[u8]) {
        let shown = || key.get(..80).unwrap_or(key).escape_ascii().to_string();
        let entry = self.left_out.entry((reason, what.into()));
        entry.or_insert_with(|| LeftOut { count: 0, example: shown() }).count += 1;
    }

    /// The same, of many.
    pub(super) fn add_many(&mut self, reason: Reason, what: &str, count: u64) {
        if count > 0 {
            let entry = self.left_out.entry((reason, what.to_owned()));
            entry.or_insert_with(|| LeftOut { count: 0, example: String::new() }).count += count;
        }
    }

    /// Says a line for each reason.
    pub(super) fn tell(&self) {
        for ((reason, what), left_out) in &self.left_out {
            let verb = if *reason == Reason::Failed { "failed" } else { "left out" };
            let example = match left_out.example.as_str() {
                "" => String::new(),
                key => format!(", such as `{key}`"),
            };
            say!("{verb}: {}: {what}{example}", format_count(left_out.count, "record"));
        }
    }

    /// What is missing, if something is.
    pub(super) fn failure(&self) -> Option<Failure> {
        let count = |of: Reason| -> u64 {
            self.left_out.iter().filter(|((reason, _), _)| *reason == of).map(|(_, left_out)| left_out.count).sum()
        };
        let (failed, unsupported) = (count(Reason::Failed), count(Reason::Unsupported));
        match (failed, unsupported) {
            (0, 0) => None,
            (0, records) => Some(Failure::new(
                Exit::Unsupported,
                format!("missing from this import: {}, for the reasons above", format_count(records, "record")),
            )),
            (records, _) => Some(Failure::failed(format!(
                "missing from this import: {} that could not be read; run it again, what is there is overwritten by the same",
                format_count(records, "record")
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_makes_the_exit_code() {
        let mut tally = Tally::default();
        tally.add(Reason::Harmless, "they had expired", b"k");
        assert!(tally.failure().is_none());
        tally.add(Reason::Unsupported, "streams", b"s");
        tally.add(Reason::Unsupported, "streams", b"t");
        let failure = tally.failure().unwrap();
        assert!(failure.exit == Exit::Unsupported && failure.message.contains("2 records"), "{failure:?}");
        tally.add_many(Reason::Failed, "changed", 1);
        tally.add_many(Reason::Failed, "not met", 0);
        let failure = tally.failure().unwrap();
        assert!(failure.exit == Exit::Failed && failure.message.contains("1 record that"), "{failure:?}");
        assert_eq!(tally.left_out.len(), 3);
    }
}
