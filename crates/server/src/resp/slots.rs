//! Slots of Redis Cluster, given to servers once and for all: which server has a key.
//!
//! The operator says the same on each server. Servers do not talk to each other, and no slot ever
//! moves.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use super::session::mixed;

/// Slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;
/// Longest name of a host.
const HOST_BYTES_MAX: usize = 255;
/// Digits of a node's name.
const ID_DIGITS: usize = 40;

/// CRC-16/XMODEM of each byte.
const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = crc << 1 ^ if crc & 0x8000 != 0 { 0x1021 } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// CRC-16/XMODEM, by which a cluster hashes.
fn crc16(bytes: &[u8]) -> u16 {
    let of = |byte: u16| CRC16.get(usize::from(byte)).copied().unwrap_or_default();
    bytes.iter().fold(0, |crc, byte| crc << 8 ^ of(crc >> 8 ^ u16::from(*byte)))
}

/// The slot of a key: what is between the first braces counts, if there is something.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        let close = rest.iter().position(|byte| *byte == b'}')?;
        rest.get(..close).filter(|tag| !tag.is_empty())
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// A server of a cluster, as its clients reach it, and the slots that it has. Written
/// `HOST:PORT=SLOTS`: `10.0.0.1:6379=0-5460`, or several ranges between commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNode {
    host: String,
    port: u16,
    slots: Vec<RangeInclusive<u16>>,
}

impl ClusterNode {
    /// Where clients connect: a name or an address, the latter without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// `HOST:PORT`, as it is written.
impl fmt::Display for ClusterNode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(out, "[{}]:{}", self.host, self.port),
            false => write!(out, "{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for ClusterNode {
    type Err = String;

    fn from_str(text: &str) -> Result<ClusterNode, String> {
        let (address, slots) = text.split_once('=').ok_or("write HOST:PORT=SLOTS, for example 10.0.0.1:6379=0-5460")?;
        let (host, port) = host_and_port(address)?;
        let slots: Vec<RangeInclusive<u16>> = slots.split(',').map(range).collect::<Result<_, _>>()?;
        Ok(ClusterNode { host, port, slots })
    }
}

fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let wrong = || format!("`{text}` is no HOST:PORT: write for example 10.0.0.1:6379 or [::1]:6379");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let is_legal = match in_brackets {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.bytes().all(is_host),
    };
    if is_legal { Ok((in_brackets.unwrap_or(host).to_owned(), port)) } else { Err(wrong()) }
}

/// `FIRST-LAST`, or one slot.
fn range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let slot = |text: &str| text.trim().parse::<u16>().ok().filter(|slot| *slot < SLOTS);
    match (slot(first), slot(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err(format!(
            "`{text}` is no range of slots: there are 0 to {}; write for example 0-5460, or 0-99,200",
            SLOTS - 1
        )),
    }
}

/// Slots side by side that one server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRange {
    pub(crate) first: u16,
    pub(crate) last: u16,
    /// The server's place among all.
    pub(crate) node: usize,
}

/// Which server has which slots, and which one this server is: see
/// [`RespListeners::cluster`](crate::RespListeners::cluster).
#[derive(Clone, Debug)]
pub struct ClusterSlots {
    nodes: Arc<[ClusterNode]>,
    /// In the order of the slots.
    ranges: Arc<[SlotRange]>,
    /// This server's place among the nodes.
    own: usize,
}

impl ClusterSlots {
    /// These servers, of which this one is at `own` (`HOST:PORT`). Say the same on all of them.
    ///
    /// # Errors
    /// A slot belongs to no server, or to two of them; a server stands there twice; `own` is none
    /// of them.
    pub fn new(nodes: Vec<ClusterNode>, own: &str) -> Result<ClusterSlots, String> {
        let ranges = ranges_of(&nodes)?;
        for (place, node) in nodes.iter().enumerate() {
            if nodes.iter().skip(place + 1).any(|other| (&other.host, other.port) == (&node.host, node.port)) {
                return Err(format!("{node} stands twice: write each server once, all its slots between commas"));
            }
        }
        let found = nodes.iter().position(|node| node.to_string() == own);
        let own = found.ok_or_else(|| {
            let all: Vec<String> = nodes.iter().map(ToString::to_string).collect();
            format!("{own} is none of the cluster's servers: it can be {}", all.join(", "))
        })?;
        Ok(ClusterSlots { nodes: nodes.into(), ranges: ranges.into(), own })
    }

