//! `stratakv config`: files of options for `serve --config`, printed and checked.

use std::io::Write;
use std::path::PathBuf;

use clap::{Arg, ArgAction, Args, CommandFactory, Subcommand};

use crate::failure::Failure;
use crate::{Output, configuration, headings, serve};

/// The file of options that packages install: it has an example of each option.
const PACKAGED: &str = include_str!("../../../packaging/stratakv.toml");
/// Columns of a comment.
const WIDTH: usize = 96;

/// Print a file of all options of `serve`, or check one
#[derive(Args)]
#[command(after_help = "Examples:\n  stratakv config print-default > /etc/stratakv.toml
  stratakv config check /etc/stratakv.toml
  stratakv serve --config /etc/stratakv.toml")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Print every option of `serve` with its default, as TOML in which all is commented out
    PrintDefault,
    /// Check a file of options: its names, its values, and whether they fit together. Nothing is
    /// opened, and no port is tried
    Check(Check),
}

#[derive(Args)]
struct Check {
    /// The file
    file: PathBuf,
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    match &arguments.what {
        What::PrintDefault => output.write_all(defaults().as_bytes()).map_err(Failure::output),
        What::Check(Check { file }) => {
            let command = built();
            let (serve, names) = configuration::checked::<serve::Arguments>(serve_of(&command), file)?;
            serve.check().map_err(|failure| failure.at(file.display()))?;
            let options = stratakv_base::quantity::format_count(names as u64, "option");
            writeln!(output, "{}: {options}, all of them good", file.display()).map_err(Failure::output)
        }
    }
}

/// The command line, with its headings.
fn built() -> clap::Command {
    let mut command = headings::grouped(crate::Arguments::command());
    command.build();
    command
}

fn serve_of(command: &clap::Command) -> &clap::Command {
    command.find_subcommand("serve").unwrap_or(command)
}

/// The file, made of what the help is made of.
fn defaults() -> String {
    let command = built();
    let mut text = String::from(
        "# Options of `stratakv serve --config FILE`, in the order of `stratakv serve --help`, each with its default.\n\
         # Remove the # in front of a line to set the option. The command line and the environment win over the file.\n",
    );
    let mut heading = None;
    for option in headings::in_order_of_help(serve_of(&command)) {
        let Some(name) = option.get_long().filter(|name| configuration::is_setting(name)) else { continue };
        if heading != option.get_help_heading() {
            heading = option.get_help_heading();
            text.push_str(&format!("\n# ---- {} ----\n", heading.unwrap_or_default()));
        }
        text.push('\n');
        let help = option.get_help().map(ToString::to_string).unwrap_or_default();
        wrapped(&help, &mut text);
        let known: Vec<_> = option.get_possible_values();
        let is_switch = matches!(option.get_action(), ArgAction::SetTrue);
        if !known.is_empty() && !is_switch {
            let names: Vec<_> = known.iter().filter(|one| !one.is_hide_set()).map(|one| one.get_name()).collect();
            wrapped(&format!("One of: {}", names.join(", ")), &mut text);
        }
        text.push_str(&line(option, name));
    }
    text
}

/// The value that the packaged file has of an option, as TOML.
fn example(name: &str) -> Option<&'static str> {
    let settings = PACKAGED.lines().map(|line| line.strip_prefix('#').unwrap_or(line));
    settings.filter_map(|line| line.split_once(" = ")).find(|(option, _)| *option == name).map(|(_, value)| value)
}

/// `#name = value`, with the default, or with an example and a remark.
fn line(option: &Arg, name: &str) -> String {
    let is_list = matches!(option.get_action(), ArgAction::Append);
    let quoted = |value: &str| match value.parse::<i64>() {
        Ok(number) => number.to_string(),
        Err(_) => toml::Value::from(value).to_string(),
    };
    let listed = |value: String| if is_list { format!("[{value}]") } else { value };
    if matches!(option.get_action(), ArgAction::SetTrue) {
        return format!("#{name} = false\n");
    }
    match option.get_default_values().first().and_then(|value| value.to_str()) {
        Some(value) => format!("#{name} = {}\n", listed(quoted(value))),
        // A test sees to it that the packaged file has every option.
        None => format!("#{name} = {}  # not set: an example\n", example(name).unwrap_or("\"\"")),
    }
}

/// Adds a text as lines of comments.
fn wrapped(text: &str, out: &mut String) {
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH {
            out.push_str(&line);
            out.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_the_help_is_there_with_its_default() {
        let command = built();
        let text = defaults();
        for option in serve_of(&command).get_arguments() {
            let Some(name) = option.get_long().filter(|name| configuration::is_setting(name)) else { continue };
            let there = text.lines().filter(|line| line.starts_with(&format!("#{name} = "))).count();
            assert_eq!(there, 1, "{name} in\n{text}");
        }
        assert!(text.contains("#memory = \"1G\"\n") && text.contains("#depth = 128\n"), "{text}");
        assert!(text.contains("#insecure = false\n") && text.contains("#data = [\"./stratakv-data\"]\n"), "{text}");
        assert!(text.contains("#placement = \"in_place\"  # not set: an example\n"), "{text}");
        assert!(text.contains("#memcache = [\"127.0.0.1:11211\"]  # not set: an example\n"), "{text}");
        assert!(text.lines().all(|line| line.is_empty() || line.starts_with('#')), "{text}");
        // Each example is a value that the option takes.
        for line in text.lines().filter_map(|line| line.strip_suffix("  # not set: an example")) {
            let setting: toml::Table =
                line.trim_start_matches('#').parse().unwrap_or_else(|why| panic!("{line}: {why}"));
            let words = configuration::added_to_nothing(serve_of(&command), &setting.to_string()).expect("words");
            let words = ["serve".to_owned()].into_iter().chain(words);
            let parsed = serve_of(&command).clone().try_get_matches_from(words);
            let wrong = parsed.err().filter(|error| error.kind() != clap::error::ErrorKind::MissingRequiredArgument);
            assert!(wrong.is_none(), "{line}: {wrong:?}");
        }
        let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part}"));
        assert!(place("#data") < place("#memory") && place("#memory") < place("---- Store"), "{text}");
    }
}
