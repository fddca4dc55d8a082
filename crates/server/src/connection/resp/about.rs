//! `COMMAND`: what there is.

use std::borrow::Cow;

use stratakv_protocol::resp::{Version, encode, glob};

use super::accounts::commands_of;
use super::data::keys_of;
use super::table::{COMMANDS, CommandSpec};
use super::{Connection, Context, Handled};
use crate::resp::{Arguments, Gathered, SYNTAX, Session};
use crate::schedule::cost_of_text;

impl Connection {
    pub(super) fn resp_command(&mut self, a: &Arguments<'_>, s: &mut Session, _: &mut Context<'_>) -> Handled {
        let version = s.version;
        let mut out = Vec::new();
        match () {
            () if a.len() == 1 => {
                encode::array(&mut out, COMMANDS.len());
                COMMANDS.iter().for_each(|command| describe(command, version, &mut out));
            }
            () if a.is(1, "COUNT") && a.len() == 2 => encode::integer(&mut out, COMMANDS.len() as i64),
            () if a.is(1, "LIST") && a.len() == 2 => {
                encode::array(&mut out, COMMANDS.len());
                COMMANDS.iter().for_each(|command| encode::bulk(&mut out, command.name.as_bytes()));
            }
            () if a.is(1, "LIST") && a.len() == 5 && a.is(2, "FILTERBY") => filtered(a, &mut out)?,
            () if a.is(1, "GETKEYS") && a.len() > 2 => keys_of_request(a, &mut out)?,
            () if a.is(1, "HELP") && a.len() == 2 => return self.help("command"),
            () if a.is(1, "INFO") => {
                let named: Vec<Option<&CommandSpec>> = match a.len() {
                    2 => COMMANDS.iter().map(Some).collect(),
                    _ => a.from(2).take(COMMANDS.len()).map(CommandSpec::find).collect(),
                };
                encode::array(&mut out, named.len());
                for command in named {
                    match command {
                        Some(command) => describe(command, version, &mut out),
                        None => encode::null_array(&mut out, version),
                    }
                }
            }
            () if a.is(1, "DOCS") => {
                let named: Vec<&CommandSpec> = match a.len() {
                    2 => COMMANDS.iter().collect(),
                    _ => a.from(2).take(COMMANDS.len()).filter_map(CommandSpec::find).collect(),
                };
                encode::map(&mut out, named.len(), version);
                named.into_iter().for_each(|command| document(command, version, &mut out));
            }
            () => return Err(super::table::unsupported_part("command", a)),
        }
        self.grant.spend(cost_of_text(&out));
        self.say(|answer| *answer = out)
    }
}

/// COMMAND LIST FILTERBY.
fn filtered(a: &Arguments<'_>, out: &mut Vec<u8>) -> Handled {
    let named: Vec<&CommandSpec> = match () {
        () if a.is(3, "ACLCAT") => commands_of(a.get(4)).into_iter().flatten().collect(),
        () if a.is(3, "PATTERN") && a.get(4).len() <= glob::PATTERN_BYTES_MAX => {
            let pattern = a.get(4).to_ascii_lowercase();
            COMMANDS.iter().filter(|command| glob::matches(&pattern, command.name.as_bytes())).collect()
        }
        // There are no modules.
        () if a.is(3, "MODULE") => Vec::new(),
        () => return Err(Cow::Borrowed(SYNTAX)),
    };
    encode::array(out, named.len());
    named.iter().for_each(|command| encode::bulk(out, command.name.as_bytes()));
    Ok(())
}

/// COMMAND GETKEYS: the keys of the request that its arguments are.
fn keys_of_request(a: &Arguments<'_>, out: &mut Vec<u8>) -> Handled {
    let command = CommandSpec::find(a.get(2)).ok_or(Cow::Borrowed("ERR Invalid command specified"))?;
    let mut request = Gathered::default();
    a.from(2).for_each(|argument| request.push(argument));
    let request = Arguments::new(&request, b"", &[]);
    if !command.takes(request.len()) {
        return Err(Cow::Borrowed("ERR Invalid number of arguments specified for command"));
    }
    let keys = keys_of(command, &request)?;
    if keys.is_empty() {
        return Err(Cow::Borrowed("ERR The command has no key arguments"));
    }
    encode::array(out, keys.len());
    keys.iter().for_each(|key| encode::bulk(out, key.user()));
    Ok(())
}

/// The ten parts of a command, as Redis 7 has them; the last three are empty.
fn describe(command: &CommandSpec, version: Version, out: &mut Vec<u8>) {
    let (first, last, step) = command.keys;
    encode::array(out, 10);
    encode::bulk(out, command.name.as_bytes());
    encode::integer(out, command.arity.into());
    let flags: Vec<&str> = command.flags.split(' ').filter(|flag| !flag.is_empty()).collect();
    encode::set(out, flags.len(), version);
    flags.iter().for_each(|flag| encode::simple(out, flag));
    [first, last, step].into_iter().for_each(|number| encode::integer(out, number.into()));
    let categories: Vec<&str> = command.categories().collect();
    encode::set(out, categories.len(), version);
    categories.iter().for_each(|category| encode::simple(out, &format!("@{category}")));
    (0..2).for_each(|_| encode::array(out, 0));
    encode::array(out, 0);
}

fn document(command: &CommandSpec, version: Version, out: &mut Vec<u8>) {
    encode::bulk(out, command.name.as_bytes());
    encode::map(out, 3, version);
    for (name, text) in [("summary", command.summary), ("since", command.since), ("group", command.group)] {
        encode::bulk(out, name.as_bytes());
        encode::bulk(out, text.as_bytes());
    }
}
