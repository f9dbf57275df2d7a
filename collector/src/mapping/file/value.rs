//! The rules of a mapping's row for its value: where it comes from, and how several become one.

use std::collections::BTreeMap;

use railscope_model::metric::{Kind, Metric};

use super::{RawPattern, RawRow, Wrong, whole};
use crate::mapping::rows::{Combine, ValueRule};

/// The rule for the value of a row.
pub(super) fn check_value(raw: &RawRow, at: &impl Fn(&str) -> String) -> Result<ValueRule, Wrong> {
    let rules = [
        raw.equals.as_ref().map(|number| {
            (
                number.span(),
                "equals",
                Ok(ValueRule::Equals(*number.get_ref())),
            )
        }),
        raw.bit.as_ref().map(|bit| {
            let rule = match bit.get_ref() {
                0..=52 => Ok(ValueRule::Bit(*bit.get_ref())),
                bit => Err(format!(
                    "{bit}: expected 0 to 52, the bits that a value holds exactly"
                )),
            };
            (bit.span(), "bit", rule)
        }),
        raw.numbers
            .as_ref()
            .map(|rule| (rule.span(), "numbers", numbers(rule.get_ref()))),
        raw.in_label
            .as_ref()
            .map(|rule| (rule.span(), "in_label", in_label(rule.get_ref()))),
        raw.label_is
            .as_ref()
            .map(|rule| (rule.span(), "label_is", label_is(rule.get_ref()))),
    ];
    let mut chosen = ValueRule::AsIs;
    for (seen, (span, name, rule)) in rules.into_iter().flatten().enumerate() {
        let rule = if seen == 0 {
            rule
        } else {
            Err(String::from(
                "a second rule for the value: expected one of equals, bit, numbers, in_label, label_is",
            ))
        };
        chosen = rule.map_err(|message| Wrong::new(span, at(name), message))?;
    }
    Ok(chosen)
}

fn numbers(raw: &BTreeMap<String, f64>) -> Result<ValueRule, String> {
    let number = |(from, to): (&String, &f64)| match from.parse() {
        Ok(from) => Ok((from, *to)),
        Err(_) => Err(format!("{from:?}: expected a number in front of each =")),
    };
    Ok(ValueRule::Numbers(
        raw.iter().map(number).collect::<Result<_, _>>()?,
    ))
}

fn in_label(raw: &RawPattern) -> Result<ValueRule, String> {
    let regex = whole(&raw.regex)?;
    if regex.captures_len() < 2 {
        return Err(format!(
            "{:?} has no group: expected one around the number",
            raw.regex
        ));
    }
    Ok(ValueRule::InLabel {
        label: raw.label.clone(),
        regex,
    })
}

fn label_is(raw: &RawPattern) -> Result<ValueRule, String> {
    Ok(ValueRule::LabelIs {
        label: raw.label.clone(),
        regex: whole(&raw.regex)?,
    })
}

/// How values that fall on one series of ours become one.
pub(super) fn check_combine(raw: &RawRow, at: &impl Fn(&str) -> String) -> Result<Combine, Wrong> {
    let rules = [
        ("sum", &raw.sum, Combine::Sum),
        ("max", &raw.max, Combine::Max),
        ("min", &raw.min, Combine::Min),
    ];
    let mut chosen = Combine::First;
    for (name, is_set, rule) in rules {
        let Some(is_set) = is_set.as_ref().filter(|is_set| *is_set.get_ref()) else {
            continue;
        };
        if chosen != Combine::First {
            let message = "a second rule for several values: expected one of sum, max, min";
            return Err(Wrong::new(is_set.span(), at(name), message));
        }
        chosen = rule;
    }
    Ok(chosen)
}

/// The value of a series that is no longer exported.
pub(super) fn check_absent(
    raw: &RawRow,
    to: &'static Metric,
    at: &impl Fn(&str) -> String,
) -> Result<Option<f64>, Wrong> {
    let Some(absent) = &raw.absent else {
        return Ok(None);
    };
    if to.kind != Kind::Gauge {
        let message = format!("{} is no gauge: what is absent has no value", to.name);
        return Err(Wrong::new(absent.span(), at("absent"), message));
    }
    Ok(Some(*absent.get_ref()))
}
