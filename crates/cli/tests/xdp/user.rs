//! `serve --user` with AF_XDP: root is given up, and all goes on.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::*;

const NOBODY: u32 = 65534;

/// A field of /proc/PID/status of each thread.
fn fields(process: u32, name: &str) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let status = threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap());
    let field = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix(name).map(|line| line.trim().to_owned()));
        line.unwrap_or_else(|| panic!("no {name}: {status}"))
    };
    status.map(field).collect()
}

fn is_nobody_without_rights(process: u32) {
    for thread in fields(process, "Uid:").into_iter().chain(fields(process, "Gid:")) {
        assert!(thread.split_whitespace().all(|id| id == "65534"), "{thread}");
    }
    for name in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
        assert!(fields(process, name).iter().all(|bits| bits == "0000000000000000"), "{name}");
    }
    assert!(fields(process, "NoNewPrivs:").iter().all(|value| value == "1"));
}

/// A directory that nobody can pass through.
fn open_directory() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

#[test]
fn a_server_gives_root_up_and_goes_on() {
    let Some(network) = network(1500, None) else { return };
    let directory = open_directory();
    let sockets = directory.path().join("sockets");
    std::fs::create_dir(&sockets).unwrap();
    std::os::unix::fs::chown(&sockets, Some(NOBODY), None).unwrap();
    let (data, socket) = (directory.path().join("store"), sockets.join("socket"));
    let listen = format!("unix:{}", socket.display());
    network.enter();
    for round in 0..2 {
        let more = ["--user", "nobody", "--memcache", &listen, "--unix-mode", "0777"];
        let server = Server::start_on(&network, &data, &more);
        is_nobody_without_rights(server.process.id());
        if round == 1 {
            // What was written before is there: root opened it again, and gave it up again.
            assert_eq!(Client::connect(SERVER, server.port).get("value3"), value(3, 1000));
        }
        converse(SERVER, server.port, "value");
        converse(KERNEL, server.port, "kernel");
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        stream.write_all(b"get none\r\n").unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"END\r\n");
        let mut client = Client::connect(SERVER, server.port);
        client.set("flap", b"1");
        network.set_up(false);
        client.0.get_mut().write_all(b"get flap\r\n").unwrap();
        thread::sleep(Duration::from_millis(100));
        network.set_up(true);
        assert_eq!(client.line(), "VALUE flap 0 1\r\n");
        drop((client, stream));
        server.end();
        assert!(!socket.exists(), "the socket's file is gone with the server");
    }
    let owner = |path: &Path| std::fs::metadata(path).unwrap().uid();
    assert_eq!(owner(&data), NOBODY);
    for entry in std::fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(owner(&path), NOBODY, "{}", path.display());
    }
}

#[test]
fn who_could_not_write_the_store_is_refused_before_it_is_made() {
    let Some(network) = network(1500, None) else { return };
    let directory = open_directory();
    let data = directory.path().join("store");
    let refused = |user: &str, more: &[&str]| {
        let mut command = network.command(PROGRAM);
        command.args(["serve", "--memory", "64M", "--memcache", "127.0.0.1:0", "--user", user]).args(more);
        let output = command.arg("--data").arg(&data).output().unwrap();
        assert!(!output.status.success(), "{user} {more:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (user, what) in [("nobody-of-this-name", "there is no user"), ("root", "that is root")] {
        let said = refused(user, &[]);
        assert!(said.contains(what), "{said}");
    }
    assert!(!data.exists());
    std::fs::create_dir(&data).unwrap();
    let said = refused("nobody", &[]);
    let chown = format!("`chown nobody {}`", data.display());
    assert!(said.contains("it cannot make files in") && said.contains(&chown), "{said}");
    std::os::unix::fs::chown(&data, Some(NOBODY), None).unwrap();
    // The directory of a socket's file, which is removed at the end.
    let socket = format!("unix:{}/socket", directory.path().display());
    let said = refused("nobody", &["--memcache", &socket]);
    assert!(said.contains(&format!("make files in {}", directory.path().display())), "{said}");
    assert_eq!(std::fs::read_dir(&data).unwrap().count(), 0, "no store was made");
}
