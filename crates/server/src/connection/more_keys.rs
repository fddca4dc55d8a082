//! Keys of one command whose records are asked for one after the other, each with a place in the
//! order of answers: of MGET, and of ranges once it is known which keys there are.

use stratakv_protocol::resp::{Version, encode};

use super::{Connection, Context};
use crate::answer::{Answer, Dialect};
use crate::meta;
use crate::request::Request;
use crate::resp::{KeyList, RespAnswer, Said, WorkKind, written};

/// Keys still to be asked for.
#[derive(Debug)]
pub(super) struct MoreKeys {
    keys: KeyList,
    form: MoreForm,
    /// A range is being looked for: it is not known yet which keys there are.
    is_awaited: bool,
}

/// What is answered of each key.
#[derive(Debug)]
pub(super) enum MoreForm {
    /// Its value.
    Values(Version),
    /// It and its value.
    Pairs(Version),
    /// What `mg` with these flags answers, but for nothing of a record that has gone; and the end.
    Meta { line: Box<[u8]>, base64: bool, end: Vec<u8> },
}

impl MoreKeys {
    pub(super) fn new(keys: KeyList, form: MoreForm) -> Box<MoreKeys> {
        Box::new(MoreKeys { keys, form, is_awaited: false })
    }

    /// Those of a range that is being looked for.
    pub(super) fn awaited(form: MoreForm) -> Box<MoreKeys> {
        Box::new(MoreKeys { keys: KeyList::default(), form, is_awaited: true })
    }

    pub(super) fn held_bytes(&self) -> usize {
        let form = match &self.form {
            MoreForm::Meta { line, end, .. } => line.len() + end.capacity(),
            MoreForm::Values(_) | MoreForm::Pairs(_) => 0,
        };
        self.keys.held_bytes() + form
    }
}

impl Connection {
    /// A command has its answer. If it looked for a range, its records follow.
    pub(super) fn begin_rest(&mut self, index: usize) {
        let Some(Answer::Work(work)) = self.answers.pending.get(index).map(|pending| &pending.answer) else { return };
        let WorkKind::Keys(range) = &work.kind else { return };
        match (range.rest(), &mut self.unfinished.more) {
            (Some((keys, behind)), Some(more)) => {
                (more.keys, more.is_awaited) = (keys, false);
                if let MoreForm::Meta { end, .. } = &mut more.form {
                    *end = behind;
                }
            }
            _ => self.unfinished.more = None,
        }
    }

    /// Asks for the next key; false if nothing can be done now.
    pub(super) fn next_of_more(&mut self, mut more: Box<MoreKeys>, context: &mut Context<'_>) -> bool {
        if more.is_awaited {
            self.unfinished.more = Some(more);
            return false;
        }
        let Some(key) = more.keys.next() else {
            if let MoreForm::Meta { end, .. } = more.form {
                self.answer(Answer::Written(end), false);
            }
            return true;
        };
        let version = match &more.form {
            MoreForm::Meta { line, base64, .. } => {
                let (request, words) = meta::of_range(key, line, *base64);
                self.unfinished.more = Some(more);
                return self.plan(request, Dialect::Meta(words), context);
            }
            MoreForm::Pairs(version) => {
                self.answer(Answer::Written(written(|out| encode::bulk(out, key.user()))), false);
                *version
            }
            MoreForm::Values(version) => *version,
        };
        if !more.keys.is_empty() {
            self.unfinished.more = Some(more);
        }
        context.counters.cmd_get.add(1);
        let answer = Answer::Resp(RespAnswer { key: key.clone(), said: Said::OneOfValues, version });
        self.ask_once(Request::of(key, super::resp::GET), answer, false, context)
    }
}
