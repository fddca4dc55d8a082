//! A backup of a store in use, restored beside it.
//!
//! `cargo run -p stratakv --example backup`
#![expect(clippy::print_stdout, reason = "an example shows what it finds")]

use stratakv::{Options, Store, restore};

/// Returns how many records the copy has.
pub fn run(directory: &std::path::Path) -> Result<u64, stratakv::Error> {
    let store = Store::open(directory.join("data"))?;
    for number in 0..100 {
        store.put(format!("order:{number:03}"), "shipped")?;
    }
    // Reads and writes go on meanwhile.
    let summary = store.backup(directory.join("monday"))?;
    println!("{summary:?}");
    store.delete_prefix("order:")?;
    store.close()?;

    restore(directory.join("monday"), directory.join("copy"), &Options::new())?;
    let copy = Store::open(directory.join("copy"))?;
    let count = copy.len()?;
    copy.close()?;
    Ok(count)
}

fn main() -> Result<(), stratakv::Error> {
    println!("{} records", run(&std::env::temp_dir().join(format!("stratakv-backup-{}", std::process::id())))?);
    Ok(())
}
