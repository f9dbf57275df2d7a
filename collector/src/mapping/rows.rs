//! A mapping: which series of another exporter is which metric of ours, with which labels and in which unit.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use railscope_model::exposition::{Series, Type};
use railscope_model::identity::{Guid, PciAddress};
use railscope_model::metric::{Kind, LLDP_NEIGHBOR, Metric, Writer};
use railscope_model::reading::Labels;
use regex::Regex;

use super::unit::Factor;
use crate::store::source_id::Subject;

/// How one exporter's scrapes become readings.
#[derive(Debug)]
pub struct Mapping {
    /// Name of the exporter: `kind` of a target.
    pub kind: Arc<str>,
    /// Precedence where two exporters report the same of one node; the lowest wins. Railscope's own has
    /// 0.
    pub precedence: u8,
    /// Names of series by one of which an exposition of this exporter is known.
    pub(super) known_by: Vec<Regex>,
    pub(super) joins: Vec<Join>,
    pub(super) rows: Vec<Row>,
}

/// Labels that are on another series of the exposition.
#[derive(Debug)]
pub(super) struct Join {
    pub(super) from: Regex,
    /// Label of that series -> the label of the same value here.
    pub(super) on: BTreeMap<String, String>,
    pub(super) take: Vec<String>,
    /// Label that its value, a whole number, is.
    pub(super) value: Option<String>,
}

impl Join {
    /// What a series that it matches gives others.
    pub(super) fn given(&self, series: &Series<'_>) -> Vec<(String, String)> {
        let own = |label: &String| Some((label.clone(), series.label(label)?.into()));
        let is_whole = series.value >= 0.0 && series.value.fract() == 0.0;
        let value = self.value.iter().filter(|_| is_whole);
        let value = value.map(|label| (label.clone(), series.value.to_string()));
        self.take.iter().filter_map(own).chain(value).collect()
    }
}

/// One series name, or several by a pattern, and what becomes of them.
#[derive(Debug)]
pub(super) struct Row {
    /// The entire name. Its named groups are labels of the series.
    pub(super) from: Regex,
    pub(super) to: &'static Metric,
    pub(super) factor: Factor,
    /// In the order of the metric's label names.
    pub(super) labels: Vec<LabelRule>,
    /// The part that the series is about, where that is not the target itself.
    pub(super) subject: Option<SubjectRule>,
    /// Labels that a series must have for this row.
    pub(super) when: Vec<(String, Regex)>,
    /// Labels that a series must not have.
    pub(super) unless: Vec<(String, Regex)>,
    /// Type that the other exporter declares; none accepts any.
    pub(super) declared: Option<Type>,
    pub(super) value: ValueRule,
    /// What becomes of values that fall on one series of ours.
    pub(super) combine: Combine,
    /// Value of a series that was exported before and no longer is: some exporters list only what works.
    pub(super) absent: Option<f64>,
}

/// How several values become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Combine {
    /// The first one counts: the others are copies, such as a GPU's for each of its containers.
    First,
    /// They add up.
    Sum,
    /// The largest counts.
    Max,
    /// The smallest counts.
    Min,
}

impl Combine {
    /// The value so far, and one more.
    pub(super) fn apply(self, so_far: f64, value: f64) -> f64 {
        match self {
            Self::First => so_far,
            Self::Sum => so_far + value,
            Self::Max => so_far.max(value),
            Self::Min => so_far.min(value),
        }
    }
}

/// Where the value of one of our labels comes from.
#[derive(Debug, Clone)]
pub(super) enum LabelRule {
    Constant(String),
    /// The label of the series with this name; nothing to find is an empty value where that is allowed.
    Copied {
        label: String,
        required: bool,
    },
    /// What a pattern makes of a label; a value that the pattern does not match is no row's.
    Captured {
        label: String,
        regex: Regex,
        value: String,
    },
    /// An identity in the spelling of Railscope.
    Spelled {
        label: String,
        /// Labels with the numbers of domain, bus and device, for a series whose label is empty.
        numbers: Option<[String; 3]>,
        spelling: Spelling,
        required: bool,
    },
    /// Maps words; a series with another word does not match the row.
    Mapped {
        label: String,
        words: HashMap<String, String>,
    },
}

/// Identities that exporters spell differently.
#[derive(Debug, Clone, Copy)]
pub(super) enum Spelling {
    Pci,
    Guid,
}

