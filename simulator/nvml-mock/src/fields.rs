//! `nvmlDeviceGetFieldValues`: one table from field id to value, value type and scope.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::ffi::{Code, FieldValue, Handle, code, store};
use crate::live::{Gpu, field_failure, on_gpu, spoiled_call};
use crate::memory::total;
use crate::nvlink::BLACKWELL;
use crate::power::thermal_nanoseconds;
use crate::state::{LinkState, NodeGpus};
use crate::temperature::limit_margin;

/// A value with its `nvmlValueType_t`. Types are those that public readers of the fields expect; where they are not
/// known from hardware, counters are `ull` and the rest `ui`.
enum Value {
    UnsignedInt(u32),
    UnsignedLongLong(u64),
    SignedInt(i32),
}
use Value::{SignedInt, UnsignedInt, UnsignedLongLong};

type Answer = Result<Value, Code>;

/// Reads one field of a GPU in a scope: a link, a lane, or 0 for the GPU and 1 for the module.
type Read = fn(&Gpu, u32) -> Answer;

/// The scope of 138 to 141 that requests the sum of all links.
const ALL_LINKS: u32 = u32::MAX;

/// FEC bins 0 to 15 have consecutive ids.
const FEC_HISTORY: std::ops::RangeInclusive<u32> = 235..=250;

/// The largest id that a driver supports; larger ones are a wrong argument, unlisted smaller ones not supported.
const LARGEST_ID: u32 = 273;

