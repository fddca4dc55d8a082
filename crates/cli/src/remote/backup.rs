//! A backup that a server makes: begun, then asked about until it has ended.

use std::time::Duration;

use stratakv::BackupSummary;
use stratakv_protocol::memcache::is_backup_name;

use super::Client;
use crate::failure::Failure;
use crate::progress;
use crate::text::escaped;

/// What our server says of a name that a backup has.
const NAME_TAKEN: &str = "choose another name";
/// Between two questions, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Has a server make the backup `name`, and waits until it has ended, with a bar of its progress if
/// that takes long.
///
/// # Errors
/// The name is none, the server refuses, or the backup failed; then the server has removed what
/// there was of it.
pub(crate) fn backup(mut server: Client, name: &str) -> Result<BackupSummary, Failure> {
    if !is_backup_name(name) {
        return Err(Failure::usage(format!(
            "`{}` is no name of a backup: with --server it is a name in the server's --backup-dir, of 1 to 100 letters, digits, `-`, `_` \
             and `.`, the first one a letter or a digit",
            name.escape_debug()
        )));
    }
    let records = find(&server.statistics("")?, "curr_items");
    server.begin_backup(name)?;
    let watch = progress::bar_of_records("backing up");
    let mut pause = PAUSE_MIN;
    loop {
        let told = server.pause(pause).and_then(|()| server.statistics("backup"));
        let told = told.map_err(|failure| failure.at(format!("the backup {name} goes on, or was called off")))?;
        pause = (2 * pause).min(PAUSE_MAX);
        let of = |what: &str| format!("backup:{name}:{what}");
        let written = BackupSummary { records: find(&told, &of("records")), bytes: find(&told, &of("bytes")) };
        match text(&told, &of("state")) {
            Some("running") => watch(written.records, records.max(written.records)),
            Some("done") => return Ok(written),
            Some("failed") => {
                let why = text(&told, &of("error")).unwrap_or("the server does not say why");
                let message = format!("the backup {name} failed: {}", escaped(why.as_bytes()));
                // As of a directory that this program writes to itself.
                let is_taken = why.contains(NAME_TAKEN);
                return Err(if is_taken { Failure::usage(message) } else { Failure::failed(message) });
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::super::connection::{ServerAddress, TlsFiles};
    use super::*;

    /// What comes of a backup whose server gives these answers, then hangs up.
    fn from(answers: &'static [&'static str]) -> Result<BackupSummary, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            for answer in answers {
                stream.read_line(&mut String::new()).unwrap();
                stream.get_mut().write_all(answer.as_bytes()).unwrap();
            }
        });
        let address = ServerAddress::parse(&address);
        let made = Client::connect(&address, &TlsFiles::default(), "").and_then(|client| backup(client, "b"));
        server.join().unwrap();
        made
    }

    #[test]
    fn a_backup_is_waited_for() {
        const RUNNING: &str =
            "STAT backup:other:state done\r\nSTAT backup:b:state running\r\nSTAT backup:b:records 1\r\nEND\r\n";
        const DONE: &str = "STAT backup:b:state done\r\nSTAT backup:b:records 2\r\nSTAT backup:b:bytes 99\r\nEND\r\n";
        let made = from(&["STAT curr_items 2\r\nEND\r\n", "OK\r\n", RUNNING, RUNNING, DONE]);
        assert_eq!(made.unwrap(), BackupSummary { records: 2, bytes: 99 });
    }

    #[test]
    fn what_went_wrong_with_it_is_told() {
        const FAILED: &str = "STAT backup:b:state failed\r\nSTAT backup:b:error no space left\r\nEND\r\n";
        let cases: [(&'static [&'static str], &str); 5] = [
            (&["END\r\n", "OK\r\n", FAILED], "the backup b failed: no space left"),
            (&["END\r\n", "OK\r\n", "END\r\n"], "forgotten"),
            (&["END\r\n", "OK\r\n"], "goes on, or was called off"),
            (&["END\r\n", "OK\r\nSTAT backup:b:state done\r\nEND\r\n"], "not asked"),
            (&["END\r\n", "CLIENT_ERROR no\r\n"], "refused: no"),
        ];
        for (answers, why) in cases {
            let failure = from(answers).unwrap_err();
            assert!(failure.message.contains(why), "{answers:?}: {failure:?}");
        }
        let busy = from(&["END\r\n", "SERVER_ERROR busy: the backup a is under way\r\n"]).unwrap_err();
        assert!(busy.exit == crate::failure::Exit::Busy && busy.message.contains("the backup a"), "{busy:?}");
    }
}
