//! `cargo xtask fixtures`: makes the stores of older programs that
//! `crates/integration/tests/main/fixtures.rs` opens. It builds the program of a commit in a
//! worktree below `target`, has it write stores of every engine, and packs them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::{build, built, cargo, succeed};
use crate::serving::{Serving, with_directory_in};

const USAGE: &str = "\
usage: cargo xtask fixtures --make NAME [OPTIONS]
  --make NAME      write crates/integration/tests/fixtures/NAME anew
  --commit REV     the program that writes the stores [default: that of this tree]
  --kinds A,B      only these [default: all that tests/fixtures/writer.rs has]
  --about TEXT     what is special about this program, for about.toml";
/// Where the stores are, from the repository's root.
const FOLDER: &str = "crates/integration/tests/fixtures";
/// What writes them: a program of this tree, and of older ones an example of the library.
const WRITER: &str = "fixture-writer";
/// All kinds of stores that the writer knows.
const KINDS: &str = "in_place,packed,two_directories,hash,matrix,pmem_levels,tier";
/// Behind the commit in about.toml, of a tree with changes that are in no commit.
const CHANGES: &str = "+changes";
/// How a store is left.
const ENDS: [&str; 2] = ["closed", "killed"];

/// What about.toml says of the ends of stores.
const HOW_WITH_SERVER: &str = "\
# The writer closed each store in order. A server added the structures of `redis.txt`, and it is the
# server that was closed or killed.
";
/// The same where there is no server.
const HOW_OF_WRITER: &str = "# It is the writer that was closed or killed.\n";

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    name: String,
    commit: Option<String>,
    kinds: Vec<String>,
    about: String,
}

/// Runs the command.
///
/// # Errors
/// The commit does not build, or its program fails.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let options = parse(arguments)?;
    let work = root.join("target/fixtures");
    fs::create_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
    let name = options.commit.as_deref().unwrap_or("HEAD");
    let mut commit = git(root, &["rev-parse", "--short=8", name])?;
    let date = git(root, &["log", "-1", "--format=%cs", &commit])?;
    if options.commit.is_none() && !git(root, &["status", "--porcelain"])?.is_empty() {
        commit += CHANGES;
    }
    let programs = match &options.commit {
        Some(_) => programs_of(root, &work, &commit)?,
        None => {
            build(root, "dev", &["stratakv", WRITER], &[])?;
            Programs { writer: built(root, "dev", WRITER), server: Some(built(root, "dev", "stratakv")) }
        }
    };
    make(root, &options, &programs, (&work, &commit, &date))
}

/// Builds the programs of a commit, in a worktree that stays for another time.
fn programs_of(root: &Path, work: &Path, commit: &str) -> Result<Programs, String> {
    let tree = work.join(format!("tree-{commit}"));
    if !tree.is_dir() {
        git(root, &["worktree", "prune"])?;
        git(root, &["worktree", "add", "--detach", &tree.display().to_string(), commit])?;
    }
    let example = tree.join("crates/stratakv/examples").join(WRITER);
    fs::create_dir_all(&example).map_err(|error| format!("{}: {error}", example.display()))?;
    copy(&root.join(FOLDER).join("program.rs"), &example.join("main.rs"))?;
    copy(&root.join(FOLDER).join("writer.rs"), &example.join("writer.rs"))?;
    // Of all commits: most that they depend on is the same.
    let target = work.join("build");
    // Programs before structures have no such crate.
    let has_redis = tree.join("crates/structures").is_dir();
    let mut command = cargo(&tree);
    command.args(["build", "--locked", "--package", "stratakv", "--example", WRITER, "--target-dir"]).arg(&target);
    if has_redis {
        command.args(["--package", "stratakv-cli", "--bin", "stratakv"]);
    }
    succeed("build", &mut command)?;
    let server = has_redis.then(|| target.join("debug/stratakv"));
    Ok(Programs { writer: target.join("debug/examples").join(WRITER), server })
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let all = KINDS.split(',').map(str::to_owned).collect();
    let mut options = Options { name: String::new(), commit: None, kinds: all, about: String::new() };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
        match word.as_str() {
            "--make" => options.name = value()?,
            "--commit" => options.commit = Some(value()?),
            "--kinds" => options.kinds = value()?.split(',').map(str::to_owned).collect(),
            "--about" => options.about = value()?,
            _ => return Err(USAGE.into()),
        }
    }
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-.".contains(letter);
    match options.name.chars().all(is_name) && options.name.starts_with(|letter: char| letter.is_ascii_alphanumeric()) {
        true => Ok(options),
        false => Err(format!("a fixture has a name of letters, digits, `-` and `.`\n{USAGE}")),
    }
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").current_dir(root).args(arguments).output();
    let output = output.map_err(|error| format!("cannot start git: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("git {}: {}", arguments.join(" "), text(&output.stderr))),
    }
}

