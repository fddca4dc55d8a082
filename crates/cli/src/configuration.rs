//! `--config FILE`: options from a file. TOML, with the names of the options; the command line wins
//! over the environment, that over the file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use toml::Value;

use crate::failure::Failure;

/// Options that are no settings.
const NO_SETTINGS: &[&str] = &["config", "help", "version"];

/// Parses the command line of the process again with what its `--config` file adds, if it has one.
///
/// # Errors
/// The file cannot be read, is no TOML, has a name that is no option, or a value that the option
/// does not take.
pub(crate) fn with_file(command: Command, given: ArgMatches) -> Result<ArgMatches, Failure> {
    let Some((name, arguments)) = given.subcommand() else { return Ok(given) };
    let Some(file) = file_of(arguments) else { return Ok(given) };
    let Some(subcommand) = command.find_subcommand(name) else { return Ok(given) };
    let at = |failure: Failure| failure.at(file.display());
    let text = std::fs::read_to_string(&file)
        .map_err(|error| at(Failure::usage(format!("{error}; --config names a file of TOML"))))?;
    let added = added(subcommand, arguments, &text).map_err(at)?;
    let mut words: Vec<OsString> = std::env::args_os().collect();
    // The program, the subcommand, and what belongs to it.
    words.splice(2..2, added.into_iter().map(OsString::from));
    // Without the file it parsed: what is wrong now is the file's.
    command.try_get_matches_from(words).map_err(|error| {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        at(Failure::usage(line.trim_start_matches("error: ")))
    })
}

/// Reads a file as `--config` would, without a command line beside it: the options, and how many it
/// sets.
///
/// # Errors
/// As of [`with_file`].
pub(crate) fn checked<A: FromArgMatches>(subcommand: &Command, file: &Path) -> Result<(A, usize), Failure> {
    let at = |failure: Failure| failure.at(file.display());
    let text =
        std::fs::read_to_string(file).map_err(|error| at(Failure::usage(format!("{error}; name a file of TOML"))))?;
    let wrong = |error: &clap::Error| {
        let text = error.to_string();
        at(Failure::usage(text.lines().next().unwrap_or_default().trim_start_matches("error: ")))
    };
    let table = table_of(&text).map_err(at)?;
    let parse = |words: Vec<String>| {
        let words = [subcommand.get_name().to_owned()].into_iter().chain(words);
        subcommand.clone().try_get_matches_from(words).map_err(|error| wrong(&error))
    };
    let words = added(subcommand, &parse(Vec::new())?, &text).map_err(at)?;
    let arguments = A::from_arg_matches(&parse(words)?).map_err(|error| wrong(&error))?;
    Ok((arguments, table.len()))
}

/// Whether an option of this name may stand in a file.
pub(crate) fn is_setting(name: &str) -> bool {
    !NO_SETTINGS.contains(&name)
}

fn file_of(arguments: &ArgMatches) -> Option<PathBuf> {
    arguments.try_get_one::<PathBuf>("config").ok().flatten().cloned()
}

/// The settings of a file.
fn table_of(text: &str) -> Result<toml::Table, Failure> {
    text.parse().map_err(|error: toml::de::Error| {
        let told = error.to_string();
        let line = error.span().and_then(|span| text.get(..span.start)).and_then(|before| before.lines().last());
        let advice = match line.and_then(|line| line.split_once('=')) {
            // TOML has no octal numbers of this form.
            Some((name, _)) if told.contains("leading zero") => {
                format!("a number does not begin with 0 in TOML: put a mode into quotes, as {} = \"0770\"", name.trim())
            }
            _ => return Failure::usage(told),
        };
        Failure::usage(format!("{}\n{advice}", told.trim_end()))
    })
}

/// The words of a file's text, without a command line beside it.
#[cfg(test)]
pub(crate) fn added_to_nothing(command: &Command, text: &str) -> Result<Vec<String>, Failure> {
    let given = command.clone().try_get_matches_from([command.get_name()]);
    added(command, &given.map_err(|error| Failure::usage(error.to_string()))?, text)
}

/// The words that a file's text adds to a command line: nothing of what is there already, or
/// excluded by what is there.
fn added(command: &Command, given: &ArgMatches, text: &str) -> Result<Vec<String>, Failure> {
    let table = table_of(text)?;
    let mut words = Vec::new();
    for (name, value) in &table {
        let option = option(command, name)?;
        let wanted = worded(option, name, value)?;
        if !is_overruled(command, given, option) {
            words.extend(wanted);
        }
    }
    Ok(words)
}

