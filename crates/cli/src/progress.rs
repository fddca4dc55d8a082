//! A progress bar for what takes longer than a moment.

use std::io::IsTerminal;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use stratakv::{OpenProgress, Store};
use stratakv_base::quantity::{format_bytes, format_count};

use crate::say::say;

/// Work that ends before this is not worth a bar.
const PATIENCE: Duration = Duration::from_secs(2);
/// Where nobody watches a terminal, a line this often.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// How work of an unknown length is shown.
const SPINNER: &str = "{msg} {spinner} {elapsed}";
/// A spinner moves so often.
const TICK_EVERY: Duration = Duration::from_millis(100);

/// What is counted.
#[derive(Clone, Copy)]
enum Unit {
    Bytes,
    Records,
}

impl Unit {
    fn template(self) -> &'static str {
        match self {
            Unit::Bytes => "{msg} {bar:30} {bytes} of {total_bytes}, {eta} left",
            Unit::Records => "{msg} {bar:30} {human_pos} of {human_len} records, {eta} left",
        }
    }

    fn template_without_end(self) -> &'static str {
        match self {
            Unit::Bytes => "{msg} {bytes}, {elapsed}",
            Unit::Records => "{msg} {human_pos} records, {elapsed}",
        }
    }

    fn shown(self, amount: u64) -> String {
        match self {
            Unit::Bytes => format_bytes(amount),
            Unit::Records => format_count(amount, "record"),
        }
    }
}

struct State {
    what: &'static str,
    unit: Unit,
    started: Instant,
    last_line: Instant,
    bar: Option<ProgressBar>,
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Where progress is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// As a bar on a terminal, and a line now and then elsewhere: the log of a server has it.
    Everywhere,
    /// As a bar on a terminal.
    OnTerminals,
}

/// What [`stratakv::Options::progress`] wants: shows a bar with the time left on a terminal, a line
/// now and then elsewhere.
pub(crate) fn watch(what: &'static str) -> Arc<dyn Fn(OpenProgress) + Send + Sync> {
    let tell = teller(what, Unit::Bytes, Shown::Everywhere);
    Arc::new(move |progress| tell(progress.done_bytes, progress.total_bytes))
}

/// The same, on a terminal only.
pub(crate) fn bar(what: &'static str) -> Arc<dyn Fn(OpenProgress) + Send + Sync> {
    let tell = bar_of_bytes(what);
    Arc::new(move |progress| tell(progress.done_bytes, progress.total_bytes))
}

/// The same, to be told how many bytes are done, of how many; 0: nobody knows.
pub(crate) fn bar_of_bytes(what: &'static str) -> impl Fn(u64, u64) + Send + Sync {
    teller(what, Unit::Bytes, Shown::OnTerminals)
}

/// How many records a store has, for a bar. Some engines only estimate it.
pub(crate) fn records_of(store: &Store) -> u64 {
    store.stats().iter().find(|one| one.name == "records").map_or(0, |one| one.value)
}

/// The same, to be told how many records are done, of how many; 0: nobody knows.
pub(crate) fn bar_of_records(what: &'static str) -> impl Fn(u64, u64) + Send + Sync {
    teller(what, Unit::Records, Shown::OnTerminals)
}

/// Does what takes an unknown time. On a terminal it is shown that it goes on, once it has taken
/// longer than a moment.
pub(crate) fn spinning<R>(what: &'static str, work: impl FnOnce() -> R) -> R {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let spinner = std::thread::Builder::new().name("progress".into()).spawn(move || {
        if wait.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let spinner = ProgressBar::new_spinner().with_elapsed(PATIENCE).with_message(what);
            let style = ProgressStyle::with_template(SPINNER);
            spinner.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            spinner.enable_steady_tick(TICK_EVERY);
            // It ends when the other end is dropped.
            while wait.recv().is_ok() {}
            spinner.finish_and_clear();
        }
    });
    let result = work();
    drop(done);
    // Without a thread nothing is shown; the work is done all the same.
    if let Ok(spinner) = spinner {
        drop(spinner.join());
    }
    result
}

fn teller(what: &'static str, unit: Unit, shown: Shown) -> impl Fn(u64, u64) + Send + Sync {
    let now = Instant::now();
    let state = Mutex::new(State { what, unit, started: now, last_line: now, bar: None });
    let terminal = std::io::stderr().is_terminal();
    move |done, total| {
        if !terminal && shown == Shown::OnTerminals {
            return;
        }
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.started.elapsed() < PATIENCE {
            return;
        }
        if terminal {
            show(&mut state, done, total);
        } else if state.last_line.elapsed() >= LINE_EVERY {
            state.last_line = Instant::now();
            say!("{what}: {} of {}", unit.shown(done), unit.shown(total));
        }
    }
}

fn show(state: &mut State, done: u64, total: u64) {
    let (what, unit, started) = (state.what, state.unit, state.started);
    let bar = state.bar.get_or_insert_with(|| {
        let style = ProgressStyle::with_template(if total > 0 { unit.template() } else { unit.template_without_end() });
        let bar = ProgressBar::new(total).with_elapsed(started.elapsed()).with_message(what);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar
    });
    if total > 0 {
        // What was estimated may be too little.
        bar.set_length(total.max(done));
    }
    bar.set_position(done);
    if total > 0 && done >= total {
        bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A template that does not parse would fall back to a bar that says nothing.
    #[test]
    fn every_bar_has_a_template_that_parses() {
        for unit in [Unit::Bytes, Unit::Records] {
            for template in [unit.template(), unit.template_without_end()] {
                assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
            }
        }
        assert!(ProgressStyle::with_template(SPINNER).is_ok());
    }

    #[test]
    fn what_is_short_is_done_and_shows_nothing() {
        assert_eq!(spinning("working", || 7), 7);
        bar_of_records("working")(1, 2);
    }
}