/// Packs what the programs of a commit write.
fn make(
    root: &Path,
    options: &Options,
    programs: &Programs,
    (work, commit, date): (&Path, &str, &str),
) -> Result<(), String> {
    let out = root.join(FOLDER).join(&options.name);
    fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let commands = root.join(FOLDER).join("redis.txt");
    let text = fs::read_to_string(&commands).map_err(|error| format!("{}: {error}", commands.display()))?;
    if programs.server.is_some() {
        copy(&commands, &out.join("redis.txt"))?;
    }
    let how = if programs.server.is_some() { HOW_WITH_SERVER } else { HOW_OF_WRITER };
    let mut about = format!(
        "# Made by `cargo xtask fixtures --make {}`.\n{how}commit = \"{commit}\"\ndate = \"{date}\"\nabout = \"{}\"\n",
        options.name, options.about
    );
    for kind in &options.kinds {
        for end in ENDS {
            let count = with_directory_in(work, "fixture", |place| programs.write(kind, end, (place, &out), &text))?;
            about.push_str(&format!("\n[{kind}-{end}]\nrecords_found = {count}\n"));
            println!("fixtures: {}: {kind}, {end}: its program finds {count} records", options.name);
        }
    }
    fs::write(out.join("about.toml"), about).map_err(|error| format!("{}: {error}", out.display()))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let copied = fs::copy(from, to);
    copied.map(|_| ()).map_err(|error| format!("cannot copy {}: {error}", from.display()))
}

/// The programs of a commit.
struct Programs {
    writer: PathBuf,
    /// Of commits that serve Redis clients.
    server: Option<PathBuf>,
}

impl Programs {
    /// Writes a store below `place`, leaves it as `end` says, and packs it into `out`. How many
    /// records of the list the same program finds in a copy of it.
    fn write(&self, kind: &str, end: &str, (place, out): (&Path, &Path), commands: &str) -> Result<u64, String> {
        let (data, list) = (place.join("data"), place.join("list"));
        // Where a server adds structures, the writer always closes in order: `end` is the server's.
        let first_end = if self.server.is_some() { "closed" } else { end };
        let mut writer = Command::new(&self.writer);
        writer.args(["write", kind]).arg(&data).arg(&list).arg(first_end).stdout(Stdio::piped());
        let mut child = writer.spawn().map_err(|error| format!("cannot start the writer: {error}"))?;
        if first_end == "killed" {
            let mut line = String::new();
            let stdout = child.stdout.take().ok_or("the writer has no stdout")?;
            let read = BufReader::new(stdout).read_line(&mut line);
            read.map_err(|error| format!("cannot read what the writer says: {error}"))?;
            child.kill().map_err(|error| format!("cannot kill the writer: {error}"))?;
        }
        let status = child.wait().map_err(|error| format!("cannot wait for the writer: {error}"))?;
        if first_end == "closed" && !status.success() {
            return Err(format!("the writer failed ({status})"));
        }
        if let Some(server) = &self.server {
            structures(server, (kind, &data), end, commands)?;
        }
        copy(&list, &out.join(format!("{kind}.list")))?;
        let archive = out.join(format!("{kind}-{end}.tar.gz"));
        pack(place, &archive)?;
        // The count changes the store, which is packed by now.
        let output = Command::new(&self.writer).args(["count", kind]).arg(&data).arg(&list).output();
        let output = output.map_err(|error| format!("cannot start the writer: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim().parse().map_err(|_| format!("the writer finds no records: {text}"))
    }
}

/// Everything below `place` but the list, holes as holes, always the same bytes of the same files.
fn pack(place: &Path, archive: &Path) -> Result<(), String> {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "--format=gnu", "--sparse"]);
    tar.args(["--exclude=./list", "--use-compress-program=gzip --no-name --best", "-C"]);
    succeed("tar", tar.arg(place).arg("-cf").arg(archive).arg("."))
}

