//! A mapping as it is in its TOML file, checked to the end before it is used.

mod value;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use railscope_model::exposition::Type;
use railscope_model::metric::{CATALOGUE, Kind, Metric, Writer};
use regex::Regex;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use toml::Spanned;

use super::unit::factor;
use crate::config::{ConfigError, nearest};
use crate::mapping::rows::{Join, LabelRule, Mapping, Row, Spelling, SubjectRule, ValueRule};

/// Precedence of a mapping that sets none: below all built-in ones.
const DEFAULT_PRECEDENCE: u8 = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    kind: Spanned<String>,
    precedence: Option<Spanned<u8>>,
    #[serde(default)]
    known_by: Vec<Spanned<String>>,
    /// For rows without a type.
    #[serde(rename = "type")]
    declared: Option<Spanned<String>>,
    subject: Option<Spanned<RawSubject>>,
    #[serde(default)]
    labels: RawLabels,
    #[serde(default)]
    join: Vec<RawJoin>,
    row: Vec<RawRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawJoin {
    from: Spanned<String>,
    on: BTreeMap<String, String>,
    #[serde(default)]
    take: Vec<String>,
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSubject {
    node: Option<RawLabel>,
    switch: Option<RawLabel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRow {
    from: Spanned<String>,
    to: Spanned<String>,
    unit: Option<Spanned<String>>,
    #[serde(default)]
    labels: RawLabels,
    subject: Option<Spanned<RawSubject>>,
    #[serde(default)]
    when: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    unless: BTreeMap<String, Spanned<String>>,
    #[serde(rename = "type")]
    declared: Option<Spanned<String>>,
    equals: Option<Spanned<f64>>,
    bit: Option<Spanned<u8>>,
    numbers: Option<Spanned<BTreeMap<String, f64>>>,
    in_label: Option<Spanned<RawPattern>>,
    label_is: Option<Spanned<RawPattern>>,
    sum: Option<Spanned<bool>>,
    max: Option<Spanned<bool>>,
    min: Option<Spanned<bool>>,
    absent: Option<Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPattern {
    label: String,
    regex: String,
}

type RawLabels = BTreeMap<Spanned<String>, Spanned<RawLabel>>;

/// A text, or a table that reports where to find one.
enum RawLabel {
    Constant(String),
    Found(RawFound),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFound {
    label: String,
    regex: Option<String>,
    value: Option<String>,
    #[serde(rename = "as")]
    spelling: Option<String>,
    numbers: Option<[String; 3]>,
    map: Option<HashMap<String, String>>,
}

impl<'de> Deserialize<'de> for RawLabel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LabelVisitor;
        impl<'de> Visitor<'de> for LabelVisitor {
            type Value = RawLabel;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or a table such as { label = \"Hostname\" }")
            }
            fn visit_str<E>(self, text: &str) -> Result<RawLabel, E> {
                Ok(RawLabel::Constant(text.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawLabel, A::Error> {
                RawFound::deserialize(MapAccessDeserializer::new(map)).map(RawLabel::Found)
            }
        }
        deserializer.deserialize_any(LabelVisitor)
    }
}

/// What is wrong, where, and what was probably meant.
struct Wrong {
    span: Range<usize>,
    field: String,
    message: String,
    meant: Option<String>,
}

impl Wrong {
    fn new(span: Range<usize>, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            span,
            field: field.into(),
            message: message.into(),
            meant: None,
        }
    }
}

/// Reads the text of a mapping file; `path` is named in errors.
///
/// # Errors
/// The text is invalid; the error names the place and what was expected.
pub(super) fn parse(text: &str, path: &Path) -> Result<Mapping, ConfigError> {
    let raw: RawFile =
        toml::from_str(text).map_err(|error| ConfigError::from_toml(text, path, error))?;
    check(&raw).map_err(|wrong| {
        ConfigError::at(text, path, wrong.span, wrong.field, wrong.message).meaning(wrong.meant)
    })
}

fn check(raw: &RawFile) -> Result<Mapping, Wrong> {
    let kind = raw.kind.get_ref().trim();
    if kind.is_empty() || kind == super::OWN_KIND {
        let message = format!("{kind:?}: expected the name of another exporter");
        return Err(Wrong::new(raw.kind.span(), "kind", message));
    }
    let precedence = match &raw.precedence {
        Some(rank) if *rank.get_ref() == 0 => {
            let message = "0 is Railscope's own exporter: expected 1 to 255";
            return Err(Wrong::new(rank.span(), "precedence", message));
        }
        rank => rank
            .as_ref()
            .map_or(DEFAULT_PRECEDENCE, |rank| *rank.get_ref()),
    };
    let known_by = raw.known_by.iter().map(|name| pattern(name, "known_by"));
    let joins = raw.join.iter().enumerate().map(|(index, join)| {
        if join.take.is_empty() && join.value.is_none() {
            let field = format!("join[{index}]");
            let message = "neither take nor value: expected labels that it gives to other series";
            return Err(Wrong::new(join.from.span(), &field, message));
        }
        Ok(Join {
            from: pattern(&join.from, &format!("join[{index}].from"))?,
            on: join.on.clone(),
            take: join.take.clone(),
            value: join.value.clone(),
        })
    });
    let common = Common {
        labels: &raw.labels,
        declared: raw.declared.as_ref(),
    };
    let subject = raw.subject.as_ref();
    let subject = subject
        .map(|subject| check_subject(subject, "subject"))
        .transpose()?;
    let rows = raw.row.iter().enumerate();
    Ok(Mapping {
        kind: Arc::from(kind),
        precedence,
        known_by: known_by.collect::<Result<_, _>>()?,
        joins: joins.collect::<Result<_, _>>()?,
        rows: rows
            .map(|(index, row)| check_row(row, &format!("row[{index}]"), &common, subject.as_ref()))
            .collect::<Result<_, _>>()?,
    })
}

/// A pattern for an entire name or label.
fn whole(regex: &str) -> Result<Regex, String> {
    Regex::new(&format!("^(?:{regex})$")).map_err(|error| {
        let said = error.to_string();
        let last = said.lines().last().unwrap_or_default();
        format!(
            "{regex:?} is no regular expression: {}",
            last.trim_start_matches("error: ")
        )
    })
}

fn pattern(regex: &Spanned<String>, field: &str) -> Result<Regex, Wrong> {
    whole(regex.get_ref()).map_err(|message| Wrong::new(regex.span(), field, message))
}

/// What a file reports for all its rows.
struct Common<'a> {
    labels: &'a RawLabels,
    declared: Option<&'a Spanned<String>>,
}

fn check_row(
    raw: &RawRow,
    field: &str,
    common: &Common<'_>,
    subject: Option<&SubjectRule>,
) -> Result<Row, Wrong> {
    let at = |name: &str| format!("{field}.{name}");
    let to = metric(&raw.to, &at("to"))?;
    let unit = raw.unit.as_ref();
    let span = unit.map_or_else(|| raw.to.span(), Spanned::span);
    let factor =
        factor(to, unit.map(|unit| unit.get_ref().as_str())).or_else(|message| match to.kind {
            Kind::Info if unit.is_none() => Ok(super::unit::Factor::ONE),
            _ => Err(Wrong::new(span, at("unit"), message)),
        })?;
    let own_subject = raw.subject.as_ref();
    let own_subject = own_subject
        .map(|subject| check_subject(subject, &at("subject")))
        .transpose()?;
    let value = value::check_value(raw, &at)?;
    let patterns = |name: &str, raw: &BTreeMap<String, Spanned<String>>| {
        let patterns = raw.iter().map(|(label, regex)| {
            let regex = pattern(regex, &at(&format!("{name}.{label}")))?;
            Ok((label.clone(), regex))
        });
        patterns.collect::<Result<_, _>>()
    };
    Ok(Row {
        from: pattern(&raw.from, &at("from"))?,
        to,
        factor,
        labels: check_labels(raw, to, &at, common.labels)?,
        subject: own_subject.or_else(|| subject.cloned()),
        when: patterns("when", &raw.when)?,
        unless: patterns("unless", &raw.unless)?,
        declared: declared(raw.declared.as_ref().or(common.declared), to, &value, &at)?,
        value,
        combine: value::check_combine(raw, &at)?,
        absent: value::check_absent(raw, to, &at)?,
    })
}

/// The metric with this name, which an exporter can report.
fn metric(name: &Spanned<String>, field: &str) -> Result<&'static Metric, Wrong> {
    let wrong = |message: String| Wrong::new(name.span(), field, message);
    let Some(metric) = Metric::by_name(name.get_ref()) else {
        let names: Vec<_> = CATALOGUE.iter().map(|metric| metric.name).collect();
        return Err(Wrong {
            meant: nearest(name.get_ref(), &names).map(str::to_owned),
            ..wrong(format!(
                "no metric {:?}: expected one that METRICS.md lists for nodes or switches",
                name.get_ref()
            ))
        });
    };
    if metric.writer == Writer::Collector {
        return Err(wrong(format!(
            "{} is the collector's own: expected a metric of nodes or switches",
            metric.name
        )));
    }
    if metric.kind == Kind::Histogram {
        return Err(wrong(format!(
            "{} is a histogram: expected a counter, gauge or info",
            metric.name
        )));
    }
    Ok(metric)
}

fn check_labels(
    raw: &RawRow,
    to: &'static Metric,
    at: &impl Fn(&str) -> String,
    common: &RawLabels,
) -> Result<Vec<LabelRule>, Wrong> {
    for name in raw.labels.keys() {
        if !to.labels.contains(&name.get_ref().as_str()) {
            let field = at(&format!("labels.{}", name.get_ref()));
            let message = format!(
                "{} has no such label: expected {}",
                to.name,
                to.labels.join(", ")
            );
            return Err(Wrong {
                meant: nearest(name.get_ref(), to.labels).map(str::to_owned),
                ..Wrong::new(name.span(), field, message)
            });
        }
    }
    let find = |labels: &'_ RawLabels, wanted: &str| {
        let mut labels = labels.iter();
        labels
            .find(|(name, _)| name.get_ref() == wanted)
            .map(|(_, rule)| (rule.span(), check_label(rule.get_ref())))
    };
    let rules = to.labels.iter().enumerate().map(|(place, name)| {
        // The first label names the thing; what an info series adds to it may be unknown.
        let required = to.kind != Kind::Info || place == 0;
        match find(&raw.labels, name).or_else(|| find(common, name)) {
            Some((_, Ok(LabelRule::Copied { label, .. }))) => {
                Ok(LabelRule::Copied { label, required })
            }
            Some((
                _,
                Ok(LabelRule::Spelled {
                    label,
                    numbers,
                    spelling,
                    ..
                }),
            )) => Ok(LabelRule::Spelled {
                label,
                numbers,
                spelling,
                required,
            }),
            Some((_, Ok(rule))) => Ok(rule),
            Some((span, Err(message))) => {
                Err(Wrong::new(span, at(&format!("labels.{name}")), message))
            }
            None => Ok(LabelRule::Copied {
                label: (*name).to_owned(),
                required,
            }),
        }
    });
    rules.collect()
}

