//! What protects the web server, loaded from `web-config.yml` and loaded again when its files
//! change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::auth::Users;
use super::web_config::{
    self, ClientAuth, Pem, TlsSettings, TlsVersion, WebConfig, WebConfigError,
};
use crate::sources::web_files::{self, Stamp};

/// Interval at which the files are checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why the server cannot be protected as configured.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    /// A file cannot be read.
    #[error("cannot read {path}: {cause}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] WebConfigError),
    /// A certificate or key is invalid.
    #[error("{what} ({pem:?}): {problem}")]
    Pem {
        /// What it should be.
        what: &'static str,
        /// Where it stands.
        pem: Pem,
        /// Why it is not.
        problem: String,
    },
    /// A cipher suite that is not offered.
    #[error("unknown cipher suite {found:?}: expected some of {known}")]
    CipherSuite {
        /// What the file reports.
        found: String,
        /// What there is.
        known: String,
    },
    /// The pieces do not fit together.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// The certificates of the clients' authority cannot be used.
    #[error("client certificates cannot be checked: {0}")]
    ClientCa(#[from] VerifierBuilderError),
    /// The new configuration is weaker than the old one. A file that is just being written looks like that.
    #[error("it would take {0} away, which only a restart does")]
    Weaker(&'static str),
}

/// What protects the server now.
pub struct WebSecurity {
    file: PathBuf,
    current: ArcSwap<Loaded>,
    /// The states of the files that `current`, or the last refused attempt, was made from.
    seen: Mutex<Vec<(PathBuf, Stamp)>>,
}

/// One state of the configuration.
pub(super) struct Loaded {
    pub(super) tls: Option<Arc<ServerConfig>>,
    pub(super) headers: HeaderMap,
    pub(super) users: Users,
    asks_clients: ClientAuth,
}

impl WebSecurity {
    /// Loads a `web-config.yml` and what it names. Paths in it are relative to its folder.
    ///
    /// # Errors
    /// Something in it is wrong: nothing is served half protected.
    pub fn load(file: &Path) -> Result<Self, SecurityError> {
        let (loaded, seen) = load(file);
        Ok(Self {
            file: file.to_owned(),
            current: ArcSwap::from_pointee(loaded?),
            seen: Mutex::new(seen),
        })
    }

    /// Whether TLS is spoken.
    pub fn speaks_tls(&self) -> bool {
        self.current.load().tls.is_some()
    }

    pub(super) fn now(&self) -> Arc<Loaded> {
        self.current.load_full()
    }

    /// Checks the files periodically and reloads them when one changes. On an error the previous configuration
    /// stays.
    pub(super) async fn keep_fresh(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let this = Arc::clone(&self);
            // A blocked file system blocks a separate thread, not the server.
            let looked = tokio::task::spawn_blocking(move || this.refresh()).await;
            if let Err(error) = looked {
                tracing::error!(%error, "looking at the web configuration failed");
            }
        }
    }

    fn refresh(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen
            .iter()
            .all(|(path, stamp)| web_files::stamp(path) == *stamp)
        {
            return;
        }
        let (loaded, now_seen) = load(&self.file);
        *seen = now_seen;
        match loaded.and_then(|loaded| self.no_weaker(loaded)) {
            Ok(loaded) => {
                self.current.store(Arc::new(loaded));
                tracing::info!(file = %self.file.display(), "web configuration reloaded");
            }
            Err(error) => {
                tracing::error!(file = %self.file.display(), %error, "cannot reload the web configuration; keeping the previous one");
            }
        }
    }

    fn no_weaker(&self, new: Loaded) -> Result<Loaded, SecurityError> {
        let old = self.current.load();
        let verified = ClientAuth::RequireAndVerifyClientCert;
        let lost = if old.tls.is_some() && new.tls.is_none() {
            "TLS"
        } else if old.asks_clients == verified && new.asks_clients != verified {
            "client certificates"
        } else if !old.users.is_empty() && new.users.is_empty() {
            "passwords"
        } else if old.tls.is_none() && new.tls.is_some() {
            // Not weaker, but clients would have to change their scheme at the same time.
            return Err(SecurityError::Weaker("plain HTTP"));
        } else {
            return Ok(new);
        };
        Err(SecurityError::Weaker(lost))
    }
}

/// Loads the file and what it names, and reports which states it saw: also of what it could not
/// load.
fn load(file: &Path) -> (Result<Loaded, SecurityError>, Vec<(PathBuf, Stamp)>) {
    // Stamps are taken before the files are read: what changes in between is loaded again.
    let mut seen = vec![(file.to_owned(), web_files::stamp(file))];
    let config = read(file).and_then(|text| Ok(web_config::parse(file, &text)?));
    let loaded = config.and_then(|config| {
        let pems = config.tls.iter().flat_map(|tls| {
            let client_ca = tls.client_ca.iter();
            [&tls.certificate, &tls.key].into_iter().chain(client_ca)
        });
        for pem in pems {
            if let Pem::File(path) = pem {
                seen.push((path.clone(), web_files::stamp(path)));
            }
        }
        Loaded::new(config)
    });
    (loaded, seen)
}

