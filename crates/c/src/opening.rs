//! Options, opening and closing.

use std::ffi::c_void;
use std::path::PathBuf;
use std::str::FromStr;

use stratakv::{Compression, Engine, IoBackend, Level, Order, Placement};
use stratakv_base::quantity::parse_bytes;

use crate::arg::{self, Out, Text};
use crate::status::{Answer, Failure, Status, c_function};
use crate::store::Store;

/// `stratakv_options`.
#[derive(Clone, Default)]
pub struct Options {
    options: stratakv::Options,
    regions: Vec<PathBuf>,
    directories: Vec<PathBuf>,
    devices: Vec<PathBuf>,
}

/// `stratakv_sort_key`.
pub type SortKey =
    extern "C" fn(context: *mut c_void, key: *const u8, key_len: usize, sort_key: *mut u8, room: usize) -> usize;

/// A function of the caller's with what it is given.
struct Sorting {
    sort_key: SortKey,
    context: *mut c_void,
}

// SAFETY: the header says that any thread calls it; so the function and what its context points to
// bear that.
unsafe impl Send for Sorting {}
// SAFETY: as above.
unsafe impl Sync for Sorting {}

/// The longest sort key that is asked for, and more than a key may have.
const SORT_KEY_BYTES_MAX: usize = 1 << 20;

impl Sorting {
    fn of(&self, key: &[u8]) -> Vec<u8> {
        let mut sorted = vec![0; 256];
        for _ in 0..2 {
            let len = (self.sort_key)(self.context, key.as_ptr(), key.len(), sorted.as_mut_ptr(), sorted.len());
            let fits = len <= sorted.len();
            // Longer than any key: the store refuses it, with a message that says so.
            sorted.resize(len.min(SORT_KEY_BYTES_MAX), 0);
            if fits {
                break;
            }
        }
        sorted
    }
}

impl Options {
    /// What the store is opened with.
    fn finished(self) -> stratakv::Options {
        let options = self.options.region_paths(self.regions);
        options.data_directories(self.directories).devices(self.devices)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        let bad = |why: String| Failure::usage(format!("option {name}: {why}"));
        let bytes = || parse_bytes(value).map_err(bad);
        let options = self.options.clone();
        self.options = match name {
            "create" => options.create(yes(name, value)?),
            "create_new" => options.create_new(yes(name, value)?),
            "read_only" => options.read_only(yes(name, value)?),
            "engine" => options.engine(one_of(name, value, ENGINES)?),
            "durability" => options.level(Level::from_str(value).map_err(bad)?),
            "memory_bytes" => options.memory_bytes(bytes()?),
            "capacity_bytes" => options.capacity_bytes(bytes()?),
            "save_at_shutdown" | "park" => options.save_at_shutdown(yes(name, value)?),
            "region_bytes" => options.region_bytes(bytes()?),
            "pmem_levels_bytes" | "layer_bytes" => options.pmem_levels_bytes(bytes()?),
            "compression" => options.compression(one_of(name, value, COMPRESSIONS)?),
            "placement" => options.placement(one_of(name, value, PLACEMENTS)?),
            "io" => options.io(one_of(name, value, IO)?),
            "shards" => options.shards(number(name, value)?),
            "depth" => options.depth(number(name, value)?),
            "cores" => options.cores(number(name, value)?),
            "region_path" => return self.add(|options| &mut options.regions, value),
            "directory" => return self.add(|options| &mut options.directories, value),
            "device" => return self.add(|options| &mut options.devices, value),
            _ => {
                return Err(Failure::usage(format!(
                    "there is no option `{name}`: stratakv.h lists them (stratakv_options_set)"
                )));
            }
        };
        Ok(())
    }

    fn add(&mut self, list: impl Fn(&mut Options) -> &mut Vec<PathBuf>, path: &str) -> Result<(), Failure> {
        list(self).push(path.into());
        Ok(())
    }
}

const ENGINES: &[(&str, Engine)] =
    &[("slab", Engine::Slab), ("hash", Engine::Hash), ("matrix", Engine::Matrix), ("tier", Engine::Tier)];
