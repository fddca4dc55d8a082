//! Sessions of a web application: a token to what is known of a visitor, with a time to live that
//! every visit begins anew.
//!
//! `cargo run -p stratakv --example sessions`
#![expect(clippy::print_stdout, reason = "an example shows what it finds")]

use std::time::Duration;

use stratakv::{Collection, Error, Expect, PutOptions, PutOutcome, Store};

const LIFETIME: Duration = Duration::from_secs(30 * 60);

/// Where sessions are kept. Cloning is cheap; any number of threads may use it.
#[derive(Clone)]
pub struct Sessions {
    all: Collection,
}

impl Sessions {
    /// Those of `store`.
    pub fn of(store: &Store) -> Result<Sessions, Error> {
        Ok(Sessions { all: store.collection("sessions")? })
    }

    /// Begins one; `false` if there is one with that token.
    pub fn begin(&self, token: &str, user: &str) -> Result<bool, Error> {
        let options = PutOptions::new().ttl(LIFETIME).expect(Expect::Absent);
        Ok(matches!(self.all.put_with(token, user, &options)?, PutOutcome::Written { .. }))
    }

    /// Whose session it is, if it has not expired. Its time begins anew.
    pub fn visit(&self, token: &str) -> Result<Option<String>, Error> {
        if !self.all.expire_in(token, LIFETIME)? {
            return Ok(None);
        }
        let record = self.all.get(token)?;
        Ok(record.map(|record| String::from_utf8_lossy(&record.to_bytes()).into_owned()))
    }

    /// Ends it; whether there was one.
    pub fn end(&self, token: &str) -> Result<bool, Error> {
        self.all.delete(token)
    }
}

/// Returns who visited.
pub fn run(directory: &std::path::Path) -> Result<Option<String>, Error> {
    let store = Store::open(directory)?;
    let sessions = Sessions::of(&store)?;
    assert!(sessions.begin("6f1d", "ada")? && !sessions.begin("6f1d", "grace")?);
    let who = sessions.visit("6f1d")?;
    assert!(sessions.end("6f1d")? && sessions.visit("6f1d")?.is_none());
    drop(sessions);
    store.close()?;
    Ok(who)
}

fn main() -> Result<(), Error> {
    println!("{:?}", run(&std::env::temp_dir().join(format!("stratakv-sessions-{}", std::process::id())))?);
    Ok(())
}
