//! `kill -9` under Redis clients: transactions over every kind of structure, short ones and such
//! that become long and short again, are there whole or not at all. What was acknowledged is there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stratakv_base::random::Random;

use super::waves::Waves;
use super::{ScenarioOutcome, Setting};
use crate::program::{Serve, Served, free_address};
use crate::resp::{RespConnection, RespReply};

const CLIENTS: u64 = 6;
/// Accounts that all clients move money between, in two keys.
const ACCOUNTS: u64 = 5;
/// Longest list and set of a client.
const LIST_MAX: usize = 20;
const SET_MAX: u64 = 15;
/// The longest life of a server.
const LIFE_MILLIS_MAX: u64 = 500;

/// What a client's keys must hold after so many of its transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ClientKeys {
    transactions: u64,
    hash: BTreeMap<String, String>,
    list: VecDeque<String>,
    scores: BTreeMap<String, String>,
    set: BTreeSet<String>,
    long: Waves,
}

/// A client of its own keys, outside the process that is killed.
struct TransactionClient {
    number: u64,
    acknowledged: ClientKeys,
    /// A transaction was sent and not answered.
    is_in_doubt: bool,
    random: Random,
}

/// What was counted.
#[derive(Default)]
struct Seen {
    acknowledged: u64,
    in_doubt: u64,
    in_doubt_present: u64,
    transfers: u64,
}

impl ClientKeys {
    /// The commands of the next transaction of a client.
    fn commands(&self, client: u64) -> Vec<String> {
        let n = self.transactions;
        let mut commands = vec!["MULTI".to_owned()];
        if n.is_multiple_of(11) {
            commands.push(format!("DEL c{client}:hash"));
        }
        commands.push(format!("HSET c{client}:hash f{} {n} last {n}", n % 7));
        commands.push(format!("HDEL c{client}:hash f{}", (n + 3) % 7));
        commands.push(format!("RPUSH c{client}:list {n}"));
        commands.push(format!("LTRIM c{client}:list -{LIST_MAX} -1"));
        commands.push(format!("ZADD c{client}:scores {n} m{}", n % 9));
        commands.push(format!("SADD c{client}:set {n}"));
        if n >= SET_MAX {
            commands.push(format!("SREM c{client}:set {}", n - SET_MAX));
        }
        commands.extend(self.long.commands(n, client));
        commands.push(format!("INCR c{client}:count"));
        commands.push("EXEC".to_owned());
        commands
    }

    /// What these make of it.
    fn next(&self) -> ClientKeys {
        let (mut next, n) = (self.clone(), self.transactions);
        if n.is_multiple_of(11) {
            next.hash.clear();
        }
        next.hash.insert(format!("f{}", n % 7), n.to_string());
        next.hash.insert("last".to_owned(), n.to_string());
        next.hash.remove(&format!("f{}", (n + 3) % 7));
        next.list.push_back(n.to_string());
        if next.list.len() > LIST_MAX {
            next.list.pop_front();
        }
        next.scores.insert(format!("m{}", n % 9), n.to_string());
        next.set.insert(n.to_string());
        if let Some(gone) = n.checked_sub(SET_MAX) {
            next.set.remove(&gone.to_string());
        }
        next.long.change(n);
        next.transactions += 1;
        next
    }

    /// What a client's keys hold.
    fn read(connection: &mut RespConnection, client: u64) -> Result<ClientKeys, String> {
        let mut ask = |command: &str| {
            let told = connection.ask(command).map_err(|error| format!("{command}: {error}"))?;
            Ok::<_, String>((command.to_owned(), told))
        };
        let texts = |(command, told): (String, RespReply)| {
            told.texts().ok_or_else(|| format!("{command} was answered {told:?}"))
        };
        let transactions = match ask(&format!("GET c{client}:count"))? {
            (_, RespReply::Bulk(None)) => 0,
            (command, RespReply::Bulk(Some(text))) => {
                let number = String::from_utf8_lossy(&text).parse();
                number.map_err(|_| format!("{command} was answered {}", text.escape_ascii()))?
            }
            (command, told) => return Err(format!("{command} was answered {told:?}")),
        };
        let pairs = |texts: Vec<String>| {
            texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect::<BTreeMap<_, _>>()
        };
        let long = Waves::read(connection, client)?;
        let mut ask = |command: &str| {
            let told = connection.ask(command).map_err(|error| format!("{command}: {error}"))?;
            Ok::<_, String>((command.to_owned(), told))
        };
        Ok(ClientKeys {
            transactions,
            long,
            hash: pairs(texts(ask(&format!("HGETALL c{client}:hash"))?)?),
            list: texts(ask(&format!("LRANGE c{client}:list 0 -1"))?)?.into(),
            scores: pairs(texts(ask(&format!("ZRANGE c{client}:scores 0 -1 WITHSCORES"))?)?),
            set: texts(ask(&format!("SMEMBERS c{client}:set"))?)?.into_iter().collect(),
        })
    }
}

