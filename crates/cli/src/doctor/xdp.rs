//! `stratakv doctor --xdp`: what stands between an interface and `serve --xdp`, and the commands
//! that mend it.

use std::io::{self, Write};

use serde_json::{Value, json};
use stratakv_base::quantity::format_bytes;
use stratakv_device::xdp::UMEM_BYTES;
use stratakv_device::xdp::inspect::XdpFacts;

use crate::Output;
use crate::failure::{Exit, Failure};

/// Oldest kernel that serves, and from which on all is there.
const KERNEL_LEAST: (u32, u32) = (5, 11);
const KERNEL_BETTER: (u32, u32) = (6, 6);

/// What is to be mended, or known.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    /// `serve --xdp` is refused, or does not work, until it is mended.
    hinders: bool,
    what: String,
    /// As root.
    command: Option<String>,
}

/// What is told.
pub(super) struct XdpReport {
    facts: XdpFacts,
    findings: Vec<Finding>,
}

fn hindrance(what: impl Into<String>, command: Option<String>) -> Finding {
    Finding { hinders: true, what: what.into(), command }
}

fn remark(what: impl Into<String>, command: Option<String>) -> Finding {
    Finding { hinders: false, what: what.into(), command }
}

impl XdpReport {
    /// Looks at an interface.
    ///
    /// # Errors
    /// There is none of that name, or AF_XDP cannot serve such a one.
    pub(super) fn look(interface: &str) -> Result<XdpReport, Failure> {
        let facts = XdpFacts::of(interface).map_err(|error| {
            let why = format!("cannot look at the interface {interface}: {error}; `ip link` lists those there are");
            Failure::new(Exit::NotFound, why)
        })?;
        Ok(XdpReport::of(facts))
    }

    fn of(facts: XdpFacts) -> XdpReport {
        let mut findings = process_findings(&facts);
        findings.extend(interface_findings(&facts));
        XdpReport { facts, findings }
    }

    fn is_ready(&self) -> bool {
        !self.findings.iter().any(|finding| finding.hinders)
    }

    /// As text, or as one JSON object.
    pub(super) fn write(&self, as_json: bool, output: &mut Output) -> io::Result<()> {
        if as_json { writeln!(output, "{}", self.json()) } else { write!(output, "{}", self.text()) }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.rows() {
            text += &format!("{name:<24} {value}\n");
        }
        let part = |hinders: bool| {
            let found = self.findings.iter().filter(move |finding| finding.hinders == hinders);
            found.map(|Finding { what, command, .. }| {
                let command = command.as_ref().map(|command| format!("    {command}\n"));
                format!("- {what}\n{}", command.unwrap_or_default())
            })
        };
        if self.is_ready() {
            let interface = &self.facts.interface;
            text += &format!("\nIt is ready: `stratakv serve --xdp {interface} --address ADDRESS/PREFIX`.\n");
        } else {
            text += "\nIt cannot be served yet (commands as root):\n";
            part(true).for_each(|line| text += &line);
        }
        let remarks: String = part(false).collect();
        if !remarks.is_empty() {
            text += &format!("\nWorth knowing:\n{remarks}");
        }
        text
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let facts = &self.facts;
        let mode = match facts.driver_can {
            None => "the kernel does not tell".to_owned(),
            Some(can) => match (can.redirect, can.zero_copy) {
                (true, true) => "native, zero-copy".to_owned(),
                (true, false) => "native, copied".to_owned(),
                _ => "generic, copied".to_owned(),
            },
        };
        let program = facts.program.map_or_else(|| "none".to_owned(), |number| format!("number {number}"));
        let limit = facts.process.lockable_bytes.map_or_else(|| "no limit".to_owned(), format_bytes);
        vec![
            ("interface", format!("{}, {}", facts.interface, if facts.is_up { "up" } else { "down" })),
            ("driver", facts.driver.clone().unwrap_or_else(|| "unknown".to_owned())),
            ("XDP mode", mode),
            ("XDP program", program),
            ("receive queues", format!("{} ({} cores)", facts.queues, facts.process.cores)),
            ("MTU", facts.mtu.to_string()),
            ("large receive offload", if facts.merges_segments { "on" } else { "off" }.to_owned()),
            ("kernel", facts.process.kernel.clone()),
            ("memory to lock", limit),
        ]
    }

