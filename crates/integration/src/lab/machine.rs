//! The emulated machine: its kernel from Debian's archive, this program as its only process, QEMU
//! with a time limit.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::{bypass, counts, pmem};

/// A task that takes longer is ended.
const TASK_MAX: Duration = Duration::from_secs(300);
/// A machine whose process 1 says nothing for so long is ended. A boot takes 3 to 10 s on an idle
/// host.
const BOOT_MAX: Duration = Duration::from_secs(60);
/// QEMU's software emulation can hang (seen once in some hundred boots). A machine that stands
/// still, so that not even the watch of process 1 speaks ([`STUCK`]), is booted again; one whose
/// kernel runs while the task does not end is a finding.
const BOOTS_MAX: u32 = 3;
/// The processor: without instructions that write lines back, but the oldest.
pub(super) const CPU: &str = "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt";
/// What process 1 says first.
pub(super) const UP: &str = "lab: up";
/// What process 1 says of a task that takes far too long, before where its threads are.
pub(super) const STUCK: &str = "lab: stuck";
/// In the stack of a thread of such a machine: a plain write to the device has not come back after
/// all that time. That is the emulated device's doing, whatever else waits, so the machine is
/// booted again.
const OWES: &str = "submit_bio_wait";
/// Lines of the console shown when something went wrong.
const TAIL_LINES: usize = 200;

/// Programs that must be there.
const NEEDED: [&str; 4] = ["qemu-system-x86_64", "mkfs.ext4", "e2fsck", "debugfs"];

/// Kernel and first file system.
pub struct Machine {
    kernel: PathBuf,
    initramfs: PathBuf,
}

impl Machine {
    /// Fetches what is missing into `cache` and packs this program, and others under their names at
    /// the root. `Err` is why there can be no lab here.
    ///
    /// # Errors
    /// QEMU, e2fsprogs or the kernel is not there and cannot be installed.
    pub fn prepare(cache: &Path, programs: &[PathBuf]) -> Result<Machine, String> {
        if !NEEDED.iter().all(|name| runs(name)) {
            install()?;
        }
        let kernel = fetch_kernel(cache)?;
        let initramfs = cache.join("initramfs.cpio");
        fs::write(&initramfs, pack(&cache.join("kernel"), programs)?)
            .map_err(|error| format!("cannot write {}: {error}", initramfs.display()))?;
        Ok(Machine { kernel, initramfs })
    }

    /// Boots with the given drives and words for process 1; returns what it said at its end.
    ///
    /// # Errors
    /// It did not come up in three attempts, or did not end in order within five minutes: the
    /// console's last lines.
    pub fn boot(&self, drives: &[String], words: &str) -> Result<String, String> {
        self.boot_on(&["-M", "q35,accel=tcg", "-m", "1G", "-cpu", CPU].map(str::to_owned), drives, words)
    }

    /// As [`Machine::boot`], on another board.
    pub(super) fn boot_on(&self, board: &[String], drives: &[String], words: &str) -> Result<String, String> {
        let said = boot_until_up(&mut self.command(board, drives, words), &|_| false, BOOT_MAX, TASK_MAX)?;
        match said.lines().find_map(|line| line.split_once("lab: done: ")) {
            Some((_, message)) => Ok(message.trim().to_owned()),
            None => Err(format!("the guest did not finish its task; the console's end:\n{}", tail(&said))),
        }
    }

    /// Boots, and kills the machine as soon as `is_enough` of what its console said; that.
    pub(super) fn boot_until(
        &self,
        board: &[String],
        drives: &[String],
        words: &str,
        is_enough: &dyn Fn(&str) -> bool,
    ) -> Result<String, String> {
        let said = boot_until_up(&mut self.command(board, drives, words), is_enough, BOOT_MAX, TASK_MAX)?;
        match is_enough(&said) {
            true => Ok(said),
            false => Err(format!("the guest ended before it was killed; the console's end:\n{}", tail(&said))),
        }
    }

