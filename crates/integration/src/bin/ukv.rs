//! `cargo xtask compare --ukv`: the cache beside memcached, its extstore and Redis.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use stratakv_base::quantity::{format_bytes, parse_bytes};
use stratakv_bench::page::{of_served, render};
use stratakv_bench::suite::ukv::UkvReport;
use stratakv_integration::arguments::{answer, named};
use stratakv_integration::ukv::{Baseline, Case, Mix, Plan, run, table};

const USAGE: &str = "\
usage: cargo xtask compare --ukv [--short] [--servers tier,slab,memcached,extstore,redis] [--cases ram,ssd,depth,small,hits]
             [--mixes get,mixed,set] [--values 1K,4K,16K,64K,256K,1M] [--connections 32] [--pipeline 1]
             [--distribution uniform|zipfian] [--rounds 3] [--ms 1000] [--warm-up-ms 200] [--ram-memory 256M]
             [--ssd-memory 96M] [--ssd 2G] [--cores 0,1|0+1,1] [--data DIR] [--seed 1] [--out DIR] [--report FILE]

Starts each server in turn on the first of --cores, loads it and runs the mixes from the second. A server on several (0+1) has a
thread on each; the load generator may take one of them. `ram`: records of half of --ram-memory. `ssd`: records of five times
--ssd-memory, the page cache kept cold; servers without an SSD are left out. `depth`: gets of 4 KiB in memory from 1 to 256
connections, in batches of 1 and of 16. `small`: twice as many short records as --ram-memory holds, no SSD: how many are there.
`hits`: zipfian gets, what is missed is set, of records three times --ssd-memory and six times that of SSD: how many hit.
Medians of the rounds go to stdout as Markdown, with --out to DIR/ukv.md too, and every round to DIR/ukv.json. --report writes
one HTML file with plots and every number. --short is a smoke run, in less than a minute.
";

struct Arguments {
    plan: Plan,
    out: Option<PathBuf>,
    report: Option<PathBuf>,
}

fn main() -> ExitCode {
    answer("compare --ukv", USAGE, |words| arguments(words).and_then(|arguments| compare(&arguments)))
}

fn arguments(words: &[String]) -> Result<Arguments, String> {
    let (mut plan, mut out, mut report) = (Plan::default(), None, None);
    if words.iter().any(|word| word == "--short") {
        plan.shorten();
    }
    let words: Vec<&String> = words.iter().filter(|word| !["--short", "--ukv"].contains(&word.as_str())).collect();
    for pair in words.chunks(2) {
        let [word, value] = pair else { return Err(format!("{} needs a value\n\n{USAGE}", pair[0])) };
        let in_word = |why: String| format!("{word}: {why}");
        let number = || value.parse::<u64>().map_err(|_| format!("{word} needs a number, not `{value}`"));
        let bytes = || parse_bytes(value).map_err(|why| format!("{word}: {why}"));
        match word.as_str() {
            "--servers" => plan.rivals = named(value, &Baseline::ALL, Baseline::name).map_err(in_word)?,
            "--cases" => plan.cases = named(value, &Case::ALL, Case::name).map_err(in_word)?,
            "--mixes" => plan.mixes = named(value, &Mix::ALL, Mix::name).map_err(in_word)?,
            "--values" => {
                let lengths = value.split(',').map(|one| parse_bytes(one).map(|bytes| bytes as usize));
                plan.value_bytes = lengths.collect::<Result<_, _>>().map_err(|why| format!("{word}: {why}"))?;
            }
            "--connections" => plan.connections = number()? as usize,
            "--pipeline" => plan.pipeline = number()? as usize,
            "--distribution" => plan.distribution = value.parse().map_err(in_word)?,
            "--rounds" => plan.rounds = number()? as u32,
            "--ms" => plan.duration = Duration::from_millis(number()?),
            "--warm-up-ms" => plan.warm_up = Duration::from_millis(number()?),
            "--ram-memory" => plan.ram_memory_bytes = bytes()?,
            "--ssd-memory" => plan.ssd_memory_bytes = bytes()?,
            "--ssd" => plan.ssd_bytes = bytes()?,
            "--cores" => {
                let cores = value.split_once(',').and_then(|(server, load)| {
                    let server = server.split('+').map(|core| core.parse().ok()).collect::<Option<_>>()?;
                    Some((server, load.parse().ok()?))
                });
                (plan.server_cores, plan.load_core) =
                    cores.ok_or_else(|| in_word("numbers, such as 0,1, or 0+1,1".into()))?;
            }
            "--data" => plan.place = value.into(),
            "--seed" => plan.seed = number()?,
            "--out" => out = Some(value.into()),
            "--report" => report = Some(value.into()),
            _ => return Err(format!("unknown option `{word}`\n\n{USAGE}")),
        }
    }
    plan.check()?;
    Ok(Arguments { plan, out, report })
}

