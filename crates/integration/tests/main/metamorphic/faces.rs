//! The interfaces of a store, made alike: requests in, answers out that can be compared.

use std::ops::Bound;

use bytes::Bytes;
use stratakv::raw::{Change, ChangeKind, Operation, PageRequest, RecordPart, Reply, Update};
use stratakv::{CollectionId, Expect, Expiry, Key, Level, PutOptions, PutOutcome, ScanOptions, Session, Store};
use stratakv_base::random::Random;
use stratakv_integration::executor::block_on_all;
use stratakv_integration::memcache::Client;
use stratakv_server::{Server, ServerOptions};

use super::digest;

/// By what a store is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    Blocking,
    Futures,
    Session,
    /// What the protocol does not have goes by blocking calls to the same store.
    Memcache,
}

#[derive(Clone, Debug)]
pub enum Request {
    Get { key: Vec<u8> },
    Put { key: Vec<u8>, value: Vec<u8>, flags: u32, expiry: Expiry, expect: Expect },
    Delete { key: Vec<u8> },
    Update { key: Vec<u8>, update: Update },
}

/// A value's length and digest, and flags.
type Shown = (u64, u64, u32);
/// A key, with its record unless only keys were asked for.
type Item = (Vec<u8>, Option<Shown>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Record(Option<Shown>),
    Written,
    Deleted(bool),
    Number(u64),
    Unmet,
    Scanned(Vec<Item>),
}

/// With the version, where it is told.
type Answered = (Answer, Option<u64>);

#[derive(Clone, Debug)]
pub struct Scan {
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    reverse: bool,
    keys_only: bool,
    limit: usize,
}

impl Request {
    pub fn key(&self) -> &[u8] {
        match self {
            Request::Get { key } | Request::Put { key, .. } | Request::Delete { key } | Request::Update { key, .. } => {
                key
            }
        }
    }

    pub fn writes(&self) -> bool {
        !matches!(self, Request::Get { .. })
    }

    fn operation(&self, level: Level) -> Operation {
        let key = key(self.key());
        let (expect, kind) = match self {
            Request::Get { .. } => return Operation::Get { key, part: RecordPart::Whole },
            Request::Update { update, .. } => return Operation::Update { key, update: update.clone(), level },
            Request::Delete { .. } => (Expect::Any, ChangeKind::Delete),
            Request::Put { value, flags, expiry, expect, .. } => {
                let value = Bytes::copy_from_slice(value);
                (*expect, ChangeKind::Put { value, flags: *flags, expiry: *expiry })
            }
        };
        Operation::Write { changes: vec![Change { key, expect, kind }], level }
    }

    fn answer(&self, reply: Reply) -> Answered {
        match (self, reply) {
            (_, Reply::Record(None)) => (Answer::Record(None), None),
            (_, Reply::Record(Some(record))) => {
                (Answer::Record(Some(shown(&record.value.to_bytes(), record.flags))), Some(record.version))
            }
            (Request::Delete { .. }, Reply::Done { existed, .. }) => (Answer::Deleted(existed), None),
            (_, Reply::Done { version, .. }) => (Answer::Written, Some(version)),
            (_, Reply::Number { number, version }) => (Answer::Number(number), Some(version)),
            (_, Reply::Unmet(_)) => (Answer::Unmet, None),
            (_, other) => panic!("{self:?} was answered {other:?}"),
        }
    }
}

impl Answer {
    pub fn kind(&self) -> usize {
        match self {
            Answer::Record(_) => 0,
            Answer::Written => 1,
            Answer::Deleted(_) => 2,
            Answer::Number(_) => 3,
            Answer::Unmet => 4,
            Answer::Scanned(_) => 5,
        }
    }
}

impl Scan {
    pub fn draw(random: &mut Random) -> Scan {
        let mut bound = || {
            let key = format!("user:{:02}", random.below(40)).into_bytes();
            match random.below(3) {
                0 => Bound::Unbounded,
                1 => Bound::Included(key),
                _ => Bound::Excluded(key),
            }
        };
        let (from, to) = (bound(), bound());
        let limit = if random.below(3) == 0 { 1 + random.below(20) as usize } else { usize::MAX };
        Scan { from, to, reverse: random.below(2) == 0, keys_only: random.below(2) == 0, limit }
    }
}

/// An open store, by one of its interfaces.
pub struct Subject {
    store: Store,
    by: By,
}

enum By {
    Blocking,
    Futures,
    Session(Box<Session>),
    Memcache { client: Box<Client>, _server: Server },
}

