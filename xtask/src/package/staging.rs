//! What goes into a package: the program, its manual pages and completions in `target/package`, and
//! the list of files of `crates/cli/Cargo.toml`. Package, image and tarball are made of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::{built, cargo, succeed};

/// Shells, and the files of their completions.
const COMPLETIONS: [(&str, &str); 3] = [("bash", "stratakv.bash"), ("zsh", "_stratakv"), ("fish", "stratakv.fish")];
/// Where the list of files is, from the repository's root. Its paths start there.
const MANIFEST_FOLDER: &str = "crates/cli";

/// Where everything is staged.
pub fn folder(root: &Path) -> PathBuf {
    // The manifest names this folder, whatever CARGO_TARGET_DIR says.
    root.join("target/package")
}

/// Builds the program alone.
///
/// # Errors
/// It does not build.
pub fn build(root: &Path, profile: &str) -> Result<(), String> {
    // With the whole workspace in profile dev, as the tests build it: nothing is built twice.
    let mut command = cargo(root);
    command.args(["build", "--locked", "--profile", profile, "--bin", "stratakv"]);
    match profile {
        "dev" => command.args(["--workspace", "--test", "bus"]),
        _ => command.args(["--package", "stratakv-cli"]),
    };
    succeed("build", &mut command)
}

/// Puts the program, its pages and completions into [`folder`].
///
/// # Errors
/// The program does not build, does not run, or a file cannot be written.
pub fn stage(root: &Path, profile: Option<&str>, binary: Option<&Path>) -> Result<(), String> {
    let source = match binary {
        Some(file) => file.to_owned(),
        None => {
            let profile = profile.unwrap_or("release");
            build(root, profile)?;
            built(root, profile, "stratakv")
        }
    };
    let folder = folder(root);
    // Pages of subcommands that are gone are not packed.
    for name in ["man", "completions"] {
        let part = folder.join(name);
        match fs::remove_dir_all(&part) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("cannot empty {}: {error}", part.display()));
            }
            _ => fs::create_dir_all(&part).map_err(|error| format!("{}: {error}", part.display()))?,
        }
    }
    let program = folder.join("stratakv");
    strip(&source, &program)?;
    let mut man = Command::new(&program);
    succeed("stratakv man", man.args(["man", "--out"]).arg(folder.join("man")))?;
    for (shell, file) in COMPLETIONS {
        let script = Command::new(&program).args(["completions", shell]).stderr(Stdio::inherit()).output();
        let script = script.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        if !script.status.success() {
            return Err(format!("stratakv completions {shell} failed ({})", script.status));
        }
        let file = folder.join("completions").join(file);
        fs::write(&file, script.stdout).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}

/// Copies a program without its lines of source; the names of functions stay, for backtraces.
fn strip(source: &Path, program: &Path) -> Result<(), String> {
    let stripped = Command::new("strip").arg("--strip-debug").arg("-o").arg(program).arg(source).status();
    if stripped.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    // binutils are not everywhere: the program is only longer.
    let copied = fs::copy(source, program);
    copied.map(|_| ()).map_err(|error| format!("cannot copy {}: {error}", source.display()))
}

/// The version of the workspace.
///
/// # Errors
/// The manifest cannot be read.
pub fn version(root: &Path) -> Result<String, String> {
    let manifest = table(&root.join("Cargo.toml"))?;
    let version = manifest.get("workspace").and_then(|part| part.get("package")?.get("version")?.as_str());
    version.map(str::to_owned).ok_or_else(|| "Cargo.toml has no version".into())
}

fn table(file: &Path) -> Result<toml::Table, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    text.parse().map_err(|error| format!("{}: {error}", file.display()))
}

/// A file that is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asset {
    /// Where it is now.
    pub source: PathBuf,
    /// Where it goes, from the root of the file system.
    pub target: String,
    /// Its mode.
    pub mode: u32,
}

