//! Memcache commands: drawn, written, carried out on what a key may hold, and what answer each of
//! these would give.

use stratakv_base::decimal;
use stratakv_base::random::Random;
use stratakv_protocol::memcache::reply;

/// What a key may hold.
pub(super) type State = Option<KnownItem>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownItem {
    pub(super) flags: u32,
    pub(super) value: Vec<u8>,
    /// As told by `gets`; `None` if nobody has asked since it was written.
    pub(super) unique: Option<u64>,
}

/// A command about the keys of one client, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Store {
        verb: Verb,
        key: usize,
        flags: u32,
        value: Vec<u8>,
        noreply: bool,
    },
    Delete {
        key: usize,
        noreply: bool,
    },
    Count {
        key: usize,
        by: u64,
        down: bool,
    },
    Get {
        keys: Vec<usize>,
        with_unique: bool,
    },
    /// One of the above, of one key, as a meta command.
    Meta(Box<Command>),
    /// Counts what all clients share, making it if it is not there: by a meta command.
    Tally {
        /// What was counted and answered when this was asked, and this one.
        at_least: u64,
    },
    /// A line and its answer, which have nothing to do with keys.
    Fixed {
        line: &'static [u8],
        answer: &'static [u8],
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas(u64),
    /// A set that says the version to be; only as a meta command.
    SetAs(u64),
}

/// From here on versions are those that clients give.
pub(super) const GIVEN: u64 = 1 << 60;
/// The key that all clients count on.
pub(super) const TALLY: &str = "tally";

/// Commands that touch no key.
const FIXED: &[(&[u8], &[u8])] = &[
    (b"nonsense\r\n", reply::ERROR),
    (b"get\r\n", reply::ERROR),
    (b"set only-a-key\r\n", reply::ERROR),
    (b"verbosity 1\r\n", reply::OK),
    (b"incr a-key not-a-number\r\n", reply::BAD_DELTA),
    // As memcached: what follows the five bytes is an empty line.
    (b"set a-key 0 0 3\r\nabcde\r\n", b"CLIENT_ERROR bad data chunk\r\nERROR\r\n"),
    (b"stats sizes\r\n", b"STAT sizes_status disabled\r\nEND\r\n"),
];

impl Command {
    /// Draws one. `counter` makes its value unlike any other; `uniques` are the versions known of
    /// each key.
    pub(super) fn draw(random: &mut Random, counter: u64, value_bytes_max: u64, uniques: &[Option<u64>]) -> Command {
        let mut command = Command::draw_classic(random, counter, value_bytes_max, uniques);
        let is_of_one_key = match &command {
            Command::Get { keys, .. } => keys.len() == 1,
            command => command.changes().is_some(),
        };
        if is_of_one_key && random.below(3) == 0 {
            command.wants_an_answer();
            return Command::Meta(Box::new(command));
        }
        command
    }

    fn draw_classic(random: &mut Random, counter: u64, value_bytes_max: u64, uniques: &[Option<u64>]) -> Command {
        let key = random.below(uniques.len() as u64) as usize;
        match random.below(20) {
            0..=7 => {
                let verb = match (random.below(8), uniques[key]) {
                    (0, _) => Verb::Add,
                    (1, _) => Verb::Replace,
                    (2, _) => Verb::Append,
                    (3, _) => Verb::Prepend,
                    (4 | 5, Some(unique)) => Verb::Cas(unique),
                    _ => Verb::Set,
                };
                let noreply = random.below(8) == 0;
                let flags = if random.below(2) == 0 { 0 } else { random.next_u64() as u32 };
                Command::Store { verb, key, flags, value: value(random, counter, value_bytes_max), noreply }
            }
            8 | 9 => Command::Delete { key, noreply: random.below(6) == 0 },
            10 | 11 => Command::Count { key, by: 1 + random.below(1000), down: random.below(2) == 0 },
            12 => {
                let (line, answer) = FIXED[random.below(FIXED.len() as u64) as usize];
                Command::Fixed { line, answer }
            }
            _ => {
                let mut keys = vec![key];
                while random.below(3) == 0 && keys.len() < 10 {
                    keys.push(random.below(uniques.len() as u64) as usize);
                }
                Command::Get { keys, with_unique: random.below(2) == 0 }
            }
        }
    }

