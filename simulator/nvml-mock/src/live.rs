//! The state file as it is now, and the gate that every call passes: initialized, not crashed, not blocked, not failed.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fs::File;
use std::io::Read;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::ffi::{Code, Handle, code, device_index};
use crate::state::{Effect, GpuState, LinkState, NodeGpus, STATE_FILE};

/// A changed file is seen after this long: far below the 100 ms that callers may count on, far above a call's cost.
const RECHECK: Duration = Duration::from_millis(5);

/// Polling interval of a call that is blocked or delayed.
const POLL: Duration = Duration::from_millis(10);

/// Interval at which one of the calls that wait for a change checks the file: below the 100 ms that callers may count on.
const LOOK: Duration = Duration::from_millis(80);

/// `nvmlInit_v2` calls without their `nvmlShutdown`.
pub(crate) static USERS: AtomicU32 = AtomicU32::new(0);

static FILE: Mutex<Option<Seen>> = Mutex::new(None);

/// The file at its last check.
struct Seen {
    checked: Instant,
    stamp: Option<Stamp>,
    node: Option<Arc<NodeGpus>>,
}

/// What differs once the file was replaced or written.
#[derive(Clone, Copy, Eq, PartialEq)]
struct Stamp {
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

/// One GPU during one call.
pub(crate) struct Gpu {
    pub(crate) node: Arc<NodeGpus>,
    pub(crate) index: usize,
}

impl Deref for Gpu {
    type Target = GpuState;

    fn deref(&self) -> &GpuState {
        // `Gpu::find` has checked the index, and the node does not change behind an Arc.
        &self.node.gpus[self.index]
    }
}

impl Gpu {
    /// The GPU behind a handle, once no injected failure affects `function`.
    pub(crate) fn find(function: &str, device: Handle) -> Result<Self, Code> {
        let index = device_index(device);
        let node = pass(function, index)?;
        match index {
            Some(index) if index < node.gpus.len() => Ok(Self { node, index }),
            _ => Err(code::INVALID_ARGUMENT),
        }
    }

