//! Registers of a controller (NVMe Base Specification 2.0, section 3.1.3), by the specification's
//! names.

/// Controller Capabilities.
pub(super) const CAP: usize = 0x00;
/// Version.
pub(super) const VS: usize = 0x08;
/// Controller Configuration.
pub(super) const CC: usize = 0x14;
/// Controller Status.
pub(super) const CSTS: usize = 0x1C;
/// Admin Queue Attributes.
pub(super) const AQA: usize = 0x24;
/// Admin Submission Queue Base Address.
pub(super) const ASQ: usize = 0x28;
/// Admin Completion Queue Base Address.
pub(super) const ACQ: usize = 0x30;
/// The first doorbell (NVMe over PCIe Transport 1.0, section 3.1.2).
pub(super) const DOORBELLS: usize = 0x1000;

/// What all registers read when the device has gone.
pub(super) const GONE: u32 = u32::MAX;

/// CAP (3.1.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capabilities(pub(super) u64);

impl Capabilities {
    /// Maximum Queue Entries Supported, as a count: 2 to 65,536.
    pub(super) fn mqes(self) -> u32 {
        (self.0 & 0xFFFF) as u32 + 1
    }

    /// Timeout of CC.EN and CSTS.RDY, in units of 500 ms.
    pub(super) fn to(self) -> u32 {
        (self.0 >> 24 & 0xFF) as u32
    }

    /// Doorbell Stride, as bytes from one doorbell to the next.
    pub(super) fn dstrd_bytes(self) -> usize {
        4 << (self.0 >> 32 & 0xF)
    }

    /// Whether the NVM command set is among the Command Sets Supported.
    pub(super) fn css_nvm(self) -> bool {
        self.0 >> 37 & 1 == 1
    }

    /// Memory Page Size Minimum, in bytes.
    pub(super) fn mpsmin_bytes(self) -> u64 {
        1 << (12 + (self.0 >> 48 & 0xF))
    }

    /// Where the doorbell of a queue lies: of its submissions, or of its completions.
    pub(super) fn doorbell(self, queue: u16, completions: bool) -> usize {
        DOORBELLS + (2 * usize::from(queue) + usize::from(completions)) * self.dstrd_bytes()
    }
}

/// CC (3.1.3.5): the NVM command set, pages of 4 KiB (MPS 0), entries of 64 and 16 bytes (IOSQES 6,
/// IOCQES 4), round robin.
pub(super) const CC_FORM: u32 = 6 << 16 | 4 << 20;
/// Enable.
pub(super) const CC_EN: u32 = 1;
/// Shutdown Notification: normal.
pub(super) const CC_SHN_NORMAL: u32 = 1 << 14;

/// CSTS (3.1.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ControllerStatus(pub(super) u32);

impl ControllerStatus {
    /// Ready.
    pub(super) fn rdy(self) -> bool {
        self.0 & 1 == 1
    }

    /// Controller Fatal Status.
    pub(super) fn cfs(self) -> bool {
        self.0 & 2 == 2
    }

    /// Shutdown Status: complete.
    pub(super) fn shst_complete(self) -> bool {
        self.0 >> 2 & 3 == 2
    }

    /// The device answers no more.
    pub(super) fn is_gone(self) -> bool {
        self.0 == GONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_as_the_specification_lays_them() {
        // What QEMU 7.2 says.
        let cap = Capabilities(0x0040_0020_0F01_07FF);
        assert_eq!((cap.mqes(), cap.to(), cap.dstrd_bytes()), (2048, 15, 4));
        assert_eq!((cap.css_nvm(), cap.mpsmin_bytes()), (true, 4096));
        assert_eq!((cap.doorbell(0, false), cap.doorbell(0, true), cap.doorbell(3, true)), (0x1000, 0x1004, 0x101C));
        let wide = Capabilities(2 << 32);
        assert_eq!(wide.doorbell(1, false), 0x1020);
    }
}
