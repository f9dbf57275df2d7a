//! Converts a request into the text format, by target and timestamp. Pure.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use prost::DecodeError;
use prost::bytes::Bytes;
use railscope_model::fabric::Timestamp;

use super::deltas::Deltas;
use super::{BodyError, Format, Series, otlp, remote_write};
use crate::clock;
use crate::config::{About, Push};

/// Limit on the decompressed size of a request. Senders split larger ones.
const MOST_BYTES: usize = 16 << 20;
/// Older samples are omitted: the analysis has no use for them.
const OLDEST_SECONDS: f64 = 300.0;
/// Samples further in the future are omitted: one of the two clocks is wrong.
const FUTURE_SECONDS: f64 = 60.0;
/// The staleness marker of Prometheus (`model/value.StaleNaN`).
pub(super) const STALE_BITS: u64 = 0x7ff0_0000_0000_0002;
/// Prefix of a scraped label whose name is also a target label (`honor_labels: false`).
pub(crate) const HIDDEN: &str = "exported_";

/// The labels by which a sender identifies a target.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Label `job`.
    pub job: String,
    /// Label `instance`.
    pub instance: String,
}

/// The samples of one target with one timestamp.
#[derive(Debug, Default, PartialEq)]
pub struct Fragment {
    /// Its samples in the text format, one per line.
    pub text: String,
    /// Number of lines.
    pub samples: usize,
    /// Label with the name of the node or switch: of `up`, which has the target labels only, or without `up` of the first series that
    /// has the label.
    pub part: Option<String>,
    /// Value of `up`, if included.
    pub is_up: Option<bool>,
    /// Whether `up` has a staleness marker: the sender no longer scrapes the target.
    pub has_ended: bool,
}

/// Samples of a request by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Passed on.
    pub accepted: u64,
    /// Series without a label `instance`, and series of rules.
    pub unassigned: u64,
    /// Staleness markers.
    pub stale: u64,
    /// Too old, or in the future.
    pub out_of_window: u64,
    /// Native histograms, and names that the text format does not allow.
    pub unsupported: u64,
}

/// A converted request.
#[derive(Debug, Default, PartialEq)]
pub struct Batch {
    /// Samples by target and timestamp.
    pub fragments: BTreeMap<(Origin, Timestamp), Fragment>,
    /// Number of samples by result.
    pub counts: Counts,
}

impl Batch {
    /// Converts a request that arrived at `now`.
    ///
    /// # Errors
    /// The body is no valid request.
    pub fn read(
        format: Format,
        body: &Bytes,
        (config, deltas): (&Push, &Mutex<Deltas>),
        now: Timestamp,
    ) -> Result<Self, BodyError> {
        let mut reading = Reading {
            config,
            now,
            places: HashMap::default(),
            origins: Vec::new(),
            latest: None,
            counts: Counts::default(),
            line: String::new(),
        };
        match format {
            Format::RemoteWrite(version) => {
                remote_write::read(version, body, MOST_BYTES, |series| reading.take(series))?;
            }
            Format::Otlp => reading.take_otlp(body.clone(), deltas)?,
            Format::OtlpGzip => reading.take_otlp(otlp::decompress(body, MOST_BYTES)?, deltas)?,
        }
        let origins = reading.origins.into_iter();
        let fragments = origins.flat_map(|(origin, by_time)| {
            let fragments = by_time.into_iter();
            fragments.map(move |(at, fragment)| ((origin.clone(), at), fragment))
        });
        Ok(Self {
            fragments: fragments.collect(),
            counts: reading.counts,
        })
    }
}

struct Reading<'a> {
    config: &'a Push,
    now: Timestamp,
    /// Index of a target in `origins`.
    places: HashMap<Origin, usize, foldhash::fast::FixedState>,
    origins: Vec<(Origin, BTreeMap<Timestamp, Fragment>)>,
    /// Index of the previous series' target: most often the next one has the same.
    latest: Option<usize>,
    counts: Counts,
    /// Buffer for name and labels of one series.
    line: String,
}

