//! TLS between the bytes of a socket and a connection: bytes in, bytes out, no sockets.
//! [rustls](https://docs.rs/rustls) does the work.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use stratakv_device::ring::Chunk;

use crate::server::Error;

/// Room for one receive: grows while receives fill it.
const RECV_BYTES_MIN: usize = 4 << 10;
const RECV_BYTES_MAX: usize = 64 << 10;
/// Bytes sealed for one send.
const SEAL_BYTES_MAX: usize = 256 << 10;
const SEAL_BYTES_SCARCE: usize = 32 << 10;

/// With what TLS connections are served. Files in PEM; they are read when the server starts, and
/// again by [`Server::reload`](crate::Server::reload).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// The server's certificate, followed by those of the authorities between it and one that
    /// clients trust.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// Certificates of authorities: clients must show a certificate that one of them has signed.
    /// `None`: clients need none.
    pub client_authority: Option<PathBuf>,
}

impl TlsOptions {
    /// Reads the files, and checks that they belong together.
    pub(crate) fn load(&self) -> Result<Arc<ServerConfig>, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder =
            builder.with_safe_default_protocol_versions().map_err(|error| Error::Option(format!("TLS: {error}")))?;
        let builder = match &self.client_authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| refused(path, &error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| refused(path, &error))?)
            }
        };
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| refused(&self.key, &error))?;
        let key = by_content(key);
        let config = builder.with_single_cert(certificates(&self.certificate)?, key);
        Ok(Arc::new(
            config.map_err(|error| refused(&self.certificate, &format!("with {}: {error}", self.key.display())))?,
        ))
    }
}

/// The key as what its bytes are, whatever its label says: as with OpenSSL, a key of PKCS#8 is
/// taken that begins with `RSA PRIVATE KEY`, say.
fn by_content(key: PrivateKeyDer<'static>) -> PrivateKeyDer<'static> {
    let der = key.secret_der();
    match second_element(der) {
        Some(SEQUENCE) => PrivatePkcs8KeyDer::from(der.to_vec()).into(),
        Some(INTEGER) => PrivatePkcs1KeyDer::from(der.to_vec()).into(),
        Some(OCTETS) => PrivateSec1KeyDer::from(der.to_vec()).into(),
        _ => key,
    }
}

const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const SEQUENCE: u8 = 0x30;

/// The kind of what follows the version in a private key: PKCS#8 names its algorithm there, PKCS#1
/// has a number, SEC 1 the key.
fn second_element(der: &[u8]) -> Option<u8> {
    let (kind, rest) = der.split_first()?;
    let (length, rest) = rest.split_first()?;
    let long = if *length < 0x80 { 0 } else { usize::from(*length & 0x7F) };
    match (*kind, rest.get(long..)?) {
        (SEQUENCE, [INTEGER, 1, _, second, ..]) => Some(*second),
        _ => None,
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| refused(path, &error))?;
    if read.is_empty() {
        return Err(refused(path, &"it has no certificate"));
    }
    Ok(read)
}

fn refused(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::Option(format!(
        "TLS cannot be served with {}: {why}; name files of PEM, a certificate and the key that belongs to it",
        path.display()
    ))
}

/// What new TLS connections begin with; may be exchanged while serving.
#[derive(Debug, Default)]
pub(crate) struct Acceptor(RwLock<Option<(Arc<ServerConfig>, Instant)>>);

impl Acceptor {
    pub(crate) fn set(&self, config: Arc<ServerConfig>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some((config, Instant::now()));
    }

    /// For how long it has had what it has.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(_, since)| since.elapsed())
    }

    /// The beginning of a connection.
    pub(crate) fn begin(&self) -> Option<Tls> {
        let (config, _) = self.0.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        let mut session = ServerConnection::new(config).ok()?;
        // What is sealed at once is bounded here.
        session.set_buffer_limit(None);
        Some(Tls {
            session,
            plain: Vec::new(),
            plain_at: 0,
            wanted: None,
            ended: false,
            receive_bytes: RECV_BYTES_MIN,
            receiving_bytes: 0,
            sealed: None,
            unsealed: VecDeque::new(),
            unsealed_at: 0,
            sending: false,
            said_end: false,
            was_over: false,
        })
    }
}

/// One connection's TLS.
#[derive(Debug)]
pub(crate) struct Tls {
    session: ServerConnection,
    /// What was received and opened, and from where on it was not handed over yet. At most what one
    /// receive brought.
    plain: Vec<u8>,
    plain_at: usize,
    /// The buffer that the connection wants to have filled.
    pub(crate) wanted: Option<Vec<u8>>,
    /// Nothing more comes.
    ended: bool,
    receive_bytes: usize,
    /// Room of the receive in flight.
    receiving_bytes: usize,
    /// What came and was not opened yet.
    sealed: Option<Vec<u8>>,
    /// What the connection sends and was not sealed yet.
    unsealed: VecDeque<Chunk>,
    unsealed_at: usize,
    /// The connection waits for its send to end.
    pub(crate) sending: bool,
    said_end: bool,
    was_over: bool,
}

impl Tls {
    /// A buffer to receive into, a short one where memory is scarce.
    pub(crate) fn buffer(&mut self, is_scarce: bool) -> Vec<u8> {
        self.receiving_bytes = if is_scarce { RECV_BYTES_MIN } else { self.receive_bytes };
        Vec::with_capacity(self.receiving_bytes)
    }

