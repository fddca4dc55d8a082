//! Graphs whose degrees follow a power law, from a seed.

use stratakv_base::random::Random;

use super::Vertex;

/// R-MAT (Chakrabarti, Zhan, Faloutsos: "R-MAT: A Recursive Model for Graph Mining", SDM 2004): the
/// matrix of edges is halved both ways again and again, and an edge falls into a quarter by fixed
/// odds, which are here those of the Graph 500 benchmark. Numbers of vertices are then shuffled,
/// else the lowest would have the most edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rmat {
    /// 2 to this power vertices, 1 to 31.
    pub scale: u32,
    /// So many edges for each vertex; repeated edges and loops are counted.
    pub edge_factor: u64,
    /// Seed of edges and numbers.
    pub seed: u64,
}

/// Of 100 edges, so many are from the lower half of the vertices to the lower, to the upper; from
/// the upper to the lower. The rest: 5.
const QUARTERS_PERCENT: [u64; 3] = [57, 19, 19];

impl Rmat {
    /// Number of vertices, edges or not.
    pub fn vertices(self) -> Vertex {
        1 << self.scale.clamp(1, 31)
    }

    /// Number of edges, repeated ones counted.
    pub fn edges(self) -> u64 {
        u64::from(self.vertices()) * self.edge_factor
    }

    /// The edges, one at a time.
    pub fn iter(self) -> Edges {
        Edges { rmat: self, left: self.edges(), random: Random::new(self.seed) }
    }

    /// One to one on the numbers of vertices: each step has an inverse modulo a power of two.
    fn shuffled(self, vertex: Vertex) -> Vertex {
        let mask = self.vertices() - 1;
        let half = self.scale.clamp(1, 31).div_ceil(2);
        let mut mixed = vertex;
        for factor in [0x9E37_79B1, 0x85EB_CA6B, 0xC2B2_AE35] {
            mixed = mixed.wrapping_mul(factor).wrapping_add(self.seed as Vertex) & mask;
            mixed ^= mixed >> half;
        }
        mixed
    }
}

impl IntoIterator for Rmat {
    type Item = (Vertex, Vertex);
    type IntoIter = Edges;
    fn into_iter(self) -> Edges {
        self.iter()
    }
}

/// Edges of a [`Rmat`] in the order drawn.
#[derive(Clone, Debug)]
pub struct Edges {
    rmat: Rmat,
    left: u64,
    random: Random,
}

impl Iterator for Edges {
    type Item = (Vertex, Vertex);

    fn next(&mut self) -> Option<(Vertex, Vertex)> {
        self.left = self.left.checked_sub(1)?;
        let (mut from, mut to): (Vertex, Vertex) = (0, 0);
        for _ in 0..self.rmat.scale.clamp(1, 31) {
            let draw = self.random.below(100);
            let [low_low, low_high, high_low] = QUARTERS_PERCENT;
            let (down, right) = match draw {
                _ if draw < low_low => (0, 0),
                _ if draw < low_low + low_high => (0, 1),
                _ if draw < low_low + low_high + high_low => (1, 0),
                _ => (1, 1),
            };
            (from, to) = (from << 1 | down, to << 1 | right);
        }
        Some((self.rmat.shuffled(from), self.rmat.shuffled(to)))
    }
}
