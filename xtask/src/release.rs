//! `cargo xtask release`: what is handed out of a version. A tarball, the package of Debian, a bill
//! of materials, and the checksums of all of them, the same bytes from the same commit.

mod materials;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::{cargo, succeed, tell_commit};
use crate::package::{pack, staging};
use crate::serving::with_directory_in;

const USAGE: &str = "\
usage: cargo xtask release --out DIR [OPTIONS]
  --out DIR        a new or empty directory
  --profile NAME   build the program with this profile [default: release]
  --binary FILE    hand out this program, and build none
  --twice          make everything twice, the program in two folders, and compare byte by byte";
/// Texts that a tarball has at its top, beside the files of the package.
const TEXTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];
/// What cargo-deb adds to the list of files: a tarball has it too.
const UNIT: (&str, &str) = ("packaging/systemd/stratakv.service", "usr/lib/systemd/system/stratakv.service");

/// What is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    out: PathBuf,
    profile: Option<String>,
    binary: Option<PathBuf>,
    twice: bool,
}

/// Runs the command.
///
/// # Errors
/// What is missing, what failed, or with `--twice` what differs.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let options = parse(arguments)?;
    let failed = |error: std::io::Error| format!("{}: {error}", options.out.display());
    fs::create_dir_all(&options.out).map_err(failed)?;
    if fs::read_dir(&options.out).map_err(failed)?.next().is_some() {
        return Err(format!("{} is not empty: name a new directory", options.out.display()));
    }
    let out = options.out.canonicalize().map_err(failed)?;
    make(root, &out, &program(root, &options, "reproducible")?)?;
    if options.twice {
        with_directory_in(&staging::folder(root), "again", |again| {
            make(root, again, &program(root, &options, "reproducible-again")?)?;
            compare(&out, again)
        })?;
    }
    println!("release: {}", out.display());
    Ok(())
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
        match word.as_str() {
            "--out" => options.out = value()?.into(),
            "--profile" => options.profile = Some(value()?),
            "--binary" => options.binary = Some(value()?.into()),
            "--twice" => options.twice = true,
            _ => return Err(USAGE.into()),
        }
    }
    if options.out.as_os_str().is_empty() || (options.profile.is_some() && options.binary.is_some()) {
        return Err(USAGE.into());
    }
    Ok(options)
}

/// The program: the one that is named, or one built in a folder of its own, without the names of
/// this machine's folders in it.
fn program(root: &Path, options: &Options, folder: &str) -> Result<PathBuf, String> {
    if let Some(binary) = &options.binary {
        return Ok(binary.clone());
    }
    let profile = options.profile.as_deref().unwrap_or("release");
    let target = root.join("target").join(folder);
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let mut flags = vec![format!("--remap-path-prefix={}=/source", root.display())];
    flags.extend(home.map(|home| format!("--remap-path-prefix={}=/cargo", home.display())));
    let mut command = cargo(root);
    command.args(["build", "--locked", "--package", "stratakv-cli", "--profile", profile, "--target-dir"]);
    command.arg(&target).env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    tell_commit(root, &mut command);
    succeed("build", command.env("SOURCE_DATE_EPOCH", epoch(root)))?;
    Ok(target.join(if profile == "dev" { "debug" } else { profile }).join("stratakv"))
}

/// The time of the commit, in seconds: what is made of it carries this time.
fn epoch(root: &Path) -> String {
    let output = Command::new("git").current_dir(root).args(["log", "-1", "--format=%ct"]).output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let text = text.and_then(|text| String::from_utf8(text).ok()).unwrap_or_default();
    if text.trim().is_empty() { "0".to_owned() } else { text.trim().to_owned() }
}

/// Makes all files of a release in `out`.
fn make(root: &Path, out: &Path, binary: &Path) -> Result<(), String> {
    let epoch = epoch(root);
    staging::stage(root, None, Some(binary))?;
    pack(root, out, None, Some(&epoch))?;
    let name = format!("stratakv-{}-{}-linux", staging::version(root)?, std::env::consts::ARCH);
    tarball(root, out, &name, &epoch)?;
    let materials = materials::of(root)?;
    let text = serde_json::to_string_pretty(&materials).map_err(|error| error.to_string())?;
    let file = out.join(format!("{name}.cdx.json"));
    fs::write(&file, text + "\n").map_err(|error| format!("{}: {error}", file.display()))?;
    checksums(out)
}