impl Spelling {
    fn apply(self, text: &str) -> Result<String, String> {
        let spelled = match self {
            Self::Pci => text.parse().map(|pci: PciAddress| pci.to_string()),
            Self::Guid => text.parse().map(|guid: Guid| guid.to_string()),
        };
        spelled.map_err(|error| error.to_string())
    }
}

/// Whose name a label holds.
#[derive(Debug, Clone)]
pub(super) enum SubjectRule {
    Node(LabelRule),
    Switch(LabelRule),
}

/// Where the value comes from.
#[derive(Debug, Clone)]
pub(super) enum ValueRule {
    /// The value itself.
    AsIs,
    /// 1 if the value is this one.
    Equals(f64),
    /// 1 if this bit of the value is set.
    Bit(u8),
    /// Maps numbers; other numbers have no value.
    Numbers(Vec<(f64, f64)>),
    /// The number in a label.
    InLabel { label: String, regex: Regex },
    /// 1 if a label matches.
    LabelIs { label: String, regex: Regex },
}

/// Labels of one series: its own, those of its name's pattern, those of joined series.
pub(super) struct Found<'a> {
    pub(super) series: &'a Series<'a>,
    pub(super) captured: &'a [(String, String)],
    pub(super) joined: &'a [(String, String)],
}

impl Found<'_> {
    fn label(&self, name: &str) -> Option<Cow<'_, str>> {
        let beside = || {
            let pairs = self.captured.iter().chain(self.joined);
            pairs
                .filter(|(found, _)| found == name)
                .map(|(_, value)| Cow::Borrowed(value.as_str()))
                .next()
        };
        self.series.label(name).or_else(beside)
    }

    /// The PCI address of these numbers; without a bus there is none, a domain or device that is not there is 0.
    fn pci(&self, [domain, bus, device]: &[String; 3]) -> Option<String> {
        let number = |name: &String| self.text(name).parse::<u32>().ok();
        let (domain, device) = (number(domain).unwrap_or(0), number(device).unwrap_or(0));
        let bus = number(bus)?;
        Some(format!("{domain:04x}:{bus:02x}:{device:02x}.0"))
    }

    /// As Prometheus sees it: a label that is not there is empty.
    fn text(&self, name: &str) -> Cow<'_, str> {
        self.label(name).unwrap_or_default()
    }
}

/// What a row reports to a series.
pub(super) enum Answer {
    /// It is this series of ours.
    Taken {
        /// The part that it is about, if it names one.
        subject: Option<Subject>,
        labels: Labels,
        /// The value, where it is in the labels.
        fixed: Option<f64>,
    },
    /// It is not this row's.
    NotMine,
    /// It is this row's and cannot be read.
    Unfit(String),
}

impl LabelRule {
    /// The value of the label; `Ok(None)` if the series does not match this row.
    fn apply(&self, found: &Found<'_>) -> Result<Option<String>, String> {
        match self {
            Self::Constant(text) => Ok(Some(text.clone())),
            Self::Copied { label, required } => match found.text(label) {
                text if text.is_empty() && *required => Err(format!("no label {label:?}")),
                text => Ok(Some(text.into_owned())),
            },
            Self::Captured {
                label,
                regex,
                value,
            } => Ok(regex.captures(&found.text(label)).map(|captures| {
                let mut text = String::new();
                captures.expand(value, &mut text);
                text
            })),
            Self::Spelled {
                label,
                numbers,
                spelling,
                required,
            } => match found.text(label) {
                text if text.is_empty() => match numbers.as_ref().and_then(|all| found.pci(all)) {
                    None if !required => Ok(Some(String::new())),
                    numbered => spelling.apply(&numbered.unwrap_or_default()).map(Some),
                },
                text => spelling.apply(&text).map(Some),
            },
            Self::Mapped { label, words } => Ok(words.get(&*found.text(label)).cloned()),
        }
    }
}

impl SubjectRule {
    fn apply(&self, found: &Found<'_>) -> Result<Option<Subject>, String> {
        let (Self::Node(rule) | Self::Switch(rule)) = self;
        let Some(name) = rule.apply(found)? else {
            return Ok(None);
        };
        let subject = match self {
            Self::Node(_) => name.parse().map(Subject::Node),
            Self::Switch(_) => name.parse().map(Subject::Switch),
        };
        subject.map(Some).map_err(|error| error.to_string())
    }
}

