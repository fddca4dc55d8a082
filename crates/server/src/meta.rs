//! The meta commands: from their flags to a [`Request`], from its outcome to their answer.

use bytes::Bytes;
use stratakv_base::{CollectionId, Expiry, Key, Wall};
use stratakv_engine::Record;
use stratakv_protocol::memcache::{Meta, MetaFlags, MetaVerb, StoreMode, encode_key, expiry, reply};

use crate::answer::{AnswerContext, failed};
use crate::connection::dump::is_no_word;
use crate::connection::hash;
use crate::counters::Counters;
use crate::output::Output;
use crate::request::{Action, Request, RequestOutcome};
use crate::watch;

/// What of a command its answer needs.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    verb: MetaVerb,
    /// The flags as they were sent.
    line: Box<[u8]>,
    base64: bool,
    quiet: bool,
    value: bool,
    unnoticed: bool,
    /// What `T` and `N` mean: each takes hold where it stands among the flags.
    touch: Option<Expiry>,
    vivify: Option<Expiry>,
    /// Before this time `R` asks for the value anew.
    recache: Option<Expiry>,
    /// Of `mr`: a record whose value is no string is told without it.
    in_range: bool,
}

/// The flags of `mr` as those of an `mg` of each record: with the key.
pub(crate) fn line_of_range(line: &[u8]) -> Box<[u8]> {
    let words = MetaFlags::split(line).filter(|(letter, _)| !b"bk".contains(letter));
    let mut flags = b"k".to_vec();
    for (letter, rest) in words {
        flags.extend_from_slice(&[b' ', letter]);
        flags.extend_from_slice(rest);
    }
    flags.into()
}

/// The request and the words for a record of a range, with the flags of [`line_of_range`].
pub(crate) fn of_range(key: Key, line: &[u8], base64: bool) -> (Request, Words) {
    let has = |wanted: u8| MetaFlags::split(line).any(|(letter, _)| letter == wanted);
    let value = has(b'v');
    let words = Words {
        verb: MetaVerb::Get,
        line: line.into(),
        base64: base64 || is_no_word(key.user()),
        quiet: true,
        value,
        unnoticed: false,
        touch: None,
        vivify: None,
        recache: None,
        in_range: true,
    };
    let action = Action::Get { value, touch: None, vivify: None, before: false, told: true };
    (Request { key, action, compare: None, version: None }, words)
}

/// The request of a command whose data block is `value`; `None` if its key is none.
pub(crate) fn request(meta: &Meta<'_>, value: Bytes, wall: Wall, counters: &Counters) -> Option<(Request, Words)> {
    let flags = &meta.flags;
    let key = Key::new(CollectionId::default(), &meta.key()).ok()?;
    let at = |time: i64| expiry(time, wall);
    let touch = flags.times.exptime.map(at);
    counters.cmd_meta.add(1);
    let action = match meta.verb {
        MetaVerb::Get | MetaVerb::Debug => {
            let vivify = made_until(flags, at);
            let told = meta.verb == MetaVerb::Get;
            Action::Get {
                value: flags.value,
                touch,
                vivify,
                before: touch.is_some() && looks_before_touch(flags),
                told,
            }
        }
        MetaVerb::Set { mode, .. } => {
            counters.cmd_set.add(1);
            let (expiry, late) = (touch.unwrap_or_default(), flags.invalidate);
            let (vivify, sized) = (flags.times.vivify.map(at), flags.words().any(|(letter, _)| letter == b's'));
            Action::Store { mode, value, flags: flags.client_flags, expiry, late, vivify, sized }
        }
        MetaVerb::Delete if flags.invalidate || flags.clear => {
            // Without its value it is a new record: with the time and the client's flags that are
            // given, or none.
            let clear = flags.clear.then_some(flags.client_flags);
            let expiry = if flags.clear { Some(touch.unwrap_or_default()) } else { touch };
            Action::Invalidate { stale: flags.invalidate, clear, expiry }
        }
        MetaVerb::Delete => Action::Delete,
        MetaVerb::Arithmetic { decrement } => {
            let initial = made_until(flags, at).map(|expiry| (flags.arithmetic.initial, expiry));
            let expiry = flags.words().any(|(letter, _)| letter == b't');
            Action::Arithmetic { decrement, delta: flags.arithmetic.delta, initial, touch, expiry }
        }
    };
    let compare = flags.compare.filter(|version| match meta.verb {
        MetaVerb::Get | MetaVerb::Debug => false,
        // Of what they change in place they ask no version if it is 0.
        MetaVerb::Arithmetic { .. } => *version != 0,
        MetaVerb::Set { mode: StoreMode::Append | StoreMode::Prepend, .. } => *version != 0,
        MetaVerb::Set { .. } | MetaVerb::Delete => true,
    });
    let words = Words {
        verb: meta.verb,
        line: flags.line().into(),
        base64: flags.base64,
        quiet: flags.quiet,
        value: flags.value,
        unnoticed: flags.unnoticed,
        touch,
        vivify: flags.times.vivify.map(at),
        recache: flags.times.recache.map(at),
        in_range: false,
    };
    Some((Request { key, action, compare, version: flags.version }, words))
}