/// The package's files below a folder, always in the same order, of nobody, from the same time.
fn tarball(root: &Path, out: &Path, name: &str, epoch: &str) -> Result<(), String> {
    with_directory_in(&staging::folder(root), "tarball", |directory| {
        let top = directory.join(name);
        let asset = |source: &str, target: &str| staging::Asset {
            source: root.join(source),
            target: target.to_owned(),
            mode: 0o644,
        };
        let mut assets = staging::assets(root)?;
        assets.push(asset(UNIT.0, UNIT.1));
        assets.extend(TEXTS.iter().map(|text| asset(text, text)));
        staging::install(&assets, &top)?;
        let archive = out.join(format!("{name}.tar"));
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"]);
        tar.arg(format!("--mtime=@{epoch}")).arg("-C").arg(directory).arg("-cf").arg(&archive).arg(name);
        succeed("tar", &mut tar)?;
        // Without its name and time.
        succeed("gzip", Command::new("gzip").args(["--no-name", "--best", "--force"]).arg(&archive))
    })
}

/// `SHA256SUMS`, as `sha256sum --check` reads it.
fn checksums(out: &Path) -> Result<(), String> {
    let names = names(out)?;
    let output = Command::new("sha256sum").current_dir(out).args(&names).output();
    let output = output.map_err(|error| format!("cannot start sha256sum: {error}"))?;
    if !output.status.success() {
        return Err(format!("sha256sum failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    fs::write(out.join("SHA256SUMS"), output.stdout).map_err(|error| format!("SHA256SUMS: {error}"))
}

/// Names of the files in a folder, in order.
fn names(folder: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

/// Compares two folders file by file.
fn compare(one: &Path, other: &Path) -> Result<(), String> {
    let (ours, theirs) = (names(one)?, names(other)?);
    if ours != theirs {
        return Err(format!("the second time there were other files: {theirs:?}, not {ours:?}"));
    }
    let read = |file: &Path| fs::read(file).map_err(|error| format!("{}: {error}", file.display()));
    let mut differing = Vec::new();
    for name in &ours {
        let (first, second) = (read(&one.join(name))?, read(&other.join(name))?);
        let at = first.iter().zip(&second).position(|(a, b)| a != b);
        match at {
            None if first.len() == second.len() => println!("release: {name} is the same twice"),
            at => {
                let place = at.map_or("at the end of the shorter one".to_owned(), |at| format!("at byte {at}"));
                differing.push(format!("{name} ({} and {} bytes, {place})", first.len(), second.len()));
            }
        }
    }
    if differing.is_empty() { Ok(()) } else { Err(format!("not the same twice: {}", differing.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_compared_byte_by_byte() {
        let folder = std::env::temp_dir().join(format!("stratakv-release-{}", std::process::id()));
        let (one, other) = (folder.join("one"), folder.join("other"));
        for part in [&one, &other] {
            fs::create_dir_all(part).unwrap();
            fs::write(part.join("same"), b"same").unwrap();
        }
        assert_eq!(compare(&one, &other), Ok(()));
        fs::write(other.join("same"), b"sane").unwrap();
        assert!(compare(&one, &other).unwrap_err().contains("same (4 and 4 bytes, at byte 2)"));
        fs::write(other.join("same"), b"same and more").unwrap();
        assert!(compare(&one, &other).unwrap_err().contains("at the end of the shorter one"));
        fs::write(other.join("more"), b"").unwrap();
        assert!(compare(&one, &other).unwrap_err().contains("other files"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_place_must_be_named() {
        let parsed = |words: &[&str]| parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert!(parsed(&["--out", "x", "--twice"]).unwrap().twice);
        for wrong in [&[][..], &["--out"], &["--twice"], &["--out", "x", "--binary", "p", "--profile", "dev"]] {
            assert!(parsed(wrong).unwrap_err().contains("usage:"), "{wrong:?}");
        }
    }
}
