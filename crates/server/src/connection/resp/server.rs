//! Commands about the server.

use std::borrow::Cow;

use stratakv_protocol::memcache::Statistics;
use stratakv_protocol::resp::{Version, encode, glob};

use super::{Connection, Context, Handled};
use crate::answer::Answer;
use crate::pending::{ParsedCommand, ServerQuestion, SlowQuestion};
use crate::resp::commands::options::repeated;
use crate::resp::{Arguments, EncodingSettings, Session, channels_bytes_max, written};

const TOO_MANY_CHANNELS: &str = "ERR the names of the channels are too long for one reply: ask for those of a pattern";
use crate::schedule::cost_of_text;

/// From which time on a command is slow, in microseconds, and how many are kept.
const SLOW_FROM: &str = "slowlog-log-slower-than";
const SLOW_ENTRIES: &str = "slowlog-max-len";

/// A setting that clients may change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChangedSetting {
    Encoding(usize),
    SlowFrom,
    SlowEntries,
}

impl ChangedSetting {
    /// That of this name, in letters of any case.
    fn find(name: &[u8]) -> Option<ChangedSetting> {
        match () {
            () if name.eq_ignore_ascii_case(SLOW_FROM.as_bytes()) => Some(ChangedSetting::SlowFrom),
            () if name.eq_ignore_ascii_case(SLOW_ENTRIES.as_bytes()) => Some(ChangedSetting::SlowEntries),
            () => EncodingSettings::find(name).map(ChangedSetting::Encoding),
        }
    }

    /// The least value that it may have.
    fn least(self) -> i64 {
        match self {
            ChangedSetting::Encoding(_) => i64::MIN,
            ChangedSetting::SlowFrom => -1,
            ChangedSetting::SlowEntries => 0,
        }
    }
}

impl Connection {
    pub(super) fn resp_info(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let sections: Vec<String> =
            a.from(1).take(32).map(|name| String::from_utf8_lossy(name).to_ascii_lowercase()).collect();
        self.begin(ParsedCommand::Question(ServerQuestion::Info(sections), s.version), context);
        Ok(())
    }

    /// Answers a question about the server, when all commands before it have ended.
    pub(in crate::connection) fn answer_question(
        &mut self,
        question: &ServerQuestion,
        version: Version,
        context: &mut Context<'_>,
    ) {
        let answer = match question {
            ServerQuestion::Records => {
                let records = i64::try_from(context.server.records()).unwrap_or(i64::MAX);
                written(|out| encode::integer(out, records))
            }
            ServerQuestion::Info(sections) => {
                let text = context.server.info(sections, context.wall);
                written(|out| encode::verbatim(out, text.as_bytes(), version))
            }
            ServerQuestion::Slow { question, .. } => written(|out| match question {
                SlowQuestion::Get(entries) => context.resp.slow.write(*entries, out),
                SlowQuestion::Len => encode::integer(out, context.resp.slow.len() as i64),
                SlowQuestion::Reset => {
                    context.resp.slow.clear();
                    encode::simple(out, "OK");
                }
            }),
            ServerQuestion::Channels { kind, pattern, .. } => {
                let bytes_max = channels_bytes_max(self.budget().max_bytes());
                let channels = context.resp.pubsub.channels(*kind, pattern.as_deref(), bytes_max);
                written(|out| match channels {
                    Some(channels) => {
                        encode::array(out, channels.len());
                        channels.iter().for_each(|channel| encode::bulk(out, channel));
                    }
                    None => encode::error(out, TOO_MANY_CHANNELS),
                })
            }
            ServerQuestion::Clients { filter, .. } => {
                let text = context.server.clients(filter);
                written(|out| encode::verbatim(out, text.as_bytes(), version))
            }
        };
        self.grant.spend(cost_of_text(&answer));
        self.answer(Answer::Written(answer), false);
    }

