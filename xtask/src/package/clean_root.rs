//! A clean root of this machine's release of Debian, made by mmdebstrap once and kept as an
//! archive, and systemd started in a copy of it.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::cargo::succeed;
use crate::requirement::{Lack, Stop};
use crate::serving::own_name;

/// What the package needs beside the base, and what its test does.
const PACKAGES: &str = "systemd,systemd-sysv,dbus";
/// How long the test may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// How old its archive may be: Debian mends its packages.
const AGE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// Where the test's files are in the root.
const FOLDER: &str = "install-test";
/// What the test prints last, if all was well.
const PASSED: &str = "install-test: PASSED";

/// The test as the one task of a boot.
const UNIT: &str = "\
[Unit]
Description=The package's test
After=multi-user.target

[Service]
Type=oneshot
ExecStart=/bin/sh /install-test/run
StandardOutput=file:/install-test/log
StandardError=inherit
ExecStopPost=/bin/systemctl --no-block poweroff
TimeoutStartSec=10min

[Install]
WantedBy=multi-user.target
";

/// Whether this machine can have a clean root.
///
/// # Errors
/// What it lacks.
pub fn check() -> Result<(), Lack> {
    let has = |program: &str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
        found.is_ok_and(|status| status.success())
    };
    is_debian()?;
    if !is_root() {
        return Err(Lack::Given("a clean root takes root: run this with sudo".into()));
    }
    let mut namespaces = Command::new("unshare");
    namespaces.args(["--mount", "--pid", "--fork", "--net", "true"]).stderr(Stdio::null());
    if !namespaces.status().is_ok_and(|status| status.success()) {
        return Err(Lack::Given("a clean root takes namespaces, which this machine lets even root not make".into()));
    }
    let tools = [("mmdebstrap", "mmdebstrap"), ("systemd-nspawn", "systemd-container"), ("tar", "tar")];
    match tools.into_iter().find(|(program, _)| !has(program)) {
        Some((program, package)) => Err(Lack::Tool(format!("{program} is not installed (Debian: {package})"))),
        None => Ok(()),
    }
}

/// Whether this machine has the tools of Debian in its archive.
///
/// # Errors
/// It is of another kind.
pub fn is_debian() -> Result<(), Lack> {
    suite().map(|_| ())
}

/// Whether this process may change owners and roots.
pub fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout == b"0\n")
}

/// This machine's release of Debian, such as `bookworm`: what is built here needs its libraries.
fn suite() -> Result<String, Lack> {
    suite_in(&fs::read_to_string("/etc/os-release").unwrap_or_default())
}

fn suite_in(release: &str) -> Result<String, Lack> {
    let field =
        |name: &str| release.lines().find_map(|line| line.strip_prefix(name)).map(|text| text.trim_matches('"'));
    let is_debian = [field("ID="), field("ID_LIKE=")].into_iter().flatten().any(|ids| ids.contains("debian"));
    let suite = field("VERSION_CODENAME=").filter(|_| is_debian);
    suite.map(str::to_owned).ok_or_else(|| Lack::Given("/etc/os-release names no release of Debian".into()))
}

/// The archive's name, with a hash of the packages in it.
fn archive_name(suite: &str, packages: &str) -> String {
    let mut hasher = DefaultHasher::new();
    packages.hash(&mut hasher);
    format!("clean-root-{suite}-{:016x}.tar", hasher.finish())
}

/// The archive of a clean root in `folder`; made if it is not there, or old. mmdebstrap makes one
/// in a third of debootstrap's time: it installs all packages at once, without a flush for each
/// file.
///
/// # Errors
/// This is no Debian, or mmdebstrap fails, as without a mirror.
pub fn archive(folder: &Path) -> Result<PathBuf, Stop> {
    let suite = suite()?;
    let archive = folder.join(archive_name(&suite, PACKAGES));
    let written = fs::metadata(&archive).and_then(|found| found.modified());
    if written.as_ref().is_ok_and(|written| written.elapsed().is_ok_and(|age| age < AGE_MAX)) {
        return Ok(archive);
    }
    let partial = own_name(folder, "clean-root");
    let mut command = Command::new("mmdebstrap");
    command.args(["--quiet", "--variant=minbase", "--format=tar", &format!("--include={PACKAGES}"), &suite]);
    if let Err(why) = succeed("mmdebstrap", command.arg(&partial)) {
        // It may not be there.
        let _ = fs::remove_file(&partial);
        // An old one serves where the mirror does not.
        let lack = Lack::Given(format!("no clean root of Debian {suite}: {why}"));
        return written.map(|_| archive).map_err(|_| lack.into());
    }
    fs::rename(&partial, &archive).map_err(|error| format!("{}: {error}", archive.display()))?;
    Ok(archive)
}

