//! `src/` of a crate holds the product only. Tests that need private items lie under `tests/`; a
//! line with `#[path]` names them in the module that they are about.

use super::calls::has_word;
use super::{File, Finding, Tree};

/// Crates that are tests as a whole.
const HARNESSES: &[&str] = &["crates/conformance/", "crates/integration/", "crates/sim/"];
/// Names of files and folders of tests.
const TEST_NAMES: &[&str] =
    &["test", "tests", "trial", "trials", "fuzzing", "conformance", "interleavings", "forging", "unit"];
/// A module with one of these in its `cfg` is built for tests only.
const TEST_CONDITIONS: &[&str] = &["test", "fuzzing", "loom", "fault_points"];

/// Files of tests among the product.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let message = "a file of tests under `src/`: move it under `tests/`, and name it in its module by `#[path]`";
    test_only(tree).into_iter().map(|file| file.finding(1, message)).collect()
}

/// Whether a file is a source of the product.
pub fn is_product(path: &str) -> bool {
    path.starts_with("crates/")
        && path.contains("/src/")
        && path.ends_with(".rs")
        && !HARNESSES.iter().any(|harness| path.starts_with(harness))
}

/// Files under `src/` of the product's crates that are built for tests only: they are named so, or
/// belong to a module that is.
pub fn test_only(tree: &Tree) -> Vec<&File> {
    let product = || tree.files.iter().filter(|file| is_product(&file.path));
    let modules: Vec<String> = product().flat_map(test_modules).collect();
    let is_of = |file: &File, module: &String| {
        file.path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    };
    let is_test = |file: &File| is_named_as_test(&file.path) || modules.iter().any(|module| is_of(file, module));
    product().filter(|file| is_test(file)).collect()
}

fn is_named_as_test(path: &str) -> bool {
    let below = path.split_once("/src/").map_or("", |(_, below)| below);
    let mut names = below.strip_suffix(".rs").unwrap_or(below).split('/');
    names.any(|name| TEST_NAMES.contains(&name) || name.ends_with("_test") || name.ends_with("_tests"))
}

/// Paths, without `.rs`, of the modules that a file declares for tests only.
fn test_modules(file: &File) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().collect();
    let declared = file.code_lines().filter_map(|(number, line, _)| Some((number, declared(line)?)));
    let modules = declared.filter_map(|(number, name)| {
        let above = lines.get(..number - 1).unwrap_or_default().iter().rev().map(|line| line.trim());
        let attributes: Vec<&str> = above.take_while(|line| line.starts_with("#[") || line.starts_with("//")).collect();
        attributes.iter().any(|attribute| is_for_tests(attribute)).then(|| place(file, name, &attributes))
    });
    modules.collect()
}

/// The name in `mod name;`.
fn declared(line: &str) -> Option<&str> {
    let (before, name) = line.trim().strip_suffix(';')?.rsplit_once("mod ")?;
    (before.is_empty() || before.starts_with("pub")).then_some(name)
}

fn is_for_tests(attribute: &str) -> bool {
    attribute.starts_with("#[cfg(")
        && !attribute.contains("not(")
        && TEST_CONDITIONS.iter().any(|condition| has_word(attribute, condition))
}

/// Where a module lies: where `#[path]` says, or below the module that declares it.
fn place(file: &File, name: &str, attributes: &[&str]) -> String {
    let (folder, own) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let named = attributes.iter().find_map(|attribute| attribute.strip_prefix("#[path = \"")?.split('"').next());
    let Some(named) = named else {
        let is_root = ["lib.rs", "main.rs", "mod.rs"].contains(&own);
        let above = if is_root { folder } else { file.path.trim_end_matches(".rs") };
        return format!("{above}/{name}");
    };
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in named.trim_end_matches(".rs").trim_end_matches("/mod").split('/') {
        match part {
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{messages, tree};
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let found = messages(&check(&tree(files)));
        found.iter().filter_map(|message| Some(message.split_once(":1: a file of tests")?.0.to_owned())).collect()
    }

    #[test]
    fn a_file_named_as_tests_is_caught() {
        let named = [
            "crates/hash/src/alloc/tests.rs",
            "crates/matrix/src/table/tests/model.rs",
            "crates/matrix/src/trial/space.rs",
            "crates/server/src/connection_tests.rs",
            "crates/slab/src/fuzzing.rs",
            "crates/slab/src/fuzzing/volume.rs",
            "crates/engine/src/conformance.rs",
        ];
        assert_eq!(found(&named.map(|path| (path, ""))), named);
    }

    #[test]
    fn a_module_for_tests_is_caught_with_all_below_it() {
        let root = "#[cfg(test)]\nmod bench;\n#[cfg(any(test, fuzzing))]\n/// Text.\npub mod model;\n\
                    #[cfg(test)]\n#[path = \"apart/other.rs\"]\nmod near;\n#[cfg(feature = \"fault_points\")]\nmod defects;\n";
        let files = [
            ("crates/slab/src/lib.rs", root),
            ("crates/slab/src/bench.rs", ""),
            ("crates/slab/src/bench/deep.rs", ""),
            ("crates/slab/src/model/mod.rs", ""),
            ("crates/slab/src/apart/other.rs", ""),
            ("crates/slab/src/defects.rs", ""),
            ("crates/slab/src/a.rs", "#[cfg(all(test, loom))]\nmod orders;\n"),
            ("crates/slab/src/a/orders.rs", ""),
        ];
        let caught: Vec<&str> = files.iter().map(|(path, _)| *path).filter(|path| !path.ends_with("lib.rs")).collect();
        let caught: Vec<&str> = caught.into_iter().filter(|path| !path.ends_with("/a.rs")).collect();
        assert_eq!(found(&files), caught);
    }

    #[test]
    fn the_product_and_tests_in_their_place_pass() {
        let text = "mod a;\n#[cfg(not(test))]\nmod b;\n#[cfg(test)]\n#[path = \"../tests/unit/c.rs\"]\nmod tests;\n\
                    #[cfg(target_os = \"linux\")]\nmod d;\n#[cfg(test)]\nmod inner {\n    fn f() {}\n}\n";
        let files = [
            ("crates/slab/src/lib.rs", text),
            ("crates/slab/src/a.rs", ""),
            ("crates/slab/src/b.rs", ""),
            ("crates/slab/src/d.rs", ""),
            ("crates/slab/src/inner.rs", ""),
            ("crates/slab/src/latest.rs", ""),
            ("crates/slab/tests/unit/c.rs", ""),
            ("crates/sim/src/net/tests.rs", ""),
            ("crates/conformance/src/lib.rs", ""),
        ];
        assert_eq!(found(&files), [""; 0]);
    }
}
