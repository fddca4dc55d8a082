//! Records: put, get, delete, counters, conditions.
//!
//! `cargo run -p stratakv --example basics`
#![expect(clippy::print_stdout, reason = "an example shows what it finds")]

use stratakv::{Expect, PutOutcome, Store};

/// Returns what it read last.
pub fn run(directory: &std::path::Path) -> Result<String, stratakv::Error> {
    let store = Store::open(directory)?; // created if absent
    store.put("user:1", "Ada")?; // returns when durable
    store.put("user:2", "Grace")?;
    assert!(store.delete("user:2")?);
    assert!(store.get("user:2")?.is_none());

    let visits = store.increment("visits", 1)?;
    println!("visit {visits}");

    // Written only if nobody changed the record since it was read.
    if let Some(record) = store.get("user:1")? {
        match store.put_if("user:1", "Ada Lovelace", Expect::Version(record.version))? {
            PutOutcome::Written { version } => println!("version {version} now"),
            PutOutcome::Unmet(why) => println!("somebody was faster: {why:?}"),
        }
    }

    // The same as one step, asked again until nobody was faster.
    store.fetch_update("user:1", |before| {
        let name = before.map_or_else(String::new, |record| String::from_utf8_lossy(&record.to_bytes()).into_owned());
        stratakv::Next::value(name.to_uppercase())
    })?;
    let name = store.get("user:1")?.map(|record| String::from_utf8_lossy(&record.to_bytes()).into_owned());
    store.close()?;
    Ok(name.unwrap_or_default())
}

fn main() -> Result<(), stratakv::Error> {
    println!("{}", run(&std::env::temp_dir().join(format!("stratakv-basics-{}", std::process::id())))?);
    Ok(())
}
