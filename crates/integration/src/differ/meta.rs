//! The meta commands with all their flags: in any order, repeated, with arguments that are none.

use super::command::{Command, CommandPiece, Shape};
use super::draw::{Draw, base64};

/// Longest opaque that is taken.
const OPAQUE_BYTES_MAX: u64 = 31;

/// A line in pieces.
#[derive(Debug, Default)]
struct Line {
    parts: Vec<CommandPiece>,
    touches: bool,
    /// Nothing is done before all of it is looked at.
    is_harmless: bool,
}

impl Line {
    fn push(&mut self, bytes: &[u8]) {
        match self.parts.last_mut() {
            Some(CommandPiece::Bytes(last)) => last.extend_from_slice(bytes),
            _ => self.parts.push(CommandPiece::Bytes(bytes.to_vec())),
        }
    }

    fn flag(&mut self, letter: &str, argument: &str) {
        self.push(format!(" {letter}{argument}").as_bytes());
    }
}

/// A command.
pub fn command(draw: &mut Draw) -> Command {
    match draw.below(100) {
        0..=39 => with_flags(draw, "mg"),
        40..=64 => with_flags(draw, "ms"),
        65..=76 => with_flags(draw, "md"),
        77..=93 => with_flags(draw, "ma"),
        94..=96 => debug(draw),
        _ => bad(draw),
    }
}

/// A key as it is sent, as it is, and whether it is in base64.
fn key(draw: &mut Draw) -> (Vec<u8>, Vec<u8>, bool) {
    match draw.below(20) {
        0 => {
            let key = draw.key();
            (base64(&key), key, true)
        }
        1..=4 => {
            let key = draw.binary_key();
            (base64(&key), key, true)
        }
        _ => {
            let key = draw.key();
            (key.clone(), key, false)
        }
    }
}

fn with_flags(draw: &mut Draw, verb: &str) -> Command {
    let (word, key, is_base64) = key(draw);
    let value = draw.value();
    let mut line = Line { is_harmless: matches!(verb, "ms" | "md"), ..Line::default() };
    line.push(&[verb.as_bytes(), b" ", &word].concat());
    if verb == "ms" {
        line.push(format!(" {}", value.len()).as_bytes());
    }
    let count = match draw.below(12) {
        0 => 0,
        1 => 6 + draw.below(14),
        _ => 1 + draw.below(4),
    };
    let mut flags: Vec<&str> = (0..count).map(|_| letter(draw, verb)).collect();
    if !draw.once_in(20) {
        // In odd orders, but not twice.
        let mut seen = std::collections::BTreeSet::new();
        flags.retain(|flag| seen.insert(*flag));
    }
    if is_base64 != draw.once_in(50) {
        let at = draw.below(flags.len() as u64 + 1) as usize;
        flags.retain(|flag| *flag != "b");
        flags.insert(at.min(flags.len()), "b");
    }
    for flag in flags {
        argument(draw, &mut line, flag);
    }
    line.push(if draw.once_in(30) { b"  \r\n" } else { b"\r\n" });
    let mut command = Command::of(line.parts, false).shape(Shape::Meta).key(&key);
    if line.touches {
        command = command.touching(&[&key]);
    }
    if verb != "ms" {
        return command;
    }
    match draw.below(40) {
        0 => command.data(&[&value[..], b"x"].concat()),
        _ => command.data(&value),
    }
}

/// A flag: mostly one that the command knows.
fn letter(draw: &mut Draw, verb: &str) -> &'static str {
    if draw.once_in(30) {
        return draw.one(&["!", "5", "Z", "W", "X", "P", "L", "S", "a", "\u{e9}", "x", "E", "A", "r"]);
    }
    let known: &[&str] = match verb {
        "mg" => &["c", "f", "h", "k", "l", "O", "q", "s", "t", "u", "v", "v", "N", "R", "T", "v", "c", "t"],
        "ms" => &["c", "C", "F", "I", "k", "O", "q", "T", "M", "M", "C", "c", "F"],
        "md" => &["C", "I", "k", "O", "q", "T", "I", "C"],
        _ => &["C", "D", "J", "k", "M", "N", "O", "q", "t", "T", "v", "c", "v", "N", "D"],
    };
    match draw.below(16) {
        // Those of the others are taken too.
        0 => draw.one(&[
            "c", "f", "h", "k", "l", "q", "s", "t", "u", "v", "O", "N", "R", "T", "C", "F", "D", "J", "M", "I", "b",
        ]),
        _ => draw.one(known),
    }
}

