//! The commands that there are, and those of Redis that there are not.

use std::borrow::Cow;

use super::{Connection, Context, Handled};
use crate::resp::commands::options::{REPEATED_BYTES_MAX, repeated};
use crate::resp::commands::{
    bit_fields, bits, hashes, keys, lcs, list_moves, lists, publishing, score_combinations, score_ranges,
    set_combinations, sets, sort, sorted_sets, strings, waits,
};
use crate::resp::{Arguments, Core, RequestRefusal, Session};

/// Begins a command. The request is whole, and has as many arguments as the command takes.
type Handler = fn(&mut Connection, &Arguments<'_>, &mut Session, &mut Context<'_>) -> Handled;

/// A command, as `COMMAND` tells of it.
pub(super) struct CommandSpec {
    pub(super) name: &'static str,
    /// Its arguments, the name included; negative: at least so many.
    pub(super) arity: i16,
    pub(super) flags: &'static str,
    /// Where its keys are: the first one, the last one, and the steps between them.
    pub(super) keys: (i8, i8, i8),
    pub(super) group: &'static str,
    pub(super) since: &'static str,
    pub(super) summary: &'static str,
    /// What begins it here; `None`: it is a data command, and its core is all of it.
    pub(super) run: Option<Handler>,
    /// What it does to the records of its keys.
    pub(super) core: Option<Core>,
}

/// Longest name.
const NAME_BYTES_MAX: usize = 24;

impl CommandSpec {
    /// The command of this name, in letters of any case.
    pub(super) fn find(name: &[u8]) -> Option<&'static CommandSpec> {
        let mut lower = [0; NAME_BYTES_MAX];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let place = COMMANDS.binary_search_by(|command| command.name.as_bytes().cmp(lower)).ok()?;
        COMMANDS.get(place)
    }

    /// Whether clients may give it that have yet to say who they are.
    pub(super) fn is_for_strangers(&self) -> bool {
        self.flags.ends_with("no_auth")
    }

    /// Whether it has this flag.
    pub(super) fn has_flag(&self, flag: &str) -> bool {
        self.flags.split(' ').any(|one| one == flag)
    }

    /// The categories that it is in, by their names without `@`.
    pub(super) fn categories(&self) -> impl Iterator<Item = &'static str> {
        let has = |flag| self.has_flag(flag);
        let by_flag = [("write", "write"), ("readonly", "read"), ("pubsub", "pubsub"), ("blocking", "blocking")];
        let by_flag = by_flag.map(|(flag, category)| has(flag).then_some(category));
        let is_dangerous =
            has("admin") || ["keys", "flushall", "flushdb", "info", "role", "sort", "swapdb"].contains(&self.name);
        let of_group = match self.group {
            "generic" => Some("keyspace"),
            "sorted-set" => Some("sortedset"),
            "transactions" => Some("transaction"),
            "server" | "cluster" | "pubsub" => None,
            group => Some(group),
        };
        let speed = if has("fast") { "fast" } else { "slow" };
        let admin = has("admin").then_some("admin");
        let others = [of_group, admin, is_dangerous.then_some("dangerous"), Some(speed)];
        by_flag.into_iter().chain(others).flatten()
    }

    /// Whether it changes no record.
    pub(super) fn only_reads(&self) -> bool {
        self.flags.starts_with("readonly")
    }

    /// Whether it takes so many arguments, its name included.
    pub(super) fn takes(&self, arguments: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { arguments >= arity } else { arguments == arity }
    }
}

/// The reply to a command with too many arguments, or too few.
pub(super) fn wrong_count(name: &str) -> RequestRefusal {
    Cow::Owned(format!("ERR wrong number of arguments for '{name}' command"))
}

/// The reply to a command that is none of ours.
pub(super) fn unknown(arguments: &Arguments<'_>) -> RequestRefusal {
    let name = arguments.get(0);
    let lower = name.to_ascii_lowercase();
    if let Some(name) = OF_REDIS.split_ascii_whitespace().find(|known| known.as_bytes() == lower) {
        return Cow::Owned(format!("ERR '{name}' is not supported yet: see docs/resp.md for what is"));
    }
    let mut text = format!("ERR unknown command '{}', with args beginning with: ", repeated(name));
    for argument in arguments.from(1) {
        if text.len() > 2 * REPEATED_BYTES_MAX {
            break;
        }
        text.push_str(&format!("'{}' ", repeated(argument)));
    }
    Cow::Owned(text)
}

/// The reply to a part of a command that is not there, or that has other arguments.
pub(super) fn unsupported_part(name: &str, arguments: &Arguments<'_>) -> RequestRefusal {
    let part = arguments.get(1);
    let part = part.get(..NAME_BYTES_MAX).unwrap_or(part).escape_ascii();
    Cow::Owned(format!(
        "ERR unknown subcommand or wrong number of arguments for '{part}': see docs/resp.md for what {name} has"
    ))
}

macro_rules! commands {
    (@run) => { None };
    (@run $run:ident) => { Some(Connection::$run) };
    (@core) => { None };
    (@core $core:path) => { Some($core) };
    ($($name:literal $arity:literal $flags:literal $keys:tt $group:literal $since:literal
        $($run:ident)? $([$core:path])? $summary:literal)*) => {
        /// In the order of their names.
        pub(super) static COMMANDS: &[CommandSpec] = &[$(CommandSpec {
            name: $name,
            arity: $arity,
            flags: $flags,
            keys: $keys,
            group: $group,
            since: $since,
            summary: $summary,
            run: commands!(@run $($run)?),
            core: commands!(@core $($core)?),
        },)*];
    };
}

