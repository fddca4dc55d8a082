//! What C hands over.
//!
//! Nothing here makes one of these types but null, so they come from C, and each method may take
//! for granted what `stratakv.h` asks of the caller: a pointer that is not null points to what the
//! function's declaration says, stays valid during the call, and is not written to by others
//! meanwhile.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::status::Failure;

/// Where a result goes; null if it is not wanted.
pub(crate) type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// Bytes, whose length is another argument.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Bytes<'a>(*const u8, PhantomData<&'a [u8]>);

/// A string that ends with a zero byte.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Text<'a>(*const c_char, PhantomData<&'a CStr>);

/// Several values, whose number is another argument.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Array<'a, T>(*const T, PhantomData<&'a [T]>);

/// Room for several results.
#[repr(transparent)]
pub struct Room<'a, T>(*mut MaybeUninit<T>, PhantomData<&'a mut [T]>);

/// A string that this library made.
#[repr(transparent)]
pub struct Owned(*mut c_char);

impl<'a> Bytes<'a> {
    /// None: for C to replace.
    pub(crate) const NULL: Bytes<'static> = Bytes(std::ptr::null(), PhantomData);

    /// As many bytes.
    pub(crate) fn take(self, len: usize, what: &str) -> Result<&'a [u8], Failure> {
        self.take_some(len, what).map(Option::unwrap_or_default)
    }

    /// As many bytes; `None` for null.
    pub(crate) fn take_some(self, len: usize, what: &str) -> Result<Option<&'a [u8]>, Failure> {
        if self.0.is_null() {
            return match len {
                0 => Ok(None),
                _ => Err(Failure::usage(format!("{what} is NULL, with a length of {len}"))),
            };
        }
        bounded(len, what)?;
        // SAFETY: not null; `len` bytes lie there (module documentation), and they are no more than
        // a slice may have.
        Ok(Some(unsafe { std::slice::from_raw_parts(self.0, len) }))
    }
}

impl<'a> Text<'a> {
    /// The string.
    pub(crate) fn take(self, what: &str) -> Result<&'a str, Failure> {
        let text = std::str::from_utf8(self.raw(what)?);
        text.map_err(|_| Failure::usage(format!("{what} is not UTF-8")))
    }

    /// A path, of any bytes.
    pub(crate) fn path(self, what: &str) -> Result<&'a Path, Failure> {
        Ok(Path::new(OsStr::from_bytes(self.raw(what)?)))
    }

    fn raw(self, what: &str) -> Result<&'a [u8], Failure> {
        if self.0.is_null() {
            return Err(Failure::usage(format!("{what} is NULL")));
        }
        // SAFETY: not null, and a string that ends with a zero byte (module documentation).
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }
}

impl<'a, T> Array<'a, T> {
    /// As many of them.
    pub(crate) fn take(self, count: usize, what: &str) -> Result<&'a [T], Failure> {
        if count == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() || !self.0.is_aligned() {
            return Err(Failure::usage(format!("{what} is NULL or not aligned")));
        }
        bounded(count.saturating_mul(size_of::<T>().max(1)), what)?;
        // SAFETY: not null, aligned, `count` of them lie there (module documentation), no more than
        // a slice may have.
        Ok(unsafe { std::slice::from_raw_parts(self.0, count) })
    }
}

impl<'a, T> Room<'a, T> {
    /// Room for as many.
    pub(crate) fn take(self, count: usize, what: &str) -> Result<&'a mut [MaybeUninit<T>], Failure> {
        if count == 0 {
            return Ok(&mut []);
        }
        if self.0.is_null() || !self.0.is_aligned() {
            return Err(Failure::usage(format!("{what} is NULL or not aligned")));
        }
        bounded(count.saturating_mul(size_of::<T>().max(1)), what)?;
        // SAFETY: as of an array; nobody else has it during the call (module documentation), and it
        // need not be initialised.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0, count) })
    }
}

impl Owned {
    /// Gives its memory back; null is nothing.
    pub(crate) fn free(self) {
        if !self.0.is_null() {
            // SAFETY: it was made by `CString::into_raw` in `status::into_c`: the header lets
            // nothing else be given here.
            drop(unsafe { CString::from_raw(self.0) });
        }
    }
}

fn bounded(len_bytes: usize, what: &str) -> Result<(), Failure> {
    match isize::try_from(len_bytes) {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::usage(format!("{what} is too long for this machine's memory: {len_bytes} bytes"))),
    }
}

/// A handle.
pub(crate) fn handle<'a, T>(handle: Option<&'a T>, what: &str) -> Result<&'a T, Failure> {
    handle.ok_or_else(|| Failure::usage(format!("the {what} is NULL")))
}

/// A handle that belongs to one thread.
pub(crate) fn handle_mut<'a, T>(handle: Option<&'a mut T>, what: &str) -> Result<&'a mut T, Failure> {
    handle.ok_or_else(|| Failure::usage(format!("the {what} is NULL")))
}

/// Where a result that is always wanted goes.
pub(crate) fn wanted<'a, T>(out: Out<'a, T>, what: &str) -> Result<&'a mut MaybeUninit<T>, Failure> {
    out.ok_or_else(|| Failure::usage(format!("the place for the {what} is NULL")))
}

/// Writes a result, if it is wanted.
pub(crate) fn give<T>(out: Out<'_, T>, value: T) {
    if let Some(out) = out {
        out.write(value);
    }
}
