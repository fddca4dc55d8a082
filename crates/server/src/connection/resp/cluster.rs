//! `CLUSTER`, as a cluster of one node that has all slots: so clients of clusters can use it.

use std::borrow::Cow;

use stratakv_protocol::resp::{Version, encode};

use super::table::unsupported_part;
use super::{Connection, Context, Handled};
use crate::resp::{Arguments, Session};

/// Slots of a cluster.
const SLOTS: u16 = 16_384;
/// The port of the bus between nodes is so much higher, by Redis's rule. Nobody listens there.
const BUS: u32 = 10_000;

/// The slot of a key: what is between the first braces counts, if there is something.
fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        let close = rest.iter().position(|byte| *byte == b'}')?;
        rest.get(..close).filter(|tag| !tag.is_empty())
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM, by which a cluster hashes.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| crc << 1 ^ if crc & 0x8000 != 0 { 0x1021 } else { 0 })
    })
}

impl Connection {
    pub(super) fn resp_cluster(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let node = ClusterNode::of(context);
        match () {
            () if a.is(1, "INFO") && a.len() == 2 => {
                self.say(|out| encode::verbatim(out, info().as_bytes(), s.version))
            }
            () if a.is(1, "MYID") && a.len() == 2 => self.say(|out| encode::bulk(out, node.id.as_bytes())),
            () if a.is(1, "NODES") && a.len() == 2 => {
                self.say(|out| encode::verbatim(out, node.line().as_bytes(), s.version))
            }
            () if a.is(1, "SLOTS") && a.len() == 2 => self.say(|out| node.slots(out)),
            () if a.is(1, "SHARDS") && a.len() == 2 => self.say(|out| node.shards(s.version, out)),
            () if a.is(1, "KEYSLOT") && a.len() == 3 => self.say(|out| encode::integer(out, slot_of(a.get(2)).into())),
            () if a.is(1, "COUNTKEYSINSLOT") && a.len() == 3 => {
                Err(Cow::Borrowed("ERR keys are not counted by slot: there is one node, and DBSIZE tells of all slots"))
            }
            () if a.is(1, "HELP") && a.len() == 2 => self.help("cluster"),
            () => Err(unsupported_part("cluster", a)),
        }
    }

    /// READONLY and READWRITE: what clients of a cluster want of replicas, of which there are none.
    pub(super) fn resp_readonly(&mut self, _: &Arguments<'_>, _: &mut Session, _: &mut Context<'_>) -> Handled {
        self.say(|out| encode::simple(out, "OK"))
    }
}

/// The node, as the client that asks can reach it.
struct ClusterNode<'a> {
    id: &'a str,
    /// Empty: the client goes on with the address that it has used.
    host: String,
    port: u16,
}

impl<'a> ClusterNode<'a> {
    fn of(context: &Context<'a>) -> ClusterNode<'a> {
        let address = context.server.local_address();
        let host = address.map_or_else(String::new, |address| address.ip().to_canonical().to_string());
        ClusterNode { id: context.resp.node_id(), host, port: address.map_or(0, |address| address.port()) }
    }

    fn line(&self) -> String {
        let ClusterNode { id, host, port } = self;
        let bus = u32::from(*port) + BUS;
        format!("{id} {host}:{port}@{bus} myself,master - 0 0 1 connected 0-{}\n", SLOTS - 1)
    }

    fn slots(&self, out: &mut Vec<u8>) {
        encode::array(out, 1);
        encode::array(out, 3);
        encode::integer(out, 0);
        encode::integer(out, i64::from(SLOTS) - 1);
        encode::array(out, 4);
        encode::bulk(out, self.host.as_bytes());
        encode::integer(out, self.port.into());
        encode::bulk(out, self.id.as_bytes());
        encode::array(out, 0);
    }

    fn shards(&self, version: Version, out: &mut Vec<u8>) {
        encode::array(out, 1);
        encode::map(out, 2, version);
        encode::bulk(out, b"slots");
        encode::array(out, 2);
        encode::integer(out, 0);
        encode::integer(out, i64::from(SLOTS) - 1);
        encode::bulk(out, b"nodes");
        encode::array(out, 1);
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

fn info() -> String {
    let figures = [
        ("cluster_state", "ok".to_owned()),
        ("cluster_slots_assigned", SLOTS.to_string()),
        ("cluster_slots_ok", SLOTS.to_string()),
        ("cluster_slots_pfail", 0.to_string()),
        ("cluster_slots_fail", 0.to_string()),
        ("cluster_known_nodes", 1.to_string()),
        ("cluster_size", 1.to_string()),
        ("cluster_current_epoch", 1.to_string()),
        ("cluster_my_epoch", 1.to_string()),
    ];
    figures.iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_slots_of_redis() {
        for (key, slot) in [("foo", 12182), ("123456789", 12739), ("{foo}bar", 12182), ("a{foo}{b}", 12182), ("", 0)] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
        assert_eq!(crc16(b"123456789"), 0x31C3, "the check value of CRC-16/XMODEM");
        assert_ne!(slot_of(b"{}foo"), slot_of(b"foo"), "nothing between the braces: all of it counts");
    }
}