    /// All servers.
    pub fn nodes(&self) -> &[ClusterNode] {
        &self.nodes
    }

    /// This server.
    pub fn own_node(&self) -> &ClusterNode {
        // `new` has looked that it is one of them.
        &self.nodes[self.own]
    }

    /// This server's place among them.
    pub(crate) fn own(&self) -> usize {
        self.own
    }

    pub(crate) fn ranges(&self) -> &[SlotRange] {
        &self.ranges
    }

    /// The server that has a slot, if it is another one.
    pub(crate) fn other(&self, slot: u16) -> Option<&ClusterNode> {
        let place = self.ranges.partition_point(|range| range.last < slot);
        let range = self.ranges.get(place).filter(|range| range.node != self.own)?;
        self.nodes.get(range.node)
    }

    /// The name of a node: the same on all servers, as it is made of where the node is.
    pub(crate) fn id(node: &ClusterNode) -> String {
        let text = node.to_string();
        let word = |seed: u64| text.bytes().fold(mixed(seed), |state, byte| mixed(state ^ u64::from(byte)));
        let mut digits: String = (1..=3).map(|seed| format!("{:016x}", word(seed))).collect();
        digits.truncate(ID_DIGITS);
        digits
    }
}

/// All slots in their order; those side by side of one server are one range.
fn ranges_of(nodes: &[ClusterNode]) -> Result<Vec<SlotRange>, String> {
    let of = |(node, one): (usize, &ClusterNode)| {
        let ranges = one.slots.iter().map(move |slots| SlotRange { first: *slots.start(), last: *slots.end(), node });
        ranges.collect::<Vec<_>>()
    };
    let mut given: Vec<SlotRange> = nodes.iter().enumerate().flat_map(of).collect();
    given.sort_by_key(|range| range.first);
    let mut ranges: Vec<SlotRange> = Vec::with_capacity(given.len());
    let mut next = 0;
    for range in given {
        if range.first < next {
            let name = |place: Option<usize>| place.and_then(|place| nodes.get(place)).map(ToString::to_string);
            let (one, other) = (name(ranges.last().map(|range| range.node)), name(Some(range.node)));
            return Err(format!(
                "slot {} belongs to {} and to {}: give each slot to one server",
                range.first,
                one.unwrap_or_default(),
                other.unwrap_or_default()
            ));
        }
        if range.first > next {
            return Err(nobodys(next, range.first - 1));
        }
        next = range.last + 1;
        match ranges.last_mut() {
            Some(before) if before.node == range.node => before.last = range.last,
            _ => ranges.push(range),
        }
    }
    if next < SLOTS { Err(nobodys(next, SLOTS - 1)) } else { Ok(ranges) }
}

