//! What a request costs, in counts: guest instructions, system calls, doorbells, interrupts. Four
//! servers of the same program, one after the other in one machine, on one store.
//!
//! The clients are on the host, beyond a tap: so whatever the machine's one processor executes, in
//! the server, in the kernel and in interrupts, is the server's cost. A plugin of the emulator
//! counts it.

mod guest;
mod load;
mod network;
mod observe;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::guest::GUEST;
use super::host::make_file_system;
use super::machine::{CPU, Machine, tool};
use super::workload::DEVICE_BYTES;

pub(super) use guest::run as guest;

use load::{Load, Verb};
use network::{Guest, HostNetwork};
use observe::{Observation, Observer};

/// Modules of the network card, as for [`super::bypass`].
pub(super) const MODULE_FILES: [&str; 8] = [
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "net/core/failover.ko",
    "drivers/net/net_failover.ko",
    "drivers/net/virtio_net.ko",
];
const SOURCE: &str = include_str!("counts/plugin.c");
const CONTROL_PORT: u16 = 7000;
const PORT: u16 = 11211;
/// The guest's address that its kernel has, and the one that it has not.
const KERNEL_ADDRESS: &str = "10.78.0.9";
const XDP_ADDRESS: &str = "10.78.0.2";
const PREFIX: u8 = 24;
const VOLUME_BYTES: u64 = 256 << 20;
/// Requests before those that are counted.
const WARM_UP: u32 = 300;

/// One of four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerKind {
    Kernel,
    Nvme,
    Xdp,
    Both,
}

impl ServerKind {
    const ALL: [ServerKind; 4] = [ServerKind::Kernel, ServerKind::Nvme, ServerKind::Xdp, ServerKind::Both];

    fn name(self) -> &'static str {
        match self {
            ServerKind::Kernel => "kernel",
            ServerKind::Nvme => "nvme",
            ServerKind::Xdp => "xdp",
            ServerKind::Both => "both",
        }
    }

    fn of(name: &str) -> Option<ServerKind> {
        ServerKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    fn has_nvme(self) -> bool {
        matches!(self, ServerKind::Nvme | ServerKind::Both)
    }

    fn has_xdp(self) -> bool {
        matches!(self, ServerKind::Xdp | ServerKind::Both)
    }

    fn address(self) -> &'static str {
        if self.has_xdp() { XDP_ADDRESS } else { KERNEL_ADDRESS }
    }
}

/// How much is asked.
#[derive(Clone, Copy, Debug)]
pub struct CountsPlan {
    /// Requests of each measurement with several in flight; a quarter with one.
    pub requests: u32,
    /// Keys of the store, 4 KiB each.
    pub keys: u32,
}

impl Default for CountsPlan {
    fn default() -> Self {
        CountsPlan { requests: 3000, keys: 8192 }
    }
}

/// The words for process 1.
pub(super) fn is_task(words: &[String]) -> bool {
    words.iter().position(|word| word == GUEST).is_some_and(|at| words.get(at + 1).is_some_and(|word| word == "counts"))
}

/// Boots, measures all four servers, and gives a table as of Markdown.
///
/// # Errors
/// There can be no such machine here, or a server failed.
pub fn run(
    machine: &Machine,
    cache: &Path,
    plan: CountsPlan,
    report: &mut (dyn FnMut(String) + Send),
) -> Result<String, String> {
    let files = Files::create(cache)?;
    let network = HostNetwork::make()?;
    let gone = AtomicBool::new(false);
    let guest = Guest { gone: &gone };
    thread::scope(|scope| {
        let measured = scope.spawn(|| {
            network.enter()?;
            measure(&files, guest, plan, report)
        });
        let booted = scope.spawn(|| {
            network.enter()?;
            let board = ["-M", "q35,accel=tcg", "-m", "1G", "-cpu", CPU, "-device", "intel-iommu,intremap=on"];
            let said = machine.boot_on(&board.map(str::to_owned), &files.drives(), &format!("{GUEST} counts"));
            gone.store(true, Ordering::Release);
            said
        });
        let measured = measured.join().map_err(|_| "who measures panicked".to_owned())?;
        let booted = booted.join().map_err(|_| "who boots panicked".to_owned())?;
        match (measured, booted) {
            (Ok(table), Ok(said)) => Ok(format!("{table}\n({said})")),
            (Err(why), Ok(said)) => Err(format!("{why}; the guest: {said}")),
            (Ok(_), Err(why)) => Err(why),
            (Err(why), Err(guest)) => Err(format!("{why}; {guest}")),
        }
    })
}

