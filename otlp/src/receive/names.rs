//! Names of metrics and attributes in the Prometheus text format.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;

use crate::names::{MAPPED, Mapping, UNITS};

/// The name of a metric. One without a dot is a Prometheus name and is kept; others get their unit and, if monotonic sums,
/// `_total`.
pub(super) fn of(metric: &Metric) -> Cow<'_, str> {
    if !metric.name.contains('.') {
        return clean(&metric.name);
    }
    let is_counter = matches!(&metric.data, Some(Data::Sum(sum)) if sum.is_monotonic);
    let is_gauge = matches!(&metric.data, Some(Data::Gauge(_)));
    let mut name = clean(&metric.name).into_owned();
    if is_counter && name.ends_with("_total") {
        name.truncate(name.len() - "_total".len());
    }
    let suffix = UNITS.iter().find(|(_, ucum)| *ucum == metric.unit);
    let suffix = suffix.map(|(suffix, _)| *suffix);
    // A sum of unit 1 is a count.
    let suffix = suffix.filter(|suffix| *suffix != "_ratio" || is_gauge);
    let has = |suffix: &&str| format!("_{name}_").contains(&format!("{suffix}_"));
    if let Some(suffix) = suffix.filter(|suffix| !has(suffix)) {
        name += suffix;
    }
    if is_counter {
        name += "_total";
    }
    Cow::Owned(name)
}

/// A name in the character set of the text format.
fn clean(name: &str) -> Cow<'_, str> {
    let is_allowed = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | ':');
    let starts_with_digit = name.starts_with(|char: char| char.is_ascii_digit());
    if name.chars().all(is_allowed) && !starts_with_digit {
        return Cow::Borrowed(name);
    }
    let prefix = if starts_with_digit { "_" } else { "" };
    Cow::Owned(prefix.to_owned() + &name.replace(|char| !is_allowed(char), "_"))
}

/// The label of an attribute.
pub(super) fn label(key: &str) -> Cow<'_, str> {
    match clean(key) {
        kept if kept.contains(':') => Cow::Owned(kept.replace(':', "_")),
        kept => kept,
    }
}

/// The name and labels in the catalogue of a point that Railscope sends under a name of the semantic conventions; none for
/// other points.
pub(super) fn own<'a>(name: &str, attributes: &'a [KeyValue]) -> Option<Own<'a>> {
    static BY_NAME: LazyLock<HashMap<&str, Vec<&Mapping>>> = LazyLock::new(|| {
        let mut rows: HashMap<_, Vec<_>> = HashMap::new();
        for row in MAPPED {
            rows.entry(row.name).or_default().push(row);
        }
        rows
    });
    let rows = BY_NAME.get(name)?;
    let labels = super::labels(attributes);
    let find = |wanted: &str| {
        let wanted = label(wanted);
        let found = labels.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| &**value)
    };
    let is_row = |row: &&&Mapping| {
        let mut fixed = row.fixed.iter();
        fixed.all(|(name, value)| find(name) == Some(value))
            && row
                .component
                .labels()
                .iter()
                .all(|label| find(label).is_some())
            && row
                .renamed
                .is_none_or(|renamed| find(renamed.attribute).is_some())
    };
    let row = rows.iter().find(is_row)?;
    let (added, renamed) = (row.added_attributes(), row.renamed);
    let kept = labels
        .iter()
        .filter(|(name, _)| !added.clone().any(|added| label(added) == *name));
    let labels = kept.map(|(name, value)| match renamed {
        Some(renamed) if label(renamed.attribute) == *name => {
            let values = renamed.values.iter();
            let before = values.clone().find(|(_, sent)| sent == value);
            let value = before.map_or_else(|| value.clone(), |(of, _)| Cow::Borrowed(*of));
            (Cow::Borrowed(renamed.label), value)
        }
        _ => (name.clone(), value.clone()),
    });
    Some((row.metric.name, labels.collect()))
}

/// Name and labels in the catalogue.
type Own<'a> = (&'static str, Vec<(Cow<'a, str>, Cow<'a, str>)>);
