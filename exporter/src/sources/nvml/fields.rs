//! What a GPU reports about itself by field values: one table from field to metric, read in two
//! calls.

use nvml_wrapper::Device;
use nvml_wrapper::sys_exports::field_id as fi;
use railscope_model::metric as m;
use railscope_model::metric::Metric;
use railscope_model::reading::{Labels, NodeReading, Value};
use railscope_model::units::{MILLIS, NANOS};

use super::calls::{Calls, Of};
use super::raw::{Field, Number};

/// How a field's number becomes a value.
type Convert = fn(u64) -> Value;
const SECONDS_OF_NANOSECONDS: Convert = |ns| Value::Float(ns as f64 / NANOS);
const WATTS_OF_MILLIWATTS: Convert = |mw| Value::Float(mw as f64 / MILLIS);
const COUNT: Convert = Value::Int;

/// One field of the GPU.
#[derive(Clone, Copy)]
struct Row {
    call: &'static str,
    of: Of,
    id: u32,
    scope: u32,
    metric: &'static Metric,
    /// Labels behind the GPU's own.
    labels: &'static [&'static str],
    convert: Convert,
    /// 0 on a healthy GPU, which is worth no series in the default profile.
    is_flag: bool,
}

/// A field that every GPU has.
const fn row(
    call: &'static str,
    id: u32,
    metric: &'static Metric,
    labels: &'static [&'static str],
    convert: Convert,
) -> Row {
    Row {
        call,
        of: Of::Gpu,
        id,
        scope: 0,
        metric,
        labels,
        convert,
        is_flag: false,
    }
}

/// A field that is 1 where the GPU has something to report.
const fn flag(call: &'static str, id: u32, metric: &'static Metric) -> Row {
    Row {
        is_flag: true,
        ..row(call, id, metric, &[], COUNT)
    }
}

/// A field that only some GPUs have.
const fn feature(row: Row) -> Row {
    Row {
        of: Of::Feature,
        ..row
    }
}

/// `NVML_POWER_SCOPE_MODULE` and `NVML_POWER_SCOPE_MEMORY`; 0 is the GPU.
const MODULE: u32 = 1;
const MEMORY: u32 = 2;

