//! memcached's own proxy before three caches, in the configurations that its library of routes has:
//! what becomes of keys that are written while one of the caches is away.
//!
//! It is memcached built with `--enable-proxy`, 1.6.45 say. Debian's has none.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::SERVERS;
use crate::memcache::Client;
use crate::place;
use crate::program::{Serve, Served, free_address};

const KEYS: usize = 300;
/// How long something may take that comes by itself.
const PATIENCE: Duration = Duration::from_secs(120);
const LIMIT: Duration = Duration::from_secs(60);

/// How the proxy sends requests to caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routes {
    /// Each key has one of the caches.
    Hashed,
    /// The first cache that answers has all keys.
    Failover,
    /// Every cache gets every write and the answer waits for all; gets are answered by the fastest.
    AllSync,
    /// Every cache gets every request, and the fastest answers.
    AllFastest,
}

impl Routes {
    /// All of them.
    pub const ALL: [Routes; 4] = [Routes::Hashed, Routes::Failover, Routes::AllSync, Routes::AllFastest];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Routes::Hashed => "a hashed pool",
            Routes::Failover => "`route_failover`",
            Routes::AllSync => "`route_allsync` for writes, `route_allfastest` for gets",
            Routes::AllFastest => "`route_allfastest`",
        }
    }

    /// The routes, in the language of the proxy.
    fn text(self, servers: &[SocketAddr]) -> String {
        let mut text = "settings{ backend_connect_timeout = 1, backend_read_timeout = 1 }\npools{\n".to_owned();
        let all: Vec<String> = servers.iter().map(|server| format!("\"{server}\"")).collect();
        // Writing to a string does not fail.
        _ = writeln!(text, "    main = {{ backends = {{ {} }} }},", all.join(", "));
        for (number, server) in all.iter().enumerate() {
            _ = writeln!(text, "    p{number} = {{ backends = {{ {server} }} }},");
        }
        let children = "children = { \"p0\", \"p1\", \"p2\" }";
        let routes = match self {
            Routes::Hashed => "default = route_direct{ child = \"main\" }".to_owned(),
            Routes::Failover => format!("default = route_failover{{ {children} }}"),
            Routes::AllSync => {
                format!("cmap = {{ get = route_allfastest{{ {children} }} }}, default = route_allsync{{ {children} }}")
            }
            Routes::AllFastest => format!("default = route_allfastest{{ {children} }}"),
        };
        _ = writeln!(text, "}}\nroutes{{ {routes} }}");
        text
    }
}

