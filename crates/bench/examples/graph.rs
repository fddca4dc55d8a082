//! A graph of friends in a store, by the library's public interface:
//! `cargo run -p stratakv-bench --example graph`.
//!
//! How vertices, edges and lists of neighbours become keys and values is in
//! `stratakv_bench::graph`; this is what using it looks like.
#![expect(clippy::print_stdout, reason = "an example shows what it finds")]

use stratakv::{Engine, Level, Options};
use stratakv_bench::BenchError;
use stratakv_bench::graph::{Direction, Graph, Rmat};

const NAMES: [&str; 5] = ["Ada", "Grace", "Edsger", "Barbara", "Tony"];

fn main() -> Result<(), BenchError> {
    let directory = std::env::temp_dir().join(format!("stratakv-graph-{}", std::process::id()));
    // Hash tables suit graphs: everything is asked for by its key. A disk does too: `Engine::Slab`,
    // and no region.
    let options = Options::new().engine(Engine::Hash).region_bytes(64 << 20).level(Level::ProcessCrash);
    let store = options.open(&directory)?;

    let mut friends = Graph::new(store.clone());
    for (vertex, name) in (0..).zip(NAMES) {
        friends.put_vertex(vertex, name.as_bytes())?;
    }
    for (from, to, since) in [(0, 1, "1843"), (1, 2, "1952"), (2, 3, "1959"), (2, 4, "1960"), (0, 2, "1968")] {
        // Both ends know the edge from then on, or neither: it is one batch.
        friends.add_edge(from, to, since.as_bytes())?;
    }
    for neighbour in friends.neighbours(2, Direction::Out)?.iter() {
        let name = friends.vertex(neighbour)?.unwrap_or_default();
        let since = friends.edge(2, neighbour, Direction::Out)?.unwrap_or_default();
        println!("Edsger knows {} since {}", name.escape_ascii(), since.escape_ascii());
    }
    println!("from Ada, after 0, 1, 2 edges: {:?} people", friends.frontiers(0, 2, Direction::Out)?);

    // A larger one, whose degrees follow a power law. Its numbers are others than those of the
    // friends, so that both fit into one store.
    let rmat = Rmat { scale: 12, edge_factor: 8, seed: 1 };
    let mut drawn = Graph::new(store.clone());
    for (from, to) in rmat {
        drawn.add_edge(1000 + from, 1000 + to, b"")?;
    }
    for ranked in drawn.top_by_degree(1000..1000 + rmat.vertices(), 3, Direction::Out)? {
        let reached = drawn.frontiers(ranked.vertex.0, 4, Direction::Out)?;
        println!(
            "vertex {} has {} neighbours, and reaches {reached:?} within four edges",
            ranked.vertex.0, ranked.degree
        );
    }
    store.close()?;
    Ok(std::fs::remove_dir_all(&directory)?)
}
