//! `cache_memlimit` on a real server: the memory of a cache changes while it serves.

use std::time::{Duration, Instant};

use stratakv::{Engine, IoBackend, Options};

use super::{Bench, ask, converse};

const MIB: u64 = 1 << 20;
const FAILED: &str = "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n";

impl Bench {
    fn counted(&self, name: &str) -> u64 {
        let stats = String::from_utf8(converse(self.address(), b"stats\r\nquit\r\n")).unwrap();
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")).map(str::to_owned));
        line.unwrap_or_else(|| panic!("{name} in {stats}")).parse().unwrap()
    }

    /// Waits until so much of the memory is held at most.
    fn holds_at_most(&self, bytes: u64) {
        let begin = Instant::now();
        while self.counted("memory_bytes") > bytes {
            assert!(begin.elapsed() < Duration::from_secs(60), "{} bytes are held", self.counted("memory_bytes"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn the_memory_of_a_full_cache_shrinks_and_grows_while_it_serves() {
    let value = "v".repeat(8 << 10);
    for (io, capacity_bytes) in [(IoBackend::Auto, 0), (IoBackend::Blocking, 128 * MIB)] {
        let bench =
            Bench::on(Options::new().engine(Engine::Tier).shards(2).io(io).capacity_bytes(capacity_bytes), |_| {});
        let mut stream = bench.connect();
        let fill = |stream: &mut _, from: usize| {
            for number in from..from + 8000 {
                ask(stream, &format!("set key{number} 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
            }
        };
        let disk = bench.counted("ssd_capacity_bytes");
        fill(&mut stream, 0);
        assert_eq!(bench.counted("limit_maxbytes"), 64 * MIB + disk);
        let (held, dram) = (bench.counted("memory_bytes"), bench.counted("dram_bytes"));
        assert!(held > 48 * MIB && held <= 64 * MIB && dram > 40 * MIB, "{held} held, {dram} in segments");

        ask(&mut stream, "cache_memlimit 16\r\n", "OK\r\n");
        assert_eq!(bench.counted("limit_maxbytes"), 16 * MIB + disk);
        // Nobody asks for anything: it goes on by itself.
        bench.holds_at_most(16 * MIB);
        let bytes = bench.counted("dram_bytes");
        assert!((4 * MIB..14 * MIB).contains(&bytes), "{bytes}");
        let newest = format!("VALUE key7999 0 {}\r\n{value}\r\nEND\r\n", value.len());
        ask(&mut stream, "get key7999\r\n", &newest);
        fill(&mut stream, 10_000);
        bench.holds_at_most(16 * MIB);

        ask(&mut stream, "cache_memlimit 48 noreply\r\nmn\r\n", "MN\r\n");
        assert_eq!(bench.counted("limit_maxbytes"), 48 * MIB + disk);
        fill(&mut stream, 20_000);
        let held = bench.counted("memory_bytes");
        assert!(held > 36 * MIB && held <= 48 * MIB, "{held}");
        let settings = String::from_utf8(converse(bench.address(), b"stats settings\r\nquit\r\n")).unwrap();
        assert!(settings.contains(&format!("STAT maxbytes {}\r\n", 48 * MIB + disk)), "{settings}");
    }
}

#[test]
fn a_limit_that_cannot_be_kept_is_refused() {
    let bench = Bench::on(Options::new().engine(Engine::Tier).shards(4).capacity_bytes(0), |_| {});
    let mut stream = bench.connect();
    ask(&mut stream, "cache_memlimit 7\r\n", "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n");
    // Four shards need more.
    ask(&mut stream, "cache_memlimit 15\r\n", FAILED);
    ask(&mut stream, "cache_memlimit 15 noreply\r\nmn\r\n", "MN\r\n");
    ask(&mut stream, "cache_memlimit 64m\r\n", "ERROR\r\n");
    ask(&mut stream, "cache_memlimit 1073741824\r\n", "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n");
    assert_eq!(bench.counted("limit_maxbytes"), 64 * MIB);
    ask(&mut stream, "cache_memlimit 16\r\n", "OK\r\n");
    assert_eq!(bench.counted("limit_maxbytes"), 16 * MIB);
    for engine in [Engine::Slab, Engine::Hash] {
        ask(&mut Bench::of(engine).connect(), "cache_memlimit 64\r\n", FAILED);
    }
}
