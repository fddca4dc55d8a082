//! [`StackSocket`]: a socket of a network stack in user space, as its users hold it.
//!
//! The stack belongs to one thread's ring. Handles may be dropped and asked from any thread: what
//! they want of the stack waits in [`Orders`] until its next tick.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Numbers of a stack's sockets begin here: no process has so many descriptors.
const NUMBERS_FROM: i32 = 1 << 30;

/// A listening or connected socket of a stack.
#[derive(Debug)]
pub struct StackSocket {
    pub(super) id: SocketId,
    local: SocketAddr,
    peer: Option<SocketAddr>,
    untaken_bytes: Arc<AtomicU64>,
    orders: Arc<Orders>,
}

/// Which socket of its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketId {
    Listener(u32),
    /// Slot, and how often it had been used before.
    Connection(u32, u32),
}

/// What a handle wants of its socket.
#[derive(Debug)]
pub(super) enum Order {
    /// The last handle is gone.
    Close(SocketId),
    EndSending(SocketId),
    EndReceiving(SocketId),
    LastWords(SocketId, Vec<u8>),
}

/// What handles want of a stack, until its next tick.
#[derive(Debug, Default)]
pub(super) struct Orders {
    waiting: Mutex<Vec<Order>>,
    are_waiting: AtomicBool,
}

impl Orders {
    fn push(&self, order: Order) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(order);
        self.are_waiting.store(true, Ordering::Release);
    }

    /// All of them, in order.
    pub(super) fn take(&self) -> Vec<Order> {
        if !self.are_waiting.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl StackSocket {
    pub(super) fn listener(number: u32, local: SocketAddr, orders: &Arc<Orders>) -> StackSocket {
        let id = SocketId::Listener(number);
        StackSocket { id, local, peer: None, untaken_bytes: Arc::default(), orders: Arc::clone(orders) }
    }

    pub(super) fn connection(
        id: SocketId,
        (local, peer): (SocketAddr, SocketAddr),
        untaken_bytes: &Arc<AtomicU64>,
        orders: &Arc<Orders>,
    ) -> StackSocket {
        let (untaken_bytes, orders) = (Arc::clone(untaken_bytes), Arc::clone(orders));
        StackSocket { id, local, peer: Some(peer), untaken_bytes, orders }
    }

    /// Whether it is a socket of the stack that takes these orders.
    pub(super) fn is_of(&self, orders: &Arc<Orders>) -> bool {
        Arc::ptr_eq(&self.orders, orders)
    }

    pub(crate) fn number(&self) -> i32 {
        let (SocketId::Listener(number) | SocketId::Connection(number, _)) = self.id;
        NUMBERS_FROM.saturating_add(i32::try_from(number).unwrap_or(i32::MAX))
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Bytes accepted for sending that the peer has not acknowledged.
    pub(crate) fn untaken_bytes(&self) -> u64 {
        self.untaken_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn end_sending(&self) {
        self.orders.push(Order::EndSending(self.id));
    }

    pub(crate) fn end_receiving(&self) {
        self.orders.push(Order::EndReceiving(self.id));
    }

    pub(crate) fn send_last_words(&self, bytes: &[u8]) {
        self.orders.push(Order::LastWords(self.id, bytes.to_vec()));
    }
}

impl Drop for StackSocket {
    fn drop(&mut self) {
        self.orders.push(Order::Close(self.id));
    }
}
