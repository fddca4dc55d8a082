//! What the crowds do.

use std::sync::Arc;
use std::time::Duration;

use super::crowd::{Repeats, Script};
use super::target::{LONG, LONG_BYTES, WIDE};

/// What is missing of a value that never comes whole.
const MISSING_BYTES: usize = 10;
/// Gets that are sent and whose answers are not taken, or whose clients leave.
pub const GETS: usize = 64;
/// Room for answers that a client does not take.
const DEAF_RECEIVE_BYTES: usize = 4 << 10;

/// An attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Values of 1 MB without their last bytes.
    Unfinished,
    /// The same, by clients that come back a second after they were closed.
    UnfinishedAgain,
    /// Gets of 1 MiB, 64 on each connection, whose answers nobody takes.
    Untaken,
    /// The same, by clients that come back.
    UntakenAgain,
    /// Gets of 100 values of 10 KiB, 20 a second on each connection.
    Wide,
    /// Lines that are no commands.
    Invalid,
    /// Gets by clients that have not said who they are.
    Strangers,
    /// Wrong passwords.
    Passwords,
    /// Listings of every key, one after the other.
    Metadump,
    /// Gets of 1 MiB by clients that leave at once.
    Left,
}

impl Attack {
    /// All of them.
    pub const ALL: [Attack; 10] = [
        Attack::Unfinished,
        Attack::UnfinishedAgain,
        Attack::Untaken,
        Attack::UntakenAgain,
        Attack::Wide,
        Attack::Invalid,
        Attack::Strangers,
        Attack::Passwords,
        Attack::Metadump,
        Attack::Left,
    ];

    /// Its name on command lines and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Attack::Unfinished => "unfinished",
            Attack::UnfinishedAgain => "unfinished-again",
            Attack::Untaken => "untaken",
            Attack::UntakenAgain => "untaken-again",
            Attack::Wide => "wide",
            Attack::Invalid => "invalid",
            Attack::Strangers => "strangers",
            Attack::Passwords => "passwords",
            Attack::Metadump => "metadump",
            Attack::Left => "left",
        }
    }

    /// What it is, for the head of a table.
    pub fn what(self) -> &'static str {
        match self {
            Attack::Unfinished => "1,000 clients that send all but the last bytes of a 1 MB value",
            Attack::UnfinishedAgain => "the same, who connect again a second after they were closed",
            Attack::Untaken => "500 clients that pipeline 64 gets of 1 MiB and read nothing",
            Attack::UntakenAgain => "the same, who connect again a second after they were closed",
            Attack::Wide => "1,000 clients that ask for 100 values of 10 KiB, 20 times a second",
            Attack::Invalid => "1,000 clients that send lines that are no commands as fast as they are taken",
            Attack::Strangers => "1,000 clients that send gets and have not said who they are",
            Attack::Passwords => "1,000 clients that send wrong passwords",
            Attack::Metadump => "8 clients that pipeline `lru_crawler metadump all`",
            Attack::Left => "200 clients that ask for 64 values of 1 MiB and leave at once",
        }
    }

    /// Whether the server asks who its clients are.
    pub fn asks_who(self) -> bool {
        matches!(self, Attack::Strangers | Attack::Passwords)
    }

    /// What its clients do; of `few` there is a tenth of them.
    pub fn script(self, few: bool) -> Script {
        let clients = match self {
            Attack::Metadump => 8,
            Attack::Untaken | Attack::UntakenAgain => 500,
            Attack::Left => 200,
            _ => 1000,
        };
        let clients = if few { (clients / 10).max(8) } else { clients };
        let flood = |body: &[u8], times: usize| Script {
            clients,
            head: |_| Vec::new(),
            body: Arc::new(body.repeat(times)),
            repeats: Repeats::Always,
            takes_answers: true,
            comes_back: Some(Duration::from_millis(10)),
        };
        let once = |head: fn(usize) -> Vec<u8>, body: Vec<u8>, comes_back: bool| Script {
            clients,
            head,
            body: Arc::new(body),
            repeats: Repeats::Once,
            takes_answers: false,
            comes_back: comes_back.then_some(Duration::from_secs(1)),
        };
        match self {
            Attack::Unfinished | Attack::UnfinishedAgain => {
                once(long_set, vec![b'z'; LONG_BYTES - MISSING_BYTES], self == Attack::UnfinishedAgain)
            }
            Attack::Untaken | Attack::UntakenAgain => once(long_gets, Vec::new(), self == Attack::UntakenAgain),
            Attack::Left => once(long_gets, Vec::new(), false),
            Attack::Wide => {
                let keys: String = (0..WIDE).map(|number| format!(" mg{number}")).collect();
                let every = Repeats::Every(Duration::from_millis(50));
                Script { repeats: every, ..flood(format!("get{keys}\r\n").as_bytes(), 1) }
            }
            Attack::Invalid => flood(b"foo bar baz\r\n", 50),
            Attack::Strangers => flood(b"get a\r\n", 20),
            Attack::Passwords => flood(b"set x 0 0 9\r\nuser nope\r\n", 1),
            Attack::Metadump => flood(b"lru_crawler metadump all\r\n", 1),
        }
    }

    /// Room for what its clients do not read.
    pub fn receive_bytes(self) -> Option<usize> {
        matches!(self, Attack::Untaken | Attack::UntakenAgain | Attack::Left).then_some(DEAF_RECEIVE_BYTES)
    }
}

fn long_set(number: usize) -> Vec<u8> {
    format!("set unfinished{number} 0 0 {LONG_BYTES}\r\n").into_bytes()
}

fn long_gets(number: usize) -> Vec<u8> {
    let get = |at| format!("get big{}\r\n", (number + 7 * at) % LONG);
    (0..GETS).map(get).collect::<String>().into_bytes()
}
