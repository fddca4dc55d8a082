//! Futures, here on tokio: any executor does. No thread is blocked while the disk works.
//!
//! `cargo run -p stratakv --example tokio`
#![expect(clippy::print_stdout, reason = "an example shows what it finds")]

use stratakv::{Error, ErrorKind, Store};
use tokio::task::JoinSet;

/// Returns how many of the records that many tasks wrote at once are there.
pub async fn write_and_count(store: Store) -> Result<usize, Error> {
    let mut tasks = JoinSet::new();
    for number in 0..200 {
        let store = store.clone();
        tasks.spawn(async move {
            let key = format!("user:{number:03}");
            loop {
                match store.put_async(&key, "here").await {
                    // Too much waits: the error says when another try is worth it.
                    Err(error) if error.kind() == ErrorKind::Busy => {
                        tokio::time::sleep(error.retry_after().unwrap_or_default()).await;
                    }
                    done => return done,
                }
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic")?;
    }
    assert!(store.get_async("user:000").await?.is_some());
    // Scans block: they go where blocking is allowed.
    tokio::task::spawn_blocking(move || store.prefix("user:").keys().filter_map(Result::ok).count())
        .await
        .map_or_else(|error| panic!("no panic: {error}"), Ok)
}

/// The same with a runtime of its own.
pub fn run(directory: &std::path::Path) -> Result<usize, Error> {
    let store = Store::open(directory)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().expect("threads");
    let count = runtime.block_on(write_and_count(store.clone()))?;
    store.close()?;
    Ok(count)
}

fn main() -> Result<(), Error> {
    println!("{} records", run(&std::env::temp_dir().join(format!("stratakv-tokio-{}", std::process::id())))?);
    Ok(())
}
