//! [`JournalGroup`]: the pages of the journal that are being written together.
//!
//! It owns them until all are on the volume, and decides when a group that failed is tried again.
//! Only [`crate::journal::Journal`] calls it. It never looks at records.

use stratakv_base::Mono;
use stratakv_device::IoFault;

/// A group that failed to be written is tried again after so long, twice as long each time: an
/// eighth of a second in all, in which those whom it tells of wait.
pub(crate) const RETRY_NS: u64 = crate::tier::RETRY_NS;
pub(crate) const TRIES: u32 = 7;

/// A page to be written: its number on the volume, its bytes.
pub(crate) type Page = (u64, Box<[u8]>);

/// How the writing of a group stands after a page of it came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupProgress {
    /// Pages are in flight, or it is tried again later.
    Unwritten,
    /// All of it is on the volume.
    Written,
    /// That was the last time.
    Failed(IoFault),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct JournalGroup {
    pages: Vec<Page>,
    in_flight: usize,
    /// Times that it failed to be written, and what was the matter last.
    tries: u32,
    fault: Option<IoFault>,
    retries_at: Option<Mono>,
}

impl JournalGroup {
    /// Whether there is none.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.retries_at.is_none()
    }

    /// When it is tried again, if it failed.
    pub(crate) fn retries_at(&self) -> Option<Mono> {
        self.retries_at
    }

    /// These pages are in flight.
    pub(crate) fn begin(&mut self, pages: Vec<Page>) -> Vec<Page> {
        self.pages.clone_from(&pages);
        self.in_flight = pages.len();
        pages
    }

    /// The pages of one that failed: they are in flight again.
    pub(crate) fn retry(&mut self) -> Option<Vec<Page>> {
        self.retries_at.take()?;
        self.in_flight = self.pages.len();
        Some(self.pages.clone())
    }

    /// A page was written, or not.
    pub(crate) fn page_written(&mut self, result: Result<(), IoFault>, now: Mono) -> GroupProgress {
        if self.in_flight == 0 {
            return GroupProgress::Unwritten;
        }
        self.fault = result.err().or(self.fault);
        self.in_flight -= 1;
        if self.in_flight > 0 {
            return GroupProgress::Unwritten;
        }
        let Some(fault) = self.fault.take() else {
            *self = JournalGroup::default();
            return GroupProgress::Written;
        };
        self.retries_at = Some(Mono(now.0 + (RETRY_NS << self.tries)));
        self.tries += 1;
        if self.tries > TRIES { GroupProgress::Failed(fault) } else { GroupProgress::Unwritten }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_failed_has_all_of_its_group_written_again() {
        let mut group = JournalGroup::default();
        let pages: Vec<Page> = (0..2).map(|number| (number, Box::default())).collect();
        assert_eq!(group.begin(pages.clone()), pages);
        assert_eq!(group.retry(), None, "in flight");
        assert_eq!(group.page_written(Err(IoFault::Full), Mono(5)), GroupProgress::Unwritten);
        assert_eq!((group.page_written(Ok(()), Mono(5)), group.is_idle()), (GroupProgress::Unwritten, false));
        assert_eq!((group.retries_at(), group.retry()), (Some(Mono(5 + RETRY_NS)), Some(pages)));
        assert_eq!(group.page_written(Ok(()), Mono(6)), GroupProgress::Unwritten);
        assert_eq!((group.page_written(Ok(()), Mono(6)), group.is_idle()), (GroupProgress::Written, true));
        assert_eq!(group.page_written(Ok(()), Mono(6)), GroupProgress::Unwritten, "nobody waits for it");
    }
}
