//! A record as a source has it.

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
