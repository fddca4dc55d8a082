//! A backup that a server makes: begun, then asked about until it has ended.

use std::io::{Read, Write};
use std::time::Duration;

use stratakv::BackupSummary;
use stratakv_protocol::memcache::is_backup_name;

use super::Client;
use crate::failure::Failure;
use crate::progress;
use crate::text::escaped;

/// Between two questions, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Has a server make the backup `name`, and waits until it has ended, with a bar of its progress if that takes long.
///
/// # Errors
/// The name is none, the server refuses, or the backup failed; then the server has removed what there was of it.
pub(crate) fn backup<S: Read + Write>(mut server: Client<S>, name: &str) -> Result<BackupSummary, Failure> {
    if !is_backup_name(name) {
        return Err(Failure::usage(format!(
            "`{}` is no name of a backup: with --server it is a name in the server's --backup-dir, of 1 to 100 letters, digits, `-`, `_` \
             and `.`, the first one a letter or a digit",
            name.escape_debug()
        )));
    }
    let records = find(&server.statistics("")?, "curr_items");
    server.begin_backup(name)?;
    let watch = progress::watch_records("backing up");
    let mut pause = PAUSE_MIN;
    loop {
        std::thread::sleep(pause);
        pause = (2 * pause).min(PAUSE_MAX);
        let told = server
            .statistics("backup")
            .map_err(|failure| failure.at(format!("the backup {name} goes on, or was called off")))?;
        let of = |what: &str| format!("backup:{name}:{what}");
        let written = BackupSummary { records: find(&told, &of("records")), bytes: find(&told, &of("bytes")) };
        match text(&told, &of("state")) {
            Some("running") => watch(written.records, records.max(written.records)),
            Some("done") => return Ok(written),
            Some("failed") => {
                let why = text(&told, &of("error")).unwrap_or("the server does not say why");
                return Err(Failure::failed(format!("the backup {name} failed: {}", escaped(why.as_bytes()))));
            }
            _ => {
                return Err(Failure::failed(format!(
                    "the server has forgotten the backup {name}: it is complete if there is a backup.toml in it"
                )));
            }
        }
    }
}

fn text<'a>(told: &'a [(String, String)], name: &str) -> Option<&'a str> {
    told.iter().find(|(told, _)| told == name).map(|(_, value)| value.as_str())
}

/// 0 if it was not told, or is no number.
fn find(told: &[(String, String)], name: &str) -> u64 {
    text(told, name).and_then(|value| value.parse().ok()).unwrap_or(0)
}
