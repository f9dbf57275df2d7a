//! Messages of the Prometheus remote write protocol, versions 1.0 and 2.0, with the fields that are read.
//!
//! Field numbers: `prompb/remote.proto` and `prompb/io/prometheus/write/v2/types.proto` of Prometheus.

use prost::bytes::Buf as _;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

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
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    /// Its value.
    pub value: f64,
    /// Milliseconds since 1970.
    pub millis: i64,
}

/// Decompresses a body, up to a limit in bytes, and calls `each` with every series in it.
///
/// # Errors
/// The body is invalid. `each` was called with the series before the error.
pub fn read(
    version: Version,
    body: &[u8],
    most_bytes: usize,
    each: impl FnMut(&Series<'_>),
) -> Result<(), BodyError> {
    // The length is in the header, so that a decompression bomb is refused before anything is allocated.
    if snap::raw::decompress_len(body)? > most_bytes {
        return Err(BodyError::TooLarge(most_bytes));
    }
    let message = snap::raw::Decoder::new().decompress_vec(body)?;
    match version {
        Version::One => read_one(&message, each),
        Version::Two => read_two(&message, each),
    }
}

/// `WriteRequest`: field 1 are series, each with labels (1; name 1, value 2), samples (2) and histograms (4).
fn read_one(message: &[u8], mut each: impl FnMut(&Series<'_>)) -> Result<(), BodyError> {
    let (mut labels, mut samples) = (Vec::new(), Vec::new());
    fields(message, |number, value| {
        if number != 1 {
            return Ok(());
        }
        let mut histograms = 0;
        labels.clear();
        samples.clear();
        fields(value.bytes()?, |number, value| {
            match number {
                1 => labels.push(read_label(value.bytes()?)?),
                2 => samples.push(read_sample(value.bytes()?)?),
                4 => histograms += value.bytes().map(|_| 1)?,
                _ => {}
            }
            Ok(())
        })?;
        each(&Series {
            labels: &labels,
            target: &[],
            samples: &samples,
            histograms,
        });
        Ok(())
    })
}

/// `Request`: field 4 are symbols, and 5 series, each with pairs of references to symbols (1), samples (2) and histograms (3).
fn read_two(message: &[u8], mut each: impl FnMut(&Series<'_>)) -> Result<(), BodyError> {
    let (mut symbols, mut all) = (Vec::new(), Vec::new());
    fields(message, |number, value| {
        match number {
            4 => symbols.push(str::from_utf8(value.bytes()?)?),
            5 => all.push(value.bytes()?),
            _ => {}
        }
        Ok(())
    })?;
    let (mut references, mut samples) = (Vec::new(), Vec::new());
    for (index, series) in all.into_iter().enumerate() {
        let mut histograms = 0;
        references.clear();
        samples.clear();
        fields(series, |number, value| {
            match (number, value) {
                (1, Value::Varint(reference)) => references.push(reference),
                (1, value) => {
                    let mut packed = value.bytes()?;
                    while packed.has_remaining() {
                        references.push(decode_varint(&mut packed)?);
                    }
                }
                (2, value) => samples.push(read_sample(value.bytes()?)?),
                (3, value) => histograms += value.bytes().map(|_| 1)?,
                _ => {}
            }
            Ok(())
        })?;
        let symbol = |at: u64| symbols.get(usize::try_from(at).ok()?).copied();
        let pair = |pair: &[u64]| match *pair {
            [name, value] => Some((symbol(name)?, symbol(value)?)),
            _ => None,
        };
        let labels: Option<Vec<_>> = references.chunks(2).map(pair).collect();
        each(&Series {
            labels: &labels.ok_or(BodyError::Symbols(index))?,
            target: &[],
            samples: &samples,
            histograms,
        });
    }
    Ok(())
}

fn read_label(message: &[u8]) -> Result<(&str, &str), BodyError> {
    let mut label = ("", "");
    fields(message, |number, value| {
        match number {
            1 => label.0 = str::from_utf8(value.bytes()?)?,
            2 => label.1 = str::from_utf8(value.bytes()?)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(label)
}

fn read_sample(message: &[u8]) -> Result<Sample, BodyError> {
    let mut sample = Sample::default();
    fields(message, |number, value| {
        match (number, value) {
            (1, Value::Fixed64(bits)) => sample.value = f64::from_bits(bits),
            (2, Value::Varint(millis)) => sample.millis = millis.cast_signed(),
            (1 | 2, _) => return Err(BodyError::Type),
            _ => {}
        }
        Ok(())
    })?;
    Ok(sample)
}

/// The value of a field.
enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    /// A text, a message or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    fn bytes(self) -> Result<&'a [u8], BodyError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Varint(_) | Self::Fixed64(_) => Err(BodyError::Type),
        }
    }
}

/// Calls `each` with number and value of every field of a message, as parts of it: copies of all labels would cost more than the
/// rest. No field of the protocol has another type than these.
fn fields<'a>(
    mut message: &'a [u8],
    mut each: impl FnMut(u32, Value<'a>) -> Result<(), BodyError>,
) -> Result<(), BodyError> {
    while message.has_remaining() {
        let (number, kind) = decode_key(&mut message)?;
        let value = match kind {
            WireType::Varint => Value::Varint(decode_varint(&mut message)?),
            WireType::SixtyFourBit => {
                let number = message.try_get_u64_le();
                Value::Fixed64(number.map_err(|_| BodyError::Truncated)?)
            }
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut message)?);
                let parts = length.ok().and_then(|at| message.split_at_checked(at));
                let (bytes, rest) = parts.ok_or(BodyError::Truncated)?;
                message = rest;
                Value::Bytes(bytes)
            }
            kind => {
                skip_field(kind, number, &mut message, DecodeContext::default())?;
                continue;
            }
        };
        each(number, value)?;
    }
    Ok(())
}

