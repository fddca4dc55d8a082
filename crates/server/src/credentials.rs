//! Who may use the server: accounts from a file of lines `user:password`, as memcached's `-Y` has
//! it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use subtle::{Choice, ConstantTimeEq};

/// Longest `user:password`, in bytes.
const ENTRY_BYTES_MAX: usize = 254;
/// Longest value that a client says who it is by, in bytes; what is longer is no entry.
pub(crate) const ATTEMPT_BYTES_MAX: usize = 2048;

/// `user:password` with its length, all of one size: comparing them takes the same time whatever
/// they are.
type PaddedAccount = [u8; ENTRY_BYTES_MAX + 1];

/// The accounts of a server. What is in them is not shown.
pub(crate) struct Credentials {
    entries: Vec<PaddedAccount>,
}

impl Credentials {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or has a line that is none: what is wrong, without the line.
    pub(crate) fn read(file: &Path) -> Result<Credentials, String> {
        let shown = file.display();
        let bytes = std::fs::read(file).map_err(|error| {
            format!("accounts cannot be read from {shown}: {error}; --auth-file names a file of lines `user:password`")
        })?;
        Credentials::parse(&bytes).map_err(|why| format!("{shown}: {why}"))
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Credentials, String> {
        let mut entries = Vec::new();
        for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let user_bytes = line.iter().position(|byte| *byte == b':').unwrap_or_default();
            if user_bytes == 0 || user_bytes + 1 == line.len() {
                return Err(format!("line {} is not `user:password`", number + 1));
            }
            let long = || format!("line {} is longer than {ENTRY_BYTES_MAX} bytes", number + 1);
            entries.push(entry(line).ok_or_else(long)?);
        }
        match entries.is_empty() {
            true => Err("it has no account: write lines `user:password`".into()),
            false => Ok(Credentials { entries }),
        }
    }

    /// The names of all users, each once, in the order of the file.
    pub(crate) fn users(&self) -> Vec<String> {
        let mut users: Vec<String> = Vec::new();
        for entry in &self.entries {
            let (length, bytes) = entry.split_first().unwrap_or((&0, &[]));
            let line = bytes.get(..usize::from(*length)).unwrap_or_default();
            let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
            let name = String::from_utf8_lossy(name).into_owned();
            if !users.contains(&name) {
                users.push(name);
            }
        }
        users
    }

    /// Whether this is an account. Takes the same time whichever bytes are wrong, and compares with
    /// every account.
    pub(crate) fn admit(&self, user: &[u8], password: &[u8]) -> bool {
        let attempt = entry(&[user, b":", password].concat());
        // Behind a colon the password begins, in the file too.
        let possible = attempt.is_some() && !user.contains(&b':');
        let attempt = attempt.unwrap_or([0; ENTRY_BYTES_MAX + 1]);
        let found = self.entries.iter().fold(Choice::from(0), |found, entry| found | entry[..].ct_eq(&attempt[..]));
        bool::from(found) && possible
    }

    /// As the text protocol has it: `user password`.
    pub(crate) fn admit_text(&self, data: &[u8]) -> bool {
        let at = data.iter().position(|byte| *byte == b' ').unwrap_or(data.len());
        let (user, password) = data.split_at(at);
        self.admit(user, password.strip_prefix(b" ").unwrap_or_default())
    }

    /// As SASL PLAIN has it: a name to act for, which is not heeded, the user and the password,
    /// with zero bytes in between.
    pub(crate) fn admit_plain(&self, data: &[u8]) -> bool {
        let mut parts = data.splitn(3, |byte| *byte == 0);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(_), Some(user), Some(password)) => self.admit(user, password),
            _ => false,
        }
    }
}

/// The accounts that a server has now, and the file that they are from.
#[derive(Debug)]
pub(crate) struct Accounts {
    file: PathBuf,
    now: RwLock<Arc<Credentials>>,
}

impl Accounts {
    /// As [`Credentials::read`].
    pub(crate) fn of(file: &Path) -> Result<Accounts, String> {
        Ok(Accounts::new(file.to_owned(), Credentials::read(file)?))
    }

    pub(crate) fn new(file: PathBuf, credentials: Credentials) -> Accounts {
        Accounts { file, now: RwLock::new(Arc::new(credentials)) }
    }

    pub(crate) fn now(&self) -> Arc<Credentials> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the file has now, not in force yet.
    pub(crate) fn read_again(&self) -> Result<Credentials, String> {
        Credentials::read(&self.file)
    }

    /// From now on clients are admitted by these; who is in stays.
    pub(crate) fn set(&self, credentials: Credentials) {
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(credentials);
    }
}

/// `None` if it is too long.
fn entry(line: &[u8]) -> Option<PaddedAccount> {
    let mut entry = [0; ENTRY_BYTES_MAX + 1];
    let (length, bytes) = entry.split_first_mut()?;
    bytes.get_mut(..line.len())?.copy_from_slice(line);
    *length = u8::try_from(line.len()).ok()?;
    Some(entry)
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} accounts", self.entries.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_admitted_by_name_and_password_only() {
        let accounts = Credentials::parse(b"user:pass\r\n\nother:word:with:colons\nzero:a").unwrap();
        assert_eq!(accounts.users(), ["user", "other", "zero"], "without what is behind the name");
        assert!(accounts.admit(b"user", b"pass") && accounts.admit(b"other", b"word:with:colons"));
        assert!(accounts.admit_text(b"user pass") && accounts.admit_plain(b"\0user\0pass"));
        assert!(accounts.admit_plain(b"somebody\0user\0pass"));
        let wrong: [(&[u8], &[u8]); 10] = [
            (b"user", b"Pass"),
            (b"user", b"pas"),
            (b"user", b"pass\0"),
            (b"user", b""),
            (b"", b""),
            (b"", b"pass"),
            (b"other:word", b"with:colons"),
            (b"zero", b"a\0"),
            (b"user", &[b'p'; 300]),
            (b"nobody", b"pass"),
        ];
        for (user, password) in wrong {
            assert!(!accounts.admit(user, password), "{}", user.escape_ascii());
        }
        for data in [&b""[..], b"user", b"user:pass", b" user pass", b"user  pass"] {
            assert!(!accounts.admit_text(data), "{}", data.escape_ascii());
        }
        for data in [&b""[..], b"\0", b"\0\0", b"user\0pass", b"\0user\0pass\0"] {
            assert!(!accounts.admit_plain(data), "{}", data.escape_ascii());
        }
    }

    #[test]
    fn a_file_without_accounts_is_refused_and_no_line_is_shown() {
        let refused = |bytes: &[u8]| Credentials::parse(bytes).unwrap_err();
        assert_eq!(refused(b"\n\n"), "it has no account: write lines `user:password`");
        for bad in [&b"a:b\nsecret\n"[..], b"a:b\n:secret", b"a:b\nsecret:"] {
            assert_eq!(refused(bad), "line 2 is not `user:password`");
        }
        assert_eq!(refused(&[&b"a:"[..], &[b'x'; 300]].concat()), "line 1 is longer than 254 bytes");
        assert_eq!(format!("{:?}", Credentials::parse(b"a:b").unwrap()), "1 accounts");
    }
}
