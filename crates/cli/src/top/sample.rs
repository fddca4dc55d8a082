//! What a server told at one moment.

use std::collections::BTreeMap;

use serde_json::Value;

/// Figures by their names.
pub(super) type Figures = BTreeMap<String, u64>;

/// Times of operations since the start, as a histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Times {
    /// How many took at most so many nanoseconds, and more than the entry before.
    pub(super) buckets: BTreeMap<u64, u64>,
    pub(super) sum_us: u64,
}

impl Times {
    fn of_json(value: &Value) -> Times {
        let buckets = value["buckets_ns"].as_array().into_iter().flatten();
        let buckets = buckets.filter_map(|bucket| Some((bucket[0].as_u64()?, bucket[1].as_u64()?)));
        Times { buckets: buckets.collect(), sum_us: value["sum_us"].as_u64().unwrap_or(0) }
    }

    pub(super) fn count(&self) -> u64 {
        self.buckets.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// What came after `earlier`.
    pub(super) fn since(&self, earlier: &Times) -> Times {
        let before = |end: &u64| earlier.buckets.get(end).copied().unwrap_or(0);
        let buckets = self.buckets.iter().map(|(end, count)| (*end, count.saturating_sub(before(end))));
        Times {
            buckets: buckets.filter(|(_, count)| *count > 0).collect(),
            sum_us: self.sum_us.saturating_sub(earlier.sum_us),
        }
    }

    /// So many of a thousand took at most this time, in nanoseconds.
    pub(super) fn quantile_ns(&self, per_mille: u64) -> u64 {
        let wanted = self.count().saturating_mul(per_mille).div_ceil(1000).max(1);
        let mut seen = 0u64;
        for (end, count) in &self.buckets {
            seen = seen.saturating_add(*count);
            if seen >= wanted {
                return *end;
            }
        }
        0
    }
}

/// What one thread of the server has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ThreadSample {
    pub(super) cpu_ns: u64,
    pub(super) connections: u64,
    pub(super) operations: u64,
}

/// Everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// Of the wall clock of the server, or of ours; for differences.
    pub(super) time_ms: u64,
    pub(super) uptime_s: u64,
    /// Version, engine, durability, state and the like.
    pub(super) texts: BTreeMap<String, String>,
    /// Counters of the server and figures of the store.
    pub(super) figures: Figures,
    /// By kind of operation; empty if the server does not tell.
    pub(super) operations: Vec<(String, Times)>,
    /// By kind of request to the volumes.
    pub(super) requests: Vec<(String, Times)>,
    /// `write: flush` and the like.
    pub(super) stages: Vec<(String, Times)>,
    pub(super) threads: Vec<ThreadSample>,
    pub(super) shards: Vec<Figures>,
}

/// Kinds of operations and of requests, in the order that they are shown in.
const OPERATIONS: [&str; 5] = ["get", "set", "delete", "update", "other"];
const REQUESTS: [&str; 3] = ["read", "write", "flush"];
const STAGED: [&str; 2] = ["get", "write"];

impl Sample {
    /// Of `/stats.json`; `None`: it is something else.
    pub(super) fn of_json(told: &Value) -> Option<Sample> {
        let mut figures = numbers(&told["counters"]);
        figures.extend(numbers(&told["store"]));
        figures
            .extend(numbers(&told["client_memory"]).into_iter().map(|(name, value)| (format!("client_{name}"), value)));
        let more = [
            ("curr_connections", &told["connections"]["open"]),
            ("max_connections", &told["connections"]["max"]),
            ("resident_bytes", &told["process"]["resident_bytes"]),
            ("disk_bytes", &told["disk"]["bytes"]),
            ("disk_available_bytes", &told["disk"]["available_bytes"]),
        ];
        figures.extend(more.iter().filter_map(|(name, value)| Some(((*name).to_owned(), value.as_u64()?))));
        let texts = ["state", "version", "engine", "durability", "failure"];
        let texts = texts.iter().filter_map(|name| Some(((*name).to_owned(), told[*name].as_str()?.to_owned())));
        let times = |from: &str, names: &[&str]| -> Vec<(String, Times)> {
            let of = |name: &&str| ((*name).to_owned(), Times::of_json(&told[from][*name]));
            if told[from].is_object() { names.iter().map(of).collect() } else { Vec::new() }
        };
        let thread = |core: &Value| ThreadSample {
            cpu_ns: core["cpu_ns"].as_u64().unwrap_or(0),
            connections: core["connections"].as_u64().unwrap_or(0),
            operations: core["operations"].as_u64().unwrap_or(0),
        };
        Some(Sample {
            time_ms: told["time_ms"].as_u64()?,
            uptime_s: told["uptime_s"].as_u64().unwrap_or(0),
            texts: texts.collect(),
            figures,
            operations: times("latency", &OPERATIONS),
            requests: times("requests", &REQUESTS),
            stages: stages(&told["stages"]),
            threads: told["cores"].as_array().into_iter().flatten().map(thread).collect(),
            shards: Vec::new(),
        })
    }

