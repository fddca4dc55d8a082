//! A value as a source has it, and the value of the record that it becomes.

use stratakv_structures::{Hash, Kind, List, STRUCTURE_FLAGS, Set, SortedSet, kind_of};

/// What a key of a source holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SourceValue {
    /// Plain bytes.
    String(Vec<u8>),
    /// Elements in their order.
    List(Vec<Vec<u8>>),
    /// Members.
    Set(Vec<Vec<u8>>),
    /// Fields with values; the last one of a field counts.
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
    /// Members with scores; the last one of a member counts.
    SortedSet(Vec<(Vec<u8>, f64)>),
}

/// A record of a source.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SourceRecord {
    pub(crate) key: Vec<u8>,
    pub(crate) value: SourceValue,
    /// Of memcached's clients.
    pub(crate) flags: u32,
    /// Milliseconds since 1970; `None`: it does not expire.
    pub(crate) expiry_ms: Option<u64>,
}

/// The value of a record with its flags, or why there is none.
pub(super) fn encode(value: SourceValue, flags: u32) -> Result<(Vec<u8>, u32), &'static str> {
    const NOT_A_NUMBER: &str = "sorted sets with a score that is not a number";
    let packed = match &value {
        SourceValue::String(_) => None,
        SourceValue::List(elements) => {
            Some(List { elements: elements.iter().map(Vec::as_slice).collect() }.encode(usize::MAX))
        }
        SourceValue::Set(members) => {
            let mut set = Set::default();
            set.insert_all(members.iter().map(Vec::as_slice));
            Some(set.encode(usize::MAX))
        }
        SourceValue::Hash(fields) => {
            let mut hash = Hash::default();
            hash.insert_all(fields.iter().map(|(field, value)| (field.as_slice(), value.as_slice())));
            Some(hash.encode(usize::MAX))
        }
        SourceValue::SortedSet(members) => {
            if members.iter().any(|(_, score)| score.is_nan()) {
                return Err(NOT_A_NUMBER);
            }
            let mut set = SortedSet::default();
            set.insert_all(members.iter().map(|(member, score)| (member.as_slice(), *score)));
            Some(set.encode(usize::MAX))
        }
    };
    match (packed, value) {
        (Some(Ok(Some(value))), _) => Ok((value, STRUCTURE_FLAGS)),
        (Some(Ok(None)), _) => Err("structures without elements"),
        (Some(Err(_)), _) => Err("structures with more than 4,294,967,295 elements"),
        // Its bytes would be taken for a structure.
        (None, SourceValue::String(value)) if kind_of(flags, &value) != Kind::String => {
            Err("values that look like a structure of Redis clients")
        }
        (None, SourceValue::String(value)) => Ok((value, flags)),
        (None, _) => Err("values of an unknown type"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(texts: &[&str]) -> Vec<Vec<u8>> {
        texts.iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    #[test]
    fn structures_are_those_of_redis_clients() {
        let (value, flags) = encode(SourceValue::Set(bytes(&["b", "a", "b"])), 0).unwrap();
        assert_eq!((kind_of(flags, &value), Set::parse(&value).unwrap().iter().count()), (Kind::Set, 2));
        let fields = vec![(b"f".to_vec(), b"1".to_vec()), (b"f".to_vec(), b"2".to_vec())];
        let (value, _) = encode(SourceValue::Hash(fields), 7).unwrap();
        assert_eq!(Hash::parse(&value).unwrap().get(b"f"), Some(&b"2"[..]));
        let (value, _) = encode(SourceValue::List(bytes(&["b", "a", "b"])), 0).unwrap();
        assert_eq!(List::parse(&value).unwrap().elements, [b"b", b"a", b"b"]);
        let scores = vec![(b"m".to_vec(), f64::INFINITY), (b"n".to_vec(), -1.5)];
        let (value, _) = encode(SourceValue::SortedSet(scores), 0).unwrap();
        assert_eq!(SortedSet::parse(&value).unwrap().get_at(0), Some((&b"n"[..], -1.5)));
    }

    #[test]
    fn what_a_store_cannot_hold_has_its_reason() {
        assert!(encode(SourceValue::List(Vec::new()), 0).unwrap_err().contains("without elements"));
        assert!(encode(SourceValue::SortedSet(vec![(b"m".to_vec(), f64::NAN)]), 0).is_err());
        let (list, flags) = encode(SourceValue::List(bytes(&["a"])), 0).unwrap();
        assert!(encode(SourceValue::String(list.clone()), flags).unwrap_err().contains("look like"));
        assert_eq!(encode(SourceValue::String(list.clone()), 1), Ok((list, 1)));
    }
}
