//! The stores that are damaged, where their structures lie, and the damages.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use stratakv::{Engine, Level, Options, Placement, Store};
use stratakv_matrix::volume::Superblock;

/// Records of the default collection: keys `k00` and so on.
const KEYS: usize = 14;
/// The number of a record that shares its page with others.
const SHORT: usize = 3;
/// In the middle of a value over many pages.
const MIDDLE: &[u8] = b"<in the middle of a long value>";
const PAGE: usize = 4096;

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    InPlace,
    Packed,
    Directories,
    Hash,
    Matrix,
    Tier,
}

impl Kind {
    pub(crate) const ALL: [Kind; 6] =
        [Kind::InPlace, Kind::Packed, Kind::Directories, Kind::Hash, Kind::Matrix, Kind::Tier];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::InPlace => "`slab`, `in_place`",
            Kind::Packed => "`slab`, `packed`",
            Kind::Directories => "`slab` in two directories",
            Kind::Hash => "`hash`",
            Kind::Matrix => "`matrix`",
            Kind::Tier => "`tier`",
        }
    }

    pub(crate) fn is_cache(self) -> bool {
        self == Kind::Tier
    }

    fn options(self) -> Options {
        let options = Options::new().memory_bytes(64 << 20).shards(1).level(Level::ProcessCrash);
        let in_region = |options: Options, engine| options.engine(engine).region_bytes(8 << 20);
        match self {
            Kind::InPlace => options.placement(Placement::InPlace),
            Kind::Packed => options.placement(Placement::Packed).capacity_bytes(32 << 20),
            Kind::Directories => options.shards(2),
            Kind::Hash => in_region(options, Engine::Hash),
            Kind::Matrix => in_region(options, Engine::Matrix),
            Kind::Tier => options.engine(Engine::Tier).level(Level::Memory).capacity_bytes(32 << 20),
        }
    }
}

/// A store on disk: its directories, and what it holds.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) kind: Kind,
    pub(crate) directories: Vec<PathBuf>,
    pub(crate) records: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub(crate) fn key(number: usize) -> Vec<u8> {
    format!("k{number:02}").into_bytes()
}

fn value(number: usize) -> Vec<u8> {
    let front = format!("<the value of k{number:02}>").into_bytes();
    let len = [40, 300, 900, 120, 1500, 5000, 200_000][number % 7];
    let mut value: Vec<u8> = front.iter().copied().cycle().take(len.max(front.len())).collect();
    if let Some(middle) = value.get_mut(150_000..150_000 + MIDDLE.len()) {
        middle.copy_from_slice(MIDDLE);
    }
    value
}

impl Made {
    /// A store that was closed in order; `kill`: one whose process was killed.
    pub(crate) fn new(kind: Kind, place: &Path, kill: bool) -> Made {
        let directories = match kind {
            Kind::Directories => vec![place.join("a"), place.join("b")],
            _ => vec![place.join("a")],
        };
        let made = Made { kind, directories, records: (0..KEYS).map(|number| (key(number), value(number))).collect() };
        let store = kind.options().data_directories(&made.directories[1..]).open(&made.directories[0]);
        let store = store.expect("created");
        made.fill(&store);
        if kill {
            let copy = made.copy(&place.join("killed"));
            store.close().expect("closed");
            return copy;
        }
        store.close().expect("closed");
        made
    }

    fn fill(&self, store: &Store) {
        for (key, value) in &self.records {
            store.put(key, value).expect("a put");
        }
        if self.kind.is_cache() {
            return;
        }
        let named = store.collection("named").expect("a collection");
        if self.kind == Kind::Matrix {
            // Straight into a table on the volume.
            named
                .load((0..400).map(|n| (format!("loaded{n:03}"), format!("<loaded {n:03}>").repeat(70))))
                .expect("loaded");
        } else {
            named.put(b"named", b"<named>").expect("a put");
        }
    }

    pub(crate) fn copy(&self, to: &Path) -> Made {
        let copied = |directory: &PathBuf| {
            let to = to.join(directory.file_name().expect("a directory has a name"));
            copy_all(directory, &to);
            to
        };
        Made { directories: self.directories.iter().map(copied).collect(), ..self.clone() }
    }

    pub(crate) fn data(&self) -> &Path {
        &self.directories[0]
    }

