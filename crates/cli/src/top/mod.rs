//! `stratakv top`: what a running server does, in a terminal.

mod fetch;
mod rates;
mod sample;
mod view;

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::Duration;

use clap::Args;
use ratatui::Terminal;
use ratatui::backend::{Backend, TestBackend};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use stratakv_base::quantity::parse_duration;

use crate::Output;
use crate::failure::Failure;
use crate::remote::ServerArguments;
use fetch::SampleSource;
use rates::Interval;
use sample::Sample;
use view::Shown;

/// Columns and lines of a frame that is printed, not shown.
const PRINTED: (u16, u16) = (80, 24);
/// How soon a sample is shown, and how often the frame is drawn to fit the terminal.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Watch a running server: throughput, latency, memory, threads, shards, and what binds
#[derive(Args)]
#[command(after_help = "Examples:\n  stratakv top --admin 127.0.0.1:9101
  stratakv top --admin 127.0.0.1:9101 --interval 5s
  stratakv top --server 127.0.0.1:11211
  stratakv top --admin 127.0.0.1:9101 --once | grep 'Bound by'

--admin is the address that the server has from `serve --admin`. With --server it asks the memcache port, which \
tells neither latencies nor threads nor shards.

Figures are of the time since the last frame. With --once, or if the output is no terminal, it looks \
twice, --interval apart, prints one frame of 80 columns as text and ends.")]
pub(crate) struct Arguments {
    /// Ask the admin address of the server
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "server", required_unless_present = "server")]
    admin: Option<String>,
    #[command(flatten)]
    server: ServerArguments,
    /// Time between two frames
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "1s")]
    interval: Duration,
    /// Print one frame and end
    #[arg(long)]
    once: bool,
}

/// Neither a busy loop nor a frame that never comes.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    match (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&interval) {
        true => Ok(interval),
        false => Err("give 100ms to 1h".into()),
    }
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let mut source = match (&arguments.admin, arguments.server.connect()?) {
        (_, Some(client)) => SampleSource::Memcache(Box::new(client)),
        (Some(admin), None) => SampleSource::Admin(admin.clone()),
        (None, None) => return Err(Failure::usage("name the server with --admin or with --server")),
    };
    let address = arguments.admin.as_deref().or(arguments.server.named()).unwrap_or_default();
    let first = source.sample()?;
    if arguments.once || !io::stdout().is_terminal() {
        // Nobody sends: only the time passes.
        let (_sender, receiver) = mpsc::channel::<()>();
        let passed = receiver.recv_timeout(arguments.interval);
        debug_assert_eq!(passed, Err(RecvTimeoutError::Timeout));
        let now = source.sample()?;
        let shown = Shown { address, interval: Interval::between(&first, &now), trouble: None };
        return print(&shown, output).map_err(Failure::output);
    }
    let mut terminal =
        ratatui::try_init().map_err(|error| Failure::failed(format!("cannot draw on this terminal: {error}")))?;
    let watched = watch(&mut terminal, source, address, first, arguments.interval);
    ratatui::restore();
    watched
}

/// One frame as lines of text.
fn print(shown: &Shown<'_>, output: &mut Output) -> io::Result<()> {
    // It writes to memory, which does not fail.
    let Ok(mut terminal) = Terminal::new(TestBackend::new(PRINTED.0, PRINTED.1));
    let Ok(_) = terminal.draw(|frame| view::draw(frame, shown));
    // The last line says what keys do.
    let lines = lines(terminal.backend());
    let shown = lines.split_last().map_or(&[][..], |(_, shown)| shown);
    for line in shown {
        writeln!(output, "{line}")?;
    }
    Ok(())
}

fn lines(backend: &TestBackend) -> Vec<String> {
    let buffer = backend.buffer();
    let line = |y: u16| -> String {
        let cells = (0..buffer.area.width).filter_map(|x| buffer.cell((x, y)));
        cells.map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned()
    };
    (0..buffer.area.height).map(line).collect()
}

/// Draws a frame after each interval, until the user ends it.
fn watch<B: Backend>(
    terminal: &mut Terminal<B>,
    source: SampleSource,
    address: &str,
    first: Sample,
    every: Duration,
) -> Result<(), Failure>
where
    B::Error: std::fmt::Display,
{
    let (mut earlier, mut now, mut trouble) = (first.clone(), first, None);
    // The thread that samples ends with this.
    let (_stop, stopped) = mpsc::channel();
    let samples = sampled(source, every, stopped);
    loop {
        match samples.try_recv() {
            Ok(Ok(sample)) => (earlier, now, trouble) = (now, sample, None),
            // It may come back: a restart takes a moment.
            Ok(Err(failure)) => trouble = Some(failure.message),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => trouble = Some("nobody asks it any more: start top again".to_owned()),
        }
        let shown = Shown { address, interval: Interval::between(&earlier, &now), trouble: trouble.as_deref() };
        let drawn = terminal.draw(|frame| view::draw(frame, &shown)).map(drop);
        drawn.map_err(|error| Failure::failed(format!("cannot draw on this terminal: {error}")))?;
        if is_ended(LOOK_EVERY)? {
            return Ok(());
        }
    }
}

