//! A cache of several that was away while its clients wrote elsewhere: what it says of their keys
//! when it is back, behind a real proxy.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use stratakv_integration::place;
use stratakv_integration::program::{Serve, Served, admin, free_address};
use stratakv_integration::twemproxy::{RETRY, Twemproxy};

const KEYS: usize = 300;
const SERVERS: usize = 3;

fn key(number: usize) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

fn serve(data: &Path, address: SocketAddr, rejoin: &str) -> Served {
    let address = address.to_string();
    let options = ["--engine", "tier", "--shards", "1", "--memory", "16M", "--capacity", "64M"];
    Serve::on(data).options(&options).options(&["--memcache", &address, "--rejoin", rejoin]).start()
}

/// Sets every key through the proxy, again while a server that is away has not been left out.
fn set_all(proxy: &Twemproxy, value: &[u8]) {
    let begun = Instant::now();
    for number in 0..KEYS {
        let mut said = String::new();
        while said != "STORED" {
            assert!(begun.elapsed() < Duration::from_secs(30), "key {number}: {said}");
            let mut client = stratakv_integration::memcache::Client::connect(proxy.address).expect("connected");
            said = client.set(&key(number), value).unwrap_or_else(|error| error.to_string());
        }
    }
}

/// How many gets through the proxy answer `old`, once every server takes gets again.
fn stale(proxy: &Twemproxy, back: &Served) -> usize {
    let gets = || back.client().statistic("cmd_get").expect("statistics").unwrap_or_default();
    let (before, begun) = (gets(), Instant::now());
    while gets() == before {
        assert!(begun.elapsed() < Duration::from_secs(30), "the proxy does not try it again");
        read_all(proxy);
        std::thread::sleep(RETRY / 10);
    }
    read_all(proxy)
}

fn read_all(proxy: &Twemproxy) -> usize {
    let mut client = stratakv_integration::memcache::Client::connect(proxy.address).expect("connected");
    let is_old = |number: &usize| client.get(&key(*number)).ok().flatten().is_some_and(|value| value == b"old");
    (0..KEYS).filter(is_old).count()
}

/// How a server goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Going {
    InOrder,
    Killed,
}

/// Stale answers after one server was away and all keys were written meanwhile; `None` without a
/// proxy.
fn stale_after(rejoin: &str, going: Going) -> Option<usize> {
    let folder = place::directory();
    let addresses: Vec<SocketAddr> = (0..SERVERS).map(|_| free_address().expect("a port")).collect();
    let data = |number: usize| folder.path().join(number.to_string());
    let mut servers: Vec<Served> =
        addresses.iter().enumerate().map(|(number, address)| serve(&data(number), *address, rejoin)).collect();
    let proxy = Twemproxy::start(folder.path(), &addresses).expect("it starts")?;
    set_all(&proxy, b"old");
    let mut away = servers.remove(0);
    let epoch = away.client().statistic("rejoin_epoch").expect("statistics").expect("a cache has one");
    match going {
        Going::InOrder => assert!(away.stop().success()),
        Going::Killed => away.kill(),
    }
    set_all(&proxy, b"new");
    let back = serve(&data(0), addresses[0], rejoin);
    let now = back.client().statistic("rejoin_epoch").expect("statistics").expect("a cache has one");
    assert!(now > epoch, "who asks sees that it was away: {epoch} before, {now} now");
    Some(stale(&proxy, &back))
}

#[test]
fn a_cold_cache_answers_nothing_stale() {
    for going in [Going::InOrder, Going::Killed] {
        assert!(stale_after("cold", going).is_none_or(|stale| stale == 0), "{going:?}");
    }
}

#[test]
fn a_cache_that_was_away_for_longer_than_its_window_answers_nothing_stale() {
    for going in [Going::InOrder, Going::Killed] {
        assert!(stale_after("warm-within=1ms", going).is_none_or(|stale| stale == 0), "{going:?}");
    }
}

/// What the others prevent: so these tests can fail.
#[test]
fn a_warm_cache_answers_what_it_had() {
    for rejoin in ["warm", "warm-within=3600s"] {
        if let Some(stale) = stale_after(rejoin, Going::InOrder) {
            assert!(stale > KEYS / 10, "{rejoin}: {stale} of {KEYS}");
        }
    }
}

#[test]
fn a_short_restart_within_the_window_stays_warm() {
    let folder = place::directory();
    let (data, address) = (folder.path().join("data"), free_address().expect("a port"));
    let mut served = serve(&data, address, "warm-within=3600s");
    assert_eq!(served.client().statistic("rejoin_was_emptied").expect("statistics"), Some(0));
    assert_eq!(served.client().set(b"k", b"kept").expect("an answer"), "STORED");
    assert!(served.stop().success());
    served = serve(&data, address, "warm-within=3600s");
    assert_eq!(served.client().get(b"k").expect("an answer").as_deref(), Some(&b"kept"[..]));
    let absent = served.client().statistic("rejoin_absent_ms").expect("statistics").expect("known");
    assert!((1..3_600_000).contains(&absent), "{absent} ms");
    assert!(served.stop().success());
    // Nobody knows when it last served: that is no reason to trust it.
    std::fs::write(data.join("presence"), "torn").expect("written");
    served = serve(&data, address, "warm-within=3600s");
    assert_eq!(served.client().get(b"k").expect("an answer"), None);
    assert_eq!(served.client().statistic("rejoin_was_emptied").expect("statistics"), Some(1));
    assert!(served.said().contains("nobody knows how long"), "{}", served.said());
}

/// A cache is ready once it is decided what it has: while it opens, `/readyz` says so.
#[test]
fn it_is_ready_when_it_is_decided() {
    let folder = place::directory();
    let (data, at) = (folder.path().join("data"), free_address().expect("a port"));
    let options = ["--engine", "tier", "--shards", "1", "--memory", "16M", "--capacity", "64M", "--rejoin", "cold"];
    let served = Serve::on(&data).options(&options).options(&["--admin", &at.to_string()]).start();
    assert!(admin(at, "/readyz").expect("answered").starts_with("ready"));
    let figures = admin(at, "/stats.json").expect("answered");
    assert!(figures.contains("rejoin_epoch"), "{figures}");
    assert!(served.stop().success());
}

#[test]
fn other_engines_have_no_rejoin() {
    let folder = place::directory();
    let mut served = Serve::on(&folder.path().join("data")).options(&["--rejoin", "cold"]).spawn().expect("started");
    assert_eq!(served.wait(Duration::from_secs(20)).code(), Some(2));
    assert!(served.said().contains("--rejoin is of the engine `tier`"), "{}", served.said());
}
