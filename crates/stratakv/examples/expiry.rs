//! Records and whole collections that expire.
//!
//! `cargo run -p stratakv --example expiry`
#![expect(clippy::print_stdout, reason = "an example shows what it finds")]

use std::time::Duration;

use stratakv::{Expiry, PutOptions, Store, Ttl};

/// Returns how long a record lives on, and that another one lives for ever.
pub fn run(directory: &std::path::Path) -> Result<(Ttl, Ttl), stratakv::Error> {
    let store = Store::open(directory)?;
    let minute = PutOptions::new().ttl(Duration::from_secs(60));
    store.put_with("code:1", "4711", &minute)?;
    store.put("code:2", "0815")?;
    store.expire_in("code:2", Duration::from_secs(3600))?;
    store.expire("code:2", Expiry::NEVER)?;

    // What is in `cache` goes at once when its time has come, however much it is.
    let cache = store.collection("cache")?;
    cache.put("page", "<html>")?;
    let in_an_hour = Expiry(store.wall().0 + 3_600_000);
    store.expire_collection("cache", in_an_hour)?;

    let left = (store.ttl("code:1")?, store.ttl("code:2")?);
    drop(cache);
    store.close()?;
    Ok(left)
}

fn main() -> Result<(), stratakv::Error> {
    println!("{:?}", run(&std::env::temp_dir().join(format!("stratakv-expiry-{}", std::process::id())))?);
    Ok(())
}
