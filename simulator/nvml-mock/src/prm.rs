//! `nvmlDeviceReadPRMCounters_v1`: port registers of NVLinks, from Blackwell on.

use crate::ffi::{Code, Handle, code, store};
use crate::live::{Gpu, on_gpu};
use crate::nvlink::BLACKWELL;
use crate::state::LinkState;

/// `nvmlPRMCounter_v1_t` of the header in NVIDIA/DCGM 4.6, its nested structs drawn up. The union is kept as its
/// eight bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Counter {
    pub(crate) counter_id: u32,
    pub(crate) local_port: u32,
    pub(crate) status: Code,
    pub(crate) output_type: u32,
    pub(crate) output_value: u64,
}

/// `nvmlPRMCounterList_v1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CounterList {
    pub(crate) num_counters: u32,
    pub(crate) counters: *mut Counter,
}

/// `NVML_VALUE_TYPE_UNSIGNED_LONG_LONG`.
const UNSIGNED_LONG_LONG: u32 = 3;

/// Each counter carries its own return code.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceReadPRMCounters_v1(device: Handle, list: *mut CounterList) -> Code {
    on_gpu("nvmlDeviceReadPRMCounters_v1", device, |gpu| {
        if gpu.architecture < BLACKWELL {
            return Err(code::NOT_SUPPORTED);
        }
        if list.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, and then a complete list by NVML's contract.
        let CounterList {
            num_counters,
            counters,
        } = unsafe { list.read() };
        let count = usize::try_from(num_counters).map_err(|_| code::INVALID_ARGUMENT)?;
        if counters.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        for place in 0..count {
            // SAFETY: NVML's contract: `counters` has so many entries, whose ids and ports the caller has set.
            let counter = unsafe { counters.add(place).read() };
            // SAFETY: as above.
            unsafe { store(counters.add(place), answer(gpu, counter)) }?;
        }
        Ok(())
    })
}

fn answer(gpu: &Gpu, asked: Counter) -> Counter {
    // Ports are counted from 1.
    let link = asked
        .local_port
        .checked_sub(1)
        .ok_or(code::INVALID_ARGUMENT);
    let value = link
        .and_then(|link| gpu.link(link))
        .and_then(|link| value(link, asked.counter_id));
    Counter {
        status: value.err().unwrap_or(code::SUCCESS),
        output_type: UNSIGNED_LONG_LONG,
        output_value: value.unwrap_or(0),
        ..asked
    }
}

fn value(link: &LinkState, id: u32) -> Result<u64, Code> {
    match id {
        1 => Ok(link.prm_link_downs),
        2 => Ok(link.prm_physical_recoveries),
        101 => Ok(link.prm_recoveries),
        102 => Ok(link.prm_seconds_since_recovery),
        103 => Ok(link.prm_milliseconds_between_recoveries),
        201 => Ok(link.prm_transmit_wait),
        301..=307 => {
            let place = usize::try_from(id - 301).map_err(|_| code::INVALID_ARGUMENT)?;
            link.prm_plr
                .get(place)
                .copied()
                .ok_or(code::INVALID_ARGUMENT)
        }
        _ => Err(code::NOT_SUPPORTED),
    }
}
