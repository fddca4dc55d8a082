//! [`FramePool`]: who owns each frame of a UMEM.

use stratakv_base::fault_point;

/// The owner of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameOwner {
    Free,
    /// The kernel, which may write a received frame there at any time.
    Receiving,
    /// The kernel, which has yet to send what is there.
    Sending,
    /// The stack, which reads or writes it.
    Stack,
}

/// The owners, and a list of free frames. A frame's number that comes from the kernel is believed
/// only if the kernel has that frame.
#[derive(Debug)]
pub(super) struct FramePool {
    owners: Vec<FrameOwner>,
    free: Vec<u32>,
    /// Frames that the kernel has for receiving.
    receiving: usize,
    /// Descriptors of frames that it did not have.
    strange: u64,
}

impl FramePool {
    pub(super) fn new(frames: u32) -> FramePool {
        let owners = vec![FrameOwner::Free; frames as usize];
        FramePool { owners, free: (0..frames).rev().collect(), receiving: 0, strange: 0 }
    }

    /// Half of the frames are kept for sending, so that a flood of received ones does not take all.
    pub(super) fn next_for_receiving(&mut self) -> Option<u32> {
        if self.receiving >= self.owners.len() / 2 {
            return None;
        }
        let frame = self.free.pop()?;
        self.receiving += 1;
        self.set(frame, FrameOwner::Receiving);
        Some(frame)
    }

    pub(super) fn next_for_sending(&mut self) -> Option<u32> {
        let frame = self.free.pop()?;
        self.set(frame, FrameOwner::Sending);
        fault_point!("xdp_sent_frame_reused_early", self.free.push(frame));
        Some(frame)
    }

    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// The kernel says that it wrote a frame here.
    pub(super) fn received(&mut self, frame: u32) -> bool {
        let is_ours = self.change(frame, FrameOwner::Receiving, FrameOwner::Stack);
        self.receiving -= usize::from(is_ours);
        is_ours
    }

    /// The kernel says that it has sent what was here.
    pub(super) fn sent(&mut self, frame: u32) -> bool {
        let is_ours = self.change(frame, FrameOwner::Sending, FrameOwner::Free);
        if is_ours {
            self.free.push(frame);
        }
        is_ours
    }

    /// The stack has done with a received frame.
    pub(super) fn release(&mut self, frame: u32) {
        if self.change(frame, FrameOwner::Stack, FrameOwner::Free) {
            self.free.push(frame);
        }
    }

    /// Descriptors that the kernel could not have given.
    #[cfg(any(test, fuzzing))]
    pub(super) fn strange(&self) -> u64 {
        self.strange
    }

    fn set(&mut self, frame: u32, owner: FrameOwner) {
        if let Some(place) = self.owners.get_mut(frame as usize) {
            *place = owner;
        }
    }

    fn change(&mut self, frame: u32, from: FrameOwner, to: FrameOwner) -> bool {
        let is_so = self.owners.get(frame as usize) == Some(&from);
        if is_so {
            self.set(frame, to);
        } else {
            self.strange += 1;
        }
        is_so
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_frames_stay_for_sending() {
        let mut pool = FramePool::new(8);
        assert_eq!((0..8).filter_map(|_| pool.next_for_receiving()).count(), 4);
        assert_eq!((0..8).filter_map(|_| pool.next_for_sending()).count(), 4);
        assert!(!pool.has_free());
    }

    #[test]
    fn a_frame_is_believed_to_be_done_only_by_its_owner() {
        let mut pool = FramePool::new(4);
        let (received, sent) = (pool.next_for_receiving().unwrap(), pool.next_for_sending().unwrap());
        assert!(!pool.sent(received) && !pool.received(sent) && !pool.received(77) && !pool.sent(u32::MAX));
        assert!(pool.received(received) && !pool.received(received));
        assert!(pool.sent(sent) && !pool.sent(sent));
        pool.release(received);
        pool.release(received);
        assert_eq!(pool.free.len(), 4);
        assert_eq!(pool.strange(), 7);
    }
}
