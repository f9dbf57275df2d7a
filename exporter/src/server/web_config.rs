//! `web-config.yml` as every Prometheus exporter reads it: TLS, client certificates, passwords, headers.
//!
//! The shape is that of the Prometheus exporter-toolkit. A key that it supports and this server does not is
//! an error, never silently omitted.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use bcrypt::HashParts;
use railscope_model::yaml::too_deep;
use saphyr::{LoadableYamlNode as _, MarkedYaml, Scalar, YamlData};

/// What the file reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct WebConfig {
    /// None serves plain HTTP.
    pub tls: Option<TlsSettings>,
    /// Headers of every response.
    pub headers: Vec<(&'static str, String)>,
    /// User -> bcrypt hash; empty requires no password.
    pub users: BTreeMap<String, String>,
}

/// How TLS is spoken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TlsSettings {
    /// The server's certificate and those between it and the root.
    pub certificate: Pem,
    /// Its private key.
    pub key: Pem,
    /// The CA of client certificates.
    pub client_ca: Option<Pem>,
    /// Whether clients show one.
    pub client_auth: ClientAuth,
    /// Oldest version.
    pub min_version: TlsVersion,
    /// Newest version.
    pub max_version: TlsVersion,
    /// Suites of TLS 1.2 in order of preference; empty allows all. Those of TLS 1.3 are not chosen from.
    pub cipher_suites: Vec<String>,
    /// Whether the server's order of suites counts, not the client's.
    pub prefer_server_cipher_suites: bool,
}

/// Where PEM text stands.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    /// In a file.
    File(PathBuf),
    /// In the configuration itself.
    Inline(String),
}

impl fmt::Debug for Pem {
    /// Not the text: it may be a private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Inline(_) => f.write_str("inline"),
        }
    }
}

/// Whether clients show a certificate, in Go's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ClientAuth {
    /// Client certificates are not requested.
    #[default]
    NoClientCert,
    /// One that is shown must be good.
    VerifyClientCertIfGiven,
    /// Everyone shows a good one.
    RequireAndVerifyClientCert,
}

/// A version of TLS that is still safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TlsVersion {
    /// 1.2
    Tls12,
    /// 1.3
    Tls13,
}

/// What is wrong with the file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct WebConfigError {
    file: String,
    line: usize,
    problem: String,
}

const TOP: &[&str] = &[
    "tls_server_config",
    "http_server_config",
    "basic_auth_users",
];
const TLS: &[&str] = &[
    "cert_file",
    "key_file",
    "cert",
    "key",
    "client_ca_file",
    "client_ca",
    "client_auth_type",
    "min_version",
    "max_version",
    "cipher_suites",
    "prefer_server_cipher_suites",
];
const HTTP: &[&str] = &["http2", "headers"];
/// Headers that the toolkit lets a configuration set.
const HEADERS: &[&str] = &[
    "Content-Security-Policy",
    "Strict-Transport-Security",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "X-XSS-Protection",
];
/// Keys of the toolkit that this server cannot honor, and why. Empty lists are no wish.
const UNSUPPORTED: &[(&str, &str)] = &[
    (
        "client_allowed_sans",
        "sign the certificates of allowed clients with a separate CA instead",
    ),
    (
        "curve_preferences",
        "X25519, P-256 and P-384 are always offered",
    ),
    ("rate_limit", "a scrape is answered from memory"),
];
/// A hash of this cost takes seconds to check; each further step doubles it.
const HIGHEST_BCRYPT_COST: u32 = 15;

type Found<T> = Result<T, WebConfigError>;

/// Reads the text of a file; the name is for errors and for paths that are relative to it.
///
/// # Errors
/// File, line and what was expected there.
pub(super) fn parse(file: &Path, text: &str) -> Found<WebConfig> {
    let reader = Reader { file };
    if let Some(line) = too_deep(text) {
        return Err(reader.error(line, "too much nesting: expected at most 64 levels"));
    }
    let documents = MarkedYaml::load_from_str(text)
        .map_err(|error| reader.error(error.marker().line(), error.info().to_owned()))?;
    let Some(root) = documents.first() else {
        return Ok(WebConfig::default());
    };
    let mut config = WebConfig::default();
    for entry in reader.entries(root, "the file", TOP)? {
        match entry.key.as_str() {
            "tls_server_config" => config.tls = reader.tls(&entry)?,
            "http_server_config" => config.headers = reader.http(&entry)?,
            _ => config.users = reader.users(&entry)?,
        }
    }
    Ok(config)
}

/// One key with its value.
struct Entry<'a> {
    key: String,
    line: usize,
    node: &'a MarkedYaml<'a>,
}

struct Reader<'a> {
    file: &'a Path,
}

