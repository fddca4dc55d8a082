//! Commands about what a server that stands alone has none of: functions, replicas, samples of
//! latency.
//! What is asked of nothing is answered; what would make something is refused.

use std::borrow::Cow;

use stratakv_protocol::resp::encode;

use super::table::unsupported_part;
use super::{Connection, Context, Handled};
use crate::resp::{Arguments, Session};

impl Connection {
    pub(super) fn resp_function(&mut self, a: &Arguments<'_>, _: &mut Session, _: &mut Context<'_>) -> Handled {
        match () {
            () if a.is(1, "FLUSH") && a.len() == 2 => self.say(|out| encode::simple(out, "OK")),
            () if a.is(1, "FLUSH") && a.len() == 3 => match a.is(2, "ASYNC") || a.is(2, "SYNC") {
                true => self.say(|out| encode::simple(out, "OK")),
                false => Err(Cow::Borrowed("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")),
            },
            () if a.is(1, "LIST") && a.len() == 2 => self.say(|out| encode::array(out, 0)),
            () if a.is(1, "HELP") && a.len() == 2 => self.help("function"),
            () => Err(unsupported_part("function", a)),
        }
    }

    /// LATENCY: nothing is monitored.
    pub(super) fn resp_latency(&mut self, a: &Arguments<'_>, _: &mut Session, _: &mut Context<'_>) -> Handled {
        match () {
            () if a.is(1, "LATEST") && a.len() == 2 => self.say(|out| encode::array(out, 0)),
            () if a.is(1, "HISTORY") && a.len() == 3 => self.say(|out| encode::array(out, 0)),
            () if a.is(1, "RESET") => self.say(|out| encode::integer(out, 0)),
            () if a.is(1, "HELP") && a.len() == 2 => self.help("latency"),
            () => Err(unsupported_part("latency", a)),
        }
    }

    /// That this is a master, at position 0 of its log, with no replicas.
    pub(super) fn resp_role(&mut self, _: &Arguments<'_>, _: &mut Session, _: &mut Context<'_>) -> Handled {
        self.say(|out| {
            encode::array(out, 3);
            encode::bulk(out, b"master");
            encode::integer(out, 0);
            encode::array(out, 0);
        })
    }
}
