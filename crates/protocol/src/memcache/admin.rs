//! Commands about the server and not about keys: `slabs`, `lru`, `lru_crawler`, `cache_memlimit`,
//! `shutdown`, `watch`.
//!
//! What tunes memcached's memory has nothing to tune here, but for how much there is. It is checked
//! as memcached checks it, and answered in memcached's words: done where nothing is left to do, not
//! available where something would be expected.

use super::command::{Command, Detail, DumpKind, Watched};
use super::line::{Tokens, signed, unsigned, words};
use super::parser::LineError;
use super::reply;

/// memcached's slab classes have numbers below this; 1 is the only one that has items here.
const CLASSES: u32 = 64;

/// Who gives more mebibytes than memcached takes for a limit means bytes.
const MEBIBYTES_END: u32 = 1_000_000_001;

fn settled(reply: &'static [u8]) -> Result<Command<'static>, LineError> {
    Ok(Command::Answered { reply, noreply: false })
}

/// `slabs reassign <from> <to>`, `slabs automove <mode> [<ratio>]`.
pub(super) fn slabs<'a>(tokens: Tokens<'a>) -> Result<Command<'a>, LineError> {
    let Some((words, count)) = words::<3>(tokens) else { return Err(reply::ERROR.into()) };
    match (words, count) {
        ([b"reassign", from, to], 3) => match (signed(from), signed(to)) {
            (Some(_), Some(_)) => settled(reply::SLABS_FIXED),
            _ => Err(reply::BAD_LINE.into()),
        },
        ([b"automove", b"ratio", ratio], 3) => match std::str::from_utf8(ratio).map(str::parse::<f64>) {
            Ok(Ok(_)) => settled(reply::SLABS_FIXED),
            _ => Err(reply::ERROR.into()),
        },
        ([b"automove", mode, _], 2 | 3) => match unsigned::<u32>(mode) {
            Some(0..=2) => settled(reply::SLABS_FIXED),
            Some(_) => Err(reply::ERROR.into()),
            None => Err(reply::BAD_LINE.into()),
        },
        _ => Err(reply::ERROR.into()),
    }
}

/// `lru mode <mode>`, `lru tune <hot> <warm> <hot factor> <warm factor>`, `lru temp_ttl <seconds>`.
pub(super) fn lru<'a>(tokens: Tokens<'a>) -> Result<Command<'a>, LineError> {
    let Some((words, count)) = words::<5>(tokens) else { return Err(reply::ERROR.into()) };
    let factor = |word: &[u8]| std::str::from_utf8(word).is_ok_and(|word| word.parse::<f64>().is_ok());
    let valid = match (words, count) {
        ([b"mode", b"flat" | b"segmented", ..], 2) => true,
        ([b"temp_ttl", seconds, ..], 2) => signed(seconds).is_some(),
        ([b"tune", hot, warm, hot_factor, warm_factor], 5) => match (unsigned::<u32>(hot), unsigned::<u32>(warm)) {
            (Some(hot), Some(warm)) if hot.saturating_add(warm) > 80 => return Err(reply::LRU_SHARES.into()),
            (Some(_), Some(_)) => factor(hot_factor) && factor(warm_factor),
            _ => false,
        },
        _ => false,
    };
    if valid { settled(reply::LRU_FIXED) } else { Err(reply::ERROR.into()) }
}

/// `lru_crawler <what> [<argument>]`. Expired records are found without being told to.
pub(super) fn crawler<'a>(tokens: Tokens<'a>) -> Result<Command<'a>, LineError> {
    let Some((words, count)) = words::<2>(tokens) else { return Err(reply::ERROR.into()) };
    match (words, count) {
        ([b"enable" | b"disable", _], 1) => settled(reply::OK),
        ([b"crawl", class], 2) => is_class(class).and_then(|()| settled(reply::OK)),
        ([b"metadump", class], 2) => is_class(class).map(|()| Command::Dump(DumpKind::Meta)),
        ([b"mgdump", class], 2) => is_class(class).map(|()| Command::Dump(DumpKind::MetaGet)),
        ([b"sleep", pause_us], 2) => match unsigned::<u32>(pause_us) {
            Some(0..=1_000_000) => settled(reply::OK),
            Some(_) => Err(reply::CRAWLER_SLEEP.into()),
            None => Err(reply::BAD_LINE.into()),
        },
        ([b"tocrawl", items], 2) => match unsigned::<u32>(items) {
            Some(_) => settled(reply::OK),
            None => Err(reply::BAD_LINE.into()),
        },
        _ => Err(reply::ERROR.into()),
    }
}