/// Has a server write structures of Redis clients into a store, and ends it as `end` says.
fn structures(server: &Path, (kind, data): (&str, &Path), end: &str, commands: &str) -> Result<(), String> {
    let mut command = Command::new(server);
    command.args(["serve", "--memcache", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--threads", "1"]);
    command.args(["--memory", "64M", "--data"]).arg(data);
    match kind {
        "two_directories" => _ = command.arg("--data").arg(data.with_extension("second")),
        // So that its tables have compressed pages.
        "matrix" => _ = command.args(["--compression", "lz4"]),
        _ => {}
    }
    let serving = Serving::spawn(command)?;
    let failed = |error: std::io::Error| format!("the server at {} does not answer: {error}", serving.resp);
    let mut client = BufReader::new(TcpStream::connect(&serving.resp).map_err(failed)?);
    for line in commands.lines() {
        let command = match line.split_once(' ') {
            Some(("write", command)) => command.to_owned(),
            Some(("repeat", rest)) => repeated(rest)?,
            _ => continue,
        };
        send(client.get_mut(), &command).map_err(failed)?;
        let mut reply = String::new();
        client.read_line(&mut reply).map_err(failed)?;
        if reply.starts_with('-') {
            return Err(format!("{kind}: {line}: {}", reply.trim()));
        }
        if let Some(length) = reply.strip_prefix('$').and_then(|length| length.trim().parse::<u64>().ok()) {
            client.by_ref().take(length + 2).read_to_end(&mut Vec::new()).map_err(failed)?;
        }
    }
    match end {
        "closed" => serving.end(),
        // It is killed when dropped.
        _ => Ok(()),
    }
}

/// `N COMMAND KEY WORDS`: the command with its words N times, each time with a number for `#`.
fn repeated(rest: &str) -> Result<String, String> {
    let wrong = || format!("`repeat {rest}` is not N COMMAND KEY WORDS");
    let mut parts = rest.splitn(4, ' ');
    let (times, mut text) =
        (parts.next().and_then(|times| times.parse::<u32>().ok()).ok_or_else(wrong)?, String::new());
    for _ in 0..2 {
        text.push_str(parts.next().ok_or_else(wrong)?);
        text.push(' ');
    }
    let words = parts.next().ok_or_else(wrong)?;
    let all: Vec<String> = (0..times).map(|number| words.replace('#', &number.to_string())).collect();
    Ok(text + &all.join(" "))
}

fn send(stream: &mut TcpStream, command: &str) -> std::io::Result<()> {
    let words: Vec<&str> = command.split(' ').collect();
    let mut bytes = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| bytes.push_str(&format!("${}\r\n{word}\r\n", word.len())));
    stream.write_all(bytes.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Options, String> {
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_fixture_has_a_name() {
        let options = parsed(&["--make", "0.1.0", "--kinds", "hash,tier"]).unwrap();
        assert_eq!((options.name.as_str(), options.commit, options.kinds.len()), ("0.1.0", None, 2));
        for wrong in [&[][..], &["--make"], &["--make", "../x"], &["--make", ""], &["--commit", "HEAD"], &["x"]] {
            assert!(parsed(wrong).unwrap_err().contains("usage:"), "{wrong:?}");
        }
    }

    #[test]
    fn commands_are_repeated_with_their_numbers() {
        assert_eq!(repeated("2 HSET k f# v#"), Ok("HSET k f0 v0 f1 v1".to_owned()));
        assert!(repeated("2 HSET k").is_err() && repeated("x HSET k v").is_err());
    }
}
