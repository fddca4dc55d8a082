//! Giving up root once all that needs it is open: [`Account`] is whose rights a process has from
//! then on.
#![expect(unsafe_code, reason = "calls that change who a process or a thread is")]

use std::ffi::{CStr, CString};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Uid};

/// A user of the system, and the groups that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    name: CString,
    user: libc::uid_t,
    group: libc::gid_t,
    groups: Vec<libc::gid_t>,
}

impl Account {
    /// A user by its name or number.
    ///
    /// # Errors
    /// There is no such user, or the system does not tell.
    pub fn of(user: &str) -> io::Result<Account> {
        let none = || io::Error::new(io::ErrorKind::NotFound, format!("there is no user `{user}`"));
        let asked = CString::new(user).map_err(|_| none())?;
        let mut texts = vec![0 as libc::c_char; 64 << 10];
        // SAFETY: plain numbers and pointers, for which all zeros is valid.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        let (at, len) = (texts.as_mut_ptr(), texts.len());
        let result = match user.parse::<libc::uid_t>() {
            // SAFETY: all pointers are to what lives until the call returns, and `len` is right.
            Ok(number) => unsafe { libc::getpwuid_r(number, &raw mut entry, at, len, &raw mut found) },
            // SAFETY: as above, and the name ends with a zero.
            Err(_) => unsafe { libc::getpwnam_r(asked.as_ptr(), &raw mut entry, at, len, &raw mut found) },
        };
        if result != 0 {
            return Err(io::Error::from_raw_os_error(result));
        }
        if found.is_null() {
            return Err(none());
        }
        // SAFETY: the call has filled the entry in; its name lies in `texts`, and ends with a zero.
        let name = unsafe { CStr::from_ptr(entry.pw_name) }.to_owned();
        let mut account = Account { name, user: entry.pw_uid, group: entry.pw_gid, groups: Vec::new() };
        account.groups = account.groups_of()?;
        Ok(account)
    }

    fn groups_of(&self) -> io::Result<Vec<libc::gid_t>> {
        let mut groups: Vec<libc::gid_t> = vec![0; 4096];
        let mut count = groups.len() as libc::c_int;
        // SAFETY: there is room for `count` groups, and the name ends with a zero.
        let result = unsafe { libc::getgrouplist(self.name.as_ptr(), self.group, groups.as_mut_ptr(), &raw mut count) };
        if result < 0 {
            return Err(io::Error::other("it is in too many groups"));
        }
        groups.truncate(usize::try_from(count).unwrap_or(0));
        Ok(groups)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.name.to_str().unwrap_or("?")
    }

    /// Whether it is root, who has nothing to give up.
    pub fn is_root(&self) -> bool {
        self.user == 0
    }

