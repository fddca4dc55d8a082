//! `stratakv del`.

use std::ffi::OsString;
use std::ops::Bound;

use clap::Args;
use stratakv::ErrorKind;
use stratakv_base::quantity::format_count;

use crate::failure::{Exit, Failure};
use crate::key;
use crate::opening::{CollectionArguments, DurabilityArguments, OpenArguments};
use crate::remote::ServerArguments;
use crate::say::say;

/// Delete keys, a range of them, or those with a prefix
#[derive(Args)]
#[command(after_help = "Examples:\n  stratakv del user:1\n  stratakv del user:1 user:2
  stratakv del --prefix user:
  stratakv del --from a --to b
  stratakv del user:1 --server 127.0.0.1:11211

Exit code 3 if one of the keys did not exist; the others are deleted all the same. A range \
or prefix prints its number of keys on stderr. It is not atomic: a kill in the middle leaves a \
part deleted.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    #[command(flatten)]
    durability: DurabilityArguments,
    #[command(flatten)]
    server: ServerArguments,
    #[command(flatten)]
    collection: CollectionArguments,
    /// The keys
    #[arg(required_unless_present_any = ["prefix", "from", "to"], value_name = "KEY")]
    keys: Vec<OsString>,
    /// Every key that begins with this; an empty one for all
    #[arg(long, conflicts_with_all = ["keys", "from", "to"])]
    prefix: Option<OsString>,
    /// Every key from this one on
    #[arg(long, value_name = "KEY", conflicts_with = "keys")]
    from: Option<OsString>,
    /// Every key up to this one, without it
    #[arg(long, value_name = "KEY", conflicts_with = "keys")]
    to: Option<OsString>,
    /// The keys, or --prefix, --from and --to, are base64
    #[arg(long)]
    base64: bool,
}

impl Arguments {
    fn delete_many(&self) -> Result<(), Failure> {
        let bytes = |argument: &Option<OsString>| {
            argument.as_ref().map(|argument| key::bytes(argument, self.base64)).transpose()
        };
        let (prefix, from, to) = (bytes(&self.prefix)?, bytes(&self.from)?, bytes(&self.to)?);
        let store = self.open.write(&self.durability, None)?;
        let collection = self.collection.read(&store)?;
        let deleted = match &prefix {
            Some(prefix) => collection.delete_prefix(prefix),
            None => collection.delete_range::<&[u8]>((
                from.as_deref().map_or(Bound::Unbounded, Bound::Included),
                to.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
            )),
        };
        let deleted = deleted.map_err(|error| match error.kind() {
            ErrorKind::Corrupt | ErrorKind::Io => {
                let failure = Failure::from(error);
                let rest = "All others that can be found are deleted; `stratakv check` says what is left";
                Failure { message: format!("{}. {rest}", failure.message), ..failure }
            }
            _ => Failure::from(error),
        })?;
        drop(collection);
        store.close()?;
        say!("{} deleted", format_count(deleted, "key"));
        Ok(())
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.keys.is_empty() {
        return arguments.delete_many();
    }
    let keys = arguments.keys.iter().map(|key| key::bytes(key, arguments.base64)).collect::<Result<Vec<_>, _>>()?;
    let missing = match arguments.server.connect()? {
        Some(mut server) => missing_of(&keys, |key| server.delete(key))?,
        None => {
            let store = arguments.open.write(&arguments.durability, None)?;
            let collection = arguments.collection.read(&store)?;
            let missing = missing_of(&keys, |key| Ok(collection.delete(key)?))?;
            drop(collection);
            store.close()?;
            missing
        }
    };
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(Exit::NotFound, format!("there is no key {}", missing.join(", ")))),
    }
}

/// Deletes the keys; those that did not exist, as they are shown.
fn missing_of(
    keys: &[Vec<u8>],
    mut delete: impl FnMut(&[u8]) -> Result<bool, Failure>,
) -> Result<Vec<String>, Failure> {
    let mut missing = Vec::new();
    for key in keys {
        if !delete(key)? {
            missing.push(format!("`{}`", key.escape_ascii()));
        }
    }
    Ok(missing)
}
