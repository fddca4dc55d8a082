//! I/O errors by QEMU's `blkdebug`, in the guest: reads, writes and flushes fail for a while, with
//! clear errors and no loss.
//!
//! The guest throws the switch: each write of zeroes to the device's end moves `blkdebug` on by one
//! state ([`rules`]).

use std::collections::BTreeMap;
use std::fs::File;

use rustix::fs::{FallocateFlags, fallocate};
use stratakv::Store;

use super::guest::{Task, device, open, text};
use super::workload::{self, FILE_SYSTEM_BYTES, Known, LANES};
use crate::value;

/// `blkdebug` options: reads fail, then nothing, then writes, nothing, flushes, nothing. An error
/// once set stays until another is, so "nothing" is an error of discards, which nobody sends.
pub fn rules() -> String {
    let kinds = ["read", "discard", "write", "discard", "flush", "discard"];
    let rule = |(index, kind): (usize, &&str)| {
        let state = index + 1;
        format!(
            ",inject-error.{index}.event=pwritev_zero,inject-error.{index}.iotype={kind},inject-error.{index}.state={state},\
             inject-error.{index}.errno=5,inject-error.{index}.once=off,\
             set-state.{index}.event=pwritev_zero,set-state.{index}.state={state},set-state.{index}.new_state={}",
            state + 1
        )
    };
    kinds.iter().enumerate().map(rule).collect()
}

/// The scenario, on the store that the workload of the same seed left.
///
/// # Errors
/// Something acknowledged is gone, an error did not show or was taken for success.
pub(super) fn run(task: Task) -> Result<String, String> {
    // Behind the last witness sector.
    let at = FILE_SYSTEM_BYTES + (512 << 10);
    run_with((task.seed, task.steps), &|| open(task), &Switch { device: device()?, at })
}

/// As [`run`], of a store that `open` opens, on the seed and the steps of the workload.
///
/// # Errors
/// As [`run`].
pub(super) fn run_with(
    (seed, steps): (u64, u32),
    open: &dyn Fn() -> Result<Store, String>,
    switch: &Switch,
) -> Result<String, String> {
    let known = workload::known(seed, &[steps; LANES as usize], steps);
    let mut ledger = Ledger { known, sequence: 1 << 20, said: Vec::new() };
    let store = open()?;
    if ledger.compare(&store)? > 0 {
        return Err("reads fail before any error was asked for".into());
    }
    drop(store);
    // Opened again with nothing cached.
    let store = open()?;
    switch.next_state()?;
    let failed_reads = ledger.compare(&store)?;
    switch.next_state()?;
    if ledger.compare(&store)? > 0 {
        return Err("reads still fail although the device is well again".into());
    }
    switch.next_state()?;
    let failed_writes = ledger.put_several(&store, false)?;
    switch.next_state()?;
    if ledger.compare(&store)? > 0 {
        return Err("reads fail after writes did".into());
    }
    drop(store);
    let store = open().map_err(|error| format!("after errors of writes: {error}"))?;
    ledger.settle(&store)?;
    switch.next_state()?;
    let failed_flushes = ledger.put_several(&store, true)?;
    switch.next_state()?;
    let refused = ledger.put_several(&store, true)?;
    if [failed_reads, failed_writes, failed_flushes, refused].contains(&0) {
        return Err(format!(
            "not every error showed: reads {failed_reads}, writes {failed_writes}, flushes {failed_flushes}, writes after them {refused}"
        ));
    }
    ledger.compare(&store)?;
    drop(store);
    let store = open().map_err(|error| format!("after errors of flushes: {error}"))?;
    ledger.settle(&store)?;
    if ledger.put_several(&store, true)? > 0 {
        return Err("writes are refused after the store was opened again".into());
    }
    ledger.settle(&store)?;
    store.close().map_err(|error| error.to_string())?;
    let mut said = ledger.said;
    said.sort();
    said.dedup();
    Ok(format!(
        "failed: {failed_reads} reads, {failed_writes} writes, {failed_flushes} at a flush, {refused} refused after it; {} keys compared; \
         it said: {}",
        ledger.known.len(),
        said.join(" | ")
    ))
}

/// What moves `blkdebug` to its next state.
pub(super) struct Switch {
    pub(super) device: File,
    /// Where nothing else is, on the device.
    pub(super) at: u64,
}

impl Switch {
    pub(super) fn next_state(&self) -> Result<(), String> {
        let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.device, flags, self.at, 4096).map_err(text("write zeroes"))
    }
}

/// What may be found, and what the library said.
struct Ledger {
    known: BTreeMap<u64, Known>,
    sequence: u64,
    said: Vec<String>,
}

impl Ledger {
    /// Reads every key. An error is counted; a wrong answer is not forgiven.
    fn compare(&mut self, store: &Store) -> Result<u64, String> {
        let mut failed = 0;
        for (key, known) in &self.known {
            match read(store, *key)? {
                Ok(found) if known.may_be(found) => {}
                Ok(found) => return Err(format!("{}: found {found:?}, known {known:?}", workload::name(*key))),
                Err(message) => {
                    failed += 1;
                    self.said.push(message);
                }
            }
        }
        Ok(failed)
    }

    /// After opening: every key can be read, and what is read holds from now on.
    fn settle(&mut self, store: &Store) -> Result<(), String> {
        if self.compare(store)? > 0 {
            return Err(format!("after opening: {}", self.said.last().map_or("", String::as_str)));
        }
        for (key, known) in &mut self.known {
            *known = Known { acknowledged: read(store, *key)??, in_flight: Vec::new() };
        }
        Ok(())
    }

    /// Writes a few keys; returns how many writes failed. `large` ones need a flush, a small one
    /// alone is written through.
    fn put_several(&mut self, store: &Store, large: bool) -> Result<u64, String> {
        let mut failed = 0;
        let step = self.known.len() / 8;
        for (key, known) in self.known.iter_mut().step_by(step.max(1)) {
            self.sequence += 1;
            let value = value::encode(*key, self.sequence, if large { 100_000 } else { 700 });
            match store.put(workload::name(*key).as_bytes(), &value) {
                Ok(_) => *known = Known { acknowledged: Some(self.sequence), in_flight: Vec::new() },
                Err(error) => {
                    failed += 1;
                    known.in_flight.push(Some(self.sequence));
                    self.said.push(error.to_string());
                }
            }
        }
        Ok(failed)
    }
}

/// The sequence found under a key; `Ok(Err)` if it cannot be read, `Err` if it is not what anybody
/// wrote.
fn read(store: &Store, key: u64) -> Result<Result<Option<u64>, String>, String> {
    match store.get(workload::name(key).as_bytes()) {
        Err(error) => Ok(Err(error.to_string())),
        Ok(None) => Ok(Ok(None)),
        Ok(Some(record)) => value::decode(key, &record.to_bytes()).map(|sequence| Ok(Some(sequence))),
    }
}
