//! Who asks a server, and whom it trusts: accounts and the files of TLS.

use std::path::{Path, PathBuf};

use clap::Args;

use super::Client;
use super::connection::{ServerAddress, TlsFiles};
use crate::failure::Failure;

/// The password of `--user`, where no file has it.
const PASSWORD_VARIABLE: &str = "STRATAKV_PASSWORD";

/// A user, and the files of TLS.
#[derive(Args)]
pub(crate) struct LoginArguments {
    /// Log in with the first line `user:password` of this file, such as the server's own
    /// --auth-file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["user", "password_file"])]
    auth_file: Option<PathBuf>,
    /// Log in as this user. The password is that of --password-file, or of the environment
    /// ($STRATAKV_PASSWORD)
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The password: the first line of this file
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Certificates of authorities, in PEM: one of them must have signed the certificate of a tls:
    /// server
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// A certificate to show to a tls: server that asks for one, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

/// A user, if there is one, and a password.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
}

impl LoginArguments {
    /// Refuses what means nothing without `option`, which is not there.
    ///
    /// # Errors
    /// Something was given.
    pub(crate) fn refuse_without(&self, option: &str) -> Result<(), Failure> {
        let given = [
            ("--auth-file", self.auth_file.is_some()),
            ("--user", self.user.is_some()),
            ("--password-file", self.password_file.is_some()),
            ("--tls-ca", self.tls_ca.is_some()),
            ("--tls-cert", self.tls_cert.is_some()),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((name, _)) => {
                Err(Failure::usage(format!("{name} is for a server: name it with {option}, or leave {name} out")))
            }
            None => Ok(()),
        }
    }

    /// The files of TLS.
    pub(crate) fn tls(&self) -> TlsFiles {
        let identity = self.tls_cert.clone().zip(self.tls_key.clone());
        TlsFiles { authorities: self.tls_ca.clone(), identity }
    }

    /// Who logs in; `None`: nobody does.
    ///
    /// # Errors
    /// A file cannot be read or says something else, or there is a user and no password.
    pub(crate) fn account(&self) -> Result<Option<Account>, Failure> {
        if let Some(file) = &self.auth_file {
            return first_account(file).map(Some);
        }
        let password = match &self.password_file {
            Some(file) => Some(first_line("--password-file", file)?),
            // Without a user the variable may be for another command.
            None if self.user.is_none() => None,
            None => std::env::var(PASSWORD_VARIABLE).ok(),
        };
        match (&self.user, password) {
            (None, None) => Ok(None),
            (user, Some(password)) => Ok(Some(Account { user: user.clone(), password })),
            (Some(user), None) => Err(Failure::usage(format!(
                "--user {user}: with which password? Put it into a file and name that with --password-file, or into the environment: ${PASSWORD_VARIABLE}"
            ))),
        }
    }

    /// A connection to a memcache server, logged in.
    ///
    /// # Errors
    /// As of [`Client::connect`], [`LoginArguments::account`] and [`Client::authenticate`].
    pub(crate) fn memcache(&self, server: &ServerAddress, hint: &str) -> Result<Client, Failure> {
        let account = self.account()?;
        let mut client = Client::connect(server, &self.tls(), hint)?;
        if let Some(Account { user, password }) = account {
            let Some(user) = user else {
                return Err(Failure::usage("--password-file: whose password is it? Say --user NAME"));
            };
            if user.contains(' ') || password.contains(['\r', '\n']) {
                return Err(Failure::usage("the memcache text protocol cannot carry a user with a space"));
            }
            client.authenticate(&user, &password)?;
        }
        Ok(client)
    }
}

fn first_line(option: &str, file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("{option} {}: cannot read it: {error}", file.display())))?;
    let line = text.lines().find(|line| !line.trim().is_empty());
    line.map(str::to_owned).ok_or_else(|| Failure::usage(format!("{option} {}: it is empty", file.display())))
}

/// The first account of a file.
fn first_account(file: &Path) -> Result<Account, Failure> {
    let line = first_line("--auth-file", file)?;
    let account = line
        .split_once(':')
        .map(|(user, password)| Account { user: Some(user.to_owned()), password: password.to_owned() });
    let advice = "its first line is not user:password";
    account.ok_or_else(|| Failure::usage(format!("--auth-file {}: {advice}", file.display())))
}
