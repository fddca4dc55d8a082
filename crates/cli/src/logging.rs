//! Logs: to stderr, as text or as JSON, by a filter that may be changed while the program runs.

use std::io::IsTerminal;
use std::sync::OnceLock;

use clap::ValueEnum;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use crate::failure::Failure;
use crate::say;

/// `--log-format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people
    #[default]
    Text,
    /// An object of JSON on a line
    Json,
}

static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Begins to log.
///
/// # Errors
/// `filter` is none.
pub(crate) fn begin(filter: &str, format: LogFormat) -> Result<(), Failure> {
    let (filter, handle) = reload::Layer::new(parse(filter)?);
    say::begin(format);
    // By default a line that cannot be written is told of by `eprintln!`, which panics where stderr
    // cannot be written.
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).log_internal_errors(false);
    let lines = match format {
        LogFormat::Text => lines.with_target(false).with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
    // Once in a program.
    let _ = FILTER.set(handle);
    Ok(())
}

/// # Errors
/// `filter` is none.
pub(crate) fn check(filter: &str) -> Result<(), Failure> {
    parse(filter).map(drop)
}

/// Changes what is told from now on.
///
/// # Errors
/// `filter` is none; nothing is changed.
pub(crate) fn change(filter: &str) -> Result<(), Failure> {
    let filter = parse(filter)?;
    let changed = FILTER.get().map_or(Ok(()), |handle| handle.reload(filter));
    changed.map_err(|error| Failure::failed(format!("cannot change the log filter: {error}")))
}

fn parse(filter: &str) -> Result<EnvFilter, Failure> {
    EnvFilter::try_new(filter).map_err(|error| {
        Failure::usage(format!(
            "`{filter}` is no log filter ({error}): write error, warn, info, debug, trace, or stratakv_slab=debug,warn"
        ))
    })
}