impl Row {
    /// Which series of ours this one is.
    pub(super) fn translate(&self, found: &Found<'_>) -> Answer {
        let fits = |(label, regex): &(String, Regex)| regex.is_match(&found.text(label));
        if !self.when.iter().all(fits) || self.unless.iter().any(fits) {
            return Answer::NotMine;
        }
        let subject = self.subject.as_ref().map(|rule| rule.apply(found));
        let subject = match subject.transpose() {
            Ok(Some(None)) => return Answer::NotMine,
            Ok(subject) => subject.flatten(),
            Err(why) => return Answer::Unfit(why),
        };
        let labels: Result<Option<Vec<String>>, String> =
            self.labels.iter().map(|rule| rule.apply(found)).collect();
        match (labels, self.fixed(found)) {
            (Ok(Some(values)), Ok(fixed)) => Answer::Taken {
                subject,
                labels: Labels::new(values),
                fixed,
            },
            (Ok(None), _) => Answer::NotMine,
            (Err(why), _) | (_, Err(why)) => Answer::Unfit(why),
        }
    }

    /// The value, where the labels hold it.
    fn fixed(&self, found: &Found<'_>) -> Result<Option<f64>, String> {
        if self.to.kind == Kind::Info {
            return Ok(Some(1.0));
        }
        match &self.value {
            ValueRule::InLabel { label, regex } => {
                let text = found.text(label);
                let number = regex.captures(&text).and_then(|found| found.get(1));
                let number = number.and_then(|number| number.as_str().parse().ok());
                let value = number.and_then(|number| self.possible(number));
                value
                    .map(Some)
                    .ok_or_else(|| format!("label {label:?} holds {text:?}"))
            }
            ValueRule::LabelIs { label, regex } => {
                Ok(Some(flag(regex.is_match(&found.text(label)))))
            }
            ValueRule::AsIs | ValueRule::Equals(_) | ValueRule::Bit(_) | ValueRule::Numbers(_) => {
                Ok(None)
            }
        }
    }

    /// The value in our unit; `None` if it is invalid.
    pub(super) fn value(&self, raw: f64) -> Option<f64> {
        match &self.value {
            ValueRule::Equals(number) => Some(flag(raw == *number)),
            ValueRule::Numbers(numbers) => {
                let (_, number) = numbers.iter().find(|(from, _)| *from == raw)?;
                self.possible(*number)
            }
            // Bit masks are small integers; any other value is invalid.
            ValueRule::Bit(bit) => (0.0..9e15)
                .contains(&raw)
                .then(|| flag((raw as u64 >> bit) & 1 == 1)),
            _ => self.possible(raw),
        }
    }

    /// A value in our unit, unless the metric cannot have it.
    fn possible(&self, raw: f64) -> Option<f64> {
        let value = self.factor.apply(raw);
        // Only a temperature may be below zero; exporters report -1 for "unknown".
        let sign_fits = value >= 0.0 || self.to.unit == Some("celsius");
        (value.is_finite() && sign_fits).then_some(value)
    }

    /// Whether the row's metric can belong to a part.
    pub(super) fn is_about(&self, subject: &Subject) -> bool {
        match subject {
            Subject::Node(_) => self.to.writer == Writer::Exporter,
            // Neighbors of a port are reported in the same terms, whatever device has the port.
            Subject::Switch(_) => self.to.writer == Writer::Switch || self.to == &LLDP_NEIGHBOR,
        }
    }
}

fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

impl Mapping {
    /// Whether an exposition that holds a series of this name is this exporter's.
    pub fn knows(&self, name: &str) -> bool {
        self.known_by.iter().any(|regex| regex.is_match(name))
    }

    /// Whether all series name what they are about, so that the target is no part itself.
    pub fn names_its_subjects(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| row.subject.is_some())
    }

    /// Whether all series are about the switch that the target is: they name none themselves.
    pub fn is_of_one_switch(&self) -> bool {
        let is_of_target = |row: &Row| row.subject.is_none() && row.to.writer != Writer::Exporter;
        let mut rows = self
            .rows
            .iter()
            .filter(|row| row.to != &LLDP_NEIGHBOR)
            .peekable();
        rows.peek().is_some() && rows.all(is_of_target)
    }
}
