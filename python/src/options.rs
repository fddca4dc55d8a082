//! Options of an opening, by the names that the command line and C have for them.

use std::path::PathBuf;
use std::str::FromStr;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use stratakv::{Compression, Engine, IoBackend, Level, Options, Placement};
use stratakv_base::quantity::parse_bytes;

use crate::errors::usage;

const ENGINES: &[(&str, Engine)] =
    &[("slab", Engine::Slab), ("hash", Engine::Hash), ("matrix", Engine::Matrix), ("tier", Engine::Tier)];
const PLACEMENTS: &[(&str, Placement)] = &[("in_place", Placement::InPlace), ("packed", Placement::Packed)];
const COMPRESSIONS: &[(&str, Compression)] = &[("none", Compression::None), ("lz4", Compression::Lz4)];
const IO: &[(&str, IoBackend)] =
    &[("auto", IoBackend::Auto), ("uring", IoBackend::IoUring), ("blocking", IoBackend::Blocking)];

/// Options given as keywords. What is None is left as it is.
///
/// # Errors
/// An option that there is not, or a value that it cannot have.
pub fn options(given: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
    let mut options = Options::new();
    let Some(given) = given else { return Ok(options) };
    for (name, value) in given {
        let name = name.extract::<String>()?;
        if !value.is_none() {
            options = set(options, &Setting { name: &name, value })?;
        }
    }
    Ok(options)
}

fn set(options: Options, one: &Setting<'_, '_>) -> PyResult<Options> {
    Ok(match one.name {
        "create" => options.create(one.yes()?),
        "create_new" => options.create_new(one.yes()?),
        "read_only" => options.read_only(one.yes()?),
        "engine" => options.engine(one.one_of(ENGINES)?),
        "durability" => options.level(Level::from_str(&one.text()?).map_err(|why| one.bad(&why))?),
        "memory_bytes" => options.memory_bytes(one.bytes()?),
        "capacity_bytes" => options.capacity_bytes(one.bytes()?),
        "save_at_shutdown" => options.save_at_shutdown(one.yes()?),
        "region_bytes" => options.region_bytes(one.bytes()?),
        "region_path" => options.region_paths(one.paths()?),
        "pmem_levels_bytes" => options.pmem_levels_bytes(one.bytes()?),
        "compression" => options.compression(one.one_of(COMPRESSIONS)?),
        "placement" => options.placement(one.one_of(PLACEMENTS)?),
        "io" => options.io(one.one_of(IO)?),
        "shards" => options.shards(one.number()?),
        "depth" => options.depth(one.number()?),
        "cores" => options.cores(one.number()?),
        "directory" => options.data_directories(one.paths()?),
        "device" => options.devices(one.paths()?),
        name => return Err(usage(format!("there is no option {name}: help(stratakv.open) lists them"))),
    })
}

struct Setting<'a, 'py> {
    name: &'a str,
    value: Bound<'py, PyAny>,
}

impl Setting<'_, '_> {
    fn bad(&self, why: &str) -> PyErr {
        usage(format!("option {}: {why}", self.name))
    }

    fn text(&self) -> PyResult<String> {
        self.value.extract().map_err(|_| self.bad("it is a str"))
    }

    fn yes(&self) -> PyResult<bool> {
        self.value.extract().map_err(|_| self.bad("it is True or False"))
    }

    fn number<T: for<'a, 'py> FromPyObject<'a, 'py>>(&self) -> PyResult<T> {
        let is_number = !self.value.is_instance_of::<PyBool>();
        let number = is_number.then(|| self.value.extract().ok()).flatten();
        number.ok_or_else(|| self.bad("it is a number from 0, and this is none, or too large"))
    }

    /// A number of bytes: an int, or text such as "64MiB".
    fn bytes(&self) -> PyResult<u64> {
        match self.value.cast::<PyString>() {
            Ok(text) => parse_bytes(&text.to_string()).map_err(|why| self.bad(&why)),
            Err(_) => self.number(),
        }
    }

    fn one_of<T: Copy>(&self, known: &[(&str, T)]) -> PyResult<T> {
        let text = self.text()?;
        known.iter().find(|(word, _)| *word == text).map(|(_, meant)| *meant).ok_or_else(|| {
            let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
            self.bad(&format!("{text:?} is not one of {}", words.join(", ")))
        })
    }

    /// A path, or several.
    fn paths(&self) -> PyResult<Vec<PathBuf>> {
        let one = self.value.extract::<PathBuf>().map(|path| vec![path]);
        one.or_else(|_| self.value.extract()).map_err(|_| self.bad("it is a path, or a list of paths"))
    }
}
