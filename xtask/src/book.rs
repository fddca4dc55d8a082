//! `cargo xtask book`: `docs/` and the pages beside it as a book of HTML pages, by mdBook. A
//! warning fails it.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Output};

use crate::tool::Tool;
use crate::toolchain::target_directory;

/// What makes pages of HTML: of this version, whose warnings are known.
const MDBOOK: Tool = Tool { name: "mdbook", version: "0.5.4", is_exact: true, options: &["--no-default-features"] };

/// Pages beside `docs/` that the book has too: before its parts, and in a part behind them.
const FIRST: [(&str, &str); 2] = [("StrataKV", "README.md"), ("Architecture", "ARCHITECTURE.md")];
const LAST: [(&str, &str); 3] =
    [("Contributing", "CONTRIBUTING.md"), ("Security", "SECURITY.md"), ("Changelog", "CHANGELOG.md")];

/// Builds the book into `target/book`.
///
/// # Errors
/// mdBook cannot be had, fails, or warns; what it said.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    if let Some(word) = arguments.first() {
        return Err(format!("`{word}` is not understood\n\nusage: cargo xtask book"));
    }
    let program = MDBOOK.find(root)?;
    let (sources, book) = (target_directory(root).join("book-sources"), target_directory(root).join("book"));
    stage(root, &sources).map_err(|error| format!("cannot copy the pages to {}: {error}", sources.display()))?;
    let output = Command::new(&program).args(["build", "--dest-dir"]).arg(&book).arg(&sources).output();
    let output = output.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    judge(&output)?;
    println!("{}", book.join("index.html").display());
    Ok(())
}

/// Copies the pages to where mdBook finds all of them below one folder, as they lie here: so their
/// links hold.
fn stage(root: &Path, sources: &Path) -> io::Result<()> {
    match fs::remove_dir_all(sources) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let pages = sources.join("pages");
    copy(&root.join("docs"), &pages.join("docs"))?;
    for (_, page) in FIRST.iter().chain(&LAST) {
        fs::copy(root.join(page), pages.join(page))?;
    }
    fs::write(pages.join("SUMMARY.md"), summary(&fs::read_to_string(pages.join("docs/SUMMARY.md"))?))?;
    fs::remove_file(pages.join("docs/SUMMARY.md"))?;
    let settings = fs::read_to_string(root.join("book.toml"))?;
    fs::write(sources.join("book.toml"), settings.replace("src = \"docs\"", "src = \"pages\""))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => fs::copy(entry.path(), target).map(drop)?,
        }
    }
    Ok(())
}

/// The contents of the whole book, from those of `docs/`.
fn summary(docs: &str) -> String {
    let line = |(name, page): &(&str, &str)| format!("- [{name}]({page})\n");
    let first: String = FIRST.iter().map(line).collect();
    let last: String = LAST.iter().map(line).collect();
    let parts = docs.trim_start_matches("# Summary\n").replace("](", "](docs/");
    format!("# Summary\n\n{first}{parts}\n# Project\n\n{last}")
}

/// Whether the book was built, and nothing was wrong with it.
fn judge(output: &Output) -> Result<(), String> {
    let said = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    let is_bad = |line: &str| line.split_whitespace().any(|word| ["WARN", "ERROR"].contains(&word));
    match output.status.success() && !said.lines().any(is_bad) {
        true => Ok(()),
        false => Err(format!("mdBook ({}) said:\n{said}", output.status)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn output(code: i32, said: &str) -> Output {
        Output { status: ExitStatus::from_raw(code << 8), stdout: Vec::new(), stderr: said.into() }
    }

    #[test]
    fn a_warning_fails_the_book() {
        assert!(judge(&output(0, " INFO Book building has started\n")).is_ok());
        let warned = judge(&output(0, " INFO Book building\n WARN unclosed HTML tag\n"));
        assert!(warned.is_err_and(|why| why.contains("unclosed HTML tag")));
        assert!(judge(&output(101, "")).is_err());
    }

    #[test]
    fn the_book_has_the_pages_beside_docs_too() {
        let all = summary("# Summary\n\n# Use\n\n- [The command\n  line](cli.md)\n");
        let expected = "# Summary\n\n- [StrataKV](README.md)\n- [Architecture](ARCHITECTURE.md)\n\n# Use\n\n\
                        - [The command\n  line](docs/cli.md)\n\n# Project\n\n- [Contributing](CONTRIBUTING.md)\n\
                        - [Security](SECURITY.md)\n- [Changelog](CHANGELOG.md)\n";
        assert_eq!(all, expected);
    }
}
