use super::*;

#[test]
fn servers_keep_their_promises() {
    let mut sum = Statistics::default();
    for seed in 0..100 {
        match run(seed) {
            Ok(statistics) => sum.add(&statistics),
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    assert!(sum.power_cuts > 60 && sum.kills > 20 && sum.closes > 20 && sum.served.connections > 600, "{sum:?}");
    assert!(sum.answered > 5_000, "{sum:?}");
}

#[test]
fn a_seed_always_gives_the_same_run() {
    for seed in 0..5 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

/// The oracle is seen to fail.
#[test]
fn a_disk_that_loses_writes_is_noticed() {
    let lossy = |circumstances: &mut Circumstances| circumstances.setup.chances.lost = 3000;
    for on in [On::InPlace, On::Packed] {
        assert!((0..20).any(|seed| run_with(on, seed, lossy).is_err()), "{on:?}");
    }
}

/// Two workers; one connection held by the first. Both hear that the server stops, but only the second one acts on it.
#[test]
fn a_connection_accepted_while_stopping_was_left_with_a_thread_that_had_ended() {
    let mut random = Random::new(1);
    let mut host = Host::new(Circumstances::draw(On::InPlace, &mut random).setup, 1);
    let process = host.open(None).unwrap().unwrap();
    let drivers = (0..2).map(|_| process.runtime.driver_over(host.ring().unwrap())).collect();
    let listener = host.world.with_net(|net, _| net.listener()).unwrap();
    let mut server =
        TurnedServer::new(process.store.clone(), &ServerOptions::default(), drivers, vec![listener]).unwrap();
    let turn = |server: &mut TurnedServer, worker: usize| {
        for _ in 0..40 {
            server.turn(worker).unwrap();
            while host.world.step() {}
        }
    };
    host.world.with_net(|net, _| net.connect()).unwrap();
    turn(&mut server, 0);
    assert_eq!(server.connections(), 1);
    let late = host.world.with_net(|net, _| net.connect()).unwrap();
    host.world.with_net(|net, _| net.stopping = true);
    server.shutdown();
    turn(&mut server, 1);
    turn(&mut server, 0);
    assert!(server.is_over());
    assert!(host.world.with_net(|net, _| net.is_released(late)), "nobody would ever close it");
    assert_eq!(server.connections(), 0);
}
