//! Results that are dropped on a path to a medium. A failure that nobody hears of is data that is
//! said to be durable and is not: each has its reason beside it.

use super::{File, Finding, Tree};

/// Crates between a caller and a medium.
const CRATES: &[&str] =
    &["device", "pmem", "hash", "slab", "matrix", "tier", "runtime", "stratakv", "engine", "chassis"];

/// Whatever was called, its result is dropped.
const DROPS: &[&str] = &["let _ = ", "Err(_) => {}", "Err(_) => ()"];
/// The failure is, if the line has a call that leads to a medium.
const DROPS_OF_A_MEDIUM: &[&str] =
    &[".ok()", "if let Ok(", "unwrap_or(", "unwrap_or_default(", ".is_ok()", ".is_err()", "drop(", "| _ = "];
const MEDIUM: &[&str] = &[
    "fs::",
    "File::",
    "sync(",
    "sync_all(",
    "sync_data(",
    "fence(",
    "persist(",
    "set_len(",
    "write_all(",
    "store(",
    "store_u64(",
    "store_nt(",
    "flock(",
    "metadata(",
    "write_manifest(",
];

/// A result that is dropped, and why that is right.
#[derive(Debug, PartialEq, Eq)]
pub struct Dropped {
    path: String,
    line: usize,
    code: String,
    reason: Option<String>,
}

impl std::fmt::Display for Dropped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reason = self.reason.as_deref().unwrap_or("NO REASON");
        write!(f, "{}:{}: {}\n    {reason}", self.path, self.line, self.code)
    }
}

/// All of them, with their reasons.
pub fn list(tree: &Tree) -> Vec<Dropped> {
    tree.rust().filter(|file| leads_to_a_medium(&file.path)).flat_map(of_file).collect()
}

/// Those without one.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let bare = list(tree).into_iter().filter(|dropped| dropped.reason.is_none());
    let message = "a result is dropped on a path to a medium: handle it, or say in a comment above why nothing is lost";
    bare.map(|dropped| Finding { path: dropped.path, line: dropped.line, message: message.to_owned() }).collect()
}

fn leads_to_a_medium(path: &str) -> bool {
    let in_crate = |name: &&str| {
        path.strip_prefix("crates/")
            .and_then(|rest| rest.strip_prefix(*name))
            .is_some_and(|rest| rest.starts_with("/src/"))
    };
    CRATES.iter().any(in_crate)
}

fn of_file(file: &File) -> Vec<Dropped> {
    let lines: Vec<&str> = file.text.lines().collect();
    let code = file.code_lines().filter(|(_, line, test)| !test && drops(line));
    let found = code.map(|(number, _, _)| {
        let at = number - 1;
        let path = file.path.clone();
        Dropped {
            path,
            line: number,
            code: lines.get(at).map_or("", |line| line.trim()).to_owned(),
            reason: reason(&lines, at),
        }
    });
    found.collect()
}

fn drops(line: &str) -> bool {
    let has = |words: &[&str]| words.iter().any(|word| line.contains(word));
    has(DROPS) || is_statement_of_ok(line) || has(DROPS_OF_A_MEDIUM) && has(MEDIUM)
}

/// `something().ok();`
fn is_statement_of_ok(line: &str) -> bool {
    line.contains(".ok();") && !line.contains(" = ")
}

/// The comment on the line, or the one that ends within the two lines above it.
fn reason(lines: &[&str], at: usize) -> Option<String> {
    let comment = |line: &str| {
        line.split_once("// ").filter(|(before, _)| !before.ends_with('/')).map(|(_, text)| text.trim().to_owned())
    };
    let above = (1..=2).map(|up| at.checked_sub(up));
    [Some(at)].into_iter().chain(above).find_map(|at| comment(lines.get(at?)?))
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&tree(&[(path, text)])).len()
    }

    #[test]
    fn a_planted_drop_is_caught_and_a_reason_lets_it_be() {
        let drops = [
            "fn f() { let _ = pmem.sync(); }",
            "fn f() { file.sync_all().ok(); }",
            "fn f() { if let Ok(parent) = File::open(parent) {} }",
            "fn f() { match g() { Ok(()) => h(), Err(_) => {} } }",
            "fn f() { let len = fs::metadata(path).map(|m| m.len()).unwrap_or(0); }",
            "fn f() { paths.iter().for_each(|path| drop(fs::remove_dir(path))); }",
        ];
        for text in drops {
            assert_eq!(found("crates/matrix/src/matrix.rs", text), 1, "{text}");
            assert_eq!(
                found("crates/matrix/src/matrix.rs", &format!("// Nothing is lost.\\n{text}").replace("\\n", "\n")),
                0,
                "{text}"
            );
            assert_eq!(found("crates/cli/src/main.rs", text), 0, "{text}");
            assert_eq!(found("crates/matrix/tests/unit/harness/space.rs", text), 0, "{text}");
        }
        assert_eq!(found("crates/matrix/src/matrix.rs", "fn f() { let _guard = lock(); x.parse().ok() }"), 0);
        assert_eq!(found("crates/matrix/src/matrix.rs", "/// Documentation is no reason.\nfn f() { let _ = g(); }"), 1);
    }
}