    /// As a client writes it. `name` gives the keys; what is stored expires after so many seconds
    /// (0: never).
    pub(super) fn write(&self, name: impl Fn(usize) -> String, lifetime: u32, out: &mut Vec<u8>) {
        let tail = |noreply: bool| if noreply { " noreply" } else { "" };
        match self {
            Command::Store { verb, key, flags, value, noreply } => {
                let (word, unique) = match verb {
                    Verb::Set => ("set", String::new()),
                    Verb::Add => ("add", String::new()),
                    Verb::Replace => ("replace", String::new()),
                    Verb::Append => ("append", String::new()),
                    Verb::Prepend => ("prepend", String::new()),
                    Verb::Cas(unique) => ("cas", format!(" {unique}")),
                    Verb::SetAs(_) => ("set", String::new()),
                };
                let (key, len, tail) = (name(*key), value.len(), tail(*noreply));
                out.extend(format!("{word} {key} {flags} {lifetime} {len}{unique}{tail}\r\n").bytes());
                out.extend(value);
                out.extend(b"\r\n");
            }
            Command::Delete { key, noreply } => {
                out.extend(format!("delete {}{}\r\n", name(*key), tail(*noreply)).bytes());
            }
            Command::Count { key, by, down } => {
                out.extend(format!("{} {} {by}\r\n", if *down { "decr" } else { "incr" }, name(*key)).bytes());
            }
            Command::Get { keys, with_unique } => {
                out.extend(if *with_unique { &b"gets"[..] } else { b"get" });
                keys.iter().for_each(|key| out.extend(format!(" {}", name(*key)).bytes()));
                out.extend(b"\r\n");
            }
            Command::Meta(command) => command.write_meta(name, lifetime, out),
            Command::Tally { .. } => out.extend(format!("ma {TALLY} N0 J1 D1 v\r\n").bytes()),
            Command::Fixed { line, .. } => out.extend(*line),
        }
    }

    fn write_meta(&self, name: impl Fn(usize) -> String, lifetime: u32, out: &mut Vec<u8>) {
        match self {
            Command::Store { verb, key, flags, value, .. } => {
                let mode = match verb {
                    Verb::Set => String::new(),
                    Verb::Add => " ME".into(),
                    Verb::Replace => " MR".into(),
                    Verb::Append => " MA".into(),
                    Verb::Prepend => " MP".into(),
                    Verb::Cas(unique) => format!(" C{unique}"),
                    Verb::SetAs(unique) => format!(" E{unique}"),
                };
                let lasts = if lifetime > 0 { format!(" T{lifetime}") } else { String::new() };
                out.extend(format!("ms {} {} F{flags}{mode}{lasts}\r\n", name(*key), value.len()).bytes());
                out.extend(value);
                out.extend(b"\r\n");
            }
            Command::Delete { key, .. } => out.extend(format!("md {}\r\n", name(*key)).bytes()),
            Command::Count { key, by, down } => {
                out.extend(format!("ma {} D{by}{}\r\n", name(*key), if *down { " MD" } else { "" }).bytes());
            }
            Command::Get { keys, with_unique } => {
                let unique = if *with_unique { " c" } else { "" };
                keys.iter().for_each(|key| out.extend(format!("mg {} f{unique} k v\r\n", name(*key)).bytes()));
            }
            Command::Meta(_) | Command::Fixed { .. } | Command::Tally { .. } => {}
        }
    }

    /// Lets the server say how it went.
    pub(super) fn wants_an_answer(&mut self) {
        if let Command::Store { noreply, .. } | Command::Delete { noreply, .. } = self {
            *noreply = false;
        }
    }

    /// The keys that it is about.
    pub(super) fn keys(&self) -> Vec<usize> {
        match self {
            Command::Get { keys, .. } => keys.clone(),
            Command::Meta(command) => command.keys(),
            command => command.changes().into_iter().collect(),
        }
    }

    /// A plain set says its version itself: one that no other write has.
    pub(super) fn with_version(self, counter: u64) -> Command {
        match self {
            Command::Store { verb: Verb::Set, key, flags, value, noreply } => {
                Command::Store { verb: Verb::SetAs(GIVEN + counter), key, flags, value, noreply }
            }
            command => command,
        }
    }

