//! What a write request says of each target, as text that a scrape of the target would have brought. Pure.

use std::collections::{BTreeMap, HashMap};

use railscope_model::fabric::Timestamp;

use super::wire::{self, BodyError, Series, Version};
use crate::config::RemoteWrite;

/// Most bytes of a request once it is decompressed: its sender splits what is more into several.
const MOST_BYTES: usize = 16 << 20;
/// Samples older than this say nothing of the present, and are left out.
const OLDEST_SECONDS: f64 = 300.0;
/// Samples that are this far ahead of the clock are left out: one of the two clocks is wrong.
const FUTURE_SECONDS: f64 = 60.0;
/// The value by which Prometheus says that a series has ended (`model/value.StaleNaN`).
const STALE_BITS: u64 = 0x7ff0_0000_0000_0002;
/// What Prometheus puts in front of a label of the page that a label of the target's hides.
const HIDDEN: &str = "exported_";

/// A target as its sender names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Label `job`.
    pub job: String,
    /// Label `instance`.
    pub instance: String,
}

/// What a request says of one target at one time.
#[derive(Debug, Default, PartialEq)]
pub struct Portion {
    /// Its samples, one a line.
    pub text: String,
    /// How many these are.
    pub samples: usize,
    /// Node or switch that it speaks for, where a label names that: one of `up`, whose labels are those of the target, or without
    /// `up` of the first series that has it.
    pub part: Option<String>,
    /// Whether the sender could scrape it, where the request says that.
    pub is_up: Option<bool>,
    /// Whether the sender has stopped scraping it.
    pub has_ended: bool,
}

/// What became of the samples of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Taken up.
    pub accepted: u64,
    /// Of series without `instance`, and what rules have made: no target's.
    pub unassigned: u64,
    /// Marks that a series has ended.
    pub stale: u64,
    /// Too old, or from the future.
    pub out_of_window: u64,
    /// Native histograms, and names that are none in the text format.
    pub unsupported: u64,
}

/// All that a request says.
#[derive(Debug, Default, PartialEq)]
pub struct Batch {
    /// By target and time.
    pub portions: BTreeMap<(Origin, Timestamp), Portion>,
    /// What became of its samples.
    pub counts: Counts,
}

impl Batch {
    /// Reads a request that came at `now`.
    ///
    /// # Errors
    /// It is none.
    pub fn read(
        version: Version,
        body: &[u8],
        config: &RemoteWrite,
        now: Timestamp,
    ) -> Result<Self, BodyError> {
        let mut reading = Reading {
            config,
            now,
            places: HashMap::default(),
            origins: Vec::new(),
            counts: Counts::default(),
            line: String::new(),
        };
        wire::read(version, body, MOST_BYTES, |series| reading.take(series))?;
        let origins = reading.origins.into_iter();
        let portions = origins.flat_map(|(origin, by_time)| {
            let portions = by_time.into_iter();
            portions.map(move |(at, portion)| ((origin.clone(), at), portion))
        });
        Ok(Self {
            portions: portions.collect(),
            counts: reading.counts,
        })
    }
}

struct Reading<'a> {
    config: &'a RemoteWrite,
    now: Timestamp,
    /// Where a target is among `origins`.
    places: HashMap<Origin, usize, foldhash::fast::FixedState>,
    origins: Vec<(Origin, BTreeMap<Timestamp, Portion>)>,
    counts: Counts,
    /// Name and labels of one series, kept for its room.
    line: String,
}

impl Reading<'_> {
    fn take(&mut self, series: &Series<'_>) {
        let samples = series.samples.len() as u64;
        self.counts.unsupported += series.histograms as u64;
        let find = |wanted: &str| {
            let found = series.labels.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| *value)
        };
        let name = find("__name__").unwrap_or_default();
        if !is_name(name) {
            self.counts.unsupported += samples;
            return;
        }
        // What a rule makes of series keeps their labels, and is no scrape's.
        let is_rules = name.contains(':') || matches!(name, "ALERTS" | "ALERTS_FOR_STATE");
        let Some(instance) = find("instance").filter(|_| !is_rules) else {
            self.counts.unassigned += samples;
            return;
        };
        let job = find("job").unwrap_or_default();
        let origin = Origin {
            job: job.to_owned(),
            instance: instance.to_owned(),
        };
        let next = self.origins.len();
        let place = *self.places.entry(origin).or_insert_with_key(|origin| {
            self.origins.push((origin.clone(), BTreeMap::new()));
            next
        });
        // What Prometheus says of the scrape itself is no part of the page.
        let is_own = name.starts_with("scrape_");
        self.line.clear();
        if name != "up" && !is_own {
            write_series(&mut self.line, name, series.labels);
        }
        let part = self.config.part_label(job).and_then(find);
        for sample in series.samples {
            self.take_sample((place, part), name, sample);
        }
    }

    fn take_sample(
        &mut self,
        (place, part): (usize, Option<&str>),
        name: &str,
        sample: &wire::Sample,
    ) {
        let at = Timestamp(u64::try_from(sample.millis).unwrap_or(0));
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
        let portion = self.origins[place].1.entry(at).or_default();
        if name == "up" || (portion.is_up.is_none() && portion.part.is_none()) {
            portion.part = part.map(str::to_owned);
        }
        if name == "up" {
            portion.has_ended |= is_stale;
            if !is_stale {
                portion.is_up = Some(sample.value != 0.0);
            }
        } else if !self.line.is_empty() {
            portion.text += &self.line;
            write_value(&mut portion.text, sample.value);
            portion.samples += 1;
        }
        self.counts.accepted += 1;
    }
}

