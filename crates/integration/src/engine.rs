//! The engines that the harnesses of real processes and real stores know: a new one is a line in each table here.

use stratakv::Options;

/// An engine of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// After KVell.
    Slab,
}

impl Engine {
    /// All of them.
    pub const ALL: &[Engine] = &[Engine::Slab];

    /// Its name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Slab => "slab",
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
        }
    }

    /// Options of `stratakv serve` that do.
    pub fn serve_options(self) -> &'static [&'static str] {
        match self {
            Engine::Slab => &[],
        }
    }
}