fn check_label(raw: &RawLabel) -> Result<LabelRule, String> {
    let found = match raw {
        RawLabel::Constant(text) => return Ok(LabelRule::Constant(text.clone())),
        RawLabel::Found(found) => found,
    };
    let label = found.label.clone();
    let spelling = found.spelling.as_deref().map(|spelling| match spelling {
        "pci" => Ok(Spelling::Pci),
        "guid" => Ok(Spelling::Guid),
        other => Err(format!("as = {other:?}: expected \"pci\" or \"guid\"")),
    });
    let spelling = spelling.transpose()?;
    if found.numbers.is_some() && !matches!(spelling, Some(Spelling::Pci)) {
        return Err(String::from(
            "numbers without as = \"pci\": they are those of a PCI address",
        ));
    }
    match (&found.regex, &found.map) {
        (Some(_), Some(_)) => Err(String::from("both regex and map: expected one of them")),
        (Some(_), None) | (None, Some(_)) if spelling.is_some() => {
            Err(String::from("as beside regex or map: expected one of them"))
        }
        (Some(regex), None) => Ok(LabelRule::Captured {
            label,
            regex: whole(regex)?,
            value: found.value.clone().unwrap_or_else(|| String::from("$1")),
        }),
        (None, _) if found.value.is_some() => Err(String::from(
            "value without regex: expected the regex whose groups it uses",
        )),
        (None, Some(words)) => Ok(LabelRule::Mapped {
            label,
            words: words.clone(),
        }),
        (None, None) => Ok(match spelling {
            Some(spelling) => LabelRule::Spelled {
                label,
                numbers: found.numbers.clone(),
                spelling,
                required: true,
            },
            None => LabelRule::Copied {
                label,
                required: true,
            },
        }),
    }
}