/// Classes as the crawler takes them: all, by their hash table, or a list of numbers.
fn is_class(word: &[u8]) -> Result<(), LineError> {
    let number = |word: &[u8]| unsigned::<u32>(word).is_some_and(|class| (1..CLASSES).contains(&class));
    match word == b"all" || word == b"hash" || word.split(|byte| *byte == b',').all(number) {
        true => Ok(()),
        false => Err(reply::BAD_CLASS.into()),
    }
}

/// `cache_memlimit <mebibytes> [noreply]`.
pub(super) fn memory_limit<'a>(tokens: Tokens<'a>) -> Result<Command<'a>, LineError> {
    let Some(([limit, second], 1..)) = words::<2>(tokens) else { return Err(reply::ERROR.into()) };
    let noreply = second == b"noreply";
    match unsigned::<u32>(limit) {
        None => Err(reply::ERROR.into()),
        Some(0..8) => Ok(Command::Answered { reply: reply::MEMORY_TOO_SMALL, noreply }),
        Some(MEBIBYTES_END..) => Ok(Command::Answered { reply: reply::MEMORY_NO_BYTES, noreply }),
        Some(mebibytes) => Ok(Command::MemoryLimit { mebibytes, noreply }),
    }
}

/// `shutdown [graceful]`.
pub(super) fn shutdown<'a>(tokens: Tokens<'a>) -> Result<Command<'a>, LineError> {
    match words::<1>(tokens) {
        Some(([b"graceful"], 1) | (_, 0)) => Ok(Command::Shutdown { valid: true }),
        _ => Ok(Command::Shutdown { valid: false }),
    }
}

/// `watch [<kind>*]`; without a kind what is fetched.
pub(super) fn watch<'a>(tokens: Tokens<'a>) -> Result<Command<'a>, LineError> {
    let mut kinds = Watched::NOTHING;
    for word in tokens {
        kinds = kinds.and(Watched::named(word).ok_or(reply::ERROR)?);
    }
    Ok(Command::Watch(if kinds == Watched::NOTHING { Watched::FETCHERS } else { kinds }))
}

/// What follows `stats detail`.
pub(super) fn detail<'a>(mut tokens: Tokens<'a>) -> Result<Command<'a>, LineError> {
    match tokens.next() {
        Some(b"on") => Ok(Command::Detail(Detail::On)),
        Some(b"off") => Ok(Command::Detail(Detail::Off)),
        Some(b"dump") => Ok(Command::Detail(Detail::Dump)),
        _ => Err(reply::DETAIL_USAGE.into()),
    }
}

/// What follows `stats cachedump`: `<class> <items>`, and words that nobody reads.
pub(super) fn cachedump<'a>(mut tokens: Tokens<'a>) -> Result<Command<'a>, LineError> {
    let (Some(class), Some(items)) = (tokens.next(), tokens.next()) else { return Err(reply::CACHEDUMP_USAGE.into()) };
    match (unsigned::<u32>(class), unsigned::<u32>(items)) {
        (Some(1), Some(items)) => {
            Ok(Command::Dump(DumpKind::Cache { items_max: if items == 0 { u32::MAX } else { items } }))
        }
        (Some(class), Some(_)) if class < CLASSES => settled(reply::END),
        (Some(_), Some(_)) => Err(reply::BAD_SLAB.into()),
        _ => Err(reply::BAD_LINE.into()),
    }
}
