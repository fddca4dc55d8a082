//! The seam: what takes a namespace's commands.
#![expect(unsafe_code, reason = "commands hold pointers, whose life is a duty of who gives them")]

use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::passthrough::abi::PassthroughCommand;

/// The kernel's driver, or a program in its place. Threads share it.
pub(super) trait CommandTarget: Debug + Send + Sync {
    /// A queue for one thread. When it was told of a sleep, each completion signals `event`.
    fn queue(&self, depth: u16, event: OwnedFd) -> io::Result<Box<dyn CommandQueue>>;

    /// Does one command, to its end: a status, or an error number below 0.
    ///
    /// # Safety
    /// What the command points to is valid, and is not used by anybody else, until this returns.
    unsafe fn execute(&self, command: &PassthroughCommand) -> i32;

    /// The time, for what is tried again.
    fn now(&self) -> Duration;

    /// Waits for so long.
    fn pause(&self, time: Duration);

    /// Gives its locks back.
    fn unlock(&self);
}

/// Commands of one thread.
pub(super) trait CommandQueue: Send {
    /// Queues a command; `false`: there is no room before the next submit.
    ///
    /// # Safety
    /// What the command points to is valid, and is not used by anybody else, until
    /// [`poll`](CommandQueue::poll) has given its slot.
    unsafe fn push(&mut self, slot: u16, command: &PassthroughCommand) -> bool;

    /// Hands over what is queued, in one call; and lets the kernel do what it has put off.
    fn submit(&mut self) -> io::Result<()>;

    /// Moves the slots of commands that have ended to `ended`, each with how. No system call.
    fn poll(&mut self, ended: &mut Vec<(u16, i32)>);

    /// Whether a submit or a poll would bring something: a look without a system call.
    fn has_news(&mut self) -> bool;

    /// From now on completions signal the event, or no more.
    fn announce_sleep(&mut self, sleeps: bool);

    /// Waits until a command ends, if one is in flight.
    fn wait(&mut self) -> io::Result<()>;

    /// System calls so far.
    fn system_calls(&self) -> u64;
}
