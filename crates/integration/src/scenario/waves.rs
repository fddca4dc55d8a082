//! Structures of a Redis client that become long and short again in turn, so that they are packed,
//! trees, and packed again: what their next change is, and what they must hold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use crate::resp::RespConnection;

/// Elements that one change adds or removes, and changes in one direction: at the top of a wave
/// each structure has some 17 KiB, at its foot less than 1 KiB.
const STEP: u64 = 12;
const RISES: u64 = 14;
/// As long is the text of an element.
const TEXT_BYTES: usize = 90;
/// Elements that always stay.
const KEPT: u64 = 3;

/// What the structures hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Waves {
    hash: BTreeMap<String, String>,
    list: VecDeque<String>,
    scores: BTreeMap<String, String>,
    set: BTreeSet<String>,
}

/// The elements of a change, and whether it adds them.
fn elements(change: u64) -> (Range<u64>, bool) {
    let (at, wave) = (change % (2 * RISES), change / (2 * RISES));
    let first = wave * RISES * STEP + at % RISES * STEP;
    (first..first + STEP, at < RISES)
}

fn text(element: u64) -> String {
    format!("{element:0TEXT_BYTES$}")
}

impl Waves {
    /// The commands of a client's change of this number.
    pub(super) fn commands(&self, change: u64, client: u64) -> Vec<String> {
        let (elements, grows) = elements(change);
        let line = |front: &str, words: &dyn Fn(u64) -> String| {
            elements.clone().fold(front.to_owned(), |line, element| line + " " + &words(element))
        };
        match grows {
            true => vec![
                line(&format!("HSET w{client}:hash"), &|element| format!("f{element} {}", text(element))),
                line(&format!("RPUSH w{client}:list"), &text),
                line(&format!("ZADD w{client}:scores"), &|element| format!("{element} m{}", text(element))),
                line(&format!("SADD w{client}:set"), &text),
            ],
            false => vec![
                line(&format!("HDEL w{client}:hash"), &|element| format!("f{}", element.saturating_sub(KEPT))),
                format!("LTRIM w{client}:list {STEP} -1"),
                format!("ZREMRANGEBYRANK w{client}:scores 0 {}", STEP - 1),
                line(&format!("SREM w{client}:set"), &|element| text(element.saturating_sub(KEPT))),
            ],
        }
    }

    /// Does what these commands do.
    pub(super) fn change(&mut self, change: u64) {
        let (elements, grows) = elements(change);
        for element in elements {
            if grows {
                self.hash.insert(format!("f{element}"), text(element));
                self.list.push_back(text(element));
                self.scores.insert(format!("m{}", text(element)), element.to_string());
                self.set.insert(text(element));
            } else {
                self.hash.remove(&format!("f{}", element.saturating_sub(KEPT)));
                self.list.pop_front();
                let first = self.scores.iter().min_by_key(|(_, score)| score.parse::<u64>().unwrap_or_default());
                if let Some(first) = first.map(|(member, _)| member.clone()) {
                    self.scores.remove(&first);
                }
                self.set.remove(&text(element.saturating_sub(KEPT)));
            }
        }
    }

    /// What a client's structures hold.
    pub(super) fn read(connection: &mut RespConnection, client: u64) -> Result<Waves, String> {
        let mut texts = |command: &str| {
            let told = connection.ask(command).map_err(|error| format!("{command}: {error}"))?;
            told.texts().ok_or_else(|| format!("{command} was answered {told:?}"))
        };
        let pairs = |texts: Vec<String>| texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        Ok(Waves {
            hash: pairs(texts(&format!("HGETALL w{client}:hash"))?),
            list: texts(&format!("LRANGE w{client}:list 0 -1"))?.into(),
            scores: pairs(texts(&format!("ZRANGE w{client}:scores 0 -1 WITHSCORES"))?),
            set: texts(&format!("SMEMBERS w{client}:set"))?.into_iter().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wave_crosses_the_borders_of_both_forms_each_way() {
        let (mut waves, mut bytes) = (Waves::default(), Vec::new());
        for change in 0..4 * RISES {
            waves.change(change);
            let of = |texts: usize| texts * TEXT_BYTES;
            bytes.push([of(waves.hash.len()), of(waves.list.len()), of(waves.scores.len()), of(waves.set.len())]);
        }
        for kind in 0..4 {
            let of_kind: Vec<usize> = bytes.iter().map(|bytes| bytes[kind]).collect();
            for wave in of_kind.chunks(2 * RISES as usize) {
                assert!(wave.iter().any(|bytes| *bytes > 14 << 10), "{wave:?}");
                assert!(wave.last().is_some_and(|bytes| *bytes < 1 << 10), "{wave:?}");
            }
        }
    }
}