    pub(super) fn resp_config(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        match () {
            () if a.is(1, "GET") && a.len() > 2 => self.settings(a, s, context),
            () if a.is(1, "SET") && a.len() > 3 && a.len().is_multiple_of(2) => self.set_settings(a, context),
            () if a.is(1, "RESETSTAT") && a.len() == 2 => {
                context.server.statistics(Statistics::Reset, context.wall);
                self.say(|out| encode::simple(out, "OK"))
            }
            () if a.is(1, "HELP") && a.len() == 2 => self.help("config"),
            () => Err(super::table::unsupported_part("config", a)),
        }
    }

    fn settings(&mut self, a: &Arguments<'_>, s: &Session, context: &Context<'_>) -> Handled {
        if a.from(2).any(|pattern| pattern.len() > glob::PATTERN_BYTES_MAX) || a.len() > 64 {
            return Err(Cow::Borrowed("ERR too many parameters, or one is too long: ask for fewer"));
        }
        let is_asked =
            |name: &str| a.from(2).any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()));
        let mut settings = context.server.resp_settings();
        settings.extend(context.server.resp_encodings().all());
        let slow = &context.resp.slow;
        settings.push((SLOW_FROM, slow.slow_from_us().to_string()));
        settings.push((SLOW_ENTRIES, slow.entries_max().to_string()));
        settings.retain(|(name, _)| is_asked(name));
        self.say(|out| {
            encode::map(out, settings.len(), s.version);
            for (name, value) in &settings {
                encode::bulk(out, name.as_bytes());
                encode::bulk(out, value.as_bytes());
            }
        })
    }

    /// All of them or none.
    fn set_settings(&mut self, a: &Arguments<'_>, context: &Context<'_>) -> Handled {
        let encodings = context.server.resp_encodings();
        let mut changes: Vec<(ChangedSetting, i64)> = Vec::new();
        for at in (2..a.len()).step_by(2) {
            let name = repeated(a.get(at));
            let failed = |why: &str| {
                Cow::Owned(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
            };
            let Some(setting) = ChangedSetting::find(a.get(at)) else {
                let settings = context.server.resp_settings();
                match settings.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name)) {
                    Some((_, value)) if value.as_bytes() == a.get(at + 1) => continue,
                    Some(_) => return Err(failed("it cannot be changed while the server runs")),
                    None => {
                        let text = format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'");
                        return Err(Cow::Owned(text));
                    }
                }
            };
            let value = a.integer(at + 1).map_err(|_| failed("argument couldn't be parsed into an integer"))?;
            if value < setting.least() {
                let least = setting.least();
                return Err(failed(&format!("argument must be between {least} and {} inclusive", i64::MAX)));
            }
            if changes.iter().any(|(changed, _)| *changed == setting) {
                return Err(failed("duplicate parameter"));
            }
            changes.push((setting, value));
        }
        for (setting, value) in changes {
            match setting {
                ChangedSetting::Encoding(number) => encodings.set(number, value),
                ChangedSetting::SlowFrom => context.resp.slow.set_slow_from_us(value),
                ChangedSetting::SlowEntries => context.resp.slow.set_entries_max(value),
            }
        }
        self.say(|out| encode::simple(out, "OK"))
    }

    pub(super) fn resp_time(&mut self, _: &Arguments<'_>, _: &mut Session, context: &mut Context<'_>) -> Handled {
        let millis = context.wall.0;
        self.say(|out| {
            encode::array(out, 2);
            encode::bulk(out, (millis / 1000).to_string().as_bytes());
            encode::bulk(out, (millis % 1000 * 1000).to_string().as_bytes());
        })
    }

    /// There are no replicas to wait for.
    pub(super) fn resp_wait(&mut self, a: &Arguments<'_>, _: &mut Session, _: &mut Context<'_>) -> Handled {
        let (_, timeout) = (a.integer(1)?, a.integer(2)?);
        match timeout < 0 {
            true => Err(Cow::Borrowed("ERR timeout is negative")),
            false => self.say(|out| encode::integer(out, 0)),
        }
    }
}
