//! `cargo xtask compare --veth`: AF_XDP beside the kernel's TCP, over a cable in memory.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use stratakv_base::quantity::parse_bytes;
use stratakv_integration::arguments::{answer, named};
use stratakv_integration::ukv::Mix;
use stratakv_integration::veth::{Contender, Plan, run, table};

const USAGE: &str = "\
usage: cargo xtask compare --veth [--short] [--servers xdp,uring,memcached,redis] [--mixes get,set] [--values 1K,4K,16K,64K]
             [--connections 1,16,64,256] [--pipelines 1,16] [--rounds 3] [--ms 500] [--warm-up-ms 100] [--memory 256M]
             [--cores 0,1] [--steer on|off] [--mtu 1500] [--data DIR] [--seed 1] [--out DIR]

Makes two network namespaces with a veth cable between them, starts each server in turn in one of them on the first of --cores, with
one thread, and loads it from the other on the second. `xdp` is ours on AF_XDP, `uring` ours on the kernel's TCP; all keep their
records in memory. --steer on: each end's frames are received on the core of that end, so that what the kernel does for a server
counts as the server's. Medians of the rounds go to stdout as Markdown, with --out to DIR/veth.md too, and every round to
DIR/veth.json. Server and load run before other programs of the machine (SCHED_FIFO). Needs root, `ip`, `ethtool` and `chrt`. --short is a smoke run, in less than a minute.
";

struct Arguments {
    plan: Plan,
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    answer("compare --veth", USAGE, |words| arguments(words).and_then(|arguments| compare(&arguments)))
}

fn list<T>(text: &str, one: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    text.split(',').map(one).collect()
}

fn count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

fn arguments(words: &[String]) -> Result<Arguments, String> {
    let (mut plan, mut out) = (Plan::default(), None);
    if words.iter().any(|word| word == "--short") {
        plan.shorten();
    }
    let words: Vec<&String> = words.iter().filter(|word| !["--short", "--veth"].contains(&word.as_str())).collect();
    for pair in words.chunks(2) {
        let [word, value] = pair else { return Err(format!("{} needs a value\n\n{USAGE}", pair[0])) };
        let in_word = |why: String| format!("{word}: {why}");
        let number = || count(value).map_err(in_word);
        match word.as_str() {
            "--servers" => plan.contenders = named(value, &Contender::ALL, Contender::name).map_err(in_word)?,
            "--mixes" => plan.mixes = named(value, &[Mix::Get, Mix::Set], Mix::name).map_err(in_word)?,
            "--values" => {
                plan.value_bytes = list(value, |one| parse_bytes(one).map(|bytes| bytes as usize)).map_err(in_word)?;
            }
            "--connections" => plan.connections = list(value, count).map_err(in_word)?,
            "--pipelines" => plan.pipelines = list(value, count).map_err(in_word)?,
            "--rounds" => plan.rounds = number()? as u32,
            "--ms" => plan.duration = Duration::from_millis(number()? as u64),
            "--warm-up-ms" => plan.warm_up = Duration::from_millis(number()? as u64),
            "--memory" => plan.memory_bytes = parse_bytes(value).map_err(in_word)?,
            "--cores" => match list(value, count).map_err(in_word)?[..] {
                [server, load] => plan.cores = (server, load),
                _ => return Err(in_word("two numbers, such as 0,1".into())),
            },
            "--steer" => plan.is_steered = named(value, &[true, false], |on| if on { "on" } else { "off" })? == [true],
            "--mtu" => plan.mtu = number()? as u32,
            "--data" => plan.place = value.into(),
            "--seed" => plan.seed = number()? as u64,
            "--out" => out = Some(value.into()),
            _ => return Err(format!("unknown option `{word}`\n\n{USAGE}")),
        }
    }
    plan.check()?;
    Ok(Arguments { plan, out })
}

fn compare(Arguments { plan, out }: &Arguments) -> Result<(), String> {
    let cannot = |what: &str, error: std::io::Error| format!("cannot make {what}: {error}");
    let (started, mut failed) = (Instant::now(), 0);
    let all = run(plan, &mut |noted| match noted {
        Ok(one) => eprintln!(
            "{:>5.0} s  round {}, {} {} B, {} x {}: {} {:.0}/s, p95 {:.0} us, CPU {:.2} us, core {:.2} us, generator {:.0} %",
            started.elapsed().as_secs_f64(),
            one.round,
            one.setting.mix.name(),
            one.setting.value_bytes,
            one.setting.connections,
            one.setting.pipeline,
            one.contender.name(),
            one.report.operations_per_s,
            one.report.latency_us_p95,
            one.process_us,
            one.core_us,
            one.report.generator_cpu * 100.0
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
        std::fs::write(out.join("veth.md"), &text).map_err(|error| cannot("veth.md", error))?;
        std::fs::write(out.join("veth.json"), table::json(&all).to_string())
            .map_err(|error| cannot("veth.json", error))?;
    }
    match failed {
        0 => Ok(()),
        _ => Err(format!("{failed} servers could not be measured; what was left out stands above")),
    }
}

/// How it was measured.
fn said(plan: &Plan) -> String {
    let steered = match plan.is_steered {
        true => "each end's frames are received on its own core",
        false => "frames are received on the core that sent them",
    };
    format!(
        "Server on core {} with one thread, load generator on core {}, veth with an MTU of {}, {steered}; {} rounds in turn, medians; \
         {} ms after {} ms of warm-up, uniform, seed {}. In each cell: requests/s, p95, processor time for each request: that of the \
         server's process with the kernel's work on its account (and of the threads that receive for AF_XDP), in brackets all that the \
         core was not idle, whoever used it. Latency is from a batch's handing over to each answer.\n",
        plan.cores.0,
        plan.cores.1,
        plan.mtu,
        plan.rounds,
        plan.duration.as_millis(),
        plan.warm_up.as_millis(),
        plan.seed,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_told_apart() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let good = "--veth --servers xdp,redis --mixes set --values 1K,64K --connections 1,9 --steer off --cores 1,0";
        let Arguments { plan, .. } = arguments(&words(good)).expect("good");
        assert_eq!((plan.contenders, plan.mixes), (vec![Contender::Xdp, Contender::Redis], vec![Mix::Set]));
        assert_eq!((plan.value_bytes, plan.connections), (vec![1 << 10, 64 << 10], vec![1, 9]));
        assert_eq!((plan.is_steered, plan.cores), (false, (1, 0)));
        // What is said beside it wins over what --short says.
        let Arguments { plan, .. } = arguments(&words("--rounds 5 --short")).expect("good");
        assert_eq!((plan.rounds, plan.value_bytes.len()), (5, 2));
        for bad in [
            "--rounds",
            "--rounds x",
            "--servers none",
            "--mixes mixed",
            "--cores 0",
            "--cores 0,0",
            "--steer x",
            "--mtu 1",
            "--what 1",
        ] {
            assert!(arguments(&words(bad)).is_err(), "{bad}");
        }
    }
}