    fn command(&self, board: &[String], drives: &[String], words: &str) -> Command {
        let mut command = Command::new("qemu-system-x86_64");
        command.args(board);
        if !board.iter().any(|word| word == "-smp") {
            command.args(["-smp", "1"]);
        }
        command.args(["-nodefaults", "-nographic", "-no-reboot", "-serial", "stdio"]);
        command.arg("-kernel").arg(&self.kernel).arg("-initrd").arg(&self.initramfs);
        let kernel_words = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr random.trust_cpu=on nowatchdog \
                            rcupdate.rcu_cpu_stall_suppress=1 no_timer_check";
        let iommu = if board.iter().any(|word| word.starts_with("intel-iommu")) { " intel_iommu=on" } else { "" };
        command.args(["-append", &format!("{kernel_words}{iommu} -- {words}")]).args(drives);
        command
    }
}

/// Runs a machine to its end, or until it said enough, up to [`BOOTS_MAX`] times until it says
/// [`UP`].
fn boot_until_up(
    command: &mut Command,
    is_enough: &dyn Fn(&str) -> bool,
    boot_max: Duration,
    task_max: Duration,
) -> Result<String, String> {
    for left in (0..BOOTS_MAX).rev() {
        match run_for(command, is_enough, boot_max, task_max)? {
            BootOutcome::Ended(said) => return Ok(said),
            BootOutcome::Silent(_) if left > 0 => {}
            BootOutcome::Late(said) if left > 0 && (!said.contains(STUCK) || said.contains(OWES)) => {}
            BootOutcome::Silent(said) => {
                return Err(format!(
                    "not up within {boot_max:?}, {BOOTS_MAX} times; the console's end:\n{}",
                    tail(&said)
                ));
            }
            BootOutcome::Late(said) => {
                return Err(format!("up, but not done after {task_max:?}; the console's end:\n{}", tail(&said)));
            }
        }
    }
    Err("no boot was tried".into())
}

/// How a machine's run went, with both its outputs as one text.
#[derive(Debug, PartialEq)]
enum BootOutcome {
    Ended(String),
    Silent(String),
    Late(String),
}

/// Runs a command to its end, or ends it: when it said enough, after `boot_max` if it did not say
/// [`UP`], after `task_max` in any case.
fn run_for(
    command: &mut Command,
    is_enough: &dyn Fn(&str) -> bool,
    boot_max: Duration,
    task_max: Duration,
) -> Result<BootOutcome, String> {
    let started = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    let said = Arc::new(Mutex::new(Vec::new()));
    let readers = [
        child.stdout.take().map(|pipe| collect(Box::new(pipe), &said)),
        child.stderr.take().map(|pipe| collect(Box::new(pipe), &said)),
    ];
    let up = || said.lock().is_ok_and(|said| said.windows(UP.len()).any(|bytes| bytes == UP.as_bytes()));
    let enough = || said.lock().is_ok_and(|said| is_enough(&String::from_utf8_lossy(&said)));
    let make: fn(String) -> BootOutcome = loop {
        match child.try_wait() {
            Ok(Some(_)) => break BootOutcome::Ended,
            Ok(None) if enough() => break BootOutcome::Ended,
            Ok(None) if started.elapsed() > task_max => break BootOutcome::Late,
            Ok(None) if started.elapsed() > boot_max && !up() => break BootOutcome::Silent,
            Ok(None) => thread::sleep(Duration::from_millis(20)),
            Err(error) => return Err(format!("cannot wait for {command:?}: {error}")),
        }
    };
    let _ = child.kill();
    let _ = child.wait();
    for reader in readers.into_iter().flatten() {
        let _ = reader.join();
    }
    let said = said.lock().map(|said| String::from_utf8_lossy(&said).into_owned());
    Ok(make(said.unwrap_or_default()))
}

/// Appends what a pipe carries to `said`, on a thread of its own.
fn collect(mut from: Box<dyn Read + Send>, said: &Arc<Mutex<Vec<u8>>>) -> thread::JoinHandle<()> {
    let said = Arc::clone(said);
    thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut piece) {
            if let Ok(mut said) = said.lock() {
                said.extend_from_slice(piece.get(..count).unwrap_or_default());
            }
        }
    })
}