    /// Whether it can make files in a directory: it is tried, in a thread that is that user.
    ///
    /// # Errors
    /// It cannot, or this process may not try.
    pub fn can_write_in(&self, directory: &Path) -> io::Result<()> {
        let directory = directory.to_owned();
        self.tried(move || {
            // A file without a name, which is gone at once.
            let made = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(&directory);
            match made.map(drop) {
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                    let path = directory.join(format!(".stratakv-try-{}", std::process::id()));
                    OpenOptions::new().write(true).create_new(true).open(&path)?;
                    std::fs::remove_file(&path)
                }
                made => made,
            }
        })
    }

    /// Whether it can read a file.
    ///
    /// # Errors
    /// It cannot, or this process may not try.
    pub fn can_read(&self, file: &Path) -> io::Result<()> {
        let file = file.to_owned();
        self.tried(move || std::fs::File::open(&file).map(drop))
    }

    /// Does something in a thread that has this user's rights to files, and ends.
    fn tried(&self, body: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
        let Account { user, group, groups, .. } = self.clone();
        let thread = std::thread::Builder::new().name("as-user".into()).spawn(move || {
            // SAFETY: these calls, made directly, change the calling thread only; `groups` lives
            // until the call returns.
            let result = unsafe {
                let result = libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr());
                libc::syscall(libc::SYS_setfsgid, group);
                libc::syscall(libc::SYS_setfsuid, user);
                result
            };
            if result != 0 { Err(io::Error::last_os_error()) } else { body() }
        })?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that tried it ended")))
    }

    /// Gives a directory to this user.
    ///
    /// # Errors
    /// As chown(2).
    pub fn own_directory(&self, directory: &Path) -> io::Result<()> {
        std::os::unix::fs::chown(directory, Some(self.user), Some(self.group))
    }

    /// Gives those files of a directory to this user that root owns, such as those that this
    /// process has made. Links are left alone, hard ones too.
    ///
    /// # Errors
    /// As open(2) and fchown(2).
    pub fn own_files_of(&self, directory: &Path) -> io::Result<()> {
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            // Opened first, looked at then: what has the name later is not meant.
            let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_PATH).open(&path);
            let Ok(file) = opened else { continue };
            let metadata = file.metadata()?;
            if metadata.is_file() && metadata.uid() == 0 && metadata.nlink() == 1 {
                let (user, group) = (Uid::from_raw(self.user), Gid::from_raw(self.group));
                rustix::fs::chownat(file.as_fd(), "", Some(user), Some(group), AtFlags::EMPTY_PATH)?;
            }
        }
        Ok(())
    }

    /// This process and all its threads are that user from now on, without capabilities and without
    /// a way back. Memory that is locked later is limited as little as the system allows.
    ///
    /// # Errors
    /// It is not root, or the system refuses. Rights may have been given up in part by then.
    pub fn become_it(&self) -> io::Result<()> {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        // Devices have more memory locked for them while a store grows, and root may always. Root
        // of a container may not change its limit; it keeps what it has.
        if setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }).is_err() {
            let maximum = getrlimit(Resource::Memlock).maximum;
            setrlimit(Resource::Memlock, Rlimit { current: maximum, maximum })?;
        }
        let check = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        // SAFETY: `groups` lives until the call returns. The library has all threads do the same.
        check(unsafe { libc::setgroups(self.groups.len(), self.groups.as_ptr()) })?;
        // SAFETY: takes no pointers; all threads, as above.
        check(unsafe { libc::setresgid(self.group, self.group, self.group) })?;
        // SAFETY: takes no pointers; all threads, as above. Who is not root any more loses all
        // capabilities.
        check(unsafe { libc::setresuid(self.user, self.user, self.user) })
    }
}

/// From now on this thread, and what it starts, gets no rights by running programs.
///
/// # Errors
/// As prctl(2).
pub fn forbid_new_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let root = Account::of("0").unwrap();
        assert_eq!((root.name(), root.is_root()), ("root", true));
        assert_eq!(Account::of("root").unwrap(), root);
        let error = Account::of("nobody-of-this-name").unwrap_err();
        assert!(error.to_string().contains("no user `nobody-of-this-name`"), "{error}");
    }

    #[test]
    fn what_another_user_may_is_tried() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let nobody = Account::of("nobody").unwrap();
        // Made by and for root alone.
        assert_eq!(nobody.can_write_in(directory.path()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let (mine, linked) = (directory.path().join("mine"), directory.path().join("linked"));
        std::fs::write(&mine, "1").unwrap();
        std::fs::write(&linked, "1").unwrap();
        std::fs::hard_link(&linked, directory.path().join("twice")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", directory.path().join("symbolic")).unwrap();
        nobody.own_directory(directory.path()).unwrap();
        nobody.can_write_in(directory.path()).unwrap();
        nobody.own_files_of(directory.path()).unwrap();
        let owner = |path: &Path| std::fs::metadata(path).unwrap().uid();
        assert_eq!((owner(&mine), owner(&linked), owner(Path::new("/etc/passwd"))), (nobody.user, 0, 0));
        // The thread that tried it is gone, and nobody else has lost anything.
        std::fs::write(directory.path().join("root"), "1").unwrap();
    }
}
