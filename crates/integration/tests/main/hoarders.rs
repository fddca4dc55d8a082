//! Clients that make a server hold what they never finish or never take: its memory stays bounded,
//! and short requests are served.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stratakv_integration::attacks::crowd::{Crowd, Repeats, Script};
use stratakv_integration::attacks::target::Target;
use stratakv_integration::attacks::wire::Dialer;
use stratakv_integration::attacks::{Watch, bound_bytes};
use stratakv_integration::program::{Serve, Served};
use stratakv_integration::{place, process};

const MEMORY_BYTES: u64 = 32 << 20;
/// Of each of two crowds.
const CLIENTS: usize = 100;
/// Values that are asked for and not taken, and those that never come whole.
const VALUES: usize = 8;
const VALUE_BYTES: usize = 1_000_000;
/// How long a failing test waits for memory to come back.
const BACK_TIMEOUT: Duration = Duration::from_secs(60);
/// What the store may have of the server's memory, and the program: when clients have left, that is
/// all.
const STORE_BYTES: u64 = MEMORY_BYTES - MEMORY_BYTES / 8 + MEMORY_BYTES / 20;

fn serve(target: Target, data: &std::path::Path) -> Served {
    let memory = MEMORY_BYTES.to_string();
    let options = ["--memory", &memory, "--threads", "2"];
    let served = Serve::on(data).options(&options).options(target.serve_options()).start();
    let mut client = served.client();
    for number in 0..VALUES {
        let value = vec![b'v'; VALUE_BYTES];
        assert_eq!(client.set(format!("value{number}").as_bytes(), &value).expect("answered"), "STORED");
    }
    // What the store keeps of them, it has from now on.
    for _ in 0..2 {
        for number in 0..VALUES {
            let found = client.get(format!("value{number}").as_bytes()).expect("answered");
            assert_eq!(found.map(|value| value.len()), Some(VALUE_BYTES));
        }
    }
    served
}

fn crowd(served: &Served, head: fn(usize) -> Vec<u8>, body: Vec<u8>) -> Crowd {
    let script = Script {
        clients: CLIENTS,
        head,
        body: Arc::new(body),
        repeats: Repeats::Once,
        takes_answers: false,
        comes_back: Some(Duration::from_secs(1)),
    };
    Crowd::start(script, Dialer::plain(served.address()).receive_bytes(4096))
}

fn statistic(served: &Served, name: &str) -> u64 {
    served.client().statistic(name).expect("an answer").unwrap_or_else(|| panic!("no {name}"))
}

/// A server of this kind under two crowds at once; what is wrong.
fn attack(target: Target) {
    let (name, place) = (target.name(), place::directory());
    let served = serve(target, &place.path().join("data"));
    let before = process::memory_bytes(served.id(), "RssAnon").expect("it runs");
    let watch = Watch::start(served.id());
    let set = |number: usize| format!("set unfinished{number} 0 0 {VALUE_BYTES}\r\n").into_bytes();
    let gets = |number: usize| {
        let get = |at| format!("get value{}\r\n", (number + at) % VALUES);
        (0..64).map(get).collect::<String>().into_bytes()
    };
    let crowds = [crowd(&served, set, vec![b'z'; VALUE_BYTES - 10]), crowd(&served, gets, Vec::new())];
    // Both are there, and the server has stopped some of them.
    while statistic(&served, "memory_waits") == 0 {
        assert_eq!(served.client().get(b"absent").expect("answered"), None);
    }
    // Short requests are served all the time.
    for _ in 0..200 {
        assert_eq!(served.client().get(b"absent").expect("answered"), None, "{name}");
    }
    for crowd in crowds {
        assert_eq!(crowd.tally().refused.load(Ordering::Relaxed), 0, "{name}: connections are refused");
        crowd.leave().expect("they leave");
    }
    let (most, bound) = (watch.most(), bound_bytes(MEMORY_BYTES, 2 * CLIENTS, false));
    assert!(most <= bound, "{name}: {most} bytes of memory, from {before}; {bound} are allowed");
    let deadline = Instant::now() + BACK_TIMEOUT;
    loop {
        let now = process::memory_bytes(served.id(), "RssAnon").expect("it runs");
        if statistic(&served, "client_memory_bytes") < 1 << 20 && now <= STORE_BYTES {
            break;
        }
        assert!(Instant::now() < deadline, "{name}: it keeps {now} bytes, of {before} before and {most} at most");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// They made a server of 128 MiB hold 1.1 GiB, which it kept when they had left.
#[test]
fn hoarders_are_held_to_the_servers_memory_and_others_are_served() {
    std::thread::scope(|scope| {
        let attacks = Target::OURS.map(|target| scope.spawn(move || attack(target)));
        attacks.into_iter().for_each(|attack| attack.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    });
}
