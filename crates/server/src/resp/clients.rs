//! Which clients `CLIENT LIST` and `CLIENT KILL` mean.

use std::borrow::Cow;
use std::collections::HashSet;

use stratakv_protocol::resp::number;

use super::arguments::{Arguments, RequestRefusal, SYNTAX};
use super::commands::options::repeated;

/// What kind of client it is, as Redis has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientKind {
    Normal,
    PubSub,
    /// A master or a replica: there are none.
    Replication,
}

impl ClientKind {
    fn named(name: &[u8]) -> Result<ClientKind, RequestRefusal> {
        match &name.to_ascii_lowercase()[..] {
            b"normal" => Ok(ClientKind::Normal),
            b"pubsub" => Ok(ClientKind::PubSub),
            b"master" | b"slave" | b"replica" => Ok(ClientKind::Replication),
            _ => Err(Cow::Owned(format!("ERR Unknown client type '{}'", repeated(name)))),
        }
    }
}

/// A client, as far as a filter looks at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilteredClient<'a> {
    pub(crate) id: u64,
    pub(crate) kind: ClientKind,
    pub(crate) user: &'a str,
    pub(crate) address: &'a str,
    pub(crate) local_address: &'a str,
}

/// See the module. Without a condition all clients are meant.
#[derive(Debug, Default)]
pub(crate) struct ClientFilter {
    ids: Option<HashSet<u64>>,
    kind: Option<ClientKind>,
    user: Option<String>,
    address: Option<Vec<u8>>,
    local_address: Option<Vec<u8>>,
    /// The client that asks is not meant.
    pub(crate) skips_me: bool,
}

impl ClientFilter {
    /// That of `CLIENT LIST`.
    pub(crate) fn of_list(a: &Arguments<'_>) -> Result<ClientFilter, RequestRefusal> {
        let mut filter = ClientFilter::default();
        match a.len() {
            2 => {}
            4 if a.is(2, "TYPE") => filter.kind = Some(ClientKind::named(a.get(3))?),
            4.. if a.is(2, "ID") => {
                let ids = a.from(3).map(|id| number::integer(id).and_then(|id| u64::try_from(id).ok()));
                let ids = ids.map(|id| id.ok_or(Cow::Borrowed("ERR Invalid client ID")));
                filter.ids = Some(ids.collect::<Result<_, RequestRefusal>>()?);
            }
            _ => return Err(Cow::Borrowed(SYNTAX)),
        }
        Ok(filter)
    }

    /// That of `CLIENT KILL` with options; users are those that `is_user` knows.
    pub(crate) fn of_kill(a: &Arguments<'_>, is_user: impl Fn(&[u8]) -> bool) -> Result<ClientFilter, RequestRefusal> {
        let mut filter = ClientFilter { skips_me: true, ..ClientFilter::default() };
        for at in (2..a.len()).step_by(2) {
            let value = a.get(at + 1);
            match () {
                () if at + 1 >= a.len() => return Err(Cow::Borrowed(SYNTAX)),
                () if a.is(at, "ID") => {
                    let id = number::integer(value).and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
                    let id = id.ok_or(Cow::Borrowed("ERR client-id should be greater than 0"))?;
                    filter.ids = Some(HashSet::from([id]));
                }
                () if a.is(at, "TYPE") => filter.kind = Some(ClientKind::named(value)?),
                () if a.is(at, "USER") => {
                    let user = String::from_utf8_lossy(value).into_owned();
                    if !is_user(value) {
                        return Err(Cow::Owned(format!("ERR No such user '{}'", repeated(value))));
                    }
                    filter.user = Some(user);
                }
                () if a.is(at, "ADDR") => filter.address = Some(value.to_vec()),
                () if a.is(at, "LADDR") => filter.local_address = Some(value.to_vec()),
                () if a.is(at, "SKIPME") && a.is(at + 1, "YES") => filter.skips_me = true,
                () if a.is(at, "SKIPME") && a.is(at + 1, "NO") => filter.skips_me = false,
                () => return Err(Cow::Borrowed(SYNTAX)),
            }
        }
        Ok(filter)
    }

    /// The client at this address.
    pub(crate) fn at_address(address: &[u8]) -> ClientFilter {
        ClientFilter { address: Some(address.to_vec()), ..ClientFilter::default() }
    }

    /// Bytes of memory that it holds.
    pub(crate) fn held_bytes(&self) -> u64 {
        let ids = self.ids.as_ref().map_or(0, HashSet::capacity) * 2 * size_of::<u64>();
        let texts = [&self.address, &self.local_address].into_iter().flatten().map(Vec::capacity).sum::<usize>();
        (ids + texts + self.user.as_ref().map_or(0, String::capacity)) as u64
    }

    /// Whether a client is meant.
    pub(crate) fn matches(&self, client: FilteredClient<'_>) -> bool {
        let is = |wanted: &Option<Vec<u8>>, text: &str| wanted.as_ref().is_none_or(|wanted| wanted == text.as_bytes());
        self.ids.as_ref().is_none_or(|ids| ids.contains(&client.id))
            && self.kind.is_none_or(|kind| kind == client.kind)
            && self.user.as_ref().is_none_or(|user| user == client.user)
            && is(&self.address, client.address)
            && is(&self.local_address, client.local_address)
    }
}

/// What became of `CLIENT KILL`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KilledClients {
    /// Those that are closed, without the one that asks.
    pub(crate) others: usize,
    /// The one that asks is meant.
    pub(crate) with_me: bool,
}
