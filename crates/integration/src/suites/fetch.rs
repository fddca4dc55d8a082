//! Fetches the sources of suites, and what they need to run, with the package tools of their
//! languages.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Runner, Suite};

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

/// The project file of a suite that Maven runs, beside one that its checkout may have.
pub const MAVEN_FILE: &str = "suites-pom.xml";

/// The Gemfile of a suite that minitest runs, beside one that its checkout may have.
pub const GEM_FILE: &str = "suites-Gemfile";

/// Fetches a suite into `folder`, unless it is there. A suite whose package holds no tests is taken
/// from the checkout of its name in `sources`.
///
/// # Errors
/// What failed; `FOLDER/NAME/fetch.log` has what the tools said.
pub fn fetch(suite: &Suite, folder: &Path, sources: Option<&Path>) -> Result<Fetched, String> {
    let (name, version) = (suite.name, suite.version);
    let own = folder.join(name);
    std::fs::create_dir_all(&own).map_err(|error| format!("cannot make {}: {error}", own.display()))?;
    let python = folder.join("python");
    let source = match name {
        "pymemcache" | "pylibmc" => python_source(suite, folder, &own)?,
        "gomemcache" => go_source(version, &own)?,
        "memjs" => node_source(version, &own)?,
        _ => checkout(suite, &own, sources)?,
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
        let clients = super::SUITES.iter().filter(|suite| matches!(suite.runner, Runner::Pytest(_)));
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

/// Copies a checkout, and asks for the released library and for what its tests need beside it.
fn checkout(suite: &Suite, own: &Path, sources: Option<&Path>) -> Result<PathBuf, String> {
    let name = suite.name;
    let Some(sources) = sources else { return Err(unpublished(suite, own)) };
    let from = sources.join(name);
    if !from.is_dir() {
        return Err(format!("there is no folder `{name}` in the one that `--sources` names"));
    }
    let source = own.join("checkout");
    let failed = |error| format!("cannot copy the checkout of {name}: {error}");
    if source.exists() {
        std::fs::remove_dir_all(&source).map_err(failed)?;
    }
    copy(&from, &source).map_err(failed)?;
    match suite.runner {
        Runner::Maven(project) => {
            std::fs::write(source.join(MAVEN_FILE), project).map_err(failed)?;
            let mut maven = Command::new("mvn");
            maven.args(["--batch-mode", "-f", MAVEN_FILE, "-DskipTests", "test"]);
            tool_in(&mut maven, &source, own)?;
        }
        Runner::Minitest(gems) => {
            std::fs::write(source.join(GEM_FILE), gems).map_err(failed)?;
            let mut ruby = Command::new("ruby");
            tool_in(ruby.args(["-r", "bundler/setup", "-e", "0"]).env("BUNDLE_GEMFILE", GEM_FILE), &source, own)?;
        }
        Runner::Pytest(_) | Runner::Go | Runner::Tap => {}
    }
    Ok(source)
}

/// Looks for the tests of a client whose packages had none when this was written, and says what to
/// do.
fn unpublished(suite: &Suite, own: &Path) -> String {
    let mut look = match suite.runner {
        Runner::Maven(_) => {
            let artifact = format!("-Dartifact=net.spy:{}:{}:jar:test-sources", suite.name, suite.version);
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
    let name = suite.name;
    match tool(&mut look, own) {
        Ok(()) => format!("its sources can be had now: unpack them as `DIR/{name}`, and name DIR with `--sources`"),
        Err(why) => format!("{why}. With `--sources DIR` a checkout in `DIR/{name}` is run"),
    }
}

/// Copies a folder with all that is in it.
///
/// # Errors
/// A file cannot be read or written.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Runs a package tool in a suite's folder to its end. What it says goes to `fetch.log`.
fn tool(command: &mut Command, own: &Path) -> Result<(), String> {
    tool_in(command, own, own)
}

/// As [`tool`], in another folder.
fn tool_in(command: &mut Command, folder: &Path, own: &Path) -> Result<(), String> {
    let log = own.join("fetch.log");
    let file = File::options().create(true).append(true).open(&log);
    let file = file.map_err(|error| format!("cannot write {}: {error}", log.display()))?;
    let errors = file.try_clone().map_err(|error| format!("cannot write {}: {error}", log.display()))?;
    let name = words(command);
    command.current_dir(folder).stdin(Stdio::null()).stdout(file).stderr(errors);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::named;

    #[test]
    fn a_checkout_is_taken_from_the_folder_of_its_name_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let (work, sources) = (folder.path().join("work"), folder.path().join("sources"));
        std::fs::create_dir_all(sources.join("other/test")).expect("a folder");
        let missing = fetch(named("dalli").expect("it is in the list"), &work, Some(&sources));
        assert!(missing.expect_err("it is not there").contains("no folder `dalli`"));
    }

    #[test]
    fn a_copied_folder_has_all_that_is_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        std::fs::create_dir_all(from.join("test/helpers")).expect("a folder");
        std::fs::write(from.join("test/helpers/one.rb"), "1").expect("a file");
        copy(&from, &to).expect("it can be read");
        assert_eq!(std::fs::read(to.join("test/helpers/one.rb")).expect("it was copied"), b"1");
    }
}