/// A memcached with the proxy: `STRATAKV_MEMCACHED_PROXY`, or the one that is installed.
///
/// # Errors
/// There is none.
pub fn memcached_with_proxy() -> Result<PathBuf, String> {
    let program = std::env::var_os("STRATAKV_MEMCACHED_PROXY").map_or_else(|| "memcached".into(), PathBuf::from);
    let help = Command::new(&program).arg("-h").output();
    let help = help.map_err(|error| format!("{} cannot be started: {error}", program.display()))?;
    match String::from_utf8_lossy(&help.stdout).contains("proxy_config") {
        true => Ok(program),
        false => Err(format!(
            "{} has no proxy: name one that is built with --enable-proxy by STRATAKV_MEMCACHED_PROXY",
            program.display()
        )),
    }
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoutesTally {
    /// Keys whose write was acknowledged while one cache was away.
    pub acknowledged: usize,
    /// Gets that answered a value while it was away.
    pub served: usize,
    /// Keys that answered the older value after it was back, though the newer one was acknowledged
    /// or answered too.
    pub stale: usize,
}

/// A running proxy, ended when dropped.
struct BuiltIn {
    child: Child,
    address: SocketAddr,
}

impl BuiltIn {
    fn start(program: &Path, folder: &Path, routes: Routes, servers: &[SocketAddr]) -> io::Result<BuiltIn> {
        let (file, address) = (folder.join("routes.lua"), free_address()?);
        std::fs::write(&file, routes.text(servers))?;
        let mut command = Command::new(program);
        command.args(["-u", "root", "-t", "2", "-l", &address.ip().to_string(), "-p", &address.port().to_string()]);
        command.arg("-o").arg(format!("proxy_config=routelib,proxy_arg={}", file.display()));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let proxy = BuiltIn { child, address };
        let begun = Instant::now();
        while let Err(error) = Client::connect(address) {
            if begun.elapsed() > PATIENCE {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(proxy)
    }

    fn ask<R>(&self, ask: impl FnOnce(&mut Client) -> io::Result<R>) -> io::Result<R> {
        ask(&mut Client::connect_within(self.address, LIMIT)?)
    }

    /// Sets every key; which of them were acknowledged.
    fn set_all(&self, value: &[u8]) -> Vec<bool> {
        let set = |number| self.ask(|client| client.set(&key(number), value));
        (0..KEYS).map(|number| set(number).is_ok_and(|line| line == "STORED")).collect()
    }

    fn get_all(&self) -> Vec<Option<Vec<u8>>> {
        (0..KEYS).map(|number| self.ask(|client| client.get(&key(number))).ok().flatten()).collect()
    }
}

impl Drop for BuiltIn {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn key(number: usize) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

fn serve(data: &Path, address: SocketAddr, rejoin: &str) -> Result<Served, String> {
    let options = ["--engine", "tier", "--shards", "1", "--threads", "1", "--memory", "16M", "--capacity", "64M"];
    let serve = Serve::on(data).options(&options).options(&["--rejoin", rejoin]).at(address);
    let mut served = serve.spawn().map_err(|error| format!("a server cannot be started: {error}"))?;
    served.wait_ready()?;
    Ok(served)
}

/// Sets all keys, ends the first cache, sets all keys again, and lets it back in.
///
/// # Errors
/// What failed.
pub fn run(program: &Path, routes: Routes, rejoin: &str) -> Result<RoutesTally, String> {
    let failed = |error: io::Error| format!("{}: {error}", routes.name());
    let folder = place::directory();
    let data = |number: usize| folder.path().join(number.to_string());
    let addresses = (0..SERVERS).map(|_| free_address()).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let start = |number: usize| serve(&data(number), addresses[number], rejoin);
    let mut servers = (0..SERVERS).map(start).collect::<Result<Vec<_>, _>>()?;
    let proxy = BuiltIn::start(program, folder.path(), routes, &addresses).map_err(failed)?;
    let begun = Instant::now();
    while !proxy.set_all(b"old").iter().all(|is_set| *is_set) {
        if begun.elapsed() > PATIENCE {
            return Err(format!("{}: not every key can be set", routes.name()));
        }
    }
    // A kill takes what is in memory with it: there would be nothing to be stale.
    servers[0].ask_to_stop();
    servers[0].wait(PATIENCE);
    let set = proxy.set_all(b"new");
    let served = proxy.get_all().iter().flatten().count();
    servers[0] = start(0)?;
    wait_until_asked(&proxy, addresses[0]).map_err(failed)?;
    let (mut is_old, mut is_new) = (vec![false; KEYS], set.clone());
    // Where every cache has every key, another one may be the fastest each time.
    for _ in 0..5 {
        for (number, value) in proxy.get_all().into_iter().enumerate() {
            is_old[number] |= value.as_deref() == Some(b"old");
            is_new[number] |= value.as_deref() == Some(b"new");
        }
    }
    let stale = is_old.iter().zip(&is_new).filter(|(is_old, is_new)| **is_old && **is_new).count();
    Ok(RoutesTally { acknowledged: set.iter().filter(|is_set| **is_set).count(), served, stale })
}

/// Until the proxy asks this cache again.
fn wait_until_asked(proxy: &BuiltIn, cache: SocketAddr) -> io::Result<()> {
    let mut direct = Client::connect(cache)?;
    let mut gets = || direct.statistic("cmd_get").map(Option::unwrap_or_default);
    let (before, begun) = (gets()?, Instant::now());
    while gets()? == before {
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other("the proxy does not ask the cache that is back"));
        }
        proxy.get_all();
    }
    Ok(())
}

/// Runs all configurations, warm and cold; the table of what was seen.
///
/// # Errors
/// What failed, or a cold cache that answered something stale.
pub fn table(program: &Path) -> Result<String, String> {
    let mut text = "| routes | writes while one is away | gets then | stale with `warm` | with `cold` |\n\
                    |---|--:|--:|--:|--:|\n"
        .to_owned();
    for routes in Routes::ALL {
        let (warm, cold) = (run(program, routes, "warm")?, run(program, routes, "cold")?);
        let RoutesTally { acknowledged, served, stale } = warm;
        let name = routes.name();
        // Writing to a string does not fail.
        _ = writeln!(
            text,
            "| {name} | {acknowledged} of {KEYS} stored | {served} of {KEYS} answered | {stale} | {} |",
            cold.stale
        );
        let is_as_expected = match routes {
            // Keys do not move.
            Routes::Hashed => stale == 0,
            Routes::Failover => stale > 0,
            Routes::AllSync | Routes::AllFastest => true,
        };
        if !is_as_expected {
            return Err(format!("{name}: {stale} stale answers of a warm cache\n{text}"));
        }
        if cold.stale > 0 {
            return Err(format!("{name}: {} stale answers of a cold cache\n{text}", cold.stale));
        }
    }
    Ok(text)
}