// Name, arity, flags, keys, group, since when Redis has it, what begins it, [its core]; then what
// it does. A data command has a core only.
commands! {
    "acl" -2 "noscript" (0, 0, 0) "server" "6.0.0" resp_acl
        "Tells of users, who may do everything: CAT, GETUSER, LIST, USERS, WHOAMI."
    "append" 3 "write denyoom fast" (1, 1, 1) "string" "2.0.0" resp_append [strings::append]
        "Appends a string to the value of a key. Creates the key if it doesn't exist."
    "auth" -2 "noscript fast no_auth" (0, 0, 0) "connection" "1.0.0" resp_auth
        "Authenticates the connection."
    "bgsave" -1 "admin noscript" (0, 0, 0) "server" "1.0.0" resp_bgsave
        "Begins a backup into the directory of --backup-dir."
    "bitcount" -2 "readonly" (1, 1, 1) "bitmap" "2.6.0" resp_bitcount [bits::bitcount]
        "Counts the number of set bits in a string."
    "bitfield" -2 "write denyoom" (1, 1, 1) "bitmap" "3.2.0" resp_bitfield [bit_fields::bitfield]
        "Performs arbitrary bitfield integer operations on strings."
    "bitfield_ro" -2 "readonly fast" (1, 1, 1) "bitmap" "6.0.0" [bit_fields::bitfield]
        "Performs arbitrary read-only bitfield integer operations on strings."
    "bitop" -4 "write denyoom" (2, -1, 1) "bitmap" "2.6.0" [bits::bitop]
        "Performs bitwise operations on multiple strings, and stores the result."
    "bitpos" -3 "readonly" (1, 1, 1) "bitmap" "2.8.7" resp_bitpos [bits::bitpos]
        "Finds the first set or clear bit in a string."
    "blmove" 6 "write denyoom noscript blocking" (1, 2, 1) "list" "6.2.0" resp_waits [waits::attempt]
        "Pops an element from a list, pushes it to another list and returns it. Waits until an element is available otherwise. Deletes the list if the last element was moved."
    "blmpop" -5 "write blocking movablekeys" (0, 0, 0) "list" "7.0.0" resp_waits [waits::attempt]
        "Pops elements from one of multiple lists. Waits until an element is available otherwise. Deletes the list if the last element was popped."
    "blpop" -3 "write noscript blocking" (1, -2, 1) "list" "2.0.0" resp_waits [waits::attempt]
        "Removes and returns the first element in a list. Waits until an element is available otherwise. Deletes the list if the last element was popped."
    "brpop" -3 "write noscript blocking" (1, -2, 1) "list" "2.0.0" resp_waits [waits::attempt]
        "Removes and returns the last element in a list. Waits until an element is available otherwise. Deletes the list if the last element was popped."
    "brpoplpush" 4 "write denyoom noscript blocking" (1, 2, 1) "list" "2.2.0" resp_waits [waits::attempt]
        "Pops an element from a list, pushes it to another list and returns it. Waits until an element is available otherwise. Deletes the list if the last element was popped."
    "bzmpop" -5 "write blocking movablekeys" (0, 0, 0) "sorted-set" "7.0.0" resp_waits [waits::attempt]
        "Removes and returns members by score from one of multiple sorted sets. Waits until a member is available otherwise. Deletes the sorted set if the last member was popped."
    "bzpopmax" -3 "write noscript fast blocking" (1, -2, 1) "sorted-set" "5.0.0" resp_waits [waits::attempt]
        "Removes and returns the member with the highest score from one or more sorted sets. Waits until a member is available otherwise. Deletes the sorted set if the last member was popped."
    "bzpopmin" -3 "write noscript fast blocking" (1, -2, 1) "sorted-set" "5.0.0" resp_waits [waits::attempt]
        "Removes and returns the member with the lowest score from one or more sorted sets. Waits until a member is available otherwise. Deletes the sorted set if the last member was popped."
    "client" -2 "noscript" (0, 0, 0) "connection" "2.4.0" resp_client
        "Tells of clients, names them and closes them: ID, INFO, KILL, LIST, GETNAME, REPLY, SETNAME, SETINFO, UNBLOCK."
    "cluster" -2 "" (0, 0, 0) "cluster" "3.0.0" resp_cluster
        "Tells of a cluster whose slots are static: INFO, KEYSLOT, MYID, NODES, SHARDS, SLOTS."
    "command" -1 "loading" (0, 0, 0) "server" "2.8.13" resp_command
        "Returns information about the commands: COUNT, DOCS, GETKEYS, INFO, LIST."
    "config" -2 "admin noscript" (0, 0, 0) "server" "2.0.0" resp_config
        "Returns and changes configuration parameters, and forgets statistics: GET, SET, RESETSTAT."
    "copy" -3 "write denyoom" (1, 2, 1) "generic" "6.2.0" [keys::copy]
        "Copies the value of a key to a new key."
    "dbsize" 1 "readonly fast" (0, 0, 0) "server" "1.0.0" resp_dbsize
        "Returns the number of records of the store."
    "decr" 2 "write denyoom fast" (1, 1, 1) "string" "1.0.0" resp_add [strings::add]
        "Decrements the integer value of a key by one. Uses 0 as initial value if the key doesn't exist."
    "decrby" 3 "write denyoom fast" (1, 1, 1) "string" "1.0.0" resp_add [strings::add]
        "Decrements a number from the integer value of a key. Uses 0 as initial value if the key doesn't exist."
    "del" -2 "write" (1, -1, 1) "generic" "1.0.0" resp_del [keys::del]
        "Deletes one or more keys."
    "discard" 1 "noscript fast" (0, 0, 0) "transactions" "2.0.0" resp_discard
        "Discards a transaction."
    "echo" 2 "fast" (0, 0, 0) "connection" "1.0.0" resp_echo [keys::echo]
        "Returns the given string."
    "exec" 1 "noscript" (0, 0, 0) "transactions" "1.2.0" resp_exec
        "Executes all commands in a transaction: all or none."
    "exists" -2 "readonly fast" (1, -1, 1) "generic" "1.0.0" resp_exists [keys::exists]
        "Determines whether one or more keys exist."
    "expire" -3 "write fast" (1, 1, 1) "generic" "1.0.0" resp_expire [keys::expire]
        "Sets the expiration time of a key in seconds."
    "expireat" -3 "write fast" (1, 1, 1) "generic" "1.2.0" resp_expire [keys::expire]
        "Sets the expiration time of a key to a Unix timestamp."
    "expiretime" 2 "readonly fast" (1, 1, 1) "generic" "7.0.0" resp_ttl [keys::ttl]
        "Returns the expiration time of a key as a Unix timestamp."
    "flushall" -1 "write" (0, 0, 0) "server" "1.0.0" resp_flush
        "Removes all keys."
    "flushdb" -1 "write" (0, 0, 0) "server" "1.0.0" resp_flush
        "Removes all keys."
    "function" -2 "noscript" (0, 0, 0) "scripting" "7.0.0" resp_function
        "Answers that there are no functions: FLUSH, LIST."
    "get" 2 "readonly fast" (1, 1, 1) "string" "1.0.0" resp_get [strings::get]
        "Returns the string value of a key."
    "getbit" 3 "readonly fast" (1, 1, 1) "bitmap" "2.2.0" resp_getbit [bits::getbit]
        "Returns a bit value by offset."
    "getdel" 2 "write fast" (1, 1, 1) "string" "6.2.0" resp_getdel [strings::getdel]
        "Returns the string value of a key after deleting the key."
    "getex" -2 "write fast" (1, 1, 1) "string" "6.2.0" resp_getex [strings::getex]
        "Returns the string value of a key after setting its expiration time."
    "getrange" 4 "readonly" (1, 1, 1) "string" "2.4.0" resp_getrange [strings::getrange]
        "Returns a substring of the string stored at a key."
    "getset" 3 "write denyoom fast" (1, 1, 1) "string" "1.0.0" resp_getset [strings::getset]
        "Returns the previous string value of a key after setting it to a new value."
    "hdel" -3 "write fast" (1, 1, 1) "hash" "2.0.0" [hashes::hdel]
        "Deletes one or more fields and their values from a hash. Deletes the hash if no fields remain."
    "hello" -1 "noscript fast no_auth" (0, 0, 0) "connection" "6.0.0" resp_hello
        "Handshakes with the server."
    "hexists" 3 "readonly fast" (1, 1, 1) "hash" "2.0.0" [hashes::hexists]
        "Determines whether a field exists in a hash."
    "hget" 3 "readonly fast" (1, 1, 1) "hash" "2.0.0" [hashes::hget]
        "Returns the value of a field in a hash."
    "hgetall" 2 "readonly" (1, 1, 1) "hash" "2.0.0" [hashes::hgetall]
        "Returns all fields and values in a hash."
    "hincrby" 4 "write denyoom fast" (1, 1, 1) "hash" "2.0.0" [hashes::hincrby]
        "Increments the integer value of a field in a hash by a number. Uses 0 as initial value if the field doesn't exist."
    "hincrbyfloat" 4 "write denyoom fast" (1, 1, 1) "hash" "2.6.0" [hashes::hincrbyfloat]
        "Increments the floating point value of a field by a number. Uses 0 as initial value if the field doesn't exist."
    "hkeys" 2 "readonly" (1, 1, 1) "hash" "2.0.0" [hashes::hkeys]
        "Returns all fields in a hash."
    "hlen" 2 "readonly fast" (1, 1, 1) "hash" "2.0.0" [hashes::hlen]
        "Returns the number of fields in a hash."
    "hmget" -3 "readonly fast" (1, 1, 1) "hash" "2.0.0" [hashes::hmget]
        "Returns the values of the given fields in a hash."
    "hmset" -4 "write denyoom fast" (1, 1, 1) "hash" "2.0.0" [hashes::hmset]
        "Sets the values of one or more fields."
    "hrandfield" -2 "readonly" (1, 1, 1) "hash" "6.2.0" [hashes::hrandfield]
        "Returns one or more random fields from a hash."
    "hscan" -3 "readonly" (1, 1, 1) "hash" "2.8.0" [hashes::hscan]
        "Iterates over fields and values of a hash."
    "hset" -4 "write denyoom fast" (1, 1, 1) "hash" "2.0.0" [hashes::hset]
        "Creates or modifies the value of one or more fields in a hash."
    "hsetnx" 4 "write denyoom fast" (1, 1, 1) "hash" "2.0.0" [hashes::hsetnx]
        "Sets the value of a field in a hash only when the field doesn't exist."
    "hstrlen" 3 "readonly fast" (1, 1, 1) "hash" "3.2.0" [hashes::hstrlen]
        "Returns the length of the value of a field."
    "hvals" 2 "readonly" (1, 1, 1) "hash" "2.0.0" [hashes::hvals]
        "Returns all values in a hash."
    "incr" 2 "write denyoom fast" (1, 1, 1) "string" "1.0.0" resp_add [strings::add]
        "Increments the integer value of a key by one. Uses 0 as initial value if the key doesn't exist."
    "incrby" 3 "write denyoom fast" (1, 1, 1) "string" "1.0.0" resp_add [strings::add]
        "Increments the integer value of a key by a number. Uses 0 as initial value if the key doesn't exist."
    "incrbyfloat" 3 "write denyoom fast" (1, 1, 1) "string" "2.6.0" resp_add [strings::add]
        "Increments the floating point value of a key by a number. Uses 0 as initial value if the key doesn't exist."
    "info" -1 "loading" (0, 0, 0) "server" "1.0.0" resp_info
        "Returns information and statistics about the server."
    "keys" 2 "readonly" (0, 0, 0) "generic" "1.0.0" resp_keys
        "Returns all key names that match a pattern."
    "lastsave" 1 "fast" (0, 0, 0) "server" "1.0.0" resp_lastsave
        "Returns the Unix timestamp of the last backup, or of the server's start."
    "latency" -2 "admin noscript" (0, 0, 0) "server" "2.8.13" resp_latency
        "Answers that latency is not monitored: HISTORY, LATEST, RESET."
    "lcs" -3 "readonly" (1, 2, 1) "string" "7.0.0" [lcs::lcs]
        "Finds the longest common substring."
    "lindex" 3 "readonly" (1, 1, 1) "list" "1.0.0" [lists::lindex]
        "Returns an element from a list by its index."
    "linsert" 5 "write denyoom" (1, 1, 1) "list" "2.2.0" [lists::linsert]
        "Inserts an element before or after another element in a list."
    "llen" 2 "readonly fast" (1, 1, 1) "list" "1.0.0" [lists::llen]
        "Returns the length of a list."
    "lmove" 5 "write denyoom" (1, 2, 1) "list" "6.2.0" [list_moves::lmove]
        "Returns an element after popping it from one list and pushing it to another. Deletes the list if the last element was moved."
    "lmpop" -4 "write movablekeys" (0, 0, 0) "list" "7.0.0" [list_moves::lmpop]
        "Returns multiple elements from a list after removing them. Deletes the list if the last element was popped."
    "lpop" -2 "write fast" (1, 1, 1) "list" "1.0.0" [lists::lpop]
        "Returns the first elements in a list after removing them. Deletes the list if the last element was popped."
    "lpos" -3 "readonly" (1, 1, 1) "list" "6.0.6" [lists::lpos]
        "Returns the index of matching elements in a list."
    "lpush" -3 "write denyoom fast" (1, 1, 1) "list" "1.0.0" [lists::lpush]
        "Prepends one or more elements to a list. Creates the key if it doesn't exist."
    "lpushx" -3 "write denyoom fast" (1, 1, 1) "list" "2.2.0" [lists::lpushx]
        "Prepends one or more elements to a list only when the list exists."
    "lrange" 4 "readonly" (1, 1, 1) "list" "1.0.0" [lists::lrange]
        "Returns a range of elements from a list."
    "lrem" 4 "write" (1, 1, 1) "list" "1.0.0" [lists::lrem]
        "Removes elements from a list. Deletes the list if the last element was removed."
    "lset" 4 "write denyoom" (1, 1, 1) "list" "1.0.0" [lists::lset]
        "Sets the value of an element in a list by its index."
    "ltrim" 4 "write" (1, 1, 1) "list" "1.0.0" [lists::ltrim]
        "Removes elements from both ends of a list. Deletes the list if all elements were trimmed."
    "memory" -2 "readonly" (2, 2, 1) "server" "4.0.0" resp_memory
        "Returns how many bytes a key and its value have: USAGE."
    "mget" -2 "readonly fast" (1, -1, 1) "string" "1.0.0" resp_mget [strings::mget]
        "Returns the string values of one or more keys."
    "monitor" 1 "admin noscript" (0, 0, 0) "server" "1.0.0" resp_monitor
        "Listens for all requests received by the server in real-time."
    "move" 3 "write fast" (1, 1, 1) "generic" "1.0.0" [keys::move_key]
        "Moves a key to another database: there is 0 only."
    "mset" -3 "write denyoom" (1, -1, 2) "string" "1.0.1" resp_mset [strings::mset]
        "Sets the string values of one or more keys: all or none."
    "msetnx" -3 "write denyoom" (1, -1, 2) "string" "1.0.1" resp_msetnx [strings::msetnx]
        "Sets the string values of one or more keys only when none of them exists."
    "multi" 1 "noscript fast" (0, 0, 0) "transactions" "1.2.0" resp_multi
        "Starts a transaction."
    "object" -2 "readonly" (2, 2, 1) "generic" "2.2.3" resp_object
        "Returns what is known of a key's record: ENCODING, FREQ, IDLETIME, REFCOUNT."
    "persist" 2 "write fast" (1, 1, 1) "generic" "2.2.0" resp_persist [keys::persist]
        "Removes the expiration time of a key."
    "pexpire" -3 "write fast" (1, 1, 1) "generic" "2.6.0" resp_expire [keys::expire]
        "Sets the expiration time of a key in milliseconds."
    "pexpireat" -3 "write fast" (1, 1, 1) "generic" "2.6.0" resp_expire [keys::expire]
        "Sets the expiration time of a key to a Unix milliseconds timestamp."
    "pexpiretime" 2 "readonly fast" (1, 1, 1) "generic" "7.0.0" resp_ttl [keys::ttl]
        "Returns the expiration time of a key as a Unix milliseconds timestamp."
    "ping" -1 "fast" (0, 0, 0) "connection" "1.0.0" resp_ping [keys::ping]
        "Returns the server's liveliness response."
    "psetex" 4 "write denyoom" (1, 1, 1) "string" "2.6.0" resp_psetex [strings::psetex]
        "Sets both string value and expiration time in milliseconds of a key."
    "psubscribe" -2 "pubsub noscript" (0, 0, 0) "pubsub" "2.0.0" resp_subscribe
        "Listens for messages published to channels that match one or more patterns."
    "pttl" 2 "readonly fast" (1, 1, 1) "generic" "2.6.0" resp_ttl [keys::ttl]
        "Returns the expiration time in milliseconds of a key."
    "publish" 3 "pubsub fast" (0, 0, 0) "pubsub" "2.0.0" [publishing::publish]
        "Posts a message to a channel."
    "pubsub" -2 "pubsub" (0, 0, 0) "pubsub" "2.8.0" resp_pubsub
        "Tells of channels and patterns: CHANNELS, NUMPAT, NUMSUB, SHARDCHANNELS, SHARDNUMSUB."
    "punsubscribe" -1 "pubsub noscript" (0, 0, 0) "pubsub" "2.0.0" resp_unsubscribe
        "Stops listening to messages published to channels that match one or more patterns."
    "quit" -1 "noscript fast no_auth" (0, 0, 0) "connection" "1.0.0" resp_quit
        "Closes the connection."
    "randomkey" 1 "readonly" (0, 0, 0) "generic" "1.0.0" resp_randomkey
        "Returns a random key name."
    "readonly" 1 "fast" (0, 0, 0) "cluster" "3.0.0" resp_readonly
        "Answers OK: there are no replicas to read from."
    "readwrite" 1 "fast" (0, 0, 0) "cluster" "3.0.0" resp_readonly
        "Answers OK: there are no replicas to read from."
    "rename" 3 "write" (1, 2, 1) "generic" "1.0.0" [keys::rename]
        "Renames a key and overwrites the destination."
    "renamenx" 3 "write fast" (1, 2, 1) "generic" "1.0.0" [keys::renamenx]
        "Renames a key only when the target key name doesn't exist."
    "reset" 1 "noscript fast no_auth" (0, 0, 0) "connection" "6.2.0" resp_reset
        "Resets the connection."
    "role" 1 "noscript fast" (0, 0, 0) "server" "2.8.12" resp_role
        "Answers that this is a master without replicas."
    "rpop" -2 "write fast" (1, 1, 1) "list" "1.0.0" [lists::rpop]
        "Returns the last elements of a list after removing them. Deletes the list if the last element was popped."
    "rpoplpush" 3 "write denyoom" (1, 2, 1) "list" "1.2.0" [list_moves::rpoplpush]
        "Returns the last element of a list after removing and pushing it to another list. Deletes the list if the last element was popped."
    "rpush" -3 "write denyoom fast" (1, 1, 1) "list" "1.0.0" [lists::rpush]
        "Appends one or more elements to a list. Creates the key if it doesn't exist."
    "rpushx" -3 "write denyoom fast" (1, 1, 1) "list" "2.2.0" [lists::rpushx]
        "Appends one or more elements to a list only when the list exists."
    "sadd" -3 "write denyoom fast" (1, 1, 1) "set" "1.0.0" [sets::sadd]
        "Adds one or more members to a set. Creates the key if it doesn't exist."
    "save" 1 "admin noscript" (0, 0, 0) "server" "1.0.0" resp_save
        "Answers that BGSAVE does it without holding up others."
    "scan" -2 "readonly" (0, 0, 0) "generic" "2.8.0" resp_scan
        "Iterates over the key names."
    "scard" 2 "readonly fast" (1, 1, 1) "set" "1.0.0" [sets::scard]
        "Returns the number of members in a set."
    "sdiff" -2 "readonly" (1, -1, 1) "set" "1.0.0" [set_combinations::sdiff]
        "Returns the difference of multiple sets."
    "sdiffstore" -3 "write denyoom" (1, -1, 1) "set" "1.0.0" [set_combinations::sdiffstore]
        "Stores the difference of multiple sets in a key."
    "select" 2 "fast" (0, 0, 0) "connection" "1.0.0" resp_select
        "Changes the selected database: there is 0."
    "set" -3 "write denyoom" (1, 1, 1) "string" "1.0.0" resp_set [strings::set]
        "Sets the string value of a key. The key is created if it doesn't exist."
    "setbit" 4 "write denyoom" (1, 1, 1) "bitmap" "2.2.0" resp_setbit [bits::setbit]
        "Sets or clears the bit at offset of the string value. Creates the key if it doesn't exist."
    "setex" 4 "write denyoom" (1, 1, 1) "string" "2.0.0" resp_setex [strings::setex]
        "Sets the string value and expiration time of a key."
    "setnx" 3 "write denyoom fast" (1, 1, 1) "string" "1.0.0" resp_setnx [strings::setnx]
        "Sets the string value of a key only when the key doesn't exist."
    "setrange" 4 "write denyoom" (1, 1, 1) "string" "2.2.0" resp_setrange [strings::setrange]
        "Overwrites a part of a string value with another by an offset."
    "sinter" -2 "readonly" (1, -1, 1) "set" "1.0.0" [set_combinations::sinter]
        "Returns the intersect of multiple sets."
    "sintercard" -3 "readonly movablekeys" (0, 0, 0) "set" "7.0.0" [set_combinations::sintercard]
        "Returns the number of members of the intersect of multiple sets."
    "sinterstore" -3 "write denyoom" (1, -1, 1) "set" "1.0.0" [set_combinations::sinterstore]
        "Stores the intersect of multiple sets in a key."
    "sismember" 3 "readonly fast" (1, 1, 1) "set" "1.0.0" [sets::sismember]
        "Determines whether a member belongs to a set."
    "skv.prefix" -2 "readonly" (0, 0, 0) "generic" "0.1.0" resp_prefix
        "Returns the keys with a prefix, in order, and their values. Our own."
    "skv.range" -3 "readonly" (0, 0, 0) "generic" "0.1.0" resp_range
        "Returns the keys of a range, in order, and their values. Our own."
    "slowlog" -2 "admin noscript" (0, 0, 0) "server" "2.2.12" resp_slowlog
        "Tells of commands that took long: GET, LEN, RESET."
    "smembers" 2 "readonly" (1, 1, 1) "set" "1.0.0" [sets::smembers]
        "Returns all members of a set."
    "smismember" -3 "readonly fast" (1, 1, 1) "set" "6.2.0" [sets::smismember]
        "Determines whether multiple members belong to a set."
    "smove" 4 "write fast" (1, 2, 1) "set" "1.0.0" [set_combinations::smove]
        "Moves a member from one set to another."
    "sort" -2 "write denyoom" (1, 1, 1) "generic" "1.0.0" resp_sort [sort::sort]
        "Sorts the elements in a list, a set, or a sorted set, optionally storing the result: no patterns with *."
    "sort_ro" -2 "readonly" (1, 1, 1) "generic" "7.0.0" [sort::sort]
        "Returns the sorted elements of a list, a set, or a sorted set: no patterns with *."
    "spop" -2 "write fast" (1, 1, 1) "set" "1.0.0" [sets::spop]
        "Returns one or more random members from a set after removing them. Deletes the set if the last member was popped."
    "spublish" 3 "pubsub fast" (0, 0, 0) "pubsub" "7.0.0" [publishing::publish]
        "Posts a message to a channel of a shard."
    "srandmember" -2 "readonly" (1, 1, 1) "set" "1.0.0" [sets::srandmember]
        "Returns one or more random members from a set."
    "srem" -3 "write fast" (1, 1, 1) "set" "1.0.0" [sets::srem]
        "Removes one or more members from a set. Deletes the set if the last member was removed."
    "sscan" -3 "readonly" (1, 1, 1) "set" "2.8.0" [sets::sscan]
        "Iterates over members of a set."
    "ssubscribe" -2 "pubsub noscript" (1, -1, 1) "pubsub" "7.0.0" resp_subscribe
        "Listens for messages published to channels of a shard."
    "strlen" 2 "readonly fast" (1, 1, 1) "string" "2.2.0" resp_strlen [strings::strlen]
        "Returns the length of a string value."
    "subscribe" -2 "pubsub noscript" (0, 0, 0) "pubsub" "2.0.0" resp_subscribe
        "Listens for messages published to channels."
    "substr" 4 "readonly" (1, 1, 1) "string" "1.0.0" resp_getrange [strings::getrange]
        "Returns a substring of a string value."
    "sunion" -2 "readonly" (1, -1, 1) "set" "1.0.0" [set_combinations::sunion]
        "Returns the union of multiple sets."
    "sunionstore" -3 "write denyoom" (1, -1, 1) "set" "1.0.0" [set_combinations::sunionstore]
        "Stores the union of multiple sets in a key."
    "sunsubscribe" -1 "pubsub noscript" (1, -1, 1) "pubsub" "7.0.0" resp_unsubscribe
        "Stops listening to messages posted to channels of a shard."
    "swapdb" 3 "write fast" (0, 0, 0) "server" "4.0.0" [keys::swapdb]
        "Swaps two databases: there is 0 only."
    "time" 1 "fast" (0, 0, 0) "server" "2.6.0" resp_time [keys::time]
        "Returns the server time."
    "touch" -2 "readonly fast" (1, -1, 1) "generic" "3.2.1" resp_exists [keys::exists]
        "Returns the number of existing keys out of those specified."
    "ttl" 2 "readonly fast" (1, 1, 1) "generic" "1.0.0" resp_ttl [keys::ttl]
        "Returns the expiration time in seconds of a key."
    "type" 2 "readonly fast" (1, 1, 1) "generic" "1.0.0" resp_type [keys::kind]
        "Determines the type of value stored at a key."
    "unlink" -2 "write fast" (1, -1, 1) "generic" "4.0.0" resp_del [keys::del]
        "Deletes one or more keys."
    "unsubscribe" -1 "pubsub noscript" (0, 0, 0) "pubsub" "2.0.0" resp_unsubscribe
        "Stops listening to messages posted to channels."
    "unwatch" 1 "noscript fast" (0, 0, 0) "transactions" "2.2.0" resp_unwatch [keys::unwatch]
        "Forgets about watched keys of a transaction."
    "wait" 3 "" (0, 0, 0) "generic" "3.0.0" resp_wait
        "Answers 0: there are no replicas."
    "watch" -2 "noscript fast" (1, -1, 1) "transactions" "2.2.0" resp_watch
        "Monitors changes to keys to determine the execution of a transaction."
    "zadd" -4 "write denyoom fast" (1, 1, 1) "sorted-set" "1.2.0" [sorted_sets::zadd]
        "Adds one or more members to a sorted set, or updates their scores. Creates the key if it doesn't exist."
    "zcard" 2 "readonly fast" (1, 1, 1) "sorted-set" "1.2.0" [sorted_sets::zcard]
        "Returns the number of members in a sorted set."
    "zcount" 4 "readonly fast" (1, 1, 1) "sorted-set" "2.0.0" [score_ranges::zcount]
        "Returns the count of members in a sorted set that have scores within a range."
    "zdiff" -3 "readonly movablekeys" (0, 0, 0) "sorted-set" "6.2.0" [score_combinations::zdiff]
        "Returns the difference between multiple sorted sets."
    "zdiffstore" -4 "write denyoom movablekeys" (1, 1, 1) "sorted-set" "6.2.0" [score_combinations::zdiffstore]
        "Stores the difference of multiple sorted sets in a key."
    "zincrby" 4 "write denyoom fast" (1, 1, 1) "sorted-set" "1.2.0" [sorted_sets::zincrby]
        "Increments the score of a member in a sorted set."
    "zinter" -3 "readonly movablekeys" (0, 0, 0) "sorted-set" "6.2.0" [score_combinations::zinter]
        "Returns the intersect of multiple sorted sets."
    "zintercard" -3 "readonly movablekeys" (0, 0, 0) "sorted-set" "7.0.0" [score_combinations::zintercard]
        "Returns the number of members of the intersect of multiple sorted sets."
    "zinterstore" -4 "write denyoom movablekeys" (1, 1, 1) "sorted-set" "2.0.0" [score_combinations::zinterstore]
        "Stores the intersect of multiple sorted sets in a key."
    "zlexcount" 4 "readonly fast" (1, 1, 1) "sorted-set" "2.8.9" [score_ranges::zlexcount]
        "Returns the number of members in a sorted set within a lexicographical range."
    "zmpop" -4 "write movablekeys" (0, 0, 0) "sorted-set" "7.0.0" [score_combinations::zmpop]
        "Returns the highest- or lowest-scoring members from one or more sorted sets after removing them. Deletes the sorted set if the last member was popped."
    "zmscore" -3 "readonly fast" (1, 1, 1) "sorted-set" "6.2.0" [sorted_sets::zmscore]
        "Returns the score of one or more members in a sorted set."
    "zpopmax" -2 "write fast" (1, 1, 1) "sorted-set" "5.0.0" [sorted_sets::zpopmax]
        "Returns the highest-scoring members from a sorted set after removing them. Deletes the sorted set if the last member was popped."
    "zpopmin" -2 "write fast" (1, 1, 1) "sorted-set" "5.0.0" [sorted_sets::zpopmin]
        "Returns the lowest-scoring members from a sorted set after removing them. Deletes the sorted set if the last member was popped."
    "zrandmember" -2 "readonly" (1, 1, 1) "sorted-set" "6.2.0" [sorted_sets::zrandmember]
        "Returns one or more random members from a sorted set."
    "zrange" -4 "readonly" (1, 1, 1) "sorted-set" "1.2.0" [score_ranges::zrange]
        "Returns members in a sorted set within a range of indexes."
    "zrangebylex" -4 "readonly" (1, 1, 1) "sorted-set" "2.8.9" [score_ranges::zrangebylex]
        "Returns members in a sorted set within a lexicographical range."
    "zrangebyscore" -4 "readonly" (1, 1, 1) "sorted-set" "1.0.5" [score_ranges::zrangebyscore]
        "Returns members in a sorted set within a range of scores."
    "zrangestore" -5 "write denyoom" (1, 2, 1) "sorted-set" "6.2.0" [score_combinations::zrangestore]
        "Stores a range of members from sorted set in a key."
    "zrank" 3 "readonly fast" (1, 1, 1) "sorted-set" "2.0.0" [sorted_sets::zrank]
        "Returns the index of a member in a sorted set ordered by ascending scores."
    "zrem" -3 "write fast" (1, 1, 1) "sorted-set" "1.2.0" [sorted_sets::zrem]
        "Removes one or more members from a sorted set. Deletes the sorted set if all members were removed."
    "zremrangebylex" 4 "write" (1, 1, 1) "sorted-set" "2.8.9" [score_ranges::zremrangebylex]
        "Removes members in a sorted set within a lexicographical range. Deletes the sorted set if all members were removed."
    "zremrangebyrank" 4 "write" (1, 1, 1) "sorted-set" "2.0.0" [score_ranges::zremrangebyrank]
        "Removes members in a sorted set within a range of indexes. Deletes the sorted set if all members were removed."
    "zremrangebyscore" 4 "write" (1, 1, 1) "sorted-set" "1.2.0" [score_ranges::zremrangebyscore]
        "Removes members in a sorted set within a range of scores. Deletes the sorted set if all members were removed."
    "zrevrange" -4 "readonly" (1, 1, 1) "sorted-set" "1.2.0" [score_ranges::zrevrange]
        "Returns members in a sorted set within a range of indexes in reverse order."
    "zrevrangebylex" -4 "readonly" (1, 1, 1) "sorted-set" "2.8.9" [score_ranges::zrevrangebylex]
        "Returns members in a sorted set within a lexicographical range in reverse order."
    "zrevrangebyscore" -4 "readonly" (1, 1, 1) "sorted-set" "2.2.0" [score_ranges::zrevrangebyscore]
        "Returns members in a sorted set within a range of scores in reverse order."
    "zrevrank" 3 "readonly fast" (1, 1, 1) "sorted-set" "2.0.0" [sorted_sets::zrevrank]
        "Returns the index of a member in a sorted set ordered by descending scores."
    "zscan" -3 "readonly" (1, 1, 1) "sorted-set" "2.8.0" [sorted_sets::zscan]
        "Iterates over members and scores of a sorted set."
    "zscore" 3 "readonly fast" (1, 1, 1) "sorted-set" "1.2.0" [sorted_sets::zscore]
        "Returns the score of a member in a sorted set."
    "zunion" -3 "readonly movablekeys" (0, 0, 0) "sorted-set" "6.2.0" [score_combinations::zunion]
        "Returns the union of multiple sorted sets."
    "zunionstore" -4 "write denyoom movablekeys" (1, 1, 1) "sorted-set" "2.0.0" [score_combinations::zunionstore]
        "Stores the union of multiple sorted sets in a key."
}

