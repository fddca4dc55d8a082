//! A program in the place of the kernel and its controller: what tests drive lanes with.
#![expect(unsafe_code, reason = "commands give addresses, which the program copies from and to")]

use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::ptr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock;
use crate::nvme::shape::NamespaceShape;
use crate::nvme::{ControllerIdentity, IDENTIFY_BYTES, NamespaceIdentity, NvmeError};
use crate::passthrough::abi::PassthroughCommand;
use crate::passthrough::builder::Piece;
use crate::passthrough::namespace::PassthroughNamespace;
use crate::passthrough::target::{CommandQueue, CommandTarget};

/// A namespace that is a program.
pub trait EmulatedNamespace: Debug + Send {
    /// Its controller's Identify page, and its own.
    fn identify(&self) -> [[u8; IDENTIFY_BYTES]; 2];

    /// Which of `pending` commands of a thread ends next; `None`: none does yet.
    fn next(&mut self, pending: usize) -> Option<usize>;

    /// Does a command (Command Dwords 0 to 15): a Status Field, or an error number below 0.
    fn execute(&mut self, dwords: &[u32; 16], data: &mut EmulatedData<'_>) -> i32;
}

/// The data of a command.
#[derive(Debug)]
pub struct EmulatedData<'a> {
    command: &'a PassthroughCommand,
}

impl EmulatedData<'_> {
    /// All of it, as it is now.
    pub fn read(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for Piece { address, bytes: count } in self.pieces() {
            let at = bytes.len();
            bytes.resize(at + count, 0);
            // SAFETY: every command came by `CommandTarget::execute` or `CommandQueue::push`; by
            // their contracts its memory is valid until it has ended.
            unsafe { ptr::copy_nonoverlapping(address as *const u8, bytes[at..].as_mut_ptr(), count) };
        }
        bytes
    }

    /// Fills it from the front; `false`: `bytes` are fewer or more.
    #[must_use]
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        let mut left = bytes;
        for Piece { address, bytes: count } in self.pieces() {
            let Some((first, rest)) = left.split_at_checked(count) else { return false };
            // SAFETY: as in `read`; nobody else uses it meanwhile.
            unsafe { ptr::copy_nonoverlapping(first.as_ptr(), address as *mut u8, count) };
            left = rest;
        }
        left.is_empty()
    }

    fn pieces(&self) -> Vec<Piece> {
        let PassthroughCommand { address, len, is_list, .. } = *self.command;
        if !is_list {
            let whole = Piece { address: address as usize, bytes: len as usize };
            return if len == 0 { Vec::new() } else { vec![whole] };
        }
        // SAFETY: as in `read`; the address is that of so many pieces.
        unsafe { std::slice::from_raw_parts(address as *const Piece, len as usize) }.to_vec()
    }
}

/// Opens a program as a namespace.
#[derive(Debug)]
pub struct EmulatedTarget<D> {
    device: Arc<Mutex<D>>,
    begin: Instant,
}

impl<D: EmulatedNamespace + 'static> EmulatedTarget<D> {
    /// Namespace 1.
    ///
    /// # Errors
    /// Its format is not taken.
    pub fn open(device: &Arc<Mutex<D>>) -> Result<Arc<PassthroughNamespace>, NvmeError> {
        let [controller, namespace] = lock(device).identify();
        let controller = ControllerIdentity::parse(&controller, 4096);
        let namespace = NamespaceIdentity::parse(&namespace).ok_or(NvmeError::BadIdentity(1))?;
        let shape = NamespaceShape::new(1, &controller, &namespace)?;
        let target = EmulatedTarget { device: Arc::clone(device), begin: Instant::now() };
        Ok(PassthroughNamespace::over(Box::new(target), "ng0n1", controller, shape, PathBuf::from("/dev/nvme0n1")))
    }
}

impl<D: EmulatedNamespace + 'static> CommandTarget for EmulatedTarget<D> {
    fn queue(&self, _depth: u16, _event: OwnedFd) -> io::Result<Box<dyn CommandQueue>> {
        let device = Arc::clone(&self.device);
        Ok(Box::new(EmulatedQueue { device, queued: Vec::new(), pending: Vec::new(), submits: 0 }))
    }

    unsafe fn execute(&self, command: &PassthroughCommand) -> i32 {
        lock(&self.device).execute(&command.command.0, &mut EmulatedData { command })
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn unlock(&self) {}
}

struct EmulatedQueue<D> {
    device: Arc<Mutex<D>>,
    /// Until the next submit.
    queued: Vec<(u16, PassthroughCommand)>,
    pending: Vec<(u16, PassthroughCommand)>,
    submits: u64,
}

/// So many commands are handed over at a time: lanes meet a queue that is full.
const QUEUED_MAX: usize = 16;

impl<D: EmulatedNamespace> CommandQueue for EmulatedQueue<D> {
    unsafe fn push(&mut self, slot: u16, command: &PassthroughCommand) -> bool {
        let has_room = self.queued.len() < QUEUED_MAX;
        if has_room {
            self.queued.push((slot, *command));
        }
        has_room
    }

    fn submit(&mut self) -> io::Result<()> {
        self.submits += u64::from(!self.queued.is_empty());
        self.pending.append(&mut self.queued);
        Ok(())
    }

    fn poll(&mut self, ended: &mut Vec<(u16, i32)>) {
        let mut device = lock(&self.device);
        while !self.pending.is_empty() {
            let Some(next) = device.next(self.pending.len()) else { break };
            let (slot, command) = self.pending.swap_remove(next);
            let status = device.execute(&command.command.0, &mut EmulatedData { command: &command });
            ended.push((slot, status));
        }
    }

    fn has_news(&mut self) -> bool {
        !self.pending.is_empty()
    }

    fn announce_sleep(&mut self, _sleeps: bool) {}

    fn wait(&mut self) -> io::Result<()> {
        std::thread::yield_now();
        Ok(())
    }

    fn system_calls(&self) -> u64 {
        self.submits
    }
}
