//! The root of a container's image: the program, the libraries that it loads, and the few files
//! that a process wants to find. The Dockerfile calls this in its first stage, so what is tested
//! here is what an image has.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::{clean_root, staging};
use crate::cargo::succeed;
use crate::requirement::{Lack, Stop};
use crate::serving::with_directory_in;

/// The user and group that the server of an image runs as; the Dockerfile names them too.
const USER: u32 = 10001;
/// Files of the package that an image has use for: nobody reads manual pages in it.
const PARTS: [&str; 1] = ["usr/bin/"];
/// What every process may look up.
const FILES: [(&str, &str); 3] = [
    ("etc/passwd", "root:x:0:0:root:/:/sbin/nologin\nstratakv:x:10001:10001:StrataKV:/data:/sbin/nologin\n"),
    ("etc/group", "root:x:0:\nstratakv:x:10001:\n"),
    ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
];
/// The profile of system calls, from the repository's root.
const PROFILE: &str = "packaging/container/seccomp.json";
/// System calls without which the server takes threads for its I/O.
const RING_CALLS: [&str; 3] = ["io_uring_setup", "io_uring_enter", "io_uring_register"];
/// crun wants one hierarchy of control groups, which machines with both kinds do not have: it sees
/// one of its own.
const CRUN: &str = "umount -l -R /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec crun \"$@\"";

/// Makes `directory` the root of an image.
///
/// # Errors
/// It holds something already, or a file cannot be written.
pub fn make(root: &Path, directory: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    fs::create_dir_all(directory).map_err(failed)?;
    if fs::read_dir(directory).map_err(failed)?.next().is_some() {
        return Err(format!("{} is not empty: name a new directory", directory.display()));
    }
    let mut assets = staging::assets(root)?;
    assets.retain(|asset| PARTS.iter().any(|part| asset.target.starts_with(part)));
    staging::install(&assets, directory)?;
    for library in libraries(&staging::folder(root).join("stratakv"))? {
        let file = directory.join(library.strip_prefix("/").unwrap_or(&library));
        let folder = file.parent().unwrap_or(directory);
        fs::create_dir_all(folder)
            .and_then(|()| fs::copy(&library, &file))
            .map_err(|error| format!("cannot copy the library {}: {error}", library.display()))?;
    }
    for (name, text) in FILES {
        let file = directory.join(name);
        fs::create_dir_all(file.parent().unwrap_or(directory)).and_then(|()| fs::write(&file, text)).map_err(failed)?;
    }
    for (name, mode) in [("data", 0o750), ("tmp", 0o1777), ("proc", 0o555), ("dev", 0o755), ("sys", 0o555)] {
        let folder = directory.join(name);
        fs::create_dir_all(&folder).map_err(failed)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).map_err(failed)?;
    }
    if clean_root::is_root() {
        chown(directory.join("data"), Some(USER), Some(USER)).map_err(failed)?;
    }
    println!("image: {}", directory.display());
    Ok(())
}

