//! Three caches behind a real proxy, [`twemproxy`](crate::twemproxy), with traffic all the time:
//! servers are killed, end in order, freeze, are cut off from the clients, and come back. Clients
//! judge every answer, and know which older ones are owed to the proxy's leaving servers out.
//!
//! Each row of the plan is a trial of its own: one way to rejoin, one event, some rounds of it.

pub mod built_in;
mod client;
pub mod network;
mod oracle;
mod trial;

use std::fmt::Write as _;
use std::time::Duration;

use crate::twemproxy::ProxyTimes;

/// Servers behind the proxy.
pub const SERVERS: usize = 3;

/// What happens to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// `kill -9`, and another process on its data.
    Kill,
    /// An orderly end, and another process on its data.
    End,
    /// The process does not run for a while (SIGSTOP).
    Freeze,
    /// Nothing passes between it and the proxy for a while.
    Cut,
    /// The same; before it is mended, somebody on the server's side empties it.
    CutAndFlush,
}

impl Event {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Event::Kill => "`kill -9`",
            Event::End => "orderly end",
            Event::Freeze => "frozen",
            Event::Cut => "cut off",
            Event::CutAndFlush => "cut off, `flush_all` before it is let in",
        }
    }

    /// Whether the process that serves is another one afterwards.
    fn restarts(self) -> bool {
        matches!(self, Event::Kill | Event::End)
    }

    fn needs_network(self) -> bool {
        matches!(self, Event::Cut | Event::CutAndFlush)
    }
}

/// What is owed of values of the server that was away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owed {
    /// None may be stale.
    Fresh,
    /// They may be stale, and some must be: else the trial would find nothing.
    Stale,
    /// They may be stale.
    Anything,
}

/// A trial.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// `serve --rejoin`.
    pub rejoin: &'static str,
    /// Whether the server is away for longer than `warm-within` allows.
    pub is_long: bool,
    /// What happens.
    pub event: Event,
    /// Whether the proxy leaves out servers.
    pub ejects: bool,
    /// What is owed.
    pub owed: Owed,
    /// Whether servers have `--rejoin-cut-off`, and a proxy that waits for longer.
    pub cut_off: bool,
}

const fn row(rejoin: &'static str, event: Event, owed: Owed) -> Row {
    Row { rejoin, is_long: false, event, ejects: true, owed, cut_off: false }
}

/// `serve --rejoin-cut-off` of servers that have it.
const CUT_OFF: &str = "3s";

impl Row {
    /// How long the proxy waits: longer than a server that has the option takes to notice a cut.
    fn times(&self) -> ProxyTimes {
        match self.cut_off {
            true => ProxyTimes { timeout: Duration::from_secs(4), retry: Duration::from_secs(5) },
            false => ProxyTimes::default(),
        }
    }

    /// Whether a server that goes on running notices that it was away.
    fn notices(&self) -> bool {
        let is_strict = self.rejoin != "warm" && self.rejoin != WIDE_WINDOW;
        is_strict && (self.event == Event::Freeze || (self.event == Event::Cut && self.cut_off))
    }

    /// Its `--rejoin`, as the table has it.
    fn options(&self) -> String {
        let cut_off = if self.cut_off { format!(" --rejoin-cut-off {CUT_OFF}") } else { String::new() };
        format!("{}{cut_off}", self.rejoin)
    }
}

/// The window of a trial in which the server is away for longer.
const WINDOW_MS: u64 = 1500;
const WINDOW: &str = "warm-within=1500ms";
const WIDE_WINDOW: &str = "warm-within=3600s";

/// All trials.
pub const ROWS: [Row; 15] = [
    // What was in memory goes with the process: there may be nothing left to be stale.
    row("warm", Event::Kill, Owed::Anything),
    row("warm", Event::End, Owed::Stale),
    row("cold", Event::Kill, Owed::Fresh),
    row("cold", Event::End, Owed::Fresh),
    Row { is_long: true, ..row(WINDOW, Event::Kill, Owed::Fresh) },
    Row { is_long: true, ..row(WINDOW, Event::End, Owed::Fresh) },
    row(WIDE_WINDOW, Event::End, Owed::Stale),
    Row { is_long: true, ..row("cold", Event::Freeze, Owed::Fresh) },
    Row { is_long: true, ..row(WINDOW, Event::Freeze, Owed::Fresh) },
    row("cold", Event::Cut, Owed::Stale),
    Row { cut_off: true, ..row("cold", Event::Cut, Owed::Fresh) },
    row("cold", Event::CutAndFlush, Owed::Fresh),
    Row { ejects: false, ..row("warm", Event::End, Owed::Fresh) },
    Row { ejects: false, ..row("warm", Event::Freeze, Owed::Fresh) },
    Row { ejects: false, ..row("warm", Event::Cut, Owed::Fresh) },
];

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Trials.
    pub rows: Vec<Row>,
    /// Events of each trial.
    pub rounds: u32,
    /// Clients at once.
    pub clients: usize,
    /// Operations of all clients between two events.
    pub operations: u64,
    /// Of what is drawn.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { rows: ROWS.to_vec(), rounds: 6, clients: 4, operations: 20_000, seed: 1 }
    }
}

impl Plan {
    /// The trials that tell most, one event each.
    pub fn short() -> Plan {
        let told = [3, 7, 10, 12].map(|place| ROWS[place]);
        Plan { rows: told.to_vec(), rounds: 1, clients: 2, operations: 1500, ..Plan::default() }
    }
}

