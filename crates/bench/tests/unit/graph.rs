use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use stratakv::{Engine, Level, Options, Store};

use super::workload::GraphSource;
use super::*;

/// The same graph as sets of neighbours, and the plain way of asking it.
#[derive(Default)]
struct Reference {
    out: BTreeMap<Vertex, BTreeSet<Vertex>>,
    into: BTreeMap<Vertex, BTreeSet<Vertex>>,
}

impl Reference {
    fn of(edges: impl IntoIterator<Item = (Vertex, Vertex)>) -> Reference {
        let mut reference = Reference::default();
        for (from, to) in edges {
            reference.out.entry(from).or_default().insert(to);
            reference.into.entry(to).or_default().insert(from);
        }
        reference
    }

    fn lists(&self, direction: Direction) -> &BTreeMap<Vertex, BTreeSet<Vertex>> {
        if direction == Direction::Out { &self.out } else { &self.into }
    }

    /// By distance from the start, found by relaxing every edge until nothing changes: not a
    /// breadth-first search.
    fn frontiers(&self, start: Vertex, hops: usize, direction: Direction) -> Vec<u64> {
        let mut distances = BTreeMap::from([(start, 0)]);
        loop {
            let mut shorter = BTreeMap::new();
            for (from, neighbours) in self.lists(direction) {
                let Some(distance) = distances.get(from).map(|distance| distance + 1) else { continue };
                for to in neighbours {
                    if distance <= hops && distances.get(to).is_none_or(|known| *known > distance) {
                        let known = shorter.entry(*to).or_insert(distance);
                        *known = distance.min(*known);
                    }
                }
            }
            if shorter.is_empty() {
                break;
            }
            distances.extend(shorter);
        }
        let farthest = distances.values().max().copied().unwrap_or_default();
        (0..=farthest).map(|hop| distances.values().filter(|distance| **distance == hop).count() as u64).collect()
    }

    fn top(&self, count: usize, direction: Direction) -> Vec<Ranked> {
        let lists = self.lists(direction).iter();
        let mut all: Vec<Ranked> = lists
            .map(|(vertex, neighbours)| Ranked { degree: neighbours.len() as u64, vertex: Reverse(*vertex) })
            .collect();
        all.sort_by_key(|ranked| (Reverse(ranked.degree), ranked.vertex.0));
        all.truncate(count);
        all
    }
}

fn store(engine: Engine, place: &tempfile::TempDir) -> Store {
    let options = Options::new().engine(engine).memory_bytes(64 << 20).level(Level::ProcessCrash);
    let options = if engine == Engine::Hash { options.region_bytes(64 << 20) } else { options.shards(1) };
    options.open(place.path().join("data")).expect("opened")
}

fn agrees(store: impl KeyValue, rmat: Rmat, what: &str) {
    let reference = Reference::of(rmat);
    let mut graph = Graph::new(store);
    let mut new = 0;
    for (number, (from, to)) in rmat.iter().enumerate() {
        new += usize::from(graph.add_edge(from, to, &(number as u64).to_le_bytes()).expect("an edge"));
    }
    assert_eq!(new, reference.out.values().map(BTreeSet::len).sum::<usize>(), "{what}");
    for direction in [Direction::Out, Direction::In] {
        for vertex in 0..rmat.vertices() {
            let mut found: Vec<Vertex> = graph.neighbours(vertex, direction).expect("a list").iter().collect();
            found.sort_unstable();
            let expected = reference.lists(direction).get(&vertex).into_iter().flatten().copied();
            assert!(found.into_iter().eq(expected), "{what}: neighbours of {vertex}, {direction:?}");
        }
        for start in (0..rmat.vertices()).step_by(3) {
            let found = graph.frontiers(start, HOPS, direction).expect("a search");
            assert_eq!(found, reference.frontiers(start, HOPS, direction), "{what}: from {start}, {direction:?}");
        }
        for count in [0, 1, 7, 10_000] {
            let found = graph.top_by_degree(0..rmat.vertices(), count, direction).expect("a ranking");
            assert_eq!(found, reference.top(count, direction), "{what}: the first {count}, {direction:?}");
        }
    }
}

