//! The engines that the harnesses of real processes and real stores know: a new one is a line in
//! each table here.

use stratakv::Options;

/// As long as `serve_options` says.
const REGION_BYTES: u64 = 256 << 20;
const CONTAINER_BYTES: u64 = 16 << 20;
const CACHE_BYTES: u64 = 96 << 20;

/// An engine of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// After KVell.
    Slab,
    /// After KVDK.
    Hash,
    /// After MatrixKV.
    Matrix,
    /// After UKV: a cache, so none of those in [`Engine::ALL`].
    Tier,
}

impl Engine {
    /// Those that keep what they acknowledge.
    pub const ALL: &[Engine] = &[Engine::Slab, Engine::Hash, Engine::Matrix];

    /// Its name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Slab => "slab",
            Engine::Hash => "hash",
            Engine::Matrix => "matrix",
            Engine::Tier => "tier",
        }
    }

    /// The engine with this name.
    pub fn named(name: &str) -> Option<Engine> {
        let mut all = Engine::ALL.iter().copied().chain([Engine::Tier]);
        all.find(|engine| engine.name() == name)
    }

    /// Options of the library that make a store of this engine.
    pub fn options(self) -> Options {
        match self {
            Engine::Slab => Options::new(),
            Engine::Hash => Options::new().engine(stratakv::Engine::Hash).region_bytes(REGION_BYTES),
            // Short, so that a test's records reach the volumes.
            Engine::Matrix => Options::new().engine(stratakv::Engine::Matrix).region_bytes(CONTAINER_BYTES),
            Engine::Tier => Options::new().engine(stratakv::Engine::Tier).capacity_bytes(CACHE_BYTES),
        }
    }

    /// Whether it spreads keys over shards.
    pub fn has_shards(self) -> bool {
        self == Engine::Slab
    }

    /// Whether it has files that grow.
    pub fn has_volumes(self) -> bool {
        self != Engine::Hash
    }

    /// Whether the default collection can be scanned.
    pub fn is_ordered(self) -> bool {
        !matches!(self, Engine::Hash | Engine::Tier)
    }

    /// Whether it may drop what it acknowledged.
    pub fn evicts(self) -> bool {
        self == Engine::Tier
    }

    /// Values of `--durability` that it has.
    pub fn levels(self) -> &'static [&'static str] {
        if self.evicts() { &["memory"] } else { &["power_loss", "process_crash"] }
    }

    /// Values of `--memory` to try: a cache gets less than the records need, so that they reach its
    /// volumes.
    pub fn memory_choices(self) -> [&'static str; 2] {
        if self.evicts() { ["16M", "24M"] } else { ["64M", "256M"] }
    }

    /// Options of `stratakv serve` that do.
    pub fn serve_options(self) -> &'static [&'static str] {
        match self {
            Engine::Slab => &[],
            Engine::Hash => &["--engine", "hash", "--region", "256M"],
            Engine::Matrix => &["--engine", "matrix", "--region", "16M"],
            Engine::Tier => &["--engine", "tier", "--shards", "2", "--capacity", "96M"],
        }
    }
}
