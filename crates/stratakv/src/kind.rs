//! What a collection holds, and how the catalogue writes that down.

use stratakv_base::{CollectionId, Expiry};

use crate::error::Error;
use crate::order;

/// Numbers from here on are not given out.
pub(crate) const NUMBERS_END: u64 = 0xFFFF_FF00;

/// What a collection holds. Fixed when it is made ([`Store::kind_of`](crate::Store::kind_of)
/// tells).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Records by key, in the order of the keys: a [`Collection`](crate::Collection).
    #[default]
    KeyValue,
    /// Elements in the order in which they were put: a [`List`](crate::List).
    List,
}

impl Kind {
    const ALL: [Kind; 2] = [Kind::KeyValue, Kind::List];

    /// Its word in the catalogue.
    fn word(self) -> &'static str {
        match self {
            Kind::KeyValue => "keyvalue",
            Kind::List => "list",
        }
    }
}

/// For people.
impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::KeyValue => "a collection of keys and values",
            Kind::List => "a list",
        })
    }
}

/// What the catalogue says of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) id: CollectionId,
    pub(crate) kind: Kind,
    pub(crate) expiry: Expiry,
    /// The order of its keys; `None`: that of their bytes.
    pub(crate) order: Option<String>,
}

impl Named {
    /// As the catalogue holds it. What is as it was before there were kinds, or orders, is written
    /// as it was then.
    pub(crate) fn encode(&self) -> String {
        let (id, kind, expiry) = (self.id.0, self.kind, self.expiry);
        match (kind, expiry, &self.order) {
            (_, _, Some(order)) => format!("{id} {} {} {order}", kind.word(), written(expiry)),
            (Kind::KeyValue, Expiry::NEVER, None) => id.to_string(),
            (_, Expiry::NEVER, None) => format!("{id} {}", kind.word()),
            _ => format!("{id} {} {}", kind.word(), written(expiry)),
        }
    }

    /// What a value of the catalogue says.
    pub(crate) fn decode(value: &[u8], name: &str) -> Result<Named, Error> {
        let damaged = |why: &str| {
            let value = value.escape_ascii();
            Error::Option(format!(
                "the catalogue of collections {why}: `{name}` stands for `{value}`; dump what is left and load it"
            ))
        };
        let text = std::str::from_utf8(value).map_err(|_| damaged("is damaged"))?;
        let mut words = text.split(' ');
        let number = words.next().and_then(digits).filter(|number| (1..NUMBERS_END).contains(number));
        let id =
            CollectionId(number.and_then(|number| u32::try_from(number).ok()).ok_or_else(|| damaged("is damaged"))?);
        let kind = match words.next() {
            None => Kind::KeyValue,
            Some(word) => Kind::ALL
                .into_iter()
                .find(|kind| kind.word() == word)
                .ok_or_else(|| damaged("is damaged, or of a newer stratakv"))?,
        };
        let expiry = match words.next() {
            None => Expiry::NEVER,
            Some(word) => instant(word).ok_or_else(|| damaged("is damaged"))?,
        };
        let order = match (words.next(), kind) {
            (None, _) => None,
            (Some(order), Kind::KeyValue) if order::is_name(order) => Some(order.to_owned()),
            _ => return Err(damaged("is damaged, or of a newer stratakv")),
        };
        match words.next() {
            None => Ok(Named { id, kind, expiry, order }),
            Some(_) => Err(damaged("is damaged, or of a newer stratakv")),
        }
    }
}

/// Seconds since 1970, and behind a point the milliseconds, if it is not a whole second.
fn written(expiry: Expiry) -> String {
    match (expiry.0 / 1000, expiry.0 % 1000) {
        (seconds, 0) => seconds.to_string(),
        (seconds, millis) => format!("{seconds}.{millis:03}"),
    }
}

fn instant(word: &str) -> Option<Expiry> {
    let (seconds, millis) = word.split_once('.').unwrap_or((word, "000"));
    let millis = digits(millis).filter(|_| millis.len() == 3)?;
    let seconds = digits(seconds).filter(|seconds| *seconds <= u32::MAX.into())?;
    Some(Expiry(seconds * 1000 + millis))
}

/// A decimal number without sign or spaces.
fn digits(word: &str) -> Option<u64> {
    word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The form is on people's disks: it does not change unnoticed.
    #[test]
    fn the_catalogue_is_written_as_ever() {
        let named = |kind, expiry| Named { id: CollectionId(17), kind, expiry: Expiry(expiry), order: None };
        let ordered = |expiry| Named { order: Some("by-length_2.0".into()), ..named(Kind::KeyValue, expiry) };
        let known = [
            ("17", named(Kind::KeyValue, 0)),
            ("17 list", named(Kind::List, 0)),
            ("17 keyvalue 1790000000", named(Kind::KeyValue, 1_790_000_000_000)),
            ("17 keyvalue 1790000000.050", named(Kind::KeyValue, 1_790_000_000_050)),
            ("17 list 1790000000", named(Kind::List, 1_790_000_000_000)),
            ("17 keyvalue 0 by-length_2.0", ordered(0)),
            ("17 keyvalue 1790000000 by-length_2.0", ordered(1_790_000_000_000)),
        ];
        for (text, named) in known {
            assert_eq!(named.encode(), text);
            assert_eq!(Named::decode(text.as_bytes(), "n").ok(), Some(named));
        }
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let bad = [
            "",
            "0",
            "x",
            "+1",
            "4294967040",
            "99999999999999999999",
            "1 ",
            "1  list",
            "1 heap",
            "1 list x",
            "1 list -1",
        ];
        let orders =
            ["1 list 0 by-length", "1 keyvalue 0 ", "1 keyvalue 0 a/b", "1 keyvalue 0 a b", "1 keyvalue 0 \u{e4}"];
        for value in bad.into_iter().chain(["1 list 4294967296", "1 list 5 6", " 1"]).chain(orders) {
            let error = Named::decode(value.as_bytes(), "n").expect_err(value).to_string();
            assert!(error.contains("catalogue") && error.contains("`n`"), "{error}");
        }
        assert!(Named::decode(b"1\xff", "n").is_err());
    }
}