/// Encodes requests.
#[cfg(test)]
pub(crate) mod testing {
    use prost::Message;

    use super::*;

    #[derive(Clone, Copy, PartialEq, Message)]
    struct Point {
        #[prost(double, tag = "1")]
        value: f64,
        #[prost(int64, tag = "2")]
        millis: i64,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Label {
        #[prost(bytes, tag = "1")]
        name: Vec<u8>,
        #[prost(bytes, tag = "2")]
        value: Vec<u8>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct SeriesOne {
        #[prost(message, repeated, tag = "1")]
        labels: Vec<Label>,
        #[prost(message, repeated, tag = "2")]
        samples: Vec<Point>,
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
        samples: Vec<Point>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct RequestTwo {
        #[prost(string, repeated, tag = "4")]
        symbols: Vec<String>,
        #[prost(message, repeated, tag = "5")]
        series: Vec<SeriesTwo>,
    }

    /// A request of version 1.0 with a label that is not UTF-8.
    pub(crate) fn latin() -> Vec<u8> {
        let label = Label {
            value: vec![0xfc],
            ..Label::default()
        };
        let series = SeriesOne {
            labels: vec![label],
            ..SeriesOne::default()
        };
        let request = RequestOne {
            series: vec![series],
        };
        request.encode_to_vec()
    }

    /// A request of version 2.0 whose series refers to a symbol that is not there.
    pub(crate) fn lacking() -> Vec<u8> {
        let series = SeriesTwo {
            labels: vec![0, 1],
            ..SeriesTwo::default()
        };
        let request = RequestTwo {
            symbols: vec![String::from("a")],
            series: vec![series],
        };
        request.encode_to_vec()
    }

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
            name: name.as_bytes().to_vec(),
            value: value.as_bytes().to_vec(),
        };
        let series = series.iter().map(|(labels, value, millis)| SeriesOne {
            labels: labels.iter().map(label).collect(),
            samples: vec![Point {
                value: *value,
                millis: *millis,
            }],
        });
        RequestOne {
            series: series.collect(),
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
            samples: vec![Point {
                value: *value,
                millis: *millis,
            }],
        });
        let series = series.collect();
        let symbols = symbols.into_iter().map(str::to_owned).collect();
        RequestTwo { symbols, series }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{Given, body, compressed, lacking, latin};
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
            (Version::One, compressed(b"\x0a\x7f"), "ends within a field"),
            (
                Version::One,
                compressed(&latin()),
                "a label that is not UTF-8",
            ),
            (
                Version::Two,
                compressed(&lacking()),
                "series 0 refers to missing symbols",
            ),
        ] {
            let error = seen(version, &body).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    /// What senders may write that our encoder does not: references one by one, unknown fields of every type, series before their symbols.
    #[test]
    fn another_form_of_a_request_has_the_same_content() {
        let sample = [&[0x09][..], &2.5_f64.to_le_bytes(), &[0x10, 0xd0, 0x0f]].concat();
        let unknown = [
            0x78, 0x01, 0x7d, 1, 2, 3, 4, 0x79, 1, 2, 3, 4, 5, 6, 7, 8, 0x7a, 0x00,
        ];
        let series = [
            &[0x08, 1, 0x0a, 1, 2][..],
            &unknown,
            &[0x12, 12],
            &sample,
            &[0x1a, 0],
        ];
        let series = series.concat();
        let length = u8::try_from(series.len()).expect("short");
        let symbols = b"\x22\x00\x22\x08__name__\x22\x01x";
        let request = [&[0x2a, length][..], &series, &unknown, symbols].concat();
        let mut histograms = 0;
        read(Version::Two, &compressed(&request), 1 << 20, |series| {
            assert_eq!(series.labels, [("__name__", "x")]);
            let sample = Sample {
                value: 2.5,
                millis: 2_000,
            };
            assert_eq!(series.samples, [sample]);
            histograms += series.histograms;
        })
        .expect("a request");
        assert_eq!(histograms, 1);
        // A sample whose value is a varint, as no sender writes it.
        let wrong = b"\x0a\x04\x12\x02\x08\x01";
        let error = seen(Version::One, &compressed(wrong)).expect_err("an error");
        assert!(
            error.to_string().contains("a field of another type"),
            "{error}"
        );
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
