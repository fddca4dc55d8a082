//! `cargo xtask lab`: power cuts and I/O errors under a real kernel, in QEMU. As process 1 of a
//! machine it is the guest.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use stratakv_integration::lab::bypass::{Driver, StoreKind};
use stratakv_integration::lab::host::{Plan, Tally, run};
use stratakv_integration::lab::machine::{self, Machine};
use stratakv_integration::lab::{bypass, counts, guest, numa, pmem};
use stratakv_integration::program;

const USAGE: &str = "\
usage: lab [--boots 2] [--prefixes 200] [--seed 1] [--steps 60] [--short] [--break no-flush|no-fua]
       lab --pmem [--kills 2] [--seed 1]
       lab --bypass [--short] [--prefixes 200] [--seed 1] [--break no-flush|no-fua]
       lab --raw, lab --passthrough, lab --serve, as --bypass
       lab --counts [--requests 3000]

Boots QEMU with an NVMe whose writes and flushes are logged, writes to a store there from 20 lanes, cuts the power at so many places of the
log, lets file system and store recover, and compares with what was acknowledged. Boots take turns with io_uring and blocking I/O; a last
one has I/O errors. --short: one boot, and that last one. --break: the two flushes before a cut, or FUA, count as if they had not been;
the oracle must find out. --pmem: regions of engine hash on emulated persistent memory (a DAX file, a devdax
device); the machine is killed while it writes, so many times, and boots again; what `stratakv doctor` says there is compared with the
machine it runs on. Then one with two nodes, a region on both: what a thread writes lies on its node, after a kill too.
--bypass: controllers behind an IOMMU, driven by this process through VFIO: registers, requests, a reset, a kill, then power cuts of stores on
them, I/O errors, and doctor, bind, serve, kill, give back, check; last, servers with clients over AF_XDP, pulled cables, kills, a reset.
--serve: these servers only. --counts: instructions, system calls, doorbells and interrupts of a request, with the kernel's drivers and without;
build it with --release. --raw: such stores on raw devices of the kernel's driver. --passthrough: the same by NVMe
commands through io_uring, after what every ring does and requests against an oracle. Skips, with one line, where QEMU and a kernel cannot be installed.
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if guest::is_guest(&words) {
        guest::main(&words);
    }
    if bypass::is_victim(&words) {
        return match bypass::victim(&words) {
            Ok(()) => ExitCode::SUCCESS,
            Err(message) => {
                eprintln!("victim: {message}");
                ExitCode::FAILURE
            }
        };
    }
    match arguments(&words).and_then(|(plan, harness)| lab(&plan, harness)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("lab: {message}");
            ExitCode::FAILURE
        }
    }
}

/// What is tested.
#[derive(Clone, Copy)]
enum Harness {
    /// Power cuts under the kernel's driver.
    Block,
    /// Persistent memory: so many kills.
    Pmem { kills: u32 },
    /// A store on a raw device that this driver has.
    Bypass { driver: Driver },
    /// Servers with both halves, and nothing else.
    Serve,
    /// What a request costs: so many of them.
    Counts { requests: u32 },
}

fn arguments(words: &[String]) -> Result<(Plan, Harness), String> {
    let (mut plan, mut harness) = (Plan::default(), Harness::Block);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--help" => {
                print!("{USAGE}");
                std::process::exit(0);
            }
            "--short" => plan.boots = 1,
            "--pmem" => harness = Harness::Pmem { kills: 2 },
            "--bypass" => harness = Harness::Bypass { driver: Driver::Here },
            "--passthrough" => harness = Harness::Bypass { driver: Driver::Passthrough },
            "--serve" => harness = Harness::Serve,
            "--counts" => harness = Harness::Counts { requests: 3000 },
            "--raw" => harness = Harness::Bypass { driver: Driver::Kernel },
            option => {
                let value = words.next().ok_or_else(|| format!("{option} needs a value\n\n{USAGE}"))?;
                let number = || value.parse::<u32>().map_err(|_| format!("{option} needs a number, not `{value}`"));
                match option {
                    "--boots" => plan.boots = number()?.max(1),
                    "--prefixes" => plan.prefixes = number()?,
                    "--steps" => plan.steps = number()?.max(1),
                    "--kills" => harness = Harness::Pmem { kills: number()?.max(1) },
                    "--requests" => harness = Harness::Counts { requests: number()?.max(400) },
                    "--seed" => plan.seed = u64::from(number()?),
                    "--break" if value == "no-flush" => plan.lies.flushes_ignored = 2,
                    "--break" if value == "no-fua" => plan.lies.ignores_fua = true,
                    other => return Err(format!("unknown option `{other} {value}`\n\n{USAGE}")),
                }
            }
        }
    }
    Ok((plan, harness))
}

