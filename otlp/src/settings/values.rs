//! Looks options up in variables and tables, and checks their values.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use http::Uri;
use http::header::{HeaderName, HeaderValue};

use super::{Protocol, SettingsError, SignalTable, Table, unusable, unusable_secret};
use crate::stats::Signal;

const PAIRS: &str = "pairs such as name=value,name=value, with special characters as %XX";
const HEADERS: &str = "headers such as name=value,name=value, with special characters as %XX";
const MILLISECONDS: &str = "a number of milliseconds above zero";
const PERIOD: &str = "a time such as \"5s\", \"500ms\" or \"2m\"";

/// Where a value was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// A variable; whether it is the one of the signal.
    Variable(String, bool),
    /// A key of the file; whether it is the one of the signal.
    Key(String, bool),
}

impl Origin {
    /// Whether the value is only for one signal.
    fn is_of_signal(&self) -> bool {
        matches!(self, Self::Variable(_, true) | Self::Key(_, true))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name, _) => write!(f, "the variable {name}"),
            Self::Key(key, _) => write!(f, "the key {key}"),
        }
    }
}

/// A value and where it was found.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) value: String,
    pub(super) origin: Origin,
}

/// Looks options up.
pub(super) struct Reader<'a> {
    pub(super) table: &'a Table,
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Reader<'_> {
    /// A variable that is not empty.
    pub(super) fn plain(&self, name: &str) -> Option<String> {
        (self.variable)(name)
            .map(|value| value.trim().to_owned())
            .filter(|value| !value.is_empty())
    }

    fn given(&self, name: &str, of_signal: bool) -> Option<Given> {
        self.plain(name).map(|value| Given {
            value,
            origin: Origin::Variable(name.to_owned(), of_signal),
        })
    }

    fn signal_table(&self, signal: Signal) -> &SignalTable {
        match signal {
            Signal::Metrics => &self.table.metrics,
            Signal::Logs => &self.table.logs,
            Signal::Traces => &self.table.traces,
        }
    }

    /// The variable of an option, that of the signal first.
    fn option_variable(&self, signal: Signal, suffix: &str) -> Option<Given> {
        let word = signal.as_str().to_ascii_uppercase();
        self.given(&format!("OTEL_EXPORTER_OTLP_{word}_{suffix}"), true)
            .or_else(|| self.given(&format!("OTEL_EXPORTER_OTLP_{suffix}"), false))
    }

    /// An option by its order of precedence.
    pub(super) fn option(
        &self,
        signal: Signal,
        suffix: &str,
        of: impl Fn(&SignalTable) -> Option<String>,
    ) -> Option<Given> {
        let key = suffix.to_ascii_lowercase();
        self.option_variable(signal, suffix)
            .or_else(|| {
                of(self.signal_table(signal)).map(|value| Given {
                    value,
                    origin: Origin::Key(format!("otlp.{}.{key}", signal.as_str()), true),
                })
            })
            .or_else(|| {
                of(&self.table.general()).map(|value| Given {
                    value,
                    origin: Origin::Key(format!("otlp.{key}"), false),
                })
            })
    }

    /// Whether `OTEL_SDK_DISABLED` switches everything off.
    pub(super) fn disabled(&self) -> Result<bool, SettingsError> {
        let Some(given) = self.given("OTEL_SDK_DISABLED", false) else {
            return Ok(false);
        };
        match given.value.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(unusable(&given, "true or false")),
        }
    }

    /// Whether the signal is exported, if there is an endpoint for it.
    pub(super) fn is_exported(&self, signal: Signal) -> Result<bool, SettingsError> {
        let name = format!("OTEL_{}_EXPORTER", signal.as_str().to_ascii_uppercase());
        match self.given(&name, true) {
            Some(given) => match given.value.as_str() {
                "otlp" => Ok(true),
                "none" => Ok(false),
                _ => Err(unusable(&given, "otlp or none")),
            },
            None => Ok(self.signal_table(signal).enabled.unwrap_or(true)),
        }
    }

    /// The time between two exports of metrics.
    pub(super) fn interval(&self) -> Result<Option<Duration>, SettingsError> {
        let given = self.given("OTEL_METRIC_EXPORT_INTERVAL", true).or_else(|| {
            self.table.interval.clone().map(|value| Given {
                value,
                origin: Origin::Key("otlp.interval".to_owned(), true),
            })
        });
        given.map(|given| duration(&given)).transpose()
    }

    /// The attributes of `OTEL_RESOURCE_ATTRIBUTES`.
    pub(super) fn resource_attributes(&self) -> Result<BTreeMap<String, String>, SettingsError> {
        let Some(given) = self.given("OTEL_RESOURCE_ATTRIBUTES", false) else {
            return Ok(BTreeMap::new());
        };
        let pairs = pairs(&given.value).ok_or_else(|| unusable(&given, PAIRS))?;
        Ok(pairs.into_iter().collect())
    }

    /// The headers of requests of a signal.
    pub(super) fn headers(
        &self,
        signal: Signal,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, SettingsError> {
        if let Some(given) = self.option_variable(signal, "HEADERS") {
            let pairs =
                pairs(&given.value).ok_or_else(|| unusable_secret(&given.origin, HEADERS))?;
            return headers(pairs, &given.origin);
        }
        let own = &self.signal_table(signal).headers;
        let (table, origin) = match own {
            Some(_) => (
                own,
                Origin::Key(format!("otlp.{}.headers", signal.as_str()), true),
            ),
            None => (
                &self.table.headers,
                Origin::Key("otlp.headers".to_owned(), false),
            ),
        };
        headers(
            table.clone().unwrap_or_default().into_iter().collect(),
            &origin,
        )
    }
}

