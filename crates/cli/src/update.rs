//! `stratakv update`.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use clap::Args;
use stratakv::{Expect, Expiry};

use crate::failure::{Exit, Failure};
use crate::opening::{DurabilityArguments, EngineArguments, MadeCollectionArguments, OpenArguments};
use crate::remote::{Client, Condition, ServerArguments, Stored};
use crate::{Output, key, put};

/// Modify a record atomically: increment, append, change the TTL
#[derive(Args)]
#[command(after_help = "Examples:\n  stratakv update visits --increment 1\n  stratakv update log --append 'one more'
  stratakv update session:1 --ttl 3600
  stratakv update visits --increment 1 --server 127.0.0.1:11211

--increment and --decrement print the new number; a counter that does not exist counts from 0. \
The others exit with code 3 if there is no such key.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    #[command(flatten)]
    durability: DurabilityArguments,
    #[command(flatten)]
    server: ServerArguments,
    #[command(flatten)]
    collection: MadeCollectionArguments,
    /// The key
    key: OsString,
    #[command(flatten)]
    change: ChangeArguments,
    /// KEY is base64
    #[arg(long)]
    base64: bool,
}

/// How often a counter may go and come between looking and making it.
const COUNT_ATTEMPTS: usize = 16;

#[derive(Args)]
#[group(required = true, multiple = false)]
struct ChangeArguments {
    /// Add to a decimal number of 64 bits, wrapping
    #[arg(long, value_name = "N")]
    increment: Option<u64>,
    /// Subtract from it, stopping at 0
    #[arg(long, value_name = "N")]
    decrement: Option<u64>,
    /// Put this behind the value
    #[arg(long, value_name = "VALUE")]
    append: Option<OsString>,
    /// Put this in front of the value
    #[arg(long, value_name = "VALUE")]
    prepend: Option<OsString>,
    /// Expire after this many seconds from now, or after a time such as 250ms or 90s; 0 for never
    #[arg(long, value_name = "SECONDS", value_parser = put::parse_ttl)]
    ttl: Option<Duration>,
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let key = key::checked(&arguments.key, arguments.base64)?;
    let change = &arguments.change;
    if let Some(server) = arguments.server.connect()? {
        return ask(server, &key, change, output);
    }
    let counts = change.increment.is_some() || change.decrement.is_some();
    let store = arguments.open.write(&arguments.durability, counts.then_some(&EngineArguments::default()))?;
    let collection = arguments.collection.write(&store)?;
    let found = match change {
        ChangeArguments { append: Some(text), .. } => collection.append(&key, text.as_bytes())?.is_some(),
        ChangeArguments { prepend: Some(text), .. } => collection.prepend(&key, text.as_bytes())?.is_some(),
        ChangeArguments { ttl: Some(ttl), .. } => {
            collection.expire(&key, if ttl.is_zero() { Expiry::NEVER } else { put::expiry_in(*ttl) })?
        }
        ChangeArguments { increment, decrement, .. } => {
            let number = match increment {
                Some(by) => collection.increment(&key, *by)?,
                None => collection.decrement(&key, decrement.unwrap_or(0))?,
            };
            writeln!(output, "{number}").map_err(Failure::output)?;
            true
        }
    };
    if !found {
        return Err(Failure::no_key(&key));
    }
    drop(collection);
    Ok(store.close()?)
}

fn ask(mut server: Client, key: &[u8], change: &ChangeArguments, output: &mut Output) -> Result<(), Failure> {
    let mut join = |condition, text: &OsString| {
        Ok::<_, Failure>(server.store(condition, key, text.as_bytes(), 0, Duration::ZERO)? == Stored::Yes)
    };
    let found = match change {
        ChangeArguments { append: Some(text), .. } => join(Condition::Append, text)?,
        ChangeArguments { prepend: Some(text), .. } => join(Condition::Prepend, text)?,
        ChangeArguments { ttl: Some(ttl), .. } => server.touch(key, *ttl)?,
        ChangeArguments { increment, decrement, .. } => {
            let number = count(&mut server, key, *increment, decrement.unwrap_or(0))?;
            writeln!(output, "{number}").map_err(Failure::output)?;
            true
        }
    };
    if found { Ok(()) } else { Err(Failure::no_key(key)) }
}

/// Counts; a counter that does not exist counts from 0. The protocol's own does not do that, so it
/// is made here, unless somebody else does.
fn count(server: &mut Client, key: &[u8], increment: Option<u64>, decrement: u64) -> Result<u64, Failure> {
    for _ in 0..COUNT_ATTEMPTS {
        if let Some(number) = server.count(increment.is_none(), key, increment.unwrap_or(decrement))? {
            return Ok(number);
        }
        let first = increment.unwrap_or(0);
        let made = Condition::Expect(Expect::Absent);
        if server.store(made, key, first.to_string().as_bytes(), 0, Duration::ZERO)? == Stored::Yes {
            return Ok(first);
        }
    }
    Err(Failure::new(
        Exit::Busy,
        "the key is made and deleted again and again by others: nothing was counted, try again",
    ))
}
