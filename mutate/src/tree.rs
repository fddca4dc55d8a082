//! A copy of the repository with mutations in it, each behind a switch.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::places::{Place, SWITCH, places, test_modules};

/// The run-time side of a switch.
const SWITCHES: &str = include_str!("switch.rs");

/// A mutation that was drawn.
#[derive(Clone, Debug)]
pub struct Mutation {
    /// From 1: what its switch asks for.
    pub number: u32,
    /// `slab` of `crates/slab`.
    pub package: String,
    /// Below the repository.
    pub file: String,
    pub place: Place,
}

/// Draws `each` mutations of each crate, one a function at most, the same for the same seed.
///
/// # Errors
/// A file cannot be read.
pub fn draw(root: &Path, packages: &[String], each: usize, seed: u64) -> Result<Vec<Mutation>, String> {
    let mut drawn: Vec<Mutation> = Vec::new();
    for package in packages {
        let mut all = Vec::new();
        for file in sources(&root.join("crates").join(package).join("src"))? {
            let text = fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
            let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            let found = places(&text).map_err(|error| format!("{name}: {error}"))?;
            all.extend(found.into_iter().map(|place| (name.clone(), place)));
        }
        // By their own names, so that a change elsewhere draws the others as before.
        all.sort_by_cached_key(|(file, place)| rank(seed, &[file, &place.function, place.operator, &place.put]));
        let mut functions = BTreeSet::new();
        all.retain(|(file, place)| functions.insert((file.clone(), place.function.clone())));
        for (file, place) in all.into_iter().take(each) {
            let number = u32::try_from(drawn.len() + 1).map_err(|_| "too many mutations".to_owned())?;
            drawn.push(Mutation { number, package: package.clone(), file, place });
        }
    }
    Ok(drawn)
}

/// How many places the crate has in all.
///
/// # Errors
/// A file cannot be read.
pub fn count(root: &Path, package: &str) -> Result<usize, String> {
    sources(&root.join("crates").join(package).join("src"))?.iter().try_fold(0, |sum, file| {
        let text = fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        Ok(sum + places(&text).map_err(|error| format!("{}: {error}", file.display()))?.len())
    })
}

/// Writes those of the drawn mutations that are `built` into the copy, and the switches.
///
/// # Errors
/// A file cannot be read or written.
pub fn write(root: &Path, copy: &Path, drawn: &[Mutation], built: &[Mutation]) -> Result<(), String> {
    let files: BTreeSet<&str> = drawn.iter().map(|mutation| mutation.file.as_str()).collect();
    let put = |file: &Path, text: &str| {
        // What stays as it is is not built again.
        if fs::read_to_string(file).is_ok_and(|there| there == text) {
            return Ok(());
        }
        fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
    };
    for file in files {
        let text = fs::read_to_string(root.join(file)).map_err(|error| format!("cannot read {file}: {error}"))?;
        let own: Vec<&Mutation> = built.iter().filter(|mutation| mutation.file == file).collect();
        put(&copy.join(file), &mutated(&text, file.starts_with("crates/base/"), &own))?;
    }
    let base = copy.join("crates/base/src/lib.rs");
    let text = fs::read_to_string(&base).map_err(|error| format!("cannot read {}: {error}", base.display()))?;
    let declared = "pub mod mutation_switch;";
    if !text.contains(declared) {
        put(&base, &format!("{text}\n#[doc(hidden)]\n{declared}\n"))?;
    }
    put(&copy.join("crates/base/src/mutation_switch.rs"), SWITCHES)?;
    let packages: BTreeSet<&str> = drawn.iter().map(|mutation| mutation.package.as_str()).collect();
    packages.into_iter().try_for_each(|package| {
        let file = copy.join("crates").join(package).join("Cargo.toml");
        let text = fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        put(&file, &with_base(&text))
    })
}

/// A manifest that depends on the crate with the switches, as some do for their tests only.
fn with_base(manifest: &str) -> String {
    let dependencies = manifest.split("[dependencies]").nth(1).and_then(|rest| rest.split("\n[").next());
    match dependencies {
        Some(own) if !own.contains("stratakv-base") => {
            manifest.replace("[dependencies]", "[dependencies]\nstratakv-base.workspace = true")
        }
        _ => manifest.to_owned(),
    }
}