fn headers(
    pairs: Vec<(String, String)>,
    origin: &Origin,
) -> Result<Vec<(HeaderName, HeaderValue)>, SettingsError> {
    let header = |(name, value): (String, String)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    };
    let valid = "valid names and values of HTTP headers";
    pairs
        .into_iter()
        .map(|pair| header(pair).ok_or_else(|| unusable_secret(origin, valid)))
        .collect()
}

/// `name=value,name=value` as W3C Baggage writes it, without properties.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    text.split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let name = percent_decoded(name.trim())?;
            (!name.is_empty()).then_some((name, percent_decoded(value.trim())?))
        })
        .collect()
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        if first == b'%' {
            let (digits, behind) = behind.split_at_checked(2)?;
            let digits = std::str::from_utf8(digits).ok()?;
            // `from_str_radix` accepts a sign.
            if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return None;
            }
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = behind;
        } else {
            bytes.push(first);
            rest = behind;
        }
    }
    String::from_utf8(bytes).ok()
}

pub(super) fn protocol(given: &Given) -> Result<Protocol, SettingsError> {
    match given.value.as_str() {
        "grpc" => Ok(Protocol::Grpc),
        "http/protobuf" => Ok(Protocol::Http),
        _ => Err(unusable(given, "grpc or http/protobuf")),
    }
}

pub(super) fn compression(given: &Given) -> Result<bool, SettingsError> {
    match given.value.as_str() {
        "gzip" => Ok(true),
        "none" => Ok(false),
        _ => Err(unusable(given, "gzip or none")),
    }
}

/// Milliseconds in a variable, a number and a unit in the file. Never zero, at most a year.
pub(super) fn duration(given: &Given) -> Result<Duration, SettingsError> {
    const YEAR_MILLIS: u64 = 365 * 24 * 3_600_000;
    let (digits, scale, expected) = match given.origin {
        Origin::Variable(..) => (given.value.as_str(), Some(1), MILLISECONDS),
        Origin::Key(..) => {
            let end = given.value.find(|char: char| !char.is_ascii_digit());
            let (digits, unit) = given.value.split_at(end.unwrap_or(given.value.len()));
            let scale = match unit {
                "ms" => Some(1),
                "s" => Some(1_000),
                "m" => Some(60_000),
                "h" => Some(3_600_000),
                _ => None,
            };
            (digits, scale, PERIOD)
        }
    };
    let millis = digits.parse::<u64>().ok().zip(scale);
    millis
        .and_then(|(number, scale)| number.checked_mul(scale))
        .filter(|millis| (1..=YEAR_MILLIS).contains(millis))
        .map(Duration::from_millis)
        .ok_or_else(|| unusable(given, expected))
}

/// The URL of requests. A general endpoint gets the path of the signal by HTTP; by gRPC a path is an error, because it
/// would be ignored.
pub(super) fn endpoint(
    given: &Given,
    protocol: Protocol,
    signal: Signal,
) -> Result<Uri, SettingsError> {
    const EXPECTED: &str =
        "a URL such as http://HOST:4318 or https://HOST:4318, without user and password";
    let mut text = given.value.clone();
    if protocol == Protocol::Http && !given.origin.is_of_signal() {
        text = format!("{}/{}", text.trim_end_matches('/'), signal.http_path());
    }
    let uri: Uri = text.parse().map_err(|_| match text.contains('@') {
        true => unusable_secret(&given.origin, EXPECTED),
        false => unusable(given, EXPECTED),
    })?;
    let scheme = uri.scheme_str().unwrap_or_default();
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    if authority.contains('@') {
        return Err(unusable_secret(&given.origin, EXPECTED));
    }
    if !matches!(scheme, "http" | "https") || authority.is_empty() {
        return Err(unusable(given, EXPECTED));
    }
    if protocol == Protocol::Grpc && !matches!(uri.path(), "" | "/") {
        return Err(unusable(
            given,
            "a URL without a path, such as http://HOST:4317, because the protocol is grpc",
        ));
    }
    Ok(uri)
}
