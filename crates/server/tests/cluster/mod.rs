//! Static slots over several servers: what clients of a cluster are told, and what two real Redis
//! servers say.

use super::*;

use stratakv_server::{ClusterNode, ClusterSlots};

/// `bar` has slot 5061 and `hello` 866, which the server has; `foo` has 12182, which another one
/// has at `OTHER`.
const LINES: &[(&str, &str)] = &[
    ("GET foo", "-MOVED 12182 OTHER"),
    ("SET bar 1", "OK"),
    ("GET bar", "\"1\""),
    ("GET", "-ERR wrong number of arguments for \\'get\\' command"),
    ("MGET bar foo", CROSS_SLOT),
    ("MGET bar hello", CROSS_SLOT),
    ("MGET {bar}1 {bar}2 bar", "[nil, nil, \"1\"]"),
    ("MGET foo {foo}x a{foo}b", "-MOVED 12182 OTHER"),
    ("MSET bar 2 hello 3", CROSS_SLOT),
    ("DEL bar foo", CROSS_SLOT),
    ("EXISTS hello bar", CROSS_SLOT),
    ("OBJECT ENCODING foo", "-MOVED 12182 OTHER"),
    ("MEMORY USAGE foo", "-MOVED 12182 OTHER"),
    ("SORT bar STORE foo", CROSS_SLOT),
    ("SORT foo", "-MOVED 12182 OTHER"),
    ("BITOP AND {foo}d foo", "-MOVED 12182 OTHER"),
    ("RENAME bar foo", CROSS_SLOT),
    ("ZUNION 1 foo", "-MOVED 12182 OTHER"),
    ("ZUNIONSTORE bar 1 foo", CROSS_SLOT),
    ("LMPOP 1 foo LEFT", "-MOVED 12182 OTHER"),
    ("BLPOP foo 1", "-MOVED 12182 OTHER"),
    ("BLPOP bar foo 1", CROSS_SLOT),
    ("BZMPOP 1 1 foo MIN", "-MOVED 12182 OTHER"),
    ("WATCH foo", "-MOVED 12182 OTHER"),
    ("WATCH bar hello", CROSS_SLOT),
    ("WATCH bar", "OK"),
    ("UNWATCH", "OK"),
    // What is refused spoils a transaction.
    ("MULTI", "OK"),
    ("SET bar 2", "QUEUED"),
    ("SET foo 2", "-MOVED 12182 OTHER"),
    ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
    // Slots of the same server are two all the same.
    ("MULTI", "OK"),
    ("SET bar 2", "QUEUED"),
    ("SET hello 2", "QUEUED"),
    ("EXEC", CROSS_SLOT),
    ("EXEC", "-ERR EXEC without MULTI"),
    ("GET bar", "\"1\""),
    ("GET hello", "nil"),
    ("MULTI", "OK"),
    ("SET bar 3", "QUEUED"),
    ("APPEND {bar}1 x", "QUEUED"),
    ("EXEC", "[OK, (1)]"),
    // Messages have no slot but on channels of shards.
    ("PUBLISH foo x", "(0)"),
    ("SPUBLISH foo x", "-MOVED 12182 OTHER"),
    ("SPUBLISH bar x", "(0)"),
    ("SSUBSCRIBE foo", "-MOVED 12182 OTHER"),
    ("SSUBSCRIBE bar hello", CROSS_SLOT),
    ("PING", "PONG"),
    ("READONLY", "OK"),
    ("GET foo", "-MOVED 12182 OTHER"),
    ("READWRITE", "OK"),
    ("CLUSTER KEYSLOT {foo}x", "(12182)"),
];

const CROSS_SLOT: &str = "-CROSSSLOT Keys in request don\\'t hash to the same slot";
const OWN_SLOTS: &str = "0-8191";
const OTHER_SLOTS: &str = "8192-16383";