/// Commands of Redis, those that are not there among them.
const OF_REDIS: &str = "\
    acl append asking auth bgrewriteaof bgsave bitcount bitfield bitfield_ro bitop bitpos blmove blmpop \
    blpop brpop brpoplpush bzmpop bzpopmax bzpopmin client cluster command config copy dbsize debug decr \
    decrby del discard dump echo eval eval_ro evalsha evalsha_ro exec exists expire expireat expiretime \
    failover fcall fcall_ro flushall flushdb function geoadd geodist geohash geopos georadius \
    georadius_ro georadiusbymember georadiusbymember_ro geosearch geosearchstore get getbit getdel getex \
    getrange getset hdel hello hexists hexpire hget hgetall hincrby hincrbyfloat hkeys hlen hmget hmset \
    hpersist hpexpire hrandfield hscan hset hsetnx hstrlen httl hvals incr incrby incrbyfloat info keys \
    lastsave latency lcs lindex linsert llen lmove lmpop lolwut lpop lpos lpush lpushx lrange lrem lset \
    ltrim memory mget migrate module monitor move mset msetnx multi object persist pexpire pexpireat \
    pexpiretime pfadd pfcount pfdebug pfmerge pfselftest ping psetex psubscribe psync pttl publish \
    pubsub punsubscribe quit randomkey readonly readwrite rename renamenx replconf replicaof reset \
    restore restore-asking role rpop rpoplpush rpush rpushx sadd save scan scard script sdiff sdiffstore \
    select set setbit setex setnx setrange shutdown sinter sintercard sinterstore sismember slaveof \
    slowlog smembers smismember smove sort sort_ro spop spublish srandmember srem sscan ssubscribe \
    strlen subscribe substr sunion sunionstore sunsubscribe swapdb sync time touch ttl type unlink \
    unsubscribe unwatch wait waitaof watch xack xadd xautoclaim xclaim xdel xgroup xinfo xlen xpending \
    xrange xread xreadgroup xrevrange xsetid xtrim zadd zcard zcount zdiff zdiffstore zincrby zinter \
    zintercard zinterstore zlexcount zmpop zmscore zpopmax zpopmin zrandmember zrange zrangebylex \
    zrangebyscore zrangestore zrank zrem zremrangebylex zremrangebyrank zremrangebyscore zrevrange \
    zrevrangebylex zrevrangebyscore zrevrank zscan zscore zunion zunionstore";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_by_their_names_and_are_in_order() {
        assert!(COMMANDS.is_sorted_by(|one, next| one.name < next.name));
        for command in COMMANDS {
            let found = CommandSpec::find(command.name.to_ascii_uppercase().as_bytes()).unwrap();
            assert_eq!(found.name, command.name);
            let is_ours = command.name.starts_with("skv.");
            assert!(is_ours || OF_REDIS.split_ascii_whitespace().any(|name| name == command.name), "{}", command.name);
            assert!(command.summary.ends_with('.') && command.name.len() <= NAME_BYTES_MAX);
        }
        assert!(CommandSpec::find(b"").is_none() && CommandSpec::find(&[b'a'; 100]).is_none());
    }

    #[test]
    fn a_command_takes_as_many_arguments_as_its_arity_says() {
        let takes = |name: &[u8], arguments| CommandSpec::find(name).unwrap().takes(arguments);
        assert!(takes(b"get", 2) && !takes(b"get", 1) && !takes(b"get", 3));
        assert!(takes(b"del", 2) && takes(b"del", 900) && !takes(b"del", 1));
        assert!(takes(b"ping", 1));
    }
}
