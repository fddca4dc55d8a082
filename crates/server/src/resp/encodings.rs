//! Settings of how Redis lays structures out in memory. Clients and test suites set them; here they
//! are remembered and do nothing, as every structure has one form.

use std::sync::atomic::{AtomicI64, Ordering};

/// Names of a setting, the newest first, and its value in a fresh Redis 7.0.
type EncodingSetting = (&'static [&'static str], i64);

const SETTINGS: [EncodingSetting; 7] = [
    (&["hash-max-listpack-entries", "hash-max-ziplist-entries"], 512),
    (&["hash-max-listpack-value", "hash-max-ziplist-value"], 64),
    (&["list-compress-depth"], 0),
    (&["list-max-listpack-size", "list-max-ziplist-size"], -2),
    (&["set-max-intset-entries"], 512),
    (&["zset-max-listpack-entries", "zset-max-ziplist-entries"], 128),
    (&["zset-max-listpack-value", "zset-max-ziplist-value"], 64),
];

/// Their values.
#[derive(Debug)]
pub(crate) struct EncodingSettings([AtomicI64; SETTINGS.len()]);

impl Default for EncodingSettings {
    fn default() -> EncodingSettings {
        EncodingSettings(SETTINGS.map(|(_, value)| value.into()))
    }
}

impl EncodingSettings {
    /// The number of the setting of this name, in letters of any case.
    pub(crate) fn find(name: &[u8]) -> Option<usize> {
        SETTINGS.iter().position(|(names, _)| names.iter().any(|one| one.as_bytes().eq_ignore_ascii_case(name)))
    }

    pub(crate) fn set(&self, number: usize, value: i64) {
        if let Some(setting) = self.0.get(number) {
            setting.store(value, Ordering::Relaxed);
        }
    }

    /// Every name and its value.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, String)> {
        let valued = SETTINGS.iter().zip(&self.0);
        valued.flat_map(|((names, _), value)| {
            let value = value.load(Ordering::Relaxed).to_string();
            names.iter().map(move |name| (*name, value.clone()))
        })
    }
}