/// A file with its mutations. They do not overlap: a function has one at most, and of functions
/// inside functions the outer one goes.
fn mutated(text: &str, is_base: bool, mutations: &[&Mutation]) -> String {
    let mut ordered = mutations.to_vec();
    ordered.sort_by_key(|mutation| (mutation.place.range.start, mutation.place.range.end));
    let (mut out, mut at) = (String::with_capacity(text.len() + 1024), 0);
    let krate = if is_base { "crate" } else { "stratakv_base" };
    for Mutation { number, place, .. } in ordered {
        if place.range.start < at {
            continue;
        }
        out.push_str(&text[at..place.range.start]);
        out.push_str(&place.put.replace(SWITCH, &format!("{krate}::mutation_switch::is({number})")));
        at = place.range.end;
    }
    out.push_str(&text[at..]);
    out
}

/// Sources of the product under a folder. Files of modules that are there for tests only are none,
/// also where they lie among the sources, as in older commits.
fn sources(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = rust_files(folder)?;
    let mut of_tests = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let modules = test_modules(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        of_tests.extend(modules.iter().flat_map(|(name, path)| module_files(file, name, path.as_deref())));
    }
    // Whole components are compared: `a/b` is no start of `a/bc.rs`.
    files.retain(|file| !of_tests.iter().any(|own| file.starts_with(own)));
    Ok(files)
}

/// The file and the folder that a module may lie in, which `file` declares.
fn module_files(file: &Path, name: &str, path: Option<&str>) -> Vec<PathBuf> {
    if let Some(path) = path {
        return vec![file.with_file_name(path)];
    }
    let is_root = ["lib", "main", "mod"].iter().any(|root| file.file_stem().is_some_and(|stem| stem == *root));
    let folder = if is_root { file.with_file_name("") } else { file.with_extension("") };
    vec![folder.join(format!("{name}.rs")), folder.join(name)]
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    let mut files = Vec::new();
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// A number that depends on the seed and the words alone (FNV-1a, then mixed).
fn rank(seed: u64, words: &[&str]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.bytes().chain([0]));
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_stand_behind_their_switches_and_the_rest_stays() {
        let text = "fn f() { if a { b.c(); } }\nfn g() -> bool { x < 1 }\n";
        let all = places(text).expect("it is Rust");
        let chosen = |operator: &str, number| {
            let place = all.iter().find(|place| place.operator == operator).expect("it is there").clone();
            Mutation { number, package: "slab".into(), file: "f.rs".into(), place }
        };
        let (first, second) = (chosen("condition turned round", 1), chosen("boundary shifted", 2));
        let switch = |number| format!("stratakv_base::mutation_switch::is({number})");
        assert_eq!(
            mutated(text, false, &[&second, &first]),
            format!(
                "fn f() {{ if {} != (a) {{ b.c(); }} }}\nfn g() -> bool {{ (if {} {{ (x) <= (1) }} else {{ (x) < (1) }}) }}\n",
                switch(1),
                switch(2)
            )
        );
    }

    #[test]
    fn a_module_lies_beside_or_below_the_file_that_declares_it() {
        let files = |file: &str, path| {
            let files = module_files(Path::new(file), "tests", path);
            files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(files("src/lib.rs", None), "src/tests.rs src/tests");
        assert_eq!(files("src/a/mod.rs", None), "src/a/tests.rs src/a/tests");
        assert_eq!(files("src/a.rs", None), "src/a/tests.rs src/a/tests");
        assert_eq!(files("src/a.rs", Some("a_tests.rs")), "src/a_tests.rs");
    }

    #[test]
    fn a_manifest_comes_to_know_the_switches_once() {
        let without = "[package]\n\n[dependencies]\nlibc = \"1\"\n\n[dev-dependencies]\nstratakv-base = 1\n";
        let with = with_base(without);
        assert!(with.contains("[dependencies]\nstratakv-base.workspace = true\nlibc"), "{with}");
        assert_eq!(with_base(&with), with);
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it lies in the repository");
        let drawn = |seed| {
            let drawn = draw(root, &["index".to_owned()], 5, seed).expect("it can be read");
            drawn.into_iter().map(|mutation| (mutation.file, mutation.place.line)).collect::<Vec<_>>()
        };
        assert_eq!((drawn(1).len(), drawn(1)), (5, drawn(1)));
        assert_ne!(drawn(1), drawn(2));
    }
}
