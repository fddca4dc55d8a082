//! The same operations give the same answers, whatever engine, number of shards, memory, depth, I/O
//! or interface carries them, and whether the store was opened again in between. Versions are each
//! store's own, but grow.

mod faces;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use faces::{Answer, Face, Request, Subject};
use stratakv::raw::Update;
use stratakv::{Expect, Expiry, IoBackend, Level, Options};
use stratakv_base::random::Random;
use stratakv_integration::engine::Engine;
use stratakv_integration::place;

/// What must not matter.
#[derive(Clone, Debug)]
struct Variation {
    engine: Engine,
    shards: usize,
    memory_bytes: u64,
    depth: u32,
    io: IoBackend,
    level: Level,
    face: Face,
    reopening: Reopening,
}

/// What happens in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reopening {
    None,
    Closed,
    /// The store is dropped, as when nobody cares.
    Dropped,
}

const BASE: Variation = Variation {
    engine: Engine::Slab,
    shards: 1,
    memory_bytes: 256 << 20,
    depth: 64,
    io: IoBackend::Auto,
    level: Level::ProcessCrash,
    face: Face::Blocking,
    reopening: Reopening::None,
};

/// What all are compared with is the first.
fn variations() -> Vec<Variation> {
    use Reopening::{Closed, Dropped};
    let mut all = vec![
        BASE,
        Variation { shards: 2, ..BASE },
        Variation { shards: 7, face: Face::Session, ..BASE },
        Variation { shards: 7, memory_bytes: 14 << 20, reopening: Closed, ..BASE },
        Variation { shards: 1, memory_bytes: 1 << 20, face: Face::Futures, ..BASE },
        Variation { shards: 2, memory_bytes: 4 << 30, face: Face::Memcache, reopening: Dropped, ..BASE },
        Variation { depth: 1, face: Face::Session, reopening: Dropped, ..BASE },
        Variation { depth: 4096, shards: 2, face: Face::Futures, io: IoBackend::Blocking, ..BASE },
        Variation { io: IoBackend::Blocking, reopening: Closed, ..BASE },
        Variation { io: IoBackend::Blocking, face: Face::Session, shards: 2, depth: 1, ..BASE },
        Variation { io: IoBackend::Blocking, face: Face::Memcache, shards: 7, ..BASE },
        Variation { level: Level::PowerLoss, face: Face::Session, shards: 2, reopening: Closed, ..BASE },
    ];
    for engine in Engine::ALL.iter().filter(|engine| **engine != BASE.engine) {
        let other = Variation { engine: *engine, shards: if engine.has_shards() { 2 } else { 1 }, ..BASE };
        all.extend([
            Variation { reopening: Closed, ..other.clone() },
            Variation { face: Face::Session, level: Level::PowerLoss, reopening: Dropped, ..other.clone() },
            Variation { face: Face::Futures, io: IoBackend::Blocking, ..other.clone() },
            Variation { face: Face::Memcache, level: Level::PowerLoss, ..other.clone() },
            Variation { face: Face::Memcache, ..other },
        ]);
    }
    all
}

impl Variation {
    fn options(&self) -> Options {
        let options = self.engine.options().shards(self.shards).memory_bytes(self.memory_bytes).depth(self.depth);
        options.io(self.io).level(self.level)
    }
}

/// A version as a step knows it.
#[derive(Clone, Copy, Debug)]
enum Known {
    Current,
    Old,
}

#[derive(Clone, Debug)]
enum Step {
    /// All at once, of different keys.
    Requests(Vec<Request>),
    /// Reads, then writes on condition of the version read, or of one before.
    Swap {
        key: Vec<u8>,
        value: Vec<u8>,
        known: Known,
    },
    Scan(faces::Scan),
}

/// Lengths around what the format changes at, and others.
fn value_of(random: &mut Random) -> Vec<u8> {
    const EDGES: [u64; 10] = [0, 1, 1023, 1024, 4000, 4032, 4033, 16_384, 65_536, 65_537];
    let len = match random.below(20) {
        0..=3 => EDGES[random.below(EDGES.len() as u64) as usize],
        4 => random.below(400_000),
        5..=7 => random.below(9000),
        _ => random.below(700),
    };
    let mut value = vec![0; len as usize];
    random.fill(&mut value);
    value
}

fn key_of(random: &mut Random) -> Vec<u8> {
    match random.below(12) {
        0 => format!("other/{}", random.below(9)).into_bytes(),
        1 => vec![b'k'; 1 + random.below(250) as usize],
        _ => format!("user:{:02}/{}", random.below(40), random.below(2)).into_bytes(),
    }
}

fn request(random: &mut Random) -> Request {
    let key = key_of(random);
    let update = |update| Request::Update { key: key.clone(), update };
    match random.below(16) {
        0..=3 => Request::Get { key },
        4 | 5 => Request::Delete { key },
        6 => update(Update::Append(value_of(random).into())),
        7 => Request::Update { key: counter(random), update: Update::Increment(random.below(1 << 63)) },
        8 => {
            let value = random.below(u64::MAX).to_string().into_bytes();
            Request::Put { key: counter(random), value, flags: 7, expiry: Expiry::NEVER, expect: Expect::Any }
        }
        9 => update(Update::Touch(expiry_of(random))),
        drawn => {
            let (flags, expiry) = (random.below(1 << 32) as u32, expiry_of(random));
            let expect = match drawn {
                10 => Expect::Absent,
                11 => Expect::Present,
                _ => Expect::Any,
            };
            Request::Put { key, value: value_of(random), flags, expiry, expect }
        }
    }
}

