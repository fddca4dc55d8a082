//! The engines that the harnesses of real processes and real stores know: a new one is a line in each table here.

use stratakv::Options;

/// As long as `serve_options` says.
const REGION_BYTES: u64 = 256 << 20;
const CONTAINER_BYTES: u64 = 16 << 20;

/// An engine of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// After KVell.
    Slab,
    /// After KVDK.
    Hash,
    /// After MatrixKV.
    Matrix,
}

impl Engine {
    /// All of them.
    pub const ALL: &[Engine] = &[Engine::Slab, Engine::Hash, Engine::Matrix];

    /// Its name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Slab => "slab",
            Engine::Hash => "hash",
            Engine::Matrix => "matrix",
        }
    }

    /// The engine with this name.
    pub fn named(name: &str) -> Option<Engine> {
        Engine::ALL.iter().copied().find(|engine| engine.name() == name)
    }

    /// Options of the library that make a store of this engine.
    pub fn options(self) -> Options {
        match self {
            Engine::Slab => Options::new(),
            Engine::Hash => Options::new().engine(stratakv::Engine::Hash).region_bytes(REGION_BYTES),
            // Short, so that a test's records reach the volumes.
            Engine::Matrix => Options::new().engine(stratakv::Engine::Matrix).region_bytes(CONTAINER_BYTES),
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
        self != Engine::Hash
    }

    /// Options of `stratakv serve` that do.
    pub fn serve_options(self) -> &'static [&'static str] {
        match self {
            Engine::Slab => &[],
            Engine::Hash => &["--engine", "hash", "--region", "256M"],
            Engine::Matrix => &["--engine", "matrix", "--region", "16M"],
        }
    }
}
