//! `stratakv health`: asks a server's admin address whether it serves, for supervisors of
//! containers that have no HTTP client.

use std::io::{self, Write};
use std::net::ToSocketAddrs;
use std::time::Duration;

use clap::Args;
use stratakv_base::quantity::parse_duration;

use crate::Output;
use crate::admin_http::{self, AdminRequest};
use crate::failure::Failure;

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Most header lines of an answer.
const HEADERS_MAX: usize = 32;

/// Ask a running server whether it serves clients; exit code 0 if it does
#[derive(Args)]
#[command(after_help = "Examples:\n  stratakv health
  stratakv health 127.0.0.1:9101 --live

The server needs --admin. Exit code 1: it does not answer, is opening its store or ending, or its \
store takes no writes; the message says which.")]
pub(crate) struct Arguments {
    /// The server's --admin address
    #[arg(value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9101")]
    admin: String,
    /// Ask only whether the process lives (/healthz): it may still be opening its store
    #[arg(long)]
    live: bool,
    /// How long the whole answer may take
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5s")]
    timeout: Duration,
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let path = if arguments.live { "/healthz" } else { "/readyz" };
    let admin = &arguments.admin;
    let answer = ask(admin, path, arguments.timeout).map_err(|error| {
        Failure::failed(format!("{admin} does not answer: {error}; does `stratakv serve --admin {admin}` run there?"))
    })?;
    let answer = parse(&answer).ok_or_else(|| {
        Failure::failed(format!("{admin} does not answer in HTTP: name the address of --admin, not that of --memcache"))
    })?;
    match answer.status {
        200 => writeln!(output, "{}", answer.text).map_err(Failure::output),
        status => Err(Failure::failed(format!("{admin} is not ready ({status}): {}", answer.text))),
    }
}

/// What came for a request of `path`, headers and all.
fn ask(admin: &str, path: &str, timeout: Duration) -> io::Result<Vec<u8>> {
    let request = AdminRequest { host: "localhost", path, timeout, answer_bytes_max: ANSWER_BYTES_MAX };
    admin_http::ask(admin.to_socket_addrs()?, &request)
}

/// An answer: its status, and the first line of its body, without what a terminal would obey.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    text: String,
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) = response.parse(bytes).ok()? else { return None };
    let body = String::from_utf8_lossy(bytes.get(head..)?);
    let text = body.lines().next().unwrap_or_default().chars().filter(|one| !one.is_control()).take(500).collect();
    Some(Answer { status: response.code?, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_a_status_and_a_line() {
        let parsed = |text: &str| parse(text.as_bytes()).map(|answer| (answer.status, answer.text));
        let head = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 8\r\n\r\n";
        assert_eq!(parsed(&format!("{head}opening\n")), Some((503, "opening".into())));
        assert_eq!(parsed("HTTP/1.1 200 OK\r\n\r\n"), Some((200, String::new())));
        assert_eq!(parsed("HTTP/1.1 200 OK\r\n\r\n\u{1b}[2Jready\r\nmore"), Some((200, "[2Jready".into())));
        for no_answer in ["", "ERROR\r\n", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 99999 OK\r\n\r\n", "\0\0\0\0"] {
            assert_eq!(parsed(no_answer), None, "{no_answer:?}");
        }
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(parsed(&many), None);
    }
}
