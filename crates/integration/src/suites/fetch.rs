//! Fetches the sources of suites, and what they need to run, with the package tools of their
//! languages.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Suite;

/// What the Python suites need beside the clients: the runner, and what their tests import.
const PYTHON_PACKAGES: &[&str] = &["pytest==9.2.0", "Faker", "gevent", "zstd", "python-memcached"];

/// node-tap of the series that memjs names.
const TAP: &str = "tap@~4.0.0";

/// The module of gomemcache.
const GO_MODULE: &str = "github.com/bradfitz/gomemcache";

/// A suite that is here.
#[derive(Debug)]
pub struct Fetched {
    /// Its sources; nothing is changed in them.
    pub source: PathBuf,
    /// A folder of Python packages, if it is one of Python's.
    pub python: PathBuf,
}

/// Fetches a suite into `folder`, unless it is there.
///
/// # Errors
/// What failed; `FOLDER/NAME/fetch.log` has what the tools said.
pub fn fetch(suite: &Suite, folder: &Path) -> Result<Fetched, String> {
    let (name, version) = (suite.name, suite.version);
    let own = folder.join(name);
    std::fs::create_dir_all(&own).map_err(|error| format!("cannot make {}: {error}", own.display()))?;
    let python = folder.join("python");
    let source = match name {
        "pymemcache" | "pylibmc" => python_source(suite, folder, &own)?,
        "gomemcache" => go_source(version, &own)?,
        "memjs" => node_source(version, &own)?,
        _ => return Err(unpublished(suite, &own)),
    };
    Ok(Fetched { source, python })
}

fn python_source(suite: &Suite, folder: &Path, own: &Path) -> Result<PathBuf, String> {
    let requirement = format!("{}=={}", suite.name, suite.version);
    let source = own.join(format!("{}-{}", suite.name, suite.version));
    if !source.is_dir() {
        let mut download = Command::new("python3");
        download.args(["-m", "pip", "download", "--no-deps", "--no-binary=:all:", "--dest", ".", &requirement]);
        tool(&mut download, own)?;
        tool(Command::new("tar").arg("xzf").arg(format!("{}.tar.gz", source.display())), own)?;
    }
    let installed = folder.join("python").join(format!("{}-{}.dist-info", suite.name, suite.version));
    if !installed.is_dir() {
        let mut install = Command::new("python3");
        install.args(["-m", "pip", "install", "--upgrade", "--target"]).arg(folder.join("python"));
        // Both clients, as benchmarks of one compare it with the other.
        let clients = super::SUITES.iter().filter(|suite| matches!(suite.runner, super::Runner::Pytest(_)));
        install.args(PYTHON_PACKAGES).args(clients.map(|suite| format!("{}=={}", suite.name, suite.version)));
        tool(&mut install, own)?;
    }
    Ok(source)
}

fn go_source(version: &str, own: &Path) -> Result<PathBuf, String> {
    let modules = own.join("modules");
    let source = modules.join(format!("{GO_MODULE}@{version}"));
    if !source.is_dir() {
        let mut download = Command::new("go");
        download.args(["mod", "download", "-modcacherw", &format!("{GO_MODULE}@{version}")]);
        tool(download.env("GOMODCACHE", &modules), own)?;
    }
    Ok(source)
}

fn node_source(version: &str, own: &Path) -> Result<PathBuf, String> {
    let source = own.join("package");
    if !source.is_dir() {
        tool(Command::new("npm").args(["pack", &format!("memjs@{version}")]), own)?;
        tool(Command::new("tar").arg("xzf").arg(format!("memjs-{version}.tgz")), own)?;
    }
    if !own.join("node_modules/tap").is_dir() {
        let mut install = Command::new("npm");
        install.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", ".", TAP]);
        tool(&mut install, own)?;
    }
    Ok(source)
}

/// Looks for the tests of a client whose packages had none when this was written.
fn unpublished(suite: &Suite, own: &Path) -> String {
    let mut look = match suite.name {
        "spymemcached" => {
            let artifact = format!("-Dartifact=net.spy:spymemcached:{}:jar:test-sources", suite.version);
            let mut maven = Command::new("mvn");
            maven.args(["--batch-mode", "dependency:get", "-Dtransitive=false", &artifact]);
            maven
        }
        _ => {
            let mut source = Command::new("apt-get");
            source.args(["source", "--download-only", &format!("ruby-{}", suite.name)]);
            source
        }
    };
    match tool(&mut look, own) {
        Ok(()) => "its sources can be had now, and how to run its tests is not written yet".to_owned(),
        Err(why) => why,
    }
}

/// Runs a package tool in a suite's folder to its end. What it says goes to `fetch.log`.
fn tool(command: &mut Command, own: &Path) -> Result<(), String> {
    let log = own.join("fetch.log");
    let file = File::options().create(true).append(true).open(&log);
    let file = file.map_err(|error| format!("cannot write {}: {error}", log.display()))?;
    let errors = file.try_clone().map_err(|error| format!("cannot write {}: {error}", log.display()))?;
    let name = words(command);
    command.current_dir(own).stdin(Stdio::null()).stdout(file).stderr(errors);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("`{name}` fails")),
        Err(_) => Err(format!("`{name}` cannot be started: it is not installed")),
    }
}

/// A command and its first words, without paths.
fn words(command: &Command) -> String {
    let program = command.get_program().to_string_lossy().into_owned();
    let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
    let plain = words.filter(|word| !word.starts_with('/') && !word.starts_with("--"));
    std::iter::once(program).chain(plain).collect::<Vec<_>>().join(" ")
}
