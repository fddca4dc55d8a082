//! `--server`: commands that ask a running server instead of opening its directory.

mod backup;
mod client;
mod collections;
mod connection;
mod login;
mod range;
mod resp;
mod verify;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};

use crate::failure::Failure;
pub(crate) use backup::backup;
pub(crate) use client::{Client, Condition, Stored};
pub(crate) use collections::{CollectionsTask, absent, collections};
pub(crate) use connection::ServerAddress;
pub(crate) use login::LoginArguments;
pub(crate) use range::{ListedKey, PageEnd, RangeRequest, RemoteRecord, can_be_asked_for};
pub(crate) use resp::{RespClient, RespReply, write_command};
pub(crate) use verify::Verified;

/// Which server.
#[derive(Args)]
pub(crate) struct ServerArguments {
    /// Ask the server that listens there, instead of opening the store: HOST:PORT, tls:HOST:PORT or
    /// unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    server: Option<String>,
    #[command(flatten)]
    login: LoginArguments,
}

impl ServerArguments {
    /// A connection, if a server was named.
    pub(crate) fn connect(&self) -> Result<Option<Client>, Failure> {
        match self.server.as_deref() {
            Some(server) => self.login.memcache(&ServerAddress::parse(server), NOBODY_THERE).map(Some),
            None => self.login.refuse_without("--server").map(|()| None),
        }
    }

    /// Who asks.
    pub(crate) fn login(&self) -> &LoginArguments {
        &self.login
    }

    /// The server, as it was named.
    pub(crate) fn named(&self) -> Option<&str> {
        self.server.as_deref()
    }
}

const NOBODY_THERE: &str = "does `stratakv serve` run there? It says at its start where it listens";
const OPENING: &str = "is for a store that this command opens itself, and the server has opened its own. Leave it out";
/// What `check` opens.
const DEVICES: &str = "is for a store that this command opens itself. Leave it out";

const NO_SHARDS: &str = "is for a store that this command opens itself: the memcache protocol has sums over the shards only. `serve --admin` shows \
                         each shard (/metrics, /stats.json). Leave --shards out";

/// Options that mean nothing to a server, and why. Passed over in silence they would mislead.
const REFUSED: &[(&str, &str)] = &[
    ("data", OPENING),
    ("memory", OPENING),
    ("io", OPENING),
    ("engine", OPENING),
    ("placement", OPENING),
    ("region", OPENING),
    ("region_path", OPENING),
    ("region_node", OPENING),
    ("durability", OPENING),
    ("collection", "cannot be sent to a server: memcache clients see the default collection only. Leave it out"),
    ("order", "belongs to a collection, which cannot be sent to a server. Leave both out"),
    ("shards", NO_SHARDS),
    ("device", DEVICES),
    ("nvme", DEVICES),
];

/// Refuses options of the command line that stand beside `--server` and would be without effect.
/// `STRATAKV_DATA` is no such option: it is set for other commands too.
pub(crate) fn refuse_options_without_effect(arguments: &ArgMatches) -> Result<(), Failure> {
    let Some((_, arguments)) = arguments.subcommand() else { return Ok(()) };
    let is_given = |name: &str| {
        let mut given =
            arguments.ids().filter(|id| arguments.value_source(id.as_str()) == Some(ValueSource::CommandLine));
        given.any(|id| id == name)
    };
    if !is_given("server") {
        return Ok(());
    }
    match REFUSED.iter().find(|(name, _)| is_given(name)) {
        Some((name, why)) => Err(Failure::usage(format!("--{} {why}, or leave --server out", name.replace('_', "-")))),
        None => Ok(()),
    }
}