/// A key that mostly holds a number.
fn counter(random: &mut Random) -> Vec<u8> {
    format!("other/{}", random.below(3)).into_bytes()
}

/// Never, long ago, or far away: nothing that a slow machine could live to see.
fn expiry_of(random: &mut Random) -> Expiry {
    match random.below(10) {
        0 => Expiry(1_500_000_000_000),
        1 => Expiry(4_000_000_000_000),
        _ => Expiry::NEVER,
    }
}

fn steps(seed: u64, count: usize) -> Vec<Step> {
    let mut random = Random::new(seed);
    let draw = |_| match random.below(12) {
        0 => Step::Scan(faces::Scan::draw(&mut random)),
        1 | 2 => {
            let known = if random.below(3) == 0 { Known::Old } else { Known::Current };
            Step::Swap { key: key_of(&mut random), value: value_of(&mut random), known }
        }
        3 => {
            let mut keys: Vec<Vec<u8>> = (0..20).map(|_| key_of(&mut random)).collect();
            keys.sort();
            keys.dedup();
            Step::Requests(keys.into_iter().map(|key| Request::Get { key }).collect())
        }
        _ => {
            let mut requests: Vec<Request> = (0..1 + random.below(6)).map(|_| request(&mut random)).collect();
            requests.sort_by(|a, b| a.key().cmp(b.key()));
            requests.dedup_by(|a, b| a.key() == b.key());
            Step::Requests(requests)
        }
    };
    (0..count).map(draw).collect()
}

/// A store's versions, key by key.
#[derive(Default)]
struct Versions(HashMap<Vec<u8>, (u64, bool)>);

impl Versions {
    /// Every write has a larger one than all before it; what was not written keeps its own.
    fn note(&mut self, request: &Request, answer: &Answer, version: Option<u64>) {
        let (last, written) = self.0.get(request.key()).copied().unwrap_or((0, true));
        let writes = request.writes() && *answer != Answer::Unmet;
        let written = written || writes;
        let Some(version) = version else {
            self.0.insert(request.key().to_vec(), (last, written));
            return;
        };
        let key = request.key().escape_ascii();
        match written {
            true => assert!(version > last, "{key}: version {version} after {last}"),
            false => assert_eq!(version, last, "{key} has another version and was not written"),
        }
        self.0.insert(request.key().to_vec(), (version, false));
    }

    fn of(&self, key: &[u8]) -> u64 {
        self.0.get(key).map_or(1, |(version, _)| (*version).max(1))
    }
}

/// All answers to the steps.
fn answers(variation: &Variation, data: &Path, steps: &[Step]) -> Vec<Vec<Answer>> {
    let open = || Subject::new(variation.options().open(data).expect("the store opens"), variation.face);
    let mut subject = open();
    let mut versions = Versions::default();
    let mut all = Vec::with_capacity(steps.len());
    for (number, step) in steps.iter().enumerate() {
        if number == steps.len() / 2 && variation.reopening != Reopening::None {
            subject.end(variation.reopening == Reopening::Closed);
            subject = open();
        }
        let mut ask = |requests: &[Request]| -> Vec<Answer> {
            let answered = subject.ask(requests);
            let answered = requests.iter().zip(answered);
            answered
                .map(|(request, (answer, version))| {
                    versions.note(request, &answer, version);
                    answer
                })
                .collect()
        };
        all.push(match step {
            Step::Requests(requests) => ask(requests),
            Step::Scan(scan) if variation.engine.is_ordered() => vec![subject.scan(scan)],
            Step::Scan(_) => Vec::new(),
            Step::Swap { key, value, known } => {
                let mut seen = ask(&[Request::Get { key: key.clone() }]);
                let version = match known {
                    Known::Current => versions.of(key),
                    Known::Old => versions.of(key) - 1,
                };
                let swap = Request::Put {
                    key: key.clone(),
                    value: value.clone(),
                    flags: 1,
                    expiry: Expiry::NEVER,
                    expect: Expect::Version(version),
                };
                let answered = subject.ask(std::slice::from_ref(&swap)).remove(0);
                versions.note(&swap, &answered.0, answered.1);
                seen.push(answered.0);
                seen
            }
        });
    }
    subject.end(true);
    all
}

/// A value for comparing.
fn digest(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[test]
fn answers_do_not_depend_on_how_a_store_is_set_up_or_reached() {
    let steps = steps(1, 260);
    let mut expected: Option<Vec<Vec<Answer>>> = None;
    for variation in variations() {
        let place = place::directory();
        let found = answers(&variation, &place.path().join("data"), &steps);
        let expected = expected.get_or_insert_with(|| found.clone());
        for (number, step) in steps.iter().enumerate() {
            if matches!(step, Step::Scan(_)) && !variation.engine.is_ordered() {
                continue;
            }
            assert!(
                found[number] == expected[number],
                "step {number} of {variation:?}: {step:?}\nwas answered {:?}\nand by {BASE:?}\n{:?}",
                found[number],
                expected[number]
            );
        }
    }
    let kinds = expected.expect("there are variations").into_iter().flatten();
    let mut seen = [0; 6];
    kinds.for_each(|answer| seen[answer.kind()] += 1);
    assert!(seen.iter().all(|count| *count > 5), "steps that ask for little: {seen:?}");
}
