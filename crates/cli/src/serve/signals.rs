//! Signals of a server: SIGTERM and SIGINT end it, SIGHUP has it read its options again. And the watchdog, which the same thread sees to.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level::pipe};
use stratakv_server::Server;

use super::systemd;
use crate::failure::Failure;

/// The first SIGTERM or SIGINT asks for an end, the second makes one.
pub(crate) struct Signals {
    ends: UnixStream,
    reloads: UnixStream,
}

impl Signals {
    /// From now on the first signal waits until it is attended to.
    pub(crate) fn register() -> Result<Signals, Failure> {
        let register = || {
            let ((ends, end), (reloads, reload)) = (UnixStream::pair()?, UnixStream::pair()?);
            let asked = Arc::new(AtomicBool::new(false));
            for signal in [SIGTERM, SIGINT] {
                // In this order: the second signal finds `asked` set by the first.
                flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))?;
                flag::register(signal, Arc::clone(&asked))?;
                pipe::register(signal, end.try_clone()?)?;
            }
            pipe::register(SIGHUP, reload)?;
            ends.set_nonblocking(true)?;
            reloads.set_nonblocking(true)?;
            Ok(Signals { ends, reloads })
        };
        register().map_err(|error: io::Error| Failure::failed(format!("cannot handle signals: {error}")))
    }

    /// Attends to them in a thread of its own, until the program ends.
    pub(crate) fn attend(self, server: Arc<Server>, reload: impl Fn(&Server) + Send + 'static) -> Result<(), Failure> {
        // Twice in the time that systemd allows, as it advises.
        let watchdog = sd_notify::watchdog_enabled().map(|limit| limit / 2);
        let body = move || while self.attend_once(&server, &reload, watchdog).is_some() {};
        let spawned = std::thread::Builder::new().name("signals".into()).spawn(body);
        spawned.map(drop).map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))
    }

    fn attend_once(&self, server: &Server, reload: &impl Fn(&Server), watchdog: Option<Duration>) -> Option<()> {
        let timeout = watchdog.and_then(|every| Timespec::try_from(every).ok());
        let mut ready = [PollFd::new(&self.ends, PollFlags::IN), PollFd::new(&self.reloads, PollFlags::IN)];
        match poll(&mut ready, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
        if is_rung(&self.ends) {
            eprintln!("stratakv: finishing; a second signal ends at once");
            systemd::stopping();
            server.shutdown();
        }
        if is_rung(&self.reloads) {
            reload(server);
        }
        if watchdog.is_some() && server.is_alive() {
            systemd::alive();
        }
        Some(())
    }
}

/// Whether a signal came; several at once are one.
fn is_rung(mut pipe: &UnixStream) -> bool {
    matches!(pipe.read(&mut [0; 64]), Ok(1..))
}