/// Whether the text format has it as a name of a metric.
fn is_name(name: &str) -> bool {
    let letter = |char: char| char.is_ascii_alphabetic() || matches!(char, '_' | ':');
    let mut chars = name.chars();
    chars.next().is_some_and(letter) && chars.all(|char| letter(char) || char.is_ascii_digit())
}

/// Name and labels as on the page: what Prometheus had to rename because a label of the target's has the same name gets its
/// name back.
fn write_series(out: &mut String, name: &str, labels: &[(&str, &str)]) {
    out.push_str(name);
    out.push('{');
    let is_hidden = |wanted: &str| {
        let mut names = labels
            .iter()
            .filter_map(|(name, _)| name.strip_prefix(HIDDEN));
        names.any(|hidden| hidden == wanted)
    };
    let mut first = true;
    for (name, value) in labels {
        // Names of other characters, which Prometheus 3 allows, are nobody's whom a mapping knows.
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

fn write_escaped(out: &mut String, value: &str) {
    for char in value.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            char => out.push(char),
        }
    }
}

fn write_value(out: &mut String, value: f64) {
    use std::fmt::Write as _;
    let written = if value.is_infinite() {
        write!(out, "{}Inf", if value > 0.0 { '+' } else { '-' })
    } else {
        write!(out, "{value}")
    };
    // A string takes everything.
    written.ok();
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::super::wire::testing::{Given, body};
    use super::*;
    use crate::config::About;

    const NOW: Timestamp = Timestamp(1_000_000_000);
    const AT: i64 = 999_998_000;

    fn read(series: &[Given<'_>]) -> Batch {
        let config = RemoteWrite::default();
        let body = body(Version::One, series);
        Batch::read(Version::One, &body, &config, NOW).expect("a request")
    }

    #[test]
    fn samples_are_sorted_by_target_and_time_as_lines_of_a_page() {
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
            .portions
            .iter()
            .map(|((origin, at), portion)| (&*origin.instance, at.0, &*portion.text))
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
            .portions
            .values()
            .map(|one| one.part.as_deref())
            .collect();
        assert_eq!(parts, [None, None, Some("n2")]);
        assert_eq!(batch.counts.accepted, 4);
    }

    #[test]
    fn a_label_of_the_page_that_one_of_the_targets_hides_gets_its_name_back() {
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
        let portion = batch.portions.values().next().expect("a portion");
        assert_eq!(
            portion.text,
            "a{pod=\"train-\\\"0\\\"\\n\",instance=\"n1\",job=\"gpu\"} 1\n"
        );
    }

    #[test]
    fn what_the_sender_says_of_the_scrape_is_no_sample_of_the_page() {
        let labels = |name| [("__name__", name), ("instance", "n1"), ("job", "gpu")];
        let stale = f64::from_bits(STALE_BITS);
        for (given, is_up, has_ended) in [
            (("up", 1.0), Some(true), false),
            (("up", 0.0), Some(false), false),
            (("up", stale), None, true),
            (("scrape_duration_seconds", 0.1), None, false),
        ] {
            let batch = read(&[(&labels(given.0), given.1, AT)]);
            let expected = Portion {
                is_up,
                has_ended,
                ..Portion::default()
            };
            assert_eq!(
                Vec::from_iter(batch.portions.values()),
                [&expected],
                "{given:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_taken_up_is_counted() {
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
        assert!(batch.portions.is_empty(), "{batch:?}");
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
    fn a_job_of_switches_is_named_by_another_label() {
        let mut config = RemoteWrite::default();
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
        let batch = Batch::read(Version::One, &body, &config, NOW).expect("a request");
        let portion = batch.portions.values().next().expect("a portion");
        assert_eq!(portion.part.as_deref(), Some("leaf-1"));
    }

    #[test]
    fn what_a_target_speaks_for_is_a_label_of_its_up_and_not_of_its_page() {
        let up = [("__name__", "up"), ("instance", "n1")];
        let info = [
            ("__name__", "a_info"),
            ("instance", "n1"),
            ("node", "from-the-page"),
        ];
        for series in [[&up[..], &info], [&info, &up]] {
            let batch = read(&series.map(|labels| (labels, 1.0, AT)));
            let portion = batch.portions.values().next().expect("a portion");
            assert_eq!((&portion.part, portion.samples), (&None, 1));
        }
    }
}
