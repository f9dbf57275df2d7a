//! The deciding counter of an incident as JSON: columns, each number of the time at its place.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::clock::unix_seconds;
use crate::diagnose::curve::{Band, Curve as CoreCurve};
use crate::serve::phrases;

/// How an incident's deciding counter has gone.
#[derive(Debug, Serialize)]
pub(crate) struct Curve {
    part: String,
    metric: &'static str,
    labels: BTreeMap<&'static str, String>,
    /// `ratio` is a share; empty for a state. Of a counter, that of its rate.
    unit: String,
    onset: f64,
    /// What the value must not pass; absent where the rule has no such number.
    #[serde(skip_serializing_if = "Option::is_none")]
    threshold: Option<f64>,
    /// How many parts it is compared with.
    peers: usize,
    at: Vec<f64>,
    value: Vec<Option<f64>>,
    p10: Vec<Option<f64>>,
    median: Vec<Option<f64>>,
    p90: Vec<Option<f64>>,
}

impl Curve {
    pub(crate) fn of(curve: &CoreCurve) -> Self {
        let labels = curve.metric.labels.iter().zip(curve.labels.values());
        let points = &curve.points;
        let peers = |value: fn(&Band) -> f64| {
            let of = |peers: &Option<Band>| peers.as_ref().map(value).map(six_digits);
            points.iter().map(|point| of(&point.peers)).collect()
        };
        Self {
            part: curve.part.to_string(),
            metric: curve.metric.name,
            labels: labels
                .map(|(name, value)| (*name, value.to_owned()))
                .collect(),
            unit: phrases::measured(curve.metric).1,
            onset: unix_seconds(curve.onset),
            threshold: curve.limit.map(six_digits),
            peers: curve.peers,
            at: points.iter().map(|point| unix_seconds(point.at)).collect(),
            value: points
                .iter()
                .map(|point| point.own.map(six_digits))
                .collect(),
            p10: peers(|band| band.low),
            median: peers(|band| band.median),
            p90: peers(|band| band.high),
        }
    }
}

/// As many digits as the history keeps.
fn six_digits(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10_f64.powi(5 - value.abs().log10().floor() as i32);
    let rounded = (value * scale).round() / scale;
    if rounded.is_finite() { rounded } else { value }
}
