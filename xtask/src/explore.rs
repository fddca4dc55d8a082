//! `cargo xtask explore`: fresh seeds over every world of the simulator. What fails is cut down by
//! the simulator, written down here, and the other worlds go on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::cargo::{build, built};
use crate::toolchain::target_directory;

const USAGE: &str = "\
usage: cargo xtask explore [--minutes M] [--from SEED]

  --minutes M   in all, shared by the worlds (14)
  --from SEED   the first seed of each world, instead of one from the clock

What fails is cut down and written to target/explore/WORLD-SEED.txt, with the command that shows it again.
Then: mend it, and keep it (docs/testing.md, \"When a seed fails\").";

/// Name and arguments of every world, with its share of the time.
const WORLDS: [(&str, &[&str], u64); 20] = [
    ("in_place", &["--placement", "in_place"], 1),
    ("packed", &["--placement", "packed"], 2),
    ("discards", &["--placement", "in_place", "--discards", "yes"], 2),
    ("discards_packed", &["--placement", "packed", "--discards", "yes"], 3),
    ("matrix", &["--engine", "matrix"], 3),
    ("nvme", &["--medium", "nvme"], 3),
    ("nvme_matrix", &["--medium", "nvme", "--engine", "matrix"], 1),
    ("nvme_store", &["--medium", "nvme", "--world", "store"], 1),
    ("nvme_library", &["--medium", "nvme", "--world", "library"], 1),
    ("nvme_pipelined", &["--medium", "nvme", "--world", "pipelined"], 1),
    ("nvme_server", &["--medium", "nvme", "--world", "server"], 1),
    ("tier", &["--world", "tier"], 2),
    ("store", &["--world", "store"], 1),
    ("breaking", &["--world", "breaking"], 1),
    ("store_on_matrix", &["--world", "store", "--engine", "matrix"], 1),
    ("server", &["--world", "server"], 3),
    ("pipelined", &["--world", "pipelined"], 1),
    ("breaking_server", &["--world", "breaking_server"], 2),
    ("library", &["--world", "library"], 3),
    ("redis", &["--world", "redis"], 2),
];

/// What the arguments ask for.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    minutes: u64,
    from: u64,
}

/// Runs the command.
///
/// # Errors
/// What was found, and where it is written down.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    let request = parse(arguments, clock)?;
    build(root, "sim", &["sim"], &[])?;
    let folder = target_directory(root).join("explore");
    fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let mut found = Vec::new();
    for (name, world, _) in WORLDS {
        let seconds = seconds_of(name, request.minutes);
        println!("== {name}: {seconds} s of seeds from {}", request.from);
        found.extend(explore(root, &folder, name, world, seconds, request.from)?);
    }
    if found.is_empty() {
        return Ok(());
    }
    let files: Vec<String> = found.iter().map(|file| file.display().to_string()).collect();
    Err(format!("{} of {} worlds failed: see {}", found.len(), WORLDS.len(), files.join(", ")))
}

fn seconds_of(name: &str, minutes: u64) -> u64 {
    let all: u64 = WORLDS.iter().map(|(_, _, share)| share).sum();
    let share = WORLDS.iter().find(|(known, _, _)| *known == name).map_or(0, |(_, _, share)| *share);
    (60 * minutes * share / all).max(1)
}

/// Runs one world; where it fails, the file in which that is written down.
fn explore(
    root: &Path,
    folder: &Path,
    name: &str,
    world: &[&str],
    seconds: u64,
    from: u64,
) -> Result<Option<PathBuf>, String> {
    let mut sim = Command::new(built(root, "sim", "sim"));
    sim.current_dir(root).args(world).args(["--seconds", &seconds.to_string(), "--from", &from.to_string()]);
    let output = sim.stderr(Stdio::piped()).output().map_err(|error| format!("cannot start the simulator: {error}"))?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    if output.status.success() {
        return Ok(None);
    }
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    eprintln!("{why}");
    let seed = why.split("seed ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or("unknown");
    let file = folder.join(format!("{name}-{seed}.txt"));
    let text = format!("cargo xtask sim {} --seed {seed}\n\n{why}", world.join(" "));
    fs::write(&file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    Ok(Some(file))
}

fn parse(arguments: &[String], clock: u64) -> Result<Request, String> {
    let mut request = Request { minutes: 14, from: clock };
    for pair in arguments.chunks(2) {
        let [option, value] = pair else { return Err(format!("{} wants a value\n\n{USAGE}", pair.join(" "))) };
        let number = value.parse::<u64>().map_err(|_| format!("{option} wants a number, not `{value}`\n\n{USAGE}"))?;
        match option.as_str() {
            "--minutes" if number > 0 => request.minutes = number,
            "--from" => request.from = number,
            _ => return Err(format!("unknown option `{option} {value}`\n\n{USAGE}")),
        }
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_and_a_first_seed_are_read_or_refused() {
        let asked = |words: &[&str]| parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), 9);
        assert_eq!(asked(&[]), Ok(Request { minutes: 14, from: 9 }));
        assert_eq!(asked(&["--from", "7", "--minutes", "2"]), Ok(Request { minutes: 2, from: 7 }));
        assert!(
            asked(&["--minutes"]).is_err() && asked(&["--minutes", "0"]).is_err() && asked(&["--all", "1"]).is_err()
        );
    }

    #[test]
    fn the_worlds_share_the_time() {
        let sum: u64 = WORLDS.iter().map(|(name, _, _)| seconds_of(name, 14)).sum();
        assert_eq!(sum, 14 * 60);
    }
}
