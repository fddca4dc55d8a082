//! Three thousand packages that apt knows; `cargo xtask realdata` takes all of them.

use stratakv_integration::packages::{self, Packages};
use stratakv_integration::{place, realdata, requirement};

#[test]
fn packages_go_in_and_come_out_as_they_are() {
    let Some(apt_cache) = requirement::tool("apt-cache") else { return };
    let all = packages::read(&apt_cache).expect("apt-cache works");
    if all.len() < 100 {
        return requirement::not_here("apt-cache has no lists (apt-get update)");
    }
    let step = all.len().div_ceil(3000);
    let sample: Packages = all.into_iter().step_by(step).collect();
    let place = place::directory();
    let mut steps = Vec::new();
    let outcome = realdata::run(place.path(), &sample, &[], &mut |step| steps.push(step.to_owned()));
    outcome.unwrap_or_else(|message| panic!("{message}\nafter: {steps:#?}"));
}
