//! What is told to whom, and what a watcher that does not listen costs.

use stratakv_base::random::Random;

use super::*;
use crate::bench::{Bench, WALL};

fn lines(watching: &Watching) -> String {
    String::from_utf8(watching.take()).unwrap()
}

/// What a watcher of these kinds is told while somebody says this, without the instants.
fn told(kinds: Watched, sent: &str) -> String {
    let bench = Bench::new(sent.as_bytes());
    let watching = bench.watches.begin(kinds, 0, 0).unwrap();
    let _bench = bench.run(&mut Random::new(1), 100_000);
    let stamp = format!("ts={}.{:03}000 gid=", WALL.0 / 1000, WALL.0 % 1000);
    let plain =
        |line: &str| line.strip_prefix(&stamp).and_then(|rest| rest.split_once(' ')).unwrap().1.to_owned() + "\n";
    lines(&watching).lines().map(plain).collect()
}

/// As memcached 1.6.18 words them, which tells the reads within writes besides.
#[test]
fn reads_are_told_in_memcacheds_words() {
    let sent = "set a 0 0 3\r\nabc\r\nget a b\r\ngat 100 a x\r\nmg a v\r\nmg b\r\nmg AAo= b\r\nme a\r\ntouch a 0\r\ntouch b 0\r\ngets a\r\n";
    let expected = "type=item_get key=a status=found clsid=1 cfd=7 size=3\n\
        type=item_get key=b status=not_found clsid=0 cfd=7 size=0\n\
        type=item_get key=a status=found clsid=1 cfd=7 size=3\n\
        type=item_get key=x status=not_found clsid=0 cfd=7 size=0\n\
        type=item_get key=a status=found clsid=1 cfd=7 size=3\n\
        type=item_get key=b status=not_found clsid=0 cfd=7 size=0\n\
        type=item_get key=%00%0A status=not_found clsid=0 cfd=7 size=0\n\
        type=item_get key=a status=found clsid=1 cfd=7 size=3\n\
        type=item_get key=a status=found clsid=1 cfd=7 size=3\n\
        type=item_get key=b status=not_found clsid=0 cfd=7 size=0\n\
        type=item_get key=a status=found clsid=1 cfd=7 size=3\n";
    assert_eq!(told(Watched::FETCHERS, sent), expected);
}

#[test]
fn stores_are_told_in_memcacheds_words_and_refused_ones_too() {
    let sent = "set a 0 0 1\r\n1\r\nadd a 0 0 1\r\n1\r\nadd b 0 10 3\r\n123\r\nreplace x 0 0 1 noreply\r\n5\r\nappend a 0 0 1\r\n6\r\n\
        cas a 0 0 1 1\r\n6\r\ncas x 0 0 1 1\r\n6\r\nms m 2\r\nhi\r\nms m 2 ME\r\nhi\r\nms m 2 C1 q\r\nhi\r\nms AAo= 1 b\r\nx\r\n\
        set %a=b/c 0 0 1\r\nx\r\nset gone 0 -1 1\r\n1\r\nms t 2 T90\r\nhi\r\nset big 0 0 2000000\r\n";
    let expected = "key=a status=stored cmd=set ttl=0 clsid=1 cfd=7 size=1\n\
        key=a status=not_stored cmd=add ttl=0 clsid=1 cfd=7 size=1\n\
        key=b status=stored cmd=add ttl=10 clsid=1 cfd=7 size=3\n\
        key=x status=not_stored cmd=replace ttl=0 clsid=1 cfd=7 size=1\n\
        key=a status=stored cmd=append ttl=0 clsid=1 cfd=7 size=1\n\
        key=a status=exists cmd=cas ttl=0 clsid=1 cfd=7 size=1\n\
        key=x status=not_found cmd=cas ttl=0 clsid=1 cfd=7 size=1\n\
        key=m status=stored cmd=set ttl=0 clsid=1 cfd=7 size=2\n\
        key=m status=not_stored cmd=add ttl=0 clsid=1 cfd=7 size=2\n\
        key=m status=exists cmd=cas ttl=0 clsid=1 cfd=7 size=2\n\
        key=%00%0A status=stored cmd=set ttl=0 clsid=1 cfd=7 size=1\n\
        key=%25a%3Db%2Fc status=stored cmd=set ttl=0 clsid=1 cfd=7 size=1\n\
        key=gone status=stored cmd=set ttl=-1 clsid=1 cfd=7 size=1\n\
        key=t status=stored cmd=set ttl=90 clsid=1 cfd=7 size=2\n\
        key=big status=too_large cmd=set ttl=0 clsid=1 cfd=7 size=2000000\n";
    let told = told(Watched::MUTATIONS, sent);
    // A refusal of the parser is told at once, commands before it when they are answered.
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(|line| line.replace("type=item_store ", "")).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&told), sorted(expected), "{told}");
}

