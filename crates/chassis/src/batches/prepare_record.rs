//! What a shard keeps of a batch of several shards: its changes, as a prepare record. Drawn in
//! docs/batches.md.

use bytes::Bytes;
use stratakv_base::codec::{Reader, Truncated};
use stratakv_base::{CollectionId, Expiry, Key};
use stratakv_engine::{Change, ChangeKind, Error, Expect};

/// Names a batch: a number of its coordinator's counter, which never repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId {
    /// The number.
    pub number: u64,
    /// The shard that coordinates it.
    pub coordinator: u32,
}

const FORMAT: u8 = 1;
const SHARE: u8 = 1;
const RESOLVED: u8 = 2;
const PUT: u8 = 1;
const DELETE: u8 = 2;
/// A put whose expiry is no whole second: 2 bytes of milliseconds lie before its key.
const PUT_BETWEEN_SECONDS: u8 = 3;

/// Bytes of a prepare record beside its keys and values, at most.
pub const CHANGE_BYTES: usize = 17;

/// Reads of a record, or of a page of them, that may fail before an opening gives up: a device's
/// passing fault must not pass for a record that is not there.
pub const FAILURES_MAX: u32 = 8;

/// Why a shard serves nothing whose records could not be read: which keys they change is not known.
pub fn unread() -> Error {
    Error::Unknown("a batch's record could not be read when the store was opened; open it again")
}

/// What a participant keeps of a batch.
#[derive(Clone, Debug)]
pub enum Kept {
    /// Its prepare record, not yet applied for certain.
    PrepareRecord {
        /// The shards that have one.
        participants: Vec<u32>,
        /// Of all its changes, in engine `slab`; in `matrix`, where each change has its own, the
        /// batch's number.
        version: u64,
        /// All of one shard.
        changes: Vec<Change>,
    },
    /// It has applied its prepare record.
    Resolved {
        /// The shards that had one.
        participants: Vec<u32>,
    },
}

/// What becomes of a batch of which an opening found something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchFate {
    /// A shard that cannot be read may hold the rest: these, who hold prepare records, do not know.
    InDoubt(Vec<u32>),
    /// Applied everywhere: these drop their commit-done records.
    Over(Vec<u32>),
    /// Every participant has its prepare record or a commit-done record: committed, and the holders
    /// of prepare records apply them.
    Committed {
        /// Of prepare records.
        holders: Vec<u32>,
        /// Of prepare records and commit-done records.
        present: Vec<u32>,
    },
    /// A participant has nothing: these erase their prepare records.
    Aborted(Vec<u32>),
}

/// Decides on a batch: `found` has each shard that holds something of it, the participants it names
/// (none where it does not decode) and whether it is a prepare record; `lost` could not be read.
/// docs/batches.md argues it.
pub fn decide(found: &[(u32, &[u32], bool)], lost: &[u32]) -> BatchFate {
    let present: Vec<u32> = found.iter().map(|(shard, ..)| *shard).collect();
    let holders: Vec<u32> = found.iter().filter(|(.., is_share)| *is_share).map(|(shard, ..)| *shard).collect();
    let participants = found.iter().map(|(_, participants, _)| *participants).find(|list| !list.is_empty());
    let mut missing = participants.into_iter().flatten().filter(|shard| !present.contains(shard)).peekable();
    let is_whole = missing.peek().is_none();
    // Who took part is not known where all that is left is damaged.
    let is_unknown = participants.is_none() && !lost.is_empty();
    if is_unknown || missing.any(|shard| lost.contains(shard)) {
        BatchFate::InDoubt(holders)
    } else if holders.is_empty() {
        BatchFate::Over(present)
    } else if is_whole {
        BatchFate::Committed { holders, present }
    } else {
        BatchFate::Aborted(holders)
    }
}

/// Key of a batch's record.
pub fn key(id: BatchId) -> Key {
    let mut user = [0; 12];
    user[..8].copy_from_slice(&id.number.to_be_bytes());
    user[8..].copy_from_slice(&id.coordinator.to_be_bytes());
    Key::bound(CollectionId::ENGINE, &user)
}

/// Whose record it is.
pub fn id_of(key: &Key) -> Option<BatchId> {
    let (number, coordinator) = key.user().split_first_chunk::<8>()?;
    let coordinator = u32::from_be_bytes(coordinator.try_into().ok()?);
    Some(BatchId { number: u64::from_be_bytes(*number), coordinator })
}

