use stratakv_sim::disk::Chances;
use stratakv_sim::net::ClientRead;

use super::*;

/// Of every engine, on disks that fail, beside clients that speak no protocol.
#[test]
fn servers_keep_their_promises() {
    let halves = [0, 160].map(|from| std::thread::spawn(move || keeps_promises(from..from + 160)));
    let mut sum = Statistics::default();
    halves.into_iter().for_each(|half| sum.add(&half.join().expect("a promise was not kept")));
    assert!(sum.power_cuts > 200 && sum.kills > 80 && sum.closes > 80 && sum.cut_recoveries > 200, "{sum:?}");
    assert!(sum.answered > 20_000 && sum.failed_openings > 5, "{sum:?}");
    let served = &sum.served;
    assert!(served.connections > 3000 && served.adversary > 800 && served.left_inside > 500, "{served:?}");
    assert!(served.failed > 100 && served.accepts_failed > 100, "{served:?}");
    assert!(served.degraded > 2 && served.degraded_hits > 20, "a cache goes on without its volume: {served:?}");
}

fn keeps_promises(seeds: std::ops::Range<u64>) -> Statistics {
    let mut sum = Statistics::default();
    for seed in seeds {
        match run(seed) {
            Ok(statistics) => sum.add(&statistics),
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    sum
}

#[test]
fn a_seed_always_gives_the_same_run() {
    for seed in 0..8 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
    assert_ne!(run(0).map(|run| run.digest), run(4).map(|run| run.digest));
}

/// Redis clients beside others: structures, commands of several keys and transactions.
#[test]
fn redis_clients_are_judged_beside_a_model() {
    let mut sum = Statistics::default();
    for seed in 0..60 {
        match run_redis(seed) {
            Ok(statistics) => sum.add(&statistics),
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    assert!(sum.power_cuts > 30 && sum.kills > 15 && sum.answered > 5000, "{sum:?}");
    assert_eq!(run_redis(5), run_redis(5));
}

/// The oracle is seen to fail.
#[test]
fn a_disk_that_loses_writes_is_noticed() {
    let lossy = |circumstances: &mut Circumstances| circumstances.setup.chances.lost = 3000;
    let with_redis = |circumstances: &mut Circumstances| {
        circumstances.with_redis_clients();
        (circumstances.crowd.memcache, circumstances.setup.chances.lost) = (0, 3000);
    };
    for on in [On::InPlace, On::Packed] {
        assert!((0..80).any(|seed| run_with(on, Medium::Kernel, seed, lossy).is_err()), "{on:?}");
        assert!((0..80).any(|seed| run_with(on, Medium::Kernel, seed, with_redis).is_err()), "{on:?}");
    }
}

fn memcache(host: &mut Host) -> DrivenListeners {
    let listener = host.world.with_net(|net, _| net.listener()).unwrap();
    DrivenListeners { memcache: vec![listener], ..DrivenListeners::default() }
}

/// Two workers; one connection held by the first. Both hear that the server stops, but only the
/// second one acts on it.
#[test]
fn a_connection_accepted_while_stopping_was_left_with_a_thread_that_had_ended() {
    let mut random = Random::new(1);
    let mut host = Host::new(Circumstances::draw(On::InPlace, &mut random).setup, 1);
    let process = host.open(None).unwrap().unwrap();
    let drivers = (0..2).map(|_| process.runtime.driver_over(host.ring().unwrap())).collect();
    let listeners = memcache(&mut host);
    let mut server = DrivenServer::new(process.store.clone(), &ServerOptions::default(), drivers, listeners).unwrap();
    let tick = |server: &mut DrivenServer, worker: usize| {
        for _ in 0..40 {
            server.tick(worker).unwrap();
            while host.world.step() {}
        }
    };
    host.world.with_net(|net, _| net.connect()).unwrap();
    tick(&mut server, 0);
    assert_eq!(server.connections(), 1);
    let late = host.world.with_net(|net, _| net.connect()).unwrap();
    host.world.with_net(|net, _| net.stopping = true);
    server.shutdown();
    tick(&mut server, 1);
    tick(&mut server, 0);
    assert!(server.is_over());
    assert!(host.world.with_net(|net, _| net.is_released(late)), "nobody would ever close it");
    assert_eq!(server.connections(), 0);
}

/// Answers that clients do not take held the blocks they were read into, up to 8 MiB: all that a
/// small shard had.
#[test]
fn clients_that_do_not_read_left_a_small_store_without_blocks() {
    let mut random = Random::new(7);
    let mut circumstances = Circumstances::draw(On::Tier, &mut random);
    circumstances.setup.chances = Chances::default();
    (circumstances.setup.shards, circumstances.setup.memory_bytes) = (1, 1 << 20);
    (circumstances.setup.capacity_bytes, circumstances.setup.segment_bytes) = (8 << 20, 16 << 10);
    let mut host = Host::new(circumstances.setup, 1);
    let process = host.open(None).unwrap().unwrap();
    let drivers = vec![process.runtime.driver_over(host.ring().unwrap())];
    let listeners = memcache(&mut host);
    let options = ServerOptions::default();
    let mut server = DrivenServer::new(process.store.clone(), &options, drivers, listeners).unwrap();
    host.world.with_net(|net, _| net.pipe_bytes = 1000);
    let mut tick = |host: &mut Host| {
        server.tick(0).unwrap();
        while host.world.step() {}
        host.pass(1_000_000);
    };
    let mut talk = |host: &mut Host, peer, asked: &[u8], rounds: usize, reads: bool| {
        let (mut written, mut heard) = (0, Vec::new());
        for _ in 0..rounds {
            host.world.with_net(|net, random| {
                written += net.write(peer, &asked[written..]);
                while reads && matches!(net.read(peer, 1 << 20, &mut heard, random), ClientRead::Bytes(_)) {}
            });
            tick(host);
        }
        assert_eq!(written, asked.len());
        heard
    };
    let connect = |host: &mut Host| host.world.with_net(|net, _| net.connect()).unwrap();
    let writer = connect(&mut host);
    for key in 0..60 {
        let asked = [format!("set {key} 0 0 80000\r\n").into_bytes(), vec![b'v'; 80_000], b"\r\n".to_vec()].concat();
        assert_eq!(talk(&mut host, writer, &asked, 140, true), b"STORED\r\n");
    }
    for key in 0..30 {
        let deaf = connect(&mut host);
        let asked: String = (0..10).map(|other| format!("get {}\r\n", (key * 2 + other) % 60)).collect();
        talk(&mut host, deaf, asked.as_bytes(), 30, false);
    }
    let heard = talk(&mut host, writer, b"get 0 7 13 22 31 39 48 59\r\n", 1500, true);
    assert!(heard.ends_with(b"END\r\n"), "{} bytes came", heard.len());
}
