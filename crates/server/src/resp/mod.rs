//! What Redis clients ask: arguments, rules for records, commands of several operations, replies.
//! `connection::resp` parses, begins and answers; nothing here knows sockets or buffers.

mod arguments;
mod bits;
mod calls;
mod clients;
pub(crate) mod commands;
mod cursors;
mod data;
mod edit;
mod encodings;
mod forms;
mod key_list;
mod key_range;
mod known_trees;
mod many;
mod node_reads;
pub(crate) mod nodes;
mod overlay;
mod overlay_nodes;
mod pubsub;
mod random_key;
mod reads;
mod records;
mod reply;
mod session;
mod shared;
mod slots;
mod slow_log;
pub(crate) mod transaction;
mod turns;
mod wait_work;
mod waiting;
mod walking;
pub(crate) mod watching;
mod work;

pub(crate) use arguments::{Arguments, Gathered, NOT_AN_INTEGER, RequestRefusal, SYNTAX, key};
pub(crate) use calls::ConnectionAddress;
pub(crate) use clients::{ClientFilter, ClientKind, FilteredClient, KilledClients};
pub(crate) use data::{CallSettings, DataCommand, DataWork};
pub(crate) use edit::{Edit, EditRule, ExpireIf, too_long};
pub(crate) use encodings::EncodingSettings;
pub(crate) use key_list::KeyList;
pub(crate) use key_range::{KeyRange, RANGE_BYTES, RangeForm, bounds};
pub(crate) use many::{ManyLimits, ManyWork, NO_BATCHES};
pub(crate) use pubsub::{CHANNEL_NAME_BYTES_MAX, ListenKind, MailboxOverrun, Subscriptions, channels_bytes_max};
pub(crate) use random_key::RandomKey;
pub(crate) use reads::{BitQuestion, BitRead, HeadQuestion, HeadRead, RangeRead};
pub(crate) use records::Core;
pub(crate) use reply::{RespAnswer, Said, failed, written};
pub(crate) use session::{ClientDescription, RespClient, Session};
pub(crate) use shared::RespShared;
pub use slots::{ClusterNode, ClusterSlots};
pub(crate) use slots::{SLOTS, SlotRange, slot_of};
pub(crate) use slow_log::{CommandWords, SlowEntry, TimedCommands};
pub(crate) use turns::{TurnNews, TurnWaiter};
pub(crate) use wait_work::{WaitEnd, WaitWork};
pub(crate) use waiting::Unblock;
pub(crate) use walking::{Walk, WalkKind};
pub(crate) use work::{Batch, Counted, EachPut, KeyCount, Work, WorkContext, WorkKind};

/// What clients are told: the Redis whose commands and replies these are, and nothing else. They
/// decide by it what a server understands. `INFO` has our own version beside it.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

/// To a client for which there is no connection.
pub(crate) const TOO_MANY_CONNECTIONS: &[u8] = b"-ERR max number of clients reached\r\n";
