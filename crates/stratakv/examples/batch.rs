//! Changes of several keys and collections, all or none, crashes included.
//!
//! `cargo run -p stratakv --example batch`
#![expect(clippy::print_stdout, reason = "an example shows what it finds")]

use stratakv::{Expect, PutOptions, PutOutcome, Store, WriteBatch};

/// Returns whether a second account of the same name was refused.
pub fn run(directory: &std::path::Path) -> Result<bool, stratakv::Error> {
    let store = Store::open(directory)?;
    let by_mail = store.collection("by-mail")?;

    // A record and its entry in an index: nobody ever sees one without the other.
    let create = |name: &str, mail: &str| {
        let mut batch = WriteBatch::new();
        batch.put_with(&store, name, mail, &PutOptions::new().expect(Expect::Absent));
        batch.put_in(&by_mail, mail, name);
        store.write(batch)
    };
    assert!(matches!(create("ada", "ada@example.org")?, PutOutcome::Written { .. }));
    let second = create("ada", "other@example.org")?;
    // One condition did not hold, so nothing was done.
    assert!(by_mail.get("other@example.org")?.is_none());
    drop(by_mail);
    store.close()?;
    Ok(matches!(second, PutOutcome::Unmet(_)))
}

fn main() -> Result<(), stratakv::Error> {
    println!("refused: {}", run(&std::env::temp_dir().join(format!("stratakv-batch-{}", std::process::id())))?);
    Ok(())
}
