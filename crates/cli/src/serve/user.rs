//! `--user`: who the server is once all that needs root is open.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use stratakv_device::privileges::{Account, forbid_new_privileges};

use crate::failure::Failure;
use crate::say::say;

/// As whom.
#[derive(Args)]
pub(crate) struct UserArguments {
    /// Become this user once devices, sockets and ports are open, for good and without
    /// capabilities. Needs root; the store's directories must be writable for it, and are given to
    /// it if they are made
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

/// What the server does to files while it serves.
pub(super) struct Paths {
    /// Directories in which it makes and removes files.
    pub(super) written: Vec<PathBuf>,
    /// Directories that are the store's.
    pub(super) store: Vec<PathBuf>,
    /// Files that it reads again when it is told to.
    pub(super) read: Vec<PathBuf>,
}

/// Who the server will be.
pub(super) struct Becoming {
    account: Account,
    paths: Paths,
}

impl UserArguments {
    /// Before anything is opened: whether it can be that user, and go on as such. No program that
    /// it might start gets rights from here on.
    pub(super) fn prepare(&self, paths: Paths) -> Result<Option<Becoming>, Failure> {
        let Some(name) = &self.user else { return Ok(None) };
        let refuse = |why: String| Err(Failure::usage(format!("--user {name}: {why}")));
        let account = match Account::of(name) {
            Ok(account) => account,
            Err(error) => return refuse(format!("{error}; `getent passwd` lists those there are")),
        };
        if account.is_root() {
            return refuse("that is root, who gives nothing up: name another user, or leave it out".into());
        }
        if !rustix::process::geteuid().is_root() {
            return refuse(
                "only root can become another user: start it as root, or as that user without --user".into(),
            );
        }
        for directory in &paths.store {
            if !directory.exists() {
                make(directory, &account).map_err(|error| {
                    Failure::failed(format!("cannot make {} for {name}: {error}", directory.display()))
                })?;
            }
        }
        for directory in paths.store.iter().chain(&paths.written) {
            if let Err(error) = account.can_write_in(directory) {
                let shown = directory.display();
                return refuse(format!(
                    "it cannot make files in {shown} ({error}), which the server must while it serves: `chown {name} {shown}`, and let it pass through the directories above"
                ));
            }
        }
        for file in &paths.read {
            if let Err(error) = account.can_read(file) {
                say!("{} cannot be read by {name} ({error}): SIGHUP will not read it again", file.display());
            }
        }
        forbid_new_privileges().map_err(|error| Failure::failed(format!("cannot give up privileges: {error}")))?;
        Ok(Some(Becoming { account, paths }))
    }
}

/// Makes a directory, and gives it to its user; those above are made as well, and stay root's.
fn make(directory: &Path, account: &Account) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    account.own_directory(directory)
}

impl Becoming {
    /// Once all is open.
    pub(super) fn become_it(&self) -> Result<(), Failure> {
        let name = self.account.name();
        let failed = |error: io::Error| Failure::failed(format!("cannot become user {name}: {error}"));
        for directory in &self.paths.store {
            self.account.own_files_of(directory).map_err(failed)?;
        }
        self.account.become_it().map_err(failed)?;
        tracing::info!(user = name, "privileges are given up");
        Ok(())
    }
}
