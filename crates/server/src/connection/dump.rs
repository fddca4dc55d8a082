//! Listing every record: page after page of each shard, never more ahead of the client than its
//! output may hold. Engines in order give pages of keys, and then what is known of each record
//! without its value; the others give pages of a list.

use stratakv_base::{Expiry, Key};
use stratakv_engine::{Capability, Error, Item, Operation, Record, RecordPart, Reply};
use stratakv_protocol::memcache::{DumpKind, encode_key, reply};

use super::{Connection, Context, OUTPUT_BYTES_MAX, PENDING_MAX, Submission, Target, hash};
use crate::answer::{Answer, AnswerContext, failed};
use crate::output::Output;
use crate::pending::{Access, PendingAnswer};
use crate::schedule::UNITS_EACH;
use crate::walk::{self, WalkPlace};

/// Of a page. Each of its records has a place in the order of answers.
const PAGE_ITEMS_MAX: u32 = 48;
const PAGE_BYTES_MAX: u32 = 32 << 10;
/// What a page costs its connection of its share of a tick: as much as all of it.
const PAGE_UNITS: i64 = UNITS_EACH;

/// A listing on its way.
#[derive(Clone, Debug)]
pub(crate) struct Dump {
    kind: DumpKind,
    place: WalkPlace,
    /// Records that may still be listed.
    left: u32,
    /// A page is being read.
    asked: bool,
}

impl Connection {
    pub(super) fn begin_dump(&mut self, kind: DumpKind) {
        let left = if let DumpKind::Cache { items_max } = kind { items_max } else { u32::MAX };
        let dump = Dump { kind, place: WalkPlace::start(), left, asked: false };
        self.place(Answer::Dump(Box::new(dump)), false, Access::Everything).missing = 1;
    }

    /// Goes on with a listing that is next in order; whether that ended it.
    pub(super) fn list(&mut self, context: &mut Context<'_>) -> bool {
        let Some(PendingAnswer { answer: Answer::Dump(dump), reply, missing, .. }) = self.answers.pending.front_mut()
        else {
            return false;
        };
        if *missing == 0 || self.ending.broken {
            return false;
        }
        if self.grant.units <= 0 {
            self.grant.wants_more |= reply.is_some() || !dump.asked;
            return false;
        }
        let mut ends = std::mem::take(&mut self.answers.response_encoder.list_failed);
        if let Some(reply) = reply.take().filter(|_| !ends) {
            dump.asked = false;
            self.grant.spend(PAGE_UNITS);
            match dump.page(reply, &context.here(), &mut self.sending.output) {
                Page::Written => {}
                Page::Keys(keys) => {
                    self.list_records(keys, context);
                    return false;
                }
                Page::Ended => ends = true,
            }
        }
        if !ends && (dump.left == 0 || dump.place.shard >= context.shards) {
            self.sending.output.push(if dump.kind == DumpKind::MetaGet { reply::META_END } else { reply::END });
            ends = true;
        }
        if ends {
            *missing = 0;
        } else if !dump.asked && self.sending.output.bytes() < OUTPUT_BYTES_MAX {
            self.next_page(context);
        }
        ends
    }

    /// Asks what is known of the records of a page. Their lines come before the rest of the list,
    /// which is next in order: they get the numbers before its own, which nobody uses any more.
    fn list_records(&mut self, keys: Vec<Key>, context: &mut Context<'_>) {
        let Some(PendingAnswer { answer: Answer::Dump(dump), reading_bytes, .. }) = self.answers.pending.front_mut()
        else {
            return;
        };
        self.reading.bytes -= std::mem::take(reading_bytes);
        let kind = dump.kind;
        self.answers.first = self.answers.first.wrapping_sub(keys.len() as u32);
        for (sequence, key) in (0..).map(|number| self.answers.first.wrapping_add(number)).zip(&keys) {
            let operation = Operation::Get { key: key.clone(), part: RecordPart::Meta };
            context.submissions.push(Submission { sequence, target: Target::Key, operation });
        }
        for key in keys.into_iter().rev() {
            let reading_bytes = key.encoded().len() as u64;
            self.reading.bytes += reading_bytes;
            let answer = Answer::Listed { kind, key };
            self.answers.pending.push_front(PendingAnswer {
                answer,
                missing: 1,
                reading_bytes,
                ..PendingAnswer::default()
            });
        }
    }

