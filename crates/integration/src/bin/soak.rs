//! `cargo xtask soak`: a store kept at a fill for minutes.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::process::ExitCode;

use stratakv::Placement;
use stratakv_base::quantity::{format_bytes, parse_bytes};
use stratakv_integration::arguments::answer;
use stratakv_integration::soak::{Minute, Plan, run};

const USAGE: &str = "\
usage: soak [--fill 0.85] [--minutes 10] [--seconds N] [--interval 60] [--placement packed] [--capacity 4G] [--memory 256M]
            [--values 16:1M] [--seed 1] [--data ./stratakv-soak]

Keeps a new store at a fill: values of random lengths (as many of each octave), overwritten, deleted, expiring and read back, each read
compared; 64 in flight, durability power_loss. At the end every key is read. A line for each interval; the store is removed.
Fails if a value is not what was written last.
";

fn main() -> ExitCode {
    answer("soak", USAGE, soak)
}

fn soak(words: &[String]) -> Result<(), String> {
    let mut plan = Plan {
        placement: Placement::Packed,
        fill: 0.85,
        capacity_bytes: 4 << 30,
        memory_bytes: 256 << 20,
        seconds: 600,
        interval_s: 60,
        seed: 1,
        value_bytes: (16, 1 << 20),
    };
    let mut data = "./stratakv-soak".to_owned();
    for pair in words.chunks(2) {
        let [option, value] = pair else { return Err(format!("{} needs a value\n\n{USAGE}", pair[0])) };
        let number = || value.parse::<u64>().map_err(|_| format!("{option} needs a number, not `{value}`"));
        match option.as_str() {
            "--fill" => {
                plan.fill =
                    value.parse().ok().filter(|fill| (0.05..=0.99).contains(fill)).ok_or("--fill: 0.05 to 0.99")?;
            }
            "--minutes" => plan.seconds = number()?.max(1) * 60,
            "--seconds" => plan.seconds = number()?.max(1),
            "--interval" => plan.interval_s = number()?.max(1),
            "--seed" => plan.seed = number()?,
            "--capacity" => plan.capacity_bytes = parse_bytes(value)?.max(16 << 20),
            "--memory" => plan.memory_bytes = parse_bytes(value)?,
            "--data" => value.clone_into(&mut data),
            "--placement" if value == "packed" => plan.placement = Placement::Packed,
            "--placement" if value == "in_place" => plan.placement = Placement::InPlace,
            "--values" => {
                let (least, most) = value.split_once(':').ok_or("--values: as in 16:1M")?;
                let (least, most) = (parse_bytes(least)? as usize, parse_bytes(most)? as usize);
                if least < 1 || most < least || most > 64 << 20 {
                    return Err("--values: 1 to 64M, the shorter first".into());
                }
                plan.value_bytes = (least, most);
            }
            _ => return Err(format!("unknown option `{option} {value}`\n\n{USAGE}")),
        }
    }
    println!(
        "{:>8} {:>10} {:>9} {:>12} {:>6} {:>10} {:>10} {:>8} {:>6}",
        "second", "ops/s", "slowest", "written/s", "fill", "resident", "on disk", "refused", "moved"
    );
    let mut second = 0;
    let outcome = run(data.as_ref(), &plan, &mut |minute| {
        second += plan.interval_s;
        line(second, minute);
    });
    let removed = std::fs::remove_dir_all(&data);
    let minutes = outcome?;
    removed.map_err(|error| format!("cannot remove {data}: {error}"))?;
    if let (Some(early), Some(last)) = (minutes.get(1), minutes.last()) {
        println!(
            "last interval against the second: {:.2} of its operations/s, {:.2} of its bytes written/s",
            last.operations_per_s / early.operations_per_s,
            last.written_per_s / early.written_per_s
        );
    }
    Ok(())
}

fn line(second: u64, minute: &Minute) {
    println!(
        "{second:>8} {:>10.0} {:>9} {:>12} {:>6.3} {:>10} {:>10} {:>8} {:>6.2}",
        minute.operations_per_s,
        minute.slowest_second,
        format_bytes(minute.written_per_s as u64),
        minute.fill,
        format_bytes(minute.resident_bytes),
        format_bytes(minute.disk_bytes),
        minute.refused,
        minute.moved
    );
}
