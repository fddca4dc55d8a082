//! `stratakv man`: manual pages, made from the same definitions as the helps.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;

use crate::Output;
use crate::failure::Failure;

/// Print the manual page of the program or of a subcommand, or write all of them to a directory
#[derive(Args)]
#[command(after_help = "Examples:\n  stratakv man | man -l -
  stratakv man serve | man -l -
  stratakv man --out /usr/local/share/man/man1")]
pub(crate) struct Arguments {
    /// The subcommand, such as serve [default: the program itself]
    #[arg(value_name = "SUBCOMMAND", conflicts_with = "out")]
    subcommand: Option<String>,
    /// Write the pages of the program and of all subcommands to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let mut command = crate::headings::grouped(crate::Arguments::command());
    // The subcommand `help` is for terminals.
    command = command.disable_help_subcommand(true);
    command.build();
    if let Some(directory) = &arguments.out {
        return write_all(&command, directory);
    }
    let asked = match &arguments.subcommand {
        None => &command,
        Some(name) => command.find_subcommand(name).ok_or_else(|| {
            Failure::usage(format!("there is no subcommand `{name}`: `stratakv --help` lists all of them"))
        })?,
    };
    output.write_all(&page(asked)?).map_err(Failure::output)
}

/// Writes `stratakv.1`, `stratakv-get.1` and so on.
fn write_all(command: &Command, directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(directory)
        .map_err(|error| Failure::failed(format!("{}: cannot make the directory: {error}", directory.display())))?;
    for asked in std::iter::once(command).chain(command.get_subcommands()) {
        let file = directory.join(format!("{}.1", name(asked)));
        std::fs::write(&file, page(asked)?)
            .map_err(|error| Failure::failed(format!("{}: cannot write the page: {error}", file.display())))?;
    }
    Ok(())
}

/// The page's name: `stratakv-get` of the subcommand `get`.
fn name(command: &Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).replace(' ', "-")
}

fn page(command: &Command) -> Result<Vec<u8>, Failure> {
    let manual = Man::new(command.clone())
        .title(name(command))
        .section("1")
        .source(format!("stratakv {}", env!("CARGO_PKG_VERSION")))
        .manual("StrataKV");
    let mut roff = Vec::new();
    manual.render(&mut roff).map_err(Failure::output)?;
    Ok(roff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> Vec<(String, String)> {
        let mut command = crate::headings::grouped(crate::Arguments::command()).disable_help_subcommand(true);
        command.build();
        let all = std::iter::once(&command).chain(command.get_subcommands());
        all.map(|one| (name(one), String::from_utf8(page(one).ok().unwrap()).unwrap())).collect()
    }

    #[test]
    fn every_subcommand_has_a_page_with_its_options() {
        let pages = pages();
        for (name, text) in &pages {
            assert!(text.contains(".TH") && text.contains(".SH NAME"), "{name}: {text}");
            // groff takes a page's name from its title.
            assert!(text.contains(&format!(".TH {name} 1")), "{name}: {}", text.lines().nth(2).unwrap_or_default());
        }
        let of = |wanted: &str| pages.iter().find(|(name, _)| name == wanted).map(|(_, text)| text.replace('\\', ""));
        let serve = of("stratakv-serve").expect("a page of serve");
        for option in ["--memory", "--resp", "--admin", "--config"] {
            assert!(serve.contains(option), "{option} is missing");
        }
        assert!(of("stratakv").unwrap().contains("stratakv-serve(1)"));
        assert!(of("stratakv-help").is_none());
    }
}
