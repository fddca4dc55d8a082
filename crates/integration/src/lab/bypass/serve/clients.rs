//! Clients of a server that may be killed under them: each thread has a few connections, with
//! commands in flight on all, and writes a witness sector before it sends anything else.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use stratakv_device::{Block, Class, Pool};

use super::super::super::guest::{open_direct, text};
use super::super::super::workload::{self, Known, name};
use super::script::{self, ClientStep, DEPTH};

/// A connection looks so often whether its server is still the same.
const LOOK: Duration = Duration::from_millis(100);
/// A reply, or a server, that takes longer is a finding.
const PATIENCE: Duration = Duration::from_secs(120);
/// A get of a longer value is the last command of its batch: a server that cannot send it all does
/// not read on, and the client would not either.
const LONG: usize = 8 << 10;

/// What clients and those who disturb them tell one another.
#[derive(Debug, Default)]
pub(super) struct Stage {
    /// Servers that were ended: who is connected to an older one connects anew.
    pub(super) ended: AtomicU32,
    /// The number of the server that takes clients, from 1 on; 0 for none.
    pub(super) up: AtomicU32,
    /// Steps acknowledged so far.
    pub(super) acknowledged: AtomicU32,
    /// Replies that say that the server failed.
    pub(super) errors: AtomicU32,
    /// A thread has given up.
    pub(super) failed: AtomicBool,
}

impl Stage {
    /// The server that now takes clients, when there is one.
    fn wait_for_server(&self) -> Result<u32, String> {
        let begin = Instant::now();
        loop {
            let up = self.up.load(Ordering::Acquire);
            if up == self.ended.load(Ordering::Acquire) + 1 {
                return Ok(up);
            }
            if begin.elapsed() > PATIENCE || self.failed.load(Ordering::Acquire) {
                return Err("no server takes clients".into());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn is_up(&self, number: u32) -> bool {
        self.ended.load(Ordering::Acquire) + 1 == number
    }
}

/// Of which seed, how far, where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Script<'a> {
    pub(super) seed: u64,
    pub(super) steps: u32,
    pub(super) server: SocketAddr,
    /// The device that witness sectors go to.
    pub(super) witness: &'a str,
    /// The store may forget, but not remember wrongly: engine `tier`.
    pub(super) may_forget: bool,
}

/// What one thread did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub(super) acknowledged: u32,
    pub(super) gets: u32,
    pub(super) connections: u32,
}

/// One thread: its connections, one for each of its lanes.
pub(super) struct Clients<'a> {
    script: Script<'a>,
    stage: &'a Stage,
    number: u32,
    device: File,
    sector: Block,
    acknowledged: Vec<u32>,
    /// What each lane's keys have, as far as the lane has come.
    known: Vec<std::collections::BTreeMap<u64, Known>>,
    connections: Vec<Option<Connection>>,
    done: Done,
}

/// Why a batch was not answered whole.
pub(super) enum Broken {
    /// The server has ended, or said that it failed: the lane goes on with the next one.
    Server,
    /// Not as it should be.
    Finding(String),
}

