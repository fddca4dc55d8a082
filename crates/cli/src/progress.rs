//! A progress bar for what takes longer than a moment.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use stratakv::OpenProgress;
use stratakv_base::quantity::{format_bytes, format_count};

use crate::say::say;

/// Work that ends before this is not worth a bar.
const PATIENCE: Duration = Duration::from_secs(2);
/// Where nobody watches a terminal, a line this often.
const LINE_EVERY: Duration = Duration::from_secs(10);

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

/// What [`stratakv::Options::progress`] wants: shows a bar with the time left on a terminal, a line
/// now and then elsewhere.
pub(crate) fn watch(what: &'static str) -> Arc<dyn Fn(OpenProgress) + Send + Sync> {
    let tell = teller(what, Unit::Bytes);
    Arc::new(move |progress| tell(progress.done_bytes, progress.total_bytes))
}

/// The same, to be told how many records are done, of how many.
pub(crate) fn watch_records(what: &'static str) -> impl Fn(u64, u64) {
    teller(what, Unit::Records)
}

fn teller(what: &'static str, unit: Unit) -> impl Fn(u64, u64) {
    let now = Instant::now();
    let state = Mutex::new(State { what, unit, started: now, last_line: now, bar: None });
    let terminal = std::io::stderr().is_terminal();
    move |done, total| {
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
        let style = ProgressStyle::with_template(unit.template());
        let bar = ProgressBar::new(total).with_elapsed(started.elapsed()).with_message(what);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar
    });
    bar.set_length(total);
    bar.set_position(done);
    if done >= total {
        bar.finish_and_clear();
    }
}
