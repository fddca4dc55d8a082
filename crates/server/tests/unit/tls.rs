use std::io::Cursor;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use stratakv_base::random::Random;

use super::*;

/// An authority, and files of a server that it has signed for.
struct Files {
    directory: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Files {
    fn new() -> Files {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let files = Files { directory: tempfile::tempdir().unwrap(), authority };
        std::fs::write(files.path("authority.pem"), files.authority.pem()).unwrap();
        files.sign("server");
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn sign(&self, name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec!["localhost".into()]).unwrap().signed_by(&key, &self.authority).unwrap();
        std::fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        (certificate.der().clone(), key)
    }

    fn options(&self) -> TlsOptions {
        TlsOptions { certificate: self.path("server.pem"), key: self.path("server.key"), client_authority: None }
    }

    fn client(&self, certificate: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>) -> ClientConnection {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        let config = match certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key).unwrap(),
        };
        ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap()
    }
}

fn acceptor(options: &TlsOptions) -> Acceptor {
    let acceptor = Acceptor::default();
    acceptor.set(options.load().unwrap());
    acceptor
}

/// Carries bytes both ways, in pieces, until neither has more; what both heard. The server wants
/// buffers of 100 bytes.
fn converse(
    client: &mut ClientConnection,
    server: &mut Tls,
    random: &mut Random,
) -> Result<(Vec<u8>, Vec<u8>), rustls::Error> {
    let (mut heard, mut answered) = (Vec::new(), Vec::new());
    loop {
        let mut up = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut up).unwrap();
        }
        let down = server.seal(false);
        if up.is_empty() && down.is_empty() && server.is_sealed() {
            return Ok((heard, answered));
        }
        let mut left = &up[..];
        while !left.is_empty() {
            let (piece, rest) = left.split_at(left.len().min(1 + random.below(5000) as usize));
            left = rest;
            server.received(piece)?;
            server.wanted.get_or_insert_with(|| Vec::with_capacity(100));
            while let Some((buffer, 1..)) = server.take_plain() {
                heard.extend(buffer);
                server.wanted = Some(Vec::with_capacity(100));
            }
        }
        let mut down = Cursor::new(down);
        while client.read_tls(&mut down).unwrap_or(0) > 0 {
            client.process_new_packets()?;
            let mut piece = Vec::new();
            // More comes later.
            let _ = client.reader().read_to_end(&mut piece);
            answered.extend(piece);
        }
    }
}

/// OpenSSL looks at the bytes. A key of PKCS#8 that said `RSA PRIVATE KEY` was refused.
#[test]
fn a_key_is_what_its_bytes_are_whatever_its_label_says() {
    let files = Files::new();
    let pem = std::fs::read_to_string(files.path("server.key")).unwrap();
    assert!(pem.contains("BEGIN PRIVATE KEY"), "{pem}");
    for label in ["RSA PRIVATE KEY", "EC PRIVATE KEY"] {
        std::fs::write(files.path("server.key"), pem.replace("PRIVATE KEY", label)).unwrap();
        let acceptor = acceptor(&files.options());
        let (mut client, mut server) = (files.client(None), acceptor.begin().unwrap());
        client.writer().write_all(b"mn").unwrap();
        let (heard, _) = converse(&mut client, &mut server, &mut Random::new(1)).unwrap();
        assert_eq!(heard, b"mn", "{label}");
    }
    // SEC 1 and PKCS#1 under labels of others, and bytes that are none.
    for (der, kind) in
        [(&b"\x30\x03\x02\x01\x01\x04"[..], Some(OCTETS)), (b"\x30\x81\x09\x02\x01\x00\x02", Some(INTEGER))]
    {
        assert_eq!(second_element(der), kind);
    }
    for der in
        [&b""[..], b"\x30", b"\x30\x82", b"\x30\xFF\x00", b"\x31\x03\x02\x01\x01\x04", b"\x30\x03\x02\x02\x01\x01\x04"]
    {
        assert_eq!(second_element(der), None);
    }
}

