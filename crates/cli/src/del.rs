//! `stratakv del`.

use std::ffi::OsString;

use clap::Args;

use crate::failure::{Exit, Failure};
use crate::key;
use crate::opening::{DurabilityArguments, OpenArguments};

/// Delete keys
#[derive(Args)]
#[command(after_help = "Examples:\n  stratakv del user:1\n  stratakv del user:1 user:2

Exit code 3 if one of the keys did not exist; the others are deleted all the same.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    #[command(flatten)]
    durability: DurabilityArguments,
    /// The keys
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,
    /// The keys are base64
    #[arg(long)]
    base64: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let keys = arguments.keys.iter().map(|key| key::bytes(key, arguments.base64)).collect::<Result<Vec<_>, _>>()?;
    let store = arguments.open.write(&arguments.durability, false)?;
    let mut missing = Vec::new();
    for key in &keys {
        if !store.delete(key)? {
            missing.push(format!("`{}`", key.escape_ascii()));
        }
    }
    store.close()?;
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(Exit::NotFound, format!("there is no key {}", missing.join(", ")))),
    }
}
