//! The `stratakv` program: serves a store, and reads, writes, copies, checks and measures it from
//! the command line.
#![forbid(unsafe_code)]

mod admin_http;
mod backup;
mod bench;
mod check;
mod collections;
mod completions;
mod config;
mod configuration;
mod count;
mod csv_line;
mod del;
mod doctor;
mod dump;
mod failure;
mod get;
mod headings;
mod health;
mod hints;
mod import;
mod json_line;
mod key;
mod load;
mod logging;
mod man;
mod memory;
mod opening;
mod plan;
mod progress;
mod put;
mod remote;
mod repair;
mod restore;
mod room;
mod say;
mod scan;
mod serve;
mod stats;
mod text;
mod top;
mod trees;
mod update;
mod write_queue;

use std::io::{BufWriter, StdoutLock, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::failure::Failure;

/// Where results go: buffered, flushed at the end.
type Output = BufWriter<StdoutLock<'static>>;

const AFTER_HELP: &str = "\
Exit codes:
  0  done
  1  failed: I/O error, full disk, a condition that did not hold, a malformed line
  2  usage: bad option, key or value
  3  not found: no such key, no such store
  4  corruption: damaged data was met
  5  locked or busy: another process has the store or the port
  6  unsupported here: a newer format, a missing capability

Results go to stdout, diagnostics to stderr. STRATAKV_LOG=info (or debug, or trace) tells more.

Examples:
  stratakv serve                            memcache on 127.0.0.1:11211, data in ./stratakv-data
  stratakv put user:1 Ada && stratakv get user:1
  stratakv scan --prefix user: --json
  stratakv dump | gzip > backup.jsonl.gz
  stratakv doctor /mnt/nvme                 what this disk and this kernel can do";

/// A persistent key-value store that memcached clients talk to.
#[derive(Parser)]
#[command(name = "stratakv", version, after_help = AFTER_HELP, max_term_width = 120)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(Box<serve::Arguments>),
    Get(get::Arguments),
    Put(put::Arguments),
    Del(del::Arguments),
    Update(update::Arguments),
    Scan(scan::Arguments),
    Collections(collections::Arguments),
    Load(load::Arguments),
    Import(Box<import::Arguments>),
    Dump(dump::Arguments),
    Stats(stats::Arguments),
    Top(top::Arguments),
    Health(health::Arguments),
    Check(check::Arguments),
    Repair(repair::Arguments),
    Backup(backup::Arguments),
    Restore(restore::Arguments),
    Doctor(doctor::Arguments),
    Plan(plan::Arguments),
    Bench(bench::Arguments),
    Config(config::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
}

fn run(command: Command, given: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    match command {
        Command::Serve(arguments) => serve::run(&arguments, given, output),
        Command::Get(arguments) => get::run(&arguments, output),
        Command::Put(arguments) => put::run(&arguments, output),
        Command::Del(arguments) => del::run(&arguments),
        Command::Update(arguments) => update::run(&arguments, output),
        Command::Collections(arguments) => collections::run(&arguments, output),
        Command::Scan(arguments) => scan::run(&arguments, output),
        Command::Load(arguments) => load::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Dump(arguments) => dump::run(&arguments, output),
        Command::Stats(arguments) => stats::run(&arguments, output),
        Command::Top(arguments) => top::run(&arguments, output),
        Command::Health(arguments) => health::run(&arguments, output),
        Command::Backup(arguments) => backup::run(&arguments, output),
        Command::Restore(arguments) => restore::run(&arguments),
        Command::Check(arguments) => check::run(&arguments, output),
        Command::Repair(arguments) => repair::run(&arguments, output),
        Command::Doctor(arguments) => doctor::run(&arguments, output),
        Command::Plan(arguments) => plan::run(&arguments, output),
        Command::Bench(arguments) => bench::run(&arguments, output),
        Command::Config(arguments) => config::run(&arguments, output),
        Command::Completions(arguments) => completions::run(&arguments, output),
        Command::Man(arguments) => man::run(&arguments, output),
    }
}

/// A write over the limit of file sizes raises SIGXFSZ, which would end the process. Caught, the
/// write fails with EFBIG: a full disk.
fn survive_file_size_limit() {
    let seen = std::sync::Arc::<std::sync::atomic::AtomicBool>::default();
    if let Err(error) = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, seen) {
        tracing::warn!(%error, "a limit of file sizes would end this process");
    }
}