/// Ids in the numbering of drivers from 580.82 on.
const FIELDS: &[(u32, Read)] = &[
    (1, |gpu, _| Ok(UnsignedInt(gpu.ecc_mode.into()))),
    (2, |gpu, _| Ok(UnsignedInt(gpu.ecc_mode_pending.into()))),
    (3, |gpu, _| total(gpu, 0, 0).map(UnsignedLongLong)),
    (4, |gpu, _| total(gpu, 1, 0).map(UnsignedLongLong)),
    (5, |gpu, _| total(gpu, 0, 1).map(UnsignedLongLong)),
    (6, |gpu, _| total(gpu, 1, 1).map(UnsignedLongLong)),
    (31, |gpu, _| retired_pending(gpu)),
    (74, |gpu, _| {
        Ok(UnsignedLongLong(gpu.sw_power_cap_nanoseconds))
    }),
    (75, |gpu, _| Ok(UnsignedLongLong(thermal_nanoseconds(gpu)))),
    (76, |gpu, _| {
        Ok(UnsignedLongLong(gpu.sync_boost_nanoseconds))
    }),
    (82, |gpu, _| Ok(UnsignedInt(gpu.memory_temperature_celsius))),
    (83, |gpu, _| Ok(UnsignedLongLong(gpu.energy_millijoules))),
    (90, |gpu, _| {
        gpu.link(0)
            .map(|link| UnsignedInt(link.speed_megabytes_per_second))
    }),
    (91, |gpu, _| count_links(gpu, |_| true)),
    (92, |gpu, _| retired_pending(gpu)),
    (93, |gpu, _| retired_pending(gpu)),
    (94, |gpu, _| Ok(UnsignedInt(gpu.pcie_replays))),
    (95, |gpu, _| Ok(UnsignedInt(gpu.pcie_replay_rollovers))),
    (138, |gpu, scope| {
        throughput(gpu, scope, |link| link.data_transmit_kibibytes)
    }),
    (139, |gpu, scope| {
        throughput(gpu, scope, |link| link.data_receive_kibibytes)
    }),
    (140, |gpu, scope| {
        throughput(gpu, scope, |link| link.raw_transmit_kibibytes)
    }),
    (141, |gpu, scope| {
        throughput(gpu, scope, |link| link.raw_receive_kibibytes)
    }),
    (142, |gpu, _| Ok(UnsignedInt(gpu.remapped_rows_correctable))),
    (143, |gpu, _| {
        Ok(UnsignedInt(gpu.remapped_rows_uncorrectable))
    }),
    (144, |gpu, _| {
        Ok(UnsignedInt(gpu.remapped_rows_pending.into()))
    }),
    (145, |gpu, _| {
        Ok(UnsignedInt(gpu.remapped_rows_failed.into()))
    }),
    (146, |gpu, scope| {
        gpu.link(scope).map(|link| UnsignedInt(link.remote_link))
    }),
    (147, |gpu, _| count_links(gpu, |link| link.remote_type == 2)),
    (161, |gpu, scope| {
        before_nvlink5(gpu, scope, |link| link.replay_errors)
    }),
    (162, |gpu, scope| {
        before_nvlink5(gpu, scope, |link| link.recovery_errors)
    }),
    (163, |gpu, scope| {
        counter(gpu, scope, |link| {
            link.crc_flit_errors.saturating_add(link.crc_data_errors)
        })
    }),
    (164, |gpu, scope| {
        gpu.link(scope)
            .map(|link| UnsignedInt(link.speed_megabytes_per_second))
    }),
    (165, |gpu, scope| {
        gpu.link(scope).map(|link| UnsignedInt(link.state))
    }),
    (166, |gpu, scope| {
        gpu.link(scope).map(|link| UnsignedInt(link.version))
    }),
    (169, |gpu, _| Ok(UnsignedInt(gpu.pcie_l0_to_recovery))),
    (170, |gpu, _| Ok(UnsignedInt(gpu.c2c_links))),
    (171, |gpu, link| c2c(gpu, link, 1)),
    (172, |gpu, link| {
        c2c(gpu, link, gpu.c2c_speed_megabytes_per_second)
    }),
    (173, |gpu, _| Ok(UnsignedInt(gpu.pcie_correctable_errors))),
    (174, |gpu, _| Ok(UnsignedInt(gpu.pcie_naks_received))),
    (175, |gpu, _| Ok(UnsignedInt(gpu.pcie_receiver_errors))),
    (176, |gpu, _| Ok(UnsignedInt(gpu.pcie_bad_tlp))),
    (177, |gpu, _| Ok(UnsignedInt(gpu.pcie_naks_sent))),
    (178, |gpu, _| Ok(UnsignedInt(gpu.pcie_bad_dllp))),
    (179, |gpu, _| Ok(UnsignedInt(gpu.pcie_non_fatal_errors))),
    (180, |gpu, _| Ok(UnsignedInt(gpu.pcie_fatal_errors))),
    (181, |gpu, _| Ok(UnsignedInt(gpu.pcie_unsupported_requests))),
    (182, |gpu, _| Ok(UnsignedInt(gpu.pcie_lcrc_errors))),
    (183, |gpu, lane| {
        element(&gpu.pcie_lane_errors, lane).map(UnsignedInt)
    }),
    (185, |gpu, scope| match scope {
        2 => gpu
            .memory_power_milliwatts
            .map(UnsignedInt)
            .ok_or(code::NOT_SUPPORTED),
        _ => gpu_or_module(scope, gpu.power_milliwatts, gpu.module_power_milliwatts),
    }),
    (186, |gpu, scope| {
        gpu_or_module(
            scope,
            gpu.power_instant_milliwatts,
            gpu.module_power_milliwatts,
        )
    }),
    (187, |gpu, scope| {
        gpu_or_module(scope, gpu.power_limit_min_milliwatts, None)
    }),
    (188, |gpu, scope| {
        gpu_or_module(scope, gpu.power_limit_max_milliwatts, None)
    }),
    (189, |gpu, scope| {
        gpu_or_module(scope, gpu.power_limit_default_milliwatts, None)
    }),
    (190, |gpu, scope| {
        gpu_or_module(scope, gpu.power_limit_enforced_milliwatts, None)
    }),
    (191, |gpu, _| Ok(UnsignedLongLong(gpu.energy_millijoules))),
    (192, |gpu, scope| {
        gpu_or_module(scope, gpu.power_limit_milliwatts, None)
    }),
    (193, |gpu, _| {
        Ok(SignedInt(limit_margin(
            gpu,
            gpu.temperature_shutdown_celsius,
        )))
    }),
    (194, |gpu, _| {
        Ok(SignedInt(limit_margin(
            gpu,
            gpu.temperature_slowdown_celsius,
        )))
    }),
    (195, |_gpu, _| Ok(SignedInt(0))),
    (196, |_gpu, _| Ok(SignedInt(0))),
    (197, |gpu, _| Ok(UnsignedLongLong(gpu.pcie_transmit_bytes))),
    (198, |gpu, _| Ok(UnsignedLongLong(gpu.pcie_receive_bytes))),
    (201, |gpu, scope| {
        nvlink5(gpu, scope, |link| link.transmit_packets)
    }),
    (202, |gpu, scope| {
        nvlink5(gpu, scope, |link| link.transmit_bytes)
    }),
    (203, |gpu, scope| {
        nvlink5(gpu, scope, |link| link.receive_packets)
    }),
    (204, |gpu, scope| {
        nvlink5(gpu, scope, |link| link.receive_bytes)
    }),
    (206, |gpu, scope| {
        nvlink5(gpu, scope, |link| link.malformed_packet_errors)
    }),
    (207, |gpu, scope| {
        nvlink5(gpu, scope, |link| link.buffer_overrun_errors)
    }),
    (208, |gpu, scope| {
        nvlink5(gpu, scope, |link| link.receive_errors)
    }),
    (209, |gpu, scope| {
        nvlink5(gpu, scope, |link| link.receive_remote_errors)
    }),
    (210, |gpu, scope| {
        nvlink5(gpu, scope, |link| link.receive_general_errors)
    }),
    (211, |gpu, scope| {
        nvlink5(gpu, scope, |link| link.local_integrity_errors)
    }),
    (212, |gpu, scope| {
        nvlink5(gpu, scope, |link| link.transmit_discards)
    }),
    (213, |gpu, scope| {
        nvlink5(gpu, scope, |link| link.recoveries_successful)
    }),
    (214, |gpu, scope| {
        nvlink5(gpu, scope, |link| link.recoveries_failed)
    }),
    (215, |gpu, scope| {
        nvlink5(gpu, scope, |link| link.recoveries)
    }),
    (221, |gpu, scope| {
        nvlink5(gpu, scope, |link| link.symbol_errors)
    }),
    (222, |gpu, scope| {
        nvlink5(gpu, scope, |link| link.symbol_ber_packed)
    }),
    (230, |gpu, _| Ok(UnsignedInt(gpu.recovery_action))),
    (231, |gpu, link| c2c(gpu, link, 0)),
    (232, |gpu, link| c2c(gpu, link, gpu.c2c_replays)),
    (233, |gpu, link| c2c(gpu, link, 0)),
    (269, |gpu, _| {
        Ok(UnsignedLongLong(gpu.sw_thermal_nanoseconds))
    }),
    (270, |gpu, _| {
        Ok(UnsignedLongLong(gpu.hw_thermal_nanoseconds))
    }),
    (271, |gpu, _| {
        Ok(UnsignedLongLong(gpu.hw_power_brake_nanoseconds))
    }),
];

