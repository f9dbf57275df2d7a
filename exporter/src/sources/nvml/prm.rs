//! What the NVLinks of one GPU count in their port registers (PRM): waiting, going down, recovering, retransmitting.

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use railscope_model::metric as m;
use railscope_model::metric::Metric;
use railscope_model::reading::{Labels, Value};
use railscope_model::units::MILLIS;

use super::calls::{Call, Calls, Of};
use super::newer::prm_counters;
use super::raw::Number;

/// One counter: `nvmlPRMCounterId_t`, metric, label behind the link's, and how its number becomes the value.
type Row = (u32, &'static Metric, Option<&'static str>, fn(u64) -> Value);
const COUNT: fn(u64) -> Value = Value::Int;
/// DCGM 4.6 reports seconds of the first time (its field 581) and milliseconds of the second (582).
const SECONDS: fn(u64) -> Value = Value::Int;
const SECONDS_OF_MILLISECONDS: fn(u64) -> Value = |ms| Value::Float(ms as f64 / MILLIS);

const ROWS: [Row; 13] = [
    (1, &m::NVLINK_LINK_DOWNS, None, COUNT),
    (2, &m::NVLINK_RECOVERIES, Some("physical"), COUNT),
    (RECOVERIES, &m::NVLINK_RECOVERIES, Some("total"), COUNT),
    (102, &m::NVLINK_RECOVERY_AGE, None, SECONDS),
    (
        103,
        &m::NVLINK_RECOVERY_INTERVAL,
        None,
        SECONDS_OF_MILLISECONDS,
    ),
    (201, &m::NVLINK_TRANSMIT_WAIT, None, COUNT),
    (301, &m::NVLINK_PLR_CODES, Some("received"), COUNT),
    (302, &m::NVLINK_PLR_CODES, Some("received_error"), COUNT),
    (
        303,
        &m::NVLINK_PLR_CODES,
        Some("received_uncorrectable"),
        COUNT,
    ),
    (304, &m::NVLINK_PLR_CODES, Some("transmitted"), COUNT),
    (305, &m::NVLINK_PLR_CODES, Some("retransmitted"), COUNT),
    (306, &m::NVLINK_PLR_EVENTS, Some("retry"), COUNT),
    (307, &m::NVLINK_PLR_EVENTS, Some("sync"), COUNT),
];
/// Successful recoveries in all. Before the first there is no time since it, and before the second none between.
const RECOVERIES: u32 = 101;
const AFTER_RECOVERIES: [(u32, u64); 2] = [(102, 1), (103, 2)];
/// PRM counts ports from 1, NVML links from 0: so DCGM 4.6 requests all of these but 201, for which its users
/// name the port themselves. Not seen on hardware yet.
const FIRST_PORT: u32 = 1;

const CALL: Call = ("nvlink_prm", Of::Feature);

/// Adds what these links count, all in one call. A driver that has none of it (before Blackwell, or without
/// permission) is not tried again soon.
pub(super) fn read(
    device: &Device<'_>,
    links: &[(u32, Labels)],
    calls: &mut Calls,
    held: &mut Vec<(&'static Metric, Labels, Value)>,
) {
    if links.is_empty() {
        return;
    }
    let ports = links.iter().map(|(link, _)| link + FIRST_PORT);
    let wanted: Vec<_> = ports
        .flat_map(|port| ROWS.map(|(id, ..)| (id, port)))
        .collect();
    let answers = calls.ask(CALL, || all_or_why(prm_counters(device, &wanted)?));
    for ((_, labels), answers) in links
        .iter()
        .zip(answers.iter().flat_map(|all| all.chunks(ROWS.len())))
    {
        push(answers, labels, held);
    }
}

/// The replies; the first error where there are only errors.
fn all_or_why(answers: Vec<Result<Number, NvmlError>>) -> Result<Vec<Option<u64>>, NvmlError> {
    let mut why = None;
    let counts: Vec<_> = answers
        .into_iter()
        .map(|answer| match answer {
            Ok(number) => number.count(),
            Err(error) => {
                why.get_or_insert(error);
                None
            }
        })
        .collect();
    match why {
        Some(why) if counts.iter().all(Option::is_none) => Err(why),
        _ => Ok(counts),
    }
}

/// Adds the counters of one link.
fn push(counts: &[Option<u64>], link: &Labels, held: &mut Vec<(&'static Metric, Labels, Value)>) {
    let rows = || ROWS.iter().zip(counts);
    let recoveries = rows().find_map(|((id, ..), count)| count.filter(|_| *id == RECOVERIES));
    for ((id, metric, label, convert), count) in rows() {
        let needs = AFTER_RECOVERIES.iter().find(|(row, _)| row == id);
        let tells = needs.is_none_or(|(_, least)| recoveries >= Some(*least));
        if let (Some(count), true) = (count, tells) {
            let labels = label.map_or_else(|| link.clone(), |label| link.with(label));
            held.push((metric, labels, convert(*count)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Metrics and values of a link's replies.
    fn told(recoveries: Option<u64>) -> Vec<(&'static str, f64)> {
        let counts = ROWS.map(|(id, ..)| match id {
            RECOVERIES => recoveries,
            102 => Some(7),
            103 => Some(1500),
            _ => None,
        });
        let mut held = Vec::new();
        push(&counts, &Labels::new(["0", "1"]), &mut held);
        held.iter()
            .map(|(metric, _, value)| (metric.name, value.as_f64()))
            .collect()
    }

    #[test]
    fn there_is_no_time_since_a_recovery_that_never_was() {
        let count = "railscope_nvlink_successful_recoveries_total";
        let age = ("railscope_nvlink_last_recovery_age_seconds", 7.0);
        let interval = ("railscope_nvlink_recovery_interval_seconds", 1.5);
        assert_eq!(told(None), []);
        assert_eq!(told(Some(0)), [(count, 0.0)]);
        assert_eq!(told(Some(1)), [(count, 1.0), age]);
        assert_eq!(told(Some(2)), [(count, 2.0), age, interval]);
    }

    #[test]
    fn errors_of_single_counters_cost_those_and_errors_of_all_are_the_calls_own() {
        let refused = || Err(NvmlError::NoPermission);
        let some = all_or_why(vec![refused(), Ok(Number::Unsigned(5))]);
        assert_eq!(some.ok(), Some(vec![None, Some(5)]));
        let none = all_or_why(vec![refused(), Err(NvmlError::Unknown)]);
        assert!(matches!(none, Err(NvmlError::NoPermission)));
    }

    #[test]
    fn no_two_counters_share_a_series() {
        for (place, (id, metric, label, _)) in ROWS.iter().enumerate() {
            assert_eq!(
                metric.labels.len(),
                2 + usize::from(label.is_some()),
                "{id}"
            );
            for (other, other_metric, other_label, _) in &ROWS[..place] {
                assert_ne!(id, other);
                assert_ne!((metric.name, label), (other_metric.name, other_label));
            }
        }
    }
}
