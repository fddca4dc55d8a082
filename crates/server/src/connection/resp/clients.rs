//! `CLIENT`: what is known of clients, and what one may want of its own connection or of others.

use std::borrow::Cow;

use stratakv_protocol::resp::{Version, encode};

use super::session::name_of;
use super::table::{unsupported_part, wrong_count};
use super::{Connection, Context, Handled};
use crate::connection::ReplyMode;
use crate::pending::{ParsedCommand, ServerQuestion};
use crate::resp::commands::options::repeated;
use crate::resp::{Arguments, ClientFilter, SYNTAX, Session};

/// Bytes of a line of `CLIENT LIST`, and once more as the reply.
const CLIENT_LINE_BYTES: u64 = 1200;

impl Connection {
    pub(super) fn resp_client(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let name = a.get(1).to_ascii_lowercase();
        match (&name[..], a.len()) {
            (b"id", 2) => {
                let id = context.server.client_id();
                self.say(|out| encode::integer(out, i64::try_from(id).unwrap_or(i64::MAX)))
            }
            (b"getname", 2) => {
                let name = s.description.name.clone();
                self.say(|out| match name.is_empty() {
                    true => encode::null(out, s.version),
                    false => encode::bulk(out, name.as_bytes()),
                })
            }
            (b"setname", 3) => {
                s.description.name = name_of(a.get(2), "Client names")?;
                context.server.describe_client(&s.description);
                self.say(|out| encode::simple(out, "OK"))
            }
            (b"setinfo", 4) => self.set_client_info(a, s, context),
            (b"list", 2..) => {
                let filter = ClientFilter::of_list(a)?;
                // A client that is alone always has room for it.
                let bytes = context.server.connections() as u64 * CLIENT_LINE_BYTES + filter.held_bytes();
                let bytes = bytes.min(self.budget().max_bytes() / 4);
                let question = ServerQuestion::Clients { filter: Box::new(filter), bytes };
                self.begin(ParsedCommand::Question(question, s.version), context);
                Ok(())
            }
            (b"info", 2) => {
                let line = context.server.client();
                self.say(|out| encode::verbatim(out, line.as_bytes(), s.version))
            }
            (b"kill", 2) => Err(wrong_count("client|kill")),
            (b"kill", _) => self.kill(a, context),
            (b"unblock", 3 | 4) => self.unblock(a, context),
            (b"reply", 3) => self.set_reply_mode(a),
            (b"reply", _) => Err(wrong_count("client|reply")),
            (b"getredir", 2) => self.say(|out| encode::integer(out, -1)),
            (b"trackinginfo", 2) => self.say(|out| tracking_info(out, s.version)),
            (b"tracking", 3) if a.is(2, "OFF") => self.say(|out| encode::simple(out, "OK")),
            (b"no-touch" | b"no-evict", 3) if a.is(2, "ON") || a.is(2, "OFF") => {
                // Nothing is ordered by its last use but by caches, which have no such clients.
                self.say(|out| encode::simple(out, "OK"))
            }
            (b"no-touch" | b"no-evict", 3) => Err(Cow::Borrowed(SYNTAX)),
            (b"help", 2) => self.help("client"),
            _ => Err(unsupported_part("client", a)),
        }
    }

    fn set_client_info(&mut self, a: &Arguments<'_>, s: &mut Session, context: &Context<'_>) -> Handled {
        let (what, text) = (a.get(2).to_ascii_lowercase(), name_of(a.get(3), "Client attributes")?);
        match &what[..] {
            b"lib-name" => s.description.library = text,
            b"lib-ver" => s.description.library_version = text,
            _ => {
                let what = repeated(&what);
                return Err(Cow::Owned(format!("ERR Unrecognized option '{what}'")));
            }
        }
        context.server.describe_client(&s.description);
        self.say(|out| encode::simple(out, "OK"))
    }

    /// Both forms: that of one address, which may be the client's own, and that of options.
    fn kill(&mut self, a: &Arguments<'_>, context: &Context<'_>) -> Handled {
        let is_of_address = a.len() == 3;
        let filter = match is_of_address {
            true => ClientFilter::at_address(a.get(2)),
            false => ClientFilter::of_kill(a, |user| super::accounts::is_user(context, user))?,
        };
        let killed = context.server.kill_clients(&filter);
        let count = killed.others + usize::from(killed.with_me);
        if is_of_address && count == 0 {
            return Err(Cow::Borrowed("ERR No such client"));
        }
        // It gets its answer first.
        self.ending.closing |= killed.with_me;
        self.say(|out| match is_of_address {
            true => encode::simple(out, "OK"),
            false => encode::integer(out, count as i64),
        })
    }

    fn set_reply_mode(&mut self, a: &Arguments<'_>) -> Handled {
        match () {
            () if a.is(2, "ON") => {
                self.client.reply_mode = ReplyMode::On;
                return self.say(|out| encode::simple(out, "OK"));
            }
            () if a.is(2, "OFF") => self.client.reply_mode = ReplyMode::Off,
            () if a.is(2, "SKIP") && self.client.reply_mode != ReplyMode::Off => {
                self.client.reply_mode = ReplyMode::SkipNext;
            }
            () if a.is(2, "SKIP") => {}
            () => return Err(Cow::Borrowed(SYNTAX)),
        }
        Ok(())
    }
}

/// That nothing is tracked.
fn tracking_info(out: &mut Vec<u8>, version: Version) {
    encode::map(out, 3, version);
    encode::bulk(out, b"flags");
    encode::set(out, 1, version);
    encode::bulk(out, b"off");
    encode::bulk(out, b"redirect");
    encode::integer(out, -1);
    encode::bulk(out, b"prefixes");
    encode::array(out, 0);
}
