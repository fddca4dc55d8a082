//! A connection to one of the two servers: bytes out, the answers of commands in.
//!
//! Behind each command goes a question that every server answers in the same, unmistakable way (a
//! *fence*): so the answers of commands that were sent together can be told apart, also where one
//! of them is no command at all.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long a server may be silent. Long, since a machine may be busy: it only passes where
/// something is wrong.
const SILENCE: Duration = Duration::from_secs(20);

/// A key that no command ever stores.
const FENCE_KEY: &str = "~fence~";

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The answer of the question behind it came.
    Fenced,
    /// That answer is missing, and later ones came: the question was taken for something else.
    FenceLost,
    /// The server hung up.
    Closed,
    /// Nothing more came.
    Silent,
}

/// What a command was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// As it came.
    pub bytes: Vec<u8>,
    /// How it ended.
    pub end: End,
}

/// See the module.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    fences: u32,
    over: bool,
}

impl Wire {
    /// Connects.
    ///
    /// # Errors
    /// As connect(2).
    pub fn connect(address: SocketAddr) -> Result<Wire, String> {
        let connected = TcpStream::connect(address).and_then(|stream| {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(SILENCE))?;
            stream.set_write_timeout(Some(SILENCE))?;
            Ok(stream)
        });
        let stream = connected.map_err(|error| format!("cannot connect to {address}: {error}"))?;
        Ok(Wire { stream, fences: 0, over: false })
    }

    /// Whether nothing more can be asked.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Sends commands together; their answers. `closes`: the last one is followed by the end of the
    /// connection, and not by a question.
    pub fn ask(&mut self, commands: &[Vec<u8>], binary: bool, closes: bool) -> Vec<Answer> {
        let mut sent = Vec::new();
        let mut fences = Vec::new();
        for (number, command) in commands.iter().enumerate() {
            sent.extend_from_slice(command);
            if !closes || number + 1 < commands.len() {
                self.fences += 1;
                let (question, answer) = fence(self.fences, binary);
                sent.extend_from_slice(&question);
                fences.push(answer);
            }
        }
        // Who hangs up meanwhile may not take all of it; what it said comes out below.
        let _ = self.stream.write_all(&sent);
        let (received, end) = self.receive(if closes { None } else { fences.last() });
        self.over |= end != End::Fenced;
        split(&received, &fences, commands.len(), end)
    }

    /// Reads up to the last question's answer, or the end of the connection.
    fn receive(&mut self, last: Option<&Vec<u8>>) -> (Vec<u8>, End) {
        let mut received = Vec::new();
        let mut room = vec![0; 64 << 10];
        loop {
            if last.is_some_and(|last| received.ends_with(last)) {
                return (received, End::Fenced);
            }
            match self.stream.read(&mut room) {
                Ok(0) => return (received, End::Closed),
                Ok(count) => received.extend_from_slice(&room[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return (received, End::Silent);
                }
                Err(_) => return (received, End::Closed),
            }
        }
    }
}

/// A question and its answer.
fn fence(number: u32, binary: bool) -> (Vec<u8>, Vec<u8>) {
    if binary {
        let mut question = [0; 24];
        (question[0], question[1]) = (0x80, 0x0A);
        question[12..16].copy_from_slice(&(0xFE0C_0000 + number).to_be_bytes());
        let mut answer = question;
        answer[0] = 0x81;
        return (question.to_vec(), answer.to_vec());
    }
    let question = format!("mg {FENCE_KEY} O{number}-fence k\r\n");
    (question.into_bytes(), format!("EN O{number}-fence k{FENCE_KEY}\r\n").into_bytes())
}

/// What came, cut at the answers to questions.
fn split(received: &[u8], fences: &[Vec<u8>], count: usize, end: End) -> Vec<Answer> {
    let mut rest = received;
    let mut answers = Vec::with_capacity(count);
    for fence in fences {
        match rest.windows(fence.len()).position(|window| window == fence) {
            Some(at) => {
                answers.push(Answer { bytes: rest[..at].to_vec(), end: End::Fenced });
                rest = &rest[at + fence.len()..];
            }
            None => {
                answers.push(Answer { bytes: Vec::new(), end: if end == End::Fenced { End::FenceLost } else { end } })
            }
        }
    }
    if answers.len() < count {
        answers.push(Answer { bytes: std::mem::take(&mut rest).to_vec(), end });
    }
    // What came before the connection ended belongs to the first command whose question was not
    // answered.
    if !rest.is_empty()
        && let Some(first) = answers.iter_mut().find(|answer| answer.end != End::Fenced)
    {
        first.bytes = rest.to_vec();
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fenced(bytes: &[u8]) -> Answer {
        Answer { bytes: bytes.to_vec(), end: End::Fenced }
    }

    #[test]
    fn answers_are_told_apart_whatever_became_of_the_questions() {
        let fences: Vec<Vec<u8>> = (1..4).map(|number| fence(number, false).1).collect();
        let all = [&b"A\r\n"[..], &fences[0][..], b"", &fences[1], b"B\r\n", &fences[2]].concat();
        assert_eq!(split(&all, &fences, 3, End::Fenced), [fenced(b"A\r\n"), fenced(b""), fenced(b"B\r\n")]);
        let eaten = [&b"A\r\n"[..], &fences[0][..], b"ERROR\r\n", &fences[2]].concat();
        let lost = Answer { bytes: Vec::new(), end: End::FenceLost };
        assert_eq!(split(&eaten, &fences, 3, End::Fenced), [fenced(b"A\r\n"), lost, fenced(b"ERROR\r\n")]);
        let closed = [&b"A\r\n"[..], &fences[0][..], b"bye\r\n"].concat();
        let end = |bytes: &[u8]| Answer { bytes: bytes.to_vec(), end: End::Closed };
        assert_eq!(split(&closed, &fences, 3, End::Closed), [fenced(b"A\r\n"), end(b"bye\r\n"), end(b"")]);
        assert_eq!(split(&closed, &fences[..1], 2, End::Closed), [fenced(b"A\r\n"), end(b"bye\r\n")]);
    }

    #[test]
    fn a_binary_question_is_a_noop() {
        let (question, answer) = fence(7, true);
        assert_eq!((question.len(), question[0], answer[0], answer[15]), (24, 0x80, 0x81, 7));
    }
}
