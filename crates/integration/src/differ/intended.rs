//! The list of differences that are meant, `intended.txt`: each with its reason, and a pattern that
//! is so narrow that others show.

use super::command::{Command, shorten};
use super::compare::Rule;
use super::wire::{Answer, End};

/// The list, as it is reviewed.
const LIST: &str = include_str!("intended.txt");

/// A difference that is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// What it is called.
    pub name: String,
    /// Why it is so.
    pub why: String,
    /// Any of these commands.
    sent: Vec<String>,
    /// How ours is answered.
    ours: String,
    /// How memcached's is.
    theirs: String,
    /// The two stores are not the same after it: nothing more is compared.
    pub ends: bool,
}

/// The whole list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intended {
    /// By patterns.
    pub differences: Vec<Difference>,
    /// Statistics that ours does not have.
    missing: Vec<String>,
    /// Rules, and what they may hide.
    rules: Vec<String>,
}

impl Intended {
    /// The list of this source tree.
    ///
    /// # Panics
    /// It is not well formed.
    pub fn list() -> Intended {
        match parse(LIST) {
            Ok(list) => list,
            Err(why) => panic!("intended.txt: {why}"),
        }
    }

    /// Whether ours may be without this statistic.
    pub fn may_lack(&self, name: &str) -> bool {
        self.missing.iter().any(|missing| missing == name)
    }

    /// The entry that has this difference.
    pub fn find(&self, command: &Command, ours: &Answer, theirs: &Answer) -> Option<&Difference> {
        let (sent, ours, theirs) = (command.shown(), shown(ours), shown(theirs));
        self.differences.iter().find(|difference| difference.has(&sent, &ours, &theirs))
    }
}

/// An answer as patterns see it.
pub fn shown(answer: &Answer) -> String {
    let text = shorten(&answer.bytes);
    match answer.end {
        End::Fenced => text,
        End::FenceLost => text + "<lost>",
        End::Closed => text + "<closed>",
        End::Silent => text + "<silent>",
    }
}

impl Difference {
    fn has(&self, sent: &str, ours: &str, theirs: &str) -> bool {
        let command = self.sent.iter().any(|pattern| glob(pattern, sent).is_some());
        let (Some(a), Some(b)) = (glob(&self.ours, ours), glob(&self.theirs, theirs)) else { return false };
        // What a star stands for is the same on both sides, as far as both have one.
        command && a.iter().zip(&b).all(|(a, b)| a == b)
    }
}

/// What the stars of a pattern stand for, if it fits: `*` and `%` are any characters, `*` those
/// that are the same on both sides.
fn glob<'a>(pattern: &str, text: &'a str) -> Option<Vec<&'a str>> {
    let Some(at) = pattern.find(['*', '%']) else { return (pattern == text).then(Vec::new) };
    let (front, rest) = (&pattern[..at], &pattern[at + 1..]);
    let text = text.strip_prefix(front)?;
    // The last star first takes the most: few patterns have more than three.
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    for end in ends {
        if let Some(mut stars) = glob(rest, &text[end..]) {
            if pattern.as_bytes()[at] == b'*' {
                stars.insert(0, &text[..end]);
            }
            return Some(stars);
        }
    }
    None
}

/// Stanzas of `name: value` lines, empty lines between them. A line that begins with a space goes
/// on.
fn parse(text: &str) -> Result<Intended, String> {
    let mut list = Intended::default();
    for stanza in text.split("\n\n") {
        let mut lines: Vec<(String, String)> = Vec::new();
        for line in stanza.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
            if let (Some(more), Some((_, value))) = (line.strip_prefix(' '), lines.last_mut()) {
                *value += " ";
                *value += more.trim();
                continue;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| format!("`{line}` has no colon"))?;
            lines.push((name.to_owned(), value.trim().to_owned()));
        }
        let Some((kind, title)) = lines.first().cloned() else { continue };
        let of = |name: &str| lines.iter().filter(|line| line.0 == name).map(|line| line.1.clone()).collect::<Vec<_>>();
        let one = |name: &str| match &of(name)[..] {
            [value] => Ok(value.clone()),
            _ => Err(format!("`{title}` wants one `{name}`")),
        };
        let why = one("why")?;
        match kind.as_str() {
            "rule" => {
                one("hides")?;
                list.rules.push(title);
            }
            "unseen" => {}
            "missing" => list.missing.extend(title.split_whitespace().map(str::to_owned)),
            "difference" => {
                let (sent, ours, theirs) = (of("sent"), one("ours")?, one("theirs")?);
                let ends = one("then")? == "the stores differ";
                if sent.is_empty() {
                    return Err(format!("`{title}` says of no command"));
                }
                list.differences.push(Difference { name: title, why, sent, ours, theirs, ends });
            }
            other => return Err(format!("there is no `{other}`")),
        }
    }
    for (rule, name) in Rule::ALL {
        if !list.rules.iter().any(|known| known == name) && text == LIST {
            return Err(format!("says nothing of {rule:?} (`{name}`)"));
        }
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_well_formed_and_says_why_of_each() {
        let list = Intended::list();
        assert!(list.differences.iter().all(|difference| difference.why.len() > 20), "a reason is a sentence");
        let mut names: Vec<&str> = list.differences.iter().map(|difference| difference.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), list.differences.len(), "a name is used twice");
        let known = Rule::ALL.len();
        assert_eq!(list.rules.len(), known, "the list has rules that are none");
        for difference in &list.differences {
            let bare = |pattern: &str| pattern.trim_matches('%').is_empty();
            assert!(!bare(&difference.ours) || !bare(&difference.theirs), "{}: anything at all", difference.name);
        }
    }

    #[test]
    fn stars_stand_for_the_same_on_both_sides() {
        let text = "difference: d\nwhy: because it is so\nsent: mg * E%\nours: HD*\ntheirs: OK*\nthen: go on\n";
        let list = parse(text).expect("it is well formed");
        let answer = |text: &str| Answer { bytes: text.into(), end: End::Fenced };
        let found =
            |sent: &str, ours, theirs| list.find(&Command::line(sent), &answer(ours), &answer(theirs)).is_some();
        assert!(found("mg a E5", "HD k1\r\n", "OK k1\r\n"));
        assert!(!found("mg a E5", "HD k1\r\n", "OK k2\r\n"), "another difference beside it");
        assert!(!found("ms a E5", "HD\r\n", "OK\r\n"));
        assert_eq!(glob("a*c%", "abcd"), Some(vec!["b"]));
        assert_eq!(glob("a*c", "abcd"), None);
    }

    #[test]
    fn what_is_not_well_formed_is_refused() {
        let bad = [
            "difference: d\n",
            "difference: d\nwhy: x\nours: a\ntheirs: b\nthen: go on\n",
            "other: x\nwhy: y\n",
            "x\n",
        ];
        for text in bad {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
