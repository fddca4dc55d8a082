//! Sequences of commands from seeds: several connections, few keys, commands that are sent
//! together.

use super::command::{Command, SentTogether};
use super::draw::Draw;
use super::{binary, classic, meta};

/// Connections of text; those behind them are binary.
pub const TEXT_CONNECTIONS: usize = 3;

/// All connections.
pub const CONNECTIONS: usize = 5;

/// What a sequence is mostly of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Theme {
    Classic,
    Meta,
    Binary,
    All,
}

/// The sequence of a seed.
pub fn sequence(seed: u64) -> Vec<SentTogether> {
    let mut draw = Draw::new(seed);
    let theme = match draw.below(10) {
        0 | 1 => Theme::Classic,
        2..=4 => Theme::Meta,
        5 | 6 => Theme::Binary,
        _ => Theme::All,
    };
    let mut steps: Vec<SentTogether> = Vec::new();
    for _ in 0..8 + draw.below(25) {
        let step = step(&mut draw, theme);
        let (connection, is_binary) = (step.connection, step.connection >= TEXT_CONNECTIONS);
        steps.push(step);
        // Alone: who hangs up with bytes unread may take back what it has answered.
        if draw.once_in(30) {
            let command = if is_binary { binary::last(&mut draw) } else { classic::last(&mut draw) };
            steps.push(SentTogether { connection, commands: vec![command] });
        }
    }
    // Long values are rare: each takes as long as thousands of commands.
    if draw.once_in(20) {
        let at = draw.below(steps.len() as u64) as usize;
        let is_binary = draw.once_in(2);
        let command = if is_binary { binary::too_large(&mut draw) } else { classic::too_large(&mut draw) };
        steps.insert(at, SentTogether { connection: connection(&mut draw, is_binary), commands: vec![command] });
    }
    steps
}

fn connection(draw: &mut Draw, is_binary: bool) -> usize {
    let text = TEXT_CONNECTIONS as u64;
    let number = if is_binary { text + draw.below(CONNECTIONS as u64 - text) } else { draw.below(text) };
    number as usize
}

fn step(draw: &mut Draw, theme: Theme) -> SentTogether {
    let theme = match theme {
        Theme::All => [Theme::Classic, Theme::Meta, Theme::Binary][draw.below(3) as usize],
        other if draw.once_in(8) => [Theme::Classic, Theme::Meta, other][draw.below(3) as usize],
        other => other,
    };
    let is_binary = theme == Theme::Binary;
    let count = if draw.once_in(3) { 1 + draw.below(8) } else { 1 };
    let mut commands: Vec<Command> = (0..count)
        .map(|_| match theme {
            Theme::Binary => binary::command(draw),
            Theme::Meta => meta::command(draw),
            _ => classic::command(draw),
        })
        .collect();
    // memcached makes a new item of a number that an answer on its way still holds, and then does
    // not pad it.
    if let Some(at) = commands.iter().skip(1).position(Command::counts) {
        commands.truncate(at + 1);
    }
    SentTogether { connection: connection(draw, is_binary), commands }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_sequence_and_each_connection_one_protocol() {
        assert_eq!(sequence(5), sequence(5));
        assert_ne!(sequence(5), sequence(6));
        for step in (0..500).flat_map(sequence) {
            let is_binary = step.connection >= TEXT_CONNECTIONS;
            assert!(step.commands.iter().all(|command| command.binary == is_binary));
            assert!(step.commands.len() == 1 || step.commands.iter().all(|command| !command.closes), "alone");
        }
    }

    /// A generator that forgets a flag or an opcode compares nothing of it.
    #[test]
    fn every_command_flag_and_opcode_occurs() {
        let mut text = String::new();
        let mut opcodes = std::collections::BTreeSet::new();
        for command in (0..3000).flat_map(sequence).flat_map(|step| step.commands) {
            match command.binary {
                true => _ = opcodes.insert(command.bytes(|_| 0)[1]),
                false => text += &(command.shown() + "\n"),
            }
        }
        let verbs =
            ["get", "gets", "bget", "gat", "gats", "set", "add", "replace", "append", "prepend", "cas", "delete"];
        let others =
            ["incr", "decr", "touch", "flush_all", "verbosity", "version", "stats", "mg", "ms", "md", "ma", "me", "mn"];
        for verb in verbs.iter().chain(&others) {
            assert!(
                text.lines()
                    .any(|line| line.starts_with(&format!("{verb} ")) || line.starts_with(&format!("{verb}\\r"))),
                "{verb}"
            );
        }
        let flags =
            [("mg", "bcfhklOqstuvNRTE"), ("ms", "bcCFIkOqsTMNE"), ("md", "bCIkOqTxE"), ("ma", "bCDJkMNOqtTvcE")];
        for (verb, letters) in flags {
            for letter in letters.chars() {
                let has =
                    |line: &str| line.starts_with(verb) && line.split(' ').skip(2).any(|word| word.starts_with(letter));
                assert!(text.lines().any(has), "{verb} {letter}");
            }
        }
        for opcode in (0..=0x1E).chain([0x20, 0x23, 0x24]).filter(|opcode| *opcode != 0x1B) {
            assert!(opcodes.contains(&opcode), "opcode {opcode:#x}");
        }
    }
}