impl<'a> Clients<'a> {
    pub(super) fn new(number: u32, script: Script<'a>, stage: &'a Stage) -> Result<Clients<'a>, String> {
        let sector = Pool::new(1 << 20).take(Class::Page).ok_or("no memory for a witness sector")?;
        let lanes = workload::lanes_of(number).len();
        Ok(Clients {
            script,
            stage,
            number,
            device: open_direct(script.witness)?,
            sector,
            acknowledged: vec![0; lanes],
            known: vec![Default::default(); lanes],
            connections: (0..lanes).map(|_| None).collect(),
            done: Done::default(),
        })
    }

    /// All steps of all lanes, then every key once more.
    pub(super) fn run(mut self) -> Result<Done, String> {
        let outcome = self.work();
        if outcome.is_err() {
            self.stage.failed.store(true, Ordering::Release);
        }
        outcome.map(|()| Done { acknowledged: self.acknowledged.iter().sum(), ..self.done })
    }

    fn work(&mut self) -> Result<(), String> {
        while self.acknowledged.iter().any(|count| *count < self.script.steps) {
            let batches: Vec<Vec<ClientStep>> = (0..self.acknowledged.len()).map(|lane| self.batch(lane)).collect();
            for (lane, batch) in batches.iter().enumerate().filter(|(_, batch)| !batch.is_empty()) {
                self.connect(lane)?;
                let commands = self.commands(lane, batch);
                self.use_connection(lane, |connection, stage| connection.send(&commands, stage));
            }
            let mut news = 0;
            for (lane, batch) in batches.iter().enumerate() {
                news += self.take_replies(lane, batch)?;
            }
            if news > 0 {
                self.witness()?;
                self.stage.acknowledged.fetch_add(news, Ordering::AcqRel);
            }
        }
        (0..self.acknowledged.len()).try_for_each(|lane| self.read_all(lane))
    }

    /// Before anything else is sent by this thread, the device learns what it has been told.
    fn witness(&mut self) -> Result<(), String> {
        let sector = self.sector.get_mut(..512).ok_or("a block is longer than a sector")?;
        workload::encode_witness(self.number, &self.acknowledged, sector);
        self.device.write_all_at(sector, workload::witness_at(self.number)).map_err(text("write a witness sector"))
    }

    fn lane(&self, lane: usize) -> u32 {
        workload::lanes_of(self.number).start + lane as u32
    }

    /// The steps that are sent together.
    fn batch(&self, lane: usize) -> Vec<ClientStep> {
        let first = self.acknowledged[lane];
        let last = self.script.steps.min(first + DEPTH);
        let mut batch = Vec::new();
        for number in first..last {
            let step = script::step(self.script.seed, self.lane(lane), number);
            batch.push(step);
            let ClientStep::Get { key } = step else { continue };
            let written = self.known[lane].get(&key).and_then(|known| known.acknowledged);
            let len = written.and_then(|sequence| script::value_of(self.script.seed, key, sequence));
            if len.is_some_and(|value| value.len() > LONG) || batch.len() > 1 {
                break;
            }
        }
        batch
    }

    fn commands(&self, lane: usize, batch: &[ClientStep]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, step) in (self.acknowledged[lane]..).zip(batch) {
            match step {
                ClientStep::Set { key, .. } => {
                    let value = script::value(*step, u64::from(number) + 1).unwrap_or_default();
                    bytes.extend_from_slice(&crate::memcache::set_command(name(*key).as_bytes(), 0, &value));
                }
                ClientStep::Delete { key } => bytes.extend_from_slice(format!("delete {}\r\n", name(*key)).as_bytes()),
                ClientStep::Get { key } => bytes.extend_from_slice(format!("get {}\r\n", name(*key)).as_bytes()),
            }
        }
        bytes
    }

    fn connect(&mut self, lane: usize) -> Result<(), String> {
        if self.connections[lane].is_none() {
            self.connections[lane] = Some(Connection::open(self.script.server, self.stage)?);
            self.done.connections += 1;
        }
        Ok(())
    }

    /// What breaks is dropped.
    fn use_connection(&mut self, lane: usize, send: impl FnOnce(&mut Connection, &Stage) -> Result<(), Broken>) {
        if let Some(connection) = &mut self.connections[lane]
            && send(connection, self.stage).is_err()
        {
            self.connections[lane] = None;
        }
    }

    /// Counts the steps that were acknowledged, up to the first that was not.
    fn take_replies(&mut self, lane: usize, batch: &[ClientStep]) -> Result<u32, String> {
        let mut news = 0;
        for step in batch {
            let Some(mut connection) = self.connections[lane].take() else { break };
            let number = self.acknowledged[lane];
            match self.take_reply(&mut connection, lane, *step, number) {
                Ok(()) => {
                    self.connections[lane] = Some(connection);
                    self.acknowledged[lane] += 1;
                    news += 1;
                }
                Err(Broken::Server) => break,
                Err(Broken::Finding(why)) => {
                    return Err(format!("lane {}, step {number}, {step:?}: {why}", self.lane(lane)));
                }
            }
        }
        let first = self.acknowledged[lane];
        for (number, step) in (first..).zip(batch.get(news as usize..).unwrap_or_default()) {
            self.may_have_happened(lane, *step, number);
        }
        Ok(news)
    }

    /// A step was sent, and its answer is not known.
    fn may_have_happened(&mut self, lane: usize, step: ClientStep, number: u32) {
        let (key, found) = match step {
            ClientStep::Set { key, .. } => (key, Some(u64::from(number) + 1)),
            ClientStep::Delete { key } => (key, None),
            ClientStep::Get { .. } => return,
        };
        self.known[lane].entry(key).or_default().in_flight.push(found);
    }

    fn take_reply(
        &mut self,
        connection: &mut Connection,
        lane: usize,
        step: ClientStep,
        number: u32,
    ) -> Result<(), Broken> {
        if let ClientStep::Get { key } = step {
            let found = connection.value(key, self.stage)?;
            self.done.gets += 1;
            return self.compare(lane, key, found.as_deref());
        }
        let line = connection.line(self.stage)?;
        let (key, found) = match (line.as_str(), step) {
            ("STORED", ClientStep::Set { key, .. }) => (key, Some(u64::from(number) + 1)),
            ("DELETED" | "NOT_FOUND", ClientStep::Delete { key }) => (key, None),
            (line, _) => return Err(connection.refused(line, self.stage)),
        };
        self.known[lane].insert(key, Known { acknowledged: found, in_flight: Vec::new() });
        Ok(())
    }

    fn compare(&self, lane: usize, key: u64, found: Option<&[u8]>) -> Result<(), Broken> {
        let known = self.known[lane].get(&key).cloned().unwrap_or_default();
        if self.script.may_forget && found.is_none() {
            return Ok(());
        }
        script::compare(self.script.seed, key, &known, found).map_err(Broken::Finding)
    }

    /// Every key that a lane has written.
    fn read_all(&mut self, lane: usize) -> Result<(), String> {
        let keys: Vec<u64> = self.known[lane].keys().copied().collect();
        for key in keys {
            // Another thread may not be done, and its server be ended.
            while !self.read_one(lane, key)? {}
        }
        Ok(())
    }

    /// False if the server ended.
    fn read_one(&mut self, lane: usize, key: u64) -> Result<bool, String> {
        self.connect(lane)?;
        let mut connection = self.connections[lane].take().ok_or("no connection")?;
        let command = format!("get {}\r\n", name(key));
        let sent = connection.send(command.as_bytes(), self.stage);
        let read = sent.and_then(|()| connection.value(key, self.stage));
        match read.and_then(|found| self.compare(lane, key, found.as_deref())) {
            Ok(()) => self.connections[lane] = Some(connection),
            Err(Broken::Finding(why)) => return Err(format!("at the end: {why}")),
            Err(Broken::Server) => return Ok(false),
        }
        self.done.gets += 1;
        Ok(true)
    }
}