impl TransactionClient {
    fn new(number: u64, seed: u64) -> TransactionClient {
        let random = Random::new(seed ^ (number + 1) << 32);
        TransactionClient { number, acknowledged: ClientKeys::default(), is_in_doubt: false, random }
    }

    /// Transactions until told to stop, or until the connection ends.
    ///
    /// # Errors
    /// An answer is not what it must be, or the connection ended before it was `cut`.
    fn run(&mut self, address: SocketAddr, stop: &AtomicBool, seen: &mut Seen) -> Result<(), String> {
        let ended = RespConnection::connect(address).map_err(Ended::Connection);
        let ended = ended.and_then(|mut connection| {
            while !stop.load(Ordering::SeqCst) {
                self.step(&mut connection, seen)?;
                if self.random.below(3) == 0 {
                    self.transfer(&mut connection, seen)?;
                }
            }
            Ok(())
        });
        match ended {
            Ok(()) => Ok(()),
            Err(Ended::Connection(_)) if stop.load(Ordering::SeqCst) => Ok(()),
            Err(Ended::Connection(error)) => {
                Err(format!("client {}: a connection ended by itself: {error}", self.number))
            }
            Err(Ended::Wrong(what)) => Err(format!("client {}: {what}", self.number)),
        }
    }

    fn step(&mut self, connection: &mut RespConnection, seen: &mut Seen) -> Result<(), Ended> {
        let commands = self.acknowledged.commands(self.number);
        self.is_in_doubt = true;
        let told = transact(connection, &commands)?;
        let count = told.last().cloned();
        self.acknowledged = self.acknowledged.next();
        self.is_in_doubt = false;
        seen.acknowledged += 1;
        match count {
            Some(RespReply::Integer(count)) if count as u64 == self.acknowledged.transactions => Ok(()),
            other => Err(Ended::Wrong(format!("transaction {}: {other:?}", self.acknowledged.transactions))),
        }
    }

    /// Moves money from an account of one key to one of the other: nobody may see it gone or twice.
    fn transfer(&mut self, connection: &mut RespConnection, seen: &mut Seen) -> Result<(), Ended> {
        let (from, to) = (self.random.below(ACCOUNTS), self.random.below(ACCOUNTS));
        let sum = 1 + self.random.below(100);
        let commands = [
            "MULTI".to_owned(),
            format!("HINCRBY bank1 a{from} -{sum}"),
            format!("HINCRBY bank2 a{to} {sum}"),
            "EXEC".to_owned(),
        ];
        transact(connection, &commands)?;
        seen.transfers += 1;
        Ok(())
    }

    /// Compares the client's keys with what it knows, and settles on what is there.
    fn verify(&mut self, connection: &mut RespConnection, seen: &mut Seen) -> Result<(), String> {
        let found = ClientKeys::read(connection, self.number)?;
        let is_next = self.is_in_doubt && found == self.acknowledged.next();
        seen.in_doubt += u64::from(self.is_in_doubt);
        seen.in_doubt_present += u64::from(is_next);
        if !is_next && found != self.acknowledged {
            return Err(format!(
                "client {}: found {found:?}; acknowledged was {:?}, in doubt {}",
                self.number, self.acknowledged, self.is_in_doubt
            ));
        }
        (self.acknowledged, self.is_in_doubt) = (found, false);
        Ok(())
    }
}

/// Why a client stopped.
enum Ended {
    Connection(io::Error),
    Wrong(String),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Ended {
        match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Ended::Wrong(error.to_string())
            }
            _ => Ended::Connection(error),
        }
    }
}

/// Sends a transaction in one piece; the replies of its commands.
fn transact(connection: &mut RespConnection, commands: &[String]) -> Result<Vec<RespReply>, Ended> {
    connection.send(commands)?;
    for command in &commands[..commands.len() - 1] {
        let told = connection.reply()?;
        let expected = if command == "MULTI" { "OK" } else { "QUEUED" };
        if told != RespReply::Simple(expected.to_owned()) {
            return Err(Ended::Wrong(format!("{command}: {told:?}")));
        }
    }
    match connection.reply()? {
        RespReply::Array(Some(replies)) if !replies.iter().any(|reply| matches!(reply, RespReply::Error(_))) => {
            Ok(replies)
        }
        other => Err(Ended::Wrong(format!("EXEC: {other:?}"))),
    }
}