const fn power(call: &'static str, id: u32, scope: u32, labels: &'static [&'static str]) -> Row {
    Row {
        scope,
        ..feature(row(
            call,
            id,
            &m::GPU_POWER_SCOPE,
            labels,
            WATTS_OF_MILLIWATTS,
        ))
    }
}

const fn limit(call: &'static str, id: u32, labels: &'static [&'static str]) -> Row {
    feature(row(
        call,
        id,
        &m::GPU_POWER_LIMIT_RANGE,
        labels,
        WATTS_OF_MILLIWATTS,
    ))
}

const fn clock_event(call: &'static str, id: u32, labels: &'static [&'static str]) -> Row {
    row(
        call,
        id,
        &m::GPU_CLOCK_EVENT_SECONDS,
        labels,
        SECONDS_OF_NANOSECONDS,
    )
}

const fn pcie(call: &'static str, id: u32, labels: &'static [&'static str]) -> Row {
    feature(row(call, id, &m::GPU_PCIE_ERRORS, labels, COUNT))
}

const STATE: &[Row] = &[
    clock_event(
        "power_cap_time",
        fi::NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP,
        &["sw_power_cap"],
    ),
    clock_event(
        "sync_boost_time",
        fi::NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST,
        &["sync_boost"],
    ),
    clock_event(
        "sw_thermal_time",
        fi::NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
        &["sw_thermal"],
    ),
    clock_event(
        "hw_thermal_time",
        fi::NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
        &["hw_thermal"],
    ),
    clock_event(
        "power_brake_time",
        fi::NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
        &["hw_power_brake"],
    ),
    row(
        "memory_temperature",
        fi::NVML_FI_DEV_MEMORY_TEMP,
        &m::GPU_TEMPERATURE,
        &["memory"],
        COUNT,
    ),
    feature(row(
        "row_remaps_correctable",
        fi::NVML_FI_DEV_REMAPPED_COR,
        &m::GPU_ROW_REMAPS,
        &["correctable"],
        COUNT,
    )),
    feature(row(
        "row_remaps_uncorrectable",
        fi::NVML_FI_DEV_REMAPPED_UNC,
        &m::GPU_ROW_REMAPS,
        &["uncorrectable"],
        COUNT,
    )),
    flag(
        "row_remap_pending",
        fi::NVML_FI_DEV_REMAPPED_PENDING,
        &m::GPU_ROW_REMAP_PENDING,
    ),
    flag(
        "row_remap_failed",
        fi::NVML_FI_DEV_REMAPPED_FAILURE,
        &m::GPU_ROW_REMAP_FAILED,
    ),
    feature(row(
        "recovery_action",
        fi::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
        &m::GPU_RECOVERY_ACTION,
        &[],
        COUNT,
    )),
    power(
        "power_instant",
        fi::NVML_FI_DEV_POWER_INSTANT,
        0,
        &["gpu", "instant"],
    ),
    power(
        "power_memory",
        fi::NVML_FI_DEV_POWER_AVERAGE,
        MEMORY,
        &["memory", "average"],
    ),
    power(
        "power_module",
        fi::NVML_FI_DEV_POWER_AVERAGE,
        MODULE,
        &["module", "average"],
    ),
    power(
        "power_module_instant",
        fi::NVML_FI_DEV_POWER_INSTANT,
        MODULE,
        &["module", "instant"],
    ),
    limit("power_limit_min", fi::NVML_FI_DEV_POWER_MIN_LIMIT, &["min"]),
    limit("power_limit_max", fi::NVML_FI_DEV_POWER_MAX_LIMIT, &["max"]),
    limit(
        "power_limit_default",
        fi::NVML_FI_DEV_POWER_DEFAULT_LIMIT,
        &["default"],
    ),
    limit(
        "power_limit_requested",
        fi::NVML_FI_DEV_POWER_REQUESTED_LIMIT,
        &["requested"],
    ),
];

const PCIE: &[Row] = &[
    pcie(
        "pcie_replay_rollovers",
        fi::NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER,
        &["replay_rollover"],
    ),
    pcie(
        "pcie_l0_to_recovery",
        fi::NVML_FI_DEV_PCIE_L0_TO_RECOVERY_COUNTER,
        &["l0_to_recovery"],
    ),
    pcie(
        "pcie_correctable",
        fi::NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS,
        &["correctable"],
    ),
    pcie(
        "pcie_naks_received",
        fi::NVML_FI_DEV_PCIE_COUNT_NAKS_RECEIVED,
        &["nak_received"],
    ),
    pcie(
        "pcie_naks_sent",
        fi::NVML_FI_DEV_PCIE_COUNT_NAKS_SENT,
        &["nak_sent"],
    ),
    pcie(
        "pcie_receiver",
        fi::NVML_FI_DEV_PCIE_COUNT_RECEIVER_ERROR,
        &["receiver"],
    ),
    pcie(
        "pcie_bad_tlp",
        fi::NVML_FI_DEV_PCIE_COUNT_BAD_TLP,
        &["bad_tlp"],
    ),
    pcie(
        "pcie_bad_dllp",
        fi::NVML_FI_DEV_PCIE_COUNT_BAD_DLLP,
        &["bad_dllp"],
    ),
    pcie(
        "pcie_non_fatal",
        fi::NVML_FI_DEV_PCIE_COUNT_NON_FATAL_ERROR,
        &["non_fatal"],
    ),
    pcie(
        "pcie_fatal",
        fi::NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR,
        &["fatal"],
    ),
    pcie(
        "pcie_unsupported_requests",
        fi::NVML_FI_DEV_PCIE_COUNT_UNSUPPORTED_REQ,
        &["unsupported_request"],
    ),
    pcie(
        "pcie_lcrc",
        fi::NVML_FI_DEV_PCIE_COUNT_LCRC_ERROR,
        &["lcrc"],
    ),
];

/// Lanes of the widest PCIe link.
const LANES: u32 = 16;

/// Adds clock event times, memory rows, power and PCIe errors.
pub(super) fn sample(
    device: &Device<'_>,
    gpu: &Labels,
    calls: &mut Calls,
    reading: &mut NodeReading,
) {
    for (section, rows) in [("state_fields", STATE), ("pcie_errors", PCIE)] {
        calls.section(section);
        let wanted: Vec<_> = rows
            .iter()
            .map(|row| {
                let (id, scope) = (row.id, row.scope);
                ((row.call, row.of), Field { id, scope })
            })
            .collect();
        for (row, number) in rows.iter().zip(calls.fields(device, &wanted)) {
            let Some(number) = number else { continue };
            let Some(count) = number.count() else {
                calls.count_failure();
                continue;
            };
            let labels = row
                .labels
                .iter()
                .fold(gpu.clone(), |all, one| all.with(one));
            if row.is_flag {
                reading.push_flag(row.metric, &labels, count != 0);
            } else {
                reading.push(row.metric, &labels, (row.convert)(count));
            }
        }
    }
    let lanes: Vec<_> = (0..LANES)
        .map(|scope| {
            let id = fi::NVML_FI_DEV_PCIE_COUNT_LANE_ERROR;
            (("pcie_lane_errors", Of::Link(scope)), Field { id, scope })
        })
        .collect();
    for (lane, number) in calls.fields(device, &lanes).into_iter().enumerate() {
        if let Some(errors) = number.and_then(Number::count) {
            reading.push(&m::GPU_PCIE_LANE_ERRORS, &gpu.with(lane), errors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_fields_share_a_name_or_a_series() {
        let all: Vec<_> = STATE.iter().chain(PCIE).collect();
        for (place, row) in all.iter().enumerate() {
            for other in &all[..place] {
                assert_ne!(row.call, other.call);
                let series = |row: &Row| (row.metric.name, row.labels);
                assert_ne!(series(row), series(other));
                assert_ne!((row.id, row.scope), (other.id, other.scope));
            }
            assert_eq!(
                row.metric.labels.len(),
                row.labels.len() + 1,
                "{}",
                row.call
            );
        }
    }
}