/// One connection to one server.
pub(super) struct Connection {
    stream: TcpStream,
    /// Which server.
    server: u32,
    received: Vec<u8>,
}

impl Connection {
    /// To the server that takes clients, when there is one.
    pub(super) fn open(address: SocketAddr, stage: &Stage) -> Result<Connection, String> {
        let begin = Instant::now();
        loop {
            let server = stage.wait_for_server()?;
            let stream = TcpStream::connect_timeout(&address, Duration::from_secs(4));
            let ready = stream.and_then(|stream| {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(LOOK))?;
                stream.set_write_timeout(Some(LOOK))?;
                Ok(stream)
            });
            match ready {
                Ok(stream) => return Ok(Connection { stream, server, received: Vec::new() }),
                Err(error) if begin.elapsed() > PATIENCE => return Err(format!("cannot connect: {error}")),
                // An interface is down, or the server has ended.
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    pub(super) fn send(&mut self, mut bytes: &[u8], stage: &Stage) -> Result<(), Broken> {
        while !bytes.is_empty() {
            let begin = Instant::now();
            let sent = self.retry(begin, stage, |stream| stream.write(bytes))?;
            bytes = bytes.get(sent..).unwrap_or_default();
        }
        Ok(())
    }

    /// Repeats what timed out, while the server is the same.
    fn retry(
        &mut self,
        begin: Instant,
        stage: &Stage,
        mut what: impl FnMut(&mut TcpStream) -> io::Result<usize>,
    ) -> Result<usize, Broken> {
        loop {
            match what(&mut self.stream) {
                Ok(count) => return Ok(count),
                Err(error) if [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut].contains(&error.kind()) => {
                    if !stage.is_up(self.server) {
                        return Err(Broken::Server);
                    }
                    if begin.elapsed() > PATIENCE {
                        return Err(Broken::Finding(format!("nothing for {PATIENCE:?}")));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.end(&error.to_string(), stage)),
            }
        }
    }

    /// A connection ends by itself only if its server was ended.
    fn end(&self, how: &str, stage: &Stage) -> Broken {
        // The one who kills tells of it before.
        match stage.is_up(self.server) {
            true => Broken::Finding(format!("the connection ended: {how}")),
            false => Broken::Server,
        }
    }

    fn receive(&mut self, stage: &Stage) -> Result<(), Broken> {
        let mut piece = [0; 16 << 10];
        let count = self.retry(Instant::now(), stage, |stream| stream.read(&mut piece))?;
        if count == 0 {
            return Err(self.end("its end was received", stage));
        }
        self.received.extend_from_slice(piece.get(..count).unwrap_or_default());
        Ok(())
    }

    fn take(&mut self, len: usize, stage: &Stage) -> Result<Vec<u8>, Broken> {
        while self.received.len() < len {
            self.receive(stage)?;
        }
        let rest = self.received.split_off(len);
        Ok(std::mem::replace(&mut self.received, rest))
    }

    /// One line of a reply, without its end.
    pub(super) fn line(&mut self, stage: &Stage) -> Result<String, Broken> {
        loop {
            if let Some(at) = self.received.windows(2).position(|two| two == b"\r\n") {
                let line = self.take(at + 2, stage)?;
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            self.receive(stage)?;
        }
    }

    /// The reply to a get.
    pub(super) fn value(&mut self, key: u64, stage: &Stage) -> Result<Option<Vec<u8>>, Broken> {
        let line = self.line(stage)?;
        if line == "END" {
            return Ok(None);
        }
        let words: Vec<&str> = line.split(' ').collect();
        let ["VALUE", of, "0", len] = words[..] else { return Err(self.refused(&line, stage)) };
        let Some(len) = len.parse::<usize>().ok().filter(|_| of == name(key)) else {
            return Err(Broken::Finding(format!("`{line}` is no answer to a get of {}", name(key))));
        };
        let mut value = self.take(len + 2, stage)?;
        let end = self.line(stage)?;
        if !value.ends_with(b"\r\n") || end != "END" {
            return Err(Broken::Finding(format!("a value of {len} bytes is not ended, or by `{end}`")));
        }
        value.truncate(len);
        Ok(Some(value))
    }

    /// An answer that is not success.
    fn refused(&self, line: &str, stage: &Stage) -> Broken {
        if !line.starts_with("SERVER_ERROR") {
            return Broken::Finding(format!("answered `{line}`"));
        }
        stage.errors.fetch_add(1, Ordering::AcqRel);
        // The lane goes on when the server has been ended.
        while stage.is_up(self.server) && !stage.failed.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(10));
        }
        Broken::Server
    }
}

impl Broken {
    pub(super) fn say(self) -> String {
        match self {
            Broken::Server => "the server ended".into(),
            Broken::Finding(why) => why,
        }
    }
}
