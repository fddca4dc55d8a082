//! `cargo xtask language`: how plain the project's words are, by numbers. Pages: sentences and
//! lines. Code: long comment lines, nouns that mean several things, what of tests stands among the
//! product.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::tidy::product::{is_product, test_only};
use crate::tidy::prose::{self, LINE_CHARS_MAX, WORDS_MAX};
use crate::tidy::{Tree, fault_points, glossary};

const USAGE: &str = "usage: cargo xtask language [--of DIR] [--write FILE]\n\n\
    Measures the words of this tree, or of another checkout, as Markdown tables.";

/// Loads stores to measure them; its words are not counted.
const LOADER: &str = "crates/bench/";

/// Runs the command.
pub fn run(root: &Path, rest: &[String]) -> Result<(), String> {
    let (mut of, mut write) = (root.to_path_buf(), None);
    for pair in rest.chunks(2) {
        match pair {
            [word, value] if word == "--of" => of = value.into(),
            [word, value] if word == "--write" => write = Some(value),
            _ => return Err(format!("`{}` is not understood\n\n{USAGE}", pair[0])),
        }
    }
    let tree = Tree::read(&of).map_err(|error| format!("cannot read {}: {error}", of.display()))?;
    let text = format!("{}\n{}", pages(&tree), code(&tree));
    println!("{text}");
    match write {
        Some(file) => std::fs::write(file, &text).map_err(|error| format!("cannot write {file}: {error}")),
        None => Ok(()),
    }
}

/// A row for each page.
fn pages(tree: &Tree) -> String {
    let mut text = String::from(
        "| page | sentences | words, mean | p90 | longest | over 40 | lines over 100 |\n|---|--:|--:|--:|--:|--:|--:|\n",
    );
    let (mut all, mut all_long) = (Vec::new(), 0);
    for page in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        let words: Vec<usize> = prose::sentences(&page.text).iter().map(|sentence| sentence.words).collect();
        let long = prose::long_lines(&page.text).len();
        text += &row(&page.path, words.clone(), long);
        all.extend(words);
        all_long += long;
    }
    text + &row("all", all, all_long)
}

fn row(name: &str, mut words: Vec<usize>, long_lines: usize) -> String {
    words.sort_unstable();
    let count = words.len();
    let mean = words.iter().sum::<usize>() as f64 / count.max(1) as f64;
    let p90 = words.get(count * 9 / 10).copied().unwrap_or_default();
    let longest = words.last().copied().unwrap_or_default();
    let over = words.iter().filter(|words| **words > WORDS_MAX).count();
    format!("| {name} | {count} | {mean:.1} | {p90} | {longest} | {over} | {long_lines} |\n")
}

/// What is counted in the code of the product.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    long_comments: usize,
    fault_points: usize,
    fault_points_within_logic: usize,
    test_files: usize,
    test_lines: usize,
    /// Lines of `#[cfg(test)]` in files of the product.
    inline_test_lines: usize,
    /// Where types of a name are declared.
    types: BTreeMap<String, usize>,
    /// The public ones of them.
    public_types: BTreeMap<String, usize>,
    /// Identifiers with a word that the glossary replaced.
    old_words: usize,
}

fn code(tree: &Tree) -> String {
    let counted = count(tree);
    let several: Vec<(&String, &usize)> = counted.types.iter().filter(|(_, places)| **places > 1).collect();
    let mut most = several.clone();
    most.sort_by_key(|(_, places)| std::cmp::Reverse(**places));
    let named: Vec<String> = most.iter().take(30).map(|(name, places)| format!("`{name}` {places}")).collect();
    format!(
        "| code | |\n|---|--:|\n| lines of comments over {LINE_CHARS_MAX} characters | {} |\n| fault points in product \
         functions | {} |\n| of these, within conditions and other statements (aim: 0) | {} |\n| files of tests under \
         `src/` of product crates | {} |\n| their lines | {} |\n| lines of tests in files of the product | {} |\n| type \
         names that are declared more than once | {} |\n| of public types | {} |\n| identifiers with a word that the \
         glossary replaced, or an unqualified noun (aim: 0) | {} |\n\nThe most frequent of these: {}.\n",
        counted.long_comments,
        counted.fault_points,
        counted.fault_points_within_logic,
        counted.test_files,
        counted.test_lines,
        counted.inline_test_lines,
        several.len(),
        counted.public_types.values().filter(|places| **places > 1).count(),
        counted.old_words,
        named.join(", ")
    )
}

fn count(tree: &Tree) -> Counted {
    let (long_comments, old_words) = (prose::comments(tree).len(), glossary::check(tree).len());
    let mut counted = Counted { long_comments, old_words, ..Counted::default() };
    let tests: BTreeSet<&str> = test_only(tree).into_iter().map(|file| file.path.as_str()).collect();
    for file in tree.files.iter().filter(|file| is_product(&file.path) && !file.path.starts_with(LOADER)) {
        if tests.contains(file.path.as_str()) {
            counted.test_files += 1;
            counted.test_lines += file.text.lines().count();
            continue;
        }
        counted.fault_points_within_logic += fault_points::within_logic(file).len();
        for (_, line, is_test) in file.code_lines() {
            if is_test {
                counted.inline_test_lines += 1;
                continue;
            }
            counted.fault_points += line.matches("fault_point!(").count();
            if let Some(name) = declared(line) {
                *counted.types.entry(name.to_owned()).or_default() += 1;
                if line.trim_start().starts_with("pub ") {
                    *counted.public_types.entry(name.to_owned()).or_default() += 1;
                }
            }
        }
    }
    counted
}

/// The type that a line declares.
fn declared(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let visible = line.strip_prefix("pub").map_or(line, |rest| match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')').map_or("", |(_, rest)| rest),
        None => rest,
    });
    let mut words = visible.split_whitespace();
    let is_type = matches!(words.next(), Some("struct" | "enum" | "trait"));
    let name = words.next().filter(|_| is_type)?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::File;

    #[test]
    fn types_long_comments_fault_points_and_tests_are_counted() {
        let long = format!("// {}\n", "word ".repeat(30));
        let product = format!(
            "{long}pub(crate) struct Found<'a> {{}}\nfn f() {{ if fault_point!(\"x\") {{}} }}\nfn g() {{\nfault_point!(\"y\", return);\n}}\n#[cfg(test)]\nmod tests {{\n    struct Found;\n}}\n"
        );
        let files = vec![
            File::new("crates/slab/src/a.rs", &product),
            File::new("crates/tier/src/b.rs", "enum Found { A }\n"),
            File::new("crates/tier/src/trial/c.rs", "struct Found;\n\n"),
            File::new("crates/sim/src/d.rs", "struct Found;\n"),
        ];
        let types = BTreeMap::from([("Found".to_owned(), 2)]);
        let expected = Counted {
            long_comments: 1,
            fault_points: 2,
            fault_points_within_logic: 1,
            test_files: 1,
            test_lines: 2,
            inline_test_lines: 4,
            types,
            public_types: BTreeMap::new(),
            old_words: 5,
        };
        assert_eq!(count(&Tree { files }), expected);
    }

    #[test]
    fn a_row_has_mean_and_percentile() {
        assert_eq!(row("a.md", vec![10, 20, 60], 2), "| a.md | 3 | 30.0 | 60 | 60 | 1 | 2 |\n");
    }
}
