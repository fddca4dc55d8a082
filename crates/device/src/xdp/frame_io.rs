//! [`FrameIo`]: where a stack's Ethernet frames come from and go to.

/// Frames in, frames out. An AF_XDP socket is one; a link in memory another, for tests.
pub trait FrameIo {
    /// A received frame, until it is released.
    type Frame: AsRef<[u8]>;

    /// The next received frame.
    fn receive(&mut self) -> Option<Self::Frame>;

    /// Gives a received frame's memory back.
    fn release(&mut self, frame: Self::Frame);

    /// Whether there is room for one more frame to be sent.
    fn can_transmit(&mut self) -> bool;

    /// Queues a frame of `len` bytes that `fill` writes. Without room, or if the frame is too long,
    /// `fill` runs all the same and what it wrote is dropped, as a wire may drop it.
    fn transmit<R>(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R;

    /// Hands over everything queued since.
    ///
    /// # Errors
    /// The interface is gone, or takes frames no more.
    fn flush(&mut self) -> std::io::Result<()>;
}
