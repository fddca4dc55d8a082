//! Money moves between accounts while others do the same: reads and writes as one step.
//!
//! `cargo run -p stratakv --example transaction`
#![expect(clippy::print_stdout, reason = "an example shows what it finds")]

use stratakv::{Collection, Store, Transaction};

fn balance(txn: &mut Transaction, accounts: &Collection, name: &str) -> Result<i64, stratakv::Error> {
    let record = txn.get(accounts, name)?;
    Ok(record.and_then(|record| std::str::from_utf8(&record.to_bytes()).ok()?.parse().ok()).unwrap_or(0))
}

/// Moves money if there is enough; asked again, from the reads on, if somebody else was faster.
fn transfer(store: &Store, from: &str, to: &str, amount: i64) -> Result<bool, stratakv::Error> {
    store.transact(|txn| {
        let (has, gets) = (balance(txn, store, from)?, balance(txn, store, to)?);
        if has < amount {
            return Ok(false);
        }
        txn.put(store, from, (has - amount).to_string())?;
        txn.put(store, to, (gets + amount).to_string())?;
        Ok(true)
    })
}

/// Returns the sum over all accounts, which is what it was.
pub fn run(directory: &std::path::Path) -> Result<i64, stratakv::Error> {
    let store = Store::open(directory)?;
    for name in ["ada", "grace", "edsger"] {
        store.put(name, "100")?;
    }
    std::thread::scope(|scope| {
        let pairs = [("ada", "grace"), ("grace", "edsger"), ("edsger", "ada")];
        let movers = pairs.map(|(from, to)| {
            let store = &store;
            scope.spawn(move || (0..10).try_for_each(|_| transfer(store, from, to, 7).map(drop)))
        });
        movers.into_iter().try_for_each(|mover| mover.join().expect("no panic"))
    })?;
    let sum = store.transact(|txn| {
        let mut sum = 0;
        for name in ["ada", "grace", "edsger"] {
            sum += balance(txn, &store, name)?;
        }
        Ok::<_, stratakv::Error>(sum)
    })?;
    store.close()?;
    Ok(sum)
}

fn main() -> Result<(), stratakv::Error> {
    println!("{} in all", run(&std::env::temp_dir().join(format!("stratakv-transaction-{}", std::process::id())))?);
    Ok(())
}
