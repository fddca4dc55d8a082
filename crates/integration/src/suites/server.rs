//! The servers under test: memcached, and ours with each engine.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::differ::peer::Memcached;
use crate::engine::Engine;
use crate::program::{self, Serve, Served};

/// Caps on the memory of ours; some suites set another one themselves.
const MEMORY: &str = "64M";

/// A server that suites are run against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// memcached itself: the control.
    Memcached,
    /// Ours with this engine, in its usual placement.
    Ours(Engine),
    /// Ours with engine `slab` and placement `packed`.
    Packed,
}

impl Kind {
    /// All, the control first.
    pub const ALL: &[Kind] = &[
        Kind::Memcached,
        Kind::Ours(Engine::Slab),
        Kind::Packed,
        Kind::Ours(Engine::Hash),
        Kind::Ours(Engine::Matrix),
        Kind::Ours(Engine::Tier),
    ];

    /// Its name in tables and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Memcached => "memcached",
            Kind::Ours(engine) => engine.name(),
            Kind::Packed => "packed",
        }
    }

    /// Options of `stratakv serve`; none of memcached.
    fn options(self) -> Vec<&'static str> {
        let (engine, is_packed) = match self {
            Kind::Memcached => return Vec::new(),
            Kind::Ours(engine) => (engine, false),
            Kind::Packed => (Engine::Slab, true),
        };
        store_options(engine, is_packed, MEMORY)
    }
}

/// Options of `stratakv serve` for a store of this engine at its least durable level; of `slab` in
/// placement `packed`, or else `in_place`.
pub fn store_options(engine: Engine, is_packed: bool, memory: &'static str) -> Vec<&'static str> {
    let level = engine.levels().last().copied().unwrap_or("memory");
    let mut options = engine.serve_options().to_vec();
    options.extend(["--durability", level, "--memory", memory]);
    if engine == Engine::Slab {
        options.extend(["--placement", if is_packed { "packed" } else { "in_place" }]);
    }
    options
}

/// A running server.
#[derive(Debug)]
pub enum Server {
    /// memcached.
    Memcached(Memcached),
    /// Ours.
    Ours(Served),
}

impl Server {
    /// Starts it, ours on an empty directory in `folder`.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(kind: Kind, memcached: &Path, folder: &Path) -> Result<Server, String> {
        if kind == Kind::Memcached {
            return Memcached::start(memcached).map(Server::Memcached);
        }
        let serve = Serve::on(&folder.join("data")).options(&kind.options());
        let mut served = serve.spawn().map_err(|error| format!("cannot start the server: {error}"))?;
        served.wait_ready()?;
        Ok(Server::Ours(served))
    }

    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        match self {
            Server::Memcached(memcached) => memcached.address(),
            Server::Ours(served) => served.address(),
        }
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        match self {
            Server::Memcached(memcached) => memcached.is_running(),
            Server::Ours(served) => served.is_running(),
        }
    }

    /// What ours said, for messages.
    pub fn said(&self) -> String {
        match self {
            Server::Memcached(_) => String::new(),
            Server::Ours(served) => served.said(),
        }
    }
}

/// Makes a program `memcached` in `folder` for suites that start one themselves: it starts this
/// server.
///
/// # Errors
/// It cannot be written.
pub fn stand_in(kind: Kind, memcached: &Path, folder: &Path) -> Result<(), String> {
    let script = match kind {
        // memcached refuses to run as root without being told who to be.
        Kind::Memcached => format!("#!/bin/sh\nexec {} -u \"$(id -un)\" \"$@\"\n", quoted(memcached)),
        _ => ours(kind, &folder.join("stores")),
    };
    let file = folder.join("memcached");
    let written = std::fs::create_dir_all(folder.join("stores")).and_then(|()| std::fs::write(&file, script));
    let written = written.and_then(|()| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)));
    written.map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// A shell script that takes the options of memcached which suites use, and refuses others.
fn ours(kind: Kind, stores: &Path) -> String {
    let script = String::from(
        r#"#!/bin/sh
tls= listen= port= certificate= key=
while [ $# -gt 0 ]; do
  case "$1" in
    -h) echo "memcached 1.6.18"; exit 0 ;;
    -p) port="$2"; shift ;;
    -s) listen="unix:$2"; shift ;;
    --port=*) port="${1#*=}" ;;
    --listen=127.0.0.1) ;;
    -Z|--enable-ssl) tls=tls: ;;
    --version) echo "memcached 1.6.18 (StrataKV in its place)"; exit 0 ;;
    -o)
      case "$2" in
        ssl_chain_cert=*) certificate="${2#*=}" ;;
        ssl_key=*) key="${2#*=}" ;;
        *) echo "unknown option -o $2" >&2; exit 1 ;;
      esac
      shift ;;
    *) echo "unknown option $1" >&2; exit 1 ;;
  esac
  shift
done
: "${listen:=${tls}127.0.0.1:$port}"
set --
[ -z "$certificate" ] || set -- "$@" --tls-cert "$certificate" --tls-key "$key"
"#,
    );
    let first = quoted(stores);
    let script = script
        + &format!(
            r#"# A suite may lose patience, and start another one on the port. What ends that one ends the first.
# The first has no program any more when it has ended, though nobody may have waited for it.
first={first}/port-$port
if [ -n "$port" ] && [ -e "$first" ] && pid=$(cat "$first") && [ -e "/proc/$pid/exe" ]; then
  trap 'kill "$pid"; while [ -e "/proc/$pid/exe" ]; do sleep 0.01; done; exit 0' TERM
  while [ -e "/proc/$pid/exe" ]; do sleep 0.02; done
  exit 0
fi
[ -z "$port" ] || echo $$ > "$first"
"#
        );
    let options: Vec<String> = kind.options().iter().map(|option| quoted(Path::new(option))).collect();
    let (program, stores) = (quoted(program::binary()), quoted(stores));
    let line = format!("exec {program} serve --data {stores}/$$ --memcache \"$listen\" {} \"$@\"", options.join(" "));
    script + &line + "\n"
}

/// A word of the shell.
fn quoted(word: &Path) -> String {
    format!("'{}'", word.display().to_string().replace('\'', "'\\''"))
}