fn tail(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// This host's programs by which the guest lays cables between network namespaces.
///
/// # Errors
/// They are not there, and cannot be installed.
pub fn network_tools() -> Result<Vec<PathBuf>, String> {
    if bypass::network_tools().is_none() && rustix::process::geteuid().is_root() {
        let root = Path::new("/");
        succeed("apt-get", &["update", "-q"], root)?;
        succeed("apt-get", &["install", "-q", "-y", "--no-install-recommends", "iproute2", "ethtool"], root)?;
    }
    bypass::network_tools().ok_or_else(|| "install iproute2 and ethtool first".to_owned())
}

fn runs(program: &str) -> bool {
    find(program).is_some()
}

/// A program's path; those of the administrator are found too.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Runs a tool for at most five minutes.
///
/// # Errors
/// It cannot be started.
pub(super) fn tool(program: &str, arguments: &[&str], folder: &Path) -> Result<Output, String> {
    let path = find(program).ok_or_else(|| format!("{program} is not installed"))?;
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "300"]).arg(path).args(arguments).current_dir(folder).stdin(Stdio::null());
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command.output().map_err(|error| format!("cannot start {program}: {error}"))
}

fn succeed(program: &str, arguments: &[&str], folder: &Path) -> Result<String, String> {
    let output = tool(program, arguments, folder)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} {} failed: {}", arguments.join(" "), said.lines().last().unwrap_or("it says nothing")))
}

fn install() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("install qemu-system-x86 and e2fsprogs first: this is not root, who could".into());
    }
    let root = Path::new("/");
    succeed("apt-get", &["update", "-q"], root)?;
    succeed("apt-get", &["install", "-q", "-y", "--no-install-recommends", "qemu-system-x86", "e2fsprogs"], root)?;
    Ok(())
}

/// The kernel for virtual machines: NVMe, ext4 and io_uring are built in, so no modules are needed.
fn fetch_kernel(cache: &Path) -> Result<PathBuf, String> {
    let installed = || {
        let entries = fs::read_dir(cache.join("kernel/boot")).ok()?;
        let mut names = entries.filter_map(|entry| Some(entry.ok()?.path()));
        names.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz")))
    };
    if let Some(kernel) = installed() {
        return Ok(kernel);
    }
    let depends = succeed("apt-cache", &["depends", "linux-image-cloud-amd64"], cache)?;
    let package = depends.lines().find_map(|line| Some(line.trim().strip_prefix("Depends: ")?.to_owned()));
    let package = package.ok_or("apt-cache knows no linux-image-cloud-amd64: this is not Debian on x86-64")?;
    succeed("apt-get", &["download", "-q", &package], cache)?;
    let entries = fs::read_dir(cache).map_err(|error| error.to_string())?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let archive =
        paths.find(|path| path.extension().is_some_and(|ending| ending == "deb")).ok_or("apt-get left no package")?;
    succeed("dpkg", &["-x", &archive.to_string_lossy(), "kernel"], cache)?;
    let _ = fs::remove_file(&archive);
    installed().ok_or_else(|| format!("{package} holds no kernel"))
}

/// This program, one that makes file systems and those asked for, the libraries they need, modules
/// of the kernel, and a console, as a `newc` archive.
fn pack(kernel: &Path, others: &[PathBuf]) -> Result<Vec<u8>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let maker = find("mkfs.ext4").ok_or("mkfs.ext4 is not installed")?;
    let mut programs = vec![(program, "init".to_owned()), (maker, "mkfs.ext4".to_owned())];
    for other in others {
        let name = other.file_name().ok_or_else(|| format!("{} is no program", other.display()))?;
        programs.push((other.clone(), name.to_string_lossy().into_owned()));
    }
    let paths: Vec<_> = programs.iter().map(|(path, _)| path.to_string_lossy()).collect();
    let needs = succeed("ldd", &paths.iter().map(|path| &**path).collect::<Vec<&str>>(), Path::new("/"))?;
    let words = needs.lines().filter(|line| !line.ends_with(':'));
    let libraries: BTreeSet<&str> =
        words.filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/'))).collect();
    let mut archive = Archive::default();
    for folder in ["dev", "proc", "sys", "data", "run", pmem::MODULES] {
        archive.add(folder, 0o040_755, (0, 0), &[]);
    }
    archive.add("dev/console", 0o020_600, (5, 1), &[]);
    for library in libraries {
        let mut so_far = PathBuf::new();
        let path = Path::new(library.trim_start_matches('/'));
        for part in path.parent().into_iter().flat_map(Path::components) {
            so_far.push(part);
            archive.add(&so_far.to_string_lossy(), 0o040_755, (0, 0), &[]);
        }
        let bytes = fs::read(library).map_err(|error| format!("cannot read {library}: {error}"))?;
        archive.add(&path.to_string_lossy(), 0o100_755, (0, 0), &bytes);
    }
    let folder = modules_of(kernel)?.join("kernel");
    let named = |path: &str| format!("{}/{}", pmem::MODULES, path.replace('/', "_"));
    let memory = pmem::MODULE_FILES.iter().map(|name| (folder.join("drivers").join(name), named(name)));
    let network = [&bypass::VETH_MODULE].into_iter().chain(&counts::MODULE_FILES);
    let bypass = bypass::MODULE_FILES.iter().chain(network).map(|name| (folder.join(name), named(name)));
    let modules = memory.chain(bypass.filter(|(path, _)| path.exists()));
    for (path, name) in modules.chain(programs) {
        let bytes = fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        archive.add(&name, 0o100_755, (0, 0), &bytes);
    }
    archive.add("TRAILER!!!", 0, (0, 0), &[]);
    Ok(archive.bytes)
}

