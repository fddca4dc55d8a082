//! `CLUSTER`, and commands whose keys are another server's. Without static slots it is a cluster of
//! one node that has all slots, so that clients of clusters can use it.

use std::borrow::Cow;

use stratakv_base::checksum::crc32c;
use stratakv_protocol::resp::{Version, encode};

use super::data::key_places;
use super::table::{CommandSpec, unsupported_part};
use super::{Connection, Context, Handled};
use crate::resp::transaction::Queue;
use crate::resp::{Arguments, ClusterNode, ClusterSlots, SLOTS, Session, SlotRange, slot_of};
use crate::schedule::cost_of_text;

/// The port of the bus between nodes is so much higher, by Redis's rule. Nobody listens there.
const BUS: u32 = 10_000;
/// The words of Redis.
const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";
/// The answer to `COUNTKEYSINSLOT`.
const NOT_COUNTED: &str = "ERR keys are not counted by slot: DBSIZE counts those of all slots on this server";

impl Connection {
    pub(super) fn resp_cluster(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let cluster = ClusterView::of(context);
        let mut out = Vec::new();
        match () {
            () if a.is(1, "INFO") && a.len() == 2 => encode::verbatim(&mut out, cluster.info().as_bytes(), s.version),
            () if a.is(1, "MYID") && a.len() == 2 => encode::bulk(&mut out, cluster.own_id().as_bytes()),
            () if a.is(1, "NODES") && a.len() == 2 => {
                encode::verbatim(&mut out, cluster.lines().as_bytes(), s.version);
            }
            () if a.is(1, "SLOTS") && a.len() == 2 => cluster.slots(&mut out),
            () if a.is(1, "SHARDS") && a.len() == 2 => cluster.shards(s.version, &mut out),
            () if a.is(1, "KEYSLOT") && a.len() == 3 => encode::integer(&mut out, slot_of(a.get(2)).into()),
            () if a.is(1, "COUNTKEYSINSLOT") && a.len() == 3 => return Err(Cow::Borrowed(NOT_COUNTED)),
            () if a.is(1, "HELP") && a.len() == 2 => return self.help("cluster"),
            () => return Err(unsupported_part("cluster", a)),
        }
        self.grant.spend(cost_of_text(&out));
        self.say(|answer| *answer = out)
    }

    /// READONLY and READWRITE: what clients of a cluster want of replicas, of which there are none.
    pub(super) fn resp_readonly(&mut self, _: &Arguments<'_>, _: &mut Session, _: &mut Context<'_>) -> Handled {
        self.say(|out| encode::simple(out, "OK"))
    }

    /// Whether a command cannot be carried out here, as its keys are another server's or have
    /// several slots. Then it is answered, and spoils the transaction that it is in.
    pub(super) fn is_elsewhere(
        &mut self,
        command: &CommandSpec,
        a: &Arguments<'_>,
        session: &mut Session,
        context: &Context<'_>,
    ) -> bool {
        let Some(slots) = &context.resp.slots else { return false };
        let queue = session.transaction.queue.as_ref();
        let Some(refusal) = slot_refusal(slots, command, a, queue) else { return false };
        if command.name == "exec" {
            session.transaction.queue = None;
            session.transaction.take_watched();
        } else {
            session.transaction.refuse();
        }
        // No error of the client: it learns where slots are.
        self.say(|out| encode::error(out, &refusal)).is_ok()
    }
}

/// Why the keys of a command are none of this server's: the text of an error.
fn slot_refusal(
    slots: &ClusterSlots,
    command: &CommandSpec,
    a: &Arguments<'_>,
    queue: Option<&Queue>,
) -> Option<Cow<'static, str>> {
    let mut asked: Box<dyn Iterator<Item = u16>> = match command.name {
        _ if !command.takes(a.len()) => return None,
        // Commands were looked at one by one when they were queued.
        "exec" => Box::new(queue?.keys.iter().map(|key| slot_of(key.user()))),
        // Its channel has a slot, and is no key.
        "spublish" => Box::new(std::iter::once(slot_of(a.get(1)))),
        _ => {
            let places = key_places(command, a).into_iter();
            Box::new(places.filter(|place| *place < a.len()).map(|place| slot_of(a.get(place))))
        }
    };
    let slot = asked.next()?;
    if asked.any(|other| other != slot) {
        return Some(Cow::Borrowed(CROSS_SLOT));
    }
    let node = slots.other(slot)?;
    Some(Cow::Owned(format!("MOVED {slot} {}:{}", node.host(), node.port())))
}

/// A server of the cluster, as the client that asks can reach it.
struct NodeView<'a> {
    id: Cow<'a, str>,
    /// Empty: the client goes on with the address that it has used.
    host: Cow<'a, str>,
    port: u16,
}

/// All servers and their slots.
struct ClusterView<'a> {
    nodes: Vec<NodeView<'a>>,
    ranges: Cow<'a, [SlotRange]>,
    own: usize,
    /// Options say which server has which slots.
    is_static: bool,
}

