//! Links of Markdown lead somewhere, files and code that pages name exist, and the book has every
//! page.

use std::collections::HashSet;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::{File, Finding, TEXT_ENDINGS, Tree};

/// The book's contents.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Pages that tell what was: files that they name may be gone.
const HISTORY: [&str; 3] = ["CHANGELOG.md", "docs/decisions/", "docs/measurements/"];

/// Pages that lead through the code, and where the names on them must be.
const GUIDES: [(&str, &[&str]); 6] = [
    ("ARCHITECTURE.md", &["crates/", "xtask/"]),
    ("docs/batches.md", &["crates/"]),
    ("docs/engine-hash.md", &["crates/hash/", "crates/engine/", "crates/runtime/"]),
    ("docs/engine-matrix.md", &["crates/matrix/", "crates/engine/", "crates/runtime/"]),
    ("docs/engine-slab.md", &["crates/slab/", "crates/engine/", "crates/runtime/"]),
    ("docs/engine-tier.md", &["crates/tier/", "crates/engine/", "crates/runtime/"]),
];

/// What they name that is no code of this repository.
const SYSTEM_CALLS: [&str; 1] = ["msync"];

/// Links to pages, files and headings that are not there, and names of code that is not there.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        let is_history = HISTORY.iter().any(|path| page.path.starts_with(path));
        for (event, range) in Parser::new_ext(&page.text, Options::ENABLE_TABLES).into_offset_iter() {
            let line = page.text.get(..range.start).unwrap_or_default().matches('\n').count() + 1;
            match event {
                Event::Start(Tag::Link { dest_url, .. }) => {
                    findings.extend(missing(tree, page, &dest_url).map(|why| page.finding(line, why)));
                }
                Event::Code(name) if !is_history && is_path(&name) && !has(tree, &name) => {
                    findings.push(page.finding(line, format!("there is no file `{name}`")));
                }
                _ => {}
            }
        }
    }
    findings.extend(unlisted(tree));
    findings.extend(unknown_names(tree));
    findings
}

/// Functions, types and fields that a guide names and its crates do not have.
fn unknown_names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, folders) in GUIDES {
        let Some(page) = tree.files.iter().find(|file| file.path == path) else { continue };
        let sources = tree.files.iter().filter(|file| file.path.ends_with(".rs"));
        let sources = sources.filter(|file| folders.iter().any(|folder| file.path.starts_with(folder)));
        let lines = sources.flat_map(|file| file.text.lines());
        let known: HashSet<&str> = lines.flat_map(|line| words(line.split("//").next().unwrap_or_default())).collect();
        for (event, range) in Parser::new_ext(&page.text, Options::ENABLE_TABLES).into_offset_iter() {
            let Event::Code(code) = event else { continue };
            let line = page.text.get(..range.start).unwrap_or_default().matches('\n').count() + 1;
            let is_number = code.starts_with(|c: char| c.is_ascii_digit());
            let is_name = !is_number && code.chars().all(|c| c.is_alphanumeric() || "_:".contains(c));
            let is_unknown = |word: &&str| !known.contains(word) && !SYSTEM_CALLS.contains(word);
            let unknown = words(&code).filter(|_| is_name).filter(is_unknown);
            findings.extend(unknown.map(|word| page.finding(line, format!("the code has no `{word}`"))));
        }
    }
    findings
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Why a link leads nowhere.
fn missing(tree: &Tree, page: &File, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = link.split_once('#').map_or((link, None), |(file, heading)| (file, Some(heading)));
    let path = if file.is_empty() { page.path.clone() } else { resolved(&page.path, file) };
    let is_text = path.rsplit_once('.').is_some_and(|(_, ending)| TEXT_ENDINGS.contains(&ending));
    let Some(target) = tree.files.iter().find(|one| one.path == path) else {
        let is_folder = tree.files.iter().any(|one| one.path.starts_with(&format!("{path}/")));
        return (is_text && !is_folder).then(|| format!("the link leads to no file: {link}"));
    };
    let heading = heading.filter(|_| path.ends_with(".md"))?;
    (!anchors(&target.text).contains(heading)).then(|| format!("the link leads to no heading: {link}"))
}

/// A relative path as one from the root.
fn resolved(from: &str, path: &str) -> String {
    let mut folders: Vec<&str> = from.split('/').collect();
    folders.pop();
    for part in path.split('/') {
        match part {
            ".." => _ = folders.pop(),
            "." | "" => {}
            part => folders.push(part),
        }
    }
    folders.join("/")
}