/// The call succeeds even if every field in it fails: each carries its own return code.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetFieldValues(
    device: Handle,
    count: i32,
    values: *mut FieldValue,
) -> Code {
    on_gpu("nvmlDeviceGetFieldValues", device, |gpu| {
        let count = usize::try_from(count)
            .ok()
            .filter(|&count| count > 0)
            .ok_or(code::INVALID_ARGUMENT)?;
        if values.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        for slot in 0..count {
            // SAFETY: NVML's contract: `values` has `count` entries, whose ids the caller has set.
            let field_id = unsafe { (*values.add(slot)).field_id };
            if let (true, Some(code)) = (count > 1, spoiled_call(gpu, field_id)) {
                return Err(code);
            }
        }
        for slot in 0..count {
            // SAFETY: NVML's contract: `values` has `count` entries, whose ids and scopes the caller has set.
            let (field_id, scope_id) =
                unsafe { ((*values.add(slot)).field_id, (*values.add(slot)).scope_id) };
            // SAFETY: as above.
            unsafe { store(values.add(slot), answer_field(gpu, field_id, scope_id)) }?;
        }
        Ok(())
    })
}

fn answer_field(gpu: &Gpu, field_id: u32, scope_id: u32) -> FieldValue {
    let answer = field_failure(gpu, field_id).map_or_else(|| read(gpu, field_id, scope_id), Err);
    let (nvml_return, value_type, value) = match answer {
        Ok(UnsignedInt(value)) => (code::SUCCESS, 1, low_bytes(value.to_ne_bytes())),
        Ok(UnsignedLongLong(value)) => (code::SUCCESS, 3, value),
        Ok(SignedInt(value)) => (code::SUCCESS, 5, low_bytes(value.to_ne_bytes())),
        Err(code) => (code, 0, 0),
    };
    FieldValue {
        field_id,
        scope_id,
        timestamp: microseconds_since_epoch(),
        latency_usec: gpu
            .field_latency_microseconds
            .try_into()
            .unwrap_or(i64::MAX),
        value_type,
        nvml_return,
        value,
    }
}