#[test]
fn every_store_gives_what_the_reference_gives() {
    for seed in 1..=3 {
        let rmat = Rmat { scale: 7, edge_factor: 4, seed };
        agrees(InMemory::default(), rmat, &format!("memory, seed {seed}"));
        for engine in [Engine::Hash, Engine::Slab] {
            let place = tempfile::tempdir().expect("a directory");
            agrees(store(engine, &place), rmat, &format!("{}, seed {seed}", engine.name()));
        }
    }
}

#[test]
fn a_search_leaves_the_first_vertex_and_stops_after_its_hops() {
    let mut graph = Graph::new(InMemory::default());
    for (from, to) in [(1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (1, 70), (70, 3), (5, 1)] {
        assert!(graph.add_edge(from, to, b"").expect("an edge"));
    }
    assert_eq!(graph.frontiers(1, HOPS, Direction::Out).expect("a search"), [1, 2, 1, 1, 1]);
    assert_eq!(graph.frontiers(1, 0, Direction::Out).expect("a search"), [1]);
    assert_eq!(graph.frontiers(1, 100, Direction::Out).expect("a search"), [1, 2, 1, 1, 1, 1]);
    assert_eq!(graph.frontiers(3, 1, Direction::In).expect("a search"), [1, 2]);
    assert_eq!(graph.frontiers(99, HOPS, Direction::Out).expect("a search"), [1], "nobody knows it");
}

#[test]
fn vertices_and_edges_keep_their_properties() {
    let place = tempfile::tempdir().expect("a directory");
    let store = store(Engine::Hash, &place);
    let mut graph = Graph::new(store.clone());
    graph.put_vertex(7, b"Ada").expect("a vertex");
    assert!(graph.add_edge(7, 7, b"first").expect("a loop"));
    assert!(!graph.add_edge(7, 7, b"second").expect("the same loop"));
    assert_eq!(graph.vertex(7).expect("a read").as_deref(), Some(&b"Ada"[..]));
    assert_eq!(graph.vertex(8).expect("a read"), None);
    for seen_from in [Direction::Out, Direction::In] {
        assert_eq!(graph.edge(7, 7, seen_from).expect("a read").as_deref(), Some(&b"second"[..]));
        assert_eq!(graph.neighbours(7, seen_from).expect("a list").iter().collect::<Vec<_>>(), [7]);
    }
    store.put(list_key(7, Direction::Out), b"12345").expect("a put");
    let told = graph.neighbours(7, Direction::Out).expect_err("not a list").to_string();
    assert!(told.contains("vertex 7 has 5 bytes"), "{told}");
    assert!(graph.add_edge(7, 8, b"").is_err() && graph.edge(7, 8, Direction::Out).expect("a read").is_none());
}

#[test]
fn degrees_of_rmat_are_far_from_equal_and_a_seed_gives_one_graph() {
    let rmat = Rmat { scale: 12, edge_factor: 16, seed: 5 };
    assert_eq!((rmat.edges(), rmat.iter().count()), (65_536, 65_536));
    assert!(rmat.iter().eq(rmat.iter()));
    assert!(!rmat.iter().eq(Rmat { seed: 6, ..rmat }.iter()));
    let mut degrees = vec![0u32; 4096];
    rmat.iter().for_each(|(from, _)| degrees[from as usize] += 1);
    let highest = (0u32..).zip(&degrees).max_by_key(|(_, degree)| **degree).expect("a vertex");
    // By the odds, the first vertex has 0.76^12 = 3.7 % of all edges: 2432 expected. It is not
    // vertex 0 any more.
    assert!((2200..2700).contains(highest.1) && highest.0 != 0, "{highest:?}");
    degrees.sort_unstable_by_key(|degree| Reverse(*degree));
    let tenth: u32 = degrees.iter().take(410).sum();
    assert!(tenth > 65_536 / 2, "the tenth with most edges has {tenth}");
    assert_eq!(degrees.iter().sum::<u32>(), 65_536);
}

#[test]
fn lists_of_edges_are_read_and_a_bad_line_is_named() {
    let text = "# Directed graph\r\n# FromNodeId\tToNodeId\r\n0\t1\r\n\n4294967295 0\n";
    let edges: Result<Vec<_>, _> = edges_of_snap(text.as_bytes()).collect();
    assert_eq!(edges.expect("edges"), [(0, 1), (Vertex::MAX, 0)]);
    for bad in ["1", "1 2 3", "1 -2", "1 4294967296", "a b", "\u{fffd}"] {
        let text = format!("0 1\n# fine\n{bad}\n5 6\n");
        let read: Vec<_> = edges_of_snap(text.as_bytes()).collect();
        assert_eq!(read.len(), 2, "nothing follows a bad line");
        let told = read[1].as_ref().expect_err(bad).to_string();
        assert!(told.contains("line 3 is no edge"), "{told}");
    }
    assert!(edges_of_snap(&b"\xff\xff 1\n"[..]).all(|edge| edge.is_err()));
}

/// As `dpkg` writes it, shortened.
const STATUS: &str = include_str!("packages.sample");

#[test]
fn packages_depend_on_packages() {
    let packages = Packages::read(STATUS.as_bytes()).expect("packages");
    let named = |from: &str, to: &str| {
        let (from, to) = (packages.vertex(from).expect(from), packages.vertex(to).expect(to));
        packages.edges.iter().filter(|edge| **edge == (from, to)).count()
    };
    assert_eq!(named("adduser", "passwd"), 1);
    assert_eq!((named("dpkg", "tar"), named("dpkg", "libc6")), (1, 1), "a version, and Pre-Depends");
    assert_eq!(named("debconf", "debconf-2.0"), 0, "Provides is no dependency");
    assert_eq!(
        (named("passwd", "debconf"), named("passwd", "debconf-2.0")),
        (1, 1),
        "alternatives, on a line of its own"
    );
    assert_eq!(packages.vertex("perl"), None, "Suggests is no dependency");
    assert_eq!(packages.names.len(), packages.names.iter().collect::<BTreeSet<_>>().len());
    let reference = Reference::of(packages.edges.iter().copied());
    let mut graph = Graph::new(InMemory::default());
    for (from, to) in &packages.edges {
        graph.add_edge(*from, *to, b"").expect("an edge");
    }
    let start = packages.vertex("adduser").expect("adduser");
    let found = graph.frontiers(start, HOPS, Direction::Out).expect("a search");
    assert_eq!(found, reference.frontiers(start, HOPS, Direction::Out));
    assert!(found.len() > 2, "adduser needs passwd, which needs others: {found:?}");
    let told = Packages::read(&b"neither\nnor\n"[..]).expect_err("no packages").to_string();
    assert!(told.contains("/var/lib/dpkg/status"), "{told}");
}

#[test]
fn the_workload_finds_the_same_in_every_store() {
    let source = GraphSource::Rmat(Rmat { scale: 8, edge_factor: 8, seed: 2 });
    let options = GraphOptions { source, searches: 3, top: 5, seed: 2 };
    let (phases, facts) = run_graph(InMemory::default(), "memory", &options).expect("a run");
    assert_eq!((facts.vertices, facts.edges_offered, facts.top.len()), (256, 2048, 5));
    assert!(facts.frontiers.iter().all(|sizes| sizes.len() > 2), "{:?}", facts.frontiers);
    let operations: Vec<(&str, u64)> = phases.iter().map(|one| (one.phase.as_str(), one.operations)).collect();
    // A list is read for every vertex reached but those of the last hop.
    let read = facts.frontiers.iter().map(|sizes| sizes.iter().take(HOPS).sum::<u64>()).sum();
    let expected = [("graph vertices", 256), ("graph edges", 2048), ("graph search 4 hops", read)];
    assert_eq!(operations[..3], expected);
    assert_eq!(operations[3], ("graph top by degree", 256));
    for engine in [Engine::Hash, Engine::Slab] {
        let place = tempfile::tempdir().expect("a directory");
        let found = run_graph(store(engine, &place), engine.name(), &options).expect("a run").1;
        assert_eq!(found, facts, "{}", engine.name());
    }
}