fn check_subject(raw: &Spanned<RawSubject>, field: &str) -> Result<SubjectRule, Wrong> {
    let wrong = |message: String| Wrong::new(raw.span(), field, message);
    let subject = raw.get_ref();
    match (&subject.node, &subject.switch) {
        (Some(node), None) => check_label(node).map(SubjectRule::Node).map_err(wrong),
        (None, Some(switch)) => check_label(switch).map(SubjectRule::Switch).map_err(wrong),
        _ => Err(wrong(String::from("expected either node or switch"))),
    }
}

/// The type that the other exporter must declare: that of our metric, unless the row reports
/// another.
fn declared(
    raw: Option<&Spanned<String>>,
    to: &Metric,
    value: &ValueRule,
    at: &impl Fn(&str) -> String,
) -> Result<Option<Type>, Wrong> {
    let Some(name) = raw else {
        return Ok(match (value, to.kind) {
            (ValueRule::InLabel { .. } | ValueRule::LabelIs { .. }, _) => None,
            (_, Kind::Counter) => Some(Type::Counter),
            (_, Kind::Gauge) => Some(Type::Gauge),
            (_, Kind::Info | Kind::Histogram) => None,
        });
    };
    match name.get_ref().as_str() {
        "counter" => Ok(Some(Type::Counter)),
        "gauge" => Ok(Some(Type::Gauge)),
        "any" => Ok(None),
        other => {
            let message = format!("{other:?}: expected \"counter\", \"gauge\" or \"any\"");
            Err(Wrong::new(name.span(), at("type"), message))
        }
    }
}
