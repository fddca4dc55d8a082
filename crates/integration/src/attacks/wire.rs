//! Connections of clients, plain or by TLS, that never block unless they are told to.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A certificate that was made for this run, and where a server finds it.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// In PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
    trusted: CertificateDer<'static>,
}

impl Certificate {
    /// A new one, as two files in `place`.
    ///
    /// # Errors
    /// It cannot be made or written.
    pub fn new(place: &Path) -> Result<Certificate, String> {
        let made = generate_simple_self_signed(["localhost".to_owned()]);
        let CertifiedKey { cert, signing_key } = made.map_err(|error| format!("no certificate: {error}"))?;
        let (certificate, key) = (place.join("certificate.pem"), place.join("key.pem"));
        let write = |path: &Path, text: String| {
            std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
        };
        write(&certificate, cert.pem())?;
        write(&key, signing_key.serialize_pem())?;
        Ok(Certificate { certificate, key, trusted: cert.der().clone() })
    }

    /// What a client needs that trusts it and nothing else.
    ///
    /// # Errors
    /// It is no certificate.
    pub fn client(&self) -> Result<Arc<ClientConfig>, String> {
        let mut roots = RootCertStore::empty();
        roots.add(self.trusted.clone()).map_err(|error| format!("no certificate: {error}"))?;
        Ok(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
    }
}

/// Where clients connect, and how.
#[derive(Clone, Debug)]
pub struct Dialer {
    /// The server.
    pub address: SocketAddr,
    /// With TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// Room for what the client has not read; the kernel's default otherwise.
    pub receive_bytes: Option<usize>,
}

impl Dialer {
    /// Plain connections to this address.
    pub fn plain(address: SocketAddr) -> Dialer {
        Dialer { address, tls: None, receive_bytes: None }
    }

    /// With so much room for what is not read.
    pub fn receive_bytes(mut self, bytes: usize) -> Dialer {
        self.receive_bytes = Some(bytes);
        self
    }

    /// A connection that is being made, and whose calls return at once.
    ///
    /// # Errors
    /// As socket(2) and connect(2).
    pub fn dial(&self) -> io::Result<Wire> {
        self.connect(SocketFlags::NONBLOCK)
    }

    /// A connection whose calls wait, for as long as `limit`.
    ///
    /// # Errors
    /// As [`Dialer::dial`].
    pub fn dial_and_wait(&self, limit: Duration) -> io::Result<Wire> {
        let wire = self.connect(SocketFlags::empty())?;
        wire.socket().set_read_timeout(Some(limit))?;
        wire.socket().set_write_timeout(Some(limit))?;
        Ok(wire)
    }

    fn connect(&self, flags: SocketFlags) -> io::Result<Wire> {
        let flags = flags | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        if let Some(bytes) = self.receive_bytes {
            // Before it connects: the window that the peer is told goes by it.
            sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
        }
        match rustix::net::connect(&socket, &self.address) {
            Err(error) if error != rustix::io::Errno::INPROGRESS => return Err(error.into()),
            _ => {}
        }
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        let Some(config) = &self.tls else { return Ok(Wire::Plain(stream)) };
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let session = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        Ok(Wire::Tls(Box::new(StreamOwned::new(session, stream))))
    }
}

/// A client's side of a connection.
#[derive(Debug)]
pub enum Wire {
    /// Bytes as they are.
    Plain(TcpStream),
    /// Sealed.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    /// What it goes over.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Wire::Plain(stream) => stream,
            Wire::Tls(stream) => stream.get_ref(),
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(stream) => stream.read(buffer),
            Wire::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(stream) => stream.write(bytes),
            Wire::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Wire::Plain(stream) => stream.flush(),
            Wire::Tls(stream) => stream.flush(),
        }
    }
}