fn argument(draw: &mut Draw, line: &mut Line, flag: &str) {
    match flag {
        "T" | "N" => {
            line.touches |= flag == "T";
            let time = if draw.once_in(2) { draw.one(&["100", "400", "3600"]) } else { draw.time() };
            line.flag(flag, time);
        }
        // Never near a time that a record is given.
        "R" => {
            let time = draw.one(&["30", "30", "200", "1000", "5000", "1000000", "0", "-1", "x", "", "2100000000"]);
            line.flag(flag, time);
        }
        "C" => match draw.below(12) {
            0 => line.flag(flag, draw.one(&["", "x", "0", "-1", "18446744073709551616"])),
            _ => {
                line.push(b" C");
                line.parts.push(CommandPiece::Version(draw.which()));
            }
        },
        "F" => line.flag(flag, draw.flags()),
        "D" | "J" => line.flag(flag, draw.delta()),
        "M" => line.flag(
            flag,
            draw.one(&["S", "E", "A", "P", "R", "I", "D", "+", "-", "I", "A", "P", "E", "", "X", "s", "incr"]),
        ),
        "O" => {
            // What else a get or a count does before it looks at the opaque is not the same.
            let bytes = match draw.below(20) {
                0 if line.is_harmless => OPAQUE_BYTES_MAX + draw.below(3),
                _ => 1 + draw.below(8),
            };
            line.flag(flag, &"0123456789abcdef0123456789abcdef012345"[..bytes as usize]);
        }
        // An argument of a flag that has none.
        _ if draw.once_in(30) => line.flag(flag, "12"),
        _ => line.flag(flag, ""),
    }
}

fn debug(draw: &mut Draw) -> Command {
    let (word, key, is_base64) = key(draw);
    let end: &[u8] = if is_base64 { b" b" } else { b"" };
    Command::line([&b"me "[..], &word[..], end].concat()).shape(Shape::Debug).key(&key)
}

/// Lines that are nearly meta commands.
fn bad(draw: &mut Draw) -> Command {
    const LINES: &[&str] = &[
        "mg",
        "mg ",
        "ms",
        "ms a",
        "ms a x",
        "ms a -1",
        "ms a 2147483647",
        "ms a S5",
        "md",
        "ma",
        "me",
        "me a b c",
        "me a x",
        "me a  b",
        "mg a b",
        "mg YQ b",
        "mg YQ= b",
        "mg a* b v",
        "md a* b",
        "ma a* b",
        "mg a\tv",
        "mg\ta",
        "mg a v\tk",
        "mn",
        "mn a b c",
        "ms a  ",
        "mg a v  k",
        "md a  ",
        "ma a v v",
        "mg a k k",
        "mg a b b",
    ];
    match draw.below(8) {
        0 => {
            let key = draw.bad_key();
            let verb = draw.one(&["mg", "md", "ma", "me"]);
            Command::line([verb.as_bytes(), b" ", &key[..], b" k"].concat())
        }
        1 => {
            let flags = draw.one(&[
                "MX",
                "Tx",
                "S2",
                "C",
                "k k",
                "b",
                "Fx",
                "O0123456789012345678901234567890123",
                "MX Tx",
                "Tx MX",
                "D Tx",
            ]);
            let repeated: String = (0..draw.below(24)).map(|_| " q").collect();
            Command::line(format!("ms a 2 {flags}{repeated}")).data(b"hi")
        }
        _ => Command::line(draw.one(LINES)).shape(Shape::Meta).key(b"a"),
    }
}
