//! What a server's life is like, drawn swarm style: each seed has its own sizes, clients, engine,
//! and troubles with its disks.

use stratakv::{Engine, Placement};
use stratakv_base::random::Random;
use stratakv_sim::disk::Chances;

use crate::world::{On, Setup};

/// How many clients there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crowd {
    pub(super) memcache: u64,
    pub(super) redis: u64,
    /// Clients that speak no protocol as they should.
    pub(super) adversaries: u64,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    pub(super) setup: Setup,
    pub(super) crowd: Crowd,
    /// Keys of each client.
    pub(super) keys: usize,
    pub(super) value_bytes_max: u64,
    /// Events of a life, at most.
    pub(super) events_max: u64,
    /// Bytes between client and server, each way.
    pub(super) pipe_bytes: usize,
    /// Of 256 accepts.
    pub(super) accept_failures: u8,
    pub(super) connections_max: usize,
    /// Disks fail.
    pub(super) is_troubled: bool,
    /// And break for good, one after the other.
    pub(super) breaks: bool,
    /// Shards break, as by a panic, and the wall clock is stepped: in a world of its own.
    pub(super) breaks_shards: bool,
    /// Clients share a key that they count on, and say versions themselves.
    pub(super) shares: bool,
    /// Seconds after which what clients store expires, which no run lasts; 0: never.
    pub(super) lifetime: u32,
}

impl Circumstances {
    pub(super) fn draw(on: On, random: &mut Random) -> Circumstances {
        let mut setup = Setup::draw(random);
        // No command fails for want of space, but on a disk that says so: every answer is known.
        setup.capacity_bytes = 16 << 20;
        let value_bytes_max = [30, 200, 2_000, 12_000, 12_000, 100_000][random.below(6) as usize];
        setup.engine = match on {
            On::InPlace | On::Packed => Engine::Slab,
            On::Matrix => Engine::Matrix,
            On::Tier => Engine::Tier,
        };
        setup.placement = if on == On::Packed { Placement::Packed } else { Placement::InPlace };
        let mut keys = [3, 3, 8, 24][random.below(4) as usize];
        let mut events_max = [50, 300, 900][random.below(3) as usize];
        if on == On::Tier {
            // So little memory that it is soon full, and what was not used goes to the volume.
            setup.memory_bytes = [128 << 10, 128 << 10, 128 << 10, 192 << 10, 1 << 20][random.below(5) as usize];
            // A twelfth of it has a place.
            setup.memory_bytes = setup.memory_bytes.max(13 * value_bytes_max).next_multiple_of(4096);
            setup.capacity_bytes = setup.memory_bytes.max(200_000) + random.below(4 * setup.memory_bytes);
            setup.segment_bytes = 4096 << (1 + random.below(8));
            setup.shards = 1 + random.below(4) as u32 / 3;
            keys = [8, 24, 60][random.below(3) as usize];
            events_max = [300, 900, 3000][random.below(3) as usize];
        }
        let troubles = troubles(random);
        let is_troubled = troubles != Chances::default();
        setup.chances = Chances { delay: setup.chances.delay, ..troubles };
        let connections_max = [10_000, 10_000, 10_000, 2][random.below(4) as usize];
        let refuses = connections_max < 100;
        let pipe_bytes = [16, 100, 1500, 20_000, 100_000][random.below(5) as usize];
        Circumstances {
            setup,
            crowd: Crowd {
                memcache: 1 + random.below(5),
                redis: 0,
                adversaries: if refuses { 0 } else { random.below(4) },
            },
            keys,
            events_max,
            value_bytes_max,
            pipe_bytes: if value_bytes_max > 20_000 { pipe_bytes.max(1500) } else { pipe_bytes },
            accept_failures: [0, 0, 0, 80][random.below(4) as usize],
            connections_max,
            is_troubled,
            breaks: is_troubled && random.below(3) == 0,
            breaks_shards: false,
            shares: false,
            lifetime: 0,
        }
    }
}

impl Circumstances {
    /// Redis clients beside those of memcache, on disks that do not fail.
    pub(super) fn with_redis_clients(&mut self) {
        self.setup.chances = Chances { delay: self.setup.chances.delay, ..Chances::default() };
        (self.is_troubled, self.breaks, self.connections_max) = (false, false, 10_000);
        self.crowd.redis = 1 + self.crowd.memcache / 2;
    }

    /// Several shards, which break, and a wall clock that is stepped, under records that expire in
    /// two hours.
    pub(super) fn with_breaking_shards(&mut self) {
        self.setup.shards = self.setup.shards.max(2);
        (self.breaks_shards, self.shares, self.lifetime) = (true, true, 7_200);
    }
}

/// How often requests of the disks fail. A write that fails ends the writes of a durable shard for
/// this life: so that is rare.
fn troubles(random: &mut Random) -> Chances {
    let calm = Chances::default();
    match random.below(8) {
        0 => Chances { read_error: 1500, ..calm },
        1 => Chances { write_error: 150, flush_error: 300, ..calm },
        2 => Chances { error_forever: 60, ..calm },
        3 => Chances { full: 200, ..calm },
        4 => Chances { read_error: 600, write_error: 60, flush_error: 100, error_forever: 10, full: 60, ..calm },
        _ => calm,
    }
}