    /// As the program is told where it lies.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let named = |directory: &PathBuf| ["--data".to_owned(), directory.display().to_string()];
        self.directories.iter().flat_map(named).collect()
    }

    /// The store, for reading. As the program opens it.
    pub(crate) fn open(&self) -> Result<Store, stratakv::Error> {
        let options = Options::new().create(false).read_only(true).memory_bytes(64 << 20);
        options.data_directories(&self.directories[1..]).open(self.data())
    }

    /// Keys that a get refuses or does not find; `None`: the store does not open. No value is ever
    /// wrong.
    pub(crate) fn refused(&self, what: &str) -> Option<Vec<Vec<u8>>> {
        let store = self.open().ok()?;
        let mut refused = Vec::new();
        for (key, value) in &self.records {
            match store.get(key) {
                Ok(Some(record)) => assert!(record.to_bytes() == value[..], "{what}: {} is wrong", key.escape_ascii()),
                Ok(None) | Err(_) => refused.push(key.clone()),
            }
        }
        store.close().expect("closed");
        Some(refused)
    }
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let (from, to) = (entry.as_ref().expect("an entry").path(), to.join(entry.expect("an entry").file_name()));
        if from.is_dir() {
            copy_all(&from, &to);
        } else {
            fs::copy(&from, &to).expect("a copy");
        }
    }
}

/// What is done to a file.
#[derive(Clone, Debug)]
pub(crate) enum Hit {
    /// One bit at each of these bytes is flipped.
    Bits(Vec<usize>),
    /// It ends there.
    Cut(usize),
    Gone,
    /// It has these bytes.
    Is(Vec<u8>),
}

/// A line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    pub(crate) structure: &'static str,
    pub(crate) how: &'static str,
    /// Nothing that counts is hit.
    pub(crate) harmless: bool,
    pub(crate) file: PathBuf,
    pub(crate) hit: Hit,
}

impl Damage {
    /// The same of a copy of the store.
    pub(crate) fn of(&self, made: &Made, copy: &Made) -> Damage {
        let mut pairs = made.directories.iter().zip(&copy.directories);
        let file = pairs.find_map(|(from, to)| Some(to.join(self.file.strip_prefix(from).ok()?)));
        Damage { file: file.expect("it lies in the store"), ..self.clone() }
    }

    pub(crate) fn apply(&self) {
        let write = |bytes: &[u8]| fs::write(&self.file, bytes).expect("it can be written");
        match &self.hit {
            Hit::Bits(places) => {
                let file = File::options().read(true).write(true).open(&self.file).expect("it opens");
                for place in places {
                    let mut byte = [0];
                    file.read_exact_at(&mut byte, *place as u64).expect("it can be read");
                    file.write_all_at(&[byte[0] ^ 4], *place as u64).expect("it can be written");
                }
            }
            Hit::Cut(len) => {
                File::options().write(true).open(&self.file).and_then(|file| file.set_len(*len as u64)).expect("cut")
            }
            Hit::Gone => fs::remove_file(&self.file).expect("removed"),
            Hit::Is(bytes) => write(bytes),
        }
    }
}

/// All damages of a store.
pub(crate) fn damages(made: &Made) -> Vec<Damage> {
    let mut all = Vec::new();
    let data = made.data();
    let line = |structure, how, harmless, file: &Path, hit| Damage { structure, how, harmless, file: file.into(), hit };
    let whole_files = |structure: &'static str, file: &Path| {
        let half = fs::metadata(file).expect("it is there").len() as usize / 2 / PAGE * PAGE;
        [
            line(structure, "cut in half", false, file, Hit::Cut(half)),
            line(structure, "missing", false, file, Hit::Gone),
        ]
    };
    let text = |structure: &'static str, file: PathBuf| {
        let bytes = fs::read(&file).expect("it is there");
        let uuid = find(&bytes, b"uuid = \"").first().copied().expect("a uuid") + 9;
        let cut = line(structure, "cut in half", false, &file, Hit::Cut(bytes.len() / 2));
        [
            line(structure, "bit", false, &file, Hit::Bits(vec![uuid])),
            cut,
            line(structure, "missing", false, &file, Hit::Gone),
        ]
    };
    all.extend(text("`store.toml`", data.join("store.toml")));
    all.push(line("`LOCK`", "missing", true, &data.join("LOCK"), Hit::Gone));
    if made.kind == Kind::Directories {
        all.extend(text("`part.toml`", made.directories[1].join("part.toml")));
        all.extend(whole_files("the second volume", &made.directories[1].join("shard-001.vol")));
        all.push(interrupted_creation(data));
        return all;
    }
    let (volume, region) = (data.join("shard-000.vol"), data.join("pmem/region-000"));
    for (structure, file) in [("the volume", &volume), ("the region", &region)] {
        if file.exists() {
            all.extend(whole_files(structure, file));
            all.extend(bits(made.kind, structure, file));
        }
    }
    all.push(interrupted_creation(data));
    all
}

