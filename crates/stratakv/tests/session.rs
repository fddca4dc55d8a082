//! Sessions beside other ways in.

use std::ops::Bound;

use stratakv::raw::{Change, ChangeKind, Operation, Reply};
use stratakv::{CollectionId, Expect, Expiry, Key, Level, Next, Options, PutOptions, ScanOptions, WriteBatch};
use stratakv_runtime::block_on;

fn put(key: &[u8]) -> Operation {
    let kind = ChangeKind::Put { value: vec![7; 2000].into(), flags: 0, expiry: Expiry::NEVER };
    let change = Change { key: Key::new(CollectionId(0), key).unwrap(), expect: Expect::Any, kind };
    Operation::Write { changes: vec![change], level: Level::PowerLoss }
}

/// A blocking write joins the groups behind the session's and once waited for ever: only this
/// thread can reap the session's ring.
#[test]
fn a_rested_session_does_not_hold_up_its_own_thread() {
    let directory = tempfile::tempdir().unwrap();
    let store = Options::new().shards(1).open(directory.path().join("d")).unwrap();
    let mut session = store.session().unwrap();
    let tickets: Vec<u64> = (0..8u8).map(|number| session.submit(put(&[number]))).collect();
    session.poll(0).unwrap();
    session.rest().unwrap();
    store.put(b"other", b"value").unwrap();
    let mut answers = Vec::new();
    while session.in_flight() > 0 {
        answers.extend(session.poll(1).unwrap());
    }
    assert!(answers.iter().all(|(_, reply)| matches!(reply, Reply::Done { .. })), "{answers:?}");
    assert!(answers.len() <= tickets.len());
    assert_eq!(store.scan(ScanOptions::all()).count(), 9);
    drop(session);
    store.close().unwrap();
}

/// Volumes are made in parallel, so a crash in the middle leaves gaps; creating again once stopped
/// at the first.
#[test]
fn what_an_interrupted_creation_left_is_cleared_also_with_gaps() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("d");
    let store = Options::new().shards(3).open(&path).unwrap();
    store.close().unwrap();
    drop(store);
    let manifest = std::fs::read_to_string(path.join("store.toml")).unwrap();
    std::fs::write(path.join("store.toml"), manifest.replace("complete = true", "complete = false")).unwrap();
    std::fs::remove_file(path.join("shard-000.vol")).unwrap();
    let store = Options::new().shards(3).open(&path).unwrap();
    store.put(b"k", b"v").unwrap();
    store.close().unwrap();
}

/// Runtimes of several threads move futures between them.
#[test]
fn futures_move_between_threads() {
    fn sent<F: Future + Send>(future: F) -> F {
        future
    }
    let directory = tempfile::tempdir().unwrap();
    let store = Options::new().shards(2).open(directory.path().join("d")).unwrap();
    let range = Box::new((Bound::Unbounded, Bound::Unbounded));
    let all = Operation::DeleteRange { range, level: Level::PowerLoss };
    let operations = (0..4u8).map(|number| put(&[number])).chain([all]);
    let futures: Vec<_> = operations.map(|operation| sent(store.execute_async(operation))).collect();
    std::thread::scope(|scope| {
        for future in futures {
            scope.spawn(move || assert!(!matches!(block_on(future), Reply::Failed(_))));
        }
    });
    block_on(sent(async {
        store.write_async(WriteBatch::new()).await.unwrap();
        store.put_async(b"key", b"value").await.unwrap();
        store.put_with_async(b"key", b"value", &PutOptions::default()).await.unwrap();
        store
            .fetch_update_async(b"key", |_| Next::Put { value: b"other"[..].into(), flags: 0, expiry: Expiry::NEVER })
            .await
            .unwrap();
        assert_eq!(store.get_async(b"key").await.unwrap().unwrap().to_bytes(), &b"other"[..]);
        assert!(store.delete_async(b"key").await.unwrap());
        store.delete_prefix_async(&[1]).await.unwrap();
        store.delete_range_async::<&[u8]>(..).await.unwrap();
    }));
    assert_eq!(store.scan(ScanOptions::all()).count(), 0);
    store.close().unwrap();
}
