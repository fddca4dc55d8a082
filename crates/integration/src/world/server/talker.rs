//! A client whose answers are judged, whatever it speaks.

use stratakv_base::random::Random;
use stratakv_sim::net::Net;

use super::line::Line;
use crate::world::Statistics;

/// See the module.
pub(super) trait Talker {
    /// Its end of the connection.
    fn line(&mut self) -> &mut Line;

    /// The listener that it connects to: how many newer ones there are.
    fn listener(&self) -> usize {
        0
    }

    /// How it takes its leave.
    fn farewell(&self) -> &'static [u8];

    /// A life of the server begins.
    fn begin_life(&mut self);

    /// A shard has broken: what it is asked may fail for the rest of this life. `has` says which
    /// keys it has.
    fn shard_broke(&mut self, has: &dyn Fn(&str) -> bool);

    /// A disk has given reason for errors in this life; a cache may do without its volume.
    fn excuse(&mut self, is_degraded: bool);

    /// Asks something new.
    fn ask(&mut self, random: &mut Random, statistics: &mut Statistics);

    /// Reads all keys, once everything else is answered.
    fn ask_everything(&mut self, statistics: &mut Statistics);

    /// Writes some of what it has to say, reads some of what has come. Says whether it heard
    /// anything.
    ///
    /// # Errors
    /// An answer is wrong, or the server closed without reason.
    fn act(&mut self, net: &mut Net, random: &mut Random, statistics: &mut Statistics) -> Result<bool, String>;

    /// The server's process has ended: what had arrived before counts.
    ///
    /// # Errors
    /// An answer is wrong.
    fn server_died(&mut self, net: &mut Net, random: &mut Random, statistics: &mut Statistics) -> Result<(), String>;

    /// Whether it waits for nothing that must come, and has not left a connection behind.
    fn is_content(&self) -> bool;

    fn describe(&self) -> String;

    /// Connects if it is not connected.
    fn connect(&mut self, net: &mut Net, statistics: &mut Statistics) {
        let listener = self.listener();
        self.line().connect(net, listener, statistics);
    }

    /// Says nothing more after what it has asked, and waits until the server has answered and
    /// closed.
    fn finish(&mut self, net: &mut Net, quit: bool, statistics: &mut Statistics) {
        let farewell = quit.then_some(self.farewell());
        self.line().finish(net, farewell, statistics);
    }
}
