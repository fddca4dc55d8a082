//! `cargo xtask status-page`: the status page in a real browser (Chromium, without a window) while
//! clients load the server: it polls, its figures are those of the load, nothing on it fails.
//! `--screenshot FILE` keeps what it looks like, `--phone FILE` what it looks like on a phone. A
//! server of each engine is looked at, and each at the width of a phone too.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::json;

use crate::browser::{Browser, Check, DESKTOP, PHONE, check};
use crate::cargo::{cargo, succeed};
use crate::serving::{Serving, with_directory};

const USAGE: &str = "usage: cargo xtask status-page [--screenshot FILE] [--phone FILE] [--polls 20]";
/// Clients, each with so many commands under way.
const CLIENTS: usize = 4;
const PIPELINE: usize = 16;
/// Between one pipeline of a client and the next.
const PAUSE: Duration = Duration::from_millis(2);

/// Servers that are looked at: their engines as the page names them, words of the bars that it
/// shows of their work, and options. The first one is looked at for as long as is asked for.
const ENGINES: [(&str, &[&str], &[&str]); 5] = [
    (
        "Engine slab, placement in_place",
        &["Pages in use", "Reads from the cache", "Commit groups"],
        &["--durability", "process_crash", "--placement", "in_place"],
    ),
    (
        "Engine slab, placement packed",
        &["Live bytes of segments", "Cleaning: moved", "Checkpoints"],
        &["--durability", "process_crash", "--placement", "packed"],
    ),
    (
        "Engine hash",
        &["Region in use", "Snapshots", "Scrubbing"],
        &["--durability", "process_crash", "--engine", "hash", "--region", "64M"],
    ),
    (
        "Engine matrix",
        &["Container in the region", "Compaction", "Tables"],
        &["--durability", "process_crash", "--engine", "matrix", "--region", "64M"],
    ),
    ("Engine tier", &["Memory in use", "Hits from memory", "Evictions"], &["--engine", "tier", "--capacity", "256M"]),
];
/// Polls of the engines after the first: rates need two.
const POLLS_MIN: u64 = 4;

/// What is asked for.
#[derive(Debug)]
struct Options {
    screenshot: Option<PathBuf>,
    phone: Option<PathBuf>,
    polls: u64,
}

/// Runs the command.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let options = parse(arguments)?;
    succeed("status-page", cargo(root).args(["build", "--workspace", "--bin", "stratakv", "--test", "bus"]))?;
    with_directory("status-page", |directory| {
        for (index, (title, words, server)) in ENGINES.iter().enumerate() {
            let is_first = index == 0;
            let pictures =
                if is_first { (options.screenshot.as_deref(), options.phone.as_deref()) } else { (None, None) };
            let looked =
                Looked { title, words, server, pictures, polls: if is_first { options.polls } else { POLLS_MIN } };
            look(root, &directory.join(index.to_string()), &looked).map_err(|why| format!("{title}: {why}"))?;
        }
        println!("status-page: it lives on every engine, and nothing on it failed");
        Ok(())
    })
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options { screenshot: None, phone: None, polls: 20 };
    for pair in arguments.chunks(2) {
        match pair {
            [option, file] if option == "--screenshot" => options.screenshot = Some(PathBuf::from(file)),
            [option, file] if option == "--phone" => options.phone = Some(PathBuf::from(file)),
            [option, number] if option == "--polls" => options.polls = number.parse().map_err(|_| USAGE.to_owned())?,
            _ => return Err(USAGE.into()),
        }
    }
    Ok(options)
}

/// One server whose page is looked at.
struct Looked<'a> {
    title: &'a str,
    words: &'a [&'a str],
    server: &'a [&'a str],
    /// Where pictures go, of the desktop and of the phone.
    pictures: (Option<&'a Path>, Option<&'a Path>),
    polls: u64,
}

fn look(root: &Path, directory: &Path, looked: &Looked<'_>) -> Result<(), String> {
    let options = [looked.server, &["--slow-log-ms", "1", "--log", "error"]].concat();
    let server = Serving::start(root, &directory.join("data"), &options)?;
    let load = Load::start(&server.memcache);
    let mut browser = Browser::start(&directory.join("profile"))?;
    browser.open(&server.admin)?;
    let polled = format!("Number(document.body.dataset.polls || 0) >= {}", looked.polls);
    if !browser.becomes_true(&polled)? {
        return Err(format!("the page did not poll {} times: {:?}", looked.polls, browser.complaints));
    }
    check(&mut browser, &[CHECKS, &LOADED].concat())?;
    check_engine(&mut browser, looked)?;
    for ((width, height), picture) in [(DESKTOP, looked.pictures.0), (PHONE, looked.pictures.1)] {
        browser.resize(width, height)?;
        // The charts are drawn anew with the next answer.
        let next = "Number(document.body.dataset.drawn || 0) >= 2";
        browser.evaluate("delete document.body.dataset.drawn; true")?;
        if !browser.becomes_true(next)? {
            return Err("the page is not drawn anew".into());
        }
        let fits = format!("document.documentElement.scrollWidth <= {width}");
        check(&mut browser, &[("it fits the width", &fits), ("so does the slow log", SLOW_FITS)])?;
        if let Some(file) = picture {
            let tall = browser.evaluate("document.documentElement.scrollHeight")?.as_u64().unwrap_or_default();
            browser.resize(width, u32::try_from(tall).unwrap_or(height))?;
            std::fs::write(file, browser.screenshot()?).map_err(|error| format!("{}: {error}", file.display()))?;
            println!("status-page: {}", file.display());
        }
    }
    load.end()?;
    if !browser.complaints.is_empty() {
        return Err(format!("the browser complains: {:#?}", browser.complaints));
    }
    Ok(())
}