const PLACEMENTS: &[(&str, Placement)] = &[("in_place", Placement::InPlace), ("packed", Placement::Packed)];
const COMPRESSIONS: &[(&str, Compression)] = &[("none", Compression::None), ("lz4", Compression::Lz4)];
const IO: &[(&str, IoBackend)] =
    &[("auto", IoBackend::Auto), ("uring", IoBackend::IoUring), ("blocking", IoBackend::Blocking)];
const YES: &[(&str, bool)] = &[("true", true), ("false", false)];

fn yes(name: &str, value: &str) -> Result<bool, Failure> {
    one_of(name, value, YES)
}

fn one_of<T: Copy>(name: &str, value: &str, known: &[(&str, T)]) -> Result<T, Failure> {
    known.iter().find(|(word, _)| *word == value).map(|(_, meant)| *meant).ok_or_else(|| {
        let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        Failure::usage(format!("option {name}: `{value}` is not one of {}", words.join(", ")))
    })
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T, Failure> {
    value.parse().map_err(|_| Failure::usage(format!("option {name}: `{value}` is no number, or too large")))
}

/// The defaults.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_options_new() -> Box<Options> {
    Box::default()
}

/// Frees options.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_options_free(options: Option<Box<Options>>) {
    drop(options);
}

c_function! {
    /// Sets an option by its name.
    fn stratakv_options_set(options: Option<&mut Options>, name: Text<'_>, value: Text<'_>) {
        let options = arg::handle_mut(options, "options")?;
        options.set(name.take("the option's name")?, value.take("the option's value")?)?;
        Ok(Status::Ok)
    }
}

c_function! {
    /// Registers an order of keys.
    fn stratakv_options_order(
        options: Option<&mut Options>,
        name: Text<'_>,
        sort_key: Option<SortKey>,
        context: *mut c_void,
    ) {
        let options = arg::handle_mut(options, "options")?;
        let sort_key = sort_key.ok_or_else(|| Failure::usage("the function that makes sort keys is NULL"))?;
        let sorting = Sorting { sort_key, context };
        let order = Order::new(name.take("the order's name")?, move |key| sorting.of(key));
        options.options = options.options.clone().order(order);
        Ok(Status::Ok)
    }
}

c_function! {
    /// Opens a store.
    fn stratakv_open(path: Text<'_>, options: Option<&Options>, store: Out<'_, Option<Box<Store>>>) {
        let store = arg::wanted(store, "store")?.write(None);
        let opened = given(options).open(path.path("the store's path")?)?;
        *store = Some(Box::new(Store::new(opened)));
        Ok(Status::Ok)
    }
}

c_function! {
    /// Closes a store and frees its handle.
    fn stratakv_close(store: Option<Box<Store>>) {
        if let Some(store) = store {
            store.store.close()?;
        }
        Ok(Status::Ok)
    }
}

c_function! {
    /// Makes a store from a backup.
    fn stratakv_restore(backup: Text<'_>, directory: Text<'_>, options: Option<&Options>, records: Out<'_, u64>) {
        let (backup, directory) = (backup.path("the backup's path")?, directory.path("the directory")?);
        let summary = stratakv::restore(backup, directory, &given(options))?;
        arg::give(records, summary.records);
        Ok(Status::Ok)
    }
}

c_function! {
    /// Verifies a store that is not open.
    fn stratakv_check(path: Text<'_>, records: Out<'_, u64>) {
        verify(path, records)
    }
}

fn verify(path: Text<'_>, records: Out<'_, u64>) -> Answer {
    let report = stratakv::check(path.path("the store's path")?, None)?;
    arg::give(records, report.records);
    if report.is_sound() {
        return Ok(Status::Ok);
    }
    let lines: Vec<String> = report.damage.into_iter().chain(report.mistakes).collect();
    Err(Failure::corrupt(lines.join("\n")))
}

fn given(options: Option<&Options>) -> stratakv::Options {
    options.cloned().unwrap_or_default().finished()
}