/// What a server with the first half of the slots says otherwise than written.
fn wrong_at(address: SocketAddr, other: &str) -> Vec<String> {
    let sent: Vec<u8> = LINES.iter().flat_map(|(line, _)| of_words(line)).collect();
    let replies = told(&converse(address, &sent));
    assert_eq!(replies.len(), LINES.len(), "{replies:?}");
    let expected = LINES.iter().map(|(line, expected)| (line, expected.replace("OTHER", other)));
    let differs = replies.iter().zip(expected).filter(|(told, (_, expected))| *told != expected);
    differs.map(|(told, (line, expected))| format!("{line}: {told}, not {expected}")).collect()
}

fn node(text: &str) -> ClusterNode {
    text.parse().expect("a server")
}

/// A server with one half of the slots.
fn bench(engine: Engine, own: &str) -> Bench {
    let nodes = vec![node(&format!("10.1.1.1:7001={OWN_SLOTS}")), node(&format!("b.example:7002={OTHER_SLOTS}"))];
    Bench::with(engine, |options| options.resp.cluster = Some(ClusterSlots::new(nodes, own).expect("all slots")))
}

#[test]
fn keys_of_other_servers_are_told_with_where_they_are() {
    for engine in [Engine::Slab, Engine::Hash, Engine::Matrix] {
        let wrong = wrong_at(bench(engine, "10.1.1.1:7001").address(), "b.example:7002");
        assert!(wrong.is_empty(), "{engine:?}:\n{}", wrong.join("\n"));
    }
    let cache = bench(Engine::Tier, "b.example:7002");
    let mut client = cache.connect();
    assert_eq!(client.ask("SET foo 1"), "OK");
    assert_eq!(client.ask("GET bar"), "-MOVED 5061 10.1.1.1:7001");
}

#[test]
fn all_servers_tell_of_the_same_cluster() {
    let (one, two) = (bench(Engine::Hash, "10.1.1.1:7001"), bench(Engine::Hash, "b.example:7002"));
    let (mut one, mut two) = (one.connect(), two.connect());
    for line in ["CLUSTER SLOTS", "CLUSTER SHARDS"] {
        assert_eq!(one.ask(line), two.ask(line), "{line}");
    }
    let ids = [one.ask("CLUSTER MYID"), two.ask("CLUSTER MYID")];
    let [id, other] = ids.each_ref().map(|id| id.trim_matches('"'));
    assert!(id.len() == 40 && other.len() == 40 && id != other, "{ids:?}");
    let expected = format!(
        "[[(0), (8191), [\"10.1.1.1\", (7001), \"{id}\", []]], [(8192), (16383), [\"b.example\", (7002), \"{other}\", []]]]"
    );
    assert_eq!(one.ask("CLUSTER SLOTS"), expected);
    let lines = |flags: [&str; 2]| {
        format!(
            "\"{id} 10.1.1.1:7001@17001 {} - 0 0 1 connected 0-8191\\n{other} b.example:7002@17002 {} - 0 0 2 connected 8192-16383\\n\"",
            flags[0], flags[1]
        )
    };
    assert_eq!(one.ask("CLUSTER NODES"), lines(["myself,master", "master"]));
    assert_eq!(two.ask("CLUSTER NODES"), lines(["master", "myself,master"]));
    assert!(one.ask("CLUSTER INFO").contains("cluster_known_nodes:2\\r\\ncluster_size:2\\r\\n"));
    let info = one.ask("INFO");
    assert!(info.contains("cluster_enabled:1") && info.contains("redis_mode:cluster"), "{info}");
    assert!(one.ask("HELLO").contains("\"mode\", \"cluster\""));
}

