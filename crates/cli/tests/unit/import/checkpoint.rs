use super::*;

fn file_of(bytes: u64, modified_s: i64, head: &str) -> SourceIdentity {
    SourceIdentity::File { bytes, modified_s, modified_ns: 0, head_xxh3: head.to_owned() }
}

fn redis(run_id: Option<&str>) -> SourceIdentity {
    SourceIdentity::Redis { run_id: run_id.map(str::to_owned) }
}

fn saved(source: SourceIdentity) -> Saved {
    let mut left_out = Tally::default();
    left_out.add(super::super::tally::Reason::Unsupported, "streams", b"s");
    Saved {
        version: VERSION,
        store: "a".into(),
        collection: 0,
        options: "csv".into(),
        source,
        position: Position { offset: 7, line: 2, ..Position::default() },
        written: Written { records: 3, bytes: 30, unmet: 0 },
        passed_over: 1,
        left_out,
    }
}

/// What comes of going on from `was` with this source and these options.
fn compared(was: SourceIdentity, is: SourceIdentity, options: &str) -> Result<Option<Position>, String> {
    let resume = |saved| Resume { file: "c".into(), every: 1, source: is, options: options.into(), saved };
    let mut resume = resume(Some(saved(was)));
    resume.compare().map_err(|failure| failure.message)?;
    Ok(resume.position().cloned())
}

#[test]
fn another_source_is_refused_with_what_is_different() {
    let was = || file_of(10, 5, "h");
    assert_eq!(compared(was(), was(), "csv"), Ok(Some(saved(was()).position)));
    let why = |is, options| compared(was(), is, options).unwrap_err();
    assert!(why(file_of(11, 5, "h"), "csv").contains("it had 10 bytes, and has 11"));
    assert!(why(file_of(10, 6, "h"), "csv").contains("written to since"));
    assert!(why(file_of(10, 5, "i"), "csv").contains("begins with other bytes"));
    assert!(why(SourceIdentity::Stream, "csv").contains("another kind"));
    let options = why(was(), "csv, --rows Hash");
    assert!(options.contains("csv, --rows Hash") && options.contains("remove c to begin again"), "{options}");
}

/// A cursor of another process may pass over keys.
#[test]
fn a_server_that_was_started_again_is_read_from_its_begin() {
    let position = |was, is| compared(redis(was), redis(is), "csv");
    assert_eq!(position(Some("a"), Some("a")), Ok(Some(saved(redis(None)).position)));
    for (was, is) in [(Some("a"), Some("b")), (Some("a"), None), (None, None), (None, Some("a"))] {
        assert_eq!(position(was, is), Ok(None), "{was:?} {is:?}");
    }
}

#[test]
fn a_checkpoint_comes_back_as_it_was_and_others_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("checkpoint");
    assert!(read(&file).unwrap().is_none());
    for source in [file_of(1, 2, "h"), SourceIdentity::Stream, redis(Some("x"))] {
        let saved = saved(source);
        replace(&file, &serde_json::to_vec_pretty(&saved).unwrap()).unwrap();
        assert_eq!(read(&file).unwrap().unwrap(), saved);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }
    let newer = serde_json::to_vec(&Saved { version: 2, ..saved(SourceIdentity::Stream) }).unwrap();
    for (content, why) in [(&b"{}"[..], "no checkpoint"), (b"a,b\n", "no checkpoint"), (&newer, "its version is 2")] {
        std::fs::write(&file, content).unwrap();
        let failure = read(&file).unwrap_err();
        assert!(failure.exit == Exit::Usage && failure.message.contains(why), "{failure:?}");
    }
}