    /// Whether the server says nothing.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self, Command::Store { noreply: true, .. } | Command::Delete { noreply: true, .. })
    }

    /// Whether the old value goes also if the new one is refused.
    pub(super) fn overwrites(&self) -> bool {
        match self {
            Command::Store { verb, .. } => *verb == Verb::Set,
            Command::Meta(inner) => {
                matches!(**inner, Command::Store { verb: Verb::Set | Verb::Add | Verb::Replace, .. })
            }
            _ => false,
        }
    }

    /// The key that is changed, if one is.
    pub(super) fn changes(&self) -> Option<usize> {
        match self {
            Command::Store { key, .. } | Command::Delete { key, .. } | Command::Count { key, .. } => Some(*key),
            Command::Meta(command) => command.changes(),
            Command::Get { .. } | Command::Fixed { .. } | Command::Tally { .. } => None,
        }
    }

    /// What a change leaves of a state, and its answer.
    pub(super) fn carry_out(&self, state: &State) -> (State, Vec<u8>) {
        match self {
            Command::Store { verb, flags, value, .. } => {
                let (after, answer) = store(*verb, *flags, value, state);
                (after, answer.to_vec())
            }
            Command::Delete { .. } if state.is_some() => (None, reply::DELETED.to_vec()),
            Command::Delete { .. } => (None, reply::NOT_FOUND.to_vec()),
            Command::Count { by, down, .. } => count(*by, *down, state),
            Command::Meta(command) => {
                let (after, answer) = command.carry_out(state);
                let answer: &[u8] = match &answer[..] {
                    reply::STORED | reply::DELETED => b"HD\r\n",
                    reply::NOT_STORED => b"NS\r\n",
                    reply::EXISTS => b"EX\r\n",
                    reply::NOT_FOUND => b"NF\r\n",
                    reply::NOT_A_NUMBER => reply::NOT_A_NUMBER,
                    // A number, which was not asked for.
                    _ => b"HD\r\n",
                };
                (after, answer.to_vec())
            }
            Command::Get { .. } | Command::Fixed { .. } | Command::Tally { .. } => (state.clone(), Vec::new()),
        }
    }
}

fn store(verb: Verb, flags: u32, value: &[u8], state: &State) -> (State, &'static [u8]) {
    let new = Some(KnownItem { flags, value: value.to_vec(), unique: None });
    let joined = |held: &KnownItem, value: Vec<u8>| Some(KnownItem { flags: held.flags, value, unique: None });
    match (verb, state) {
        (Verb::SetAs(unique), _) => {
            (Some(KnownItem { flags, value: value.to_vec(), unique: Some(unique) }), reply::STORED)
        }
        (Verb::Set, _) | (Verb::Add, None) | (Verb::Replace, Some(_)) => (new, reply::STORED),
        (Verb::Append, Some(held)) => (joined(held, [&held.value, value].concat()), reply::STORED),
        (Verb::Prepend, Some(held)) => (joined(held, [value, &held.value].concat()), reply::STORED),
        (Verb::Cas(_), None) => (None, reply::NOT_FOUND),
        // A version that was never told is not the one the client has.
        (Verb::Cas(unique), Some(held)) if held.unique == Some(unique) => (new, reply::STORED),
        (Verb::Cas(_), Some(_)) => (state.clone(), reply::EXISTS),
        (Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend, _) => (state.clone(), reply::NOT_STORED),
    }
}

fn count(by: u64, down: bool, state: &State) -> (State, Vec<u8>) {
    let Some(held) = state else { return (None, reply::NOT_FOUND.to_vec()) };
    let Some(number) = decimal::unsigned(&held.value) else { return (state.clone(), reply::NOT_A_NUMBER.to_vec()) };
    let number = if down { number.saturating_sub(by) } else { number.wrapping_add(by) };
    let value = decimal::padded(number, held.value.len());
    (Some(KnownItem { flags: held.flags, value, unique: None }), format!("{number}\r\n").into_bytes())
}

fn value(random: &mut Random, counter: u64, value_bytes_max: u64) -> Vec<u8> {
    if random.below(4) == 0 {
        return format!("{counter}").into_bytes();
    }
    let unit = format!("[{counter}\r\nEND]");
    let len = random.below(value_bytes_max + 1) as usize;
    unit.bytes().cycle().take(len.max(unit.len())).collect()
}

/// A value in the answer to a get.
#[derive(Debug)]
pub(super) struct Hit {
    pub(super) key: String,
    pub(super) flags: u32,
    pub(super) unique: Option<u64>,
    pub(super) value: Vec<u8>,
}

/// The line at the front of `bytes`, its end included.
pub(super) fn line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    bytes.get(..end + 2)
}