fn settings(command: &Command) -> impl Iterator<Item = (&Arg, &str)> {
    let named = command.get_arguments().filter_map(|option| Some((option, option.get_long()?)));
    named.filter(|(_, name)| is_setting(name))
}

fn option<'a>(command: &'a Command, name: &str) -> Result<&'a Arg, Failure> {
    let has_name = |option: &Arg, known: &str| {
        known == name || option.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
    };
    if let Some((option, _)) = settings(command).find(|(option, known)| has_name(option, known)) {
        return Ok(option);
    }
    let nearest =
        settings(command).map(|(_, known)| known).min_by_key(|known| strsim::damerau_levenshtein(known, name));
    let hint = nearest.map_or(String::new(), |known| format!("; is it `{known}`? "));
    Err(Failure::usage(format!(
        "there is no option `{name}`{hint}`stratakv {} --help` has all of them",
        command.get_name()
    )))
}

/// Whether the command line or the environment says it, or something that it excludes.
fn is_overruled(command: &Command, given: &ArgMatches, option: &Arg) -> bool {
    let is_said = |option: &Arg| {
        let source = given.value_source(option.get_id().as_str());
        matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    let excludes = |one: &Arg, other: &Arg| command.get_arg_conflicts_with(one).contains(&other);
    let mut said = settings(command).map(|(other, _)| other).filter(|other| is_said(other));
    said.any(|other| other == option || excludes(other, option) || excludes(option, other))
}

/// A setting as words of a command line.
fn worded(option: &Arg, name: &str, value: &Value) -> Result<Vec<String>, Failure> {
    let wrong = |what: &str| Err(Failure::usage(format!("`{name}` is {what}, not {value}")));
    let one = |value: &Value| match value {
        Value::String(text) => Some(format!("--{name}={text}")),
        Value::Integer(number) => Some(format!("--{name}={number}")),
        Value::Float(number) => Some(format!("--{name}={number}")),
        _ => None,
    };
    match (option.get_action(), value) {
        (ArgAction::SetTrue, Value::Boolean(yes)) => Ok(yes.then(|| format!("--{name}")).into_iter().collect()),
        (ArgAction::SetTrue, _) => wrong("true or false"),
        (_, Value::Boolean(yes)) if option.get_possible_values().iter().any(|known| known.matches("off", false)) => {
            Ok(vec![format!("--{name}={}", if *yes { "on" } else { "off" })])
        }
        (ArgAction::Append, Value::Array(values)) => match values.iter().map(one).collect() {
            Some(words) => Ok(words),
            None => wrong("a text or a number, or a list of them"),
        },
        _ => match one(value) {
            Some(word) => Ok(vec![word]),
            None => wrong("a text or a number"),
        },
    }
}

#[cfg(test)]
mod tests {
    use clap::Args;

    use super::*;

    fn words(given: &[&str], text: &str) -> Result<Vec<String>, String> {
        let command = crate::serve::Arguments::augment_args(Command::new("serve"));
        let given = command.clone().try_get_matches_from([&["serve"], given].concat()).unwrap();
        added(&command, &given, text).map_err(|failure| failure.message)
    }

    #[test]
    fn settings_become_words_of_the_command_line() {
        let text = "memory = '4G' # of 16\nthreads = 3\ninsecure = true\nmemcache = ['[::1]:1', '127.0.0.1:2']\n\
                    item-bytes-max = 1024\nio = 'blocking'";
        let expected = [
            "--memory=4G",
            "--threads=3",
            "--insecure",
            "--memcache=[::1]:1",
            "--memcache=127.0.0.1:2",
            "--item-bytes-max=1024",
            "--io=blocking",
        ];
        let mut found = words(&[], text).unwrap();
        let mut expected = expected.map(str::to_owned).to_vec();
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
        assert_eq!(words(&[], "insecure = false\nmemcache = '127.0.0.1:2'").unwrap(), ["--memcache=127.0.0.1:2"]);
        assert!(words(&[], "").unwrap().is_empty());
    }

    #[test]
    fn old_names_are_settings_and_switches_are_true_or_false() {
        assert_eq!(words(&[], "layer = '8M'").unwrap(), ["--layer=8M"]);
        for (text, word) in [
            ("park = true", "--park=on"),
            ("save-at-shutdown = false", "--save-at-shutdown=off"),
            ("save-at-shutdown = 'on'", "--save-at-shutdown=on"),
        ] {
            assert_eq!(words(&[], text).unwrap(), [word]);
        }
    }

    #[test]
    fn the_command_line_wins() {
        let text = "threads = 3\nmemcache = ['127.0.0.1:2']\ndepth = 7";
        assert_eq!(words(&["--threads", "1", "--memcache", "127.0.0.1:9"], text).unwrap(), ["--depth=7"]);
        // Over what it excludes, too.
        assert_eq!(words(&["--max-latency", "1ms", "--threads=1"], "depth = 7").unwrap(), [""; 0]);
        assert_eq!(words(&["--depth", "7"], "max-latency = '1ms'").unwrap(), [""; 0]);
    }

    #[test]
    fn what_is_no_setting_is_refused_with_the_nearest_one() {
        for (text, nearest) in [
            ("memroy = '1G'", "`memory`"),
            ("item_bytes_max = 5", "`item-bytes-max`"),
            ("backupdir = 'b'", "`backup-dir`"),
            ("[serve]\nmemory = '1G'", "`serve`"),
            ("config = 'other'", "no option `config`"),
            ("help = true", "no option `help`"),
        ] {
            let refused = words(&[], text).unwrap_err();
            assert!(refused.contains(nearest) && refused.contains("--help"), "{text}: {refused}");
        }
        for text in ["insecure = 'yes'", "threads = true", "threads = [1]", "memcache = [true]", "memory = {}"] {
            let refused = words(&[], text).unwrap_err();
            assert!(refused.contains(" is ") && refused.contains("not "), "{text}: {refused}");
        }
        assert!(words(&[], "memory = ").unwrap_err().contains("line 1"));
        let octal = words(&[], "memory = '1G'\nunix-mode = 0770").unwrap_err();
        assert!(octal.contains("line 2") && octal.contains("unix-mode = \"0770\""), "{octal}");
        assert_eq!(words(&[], "unix-mode = '0770'").unwrap(), ["--unix-mode=0770"]);
        // Also what the command line overrules.
        assert!(words(&["--threads", "1"], "threads = []").is_err());
    }

    /// The file of options that packages install.
    const PACKAGED: &str = include_str!("../../../packaging/stratakv.toml");

    /// The settings of a paragraph as if their comments were taken away, if it has any.
    fn uncommented(paragraph: &str) -> String {
        let settings = paragraph.lines().filter_map(|line| {
            let line = line.strip_prefix('#').unwrap_or(line);
            line.starts_with(|first: char| first.is_ascii_lowercase()).then_some(line)
        });
        settings.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn every_line_of_the_packaged_file_is_accepted() {
        let serve = crate::serve::Arguments::augment_args(Command::new("serve"));
        assert!(words(&[], PACKAGED).unwrap().len() == 1, "only `data` is said by the package");
        let mut seen = 0;
        for paragraph in PACKAGED.split("\n\n") {
            let text = uncommented(paragraph);
            if text.is_empty() {
                continue;
            }
            let admin = if text.contains("admin-name") { "" } else { "admin = '127.0.0.1:1'" };
            let words = words(&[], &format!("{text}\n{admin}")).unwrap_or_else(|why| panic!("{text}: {why}"));
            let all = ["serve".to_owned()].into_iter().chain(words);
            serve.clone().try_get_matches_from(all).unwrap_or_else(|why| panic!("{text}: {why}"));
            seen += 1;
        }
        assert!(seen > 30, "{seen}");
    }

    #[test]
    fn the_packaged_file_has_every_option_with_its_default() {
        let text: Vec<String> = PACKAGED.split("\n\n").map(uncommented).collect();
        let table: toml::Table = text.join("\n").parse().unwrap();
        let serve = crate::serve::Arguments::augment_args(Command::new("serve"));
        for (option, name) in settings(&serve) {
            let value = table.get(name).unwrap_or_else(|| panic!("{name} is missing in packaging/stratakv.toml"));
            let default = option.get_default_values().first().and_then(|value| value.to_str());
            // A package has its own place for data.
            if let Some(default) = default.filter(|_| name != "data" && option.get_action().takes_values()) {
                assert_eq!(value.to_string().trim_matches('"'), default, "{name}");
            }
        }
        for name in table.keys() {
            assert!(option(&serve, name).is_ok(), "{name} is no option");
        }
    }
}
