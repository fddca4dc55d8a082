//! What a server asks of the kernel under load, as the kernel counts it.

use std::io::Read;
use std::net::SocketAddr;

use stratakv_integration::program::{self, Serve, free_address};
use stratakv_integration::ukv::system_calls::Counter;
use stratakv_integration::{place, requirement};

const ROUNDS: u64 = 2000;
const GETS: usize = 100;

/// What the server's one thread has counted.
#[derive(Clone, Copy, Debug)]
struct Counted {
    ticks: u64,
    calls: u64,
}

fn counted(admin: SocketAddr) -> Counted {
    let body = program::admin(admin, "/stats.json").expect("the admin address");
    let told: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    let number = |name: &str| told["cores"][0][name].as_u64().expect("a number");
    Counted { ticks: number("ticks"), calls: number("system_calls") }
}

/// Turns, and calls of all threads of the server, for so many rounds of gets that were sent at
/// once.
#[test]
fn a_tick_of_pipelined_gets_is_one_system_call() {
    let place = place::directory();
    let admin = free_address().expect("a port");
    let admin_text = admin.to_string();
    let options = ["--io", "io_uring", "--threads", "1", "--shards", "1", "--durability", "process_crash"];
    let serve = Serve::on(&place.path().join("data")).options(&options).options(&["--admin", &admin_text]);
    let mut served = serve.spawn().expect("the server can be started");
    if let Err(message) = served.wait_ready() {
        assert!(message.contains("io_uring"), "{message}");
        return requirement::not_here("no io_uring");
    }
    let mut client = served.client();
    assert_eq!(client.set(b"key", b"short").expect("answered"), "STORED");
    let (gets, answers) = (b"get key\r\n".repeat(GETS), b"VALUE key 0 5\r\nshort\r\nEND\r\n".repeat(GETS));
    let before = counted(admin);
    let Some(counter) = Counter::start(served.id()) else {
        return requirement::not_here("no perf that may count system calls");
    };
    let mut answer = vec![0; answers.len()];
    for _ in 0..ROUNDS {
        client.send(&gets).expect("sent");
        client.stream().read_exact(&mut answer).expect("answered");
        assert!(answer == answers);
    }
    let all_calls = counter.finish().expect("a count");
    let after = counted(admin);
    let (ticks, calls) = (after.ticks - before.ticks, after.calls - before.calls);
    // Threads that look after the store wake up now and then.
    let besides = ROUNDS / 10;
    assert!(ticks >= ROUNDS, "{ticks} ticks for {ROUNDS} rounds");
    assert!(calls <= ticks, "{calls} calls of the ring in {ticks} ticks");
    assert!(all_calls <= calls + besides, "{all_calls} system calls, and {calls} of them of the ring");
    assert!(calls <= 4 * ROUNDS, "{calls} calls for {ROUNDS} rounds of {GETS} gets");
}