    pub(crate) fn link(&self, link: u32) -> Result<&LinkState, Code> {
        usize::try_from(link)
            .ok()
            .and_then(|link| self.links.get(link))
            .ok_or(code::INVALID_ARGUMENT)
    }
}

/// Runs a call that needs a device.
pub(crate) fn on_gpu(
    function: &str,
    device: Handle,
    body: impl FnOnce(&Gpu) -> Result<(), Code>,
) -> Code {
    answer(Gpu::find(function, device).and_then(|gpu| body(&gpu)))
}

/// Runs a call that needs the driver, but no device.
pub(crate) fn on_node(function: &str, body: impl FnOnce(&NodeGpus) -> Result<(), Code>) -> Code {
    answer(pass(function, None).and_then(|node| body(&node)))
}

pub(crate) fn answer(result: Result<(), Code>) -> Code {
    result.err().unwrap_or(code::SUCCESS)
}

/// The state without the gate, for the calls that find out in it which GPU they concern.
pub(crate) fn peek() -> Result<Arc<NodeGpus>, Code> {
    if USERS.load(Ordering::Acquire) == 0 {
        return Err(code::UNINITIALIZED);
    }
    current().ok_or(code::DRIVER_NOT_LOADED)
}

/// The gate: waits out blocks and delays, then lets the call through or fails it.
pub(crate) fn pass(function: &str, gpu: Option<usize>) -> Result<Arc<NodeGpus>, Code> {
    if USERS.load(Ordering::Acquire) == 0 {
        return Err(code::UNINITIALIZED);
    }
    pass_uninitialized(function, gpu)
}

/// The gate of `nvmlInit_v2` itself.
pub(crate) fn pass_uninitialized(
    function: &str,
    gpu: Option<usize>,
) -> Result<Arc<NodeGpus>, Code> {
    let mut started: Option<Instant> = None;
    loop {
        let node = current().ok_or(code::DRIVER_NOT_LOADED)?;
        if node.crash {
            std::process::abort();
        }
        let (mut wait, mut failure) = (Duration::ZERO, None);
        for effect in effects(&node, function, gpu) {
            match effect {
                Effect::Hang => wait = POLL,
                Effect::Delay(milliseconds) => {
                    let since = started.get_or_insert_with(Instant::now).elapsed();
                    wait = wait
                        .max(Duration::from_millis(milliseconds.into()).saturating_sub(since))
                        .min(POLL);
                }
                Effect::Fail(code) => failure = failure.or(Some(code)),
                Effect::Spoil(_) => {}
            }
        }
        if !wait.is_zero() {
            thread::sleep(wait);
            continue;
        }
        return failure.map_or(Ok(node), Err);
    }
}

/// The faults that concern this function on this GPU.
fn effects(node: &NodeGpus, function: &str, gpu: Option<usize>) -> impl Iterator<Item = Effect> {
    let on_gpu = gpu
        .and_then(|index| node.gpus.get(index))
        .into_iter()
        .flat_map(|gpu| &gpu.faults);
    node.faults
        .iter()
        .chain(on_gpu)
        .filter(move |fault| fault.concerns(function))
        .map(|fault| fault.effect)
}

/// The injected failure of one field id, which must not fail its whole call.
pub(crate) fn field_failure(gpu: &Gpu, id: u32) -> Option<Code> {
    field_effects(gpu, id).find_map(|effect| match effect {
        Effect::Fail(code) => Some(code),
        Effect::Hang | Effect::Delay(_) | Effect::Spoil(_) => None,
    })
}

/// The injected failure of a whole call that requests this field together with others.
pub(crate) fn spoiled_call(gpu: &Gpu, id: u32) -> Option<Code> {
    field_effects(gpu, id).find_map(|effect| match effect {
        Effect::Spoil(code) => Some(code),
        Effect::Fail(_) | Effect::Hang | Effect::Delay(_) => None,
    })
}

/// The faults of one field. Hundreds of fields are read a second, and hardly ever is there any fault.
fn field_effects(gpu: &Gpu, id: u32) -> impl Iterator<Item = Effect> {
    let any = !gpu.node.faults.is_empty() || !gpu.faults.is_empty();
    let found: Vec<Effect> = if any {
        effects(&gpu.node, &format!("field.{id}"), Some(gpu.index)).collect()
    } else {
        Vec::new()
    };
    found.into_iter()
}

/// The state now, or nothing while there is no file: then the driver is not loaded.
fn current() -> Option<Arc<NodeGpus>> {
    let mut seen = lock(&FILE);
    let now = Instant::now();
    if let Some(seen) = seen.as_ref()
        && now.duration_since(seen.checked) < RECHECK
    {
        return seen.node.clone();
    }
    let before = seen.take();
    let (stamp, node) = read_if_changed(before);
    *seen = Some(Seen {
        checked: now,
        stamp,
        node: node.clone(),
    });
    node
}

/// Makes the next call read the file, however recently the last one did.
pub(crate) fn forget() {
    *lock(&FILE) = None;
}

/// Waits until the state differs from `known`, but not longer than `patience`. However many calls wait, one
/// of them checks the file and wakes the others: a node waits for the events of each of its GPUs, all the time.
pub(crate) fn wait_for_change(known: &Arc<NodeGpus>, patience: Duration) {
    static LOOKED_AT: Mutex<bool> = Mutex::new(false);
    static CHANGED: Condvar = Condvar::new();
    let begun = Instant::now();
    let left = || patience.saturating_sub(begun.elapsed());
    let is_over = || {
        let now = current();
        let same = now.is_some_and(|now| Arc::ptr_eq(&now, known));
        !same || USERS.load(Ordering::Acquire) == 0 || left().is_zero()
    };
    let mut looked_at = lock(&LOOKED_AT);
    while *looked_at {
        let waited = CHANGED.wait_timeout(looked_at, left());
        (looked_at, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if is_over() {
            return;
        }
    }
    *looked_at = true;
    drop(looked_at);
    while !is_over() {
        thread::sleep(left().min(LOOK));
    }
    *lock(&LOOKED_AT) = false;
    CHANGED.notify_all();
}

fn read_if_changed(before: Option<Seen>) -> (Option<Stamp>, Option<Arc<NodeGpus>>) {
    let Some(path) = state_path() else {
        return (None, None);
    };
    // Stat and read through one open file: a rename in between must not pair the stamp of one with the text of another.
    let Ok(mut file) = File::open(path) else {
        return (None, None);
    };
    let Ok(metadata) = file.metadata() else {
        return (None, None);
    };
    let stamp = Stamp {
        inode: metadata.ino(),
        length: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
    };
    if let Some(Seen {
        stamp: Some(old),
        node: Some(node),
        ..
    }) = before
        && old == stamp
    {
        return (Some(stamp), Some(node));
    }
    let mut bytes = Vec::new();
    if file.read_to_end(&mut bytes).is_err() {
        return (None, None);
    }
    let (node, errors) = NodeGpus::parse(&String::from_utf8_lossy(&bytes));
    for error in errors {
        eprintln!(
            "nvml mock: {}, {error}; the line is ignored",
            path.display()
        );
    }
    (Some(stamp), Some(Arc::new(node)))
}

/// `nvml.state` in the folder of this library, wherever that was loaded from.
fn state_path() -> Option<&'static Path> {
    static PATH: OnceLock<Option<PathBuf>> = OnceLock::new();
    PATH.get_or_init(|| {
        // Absolute, because the process may change its folder later.
        let library = std::fs::canonicalize(own_path()?).ok()?;
        Some(library.with_file_name(STATE_FILE))
    })
    .as_deref()
}

/// `Dl_info` of `dlfcn.h`.
#[repr(C)]
struct DlInfo {
    file_name: *const c_char,
    file_base: *mut c_void,
    symbol_name: *const c_char,
    symbol_address: *mut c_void,
}

unsafe extern "C" {
    fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
}

/// The path that this copy of the library was loaded by.
fn own_path() -> Option<&'static OsStr> {
    let mut info = DlInfo {
        file_name: std::ptr::null(),
        file_base: std::ptr::null_mut(),
        symbol_name: std::ptr::null(),
        symbol_address: std::ptr::null_mut(),
    };
    // SAFETY: dladdr accepts any address, and `info` is a valid Dl_info for it to fill.
    let found = unsafe { dladdr((&raw const FILE).cast(), &raw mut info) };
    if found == 0 || info.file_name.is_null() {
        return None;
    }
    // SAFETY: dladdr succeeded, so this is the loader's string; it lives as long as the library, which runs this code.
    let name = unsafe { CStr::from_ptr(info.file_name) };
    Some(OsStr::from_bytes(name.to_bytes()))
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds one of our locks can leave a half-written value behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
