//! A queue of jobs: several workers take them, each job once; what a worker has in hand stays
//! listed until it is done.
//!
//! `cargo run -p stratakv --example lists`
#![expect(clippy::print_stdout, reason = "an example shows what it finds")]

use stratakv::{End, Store};

/// Returns the number of jobs done.
pub fn run(directory: &std::path::Path) -> Result<u64, stratakv::Error> {
    let store = Store::open(directory)?;
    let (waiting, in_hand) = (store.list("waiting")?, store.list("in-hand")?);
    waiting.push_all(End::Back, &["resize 1.png", "resize 2.png", "resize 3.png"])?;
    waiting.push_front("resize urgent.png")?;

    let worker = || -> Result<u64, stratakv::Error> {
        let mut done = 0;
        // From one list to the other as one step: a crash loses no job.
        while let Some(job) = waiting.move_to(End::Front, &in_hand, End::Back)? {
            println!("{}", job.escape_ascii());
            done += 1;
        }
        Ok(done)
    };
    let done = std::thread::scope(|scope| {
        let workers = [scope.spawn(worker), scope.spawn(worker)];
        workers.into_iter().map(|worker| worker.join().expect("no panic")).sum::<Result<u64, stratakv::Error>>()
    })?;
    // Whoever starts after a crash finds what was in hand.
    assert_eq!(in_hand.iter().count() as u64, done);
    while in_hand.pop_front()?.is_some() {}
    drop((waiting, in_hand));
    store.close()?;
    Ok(done)
}

fn main() -> Result<(), stratakv::Error> {
    println!("{} jobs", run(&std::env::temp_dir().join(format!("stratakv-lists-{}", std::process::id())))?);
    Ok(())
}
