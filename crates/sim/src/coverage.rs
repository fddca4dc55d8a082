//! Which faults met which device calls in which phase of a store's life: an untried combination is
//! seen.

use std::fmt;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// A read of one page.
    Read,
    /// A read of several pages.
    ReadLarge,
    /// A write of one page.
    Write,
    /// A write of several pages.
    WriteLarge,
    /// A write that completes only when durable.
    WriteThrough,
    /// A flush.
    Flush,
    /// A discard.
    Discard,
    /// Space that is set aside.
    Allocate,
}

/// Where a store is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StorePhase {
    /// Being laid out.
    #[default]
    Create,
    /// Open.
    Serve,
    /// Being recovered.
    Recover,
    /// Being closed.
    Close,
}

/// What befell a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Completed before one submitted earlier.
    Reordered,
    /// Took far longer than its neighbours.
    Delayed,
    /// Failed; the next one may succeed.
    ErrorOnce,
    /// Failed, and so will all of its kind until the disk is repaired.
    ErrorForever,
    /// No space.
    Full,
    /// One bit wrong, silently.
    BitFlip,
    /// An earlier content of the place was read.
    Stale,
    /// Another place was read or written.
    Misdirected,
    /// Acknowledged and never done.
    Lost,
    /// In flight when the process was killed.
    Killed,
    /// In flight when the power failed; nothing of it was done.
    CutDropped,
    /// In flight when the power failed; all of it was done.
    CutKept,
    /// In flight when the power failed; torn between sectors of 512 bytes.
    CutTorn512,
    /// In flight when the power failed; torn between pages.
    CutTorn4K,
    /// Completed, not flushed; the power failed and took it.
    UnflushedDropped,
    /// Completed, not flushed; it survived the power cut.
    UnflushedKept,
    /// Completed, not flushed; part of it survived.
    UnflushedTorn,
}

const CALLS: [Call; 8] = [
    Call::Read,
    Call::ReadLarge,
    Call::Write,
    Call::WriteLarge,
    Call::WriteThrough,
    Call::Flush,
    Call::Discard,
    Call::Allocate,
];
const PHASES: [StorePhase; 4] = [StorePhase::Create, StorePhase::Serve, StorePhase::Recover, StorePhase::Close];
const FAULTS: [(Fault, &str); 17] = [
    (Fault::Reordered, "reord"),
    (Fault::Delayed, "delay"),
    (Fault::ErrorOnce, "err 1×"),
    (Fault::ErrorForever, "err ∞"),
    (Fault::Full, "full"),
    (Fault::BitFlip, "flip"),
    (Fault::Stale, "stale"),
    (Fault::Misdirected, "misdir"),
    (Fault::Lost, "lost"),
    (Fault::Killed, "kill"),
    (Fault::CutDropped, "c.drop"),
    (Fault::CutKept, "c.kept"),
    (Fault::CutTorn512, "c.512"),
    (Fault::CutTorn4K, "c.4K"),
    (Fault::UnflushedDropped, "u.drop"),
    (Fault::UnflushedKept, "u.kept"),
    (Fault::UnflushedTorn, "u.torn"),
];

impl Call {
    /// Whether the fault can befall such a request at all.
    fn can_meet(self, fault: Fault) -> bool {
        use Fault::*;
        let reads = matches!(self, Call::Read | Call::ReadLarge);
        let writes = matches!(self, Call::Write | Call::WriteLarge | Call::WriteThrough);
        match fault {
            ErrorForever => self != Call::Allocate,
            Reordered | Delayed | ErrorOnce | Killed | CutDropped => true,
            BitFlip | Misdirected => reads || writes,
            Stale => reads,
            Full => writes || self == Call::Allocate,
            Lost | CutKept | CutTorn512 => writes,
            CutTorn4K => self == Call::WriteLarge,
            UnflushedDropped | UnflushedKept | UnflushedTorn => matches!(self, Call::Write | Call::WriteLarge),
        }
    }
}

/// Counts of phase × call × fault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    calls: [[u64; 8]; 4],
    hits: [[[u64; 17]; 8]; 4],
}

impl Coverage {
    /// A request was made.
    pub fn call(&mut self, phase: StorePhase, call: Call) {
        self.calls[phase as usize][call as usize] += 1;
    }

    /// A fault befell a request.
    pub fn hit(&mut self, phase: StorePhase, call: Call, fault: Fault) {
        self.hits[phase as usize][call as usize][fault as usize] += 1;
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Coverage) {
        for (mine, theirs) in self.calls.as_flattened_mut().iter_mut().zip(other.calls.as_flattened()) {
            *mine += theirs;
        }
        let theirs = other.hits.as_flattened().as_flattened();
        for (mine, theirs) in self.hits.as_flattened_mut().as_flattened_mut().iter_mut().zip(theirs) {
            *mine += theirs;
        }
    }

    /// Device call × fault pairs, phases added, that were met fewer than `times` times. Calls the
    /// engine never makes are left out.
    pub fn pairs_below(&self, times: u64) -> Vec<(Call, Fault, u64)> {
        let mut rare = Vec::new();
        for call in CALLS {
            let made: u64 = PHASES.iter().map(|phase| self.calls[*phase as usize][call as usize]).sum();
            for (fault, _) in FAULTS.iter().filter(|(fault, _)| made > 0 && call.can_meet(*fault)) {
                let hits = PHASES.iter().map(|phase| self.hits[*phase as usize][call as usize][*fault as usize]).sum();
                if hits < times {
                    rare.push((call, *fault, hits));
                }
            }
        }
        rare
    }
}

/// As a table: a line for each phase and call that occurred, a column for each fault.
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<21}{:>8}", "phase, call", "calls")?;
        FAULTS.iter().try_for_each(|(_, name)| write!(f, "{name:>8}"))?;
        writeln!(f)?;
        for phase in PHASES {
            for call in CALLS {
                let calls = self.calls[phase as usize][call as usize];
                if calls == 0 {
                    continue;
                }
                write!(f, "{:<21}{:>8}", format!("{phase:?} {call:?}"), short(calls))?;
                for (fault, _) in FAULTS {
                    let hits = self.hits[phase as usize][call as usize][fault as usize];
                    let cell = if call.can_meet(fault) { short(hits) } else { "-".into() };
                    write!(f, "{cell:>8}")?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

fn short(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..10_000_000 => format!("{}K", count / 1000),
        _ => format!("{}M", count / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_untried_pair_is_named() {
        let mut coverage = Coverage::default();
        coverage.call(StorePhase::Serve, Call::Flush);
        coverage.hit(StorePhase::Serve, Call::Flush, Fault::ErrorOnce);
        let mut twice = coverage.clone();
        twice.add(&coverage);
        let rare = twice.pairs_below(2);
        assert!(rare.contains(&(Call::Flush, Fault::ErrorForever, 0)));
        assert!(!rare.iter().any(|(call, fault, _)| *fault == Fault::ErrorOnce || *call == Call::Read));
        assert!(twice.to_string().contains("Serve Flush"));
    }
}
