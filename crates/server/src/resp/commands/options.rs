//! Options and times as commands of strings and keys say them.

use std::borrow::Cow;

use stratakv_base::{Expiry, Wall};

use super::super::arguments::{Arguments, RequestRefusal, SYNTAX};
use super::super::edit::ExpireIf;

/// Bytes of what a client said that are repeated to it.
pub(crate) const REPEATED_BYTES_MAX: usize = 128;

/// What SET, GETEX and their kin say beside key and value.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// `None`: not said.
    pub(crate) expiry: Option<Expiry>,
    pub(crate) keeps_expiry: bool,
    pub(crate) only_if_absent: bool,
    pub(crate) only_if_present: bool,
    pub(crate) wants_old: bool,
    pub(crate) persists: bool,
}

/// Which of them a command has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OptionsOf {
    Set,
    Getex,
}

impl Options {
    pub(crate) fn read(
        arguments: &Arguments<'_>,
        from: usize,
        of: OptionsOf,
        wall: Wall,
    ) -> Result<Options, RequestRefusal> {
        let (mut options, mut at) = (Options::default(), from);
        let is_set = of == OptionsOf::Set;
        while at < arguments.len() {
            let is = |word| arguments.is(at, word);
            let unit = [("EX", true, false), ("PX", false, false), ("EXAT", true, true), ("PXAT", false, true)];
            match () {
                () if is_set && is("NX") => options.only_if_absent = true,
                () if is_set && is("XX") => options.only_if_present = true,
                () if is_set && is("GET") => options.wants_old = true,
                () if is_set && is("KEEPTTL") => options.keeps_expiry = true,
                () if !is_set && is("PERSIST") => options.persists = true,
                () => {
                    let unit = unit.iter().find(|(word, ..)| is(word)).ok_or(Cow::Borrowed(SYNTAX))?;
                    if options.expiry.is_some() || at + 1 >= arguments.len() {
                        return Err(Cow::Borrowed(SYNTAX));
                    }
                    let command = if is_set { "set" } else { "getex" };
                    at += 1;
                    let (_, in_seconds, is_absolute) = *unit;
                    let number = arguments.integer(at)?;
                    options.expiry = Some(positive_expiry(number, in_seconds, is_absolute, wall, command)?);
                }
            }
            at += 1;
        }
        let times = [options.expiry.is_some(), options.keeps_expiry, options.persists];
        let has_both = options.only_if_absent && options.only_if_present;
        match has_both || times.iter().filter(|is_said| **is_said).count() > 1 {
            true => Err(Cow::Borrowed(SYNTAX)),
            false => Ok(options),
        }
    }
}

/// When a record expires that gets this time, by commands to which a time that is over is an error.
pub(crate) fn positive_expiry(
    number: i64,
    in_seconds: bool,
    is_absolute: bool,
    wall: Wall,
    command: &str,
) -> Result<Expiry, RequestRefusal> {
    if number <= 0 {
        return Err(invalid_expiry(command));
    }
    expiry_of(number, in_seconds, is_absolute, wall, command)
}

fn invalid_expiry(command: &str) -> RequestRefusal {
    Cow::Owned(format!("ERR invalid expire time in '{command}' command"))
}

/// The same, where it may be over: the record is gone then.
pub(crate) fn expiry_of(
    number: i64,
    in_seconds: bool,
    is_absolute: bool,
    wall: Wall,
    command: &str,
) -> Result<Expiry, RequestRefusal> {
    let millis = i128::from(number) * if in_seconds { 1000 } else { 1 };
    if millis < i128::from(i64::MIN) {
        return Err(invalid_expiry(command));
    }
    let at = millis + if is_absolute { 0 } else { i128::from(wall.0) };
    match u64::try_from(at.max(1)) {
        Ok(at) if at <= Expiry::MAX.0 => Ok(Expiry(at)),
        _ => Err(Cow::Owned(format!(
            "ERR invalid expire time in '{command}' command: the latest that is kept is in the year 2106"
        ))),
    }
}

/// Conditions of EXPIRE.
pub(crate) fn expire_if(a: &Arguments<'_>) -> Result<ExpireIf, RequestRefusal> {
    let mut only_if = ExpireIf::default();
    for at in 3..a.len() {
        match () {
            () if a.is(at, "NX") => only_if.has_none = true,
            () if a.is(at, "XX") => only_if.has_one = true,
            () if a.is(at, "GT") => only_if.is_later = true,
            () if a.is(at, "LT") => only_if.is_earlier = true,
            () => {
                let word = repeated(a.get(at));
                return Err(Cow::Owned(format!("ERR Unsupported option {word}")));
            }
        }
    }
    let others = only_if.has_one || only_if.is_later || only_if.is_earlier;
    if only_if.has_none && others {
        return Err(Cow::Borrowed("ERR NX and XX, GT or LT options at the same time are not compatible"));
    }
    if only_if.is_later && only_if.is_earlier {
        return Err(Cow::Borrowed("ERR GT and LT options at the same time are not compatible"));
    }
    Ok(only_if)
}

/// When EXPIRE and its kin let a record expire, and under which condition.
pub(crate) fn expiry_said(a: &Arguments<'_>, wall: Wall) -> Result<(Expiry, ExpireIf), RequestRefusal> {
    let name = a.get(0).to_ascii_lowercase();
    let (in_seconds, is_absolute) = (!name.starts_with(b"p"), name.ends_with(b"at"));
    let command = String::from_utf8_lossy(&name);
    let expiry = expiry_of(a.integer(2)?, in_seconds, is_absolute, wall, &command)?;
    Ok((expiry, expire_if(a)?))
}

/// How TTL and its kin tell it: whether in seconds, and whether as a point in time.
pub(crate) fn ttl_said(a: &Arguments<'_>) -> (bool, bool) {
    let name = a.get(0);
    let in_seconds = !name.first().is_some_and(|first| first.eq_ignore_ascii_case(&b'p'));
    (in_seconds, name.len() > b"pttl".len())
}

/// What a client said, as it is repeated to it.
pub(crate) fn repeated(text: &[u8]) -> String {
    text.get(..REPEATED_BYTES_MAX).unwrap_or(text).escape_ascii().to_string()
}