impl<'a> ClusterView<'a> {
    fn of(context: &Context<'a>) -> ClusterView<'a> {
        let Some(slots) = &context.resp.slots else { return ClusterView::alone(context) };
        let view = |node: &'a ClusterNode| {
            let (id, host) = (Cow::Owned(ClusterSlots::id(node)), Cow::Borrowed(node.host()));
            NodeView { id, host, port: node.port() }
        };
        ClusterView {
            nodes: slots.nodes().iter().map(view).collect(),
            ranges: Cow::Borrowed(slots.ranges()),
            own: slots.own(),
            is_static: true,
        }
    }

    /// The only node, which has all slots.
    fn alone(context: &Context<'a>) -> ClusterView<'a> {
        let address = context.server.local_address();
        let host = address.map_or_else(String::new, |address| address.ip().to_canonical().to_string());
        let (id, port) = (Cow::Borrowed(context.resp.node_id()), address.map_or(0, |address| address.port()));
        let ranges = Cow::Owned(vec![SlotRange { first: 0, last: SLOTS - 1, node: 0 }]);
        ClusterView { nodes: vec![NodeView { id, host: Cow::Owned(host), port }], ranges, own: 0, is_static: false }
    }

    fn own_id(&self) -> &str {
        self.nodes.get(self.own).map_or("", |node| &node.id)
    }

    fn ranges_of(&self, node: usize) -> impl Iterator<Item = &SlotRange> {
        self.ranges.iter().filter(move |range| range.node == node)
    }

    /// A line for each node. Nobody looks whether others run: all count as connected.
    fn lines(&self) -> String {
        let line = |(place, node): (usize, &NodeView<'_>)| {
            let NodeView { id, host, port } = node;
            let bus = u32::from(*port) + BUS;
            let flags = if place == self.own { "myself,master" } else { "master" };
            let mut line = format!("{id} {host}:{port}@{bus} {flags} - 0 0 {} connected", place + 1);
            for SlotRange { first, last, .. } in self.ranges_of(place) {
                line.push_str(&if first == last { format!(" {first}") } else { format!(" {first}-{last}") });
            }
            line + "\n"
        };
        self.nodes.iter().enumerate().map(line).collect()
    }

    fn slots(&self, out: &mut Vec<u8>) {
        encode::array(out, self.ranges.len());
        for range in self.ranges.iter() {
            let Some(node) = self.nodes.get(range.node) else { continue };
            encode::array(out, 3);
            encode::integer(out, range.first.into());
            encode::integer(out, range.last.into());
            encode::array(out, 4);
            encode::bulk(out, node.host.as_bytes());
            encode::integer(out, node.port.into());
            encode::bulk(out, node.id.as_bytes());
            encode::array(out, 0);
        }
    }

    fn shards(&self, version: Version, out: &mut Vec<u8>) {
        encode::array(out, self.nodes.len());
        for (place, node) in self.nodes.iter().enumerate() {
            encode::map(out, 2, version);
            encode::bulk(out, b"slots");
            encode::array(out, 2 * self.ranges_of(place).count());
            for range in self.ranges_of(place) {
                encode::integer(out, range.first.into());
                encode::integer(out, range.last.into());
            }
            encode::bulk(out, b"nodes");
            encode::array(out, 1);
            node.describe(version, out);
        }
    }

    /// Of which server has which slots. It is the same on two servers if their options say the
    /// same of all slots, in whatever order.
    fn checksum(&self) -> u32 {
        self.ranges.iter().fold(0, |checksum, range| {
            let (host, port) = self.nodes.get(range.node).map_or(("", 0), |node| (&node.host[..], node.port));
            let text = format!("{}-{} {port} {host}\n", range.first, range.last);
            crc32c(checksum, text.as_bytes())
        })
    }

    fn info(&self) -> String {
        let (slots, nodes) = (SLOTS.to_string(), self.nodes.len().to_string());
        let figures = [
            ("cluster_state", "ok"),
            ("cluster_slots_assigned", &slots),
            ("cluster_slots_ok", &slots),
            ("cluster_slots_pfail", "0"),
            ("cluster_slots_fail", "0"),
            ("cluster_known_nodes", &nodes),
            ("cluster_size", &nodes),
            ("cluster_current_epoch", &nodes),
            ("cluster_my_epoch", &(self.own + 1).to_string()),
        ];
        let mut info: String = figures.iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect();
        // No field of Redis: operators compare it.
        if self.is_static {
            info.push_str(&format!("cluster_map_checksum:{:08x}\r\n", self.checksum()));
        }
        info
    }
}

impl NodeView<'_> {
    fn describe(&self, version: Version, out: &mut Vec<u8>) {
        encode::map(out, 7, version);
        encode::bulk(out, b"id");
        encode::bulk(out, self.id.as_bytes());
        encode::bulk(out, b"port");
        encode::integer(out, self.port.into());
        for (name, text) in [("ip", &self.host[..]), ("endpoint", &self.host[..]), ("role", "master")] {
            encode::bulk(out, name.as_bytes());
            encode::bulk(out, text.as_bytes());
        }
        encode::bulk(out, b"replication-offset");
        encode::integer(out, 0);
        encode::bulk(out, b"health");
        encode::bulk(out, b"online");
    }
}