/// The first bytes of the eight are where a union keeps a shorter member, whatever the byte order.
pub(crate) fn low_bytes([a, b, c, d]: [u8; 4]) -> u64 {
    u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0])
}

fn read(gpu: &Gpu, field_id: u32, scope: u32) -> Answer {
    let id = second_numbering(&gpu.node, field_id);
    if FEC_HISTORY.contains(&id) {
        let bin = id - FEC_HISTORY.start();
        return nvlink5(gpu, scope, |link| {
            element(&link.fec_history, bin).unwrap_or(0)
        });
    }
    match FIELDS.iter().find(|(known, _)| *known == id) {
        Some((_, read)) => read(gpu, scope),
        None if (1..=LARGEST_ID).contains(&id) => Err(code::NOT_SUPPORTED),
        None => Err(code::INVALID_ARGUMENT),
    }
}

/// Drivers before 580.82 had the clock event reasons at 251 to 255, in front of power smoothing.
fn second_numbering(node: &NodeGpus, id: u32) -> u32 {
    let mut parts = node.driver.split('.').map(|part| part.parse().unwrap_or(0));
    let version: (u32, u32) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    match id {
        251..=255 if version < (580, 82) => id + 18,
        256..=273 if version < (580, 82) => id - 5,
        _ => id,
    }
}

fn counter(gpu: &Gpu, scope: u32, value: fn(&LinkState) -> u64) -> Answer {
    gpu.link(scope).map(|link| UnsignedLongLong(value(link)))
}

fn throughput(gpu: &Gpu, scope: u32, value: fn(&LinkState) -> u64) -> Answer {
    if scope == ALL_LINKS {
        return Ok(UnsignedLongLong(
            gpu.links.iter().map(value).fold(0, u64::saturating_add),
        ));
    }
    counter(gpu, scope, value)
}

fn nvlink5(gpu: &Gpu, scope: u32, value: impl FnOnce(&LinkState) -> u64) -> Answer {
    if gpu.architecture < BLACKWELL {
        return Err(code::NOT_SUPPORTED);
    }
    gpu.link(scope).map(|link| UnsignedLongLong(value(link)))
}

fn before_nvlink5(gpu: &Gpu, scope: u32, value: fn(&LinkState) -> u64) -> Answer {
    if gpu.architecture >= BLACKWELL {
        Err(code::NOT_SUPPORTED)
    } else {
        counter(gpu, scope, value)
    }
}

fn count_links(gpu: &Gpu, counts: fn(&&LinkState) -> bool) -> Answer {
    let links = gpu.links.iter().filter(counts).count();
    u32::try_from(links)
        .map(UnsignedInt)
        .map_err(|_| code::INVALID_ARGUMENT)
}

fn gpu_or_module(scope: u32, gpu: u32, module: Option<u32>) -> Answer {
    match scope {
        0 => Ok(UnsignedInt(gpu)),
        1 => module.map(UnsignedInt).ok_or(code::NOT_SUPPORTED),
        _ => Err(code::INVALID_ARGUMENT),
    }
}

fn c2c(gpu: &Gpu, link: u32, value: u32) -> Answer {
    if link < gpu.c2c_links {
        Ok(UnsignedInt(value))
    } else {
        Err(code::INVALID_ARGUMENT)
    }
}

fn retired_pending(gpu: &Gpu) -> Answer {
    gpu.retired_pages_pending
        .map(|pending| UnsignedInt(pending.into()))
        .ok_or(code::NOT_SUPPORTED)
}

fn element<T: Copy>(values: &[T], index: u32) -> Result<T, Code> {
    usize::try_from(index)
        .ok()
        .and_then(|index| values.get(index))
        .copied()
        .ok_or(code::INVALID_ARGUMENT)
}

pub(crate) fn microseconds_since_epoch() -> i64 {
    #[allow(
        clippy::disallowed_methods,
        reason = "the real driver stamps each value with its own clock"
    )]
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    now.as_micros().try_into().unwrap_or(i64::MAX)
}
