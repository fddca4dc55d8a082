//! The commands of the first pages run as they stand there, one after the other, and say what the
//! pages say.

use std::path::PathBuf;

use super::*;

/// The blocks of a shell below a heading of a page.
fn blocks(page: &str, heading: &str) -> Vec<String> {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page)).unwrap();
    let part = page.split("\n## ").find(|part| part.lines().next() == Some(heading)).expect("the heading is there");
    let blocks = part.split("```sh\n").skip(1);
    blocks.map(|block| block.split("\n```").next().unwrap_or_default().to_owned()).collect()
}

/// A new directory on a disk: the pages' stores survive power cuts, which those on tmpfs do not.
fn new_directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A shell in a directory, whose `stratakv` is the one of this test.
fn shell(directory: &Path, script: &str) -> Command {
    let own = Path::new(PROGRAM).parent().map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = own.into_iter().chain(std::env::split_paths(&path));
    let mut command = Command::new("bash");
    command.args(["-euc", script]).current_dir(directory).env_remove("STRATAKV_DATA").env_remove("STRATAKV_LOG");
    command.env("PATH", std::env::join_paths(folders).unwrap());
    command
}

/// What a script printed; it must have succeeded.
fn run_shell(directory: &Path, script: &str) -> String {
    let output = shell(directory, script).output().unwrap();
    assert_eq!(code(&output), 0, "{script}\n{}", stderr(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_commands_of_the_first_pages_run_without_a_server() {
    let directory = new_directory();
    let [start] = &blocks("docs/start.md", "By command line")[..] else { panic!("one block is expected") };
    let said = run_shell(directory.path(), start);
    for (comment, printed) in [("prints 1", "1\n"), ("user:1", "Ada")] {
        assert!(start.contains(comment) && said.contains(printed), "{said}");
    }
    // The README goes on with what is there.
    let everyday = blocks("README.md", "Everyday commands");
    let said = run_shell(directory.path(), &everyday[0]);
    assert!(said.contains("user:1"), "{said}");
    assert_eq!(run_shell(directory.path(), "stratakv get user:1 --data copy"), "Ada");
    assert!(directory.path().join("sunday/backup.toml").is_file() && directory.path().join("all.jsonl").is_file());
}

/// Whether this machine can run a line of a page: the program that begins or ends it is there, and
/// the module that it names.
fn is_possible(line: &str) -> bool {
    let of_page = |name: &&&str| line.starts_with(**name) || line.contains(&format!("| {name} "));
    let Some(program) = ["nc", "redis-cli", "python3"].iter().find(of_page) else { return true };
    let probe = if line.contains("pymemcache") { "python3 -c 'import pymemcache'" } else { &format!("type {program}") };
    shell(Path::new("/"), probe).output().is_ok_and(|output| output.status.success())
}

#[test]
fn the_commands_of_the_first_page_run_beside_a_server() {
    let directory = new_directory();
    let blocks = blocks("docs/start.md", "By server");
    let (serve, clients) = (&blocks[0], &blocks[1]);
    assert_eq!(serve, "stratakv serve --resp 127.0.0.1:6379");
    let words = "exec ".to_owned() + &serve.replace(":6379", ":0") + " --memcache 127.0.0.1:0 --threads 1";
    let serving = Serving::started(&mut shell(directory.path(), &words));
    let resp = serving.lines.iter().find_map(|line| line.strip_prefix("resp")).expect("it serves Redis clients").trim();
    let (resp, memcache) = [resp, serving.address.as_str()].map(|address| address.rsplit(':').next().unwrap()).into();
    let mut asked = 0;
    for line in clients.lines().filter(|line| is_possible(line)) {
        let line = line
            .replace("127.0.0.1 11211", &format!("127.0.0.1 {memcache}"))
            .replace(":11211", &format!(":{memcache}"));
        let line = line.replace("Client('127.0.0.1')", &format!("Client(('127.0.0.1', {memcache}))"));
        let line = line.replace("redis-cli ", &format!("redis-cli -p {resp} "));
        // The first line writes the record, for which a machine may lack the program.
        run_shell(directory.path(), &format!("stratakv put user:1 Ada --server 127.0.0.1:{memcache}"));
        let said = run_shell(directory.path(), &line);
        // redis-cli ends with 0 after an error too, which repeats the words of the command.
        let is_told = if line.contains("hset") { said == "1\n" } else { said.contains("Ada") };
        assert!(is_told, "{line}: {said}");
        asked += 1;
    }
    assert!(asked > 0, "no line was run of {clients}");
}

#[test]
fn manual_pages_go_into_a_directory_that_was_not_there() {
    let directory = new_directory();
    run_shell(directory.path(), "stratakv man --out share/man/man1");
    assert!(directory.path().join("share/man/man1/stratakv-serve.1").is_file());
}

/// A prompt stood right behind the value, and the bytes of structures went to the terminal.
#[test]
fn a_terminal_gets_a_line_and_structures_are_named() {
    let directory = new_directory();
    let hash = b"\xffSKV\x01\x01\x00\x00\x01\x00\x00\x00\x01a\x011";
    std::fs::write(directory.path().join("hash"), hash).unwrap();
    run_shell(directory.path(), "stratakv put text Ada && stratakv put line $'Ada\n'");
    run_shell(directory.path(), "stratakv put hash --file hash --flags 1397446145");
    assert_eq!(run_shell(directory.path(), "stratakv scan"), "hash\t(hash, 1 element)\nline\tAda\\n\ntext\tAda\n");
    assert!(run(&directory.path().join("stratakv-data"), &["get", "hash"]).stdout == hash, "a pipe gets all bytes");
    if shell(directory.path(), "type script").output().unwrap().status.success() {
        let on_terminal = |key: &str| {
            let shown = run_shell(directory.path(), &format!("script -qec 'stratakv get {key}' /dev/null"));
            shown.replace('\r', "")
        };
        assert_eq!(["text", "line", "hash"].map(on_terminal), ["Ada\n", "Ada\n", "(hash, 1 element)\n"]);
    }
}