fn interrupted_creation(data: &Path) -> Damage {
    let file = data.join("store.toml");
    let text = fs::read_to_string(&file).expect("a manifest").replace("complete = true", "complete = false");
    let hit = Hit::Is(text.into_bytes());
    Damage { structure: "the store", how: "creation interrupted", harmless: false, file, hit }
}

/// Single bits in the structures of a volume or region.
fn bits(kind: Kind, of: &str, file: &Path) -> Vec<Damage> {
    let bytes = fs::read(file).expect("it can be read");
    let bit = |structure, harmless, places| Damage {
        structure,
        how: "bit",
        harmless,
        file: file.into(),
        hit: Hit::Bits(places),
    };
    let is_volume = of == "the volume";
    let in_pages = |pages: &[usize]| pages.iter().map(|page| page * PAGE + 20).collect::<Vec<_>>();
    let (one, both) = match is_volume {
        true => ("one superblock of the volume", "both superblocks of the volume"),
        false => ("one superblock of the region", "both superblocks of the region"),
    };
    let mut all = vec![bit(one, false, in_pages(&[0])), bit(both, false, in_pages(&[0, 1]))];
    match (kind, is_volume) {
        (Kind::Packed, _) => {
            all.push(bit("one segment table", false, in_pages(&[2])));
            all.push(bit("both segment tables", false, in_pages(&[2, 3])));
        }
        (Kind::Matrix, true) => {
            all.push(bit("one copy of the manifest", false, in_pages(&[manifest_page(file, &bytes)])));
        }
        (Kind::Tier, _) => all.push(bit("a tail of the journal", false, in_pages(&[2]))),
        _ => {}
    }
    let mut found = |structure, pattern: &[u8]| {
        let places = find(&bytes, pattern);
        if !places.is_empty() {
            all.push(bit(structure, false, places));
        }
    };
    match is_volume || kind == Kind::Hash {
        true => {
            found("a record", &value(SHORT)[..20]);
            found("a long value", MIDDLE);
        }
        false => {
            found("a record in the region", &value(SHORT)[..20]);
            found("a long value in the region", MIDDLE);
        }
    }
    found("a table", b"<loaded 200>");
    let free = (0..bytes.len() / PAGE).rev().find(|page| bytes[page * PAGE..][..PAGE].iter().all(|byte| *byte == 0));
    let structure = if is_volume { "free space of the volume" } else { "free space of the region" };
    all.extend(free.map(|page| bit(structure, true, in_pages(&[page]))));
    all
}

/// Where the newer superblock of a volume of `matrix` says that the manifest is.
fn manifest_page(volume: &Path, bytes: &[u8]) -> usize {
    let text = fs::read_to_string(volume.with_file_name("store.toml")).expect("a manifest of the store");
    let (_, digits) = text.split_once("uuid = \"").expect("a uuid");
    let uuid = u128::from_str_radix(&digits[..32], 16).expect("hexadecimal digits").to_be_bytes();
    let superblocks = bytes.chunks(PAGE).take(2).filter_map(|page| Superblock::decode(&uuid, page).ok());
    superblocks.max_by_key(|superblock| superblock.number).expect("a superblock").page as usize
}

fn find(bytes: &[u8], pattern: &[u8]) -> Vec<usize> {
    // Most bytes are zeros: to look at one of them first takes a twentieth of the time.
    let begins = bytes.iter().enumerate().filter(|(_, byte)| **byte == pattern[0]).map(|(at, _)| at);
    begins.filter(|at| bytes[*at..].starts_with(pattern)).collect()
}