/// The libraries that a program loads, its loader among them, as ldd lists them.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, String> {
    let output = Command::new("ldd").arg(program).output().map_err(|error| format!("cannot start ldd: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if text.contains("not found") {
        return Err(format!("a library of {} is missing:\n{text}", program.display()));
    }
    // `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` of the loader; the kernel's own has no path.
    Ok(text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}

/// Serves from the image under crun: as its user, with its profile of system calls, and once more
/// without the calls of io_uring.
///
/// # Errors
/// It does not serve, or not by io_uring where that is allowed; or no container runs here.
pub fn run(root: &Path, directory: &Path) -> Result<(), Stop> {
    if !clean_root::is_root() {
        return Err(Lack::Given("running an image takes root".into()).into());
    }
    if Command::new("crun").arg("--version").stdout(Stdio::null()).status().is_err() {
        clean_root::is_debian()?;
        return Err(Lack::Tool("crun is not installed (Debian: crun)".into()).into());
    }
    with_directory_in(&staging::folder(root), "container-probe", |bundle| Ok(probe(bundle)))??;
    let text = fs::read_to_string(root.join(PROFILE)).map_err(|error| format!("{PROFILE}: {error}"))?;
    let profile: Value = serde_json::from_str(&text).map_err(|error| format!("{PROFILE}: {error}"))?;
    let (with, without) = (filter(&profile, &[])?, filter(&profile, &RING_CALLS)?);
    for (name, filter, backend) in [("io_uring", with, "I/O by io_uring"), ("no-io_uring", without, "I/O by blocking")]
    {
        with_directory_in(&staging::folder(root), &format!("container-{name}"), |bundle| {
            let told = serve(directory, bundle, name, &filter)?;
            match told.contains(backend) {
                true => {
                    println!("image: {name}: serves, {backend}");
                    Ok(())
                }
                false => Err(format!("{name}: the server does not say `{backend}`, but:\n{told}")),
            }
        })?;
    }
    Ok(())
}

/// Makes the root of a container in which nothing but this program runs.
fn make_probe(root: &Path, program: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", root.display());
    for file in libraries(program)?.iter().map(PathBuf::as_path).chain([program]) {
        let copy = root.join(file.strip_prefix("/").unwrap_or(file));
        fs::create_dir_all(copy.parent().unwrap_or(root)).and_then(|()| fs::copy(file, &copy)).map_err(failed)?;
    }
    // Without /dev crun ends with an error: it looked as if no container could run, and the test of
    // the image was skipped.
    ["data", "proc", "dev"].iter().try_for_each(|name| fs::create_dir_all(root.join(name))).map_err(failed)
}

/// Runs `true` in a container like the server's, but for its filter and what is in it: whether crun
/// can run here at all. Nothing of the product has a part in it.
fn probe(bundle: &Path) -> Result<(), Stop> {
    let failed = |error: std::io::Error| format!("{}: {error}", bundle.display());
    let (root, data) = (bundle.join("root"), bundle.join("data"));
    let program = Path::new("/bin/true").canonicalize().map_err(failed)?;
    make_probe(&root, &program)?;
    fs::create_dir_all(&data).and_then(|()| chown(&data, Some(USER), Some(USER))).map_err(failed)?;
    let mut configuration = configuration(&root, &data, &Value::Null);
    configuration["process"]["args"] = json!([program]);
    if let Some(linux) = configuration["linux"].as_object_mut() {
        linux.remove("seccomp");
    }
    fs::write(bundle.join("config.json"), configuration.to_string()).map_err(failed)?;
    let id = format!("stratakv-probe-{}", std::process::id());
    let output = crun(&["run", "--bundle"]).arg(bundle).arg(&id).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot start crun: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let deleted = crun(&["delete", "--force", &id]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    drop(deleted);
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Lack::Given(format!("crun cannot run a container here: {}", said.trim())).into())
}

/// The profile as a runtime takes it: without rules for capabilities that the container has not,
/// and without these calls.
fn filter(profile: &Value, left_out: &[&str]) -> Result<Value, String> {
    let rules = profile["syscalls"].as_array().ok_or_else(|| format!("{PROFILE} has no list `syscalls`"))?;
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let mut kept = Vec::new();
    for rule in rules {
        let (includes, excludes) = (&rule["includes"], &rule["excludes"]);
        let is_ours = |list: &Value| list.as_array().is_none_or(|all| all.iter().any(|one| one == architecture));
        if includes.get("caps").is_some()
            || !is_ours(&includes["arches"])
            || excludes.get("arches").is_some_and(is_ours)
        {
            continue;
        }
        let names = rule["names"].as_array().ok_or("a rule has no names")?;
        let names: Vec<&Value> = names.iter().filter(|name| !left_out.iter().any(|out| *name == out)).collect();
        if names.is_empty() {
            continue;
        }
        let mut taken = json!({ "names": names, "action": rule["action"] });
        for (theirs, ours) in [("args", "args"), ("errnoRet", "errnoRet")] {
            if !rule[theirs].is_null() {
                taken[ours] = rule[theirs].clone();
            }
        }
        kept.push(taken);
    }
    Ok(json!({ "defaultAction": profile["defaultAction"], "defaultErrnoRet": 1, "syscalls": kept }))
}

/// Starts a container, waits until `stratakv health` in it says so, writes and reads a record, and
/// ends it. Answers what the server printed.
fn serve(directory: &Path, bundle: &Path, name: &str, filter: &Value) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", bundle.display());
    let data = bundle.join("data");
    fs::create_dir_all(&data).map_err(failed)?;
    chown(&data, Some(USER), Some(USER)).map_err(failed)?;
    let root = directory.canonicalize().map_err(failed)?;
    let configuration = configuration(&root, &data, filter);
    fs::write(bundle.join("config.json"), configuration.to_string()).map_err(failed)?;
    let id = format!("stratakv-{name}-{}", std::process::id());
    let errors = fs::File::create(bundle.join("log")).map_err(failed)?;
    let mut command = crun(&["run", "--bundle"]);
    command.arg(bundle).arg(&id).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
    let mut child = command.spawn().map_err(|error| format!("cannot start crun: {error}"))?;
    let mut output = BufReader::new(child.stdout.take().ok_or("crun has no stdout")?);
    let container = Container { child, id };
    let mut told = String::new();
    let outcome = serving(&mut output, &mut told).and_then(|()| converse(&container));
    let ended = container.end();
    told.push_str(&fs::read_to_string(bundle.join("log")).unwrap_or_default());
    outcome.and(ended).map_err(|why| format!("{name}: {why}\nThe server said:\n{told}"))?;
    Ok(told)
}

/// Reads until the server has said its last line: from then on clients are served.
fn serving(output: &mut impl BufRead, told: &mut String) -> Result<(), String> {
    loop {
        let begin = told.len();
        let count = output.read_line(told).map_err(|error| format!("cannot read from the server: {error}"))?;
        match told.get(begin..) {
            _ if count == 0 => return Err("the server ended".into()),
            Some(line) if line.starts_with("memcache") => return Ok(()),
            _ => {}
        }
    }
}

