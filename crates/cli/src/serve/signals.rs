//! Signals of a server: SIGTERM, SIGINT and, as memcached has it, SIGUSR1 end it, SIGHUP has it
//! read its options again. And the watchdog, which the same thread sees to.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::{flag, low_level::pipe};
use stratakv_server::Server;

use super::systemd;
use crate::failure::Failure;
use crate::say::say;

/// Within so long of the first one, further signals to end are the same: GNU `timeout`, shells and
/// supervisors send them to a process and to its group. After it one more ends the process at once.
const ONE_SIGNAL: Duration = Duration::from_secs(1);

/// The first SIGTERM, SIGINT or SIGUSR1 asks for an end; one that comes more than a second later
/// makes one.
pub(crate) struct Signals {
    ends: UnixStream,
    reloads: UnixStream,
    /// The next signal to end does so at once.
    armed: Arc<AtomicBool>,
}

impl Signals {
    /// From now on the first signal waits until it is attended to.
    pub(crate) fn register() -> Result<Signals, Failure> {
        let register = || {
            let ((ends, end), (reloads, reload)) = (UnixStream::pair()?, UnixStream::pair()?);
            let armed = Arc::new(AtomicBool::new(false));
            for signal in [SIGTERM, SIGINT, SIGUSR1] {
                flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&armed))?;
                pipe::register(signal, end.try_clone()?)?;
            }
            pipe::register(SIGHUP, reload)?;
            ends.set_nonblocking(true)?;
            reloads.set_nonblocking(true)?;
            Ok(Signals { ends, reloads, armed })
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
        if has_signal(&self.ends) {
            self.arm_later();
            say!("finishing; another signal, a second from now or later, ends at once");
            systemd::stopping();
            server.shutdown();
        }
        if has_signal(&self.reloads) {
            reload(server);
        }
        if watchdog.is_some() && server.is_alive() {
            systemd::alive();
        }
        Some(())
    }
}

impl Signals {
    /// In a thread of its own: this one may be busy with a reload, or be told of further signals.
    fn arm_later(&self) {
        if self.armed.load(Ordering::Acquire) {
            return;
        }
        let armed = Arc::clone(&self.armed);
        let arm = move || {
            // Nobody sends: this waits for as long as signals count as one.
            let (sender, wait) = std::sync::mpsc::channel::<()>();
            let _timeout = wait.recv_timeout(ONE_SIGNAL);
            drop(sender);
            armed.store(true, Ordering::Release);
        };
        if std::thread::Builder::new().name("second-signal".into()).spawn(arm).is_err() {
            self.armed.store(true, Ordering::Release);
        }
    }
}

/// Whether a signal came; several at once are one.
fn has_signal(mut pipe: &UnixStream) -> bool {
    matches!(pipe.read(&mut [0; 64]), Ok(1..))
}
