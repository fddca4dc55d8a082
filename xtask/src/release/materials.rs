//! The bill of materials of the program, as CycloneDX 1.5 reads it: every crate that is compiled
//! into it, from `cargo metadata` and the checksums of `Cargo.lock`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::cargo::cargo;

/// The package whose program is handed out.
const PROGRAM: &str = "stratakv-cli";

/// The bill of materials.
///
/// # Errors
/// cargo does not answer, or `Cargo.lock` cannot be read.
pub fn of(root: &Path) -> Result<Value, String> {
    let mut command = cargo(root);
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = command.args(["metadata", "--locked", "--format-version", "1", "--filter-platform", &target]).output();
    let output = output.map_err(|error| format!("cannot start cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let lock = fs::read_to_string(root.join("Cargo.lock")).map_err(|error| format!("Cargo.lock: {error}"))?;
    let lock: toml::Table = lock.parse().map_err(|error| format!("Cargo.lock: {error}"))?;
    bill(&metadata, &checksums(&lock))
}

/// Checksums of crates by name and version.
fn checksums(lock: &toml::Table) -> BTreeMap<(String, String), String> {
    let packages = lock.get("package").and_then(toml::Value::as_array).into_iter().flatten();
    let text = |package: &toml::Value, name: &str| package.get(name)?.as_str().map(str::to_owned);
    packages
        .filter_map(|package| Some(((text(package, "name")?, text(package, "version")?), text(package, "checksum")?)))
        .collect()
}

fn bill(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Result<Value, String> {
    let word = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let list = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, Value> =
        list(metadata, "packages").into_iter().map(|package| (word(&package, "id"), package)).collect();
    let program = packages.values().find(|package| package["name"] == PROGRAM);
    let program = word(program.ok_or_else(|| format!("there is no package {PROGRAM}"))?, "id");
    let edges: BTreeMap<String, Vec<String>> =
        list(&metadata["resolve"], "nodes").iter().map(|node| (word(node, "id"), compiled_in(node))).collect();
    let mut found = BTreeSet::new();
    let mut left = vec![program.clone()];
    while let Some(id) = left.pop() {
        if found.insert(id.clone()) {
            left.extend(edges.get(&id).into_iter().flatten().cloned());
        }
    }
    let link =
        |id: &String| packages.get(id).map(|one| format!("pkg:cargo/{}@{}", word(one, "name"), word(one, "version")));
    let component = |id: &String| {
        let package = packages.get(id)?;
        let (name, version) = (word(package, "name"), word(package, "version"));
        let mut made =
            json!({ "type": "library", "bom-ref": link(id)?, "purl": link(id)?, "name": name, "version": version });
        if let Some(license) = package["license"].as_str() {
            // Older manifests write `/` for `OR`.
            made["licenses"] = json!([{ "expression": license.replace('/', " OR ").replace("  ", " ") }]);
        }
        if let Some(checksum) = checksums.get(&(name, version)) {
            made["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        }
        Some(made)
    };
    let others: Vec<&String> = found.iter().filter(|id| **id != program).collect();
    let components: Vec<Value> = others.iter().filter_map(|id| component(id)).collect();
    let dependencies = found.iter().filter_map(|id| {
        let mut on: Vec<String> = edges.get(id).into_iter().flatten().filter_map(link).collect();
        on.sort();
        Some(json!({ "ref": link(id)?, "dependsOn": on }))
    });
    let mut main = component(&program).ok_or("the program has no version")?;
    main["type"] = "application".into();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": main },
        "components": components,
        "dependencies": dependencies.collect::<Vec<Value>>(),
    }))
}

/// What a package takes in when it is built for use; not what only its tests or its build need.
fn compiled_in(node: &Value) -> Vec<String> {
    let dependencies = node["deps"].as_array().into_iter().flatten();
    let is_normal = |dependency: &&Value| {
        dependency["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
    };
    dependencies.filter(is_normal).filter_map(|dependency| dependency["pkg"].as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bill_has_what_is_compiled_in_with_licence_and_checksum() {
        let bill = of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap();
        let components = bill["components"].as_array().unwrap();
        let named = |name: &str| components.iter().find(|one| one["name"] == name);
        for name in ["clap", "rustls", "stratakv-slab", "stratakv"] {
            let found = named(name).unwrap_or_else(|| panic!("{name} is missing"));
            assert!(!found["licenses"].is_null(), "{found}");
        }
        assert_eq!(named("clap").unwrap()["hashes"][0]["content"].as_str().map(str::len), Some(64));
        // Of tests and builds only.
        for name in ["tempfile", "proptest", "cc", "xtask"] {
            assert!(named(name).is_none(), "{name} is not in the program");
        }
        assert_eq!(bill["metadata"]["component"]["name"], PROGRAM);
        let links: BTreeSet<&str> = components.iter().filter_map(|one| one["bom-ref"].as_str()).collect();
        assert_eq!(links.len(), components.len(), "each crate once");
        for dependency in bill["dependencies"].as_array().unwrap() {
            for on in dependency["dependsOn"].as_array().unwrap() {
                assert!(links.contains(on.as_str().unwrap()), "{on} is named, and no component");
            }
        }
    }
}
