//! Shows from the kernel's own trace that nothing is acknowledged at `power_loss` before a flush.
//!
//! `kill -9` cannot see a missing flush: the kernel still writes what the process handed over. So
//! this writes batches through a session, marks in the kernel's trace buffer where each batch
//! begins and where its first acknowledgement arrives, and reads the block layer's events in
//! between: after the last completed data write there must be a completed flush (or the write
//! itself must have been FUA). Needs root and tracefs. Usage: `flush_trace DIR [BATCHES] [WRITES]`.
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

use stratakv::raw::{Change, ChangeKind, Operation, Reply};
use stratakv::{CollectionId, Expect, Expiry, Key, Level, Options};

const TRACING: &str = "/sys/kernel/tracing";
const EVENTS: [&str; 2] = ["block/block_rq_issue", "block/block_rq_complete"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("usage: flush_trace DIR [BATCHES] [WRITES]")?);
    let batches: u32 = arguments.next().map_or(Ok(100), |text| text.parse())?;
    let writes: u32 = arguments.next().map_or(Ok(16), |text| text.parse())?;
    let store = Options::new().shards(1).level(Level::PowerLoss).open(&directory)?;
    let mut session = store.session()?;
    // Growth and the first pages are written before the trace begins.
    run_batch(&mut session, 0, writes, &mut |_| Ok(()))?;

    set("tracing_on", "0")?;
    set("buffer_size_kb", "8192")?;
    set("trace", "")?;
    EVENTS.iter().try_for_each(|event| set(&format!("events/{event}/enable"), "1"))?;
    set("tracing_on", "1")?;
    let outcome = (1..=batches).try_for_each(|batch| {
        run_batch(&mut session, batch, writes, &mut |what| set("trace_marker", &format!("{what} {batch}\n")))
    });
    set("tracing_on", "0")?;
    EVENTS.iter().try_for_each(|event| set(&format!("events/{event}/enable"), "0"))?;
    outcome?;
    let trace = fs::read_to_string(format!("{TRACING}/trace"))?;
    let found = judge(&trace);
    println!(
        "{} batches of {writes} writes: {} data writes, {} flushes, {} FUA writes; flush between last write and first acknowledgement in {} of {}",
        batches, found.writes, found.flushes, found.fua, found.held, found.batches
    );
    if found.held != batches as usize || found.batches != batches as usize {
        return Err(format!("the rule was broken or the trace is incomplete: {found:?}").into());
    }
    Ok(())
}

fn set(file: &str, value: &str) -> Result<(), Box<dyn Error>> {
    let path = format!("{TRACING}/{file}");
    let open = fs::OpenOptions::new().write(true).truncate(file == "trace").open(&path);
    let mut file = open.map_err(|error| format!("{path}: {error} (needs root and tracefs mounted there)"))?;
    Ok(file.write_all(value.as_bytes())?)
}

/// Told the beginning of a batch and its first acknowledgement.
type Mark<'a> = dyn FnMut(&str) -> Result<(), Box<dyn Error>> + 'a;

/// One group: submitted in one tick. `mark` is told the beginning and the first acknowledgement.
fn run_batch(
    session: &mut stratakv::Session,
    batch: u32,
    writes: u32,
    mark: &mut Mark<'_>,
) -> Result<(), Box<dyn Error>> {
    mark("begin")?;
    for number in 0..writes {
        // A page each, so that a batch is as many writes.
        let key = Key::new(CollectionId(0), format!("key {number}").as_bytes())?;
        let value = vec![batch as u8; 3500].into();
        let kind = ChangeKind::Put { value, flags: 0, expiry: Expiry::NEVER };
        let change = Change { key, expect: Expect::Any, kind };
        session.submit(Operation::Write { changes: vec![change], level: Level::PowerLoss });
    }
    let mut first = true;
    while session.in_flight() > 0 {
        for (_, reply) in session.poll(1)? {
            if std::mem::take(&mut first) {
                mark("ack")?;
            }
            if !matches!(reply, Reply::Done { .. }) {
                return Err(format!("{reply:?}").into());
            }
        }
    }
    Ok(())
}

#[derive(Debug, Default)]
struct TraceCounts {
    batches: usize,
    held: usize,
    writes: usize,
    flushes: usize,
    fua: usize,
}

/// Walks the trace in order. Lines look like
/// `… block_rq_complete: 253,0 WS () 1234 + 8 none,0,0 [0]`; the kind's letters: W write, a leading
/// F a flush, an F after the W forced unit access.
fn judge(trace: &str) -> TraceCounts {
    let mut found = TraceCounts::default();
    let (mut written, mut durable) = (false, false);
    for line in trace.lines().filter(|line| !line.starts_with('#')) {
        if line.contains("tracing_mark_write: begin") {
            (written, durable) = (false, false);
        } else if line.contains("tracing_mark_write: ack") {
            found.batches += 1;
            found.held += usize::from(written && durable);
        } else if let Some(event) = line.split("block_rq_complete: ").nth(1) {
            let mut words = event.split_whitespace();
            let kind = words.nth(1).unwrap_or_default();
            let sectors = words.skip_while(|word| *word != "+").nth(1).unwrap_or_default();
            // The empty write that carried a flush completes too; M marks the file system's own
            // blocks, which hold none of our data.
            let data = sectors != "0" && !kind.contains('M');
            let (flush, rest) = kind.strip_prefix('F').map_or((false, kind), |rest| (true, rest));
            if flush {
                found.flushes += 1;
                durable = true;
            }
            if let Some(flags) = rest.strip_prefix('W').filter(|_| data) {
                found.writes += 1;
                written = true;
                let fua = flags.contains('F');
                found.fua += usize::from(fua);
                // A write without forced unit access needs a flush after it.
                durable = fua;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::judge;

    const BEGIN: &str = "x-1 [0] 1.0: tracing_mark_write: begin 1\n";
    const ACK: &str = "x-1 [0] 1.4: tracing_mark_write: ack 1\n";
    const WRITE: &str = "x-1 [0] 1.1: block_rq_complete: 254,0 WS () 8 + 8 none,0,0 [0]\n";
    const FUA: &str = "x-1 [0] 1.1: block_rq_complete: 254,0 WFS () 8 + 8 none,0,0 [0]\n";
    const FLUSH: &str = "x-1 [0] 1.2: block_rq_complete: 254,0 FF () 0 + 0 none,0,0 [0]\n\
                         x-1 [0] 1.2: block_rq_complete: 254,0 WS () 0 + 0 be,0,4 [0]\n";

    #[test]
    fn a_missing_or_early_flush_is_seen() {
        assert_eq!(judge(&[BEGIN, WRITE, FLUSH, ACK].concat()).held, 1);
        assert_eq!(judge(&[BEGIN, FUA, ACK].concat()).held, 1);
        assert_eq!(judge(&[BEGIN, WRITE, ACK].concat()).held, 0);
        assert_eq!(judge(&[BEGIN, FLUSH, WRITE, ACK].concat()).held, 0);
        assert_eq!(judge(&[BEGIN, FUA, WRITE, ACK].concat()).held, 0);
    }
}
