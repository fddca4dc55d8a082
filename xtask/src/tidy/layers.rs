//! A crate depends on lower layers only.

use super::{File, Finding, Tree};

/// Folders of `crates/` by layer, lowest first. Crates of one layer do not know each other: so no
/// engine knows another engine, and `runtime` knows none.
const LAYERS: &[&[&str]] = &[
    &["base"],
    &["device", "pmem", "protocol", "structures"],
    &["index"],
    &["engine"],
    &["chassis"],
    &["sim", "conformance"],
    &["slab", "matrix", "tier", "hash", "runtime"],
    &["stratakv"],
    &["server", "bench", "c"],
    &["cli"],
    &["integration", "compare"],
];

/// Crates for development: the product has them for its tests only.
const DEVELOPMENT: &[&str] = &["sim", "conformance"];
/// The one that is for development itself, and depends on them.
const DEVELOPER: &str = "integration";

/// Tables of a manifest that name what is part of the crate.
const TABLES: &[&str] = &["dependencies", "build-dependencies"];
/// The table that names what its tests need besides.
const TEST_TABLE: &str = "dev-dependencies";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let manifests = tree.files.iter().filter_map(|file| {
        let folder = file.path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
        Some((folder, file))
    });
    manifests.flat_map(|(folder, file)| check_manifest(folder, file)).collect()
}

fn check_manifest(folder: &str, file: &File) -> Vec<Finding> {
    let manifest: toml::Table = match file.text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![file.finding(1, format!("not TOML: {error}"))],
    };
    let mut findings = Vec::new();
    let expected = if folder == "stratakv" { folder.to_owned() } else { format!("stratakv-{folder}") };
    let name = manifest.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
    if name != Some(&expected) {
        findings.push(file.finding(1, format!("the crate in crates/{folder} is called `{expected}`")));
    }
    let Some(own) = layer(folder) else {
        findings
            .push(file.finding(1, format!("crates/{folder} has no layer: give it one in xtask/src/tidy/layers.rs")));
        return findings;
    };
    let line_of =
        |dependency: &str| file.text.lines().position(|line| line.starts_with(dependency)).map_or(1, |index| index + 1);
    for dependency in dependencies(&manifest, TABLES) {
        let is_wrong = internal(&dependency).is_some_and(|other| DEVELOPMENT.contains(&other)) && folder != DEVELOPER;
        if is_wrong {
            let message = format!("{dependency} is for development: it belongs into [{TEST_TABLE}]");
            findings.push(file.finding(line_of(&dependency), message));
        }
    }
    for dependency in dependencies(&manifest, &[TABLES, &[TEST_TABLE]].concat()) {
        let Some(other) = internal(&dependency) else { continue };
        if layer(other).is_none_or(|other| other >= own) {
            let message = format!("{folder} must not depend on {other}: a crate depends on lower layers only");
            findings.push(file.finding(line_of(&dependency), message));
        }
    }
    findings
}

/// Names of the dependencies in these tables, also of those under `[target.*]`.
fn dependencies(manifest: &toml::Table, tables: &[&str]) -> Vec<String> {
    let targets = manifest.get("target").and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::values);
    let scopes = targets.filter_map(toml::Value::as_table).chain([manifest]);
    let tables = scopes.flat_map(|scope| tables.iter().filter_map(|table| scope.get(*table)?.as_table()));
    tables.flat_map(|table| table.keys().cloned()).collect()
}

/// The folder of a crate of this project.
fn internal(dependency: &str) -> Option<&str> {
    if dependency == "stratakv" { Some(dependency) } else { dependency.strip_prefix("stratakv-") }
}

fn layer(folder: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&folder))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{messages, tree};
    use super::*;

    fn found(path: &str, dependencies: &str) -> Vec<String> {
        let folder = path.trim_start_matches("crates/");
        let text = format!("[package]\nname = \"stratakv-{folder}\"\n{dependencies}");
        messages(&check(&tree(&[(&format!("{path}/Cargo.toml"), &text)])))
    }

    #[test]
    fn catches_an_arrow_upwards_and_sideways() {
        let up = found("crates/engine", "[dependencies]\nstratakv-slab.workspace = true");
        assert_eq!(
            up,
            ["crates/engine/Cargo.toml:4: engine must not depend on slab: a crate depends on lower layers only"]
        );
        assert_eq!(found("crates/slab", "[dependencies]\nstratakv-runtime.workspace = true").len(), 1);
        assert_eq!(found("crates/runtime", "[dev-dependencies]\nstratakv-slab.workspace = true").len(), 1);
        assert_eq!(found("crates/matrix", "[target.'cfg(unix)'.dependencies]\nstratakv-slab = \"1\"").len(), 1);
        assert_eq!(found("crates/server", "[dependencies]\nstratakv-nowhere = \"1\"").len(), 1);
    }

    #[test]
    fn catches_the_simulator_in_the_product() {
        let message = "stratakv-sim is for development: it belongs into [dev-dependencies]";
        let plain = found("crates/matrix", "[dependencies]\nstratakv-sim.workspace = true");
        assert_eq!(plain, [format!("crates/matrix/Cargo.toml:4: {message}")]);
        assert_eq!(found("crates/tier", "[target.'cfg(unix)'.dependencies]\nstratakv-conformance = \"1\"").len(), 1);
        assert!(found("crates/matrix", "[dev-dependencies]\nstratakv-sim.workspace = true").is_empty());
        assert!(found("crates/integration", "[dependencies]\nstratakv-sim.workspace = true").is_empty());
    }

    #[test]
    fn lets_arrows_down_pass() {
        assert!(found("crates/slab", "[dependencies]\nstratakv-index.workspace = true\nbytes = \"1\"").is_empty());
        assert!(found("crates/cli", "[dependencies]\nstratakv = \"1\"\nstratakv-server = \"1\"").is_empty());
    }

    #[test]
    fn catches_a_crate_without_a_layer_or_with_another_name() {
        assert_eq!(found("crates/mystery", "").len(), 1);
        let misnamed = tree(&[("crates/base/Cargo.toml", "[package]\nname = \"foundation\"")]);
        assert_eq!(check(&misnamed).len(), 1);
    }
}
