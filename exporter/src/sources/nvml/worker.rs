//! The child process: loads NVML and writes what each GPU reports, each from a separate thread.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use railscope_model::identity::{GpuIndex, PciAddress};
use railscope_model::reading::{Labels, NodeReading, Status};

use super::events::EventLog;
use super::gpu::Gpu;
use super::wire::{Line, Scope, Teller, Values};
use crate::lateness::lateness;

/// Polling NVML faster costs the jobs that run on the GPU (NVIDIA/srt-slurm#401: 2 % at 100 ms).
pub const SHORTEST_PERIOD: Duration = Duration::from_secs(1);
/// Interval at which GPUs are checked for additions and removals.
const RECOUNT_PERIOD: Duration = Duration::from_secs(60);

/// Why a worker ended other than by its parent's wish.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// The parent no longer reads.
    #[error("cannot write to the exporter: {0}")]
    Write(#[source] io::Error),
    /// GPUs came or went: the next worker counts them again.
    #[error("the GPUs changed: {0}")]
    Changed(String),
}

/// Runs until the parent closes stdin or no longer reads stdout, or until GPUs come or go.
///
/// The first line on stdout reports whether NVML responds and for how many GPUs lines will follow.
/// If it does not respond, that is the only line and the result is `Ok`: the parent decides when to try
/// again.
///
/// # Errors
/// See [`WorkerError`].
pub fn run_worker(library: &OsStr, period: Duration) -> Result<(), WorkerError> {
    let (end, ended) = mpsc::channel();
    let parent_left = end.clone();
    spawn("stdin", move || {
        // Nothing is ever written to it; it ends with the parent.
        io::copy(&mut io::stdin().lock(), &mut io::sink()).ok();
        parent_left.send(Ok(())).ok();
    })?;
    let library = library.to_owned();
    // Loading the library can block as well, and the parent's end has to be noticed even then.
    spawn("driver", move || {
        let result = watch_driver(&library, period, &end);
        end.send(result).ok();
    })?;
    // The senders live in threads that run for ever, so this waits for the first that reports
    // "end".
    ended.recv().unwrap_or(Ok(()))
}

/// Starts a thread for each GPU, then checks periodically whether GPUs came or went.
fn watch_driver(library: &OsStr, period: Duration, end: &End) -> Result<(), WorkerError> {
    let out = Arc::new(Output::default());
    let nvml = match Nvml::builder().lib_path(library).init() {
        // Never shut down: a thread blocked in the library keeps it in use.
        Ok(nvml) => &*Box::leak(Box::new(nvml)),
        Err(error) => return out.write(&refused(library, &error)),
    };
    let count = match nvml.device_count() {
        Ok(count) => count,
        Err(error) => return out.write(&refused(library, &error)),
    };
    let mut hello = Line::new(Scope::Driver, Status::Ok);
    let order = ordinals(nvml, count);
    hello.gpus = u16::try_from(order.len()).unwrap_or(u16::MAX);
    out.write(&hello)?;
    let log = Arc::new(EventLog::default());
    for (ordinal, nvml_index) in (0..hello.gpus).zip(&order) {
        log.add_handle(nvml, *nvml_index, GpuIndex(ordinal));
    }
    for (ordinal, nvml_index) in (0..hello.gpus).zip(order) {
        let ordinal = GpuIndex(ordinal);
        let gpu = Gpu::new(nvml, nvml_index, ordinal);
        let (log, of_events, end_of_events) = (Arc::clone(&log), Arc::clone(&out), end.clone());
        spawn(&format!("events-{ordinal}"), move || {
            if let Err(error) = watch_events(&log, nvml, nvml_index, ordinal, &of_events) {
                end_of_events.send(Err(error)).ok();
            }
        })?;
        let (out, end) = (Arc::clone(&out), end.clone());
        let period = period.max(SHORTEST_PERIOD);
        spawn(&format!("gpu-{ordinal}"), move || {
            end.send(watch_gpu(gpu, ordinal, period, &out)).ok();
        })?;
    }
    loop {
        thread::sleep(RECOUNT_PERIOD);
        let change = match nvml.device_count() {
            Ok(now) if now != count => format!("{count} before, {now} now"),
            Err(error @ (NvmlError::Uninitialized | NvmlError::DriverNotLoaded)) => {
                error.to_string()
            }
            Ok(_) | Err(_) => continue,
        };
        return Err(WorkerError::Changed(change));
    }
}

