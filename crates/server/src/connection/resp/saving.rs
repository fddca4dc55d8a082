//! `BGSAVE` and its kin: every write is durable by itself; what they begin is a backup.

use std::borrow::Cow;

use stratakv_protocol::memcache::reply;
use stratakv_protocol::resp::encode;

use super::{Connection, Context, Handled};
use crate::resp::{Arguments, RequestRefusal, SYNTAX, Session};

const NO_SAVE: RequestRefusal = Cow::Borrowed(
    "ERR SAVE would hold up every client, and writes are durable without it: BGSAVE begins a backup in --backup-dir",
);

impl Connection {
    /// A backup whose name is the time, in the directory for those of clients.
    pub(super) fn resp_bgsave(&mut self, a: &Arguments<'_>, _: &mut Session, context: &mut Context<'_>) -> Handled {
        if a.len() > 2 || (a.len() == 2 && !a.is(1, "SCHEDULE")) {
            return Err(Cow::Borrowed(SYNTAX));
        }
        let answer = context.server.backup(&format!("bgsave-{}", context.wall.0));
        match answer == reply::OK {
            true => self.say(|out| encode::simple(out, "Background saving started")),
            false => Err(refusal(&answer)),
        }
    }

    pub(super) fn resp_save(&mut self, _: &Arguments<'_>, _: &mut Session, _: &mut Context<'_>) -> Handled {
        Err(NO_SAVE)
    }

    pub(super) fn resp_lastsave(&mut self, _: &Arguments<'_>, _: &mut Session, context: &mut Context<'_>) -> Handled {
        let at = context.server.saved_at();
        self.say(|out| encode::integer(out, i64::try_from(at).unwrap_or(i64::MAX)))
    }
}

/// Why no backup was begun, of the line that a memcache client would get.
fn refusal(answer: &[u8]) -> RequestRefusal {
    let text = String::from_utf8_lossy(answer);
    let why = text.trim_end().split_once(' ').map_or("", |(_, why)| why);
    Cow::Owned(format!("ERR {why}"))
}
