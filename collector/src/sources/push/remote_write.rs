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

/// Texts are parts of the body: most labels repeat, and a copy of each would cost more than all the rest.
#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(bytes = "bytes", tag = "1")]
    name: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

impl Label {
    fn texts(&self) -> Result<(&str, &str), BodyError> {
        Ok((text(&self.name)?, text(&self.value)?))
    }
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

/// Its series are [`SeriesOne`], see [`decode_each`].
#[derive(Clone, PartialEq, Message)]
struct RequestOne {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    series: Vec<Bytes>,
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

/// Its series are [`SeriesTwo`].
#[derive(Clone, PartialEq, Message)]
struct RequestTwo {
    #[prost(bytes = "bytes", repeated, tag = "4")]
    symbols: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "5")]
    series: Vec<Bytes>,
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
    let mut pass_on = |labels: &[(&str, &str)], samples: &[Sample], histograms: &[Bytes]| {
        each(&Series {
            labels,
            target: &[],
            samples,
            histograms: histograms.len(),
        });
    };
    match version {
        Version::One => {
            let request = RequestOne::decode(message)?;
            decode_each(request.series, |_, series: &SeriesOne| {
                let labels = series.labels.iter().map(Label::texts);
                let labels: Vec<_> = labels.collect::<Result<_, _>>()?;
                pass_on(&labels, &series.samples, &series.histograms);
                Ok(())
            })
        }
        Version::Two => {
            let request = RequestTwo::decode(message)?;
            let symbols = request.symbols.iter().map(text);
            let symbols: Vec<_> = symbols.collect::<Result<_, _>>()?;
            decode_each(request.series, |index, series: &SeriesTwo| {
                let symbol = |at: u32| symbols.get(at as usize).copied();
                let pair = |pair: &[u32]| match *pair {
                    [name, value] => Some((symbol(name)?, symbol(value)?)),
                    _ => None,
                };
                let labels: Option<Vec<_>> = series.labels.chunks(2).map(pair).collect();
                let labels = labels.ok_or(BodyError::Symbols(index))?;
                pass_on(&labels, &series.samples, &series.histograms);
                Ok(())
            })
        }
    }
}

/// Decodes series one after the other into the same message, which keeps its memory, and calls `each` with index and series.
fn decode_each<S: Message + Default>(
    encoded: Vec<Bytes>,
    mut each: impl FnMut(usize, &S) -> Result<(), BodyError>,
) -> Result<(), BodyError> {
    let mut series = S::default();
    for (index, encoded) in encoded.into_iter().enumerate() {
        series.clear();
        series.merge(encoded)?;
        each(index, &series)?;
    }
    Ok(())
}

fn text(bytes: &Bytes) -> Result<&str, BodyError> {
    Ok(str::from_utf8(bytes)?)
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
            name: Bytes::copy_from_slice(name.as_bytes()),
            value: Bytes::copy_from_slice(value.as_bytes()),
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
            series: series.map(|series| series.encode_to_vec().into()).collect(),
        }
    }

    fn two(series: &[Given<'_>]) -> RequestTwo {
        let mut symbols = vec![""];
        let mut symbol = |text| {
            let at = symbols.iter().position(|known| *known == text);
            let at = at.unwrap_or_else(|| {
                symbols.push(text);
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
        let series = series.map(|series| series.encode_to_vec().into());
        let series = series.collect();
        let copied = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let symbols = symbols.into_iter().map(copied).collect();
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
        let lacking = SeriesTwo {
            labels: vec![0, 1],
            ..SeriesTwo::default()
        };
        let lacking = RequestTwo {
            symbols: vec![Bytes::from_static(b"a")],
            series: vec![lacking.encode_to_vec().into()],
        };
        let latin = Label {
            value: Bytes::from_static(b"\xfc"),
            ..Label::default()
        };
        let latin = SeriesOne {
            labels: vec![latin],
            ..SeriesOne::default()
        };
        let latin = RequestOne {
            series: vec![latin.encode_to_vec().into()],
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
                Version::One,
                compressed(&latin.encode_to_vec()),
                "a label that is not UTF-8",
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
