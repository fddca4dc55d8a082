//! Counters before and after, and what they say of a request.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use super::ServerKind;
use super::load::{Load, Verb};
use super::network::{self, Guest};

/// What the emulator tells of its controllers, a line each.
pub(super) const EVENTS: [&str; 5] =
    ["pci_nvme_mmio_doorbell_sq", "pci_nvme_mmio_doorbell_cq", "pci_nvme_read", "pci_nvme_write", "pci_nvme_flush_ns"];
/// Words before the histogram of looks, in the plugin's file.
const WORDS: usize = 4;
/// A look of fewer instructions found nothing. In vain they take 414 to 1,484, always the same
/// number
/// for the same server; those that found something take more than 2,500.
const VAIN_MAX: usize = 2000;

/// Reads counters.
pub(super) struct Observer<'a> {
    pub(super) counts: &'a Path,
    pub(super) trace: &'a Path,
    pub(super) guest: Guest<'a>,
}

/// All counters at one time.
#[derive(Clone, Debug, Default)]
struct Counters {
    /// The plugin's.
    words: Vec<u64>,
    /// By event.
    events: [u64; EVENTS.len()],
    /// Of the controller, of the network card, of the timer.
    interrupts: [u64; 3],
}

/// What was counted of one load on one server, in all.
#[derive(Clone, Debug)]
pub(super) struct Observation {
    kind: ServerKind,
    verb: Verb,
    in_flight: u32,
    requests: u32,
    user: u64,
    kernel: u64,
    /// Instructions of looks that found nothing, and how many looks.
    vain: u64,
    looks: u64,
    syscalls: u64,
    events: [u64; EVENTS.len()],
    interrupts: [u64; 3],
}

impl Observer<'_> {
    /// Runs a load, and counts while it runs.
    pub(super) fn observe(
        &self,
        kind: ServerKind,
        (verb, in_flight, requests): (Verb, u32, u32),
        load: &Load,
    ) -> Result<Observation, String> {
        let before = Mutex::new(Counters::default());
        let begin = || {
            let interrupts = self.interrupts()?;
            let mut place = before.lock().map_err(|_| "a reader of counters panicked".to_owned())?;
            *place = Counters { interrupts, ..self.read()? };
            Ok(())
        };
        load.run(verb, in_flight, requests, &begin)?;
        let after = self.read()?;
        let after = Counters { interrupts: self.interrupts()?, ..after };
        let before = before.into_inner().map_err(|_| "a reader of counters panicked".to_owned())?;
        Ok(Observation::between((kind, verb, in_flight, requests), &before, &after))
    }

    fn read(&self) -> Result<Counters, String> {
        let bytes = fs::read(self.counts).map_err(|error| format!("cannot read the plugin's counters: {error}"))?;
        let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        let trace = fs::read(self.trace).map_err(|error| format!("cannot read the emulator's trace: {error}"))?;
        let trace = String::from_utf8_lossy(&trace);
        let mut events = [0; EVENTS.len()];
        for line in trace.lines() {
            let name = line.split_whitespace().next().unwrap_or_default();
            let at = EVENTS.iter().position(|event| *event == name);
            at.and_then(|at| events.get_mut(at)).into_iter().for_each(|count| *count += 1);
        }
        Ok(Counters { words: words.collect(), events, interrupts: [0; 3] })
    }

    fn interrupts(&self) -> Result<[u64; 3], String> {
        let answer = network::ask(self.guest, "interrupts", true)?;
        let words: Vec<u64> = answer.split(' ').map_while(|word| word.parse().ok()).collect();
        words.try_into().map_err(|_| format!("interrupts are `{answer}`"))
    }
}

