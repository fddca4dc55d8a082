//! Names that say nothing, names that do not belong, and names without a word of explanation.

use super::{Finding, Tree};

/// Module names that gather what belongs elsewhere.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc", "stuff"];

/// Folders at the root of machines on which the project is worked on: a path into one means nothing
/// to a reader elsewhere.
const WORKPLACE_FOLDERS: &[&str] = &["work", "farm"];

/// Modules (files and declarations) with an empty name.
pub fn modules(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let mut parts = file.path.trim_end_matches(".rs").rsplit('/');
        if let Some(name) = parts.find(|part| *part != "mod").filter(|name| EMPTY_NAMES.contains(name)) {
            findings.push(file.finding(1, format!("`{name}` says nothing: name the module after what it holds")));
        }
        for (number, line, _) in file.code_lines() {
            let named = EMPTY_NAMES
                .iter()
                .find(|name| super::calls::has_word(line, &format!("mod {name}")) && line.trim_end().ends_with('{'));
            if let Some(name) = named {
                findings
                    .push(file.finding(number, format!("`{name}` says nothing: name the module after what it holds")));
            }
        }
    }
    findings
}

/// Paths into the machine of whoever wrote it.
pub fn workplaces(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(folder) = WORKPLACE_FOLDERS.iter().find(|folder| names_root_folder(line, folder)) {
                findings.push(file.finding(index + 1, format!("a path under `{folder}` at the root of a machine")));
            }
        }
    }
    findings
}

fn names_root_folder(line: &str, folder: &str) -> bool {
    let path = format!("/{folder}/");
    let inner = |c: char| c.is_alphanumeric() || "_-./$}".contains(c);
    line.match_indices(&path).any(|(at, _)| !line[..at].chars().next_back().is_some_and(inner))
}

/// Every crate says what it is.
pub fn crate_documentation(tree: &Tree) -> Vec<Finding> {
    let is_root = |path: &str| path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
    let roots = tree.rust().filter(|file| is_root(&file.path));
    let bare = roots.filter(|file| !file.text.trim_start().starts_with("//!"));
    bare.map(|file| file.finding(1, "a crate begins with `//!` and what it is")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{messages, tree};
    use super::*;

    #[test]
    fn empty_module_names_are_caught() {
        let files = [
            ("crates/a/src/util.rs", ""),
            ("crates/a/src/common/mod.rs", ""),
            ("crates/a/src/lib.rs", "mod helpers {\n}\nmod utility {\n}"),
        ];
        assert_eq!(modules(&tree(&files)).len(), 3);
    }

    #[test]
    fn workplaces_are_caught_in_every_text() {
        let planted = format!("see /{}/notes", WORKPLACE_FOLDERS[0]);
        let elsewhere = format!("/other/x, net/{}/y", WORKPLACE_FOLDERS[0]);
        let found = workplaces(&tree(&[("a.md", &planted), ("b.rs", &format!("//! {planted}")), ("c.md", &elsewhere)]));
        assert_eq!(found.len(), 2, "{:?}", messages(&found));
    }

    #[test]
    fn a_crate_without_a_word_is_caught() {
        let found =
            crate_documentation(&tree(&[("crates/a/src/lib.rs", "pub mod b;"), ("crates/c/src/main.rs", "//! C.")]));
        assert_eq!(messages(&found), ["crates/a/src/lib.rs:1: a crate begins with `//!` and what it is"]);
    }
}
