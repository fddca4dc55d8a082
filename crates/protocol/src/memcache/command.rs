//! What a client can ask. Borrowed from the receive buffer.

use super::collections::CollectionsRequest;
use super::line::Tokens;
use super::meta::{Meta, MetaVerb};
use super::range::MetaRange;

/// A parsed command, complete but for the data block of [`Command::Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `get`, `gets`, `gat`, `gats`.
    Get {
        /// The keys, all of them valid. `gat` may have none.
        keys: Keys<'a>,
        /// Answer with the version (`gets`, `gats`).
        cas: bool,
        /// New expiry time (`gat`, `gats`), to be read by [`expiry`](super::expiry()).
        touch: Option<i64>,
    },
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`. A data block follows: collect it with
    /// [`Body`](super::Body).
    Store(Store<'a>),
    /// `delete`.
    Delete {
        /// The key.
        key: &'a [u8],
        /// No answer wanted.
        noreply: bool,
    },
    /// `incr`, `decr`.
    Arithmetic {
        /// The key.
        key: &'a [u8],
        /// By how much.
        delta: u64,
        /// `decr`.
        decrement: bool,
        /// No answer wanted.
        noreply: bool,
    },
    /// `touch`.
    Touch {
        /// The key.
        key: &'a [u8],
        /// New expiry time, to be read by [`expiry`](super::expiry()).
        exptime: i64,
        /// No answer wanted.
        noreply: bool,
    },
    /// `flush_all`.
    FlushAll {
        /// When: 0 and negative numbers are now, others as expiry times are read.
        delay: i64,
        /// No answer wanted.
        noreply: bool,
    },
    /// `version`.
    Version,
    /// `verbosity`: understood and without effect.
    Verbosity {
        /// No answer wanted.
        noreply: bool,
    },
    /// `stats`.
    Stats(Statistics),
    /// `stats detail`.
    Detail(Detail),
    /// `backup`: not memcached's; begins a backup, which `stats backup` tells of.
    Backup {
        /// Of a directory to be made, checked by [`is_backup_name`](super::is_backup_name).
        name: &'a str,
    },
    /// `collections`: not memcached's either; `stats collections` tells what came of it.
    Collections(CollectionsRequest<'a>),
    /// `mg`, `ms`, `md`, `ma`, `me`. After `ms` a data block follows.
    Meta(Meta<'a>),
    /// `mr`.
    MetaRange(MetaRange<'a>),
    /// `mn`: its answer says that everything before it is answered.
    MetaNoop,
    /// Understood, checked, and without effect.
    Answered {
        /// The answer.
        reply: &'static [u8],
        /// No answer wanted.
        noreply: bool,
    },
    /// `cache_memlimit`: what a cache may take of memory from now on.
    MemoryLimit {
        /// 8 at least.
        mebibytes: u32,
        /// No answer wanted.
        noreply: bool,
    },
    /// `refresh_certs`: the files of TLS are read again.
    RefreshCertificates,
    /// `lru_crawler metadump`, `lru_crawler mgdump`, `stats cachedump`: every record.
    Dump(DumpKind),
    /// `shutdown`, if the server lets its clients.
    Shutdown {
        /// Its argument is one.
        valid: bool,
    },
    /// `watch`: from now on the connection is told what others do.
    Watch(Watched),
    /// `quit`.
    Quit,
}

/// What a watcher is told of: kinds of lines, any of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watched(u8);

impl Watched {
    /// None.
    pub const NOTHING: Watched = Watched(0);
    /// Reads, and whether they found something.
    pub const FETCHERS: Watched = Watched(1);
    /// Values that are stored, and those that are refused.
    pub const MUTATIONS: Watched = Watched(2);
    /// What a cache drops.
    pub const EVICTIONS: Watched = Watched(4);
    /// What the server does by itself.
    pub const SYSTEM_EVENTS: Watched = Watched(8);
    /// Connections that come and go.
    pub const CONNECTION_EVENTS: Watched = Watched(16);
    /// Commands as they were sent: memcached 1.6 takes the word and tells nothing.
    pub const RAW_COMMANDS: Watched = Watched(32);

    /// The kind with this name.
    pub fn named(name: &[u8]) -> Option<Watched> {
        Some(match name {
            b"fetchers" => Watched::FETCHERS,
            b"mutations" => Watched::MUTATIONS,
            b"evictions" => Watched::EVICTIONS,
            b"sysevents" => Watched::SYSTEM_EVENTS,
            b"connevents" => Watched::CONNECTION_EVENTS,
            b"rawcmds" => Watched::RAW_COMMANDS,
            _ => return None,
        })
    }

    /// Those of both.
    pub fn and(self, other: Watched) -> Watched {
        Watched(self.0 | other.0)
    }

    /// Whether they have a kind in common.
    pub fn meets(self, other: Watched) -> bool {
        self.0 & other.0 != 0
    }

    /// As a number.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Back from [`Watched::bits`].
    pub fn from_bits(bits: u8) -> Watched {
        Watched(bits & 63)
    }
}

/// How records are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpKind {
    /// As `lru_crawler metadump` does: `key=.. exp=.. la=.. cas=.. fetch=.. cls=.. size=..`.
    Meta,
    /// As `lru_crawler mgdump` of later memcached does: `mg <key>[ b]`.
    MetaGet,
    /// As `stats cachedump` does: `ITEM <key> [<bytes> b; <expiry> s]`.
    Cache {
        /// At most so many.
        items_max: u32,
    },
}

impl Command<'_> {
    /// Length of the data block that follows, without its line end, in bytes.
    pub fn data_bytes(&self) -> Option<usize> {
        match self {
            Command::Store(Store { data_bytes, .. })
            | Command::Meta(Meta { verb: MetaVerb::Set { data_bytes, .. }, .. }) => Some(*data_bytes),
            _ => None,
        }
    }
}

/// The header of a storage command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// Which command.
    pub verb: Verb,
    /// The key.
    pub key: &'a [u8],
    /// Opaque to the server.
    pub flags: u32,
    /// Expiry time, to be read by [`expiry`](super::expiry()).
    pub exptime: i64,
    /// Length of the data block without its line end, in bytes.
    pub data_bytes: usize,
    /// No answer wanted.
    pub noreply: bool,
}

/// Which storage command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Whatever is there.
    Set,
    /// If the key is absent.
    Add,
    /// If the key is present.
    Replace,
    /// Behind the present value; flags and exptime are ignored.
    Append,
    /// Before the present value; flags and exptime are ignored.
    Prepend,
    /// If the version is still this one.
    Cas(u64),
}

/// `stats detail`: what is done to keys of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// It is counted from now on.
    On,
    /// It is no longer.
    Off,
    /// What was counted is told.
    Dump,
}

/// Which statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistics {
    /// `stats`.
    General,
    /// `stats settings`.
    Settings,
    /// `stats items`.
    Items,
    /// `stats slabs`.
    Slabs,
    /// `stats sizes`.
    Sizes,
    /// `stats sizes_enable`.
    SizesOn,
    /// `stats sizes_disable`.
    SizesOff,
    /// `stats conns`.
    Connections,
    /// `stats extstore`.
    Extstore,
    /// `stats backup`: not memcached's.
    Backup,
    /// `stats collections`: not memcached's.
    Collections,
    /// `stats reset`.
    Reset,
}

impl Statistics {
    /// The group with this name, empty for the general one.
    pub fn named(name: &[u8]) -> Option<Statistics> {
        Some(match name {
            b"" => Statistics::General,
            b"settings" => Statistics::Settings,
            b"items" => Statistics::Items,
            b"slabs" => Statistics::Slabs,
            b"sizes" => Statistics::Sizes,
            b"sizes_enable" => Statistics::SizesOn,
            b"sizes_disable" => Statistics::SizesOff,
            b"conns" => Statistics::Connections,
            b"extstore" => Statistics::Extstore,
            b"backup" => Statistics::Backup,
            b"collections" => Statistics::Collections,
            b"reset" => Statistics::Reset,
            _ => return None,
        })
    }
}

/// The keys of a get: at least one byte each, at most [`KEY_BYTES_MAX`](super::KEY_BYTES_MAX).
///
/// Read off the line one by one, so that a long line costs no more memory than itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a> {
    pub(super) line: &'a [u8],
}

impl<'a> Keys<'a> {
    /// The keys in order, duplicates too.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        Tokens::new(self.line)
    }

    /// The bytes the keys lie in, separated by spaces; [`Keys::split`] reads them again.
    pub fn line(self) -> &'a [u8] {
        self.line
    }

    /// The first key of `line`, as given by [`Keys::line`], and where the rest begins.
    pub fn split(line: &[u8]) -> Option<(&[u8], usize)> {
        let mut tokens = Tokens::new(line);
        let key = tokens.next()?;
        Some((key, line.len() - tokens.rest().len()))
    }
}
