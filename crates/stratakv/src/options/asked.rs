//! Options that not every engine has. One table says which engine has which; one sentence refuses
//! the others.

use std::path::{Path, PathBuf};

use stratakv_matrix::Compression;

use crate::engine::Engine;
use crate::error::Error;
use crate::options::Placement;
use crate::rejoin::Rejoin;

/// What was asked for of that kind. A store's engine may not be known yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) placement: Option<Placement>,
    pub(crate) region: RegionOptions,
    pub(crate) pmem_levels_bytes: Option<u64>,
    pub(crate) compression: Option<Compression>,
    pub(crate) saves_at_shutdown: Option<bool>,
    pub(crate) rejoin: Option<Rejoin>,
}

/// How long a region is, and where it lies.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegionOptions {
    pub(crate) bytes: Option<u64>,
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) nodes: Vec<u32>,
}

/// Whose engine does not have what was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whose<'a> {
    /// It was asked for too.
    Asked,
    /// That of a store that would be made here.
    New(&'a Path),
    /// That of a store that is here.
    Stored(&'a Path),
}

impl Asked {
    /// Each option: whether it was asked for, how it is called, which engines have it. A placement
    /// that every engine could be said to have is not asked for.
    fn table(&self) -> [(bool, &'static str, &'static [Engine]); 8] {
        const WITH_REGION: &[Engine] = &[Engine::Hash, Engine::Matrix];
        let Asked { placement, region, pmem_levels_bytes, compression, saves_at_shutdown, rejoin } = self;
        [
            (*placement == Some(Placement::Packed), "placement", &[Engine::Slab]),
            (region.bytes.is_some(), "region", WITH_REGION),
            (!region.paths.is_empty(), "region-path", WITH_REGION),
            (!region.nodes.is_empty(), "region-node", WITH_REGION),
            (pmem_levels_bytes.is_some(), "pmem-levels", &[Engine::Matrix]),
            (compression.is_some(), "compression", &[Engine::Matrix]),
            (*saves_at_shutdown == Some(true), "save-at-shutdown", &[Engine::Tier]),
            (rejoin.is_some(), "rejoin", &[Engine::Tier]),
        ]
    }

    /// Whether the engine has all of it.
    ///
    /// # Errors
    /// [`Error::Option`] of the first that it does not have.
    pub(crate) fn check(&self, engine: Engine, whose: Whose<'_>) -> Result<(), Error> {
        let lacks = |(is_asked, _, of): &(bool, &str, &[Engine])| *is_asked && !of.contains(&engine);
        let Some((_, option, of)) = self.table().into_iter().find(lacks) else { return Ok(()) };
        let names: Vec<String> = of.iter().map(|engine| format!("`{}`", engine.name())).collect();
        let has = engine.name();
        let (whose, advice) = match whose {
            Whose::Asked => (format!("`{has}` was asked for"), "leave one of them out".to_owned()),
            Whose::Stored(home) => {
                (format!("the store in {} has the engine `{has}`", home.display()), "leave it out".to_owned())
            }
            Whose::New(home) => (
                format!("the new store in {} would be of `{has}`", home.display()),
                format!("ask for the engine too (--engine {}), or leave it out", of[0].name()),
            ),
        };
        let (plural, names) = (if of.len() > 1 { "engines" } else { "engine" }, names.join(" and "));
        Err(Error::Option(format!("--{option} is of the {plural} {names}, and {whose}: {advice}")))
    }
}
