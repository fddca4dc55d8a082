//! The way to a server: TCP, TLS over it, or a UNIX socket. Whoever speaks a protocol over it
//! neither knows nor asks which.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::failure::Failure;

/// How long a connection may take, for each address of a host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the server may be silent.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerAddress {
    /// `HOST:PORT`.
    Tcp(String),
    /// The same, by TLS.
    Tls(String),
    /// A socket file.
    Unix(PathBuf),
}

impl ServerAddress {
    /// Of the text of `--server`.
    pub(crate) fn parse(text: &str) -> ServerAddress {
        match (text.strip_prefix("tls:"), text.strip_prefix("unix:")) {
            (Some(address), _) => ServerAddress::Tls(address.to_owned()),
            (_, Some(path)) => ServerAddress::Unix(path.into()),
            _ => ServerAddress::Tcp(text.to_owned()),
        }
    }
}

impl std::fmt::Display for ServerAddress {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ServerAddress::Tcp(address) => out.write_str(address),
            ServerAddress::Tls(address) => write!(out, "tls:{address}"),
            ServerAddress::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

/// Files in PEM for `tls:` addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsFiles {
    /// Authorities that may have signed the server's certificate.
    pub(crate) authorities: Option<PathBuf>,
    /// The client's own certificate and its key, for a server that asks for one.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

impl TlsFiles {
    fn config(&self, address: &str) -> Result<ClientConfig, Failure> {
        let Some(file) = &self.authorities else {
            return Err(Failure::usage(format!(
                "tls:{address}: which authority has signed the server's certificate? Name its certificate with --tls-ca FILE; \
                 a certificate that the server has signed itself is its own authority"
            )));
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates("--tls-ca", file)? {
            roots.add(certificate).map_err(|error| unreadable("--tls-ca", file, &error))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| Failure::failed(format!("TLS: {error}")))?.with_root_certificates(roots);
        let Some((certificate, key)) = &self.identity else { return Ok(builder.with_no_client_auth()) };
        let chain = certificates("--tls-cert", certificate)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable("--tls-key", key, &error))?;
        builder.with_client_auth_cert(chain, key).map_err(|error| unreadable("--tls-cert", certificate, &error))
    }
}

fn certificates(option: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(all) if all.is_empty() => Err(unreadable(option, file, &"there is no certificate in it")),
        Ok(all) => Ok(all),
        Err(error) => Err(unreadable(option, file, &error)),
    }
}

fn unreadable(option: &str, file: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::usage(format!("{option} {}: {why}; it names a file in PEM (-----BEGIN ...)", file.display()))
}

/// A connection.
pub(crate) enum Connection {
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    Unix(UnixStream),
}

impl Connection {
    /// Connects, to the first of the host's addresses that answers. `hint`: what to do if nobody
    /// listens there.
    ///
    /// # Errors
    /// The name does not resolve, nobody answers within five seconds for each address, the files of
    /// TLS are none, or the server's certificate is not trusted.
    pub(crate) fn open(address: &ServerAddress, tls: &TlsFiles, hint: &str) -> Result<Connection, Failure> {
        match address {
            ServerAddress::Tcp(host) => Ok(Connection::Tcp(connect_tcp(address, host, hint)?)),
            ServerAddress::Tls(host) => {
                let config = tls.config(host)?;
                let name = host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name);
                let name = ServerName::try_from(name.trim_matches(['[', ']']).to_owned()).map_err(|_| {
                    Failure::usage(format!("{address}: `{name}` is neither a host name nor an IP address"))
                })?;
                let session = ClientConnection::new(Arc::new(config), name);
                let session = session.map_err(|error| Failure::failed(format!("{address}: {error}")))?;
                let mut stream = StreamOwned::new(session, connect_tcp(address, host, hint)?);
                while stream.conn.is_handshaking() {
                    let done = stream.conn.complete_io(&mut stream.sock);
                    done.map_err(|error| handshake(address, &error))?;
                }
                Ok(Connection::Tls(Box::new(stream)))
            }
            ServerAddress::Unix(path) => {
                let opened = UnixStream::connect(path).and_then(|stream| {
                    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
                    Ok(stream)
                });
                let stream =
                    opened.map_err(|error| Failure::failed(format!("cannot connect to {address}: {error}; {hint}")))?;
                Ok(Connection::Unix(stream))
            }
        }
    }

    /// Lets reads wait for so long.
    pub(crate) fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Connection::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
            Connection::Tls(stream) => stream.sock.set_read_timeout(Some(timeout)),
            Connection::Unix(stream) => stream.set_read_timeout(Some(timeout)),
        }
    }
}

fn connect_tcp(address: &ServerAddress, host: &str, hint: &str) -> Result<TcpStream, Failure> {
    let addresses = host
        .to_socket_addrs()
        .map_err(|error| Failure::usage(format!("{address}: {error}; write HOST:PORT, for example 127.0.0.1:11211")))?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "it has no address");
    for one in addresses {
        match TcpStream::connect_timeout(&one, CONNECT_TIMEOUT).and_then(prepare) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(Failure::failed(format!("cannot connect to {address}: {last}; {hint}")))
}

fn prepare(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Why there is no TLS session, and what to do.
fn handshake(address: &ServerAddress, error: &io::Error) -> Failure {
    use rustls::{AlertDescription, CertificateError, Error};
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let advice = match cause {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            "its certificate is signed by none of the authorities in --tls-ca: name the right file"
        }
        Some(Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => "its certificate is of another name: connect by a name that is in it",
        Some(Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. })) => {
            "its certificate has expired: renew it there, or set this machine's clock"
        }
        Some(Error::InvalidCertificate(CertificateError::Other(other)))
            if format!("{other:?}").contains("CaUsedAsEndEntity") =>
        {
            "its certificate was made as an authority: make one with `-addext basicConstraints=critical,CA:FALSE` (openssl req -x509)"
        }
        Some(Error::AlertReceived(AlertDescription::CertificateRequired | AlertDescription::BadCertificate)) => {
            "it asks for a certificate of yours: --tls-cert FILE and --tls-key FILE"
        }
        Some(Error::InvalidMessage(_)) => "what listens there speaks no TLS: leave tls: out, or name its TLS port",
        _ if error.kind() == io::ErrorKind::UnexpectedEof || error.kind() == io::ErrorKind::ConnectionReset => {
            "it hung up: does it speak TLS at this port?"
        }
        _ if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            "it says nothing: does it speak TLS at this port?"
        }
        _ => "see --tls-ca, --tls-cert and --tls-key",
    };
    Failure::failed(format!("no TLS session with {address}: {error}; {advice}"))
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Connection::Tcp(stream) => stream.read(buffer),
            Connection::Tls(stream) => stream.read(buffer),
            Connection::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Connection::Tcp(stream) => stream.write(buffer),
            Connection::Tls(stream) => stream.write(buffer),
            Connection::Unix(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Connection::Tcp(stream) => stream.flush(),
            Connection::Tls(stream) => stream.flush(),
            Connection::Unix(stream) => stream.flush(),
        }
    }
}