/// crun with these arguments, in a mount namespace that ends with it.
fn crun(arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", CRUN, "crun", "--cgroup-manager=disabled"]).args(arguments);
    command
}

/// What a runtime makes of the Dockerfile: user, command, volume; no capability, a root that cannot
/// be written, a network of its own.
fn configuration(root: &Path, data: &Path, filter: &Value) -> Value {
    let command = ["stratakv", "serve", "--data", "/data", "--memcache", "0.0.0.0:11211", "--insecure"];
    let arguments = [&command[..], &["--admin", "127.0.0.1:9101", "--memory", "64M"]].concat();
    let none: [&str; 0] = [];
    let capabilities = json!({ "bounding": none, "effective": none, "permitted": none, "inheritable": none });
    let kinds = ["pid", "mount", "network", "ipc", "uts"].map(|kind| json!({ "type": kind }));
    json!({
        "ociVersion": "1.0.0",
        "process": {
            "user": { "uid": USER, "gid": USER }, "cwd": "/data", "args": arguments,
            "env": ["PATH=/usr/bin"], "noNewPrivileges": true, "capabilities": capabilities,
        },
        "root": { "path": root, "readonly": true },
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/data", "type": "bind", "source": data, "options": ["bind", "rw"] },
        ],
        "linux": { "namespaces": kinds, "seccomp": filter },
    })
}

fn converse(container: &Container) -> Result<(), String> {
    container.execute(&["stratakv", "health"])?;
    let server = ["--server", "127.0.0.1:11211"];
    container.execute(&[&["stratakv", "put"], &server[..], &["user:1", "Ada"]].concat())?;
    match container.execute(&[&["stratakv", "get"], &server[..], &["user:1"]].concat())?.as_str() {
        "Ada" => Ok(()),
        other => Err(format!("a record came back as {other:?}")),
    }
}

/// A container under way.
struct Container {
    child: Child,
    id: String,
}

impl Container {
    /// Runs a command in it; answers its stdout.
    fn execute(&self, arguments: &[&str]) -> Result<String, String> {
        let output = crun(&["exec", &self.id]).args(arguments).output();
        let output = output.map_err(|error| format!("cannot start crun: {error}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    /// Ends the server as a runtime does. It must close its store in order.
    fn end(mut self) -> Result<(), String> {
        succeed("crun kill", &mut crun(&["kill", &self.id, "TERM"]))?;
        let status = self.child.wait().map_err(|error| format!("cannot wait for crun: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("the server ended with {status}")) }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Usually it is gone.
        let deleted = crun(&["delete", "--force", &self.id]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        drop(deleted);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::with_directory;

    fn profile() -> Value {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        serde_json::from_str(&fs::read_to_string(root.join(PROFILE)).unwrap()).unwrap()
    }

    fn allows(filter: &Value, call: &str) -> bool {
        let rules = filter["syscalls"].as_array().unwrap();
        let rule = rules.iter().find(|rule| rule["names"].as_array().unwrap().iter().any(|name| name == call));
        rule.map_or(&filter["defaultAction"], |rule| &rule["action"]) == "SCMP_ACT_ALLOW"
    }

    #[test]
    fn the_profile_allows_io_uring_and_forbids_what_a_server_has_no_use_for() {
        let filter = filter(&profile(), &[]).unwrap();
        for call in RING_CALLS.iter().chain(&["read", "fdatasync", "madvise", "sched_setaffinity"]) {
            assert!(allows(&filter, call), "{call} is forbidden");
        }
        for call in ["bpf", "init_module", "reboot", "ptrace", "mount", "open_by_handle_at", "settimeofday"] {
            assert!(!allows(&filter, call), "{call} is allowed");
        }
        let without = super::filter(&profile(), &RING_CALLS).unwrap();
        assert!(!RING_CALLS.iter().any(|call| allows(&without, call)));
        assert!(allows(&without, "read"));
    }

    #[test]
    fn a_probe_has_every_folder_that_a_runtime_wants() {
        let program = Path::new("/bin/true").canonicalize().unwrap();
        with_directory("probe-test", |directory| {
            make_probe(directory, &program)?;
            for name in ["data", "proc", "dev"] {
                assert!(directory.join(name).is_dir(), "no {name}");
            }
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn the_dockerfile_says_what_the_test_runs() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = fs::read_to_string(root.join("packaging/container/Dockerfile")).unwrap();
        let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
        assert_eq!(line("USER"), format!("{USER}:{USER}"));
        let command: Vec<String> = serde_json::from_str(line("CMD")).unwrap();
        let entry: Vec<String> = serde_json::from_str(line("ENTRYPOINT")).unwrap();
        let ours = configuration(Path::new("/"), Path::new("/"), &Value::Null);
        let ours: Vec<&str> = ours["process"]["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!([entry, command].concat().as_slice(), ours.get(..9).unwrap());
    }
}