impl Reading<'_> {
    fn take_otlp(&mut self, body: Bytes, deltas: &Mutex<Deltas>) -> Result<(), DecodeError> {
        let omitted = otlp::read(body, deltas, self.now, |series| self.take(series))?;
        self.counts.unsupported += omitted.unsupported;
        self.counts.out_of_window += omitted.out_of_order;
        Ok(())
    }

    fn take(&mut self, series: &Series<'_>) {
        let samples = series.samples.len() as u64;
        self.counts.unsupported += series.histograms as u64;
        let of_series = |wanted| value_of(series.labels, wanted);
        let of_target = |wanted| value_of(series.target, wanted);
        let of_either = |wanted| of_target(wanted).or_else(|| of_series(wanted));
        let name = of_series("__name__").unwrap_or_default();
        if !is_name(name) {
            self.counts.unsupported += samples;
            return;
        }
        // Series of rules have the labels of a target, but are not from a scrape.
        let is_rules = name.contains(':') || matches!(name, "ALERTS" | "ALERTS_FOR_STATE");
        let Some(instance) = of_either("instance").filter(|_| !is_rules) else {
            self.counts.unassigned += samples;
            return;
        };
        let job = of_either("job").unwrap_or_default();
        let place = self.place(job, instance);
        // Series that Prometheus adds to each scrape.
        let is_added = name.starts_with("scrape_");
        self.line.clear();
        if name != "up" && !is_added {
            let mut labels = Cow::Borrowed(series.labels);
            // Then series name their nodes and switches, perhaps by the attributes of their resource.
            if self.config.about(job) == About::Series {
                for label in series.target {
                    if value_of(&labels, label.0).is_none() {
                        labels.to_mut().push(*label);
                    }
                }
            }
            write_series(&mut self.line, name, &labels);
        }
        // The labels of `up` are those of the target; labels of another series may name anything.
        let part = self.config.part_label(job).and_then(|label| match name {
            "up" => of_series(label).or_else(|| of_target(label)),
            _ => of_either(label),
        });
        for sample in series.samples {
            self.take_sample((place, part), name, sample);
        }
    }

    /// Index of a target.
    fn place(&mut self, job: &str, instance: &str) -> usize {
        let is_it = |at: &usize| {
            let origin = &self.origins[*at].0;
            (&*origin.job, &*origin.instance) == (job, instance)
        };
        let place = self.latest.filter(is_it).unwrap_or_else(|| {
            let origin = Origin {
                job: job.to_owned(),
                instance: instance.to_owned(),
            };
            let next = self.origins.len();
            *self.places.entry(origin).or_insert_with_key(|origin| {
                self.origins.push((origin.clone(), BTreeMap::new()));
                next
            })
        });
        self.latest = Some(place);
        place
    }

    fn take_sample(
        &mut self,
        (place, part): (usize, Option<&str>),
        name: &str,
        sample: &remote_write::Sample,
    ) {
        let at = Timestamp(u64::try_from(sample.millis).unwrap_or(0));
        let at = clock::placed(at, self.now);
        if self.now.seconds_since(at) > OLDEST_SECONDS
            || at.seconds_since(self.now) > FUTURE_SECONDS
        {
            self.counts.out_of_window += 1;
            return;
        }
        let is_stale = sample.value.to_bits() == STALE_BITS;
        if is_stale && name != "up" {
            self.counts.stale += 1;
            return;
        }
        let fragment = self.origins[place].1.entry(at).or_default();
        if name == "up" || (fragment.is_up.is_none() && fragment.part.is_none()) {
            fragment.part = part.map(str::to_owned);
        }
        if name == "up" {
            fragment.has_ended |= is_stale;
            if !is_stale {
                fragment.is_up = Some(sample.value != 0.0);
            }
        } else if !self.line.is_empty() {
            fragment.text += &self.line;
            write_value(&mut fragment.text, sample.value);
            fragment.samples += 1;
        }
        self.counts.accepted += 1;
    }
}

fn value_of<'a>(labels: &[(&str, &'a str)], wanted: &str) -> Option<&'a str> {
    let found = labels.iter().find(|(name, _)| *name == wanted);
    found.map(|(_, value)| *value)
}

