//! A crate depends on lower layers only.

use super::{File, Finding, Tree};

/// Folders of `crates/` by layer, lowest first. Crates of one layer do not know each other: so no
/// engine knows another engine, and `runtime` knows none.
const LAYERS: &[&[&str]] = &[
    &["base"],
    &["device", "pmem", "protocol"],
    &["index"],
    &["engine"],
    &["sim"],
    &["slab", "matrix", "tier", "hash", "runtime"],
    &["stratakv"],
    &["server", "bench", "c", "python"],
    &["cli"],
    &["integration", "compare"],
];

/// Tables of a manifest that name dependencies.
const TABLES: &[&str] = &["dependencies", "dev-dependencies", "build-dependencies"];

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
    for dependency in dependencies(&manifest) {
        let Some(other) = internal(&dependency) else { continue };
        if layer(other).is_none_or(|other| other >= own) {
            let line = file.text.lines().position(|line| line.starts_with(&dependency)).map_or(1, |index| index + 1);
            let message = format!("{folder} must not depend on {other}: a crate depends on lower layers only");
            findings.push(file.finding(line, message));
        }
    }
    findings
}

/// Names of all dependencies, also those under `[target.*]`.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let targets = manifest.get("target").and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::values);
    let scopes = targets.filter_map(toml::Value::as_table).chain([manifest]);
    let tables = scopes.flat_map(|scope| TABLES.iter().filter_map(|table| scope.get(*table)?.as_table()));
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