/// Whether it matters when the record would have ended before it is touched: `t` or `R` before `T`.
fn looks_before_touch(flags: &MetaFlags<'_>) -> bool {
    flags.words().find(|(letter, _)| b"tRT".contains(letter)).is_some_and(|(letter, _)| letter != b'T')
}

/// Until when what is made lives, if it may be made: what the last one of `N` and `T` says.
fn made_until(flags: &MetaFlags<'_>, at: impl Fn(i64) -> Expiry) -> Option<Expiry> {
    let vivify = flags.times.vivify?;
    let last = flags.words().filter(|(letter, _)| b"NT".contains(letter)).last();
    Some(at(if last.is_some_and(|(letter, _)| letter == b'T') {
        flags.times.exptime.unwrap_or(vivify)
    } else {
        vivify
    }))
}

/// What is known of a record besides its value.
#[derive(Clone, Copy)]
struct About {
    flags: u32,
    value_bytes: u64,
    version: u64,
    /// Before the flags change it.
    expiry: Expiry,
    /// The command made it.
    is_made: bool,
}

/// Tells those who watch what became of a request of either dialect.
pub(crate) fn tell(request: &Request, outcome: &RequestOutcome, here: &AnswerContext<'_>) {
    match (&request.action, outcome) {
        (Action::Get { .. }, RequestOutcome::Found { record, .. }) => {
            here.log.fetched(&request.key, Some(record.value_bytes));
        }
        (Action::Get { .. }, RequestOutcome::Missing | RequestOutcome::Vivified { .. }) => {
            here.log.fetched(&request.key, None)
        }
        (Action::Store { mode, value, expiry, .. }, outcome) => {
            let command = watch::command_of_mode(*mode, request.compare.is_some());
            here.log.stored(&request.key, command, watch::status_of(outcome), *expiry, value.len() as u64);
        }
        (Action::Delete | Action::Invalidate { .. }, _) => here.log.deleted(&request.key),
        _ => {}
    }
}

impl Words {
    pub(crate) const END_OF_VALUE: &'static [u8] = reply::CRLF;

    /// Appends the answer.
    pub(crate) fn write(&self, request: &Request, outcome: RequestOutcome, here: &AnswerContext<'_>, out: &mut Output) {
        tell(request, &outcome, here);
        match (self.verb, outcome) {
            (_, RequestOutcome::Failed(error)) => {
                let storing = matches!(self.verb, MetaVerb::Set { .. });
                failed(&error, storing, out, here.counters);
            }
            (_, RequestOutcome::NotAString) if self.in_range => {
                out.push(b"HD");
                self.flags(request, None, out);
                out.push(reply::CRLF);
            }
            (_, RequestOutcome::NotAString) => out.push(reply::NOT_A_STRING),
            (_, RequestOutcome::ReservedFlags) => out.push(reply::RESERVED_FLAGS),
            (MetaVerb::Debug, outcome) => self.debug(request, outcome, here, out),
            (MetaVerb::Get, outcome) => self.get(request, outcome, here, out),
            (MetaVerb::Set { .. }, outcome) => self.set(request, &outcome, here, out),
            (MetaVerb::Delete, outcome) => self.delete(request, &outcome, here, out),
            (MetaVerb::Arithmetic { decrement }, outcome) => self.number(request, &outcome, decrement, here, out),
        }
    }

    fn get(&self, request: &Request, outcome: RequestOutcome, here: &AnswerContext<'_>, out: &mut Output) {
        let counters = here.counters;
        let Action::Get { touch, .. } = request.action else { return };
        // As memcached counts: what touches is a touch alone, unless it finds nothing to be
        // touched.
        let (command, outcome_of) = match (touch, &outcome) {
            (Some(_), RequestOutcome::Found { .. } | RequestOutcome::Vivified { .. }) => {
                (&counters.cmd_touch, &counters.touch_hits)
            }
            (None, RequestOutcome::Found { .. } | RequestOutcome::Vivified { .. }) => {
                (&counters.cmd_get, &counters.get_hits)
            }
            _ => (&counters.cmd_get, &counters.get_misses),
        };
        command.add(1);
        outcome_of.add(1);
        let hash = hash(&request.key);
        match outcome {
            RequestOutcome::Found { record, before, follows } => {
                self.found(request, record, (before, follows), here, out);
                if !self.unnoticed {
                    here.recency.fetched(hash, here.wall);
                }
            }
            RequestOutcome::Vivified { version } => {
                let about = About { flags: 0, value_bytes: 0, version, expiry: Expiry::NEVER, is_made: true };
                here.recency.stored(hash, here.wall);
                self.head(request, &about, if self.value { Some(0) } else { None }, here, out);
                out.push(if self.value { b" W\r\n\r\n" } else { b" W\r\n" });
                here.recency.fetched(hash, here.wall);
            }
            _ => {
                self.status(b"EN", request, true, out);
            }
        }
    }

