//! Who looks at commands of others: `SLOWLOG`, and clients that `MONITOR`.

use std::borrow::Cow;

use stratakv_protocol::resp::{encode, number};

use super::table::{CommandSpec, unsupported_part, wrong_count};
use super::{Connection, Context, Handled};
use crate::pending::{ParsedCommand, ServerQuestion, SlowQuestion};
use crate::resp::{Arguments, CommandWords, Session, SlowEntry};

/// Entries that `SLOWLOG GET` tells if it is not told how many.
const SLOW_ENTRIES: usize = 10;
/// Bytes of arguments that a line for those who monitor has at most.
const LINE_BYTES_MAX: usize = 16 << 10;

impl Connection {
    /// A command begins. Those who look at commands are few and rare.
    pub(super) fn observe(&mut self, command: &CommandSpec, a: &Arguments<'_>, is_queued: bool, context: &Context<'_>) {
        // Nobody is told of passwords.
        if command.is_for_strangers() {
            return;
        }
        if context.resp.pubsub.has_monitors() && !command.has_flag("admin") {
            context.resp.pubsub.tell_monitors(&line(a, context));
        }
        if context.resp.slow.is_on() && !is_queued && !command.has_flag("blocking") {
            let sequence = self.answers.first.wrapping_add(self.answers.pending.len() as u32);
            self.client.timed.begin(sequence, context.server.mono(), CommandWords::of(a));
        }
    }

    /// Notes the commands that have ended and were slow.
    pub(in crate::connection) fn note_slow(&mut self, context: &Context<'_>) {
        if self.client.timed.is_empty() {
            return;
        }
        let is_over =
            self.answers.pending.is_empty() && self.unfinished.more.is_none() && self.unfinished.held.is_none();
        let (first, now) = (self.answers.first, context.server.mono());
        while let Some((took, words)) = self.client.timed.take_ended(first, is_over, now) {
            if context.resp.slow.is_slow(took) {
                let (address, name) = context.server.client_words();
                context.resp.slow.add(SlowEntry { at: context.wall, took, words, address, name });
            }
        }
    }

    pub(super) fn resp_slowlog(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let question = match () {
            () if a.is(1, "GET") && a.len() == 2 => SlowQuestion::Get(SLOW_ENTRIES),
            () if a.is(1, "GET") && a.len() == 3 => {
                let count = number::integer(a.get(2)).filter(|count| *count >= -1);
                let count = count.ok_or(Cow::Borrowed("ERR count should be greater than or equal to -1"))?;
                SlowQuestion::Get(usize::try_from(count).unwrap_or(usize::MAX))
            }
            () if a.is(1, "LEN") && a.len() == 2 => SlowQuestion::Len,
            () if a.is(1, "RESET") && a.len() == 2 => SlowQuestion::Reset,
            () if a.is(1, "LEN") => return Err(wrong_count("slowlog|len")),
            () if a.is(1, "RESET") => return Err(wrong_count("slowlog|reset")),
            () if a.is(1, "HELP") && a.len() == 2 => return self.help("slowlog"),
            () => return Err(unsupported_part("slowlog", a)),
        };
        let bytes = if let SlowQuestion::Get(_) = question { context.resp.slow.reply_bytes() } else { 0 };
        self.begin(ParsedCommand::Question(ServerQuestion::Slow { question, bytes }, s.version), context);
        Ok(())
    }

    /// From now on the client is told what all clients do.
    pub(super) fn resp_monitor(&mut self, _: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        self.subscriptions_of(s, context).monitor();
        self.say(|out| encode::simple(out, "OK"))
    }
}

/// A command as those who monitor read it.
fn line(a: &Arguments<'_>, context: &Context<'_>) -> Vec<u8> {
    let (address, _) = context.server.client_words();
    let wall = context.wall.0;
    let mut line = format!("+{}.{:03}000 [0 {address}]", wall / 1000, wall % 1000).into_bytes();
    let mut left = LINE_BYTES_MAX;
    for argument in a.from(0) {
        let shown = argument.get(..left).unwrap_or(argument);
        left -= shown.len().min(left);
        line.extend_from_slice(b" \"");
        shown.iter().for_each(|byte| escape(*byte, &mut line));
        line.push(b'"');
        if shown.len() < argument.len() || left == 0 {
            line.extend_from_slice(b" ... (more)");
            break;
        }
    }
    line.extend_from_slice(b"\r\n");
    line
}

/// As Redis escapes: so that a line is one line.
fn escape(byte: u8, line: &mut Vec<u8>) {
    match byte {
        b'\\' | b'"' => line.extend_from_slice(&[b'\\', byte]),
        b'\n' => line.extend_from_slice(b"\\n"),
        b'\r' => line.extend_from_slice(b"\\r"),
        b'\t' => line.extend_from_slice(b"\\t"),
        0x07 => line.extend_from_slice(b"\\a"),
        0x08 => line.extend_from_slice(b"\\b"),
        b' '..=b'~' => line.push(byte),
        _ => line.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
    }
}