#[test]
fn only_what_somebody_wants_is_told() {
    let sent = "set a 0 0 1\r\n1\r\nget a\r\n";
    for kinds in [Watched::EVICTIONS, Watched::SYSTEM_EVENTS, Watched::RAW_COMMANDS, Watched::CONNECTION_EVENTS] {
        assert_eq!(told(kinds, sent), "");
    }
    assert_eq!(told(Watched::FETCHERS.and(Watched::MUTATIONS), sent).lines().count(), 2);
    let watches = Arc::new(Watches::default());
    assert!(!watches.wants(Watched::FETCHERS) && !watches.is_watched());
    let watching = watches.begin(Watched::FETCHERS, 0, 0).unwrap();
    assert!(watches.wants(Watched::FETCHERS) && !watches.wants(Watched::MUTATIONS));
    drop(watching);
    assert!(!watches.is_watched());
    assert_eq!(watches.counts(), WatchCounts { watchers: 0, written: 0, skipped: 0, sent: 0 });
}

#[test]
fn a_watcher_that_does_not_listen_loses_lines_and_is_told_how_many() {
    let watches = Arc::new(Watches::default());
    let slow = watches.begin(Watched::FETCHERS, 0, 0).unwrap();
    let quick = watches.begin(Watched::FETCHERS, 0, 1).unwrap();
    let mut heard = 0;
    for _ in 0..10_000 {
        watches.tell(Watched::FETCHERS, WALL, b"item_get key=a status=found clsid=1 cfd=7 size=3");
        heard += lines(&quick).lines().count();
    }
    assert_eq!(heard, 10_000);
    let first = lines(&slow);
    assert!(first.len() <= WAITING_BYTES_MAX + 64, "{} bytes", first.len());
    let (whole, last) = first.trim_end().rsplit_once('\n').unwrap();
    let kept = whole.lines().count();
    assert_eq!(last, format!("skipped={}", 10_000 - kept));
    assert_eq!(watches.counts().skipped, 10_000 - kept as u64);
    // What comes then is told again, without another word of it.
    watches.tell(Watched::FETCHERS, WALL, b"item_get key=b");
    assert!(lines(&slow).ends_with(" gid=10001 type=item_get key=b\n"));
    assert_eq!(lines(&slow), "");
}

#[test]
fn each_watcher_is_named_once_to_its_thread_and_each_thread_once_to_others() {
    let watches = Arc::new(Watches::default());
    let _here = watches.begin(Watched::FETCHERS, 0, 5).unwrap();
    let _there = [watches.begin(Watched::FETCHERS, 1, 6).unwrap(), watches.begin(Watched::FETCHERS, 1, 7).unwrap()];
    watches.tell(Watched::FETCHERS, WALL, b"x");
    assert_eq!(watches.due(0), Due { here: vec![5], elsewhere: vec![1] });
    watches.tell(Watched::MUTATIONS, WALL, b"nobody wants it");
    assert_eq!(watches.due(0), Due::default());
    assert_eq!(watches.due(1), Due { here: vec![6, 7], elsewhere: vec![] });
    watches.tell(Watched::FETCHERS, WALL, b"x");
    assert_eq!(watches.due(0), Due { here: vec![5], elsewhere: vec![1] });
}

#[test]
fn as_many_may_watch_as_with_memcached() {
    let watches = Arc::new(Watches::default());
    let mut all: Vec<_> = (0..WATCHERS_MAX).map(|_| watches.begin(Watched::FETCHERS, 0, 0).unwrap()).collect();
    assert!(watches.begin(Watched::FETCHERS, 0, 0).is_none());
    all.pop();
    assert!(watches.begin(Watched::FETCHERS, 0, 0).is_some());
}