/// So an operator sees that two servers have other options.
#[test]
fn the_checksum_of_the_map_tells_other_maps_apart() {
    let checksum = |nodes: &[&str], own: &str| {
        let cluster = ClusterSlots::new(nodes.iter().map(|text| node(text)).collect(), own).expect("a map");
        let bench = Bench::with(Engine::Hash, |options| options.resp.cluster = Some(cluster));
        let info = bench.connect().ask("CLUSTER INFO");
        let (_, told) = info.split_once("cluster_map_checksum:").expect("a checksum");
        let digits: String = told.chars().take_while(char::is_ascii_hexdigit).collect();
        assert_eq!(digits.len(), 8, "{info}");
        digits
    };
    let map = checksum(&["a:1=0-99", "b:2=100-16383"], "a:1");
    assert_eq!(checksum(&["a:1=0-99", "b:2=100-16383"], "b:2"), map, "the same on both servers");
    assert_eq!(checksum(&["b:2=200-16383,100-199", "a:1=0-9,10-99"], "a:1"), map, "in another order");
    for other in [["a:1=0-100", "b:2=101-16383"], ["a:1=100-16383", "b:2=0-99"], ["a:1=0-99", "b:3=100-16383"]] {
        assert_ne!(checksum(&other, "a:1"), map, "{other:?}");
    }
}

/// Requests that name no key where one could stand are nobody else's.
#[test]
fn requests_without_keys_are_answered_by_every_server() {
    let bench = bench(Engine::Slab, "b.example:7002");
    let mut client = bench.connect();
    for (line, word) in [
        ("OBJECT HELP", "ENCODING"),
        ("MEMORY HELP", "USAGE"),
        ("ZUNION 5 foo", "ERR"),
        ("SUNSUBSCRIBE", "sunsubscribe"),
        ("KEYS *", "[]"),
        ("SKV.RANGE - +", "[\"\", []]"),
    ] {
        let told = client.ask(line);
        assert!(told.contains(word), "{line}: {told}");
    }
    // More keys than a transaction may name are looked at too.
    let many: String = (0..20_000).map(|number| format!(" {{bar}}{number}")).collect();
    assert_eq!(client.ask(&format!("DEL{many}")), "-MOVED 5061 10.1.1.1:7001");
}

#[test]
fn memcache_clients_see_no_slots() {
    let bench = bench(Engine::Slab, "10.1.1.1:7001");
    assert_eq!(bench.memcache("set foo 0 0 1\r\n1\r\nget foo\r\n"), "STORED\r\nVALUE foo 0 1\r\n1\r\nEND\r\n");
    let mut client = bench.connect();
    assert_eq!(client.ask("GET foo"), "-MOVED 12182 b.example:7002");
    assert_eq!(client.ask("KEYS *"), "[\"foo\"]", "what is there is listed");
}

#[test]
fn slots_without_redis_clients_are_refused() {
    let nodes = vec![node("a:1=0-16383")];
    let resp = RespListeners { cluster: ClusterSlots::new(nodes, "a:1").ok(), ..RespListeners::default() };
    let options = ServerOptions { memcache: vec![ANY_PORT], resp, ..ServerOptions::default() };
    let why = options.check().expect_err("nobody could use them").to_string();
    assert!(why.contains("--resp"), "{why}");
}

/// The lines say what a real cluster says: else we would be compatible with ourselves only.
#[test]
fn two_redis_servers_talk_like_that() {
    if !is_installed("redis-server") {
        return;
    }
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [one, two] = [(OWN_SLOTS, &folders[0]), (OTHER_SLOTS, &folders[1])].map(|(slots, folder)| {
        let folder = folder.path().to_str().expect("a path of letters");
        let redis = Redis::with(&["--cluster-enabled", "yes", "--dir", folder]);
        let [first, last] = [0, 1].map(|part| slots.split('-').nth(part).expect("two ends"));
        assert_eq!(Client::connect(redis.1).ask(&format!("CLUSTER ADDSLOTSRANGE {first} {last}")), "OK");
        redis
    });
    let mut client = Client::connect(one.1);
    assert_eq!(client.ask(&format!("CLUSTER MEET 127.0.0.1 {}", two.1.port())), "OK");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !client.ask("CLUSTER INFO").contains("cluster_state:ok") {
        assert!(Instant::now() < deadline, "the two do not find each other");
        std::thread::sleep(Duration::from_millis(50));
    }
    let wrong = wrong_at(one.1, &two.1.to_string());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
