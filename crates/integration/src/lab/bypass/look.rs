//! Opens controllers by VFIO and looks at their registers: what the layer below the driver
//! promises.

use std::os::fd::AsFd;

use rustix::event::{EventfdFlags, eventfd};
use stratakv_device::nvme::inspect::{Inspector, VFIO_DRIVER};
use stratakv_device::nvme::{Bus, Vfio, VfioRefusal};

use super::super::guest::text;
use super::binding::{bind, give_back};
use super::{SPARE, VOLUME};

/// Registers of a controller (NVMe base specification, 3.1.3).
const CAP: usize = 0;
const VS: usize = 8;

pub(super) fn run() -> Result<String, String> {
    match Vfio::open(VOLUME) {
        Err(VfioRefusal::Driver { driver: Some(driver), .. }) if driver == "nvme" => {}
        other => return Err(format!("a controller of the kernel's was answered {other:?}")),
    }
    let commands = [bind(VOLUME)?, bind(SPARE)?].concat();
    let volume = Vfio::open(VOLUME).map_err(|error| error.to_string())?;
    let (cap, version) = (volume.read_u64(CAP), volume.read_u32(VS));
    if cap == u64::MAX || version == u32::MAX || cap & 0xffff_ffff != u64::from(volume.read_u32(CAP)) {
        return Err(format!("CAP {cap:#x}, VS {version:#x}"));
    }
    if volume.read_u32(volume.bar_bytes()) != u32::MAX {
        return Err("a read beyond the registers is no ones".into());
    }
    refuse_second(&volume)?;
    let spare = Vfio::open(SPARE).map_err(|error| error.to_string())?;
    memory(&volume)?;
    interrupts(&volume)?;
    let reset = spare.reset().map_or_else(|error| error.to_string(), |()| "done".to_owned());
    if spare.read_u64(CAP) != cap {
        return Err("after a reset the registers are not there".into());
    }
    let said = format!(
        "{VOLUME}: CAP {cap:#x}, VS {}.{}.{}, {} bytes of registers ({} mapped), {} interrupt vectors; reset of {SPARE}: {reset}",
        version >> 16,
        version >> 8 & 0xff,
        version & 0xff,
        volume.bar_bytes(),
        volume.mapped_bytes(),
        volume.vectors()
    );
    drop((volume, spare));
    let volume = Vfio::open(VOLUME).map_err(|error| format!("again: {error}"))?;
    if volume.read_u64(CAP) != cap {
        return Err("opened again, the registers are not there".into());
    }
    drop(volume);
    for address in [VOLUME, SPARE] {
        give_back(address)?;
        let function = Inspector::here().function(address.parse().map_err(text("read an address"))?);
        match function.and_then(|function| function.driver) {
            Some(driver) if driver != VFIO_DRIVER => {}
            driver => return Err(format!("{address} was given back, and its driver is {driver:?}")),
        }
    }
    Ok(format!("{} commands bound two controllers; {said}", commands.len()))
}

/// One process at a time, and one value.
fn refuse_second(volume: &Vfio) -> Result<(), String> {
    match Vfio::open(volume.name()) {
        Err(VfioRefusal::Busy { .. }) => Ok(()),
        other => Err(format!("a controller that is open was answered {other:?}")),
    }
}

/// Interrupts go to eventfds, to more and to fewer of them, and to no more than there are.
fn interrupts(volume: &Vfio) -> Result<(), String> {
    let event = eventfd(0, EventfdFlags::CLOEXEC).map_err(text("make an eventfd"))?;
    let some = Some(event.as_fd());
    let set = |events: &[Option<_>]| volume.interrupts(events).map_err(text(&format!("set {} vectors", events.len())));
    set(&[some])?;
    set(&[some, None, some])?;
    set(&[None, some])?;
    set(&[])?;
    set(&[some, some])?;
    set(&[None])?;
    match volume.interrupts(&vec![some; usize::from(volume.vectors()) + 1]) {
        Err(_) => Ok(()),
        Ok(()) => Err("more vectors were set than there are".into()),
    }
}

/// What was never mapped is not unmapped.
fn memory(volume: &Vfio) -> Result<(), String> {
    match volume.unmap(1 << 20, 4096) {
        Err(_) => Ok(()),
        Ok(()) => Err("memory was unmapped that was never mapped".into()),
    }
}