/// The folder of the kernel's modules, in that of its package.
fn modules_of(kernel: &Path) -> Result<PathBuf, String> {
    let folder = kernel.join("lib/modules");
    let mut entries = fs::read_dir(&folder).map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    entries.find_map(|entry| Some(entry.ok()?.path())).ok_or_else(|| "the kernel has no modules".into())
}

#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        self.entries += 1;
        let fields =
            [self.entries, mode, 0, 0, 1, 0, data.len() as u32, 0, 0, device.0, device.1, name.len() as u32 + 1, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self.bytes.extend_from_slice(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(300);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_machine_that_hangs_in_its_task_is_ended() {
        let hangs = "echo 'lab: up'; echo 'lab: stuck in a futex'; exec sleep 600";
        let outcome = boot_until_up(&mut shell(hangs), &|_| false, SOON, 2 * SOON);
        assert!(outcome.is_err_and(|message| message.starts_with("up, but not done after 600ms")));
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("tried");
        let owes = format!(
            "[ -e {0} ] && {{ echo 'lab: up'; exit; }}; touch {0}; echo 'lab: up'; echo 'lab: stuck'; echo submit_bio_wait; exec sleep 600",
            mark.display()
        );
        assert_eq!(boot_until_up(&mut shell(&owes), &|_| false, SOON, 2 * SOON), Ok("lab: up\n".to_owned()));
        // Of a machine that stands still, the third is told.
        let outcome = boot_until_up(&mut shell("echo 'lab: up'; exec sleep 600"), &|_| false, SOON, 2 * SOON);
        assert!(outcome.is_err_and(|message| message.starts_with("up, but not done after 600ms")));
        assert_eq!(boot_until_up(&mut shell("echo lab"), &|_| false, TASK_MAX, TASK_MAX), Ok("lab\n".to_owned()));
    }

    #[test]
    fn a_machine_that_hangs_before_its_process_1_speaks_is_booted_again() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("tried");
        let script = format!("[ -e {0} ] && {{ echo 'lab: up'; exit; }}; touch {0}; exec sleep 600", mark.display());
        assert_eq!(boot_until_up(&mut shell(&script), &|_| false, SOON, TASK_MAX), Ok("lab: up\n".to_owned()));
        let outcome = boot_until_up(&mut shell("echo SeaBIOS; exec sleep 600"), &|_| false, SOON, TASK_MAX);
        assert_eq!(outcome, Err("not up within 300ms, 3 times; the console's end:\nSeaBIOS".to_owned()));
    }

    #[test]
    fn entries_of_the_archive_are_aligned() {
        let mut archive = Archive::default();
        archive.add("init", 0o100_755, (0, 0), b"12345");
        archive.add("TRAILER!!!", 0, (0, 0), &[]);
        let second = archive.bytes.windows(6).rposition(|bytes| bytes == b"070701");
        assert_eq!(second, Some(110 + 6 + 8), "header and name, data, each to a multiple of 4");
        assert_eq!(archive.bytes.get(54..62), Some(&b"00000005"[..]), "the length");
    }
}
