//! What the server counts. Each thread counts for itself; `stats` adds up.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($name:ident: $what:literal,)*) => {
        /// One thread's counters, on cache lines of their own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Counters {
            $(#[doc = $what] pub(crate) $name: Counter,)*
        }

        impl Counters {
            /// Names as memcached has them, summed over the threads.
            pub(crate) fn sum(threads: &[Counters]) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), threads.iter().map(|thread| thread.$name.get()).sum()),)*]
            }

            /// Sets all but the number of open connections to 0.
            pub(crate) fn reset(&self) {
                $(self.$name.clear();)*
            }
        }
    };
}

counters! {
    total_connections: "Connections accepted.",
    rejected_connections: "Connections over the limit.",
    listen_disabled_num: "Pauses of a listener, because a connection could not be accepted.",
    time_in_listen_disabled_us: "What pauses that are over took.",
    cmd_get: "Keys asked for by get and gets.",
    cmd_set: "Storage commands.",
    cmd_flush: "flush_all commands.",
    cmd_meta: "Meta commands.",
    cmd_resp: "Commands of Redis clients.",
    cmd_touch: "Keys of touch, gat and gats.",
    get_hits: "Keys found by get, gets, gat and gats.",
    get_misses: "Keys not found by them.",
    delete_hits: "Deletes of a key that existed.",
    delete_misses: "Deletes of a key that did not.",
    incr_hits: "Increments of a key that existed.",
    incr_misses: "Increments of a key that did not.",
    decr_hits: "Decrements of a key that existed.",
    decr_misses: "Decrements of a key that did not.",
    cas_hits: "Compare-and-swaps carried out.",
    cas_misses: "Compare-and-swaps of an absent key.",
    cas_badval: "Compare-and-swaps with another version.",
    touch_hits: "Keys touched.",
    touch_misses: "Keys to be touched that did not exist.",
    total_items: "Values stored.",
    auth_cmds: "Attempts of clients to say who they are.",
    auth_errors: "Attempts that failed.",
    store_too_large: "Storage commands over the item limit.",
    store_no_memory: "Storage commands refused because the store is full.",
    protocol_errors: "Lines that were no commands.",
    server_errors: "Operations that failed.",
    memory_waits: "Times that a connection stopped because memory for clients was short.",
    memory_kicks: "Connections closed because memory for clients was short and they held it and moved nothing, or waited for it too long.",
    pubsub_kicks: "Listeners to channels closed because they did not take their messages.",
    idle_kicks: "Connections closed because nothing came from their clients for too long.",
    ssl_handshake_errors: "TLS connections that ended before they could be used.",
    structure_commands_carried: "Commands on long structures carried out together with another client's.",
    structure_commands_joined: "Commands on long structures carried out with those that their client had sent just before.",
    structure_nodes_removed: "Nodes of long structures removed after their root.",
    bytes_read: "Bytes received.",
    bytes_written: "Bytes sent.",
}

/// A counter written by one thread and read by any.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
