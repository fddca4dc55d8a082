//! What systemd is told, and the sockets that it hands over. Without systemd nothing happens.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use listenfd::ListenFd;
use rustix::net::{AddressFamily, SocketType};
use sd_notify::NotifyState;
use stratakv_server::Inherited;

use crate::failure::Failure;

/// Names of descriptors (`FileDescriptorName=`) that begin so are sockets whose clients speak TLS.
const TLS: &str = "tls";

/// The sockets of socket activation, if this process was started by it. To be asked once.
///
/// # Errors
/// A descriptor is no stream socket that could be listened on.
pub(crate) fn inherited() -> Result<Vec<Inherited>, Failure> {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut given = ListenFd::from_env();
    (0..given.len())
        .map(|index| {
            let tls = names.next().is_some_and(|name| name.starts_with(TLS));
            let socket = take(&mut given, index).map_err(|why| {
                Failure::usage(format!(
                    "the inherited descriptor {} cannot be served: {why}; the unit needs ListenStream= and Accept=no",
                    index + 3
                ))
            })?;
            Ok(Inherited { socket: Arc::new(socket.into()), tls })
        })
        .collect()
}

fn take(given: &mut ListenFd, index: usize) -> Result<OwnedFd, String> {
    let families = [AddressFamily::INET6, AddressFamily::INET, AddressFamily::UNIX];
    let stream = i32::try_from(SocketType::STREAM.as_raw()).unwrap_or_default();
    let mut why = "it is no stream socket".to_owned();
    for family in families {
        match given.take_custom(index, family.as_raw().into(), stream, "stream socket") {
            Ok(Some(socket)) => return Ok(socket),
            Ok(None) => {}
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

/// The store is being opened, which may take long.
pub(crate) fn opening() {
    tell(&[NotifyState::Status("opening the store")]);
}

/// Clients are served.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready, NotifyState::Status("serving")]);
}

/// Options are read again; [`ready`] follows.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "no clock to tell systemd of a reload"),
    }
}

/// No new clients; what was begun is finished.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("finishing what was begun")]);
}

/// All threads are alive.
pub(crate) fn alive() {
    tell(&[NotifyState::Watchdog]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "systemd was not told");
    }
}
