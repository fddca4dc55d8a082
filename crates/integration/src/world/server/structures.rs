//! What Redis commands do to the values of keys, and what they answer: the model beside which
//! [`redis`](super::redis) clients judge.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    List(VecDeque<Vec<u8>>),
    Set(BTreeSet<Vec<u8>>),
    /// Scores are whole numbers here.
    Sorted(BTreeMap<Vec<u8>, i64>),
}

/// What keys hold.
pub(super) type Values = BTreeMap<Vec<u8>, Value>;

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Simple(&'static str),
    Error(&'static str),
    Number(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Answer>),
}

const WRONG_TYPE: Answer = Answer::Error("WRONGTYPE Operation against a key holding the wrong kind of value");
const NO_NUMBER: Answer = Answer::Error("ERR value is not an integer or out of range");
const OVERFLOW: Answer = Answer::Error("ERR increment or decrement would overflow");
const OK: Answer = Answer::Simple("OK");

impl Answer {
    fn bulk(bytes: Option<&Vec<u8>>) -> Answer {
        bytes.map_or(Answer::Nil, |bytes| Answer::Bulk(bytes.clone()))
    }

    fn count(count: usize) -> Answer {
        Answer::Number(count as i64)
    }

    /// As it is on the wire, to a client of RESP2.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Answer::Simple(text) => out.extend(format!("+{text}\r\n").bytes()),
            Answer::Error(text) => out.extend(format!("-{text}\r\n").bytes()),
            Answer::Number(number) => out.extend(format!(":{number}\r\n").bytes()),
            Answer::Nil => out.extend(b"$-1\r\n"),
            Answer::Bulk(bytes) => {
                out.extend(format!("${}\r\n", bytes.len()).bytes());
                out.extend(bytes);
                out.extend(b"\r\n");
            }
            Answer::Array(answers) => {
                out.extend(format!("*{}\r\n", answers.len()).bytes());
                answers.iter().for_each(|answer| answer.write(out));
            }
        }
    }
}

impl Value {
    /// Bytes of its elements.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Value::Text(text) => text.len(),
            Value::Hash(fields) => fields.iter().map(|(field, value)| field.len() + value.len()).sum(),
            Value::List(elements) => elements.iter().map(|element| element.len() + 1).sum(),
            Value::Set(members) => members.iter().map(Vec::len).sum(),
            Value::Sorted(members) => members.keys().map(|member| member.len() + 8).sum(),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Value::Text(_) => false,
            Value::Hash(fields) => fields.is_empty(),
            Value::List(elements) => elements.is_empty(),
            Value::Set(members) => members.is_empty(),
            Value::Sorted(members) => members.is_empty(),
        }
    }

    fn type_name(&self) -> &'static str {
        match self {
            Value::Text(_) => "string",
            Value::Hash(_) => "hash",
            Value::List(_) => "list",
            Value::Set(_) => "set",
            Value::Sorted(_) => "zset",
        }
    }
}

/// By score, then by member.
fn in_order(members: &BTreeMap<Vec<u8>, i64>) -> Vec<(i64, Vec<u8>)> {
    let mut all: Vec<(i64, Vec<u8>)> = members.iter().map(|(member, score)| (*score, member.clone())).collect();
    all.sort();
    all
}

fn with_scores(members: impl IntoIterator<Item = (i64, Vec<u8>)>) -> Answer {
    let pairs = members.into_iter();
    Answer::Array(pairs.flat_map(|(score, member)| [Answer::Bulk(member), number(score)]).collect())
}

fn number(number: i64) -> Answer {
    Answer::Bulk(number.to_string().into_bytes())
}

