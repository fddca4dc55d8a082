//! Nouns of the project's own that gave way to the field's terms (docs/glossary.md) do not come
//! back as identifiers. English words in comments may be what they like.

use super::{Finding, Tree};

/// Where batches of several shards are.
const BATCHES: &[&str] = &["crates/slab/src/batch/", "crates/matrix/src/batch/"];

/// Crates of the engines and what carries them.
const PRODUCT: &[&str] = &[
    "crates/slab/",
    "crates/matrix/",
    "crates/hash/",
    "crates/tier/",
    "crates/device/",
    "crates/runtime/",
    "crates/server/",
    "crates/stratakv/",
];

/// Engines that have operations in steps.
const STORES: &[&str] = &["crates/slab/src/", "crates/matrix/src/", "crates/tier/src/"];

/// Nouns that were types in many places: as a type's name each is to say what it is for.
const QUALIFIED: [&str; 14] = [
    "Found", "Part", "Entry", "Step", "Phase", "Refusal", "Pending", "Held", "Purpose", "Outcome", "Table", "Place",
    "Here", "Verdict",
];

/// The one type that keeps such a noun, and its file.
const KEPT: [(&str, &str); 2] = [("crates/base/src/corruption.rs", "Place"), ("crates/runtime/src/slot.rs", "Pending")];

/// A word, the folders where no identifier may have it, and the term in its place.
const BANNED: &[(&str, &[&str], &str)] = &[
    ("canary", &["crates/", "xtask/"], "fault point"),
    ("canaries", &["crates/", "xtask/"], "fault points"),
    ("sheet", &["crates/"], "slab page"),
    ("sheets", &["crates/"], "slab pages"),
    ("limbo", &["crates/"], "deferred"),
    ("spot", &["crates/"], "record address"),
    ("spots", &["crates/"], "addresses"),
    ("promise", &["crates/slab/"], "pending ack"),
    ("stale", &["crates/slab/"], "obsolete"),
    ("spill", &["crates/matrix/"], "blob write"),
    ("condemned", &["crates/"], "aborted install"),
    ("bury", &["crates/"], "defer reclaim"),
    ("crowd", &["crates/matrix/"], "memory waiters"),
    ("loose", &["crates/matrix/"], "unreferenced"),
    ("sight", &["crates/matrix/", "crates/hash/"], "read view"),
    ("floor", &["crates/tier/"], "flush watermark"),
    ("floors", &["crates/tier/"], "flush watermarks"),
    ("home", &["crates/tier/"], "SSD address"),
    ("ghosts", &["crates/tier/"], "ghost queue"),
    ("parked", &["crates/matrix/"], "suspended"),
    ("gather", &["crates/slab/src/"], "recluster"),
    ("gathered", &["crates/slab/src/"], "reclustered"),
    ("gatherer", &["crates/slab/src/"], "reclusterer"),
    ("carry", BATCHES, "apply"),
    ("carried", BATCHES, "applied"),
    ("cut", BATCHES, "barrier"),
    ("cuts", BATCHES, "barriers"),
    ("mark", BATCHES, "commit done"),
    ("witnesses", BATCHES, "read-only participants"),
    ("share", BATCHES, "prepare record"),
    ("shares", BATCHES, "prepare records"),
    ("say", BATCHES, "send"),
    ("hold", BATCHES, "lock"),
    ("holding", BATCHES, "locking"),
    ("held", BATCHES, "locked"),
    ("settle", PRODUCT, "complete"),
    ("settled", PRODUCT, "complete"),
    ("shown", &["crates/slab/src/", "crates/matrix/src/"], "visible"),
    ("showing", &["crates/slab/src/", "crates/matrix/src/"], "publication"),
    ("runs", &["crates/slab/src/"], "blobs"),
    ("kill", &["crates/slab/src/"], "blob tombstone"),
    ("kills", &["crates/slab/src/"], "blob tombstones"),
    ("park", &["crates/tier/"], "save at shutdown"),
    ("parks", &["crates/tier/"], "saves"),
    ("parked", &["crates/tier/"], "saved"),
    ("parking", &["crates/tier/"], "saving"),
    ("verdict", &["crates/tier/"], "lookup result"),
    ("verdicts", &["crates/tier/"], "lookup results"),
    ("trial", &["crates/matrix/"], "harness"),
    ("orphan", &["crates/matrix/src/"], "unreferenced blob"),
    ("orphans", &["crates/matrix/src/"], "unreferenced blobs"),
    ("promises", STORES, "pending acks"),
    ("promised", STORES, "pending"),
    ("attempt", STORES, "step"),
    ("attempts", STORES, "steps"),
    ("books", &["crates/stratakv/", "crates/cli/"], "accounting"),
    ("further", &["crates/stratakv/src/", "crates/cli/src/"], "data directories"),
    ("layer", &["crates/matrix/src/"], "PMEM levels"),
    ("apart", &["crates/matrix/src/"], "blob"),
    ("lease", &["crates/matrix/src/"], "permit"),
    ("lay", &["crates/slab/src/packed/"], "append"),
    ("laid", &["crates/slab/src/packed/"], "appended"),
    ("turn", &["crates/runtime/src/", "crates/engine/src/", "crates/slab/src/", "crates/tier/src/"], "tick"),
    ("turns", &["crates/runtime/src/", "crates/engine/src/", "crates/slab/src/", "crates/tier/src/"], "ticks"),
    ("wording", &["crates/server/"], "response encoder"),
    ("speech", &["crates/server/"], "client protocol"),
    ("bell", &["crates/server/"], "wakeup"),
    ("seat", &["crates/server/"], "worker slot"),
    ("seats", &["crates/server/"], "worker slots"),
    ("bells", &["crates/server/"], "wakeups"),
    ("lending", &["crates/server/"], "block budget"),
    ("lent", &["crates/server/"], "permitted"),
    ("lease", &["crates/server/"], "block permit"),
    ("leases", &["crates/server/"], "block permits"),
    ("surroundings", &["crates/server/"], "server context"),
    ("rude", &["crates/"], "adversary"),
    ("rudes", &["crates/"], "adversaries"),
    ("rival", &["crates/"], "baseline"),
    ("odd", &["crates/stratakv/", "crates/cli/"], "unexpected reply"),
];

