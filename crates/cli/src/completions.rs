//! `stratakv completions`.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::Output;
use crate::failure::Failure;

/// Print a completion script for a shell
#[derive(Args)]
#[command(after_help = "Examples:\n  stratakv completions bash > ~/.local/share/bash-completion/completions/stratakv
  stratakv completions fish > ~/.config/fish/completions/stratakv.fish")]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    // Into memory first: the generator panics where a pipe is closed.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::Arguments::command(), "stratakv", &mut script);
    output.write_all(&script).map_err(Failure::output)
}