/// Whether it is a valid name in the text format.
pub(crate) fn is_name(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b':');
    let mut bytes = name.bytes();
    bytes.next().is_some_and(letter) && bytes.all(|byte| letter(byte) || byte.is_ascii_digit())
}

/// Writes name and labels as the exporter did: labels that Prometheus renamed in favor of target labels get their names back.
fn write_series(out: &mut String, name: &str, labels: &[(&str, &str)]) {
    out.push_str(name);
    out.push('{');
    let renamed = labels.iter();
    let renamed = renamed.filter_map(|(name, _)| name.strip_prefix(HIDDEN));
    let renamed: Vec<_> = renamed.collect(); // allocates only if there are some
    let is_hidden = |wanted: &str| renamed.contains(&wanted);
    let mut first = true;
    for (name, value) in labels {
        // Names with other characters, which Prometheus 3 allows, are in no mapping.
        let shown = name.strip_prefix(HIDDEN).unwrap_or(name);
        if *name == "__name__" || is_hidden(name) || !is_name(shown) {
            continue;
        }
        if !first {
            out.push(',');
        }
        first = false;
        out.push_str(shown);
        out.push_str("=\"");
        write_escaped(out, value);
        out.push('"');
    }
    out.push_str("} ");
}

/// Writes the value of a label.
pub(crate) fn write_escaped(out: &mut String, value: &str) {
    if !value
        .bytes()
        .any(|byte| matches!(byte, b'\\' | b'"' | b'\n'))
    {
        return out.push_str(value); // as nearly all are
    }
    for char in value.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            char => out.push(char),
        }
    }
}

