//! The library in a process of its own, so that it can be killed: commands and answers in frames
//! over a socket.
//!
//! The connection's number decides which of the library's interfaces carries its commands.

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use bytes::Bytes;
use stratakv::raw::{Change, ChangeKind, Operation, RecordPart, Reply};
use stratakv::{CollectionId, EngineError, Expect, Expiry, Key, Level, Store};

use super::{Answer, Client, Command, Condition, Kind, ReadRecord, invalid};
use crate::executor::block_on_all;

/// The longest key, value or text in a frame.
const FIELD_BYTES_MAX: u32 = 64 << 20;
/// Commands of one frame.
const COMMANDS_MAX: u32 = 1 << 16;

/// The client's end.
#[derive(Debug)]
pub struct Connection {
    reader: BufReader<TcpStream>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// As connect(2).
    pub fn connect(address: SocketAddr) -> io::Result<Connection> {
        super::stream(address).map(|reader| Connection { reader })
    }
}

impl Client for Connection {
    fn submit(&mut self, commands: &[Command]) -> io::Result<()> {
        let mut frame = (commands.len() as u32).to_le_bytes().to_vec();
        commands.iter().for_each(|command| put_command(&mut frame, command));
        self.reader.get_mut().write_all(&frame)
    }

    fn answer(&mut self, _: &Command) -> io::Result<Answer> {
        get_answer(&mut self.reader)
    }
}

/// Serves `store` on `listener` for ever, a thread for each connection: commands are carried out by
/// blocking calls, futures and sessions in turn.
///
/// # Errors
/// As accept(2).
pub fn serve(store: &Store, listener: &TcpListener) -> io::Result<()> {
    for number in 0.. {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let store = store.clone();
        // A connection that ends, ends its thread; there is nobody to tell.
        std::thread::spawn(move || _ = converse(&store, &stream, number));
    }
    Ok(())
}

fn converse(store: &Store, stream: &TcpStream, number: u64) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(64 << 10, stream);
    loop {
        let count = number_up_to(&mut reader, COMMANDS_MAX)?;
        let commands = (0..count).map(|_| get_command(&mut reader)).collect::<io::Result<Vec<_>>>()?;
        let is_delete: Vec<bool> = commands.iter().map(|command| command.kind == Kind::Delete).collect();
        let operations = commands.into_iter().map(|command| operation(command, store.default_level()));
        let operations = operations.collect::<io::Result<Vec<_>>>()?;
        let answer = |(reply, is_delete)| {
            let mut frame = Vec::new();
            put_answer(&mut frame, &answer_of(reply, is_delete));
            (&mut &*stream).write_all(&frame)
        };
        match number % 3 {
            // The first is acknowledged before the second begins.
            0 => {
                let replies = operations.into_iter().map(|operation| store.execute(operation));
                replies.zip(is_delete).try_for_each(answer)?;
            }
            1 => {
                let futures = operations.into_iter().map(|operation| store.execute_async(operation)).collect();
                block_on_all(futures).into_iter().zip(is_delete).try_for_each(answer)?;
            }
            _ => by_session(store, operations)?.into_iter().zip(is_delete).try_for_each(answer)?,
        }
    }
}

/// A session for each batch: an idle one would have to be polled.
fn by_session(store: &Store, operations: Vec<Operation>) -> io::Result<Vec<Reply>> {
    let mut session = store.session().map_err(io::Error::other)?;
    let tickets: Vec<u64> = operations.into_iter().map(|operation| session.submit(operation)).collect();
    let mut replies = HashMap::new();
    while session.in_flight() > 0 {
        replies.extend(session.poll(1).map_err(io::Error::other)?);
    }
    let reply = |ticket| replies.remove(&ticket).ok_or_else(|| invalid(format!("ticket {ticket} has no reply")));
    tickets.into_iter().map(reply).collect()
}

fn operation(command: Command, level: Level) -> io::Result<Operation> {
    let key = Key::new(CollectionId::default(), &command.key).map_err(io::Error::other)?;
    let (expect, kind) = match command.kind {
        Kind::Get => return Ok(Operation::Get { key, part: RecordPart::Whole }),
        Kind::Delete => (Expect::Any, ChangeKind::Delete),
        Kind::Put { value, expiry, condition } => {
            let expect = match condition {
                Condition::None => Expect::Any,
                Condition::Absent => Expect::Absent,
                Condition::Version(version) => Expect::Version(version),
            };
            (expect, ChangeKind::Put { value: Bytes::from(value), flags: 0, expiry: Expiry::at_second(expiry.into()) })
        }
    };
    Ok(Operation::Write { changes: vec![Change { key, expect, kind }], level })
}

fn answer_of(reply: Reply, is_delete: bool) -> Answer {
    match reply {
        Reply::Record(record) => {
            Answer::Record(record.map(|r| ReadRecord { value: r.value.to_bytes().to_vec(), version: r.version }))
        }
        Reply::Done { existed, .. } if is_delete => Answer::Deleted(existed),
        Reply::Done { version, .. } => Answer::Written(Some(version)),
        Reply::Unmet(_) => Answer::Unmet,
        Reply::Failed(error @ EngineError::Full(_)) => Answer::Full(error.to_string()),
        Reply::Failed(error) => Answer::Failed(error.to_string()),
        other => Answer::Failed(format!("{other:?}")),
    }
}

