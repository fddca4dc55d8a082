//! A key on the command line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::failure::Failure;

/// As [`bytes`], of a key that the store takes: found out before the store is opened, so that a bad
/// argument does not leave a new one behind.
pub(crate) fn checked(argument: &OsString, base64: bool) -> Result<Vec<u8>, Failure> {
    let bytes = bytes(argument, base64)?;
    stratakv::Key::new(stratakv::CollectionId::default(), &bytes).map_err(stratakv::Error::from)?;
    Ok(bytes)
}

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
