//! A client that speaks no protocol as it should: half a value, a value longer than announced,
//! lengths that nobody can mean, lines without an end, thousands of commands at once, one protocol
//! in the middle of another, noise. What it is answered is its own affair; the others must be
//! served meanwhile, the memory it takes is bounded, and when it has gone nothing of it is left.

use std::collections::VecDeque;

use stratakv_base::random::Random;
use stratakv_sim::net::{ClientRead, Net, Peer};

use super::circumstances::Circumstances;
use super::redis_adversary;
use crate::world::Statistics;

/// See the module.
pub(super) struct Adversary {
    number: u64,
    value_bytes_max: u64,
    /// It speaks to the port of Redis clients.
    is_redis: bool,
    peer: Option<Peer>,
    /// It has closed or reset the connection.
    left: bool,
    vanished: bool,
    reads: bool,
    to_write: VecDeque<u8>,
}

impl Adversary {
    pub(super) fn new(number: u64, circumstances: &Circumstances) -> Adversary {
        Adversary {
            number,
            value_bytes_max: circumstances.value_bytes_max,
            is_redis: circumstances.crowd.redis > 0 && number.is_multiple_of(2),
            peer: None,
            left: false,
            vanished: false,
            reads: true,
            to_write: VecDeque::new(),
        }
    }

    /// Whether it has gone and the server has not yet let go of it.
    pub(super) fn has_left(&self) -> bool {
        self.left
    }

    /// Writes some of its script, reads or does not, leaves in the middle of something.
    pub(super) fn act(&mut self, net: &mut Net, random: &mut Random, statistics: &mut Statistics) {
        if self.peer.is_none()
            && let Some(peer) = net.connect_to(usize::from(self.is_redis))
        {
            *self = Adversary { peer: Some(peer), reads: random.below(3) > 0, ..self.fresh() };
            self.to_write = self.script(random).into();
            statistics.served.adversary += 1;
        }
        self.go_on(net, random, statistics);
        if self.to_write.is_empty() || random.below(40) == 0 {
            self.leave(net, random.below(4));
        }
    }

    /// Once others wait for it to be over: writes what it has, and leaves.
    pub(super) fn finish(&mut self, net: &mut Net, random: &mut Random, statistics: &mut Statistics) {
        self.go_on(net, random, statistics);
        if self.to_write.is_empty() || random.below(100) == 0 {
            self.leave(net, 1 + random.below(2));
        }
    }

    fn go_on(&mut self, net: &mut Net, random: &mut Random, statistics: &mut Statistics) {
        let Some(peer) = self.peer else { return };
        if self.left {
            if net.is_released(peer) {
                *self = self.fresh();
            }
            return;
        }
        let count = [1, 7, 300, 1 << 20][random.below(4) as usize].min(self.to_write.len());
        let bytes: Vec<u8> = self.to_write.iter().take(count).copied().collect();
        let written = net.write(peer, &bytes);
        self.to_write.drain(..written);
        statistics.served.adversary_bytes += written as u64;
        if self.reads {
            let mut heard = Vec::new();
            match net.read(peer, [1, 100, 1 << 20][random.below(3) as usize], &mut heard, random) {
                ClientRead::Bytes(_) => statistics.note(&heard),
                ClientRead::Nothing => {}
                ClientRead::End | ClientRead::Reset => self.leave(net, 1),
            }
        }
    }

    fn leave(&mut self, net: &mut Net, how: u64) {
        let Some(peer) = self.peer.filter(|_| !self.left && !self.vanished) else { return };
        match how {
            0 => {
                net.vanish(peer);
                self.vanished = true;
            }
            1 => {
                net.close(peer);
                self.left = true;
            }
            _ => {
                net.reset(peer);
                self.left = true;
            }
        }
        self.to_write.clear();
    }

    pub(super) fn server_died(&mut self) {
        *self = self.fresh();
    }

    fn fresh(&self) -> Adversary {
        Adversary {
            number: self.number,
            value_bytes_max: self.value_bytes_max,
            is_redis: self.is_redis,
            peer: None,
            left: false,
            vanished: false,
            reads: true,
            to_write: VecDeque::new(),
        }
    }

    fn script(&self, random: &mut Random) -> Vec<u8> {
        let key = format!("rude-{}-{}", self.number, random.below(2));
        let mut out = Vec::new();
        for _ in 0..1 + random.below(3) {
            match self.is_redis {
                true => {
                    redis_adversary::scene(&key, 1 + random.below(self.value_bytes_max * 2) as usize, random, &mut out)
                }
                false => self.scene(&key, random, &mut out),
            }
        }
        without_flushes(&mut out);
        out
    }