fn whole(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// A range of places as Redis names it: from the end if negative.
fn places(len: usize, first: &[u8], last: &[u8]) -> std::ops::Range<usize> {
    let place = |word: &[u8]| {
        let at = whole(word).unwrap_or_default();
        if at < 0 { at + len as i64 } else { at }
    };
    let first = place(first).max(0) as usize;
    let end = (place(last) + 1).clamp(0, len as i64) as usize;
    first.min(end)..end
}

/// Carries a command out. Its name is in capitals.
///
/// # Panics
/// The command is none of those below.
pub(super) fn carry_out(values: &mut Values, words: &[Vec<u8>]) -> Answer {
    let name = String::from_utf8_lossy(&words[0]).into_owned();
    let key = &words[1];
    let answer = match name.as_str() {
        "DEL" => Answer::Number(i64::from(values.remove(key).is_some())),
        "TYPE" => Answer::Simple(values.get(key).map_or("none", Value::type_name)),
        "EXISTS" => Answer::Number(i64::from(values.contains_key(key))),
        "RENAME" => match values.remove(key) {
            Some(value) => {
                values.insert(words[2].clone(), value);
                OK
            }
            None => Answer::Error("ERR no such key"),
        },
        "COPY" => match values.get(key).cloned() {
            Some(value) => {
                values.insert(words[2].clone(), value);
                Answer::Number(1)
            }
            None => Answer::Number(0),
        },
        "LMOVE" => move_element(values, words),
        "SMOVE" => move_member(values, words),
        "SET" => {
            values.insert(key.clone(), Value::Text(words[2].clone()));
            OK
        }
        "GET" | "APPEND" | "INCRBY" | "STRLEN" => of_text(values, &name, words),
        _ if name.starts_with('H') => of_hash(values, &name, words),
        _ if name.starts_with('S') => of_set(values, &name, words),
        _ if name.starts_with('Z') => of_sorted(values, &name, words),
        _ => of_list(values, &name, words),
    };
    values.retain(|_, value| !value.is_empty());
    answer
}

fn of_text(values: &mut Values, name: &str, words: &[Vec<u8>]) -> Answer {
    let text = match values.get(&words[1]) {
        Some(Value::Text(text)) => Some(text.clone()),
        None => None,
        Some(_) => return WRONG_TYPE,
    };
    let mut put = |text: Vec<u8>| _ = values.insert(words[1].clone(), Value::Text(text));
    match name {
        "GET" => Answer::bulk(text.as_ref()),
        "STRLEN" => Answer::count(text.map_or(0, |text| text.len())),
        "APPEND" => {
            let text = [&text.unwrap_or_default()[..], &words[2]].concat();
            let len = text.len();
            put(text);
            Answer::count(len)
        }
        _ => {
            let Some(old) = text.map_or(Some(0), |text| whole(&text).filter(|old| old.to_string().as_bytes() == text))
            else {
                return NO_NUMBER;
            };
            let Some(sum) = old.checked_add(whole(&words[2]).unwrap_or_default()) else { return OVERFLOW };
            put(sum.to_string().into_bytes());
            Answer::Number(sum)
        }
    }
}

fn of_hash(values: &mut Values, name: &str, words: &[Vec<u8>]) -> Answer {
    let fields = match values.entry(words[1].clone()).or_insert_with(|| Value::Hash(BTreeMap::new())) {
        Value::Hash(fields) => fields,
        _ => return WRONG_TYPE,
    };
    match name {
        "HSET" => {
            let pairs = words[2..].chunks(2);
            Answer::count(pairs.filter(|pair| fields.insert(pair[0].clone(), pair[1].clone()).is_none()).count())
        }
        "HDEL" => Answer::count(words[2..].iter().filter(|field| fields.remove(*field).is_some()).count()),
        "HGET" => Answer::bulk(fields.get(&words[2])),
        "HLEN" => Answer::count(fields.len()),
        _ => {
            let pairs = fields.iter().flat_map(|(field, value)| [field, value]);
            Answer::Array(pairs.map(|word| Answer::Bulk(word.clone())).collect())
        }
    }
}

fn of_set(values: &mut Values, name: &str, words: &[Vec<u8>]) -> Answer {
    let members = match values.entry(words[1].clone()).or_insert_with(|| Value::Set(BTreeSet::new())) {
        Value::Set(members) => members,
        _ => return WRONG_TYPE,
    };
    match name {
        "SADD" => Answer::count(words[2..].iter().filter(|member| members.insert((*member).clone())).count()),
        "SREM" => Answer::count(words[2..].iter().filter(|member| members.remove(*member)).count()),
        "SISMEMBER" => Answer::Number(i64::from(members.contains(&words[2]))),
        "SCARD" => Answer::count(members.len()),
        _ => Answer::Array(members.iter().map(|member| Answer::Bulk(member.clone())).collect()),
    }
}

fn of_sorted(values: &mut Values, name: &str, words: &[Vec<u8>]) -> Answer {
    let members = match values.entry(words[1].clone()).or_insert_with(|| Value::Sorted(BTreeMap::new())) {
        Value::Sorted(members) => members,
        _ => return WRONG_TYPE,
    };
    match name {
        "ZADD" => {
            let pairs = words[2..].chunks(2);
            let is_new = |pair: &[Vec<u8>]| members.insert(pair[1].clone(), whole(&pair[0]).unwrap_or_default());
            Answer::count(pairs.map(is_new).filter(Option::is_none).count())
        }
        "ZREM" => Answer::count(words[2..].iter().filter(|member| members.remove(*member).is_some()).count()),
        "ZSCORE" => members.get(&words[2]).map_or(Answer::Nil, |score| number(*score)),
        "ZRANK" => {
            let rank = in_order(members).iter().position(|(_, member)| *member == words[2]);
            rank.map_or(Answer::Nil, Answer::count)
        }
        "ZCARD" => Answer::count(members.len()),
        "ZPOPMIN" => {
            let first: Vec<_> = in_order(members).into_iter().take(whole(&words[2]).unwrap_or(1) as usize).collect();
            first.iter().for_each(|(_, member)| _ = members.remove(member));
            with_scores(first)
        }
        "ZREMRANGEBYRANK" => {
            let all = in_order(members);
            let range = places(all.len(), &words[2], &words[3]);
            all[range.clone()].iter().for_each(|(_, member)| _ = members.remove(member));
            Answer::count(range.len())
        }
        _ => {
            let all = in_order(members);
            let range = places(all.len(), &words[2], &words[3]);
            with_scores(all[range].to_vec())
        }
    }
}

fn of_list(values: &mut Values, name: &str, words: &[Vec<u8>]) -> Answer {
    let elements = match values.entry(words[1].clone()).or_insert_with(|| Value::List(VecDeque::new())) {
        Value::List(elements) => elements,
        _ => return WRONG_TYPE,
    };
    match name {
        "LPUSH" => {
            words[2..].iter().for_each(|element| elements.push_front(element.clone()));
            Answer::count(elements.len())
        }
        "RPUSH" => {
            elements.extend(words[2..].iter().cloned());
            Answer::count(elements.len())
        }
        "LPOP" => elements.pop_front().map_or(Answer::Nil, Answer::Bulk),
        "RPOP" => elements.pop_back().map_or(Answer::Nil, Answer::Bulk),
        "LLEN" => Answer::count(elements.len()),
        "LINDEX" => {
            let at = places(elements.len(), &words[2], &words[2]);
            // Behind the end there is nothing, and a place before the beginning is none.
            let is_there =
                whole(&words[2]).is_some_and(|at| at < elements.len() as i64 && -at <= elements.len() as i64);
            Answer::bulk(elements.get(at.start).filter(|_| is_there))
        }
        "LSET" => {
            let is_there =
                whole(&words[2]).is_some_and(|at| at < elements.len() as i64 && -at <= elements.len() as i64);
            match (elements.is_empty(), is_there) {
                (true, _) => Answer::Error("ERR no such key"),
                (false, false) => Answer::Error("ERR index out of range"),
                (false, true) => {
                    let at = places(elements.len(), &words[2], &words[2]).start;
                    elements[at] = words[3].clone();
                    OK
                }
            }
        }
        "LTRIM" => {
            let range = places(elements.len(), &words[2], &words[3]);
            elements.truncate(range.end);
            elements.drain(..range.start);
            OK
        }
        _ => {
            let range = places(elements.len(), &words[2], &words[3]);
            Answer::Array(elements.range(range).map(|element| Answer::Bulk(element.clone())).collect())
        }
    }
}

/// `LMOVE from to LEFT|RIGHT LEFT|RIGHT`.
fn move_element(values: &mut Values, words: &[Vec<u8>]) -> Answer {
    let is_list = |value: Option<&Value>| value.is_none_or(|value| matches!(value, Value::List(_)));
    if !is_list(values.get(&words[1])) || (values.contains_key(&words[1]) && !is_list(values.get(&words[2]))) {
        return WRONG_TYPE;
    }
    let pop = if words[3] == b"LEFT" { "LPOP" } else { "RPOP" };
    let Answer::Bulk(element) = of_list(values, pop, words) else { return Answer::Nil };
    let push = if words[4] == b"LEFT" { "LPUSH" } else { "RPUSH" };
    of_list(values, push, &[Vec::new(), words[2].clone(), element.clone()]);
    Answer::Bulk(element)
}

/// `SMOVE from to member`.
fn move_member(values: &mut Values, words: &[Vec<u8>]) -> Answer {
    let is_set = |value: Option<&Value>| value.is_none_or(|value| matches!(value, Value::Set(_)));
    if !values.contains_key(&words[1]) {
        return Answer::Number(0);
    }
    if !is_set(values.get(&words[1])) || !is_set(values.get(&words[2])) {
        return WRONG_TYPE;
    }
    let removed = of_set(values, "SREM", &[Vec::new(), words[1].clone(), words[3].clone()]);
    if removed == Answer::Number(1) {
        of_set(values, "SADD", &[Vec::new(), words[2].clone(), words[3].clone()]);
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(values: &mut Values, line: &str) -> String {
        let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let mut out = Vec::new();
        carry_out(values, &words).write(&mut out);
        String::from_utf8(out).unwrap()
    }

    /// As Redis 7.0 answers.
    #[test]
    fn commands_do_what_redis_does() {
        let mut values = Values::new();
        for (line, answer) in [
            ("SET s 1", "+OK\r\n"),
            ("INCRBY s 2", ":3\r\n"),
            ("APPEND s x", ":2\r\n"),
            ("INCRBY s 2", "-ERR value is not an integer or out of range\r\n"),
            ("HGET s f", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
            ("HSET h b 1 a 2", ":2\r\n"),
            ("HGETALL h", "*4\r\n$1\r\na\r\n$1\r\n2\r\n$1\r\nb\r\n$1\r\n1\r\n"),
            ("HDEL h a b", ":2\r\n"),
            ("TYPE h", "+none\r\n"),
            ("RPUSH l a b c d", ":4\r\n"),
            ("LPUSH l 1 2", ":6\r\n"),
            ("LINDEX l -6", "$1\r\n2\r\n"),
            ("LINDEX l -7", "$-1\r\n"),
            ("LINDEX l 6", "$-1\r\n"),
            ("LSET l 6 x", "-ERR index out of range\r\n"),
            ("LTRIM l 1 -2", "+OK\r\n"),
            ("LRANGE l 0 1", "*2\r\n$1\r\n1\r\n$1\r\na\r\n"),
            ("LMOVE l m LEFT RIGHT", "$1\r\n1\r\n"),
            ("LMOVE l s LEFT RIGHT", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
            ("LMOVE x s LEFT RIGHT", "$-1\r\n"),
            ("ZADD z 2 a 1 b", ":2\r\n"),
            ("ZRANK z a", ":1\r\n"),
            ("ZRANGE z 0 0 WITHSCORES", "*2\r\n$1\r\nb\r\n$1\r\n1\r\n"),
            ("ZPOPMIN z 5", "*4\r\n$1\r\nb\r\n$1\r\n1\r\n$1\r\na\r\n$1\r\n2\r\n"),
            ("EXISTS z", ":0\r\n"),
            ("SADD p a b", ":2\r\n"),
            ("SMOVE p q a", ":1\r\n"),
            ("SMOVE p l b", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
            ("RENAME p q", "+OK\r\n"),
            ("SMEMBERS q", "*1\r\n$1\r\nb\r\n"),
            ("RENAME p q", "-ERR no such key\r\n"),
        ] {
            assert_eq!(told(&mut values, line), answer, "{line}");
        }
    }
}