#[test]
fn bytes_come_through_whole_both_ways_however_they_are_cut() {
    let files = Files::new();
    let acceptor = acceptor(&files.options());
    for seed in 0..10 {
        let mut random = Random::new(seed);
        let (mut client, mut server) = (files.client(None), acceptor.begin().unwrap());
        client.set_buffer_limit(None);
        let (mut up, mut down) = (vec![0; random.below(300_000) as usize], vec![0; random.below(3_000_000) as usize]);
        random.fill(&mut up);
        random.fill(&mut down);
        client.writer().write_all(&up).unwrap();
        server.send(down.chunks(70_000).map(|piece| Chunk::Bytes(piece.to_vec())).collect());
        let (heard, answered) = converse(&mut client, &mut server, &mut random).unwrap();
        assert!(heard == up && answered == down, "{seed}: {} {}", heard.len(), answered.len());
    }
}

#[test]
fn what_is_no_tls_and_clients_without_the_certificate_asked_for_are_refused_with_an_alert() {
    let files = Files::new();
    let open = acceptor(&files.options());
    let mut server = open.begin().unwrap();
    assert!(server.received(b"get a\r\nget b\r\nget c\r\n").is_err());
    assert_eq!(server.seal(false).first(), Some(&21), "an alert");

    let closed = acceptor(&TlsOptions { client_authority: Some(files.path("authority.pem")), ..files.options() });
    let mut random = Random::new(1);
    let (mut client, mut server) = (files.client(None), closed.begin().unwrap());
    assert!(converse(&mut client, &mut server, &mut random).is_err());
    let strange = Files::new().sign("strange");
    let (mut client, mut server) = (files.client(Some(strange)), closed.begin().unwrap());
    assert!(converse(&mut client, &mut server, &mut random).is_err());
    let (mut client, mut server) = (files.client(Some(files.sign("known"))), closed.begin().unwrap());
    client.writer().write_all(b"version").unwrap();
    assert_eq!(converse(&mut client, &mut server, &mut random).unwrap().0, b"version");
}

#[test]
fn a_peer_that_is_done_is_an_end() {
    let files = Files::new();
    let (mut client, mut server) = (files.client(None), acceptor(&files.options()).begin().unwrap());
    let mut random = Random::new(1);
    client.writer().write_all(b"version").unwrap();
    converse(&mut client, &mut server, &mut random).unwrap();
    client.writer().write_all(b"quit").unwrap();
    client.send_close_notify();
    assert_eq!(converse(&mut client, &mut server, &mut random).unwrap().0, b"quit");
    server.wanted = Some(Vec::with_capacity(10));
    assert_eq!(server.take_plain(), Some((Vec::new(), 0)));
    assert!(!server.wants_bytes());
}

#[test]
fn files_that_do_not_belong_together_are_refused_by_name() {
    let files = Files::new();
    files.sign("other");
    std::fs::write(files.path("empty"), b"").unwrap();
    std::fs::write(files.path("garbage"), b"-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n").unwrap();
    let all = |certificate: &str, key: &str, authority: Option<&str>| TlsOptions {
        certificate: files.path(certificate),
        key: files.path(key),
        client_authority: authority.map(|name| files.path(name)),
    };
    for (options, named) in [
        (all("server.pem", "other.key", None), "other.key"),
        (all("absent", "server.key", None), "absent"),
        (all("server.pem", "absent", None), "absent"),
        (all("empty", "server.key", None), "empty"),
        (all("garbage", "server.key", None), "garbage"),
        (all("server.pem", "server.pem", None), "server.pem"),
        (all("server.pem", "server.key", Some("empty")), "empty"),
    ] {
        let refused = options.load().unwrap_err().to_string();
        assert!(refused.contains(named) && refused.contains("PEM"), "{refused}");
    }
    all("server.pem", "server.key", Some("authority.pem")).load().unwrap();
}
