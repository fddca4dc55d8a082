//! Which writes were FUA. QEMU's NVMe takes the bit and forgets it (what it writes is in the host's
//! cache, so it may), and the log does not show it: so the guest's kernel is asked, by its trace of
//! requests issued to the driver.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use super::log::LogEntry;

/// A write that a driver was given, or gave a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IssuedWrite {
    /// The first sector of 512 bytes.
    pub sector: u64,
    /// How many.
    pub sectors: u64,
    /// Force unit access.
    pub fua: bool,
}

/// Marks the writes in `entries` that were issued with FUA, by the kernel's trace: lines of
/// `block_rq_issue` of one device: `… block_rq_issue: 259,0 WFS 4096 () 12345 + 8 [who]`.
///
/// # Errors
/// Trace and log do not agree on which writes there were.
pub fn mark_fua(trace: &str, device: &str, entries: &mut [LogEntry]) -> Result<u64, String> {
    mark(writes_of(trace, device), 0..u64::MAX, entries)
}

/// The writes to a device (`259,0`) in the kernel's trace, in their order.
pub fn writes_of(trace: &str, device: &str) -> impl Iterator<Item = IssuedWrite> {
    let lines = trace.lines().filter(|line| line.contains("block_rq_issue:"));
    lines.filter_map(move |line| write_of(line, device))
}

/// As [`mark_fua`], by any list of writes in their order; of those entries that lie in `within`
/// (bytes), which the list's sectors are counted from. The n-th write issued over an extent is the
/// n-th logged over it, since nobody has two writes over the same sectors in flight.
///
/// # Errors
/// List and log do not agree on which writes there were.
pub fn mark(
    writes: impl Iterator<Item = IssuedWrite>,
    within: Range<u64>,
    entries: &mut [LogEntry],
) -> Result<u64, String> {
    match mark_some(writes, within, entries)? {
        (marked, None) => Ok(marked),
        (_, Some(extent)) => Err(format!("a write of {extent:?} was issued and is not in the log")),
    }
}

/// As [`mark`]; also tells of a write that was issued and is not in the log, if there is one. Those
/// must be the last over their extents.
///
/// # Errors
/// A write was logged that was not issued.
pub(super) fn mark_some(
    writes: impl Iterator<Item = IssuedWrite>,
    within: Range<u64>,
    entries: &mut [LogEntry],
) -> Result<(u64, Option<(u64, u64)>), String> {
    let mut issued: HashMap<(u64, u64), VecDeque<bool>> = HashMap::new();
    for IssuedWrite { sector, sectors, fua } in writes {
        issued.entry((sector, sectors)).or_default().push_back(fua);
    }
    let mut marked = 0;
    for (index, entry) in entries.iter_mut().enumerate() {
        let LogEntry::Write { at, data, fua } = entry else { continue };
        if !within.contains(at) {
            continue;
        }
        let extent = ((*at - within.start) / 512, data.len() as u64 / 512);
        let known = issued.get_mut(&extent).and_then(VecDeque::pop_front);
        let is_fua = known.ok_or_else(|| format!("entry {index}, {extent:?}, is not in the guest's trace"))?;
        *fua = is_fua;
        marked += u64::from(is_fua);
    }
    Ok((marked, issued.into_iter().find(|(_, left)| !left.is_empty()).map(|(extent, _)| extent)))
}

/// The write (or write of zeroes) to `device` that a line tells of, if it does.
fn write_of(line: &str, device: &str) -> Option<IssuedWrite> {
    let mut words = line.split_once("block_rq_issue: ")?.1.split_whitespace();
    let (on, kind) = (words.next()?, words.next()?);
    // `WFS`: write, FUA, sync; `FWFS`: the leading F is a flush before it.
    let after = kind.strip_prefix('F').filter(|rest| rest.starts_with('W')).unwrap_or(kind);
    if on != device || !after.starts_with('W') {
        return None;
    }
    let mut words = words.skip_while(|word| *word != "()").skip(1);
    let sector = words.next()?.parse().ok()?;
    let sectors = words.nth(1)?.parse().ok()?;
    Some(IssuedWrite { sector, sectors, fua: after.contains('F') })
}

#[cfg(test)]
mod tests {
    use super::super::log::parse;
    use super::super::log::tests::log_of;
    use super::*;

    const TRACE: &str = "\
# tracer: nop
 init-1 [000] d..1. 1.0: block_rq_issue: 259,0 WS 1024 () 8 + 2 [init]
 init-1 [000] d..1. 1.1: block_rq_issue: 259,1 WFS 1024 () 8 + 2 [init]
 init-1 [000] d..1. 1.2: block_rq_issue: 259,0 FF 0 () 0 + 0 [kworker/0:1H]
 init-1 [000] d..1. 1.3: block_rq_issue: 259,0 RA 4096 () 8 + 2 [init]
 init-1 [000] d..1. 1.4: block_rq_issue: 259,0 FWFS 1024 () 8 + 2 [init]
";

    #[test]
    fn the_nth_write_issued_is_the_nth_logged() {
        let mut entries = parse(&log_of(&[(8, 2, 0), (0, 0, 1), (8, 2, 0)])).unwrap();
        assert_eq!(mark_fua(TRACE, "259,0", &mut entries), Ok(1));
        assert!(matches!(entries[0], LogEntry::Write { fua: false, .. }));
        assert!(matches!(entries[2], LogEntry::Write { fua: true, .. }));
    }

    #[test]
    fn only_writes_within_a_range_are_asked_for() {
        let mut entries = parse(&log_of(&[(8, 2, 0), (100, 8, 0), (9, 1, 0), (104, 4, 0)])).unwrap();
        let list = [(0, 8, true), (4, 4, false)].map(|(sector, sectors, fua)| IssuedWrite { sector, sectors, fua });
        assert_eq!(mark(list.into_iter(), 100 * 512..200 * 512, &mut entries), Ok(1));
        assert!(matches!(entries[1], LogEntry::Write { fua: true, .. }));
        assert!(mark(list.into_iter(), 99 * 512..200 * 512, &mut entries).is_err());
    }

    #[test]
    fn a_trace_of_other_writes_is_refused() {
        for log in [&[(8, 2, 0)][..], &[(8, 2, 0), (8, 2, 0), (8, 2, 0)], &[(9, 2, 0), (8, 2, 0)]] {
            assert!(mark_fua(TRACE, "259,0", &mut parse(&log_of(log)).unwrap()).is_err());
        }
    }
}
