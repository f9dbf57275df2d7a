//! TLS with a certificate of our own, over both protocols.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use crate::receiver::{Mode, Receiver};
use crate::start::{EXPOSITION, at, settings, start};
use railscope_otlp::{Otlp, Service};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let Ok((stream, address)) = self.listener.accept().await else {
                continue;
            };
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A certificate authority with one certificate for a server and one for a client, as files in a folder.
fn certificates(folder: &Path) -> ServerConfig {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority =
        CertifiedIssuer::self_signed(params, KeyPair::generate().expect("key")).expect("authority");
    let signed = |name: &str| {
        let key = KeyPair::generate().expect("key");
        let params = CertificateParams::new([name.to_owned()]).expect("name");
        (
            params.signed_by(&key, &authority).expect("certificate"),
            key,
        )
    };
    let (server, server_key) = signed("localhost");
    let (client, client_key) = signed("client");
    fs::write(folder.join("ca.pem"), authority.pem()).expect("file");
    fs::write(folder.join("client.pem"), client.pem()).expect("file");
    fs::write(folder.join("client.key"), client_key.serialize_pem()).expect("file");
    fs::write(folder.join("broken.pem"), "no certificate").expect("file");
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from(authority.der().to_vec()))
        .expect("root");
    let provider = Arc::new(ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("verifier"))
        .with_single_cert(
            vec![server.der().clone()],
            PrivateKeyDer::try_from(server_key.serialize_der()).expect("key"),
        )
        .expect("certificate");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_protocols_use_tls_with_a_client_certificate_and_fail_without() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = Arc::new(certificates(folder.path()));
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (ca, client, key) = (path("ca.pem"), path("client.pem"), path("client.key"));
    for protocol in ["grpc", "http/protobuf"] {
        for with_client in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let acceptor = TlsAcceptor::from(Arc::clone(&config));
            let receiver =
                Receiver::serve(TlsListener { listener, acceptor }, address, Mode::Accept);
            let url = format!("https://localhost:{}", address.port());
            let mut variables = vec![
                ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                ("OTEL_EXPORTER_OTLP_CERTIFICATE", &ca),
                ("OTEL_METRIC_EXPORT_INTERVAL", "3600000"),
            ];
            if with_client {
                variables.push(("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &client));
                variables.push(("OTEL_EXPORTER_OTLP_CLIENT_KEY", &key));
            }
            let mut otlp = start(&variables);
            otlp.export_metrics(at(1), || EXPOSITION.to_owned());
            let stats = otlp.shutdown().await.metrics;
            let counts = (stats.items_sent, stats.items_failed);
            assert_eq!(
                counts,
                if with_client { (4, 0) } else { (0, 4) },
                "{protocol} {with_client}"
            );
            assert_eq!(receiver.metrics().is_empty(), !with_client, "{protocol}");
        }
    }
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_an_error_with_its_path() {
    let folder = tempfile::tempdir().expect("a folder");
    certificates(folder.path());
    for (name, expected) in [
        ("absent.pem", "cannot read "),
        (
            "broken.pem",
            "expected a certificate to trust in PEM format",
        ),
    ] {
        let path = folder.path().join(name).to_string_lossy().into_owned();
        let settings = settings(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://localhost:1"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", &path),
        ]);
        let error =
            Otlp::start(&settings, &Service::default(), &Handle::current()).expect_err(name);
        let cause = std::error::Error::source(&error)
            .expect("a cause")
            .to_string();
        assert!(cause.contains(expected) && cause.contains(&path), "{cause}");
    }
}
