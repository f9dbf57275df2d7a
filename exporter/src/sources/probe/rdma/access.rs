//! The program that probes by RDMA, and its address: shared between its parent's prober and responder.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use railscope_model::rdma_probe::{Endpoint, REPORT_INTERVAL};

use super::super::endpoint::Availability;

/// A prober that has reported nothing for so many of its intervals is stopped, or short of CPU.
const SILENT_INTERVALS: u32 = 2;
/// How long after it stopped reporting it counts as stopped: until the probes in flight to it have been answered or given up.
const STOPPED_FOR: Duration = Duration::from_secs(1);

/// The program that probes by RDMA, and its address: shared between its supervisor and the
/// component that reports it to others.
#[derive(Debug, Clone)]
pub struct RdmaAccess {
    /// `railscope-rdma-probe`.
    pub program: PathBuf,
    endpoints: Arc<Mutex<Endpoints>>,
}

#[derive(Debug, Default)]
struct Endpoints {
    by_device: BTreeMap<String, Endpoint>,
    heard: Option<Instant>,
    stopped: Option<Instant>,
}

impl RdmaAccess {
    /// By this program.
    pub fn new(program: PathBuf) -> Self {
        Self {
            program,
            endpoints: Arc::default(),
        }
    }

    /// Whether a device of ours can be probed now.
    pub(in super::super) fn availability(&self, device: &str, now: Instant) -> Availability {
        let known = self.lock();
        let since = |then: Option<Instant>| then.map(|then| now.saturating_duration_since(then));
        let runs = since(known.heard).is_some_and(|since| since <= silence());
        let ran = since(known.stopped).is_none_or(|since| since > STOPPED_FOR);
        match known.by_device.get(device) {
            _ if !runs || !ran => Availability::Stopped,
            Some(endpoint) => Availability::Ready(*endpoint),
            None => Availability::Absent,
        }
    }

    /// The prober has reported its address.
    pub(super) fn heard(&self, endpoints: BTreeMap<String, Endpoint>, now: Instant) {
        let mut known = self.lock();
        let before = known.heard.replace(now);
        if before.is_some_and(|before| now.saturating_duration_since(before) > silence()) {
            known.stopped = Some(now);
        }
        known.by_device = endpoints;
    }

    pub(super) fn ended(&self) {
        *self.lock() = Endpoints::default();
    }

    fn lock(&self) -> MutexGuard<'_, Endpoints> {
        self.endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The longest time between two reports of a prober that runs.
fn silence() -> Duration {
    REPORT_INTERVAL * SILENT_INTERVALS
}
