//! The commands that the driver in user space issued, by its trace events of target `nvme`: what
//! the kernel's trace of block requests is for the kernel's driver.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;

use super::super::guest::text;
use super::super::trace::IssuedWrite;

/// Opcodes of the NVM command set that write (NVM Command Set Specification 1.0, section 3).
const WRITE: u64 = 0x01;
const WRITE_ZEROES: u64 = 0x08;

/// One command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TracedCommand {
    opcode: u64,
    slba: u64,
    blocks: u64,
    fua: bool,
}

/// Collects commands from now on, in the order in which they were issued.
#[derive(Clone, Debug, Default)]
pub(super) struct CommandTrace(Arc<Mutex<Vec<TracedCommand>>>);

impl CommandTrace {
    /// Begins; once in a process.
    ///
    /// # Errors
    /// Somebody else collects already.
    pub(super) fn begin() -> Result<CommandTrace, String> {
        let trace = CommandTrace::default();
        let subscriber = Registry::default().with(trace.clone());
        tracing::subscriber::set_global_default(subscriber).map_err(text("collect the driver's trace"))?;
        Ok(trace)
    }

    /// As lines.
    pub(super) fn to_text(&self) -> String {
        let mut lines = String::new();
        for TracedCommand { opcode, slba, blocks, fua } in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter()
        {
            let _ = writeln!(lines, "{opcode} {slba} {blocks} {}", u8::from(*fua));
        }
        lines
    }
}

/// Writes that the kernel's driver was given, as such lines.
pub(super) fn kernel_text(writes: impl Iterator<Item = IssuedWrite>) -> String {
    let lines = writes.map(|write| format!("{WRITE} {} {} {}\n", write.sector, write.sectors, u8::from(write.fua)));
    lines.collect()
}

/// The writes in such lines, and how many flushes, for blocks of 512 bytes.
pub(super) fn parse(lines: &str) -> (Vec<IssuedWrite>, u64) {
    let commands = lines.lines().filter_map(|line| {
        let words: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
        let [opcode, slba, blocks, fua] = words[..] else { return None };
        Some(TracedCommand { opcode, slba, blocks, fua: fua == 1 })
    });
    let commands: Vec<TracedCommand> = commands.collect();
    let writes = commands.iter().filter(|command| [WRITE, WRITE_ZEROES].contains(&command.opcode));
    let writes = writes.map(|command| IssuedWrite { sector: command.slba, sectors: command.blocks, fua: command.fua });
    let flushes = commands.iter().filter(|command| command.opcode == 0).count();
    (writes.collect(), flushes as u64)
}

impl<S: tracing::Subscriber> Layer<S> for CommandTrace {
    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target() == "nvme" || *metadata.level() <= tracing::Level::WARN
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != "nvme" {
            return say(event);
        }
        let mut command = TracedCommand::default();
        event.record(&mut command);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(command);
    }
}

/// What the driver warns of: to the console.
#[expect(clippy::print_stdout, reason = "the console is the way to the host")]
fn say(event: &tracing::Event<'_>) {
    struct Words(String);
    impl tracing::field::Visit for Words {
        fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
            let _ = write!(self.0, " {field}={value:?}");
        }
    }
    let mut words = Words(String::new());
    event.record(&mut words);
    println!("lab: {}:{}", event.metadata().level(), words.0);
}

impl tracing::field::Visit for TracedCommand {
    fn record_u64(&mut self, field: &tracing::field::Field, value: u64) {
        match field.name() {
            "opcode" => self.opcode = value,
            "slba" => self.slba = value,
            "blocks" => self.blocks = value,
            _ => {}
        }
    }

    fn record_bool(&mut self, field: &tracing::field::Field, value: bool) {
        self.fua |= field.name() == "fua" && value;
    }

    fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn fmt::Debug) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_collected_from_events_and_read_from_lines() {
        let trace = CommandTrace::default();
        tracing::subscriber::with_default(Registry::default().with(trace.clone()), || {
            tracing::trace!(target: "nvme", device = "x", opcode = 1_u32, slba = 8_u64, blocks = 16_u32, fua = true, "command");
            tracing::trace!(target: "nvme", opcode = 0_u32, slba = 0_u64, blocks = 0_u32, fua = false, "command");
            tracing::trace!(target: "other", opcode = 1_u32, "no command");
            tracing::trace!(target: "nvme", opcode = 2_u32, slba = 1_u64, blocks = 1_u32, fua = false, "command");
        });
        let text = trace.to_text();
        assert_eq!(text, "1 8 16 1\n0 0 0 0\n2 1 1 0\n");
        assert_eq!(parse(&text), (vec![IssuedWrite { sector: 8, sectors: 16, fua: true }], 1));
        assert_eq!(parse("1 8\nx\n\n"), (vec![], 0));
    }
}
