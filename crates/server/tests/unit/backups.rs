use std::sync::mpsc;

use super::*;

const HERE: Option<SocketAddr> = Some(SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1));

fn told(backups: &Backups) -> String {
    let mut out = Vec::new();
    backups.tell(&mut out);
    String::from_utf8(out).unwrap()
}

/// What is told once the newest backup has ended.
fn outcome(backups: &Backups) -> String {
    while told(backups).contains(":state running\r\n") {
        std::thread::yield_now();
    }
    told(backups)
}

fn summary(records: u64) -> BackupSummary {
    BackupSummary { records, bytes: 10 * records }
}

fn text(answer: &[u8]) -> String {
    String::from_utf8_lossy(answer).into_owned()
}

#[test]
fn one_at_a_time_and_told_of_while_it_runs() {
    let place = tempfile::tempdir().unwrap();
    let backups = Backups::new(Some(place.path().into()), None);
    assert_eq!(told(&backups), "");
    let (go, wait) = mpsc::channel();
    let (at, reached) = mpsc::channel();
    let held = move |to: &Path, added: &BackupWatch<'_>| {
        assert!(to.is_dir() && added(&summary(3)) && added(&summary(4)));
        at.send(()).unwrap();
        wait.recv().unwrap();
        Ok(summary(8))
    };
    assert_eq!(text(&backups.begin("monday", HERE, held)), "OK\r\n");
    reached.recv().unwrap();
    let running = told(&backups);
    assert!(running.contains("STAT backup:monday:state running\r\nSTAT backup:monday:records 7\r\n"), "{running}");
    let second = text(&backups.begin("tuesday", HERE, |_, _| Ok(summary(1))));
    assert!(second.starts_with("SERVER_ERROR busy: the backup monday"), "{second}");
    assert!(!place.path().join("tuesday").exists());
    go.send(()).unwrap();
    let done = outcome(&backups);
    assert!(
        done.contains("monday:state done\r\nSTAT backup:monday:records 8\r\nSTAT backup:monday:bytes 80\r\n"),
        "{done}"
    );
    assert_eq!(text(&backups.begin("tuesday", HERE, |_, _| Ok(summary(1)))), "OK\r\n");
    let both = outcome(&backups);
    assert!(both.contains("monday:state done") && both.contains("tuesday:state done"), "{both}");
}

#[test]
fn what_failed_is_removed_and_what_was_there_is_not() {
    let place = tempfile::tempdir().unwrap();
    let backups = Backups::new(Some(place.path().into()), None);
    let failing = |to: &Path, _: &BackupWatch<'_>| {
        fs::write(to.join("shard-000.backup"), b"half").unwrap();
        Err("the disk\nis full".to_owned())
    };
    backups.begin("monday", HERE, failing);
    let failed = outcome(&backups);
    assert!(
        failed.contains("monday:state failed\r\n") && failed.contains(r"monday:error the disk\nis full"),
        "{failed}"
    );
    assert!(!place.path().join("monday").exists());
    backups.begin("monday", HERE, |_, _| panic!("a defect"));
    assert!(outcome(&backups).contains("monday:error a defect ended it\r\n"), "{}", told(&backups));
    backups.begin("monday", HERE, |_, _| Ok(summary(1)));
    let done = outcome(&backups);
    assert!(
        done.contains("monday:state done") && !done.contains("failed"),
        "the one before is told of no more: {done}"
    );

    fs::write(place.path().join("monday").join("kept"), b"").unwrap();
    backups.begin("monday", HERE, |_, _| unreachable!("it is there"));
    let again = outcome(&backups);
    assert!(again.contains("monday:error cannot make") && again.contains("another name"), "{again}");
    assert!(place.path().join("monday").join("kept").exists());
    std::os::unix::fs::symlink(tempfile::tempdir().unwrap().path(), place.path().join("link")).unwrap();
    backups.begin("link", HERE, |_, _| unreachable!("a link leads elsewhere"));
    assert!(outcome(&backups).contains("link:state failed"), "{}", told(&backups));
}

