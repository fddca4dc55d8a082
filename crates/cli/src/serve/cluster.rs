//! `--cluster-node`: slots of Redis Cluster over several servers.

use std::net::SocketAddr;

use clap::Args;
use stratakv_server::{ClusterNode, ClusterSlots};

use super::listen::Listen;
use crate::failure::Failure;

/// Which server has which slots.
#[derive(Args)]
pub(super) struct ClusterArguments {
    /// Spread keys of Redis clients over several servers by slots of Redis Cluster: a server as
    /// clients reach it and its slots, such as 10.0.0.1:6379=0-5460; once for each server, the same
    /// on all of them [default: this server has all slots]
    #[arg(long, value_name = "HOST:PORT=SLOTS")]
    cluster_node: Vec<ClusterNode>,
    /// Which of --cluster-node this server is [default: the one with an address of --resp]
    #[arg(long, value_name = "HOST:PORT", requires = "cluster_node")]
    cluster_self: Option<String>,
}

impl ClusterArguments {
    /// The slots, if they are spread.
    ///
    /// # Errors
    /// They do not fit together, or this server is none of those that have them.
    pub(super) fn slots(&self, resp: &[Listen]) -> Result<Option<ClusterSlots>, Failure> {
        if self.cluster_node.is_empty() {
            return Ok(None);
        }
        let own = match &self.cluster_self {
            Some(own) => own.clone(),
            None => self.own(resp)?,
        };
        let slots = ClusterSlots::new(self.cluster_node.clone(), &own);
        slots.map(Some).map_err(|why| Failure::usage(format!("--cluster-node: {why}")))
    }

    /// The one that has an address at which this server listens.
    fn own(&self, resp: &[Listen]) -> Result<String, Failure> {
        let listens = |address: SocketAddr| {
            resp.iter().any(|listen| matches!(listen, Listen::Tcp(own) | Listen::Tls(own) if *own == address))
        };
        let texts = self.cluster_node.iter().map(ToString::to_string);
        let mut own = texts.filter(|text| text.parse().is_ok_and(listens));
        match (own.next(), own.next()) {
            (Some(own), None) => Ok(own),
            (None, _) if resp.is_empty() => {
                Err(Failure::usage("--cluster-node is for Redis clients, who cannot connect: say --resp ADDRESS:PORT"))
            }
            (None, _) => Err(Failure::usage(
                "none of --cluster-node is an address of --resp: say by --cluster-self HOST:PORT which of them this \
                 server is",
            )),
            (Some(one), Some(other)) => Err(Failure::usage(format!(
                "{one} and {other} are both addresses of --resp: say by --cluster-self HOST:PORT which of them this \
                 server is"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(nodes: &[&str], named: Option<&str>, resp: &[&str]) -> Result<String, String> {
        let cluster_node = nodes.iter().map(|node| node.parse().expect("a server")).collect();
        let arguments = ClusterArguments { cluster_node, cluster_self: named.map(str::to_owned) };
        let resp: Vec<Listen> = resp.iter().map(|listen| listen.parse().expect("an address")).collect();
        let slots = arguments.slots(&resp).map_err(|failure| failure.message)?;
        Ok(slots.map_or_else(String::new, |slots| slots.own_node().to_string()))
    }

    const TWO: [&str; 2] = ["127.0.0.1:7001=0-8000", "[::1]:7002=8001-16383"];

    #[test]
    fn a_server_knows_which_one_it_is_by_its_address() {
        assert_eq!(own(&TWO, None, &["unix:/a", "127.0.0.1:7001"]).as_deref(), Ok("127.0.0.1:7001"));
        assert_eq!(own(&TWO, None, &["tls:[::1]:7002"]).as_deref(), Ok("[::1]:7002"));
        assert_eq!(own(&TWO, Some("[::1]:7002"), &["127.0.0.1:9"]).as_deref(), Ok("[::1]:7002"));
        assert_eq!(own(&[], None, &["127.0.0.1:9"]).as_deref(), Ok(""), "this server has all slots");
    }

    #[test]
    fn a_server_that_cannot_know_it_asks() {
        for (named, resp, words) in [
            (None, &["0.0.0.0:7001"][..], "none of --cluster-node is an address of --resp"),
            (None, &[], "say --resp"),
            (None, &["127.0.0.1:7001", "[::1]:7002"], "127.0.0.1:7001 and [::1]:7002 are both"),
            (Some("a:1"), &["127.0.0.1:7001"], "--cluster-node: a:1 is none of"),
        ] {
            let why = own(&TWO, named, resp).expect_err("it is refused");
            assert!(why.contains(words), "{why}");
        }
        let why = own(&["127.0.0.1:7001=0-8000"], None, &["127.0.0.1:7001"]).expect_err("slots are missing");
        assert!(why.starts_with("--cluster-node: slots 8001 to 16383"), "{why}");
    }
}
