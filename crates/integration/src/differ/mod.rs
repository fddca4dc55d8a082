//! The same commands to our server and to a real memcached, and every byte of both answers
//! compared.
//!
//! [`sequence`] draws commands of every kind from a seed; [`compare`] says whether two answers are
//! the same, by named rules where each server has numbers of its own; [`intended`] is the reviewed
//! list of differences that are meant. What else differs is an [`UnmeantDifference`], which
//! [`shrink`] cuts down to the commands that it takes.
//!
//! What it does not see: `watch` and `lru_crawler metadump` (other tests have them), values between
//! what fits into memcached's largest item and a mebibyte, times that run out while it looks, and
//! what several clients do at once.

pub mod binary;
pub mod classic;
pub mod command;
pub mod compare;
pub mod draw;
pub mod fields;
pub mod intended;
pub mod meta;
pub mod peer;
pub mod sequence;
pub mod shrink;
pub mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use command::SentTogether;
use compare::{Rule, Side, Versions};
use intended::{Intended, shown};
use peer::Peers;
use sequence::CONNECTIONS;
use wire::Wire;

/// What was compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// From so many seeds.
    pub sequences: u64,
    /// Sent to both.
    pub commands: u64,
    /// Whose answers were the same.
    pub answers: u64,
    /// Bytes of answers of ours.
    pub bytes: u64,
    /// Sequences that were left because the stores differ on purpose.
    pub left: u64,
    /// Differences that are meant, by name.
    pub intended: BTreeMap<String, u64>,
    /// Rules that were needed.
    pub rules: BTreeSet<Rule>,
}

impl Counts {
    /// Both together.
    pub fn add(&mut self, other: &Counts) {
        self.sequences += other.sequences;
        self.commands += other.commands;
        self.answers += other.answers;
        self.bytes += other.bytes;
        self.left += other.left;
        for (name, count) in &other.intended {
            *self.intended.entry(name.clone()).or_default() += count;
        }
        self.rules.extend(&other.rules);
    }
}

/// A difference that nobody meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmeantDifference {
    /// Which step and which of its commands.
    pub at: (usize, usize),
    /// In words, with the command and both answers.
    pub what: String,
}

/// Why a sequence could not be compared to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// They differ.
    Found(UnmeantDifference),
    /// A server cannot be reached.
    Broken(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Found(found) => f.write_str(&found.what),
            Failure::Broken(why) => write!(f, "cannot go on: {why}"),
        }
    }
}

/// Connections to both, made when they are used first and again after each end.
struct Pair<'a> {
    peers: &'a Peers,
    wires: [Option<(Wire, Wire)>; CONNECTIONS],
}

impl Pair<'_> {
    fn wires(&mut self, connection: usize) -> Result<&mut (Wire, Wire), String> {
        let slot = &mut self.wires[connection];
        if slot.as_ref().is_some_and(|(ours, theirs)| ours.is_over() || theirs.is_over()) {
            *slot = None;
        }
        if slot.is_none() {
            let (ours, theirs) = self.peers.addresses();
            *slot = Some((Wire::connect(ours)?, Wire::connect(theirs)?));
        }
        slot.as_mut().ok_or_else(|| "no connection".to_owned())
    }
}

/// Empties both stores, and what they counted.
fn begin(peers: &Peers) -> Result<(), String> {
    let lines = [&b"flush_all\r\n"[..], b"stats detail off\r\n", b"stats reset\r\n"].map(<[u8]>::to_vec);
    let (ours, theirs) = peers.addresses();
    let asked = [ours, theirs].map(|address| Wire::connect(address).map(|mut wire| wire.ask(&lines, false, false)));
    match asked {
        [Ok(ours), Ok(theirs)] if ours == theirs => Ok(()),
        [ours, theirs] => Err(format!("a sequence cannot begin: {ours:?}, {theirs:?}")),
    }
}

/// Sends a sequence to both and compares.
///
/// # Errors
/// The first difference that is not meant, or a server cannot be reached.
pub fn run(peers: &Peers, steps: &[SentTogether], intended: &Intended) -> Result<Counts, Failure> {
    begin(peers).map_err(Failure::Broken)?;
    let mut counts = Counts { sequences: 1, ..Counts::default() };
    let mut versions = Versions::default();
    let mut pair = Pair { peers, wires: Default::default() };
    for (at, step) in steps.iter().enumerate() {
        let wires = pair.wires(step.connection).map_err(Failure::Broken)?;
        let bytes = |side| -> Vec<Vec<u8>> {
            let of = |command: &command::Command| command.bytes(|which| versions.number(&command.key, which, side));
            step.commands.iter().map(of).collect()
        };
        let is_binary = step.commands.iter().any(|command| command.binary);
        let closes = step.commands.last().is_some_and(|command| command.closes);
        let ours = wires.0.ask(&bytes(Side::Ours), is_binary, closes);
        let theirs = wires.1.ask(&bytes(Side::Theirs), is_binary, closes);
        counts.commands += step.commands.len() as u64;
        for (number, (command, (ours, theirs))) in step.commands.iter().zip(ours.iter().zip(&theirs)).enumerate() {
            counts.bytes += ours.bytes.len() as u64;
            versions.touch(command);
            let Err(why) = versions.compare(command, (ours, theirs), intended, &mut counts.rules) else {
                counts.answers += 1;
                continue;
            };
            let Some(difference) = intended.find(command, ours, theirs) else {
                let (connection, sent) = (step.connection, command.shown());
                let (ours, theirs) = (shown(ours), shown(theirs));
                let what =
                    format!("connection {connection}: {sent}\n  ours      {ours}\n  memcached {theirs}\n  {why}");
                return Err(Failure::Found(UnmeantDifference { at: (at, number), what }));
            };
            *counts.intended.entry(difference.name.clone()).or_default() += 1;
            if difference.ends {
                counts.left += 1;
                return Ok(counts);
            }
        }
    }
    Ok(counts)
}

/// A sequence for people.
pub fn listed(steps: &[SentTogether]) -> String {
    let commands = steps.iter().flat_map(|step| step.commands.iter().map(move |command| (step.connection, command)));
    commands.map(|(connection, command)| format!("  {connection}> {}\n", command.shown())).collect()
}
