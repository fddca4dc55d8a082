//! As much of HTTP as is needed: one GET or HEAD on a connection, then it is closed.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Bytes of a request: its line and its headers.
const REQUEST_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// How long, and how often, a client that was refused is read from, so that it gets to read why.
const HEAR_OUT: Duration = Duration::from_millis(500);
const HEAR_OUT_READS: usize = 64;

/// The status page, whole: it asks for nothing but /stats.json. `NONCE` stands where the answer's
/// own goes.
const PAGE: &str = include_str!("page.html");

/// What a client wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) host: Option<String>,
    pub(super) head_only: bool,
}

/// The statuses that we have something to say with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    TimedOut,
    Misdirected,
    TooLarge,
    Unavailable,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::BadRequest => "400 Bad Request",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::TimedOut => "408 Request Timeout",
            Status::Misdirected => "421 Misdirected Request",
            Status::TooLarge => "431 Request Header Fields Too Large",
            Status::Unavailable => "503 Service Unavailable",
        }
    }
}

/// What is answered.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: Status,
    kind: &'static str,
    /// What the page may load.
    policy: String,
    body: String,
}

impl Response {
    fn new(status: Status, kind: &'static str, body: String) -> Response {
        Response { status, kind, policy: "default-src 'none'; frame-ancestors 'none'".into(), body }
    }

    pub(super) fn text(status: Status, body: &str) -> Response {
        Response::new(status, "text/plain; charset=utf-8", body.to_owned())
    }

    pub(super) fn json(body: String) -> Response {
        Response::new(Status::Ok, "application/json", body)
    }

    /// In Prometheus' text format.
    pub(super) fn metrics(body: String) -> Response {
        Response::new(Status::Ok, "text/plain; version=0.0.4; charset=utf-8", body)
    }
}

/// The status page. Only the script and the style that came with it are carried out, whatever else
/// might find its way in.
pub(super) fn page() -> Response {
    let mut random = [0; 16];
    if getrandom::fill(&mut random).is_err() {
        return Response::text(Status::Unavailable, "the system gives no random numbers\n");
    }
    let nonce: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let body = PAGE.replace("NONCE", &nonce);
    Response { policy, ..Response::new(Status::Ok, "text/html; charset=utf-8", body) }
}

/// Reads a request within `patience`. `Err` is what to answer instead, or nothing if the client
/// went away.
pub(super) fn read(mut stream: &TcpStream, patience: Duration) -> Result<Asked, Option<Response>> {
    let until = Instant::now() + patience;
    let mut request = Vec::with_capacity(1024);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Some(Response::text(Status::TimedOut, "the request took too long\n")));
        }
        stream.set_read_timeout(Some(left)).map_err(|_| None)?;
        let mut piece = [0; 1024];
        match stream.read(&mut piece) {
            Ok(0) => return Err(None),
            Ok(bytes) => request.extend_from_slice(piece.get(..bytes).unwrap_or_default()),
            // The time is looked at above.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => continue,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Err(None),
        }
        if let Some(asked) = parse(&request).map_err(Some)? {
            return Ok(asked);
        }
        if request.len() > REQUEST_BYTES_MAX {
            return Err(Some(Response::text(Status::TooLarge, "the request is too long\n")));
        }
    }
}

/// `None` if there is more to come.
fn parse(request: &[u8]) -> Result<Option<Asked>, Response> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Response::text(Status::TooLarge, "the request has too many headers\n"));
        }
        Err(error) => return Err(Response::text(Status::BadRequest, &format!("no HTTP request: {error}\n"))),
    }
    let head_only = match parsed.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(Response::text(Status::MethodNotAllowed, "only GET and HEAD are answered here\n")),
    };
    let mut hosts = parsed.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    let host = hosts.next().map(|header| String::from_utf8_lossy(header.value).trim().to_owned());
    if hosts.next().is_some() {
        return Err(Response::text(Status::BadRequest, "the request has more than one Host\n"));
    }
    let target = parsed.path.unwrap_or("/");
    let path = target.split(['?', '#']).next().unwrap_or(target).to_owned();
    Ok(Some(Asked { path, host, head_only }))
}

/// Writes the answer, and says that it was all.
pub(super) fn send(mut stream: &TcpStream, response: &Response, with_body: bool) -> io::Result<()> {
    let Response { status, kind, policy, body } = response;
    let (status_line, bytes) = (status.line(), body.len());
    let allow = if *status == Status::MethodNotAllowed { "Allow: GET, HEAD\r\n" } else { "" };
    let mut whole = format!(
        "HTTP/1.1 {status_line}\r\nContent-Type: {kind}\r\nContent-Length: {bytes}\r\nConnection: close\r\nCache-Control: no-store\r\n\
         Content-Security-Policy: {policy}\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\n{allow}\r\n"
    );
    if with_body {
        whole.push_str(body);
    }
    stream.write_all(whole.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)
}

/// Throws away what a client still sends, for a moment.
pub(super) fn hear_out(mut stream: &TcpStream) {
    let until = Instant::now() + HEAR_OUT;
    let mut piece = [0; 4096];
    for _ in 0..HEAR_OUT_READS {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() || !matches!(stream.read(&mut piece), Ok(1..))
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &[u8]) -> Status {
        parse(request).unwrap_err().status
    }

    #[test]
    fn requests_are_parsed_whole_or_not_at_all() {
        let request = b"GET /metrics?x=1 HTTP/1.1\r\nhost: a:1 \r\nAccept: */*\r\n\r\n";
        for end in 0..request.len() {
            assert!(parse(&request[..end]).unwrap().is_none(), "{end}");
        }
        let asked = parse(request).unwrap().unwrap();
        assert_eq!(asked, Asked { path: "/metrics".into(), host: Some("a:1".into()), head_only: false });
        assert!(
            parse(b"HEAD / HTTP/1.0\r\n\r\n").unwrap().is_some_and(|asked| asked.head_only && asked.host.is_none())
        );
    }

    #[test]
    fn what_is_no_request_for_us_is_refused() {
        assert_eq!(status(b"POST / HTTP/1.1\r\nHost: a\r\n\r\n"), Status::MethodNotAllowed);
        assert_eq!(status(b"get a b\r\n"), Status::BadRequest);
        assert_eq!(status(b"\0\0\0"), Status::BadRequest);
        assert_eq!(status(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), Status::BadRequest);
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(status(many.as_bytes()), Status::TooLarge);
    }
}