/// What a command line asks for: the subcommand, and its options as they were given.
type Asked = (Command, ArgMatches);

/// Takes the arguments. Ends the process if the command line is wrong, or asks for help.
fn parse() -> Result<Asked, Failure> {
    try_parse().unwrap_or_else(|error| {
        let asked: Vec<String> = std::env::args().skip(1).take(1).collect();
        let option = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(option)) if error.kind() == ErrorKind::UnknownArgument => option.as_str(),
            _ => "",
        };
        let subcommand = asked.first().map_or("", String::as_str);
        if error.kind() == ErrorKind::MissingRequiredArgument
            && let Some(hint) = hints::missing(subcommand)
        {
            let text = error.to_string();
            let usage = text.lines().find(|line| line.starts_with("Usage:")).unwrap_or_default();
            return Err(Failure::usage(format!("{hint}\n{usage}")));
        }
        if let Some(hint) = hints::unknown_option(subcommand, option) {
            return Err(Failure::usage(format!("there is no option {option} here: {hint}")));
        }
        match hints::stray_word(subcommand) {
            Some(hint) if !option.is_empty() && !option.starts_with('-') => {
                Err(Failure::usage(format!("`{option}` is one word too many: {hint}")))
            }
            _ => error.exit(),
        }
    })
}

/// Takes them again: the file of `--config` may have changed, and what names stand for.
fn parse_again() -> Result<Asked, Failure> {
    try_parse().unwrap_or_else(|error| Err(Failure::usage(error.to_string().lines().next().unwrap_or_default())))
}

fn try_parse() -> Result<Result<Asked, Failure>, clap::Error> {
    let mut command = headings::grouped(Arguments::command());
    command.build();
    let command = with_whole_usage(command);
    let given = command.clone().try_get_matches()?;
    let matches = match configuration::with_file(command, given) {
        Ok(matches) => matches,
        Err(failure) => return Ok(Err(failure)),
    };
    let arguments = Arguments::from_arg_matches(&matches)?;
    let options = matches.subcommand().map(|(_, options)| options.clone()).unwrap_or_default();
    Ok(remote::refuse_options_without_effect(&matches).map(|()| (arguments.command, options)))
}

/// Beside an error, clap shows only the arguments that must be there: it would seem that there are
/// no options.
fn with_whole_usage(mut command: clap::Command) -> clap::Command {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    command.override_usage(usage).mut_subcommands(with_whole_usage)
}

fn main() -> ExitCode {
    let (command, given) = match parse() {
        Ok(parsed) => parsed,
        Err(failure) => return ended(Err(failure)),
    };
    survive_file_size_limit();
    if let Err(failure) = begin_log(&command) {
        return ended(Err(failure));
    }
    if let Err(error) = stratakv::explain_bus_errors() {
        tracing::warn!(%error, "a region that is cut short under this process will end it without a word");
    }
    let mut output = BufWriter::with_capacity(64 << 10, std::io::stdout().lock());
    let result = run(command, &given, &mut output);
    // What was found before a failure is still worth having.
    let flushed = output.flush().map_err(Failure::output);
    ended(result.and(flushed))
}

/// Says what went wrong, and gives the exit code.
fn ended(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                say::say!("{}", failure.message);
            }
            ExitCode::from(failure.exit as u8)
        }
    }
}

/// A command says itself what it met; only who runs for long has more to tell.
fn begin_log(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Serve(arguments) => arguments.log.begin(),
        _ => {
            let asked = std::env::var("STRATAKV_LOG").ok();
            let asked = asked.filter(|filter| tracing_subscriber::EnvFilter::try_new(filter).is_ok());
            logging::begin(asked.as_deref().unwrap_or("error"), logging::LogFormat::Text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines that were broken by hand were broken again by a terminal.
    #[test]
    fn the_prose_below_helps_is_wrapped_once() {
        for command in Arguments::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let (_, prose) = help.split_once("\n\n").unwrap_or_default();
            for paragraph in prose.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
                assert!(!paragraph.contains('\n'), "{}: {paragraph}", command.get_name());
                assert!(paragraph.ends_with(['.', ':']), "{}: {paragraph}", command.get_name());
            }
        }
    }
}

#[cfg(test)]
#[path = "../tests/unit/pages.rs"]
mod pages;
