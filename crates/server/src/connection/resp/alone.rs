//! Commands about what a server that stands alone has none of: functions, replicas, other nodes.
//! What is asked of nothing is answered; what would make something is refused.

use std::borrow::Cow;

use stratakv_protocol::resp::encode;

use super::table::unsupported_part;
use super::{Connection, Context, Handled};
use crate::resp::{Arguments, RequestRefusal, Session};

const NO_CLUSTER: RequestRefusal = Cow::Borrowed("ERR This instance has cluster support disabled");

impl Connection {
    pub(super) fn resp_function(&mut self, a: &Arguments<'_>, _: &mut Session, _: &mut Context<'_>) -> Handled {
        match () {
            () if a.is(1, "FLUSH") && a.len() == 2 => self.say(|out| encode::simple(out, "OK")),
            () if a.is(1, "FLUSH") && a.len() == 3 => match a.is(2, "ASYNC") || a.is(2, "SYNC") {
                true => self.say(|out| encode::simple(out, "OK")),
                false => Err(Cow::Borrowed("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")),
            },
            () if a.is(1, "LIST") && a.len() == 2 => self.say(|out| encode::array(out, 0)),
            () => Err(unsupported_part("function", a)),
        }
    }

    pub(super) fn resp_cluster(&mut self, _: &Arguments<'_>, _: &mut Session, _: &mut Context<'_>) -> Handled {
        Err(NO_CLUSTER)
    }

    /// READONLY and READWRITE: what clients of a cluster want of replicas.
    pub(super) fn resp_readonly(&mut self, _: &Arguments<'_>, _: &mut Session, _: &mut Context<'_>) -> Handled {
        Err(NO_CLUSTER)
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
