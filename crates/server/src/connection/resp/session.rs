//! Commands about the connection itself: who the client is, and what it speaks.

use std::borrow::Cow;

use stratakv_protocol::resp::{Version, encode};

use super::{Connection, Context, Handled};
use crate::answer::Answer;
use crate::connection::ReplyMode;
use crate::credentials::ATTEMPT_BYTES_MAX;
use crate::resp::commands::options::repeated;
use crate::resp::{Arguments, REDIS_VERSION, RequestRefusal, SYNTAX, Session, written};
use crate::schedule::{ATTEMPT_ERRORS, ATTEMPT_UNITS};

pub(super) const NO_AUTH: &str = "NOAUTH Authentication required.";
const WRONG_PASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. \
    Are you sure your configuration is correct?";
/// The user that `AUTH` means if it names none.
const DEFAULT_USER: &[u8] = b"default";
/// Longest name of a client, in bytes.
const NAME_BYTES_MAX: usize = 256;

impl Connection {
    /// An answer that is known at once.
    pub(super) fn say(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Handled {
        self.answer(Answer::Written(written(write)), false);
        Ok(())
    }

    pub(super) fn resp_ping(&mut self, a: &Arguments<'_>, s: &mut Session, _: &mut Context<'_>) -> Handled {
        match a.len() {
            1 | 2 if s.subscriptions.as_ref().is_some_and(|all| all.has_names()) && s.version == Version::Resp2 => {
                self.ping_of_listener(a)
            }
            1 => self.say(|out| encode::simple(out, "PONG")),
            2 => self.say(|out| encode::bulk(out, a.get(1))),
            _ => Err(super::table::wrong_count("ping")),
        }
    }

    pub(super) fn resp_echo(&mut self, a: &Arguments<'_>, _: &mut Session, _: &mut Context<'_>) -> Handled {
        self.say(|out| encode::bulk(out, a.get(1)))
    }

    pub(super) fn resp_select(&mut self, a: &Arguments<'_>, _: &mut Session, _: &mut Context<'_>) -> Handled {
        match a.integer(1)? {
            0 => self.say(|out| encode::simple(out, "OK")),
            _ => Err(Cow::Borrowed("ERR DB index is out of range: there is database 0 only")),
        }
    }

    pub(super) fn resp_quit(&mut self, _: &Arguments<'_>, _: &mut Session, _: &mut Context<'_>) -> Handled {
        self.ending.closing = true;
        self.say(|out| encode::simple(out, "OK"))
    }

    /// As if the client had just connected.
    pub(super) fn resp_reset(&mut self, _: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        self.client.admitted = false;
        self.client.reply_mode = ReplyMode::default();
        *s = Session::default();
        context.server.describe_client(&s.description);
        self.say(|out| encode::simple(out, "RESET"))
    }

    pub(super) fn resp_auth(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let (user, password) = match a.len() {
            2 => (DEFAULT_USER, a.get(1)),
            3 => (a.get(1), a.get(2)),
            _ => return Err(Cow::Borrowed(SYNTAX)),
        };
        if context.accounts.is_none() && a.len() == 2 {
            return Err(Cow::Borrowed(NO_PASSWORD));
        }
        self.admit(user, password, context)?;
        s.description.user = String::from_utf8_lossy(user).into_owned();
        context.server.describe_client(&s.description);
        self.say(|out| encode::simple(out, "OK"))
    }

    /// Lets a client in, or not. Without accounts there is the default user, with any password.
    fn admit(&mut self, user: &[u8], password: &[u8], context: &mut Context<'_>) -> Handled {
        context.counters.auth_cmds.add(1);
        self.grant.spend(ATTEMPT_UNITS);
        let is_short = user.len() + password.len() <= ATTEMPT_BYTES_MAX;
        let is_admitted = match context.accounts {
            Some(accounts) => is_short && accounts.now().admit(user, password),
            None => user == DEFAULT_USER,
        };
        if is_admitted {
            self.client.admitted = true;
            return Ok(());
        }
        // As Redis: who was in stays in.
        context.counters.auth_errors.add(1);
        self.client.errors += ATTEMPT_ERRORS;
        Err(Cow::Borrowed(WRONG_PASS))
    }

    pub(super) fn resp_hello(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let version = match a.len() {
            1 => s.version,
            _ => match a.integer(1) {
                Ok(2) => Version::Resp2,
                Ok(3) => Version::Resp3,
                Ok(_) => return Err(Cow::Borrowed("NOPROTO unsupported protocol version")),
                Err(_) => return Err(Cow::Borrowed("ERR Protocol version is not an integer or out of range")),
            },
        };
        let (mut at, mut name, mut account) = (2, None, None);
        while at < a.len() {
            match () {
                () if a.is(at, "AUTH") && at + 2 < a.len() => {
                    account = Some((a.get(at + 1), a.get(at + 2)));
                    at += 3;
                }
                () if a.is(at, "SETNAME") && at + 1 < a.len() => {
                    name = Some(name_of(a.get(at + 1), "Client names")?);
                    at += 2;
                }
                () => {
                    let word = repeated(a.get(at));
                    return Err(Cow::Owned(format!("ERR Syntax error in HELLO option '{word}'")));
                }
            }
        }
        if let Some((user, password)) = account {
            self.admit(user, password, context)?;
            s.description.user = String::from_utf8_lossy(user).into_owned();
        }
        if self.is_stranger(context) {
            return Err(Cow::Borrowed(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
                 <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
                 the same time",
            ));
        }
        s.version = version;
        s.description.version = version;
        if let Some(subscriptions) = &s.subscriptions {
            subscriptions.speak(version);
        }
        s.description.name = name.unwrap_or_else(|| std::mem::take(&mut s.description.name));
        context.server.describe_client(&s.description);
        let id = context.server.client_id();
        let mode = if context.resp.slots.is_some() { "cluster" } else { "standalone" };
        self.say(|out| hello(out, (version, mode), id))
    }
}

/// The reply to HELLO.
fn hello(out: &mut Vec<u8>, (version, mode): (Version, &str), id: u64) {
    encode::map(out, 7, version);
    encode::bulk(out, b"server");
    encode::bulk(out, b"redis");
    encode::bulk(out, b"version");
    encode::bulk(out, REDIS_VERSION.as_bytes());
    encode::bulk(out, b"proto");
    encode::integer(out, if version == Version::Resp3 { 3 } else { 2 });
    encode::bulk(out, b"id");
    encode::integer(out, i64::try_from(id).unwrap_or(i64::MAX));
    encode::bulk(out, b"mode");
    encode::bulk(out, mode.as_bytes());
    encode::bulk(out, b"role");
    encode::bulk(out, b"master");
    encode::bulk(out, b"modules");
    encode::array(out, 0);
}

/// A name that can stand in a line of `CLIENT LIST`.
pub(super) fn name_of(name: &[u8], what: &str) -> Result<String, RequestRefusal> {
    let is_plain = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    match std::str::from_utf8(name) {
        Ok(name) if is_plain && name.len() <= NAME_BYTES_MAX => Ok(name.to_owned()),
        _ => Err(Cow::Owned(format!(
            "ERR {what} cannot contain spaces, newlines or special characters, nor more than {NAME_BYTES_MAX} bytes"
        ))),
    }
}
