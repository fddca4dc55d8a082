//! Listening on UNIX sockets: the file, its mode, and what an earlier process left.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, chmodat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
use stratakv_device::Socket;

use crate::server::Error;

/// Connections that wait to be accepted, as for other listeners.
const BACKLOG: i32 = 4096;

/// The file of a socket that we listen on; removed when dropped, unless another one has taken its
/// place.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = |found: &fs::Metadata| (found.dev(), found.ino()) == (self.device, self.inode);
        if fs::symlink_metadata(&self.path).is_ok_and(|found| ours(&found)) {
            // Who starts a server there next removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens on a socket at `path` that those may connect to whom `mode` lets write. A socket file
/// that nobody listens on is replaced.
pub(crate) fn listen_at(path: &Path, mode: u32) -> Result<(Socket, SocketFile), Error> {
    let refused = |(hint, error)| Error::Listen { address: format!("unix:{}", path.display()), hint, error };
    if is_left_behind(path).map_err(refused)? {
        tracing::info!(path = %path.display(), "a socket file that nobody listens on is replaced");
        fs::remove_file(path).map_err(|error| refused(("remove it", error)))?;
    }
    let made = || -> io::Result<(Socket, SocketFile)> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        let found = fs::symlink_metadata(path)?;
        let file = SocketFile { path: path.to_owned(), device: found.dev(), inode: found.ino() };
        // Before anybody can connect: until it listens, connecting is refused.
        chmodat(CWD, path, Mode::from_raw_mode(mode), rustix::fs::AtFlags::empty())?;
        listen(&socket, BACKLOG)?;
        Ok((Arc::new(socket.into()), file))
    };
    made().map_err(|error| refused((PLACE, error)))
}

/// What a path of a socket must be.
const PLACE: &str = "its directory must exist and be writable, and the path have at most 107 bytes";

/// Whether a UNIX socket can be made at this path, as far as looking tells. Nothing is changed.
/// `to_be_made`: directories that will be there, with those above them, before the socket is made.
///
/// # Errors
/// It cannot: why, and what to do.
pub fn check_socket_path<'a>(path: &Path, mut to_be_made: impl Iterator<Item = &'a Path>) -> Result<(), Error> {
    let refused = |(hint, error)| Error::Listen { address: format!("unix:{}", path.display()), hint, error };
    SocketAddrUnix::new(path).map_err(|error| refused((PLACE, error.into())))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Err(error) = fs::metadata(folder) else { return is_left_behind(path).map(drop).map_err(refused) };
    let Ok(absolute_folder) = std::path::absolute(folder) else { return Err(refused((PLACE, error))) };
    let is_above = |made: &Path| std::path::absolute(made).is_ok_and(|made| made.starts_with(&absolute_folder));
    let comes = error.kind() == io::ErrorKind::NotFound && to_be_made.any(is_above);
    if comes { Ok(()) } else { Err(refused((PLACE, error))) }
}

/// Whether a socket file is there that nobody listens on. Anything else that is there is refused.
fn is_left_behind(path: &Path) -> Result<bool, (&'static str, io::Error)> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(("choose another path", error)),
    };
    if !found.file_type().is_socket() {
        return Err((
            "something that is no socket is there: move it away, or choose another path",
            io::ErrorKind::AlreadyExists.into(),
        ));
    }
    // Whose backlog is full listens too: there is no waiting for it.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let asked = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .and_then(|socket| connect(&socket, &SocketAddrUnix::new(path)?));
    match asked {
        Ok(()) | Err(Errno::AGAIN) => {
            Err(("another process listens there: stop it, or choose another path", io::ErrorKind::AddrInUse.into()))
        }
        Err(Errno::CONNREFUSED) => Ok(true),
        Err(error) => Err((
            "a socket is there, and cannot be asked whether somebody listens: remove it, or choose another path",
            error.into(),
        )),
    }
}
