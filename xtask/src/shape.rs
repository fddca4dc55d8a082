//! `cargo xtask shape`: how large and how tangled the product is, in numbers. Lines, structs with
//! many fields, long functions.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::cargo::{cargo, succeed};
use crate::tidy::Tree;
use crate::tidy::product::{is_product, test_only};
use crate::toolchain::target_directory;

const USAGE: &str = "usage: cargo xtask shape [--of DIR] [--write FILE]\n\n\
    Measures the product's code in this tree, or in another checkout, as Markdown tables.";

/// More fields, or more lines, are listed.
const FIELDS_MAX: u64 = 15;
const LINES_MAX: u64 = 60;
/// What is summed up beside the crates.
const ENGINES: &[&str] = &["slab", "packed", "matrix", "tier", "hash", "chassis"];

/// Runs the command.
///
/// # Errors
/// The tree cannot be read, or a program not built or run.
pub fn run(root: &Path, rest: &[String]) -> Result<(), String> {
    let (mut of, mut write) = (root.to_path_buf(), None);
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("`{word}` needs a value\n\n{USAGE}"));
        match word.as_str() {
            "--of" => of = PathBuf::from(value()?),
            "--write" => write = Some(value()?.clone()),
            _ => return Err(format!("`{word}` is not understood\n\n{USAGE}")),
        }
    }
    let text = code(root, &of)?;
    println!("{text}");
    match write {
        Some(file) => std::fs::write(&file, &text).map_err(|error| format!("cannot write {file}: {error}")),
        None => Ok(()),
    }
}

/// The tables of lines, structs and functions.
fn code(root: &Path, of: &Path) -> Result<String, String> {
    let (mut lines, mut structs, mut functions) = (BTreeMap::<String, u64>::new(), Vec::new(), Vec::new());
    for shape in shapes(root, of)? {
        let path = shape["path"].as_str().unwrap_or_default();
        let path = path.strip_prefix(&format!("{}/", of.display())).unwrap_or(path).to_owned();
        let name = path.split('/').nth(1).unwrap_or_default();
        *lines.entry(name.into()).or_default() += shape["lines"].as_u64().unwrap_or_default();
        for item in shape["structs"].as_array().into_iter().flatten() {
            let fields = item[1].as_u64().unwrap_or_default();
            structs.extend((fields > FIELDS_MAX).then(|| (fields, path.clone(), item[0].to_string())));
        }
        for item in shape["functions"].as_array().into_iter().flatten() {
            let length = item[2].as_u64().unwrap_or_default();
            functions.extend((length > LINES_MAX).then(|| (length, path.clone(), item[0].to_string())));
        }
    }
    let engines: u64 = ENGINES.iter().filter_map(|name| lines.get(*name)).sum();
    let all: u64 = lines.values().sum();
    let mut text = String::from("| crate | lines of code |\n|---|--:|\n");
    lines.iter().for_each(|(name, count)| _ = writeln!(text, "| `{name}` | {count} |"));
    _ = writeln!(text, "| engines and chassis | {engines} |\n| all | {all} |");
    list(&mut text, "structs of more than 15 fields", structs);
    list(&mut text, "functions of more than 60 lines", functions);
    Ok(text)
}

fn list(text: &mut String, title: &str, mut rows: Vec<(u64, String, String)>) {
    rows.sort_by(|a, b| b.cmp(a));
    _ = writeln!(text, "\n| {title}: {} | |\n|---|--:|", rows.len());
    for (count, path, name) in rows {
        _ = writeln!(text, "| `{path}`, `{}` | {count} |", name.trim_matches('"'));
    }
}

/// What the program beside the mutations tells of each file of the product.
fn shapes(root: &Path, of: &Path) -> Result<Vec<serde_json::Value>, String> {
    let tree = Tree::read(of).map_err(|error| format!("cannot read {}: {error}", of.display()))?;
    let tests: Vec<&str> = test_only(&tree).iter().map(|file| file.path.as_str()).collect();
    let product = tree.files.iter().filter(|file| is_product(&file.path) && !tests.contains(&file.path.as_str()));
    let paths: Vec<String> = product.map(|file| of.join(&file.path).display().to_string()).collect();

    let program = target_directory(root).join("shape/program");
    let mut build = cargo(root);
    build.args(["build", "--quiet", "--manifest-path", "mutate/Cargo.toml", "--bin", "stratakv-shape", "--target-dir"]);
    succeed("build", build.arg(&program))?;
    let mut command = std::process::Command::new(program.join("debug/stratakv-shape"));
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    let mut input = child.stdin.take().ok_or("no pipe to the program")?;
    let asked = std::thread::spawn(move || input.write_all(paths.join("\n").as_bytes()));
    let output = child.wait_with_output().map_err(|error| format!("cannot read the program's answer: {error}"))?;
    asked.join().map_err(|_| "the writer failed")?.map_err(|error| format!("cannot ask the program: {error}"))?;
    if !output.status.success() {
        return Err(format!("a file could not be read ({})", output.status));
    }
    let rows = String::from_utf8_lossy(&output.stdout).into_owned();
    rows.lines().map(|row| serde_json::from_str(row).map_err(|error| format!("{row}: {error}"))).collect()
}