/// Samples one GPU until the parent no longer reads.
fn watch_gpu(
    mut gpu: Gpu,
    ordinal: GpuIndex,
    period: Duration,
    out: &Output,
) -> Result<(), WorkerError> {
    let (mut next, mut teller) = (Instant::now(), Teller::default());
    let mut late = Duration::ZERO;
    loop {
        let begun = Instant::now();
        late += lateness(next, begun);
        let mut reading = NodeReading::default();
        gpu.sample(&mut reading);
        let lost = gpu.calls.lost();
        if let Some(gone @ (NvmlError::Uninitialized | NvmlError::DriverNotLoaded)) = lost {
            return Err(WorkerError::Changed(gone.to_string()));
        }
        let mut line = Line {
            message: lost.map(ToString::to_string).unwrap_or_default(),
            missing: gpu.calls.missing_features(),
            errors: gpu.calls.failures(),
            seconds: begun.elapsed().as_secs_f64(),
            late_seconds: late.as_secs_f64(),
            ..Line::new(Scope::Gpu(ordinal), gpu.calls.status())
        };
        teller.tell(reading, &mut line);
        out.write(&line)?;
        // A sample that was blocked skips the samples it missed.
        next = (next + period).max(Instant::now());
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// Writes the events that this GPU's event set receives, until it cannot or the parent no longer reads.
fn watch_events(
    log: &EventLog,
    nvml: &'static Nvml,
    nvml_index: u32,
    ordinal: GpuIndex,
    out: &Output,
) -> Result<(), WorkerError> {
    log.listen(nvml, nvml_index, ordinal, |gpu, events, status| {
        let mut line = Line::new(Scope::Events(gpu), status);
        let mut reading = NodeReading::default();
        events.report(&Labels::new([gpu]), &mut reading);
        line.values = Values::Whole(reading);
        out.write(&line)
    })
}

type End = Sender<Result<(), WorkerError>>;

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), WorkerError> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
    thread.map(drop).map_err(WorkerError::Thread)
}

/// The only line of a worker that cannot use NVML.
fn refused(library: &OsStr, error: &NvmlError) -> Line {
    let status = match error {
        NvmlError::LibloadingError(_)
        | NvmlError::LibraryNotFound
        | NvmlError::DriverNotLoaded
        | NvmlError::FailedToLoadSymbol(_) => Status::Absent,
        NvmlError::NoPermission => Status::Denied,
        _ => Status::Failed,
    };
    let mut line = Line::new(Scope::Driver, status);
    line.message = match error {
        // The loader names the library by itself.
        NvmlError::LibloadingError(cause) => cause.to_string(),
        error => format!("{}: {error}", library.display()),
    };
    line
}

/// NVML indices in the order of PCI addresses. A GPU that does not report its address keeps the place
/// that NVML gives it, which is by PCI address too, so that the others keep theirs.
fn ordinals(nvml: &Nvml, count: u32) -> Vec<u32> {
    let mut places: Vec<u32> = (0..count).collect();
    let address = |index: &u32| {
        let pci = nvml
            .device_by_index(*index)
            .and_then(|device| device.pci_info());
        pci.ok()?.bus_id.parse::<PciAddress>().ok()
    };
    let known: Vec<_> = places.iter().map(address).collect();
    let mut by_address: Vec<_> = (0..count)
        .zip(known)
        .filter_map(|(index, address)| Some((address?, index)))
        .collect();
    let slots: Vec<u32> = by_address.iter().map(|(_, index)| *index).collect();
    by_address.sort_unstable();
    for (slot, (_, index)) in slots.into_iter().zip(by_address) {
        places[slot as usize] = index;
    }
    places
}

/// Standard output, one whole line at a time.
#[derive(Default)]
struct Output(Mutex<()>);

impl Output {
    fn write(&self, line: &Line) -> Result<(), WorkerError> {
        let mut text =
            serde_json::to_vec(line).map_err(|error| WorkerError::Write(error.into()))?;
        text.push(b'\n');
        let _one_at_a_time = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = io::stdout().lock();
        out.write_all(&text)
            .and_then(|()| out.flush())
            .map_err(WorkerError::Write)
    }
}
