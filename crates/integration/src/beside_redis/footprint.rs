//! What a small hash takes of memory and of the medium.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{Baseline, Plan};
use crate::pinned::files;
use crate::process;
use crate::resp::{RespConnection, RespReply};

/// Hashes that are written before one waits for replies.
const BATCH: u64 = 500;

/// What a hash of five fields takes, the server's own bytes left out.
#[derive(Clone, Copy, Debug)]
pub struct Footprint {
    /// Whose it is.
    pub baseline: Baseline,
    /// Resident memory, of files in it too.
    pub memory_bytes: f64,
    /// Blocks of its files.
    pub medium_bytes: f64,
}

/// Writes so many hashes of five fields on a fresh server.
///
/// # Errors
/// The server cannot be started, or refuses one.
pub fn footprint(plan: &Plan, baseline: Baseline, hashes: u64) -> Result<Footprint, String> {
    let place = plan.place.join("footprint");
    let outcome = fill(plan, baseline, hashes, &place);
    let _ = std::fs::remove_dir_all(&place);
    outcome
}

fn fill(plan: &Plan, baseline: Baseline, hashes: u64, place: &Path) -> Result<Footprint, String> {
    let running = baseline.start(place, plan.room())?;
    let cannot = |error: std::io::Error| format!("{}: {error}", baseline.name());
    let mut client = RespConnection::connect(running.address()).map_err(cannot)?;
    let before = (process::memory_bytes(running.id(), "VmRSS")?, medium_bytes(place));
    for first in (0..hashes).step_by(BATCH as usize) {
        let commands: Vec<String> = (first..(first + BATCH).min(hashes)).map(hash).collect();
        client.send(&commands).map_err(cannot)?;
        for _ in &commands {
            match client.reply().map_err(cannot)? {
                RespReply::Integer(5) => {}
                other => return Err(format!("{}: HSET was answered {other:?}", baseline.name())),
            }
        }
    }
    let after = (process::memory_bytes(running.id(), "VmRSS")?, medium_bytes(place));
    let each = |after: u64, before: u64| after.saturating_sub(before) as f64 / hashes as f64;
    Ok(Footprint { baseline, memory_bytes: each(after.0, before.0), medium_bytes: each(after.1, before.1) })
}

/// The command that writes one: some 70 bytes of fields and values.
fn hash(number: u64) -> String {
    format!(
        "HSET user:{number:08} name user-{number:08} mail u{number:08}@example.org age {} city {:04} seen {:010}",
        number % 90,
        number % 7919,
        1_700_000_000 + number
    )
}

/// Blocks of all files below a directory.
fn medium_bytes(place: &Path) -> u64 {
    let about = files(place).into_iter().filter_map(|path| path.metadata().ok());
    about.map(|about| about.blocks() * 512).sum()
}
