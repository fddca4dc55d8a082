//! What holds for any bytes: run by the fuzzers (docs/fuzzing.md), and over their corpus by a test.

use crate::directory;

/// Reads `store.toml`: refused with a reason, or the same again after it was written.
///
/// # Panics
/// A property does not hold.
pub fn manifest(text: &[u8]) {
    let manifest = match directory::parse(text) {
        Ok(manifest) => manifest,
        Err(refusal) => {
            assert!(!refusal.at("store.toml".into()).to_string().is_empty());
            return;
        }
    };
    let uuid = manifest.uuid_bytes().expect("a manifest that is read has a UUID");
    let digits: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digits, manifest.uuid.to_ascii_lowercase());
    let again = toml::to_string(&manifest).expect("what was read can be written");
    assert_eq!(directory::parse(again.as_bytes()).ok(), Some(manifest));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/manifest");
        for file in std::fs::read_dir(folder).unwrap() {
            manifest(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }
}
