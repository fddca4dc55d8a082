//! Seeds from a list: what the gate runs, the same in every run.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use stratakv_integration::probes;
use stratakv_integration::sim::matrix::MatrixEngine;
use stratakv_integration::sim::{Discarding, PackedEngine, Search, SlabEngine, search};
use stratakv_integration::world::{Medium, On, RunSeed, by_name};
use stratakv_sim::machine::Engine;
use stratakv_sim::nvme::Driven;

use crate::worlds;

/// Seeds of one world.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    world: String,
    from: u64,
    seeds: u64,
}

/// Runs every seed of a list; stops at the first line with one that fails.
///
/// # Errors
/// The line, the seed, and what went wrong.
pub fn run(file: &Path, threads: usize) -> Result<(), String> {
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let lines = parse(&text)?;
    if lines.is_empty() {
        return Err(format!("{} lists no seeds", file.display()));
    }
    for Listed { world, from, seeds } in lines {
        let started = Instant::now();
        let limits = Search { from, seeds, time: Duration::MAX, threads };
        let outcome = match world.as_str() {
            "in_place" => engine(&SlabEngine, &limits),
            "packed" => engine(&PackedEngine, &limits),
            "matrix" => engine(&MatrixEngine, &limits),
            "discards" => engine(&Discarding(SlabEngine), &limits),
            "discards_packed" => engine(&Discarding(PackedEngine), &limits),
            "nvme" => engine(&Driven(SlabEngine), &limits),
            "nvme_packed" => engine(&Driven(PackedEngine), &limits),
            "nvme_matrix" => engine(&Driven(MatrixEngine), &limits),
            _ => {
                named(&world).map_or_else(|| Err(format!("there is no world `{world}`")), |world| whole(world, &limits))
            }
        };
        outcome.map_err(|why| format!("{world}, {seeds} seeds from {from}: {why}"))?;
        println!(
            "{world:<16} {seeds:>6} seeds from {from:<12} nothing lost {:>8.1} s",
            started.elapsed().as_secs_f64()
        );
    }
    reached()
}

/// Tells how often the states were reached that seeds have to reach.
///
/// # Errors
/// One was not: the generators have a hole there.
fn reached() -> Result<(), String> {
    let (counts, missed) = probes::counts();
    if !cfg!(debug_assertions) {
        println!("built without probes: nobody knows which rare states were reached");
        return Ok(());
    }
    counts.iter().for_each(|(name, times)| println!("{times:>10} times {name}"));
    match missed.is_empty() {
        true => Ok(()),
        false => Err(format!("no seed of the list comes to: {}", missed.join("; "))),
    }
}

fn named(world: &str) -> Option<RunSeed> {
    match world {
        "store_on_matrix" => by_name("store", Some(On::Matrix), Medium::Kernel),
        world => match world.strip_prefix("nvme_") {
            Some(driven) => by_name(driven, None, Medium::Nvme),
            None => by_name(world, None, Medium::Kernel),
        },
    }
}

fn engine<E: Engine + Sync>(engine: &E, limits: &Search) -> Result<(), String> {
    let (_, failure) = search(engine, limits, &|_, _| {});
    failure.map_or(Ok(()), |failure| Err(format!("seed {} failed: {}", failure.seed, failure.why)))
}

fn whole(world: RunSeed, limits: &Search) -> Result<(), String> {
    let found = worlds::search(world, limits, &[], &|_, _| {});
    found.failure.map_or(Ok(()), |(seed, why)| Err(format!("seed {seed} failed: {why}")))
}

fn parse(text: &str) -> Result<Vec<Listed>, String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let line = |line: &str| {
        let wrong = || format!("`{line}` is no line of WORLD FROM SEEDS");
        let [world, from, seeds] = line.split_whitespace().collect::<Vec<_>>()[..] else { return Err(wrong()) };
        let number = |word: &str| word.replace('_', "").parse::<u64>().map_err(|_| wrong());
        Ok(Listed { world: world.to_owned(), from: number(from)?, seeds: number(seeds)? })
    };
    lines.filter(|line| !line.is_empty()).map(line).collect()
}

/// Reads `A..B,C..D`.
pub fn ranges(text: &str) -> Result<Vec<Range<u64>>, String> {
    let range = |word: &str| {
        let (start, end) = word.split_once("..")?;
        Some(start.parse().ok()?..end.parse().ok()?)
    };
    let ranges = text.split(',').map(|word| range(word).ok_or_else(|| format!("`{word}` is no range A..B of events")));
    ranges.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_line_by_line() {
        let text = "# seeds\nin_place 0 400 # the first ones\n\ntier 600_004_178 1\n";
        let listed = |world: &str, from, seeds| Listed { world: world.into(), from, seeds };
        assert_eq!(parse(text), Ok(vec![listed("in_place", 0, 400), listed("tier", 600_004_178, 1)]));
        assert!(parse("in_place 0").is_err() && parse("in_place x 1").is_err());
    }

    #[test]
    fn the_gate_lists_every_world() {
        let lines = parse(include_str!("../../../seeds/gate.txt")).expect("it can be read");
        for world in [
            "in_place",
            "packed",
            "matrix",
            "nvme",
            "nvme_packed",
            "nvme_matrix",
            "tier",
            "store",
            "breaking",
            "store_on_matrix",
            "server",
            "breaking_server",
            "library",
            "pipelined",
        ] {
            assert!(lines.iter().any(|line| line.world == world && line.seeds >= 100), "too little of {world}");
        }
    }

    #[test]
    fn ranges_are_read() {
        assert_eq!(ranges("0..17,18..63"), Ok(vec![0..17, 18..63]));
        assert!(ranges("17").is_err());
    }
}