/// What contains such a word and is meant.
const ALLOWED: &[&str] = &["FLOOR_BYTES", "further_directories"];

/// Identifiers with a word that is not used any more.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let here: Vec<_> = BANNED
            .iter()
            .filter(|(_, folders, _)| folders.iter().any(|folder| file.path.starts_with(folder)))
            .collect();
        let is_source =
            file.path.starts_with("crates/") && file.path.contains("/src/") && !file.path.contains("/tests/");
        for (number, line, _) in file.code_lines() {
            let unqualified = declared(line).filter(|name| is_source && QUALIFIED.contains(name));
            if let Some(name) = unqualified.filter(|name| !KEPT.contains(&(&file.path, name))) {
                findings.push(file.finding(number, format!("type `{name}`: say which one (docs/glossary.md)")));
            }
            let identifiers = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty());
            for name in identifiers.filter(|name| !ALLOWED.contains(name)) {
                let words = words(name);
                if let Some((word, _, term)) = here.iter().find(|(word, _, _)| words.iter().any(|one| one == word)) {
                    let message = format!("`{name}`: the field says `{term}`, not `{word}` (docs/glossary.md)");
                    findings.push(file.finding(number, message));
                }
            }
        }
    }
    findings
}

/// The type that a line declares.
fn declared(line: &str) -> Option<&str> {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    words.find(|word| matches!(*word, "struct" | "enum" | "type" | "trait"))?;
    words.next()
}

/// The words of an identifier, in small letters.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    for c in name.chars() {
        let begins = c == '_' || (c.is_uppercase() && (before.is_lowercase() || before.is_numeric()));
        if begins && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let (Some(word), true) = (words.last_mut(), c != '_') {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::tests::{messages, tree};
    use super::*;

    #[test]
    fn banned_words_are_found_in_identifiers_only() {
        let slab = "// a sheet\nfn open_sheet(x: Sheet) { say(\"sheet\"); }\nlet spreadsheet = STALE_PAGES;\n";
        let files = [("crates/slab/src/a.rs", slab), ("crates/sim/src/a.rs", "let stale = seat;\n")];
        let expected = [
            "crates/slab/src/a.rs:2: `open_sheet`: the field says `slab page`, not `sheet` (docs/glossary.md)",
            "crates/slab/src/a.rs:2: `Sheet`: the field says `slab page`, not `sheet` (docs/glossary.md)",
            "crates/slab/src/a.rs:3: `STALE_PAGES`: the field says `obsolete`, not `stale` (docs/glossary.md)",
        ];
        assert_eq!(messages(&check(&tree(&files))), expected);
    }

    #[test]
    fn a_type_with_a_noun_of_many_meanings_is_found() {
        let types = "pub(crate) struct Found {\n}\nenum FoundEntry {}\n// struct Found\nlet a = Entry::Found;\n";
        let files = [
            ("crates/tier/src/a.rs", types),
            ("crates/tier/tests/a.rs", "struct Found;\n"),
            ("crates/base/src/corruption.rs", "pub struct Place {\n}\npub type Phase = u8;\n"),
        ];
        let expected = [
            "crates/tier/src/a.rs:1: type `Found`: say which one (docs/glossary.md)",
            "crates/base/src/corruption.rs:3: type `Phase`: say which one (docs/glossary.md)",
        ];
        assert_eq!(messages(&check(&tree(&files))), expected);
    }
}
