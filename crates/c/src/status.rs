//! Outcomes, and the messages that go with them.

use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use stratakv::{Error, ErrorKind};

use crate::arg::{self, Out};

/// `stratakv_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// There is no such key, element or name; a scan has ended.
    Absent = 1,
    /// A condition did not hold, or a transaction met a conflict.
    Unmet = 2,
    /// A bad argument.
    Usage = 16,
    /// No such store.
    NotFound = 17,
    /// Damaged data.
    Corrupt = 18,
    /// Open in another process.
    Locked = 19,
    /// No space, or no memory for the index.
    Full = 20,
    /// Not offered here.
    Unsupported = 21,
    /// The device or the system failed.
    Io = 22,
    /// The store is closed.
    Closed = 23,
    /// The outcome is not known.
    Unknown = 24,
    /// Too much waits.
    Busy = 25,
    /// A panic.
    Internal = 26,
}

const NAMES: &[(Status, &std::ffi::CStr)] = &[
    (Status::Ok, c"ok"),
    (Status::Absent, c"absent"),
    (Status::Unmet, c"unmet"),
    (Status::Usage, c"usage"),
    (Status::NotFound, c"not_found"),
    (Status::Corrupt, c"corrupt"),
    (Status::Locked, c"locked"),
    (Status::Full, c"full"),
    (Status::Unsupported, c"unsupported"),
    (Status::Io, c"io"),
    (Status::Closed, c"closed"),
    (Status::Unknown, c"unknown"),
    (Status::Busy, c"busy"),
    (Status::Internal, c"internal"),
];

/// Why a call failed.
pub(crate) struct Failure {
    status: Status,
    message: String,
}

/// What a call came to.
pub(crate) type Answer = Result<Status, Failure>;

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure { status: Status::Usage, message: message.into() }
    }

    pub(crate) fn corrupt(message: String) -> Failure {
        Failure { status: Status::Corrupt, message }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let status = match error.kind() {
            ErrorKind::Usage => Status::Usage,
            ErrorKind::NotFound => Status::NotFound,
            ErrorKind::Corrupt => Status::Corrupt,
            ErrorKind::Locked => Status::Locked,
            ErrorKind::Full => Status::Full,
            ErrorKind::Unsupported => Status::Unsupported,
            ErrorKind::Closed => Status::Closed,
            ErrorKind::Unknown => Status::Unknown,
            ErrorKind::Busy => Status::Busy,
            _ => Status::Io,
        };
        Failure { status, message: error.to_string() }
    }
}

/// `Absent` for `None`.
pub(crate) fn found(exists: bool) -> Status {
    if exists { Status::Ok } else { Status::Absent }
}

/// A function of the interface. It is exported under its name, takes a place for a message last,
/// and answers with a status. A failure of its body, or a panic, becomes a status and a message.
macro_rules! c_function {
    ($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$attribute])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            $($argument: $type,)*
            message: $crate::arg::Out<'_, *mut std::ffi::c_char>,
        ) -> $crate::status::Status {
            $crate::status::call(message, || $body)
        }
    };
}
pub(crate) use c_function;

/// Runs the body of a call; its failure, or panic, becomes a status and a message.
pub(crate) fn call(message: Out<'_, *mut c_char>, body: impl FnOnce() -> Answer) -> Status {
    let (status, text) = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => (status, None),
        Ok(Err(failure)) => (failure.status, Some(failure.message)),
        Err(_) => (Status::Internal, Some("a defect of StrataKV stopped this call; what it was doing may be done or not. Please report what stands on the standard error".to_owned())),
    };
    if let Some(message) = message {
        message.write(text.map_or(std::ptr::null_mut(), into_c));
    }
    status
}

/// A string for C, to be given to [`stratakv_message_free`].
pub(crate) fn into_c(text: String) -> *mut c_char {
    let mut bytes = text.into_bytes();
    bytes.retain(|byte| *byte != 0);
    CString::new(bytes).unwrap_or_default().into_raw()
}

/// Frees a message or a text.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_message_free(message: arg::Owned) {
    message.free();
}

/// A status in a word.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_status_name(status: c_int) -> *const c_char {
    let name = NAMES.iter().find(|(known, _)| *known as c_int == status);
    name.map_or(c"?", |(_, name)| name).as_ptr()
}
