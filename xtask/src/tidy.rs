//! The house rules that the compiler does not know. Each check is a function from the tree to
//! findings, with a test that it catches a planted violation; the last test runs them all on this
//! repository.

mod calls;
pub mod dropped;
pub mod fault_points;
pub mod glossary;
mod layers;
mod links;
mod names;
pub mod product;
pub mod prose;
mod scan;

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// Longest file of Rust or Java, in lines.
const LINES_MAX: usize = 800;

/// Folders that are not part of the project's text.
const SKIPPED_FOLDERS: &[&str] = &["target", ".git", "stratakv-data", "node_modules", "__pycache__"];

/// Endings of files that are read; others are data.
const TEXT_ENDINGS: &[&str] = &["rs", "toml", "md", "py", "sh", "yml", "yaml", "run", "json", "java", "xml", "txt"];

/// The repository's text files.
pub struct Tree {
    /// In path order.
    pub files: Vec<File>,
}

/// One text file.
pub struct File {
    /// From the root, with `/`.
    pub path: String,
    /// As it is.
    pub text: String,
    /// Rust only: the text with comments and the insides of literals blanked, line for line.
    code: String,
    /// Rust only: for each line, whether it belongs to tests.
    test_lines: Vec<bool>,
}

/// A rule broken at a place.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

impl File {
    /// A file; Rust is scanned at once.
    pub fn new(path: &str, text: &str) -> File {
        let rust = path.ends_with(".rs");
        let code = if rust { scan::code_only(text) } else { String::new() };
        // Examples and benchmarks are programs around a library, as tests are.
        let whole_file_is_test = path.ends_with("/tests.rs")
            || ["/tests/", "/benches/", "/examples/"].iter().any(|folder| path.contains(folder));
        let test_lines = if whole_file_is_test { vec![true; code.lines().count()] } else { scan::test_lines(&code) };
        File { path: path.to_owned(), text: text.to_owned(), code, test_lines }
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Numbered lines of code, each with whether it belongs to tests.
    pub fn code_lines(&self) -> impl Iterator<Item = (usize, &str, bool)> {
        let tests = self.test_lines.iter().copied().chain(std::iter::repeat(false));
        self.code.lines().zip(tests).enumerate().map(|(index, (line, test))| (index + 1, line, test))
    }

    fn finding(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, message: message.into() }
    }
}

impl Tree {
    /// Reads the text files under `root`.
    pub fn read(root: &Path) -> io::Result<Tree> {
        let mut files = Vec::new();
        read_folder(root, "", &mut files)?;
        files.sort_by(|a: &File, b: &File| a.path.cmp(&b.path));
        Ok(Tree { files })
    }

    fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_rust())
    }
}

fn read_folder(root: &Path, under: &str, files: &mut Vec<File>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(under))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = if under.is_empty() { name.clone() } else { format!("{under}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() && !SKIPPED_FOLDERS.contains(&name.as_str()) {
            read_folder(root, &path, files)?;
        } else if kind.is_file() && is_text(&name) {
            match fs::read_to_string(entry.path()) {
                Ok(text) => files.push(File::new(&path, &text)),
                // Removed since the folder was listed (an editor's temporary file).
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

fn is_text(name: &str) -> bool {
    let ending = name.rsplit('.').next().unwrap_or(name);
    TEXT_ENDINGS.contains(&ending) || name.starts_with("LICENSE")
}

/// Every check.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let checks = [
        layers::check,
        links::check,
        file_length,
        calls::forbidden_calls,
        calls::unsafe_code,
        calls::allow_attributes,
        dropped::check,
        fault_points::check,
        glossary::check,
        names::modules,
        names::workplaces,
        names::crate_documentation,
        product::check,
        prose::check,
        prose::comments,
    ];
    checks.iter().flat_map(|check| check(tree)).collect()
}

fn file_length(tree: &Tree) -> Vec<Finding> {
    let code = tree.files.iter().filter(|file| file.is_rust() || file.path.ends_with(".java"));
    let too_long = code.filter_map(|file| {
        let lines = file.text.lines().count();
        (lines > LINES_MAX).then(|| file.finding(lines, format!("{lines} lines; split it, {LINES_MAX} is the most")))
    });
    too_long.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of the given files.
    pub(super) fn tree(files: &[(&str, &str)]) -> Tree {
        Tree { files: files.iter().map(|(path, text)| File::new(path, text)).collect() }
    }

    /// The messages of a check, for assertions.
    pub(super) fn messages(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn file_length_catches_a_long_file() {
        let long = "\n".repeat(LINES_MAX + 1);
        let longest = "\n".repeat(LINES_MAX);
        let found = file_length(&tree(&[("a.rs", &long), ("b.rs", &longest), ("c.md", &long), ("d.java", &long)]));
        let message = "801 lines; split it, 800 is the most";
        assert_eq!(messages(&found), [format!("a.rs:801: {message}"), format!("d.java:801: {message}")]);
    }

    #[test]
    fn this_repository_is_tidy() {
        let tree = Tree::read(&crate::repository()).expect("the repository can be read");
        assert!(tree.files.iter().any(|file| file.path == "crates/base/src/lib.rs"), "the walk finds the crates");
        let findings = check(&tree);
        assert!(findings.is_empty(), "{}", messages(&findings).join("\n"));
    }
}