/// What the page shows of this engine's work: each bar has a name and a value.
fn check_engine(browser: &mut Browser, looked: &Looked<'_>) -> Result<(), String> {
    let text = |id: &str| format!("document.getElementById('{id}').textContent");
    let title = format!("{} === {}", text("engine-title"), json!(looked.title));
    check(browser, &[("its title", &title)])?;
    for word in looked.words {
        let named = format!(
            "[...document.querySelectorAll('#engine .bar span')].some(one => one.textContent === {})",
            json!(word)
        );
        check(browser, &[(word, &named)])?;
    }
    Ok(())
}

/// Tables with more columns are moved sideways on a phone.
const SLOW_FITS: &str = "document.getElementById('slow').scrollWidth <= \
                         document.getElementById('slow').parentElement.clientWidth";

/// On the page of any engine.
const CHECKS: &[Check<'static>] = &[
    ("it is serving", "document.getElementById('state').textContent === 'serving'"),
    ("eight tiles", "document.querySelectorAll('#tiles section').length === 8"),
    ("a line for each kind", "document.querySelectorAll('#rates polyline').length === 5"),
    (
        "which has as many points as there were polls",
        "document.querySelector('#rates polyline').getAttribute('points').split(' ').length == Math.min(120, document.body.dataset.polls)",
    ),
    ("a row for each thread", "document.querySelectorAll('#cores tbody tr').length === 2"),
    ("where the store is", "/\\/data: [12] shards, /.test(document.getElementById('where').textContent)"),
    (
        "a row for each shard",
        "document.querySelectorAll('#shards tbody tr').length == document.getElementById('where').textContent.match(/: ([0-9]+) shards/)[1]",
    ),
    (
        "a name on every bar",
        "[...document.querySelectorAll('meter')].every(bar => /[a-z].*: .*%/.test(bar.getAttribute('aria-label')))",
    ),
    (
        "a name and a value in every row of bars",
        "[...document.querySelectorAll('.bar')].every(row => row.querySelector('span').textContent && row.querySelector('b').textContent)",
    ),
    ("nothing is NaN", "!/NaN|undefined|Infinity/.test(document.body.innerText)"),
];

/// On the page of a server under load.
const LOADED: [Check<'static>; 5] = [
    ("operations are counted", "parseFloat(document.querySelector('#tiles .value').textContent) > 0"),
    ("latencies are shown", "/[0-9] (µs|ms|s)/.test(document.querySelectorAll('#tiles .value')[1].textContent)"),
    ("most gets hit", "parseFloat(document.querySelectorAll('#tiles .value')[2].textContent) > 50"),
    (
        "the lines are not flat",
        "new Set(document.querySelector('#rates polyline').getAttribute('points').split(' ').map(point => point.split(',')[1])).size > 1",
    ),
    (
        "the slow log says from when on",
        "/^Operations of 1.00 ms and more/.test(document.getElementById('slow-from').textContent)",
    ),
];

/// Clients that write and read, three in four of the keys they read being there.
struct Load(Vec<(mpsc::Sender<()>, Client)>);

type Client = JoinHandle<Result<(), String>>;

impl Load {
    fn start(address: &str) -> Load {
        let client = |number: usize| {
            let ((over, is_over), address) = (mpsc::channel(), address.to_owned());
            (over, std::thread::spawn(move || client(&address, number, &is_over).map_err(|error| error.to_string())))
        };
        Load((0..CLIENTS).map(client).collect())
    }

    fn end(self) -> Result<(), String> {
        let (over, clients): (Vec<_>, Vec<_>) = self.0.into_iter().unzip();
        drop(over);
        clients.into_iter().try_for_each(|client| client.join().unwrap_or(Err("a client ended by a defect".into())))
    }
}

fn client(address: &str, number: usize, is_over: &mpsc::Receiver<()>) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let value = "v".repeat(400);
    let mut round = number;
    // The page is to be looked at, not the machine to be filled.
    while is_over.recv_timeout(PAUSE) == Err(mpsc::RecvTimeoutError::Timeout) {
        let mut commands = String::new();
        let mut ends = 0;
        for _ in 0..PIPELINE {
            round = round.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = (round >> 33) % 8000;
            match (round >> 50) % 20 {
                0..4 => commands.push_str(&format!("set k{} 0 0 {}\r\n{value}\r\n", key % 6000, value.len())),
                4 => commands.push_str(&format!("incr n{} 1\r\n", key % 10)),
                5 => commands.push_str(&format!("delete k{}\r\n", 6000 + key % 100)),
                _ => commands.push_str(&format!("get k{key}\r\n")),
            }
            ends += 1;
        }
        stream.write_all(commands.as_bytes())?;
        while ends > 0 {
            let mut line = String::new();
            if answers.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            ends -= usize::from(!line.starts_with("VALUE ") && !line.starts_with("vv"));
        }
    }
    Ok(())
}