/// What a get was answered.
pub(super) struct Hits {
    pub(super) hits: Vec<Hit>,
    /// The line that ended it, if it failed.
    pub(super) error: Option<Vec<u8>>,
    /// Length of the answer.
    pub(super) len: usize,
}

/// Reads the answer to a get.
pub(super) type ParseHits = fn(&[u8]) -> Result<Option<Hits>, String>;

/// The answer to a meta get at the front of `bytes`; `None` if it has not arrived whole.
///
/// # Errors
/// It is not an answer to one.
pub(super) fn meta_hit(bytes: &[u8]) -> Result<Option<Hits>, String> {
    let Some(header) = line(bytes) else { return Ok(None) };
    let at = header.len();
    if header.starts_with(b"EN") {
        return Ok(Some(Hits { hits: Vec::new(), error: None, len: at }));
    }
    if header.starts_with(b"SERVER_ERROR ") {
        return Ok(Some(Hits { hits: Vec::new(), error: Some(header.to_vec()), len: at }));
    }
    let text = String::from_utf8_lossy(header).into_owned();
    let bad = || format!("{text:?} is no answer to a meta get");
    let rest = text.strip_prefix("VA ").ok_or_else(bad)?;
    let (len, words) = rest.trim_end().split_once(' ').ok_or_else(bad)?;
    let len = len.parse::<usize>().map_err(|_| bad())?;
    let word = |letter: char| words.split(' ').find_map(|word| word.strip_prefix(letter));
    let key = word('k').ok_or_else(bad)?.to_owned();
    let flags = word('f').and_then(|flags| flags.parse().ok()).ok_or_else(bad)?;
    let unique = word('c').map(|unique| unique.parse().map_err(|_| bad())).transpose()?;
    let Some(value) = bytes.get(at..at + len + 2) else { return Ok(None) };
    let value = value.strip_suffix(b"\r\n").ok_or_else(|| format!("{text:?}: no line end after the value"))?;
    let hits = vec![Hit { key, flags, unique, value: value.to_vec() }];
    Ok(Some(Hits { hits, error: None, len: at + len + 2 }))
}

/// The number in the answer to a tally at the front of `bytes`, and the answer's length; `None` if
/// it has not arrived whole.
///
/// # Errors
/// It is not an answer to one.
pub(super) fn tally(bytes: &[u8]) -> Result<Option<(u64, usize)>, String> {
    let Some(header) = line(bytes) else { return Ok(None) };
    let Some(number) = line(&bytes[header.len()..]).filter(|_| header.starts_with(b"VA ")) else {
        let text = String::from_utf8_lossy(header);
        return if header.starts_with(b"VA ") { Ok(None) } else { Err(format!("{text:?} is no answer to a tally")) };
    };
    let text = String::from_utf8_lossy(number);
    let parsed = text.trim_end().parse().map_err(|_| format!("{text:?} is no number"))?;
    Ok(Some((parsed, header.len() + number.len())))
}

/// The answer to a get at the front of `bytes`; `None` if it has not arrived whole.
///
/// # Errors
/// It is not an answer to a get.
pub(super) fn hits(bytes: &[u8]) -> Result<Option<Hits>, String> {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        let Some(header) = line(&bytes[at..]) else { return Ok(None) };
        at += header.len();
        if header == reply::END {
            return Ok(Some(Hits { hits: found, error: None, len: at }));
        }
        if header.starts_with(b"SERVER_ERROR ") {
            return Ok(Some(Hits { hits: found, error: Some(header.to_vec()), len: at }));
        }
        let text = String::from_utf8_lossy(header).into_owned();
        let words: Vec<&str> = text.trim_end().split(' ').collect();
        let bad = || format!("{text:?} is no answer to a get");
        let ("VALUE", 4 | 5) = (words[0], words.len()) else { return Err(bad()) };
        let numbers = words[2..].iter().map(|word| word.parse::<u64>().ok());
        let numbers = numbers.collect::<Option<Vec<u64>>>().ok_or_else(bad)?;
        let len = numbers[1] as usize;
        let Some(value) = bytes.get(at..at + len + 2) else { return Ok(None) };
        let value = value.strip_suffix(b"\r\n").ok_or_else(|| format!("{text:?}: no line end after the value"))?;
        let unique = numbers.get(2).copied();
        found.push(Hit { key: words[1].to_owned(), flags: numbers[0] as u32, unique, value: value.to_vec() });
        at += len + 2;
    }
}
