//! [`RequestTable`]: requests on their way, each answered once. It knows nothing of queues.

use std::collections::VecDeque;

use stratakv_base::fault_point;

use crate::nvme::requests::Request;
use crate::request::{DiskOutcome, IoFault};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct RequestTable {
    /// By number; `None` where one has ended.
    requests: Vec<Option<Request>>,
    unused: Vec<u32>,
    /// Requests that are not issued whole.
    waiting: VecDeque<u32>,
    done: Vec<(u64, DiskOutcome)>,
}

/// How far a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Issue {
    /// All of it is issued.
    Whole,
    /// Another command of it is to come.
    More,
    /// There is no room for its next command.
    NoRoom,
}

impl RequestTable {
    /// Requests that were begun and not yet taken.
    pub(crate) fn in_flight(&self) -> usize {
        self.requests.len() - self.unused.len() + self.done.len()
    }

    /// Whether requests wait for room.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Begins a request, or takes how it ended before that.
    pub(crate) fn begin(&mut self, request: Result<Request, (u64, DiskOutcome)>) {
        let request = match request {
            Ok(request) => request,
            Err(ended) => return self.done.push(ended),
        };
        fault_point!("nvme_flush_lost", request.is_flush(), return self.done.push(request.end()));
        let number = self.unused.pop().unwrap_or_else(|| {
            self.requests.push(None);
            (self.requests.len() - 1) as u32
        });
        if let Some(place) = self.requests.get_mut(number as usize) {
            *place = Some(request);
        }
        self.waiting.push_back(number);
    }

    /// Issues what waits, in its order, by `issue`, until that finds no room.
    pub(crate) fn issue_waiting(&mut self, mut issue: impl FnMut(&mut RequestTable, u32) -> Issue) {
        while let Some(number) = self.waiting.front().copied() {
            match issue(self, number) {
                Issue::Whole => {
                    self.waiting.pop_front();
                }
                Issue::More => {}
                Issue::NoRoom => break,
            }
        }
    }

    pub(crate) fn get(&self, number: u32) -> Option<&Request> {
        self.requests.get(number as usize)?.as_ref()
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Request> {
        self.requests.get_mut(number as usize)?.as_mut()
    }

    /// Its next command, of so many bytes, is on its way.
    pub(crate) fn issued(&mut self, number: u32, bytes: u64) -> Issue {
        let Some(request) = self.get_mut(number) else { return Issue::Whole };
        request.running += 1;
        request.issued += bytes;
        if request.is_issued() { Issue::Whole } else { Issue::More }
    }

    /// A command cannot be made: the request ends when those before it have.
    pub(crate) fn cannot_issue(&mut self, number: u32, fault: IoFault) -> Issue {
        let Some(request) = self.get_mut(number) else { return Issue::Whole };
        if request.running == 0 {
            self.refuse(number, fault);
        } else {
            request.fault = request.fault.or(Some(fault));
            request.total = request.issued;
        }
        Issue::Whole
    }

    /// One command of a request has ended, with the controller in this generation.
    pub(crate) fn command_ended(&mut self, number: u32, generation: u32, fault: Option<IoFault>) {
        let Some(place) = self.requests.get_mut(number as usize) else { return };
        let Some(request) = place.as_mut() else { return };
        request.running -= 1;
        request.fault = request.fault.or(fault);
        fault_point!("nvme_split_ends_early", request.running == 0, request.issued = request.total);
        if request.running > 0 || !request.is_issued() && request.fault.is_none() {
            return;
        }
        if !request.is_issued() {
            self.waiting.retain(|waits| *waits != number);
        }
        if let Some(request) = place.take() {
            request.completed(generation);
            self.done.push(request.end());
            self.unused.push(number);
        }
    }

    /// Ends a request of which no command is in flight.
    fn refuse(&mut self, number: u32, fault: IoFault) {
        if let Some(mut request) = self.requests.get_mut(number as usize).and_then(Option::take) {
            request.fault = request.fault.or(Some(fault));
            self.done.push(request.end());
            self.unused.push(number);
        }
    }

    /// No command is in flight any more: the requests of `which` end with `fault`.
    pub(crate) fn fail(&mut self, fault: IoFault, which: impl Fn(&Request) -> bool) {
        for number in 0..self.requests.len() as u32 {
            let Some(request) = self.get_mut(number).filter(|request| which(request)) else { continue };
            request.running = 0;
            fault_point!("nvme_reset_forgets_request", continue);
            self.refuse(number, fault);
        }
        let requests = &self.requests;
        self.waiting.retain(|number| requests.get(*number as usize).is_some_and(Option::is_some));
    }

    /// Moves what has ended to `done`.
    pub(crate) fn take_done(&mut self, done: &mut Vec<(u64, DiskOutcome)>) {
        done.append(&mut self.done);
    }
}