/// Asks the server after each interval, on a thread of its own: an answer may take seconds, and
/// keys do not wait for it. The thread ends when `stopped` has no sender any more.
fn sampled(mut source: SampleSource, every: Duration, stopped: Receiver<()>) -> Receiver<Result<Sample, Failure>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
            if sender.send(source.sample()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Waits for so long for a key; whether it is one that ends the program.
fn is_ended(wait: Duration) -> Result<bool, Failure> {
    let failure = |error: io::Error| Failure::failed(format!("cannot read from this terminal: {error}"));
    if !event::poll(wait).map_err(failure)? {
        return Ok(false);
    }
    let Event::Key(key) = event::read().map_err(failure)? else { return Ok(false) };
    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    Ok(key.kind == KeyEventKind::Press && (is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn frame(told: [&Value; 2], shards: &Value, size: (u16, u16)) -> String {
        let [earlier, now] = told.map(|told| Sample::of_json(told).unwrap().with_shards(Some(shards)));
        let shown = Shown { address: "there:1", interval: Interval::between(&earlier, &now), trouble: None };
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
        terminal.draw(|frame| view::draw(frame, &shown)).unwrap();
        lines(terminal.backend()).join("\n")
    }

    fn told(at: u64) -> Value {
        json!({
            "time_ms": at * 1000, "uptime_s": at, "state": "serving", "version": "0.1.0", "engine": "slab",
            "durability": "power_loss", "connections": { "open": 3, "max": 100 },
            "counters": { "cmd_get": at * 700, "get_hits": at * 350, "get_misses": at * 350, "cmd_set": at * 20,
                "bytes_read": at * 2048, "bytes_written": at * 4096 },
            "latency": { "get": { "buckets_ns": [[9_000, at * 690], [2_000_000, at * 10]], "sum_us": at } },
            "requests": { "flush": { "buckets_ns": [[3_000_000, at]], "sum_us": at } },
            "cores": (0..5).map(|core| json!({ "cpu_ns": at * 100_000_000 * core, "connections": core, "operations": at * 144 })).collect::<Vec<_>>(),
            "process": { "resident_bytes": 50 << 20 },
            "client_memory": { "memory_bytes": 4096, "memory_limit_bytes": 8 << 20 },
            "store": { "memory_limit_bytes": 1 << 30, "memory_unused_bytes": 1_000_000_000, "memory_index_bytes": 5 << 20,
                "memory_blocks_bytes": 9 << 20, "records": 12345, "flushes": at * 9, "usable_bytes": 64 << 20 },
        })
    }

    #[test]
    fn a_frame_of_80_columns_and_24_lines_has_every_panel() {
        let shard = |records: u64| json!({ "records": records, "operations_in_progress": records });
        let shards = json!({ "shards": (0..9).map(shard).collect::<Vec<_>>() });
        let drawn = frame([&told(10), &told(12)], &shards, PRINTED);
        assert_eq!(drawn.lines().count(), 24);
        assert!(drawn.lines().all(|line| line.chars().count() <= 80), "{drawn}");
        let drawn = drawn.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        for part in [
            "stratakv 0.1.0 slab, power_loss up 0 min 12 s there:1",
            "operations 720 /s│",
            "gets 700 /s│",
            "hits of gets 50.0 %│",
            "in, out 2.00 KiB/s, 4.00 KiB/s│",
            "get 9.0 2000 2000",
            "disk flush 3000",
            "clients 4.00 KiB of 8.00 MiB│",
            "index 5.00 MiB",
            "connections 3 of 100",
            "4 ████······ 40 % 144 /s 4",
            "5 threads, 1.0 busy",
            "Engine slab",
            "records 12345",
            "flushes 9.0 /s",
            "8 8 8 0",
            "more, with less under way",
            "Bound by nothing that is measured",
        ] {
            assert!(drawn.contains(part), "no `{part}` in\n{drawn}");
        }
    }

    #[test]
    fn no_terminal_is_too_small_and_no_server_too_silent() {
        for size in [(1, 1), (20, 5), (80, 10), (300, 100)] {
            frame([&told(1), &told(1)], &json!({ "shards": [{}] }), size);
            frame([&json!({ "time_ms": 9 }), &json!({ "time_ms": 3 })], &Value::Null, size);
        }
    }

    #[test]
    fn a_server_that_tells_the_largest_numbers_ends_nothing() {
        let most = |at: u64| {
            let mut told = told(at);
            for part in ["counters", "store", "client_memory"] {
                for (_, value) in told[part].as_object_mut().unwrap() {
                    *value = json!(u64::MAX * (at - 1));
                }
            }
            told["stages"] = json!({ "get": {
                "read": { "buckets_ns": [[1, u64::MAX]], "sum_us": u64::MAX * (at - 1) },
                "key": { "buckets_ns": [[1, u64::MAX]], "sum_us": u64::MAX * (at - 1) } } });
            told["store"]["memory_work_bytes"] = json!(u64::MAX);
            told["store"]["memory_reserve_bytes"] = json!(u64::MAX);
            told["store"]["read_only_after_a_failure"] = json!(u64::MAX);
            told["store"]["broken_shards"] = json!(u64::MAX);
            told
        };
        frame([&most(1), &most(2)], &Value::Null, PRINTED);
    }

    #[test]
    fn intervals_have_bounds() {
        assert!(interval("1s").is_ok() && interval("0s").is_err() && interval("2h").is_err());
    }
}