    /// With what `/shards.json` told, if it was there.
    pub(super) fn with_shards(self, told: Option<&Value>) -> Sample {
        let shards = told.and_then(|told| told["shards"].as_array()).into_iter().flatten().map(numbers);
        Sample { shards: shards.collect(), ..self }
    }

    /// Of what `stats` told.
    pub(super) fn of_statistics(told: &[(String, String)]) -> Sample {
        let figures: Figures =
            told.iter().filter_map(|(name, value)| Some((name.clone(), value.parse().ok()?))).collect();
        let text = |name: &str| told.iter().find(|(told, _)| told == name).map(|(_, value)| value.as_str());
        // `version` is that of memcached, whose clients look at it.
        let version = text("stratakv_version").map(str::to_owned);
        let version = version.or_else(|| text("version").map(|other| format!("(no StrataKV: version {other})")));
        let texts = told.iter().filter(|(name, value)| name != "version" && value.parse::<u64>().is_err()).cloned();
        let texts = texts.chain(version.map(|version| ("version".to_owned(), version)));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Sample {
            time_ms: u64::try_from(now.as_millis()).unwrap_or(0),
            uptime_s: figures.get("uptime").copied().unwrap_or(0),
            texts: texts.collect(),
            figures,
            ..Sample::default()
        }
    }

    /// A figure; 0 if there is none of this name.
    pub(super) fn figure(&self, name: &str) -> u64 {
        self.figures.get(name).copied().unwrap_or(0)
    }

    /// A text; empty if there is none of this name.
    pub(super) fn text(&self, name: &str) -> &str {
        self.texts.get(name).map_or("", String::as_str)
    }
}

fn numbers(told: &Value) -> Figures {
    let told = told.as_object().into_iter().flatten();
    told.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?))).collect()
}

fn stages(told: &Value) -> Vec<(String, Times)> {
    let of = |kind: &&str| -> Vec<(String, Times)> {
        let stages = told[*kind].as_object().into_iter().flatten();
        let stages = stages.filter(|(_, times)| times.is_object());
        stages.map(|(stage, times)| (format!("{kind}: {stage}"), Times::of_json(times))).collect()
    };
    STAGED.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_of_an_interval_are_those_that_came_after() {
        let of = |buckets: Value, sum: u64| Times::of_json(&json!({ "buckets_ns": buckets, "sum_us": sum }));
        let earlier = of(json!([[1000, 5], [2000, 1]]), 7);
        let later = of(json!([[1000, 5], [2000, 100], [9000, 1]]), 300);
        let between = later.since(&earlier);
        assert_eq!((between.count(), between.sum_us), (100, 293));
        assert_eq!((between.quantile_ns(500), between.quantile_ns(990), between.quantile_ns(999)), (2000, 2000, 9000));
        assert_eq!(later.since(&later).quantile_ns(500), 0);
        // Nothing is trusted: not a bucket without a count, nor a histogram that is none.
        assert_eq!(of(json!([[1], "x", [5, 6]]), 0).count(), 6);
        assert_eq!(of(json!({}), 0), Times::default());
    }

    /// `version` is memcached's, for clients that look at it.
    #[test]
    fn the_version_of_statistics_is_ours() {
        let told = |names: &[(&str, &str)]| -> Vec<(String, String)> {
            names.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let ours =
            Sample::of_statistics(&told(&[("version", "1.6.18"), ("stratakv_version", "0.1.0"), ("uptime", "5")]));
        assert_eq!((ours.text("version"), ours.uptime_s), ("0.1.0", 5));
        let other = Sample::of_statistics(&told(&[("version", "1.6.18")]));
        assert_eq!(other.text("version"), "(no StrataKV: version 1.6.18)");
    }

    #[test]
    fn what_is_no_status_is_none() {
        assert_eq!(Sample::of_json(&json!({})), None);
        assert_eq!(Sample::of_json(&json!([1])), None);
        let opening = Sample::of_json(&json!({ "time_ms": 5, "state": "opening" })).unwrap();
        assert_eq!((opening.text("state"), opening.operations.len()), ("opening", 0));
    }
}
