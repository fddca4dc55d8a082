//! A progress bar for what takes longer than a moment.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use stratakv::OpenProgress;
use stratakv_base::quantity::format_bytes;

/// Work that ends before this is not worth a bar.
const PATIENCE: Duration = Duration::from_secs(2);
/// Where nobody watches a terminal, a line this often.
const LINE_EVERY: Duration = Duration::from_secs(10);

struct State {
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

/// What [`stratakv::Options::progress`] wants: shows a bar with the time left on a terminal, a line now and then elsewhere.
pub(crate) fn watch(what: &'static str) -> Arc<dyn Fn(OpenProgress) + Send + Sync> {
    let now = Instant::now();
    let state = Mutex::new(State { started: now, last_line: now, bar: None });
    let terminal = std::io::stderr().is_terminal();
    Arc::new(move |progress| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.started.elapsed() < PATIENCE {
            return;
        }
        if terminal {
            show(&mut state, what, progress);
        } else if state.last_line.elapsed() >= LINE_EVERY {
            state.last_line = Instant::now();
            let (done, total) = (format_bytes(progress.done_bytes), format_bytes(progress.total_bytes));
            eprintln!("stratakv: {what}: {done} of {total}");
        }
    })
}

fn show(state: &mut State, what: &'static str, progress: OpenProgress) {
    let started = state.started;
    let bar = state.bar.get_or_insert_with(|| {
        let style = ProgressStyle::with_template("{msg} {bar:30} {bytes} of {total_bytes}, {eta} left");
        let bar = ProgressBar::new(progress.total_bytes).with_elapsed(started.elapsed()).with_message(what);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar
    });
    bar.set_length(progress.total_bytes);
    bar.set_position(progress.done_bytes);
    if progress.done_bytes >= progress.total_bytes {
        bar.finish_and_clear();
    }
}
