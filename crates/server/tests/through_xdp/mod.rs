//! The tests of this program once more, with clients that come through AF_XDP instead of loopback:
//! it runs itself, and says by a variable of the environment over which cable.

use std::process::Command;

use stratakv_server::{ServerOptions, UMEM_BYTES, XdpOptions};

#[path = "../../../cli/tests/xdp/network.rs"]
#[expect(dead_code, reason = "other tests ask more of a network")]
mod network;

pub use network::Network;
use network::{INTERFACE, Losses, SERVER};

const VARIABLE: &str = "STRATAKV_TEST_CABLE";
/// Their subject is the kernel's sockets, or they have no client at all.
const NOT_THROUGH_XDP: [&str; 7] = [
    "through_xdp",
    "memcached_itself_talks_like_the_tables",
    "a_busy_port_is_told_with_the_way_out",
    "options_that_make_no_sense_are_refused",
    "connections_are_listed_with_their_addresses",
    "accounts_come_from_a_file_and_a_bad_one_is_told",
    "compatibility",
];
/// Those whose clients send and take much, over a cable that loses frames: each loss costs a
/// client's kernel 200 ms or more.
const OVER_A_BAD_CABLE: [&str; 4] = [
    "conversations_go_as_written",
    "values_of_a_megabyte_and_pages_in_between",
    "ten_thousand_gets_in_one_go",
    "many_clients_count_together",
];

/// The network that this run of the tests is to use, if it is not loopback.
pub fn network() -> Option<Network> {
    let losses = match std::env::var(VARIABLE).ok()?.as_str() {
        "bad" => Some(Losses { seed: 3, lost_of_1000: 5, delay_ms: 0.3 }),
        _ => None,
    };
    network::network(1500, losses)
}

impl Network {
    /// Has a server that is started next be at the server's end, and serve it through AF_XDP.
    pub fn serve_here(&self, options: &mut ServerOptions) {
        self.enter_server();
        options.memcache = vec![([0, 0, 0, 0], 0).into()];
        options.xdp = Some(XdpOptions {
            interface: INTERFACE.into(),
            addresses: vec![(SERVER.parse().unwrap(), 24)],
            umem_bytes: UMEM_BYTES,
            connections_max: 1000,
        });
    }
}

fn run(cable: &str, arguments: &[&str]) {
    if std::env::var_os(VARIABLE).is_some() || network::network(1500, None).is_none() {
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.env(VARIABLE, cable).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "over cable `{cable}`:\n{said}");
    assert!(!said.contains("running 0 tests"), "{said}");
}

#[test]
fn what_clients_get_through_the_kernel_they_get_through_af_xdp() {
    let without = NOT_THROUGH_XDP.iter().flat_map(|name| ["--skip", name]);
    // They wait most of the time.
    run("good", &without.chain(["--test-threads", "8"]).collect::<Vec<_>>());
}

#[test]
fn a_bad_cable_makes_it_slower_and_no_different() {
    let list = [&OVER_A_BAD_CABLE[..], &["--exact", "--test-threads", "4"]].concat();
    run("bad", &list);
}