impl Reader<'_> {
    fn error(&self, line: usize, problem: impl Into<String>) -> WebConfigError {
        WebConfigError {
            file: self.file.display().to_string(),
            line,
            problem: problem.into(),
        }
    }

    /// The keys of a mapping, all of them known. Nothing at all is an empty mapping.
    fn entries<'n>(
        &self,
        node: &'n MarkedYaml<'n>,
        what: &str,
        known: &[&str],
    ) -> Found<Vec<Entry<'n>>> {
        let mut entries = self.pairs(node, what)?;
        let mut wrong = None;
        entries.retain(|entry| {
            if known.contains(&entry.key.as_str()) {
                return true;
            }
            let unsupported = UNSUPPORTED.iter().find(|(key, _)| *key == entry.key);
            let problem = match unsupported {
                Some(_) if is_nothing(entry.node) => return false,
                Some((key, why)) => format!("{key} is not supported: {why}"),
                None => unknown("key", &entry.key, known),
            };
            wrong.get_or_insert_with(|| self.error(entry.line, problem));
            false
        });
        wrong.map_or(Ok(entries), Err)
    }

    fn pairs<'n>(&self, node: &'n MarkedYaml<'n>, what: &str) -> Found<Vec<Entry<'n>>> {
        let line = node.span.start.line();
        let YamlData::Mapping(mapping) = &node.data else {
            let expected = format!("expected {what} to hold \"key: value\" lines");
            let nothing = matches!(node.data, YamlData::Value(Scalar::Null));
            return if nothing {
                Ok(Vec::new())
            } else {
                Err(self.error(line, expected))
            };
        };
        let pairs = mapping.iter().map(|(key, node)| {
            let line = key.span.start.line();
            match &key.data {
                YamlData::Value(Scalar::String(key)) => Ok(Entry {
                    key: key.clone().into_owned(),
                    line,
                    node,
                }),
                _ => Err(self.error(
                    line,
                    format!("a key of {what} is no text: put it in quotes"),
                )),
            }
        });
        pairs.collect()
    }

    fn text(&self, entry: &Entry<'_>) -> Found<String> {
        match &entry.node.data {
            YamlData::Value(Scalar::String(text)) => Ok(text.clone().into_owned()),
            _ => Err(self.error(entry.line, format!("{}: expected text", entry.key))),
        }
    }

    fn flag(&self, entry: &Entry<'_>) -> Found<bool> {
        match &entry.node.data {
            YamlData::Value(Scalar::Boolean(flag)) => Ok(*flag),
            _ => Err(self.error(entry.line, format!("{}: expected true or false", entry.key))),
        }
    }

    fn texts(&self, entry: &Entry<'_>) -> Found<Vec<String>> {
        let expected = || {
            self.error(
                entry.line,
                format!("{}: expected a list of text", entry.key),
            )
        };
        let YamlData::Sequence(items) = &entry.node.data else {
            return if is_nothing(entry.node) {
                Ok(Vec::new())
            } else {
                Err(expected())
            };
        };
        let texts = items.iter().map(|item| match &item.data {
            YamlData::Value(Scalar::String(text)) => Ok(text.clone().into_owned()),
            _ => Err(expected()),
        });
        texts.collect()
    }

    fn tls(&self, top: &Entry<'_>) -> Found<Option<TlsSettings>> {
        let entries = self.entries(top.node, &top.key, TLS)?;
        if entries.iter().all(|entry| is_nothing(entry.node)) {
            return Ok(None);
        }
        let find = |key: &str| {
            let mut entries = entries.iter();
            entries.find(|entry| entry.key == key && !is_nothing(entry.node))
        };
        let pem = |file: &str, inline: &str| self.pem(find(file), find(inline));
        let required = |pem: Option<Pem>, file: &str, inline: &str| {
            pem.ok_or_else(|| self.error(top.line, format!("{} needs {file} or {inline}", top.key)))
        };
        let version = |key: &str, default| {
            let entry = find(key);
            entry.map_or(Ok(default), |entry| self.version(entry))
        };
        let settings = TlsSettings {
            certificate: required(pem("cert_file", "cert")?, "cert_file", "cert")?,
            key: required(pem("key_file", "key")?, "key_file", "key")?,
            client_ca: pem("client_ca_file", "client_ca")?,
            client_auth: find("client_auth_type")
                .map_or(Ok(ClientAuth::default()), |entry| self.client_auth(entry))?,
            min_version: version("min_version", TlsVersion::Tls12)?,
            max_version: version("max_version", TlsVersion::Tls13)?,
            cipher_suites: find("cipher_suites")
                .map_or(Ok(Vec::new()), |entry| self.texts(entry))?,
            prefer_server_cipher_suites: find("prefer_server_cipher_suites")
                .map_or(Ok(false), |entry| self.flag(entry))?,
        };
        self.consistent(top.line, &settings)?;
        Ok(Some(settings))
    }

    fn consistent(&self, line: usize, settings: &TlsSettings) -> Found<()> {
        let asks = settings.client_auth != ClientAuth::NoClientCert;
        let problem = match &settings.client_ca {
            None if asks => "client_auth_type needs client_ca_file or client_ca",
            Some(_) if !asks => {
                "client_ca_file without client_auth_type checks no client: set it to RequireAndVerifyClientCert"
            }
            _ if settings.min_version > settings.max_version => "min_version is above max_version",
            _ => return Ok(()),
        };
        Err(self.error(line, problem))
    }

    fn pem(&self, file: Option<&Entry<'_>>, inline: Option<&Entry<'_>>) -> Found<Option<Pem>> {
        match (file, inline) {
            (Some(file), Some(inline)) => {
                let both = format!("{} and {} exclude each other", file.key, inline.key);
                Err(self.error(inline.line, both))
            }
            (Some(file), None) => {
                // An absolute path replaces the folder.
                let folder = self.file.parent().unwrap_or(Path::new(""));
                Ok(Some(Pem::File(folder.join(self.text(file)?))))
            }
            (None, Some(inline)) => Ok(Some(Pem::Inline(self.text(inline)?))),
            (None, None) => Ok(None),
        }
    }

    fn client_auth(&self, entry: &Entry<'_>) -> Found<ClientAuth> {
        match self.text(entry)?.as_str() {
            "NoClientCert" => Ok(ClientAuth::NoClientCert),
            "VerifyClientCertIfGiven" => Ok(ClientAuth::VerifyClientCertIfGiven),
            "RequireAndVerifyClientCert" => Ok(ClientAuth::RequireAndVerifyClientCert),
            unchecked @ ("RequestClientCert" | "RequireAnyClientCert") => {
                let problem = format!(
                    "client_auth_type {unchecked} believes any certificate: use RequireAndVerifyClientCert"
                );
                Err(self.error(entry.line, problem))
            }
            other => {
                let known = [
                    "NoClientCert",
                    "VerifyClientCertIfGiven",
                    "RequireAndVerifyClientCert",
                ];
                Err(self.error(entry.line, unknown("client_auth_type", other, &known)))
            }
        }
    }

    fn version(&self, entry: &Entry<'_>) -> Found<TlsVersion> {
        match self.text(entry)?.as_str() {
            "TLS12" => Ok(TlsVersion::Tls12),
            "TLS13" => Ok(TlsVersion::Tls13),
            "TLS10" | "TLS11" => {
                let problem = format!(
                    "{}: TLS 1.0 and 1.1 are no longer safe and not offered",
                    entry.key
                );
                Err(self.error(entry.line, problem))
            }
            other => Err(self.error(entry.line, unknown(&entry.key, other, &["TLS12", "TLS13"]))),
        }
    }

    fn http(&self, top: &Entry<'_>) -> Found<Vec<(&'static str, String)>> {
        let mut headers = Vec::new();
        for entry in self.entries(top.node, &top.key, HTTP)? {
            if entry.key == "http2" {
                // Whether HTTP/2 may be offered; this server offers HTTP/1.1 either way.
                self.flag(&entry)?;
                continue;
            }
            for header in self.entries(entry.node, &entry.key, HEADERS)? {
                let name = HEADERS.iter().find(|name| **name == header.key);
                let value = self.text(&header)?;
                if value.bytes().any(|byte| !(b' '..=b'~').contains(&byte)) {
                    let problem = format!("{}: expected printable ASCII", header.key);
                    return Err(self.error(header.line, problem));
                }
                headers.extend(name.map(|name| (*name, value)));
            }
        }
        Ok(headers)
    }

    fn users(&self, top: &Entry<'_>) -> Found<BTreeMap<String, String>> {
        let users = self.pairs(top.node, &top.key)?.into_iter().map(|entry| {
            let hash = self.text(&entry)?;
            let user = &entry.key;
            let problem = match HashParts::from_str(&hash) {
                _ if user.contains(':') => format!("user {user:?}: a colon cannot be sent"),
                Err(_) => format!(
                    "user {user:?}: expected a bcrypt hash such as $2y$10$…, as htpasswd -nBC 10 writes it"
                ),
                Ok(parts) if parts.get_cost() > HIGHEST_BCRYPT_COST => format!(
                    "user {user:?}: a bcrypt cost of {} takes too long to check: at most {HIGHEST_BCRYPT_COST}",
                    parts.get_cost()
                ),
                Ok(_) => return Ok((entry.key, hash)),
            };
            Err(self.error(entry.line, problem))
        });
        users.collect()
    }
}

/// No value, an empty text or an empty list: what templates leave where nothing is set.
fn is_nothing(node: &MarkedYaml<'_>) -> bool {
    match &node.data {
        YamlData::Value(Scalar::Null) => true,
        YamlData::Value(Scalar::String(text)) => text.is_empty(),
        YamlData::Sequence(items) => items.is_empty(),
        YamlData::Mapping(pairs) => pairs.is_empty(),
        _ => false,
    }
}

/// `unknown key "cert_fil": did you mean cert_file?`, or the list of what is known.
fn unknown(what: &str, found: &str, known: &[&str]) -> String {
    let distance = |word: &str| strsim::damerau_levenshtein(word, found);
    let nearest = known.iter().min_by_key(|word| distance(word));
    match nearest {
        Some(nearest) if distance(nearest) <= nearest.len() / 3 => {
            format!("unknown {what} {found:?}: did you mean {nearest}?")
        }
        _ => format!("unknown {what} {found:?}: expected {}", known.join(", ")),
    }
}

#[cfg(test)]
#[path = "web_config_tests.rs"]
mod tests;