    fn json(&self) -> Value {
        let facts = &self.facts;
        let findings = self
            .findings
            .iter()
            .map(|finding| json!({ "hinders": finding.hinders, "what": finding.what, "command": finding.command }));
        json!({
            "interface": facts.interface, "up": facts.is_up, "driver": facts.driver, "mtu": facts.mtu,
            "served_mtu": facts.served_mtu(), "queues": facts.queues, "cores": facts.process.cores,
            "lro": facts.merges_segments, "program": facts.program,
            "native": facts.driver_can.map(|can| can.redirect),
            "zero_copy": facts.driver_can.map(|can| can.zero_copy),
            "kernel": facts.process.kernel, "missing_capabilities": facts.process.missing_capabilities,
            "lockable_bytes": facts.process.lockable_bytes, "ready": self.is_ready(),
            "findings": findings.collect::<Vec<_>>(),
        })
    }
}

fn version(kernel: &str) -> Option<(u32, u32)> {
    let mut numbers = kernel.split(|character: char| !character.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn process_findings(facts: &XdpFacts) -> Vec<Finding> {
    let process = &facts.process;
    let mut findings = Vec::new();
    match version(&process.kernel) {
        Some(found) if found < KERNEL_LEAST => {
            findings.push(hindrance(format!("Linux {} is too old: 5.11 or later is needed", process.kernel), None));
        }
        Some(found) if found < KERNEL_BETTER => {
            findings
                .push(remark(format!("Linux {} lacks some of AF_XDP: 6.6 or later is better", process.kernel), None));
        }
        _ => {}
    }
    if !process.has_sockets {
        findings.push(hindrance("this kernel is built without AF_XDP (CONFIG_XDP_SOCKETS): use another kernel", None));
    }
    if !process.missing_capabilities.is_empty() {
        let missing = process.missing_capabilities.join(", ");
        let command = "setcap cap_net_admin,cap_net_raw,cap_bpf+ep $(command -v stratakv)";
        findings.push(hindrance(
            format!("{missing} missing: serve as root (--user gives that up afterwards), or give the program rights"),
            Some(command.to_owned()),
        ));
    }
    let needed = UMEM_BYTES * facts.queues as u64;
    if process.lockable_bytes.is_some_and(|limit| limit < needed) {
        findings.push(hindrance(
            format!("too little memory may be locked: {} of frames are needed", format_bytes(needed)),
            Some(format!("ulimit -l {}", (2 * needed) >> 10)),
        ));
    }
    findings
}

fn interface_findings(facts: &XdpFacts) -> Vec<Finding> {
    let name = &facts.interface;
    let (cores, queues) = (facts.process.cores, facts.queues);
    let mut findings = Vec::new();
    if !facts.is_up {
        findings.push(hindrance("the interface is down", Some(format!("ip link set {name} up"))));
    }
    if let Some(number) = facts.program {
        findings.push(hindrance(
            format!(
                "another XDP program (number {number}) is on it: stop who attached it (`bpftool link` tells), or take it off if it was left by `ip`"
            ),
            Some(format!("ip link set {name} xdp off")),
        ));
    }
    if facts.merges_segments {
        findings.push(hindrance("large receive offload is on", Some(format!("ethtool -K {name} lro off"))));
    }
    if queues > cores {
        findings.push(hindrance(
            format!(
                "{queues} receive queues for {cores} cores: each takes a thread; fewer queues, or --threads {queues}"
            ),
            Some(format!("ethtool -L {name} combined {cores}")),
        ));
    } else if queues < cores {
        findings.push(remark(
            format!("{queues} of {cores} threads serve it: more receive queues use more cores, if the card has them"),
            Some(format!("ethtool -L {name} combined {cores}")),
        ));
    }
    match facts.served_mtu() {
        None => findings.push(hindrance(
            format!("packets of {} bytes are too short: 1280 are needed", facts.mtu),
            Some(format!("ip link set {name} mtu 1500")),
        )),
        Some(served) if served < facts.mtu => findings.push(remark(
            format!("its MTU is {}: packets get up to {served} bytes, and peers are told so", facts.mtu),
            Some(format!("ip link set {name} mtu {served}")),
        )),
        Some(_) => {}
    }
    match facts.driver_can {
        Some(can) if !can.redirect => findings.push(remark(
            "its driver does not do XDP: the kernel's generic mode is slower than its TCP; take kernel sockets, or another card",
            None,
        )),
        Some(can) if !can.zero_copy => {
            findings.push(remark("its driver copies frames: measure whether it pays", None));
        }
        _ => {}
    }
    if facts.driver.as_deref() == Some("veth") {
        findings.push(remark(
            "veth: the other end has to fill in checksums (INTERFACE is its name there)",
            Some("ethtool -K INTERFACE tx off".to_owned()),
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use stratakv_device::xdp::inspect::{DriverCan, ProcessFacts};

    use super::*;

    fn good() -> XdpFacts {
        XdpFacts {
            interface: "eth1".into(),
            is_up: true,
            driver: Some("ice".into()),
            mtu: 1500,
            queues: 4,
            merges_segments: false,
            program: None,
            driver_can: Some(DriverCan { redirect: true, zero_copy: true }),
            process: ProcessFacts {
                kernel: "6.12.1-amd64".into(),
                has_sockets: true,
                missing_capabilities: Vec::new(),
                lockable_bytes: None,
                cores: 4,
            },
        }
    }

    #[test]
    fn an_interface_without_fault_is_ready() {
        let report = XdpReport::of(good());
        let text = report.text();
        assert!(text.contains("It is ready: `stratakv serve --xdp eth1"), "{text}");
        assert!(text.contains("XDP mode                 native, zero-copy\n"), "{text}");
        assert!(report.findings.is_empty() && report.json()["ready"] == true, "{text}");
    }

    #[test]
    fn each_hindrance_has_what_mends_it() {
        type Change = fn(&mut XdpFacts);
        let cases: [(Change, &str); 10] = [
            (|facts| facts.is_up = false, "    ip link set eth1 up\n"),
            (|facts| facts.program = Some(7), "    ip link set eth1 xdp off\n"),
            (|facts| facts.merges_segments = true, "    ethtool -K eth1 lro off\n"),
            (|facts| facts.queues = 8, "    ethtool -L eth1 combined 4\n"),
            (|facts| facts.mtu = 576, "    ip link set eth1 mtu 1500\n"),
            (|facts| facts.process.has_sockets = false, "CONFIG_XDP_SOCKETS"),
            (|facts| facts.process.kernel = "5.4.0".into(), "5.11 or later"),
            (
                |facts| facts.process.missing_capabilities = vec!["CAP_BPF"],
                "    setcap cap_net_admin,cap_net_raw,cap_bpf+ep",
            ),
            (|facts| facts.process.lockable_bytes = Some(8 << 20), "    ulimit -l 131072\n"),
            (|facts| facts.process.kernel = "5.10.9".into(), "too old"),
        ];
        for (change, mended_by) in cases {
            let mut facts = good();
            change(&mut facts);
            let report = XdpReport::of(facts);
            let text = report.text();
            assert!(text.contains("It cannot be served yet") && text.contains(mended_by), "{mended_by}: {text}");
            assert!(!text.contains("It is ready") && report.json()["ready"] == false, "{text}");
        }
    }

    #[test]
    fn what_only_makes_it_slower_is_told_and_does_not_hinder() {
        type Change = fn(&mut XdpFacts);
        let cases: [(Change, &str); 6] = [
            (|facts| facts.mtu = 9000, "    ip link set eth1 mtu 3826\n"),
            (|facts| facts.queues = 1, "1 of 4 threads"),
            (|facts| facts.driver_can = Some(DriverCan { redirect: false, zero_copy: false }), "does not do XDP"),
            (|facts| facts.driver_can = Some(DriverCan { redirect: true, zero_copy: false }), "copies frames"),
            (|facts| facts.driver = Some("veth".into()), "    ethtool -K INTERFACE tx off\n"),
            (|facts| facts.process.kernel = "6.1.0-amd64".into(), "6.6 or later is better"),
        ];
        for (change, what) in cases {
            let mut facts = good();
            change(&mut facts);
            let text = XdpReport::of(facts).text();
            assert!(text.contains("It is ready") && text.contains(what), "{what}: {text}");
        }
    }
}
