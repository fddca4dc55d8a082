//! `cargo xtask mixed`: everything that engine `hash` does, at once and for minutes: its test
//! `mixed`, with every assertion on, which runs some seconds otherwise.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::cargo::{cargo, succeed};

const USAGE: &str = "\
usage: cargo xtask mixed [--minutes 10] [--seed N] [--fault-point NAME]

  --seed N       draws the same regions, loads and threads again; how the threads meet is the machine's doing. Otherwise another seed each time
  --fault-point NAME  with a deliberate defect of crates/hash: whether it is seen is a matter of luck and time";

#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    minutes: Option<u64>,
    seed: Option<u64>,
    fault_point: Option<String>,
}

/// Runs the command.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let request = parse(arguments)?;
    let mut test = test(root, &request);
    let Some(fault_point) = request.fault_point else { return succeed("mixed", &mut test) };
    let status = test.status().map_err(|error| format!("cannot start cargo: {error}"))?;
    if status.success() {
        return Err(format!("{fault_point} was not seen"));
    }
    println!("mixed: failed, as it should with {fault_point}: see above");
    Ok(())
}

fn parse(arguments: &[String]) -> Result<Request, String> {
    let mut request = Request::default();
    for pair in arguments.chunks(2) {
        let [option, value] = pair else { return Err(format!("`{}` needs a value\n\n{USAGE}", pair[0])) };
        let number = || value.parse().map_err(|_| format!("{option} needs a number, not `{value}`\n\n{USAGE}"));
        match option.as_str() {
            "--minutes" => request.minutes = Some(number()?),
            "--seed" => request.seed = Some(number()?),
            "--fault-point" => request.fault_point = Some(value.clone()),
            _ => return Err(format!("unknown option `{option}`\n\n{USAGE}")),
        }
    }
    Ok(request)
}

fn test(root: &Path, request: &Request) -> Command {
    let mut test = cargo(root);
    test.args(["test", "--profile", "sim", "--package", "stratakv-hash", "--test", "mixed"]);
    if let Some(fault_point) = &request.fault_point {
        test.args(["--features", "fault_points"]).env("STRATAKV_MIXED_FAULT_POINT", fault_point);
    }
    let seconds = request.minutes.unwrap_or(10) * 60;
    let seed =
        request.seed.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs()));
    test.env("STRATAKV_MIXED_SECONDS", seconds.to_string()).env("STRATAKV_MIXED_SEED", seed.to_string());
    test.args(["--", "--nocapture"]);
    test
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_a_seed_and_a_defect_are_read_or_refused() {
        let asked = |words: &[&str]| parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(asked(&[]), Ok(Request::default()));
        let all = Request { minutes: Some(2), seed: Some(7), fault_point: Some("x".into()) };
        assert_eq!(asked(&["--seed", "7", "--minutes", "2", "--fault-point", "x"]), Ok(all));
        assert!(asked(&["--minutes"]).is_err() && asked(&["--minutes", "long"]).is_err());
        assert!(asked(&["--short", "1"]).is_err());
    }
}
