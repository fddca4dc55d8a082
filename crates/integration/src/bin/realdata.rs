//! `cargo xtask realdata`: every package that apt knows, through the command line and through
//! memcache.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use stratakv_integration::arguments::answer;
use stratakv_integration::{packages, place, realdata};

const USAGE: &str = "\
usage: realdata [--io auto|io_uring|blocking] [--durability power_loss|process_crash]

Needs `apt-cache` with its lists (apt-get update). Every stanza of `apt-cache dumpavail` becomes a record.
";

fn main() -> ExitCode {
    answer("realdata", USAGE, run)
}

fn run(options: &[String]) -> Result<(), String> {
    let started = Instant::now();
    let packages = packages::read(Path::new("apt-cache"))?;
    let bytes: usize = packages.values().map(Vec::len).sum();
    println!("{} packages, {bytes} bytes of values", packages.len());
    let place = place::directory();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    realdata::run(place.path(), &packages, &options, &mut |step| {
        println!("{:>8.1} s  {step}", started.elapsed().as_secs_f64())
    })
}
