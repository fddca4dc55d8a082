//! A key on the command line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::failure::Failure;

/// The bytes an argument stands for: its own, or what they decode to.
pub(crate) fn bytes(argument: &OsString, base64: bool) -> Result<Vec<u8>, Failure> {
    let raw = argument.clone().into_vec();
    if !base64 {
        return Ok(raw);
    }
    STANDARD.decode(&raw).map_err(|error| {
        Failure::usage(format!(
            "`{}` is not base64 ({error}): give it padded, in the standard alphabet",
            raw.escape_ascii()
        ))
    })
}
