//! Why there is no order, for people.

use std::fmt::Write;

use stratakv_engine::{Change, ChangeKind, Expect, Operation, Reply, Unmet};

use super::component::{Component, short, update_text};
use super::register::{ABSENT, Registers, Values};
use super::search::{SearchOutcome, longest, search};
use super::{Failure, HistoryEntry};

/// Operations printed.
const SHOWN: usize = 30;

/// The shortest prefix of a component's history without an order. (What has an order has one at
/// every earlier moment: it is found by halving.)
pub(super) fn explain(component: &Component<'_, '_>, steps_max: u64) -> Result<String, Failure> {
    let mut ends: Vec<u64> = component.entries.iter().filter_map(|entry| entry.returned).collect();
    ends.sort_unstable();
    let (mut low, mut high) = (0, ends.len().saturating_sub(1));
    while low < high {
        let middle = low.midpoint(high);
        let calls = component.calls(ends[middle])?;
        match search(component, &calls, steps_max) {
            (SearchOutcome::NoOrder, _) => high = middle,
            _ => low = middle + 1,
        }
    }
    let now = ends.get(low).copied().unwrap_or(u64::MAX);
    let calls = component.calls(now)?;
    let (order, registers, values) = longest(component, &calls, steps_max);
    let asked: Vec<&HistoryEntry> = component.entries.iter().copied().filter(|entry| entry.invoked <= now).collect();
    let mut text = String::new();
    let (names, count, all) = (component.names(), asked.len(), component.entries.len());
    let mut write = || -> std::fmt::Result {
        writeln!(text, "no order of operations explains what was answered about {names}; {count} of {all} show it:")?;
        if count > SHOWN {
            writeln!(text, "  … {} earlier ones", count - SHOWN)?;
        }
        let crashes = component.crashes.iter().filter(|(at, _)| *at <= now);
        let mut crashes = crashes.copied().peekable();
        for entry in &asked[count.saturating_sub(SHOWN)..] {
            while let Some((at, survives)) = crashes.next_if(|(at, _)| *at < entry.invoked) {
                writeln!(text, "  {at:>6}           crash; what was acknowledged at {} survives", survives.name())?;
            }
            let here = if entry.returned == Some(now) { "   <- finds no place" } else { "" };
            writeln!(text, "  {}{here}", line(entry, now))?;
        }
        for (at, survives) in crashes {
            writeln!(text, "  {at:>6}           crash; what was acknowledged at {} survives", survives.name())?;
        }
        let last = order.iter().rev().take(4).rev().filter_map(|at| component.entries.get(*at));
        let last: Vec<String> = last.map(|entry| format!("{} at {}", what(&entry.operation), entry.invoked)).collect();
        write!(text, "the longest order has {} of them and ends with {}; then ", order.len(), last.join(", "))?;
        write!(text, "{}", holds(component, &registers, &values))
    };
    write().map_err(|error| Failure::NotModelled(error.to_string()))?;
    Ok(text)
}

fn line(entry: &HistoryEntry, now: u64) -> String {
    let (client, invoked) = (entry.client, entry.invoked);
    let (end, answer) = match (&entry.reply, entry.returned.filter(|returned| *returned <= now)) {
        (Some(reply), Some(returned)) => (returned.to_string(), answered(reply)),
        _ => (String::new(), "no answer yet".into()),
    };
    let level = match &entry.operation {
        Operation::Write { level, .. } | Operation::Update { level, .. } => format!(" ({})", level.name()),
        _ => String::new(),
    };
    format!("{invoked:>6}..{end:<6} client {client:<3} {}{level}: {answer}", what(&entry.operation))
}

fn what(operation: &Operation) -> String {
    match operation {
        Operation::Get { .. } => "get".into(),
        Operation::Update { update, .. } => update_text(update),
        Operation::Write { changes, .. } if changes.len() == 1 => changes.iter().map(change).collect(),
        Operation::Write { changes, .. } => {
            let named = changes.iter().map(|one| format!("{}: {}", one.key.user().escape_ascii(), change(one)));
            format!("batch [{}]", named.collect::<Vec<_>>().join("; "))
        }
        other => format!("{other:?}"),
    }
}

fn change(change: &Change) -> String {
    let condition = match change.expect {
        Expect::Any => String::new(),
        Expect::Absent => " if absent".into(),
        Expect::Present => " if present".into(),
        Expect::Version(version) => format!(" if version {version}"),
    };
    match &change.kind {
        ChangeKind::Put { value, .. } => format!("put \"{}\"{condition}", short(value)),
        ChangeKind::Delete => format!("delete{condition}"),
        ChangeKind::Check => format!("check{condition}"),
    }
}

fn answered(reply: &Reply) -> String {
    match reply {
        Reply::Done { version: 0, existed: false } => "done, was absent".into(),
        Reply::Done { version, existed } => {
            format!("done, version {version}, {}", if *existed { "existed" } else { "was absent" })
        }
        Reply::Record(None) => "absent".into(),
        Reply::Record(Some(record)) => format!("\"{}\", version {}", short(&record.value.to_bytes()), record.version),
        Reply::Number { number, version } => format!("{number}, version {version}"),
        Reply::Unmet(Unmet::Absent) => "not done, is absent".into(),
        Reply::Unmet(Unmet::Present { version } | Unmet::Version { found: version }) => {
            format!("not done, has version {version}")
        }
        Reply::Unmet(Unmet::NotANumber) => "not done, no number".into(),
        other => format!("{other:?}"),
    }
}

fn holds(component: &Component<'_, '_>, registers: &Registers, values: &Values) -> String {
    let one = |(key, register): (&&stratakv_base::Key, &super::register::Register)| {
        let key = key.user().escape_ascii();
        match (register.value, register.version) {
            (ABSENT, _) => format!("\"{key}\" is absent"),
            (value, 0) => format!("\"{key}\" holds \"{}\"", short(values.get(value))),
            (value, version) => format!("\"{key}\" holds \"{}\", version {version}", short(values.get(value))),
        }
    };
    component.keys.iter().zip(registers).map(one).collect::<Vec<_>>().join(", ")
}