/// Writes the value of a sample and a line break.
pub(crate) fn write_value(out: &mut String, value: f64) {
    use std::fmt::Write as _;
    let written = if value.is_infinite() {
        write!(out, "{}Inf", if value > 0.0 { '+' } else { '-' })
    } else {
        write!(out, "{value}")
    };
    // Writing to a string never fails.
    written.ok();
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::super::remote_write::Version;
    use super::super::remote_write::testing::{Given, body};
    use super::*;
    use crate::config::About;

    const NOW: Timestamp = Timestamp(1_000_000_000);
    const AT: i64 = 999_998_000;

    fn read(series: &[Given<'_>]) -> Batch {
        let config = Push::default();
        let body = body(Version::One, series);
        Batch::read(
            Format::RemoteWrite(Version::One),
            &body.into(),
            (&config, &Mutex::default()),
            NOW,
        )
        .expect("a request")
    }

    #[test]
    fn samples_are_grouped_by_target_and_timestamp() {
        let batch = read(&[
            (
                &[
                    ("__name__", "a"),
                    ("instance", "n1"),
                    ("job", "gpu"),
                    ("gpu", "0"),
                ],
                1.5,
                AT,
            ),
            (
                &[("__name__", "b"), ("instance", "n1"), ("job", "gpu")],
                f64::INFINITY,
                AT,
            ),
            (
                &[("__name__", "b"), ("instance", "n1"), ("job", "gpu")],
                2.0,
                AT + 1,
            ),
            (
                &[
                    ("__name__", "a"),
                    ("instance", "x:1"),
                    ("job", "gpu"),
                    ("node", "n2"),
                ],
                3.0,
                AT,
            ),
        ]);
        let texts: Vec<_> = batch
            .fragments
            .iter()
            .map(|((origin, at), fragment)| (&*origin.instance, at.0, &*fragment.text))
            .collect();
        let at = 999_998_000;
        let first =
            "a{instance=\"n1\",job=\"gpu\",gpu=\"0\"} 1.5\nb{instance=\"n1\",job=\"gpu\"} +Inf\n";
        assert_eq!(
            texts,
            [
                ("n1", at, first),
                ("n1", at + 1, "b{instance=\"n1\",job=\"gpu\"} 2\n"),
                ("x:1", at, "a{instance=\"x:1\",job=\"gpu\",node=\"n2\"} 3\n"),
            ]
        );
        let parts: Vec<_> = batch
            .fragments
            .values()
            .map(|one| one.part.as_deref())
            .collect();
        assert_eq!(parts, [None, None, Some("n2")]);
        assert_eq!(batch.counts.accepted, 4);
    }

    #[test]
    fn a_renamed_label_gets_its_name_back() {
        let batch = read(&[(
            &[
                ("__name__", "a"),
                ("exported_pod", "train-\"0\"\n"),
                ("instance", "n1"),
                ("job", "gpu"),
                ("pod", "dcgm-exporter-x"),
                ("app.kubernetes.io/name", "dcgm"),
            ],
            1.0,
            AT,
        )]);
        let fragment = batch.fragments.values().next().expect("a fragment");
        assert_eq!(
            fragment.text,
            "a{pod=\"train-\\\"0\\\"\\n\",instance=\"n1\",job=\"gpu\"} 1\n"
        );
    }

    #[test]
    fn series_that_the_sender_adds_are_not_passed_on() {
        let labels = |name| [("__name__", name), ("instance", "n1"), ("job", "gpu")];
        let stale = f64::from_bits(STALE_BITS);
        for (given, is_up, has_ended) in [
            (("up", 1.0), Some(true), false),
            (("up", 0.0), Some(false), false),
            (("up", stale), None, true),
            (("scrape_duration_seconds", 0.1), None, false),
        ] {
            let batch = read(&[(&labels(given.0), given.1, AT)]);
            let expected = Fragment {
                is_up,
                has_ended,
                ..Fragment::default()
            };
            assert_eq!(
                Vec::from_iter(batch.fragments.values()),
                [&expected],
                "{given:?}"
            );
        }
    }

    #[test]
    fn omitted_samples_are_counted() {
        let stale = f64::from_bits(STALE_BITS);
        let batch = read(&[
            (&[("__name__", "a")], 1.0, AT),
            (&[("__name__", "ALERTS"), ("instance", "n1")], 1.0, AT),
            (&[("__name__", "node:a:sum"), ("instance", "n1")], 1.0, AT),
            (&[("__name__", "a.b"), ("instance", "n1")], 1.0, AT),
            (&[("instance", "n1")], 1.0, AT),
            (&[("__name__", "a"), ("instance", "n1")], stale, AT),
            (&[("__name__", "a"), ("instance", "n1")], 1.0, AT - 400_000),
            (&[("__name__", "a"), ("instance", "n1")], 1.0, AT + 400_000),
            (&[("__name__", "a"), ("instance", "n1")], 1.0, -5),
        ]);
        assert!(batch.fragments.is_empty(), "{batch:?}");
        let expected = Counts {
            unassigned: 3,
            unsupported: 2,
            stale: 1,
            out_of_window: 3,
            accepted: 0,
        };
        assert_eq!(batch.counts, expected);
    }

    #[test]
    fn targets_of_a_switch_job_are_named_by_another_label() {
        let mut config = Push::default();
        let job = crate::config::PushedJob {
            kind: None,
            about: About::Switch,
        };
        config.jobs.insert(String::from("snmp"), job);
        let labels = [
            ("__name__", "a"),
            ("instance", "10.0.0.1"),
            ("job", "snmp"),
            ("node", "poller"),
            ("switch", "leaf-1"),
        ];
        let body = body(Version::One, &[(&labels, 1.0, AT)]);
        let batch = Batch::read(
            Format::RemoteWrite(Version::One),
            &body.into(),
            (&config, &Mutex::default()),
            NOW,
        )
        .expect("a request");
        let fragment = batch.fragments.values().next().expect("a fragment");
        assert_eq!(fragment.part.as_deref(), Some("leaf-1"));
    }

    #[test]
    fn the_name_is_a_label_of_up_and_not_of_another_series() {
        let up = [("__name__", "up"), ("instance", "n1")];
        let info = [
            ("__name__", "a_info"),
            ("instance", "n1"),
            ("node", "from-the-body"),
        ];
        for series in [[&up[..], &info], [&info, &up]] {
            let batch = read(&series.map(|labels| (labels, 1.0, AT)));
            let fragment = batch.fragments.values().next().expect("a fragment");
            assert_eq!((&fragment.part, fragment.samples), (&None, 1));
        }
    }
}