    fn scene(&self, key: &str, random: &mut Random, out: &mut Vec<u8>) {
        let long = 1 + random.below(self.value_bytes_max * 2) as usize;
        match random.below(13) {
            0 => out.extend(noise(random, 3000)),
            1 => {
                out.push(0x80);
                out.extend(noise(random, 300));
            }
            2 => out.extend(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"),
            3 => out.resize(out.len() + random.below(20_000) as usize, b'a'),
            4 => {
                let lengths = ["99999999999999999999", "4294967295", "-1", "1048577", "67108865", "1048576"];
                let len = lengths[random.below(6) as usize];
                out.extend(format!("set {key} 0 0 {len}\r\n").bytes());
                out.extend(noise(random, 4000));
            }
            5 => {
                // Longer than announced.
                out.extend(format!("set {key} 0 0 {}\r\n", random.below(20)).bytes());
                out.resize(out.len() + long, b'v');
                out.extend(b"\r\n");
            }
            6 => {
                // Shorter: it leaves before the rest.
                out.extend(format!("set {key} 0 0 {}\r\n", long + 1 + random.below(50_000) as usize).bytes());
                out.resize(out.len() + long, b'v');
            }
            7 => {
                let line: &[u8] = [&b"mn\r\n"[..], b"version\r\n", b"get nothing\r\n"][random.below(3) as usize];
                (0..random.below(3000)).for_each(|_| out.extend(line));
            }
            8 => {
                out.extend(b"get");
                (0..random.below(2000)).for_each(|number| out.extend(format!(" {key}-{number}").bytes()));
                out.extend(b"\r\n");
            }
            9 => {
                // A long value, asked for more often than anybody reads.
                out.extend(format!("set {key} 0 0 {long}\r\n").bytes());
                out.resize(out.len() + long, b'v');
                out.extend(b"\r\n");
                (0..random.below(60)).for_each(|_| out.extend(format!("get {key}\r\n").bytes()));
            }
            10 => {
                let lines = [
                    "stats\r\n",
                    "stats settings\r\n",
                    "stats conns\r\n",
                    "lru_crawler metadump all\r\n",
                    "lru_crawler mgdump all\r\n",
                    "shutdown\r\n",
                    "backup name\r\n",
                    "watch fetchers\r\n",
                    "gat 0 a b c\r\n",
                ];
                out.extend(lines[random.below(9) as usize].bytes());
            }
            _ => out.extend(mixed(key, random)),
        }
    }
}

/// Good commands of all three protocols in a row, some of their bytes changed.
fn mixed(key: &str, random: &mut Random) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..1 + random.below(12) {
        match random.below(8) {
            0 => out.extend(format!("set {key} 1 0 5\r\nabcde\r\n").bytes()),
            1 => out.extend(format!("gets {key} {key}\r\n").bytes()),
            2 => out.extend(format!("ms {key} 5 T0 F3 c\r\nabcde\r\n").bytes()),
            3 => out.extend(format!("mg {key} v f c k N30 q\r\n").bytes()),
            4 => out.extend(format!("ma {key} N0 J13 v\r\nmd {key} I\r\nme {key}\r\nmn\r\n").bytes()),
            _ => out.extend(binary(key, random)),
        }
    }
    if random.below(3) > 0 && !out.is_empty() {
        for _ in 0..1 + random.below(6) {
            let at = random.below(out.len() as u64) as usize;
            out[at] = match random.below(3) {
                0 => 0,
                1 => out[at] ^ 1 << random.below(8),
                _ => random.next_u64() as u8,
            };
        }
    }
    out
}

/// A request of the binary protocol, its lengths right most of the time.
fn binary(key: &str, random: &mut Random) -> Vec<u8> {
    let opcode = [0, 1, 2, 4, 5, 9, 10, 11, 13, 16, 0x1c, 0x1d, 0x20, 0x21, 0x55][random.below(15) as usize];
    let extras = [0, 4, 8, 20][random.below(4) as usize];
    let value = random.below(200) as usize;
    let mut body_len = (extras + key.len() + value) as u32;
    if random.below(8) == 0 {
        body_len = random.next_u64() as u32;
    }
    let mut out = vec![0x80, opcode];
    out.extend((key.len() as u16).to_be_bytes());
    out.extend([extras as u8, 0, 0, 0]);
    out.extend(body_len.to_be_bytes());
    out.extend([7; 4]);
    out.extend([0; 8]);
    out.resize(out.len() + extras, 0);
    out.extend(key.bytes());
    out.resize(out.len() + value, b'x');
    out
}

fn noise(random: &mut Random, most: u64) -> Vec<u8> {
    let mut bytes = vec![0; random.below(most) as usize];
    random.fill(&mut bytes);
    bytes
}

/// What would delete the keys of others says nothing instead.
fn without_flushes(bytes: &mut [u8]) {
    for at in 1..bytes.len() {
        if bytes[at - 1] == 0x80 && matches!(bytes[at], 0x08 | 0x18) {
            bytes[at] = 0x0A;
        }
    }
}
