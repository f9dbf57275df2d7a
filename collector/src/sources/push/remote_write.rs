//! Messages of the Prometheus remote write protocol, versions 1.0 and 2.0, with the fields that are read.
//!
//! Field numbers: `prompb/remote.proto` and `prompb/io/prometheus/write/v2/types.proto` of Prometheus.

use prost::Message;
use prost::bytes::Bytes;

use super::{BodyError, Series};

/// Version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// `prometheus.WriteRequest`, labels as text.
    One,
    /// `io.prometheus.write.v2.Request`, labels as references to a table of symbols.
    Two,
}

/// A sample.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Sample {
    /// Its value.
    #[prost(double, tag = "1")]
    pub value: f64,
    /// Milliseconds since 1970.
    #[prost(int64, tag = "2")]
    pub millis: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct SeriesOne {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    histograms: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
struct RequestOne {
    #[prost(message, repeated, tag = "1")]
    series: Vec<SeriesOne>,
}

#[derive(Clone, PartialEq, Message)]
struct SeriesTwo {
    #[prost(uint32, repeated, tag = "1")]
    labels: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    histograms: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
struct RequestTwo {
    #[prost(string, repeated, tag = "4")]
    symbols: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    series: Vec<SeriesTwo>,
}

/// Decompresses a body, up to a limit in bytes, and calls `each` with every series in it.
///
/// # Errors
/// The body is invalid. `each` was called with the series before the error.
pub fn read(
    version: Version,
    body: &[u8],
    most_bytes: usize,
    mut each: impl FnMut(&Series<'_>),
) -> Result<(), BodyError> {
    // The length is in the header, so that a decompression bomb is refused before anything is allocated.
    if snap::raw::decompress_len(body)? > most_bytes {
        return Err(BodyError::TooLarge(most_bytes));
    }
    let message = Bytes::from(snap::raw::Decoder::new().decompress_vec(body)?);
    match version {
        Version::One => {
            for series in &RequestOne::decode(message)?.series {
                let labels = series.labels.iter();
                let labels: Vec<_> = labels.map(|label| (&*label.name, &*label.value)).collect();
                each(&Series {
                    labels: &labels,
                    target: &[],
                    samples: &series.samples,
                    histograms: series.histograms.len(),
                });
            }
        }
        Version::Two => {
            let request = RequestTwo::decode(message)?;
            for (index, series) in request.series.iter().enumerate() {
                let symbol = |at: u32| request.symbols.get(at as usize).map(String::as_str);
                let pair = |pair: &[u32]| match *pair {
                    [name, value] => Some((symbol(name)?, symbol(value)?)),
                    _ => None,
                };
                let labels: Option<Vec<_>> = series.labels.chunks(2).map(pair).collect();
                each(&Series {
                    labels: &labels.ok_or(BodyError::Symbols(index))?,
                    target: &[],
                    samples: &series.samples,
                    histograms: series.histograms.len(),
                });
            }
        }
    }
    Ok(())
}

/// Encodes requests.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// One series with one sample.
    pub(crate) type Given<'a> = (&'a [(&'a str, &'a str)], f64, i64);

    /// A request of these series.
    pub(crate) fn body(version: Version, series: &[Given<'_>]) -> Vec<u8> {
        let message = match version {
            Version::One => one(series).encode_to_vec(),
            Version::Two => two(series).encode_to_vec(),
        };
        compressed(&message)
    }

    /// A message as it is sent.
    pub(crate) fn compressed(message: &[u8]) -> Vec<u8> {
        let compressed = snap::raw::Encoder::new().compress_vec(message);
        compressed.expect("a short message")
    }

    fn one(series: &[Given<'_>]) -> RequestOne {
        let label = |(name, value): &(&str, &str)| Label {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
        };
        let series = series.iter().map(|(labels, value, millis)| SeriesOne {
            labels: labels.iter().map(label).collect(),
            samples: vec![Sample {
                value: *value,
                millis: *millis,
            }],
            histograms: Vec::new(),
        });
        RequestOne {
            series: series.collect(),
        }
    }

    fn two(series: &[Given<'_>]) -> RequestTwo {
        let mut symbols = vec![String::new()];
        let mut symbol = |text: &str| {
            let at = symbols.iter().position(|known| known == text);
            let at = at.unwrap_or_else(|| {
                symbols.push(text.to_owned());
                symbols.len() - 1
            });
            u32::try_from(at).expect("few symbols")
        };
        let series = series.iter().map(|(labels, value, millis)| SeriesTwo {
            labels: labels
                .iter()
                .flat_map(|(name, value)| [symbol(name), symbol(value)])
                .collect(),
            samples: vec![Sample {
                value: *value,
                millis: *millis,
            }],
            histograms: Vec::new(),
        });
        let series = series.collect();
        RequestTwo { symbols, series }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{Given, body, compressed};
    use super::*;
    use proptest::prelude::*;

    const GIVEN: &[Given<'_>] = &[
        (&[("__name__", "up"), ("instance", "n1:1")], 1.0, 1_000),
        (&[("__name__", "x"), ("instance", "n1:1")], 2.5, 2_000),
    ];

    fn seen(version: Version, body: &[u8]) -> Result<Vec<String>, BodyError> {
        let mut seen = Vec::new();
        read(version, body, 1 << 20, |series| {
            seen.push(format!("{:?} {:?}", series.labels, series.samples));
        })?;
        Ok(seen)
    }

    #[test]
    fn both_versions_have_the_same_content() {
        let one = seen(Version::One, &body(Version::One, GIVEN)).expect("a request");
        let two = seen(Version::Two, &body(Version::Two, GIVEN)).expect("a request");
        assert_eq!(one, two);
        assert_eq!(one.len(), 2);
        assert!(one[1].contains("value: 2.5, millis: 2000"), "{one:?}");
    }

    #[test]
    fn an_invalid_body_has_an_error() {
        let lacking = RequestTwo {
            symbols: vec![String::from("a")],
            series: vec![SeriesTwo {
                labels: vec![0, 1],
                ..SeriesTwo::default()
            }],
        };
        // Claims four gigabytes less one byte.
        let bomb = [0xff, 0xff, 0xff, 0xff, 0x0f, 0x00];
        for (version, body, expected) in [
            (Version::One, vec![], "not Snappy's block format"),
            (Version::One, b"hello".to_vec(), "not Snappy's block format"),
            (Version::One, bomb.to_vec(), "more than 1048576 bytes"),
            (
                Version::One,
                compressed(b"\xff\xff"),
                "not a request of this protocol",
            ),
            (
                Version::Two,
                compressed(&lacking.encode_to_vec()),
                "series 0 refers to missing symbols",
            ),
        ] {
            let error = seen(version, &body).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_input_is_read_or_refused(bytes: Vec<u8>, is_second: bool) {
            let version = if is_second { Version::Two } else { Version::One };
            for body in [bytes.clone(), compressed(&bytes)] {
                if seen(version, &body).is_ok() {
                    prop_assert!(snap::raw::decompress_len(&body).is_ok());
                }
            }
        }
    }
}