/// The files of the package that come from the list: all but what cargo-deb adds (unit,
/// changelog, copyright).
///
/// # Errors
/// The list cannot be read, or names a file that is not there.
pub fn assets(root: &Path) -> Result<Vec<Asset>, String> {
    let folder = root.join(MANIFEST_FOLDER);
    let manifest = table(&folder.join("Cargo.toml"))?;
    let list = manifest.get("package").and_then(|part| part.get("metadata")?.get("deb")?.get("assets")?.as_array());
    let mut assets = Vec::new();
    for line in list.ok_or("crates/cli/Cargo.toml has no list of assets")? {
        let words: Option<Vec<&str>> =
            line.as_array().map(|words| words.iter().filter_map(|word| word.as_str()).collect());
        let Some([source, target, mode]) = words.as_deref() else {
            return Err(format!("an asset is [SOURCE, TARGET, MODE], not {line}"));
        };
        let mode = u32::from_str_radix(mode, 8).map_err(|error| format!("mode {mode}: {error}"))?;
        assets.extend(expanded(&folder.join(source), target, mode)?);
    }
    Ok(assets)
}

/// One asset, or one for each file that a `*` in the last part of its path stands for.
fn expanded(source: &Path, target: &str, mode: u32) -> Result<Vec<Asset>, String> {
    let name = source.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some((begin, end)) = name.split_once('*') else {
        let target = if target.ends_with('/') { format!("{target}{name}") } else { target.to_owned() };
        return Ok(vec![Asset { source: source.to_owned(), target, mode }]);
    };
    let folder = source.parent().unwrap_or(Path::new("."));
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(begin) && name.ends_with(end)).collect();
    names.sort();
    let asset = |name: String| Asset { source: folder.join(&name), target: format!("{target}{name}"), mode };
    let found: Vec<Asset> = names.into_iter().map(asset).collect();
    if found.is_empty() { Err(format!("{} names no file", source.display())) } else { Ok(found) }
}

/// Copies assets below `directory`.
///
/// # Errors
/// A file cannot be written.
pub fn install(assets: &[Asset], directory: &Path) -> Result<(), String> {
    for asset in assets {
        let file = directory.join(&asset.target);
        let failed = |error| format!("cannot install {}: {error}", file.display());
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        fs::copy(&asset.source, &file).map_err(failed)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(asset.mode)).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A package that names what is not there is found out only when somebody releases.
    #[test]
    fn every_listed_file_is_in_the_repository_or_made_by_staging() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let manifest = table(&root.join(MANIFEST_FOLDER).join("Cargo.toml")).unwrap();
        let list = manifest["package"]["metadata"]["deb"]["assets"].as_array().unwrap();
        let mut staged = 0;
        for line in list {
            let source = line[0].as_str().unwrap();
            if source.starts_with("../../target/package/") {
                staged += 1;
                continue;
            }
            let found = expanded(&root.join(MANIFEST_FOLDER).join(source), "x/", 0o644).unwrap();
            found.iter().for_each(|asset| assert!(asset.source.is_file(), "{} is missing", asset.source.display()));
        }
        // The program, the pages, and a completion for each shell.
        assert_eq!(staged, 2 + COMPLETIONS.len());
        assert!(expanded(&root.join("packaging/*.nothing"), "x/", 0o644).is_err());
    }

    /// `see docs/resp.md` helps nobody whose machine has no such page.
    #[test]
    fn pages_that_messages_name_are_in_the_package() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let manifest = table(&root.join(MANIFEST_FOLDER).join("Cargo.toml")).unwrap();
        let list = manifest["package"]["metadata"]["deb"]["assets"].as_array().unwrap();
        let pages = list.iter().filter(|line| line[0].as_str().is_some_and(|source| source.ends_with(".md")));
        let packed = pages.flat_map(|line| {
            let source = root.join(MANIFEST_FOLDER).join(line[0].as_str().unwrap());
            expanded(&source, line[1].as_str().unwrap(), 0o644).unwrap()
        });
        let packed: Vec<String> = packed.map(|asset| asset.target).collect();
        let table = fs::read_to_string(root.join("crates/server/src/connection/resp/table.rs")).unwrap();
        assert!(table.contains("see docs/resp.md"), "no message names a page any more");
        for page in ["docs/resp.md", "docs/operations.md", "README.md"] {
            let target = format!("usr/share/doc/stratakv/{page}");
            assert!(packed.contains(&target), "{page} is not in the package: {packed:?}");
        }
    }

    #[test]
    fn stars_stand_for_files_and_folders_keep_their_names() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let found = expanded(&root.join("src/main*"), "usr/src/", 0o600).unwrap();
        assert_eq!(found, [Asset { source: root.join("src/main.rs"), target: "usr/src/main.rs".into(), mode: 0o600 }]);
        let named = expanded(&root.join("Cargo.toml"), "usr/manifest", 0o644).unwrap();
        assert_eq!(named[0].target, "usr/manifest");
    }
}