fn nobodys(first: u16, last: u16) -> String {
    let which = if first == last { format!("slot {first} belongs") } else { format!("slots {first} to {last} belong") };
    format!("{which} to no server: give each of the slots 0 to {} to one", SLOTS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(texts: &[&str]) -> Vec<ClusterNode> {
        texts.iter().map(|text| text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))).collect()
    }

    const THREE: [&str; 3] = ["10.0.0.1:6379=0-5460", "[::1]:7=5461-9999,10001-10922", "c.example:9=10923-16383,10000"];

    #[test]
    fn keys_have_the_slots_of_redis() {
        for (key, slot) in [("foo", 12182), ("123456789", 12739), ("{foo}bar", 12182), ("a{foo}{b}", 12182), ("", 0)] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
        assert_eq!(crc16(b"123456789"), 0x31C3, "the check value of CRC-16/XMODEM");
        assert_ne!(slot_of(b"{}foo"), slot_of(b"foo"), "nothing between the braces: all of it counts");
        assert_eq!(slot_of(b"{a"), slot_of(b"{{a}"), "the tag of the second is the first");
        assert_eq!(slot_of(b"\xff\x00"), 1023);
    }

    #[test]
    fn each_slot_has_its_server() {
        let slots = ClusterSlots::new(nodes(&THREE), "[::1]:7").expect("every slot has one");
        let other = |slot| slots.other(slot).map(ToString::to_string);
        for (slot, at) in [(0, 0), (5460, 0), (5461, 1), (9999, 1), (10_000, 2), (10_001, 1), (10_922, 1), (16_383, 2)]
        {
            let expected = ["10.0.0.1:6379", "", "c.example:9"][at];
            assert_eq!(other(slot), Some(expected.to_owned()).filter(|text| !text.is_empty()), "{slot}");
        }
        assert_eq!(slots.ranges().len(), 5);
        assert_eq!(slots.ranges()[2], SlotRange { first: 10_000, last: 10_000, node: 2 });
        assert_eq!((slots.own(), slots.nodes()[1].host(), slots.nodes()[1].port()), (1, "::1", 7));
        let ids: Vec<String> = slots.nodes().iter().map(ClusterSlots::id).collect();
        assert!(ids.iter().all(|id| id.len() == 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit())), "{ids:?}");
        assert!(ids[0] != ids[1] && ids[1] != ids[2]);
    }

    #[test]
    fn ranges_side_by_side_are_one() {
        let slots = ClusterSlots::new(nodes(&["a:1=9-16383,0-8"]), "a:1").expect("every slot has one");
        assert_eq!(slots.ranges(), [SlotRange { first: 0, last: SLOTS - 1, node: 0 }]);
    }

    #[test]
    fn slots_that_nobody_or_two_have_are_refused() {
        let refused = |texts: &[&str], own: &str| ClusterSlots::new(nodes(texts), own).expect_err("it is refused");
        for (texts, own, words) in [
            (&["a:1=0-99,101-16383"][..], "a:1", "slot 100 belongs to no server"),
            (&["a:1=0-16000"], "a:1", "slots 16001 to 16383 belong to no server"),
            (&["a:1=5-16383"], "a:1", "slots 0 to 4 belong to no server"),
            (&[], "a:1", "slots 0 to 16383 belong to no server"),
            (&["a:1=0-100", "b:2=100-16383"], "a:1", "slot 100 belongs to a:1 and to b:2"),
            (&["a:1=0-16383", "b:2=7"], "a:1", "slot 7 belongs to a:1 and to b:2"),
            (&["a:1=0-16383,7"], "a:1", "slot 7 belongs to a:1 and to a:1"),
            (&["a:1=0-100", "a:1=101-16383"], "a:1", "a:1 stands twice"),
            (&["a:1=0-16383"], "b:1", "b:1 is none of the cluster's servers: it can be a:1"),
        ] {
            let why = refused(texts, own);
            assert!(why.contains(words), "{texts:?}: {why}");
        }
    }

    #[test]
    fn what_is_no_server_with_slots_is_refused() {
        for text in ["", "a:1", "a=0-1", "a:0=0-1", "a:70000=1", ":1=1", "a b:1=1", "::1:1=1", "[a]:1=1", "a:1\n=1"] {
            let why = text.parse::<ClusterNode>().expect_err(text);
            assert!(why.contains("for example"), "{text}: {why}");
        }
        for text in ["a:1=", "a:1=x", "a:1=1-", "a:1=-1", "a:1=5-4", "a:1=16384", "a:1=1,,2", "a:1=1-2-3"] {
            let why = text.parse::<ClusterNode>().expect_err(text);
            assert!(why.contains("is no range of slots"), "{text}: {why}");
        }
    }
}
