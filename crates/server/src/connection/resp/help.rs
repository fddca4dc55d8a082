//! `HELP` of commands that have parts: what there is here.

use stratakv_protocol::resp::encode;

use super::{Connection, Handled};

/// The parts of each such command, and what they do.
const PARTS: &[(&str, &[(&str, &str)])] = &[
    (
        "acl",
        &[
            ("CAT [<category>]", "List all commands that belong to <category>, or all categories."),
            ("GETUSER <username>", "Get the user's details."),
            ("LIST", "Show users as lines of a configuration: all may do everything."),
            ("USERS", "List all users: those of --auth-file."),
            ("WHOAMI", "Return the user of the connection."),
        ],
    ),
    (
        "client",
        &[
            ("GETNAME", "Return the name of the current connection."),
            ("GETREDIR", "Return -1: nothing is tracked."),
            ("ID", "Return the ID of the current connection."),
            ("INFO", "Return information about the current connection."),
            ("KILL <ip:port>", "Close the connection made from <ip:port>."),
            ("KILL <option> <value> [...]", "Close connections by ID, TYPE, USER, ADDR, LADDR, SKIPME (YES|NO)."),
            ("LIST [TYPE <type> | ID <id> ...]", "Return information about connections."),
            ("NO-EVICT (ON|OFF)", "Accepted, and without effect."),
            ("NO-TOUCH (ON|OFF)", "Accepted, and without effect."),
            ("REPLY (ON|OFF|SKIP)", "Control the replies sent to the current connection."),
            ("SETINFO <option> <value>", "Set the name or the version of the client's library."),
            ("SETNAME <name>", "Assign the name <name> to the current connection."),
            ("TRACKINGINFO", "Report that nothing is tracked."),
            ("UNBLOCK <clientid> [TIMEOUT|ERROR]", "Unblock the specified blocked client."),
        ],
    ),
    (
        "cluster",
        &[
            ("INFO", "Return information about the cluster, whose slots are static."),
            ("KEYSLOT <key>", "Return the hash slot of <key>."),
            ("MYID", "Return the ID of this node."),
            ("NODES", "Return each node as a line."),
            ("SHARDS", "Return the nodes and the slots that they have."),
            ("SLOTS", "Return the slots and the nodes that have them, in the older form."),
        ],
    ),
    (
        "command",
        &[
            ("(no subcommand)", "Return details about all commands."),
            ("COUNT", "Return the number of commands."),
            ("DOCS [<command-name> ...]", "Return documentation details about commands."),
            ("GETKEYS <full-command>", "Return the keys of a full command."),
            ("INFO [<command-name> ...]", "Return details about commands."),
            ("LIST [FILTERBY (ACLCAT|PATTERN) <arg>]", "Return the names of commands."),
        ],
    ),
    (
        "config",
        &[
            ("GET <pattern> [...]", "Return parameters matching the glob-like patterns and their values."),
            ("RESETSTAT", "Reset statistics."),
            ("SET <directive> <value> [...]", "Set configuration directives."),
        ],
    ),
    (
        "function",
        &[
            ("FLUSH [ASYNC|SYNC]", "Return OK: there are no functions."),
            ("LIST", "Return an empty list: there are no functions."),
        ],
    ),
    (
        "latency",
        &[
            ("HISTORY <event>", "Return an empty list: latency is not monitored here; see SLOWLOG."),
            ("LATEST", "Return an empty list: latency is not monitored here."),
            ("RESET [<event> ...]", "Return 0: there was nothing to reset."),
        ],
    ),
    ("memory", &[("USAGE <key> [SAMPLES <count>]", "Return the bytes of <key> and its value.")]),
    (
        "object",
        &[
            ("ENCODING <key>", "Return the kind of internal representation of the value of <key>."),
            ("FREQ <key>", "Return an error: nobody counts accesses."),
            ("IDLETIME <key>", "Return the idle time of <key> in seconds."),
            ("REFCOUNT <key>", "Return the number of references of the value of <key>: 1."),
        ],
    ),
    (
        "pubsub",
        &[
            ("CHANNELS [<pattern>]", "Return the currently active channels matching a <pattern> (default: '*')."),
            ("NUMPAT", "Return number of subscriptions to patterns."),
            ("NUMSUB [<channel> ...]", "Return the number of subscribers for the specified channels."),
            ("SHARDCHANNELS [<pattern>]", "Return the currently active channels of shards."),
            ("SHARDNUMSUB [<shardchannel> ...]", "Return the number of subscribers for channels of shards."),
        ],
    ),
    (
        "slowlog",
        &[
            ("GET [<count>]", "Return the newest <count> entries (default: 10, -1 means all)."),
            ("LEN", "Return the length of the slowlog."),
            ("RESET", "Reset the slowlog."),
        ],
    ),
];

impl Connection {
    /// The reply to `HELP` of this command.
    pub(super) fn help(&mut self, name: &str) -> Handled {
        let parts = PARTS.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, parts)| parts);
        self.say(|out| {
            encode::array(out, 1 + 2 * (parts.len() + 1));
            let name = name.to_ascii_uppercase();
            encode::simple(out, &format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
            for (part, does) in parts.iter().chain([&("HELP", "Prints this help.")]) {
                encode::simple(out, part);
                encode::simple(out, &format!("    {does}"));
            }
        })
    }
}