/// The record's value.
pub fn encode(kept: &Kept) -> Bytes {
    let mut out = Vec::new();
    let (state, participants) = match kept {
        Kept::PrepareRecord { participants, .. } => (SHARE, participants),
        Kept::Resolved { participants } => (RESOLVED, participants),
    };
    out.extend_from_slice(&[FORMAT, state]);
    out.extend_from_slice(&(participants.len() as u16).to_le_bytes());
    participants.iter().for_each(|shard| out.extend_from_slice(&shard.to_le_bytes()));
    if let Kept::PrepareRecord { version, changes, .. } = kept {
        out.extend_from_slice(&version.to_le_bytes());
        let changes = changes.iter().filter(|change| !matches!(change.kind, ChangeKind::Check));
        out.extend_from_slice(&(changes.clone().count() as u32).to_le_bytes());
        changes.for_each(|change| encode_change(change, &mut out));
    }
    out.into()
}

fn encode_change(change: &Change, out: &mut Vec<u8>) {
    let (kind, value, flags, expiry) = match &change.kind {
        ChangeKind::Put { value, flags, expiry } => {
            (if expiry.0.is_multiple_of(1000) { PUT } else { PUT_BETWEEN_SECONDS }, &value[..], *flags, expiry.0)
        }
        ChangeKind::Delete => (DELETE, &[][..], 0, 0),
        ChangeKind::Check => return,
    };
    let key = change.key.encoded();
    out.push(kind);
    let seconds = u32::try_from(expiry / 1000).unwrap_or(u32::MAX);
    for field in [key.len() as u32, value.len() as u32, flags, seconds] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    if kind == PUT_BETWEEN_SECONDS {
        out.extend_from_slice(&((expiry % 1000) as u16).to_le_bytes());
    }
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

/// What a value says; `None` if it makes no sense.
pub fn decode(value: &[u8]) -> Option<Kept> {
    let mut reader = Reader::new(value);
    let kept = read(&mut reader).ok().flatten()?;
    (reader.left() == 0).then_some(kept)
}

fn read(reader: &mut Reader<'_>) -> Result<Option<Kept>, Truncated> {
    let (format, state) = (reader.u8()?, reader.u8()?);
    if format != FORMAT {
        return Ok(None);
    }
    let mut participants = Vec::new();
    for _ in 0..reader.u16()? {
        participants.push(reader.u32()?);
    }
    match state {
        SHARE => {}
        RESOLVED => return Ok(Some(Kept::Resolved { participants })),
        _ => return Ok(None),
    }
    let version = reader.u64()?;
    let mut changes = Vec::new();
    for _ in 0..reader.u32()? {
        let Some(change) = read_change(reader)? else { return Ok(None) };
        changes.push(change);
    }
    Ok(is_a_batch(&changes).then_some(Kept::PrepareRecord { participants, version, changes }))
}

/// Whether a shard may have logged these changes: none at all would never be held, a key that
/// occurs twice would wait for itself, one of the engine's own is another batch's.
fn is_a_batch(changes: &[Change]) -> bool {
    let is_engines_own = |change: &Change| change.key.collection() == CollectionId::ENGINE;
    !changes.is_empty() && !changes_a_key_twice(changes) && !changes.iter().any(is_engines_own)
}

fn changes_a_key_twice(changes: &[Change]) -> bool {
    let mut keys: Vec<&Key> = changes.iter().map(|change| &change.key).collect();
    keys.sort_unstable();
    keys.windows(2).any(|pair| pair.first() == pair.last())
}

/// What is wrong with a batch as a whole, whatever the store holds. A change takes `change_bytes`
/// beside its key and value, all of them may take `max_bytes`.
pub fn batch_error(changes: &[Change], change_bytes: usize, max_bytes: u64) -> Option<Error> {
    let value_bytes = |change: &Change| if let ChangeKind::Put { value, .. } = &change.kind { value.len() } else { 0 };
    let bytes = changes.iter().map(|change| change.key.encoded().len() + value_bytes(change) + change_bytes);
    let len_bytes = bytes.sum::<usize>() as u64;
    if len_bytes > max_bytes {
        Some(Error::BatchTooLarge { len_bytes, max_bytes })
    } else if changes.is_empty() {
        Some(Error::BadBatch("it is empty"))
    } else {
        changes_a_key_twice(changes).then_some(Error::BadBatch("a key occurs twice"))
    }
}

fn read_change(reader: &mut Reader<'_>) -> Result<Option<Change>, Truncated> {
    let kind = reader.u8()?;
    let (key_bytes, value_bytes, flags, seconds) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
    let millis = if kind == PUT_BETWEEN_SECONDS { reader.u16()? } else { 0 };
    let expiry = u64::from(seconds) * 1000 + u64::from(millis);
    let key = reader.bytes(key_bytes as usize)?;
    let value = reader.bytes(value_bytes as usize)?;
    let kind = match kind {
        PUT | PUT_BETWEEN_SECONDS => {
            ChangeKind::Put { value: Bytes::copy_from_slice(value), flags, expiry: Expiry(expiry) }
        }
        DELETE if value.is_empty() => ChangeKind::Delete,
        _ => return Ok(None),
    };
    Ok(Key::from_encoded(key).map(|key| Change { key, expect: Expect::Any, kind }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share() -> Kept {
        let key = |name: &str| Key::bound(CollectionId(300), name.as_bytes());
        let put = ChangeKind::Put { value: Bytes::from_static(b"value"), flags: 7, expiry: Expiry(9_000) };
        let changes = vec![
            Change { key: key("put"), expect: Expect::Any, kind: put },
            Change { key: key("gone"), expect: Expect::Any, kind: ChangeKind::Delete },
        ];
        Kept::PrepareRecord { participants: vec![0, 2], version: 0x0102_0304, changes }
    }

    /// The format is on people's disks: it does not change unnoticed.
    #[test]
    fn the_format_is_what_the_book_draws() {
        let mut hexadecimal = String::new();
        encode(&share()).iter().for_each(|byte| hexadecimal += &format!("{byte:02x}"));
        let expected = concat!(
            "0101",
            "0200",
            "00000000",
            "02000000",
            "0403020100000000",
            "02000000",
            "01",
            "08000000",
            "05000000",
            "07000000",
            "09000000",
            "ff0000012c",
            "707574",
            "76616c7565",
            "02",
            "09000000",
            "00000000",
            "00000000",
            "00000000",
            "ff0000012c",
            "676f6e65",
        );
        assert_eq!(hexadecimal, expected);
        let mark = encode(&Kept::Resolved { participants: vec![1] });
        assert_eq!(&mark[..], b"\x01\x02\x01\x00\x01\x00\x00\x00");
        let id = BatchId { number: 0x0102, coordinator: 3 };
        assert_eq!(key(id).encoded(), b"\xff\xff\xff\xff\xff\0\0\0\0\0\0\x01\x02\0\0\0\x03");
        assert_eq!(id_of(&key(id)), Some(id));
    }

    #[test]
    fn what_was_written_is_read_and_nothing_shorter_or_longer() {
        let bytes = encode(&share());
        let again = decode(&bytes).map(|kept| encode(&kept));
        assert_eq!(again.as_ref(), Some(&bytes));
        assert!((0..bytes.len()).all(|len| decode(&bytes[..len]).is_none()));
        assert!(decode(&[&bytes[..], b"x"].concat()).is_none());
    }

    /// Found by the fuzzer of prepare records: such a batch waited for itself, and the shard behind
    /// it for ever.
    #[test]
    fn a_share_that_changes_a_key_twice_is_none() {
        let Kept::PrepareRecord { participants, version, mut changes } = share() else { panic!("it is one") };
        changes.push(changes[0].clone());
        assert!(decode(&encode(&Kept::PrepareRecord { participants, version, changes })).is_none());
    }

    /// Found by the fuzzer of prepare records: a prepare record without keys was never held, and
    /// the shard waited for it for ever.
    #[test]
    fn a_share_that_changes_nothing_is_none() {
        assert!(
            decode(&encode(&Kept::PrepareRecord { participants: vec![0], version: 9, changes: Vec::new() })).is_none()
        );
    }

    /// Found by the fuzzer of prepare records: one batch would have changed the records of others.
    #[test]
    fn a_share_that_changes_records_of_batches_is_none() {
        let id = BatchId { number: 5, coordinator: 0 };
        let changes = vec![Change { key: key(id), expect: Expect::Any, kind: ChangeKind::Delete }];
        assert!(decode(&encode(&Kept::PrepareRecord { participants: vec![0], version: 9, changes })).is_none());
    }

    #[test]
    fn turned_bits_are_refused_or_read_but_never_panic() {
        let bytes = encode(&share());
        for bit in 0..bytes.len() * 8 {
            let mut turned = bytes.to_vec();
            turned[bit / 8] ^= 1 << (bit % 8);
            let _ = decode(&turned);
        }
    }
}
