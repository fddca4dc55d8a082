//! `cargo xtask python`: builds the wheel of `python/`, installs it into a new virtual environment,
//! and runs its tests there; its types are compared with what it has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::{hide_caller, succeed};
use crate::requirement::{Lack, Stop, judge};
use crate::toolchain::target_directory;

const USAGE: &str = "\
usage: cargo xtask python [--release] [-- ARGUMENTS OF PYTEST]

  Builds the wheel (with --release as it is released, which takes minutes), installs it into a new
  virtual environment, target/python/venv, and runs python/tests and the type checkers there. It
  needs Python 3.11 or newer (Debian: python3, python3-venv), and the package index for maturin,
  pytest, numpy and mypy.";

/// What builds the wheel, and what the tests need beside it. The builder depends on nothing, so it
/// may lie in the environment of the tests.
const TOOLS: [&str; 4] = ["maturin>=1.9,<2", "pytest>=8", "numpy", "mypy>=1.18"];

/// Runs the command. Without Python or the package index it says so; without Python, CI fails.
///
/// # Errors
/// What failed: the build, the tests, the types.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let (own, pytest) = match arguments.iter().position(|word| word == "--") {
        Some(at) => (&arguments[..at], &arguments[at + 1..]),
        None => (arguments, &[][..]),
    };
    let profile = match own {
        [] => "dev",
        [word] if word == "--release" => "release",
        _ => return Err(format!("cannot do this\n\n{USAGE}")),
    };
    judge(has_python().map_err(Stop::from).and_then(|()| make_and_test(root, profile, pytest)))
}

fn make_and_test(root: &Path, profile: &str, pytest: &[String]) -> Result<(), Stop> {
    let place = target_directory(root).join("python");
    let venv = place.join("venv");
    new_environment(&venv)?;
    pip(&venv, &TOOLS)?;
    let wheel = build(root, &place, profile)?;
    println!("python: {}", wheel.display());
    succeed(
        "the installation of the wheel",
        python(&venv).args(["-m", "pip", "install", "-q", "--no-deps"]).arg(&wheel),
    )?;
    Ok(test(root, &place, pytest)?)
}

/// Whether there is a Python that the wheel is for, with virtual environments.
fn has_python() -> Result<(), Lack> {
    let probe = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))";
    let output = Command::new("python3").args(["-c", probe]).output();
    match output.is_ok_and(|output| output.status.success()) {
        true => Ok(()),
        false => Err(Lack::Tool(
            "the Python library needs python3 from 3.11 on, with venv (Debian: python3, python3-venv)".into(),
        )),
    }
}

/// Builds the wheel; where it is.
fn build(root: &Path, place: &Path, profile: &str) -> Result<PathBuf, String> {
    let wheels = place.join("wheels").join(profile);
    let _ = fs::remove_dir_all(&wheels); // there is none the first time
    let mut maturin = Command::new(place.join("venv/bin/maturin"));
    maturin.current_dir(root.join("python")).args(["build", "--quiet", "--locked", "--profile", profile, "--out"]);
    maturin.arg(&wheels).arg("--target-dir").arg(place.join("build"));
    hide_caller(maturin.env("CARGO_INCREMENTAL", "0"));
    succeed("the build of the wheel", &mut maturin)?;
    let found = fs::read_dir(&wheels).map_err(|error| format!("cannot list {}: {error}", wheels.display()))?;
    let mut files = found.flatten().map(|entry| entry.path());
    let wheel = files.find(|file| file.extension().is_some_and(|ending| ending == "whl"));
    wheel.ok_or_else(|| format!("maturin left no wheel in {}", wheels.display()))
}

/// A virtual environment in which nothing is installed.
fn new_environment(folder: &Path) -> Result<(), String> {
    succeed("the virtual environment", Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder))
}

/// Installs packages of the package index.
fn pip(venv: &Path, packages: &[&str]) -> Result<(), Stop> {
    let output = python(venv).args(["-m", "pip", "install", "-q"]).args(packages).output();
    let output = output.map_err(|error| format!("cannot start pip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    eprintln!("{}", said.trim_end());
    Err(refused_by_pip(&said, packages))
}

/// Why pip installed nothing: the index cannot be reached, or it has other packages than these.
fn refused_by_pip(said: &str, packages: &[&str]) -> Stop {
    let packages = packages.join(", ");
    let signs = ["connection broken by", "Max retries exceeded", "ReadTimeoutError", "Could not fetch URL"];
    match signs.iter().any(|sign| said.contains(sign)) {
        true => Lack::Given(format!("the package index, for {packages}, cannot be reached")).into(),
        false => format!("pip failed: {packages} are to come from the package index").into(),
    }
}

fn python(venv: &Path) -> Command {
    let mut python = Command::new(venv.join("bin/python"));
    // Of the caller's, nothing is to be found.
    python.env_remove("PYTHONPATH").env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    python
}

/// The tests, and the types: those of the tests, and the stub beside what the module has.
fn test(root: &Path, place: &Path, pytest: &[String]) -> Result<(), String> {
    let venv = place.join("venv");
    // From where `python/stratakv` is not in the path: the wheel is tested, not the sources.
    let begin = |words: &[&str]| {
        let mut command = python(&venv);
        command.current_dir(place).args(words).env("STRATAKV_REPOSITORY", root);
        command.env("MYPY_CACHE_DIR", place.join("mypy"));
        command
    };
    let tests = root.join("python/tests");
    let ours = root.join("python/pyproject.toml");
    let mut run_tests = begin(&["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c"]);
    succeed("the Python library's tests", run_tests.arg(&ours).arg("--rootdir").arg(&tests).arg(&tests).args(pytest))?;
    succeed("the types of its tests", begin(&["-m", "mypy", "--strict"]).arg(tests.join("typed.py")))?;
    let mut stubs =
        begin(&["-m", "mypy.stubtest", "--ignore-disjoint-bases", "--ignore-unused-allowlist", "--allowlist"]);
    succeed("its stub beside the module", stubs.arg(tests.join("stubtest.txt")).arg("stratakv"))?;
    println!("python: the library's tests and types pass");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_the_workspaces() {
        let manifest = fs::read_to_string(crate::repository().join("python/Cargo.toml")).expect("it is there");
        let version = manifest.lines().find_map(|line| line.strip_prefix("version = "));
        assert_eq!(version, Some(concat!('"', env!("CARGO_PKG_VERSION"), '"')));
    }

    #[test]
    fn an_index_out_of_reach_is_told_from_a_package_that_it_has_not() {
        let retried = "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError(...)'";
        assert!(matches!(refused_by_pip(retried, &TOOLS), Stop::Lacks(Lack::Given(_))));
        let absent = "ERROR: Could not find a version that satisfies the requirement maturin<0 (from versions: 1.9)";
        assert!(matches!(refused_by_pip(absent, &TOOLS), Stop::Failed(_)));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let refused = run(Path::new("/nowhere"), &["--debug".to_owned()]);
        assert!(refused.is_err_and(|why| why.contains("usage: cargo xtask python")));
    }
}
