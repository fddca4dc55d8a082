//! A few rounds of `kill -9`; `cargo xtask crash` does two hundred.

use std::time::Duration;

use stratakv_integration::crash::{Plan, run};
use stratakv_integration::place;

fn rounds(io: &str, seed: u64) {
    let place = place::directory();
    let plan = Plan {
        rounds: 4,
        keys_per_client: 60,
        value_bytes_max: 100 << 10,
        life_max: Duration::from_millis(400),
        options: vec!["--io".to_owned(), io.to_owned()],
        seed,
        ..Plan::default()
    };
    let tally = run(&place.path().join("data"), &plan, &mut |_, _| {});
    let tally = tally.unwrap_or_else(|message| panic!("--io {io}: {message}"));
    assert!(tally.kills >= 4 && tally.acknowledged > 0 && tally.verified > 0, "{tally:?}");
}

#[test]
fn nothing_acknowledged_is_lost_by_kill_nine() {
    rounds("auto", 1);
}

#[test]
fn nothing_acknowledged_is_lost_by_kill_nine_with_blocking_io() {
    rounds("blocking", 2);
}