/// The sum of all accounts, which is 0 whatever was moved.
fn balance(connection: &mut RespConnection) -> Result<i64, String> {
    let mut sum = 0;
    for key in ["bank1", "bank2"] {
        let told = connection.ask(&format!("HVALS {key}")).map_err(|error| error.to_string())?;
        let texts = told.texts().ok_or_else(|| format!("HVALS {key} was answered {told:?}"))?;
        for text in texts {
            sum += text.parse::<i64>().map_err(|_| format!("{key} holds `{text}`"))?;
        }
    }
    Ok(sum)
}

/// Compares everything; no client is at work.
fn verify(clients: &mut [TransactionClient], address: SocketAddr, seen: &mut Seen) -> Result<(), String> {
    let mut connection = RespConnection::connect(address).map_err(|error| error.to_string())?;
    clients.iter_mut().try_for_each(|client| client.verify(&mut connection, seen))?;
    match balance(&mut connection)? {
        0 => Ok(()),
        sum => Err(format!("money appeared or went: the accounts sum up to {sum}")),
    }
}

/// One life of a server: compared, loaded, killed or ended in order.
fn life(
    mut served: Served,
    address: SocketAddr,
    (clients, seen): (&mut [TransactionClient], &mut Seen),
    (millis, is_killed): (u64, bool),
) -> Result<(), String> {
    verify(clients, address, seen)?;
    let stop = AtomicBool::new(false);
    let outcomes: Vec<(Result<(), String>, Seen)> = std::thread::scope(|scope| {
        let stop = &stop;
        let load = |client| {
            scope.spawn(move || {
                let mut seen = Seen::default();
                (TransactionClient::run(client, address, stop, &mut seen), seen)
            })
        };
        let threads: Vec<_> = clients.iter_mut().map(load).collect();
        std::thread::sleep(Duration::from_millis(millis));
        stop.store(true, Ordering::SeqCst);
        if is_killed {
            served.kill();
        }
        let panicked = || (Err("a client panicked".to_owned()), Seen::default());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
    });
    for (outcome, more) in outcomes {
        outcome.map_err(|what| format!("{what}\nthe server said:\n{}", served.said()))?;
        seen.acknowledged += more.acknowledged;
        seen.transfers += more.transfers;
    }
    if is_killed {
        return Ok(());
    }
    let status = served.stop();
    if status.success() { Ok(()) } else { Err(format!("the server ended with {status}")) }
}

/// See the module.
///
/// # Errors
/// Something acknowledged is lost, or a transaction is there in part.
pub fn transactions(setting: &Setting<'_>) -> Result<ScenarioOutcome, String> {
    if setting.engine.evicts() {
        return Ok(ScenarioOutcome::Skipped("a cache has no transactions".to_owned()));
    }
    let lives = setting.either(6, 60);
    let mut random = Random::new(setting.seed);
    let mut clients: Vec<_> = (0..CLIENTS).map(|number| TransactionClient::new(number, setting.seed)).collect();
    let (mut seen, mut kills) = (Seen::default(), 0);
    for number in 0..=lives {
        let address = free_address().map_err(|error| error.to_string())?;
        let mut serve = Serve::on(&setting.place.join("data"));
        serve.log = setting.place.join("server.log");
        let (resp, threads) = (address.to_string(), (1 + random.below(3)).to_string());
        let level = setting.engine.levels()[random.below(setting.engine.levels().len() as u64) as usize];
        let serve = serve.options(setting.engine.serve_options());
        let serve = serve.options(&["--memory", "64M", "--threads", &threads, "--durability", level, "--resp", &resp]);
        let mut served = serve.spawn().map_err(|error| error.to_string())?;
        served.wait_ready()?;
        let is_killed = number < lives && random.below(8) > 0;
        kills += u64::from(is_killed);
        let millis = 20 + random.below(LIFE_MILLIS_MAX);
        life(served, address, (&mut clients, &mut seen), (millis, is_killed))
            .map_err(|what| format!("life {number}: {what}"))?;
    }
    let Seen { acknowledged, in_doubt, in_doubt_present, transfers } = seen;
    Ok(ScenarioOutcome::Held(format!(
        "{kills} kills, {acknowledged} transactions acknowledged, {in_doubt} in doubt, of which {in_doubt_present} were there, \
         {transfers} transfers"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_transaction_makes_differs_from_what_was_before_in_every_structure() {
        let mut held = ClientKeys::default();
        for _ in 0..50 {
            let next = held.next();
            assert!(next.hash != held.hash && next.list != held.list && next.scores != held.scores);
            assert!(next.set != held.set && next.list.len() <= LIST_MAX && next.set.len() as u64 <= SET_MAX);
            held = next;
        }
    }
}