#[test]
fn a_server_that_ends_calls_it_off() {
    let place = tempfile::tempdir().unwrap();
    let backups = Backups::new(Some(place.path().into()), None);
    let endless = |_: &Path, added: &BackupWatch<'_>| {
        // Far longer than it takes to be told.
        for _ in 0..20_000_000 {
            if !added(&summary(0)) {
                return Err("called off".to_owned());
            }
            std::thread::yield_now();
        }
        Ok(summary(0))
    };
    backups.begin("monday", HERE, endless);
    backups.stop();
    assert!(told(&backups).contains("monday:error called off"), "{}", told(&backups));
    assert!(!place.path().join("monday").exists());
}

#[test]
fn nobody_from_elsewhere_begins_one() {
    let place = tempfile::tempdir().unwrap();
    let backups = Backups::new(Some(place.path().into()), None);
    let begin = |peer| text(&backups.begin("monday", peer, |_, _| Ok(summary(1))));
    for peer in ["10.0.0.1:5", "[2001:db8::1]:5", "[::ffff:10.0.0.1]:5"] {
        let refused = begin(Some(peer.parse().unwrap()));
        assert!(refused.starts_with("CLIENT_ERROR") && refused.contains("own machine"), "{peer}: {refused}");
    }
    assert!(begin(None).starts_with("CLIENT_ERROR"));
    assert_eq!((told(&backups).as_str(), place.path().read_dir().unwrap().count()), ("", 0));
    for peer in ["127.0.0.1:5", "127.3.4.5:6", "[::1]:5", "[::ffff:127.0.0.1]:5"] {
        assert_eq!(begin(Some(peer.parse().unwrap())), "OK\r\n", "{peer}");
        outcome(&backups);
    }
    let none = text(&Backups::new(None, None).begin("monday", HERE, |_, _| Ok(summary(1))));
    assert!(none.starts_with("CLIENT_ERROR") && none.contains("--backup-dir"), "{none}");
}

#[test]
fn the_last_ones_are_remembered() {
    let place = tempfile::tempdir().unwrap();
    let backups = Backups::new(Some(place.path().into()), None);
    for number in 0..40 {
        backups.begin(&format!("b{number}"), HERE, |_, _| Ok(summary(1)));
        outcome(&backups);
    }
    let told = told(&backups);
    assert_eq!(told.matches(":state done").count(), REMEMBERED + 1);
    assert!(told.contains("backup:b39:") && told.contains("backup:b23:") && !told.contains("backup:b22:"), "{told}");
}

#[test]
fn a_backup_keeps_to_its_rate_and_can_be_called_off_meanwhile() {
    let place = tempfile::tempdir().expect("a directory");
    let backups = Backups::new(Some(place.path().into()), NonZeroU64::new(1000));
    let begun = Instant::now();
    let said = backups.begin("slow", HERE, |_, added| {
        let pieces = [200, 100].map(|bytes| added(&BackupSummary { records: 1, bytes }));
        assert_eq!(pieces, [true, true], "it goes on");
        // A quarter of an hour's worth.
        match added(&BackupSummary { records: 1, bytes: 900_000 }) {
            true => Ok(summary(3)),
            false => Err("called off".into()),
        }
    });
    assert_eq!(text(&said), "OK\r\n");
    while lock(&backups.jobs).back().is_none_or(|job| job.written.bytes < 900_000) {
        assert!(begun.elapsed() < Duration::from_secs(60), "it stands still");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(begun.elapsed() >= Duration::from_millis(300), "300 bytes of 1000 a second: {:?}", begun.elapsed());
    assert!(backups.is_running());
    backups.stop();
    assert!(!backups.is_running() && backups.has_failed());
    assert!(begun.elapsed() < Duration::from_secs(60));
}
