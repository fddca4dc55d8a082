//! Caches behind a real proxy while servers go away and come back: the short form of
//! `cargo xtask proxies`.

use stratakv_integration::proxies::{Plan, network_error, run};
use stratakv_integration::requirement::not_here;

#[test]
fn clients_of_a_proxy_get_no_answer_that_is_older_than_allowed() {
    if let Some(why) = network_error() {
        not_here(&format!("servers that are cut off need network namespaces: {why}"));
    }
    let seen = run(&Plan::short(), &mut |_, _| {});
    seen.unwrap_or_else(|why| panic!("{why}"));
}
