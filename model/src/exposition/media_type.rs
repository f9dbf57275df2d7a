//! The formats that a scraper can request by its `Accept` header.

use super::{Format, Page, protobuf};
use crate::metric::Profile;

/// A format of an exposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MediaType {
    /// Text.
    Text(Format),
    /// Prometheus' protobuf format, the only one with native histograms.
    Protobuf,
}

impl From<Format> for MediaType {
    fn from(format: Format) -> Self {
        Self::Text(format)
    }
}

impl MediaType {
    /// All of them.
    pub const ALL: [Self; 3] = [
        Self::Text(Format::Text),
        Self::Text(Format::OpenMetrics),
        Self::Protobuf,
    ];

    /// The value of the `Content-Type` header.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text(Format::Text) => "text/plain; version=0.0.4; charset=utf-8",
            Self::Text(Format::OpenMetrics) => {
                "application/openmetrics-text; version=1.0.0; charset=utf-8"
            }
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }

    /// The one that an `Accept` header requests: the one with the highest `q`; of equal ones the first in
    /// [`Self::ALL`]. The plain text format for everything else (a browser, curl, no header at all).
    pub fn negotiate(accept: Option<&str>) -> Self {
        let ranges = || accept.unwrap_or_default().split(',');
        let mut best = (Self::ALL[0], 0.0);
        for media_type in Self::ALL {
            let asked = ranges().filter(|range| media_type.is_in(range));
            let q = asked.map(quality).fold(0.0, f64::max);
            if q > best.1 {
                best = (media_type, q);
            }
        }
        best.0
    }

    /// Whether a media range of an `Accept` header names it. Any version of a text format does; in protobuf there are other
    /// messages and other framings than this one.
    fn is_in(self, range: &str) -> bool {
        let mut parts = range.split(';').map(str::trim);
        let (name, parameters) = match self {
            Self::Text(Format::Text) => ("text/plain", &[][..]),
            Self::Text(Format::OpenMetrics) => ("application/openmetrics-text", &[][..]),
            Self::Protobuf => (
                "application/vnd.google.protobuf",
                &[
                    "proto=io.prometheus.client.MetricFamily",
                    "encoding=delimited",
                ][..],
            ),
        };
        let is_named = parts.next().is_some_and(|found| found.starts_with(name));
        is_named
            && parameters
                .iter()
                .all(|wanted| parts.clone().any(|found| found == *wanted))
    }
}

/// The weight of a media range.
fn quality(range: &str) -> f64 {
    let mut parameters = range.split(';').map(str::trim);
    let q = parameters.find_map(|parameter| parameter.strip_prefix("q="));
    q.map_or(1.0, |q| q.trim().parse().unwrap_or(0.0))
}

impl Page {
    /// Writes the exposition in this media type.
    pub fn encode(&self, media_type: MediaType, profile: Profile) -> Vec<u8> {
        match media_type {
            MediaType::Text(format) => self.write(format, profile).into_bytes(),
            MediaType::Protobuf => protobuf::encode(self, profile),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_header_chooses_the_media_type() {
        // The headers of Prometheus 2.42, without and with native histograms, and of Prometheus 3.
        let usual = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
                      application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let escaped = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; \
                       escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3";
        let [text, open_metrics, protobuf] = MediaType::ALL;
        for (accept, expected) in [
            (Some(usual), open_metrics),
            (Some(native), protobuf),
            (Some(escaped), protobuf),
            (
                Some("text/plain;version=0.0.4;q=0.5,application/openmetrics-text;q=0.2"),
                text,
            ),
            (Some("text/plain, application/openmetrics-text"), text),
            (Some("text/html,*/*"), text),
            (Some("application/openmetrics-text; q=0"), text),
            (
                Some(&native.replace("delimited", "delimited;q=0.4")),
                open_metrics,
            ),
            (Some(&native.replace("delimited", "text")), open_metrics),
            (
                Some(&native.replace("client.MetricFamily", "client.Other")),
                open_metrics,
            ),
            (Some("application/vnd.google.protobuf"), text),
            (Some(";;q=,"), text),
            (None, text),
        ] {
            assert_eq!(MediaType::negotiate(accept), expected, "{accept:?}");
        }
    }
}