    /// Asks for the next page, once its records may be held.
    fn next_page(&mut self, context: &mut Context<'_>) {
        if !self.may_take(PAGE_BYTES_MAX.into()) {
            return;
        }
        // Answers that need no operation may stand behind it already.
        let items_max = PENDING_MAX.saturating_sub(self.answers.pending.len()).max(1) as u32;
        let Some(PendingAnswer { answer: Answer::Dump(dump), reading_bytes, .. }) = self.answers.pending.front_mut()
        else {
            return;
        };
        dump.asked = true;
        *reading_bytes = PAGE_BYTES_MAX.into();
        self.reading.bytes += *reading_bytes;
        let target = Target::Shard(dump.place.shard);
        context.submissions.push(Submission {
            sequence: self.answers.first,
            target,
            operation: dump.next(items_max.min(PAGE_ITEMS_MAX)),
        });
    }
}

impl Dump {
    /// Asks for the next page, of so many records at most.
    fn next(&self, items_max: u32) -> Operation {
        self.place.page(self.left.min(items_max), PAGE_BYTES_MAX)
    }

    /// Takes a page.
    fn page(&mut self, reply: Reply, here: &AnswerContext<'_>, out: &mut Output) -> Page {
        match reply {
            Reply::Page { items, next } => {
                self.count(items.len());
                self.place.pass_page(next);
                let keys = walk::keys_of(items);
                let keys: Vec<Key> = match self.kind {
                    DumpKind::Meta => keys.collect(),
                    DumpKind::MetaGet => {
                        keys.for_each(|key| key_line(&key, out));
                        Vec::new()
                    }
                    // Others cannot be told there.
                    DumpKind::Cache { .. } => keys.filter(|key| !is_no_word(key.user())).collect(),
                };
                // A shard may be empty, and a page too.
                if keys.is_empty() { Page::Written } else { Page::Keys(keys) }
            }
            Reply::Listed { items, next } => {
                for Item { key, record } in items.iter().take(self.left as usize) {
                    if let Some(record) = record {
                        line(self.kind, key, record, out, here);
                    }
                }
                self.count(items.len());
                self.place.pass_list(next);
                Page::Written
            }
            Reply::Failed(Error::Unsupported(Capability::Ordered)) => {
                self.place.has_no_order();
                Page::Written
            }
            Reply::Failed(error) => {
                failed(&error, false, out, here.counters);
                Page::Ended
            }
            _ => Page::Written,
        }
    }

    /// So many records were listed.
    fn count(&mut self, items: usize) {
        self.left -= (items as u32).min(self.left);
    }
}

/// What became of a page.
enum Page {
    Written,
    /// Something has to be known of these records; there are some.
    Keys(Vec<Key>),
    /// An error ended the list.
    Ended,
}

/// A record of a list.
pub(crate) fn line(kind: DumpKind, key: &Key, record: &Record, out: &mut Output, here: &AnswerContext<'_>) {
    let name = key.user();
    match kind {
        DumpKind::Meta => {
            let (fetched, idle) = here.recency.of(hash(key), here.wall);
            let expiry = if record.expiry == Expiry::NEVER { -1 } else { record.expiry.seconds() as i64 };
            let used = here.wall.seconds().saturating_sub(idle.into());
            let cas = here.marks.shown(key, record.version);
            let fetched = if fetched { "yes" } else { "no" };
            let size = name.len() as u64 + record.value_bytes;
            out.push(b"key=");
            out.text(|text| reply::encoded_key(text, name));
            let rest = format!(" exp={expiry} la={used} cas={cas} fetch={fetched} cls=1 size={size}\n");
            out.push(rest.as_bytes());
        }
        DumpKind::MetaGet => key_line(key, out),
        // Such keys cannot be told there.
        DumpKind::Cache { .. } if is_no_word(name) => {}
        DumpKind::Cache { .. } => {
            out.push(b"ITEM ");
            out.push(name);
            out.push(format!(" [{} b; {} s]\r\n", record.value_bytes, record.expiry.seconds()).as_bytes());
        }
    }
}

/// As `lru_crawler mgdump` has it.
fn key_line(key: &Key, out: &mut Output) {
    let name = key.user();
    let is_base64 = is_no_word(name);
    out.push(b"mg ");
    out.text(|text| encode_key(text, name, is_base64));
    out.push(if is_base64 { b" b\r\n" } else { reply::CRLF });
}

/// Whether a key cannot stand in a line as it is.
pub(crate) fn is_no_word(name: &[u8]) -> bool {
    name.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0)
}
