//! Event sets: a client registers GPUs and waits; each event line of the state file is delivered once per set.

use std::collections::{BTreeMap, HashSet};
use std::ptr::without_provenance_mut;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::ffi::{Code, EventData, Handle, code, device_handle, store};
use crate::live::{Gpu, answer, lock, on_gpu, pass, wait_for_change};
use crate::state::{Event, NodeGpus};
use crate::symbols::getters;

/// Sets allocated and not yet freed, by the number that is their handle.
static SETS: Mutex<BTreeMap<usize, Arc<Mutex<Set>>>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct Set {
    /// Event types by GPU.
    watched: BTreeMap<usize, u64>,
    delivered: HashSet<(usize, Event)>,
}

impl Set {
    /// The first event that this set waits for and has not seen.
    fn next(&mut self, node: &NodeGpus) -> Option<EventData> {
        for (&index, &types) in &self.watched {
            let events = node.gpus.get(index).map_or(&[][..], |gpu| &gpu.events);
            for event in events.iter().filter(|event| event.kind & types != 0) {
                if self.delivered.insert((index, *event)) {
                    return Some(EventData {
                        device: device_handle(index),
                        event_type: event.kind,
                        event_data: event.data,
                        gpu_instance_id: u32::MAX,
                        compute_instance_id: u32::MAX,
                    });
                }
            }
        }
        None
    }
}

getters! {
    nvmlDeviceGetSupportedEventTypes() -> u64 = |gpu| Ok(gpu.event_types_supported);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetCreate(out: *mut Handle) -> Code {
    answer(pass("nvmlEventSetCreate", None).and_then(|_| {
        let mut sets = lock(&SETS);
        let id = sets.last_key_value().map_or(0, |(id, _)| *id) + 1;
        // SAFETY: NVML's contract: null or valid for a write.
        unsafe { store(out, without_provenance_mut(id)) }?;
        sets.insert(id, Arc::default());
        Ok(())
    }))
}

/// Never fails by injection: clients call it from their destructors.
#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(set: Handle) -> Code {
    if lock(&SETS).remove(&set.addr()).is_some() {
        code::SUCCESS
    } else {
        code::INVALID_ARGUMENT
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceRegisterEvents(device: Handle, types: u64, set: Handle) -> Code {
    on_gpu("nvmlDeviceRegisterEvents", device, |gpu| {
        register(gpu, types, set)
    })
}

fn register(gpu: &Gpu, types: u64, set: Handle) -> Result<(), Code> {
    let set = find(set)?;
    if types & !gpu.event_types_supported != 0 {
        return Err(code::NOT_SUPPORTED);
    }
    let mut set = lock(&set);
    *set.watched.entry(gpu.index).or_default() |= types;
    // What happened before the registration is not news.
    set.delivered
        .extend(gpu.events.iter().map(|event| (gpu.index, *event)));
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetWait_v2(
    set: Handle,
    out: *mut EventData,
    timeout_milliseconds: u32,
) -> Code {
    answer(find(set).and_then(|set| {
        let data = wait(&set, Duration::from_millis(timeout_milliseconds.into()))?;
        // SAFETY: NVML's contract: null or valid for a write.
        unsafe { store(out, data) }
    }))
}

/// Events come before failures: the XID of a GPU that is lost must still be delivered.
fn wait(set: &Mutex<Set>, timeout: Duration) -> Result<EventData, Code> {
    const FUNCTION: &str = "nvmlEventSetWait_v2";
    let started = Instant::now();
    loop {
        let node = pass(FUNCTION, None)?;
        let (found, watched) = {
            let mut set = lock(set);
            (
                set.next(&node),
                set.watched.keys().copied().collect::<Vec<_>>(),
            )
        };
        if let Some(data) = found {
            return Ok(data);
        }
        for gpu in watched {
            pass(FUNCTION, Some(gpu))?;
        }
        let left = timeout.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(code::TIMEOUT);
        }
        wait_for_change(&node, left);
    }
}

fn find(set: Handle) -> Result<Arc<Mutex<Set>>, Code> {
    lock(&SETS)
        .get(&set.addr())
        .cloned()
        .ok_or(code::INVALID_ARGUMENT)
}
