//! Calls and words that do not belong where they stand.

use super::{File, Finding, Tree};

/// A word that is wrong in some places.
struct Rule {
    /// Any of these, as whole words.
    words: &'static [&'static str],
    /// Only under these folders; empty: everywhere.
    only: &'static [&'static str],
    /// But not under these.
    except: &'static [&'static str],
    /// Whether tests may.
    tests_may: bool,
    /// What to do instead.
    instead: &'static str,
}

const PURE: &[&str] = &[
    "crates/base/",
    "crates/index/",
    "crates/engine/",
    "crates/conformance/",
    "crates/slab/",
    "crates/protocol/",
    "crates/structures/",
];

const RULES: &[Rule] = &[
    Rule {
        words: &["println!", "eprintln!", "print!", "eprint!"],
        only: &[],
        except: &["crates/cli/", "crates/bench/", "crates/integration/", "compare/", "mutate/", "xtask/"],
        tests_may: true,
        instead: "a library does not print: return it, or use `tracing`",
    },
    Rule {
        words: &["todo!", "unimplemented!", "dbg!"],
        only: &[],
        except: &[],
        tests_may: false,
        instead: "finish it",
    },
    Rule {
        words: &["thread::sleep"],
        only: &[],
        // Nothing tells when a port becomes free.
        except: &["crates/device/", "crates/integration/", "crates/server/src/listener.rs"],
        tests_may: true,
        instead: "wait for the event itself: only rings wait",
    },
    Rule {
        words: &["Instant::now", "SystemTime::now"],
        only: PURE,
        except: &[],
        tests_may: true,
        instead: "this crate is told the time (`Now`), it never asks",
    },
    Rule {
        words: &["std::fs", "std::net"],
        only: PURE,
        except: &["crates/base/"],
        tests_may: true,
        instead: "this crate does no I/O: ask through `Effects`",
    },
    Rule {
        words: &["thread::spawn", "thread::Builder"],
        only: PURE,
        except: &[],
        tests_may: true,
        instead: "this crate has no threads of its own",
    },
];

/// Calls that do not belong in their crate.
pub fn forbidden_calls(tree: &Tree) -> Vec<Finding> {
    tree.rust().flat_map(|file| RULES.iter().flat_map(|rule| broken(file, rule))).collect()
}

fn broken(file: &File, rule: &Rule) -> Vec<Finding> {
    let under = |folders: &[&str]| folders.iter().any(|folder| file.path.starts_with(folder));
    if under(rule.except) || !(rule.only.is_empty() || under(rule.only)) {
        return Vec::new();
    }
    let lines = file.code_lines().filter(|(_, _, test)| !(*test && rule.tests_may));
    let hits = lines.filter_map(|(number, line, _)| {
        let word = rule.words.iter().find(|word| has_word(line, word))?;
        Some(file.finding(number, format!("`{word}`: {}", rule.instead)))
    });
    hits.collect()
}

/// `unsafe` outside `device`, `pmem`, `c`, `compare/`, and leaf modules of `index`, `hash` and
/// `python/`.
pub fn unsafe_code(tree: &Tree) -> Vec<Finding> {
    let files = tree.rust().filter(|file| !may_be_unsafe(file));
    let hits = files.filter_map(|file| {
        let (number, _, _) = file.code_lines().find(|(_, line, _)| has_word(line, "unsafe"))?;
        let message = "`unsafe` belongs in device, pmem, c, or a leaf module of index, hash or python/ that says why";
        Some(file.finding(number, message))
    });
    hits.collect()
}

fn may_be_unsafe(file: &File) -> bool {
    let whole = ["crates/device/", "crates/pmem/", "crates/c/", "compare/"];
    let leaves = ["crates/index/src/", "crates/hash/src/", "crates/hash/tests/unit/", "python/src/"];
    let under = |folders: &[&str]| folders.iter().any(|folder| file.path.starts_with(folder));
    let is_leaf = !file.code_lines().any(|(_, line, test)| !test && declares_module(line).is_some());
    under(&whole) || under(&leaves) && is_leaf && file.code.contains("#![expect(unsafe_code")
}