impl Loaded {
    fn new(config: WebConfig) -> Result<Self, SecurityError> {
        let asks_clients = config.tls.as_ref().map(|tls| tls.client_auth);
        let tls = config.tls.as_ref().map(server_config).transpose()?;
        let headers = config.headers.into_iter().filter_map(|(name, value)| {
            // Both were checked when the file was read.
            Some((
                HeaderName::from_bytes(name.as_bytes()).ok()?,
                HeaderValue::from_str(&value).ok()?,
            ))
        });
        Ok(Self {
            tls: tls.map(Arc::new),
            headers: headers.collect(),
            users: Users::new(config.users),
            asks_clients: asks_clients.unwrap_or_default(),
        })
    }
}

fn read(path: &Path) -> Result<String, SecurityError> {
    web_files::read(path).map_err(|cause| SecurityError::Read {
        path: path.to_owned(),
        cause,
    })
}

fn server_config(settings: &TlsSettings) -> Result<ServerConfig, SecurityError> {
    let provider = Arc::new(provider(&settings.cipher_suites)?);
    let versions: Vec<&SupportedProtocolVersion> =
        [(TlsVersion::Tls13, &TLS13), (TlsVersion::Tls12, &TLS12)]
            .into_iter()
            .filter(|(version, _)| (settings.min_version..=settings.max_version).contains(version))
            .map(|(_, version)| version)
            .collect();
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)?;
    let builder = match &settings.client_ca {
        None => builder.with_no_client_auth(),
        Some(client_ca) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates("client CA", client_ca)? {
                roots.add(certificate)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match settings.client_auth {
                ClientAuth::RequireAndVerifyClientCert => verifier,
                _ => verifier.allow_unauthenticated(),
            };
            builder.with_client_cert_verifier(verifier.build()?)
        }
    };
    let chain = certificates("certificate", &settings.certificate)?;
    let mut config = builder.with_single_cert(chain, key(&settings.key)?)?;
    config.ignore_client_order = settings.prefer_server_cipher_suites;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The suites of TLS 1.2 in this order, and all of TLS 1.3.
fn provider(suites: &[String]) -> Result<CryptoProvider, SecurityError> {
    let mut provider = ring::default_provider();
    if suites.is_empty() {
        return Ok(provider);
    }
    // Go and OpenSSL write TLS_AES_128_GCM_SHA256 where rustls writes TLS13_AES_128_GCM_SHA256.
    let name = |suite: &rustls::SupportedCipherSuite| {
        let name = suite.suite().as_str().unwrap_or_default();
        name.replacen("TLS13_", "TLS_", 1)
    };
    let (mut chosen, older): (Vec<_>, Vec<_>) = provider
        .cipher_suites
        .iter()
        .copied()
        .partition(|suite| suite.tls13().is_some());
    for wanted in suites {
        let known = older.iter().find(|suite| name(suite) == *wanted);
        match known {
            Some(suite) => chosen.push(*suite),
            None if chosen.iter().any(|suite| name(suite) == *wanted) => {}
            None => {
                let known: Vec<String> = provider.cipher_suites.iter().map(name).collect();
                return Err(SecurityError::CipherSuite {
                    found: wanted.clone(),
                    known: known.join(", "),
                });
            }
        }
    }
    provider.cipher_suites = chosen;
    Ok(provider)
}

fn pem_text(pem: &Pem) -> Result<String, SecurityError> {
    match pem {
        Pem::File(path) => read(path),
        Pem::Inline(text) => Ok(text.clone()),
    }
}

fn certificates(
    what: &'static str,
    pem: &Pem,
) -> Result<Vec<CertificateDer<'static>>, SecurityError> {
    let problem = |problem: String| SecurityError::Pem {
        what,
        pem: pem.clone(),
        problem,
    };
    let text = pem_text(pem)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let found = found.map_err(|error| problem(error.to_string()))?;
    if found.is_empty() {
        return Err(problem("holds no -----BEGIN CERTIFICATE-----".to_owned()));
    }
    Ok(found)
}

fn key(pem: &Pem) -> Result<PrivateKeyDer<'static>, SecurityError> {
    let text = pem_text(pem)?;
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| SecurityError::Pem {
        what: "key",
        pem: pem.clone(),
        problem: "holds no private key that is not encrypted".to_owned(),
    })
}
