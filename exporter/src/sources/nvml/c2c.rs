//! The chip-to-chip links between a GPU and its Grace CPU.

use nvml_wrapper::Device;
use nvml_wrapper::sys_exports::field_id as fi;
use railscope_model::metric as m;
use railscope_model::reading::{Labels, NodeReading};
use railscope_model::units::BYTES_PER_MEGABYTE;

use super::calls::{Calls, Of};
use super::raw::{Field, Number};
use super::traffic::{Row, read};

/// More links than any product has: a larger count is invalid.
const MOST_LINKS: u64 = 64;

const ROWS: [Row; 2] = [
    Row {
        call: "c2c_state",
        field: fi::NVML_FI_DEV_C2C_LINK_GET_STATUS,
        metric: &m::C2C_UP,
        factor: 1,
    },
    Row {
        call: "c2c_speed",
        field: fi::NVML_FI_DEV_C2C_LINK_GET_MAX_BW,
        metric: &m::C2C_SPEED,
        factor: BYTES_PER_MEGABYTE,
    },
];

const fn error(call: &'static str, field: u32) -> Row {
    Row {
        call,
        field,
        metric: &m::C2C_ERRORS,
        factor: 1,
    }
}
const ERRORS: [Row; 3] = [
    error("c2c_interrupts", fi::NVML_FI_DEV_C2C_LINK_ERROR_INTR),
    error("c2c_replays", fi::NVML_FI_DEV_C2C_LINK_ERROR_REPLAY),
    error("c2c_replays_b2b", fi::NVML_FI_DEV_C2C_LINK_ERROR_REPLAY_B2B),
];
const KINDS: [&str; 3] = ["interrupt", "replay", "replay_back_to_back"];

/// Adds state, speed and errors of each link. A GPU without a Grace CPU adds nothing.
pub(super) fn sample(
    device: &Device<'_>,
    gpu: &Labels,
    calls: &mut Calls,
    reading: &mut NodeReading,
) {
    calls.section("c2c");
    let count = (
        ("c2c_links", Of::Feature),
        Field {
            id: fi::NVML_FI_DEV_C2C_LINK_COUNT,
            scope: 0,
        },
    );
    let count = calls.fields(device, &[count]).pop().flatten();
    let links: Vec<_> = match count.and_then(Number::count) {
        None | Some(0) => return,
        Some(count) if count > MOST_LINKS => return calls.count_failure(),
        Some(count) => (0..count as u32)
            .map(|link| (link, gpu.with(link)))
            .collect(),
    };
    for (row, link, value) in read(device, &ROWS, &links, calls) {
        let row = &ROWS[row];
        reading.push(row.metric, &links[link].1, value.saturating_mul(row.factor));
    }
    for (row, link, errors) in read(device, &ERRORS, &links, calls) {
        reading.push(&m::C2C_ERRORS, &links[link].1.with(KINDS[row]), errors);
    }
}
