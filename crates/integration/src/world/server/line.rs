//! One end of a connection, as a client of either protocol has it: what it still has to say, what
//! it has heard, and how it behaves.

use std::collections::VecDeque;

use stratakv_base::Mono;
use stratakv_base::random::Random;
use stratakv_sim::net::{ClientRead, Net, Peer};

use crate::world::Statistics;

/// How a client behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mood {
    /// Writes and reads.
    #[default]
    Good,
    /// Writes, and reads nothing.
    Deaf,
    /// Has gone without a word.
    Gone,
    /// Has closed or reset the connection in the middle of something; connects again when the
    /// server has let go.
    Left,
    /// Has said all it will, and waits for the end.
    Finished,
}

/// See the module.
#[derive(Default)]
pub(super) struct Line {
    pub(super) peer: Option<Peer>,
    /// Bytes received over this connection.
    pub(super) heard: usize,
    pub(super) mood: Mood,
    pub(super) to_write: VecDeque<u8>,
    pub(super) received: Vec<u8>,
    /// Goes on talking after it took its leave, since when.
    pub(super) chatters: Option<Mono>,
}

impl Line {
    /// Whether what it says is heard, now or once it connects.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.mood, Mood::Good | Mood::Deaf) && self.peer.is_some()
    }

    /// Whether its answers must come, whatever others do.
    pub(super) fn must_be_served(&self) -> bool {
        matches!(self.mood, Mood::Good | Mood::Finished) && self.peer.is_some()
    }

    /// Connects if it is not connected: to the listener behind so many newer ones.
    pub(super) fn connect(&mut self, net: &mut Net, listener: usize, statistics: &mut Statistics) {
        if self.peer.is_none()
            && let Some(peer) = net.connect_to(listener)
        {
            (self.peer, self.mood) = (Some(peer), Mood::Good);
            statistics.served.connections += 1;
        }
    }

    /// Writes some of what it has to say.
    pub(super) fn write_some(&mut self, net: &mut Net, random: &mut Random) {
        let Some(peer) = self.peer else { return };
        if matches!(self.mood, Mood::Good | Mood::Deaf) && !self.to_write.is_empty() {
            let count = 1 + random.below(self.to_write.len() as u64) as usize;
            let count = [1, count, self.to_write.len()][random.below(3) as usize];
            let bytes: Vec<u8> = self.to_write.iter().take(count).copied().collect();
            let written = net.write(peer, &bytes);
            self.to_write.drain(..written);
        }
    }

    /// Reads what arrived before the server's process ended; whether anybody hears it.
    pub(super) fn read_rest(&mut self, net: &mut Net, random: &mut Random) -> bool {
        let Some(peer) = self.peer.filter(|_| !matches!(self.mood, Mood::Gone | Mood::Left)) else { return false };
        while let ClientRead::Bytes(count) = net.read(peer, 1 << 20, &mut self.received, random) {
            self.heard += count;
        }
        true
    }

    /// Says nothing more after what it has asked but its farewell, and waits until the server has
    /// answered and closed. Without one it closes its side.
    pub(super) fn finish(&mut self, net: &mut Net, farewell: Option<&[u8]>, statistics: &mut Statistics) {
        let Some(peer) = self.peer.filter(|_| self.mood == Mood::Good && self.to_write.is_empty()) else { return };
        if let Some(farewell) = farewell {
            if net.write(peer, farewell) < farewell.len() {
                // A word cut short cannot be taken back.
                return self.leave(net, true, statistics);
            }
            self.chatters = Some(net.now);
        } else {
            net.finish(peer);
        }
        self.mood = Mood::Finished;
    }

    /// Closes or resets, whatever is under way.
    pub(super) fn leave(&mut self, net: &mut Net, reset: bool, statistics: &mut Statistics) {
        let Some(peer) = self.peer.filter(|_| !matches!(self.mood, Mood::Gone | Mood::Left)) else { return };
        statistics.served.left[usize::from(reset)] += 1;
        statistics.served.left_inside += u64::from(!self.to_write.is_empty());
        if reset {
            net.reset(peer)
        } else {
            net.close(peer)
        }
        self.mood = Mood::Left;
    }

    /// Goes without a word.
    pub(super) fn vanish(&mut self, net: &mut Net, statistics: &mut Statistics) {
        if let Some(peer) = self.peer.filter(|_| self.mood == Mood::Good) {
            net.vanish(peer);
            statistics.served.left[2] += 1;
            statistics.served.left_inside += u64::from(!self.to_write.is_empty());
            self.mood = Mood::Gone;
        }
    }

    /// Stops reading, or begins again.
    pub(super) fn tick_deaf(&mut self, statistics: &mut Statistics) {
        statistics.served.deaf += u64::from(self.mood == Mood::Good);
        self.mood = match self.mood {
            Mood::Good => Mood::Deaf,
            Mood::Deaf => Mood::Good,
            other => other,
        };
    }
}

/// What has arrived, for people.
pub(super) fn text(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(300)];
    String::from_utf8_lossy(shown).into_owned()
}