/// What clients saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations through the proxy.
    pub operations: u64,
    /// Of these, without an answer, or answered by an error.
    pub errors: u64,
    /// Gets without a value, with something disturbed since the last write.
    pub misses: u64,
    /// Answers older than an acknowledged write, or none, though nothing was disturbed since.
    pub lost: u64,
    /// Values and counters older than an acknowledged write, of the server that has the key.
    pub stale_home: u64,
    /// Such values of a server that had stood in for it before.
    pub stale_elsewhere: u64,
    /// Answers by a write that had failed and was carried out after a newer one.
    pub late: u64,
    /// Additions and adds that were carried out twice.
    pub duplicated: u64,
    /// Answers that nobody wrote.
    pub alien: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.operations += other.operations;
        self.errors += other.errors;
        self.misses += other.misses;
        self.lost += other.lost;
        self.stale_home += other.stale_home;
        self.stale_elsewhere += other.stale_elsewhere;
        self.late += other.late;
        self.duplicated += other.duplicated;
        self.alien += other.alien;
    }

    /// What was seen that may not be.
    ///
    /// # Errors
    /// It was.
    pub fn check(&self, row: &Row) -> Result<(), String> {
        let rules = [
            (self.lost == 0, "acknowledged writes were lost with nothing disturbed"),
            (self.duplicated == 0, "something was carried out twice"),
            (self.alien == 0, "an answer is of nobody's writing"),
            (row.owed != Owed::Fresh || self.stale_home == 0, "stale values of a server that was away"),
            (row.owed != Owed::Stale || self.stale_home > 0, "nothing stale where it must be: the trial finds nothing"),
            (row.ejects || self.stale_elsewhere == 0, "another server stood in, though none may"),
            (!row.notices() || self.late == 0, "late writes to a server that closed its connections"),
        ];
        let broken: Vec<&str> = rules.iter().filter(|(holds, _)| !holds).map(|(_, what)| *what).collect();
        match broken.is_empty() {
            true => Ok(()),
            false => Err(format!("{}, {}: {}: {self:?}", row.rejoin, row.event.name(), broken.join("; "))),
        }
    }
}

/// Runs the plan; `note` is called with each trial, or with why it could not be made.
///
/// # Errors
/// What was seen that may not be, or what failed.
pub fn run(plan: &Plan, note: &mut dyn FnMut(&Row, Option<&Tally>)) -> Result<Vec<(Row, Tally)>, String> {
    let has_network = network_error().is_none();
    let (mut all, mut broken) = (Vec::new(), Vec::new());
    for row in &plan.rows {
        if row.event.needs_network() && !has_network {
            note(row, None);
            continue;
        }
        let Some(tally) = trial::run(row, plan, has_network)? else { return Ok(Vec::new()) };
        note(row, Some(&tally));
        broken.extend(tally.check(row).err());
        all.push((*row, tally));
    }
    if broken.is_empty() { Ok(all) } else { Err(broken.join("\n")) }
}

/// Why there can be no network namespaces here, if there can be none.
pub fn network_error() -> Option<String> {
    network::Network::new(1).err()
}

/// The table of what was seen.
pub fn markdown(plan: &Plan, all: &[(Row, Tally)]) -> String {
    let mut text = format!(
        "{SERVERS} servers, {} clients, {} keys, {} events a row.\n\n\
         | `--rejoin` | a server is | leaves out | operations | errors | lost | stale: was away | stale: stood in | \
         late | twice |\n|---|---|---|--:|--:|--:|--:|--:|--:|--:|\n",
        plan.clients,
        plan.clients * client::KEYS,
        plan.rounds
    );
    for (row, tally) in all {
        let Row { event, ejects, .. } = row;
        let (rejoin, away) = (row.options(), if row.is_long { ", longer" } else { "" });
        let Tally { operations, errors, lost, stale_home, stale_elsewhere, late, duplicated, .. } = tally;
        let ejects = if *ejects { "yes" } else { "no" };
        // Writing to a string does not fail.
        _ = writeln!(
            text,
            "| `{rejoin}` | {}{away} | {ejects} | {operations} | {errors} | {lost} | {stale_home} | {stale_elsewhere} \
             | {late} | {duplicated} |",
            event.name()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_not_be_seen_is_told() {
        let (fresh, control) = (row("cold", Event::Kill, Owed::Fresh), row("warm", Event::Kill, Owed::Stale));
        let seen = Tally { stale_home: 1, ..Tally::default() };
        assert!(Tally::default().check(&fresh).is_ok() && seen.check(&control).is_ok());
        assert!(seen.check(&fresh).is_err() && Tally::default().check(&control).is_err());
        for seen in [
            Tally { lost: 1, ..Tally::default() },
            Tally { duplicated: 1, ..Tally::default() },
            Tally { alien: 1, ..Tally::default() },
        ] {
            assert!(seen.check(&fresh).is_err(), "{seen:?}");
        }
        let stands_in = Tally { stale_elsewhere: 1, ..Tally::default() };
        let late = Tally { late: 1, ..Tally::default() };
        let noticed = row("cold", Event::Freeze, Owed::Fresh);
        let cut = Row { event: Event::Cut, ..noticed };
        assert!(late.check(&noticed).is_err() && late.check(&cut).is_ok(), "it knows of no cut");
        assert!(late.check(&Row { cut_off: true, ..cut }).is_err());
        assert!(late.check(&Row { rejoin: "warm", ..noticed }).is_ok(), "it closes no connection");
        assert!(stands_in.check(&fresh).is_ok() && stands_in.check(&Row { ejects: false, ..fresh }).is_err());
    }
}