    /// Whether something should be received: the handshake is under way, or the connection wants
    /// bytes and none are left.
    pub(crate) fn wants_bytes(&self) -> bool {
        !self.ended
            && self.sealed.is_none()
            && self.plain_at == self.plain.len()
            && (self.wanted.is_some() || self.session.is_handshaking())
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// Bytes came from the socket, or the end: [`Tls::open`] takes them.
    pub(crate) fn keep(&mut self, sealed: Vec<u8>) {
        self.sealed = Some(sealed);
    }

    /// Whether something is kept.
    pub(crate) fn has_sealed(&self) -> bool {
        self.sealed.is_some()
    }

    /// Opens what was kept.
    pub(crate) fn open(&mut self) -> Result<(), rustls::Error> {
        self.sealed.take().map_or(Ok(()), |sealed| self.received(&sealed))
    }

    /// Bytes that it holds, beside the session itself and what the connection knows of.
    pub(crate) fn held_bytes(&self) -> u64 {
        let sealed = self.sealed.as_ref().map_or(0, Vec::capacity);
        (self.plain.capacity() + sealed.max(self.receiving_bytes)) as u64
    }

    /// Has room between two requests that others could use.
    pub(crate) fn has_idle_room(&self) -> bool {
        let is_taken = self.plain_at == self.plain.len();
        is_taken && (self.receive_bytes > RECV_BYTES_MIN || self.plain.capacity() > RECV_BYTES_MIN)
    }

    /// Gives that room back; the buffer that the connection wanted to have filled.
    pub(crate) fn give_room_back(&mut self) -> Option<Vec<u8>> {
        (self.plain, self.plain_at) = (Vec::new(), 0);
        (self.receive_bytes, self.receiving_bytes) = (RECV_BYTES_MIN, 0);
        self.wanted.take()
    }

    /// Bytes came from the socket; none is the end. After an error the connection is over; what
    /// [`Tls::seal`] gives then tells the peer why.
    pub(crate) fn received(&mut self, sealed: &[u8]) -> Result<(), rustls::Error> {
        self.ended |= sealed.is_empty();
        let filled = sealed.len() >= std::mem::take(&mut self.receiving_bytes).max(RECV_BYTES_MIN);
        self.receive_bytes = if filled { self.receive_bytes * 2 } else { sealed.len().max(self.receive_bytes / 2) };
        self.receive_bytes = self.receive_bytes.clamp(RECV_BYTES_MIN, RECV_BYTES_MAX);
        self.plain.clear();
        self.plain_at = 0;
        let mut left = sealed;
        while !left.is_empty() && !self.ended {
            // It takes nothing more once the peer has said that it is done.
            let taken = self.session.read_tls(&mut left).unwrap_or(0);
            let state = self.session.process_new_packets()?;
            let opened =
                (&mut self.session.reader()).take(state.plaintext_bytes_to_read() as u64).read_to_end(&mut self.plain);
            self.ended |= taken == 0 || state.peer_has_closed() || opened.is_err();
        }
        if self.plain.capacity() > 2 * RECV_BYTES_MAX || (self.plain.is_empty() && self.receive_bytes == RECV_BYTES_MIN)
        {
            self.plain.shrink_to_fit();
        }
        Ok(())
    }

    /// The wanted buffer with what there is for it, and how many bytes that was; 0 at the end.
    /// `None` if there is nothing yet.
    pub(crate) fn take_plain(&mut self) -> Option<(Vec<u8>, usize)> {
        let left = self.plain.get(self.plain_at..).unwrap_or_default();
        if left.is_empty() && !self.ended {
            return None;
        }
        let mut buffer = self.wanted.take()?;
        let bytes = left.len().min(buffer.capacity() - buffer.len());
        buffer.extend_from_slice(left.get(..bytes).unwrap_or_default());
        self.plain_at += bytes;
        Some((buffer, bytes))
    }

    /// The connection's bytes, to be sealed.
    pub(crate) fn send(&mut self, chunks: Vec<Chunk>) {
        self.sending = true;
        self.unsealed.extend(chunks);
    }

    /// Tells the peer that nothing more will be sent.
    pub(crate) fn end(&mut self) {
        if !std::mem::replace(&mut self.said_end, true) {
            self.session.send_close_notify();
        }
    }

    /// Whether the peer was told, and everything before it was sealed; true once.
    pub(crate) fn is_over(&mut self) -> bool {
        let over = self.said_end && !self.was_over;
        self.was_over |= over;
        over
    }

    /// The next bytes for the socket, at most about 256 KiB, or 32 KiB where memory is scarce;
    /// empty if there are none.
    pub(crate) fn seal(&mut self, is_scarce: bool) -> Vec<u8> {
        let mut room = if is_scarce { SEAL_BYTES_SCARCE } else { SEAL_BYTES_MAX };
        while room > 0 && !self.session.is_handshaking() {
            let Some(chunk) = self.unsealed.front() else { break };
            let left = chunk.bytes().get(self.unsealed_at..).unwrap_or_default();
            let bytes = left.len().min(room);
            // Into memory, without a limit: it does not fail.
            let sealed = self.session.writer().write(left.get(..bytes).unwrap_or_default()).unwrap_or(bytes);
            room -= sealed.min(room);
            self.unsealed_at += sealed;
            if self.unsealed_at >= chunk.bytes().len() {
                self.unsealed.pop_front();
                self.unsealed_at = 0;
            }
        }
        let mut out = Vec::new();
        while self.session.wants_write() && self.session.write_tls(&mut out).is_ok_and(|bytes| bytes > 0) {}
        out
    }

    /// Whether all that was given to be sent has been sealed.
    pub(crate) fn is_sealed(&self) -> bool {
        self.unsealed.is_empty()
    }
}

#[cfg(test)]
#[path = "../tests/unit/tls.rs"]
mod tests;