/// The name in `mod name;`.
fn declares_module(line: &str) -> Option<&str> {
    let line = line.trim();
    let line = line.split_once("mod ").filter(|(before, _)| before.is_empty() || before.starts_with("pub"))?.1;
    line.strip_suffix(';')
}

/// `#[allow(..)]`: it stays when its cause is gone; `#[expect(..)]` does not.
pub fn allow_attributes(tree: &Tree) -> Vec<Finding> {
    let lines = tree.rust().flat_map(|file| file.code_lines().map(move |(number, line, _)| (file, number, line)));
    let hits = lines.filter(|(_, _, line)| line.contains("#[allow(") || line.contains("#![allow("));
    hits.map(|(file, number, _)| file.finding(number, "use `#[expect(.., reason = \"..\")]`, it says when it is stale"))
        .collect()
}

/// Whether `word` occurs in `line` with no letter, digit or underscore around it.
pub fn has_word(line: &str, word: &str) -> bool {
    let inner = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(inner) && !after.is_some_and(inner)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{messages, tree};
    use super::*;

    fn calls(path: &str, text: &str) -> usize {
        forbidden_calls(&tree(&[(path, text)])).len()
    }

    #[test]
    fn each_rule_catches_a_planted_violation() {
        for rule in RULES {
            let folder = rule.only.iter().find(|folder| !rule.except.contains(folder)).unwrap_or(&"crates/slab/");
            for word in rule.words {
                let text = format!("fn f() {{\n    {word}(1);\n}}");
                let found = messages(&forbidden_calls(&tree(&[(&format!("{folder}src/a.rs"), &text)])));
                assert_eq!(found, [format!("{folder}src/a.rs:2: `{word}`: {}", rule.instead)]);
            }
        }
    }

    #[test]
    fn each_rule_knows_its_places() {
        assert_eq!(calls("crates/cli/src/main.rs", "println!()"), 0);
        assert_eq!(calls("crates/runtime/src/a.rs", "Instant::now()"), 0);
        assert_eq!(calls("crates/slab/src/a.rs", "// println!()\nlet a = \"todo!()\";"), 0);
        assert_eq!(calls("crates/slab/src/a.rs", "#[cfg(test)]\nmod tests {\n  fn f() { std::fs::read(p); }\n}"), 0);
        assert_eq!(calls("crates/slab/tests/a.rs", "std::fs::read(p);"), 0);
        assert_eq!(calls("crates/slab/examples/a.rs", "println!()"), 0);
        assert_eq!(calls("crates/slab/src/a.rs", "#[cfg(test)]\nmod tests {\n  fn f() { todo!() }\n}"), 1);
    }

    #[test]
    fn unsafe_is_caught_outside_its_places() {
        let block = "fn f() { unsafe { g() } }";
        let leaf = format!("#![expect(unsafe_code, reason = \"r\")]\n{block}");
        let root = format!("#![expect(unsafe_code, reason = \"r\")]\nmod a;\n{block}");
        let count = |path: &str, text: &str| unsafe_code(&tree(&[(path, text)])).len();
        assert_eq!(count("crates/slab/src/a.rs", &leaf), 1);
        assert_eq!(count("crates/index/src/a.rs", block), 1, "a leaf says why");
        assert_eq!(count("crates/index/src/lib.rs", &root), 1, "not a leaf");
        assert_eq!(count("crates/hash/tests/a.rs", &leaf), 1, "a test of its own sees public items only");
        assert_eq!(count("crates/index/src/a.rs", &leaf), 0);
        assert_eq!(count("crates/hash/tests/unit/a.rs", &leaf), 0);
        assert_eq!(count("crates/device/src/a.rs", block), 0);
        assert_eq!(count("crates/slab/src/a.rs", "#![forbid(unsafe_code)] // unsafe"), 0);
    }

    #[test]
    fn allow_attributes_are_caught() {
        let found = allow_attributes(&tree(&[("a.rs", "#![allow(x)]\n#[allow(y)]\n#[expect(z)]\n// #[allow(w)]")]));
        assert_eq!(found.len(), 2);
    }
}
