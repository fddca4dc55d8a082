//! bpf(2): the map of sockets, the program, and the link that attaches it to an interface for as
//! long as this process has it.
#![expect(unsafe_code, reason = "a system call that takes pointers to its arguments")]

use std::ffi::c_long;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::filter::Instruction;

/// Commands, types and flags of `linux/bpf.h`.
const MAP_CREATE: c_long = 0;
const MAP_UPDATE: c_long = 2;
const PROGRAM_LOAD: c_long = 5;
#[cfg(test)]
const PROGRAM_TEST_RUN: c_long = 10;
const LINK_CREATE: c_long = 28;
const LINK_UPDATE: c_long = 29;
const MAP_OF_XDP_SOCKETS: u32 = 17;
const PROGRAM_OF_XDP: u32 = 6;
const ATTACHED_AS_XDP: u32 = 37;
/// Frames of several buffers may come: interfaces with a large MTU demand that it is said.
const HAS_FRAGMENTS: u32 = 1 << 5;
const IN_THE_STACK: u32 = 1 << 1;
const IN_THE_DRIVER: u32 = 1 << 2;

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries_max: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct MapUpdate {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    kind: u32,
    instructions: u32,
    instructions_at: u64,
    licence_at: u64,
    log_level: u32,
    log_bytes: u32,
    log_at: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attached_as: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attached_as: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkUpdate {
    link: u32,
    program: u32,
    flags: u32,
    replaced: u32,
}

/// One call; a positive result or an error.
fn call<T>(command: c_long, arguments: &mut T) -> io::Result<c_long> {
    // SAFETY: `arguments` is a plain structure of bpf(2) for this command, and what its addresses
    // lead to lives in the caller until the call returns. The kernel reads so many bytes of it.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(arguments), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn descriptor<T>(command: c_long, arguments: &mut T) -> io::Result<OwnedFd> {
    let number = call(command, arguments)?;
    let number = i32::try_from(number).map_err(io::Error::other)?;
    // SAFETY: these commands return a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// A map from receive queues to sockets.
#[derive(Debug)]
pub(super) struct SocketMap(OwnedFd);

impl SocketMap {
    pub(super) fn new(queues: u32) -> io::Result<SocketMap> {
        let mut arguments = MapCreate {
            kind: MAP_OF_XDP_SOCKETS,
            key_bytes: 4,
            value_bytes: 4,
            entries_max: queues,
            ..MapCreate::default()
        };
        Ok(SocketMap(descriptor(MAP_CREATE, &mut arguments)?))
    }

    pub(super) fn raw(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Frames of this queue go to this socket from now on.
    pub(super) fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let (queue, socket) = (queue, socket.as_raw_fd());
        let mut arguments = MapUpdate {
            map: self.0.as_raw_fd().cast_unsigned(),
            key: (&raw const queue).addr() as u64,
            value: (&raw const socket).addr() as u64,
            ..MapUpdate::default()
        };
        call(MAP_UPDATE, &mut arguments).map(|_| ())
    }
}

/// A loaded program.
#[derive(Debug)]
pub(super) struct Program(OwnedFd);

impl Program {
    /// Loads a program of XDP.
    ///
    /// # Errors
    /// As bpf(2): EPERM without CAP_BPF and CAP_NET_ADMIN, and a defect of the program with the
    /// verifier's last lines.
    pub(super) fn load(instructions: &[Instruction]) -> io::Result<Program> {
        // Before Linux 5.18 nobody speaks of fragments.
        Program::load_with(instructions, HAS_FRAGMENTS).or_else(|_| Program::load_with(instructions, 0))
    }

    fn load_with(instructions: &[Instruction], flags: u32) -> io::Result<Program> {
        let mut log = vec![0u8; 64 << 10];
        let mut name = [0; 16];
        name.iter_mut().zip(b"stratakv").for_each(|(to, from)| *to = *from);
        let mut arguments = ProgramLoad {
            kind: PROGRAM_OF_XDP,
            instructions: instructions.len() as u32,
            instructions_at: instructions.as_ptr().addr() as u64,
            licence_at: c"Apache-2.0 OR MIT".as_ptr().addr() as u64,
            log_level: 1,
            log_bytes: log.len() as u32,
            log_at: log.as_mut_ptr().addr() as u64,
            flags,
            name,
            attached_as: ATTACHED_AS_XDP,
            ..ProgramLoad::default()
        };
        let loaded = descriptor(PROGRAM_LOAD, &mut arguments);
        match loaded {
            Ok(program) => Ok(Program(program)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EACCES)) => {
                let log = String::from_utf8_lossy(&log);
                let lines: Vec<_> = log.trim_end_matches('\0').trim().lines().collect();
                let last = lines.iter().rev().take(4).rev().copied().collect::<Vec<_>>().join("; ");
                Err(io::Error::new(error.kind(), format!("{error} (the kernel's verifier says: {last})")))
            }
            Err(error) => Err(error),
        }
    }

    /// What the program returns for a frame.
    #[cfg(test)]
    pub(super) fn run(&self, frame: &[u8]) -> io::Result<u32> {
        #[repr(C)]
        #[derive(Default)]
        struct TestRun {
            program: u32,
            result: u32,
            bytes: u32,
            result_bytes: u32,
            bytes_at: u64,
            result_at: u64,
            repeat: u32,
            nanoseconds: u32,
        }
        let mut arguments = TestRun {
            program: self.0.as_raw_fd().cast_unsigned(),
            bytes: frame.len() as u32,
            bytes_at: frame.as_ptr().addr() as u64,
            ..TestRun::default()
        };
        call(PROGRAM_TEST_RUN, &mut arguments)?;
        Ok(arguments.result)
    }

    /// Attaches the program to an interface: in its driver, else in the kernel's general code.
    pub(super) fn attach(&self, interface: u32) -> io::Result<Link> {
        let link = |flags| {
            let mut arguments = LinkCreate {
                program: self.0.as_raw_fd().cast_unsigned(),
                interface,
                attached_as: ATTACHED_AS_XDP,
                flags,
            };
            descriptor(LINK_CREATE, &mut arguments)
        };
        match link(IN_THE_DRIVER) {
            Ok(link) => Ok(Link { link, is_native: true }),
            // Another program is there, or the rights are missing: the other mode has no more.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EPERM | libc::ENODEV)) => Err(error),
            Err(native) => match link(IN_THE_STACK) {
                Ok(link) => {
                    tracing::warn!(error = %native, "the driver takes no XDP program; using the kernel's generic mode, which is slower");
                    Ok(Link { link, is_native: false })
                }
                Err(_) => Err(native),
            },
        }
    }
}

/// An attached program; detached when dropped, or when the process ends in any way.
#[derive(Debug)]
pub(super) struct Link {
    link: OwnedFd,
    /// In the driver.
    pub(super) is_native: bool,
}

impl Link {
    /// Has another program run in the place of the one that was attached.
    ///
    /// # Errors
    /// As bpf(2).
    pub(super) fn replace_with(&self, program: &Program) -> io::Result<()> {
        let (link, program) = (self.link.as_raw_fd().cast_unsigned(), program.0.as_raw_fd().cast_unsigned());
        call(LINK_UPDATE, &mut LinkUpdate { link, program, ..LinkUpdate::default() }).map(|_| ())
    }
}

impl AsFd for SocketMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
