//! A controller over an image in memory, which does each command at once: for tests that want a
//! device and no faults of its medium. Any thread may use it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stratakv_device::nvme::{
    Bus, Controller, DeviceMemory, EmulatedBus, EmulatedDevice, Namespace, NvmeError, NvmeOptions,
};

use super::controller::{Command, ControllerTraits, EmulatedController, Opcode, Quirk};
use super::transfer;

/// An emulated device, opened by the driver.
#[derive(Debug)]
pub struct NvmeImage {
    bus: Arc<EmulatedBus<ImageController>>,
    namespace: Arc<Namespace>,
}

impl NvmeImage {
    /// A device full of zeros.
    ///
    /// # Errors
    /// The driver refuses it.
    pub fn new(traits: ControllerTraits, options: NvmeOptions) -> Result<NvmeImage, NvmeError> {
        let device = ImageController {
            controller: EmulatedController::new(traits),
            image: vec![0; (traits.blocks as usize) << traits.lbads],
            quirks: BTreeMap::new(),
            taken: 0,
            lost: None,
            begin: Instant::now(),
        };
        let bus = Arc::new(EmulatedBus::new("0000:00:00.0", device));
        let namespace = Self::open(&bus, options)?;
        Ok(NvmeImage { bus, namespace })
    }

    fn open(bus: &Arc<EmulatedBus<ImageController>>, options: NvmeOptions) -> Result<Arc<Namespace>, NvmeError> {
        let controller = Controller::start(Arc::clone(bus) as Arc<dyn Bus>, options)?;
        Namespace::open(&controller, 1)
    }

    /// The device as the driver has it.
    pub fn namespace(&self) -> &Arc<Namespace> {
        &self.namespace
    }

    /// Does a command that it had lost, as [`Quirk::Lost`] has it. False if there is none.
    pub fn find_lost(&self) -> bool {
        self.bus.with(|device, memory| {
            let Some(command) = device.lost.take() else { return false };
            device.controller.mend();
            let status = device.execute(&command, memory);
            device.controller.complete(command.queue, command.cid(), status, memory);
            true
        })
    }

    /// The device itself.
    pub fn with<R>(&self, look: impl FnOnce(&mut ImageController) -> R) -> R {
        self.bus.with(|device, _| look(device))
    }
}

/// The device behind a [`NvmeImage`]: registers and queues, an image, and what goes wrong with it.
#[derive(Debug)]
pub struct ImageController {
    controller: EmulatedController,
    image: Vec<u8>,
    /// What goes wrong, by the number of the I/O command that it befalls.
    quirks: BTreeMap<u64, Quirk>,
    taken: u64,
    /// The last command that was lost.
    lost: Option<Command>,
    begin: Instant,
}

impl ImageController {
    /// The I/O command that comes after `others` more meets a quirk.
    pub fn plan(&mut self, others: u64, quirk: Quirk) {
        self.quirks.insert(self.taken + others, quirk);
    }

    /// The controller.
    pub fn controller(&mut self) -> &mut EmulatedController {
        &mut self.controller
    }

    /// I/O commands so far.
    pub fn commands(&self) -> u64 {
        self.taken
    }

    fn run(&mut self, memory: &DeviceMemory) {
        while let Some(command) = self.controller.take() {
            let quirk = self.quirks.remove(&self.taken);
            self.taken += 1;
            match quirk {
                Some(quirk) if quirk != Quirk::Twice => {
                    self.lost = matches!(quirk, Quirk::Lost { .. }).then_some(command);
                    self.controller.misbehave(&command, quirk, memory);
                }
                quirk => {
                    let status = self.execute(&command, memory);
                    self.controller.complete(command.queue, command.cid(), status, memory);
                    if quirk.is_some() {
                        self.controller.complete_again(command.queue, command.cid(), memory);
                    }
                }
            }
        }
    }

    fn execute(&mut self, command: &Command, memory: &DeviceMemory) -> u16 {
        let lbads = self.controller.traits().lbads;
        let Some(opcode) = command.opcode() else { return 0x01 };
        if opcode == Opcode::Flush {
            return 0;
        }
        if opcode == Opcode::DatasetManagement {
            let mut range = [0; 16];
            return if memory.read(command.data_pointer()[0], &mut range) { 0 } else { 0x04 };
        }
        let bytes = (command.blocks() as usize) << lbads;
        let at = (command.slba() as usize) << lbads;
        let Some(place) = self.image.get_mut(at..at + bytes) else { return 0x80 };
        if opcode == Opcode::WriteZeroes {
            place.fill(0);
            return 0;
        }
        let Some(runs) = transfer::runs(command, bytes, memory) else { return 0x13 };
        let done = match opcode {
            Opcode::Write => transfer::gather(&runs, place, memory),
            _ => transfer::scatter(&runs, place, memory),
        };
        if done { 0 } else { 0x04 }
    }
}

impl EmulatedDevice for ImageController {
    fn read_register(&mut self, offset: usize) -> u32 {
        self.controller.read_register(offset)
    }

    fn write_register(&mut self, offset: usize, value: u32, memory: &DeviceMemory) {
        self.controller.write_register(offset, value, memory);
        self.run(memory);
    }

    fn reset(&mut self) -> bool {
        self.controller.reset()
    }

    fn now(&mut self) -> Duration {
        self.begin.elapsed()
    }

    fn pause(&mut self, _memory: &DeviceMemory) {
        std::thread::yield_now();
    }
}