/// What a page's headings are called in links, as GitHub and mdBook form it.
fn anchors(markdown: &str) -> HashSet<String> {
    let (mut all, mut heading) = (HashSet::new(), None);
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        match (event, &mut heading) {
            (Event::Start(Tag::Heading { .. }), _) => heading = Some(String::new()),
            (Event::End(TagEnd::Heading(_)), Some(text)) => {
                let first = anchor(text);
                let mut name = first.clone();
                let mut number = 0;
                while !all.insert(name) {
                    number += 1;
                    name = format!("{first}-{number}");
                }
                heading = None;
            }
            (Event::Text(part) | Event::Code(part), Some(text)) => text.push_str(&part),
            _ => {}
        }
    }
    all
}

fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Whether code in backticks names a file of the repository.
fn is_path(code: &str) -> bool {
    let begins = ["crates/", "xtask/", "docs/", "mutate/", "fuzz/"].iter().any(|folder| code.starts_with(folder));
    let is_text = code.rsplit_once('.').is_some_and(|(_, ending)| TEXT_ENDINGS.contains(&ending));
    begins && is_text && code.chars().all(|c| c.is_alphanumeric() || "/_-.".contains(c))
}

fn has(tree: &Tree, path: &str) -> bool {
    tree.files.iter().any(|file| file.path == path)
}

/// Pages that the book leaves out.
fn unlisted(tree: &Tree) -> Vec<Finding> {
    let Some(summary) = tree.files.iter().find(|file| file.path == SUMMARY) else { return Vec::new() };
    let listed: HashSet<String> = Parser::new(&summary.text)
        .filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. }) => Some(resolved(SUMMARY, &dest_url)),
            _ => None,
        })
        .collect();
    let pages = tree.files.iter().filter(|file| file.path.starts_with("docs/") && file.path.ends_with(".md"));
    let left_out = pages.filter(|page| page.path != SUMMARY && !listed.contains(&page.path));
    left_out.map(|page| page.finding(1, format!("the book does not have it: add it to {SUMMARY}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{messages, tree};
    use super::*;

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let page = "[a](docs/b.md#one-two-three) [b](docs/b.md#four) [c](docs/c.md) [d](#here)\n\n# Here\n\
                    [e](docs) [f](https://a.org/x.md) [g](a.svg)\n`crates/x/src/lib.rs` `crates/gone.rs`\n";
        let files = [
            ("CHANGELOG.md", "`crates/gone.rs`\n"),
            ("a.md", page),
            ("crates/x/src/lib.rs", "\n"),
            ("docs/SUMMARY.md", "- [b](b.md)\n"),
            ("docs/b.md", "# One `two`: *three*\n[up](../a.md) [up](a.md)\n"),
            ("docs/d.md", "# Alone\n"),
        ];
        let expected = [
            "a.md:1: the link leads to no heading: docs/b.md#four",
            "a.md:1: the link leads to no file: docs/c.md",
            "a.md:5: there is no file `crates/gone.rs`",
            "docs/b.md:2: the link leads to no file: a.md",
            "docs/d.md:1: the book does not have it: add it to docs/SUMMARY.md",
        ];
        assert_eq!(messages(&check(&tree(&files))), expected);
    }

    #[test]
    fn names_that_the_code_does_not_have_are_found() {
        let page = "`a.rs`: `Slab::seal`, `msync`, `gone`\n`Slab` `other` `a gone b` `0xFF`\n";
        let files = [
            ("crates/slab/src/a.rs", "impl Slab {\n    fn seal() {} // gone\n}\n"),
            ("crates/tier/src/a.rs", "fn other() {}\n"),
            ("docs/engine-slab.md", page),
        ];
        let expected = [("1", "gone"), ("2", "other")];
        let expected = expected.map(|(line, word)| format!("docs/engine-slab.md:{line}: the code has no `{word}`"));
        assert_eq!(messages(&check(&tree(&files))), expected);
    }

    #[test]
    fn headings_of_one_name_are_numbered() {
        let names = anchors("# A b\n## A b\n# C `d` – e\n");
        assert_eq!(names, ["a-b", "a-b-1", "c-d--e"].map(str::to_owned).into());
    }
}