impl Observation {
    fn between(
        (kind, verb, in_flight, requests): (ServerKind, Verb, u32, u32),
        before: &Counters,
        after: &Counters,
    ) -> Observation {
        let words: Vec<u64> = after.words.iter().zip(&before.words).map(|(after, before)| after - before).collect();
        let (vain, looks) = vain(words.get(WORDS..).unwrap_or_default());
        let word = |at: usize| words.get(at).copied().unwrap_or(0);
        let mut row = Observation {
            kind,
            verb,
            in_flight,
            requests,
            user: word(0),
            kernel: word(1),
            vain,
            looks,
            syscalls: word(2),
            events: after.events,
            interrupts: after.interrupts,
        };
        row.events.iter_mut().zip(before.events).for_each(|(count, before)| *count -= before);
        row.interrupts.iter_mut().zip(before.interrupts).for_each(|(count, before)| *count -= before);
        row
    }

    fn of_request(&self, count: u64) -> f64 {
        count as f64 / f64::from(self.requests)
    }

    /// Instructions without looks in vain.
    fn instructions(&self) -> f64 {
        self.of_request((self.user + self.kernel).saturating_sub(self.vain))
    }

    fn words(&self) -> Vec<String> {
        let [sq, cq, reads, writes, flushes] = self.events.map(|count| self.of_request(count));
        let [device, network, timer] = self.interrupts.map(|count| self.of_request(count));
        vec![
            format!("{:?} {}", self.verb, self.in_flight),
            self.kind.name().to_owned(),
            format!("{:.0}", self.instructions()),
            format!("{:.0}", self.of_request(self.user.saturating_sub(self.vain))),
            format!("{:.0}", self.of_request(self.kernel)),
            format!("{:.0}", self.of_request(self.vain)),
            format!("{:.1}", self.of_request(self.looks)),
            format!("{:.2}", self.of_request(self.syscalls)),
            format!("{:.2}", reads + writes + flushes),
            format!("{sq:.2} + {cq:.2}"),
            format!("{device:.2}"),
            format!("{network:.2}"),
            format!("{timer:.2}"),
        ]
    }
}

impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().join(" | "))
    }
}

/// Instructions of looks that found nothing, and how many.
fn vain(looks: &[u64]) -> (u64, u64) {
    let short = looks.iter().enumerate().take(VAIN_MAX);
    short.fold((0, 0), |(sum, all), (len, count)| (sum + len as u64 * count, all + count))
}

/// All rows, as a table of Markdown.
pub(super) fn table(rows: &[Observation]) -> String {
    let head = [
        "request, in flight",
        "server",
        "instructions",
        "user",
        "kernel",
        "looks in vain",
        "how many",
        "system calls",
        "NVMe commands",
        "doorbells, submission + completion",
        "interrupts: NVMe",
        "network",
        "timer",
    ];
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    let mut sorted: Vec<&Observation> = rows.iter().collect();
    sorted.sort_by_key(|row| (row.verb == Verb::Set, row.in_flight));
    for row in sorted {
        let _ = writeln!(text, "| {} |", row.words().join(" | "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_looks_are_in_vain() {
        let mut looks = vec![0; 4096];
        (looks[400], looks[1484], looks[3000]) = (1000, 10, 50);
        assert_eq!(vain(&looks), (400 * 1000 + 1484 * 10, 1010));
        assert_eq!(vain(&[0; 100]), (0, 0));
    }

    #[test]
    fn a_request_is_charged_with_the_difference_of_counters() {
        let before = Counters { words: vec![10, 20, 30, 0, 0, 0], events: [1; 5], interrupts: [1, 2, 3] };
        let after = Counters { words: vec![1010, 220, 50, 9, 0, 100], events: [11; 5], interrupts: [11, 12, 13] };
        let row = Observation::between((ServerKind::Both, Verb::Get, 64, 10), &before, &after);
        assert_eq!((row.user, row.kernel, row.vain, row.syscalls), (1000, 200, 100, 20));
        assert_eq!((row.instructions(), row.interrupts, row.events), (110.0, [10; 3], [10; 5]));
    }
}