    fn found(
        &self,
        request: &Request,
        record: Record,
        (before, follows): (Option<Expiry>, bool),
        here: &AnswerContext<'_>,
        out: &mut Output,
    ) {
        let wants = self.wants_anew(before.unwrap_or(record.expiry));
        let told = here.marks.tell(&request.key, record.version, record.expiry, wants, here.wall);
        let Record { value, value_bytes, flags, version, expiry } = record;
        let (expiry, shown) = (before.unwrap_or(expiry), here.marks.shown(&request.key, version));
        let about = About { flags, value_bytes, version: shown, expiry, is_made: false };
        let len_bytes = if follows { value_bytes } else { value.len() };
        self.head(request, &about, self.value.then_some(len_bytes), here, out);
        for (said, what) in [(told.sent, b" Z"), (told.stale, b" X"), (told.won, b" W")] {
            if said {
                out.push(what);
            }
        }
        out.push(reply::CRLF);
        if self.value {
            out.push_value(value);
            out.push(if follows { b"" } else { Words::END_OF_VALUE });
        }
    }

    /// Whether `R` asks for the value anew, of a record that ends at `expiry`, or where a `T`
    /// before it says.
    fn wants_anew(&self, mut expiry: Expiry) -> bool {
        for (letter, _) in MetaFlags::split(&self.line) {
            match letter {
                b'T' => expiry = self.touch.unwrap_or(expiry),
                b'R' => return expiry != Expiry::NEVER && self.recache.is_some_and(|before| expiry < before),
                _ => {}
            }
        }
        false
    }

    /// `VA <length>` or `HD`, and what the flags ask for.
    fn head(&self, request: &Request, about: &About, value: Option<u64>, here: &AnswerContext<'_>, out: &mut Output) {
        match value {
            Some(length) => {
                out.push(b"VA ");
                out.text(|text| reply::decimal(text, length));
            }
            None => out.push(b"HD"),
        }
        self.flags(request, Some((about, here)), out);
    }