fn put_field(frame: &mut Vec<u8>, bytes: &[u8]) {
    frame.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    frame.extend_from_slice(bytes);
}

fn get_field(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let len = number_up_to(reader, FIELD_BYTES_MAX)?;
    let mut bytes = vec![0; len as usize];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn number_up_to(reader: &mut impl Read, max: u32) -> io::Result<u32> {
    let mut bytes = [0; 4];
    reader.read_exact(&mut bytes)?;
    match u32::from_le_bytes(bytes) {
        number if number <= max => Ok(number),
        number => Err(invalid(format!("{number}, at most {max} was expected"))),
    }
}

/// What kind of command or answer, with a number of each width.
fn put_head(frame: &mut Vec<u8>, kind: u8, short: u32, long: u64) {
    frame.push(kind);
    frame.extend_from_slice(&short.to_le_bytes());
    frame.extend_from_slice(&long.to_le_bytes());
}

fn get_head(reader: &mut impl Read) -> io::Result<(u8, u32, u64)> {
    let mut kind = [0; 1];
    reader.read_exact(&mut kind)?;
    let short = number_up_to(reader, u32::MAX)?;
    let mut long = [0; 8];
    reader.read_exact(&mut long)?;
    Ok((kind[0], short, u64::from_le_bytes(long)))
}

fn put_command(frame: &mut Vec<u8>, Command { key, kind }: &Command) {
    match kind {
        Kind::Get => put_head(frame, 0, 0, 0),
        Kind::Delete => put_head(frame, 1, 0, 0),
        Kind::Put { expiry, condition: Condition::None, .. } => put_head(frame, 2, *expiry, 0),
        Kind::Put { expiry, condition: Condition::Absent, .. } => put_head(frame, 3, *expiry, 0),
        Kind::Put { expiry, condition: Condition::Version(version), .. } => put_head(frame, 4, *expiry, *version),
    }
    put_field(frame, key);
    if let Kind::Put { value, .. } = kind {
        put_field(frame, value);
    }
}

fn get_command(reader: &mut impl Read) -> io::Result<Command> {
    let (kind, expiry, version) = get_head(reader)?;
    let key = get_field(reader)?;
    let condition = match kind {
        0 => return Ok(Command { key, kind: Kind::Get }),
        1 => return Ok(Command { key, kind: Kind::Delete }),
        2 => Condition::None,
        3 => Condition::Absent,
        4 => Condition::Version(version),
        other => return Err(invalid(format!("{other} is no command"))),
    };
    Ok(Command { key, kind: Kind::Put { value: get_field(reader)?, expiry, condition } })
}

fn put_answer(frame: &mut Vec<u8>, answer: &Answer) {
    match answer {
        Answer::Record(None) => put_head(frame, 0, 0, 0),
        Answer::Record(Some(ReadRecord { version, .. })) => put_head(frame, 1, 0, *version),
        Answer::Written(None) => put_head(frame, 2, 0, 0),
        Answer::Written(Some(version)) => put_head(frame, 2, 1, *version),
        Answer::Deleted(existed) => put_head(frame, 3, u32::from(*existed), 0),
        Answer::Unmet => put_head(frame, 4, 0, 0),
        Answer::Full(_) => put_head(frame, 5, 0, 0),
        Answer::Failed(_) => put_head(frame, 6, 0, 0),
    }
    match answer {
        Answer::Record(Some(ReadRecord { value: bytes, .. })) => put_field(frame, bytes),
        Answer::Full(text) | Answer::Failed(text) => put_field(frame, text.as_bytes()),
        _ => {}
    }
}

fn get_answer(reader: &mut impl Read) -> io::Result<Answer> {
    let (kind, short, version) = get_head(reader)?;
    Ok(match kind {
        0 => Answer::Record(None),
        1 => Answer::Record(Some(ReadRecord { value: get_field(reader)?, version })),
        2 => Answer::Written((short == 1).then_some(version)),
        3 => Answer::Deleted(short == 1),
        4 => Answer::Unmet,
        5 => Answer::Full(String::from_utf8_lossy(&get_field(reader)?).into_owned()),
        6 => Answer::Failed(String::from_utf8_lossy(&get_field(reader)?).into_owned()),
        other => return Err(invalid(format!("{other} is no answer"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_answers_come_as_they_went() {
        let put = |condition| Kind::Put { value: vec![7; 300], expiry: 9, condition };
        let kinds =
            [Kind::Get, Kind::Delete, put(Condition::None), put(Condition::Absent), put(Condition::Version(u64::MAX))];
        for kind in kinds {
            let (command, mut frame) = (Command { key: b"key".to_vec(), kind }, Vec::new());
            put_command(&mut frame, &command);
            assert_eq!(get_command(&mut &frame[..]).expect("whole"), command);
            assert!(get_command(&mut &frame[..frame.len() - 1]).is_err(), "cut");
        }
        let found = ReadRecord { value: vec![1, 2], version: 3 };
        let answers = [
            Answer::Record(None),
            Answer::Record(Some(found)),
            Answer::Written(None),
            Answer::Written(Some(4)),
            Answer::Deleted(true),
            Answer::Deleted(false),
            Answer::Unmet,
            Answer::Full("full".into()),
            Answer::Failed("no".into()),
        ];
        for answer in answers {
            let mut frame = Vec::new();
            put_answer(&mut frame, &answer);
            assert_eq!(get_answer(&mut &frame[..]).expect("whole"), answer);
        }
    }
}
