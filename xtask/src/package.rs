//! `cargo xtask package`: the package of Debian, and what else is made of the same list of files:
//! the root of an image, and a test of all of it in a clean root.

mod clean_root;
mod image;
pub mod staging;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::{hide_caller, succeed};
use crate::requirement::{Lack, Stop, judge};
use crate::serving::{remove_leftovers, with_directory_in};
use crate::tool::Tool;

const USAGE: &str = "\
usage: cargo xtask package [OPTIONS]
  --profile NAME     build the program with this profile [default: release]
  --binary FILE      pack this program, and build none
  --out DIR          where the package goes [default: target/package]
  --test             install, upgrade, remove and purge the package in a clean root under systemd
  --from FILE.deb    with --test: the older package that is upgraded [default: the same program]
  --image-root DIR   make DIR, which is absent or empty, the root of a container's image
  --run-image        serve from that root, or from one of its own, as a container's runtime would
Without --test the two about the image make no package.";

/// What makes packages. Optimised it is built in twice the time, and packs no faster.
const CARGO_DEB: Tool = Tool { name: "cargo-deb", version: "3.8.0", is_exact: false, options: &["--debug"] };

/// What is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    profile: Option<String>,
    binary: Option<PathBuf>,
    out: Option<PathBuf>,
    test: bool,
    from: Option<PathBuf>,
    image_root: Option<PathBuf>,
    run_image: bool,
}

/// Runs the command.
///
/// # Errors
/// What is missing, or what failed.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let options = parse(arguments)?;
    staging::stage(root, options.profile.as_deref(), options.binary.as_deref())?;
    remove_leftovers(&staging::folder(root));
    let image = |directory: &Path| {
        image::make(root, directory)?;
        if options.run_image { judge(image::run(root, directory)) } else { Ok(()) }
    };
    match &options.image_root {
        Some(directory) => image(directory)?,
        None if options.run_image => with_directory_in(&staging::folder(root), "image", image)?,
        None => {}
    }
    let is_about_image = options.image_root.is_some() || options.run_image;
    if is_about_image && !options.test { Ok(()) } else { make_package(root, &options) }
}

/// Makes the package, lets lintian look, and tests it if that is asked for.
fn make_package(root: &Path, options: &Options) -> Result<(), String> {
    let out = options.out.clone().unwrap_or_else(|| staging::folder(root));
    let package = pack(root, &out, None, None)?;
    println!("package: {}", package.display());
    judge(lint(&package))?;
    match options.test {
        true => judge(test(root, &package, options.from.as_deref())),
        false => Ok(()),
    }
}

/// Writes the manual pages into the folder that the arguments name (`cargo xtask man DIR`).
///
/// # Errors
/// The folder cannot be made, or the program does not build.
pub fn man(root: &Path, arguments: &[String]) -> Result<(), String> {
    let [directory] = arguments else { return Err("usage: cargo xtask man DIR".into()) };
    staging::build(root, "dev")?;
    let directory = root.join(directory);
    std::fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let program = crate::cargo::built(root, "dev", "stratakv");
    succeed("stratakv man", Command::new(program).args(["man", "--out"]).arg(&directory))
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
        match word.as_str() {
            "--profile" => options.profile = Some(value()?),
            "--binary" => options.binary = Some(value()?.into()),
            "--out" => options.out = Some(value()?.into()),
            "--from" => options.from = Some(value()?.into()),
            "--image-root" => options.image_root = Some(value()?.into()),
            "--test" => options.test = true,
            "--run-image" => options.run_image = true,
            _ => return Err(USAGE.into()),
        }
    }
    if options.profile.is_some() && options.binary.is_some() {
        return Err(format!("--profile builds a program, --binary names one: give one of the two\n{USAGE}"));
    }
    Ok(options)
}

/// Makes the package of what is staged, in `out`; of this version, if it is to have another one
/// than the program, and with the time `epoch`, in seconds, on all of its files. Answers its path.
///
/// # Errors
/// cargo-deb cannot be had, or refuses.
pub fn pack(root: &Path, out: &Path, version: Option<&str>, epoch: Option<&str>) -> Result<PathBuf, String> {
    std::fs::create_dir_all(out).map_err(|error| format!("{}: {error}", out.display()))?;
    let mut command = Command::new(CARGO_DEB.find(root)?);
    hide_caller(command.current_dir(root));
    command.args(["--quiet", "--package", "stratakv-cli", "--no-build", "--no-strip", "--output"]).arg(out);
    match version {
        // It is for a test: how small it is does not matter.
        Some(version) => command.args(["--fast", "--deb-version", version]),
        None => &mut command,
    };
    if let Some(epoch) = epoch {
        command.env("SOURCE_DATE_EPOCH", epoch);
    }
    let output = command.stdout(Stdio::piped()).output().map_err(|error| format!("cannot start cargo-deb: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo-deb failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(root.join(path))
}

/// Lets lintian look at the package, where it is installed.
fn lint(package: &Path) -> Result<(), Stop> {
    let lintian = |arguments: &[&str]| {
        let mut command = Command::new("lintian");
        command.args(arguments);
        command
    };
    let has_lintian = lintian(&["--version"]).stdout(Stdio::null()).status().is_ok();
    if !has_lintian {
        let lacks = clean_root::is_debian().map(|()| Lack::Tool("lintian is not installed (Debian: lintian)".into()));
        return Err(lacks.unwrap_or_else(|lack| lack).into());
    }
    Ok(succeed("lintian", lintian(&["--allow-root", "--fail-on", "error,warning"]).arg(package))?)
}

/// Installs the package in a clean root, upgrades it, removes and purges it, under systemd.
fn test(root: &Path, package: &Path, from: Option<&Path>) -> Result<(), Stop> {
    clean_root::check()?;
    let folder = staging::folder(root);
    let older = match from {
        Some(file) => file.to_owned(),
        None => pack(root, &folder.join("older"), Some(&format!("{}~older-1", staging::version(root)?)), None)?,
    };
    let archive = clean_root::archive(&folder)?;
    Ok(with_directory_in(&folder, "install-test", |directory| {
        let script = root.join("packaging/install-test.sh");
        let files = [(script.as_path(), "run"), (older.as_path(), "old.deb"), (package, "new.deb")];
        judge(clean_root::unpack(&archive, directory).and_then(|()| clean_root::boot(directory, &files)))
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Options, String> {
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_taken_and_contradictions_refused() {
        let options = parsed(&["--binary", "p", "--test", "--from", "old.deb"]).unwrap();
        assert_eq!((options.binary, options.test), (Some("p".into()), true));
        assert_eq!(options.from, Some("old.deb".into()));
        for wrong in [&["--binary"][..], &["--profile", "dev", "--binary", "p"], &["test"], &["--image-root"]] {
            assert!(parsed(wrong).unwrap_err().contains("usage:"), "{wrong:?}");
        }
    }
}