    /// The flags that an answer has, in the order in which they were asked for.
    fn flags(&self, request: &Request, about: Option<(&About, &AnswerContext<'_>)>, out: &mut Output) {
        let mut about = about.map(|(about, here)| (*about, here));
        for (letter, rest) in MetaFlags::split(&self.line) {
            match (letter, &mut about) {
                (b'O' | b'k', _) => self.identity(letter, rest, request, out),
                // Nobody has a version of what was not stored.
                (b'c', None) if matches!(self.verb, MetaVerb::Set { .. }) => out.push(b" c0"),
                (b'T', Some((about, _))) => about.expiry = self.touch.unwrap_or(about.expiry),
                (b'N', Some((about, _))) if about.is_made => about.expiry = self.vivify.unwrap_or(about.expiry),
                (b's' | b'f' | b'c' | b't' | b'h' | b'l', Some((about, here))) => {
                    let Some(number) = self.figure(letter, request, about, here) else { continue };
                    out.push(&[b' ', letter]);
                    match number {
                        -1 => out.push(b"-1"),
                        number => out.text(|text| reply::decimal(text, number as u64)),
                    }
                }
                _ => {}
            }
        }
    }

    fn identity(&self, letter: u8, rest: &[u8], request: &Request, out: &mut Output) {
        out.push(&[b' ', letter]);
        match letter {
            b'O' => out.push(rest),
            _ => {
                out.text(|text| encode_key(text, request.key.user(), self.base64));
                out.push(if self.base64 { b" b" } else { b"" });
            }
        }
    }

    /// The number behind a letter; `None` where the command does not tell it.
    fn figure(&self, letter: u8, request: &Request, about: &About, here: &AnswerContext<'_>) -> Option<i128> {
        let used = || here.recency.of(hash(&request.key), here.wall);
        let told: &[u8] = match self.verb {
            MetaVerb::Get => b"sfcthl",
            MetaVerb::Set { .. } => b"cs",
            MetaVerb::Arithmetic { .. } => b"ct",
            _ => b"",
        };
        told.contains(&letter).then(|| match letter {
            b's' => about.value_bytes.into(),
            b'f' => about.flags.into(),
            b'c' => about.version.into(),
            b'h' => used().0.into(),
            b'l' => used().1.into(),
            _ => seconds_left(about.expiry, here.wall),
        })
    }

    fn set(&self, request: &Request, outcome: &RequestOutcome, here: &AnswerContext<'_>, out: &mut Output) {
        let Action::Store { value, .. } = &request.action else { return };
        let counters = here.counters;
        let has_cas = u64::from(request.counts_as_cas());
        match outcome {
            RequestOutcome::Done { version, value_bytes } => {
                counters.cas_hits.add(has_cas);
                counters.total_items.add(1);
                here.recency.stored(hash(&request.key), here.wall);
                if !self.quiet {
                    // Of an append all of it, which was read for that.
                    let value_bytes = value_bytes.unwrap_or(value.len() as u64);
                    let expiry = Expiry::NEVER;
                    let about = About { flags: 0, value_bytes, version: *version, expiry, is_made: false };
                    self.head(request, &about, None, here, out);
                    out.push(reply::CRLF);
                }
            }
            RequestOutcome::Exists => {
                counters.cas_badval.add(has_cas);
                self.status(b"EX", request, false, out);
            }
            RequestOutcome::Missing => {
                counters.cas_misses.add(has_cas);
                self.status(b"NF", request, false, out);
            }
            _ => self.status(b"NS", request, false, out),
        }
    }

    fn delete(&self, request: &Request, outcome: &RequestOutcome, here: &AnswerContext<'_>, out: &mut Output) {
        let counters = here.counters;
        match outcome {
            RequestOutcome::Done { .. } => {
                counters.delete_hits.add(1);
                self.status(b"HD", request, true, out);
            }
            RequestOutcome::Exists => self.status(b"EX", request, false, out),
            _ => {
                counters.delete_misses.add(1);
                self.status(b"NF", request, false, out);
            }
        }
    }

    fn number(
        &self,
        request: &Request,
        outcome: &RequestOutcome,
        decrement: bool,
        here: &AnswerContext<'_>,
        out: &mut Output,
    ) {
        let counters = here.counters;
        let (hits, misses) = match decrement {
            true => (&counters.decr_hits, &counters.decr_misses),
            false => (&counters.incr_hits, &counters.incr_misses),
        };
        match outcome {
            RequestOutcome::Number { number, version, expiry, is_made } => {
                hits.add(u64::from(!is_made));
                // That it was made is told in any case.
                if self.quiet && !is_made {
                    return;
                }
                let mut digits = Vec::new();
                reply::decimal(&mut digits, *number);
                let value_bytes = digits.len() as u64;
                let (version, expiry, is_made) = (*version, *expiry, *is_made);
                let about = About { flags: 0, value_bytes, version, expiry, is_made };
                self.head(request, &about, self.value.then_some(value_bytes), here, out);
                out.push(reply::CRLF);
                if self.value {
                    out.push(&digits);
                    out.push(reply::CRLF);
                }
            }
            RequestOutcome::NotANumber => out.push(reply::NOT_A_NUMBER),
            RequestOutcome::Exists => self.status(b"EX", request, false, out),
            RequestOutcome::NotStored => self.status(b"NS", request, false, out),
            _ => {
                misses.add(1);
                self.status(b"NF", request, false, out);
            }
        }
    }

    /// An answer without figures; `q` leaves it out if it is what was to be expected.
    fn status(&self, status: &[u8], request: &Request, expected: bool, out: &mut Output) {
        if !(self.quiet && expected) {
            out.push(status);
            self.flags(request, None, out);
            out.push(reply::CRLF);
        }
    }

    /// `me`. There are no slab classes: the class is 1, the size that of key and value.
    fn debug(&self, request: &Request, outcome: RequestOutcome, here: &AnswerContext<'_>, out: &mut Output) {
        let RequestOutcome::Found { record, .. } = outcome else {
            return out.push(b"EN\r\n");
        };
        let key = &request.key;
        let (fetched, idle) = here.recency.of(hash(key), here.wall);
        out.push(b"ME ");
        // As it was sent: a key of any bytes would not stay on its line.
        out.text(|text| encode_key(text, key.user(), self.base64));
        let left = seconds_left(record.expiry, here.wall);
        let fetched = if fetched { "yes" } else { "no" };
        let size = key.user().len() as u64 + record.value_bytes;
        let cas = here.marks.shown(key, record.version);
        let figures = format!(" exp={left} la={idle} cas={cas} fetch={fetched} cls=1 size={size}\r\n");
        out.push(figures.as_bytes());
    }
}

/// -1 for never.
pub(crate) fn seconds_left(expiry: Expiry, wall: Wall) -> i128 {
    match expiry {
        Expiry::NEVER => -1,
        expiry => expiry.0.saturating_sub(wall.0).div_ceil(1000).into(),
    }
}
