//! [`PciAddress`]: how a PCI function is named. Users type it, sysfs has folders of that name.

use std::fmt;
use std::str::FromStr;

/// Domain, bus, device and function of a PCI function: `0000:05:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// The text is no PCI address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no PCI address, which looks like 0000:05:00.0 or 05:00.0: `stratakv doctor --nvme` lists controllers"
)]
pub struct BadPciAddress(pub String);

impl FromStr for PciAddress {
    type Err = BadPciAddress;

    /// Strict: `DDDD:BB:DD.F` (a domain of four to eight digits), or `BB:DD.F` for domain 0, all
    /// hexadecimal.
    fn from_str(text: &str) -> Result<PciAddress, BadPciAddress> {
        let parse = || {
            let (front, function) = text.rsplit_once('.')?;
            let (front, device) = front.rsplit_once(':')?;
            let (domain, bus) = match front.split_once(':') {
                Some((domain, bus)) => (hexadecimal(domain, 4..=8)?, bus),
                None => (0, front),
            };
            let (bus, device) = (hexadecimal(bus, 2..=2)?, hexadecimal(device, 2..=2)?);
            let function = hexadecimal(function, 1..=1)?;
            let in_range = device < 32 && function < 8;
            let address = PciAddress { domain, bus: bus as u8, device: device as u8, function: function as u8 };
            in_range.then_some(address)
        };
        parse().ok_or_else(|| BadPciAddress(text.to_owned()))
    }
}

fn hexadecimal(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<u32> {
    let is_plain = digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_plain.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

impl fmt::Display for PciAddress {
    /// As sysfs and `lspci -D` write it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciAddress { domain, bus, device, function } = self;
        write!(formatter, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_written_as_sysfs_has_it() {
        for (text, shown) in [
            ("0000:05:00.0", "0000:05:00.0"),
            ("05:00.0", "0000:05:00.0"),
            ("0000:C1:1f.7", "0000:c1:1f.7"),
            ("10000:e1:00.0", "10000:e1:00.0"),
        ] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            ".",
            ":",
            "5:00.0",
            "05:00",
            "05:00.8",
            "05:20.0",
            "000:05:00.0",
            "0000:05:00.0 ",
            "../05:00.0",
            "0000:05:00.00",
            "+1:00.0",
            "0000:0000:05:00.0",
            "0000/05:00.0",
            "05:00.0\n",
            "05:0é.0",
            "123456789:05:00.0",
        ] {
            assert!(text.parse::<PciAddress>().is_err(), "{text:?}");
        }
        let message = "eth0".parse::<PciAddress>().unwrap_err().to_string();
        assert!(message.contains("`eth0`") && message.contains("0000:05:00.0"), "{message}");
    }
}
