//! Suite `ukv` against a server of a few lines, in this process.

use std::cell::Cell;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use super::*;

/// Keeps what is set, if it is told to.
struct Keeping {
    name: &'static str,
    started: Cell<usize>,
}

impl ServerUnderTest for Keeping {
    fn name(&self) -> &str {
        self.name
    }

    fn is_for(&self, case: UkvCase) -> bool {
        self.name == "keeping" || case == UkvCase::Memory
    }

    fn start(&self, _: UkvCase) -> Result<Box<dyn RunningServer>, BenchError> {
        self.started.set(self.started.get() + 1);
        if self.name == "broken" {
            return Err(BenchError::Wrong("it does not start".into()));
        }
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let records = std::sync::Arc::new(std::sync::Mutex::new(HashMap::new()));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let records = std::sync::Arc::clone(&records);
                std::thread::spawn(move || serve(&stream, &records));
            }
        });
        Ok(Box::new(Address(address, Cell::new(0))))
    }
}

type Records = std::sync::Mutex<HashMap<String, Vec<u8>>>;

fn serve(stream: &TcpStream, records: &Records) -> Option<()> {
    let mut input = BufReader::new(stream);
    let mut output = stream;
    loop {
        let mut line = String::new();
        input.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["set", key, _, _, bytes] => {
                let mut value = vec![0; bytes.parse::<usize>().ok()? + 2];
                input.read_exact(&mut value).ok()?;
                value.truncate(value.len() - 2);
                records.lock().ok()?.insert(key.to_owned(), value);
                output.write_all(b"STORED\r\n").ok()?;
            }
            ["get", key] => {
                let found = records.lock().ok()?.get(key).cloned();
                if let Some(value) = found {
                    output.write_all(format!("VALUE {key} 0 {}\r\n", value.len()).as_bytes()).ok()?;
                    output.write_all(&value).ok()?;
                    output.write_all(b"\r\n").ok()?;
                }
                output.write_all(b"END\r\n").ok()?;
            }
            _ => return None,
        }
    }
}

/// Each look at its processor time finds a second more.
struct Address(SocketAddr, Cell<u64>);

impl RunningServer for Address {
    fn address(&self) -> (SocketAddr, Protocol) {
        (self.0, Protocol::Memcache)
    }

    fn cpu(&self) -> Option<Duration> {
        self.1.set(self.1.get() + 1);
        Some(Duration::from_secs(self.1.get()))
    }

    fn memory_peak_bytes(&self) -> u64 {
        7 << 20
    }
}

fn options() -> UkvOptions {
    UkvOptions {
        cases: vec![UkvCase::Memory, UkvCase::Ssd],
        value_sizes: vec![100, 4096],
        memory_bytes: 64 << 20,
        records: Some(50),
        connections: 2,
        duration: Duration::from_millis(30),
        rounds: 2,
        seed: 1,
    }
}

#[test]
fn every_server_is_measured_in_its_cases_with_every_mix_in_every_round() {
    let servers: [Box<dyn ServerUnderTest>; 2] =
        ["keeping", "peer"].map(|name| Box::new(Keeping { name, started: Cell::new(0) }) as Box<dyn ServerUnderTest>);
    let told = Cell::new(0);
    let place = tempfile::tempdir().expect("a directory");
    let report = run_ukv(&options(), &servers, place.path(), &|_| told.set(told.get() + 1)).expect("a run");
    // Three mixes, two lengths, two rounds; one server in two cases, the other in one.
    assert_eq!((report.served.len(), told.get()), (3 * 2 * 2 * 3, 36));
    for one in &report.served {
        // On a crowded machine the time that counts may be over between two looks.
        assert!(one.wire.latency_us_p99_9 <= one.wire.latency_us_max, "{one:?}");
        assert!(one.server_cpu_us_per_operation.is_none_or(|us| us > 0.0) && one.memory_peak_bytes == 7 << 20);
        assert!(one.mix != "get" || one.wire.hits == one.wire.gets, "{one:?}");
    }
    let is_seen = |one: &ServedReport| one.wire.operations > 0 && one.server_cpu_us_per_operation.is_some();
    assert!(report.served.iter().any(is_seen), "{:?}", report.served);
    let of =
        |case: &str, server: &str| report.served.iter().filter(|one| one.case == case && one.server == server).count();
    assert_eq!(
        [of("memory", "keeping"), of("ssd", "keeping"), of("memory", "peer"), of("ssd", "peer")],
        [12, 12, 12, 0]
    );
    let text = serde_json::to_string(&report).expect("JSON");
    let again: UkvReport = serde_json::from_str(&text).expect("the same");
    assert_eq!((again.served.len(), again.conditions, again.environment), (36, report.conditions, report.environment));
}

/// One failure after minutes of others must not cost what they measured.
#[test]
fn a_server_that_fails_is_left_out_and_named() {
    let server = |name| Box::new(Keeping { name, started: Cell::new(0) }) as Box<dyn ServerUnderTest>;
    let place = tempfile::tempdir().expect("a directory");
    let options = UkvOptions { cases: vec![UkvCase::Memory], value_sizes: vec![100], rounds: 1, ..options() };
    let report = run_ukv(&options, &[server("broken"), server("keeping")], place.path(), &|_| {}).expect("a run");
    assert_eq!(report.served.len(), 3);
    assert_eq!(report.left_out, ["broken, memory, 100 B values, round 1: it does not start"]);
    let page = crate::page::of_served(&report, &["keeping"]).expect("a page");
    assert!(page.notes.iter().any(|note| note.starts_with("Left out: broken")), "{:?}", page.notes);
    let nothing = run_ukv(&options, &[server("broken")], place.path(), &|_| {}).expect_err("nothing").to_string();
    assert!(nothing.contains("nothing could be measured: broken"), "{nothing}");
}

#[test]
fn records_are_fitted_to_the_memory() {
    let fitted = UkvOptions { records: None, ..options() };
    assert_eq!(fitted.records(UkvCase::Memory, 4096), (32 << 20) / 4096);
    assert_eq!(fitted.records(UkvCase::Ssd, 4096), (320 << 20) / 4096);
    assert_eq!(options().records(UkvCase::Ssd, 4096), 50);
    assert!(fitted.data_bytes(UkvCase::Ssd) > 320 << 20);
    assert_eq!([100, 1024, 1536, 1 << 20].map(length), ["100 B", "1 KiB", "1536 B", "1 MiB"]);
}

/// What is not there is told quickly.
#[test]
fn gets_that_found_nothing_are_not_served() {
    let wire = WireReport { operations: 100, operations_per_s: 1000.0, gets: 100, hits: 40, ..WireReport::default() };
    let get = ServedReport { mix: "get".into(), wire, ..ServedReport::default() };
    assert!((get.served_per_s() - 400.0).abs() < 1e-9);
    assert!((ServedReport { mix: "mixed".into(), ..get }.served_per_s() - 1000.0).abs() < 1e-9);
}
