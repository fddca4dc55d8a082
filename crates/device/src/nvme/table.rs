//! [`RequestTable`]: requests on their way, each answered once. It knows nothing of queues.

use std::collections::VecDeque;

use stratakv_base::fault_point;
use stratakv_base::slots::Slots;

use crate::nvme::requests::Request;
use crate::request::{DiskOutcome, IoFault};

/// A request's slot, and how often that had been used before.
pub(crate) type RequestKey = (u32, u32);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct RequestTable {
    requests: Slots<Request, RequestKey>,
    /// Requests that are not issued whole.
    waiting: VecDeque<RequestKey>,
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
        self.requests.len() + self.done.len()
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
        self.waiting.push_back(self.requests.insert(request));
    }

    /// Issues what waits, in its order, by `issue`, until that finds no room.
    pub(crate) fn issue_waiting(&mut self, mut issue: impl FnMut(&mut RequestTable, RequestKey) -> Issue) {
        while let Some(key) = self.waiting.front().copied() {
            match issue(self, key) {
                Issue::Whole => {
                    self.waiting.pop_front();
                }
                Issue::More => {}
                Issue::NoRoom => break,
            }
        }
    }

    pub(crate) fn get(&self, key: RequestKey) -> Option<&Request> {
        self.requests.get(key)
    }

    /// Its next command, of so many bytes, is on its way.
    pub(crate) fn issued(&mut self, key: RequestKey, bytes: u64) -> Issue {
        let Some(request) = self.requests.get_mut(key) else { return Issue::Whole };
        request.running += 1;
        request.issued += bytes;
        if request.is_issued() { Issue::Whole } else { Issue::More }
    }

    /// A command cannot be made: the request ends when those before it have.
    pub(crate) fn cannot_issue(&mut self, key: RequestKey, fault: IoFault) -> Issue {
        let Some(request) = self.requests.get_mut(key) else { return Issue::Whole };
        if request.running == 0 {
            self.refuse(key, fault);
        } else {
            request.fault = request.fault.or(Some(fault));
            request.total = request.issued;
        }
        Issue::Whole
    }

    /// One command of a request has ended, with the controller in this generation.
    pub(crate) fn command_ended(&mut self, key: RequestKey, generation: u32, fault: Option<IoFault>) {
        let Some(request) = self.requests.get_mut(key) else { return };
        request.running -= 1;
        request.fault = request.fault.or(fault);
        fault_point!("nvme_split_ends_early", request.running == 0, request.issued = request.total);
        if request.running > 0 || !request.is_issued() && request.fault.is_none() {
            return;
        }
        if !request.is_issued() {
            self.waiting.retain(|waits| *waits != key);
        }
        if let Some(request) = self.requests.remove(key) {
            request.completed(generation);
            self.done.push(request.end());
        }
    }

    /// Ends a request of which no command is in flight.
    fn refuse(&mut self, key: RequestKey, fault: IoFault) {
        if let Some(mut request) = self.requests.remove(key) {
            request.fault = request.fault.or(Some(fault));
            self.done.push(request.end());
        }
    }

    /// No command is in flight any more: the requests of `which` end with `fault`.
    pub(crate) fn fail(&mut self, fault: IoFault, which: impl Fn(&Request) -> bool) {
        let ended = self.requests.iter().filter(|(_, request)| which(request)).map(|(key, _)| key);
        for key in ended.collect::<Vec<_>>() {
            fault_point!("nvme_reset_forgets_request", continue);
            self.refuse(key, fault);
        }
        let requests = &self.requests;
        self.waiting.retain(|key| requests.get(*key).is_some());
    }

    /// Moves what has ended to `done`.
    pub(crate) fn take_done(&mut self, done: &mut Vec<(u64, DiskOutcome)>) {
        done.append(&mut self.done);
    }
}
