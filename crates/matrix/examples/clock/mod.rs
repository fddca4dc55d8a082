//! Processor time, for programs that print what something costs: what else runs on the machine does
//! not count.

/// Nanoseconds that this thread has had a processor.
pub fn run_ns() -> f64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let run = statistics.split(' ').next().and_then(|number| number.parse().ok());
    run.expect("Linux tells how long a thread has run")
}

/// Nanoseconds for each of `count`: the least of five times as many ticks as give the clock's ticks
/// something to count.
pub fn best(count: usize, mut tick: impl FnMut()) -> f64 {
    let repeated = (2_000_000 / count).max(1);
    let ticks = (0..5).map(|_| {
        let start = run_ns();
        (0..repeated).for_each(|_| tick());
        (run_ns() - start) / (count * repeated) as f64
    });
    ticks.fold(f64::MAX, f64::min)
}