fn lab(plan: &Plan, harness: Harness) -> Result<(), String> {
    let started = Instant::now();
    let cache = cache()?;
    let lock = File::create(cache.join("LOCK")).and_then(|file| file.lock().map(|()| file));
    let _one_at_a_time = lock.map_err(|error| format!("cannot lock {}: {error}", cache.display()))?;
    let mut programs = match harness {
        Harness::Pmem { .. } | Harness::Serve | Harness::Counts { .. } | Harness::Bypass { driver: Driver::Here } => {
            vec![program::binary().to_owned()]
        }
        Harness::Block | Harness::Bypass { .. } => vec![],
    };
    if matches!(harness, Harness::Serve | Harness::Counts { .. } | Harness::Bypass { driver: Driver::Here }) {
        match machine::network_tools() {
            Ok(tools) => programs.extend(tools),
            Err(why) => return skipped(&why),
        }
    }
    let machine = match Machine::prepare(&cache, &programs) {
        Ok(machine) => machine,
        Err(why) => return skipped(&why),
    };
    let report = &mut |line| println!("{:>4} s  {line}", started.elapsed().as_secs());
    if let Harness::Counts { requests } = harness {
        println!("{}", counts::run(&machine, &cache, counts::CountsPlan { requests, ..Default::default() }, report)?);
        return Ok(());
    }
    if let Harness::Pmem { kills } = harness {
        let tally = pmem::run(&machine, &cache, (kills, plan.seed), report)?;
        let nodes = numa::run(&machine, &cache, report)?;
        let (seconds, steps) = (started.elapsed().as_secs(), tally.acknowledged);
        println!("lab: {} kills, {steps} acknowledged steps compared, in {seconds} s; {}", tally.kills, tally.said);
        println!("lab: {nodes}");
        return Ok(());
    }
    let tallies = match harness {
        Harness::Bypass { driver } => {
            let first = bypass::run(&machine, &cache, plan, (driver, &bypass_kinds(plan)), report)?;
            let has_network = driver == Driver::Here && (first.lost == 0 || !plan.lies.is_honest());
            let second = has_network.then(|| bypass::serve(&machine, &cache, plan, plan.boots == 1, report));
            [Some(Ok(first)), second].into_iter().flatten().collect::<Result<Vec<Tally>, String>>()?
        }
        Harness::Serve => vec![bypass::serve(&machine, &cache, plan, plan.boots == 1, report)?],
        _ => vec![run(&machine, &cache, plan, report)?],
    };
    tallies.iter().try_for_each(|tally| judge(plan, tally, started, &cache))
}

fn skipped(why: &str) -> Result<(), String> {
    println!("skipped: no lab here: {why}");
    Ok(())
}

/// Says what was seen; the devices of a lab that is honest lose nothing, and others are found out.
fn judge(plan: &Plan, tally: &Tally, started: Instant, cache: &Path) -> Result<(), String> {
    println!(
        "lab: {} boots, {} writes ({} FUA), {} flushes, {} prefixes replayed, {} acknowledged writes checked, {} keys compared, \
         lost {}, in {} s",
        tally.boots,
        tally.writes,
        tally.fua,
        tally.flushes,
        tally.prefixes,
        tally.acknowledged,
        tally.compared,
        tally.lost,
        started.elapsed().as_secs()
    );
    match (plan.lies.is_honest(), tally.lost) {
        (true, 0) => Ok(()),
        (true, lost) => Err(format!(
            "{lost} power cuts lost something; log.img, mail.img and device.img are in {}",
            cache.display()
        )),
        (false, 0) => Err("a device that lies was not found out".into()),
        (false, lost) => {
            println!("lab: the device that lies was found out by {lost} of {} prefixes", tally.prefixes);
            Ok(())
        }
    }
}

/// With one boot, one kind of store; which one, the seed tells.
fn bypass_kinds(plan: &Plan) -> Vec<StoreKind> {
    let all = StoreKind::ALL;
    match plan.boots {
        1 => all.into_iter().cycle().skip(plan.seed as usize % all.len()).take(1).collect(),
        _ => all.to_vec(),
    }
}

/// `lab` in the build's target folder.
fn cache() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = program.ancestors().nth(2).ok_or("this program lies in no target folder")?;
    let cache = target.join("lab");
    std::fs::create_dir_all(&cache).map_err(|error| format!("cannot make {}: {error}", cache.display()))?;
    Ok(cache)
}