impl Subject {
    pub fn new(store: Store, face: Face) -> Subject {
        let by = match face {
            Face::Blocking => By::Blocking,
            Face::Futures => By::Futures,
            Face::Session => By::Session(Box::new(store.session().expect("a session"))),
            Face::Memcache => {
                let memcache = vec!["127.0.0.1:0".parse().expect("an address")];
                let options = ServerOptions { memcache, threads: 2, ..ServerOptions::default() };
                let server = Server::start(store.clone(), options).expect("a server");
                let client = Client::connect(server.addresses()[0]).expect("a connection");
                By::Memcache { client: Box::new(client), _server: server }
            }
        };
        Subject { store, by }
    }

    /// The store's last holder lets it go; in order or not.
    pub fn end(self, close: bool) {
        drop(self.by);
        if close {
            self.store.close().expect("closed");
        }
    }

    /// All at once, where the interface can.
    pub fn ask(&mut self, requests: &[Request]) -> Vec<Answered> {
        let level = self.store.default_level();
        let operations = requests.iter().map(|request| request.operation(level));
        let replies = match &mut self.by {
            By::Blocking => return blocking(&self.store, requests),
            By::Memcache { client, .. } => return memcache(client, &self.store, requests),
            By::Futures => block_on_all(operations.map(|operation| self.store.execute_async(operation)).collect()),
            By::Session(session) => in_session(session, operations.collect()),
        };
        requests.iter().zip(replies).map(|(request, reply)| request.answer(reply)).collect()
    }

    pub fn scan(&mut self, scan: &Scan) -> Answer {
        let Scan { from, to, reverse, keys_only, limit } = scan;
        if let By::Session(session) = &mut self.by {
            return Answer::Scanned(pages(session, scan));
        }
        let mut options =
            ScanOptions::range::<&[u8]>((from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice)));
        if *reverse {
            options = options.reverse();
        }
        if *keys_only {
            options = options.keys_only();
        }
        let items = self.store.scan(options).take(*limit).map(|item| item.expect("an item"));
        let shown = |record: stratakv::Record| (!keys_only).then(|| shown(&record.to_bytes(), record.flags));
        Answer::Scanned(items.map(|(key, record)| (key.to_vec(), shown(record))).collect())
    }
}

fn key(user: &[u8]) -> Key {
    Key::new(CollectionId::default(), user).expect("a good key")
}

fn shown(value: &[u8], flags: u32) -> Shown {
    (value.len() as u64, digest(value), flags)
}

/// By the calls that most users make.
fn blocking(store: &Store, requests: &[Request]) -> Vec<Answered> {
    if requests.iter().all(|request| !request.writes()) {
        let keys: Vec<&[u8]> = requests.iter().map(Request::key).collect();
        let records = store.multi_get(&keys).expect("a multi_get").into_iter();
        return records.map(record_answer).collect();
    }
    let ask = |request: &Request| match request {
        Request::Get { key } => record_answer(store.get(key).expect("a get")),
        Request::Delete { key } => (Answer::Deleted(store.delete(key).expect("a delete")), None),
        Request::Update { key, update } => {
            let (key, level) = (store.key(key).expect("a key"), store.default_level());
            request.answer(store.execute(Operation::Update { key, update: update.clone(), level }))
        }
        Request::Put { key, value, flags, expiry, expect } => {
            let options = PutOptions::new().flags(*flags).expiry(*expiry).expect(*expect);
            match store.put_with(key, value, &options).expect("a put") {
                PutOutcome::Written { version } => (Answer::Written, Some(version)),
                PutOutcome::Unmet(_) => (Answer::Unmet, None),
            }
        }
    };
    requests.iter().map(ask).collect()
}

fn record_answer(record: Option<stratakv::Record>) -> Answered {
    match record {
        None => (Answer::Record(None), None),
        Some(record) => (Answer::Record(Some(shown(&record.to_bytes(), record.flags))), Some(record.version)),
    }
}

fn in_session(session: &mut Session, operations: Vec<Operation>) -> Vec<Reply> {
    let tickets: Vec<u64> = operations.into_iter().map(|operation| session.submit(operation)).collect();
    let mut replies = std::collections::HashMap::new();
    while session.in_flight() > 0 {
        replies.extend(session.poll(1).expect("polled"));
    }
    tickets.iter().map(|ticket| replies.remove(ticket).expect("each is answered")).collect()
}