/// Unpacks a clean root.
///
/// # Errors
/// tar fails, as where the kernel lets nobody make devices.
pub fn unpack(archive: &Path, directory: &Path) -> Result<(), Stop> {
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let unpacked = succeed("tar", Command::new("tar").arg("-C").arg(directory).arg("-xpf").arg(archive));
    unpacked.map_err(|why| Lack::Given(format!("the clean root cannot be unpacked: {why}")).into())
}

/// Boots the root with these files in a folder of it; the one called `run` is the test. It has no
/// network but its own loopback.
///
/// # Errors
/// What the test printed, if it did not pass; or this kernel boots no container.
pub fn boot(directory: &Path, files: &[(&Path, &str)]) -> Result<(), Stop> {
    let folder = directory.join(FOLDER);
    let failed = |error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    for (file, name) in files {
        fs::copy(file, folder.join(name)).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let units = directory.join("etc/systemd/system");
    let wanted = units.join("multi-user.target.wants");
    fs::create_dir_all(&wanted).map_err(failed)?;
    fs::write(units.join("install-test.service"), UNIT).map_err(failed)?;
    std::os::unix::fs::symlink("../install-test.service", wanted.join("install-test.service")).map_err(failed)?;
    let mut command = Command::new("timeout");
    command.arg("--kill-after=30").arg(PATIENCE.as_secs().to_string());
    command.args(["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network", "--boot", "-D"]);
    // The container's own filter has no io_uring: what the unit forbids is to be seen, not that.
    command.arg(directory).env("SYSTEMD_SECCOMP", "0").stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status().map_err(|error| format!("cannot start systemd-nspawn: {error}"))?;
    let log = fs::read(folder.join("log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    println!("{}", log.trim_end());
    outcome(&log, status)
}

/// What came of a boot that left this log. Without one the test did not begin: nothing of the
/// product had a part in that, unless it took all the time that there is.
fn outcome(log: &str, status: ExitStatus) -> Result<(), Stop> {
    let is_out_of_time = matches!(status.code(), Some(124 | 137));
    match log.lines().any(|line| line == PASSED) {
        true => Ok(()),
        false if log.is_empty() && !status.success() && !is_out_of_time => {
            Err(Lack::Given(format!("systemd-nspawn cannot boot a container here ({status})")).into())
        }
        false => Err(format!("the test in the clean root did not pass (systemd-nspawn: {status})").into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_boot_that_is_refused_is_no_failure_of_the_package() {
        let ended = |log: &str, code: i32| outcome(log, ExitStatus::from_raw(code << 8));
        assert_eq!(ended("install-test: write\ninstall-test: PASSED\n", 0), Ok(()));
        assert!(matches!(ended("", 1), Err(Stop::Lacks(Lack::Given(_)))));
        for (log, code) in [("install-test: FAILED: x", 1), ("install-test: install", 0), ("", 0), ("", 124)] {
            assert!(matches!(ended(log, code), Err(Stop::Failed(_))), "{log}, {code}");
        }
    }

    #[test]
    fn a_machine_without_debian_is_told_from_one_with_it() {
        assert_eq!(suite_in("ID=debian\nVERSION_CODENAME=bookworm\n"), Ok("bookworm".to_owned()));
        assert_eq!(suite_in("ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=\"noble\"\n"), Ok("noble".to_owned()));
        for other in ["", "ID=fedora\nVERSION_CODENAME=\"\"\n", "ID=debian\n"] {
            assert!(matches!(suite_in(other), Err(Lack::Given(_))), "{other}");
        }
    }

    #[test]
    fn an_archive_of_other_packages_has_another_name() {
        let name = archive_name("bookworm", "systemd,dbus");
        assert_eq!(name, archive_name("bookworm", "systemd,dbus"));
        assert_ne!(name, archive_name("bookworm", "systemd,dbus,procps"));
        assert!(name.starts_with("clean-root-bookworm-"));
    }
}