fn compare(Arguments { plan, out, report }: &Arguments) -> Result<(), String> {
    let cannot = |what: &str, error: std::io::Error| format!("cannot make {what}: {error}");
    if let Some(path) = report {
        // Before anything is measured.
        std::fs::File::options()
            .append(true)
            .create(true)
            .open(path)
            .map_err(|error| cannot("the file of --report", error))?;
    }
    let here = UkvReport::here("The cache beside memcached, its extstore and Redis", &plan.place);
    let (started, mut failed) = (Instant::now(), 0);
    let all = run(plan, &mut |noted| match noted {
        Ok(one) => eprintln!(
            "{:>5.0} s  round {}, {} {} {} B, {} x {}: {} {:.0}/s",
            started.elapsed().as_secs_f64(),
            one.round,
            one.setting.case.name(),
            one.setting.mix.name(),
            one.setting.value_bytes,
            one.setting.connections,
            one.setting.pipeline,
            one.baseline.name(),
            one.report.operations_per_s
        ),
        Err(why) => {
            failed += 1;
            eprintln!("{:>5.0} s  left out: {why}", started.elapsed().as_secs_f64());
        }
    })?;
    // Only if it is empty: it may be somebody's.
    let _ = std::fs::remove_dir(&plan.place);
    let text = format!("{}\n{}", said(plan), table::markdown(&all));
    println!("{text}");
    if let Some(out) = out {
        std::fs::create_dir_all(out).map_err(|error| cannot("the directory of --out", error))?;
        std::fs::write(out.join("ukv.md"), &text).map_err(|error| cannot("ukv.md", error))?;
        std::fs::write(out.join("ukv.json"), table::json(&all).to_string())
            .map_err(|error| cannot("ukv.json", error))?;
    }
    if let Some(path) = report {
        let page = of_served(&table::report(plan, &all, here), &table::OURS).map_err(|error| error.to_string())?;
        std::fs::write(path, render(&page)).map_err(|error| cannot("the report", error))?;
    }
    match failed {
        0 => Ok(()),
        _ => Err(format!("{failed} servers could not be measured; what was left out stands above")),
    }
}

/// How it was measured.
fn said(plan: &Plan) -> String {
    let bytes = |bytes| format_bytes(bytes);
    format!(
        "Server on core {} with a thread on each, load generator on core {}, loopback, {} rounds in turn, medians; {} ms after {} ms of warm-up, {:?}, seed {}. \
         `ram`: {} of memory, records of half of it. `ssd`: {} of memory, {} of SSD, records of five times the memory; the kernel's pages of the \
         server's files are dropped before each run and ten times a second. Ours are read and written with O_DIRECT; `slab` acknowledges at power_loss, \
         the others from memory. extstore has 4 threads for its file. Latency is from a batch's handing over to each answer.\n",
        plan.server_cores.iter().map(usize::to_string).collect::<Vec<_>>().join(" and "),
        plan.load_core,
        plan.rounds,
        plan.duration.as_millis(),
        plan.warm_up.as_millis(),
        plan.distribution,
        plan.seed,
        bytes(plan.ram_memory_bytes),
        bytes(plan.ssd_memory_bytes),
        bytes(plan.ssd_bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_told_apart() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let good = "--ukv --servers tier,redis --cases ssd --mixes set,get --values 1K,1M --rounds 2 --ms 50 --out x --report y";
        let Arguments { plan, out, report } = arguments(&words(good)).expect("good");
        assert_eq!((plan.rivals, plan.cases), (vec![Baseline::Tier, Baseline::Redis], vec![Case::Ssd]));
        assert_eq!((plan.mixes, plan.value_bytes), (vec![Mix::Set, Mix::Get], vec![1 << 10, 1 << 20]));
        assert_eq!((plan.rounds, plan.duration, out), (2, Duration::from_millis(50), Some("x".into())));
        assert_eq!(report, Some("y".into()));
        let Arguments { plan, .. } = arguments(&words("--cores 0+1,1")).expect("good");
        assert_eq!((plan.server_cores, plan.load_core), (vec![0, 1], 1));
        // What is said beside it wins over what --short says.
        let Arguments { plan, .. } = arguments(&words("--rounds 5 --short --ssd-memory 100M")).expect("good");
        assert_eq!((plan.rounds, plan.ssd_memory_bytes, plan.value_bytes.len()), (5, 100 << 20, 2));
        for bad in [
            "--rounds",
            "--rounds x",
            "--servers none",
            "--cases ram,",
            "--values 2M",
            "--cores 0",
            "--cores 0,0",
            "--cores 0+,1",
            "--cores 1+1,1",
            "--ssd 1M",
            "--ram-memory 1M",
            "--what 1",
        ] {
            assert!(arguments(&words(bad)).is_err(), "{bad}");
        }
    }
}
