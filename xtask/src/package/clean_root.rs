//! A clean root of this machine's release of Debian, made by mmdebstrap once and kept as an
//! archive, and systemd started in a copy of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cargo::succeed;

/// What the package needs beside the base, and what its test does.
const PACKAGES: &str = "systemd,systemd-sysv,dbus";
/// How long the test may take.
const PATIENCE: Duration = Duration::from_secs(600);
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

/// What this machine lacks for it.
pub fn missing() -> Option<String> {
    let has = |program: &str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
        found.is_ok_and(|status| status.success())
    };
    if !is_root() {
        return Some("a clean root takes root: run this with sudo".into());
    }
    let tools = [("mmdebstrap", "mmdebstrap"), ("systemd-nspawn", "systemd-container"), ("tar", "tar")];
    if let Some((program, package)) = tools.into_iter().find(|(program, _)| !has(program)) {
        return Some(format!("{program} is not installed (Debian: {package})"));
    }
    let mut namespaces = Command::new("unshare");
    namespaces.args(["--mount", "--pid", "--fork", "--net", "true"]).stderr(Stdio::null());
    let are_allowed = namespaces.status().is_ok_and(|status| status.success());
    (!are_allowed).then(|| "a clean root takes namespaces, which this machine lets even root not make".into())
}

/// Whether this process may change owners and roots.
pub fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout == b"0\n")
}

/// This machine's release of Debian, such as `bookworm`: what is built here needs its libraries.
fn suite() -> Result<String, String> {
    let text = fs::read_to_string("/etc/os-release").map_err(|error| format!("/etc/os-release: {error}"))?;
    let suite = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    suite.map(|name| name.trim_matches('"').to_owned()).ok_or_else(|| "/etc/os-release names no release".into())
}

/// The archive of a clean root in `folder`; made if it is not there. mmdebstrap makes one in a
/// third of debootstrap's time: it installs all packages at once, without a flush for each file.
///
/// # Errors
/// This is no Debian, or mmdebstrap fails, as without a mirror.
pub fn archive(folder: &Path) -> Result<PathBuf, String> {
    let suite = suite()?;
    let archive = folder.join(format!("clean-root-{suite}.tar"));
    if archive.is_file() {
        return Ok(archive);
    }
    let partial = archive.with_extension("partial");
    let mut command = Command::new("mmdebstrap");
    command.args(["--quiet", "--variant=minbase", "--format=tar", &format!("--include={PACKAGES}"), &suite]);
    succeed("mmdebstrap", command.arg(&partial)).map_err(|why| format!("no clean root of Debian {suite}: {why}"))?;
    fs::rename(&partial, &archive).map_err(|error| format!("{}: {error}", archive.display()))?;
    Ok(archive)
}

/// Unpacks a clean root.
///
/// # Errors
/// tar fails.
pub fn unpack(archive: &Path, directory: &Path) -> Result<(), String> {
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    succeed("tar", Command::new("tar").arg("-C").arg(directory).arg("-xpf").arg(archive))
}

/// Boots the root with these files in a folder of it; the one called `run` is the test. It has no
/// network but its own loopback.
///
/// # Errors
/// What the test printed, if it did not pass.
pub fn boot(directory: &Path, files: &[(&Path, &str)]) -> Result<(), String> {
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
    match log.lines().any(|line| line == PASSED) {
        true => Ok(()),
        false => Err(format!("the test in the clean root did not pass (systemd-nspawn: {status})")),
    }
}
