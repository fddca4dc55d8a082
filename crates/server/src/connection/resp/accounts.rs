//! `ACL`: who there is. Users are the lines of `--auth-file`, and each may do everything.

use std::borrow::Cow;

use stratakv_protocol::resp::{Version, encode};

use super::table::{COMMANDS, CommandSpec, unsupported_part};
use super::{Connection, Context, Handled};
use crate::resp::commands::options::repeated;
use crate::resp::{Arguments, Session};
use crate::schedule::cost_of_text;

/// Categories of commands, as Redis has them.
const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];
/// The user of those who need not say who they are.
const DEFAULT_USER: &str = "default";

/// The commands of a category; `None`: there is no such category.
pub(super) fn commands_of(category: &[u8]) -> Option<impl Iterator<Item = &'static CommandSpec>> {
    let category = CATEGORIES.into_iter().find(|known| known.as_bytes().eq_ignore_ascii_case(category))?;
    Some(COMMANDS.iter().filter(move |command| command.categories().any(|of| of == category)))
}

/// All users.
fn users(context: &Context<'_>) -> Vec<String> {
    match context.accounts {
        Some(accounts) => accounts.now().users(),
        None => vec![DEFAULT_USER.to_owned()],
    }
}

/// Whether there is a user of this name.
pub(super) fn is_user(context: &Context<'_>, name: &[u8]) -> bool {
    users(context).iter().any(|user| user.as_bytes() == name)
}

impl Connection {
    pub(super) fn resp_acl(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let mut out = Vec::new();
        let has_passwords = context.accounts.is_some();
        match () {
            () if a.is(1, "WHOAMI") && a.len() == 2 => encode::bulk(&mut out, s.description.user().as_bytes()),
            () if a.is(1, "USERS") && a.len() == 2 => {
                let users = users(context);
                encode::array(&mut out, users.len());
                users.iter().for_each(|user| encode::bulk(&mut out, user.as_bytes()));
            }
            () if a.is(1, "LIST") && a.len() == 2 => {
                let (users, password) = (users(context), if has_passwords { "" } else { " nopass" });
                encode::array(&mut out, users.len());
                for user in users {
                    encode::bulk(&mut out, format!("user {user} on{password} ~* &* +@all").as_bytes());
                }
            }
            () if a.is(1, "GETUSER") && a.len() == 3 => match is_user(context, a.get(2)) {
                true => user(&mut out, has_passwords, s.version),
                false => encode::null(&mut out, s.version),
            },
            () if a.is(1, "CAT") && a.len() == 2 => {
                encode::array(&mut out, CATEGORIES.len());
                CATEGORIES.iter().for_each(|category| encode::bulk(&mut out, category.as_bytes()));
            }
            () if a.is(1, "CAT") && a.len() == 3 => {
                let unknown = || Cow::Owned(format!("ERR Unknown category '{}'", repeated(a.get(2))));
                let commands: Vec<&CommandSpec> = commands_of(a.get(2)).ok_or_else(unknown)?.collect();
                encode::array(&mut out, commands.len());
                commands.iter().for_each(|command| encode::bulk(&mut out, command.name.as_bytes()));
            }
            () if a.is(1, "HELP") && a.len() == 2 => return self.help("acl"),
            () if ["SETUSER", "DELUSER", "LOAD", "SAVE"].iter().any(|part| a.is(1, part)) => {
                return Err(Cow::Borrowed(
                    "ERR users are the lines `user:password` of --auth-file: change the file, and reload the server",
                ));
            }
            () => return Err(unsupported_part("acl", a)),
        }
        self.grant.spend(cost_of_text(&out));
        self.say(|answer| *answer = out)
    }
}

/// What a user may: everything. Passwords are not told.
fn user(out: &mut Vec<u8>, has_password: bool, version: Version) {
    encode::map(out, 6, version);
    encode::bulk(out, b"flags");
    let flags: &[&str] = if has_password { &["on"] } else { &["on", "nopass"] };
    encode::set(out, flags.len(), version);
    flags.iter().for_each(|flag| encode::bulk(out, flag.as_bytes()));
    encode::bulk(out, b"passwords");
    encode::array(out, 0);
    for (what, text) in [("commands", "+@all"), ("keys", "~*"), ("channels", "&*")] {
        encode::bulk(out, what.as_bytes());
        encode::bulk(out, text.as_bytes());
    }
    encode::bulk(out, b"selectors");
    encode::array(out, 0);
}
