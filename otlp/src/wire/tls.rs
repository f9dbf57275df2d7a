//! The TLS configuration of a target: trusted certificates, and the certificate that the client presents.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::WireError;
use crate::settings::{Protocol, Target};

/// Where Linux distributions keep the certificates that they trust: Debian, Alpine and Arch; Red Hat; SUSE; older
/// Alpine.
const SYSTEM_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The configuration of connections to a target.
pub(super) fn config(target: &Target) -> Result<Arc<ClientConfig>, WireError> {
    let bundle = match &target.certificate {
        Some(path) => path.clone(),
        None => system_bundle()?,
    };
    let mut roots = RootCertStore::empty();
    let (trusted, _) = roots.add_parsable_certificates(certificates(&bundle)?);
    if trusted == 0 {
        return Err(WireError::Pem {
            path: bundle,
            expected: "a certificate to trust",
            problem: "none is usable".to_owned(),
        });
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match &target.client {
        Some((certificate, key)) => {
            builder.with_client_auth_cert(certificates(certificate)?, private_key(key)?)?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![match target.protocol {
        Protocol::Grpc => b"h2".to_vec(),
        Protocol::Http => b"http/1.1".to_vec(),
    }];
    Ok(Arc::new(config))
}

fn system_bundle() -> Result<PathBuf, WireError> {
    let found = SYSTEM_BUNDLES
        .iter()
        .map(PathBuf::from)
        .find(|path| path.exists());
    found.ok_or_else(|| WireError::NoRoots(SYSTEM_BUNDLES.join(", ")))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, WireError> {
    let pem = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    found.map_err(|error| unusable(path, "certificates", &error))
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, WireError> {
    let pem = read(path)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| unusable(path, "a private key", &error))
}

fn read(path: &Path) -> Result<Vec<u8>, WireError> {
    std::fs::read(path).map_err(|source| WireError::File {
        path: path.to_owned(),
        source,
    })
}

fn unusable(path: &Path, expected: &'static str, error: &dyn std::fmt::Display) -> WireError {
    WireError::Pem {
        path: path.to_owned(),
        expected,
        problem: error.to_string(),
    }
}
