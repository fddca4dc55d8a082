//! Collections of a running server: a request is begun, then asked about until it has ended.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Client;
use crate::failure::{Exit, Failure};
use crate::text::escaped;

/// Between two questions, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CollectionsTask<'t> {
    /// All names.
    List,
    /// The same, with what is told of each.
    Describe,
    Create {
        name: &'t str,
        order: Option<&'t str>,
    },
    Drop(&'t str),
}

/// A name, and what is told of it: kind, records, when it expires, order.
pub(crate) type RemoteCollection = (String, String);

/// Has a server list, make or drop collections, and waits until it has.
///
/// # Errors
/// There is no such collection to be dropped, the server refuses, or it failed.
pub(crate) fn collections(mut server: Client, task: CollectionsTask<'_>) -> Result<Vec<RemoteCollection>, Failure> {
    let encoded = |name: &str| STANDARD.encode(name);
    let words = match task {
        CollectionsTask::List => "list".to_owned(),
        CollectionsTask::Describe => "describe".to_owned(),
        CollectionsTask::Create { name, order: None } => format!("create {}", encoded(name)),
        CollectionsTask::Create { name, order: Some(order) } => format!("create {} {order}", encoded(name)),
        CollectionsTask::Drop(name) => format!("drop {}", encoded(name)),
    };
    // Others may ask at the same time: each knows its own answer by a word of its own.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let token = format!("{:x}-{:x}", std::process::id(), now.as_nanos());
    server.begin_collections(&token, &words)?;
    let mut pause = PAUSE_MIN;
    loop {
        let told = server.statistics("collections")?;
        let of = |what: &str| {
            let name = format!("{token}:{what}");
            told.iter().find(|(told, _)| *told == name).map(|(_, value)| value.as_str())
        };
        match (of("state"), task) {
            (Some("running"), _) => server.pause(pause)?,
            (Some("done"), _) => return listed(&told, &format!("{token}:name:")),
            (Some("absent"), CollectionsTask::Drop(name)) => return Err(absent(name)),
            (Some("failed"), _) => {
                let exit = match of("kind") {
                    Some("usage") => Exit::Usage,
                    Some("unsupported") => Exit::Unsupported,
                    Some("corrupt") => Exit::Corrupt,
                    _ => Exit::Failed,
                };
                let why = of("error").unwrap_or("the server does not say why");
                return Err(Failure::new(exit, escaped(why.as_bytes())));
            }
            _ => {
                return Err(Failure::failed(
                    "the server has forgotten this request, as others came after it: list the collections to see what came of it",
                ));
            }
        }
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

/// There is none to be dropped.
pub(crate) fn absent(name: &str) -> Failure {
    Failure::new(Exit::NotFound, format!("there is no collection `{name}`"))
}

fn listed(told: &[(String, String)], begin: &str) -> Result<Vec<RemoteCollection>, Failure> {
    let named = told.iter().filter_map(|(name, value)| Some((name.strip_prefix(begin)?, value)));
    let decoded = named.map(|(name, value)| {
        let name = STANDARD.decode(name).ok().and_then(|name| String::from_utf8(name).ok());
        name.map(|name| (name, value.clone()))
    });
    let unexpected_reply = || Failure::failed("the server tells a name that is none: is it `stratakv serve`?");
    decoded.collect::<Option<_>>().ok_or_else(unexpected_reply)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::super::connection::{ServerAddress, TlsFiles};
    use super::*;

    /// What comes of a request whose server gives these answers, then hangs up; `TOKEN` is the word
    /// that the client chose.
    fn from(task: CollectionsTask<'_>, answers: &'static [&'static str]) -> Result<Vec<RemoteCollection>, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = ServerAddress::parse(&listener.local_addr().unwrap().to_string());
        let server = std::thread::spawn(move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let mut token = String::new();
            for answer in answers {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                if let Some(rest) = line.strip_prefix("collections ") {
                    token = rest.split(' ').next().unwrap().to_owned();
                }
                stream.get_mut().write_all(answer.replace("TOKEN", &token).as_bytes()).unwrap();
            }
        });
        let made = Client::connect(&address, &TlsFiles::default(), "").and_then(|client| collections(client, task));
        server.join().unwrap();
        made
    }

    #[test]
    fn an_answer_is_waited_for() {
        const RUNNING: &str = "STAT other:state done\r\nSTAT TOKEN:state running\r\nEND\r\n";
        const DONE: &str = "STAT TOKEN:state done\r\nSTAT TOKEN:name:YSBi keyvalue 3 never bytes\r\nEND\r\n";
        let listed = from(CollectionsTask::Describe, &["OK\r\n", RUNNING, RUNNING, DONE]).unwrap();
        assert_eq!(listed, [("a b".to_owned(), "keyvalue 3 never bytes".to_owned())]);
    }

    #[test]
    fn what_went_wrong_is_told() {
        const ABSENT: &str = "STAT TOKEN:state absent\r\nEND\r\n";
        const FAILED: &str =
            "STAT TOKEN:state failed\r\nSTAT TOKEN:kind usage\r\nSTAT TOKEN:error no such order\r\nEND\r\n";
        const OTHER: &str = "STAT other:state done\r\nEND\r\n";
        let of = |answers| from(CollectionsTask::Drop("c"), answers).unwrap_err();
        let cases: [(&'static [&'static str], Exit, &str); 5] = [
            (&["OK\r\n", ABSENT], Exit::NotFound, "no collection `c`"),
            (&["OK\r\n", FAILED], Exit::Usage, "no such order"),
            (&["OK\r\n", OTHER], Exit::Failed, "forgotten"),
            (&["SERVER_ERROR busy: another\r\n"], Exit::Busy, "busy"),
            (&["ERROR\r\n"], Exit::Unsupported, "older stratakv"),
        ];
        for (answers, exit, why) in cases {
            let failure = of(answers);
            assert!(failure.exit == exit && failure.message.contains(why), "{answers:?}: {failure:?}");
        }
    }
}
