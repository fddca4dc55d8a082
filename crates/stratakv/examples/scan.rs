//! Scans: by prefix and range, forward and back, keys alone; a range deleted.
//!
//! `cargo run -p stratakv --example scan`
#![expect(clippy::print_stdout, reason = "an example shows what it finds")]

use stratakv::Store;

/// Returns the keys that are left, the last one first.
pub fn run(directory: &std::path::Path) -> Result<Vec<String>, stratakv::Error> {
    let store = Store::open(directory)?;
    for (day, degrees) in [("2026-11-28", "4"), ("2026-11-29", "6"), ("2026-11-30", "3"), ("2026-12-01", "1")] {
        store.put(format!("berlin/{day}"), degrees)?;
    }
    store.put("paris/2026-11-30", "8")?;

    for item in store.prefix("berlin/2026-11") {
        let (key, record) = item?;
        println!("{}: {} degrees", key.escape_ascii(), record.to_bytes().escape_ascii());
    }
    // From the newest downwards, at most two.
    for item in store.range("berlin/".."berlin0").rev().take(2) {
        println!("{}", item?.0.escape_ascii());
    }
    let deleted = store.delete_range(.."berlin/2026-11-30")?;
    println!("{deleted} days are gone");

    // Keys alone cost no I/O.
    let keys = store.iter().rev().keys().map(|key| Ok(String::from_utf8_lossy(&key?).into_owned()));
    let keys = keys.collect::<Result<Vec<_>, stratakv::Error>>()?;
    store.close()?;
    Ok(keys)
}

fn main() -> Result<(), stratakv::Error> {
    println!("{:?}", run(&std::env::temp_dir().join(format!("stratakv-scan-{}", std::process::id())))?);
    Ok(())
}
