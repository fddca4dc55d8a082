//! Runs the commands that `stratakv doctor --nvme` prints, as a shell of root would.

use std::fs::{self, File};
use std::path::Path;

use rustix::system::finit_module;
use stratakv_device::nvme::inspect::{Inspector, bind_commands, give_back_commands};

use super::super::guest::text;
use super::super::pmem::MODULES;
use super::MODULE_FILES;

/// Takes the controller at `address` from its driver: the commands that were needed.
///
/// # Errors
/// It should not be taken, or a command failed.
pub(in crate::lab) fn bind(address: &str) -> Result<Vec<String>, String> {
    let inspector = Inspector::here();
    let function = function(&inspector, address)?;
    let obstacles = |obstacles: Vec<_>| format!("{address} is not to be bound: {obstacles:?}");
    let commands = bind_commands(&function, &inspector.prerequisites()).map_err(obstacles)?;
    commands.iter().try_for_each(|command| run(command))?;
    Ok(commands)
}

/// Gives it back to the kernel's driver.
///
/// # Errors
/// A command failed.
pub(in crate::lab) fn give_back(address: &str) -> Result<Vec<String>, String> {
    let commands = give_back_commands(&function(&Inspector::here(), address)?);
    commands.iter().try_for_each(|command| run(command))?;
    Ok(commands)
}

fn function(inspector: &Inspector, address: &str) -> Result<stratakv_device::nvme::inspect::NvmeFunction, String> {
    let address = address.parse().map_err(text("read an address"))?;
    inspector.function(address).ok_or_else(|| format!("there is no {address}"))
}

/// `modprobe vfio-pci`, or `echo WORD > FILE`: the guest has no shell.
pub(super) fn run(command: &str) -> Result<(), String> {
    if command == "modprobe vfio-pci" {
        return load_modules();
    }
    let (word, path) = parse_echo(command).ok_or_else(|| format!("`{command}` is no command that the guest knows"))?;
    fs::write(path, format!("{word}\n")).map_err(text(&format!("run `{command}`")))
}

fn parse_echo(command: &str) -> Option<(&str, &str)> {
    let (word, path) = command.strip_prefix("echo")?.split_once("> ")?;
    Some((word.trim(), path.trim()))
}

fn load_modules() -> Result<(), String> {
    for module in MODULE_FILES {
        let path = format!("/{MODULES}/{}", module.replace('/', "_"));
        if !Path::new(&path).exists() {
            continue;
        }
        let file = File::open(&path).map_err(text(&format!("open {path}")))?;
        // The emulated IOMMU remaps interrupts, as far as the kernel believes it.
        let options = if module.ends_with("type1.ko") { c"allow_unsafe_interrupts=1" } else { c"" };
        finit_module(&file, options, 0).map_err(text(&format!("load {path}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_a_shell_are_understood() {
        assert_eq!(parse_echo("echo vfio-pci > /sys/x/driver_override"), Some(("vfio-pci", "/sys/x/driver_override")));
        assert_eq!(parse_echo("echo > /sys/x/driver_override"), Some(("", "/sys/x/driver_override")));
        assert_eq!(parse_echo("rm -rf /"), None);
        assert!(run("halt").is_err());
    }
}
