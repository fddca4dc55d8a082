//! Clients: one connection for each request in flight.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use stratakv_base::random::Random;

use super::super::guest::text;
use crate::memcache::Client;

/// Bytes of a value.
pub(super) const VALUE_BYTES: usize = 4096;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Set,
}

/// Of which server.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) address: String,
    pub(super) keys: u32,
}

impl Load {
    fn connect(&self) -> Result<Client, String> {
        Client::connect(self.address.parse().map_err(text("read an address"))?).map_err(text("connect"))
    }

    /// Sets every key.
    pub(super) fn fill(&self) -> Result<(), String> {
        let next = AtomicU32::new(0);
        self.in_threads(16, &|client, _| {
            while let Some(key) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|key| *key < self.keys) {
                set(client, key, 0)?;
            }
            Ok(())
        })
    }

    /// So many requests, so many at once. `begin` is called when all are connected, before the
    /// first.
    pub(super) fn run(
        &self,
        verb: Verb,
        in_flight: u32,
        requests: u32,
        begin: &(dyn Fn() -> Result<(), String> + Sync),
    ) -> Result<(), String> {
        let left = AtomicU32::new(requests);
        let barrier = Barrier::new(in_flight as usize);
        self.in_threads(in_flight, &|client, number| {
            // All are connected, and have been served once.
            ask(client, verb, number % self.keys, number)?;
            let begun = if barrier.wait().is_leader() { begin() } else { Ok(()) };
            barrier.wait();
            begun?;
            let mut random = Random::new(u64::from(requests) << 32 | u64::from(number) << 8 | u64::from(in_flight));
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                let key = random.below(u64::from(self.keys)) as u32;
                ask(client, verb, key, random.next_u64() as u32)?;
            }
            Ok(())
        })
    }

    fn in_threads(
        &self,
        count: u32,
        work: &(dyn Fn(&mut Client, u32) -> Result<(), String> + Sync),
    ) -> Result<(), String> {
        let clients: Result<Vec<Client>, String> = (0..count).map(|_| self.connect()).collect();
        thread::scope(|scope| {
            let run = |(number, mut client)| scope.spawn(move || work(&mut client, number));
            let threads: Vec<_> = (0..).zip(clients?).map(run).collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a client panicked".to_owned())?)
        })
    }
}

fn ask(client: &mut Client, verb: Verb, key: u32, fill: u32) -> Result<(), String> {
    match verb {
        Verb::Set => set(client, key, fill),
        Verb::Get => {
            let value = client.get(format!("key{key:08}").as_bytes()).map_err(text("get"))?;
            match value {
                Some(value) if value.len() == VALUE_BYTES => Ok(()),
                other => Err(format!("key {key}: {:?} bytes", other.map(|value| value.len()))),
            }
        }
    }
}

fn set(client: &mut Client, key: u32, fill: u32) -> Result<(), String> {
    let mut value = vec![0; VALUE_BYTES];
    Random::new(u64::from(key) << 32 | u64::from(fill)).fill(&mut value);
    match client.set(format!("key{key:08}").as_bytes(), &value).map_err(text("set"))?.as_str() {
        "STORED" => Ok(()),
        line => Err(format!("a set was answered `{line}`")),
    }
}