/// The servers in turn.
fn measure(
    files: &Files,
    guest: Guest<'_>,
    plan: CountsPlan,
    report: &mut dyn FnMut(String),
) -> Result<String, String> {
    let observer = Observer { counts: &files.counts, trace: &files.trace, guest };
    let mut rows = Vec::new();
    let measured = measure_all(&observer, plan, &mut rows, report);
    // Else the machine waits for its host.
    let ended = network::ask(guest, "end", false);
    measured.and(ended)?;
    Ok(observe::table(&rows))
}

fn measure_all(
    observer: &Observer<'_>,
    plan: CountsPlan,
    rows: &mut Vec<Observation>,
    report: &mut dyn FnMut(String),
) -> Result<(), String> {
    for kind in ServerKind::ALL {
        network::ask(observer.guest, &format!("start {}", kind.name()), true)?;
        let load = Load { address: format!("{}:{PORT}", kind.address()), keys: plan.keys };
        if kind == ServerKind::Kernel {
            load.fill()?;
        }
        for (verb, in_flight) in [(Verb::Get, 1), (Verb::Get, 64), (Verb::Set, 1), (Verb::Set, 64)] {
            let requests = if in_flight == 1 { plan.requests / 4 } else { plan.requests };
            load.run(verb, in_flight, WARM_UP, &|| Ok(()))?;
            let row = observer.observe(kind, (verb, in_flight, requests), &load)?;
            report(row.to_string());
            rows.push(row);
        }
        network::ask(observer.guest, "stop", true)?;
    }
    Ok(())
}

/// Files of the machine.
struct Files {
    volume: PathBuf,
    home: PathBuf,
    plugin: PathBuf,
    counts: PathBuf,
    trace: PathBuf,
}

impl Files {
    fn create(cache: &Path) -> Result<Files, String> {
        let path = |name: &str| cache.join(format!("counts-{name}"));
        let files = Files {
            volume: path("volume.img"),
            home: path("home.img"),
            plugin: path("plugin.so"),
            counts: path("counters"),
            trace: path("trace"),
        };
        for (path, bytes) in [(&files.volume, VOLUME_BYTES), (&files.home, DEVICE_BYTES), (&files.counts, 64 << 10)] {
            let made = File::create(path).and_then(|file| file.set_len(bytes));
            made.map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        }
        make_file_system("counts-home.img", cache)?;
        let (source, text) = (path("plugin.c"), files.plugin.to_string_lossy());
        fs::write(&source, SOURCE).map_err(|error| format!("cannot write {}: {error}", source.display()))?;
        let made = tool("cc", &["-O2", "-shared", "-fPIC", "-o", &text, &source.to_string_lossy()], cache)?;
        match made.status.success() {
            true => Ok(files),
            false => Err(format!("the plugin: {}", String::from_utf8_lossy(&made.stderr))),
        }
    }

    fn drives(&self) -> Vec<String> {
        let file = |name: &str, path: &Path| {
            format!("driver=file,node-name={name},filename={},cache.no-flush=on", path.display())
        };
        let plugin = format!("file={},counts={}", self.plugin.display(), self.counts.display());
        let mut words = vec!["-plugin".to_owned(), plugin, "-D".to_owned(), self.trace.display().to_string()];
        for event in observe::EVENTS {
            words.extend(["-trace".to_owned(), event.to_owned()]);
        }
        for (option, value) in [
            ("-blockdev", file("v0", &self.volume)),
            ("-blockdev", file("h0", &self.home)),
            ("-device", "nvme,serial=VOLUME,drive=v0,addr=4".to_owned()),
            ("-device", "nvme,serial=HOME,drive=h0,addr=6".to_owned()),
            ("-netdev", format!("tap,id=n0,ifname={},script=no,downscript=no,vhost=off", network::TAP)),
            ("-device", "virtio-net-pci,netdev=n0,addr=9,romfile=,mac=52:54:00:12:34:56".to_owned()),
        ] {
            words.extend([option.to_owned(), value]);
        }
        words
    }
}