/// A scan page by page.
fn pages(session: &mut Session, scan: &Scan) -> Vec<Item> {
    let end = |bound: &Bound<Vec<u8>>, unbounded| match bound {
        Bound::Unbounded => unbounded,
        Bound::Included(user) => Bound::Included(key(user)),
        Bound::Excluded(user) => Bound::Excluded(key(user)),
    };
    let mut request = PageRequest {
        from: end(&scan.from, Bound::Included(Key::bound(CollectionId(0), b""))),
        to: end(&scan.to, Bound::Excluded(Key::bound(CollectionId(1), b""))),
        reverse: scan.reverse,
        keys_only: scan.keys_only,
        items_max: 17,
        bytes_max: 1 << 20,
        at: None,
    };
    let mut found = Vec::new();
    loop {
        let reply = in_session(session, vec![Operation::Page(request.clone().into())]).remove(0);
        let Reply::Page { items, next } = reply else { panic!("a page was answered {reply:?}") };
        found.extend(items.into_iter().map(|item| {
            let record = item.record.map(|record| shown(&record.value.to_bytes(), record.flags));
            (item.key.user().to_vec(), record)
        }));
        match next {
            Some(next) if found.len() < scan.limit => match scan.reverse {
                true => request.to = next,
                false => request.from = next,
            },
            _ => {
                found.truncate(scan.limit);
                return found;
            }
        }
    }
}

/// Pipelined; what memcache cannot say goes to the store itself, with nothing else in flight.
fn memcache(client: &mut Client, store: &Store, requests: &[Request]) -> Vec<Answered> {
    let commands: Vec<Option<Vec<u8>>> = requests.iter().map(command).collect();
    client.send(&commands.iter().flatten().flatten().copied().collect::<Vec<u8>>()).expect("sent");
    let mut answers: Vec<Option<Answered>> = requests
        .iter()
        .zip(&commands)
        .map(|(request, command)| command.as_ref().map(|_| memcache_answer(client, request)))
        .collect();
    for (request, answer) in requests.iter().zip(&mut answers) {
        if answer.is_none() {
            *answer = blocking(store, std::slice::from_ref(request)).pop();
        }
    }
    answers.into_iter().flatten().collect()
}

fn command(request: &Request) -> Option<Vec<u8>> {
    let name = String::from_utf8(request.key().to_vec()).expect("keys are text");
    let (verb, value, flags, expiry, version) = match request {
        Request::Get { .. } => return Some(format!("gets {name}\r\n").into_bytes()),
        Request::Delete { .. } => return Some(format!("delete {name}\r\n").into_bytes()),
        Request::Update { update: Update::Increment(by), .. } => {
            return Some(format!("incr {name} {by}\r\n").into_bytes());
        }
        Request::Update { update: Update::Touch(at), .. } => {
            return Some(format!("gats {} {name}\r\n", at.seconds()).into_bytes());
        }
        Request::Update { update: Update::Append(value), .. } => ("append", &value[..], 0, Expiry::NEVER, None),
        Request::Update { .. } => return None,
        Request::Put { value, flags, expiry, expect, .. } => match expect {
            Expect::Any => ("set", &value[..], *flags, *expiry, None),
            Expect::Absent => ("add", &value[..], *flags, *expiry, None),
            Expect::Present => ("replace", &value[..], *flags, *expiry, None),
            Expect::Version(version) => ("cas", &value[..], *flags, *expiry, Some(*version)),
        },
    };
    let version = version.map(|version| format!(" {version}")).unwrap_or_default();
    let mut bytes = format!("{verb} {name} {flags} {} {}{version}\r\n", expiry.seconds(), value.len()).into_bytes();
    bytes.extend_from_slice(value);
    bytes.extend_from_slice(b"\r\n");
    Some(bytes)
}

fn memcache_answer(client: &mut Client, request: &Request) -> Answered {
    if matches!(request, Request::Get { .. } | Request::Update { update: Update::Touch(_), .. }) {
        return match client.hits().expect("answered").pop() {
            Some(hit) => (Answer::Record(Some(shown(&hit.value, hit.flags))), hit.cas),
            None => (Answer::Record(None), None),
        };
    }
    let line = client.line().expect("answered");
    let answer = match (line.as_str(), request) {
        ("STORED", _) => Answer::Written,
        ("DELETED", _) => Answer::Deleted(true),
        ("NOT_FOUND", Request::Delete { .. }) => Answer::Deleted(false),
        ("NOT_STORED" | "EXISTS" | "NOT_FOUND", _) => Answer::Unmet,
        (line, Request::Update { .. }) if line.starts_with("CLIENT_ERROR cannot increment") => Answer::Unmet,
        (line, Request::Update { .. }) => Answer::Number(line.parse().expect("a number")),
        _ => panic!("{request:?} was answered `{line}`"),
    };
    (answer, None)
}
