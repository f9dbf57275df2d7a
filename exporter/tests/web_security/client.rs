//! A certificate authority and a TLS client, for tests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("signs itself"))
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Certificate and key for a name, as PEM.
    pub(crate) fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &self.0).expect("signs");
        (certificate.pem(), key.serialize_pem())
    }

    /// A client that trusts this authority.
    pub(crate) fn client(&self) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("a certificate");
        Client {
            trusts: Some(roots),
            shows: None,
            only_tls12: false,
        }
    }
}

/// Requests `/metrics`.
pub(crate) struct Client {
    trusts: Option<RootCertStore>,
    shows: Option<(String, String)>,
    only_tls12: bool,
}

impl Client {
    /// One that uses plain HTTP.
    pub(crate) fn plain() -> Self {
        Self {
            trusts: None,
            shows: None,
            only_tls12: false,
        }
    }

    pub(crate) fn only_tls12(self) -> Self {
        Self {
            only_tls12: true,
            ..self
        }
    }

    pub(crate) fn showing(self, certificate_and_key: (String, String)) -> Self {
        Self {
            shows: Some(certificate_and_key),
            ..self
        }
    }

    /// The full response as text; `user` is `name:password`.
    pub(crate) fn get(&self, address: SocketAddr, user: Option<&str>) -> Result<String, String> {
        let stream = TcpStream::connect(address).expect("connects");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("sets a timeout");
        let asked = match self.config() {
            None => ask(stream, user),
            Some(config) => {
                let name = "localhost".try_into().expect("a name");
                let session = ClientConnection::new(Arc::new(config), name).expect("a session");
                ask(StreamOwned::new(session, stream), user)
            }
        };
        asked.map_err(|error| error.to_string())
    }

    fn config(&self) -> Option<ClientConfig> {
        let versions = if self.only_tls12 {
            vec![&TLS12]
        } else {
            vec![&TLS13, &TLS12]
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&versions)
            .expect("versions")
            .with_root_certificates(self.trusts.clone()?);
        let Some((certificate, key)) = &self.shows else {
            return Some(builder.with_no_client_auth());
        };
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM");
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
        let config = builder.with_client_auth_cert(vec![certificate], key);
        Some(config.expect("a pair"))
    }
}

fn ask(mut stream: impl Read + Write, user: Option<&str>) -> std::io::Result<String> {
    let user = user.map(|user| format!("Authorization: Basic {}\r\n", STANDARD.encode(user)));
    let user = user.unwrap_or_default();
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\n{user}Connection: close\r\n\r\n"
    )?;
    stream.flush()?;
    let mut answer = String::new();
    match stream.read_to_string(&mut answer) {
        // A plain response to a closed TLS session, and the reverse, is no response.
        Ok(_) if answer.starts_with("HTTP/1.1 ") => Ok(answer),
        Ok(_) => Err(std::io::Error::other("no answer")),
        Err(error) => Err(error),
    }
}
