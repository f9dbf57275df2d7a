//! NVLinks of one GPU: state, errors and the other end of each.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_NVLINK_LINK_COUNT;
use railscope_model::identity::PciAddress;
use railscope_model::metric::{
    GPU_NVLINK_ERRORS, GPU_NVLINK_WORST_ERRORS, NVLINK_ERRORS, NVLINK_PEER, NVLINK_STATE, NVLINKS,
    NVLINKS_ACTIVE,
};
use railscope_model::reading::{Labels, NodeReading};

use super::calls::Calls;
use super::raw::{Field, field_values, remote_device_type};

/// Links to look for where the driver cannot say how many there are. Drivers that old know no more than the
/// 12 links of an A100; asking a few too many costs one refused call each.
const LINKS_OF_OLD_DRIVERS: u32 = 18;

/// NVML counter -> `kind`.
const KINDS: [(&str, ErrorCounter); 4] = [
    ("replay", ErrorCounter::DlReplay),
    ("recovery", ErrorCounter::DlRecovery),
    ("crc_flit", ErrorCounter::DlCrcFlit),
    ("crc_data", ErrorCounter::DlCrcData),
];

/// All NVLinks of one GPU.
pub(super) struct NvLinks {
    gpu: Labels,
    /// None before they were counted.
    links: Option<Vec<Link>>,
    kinds: [Labels; KINDS.len()],
}

struct Link {
    index: u32,
    labels: Labels,
    kinds: [Labels; KINDS.len()],
    up: Option<bool>,
    /// Last known, because the sum over links may never fall: a link that stops answering would look like
    /// a counter reset, and Prometheus would count all errors of the other links once more.
    errors: [Option<u64>; KINDS.len()],
    peer: Option<Labels>,
}

impl NvLinks {
    pub(super) fn new(gpu: &Labels) -> Self {
        Self {
            gpu: gpu.clone(),
            links: None,
            kinds: KINDS.map(|(kind, _)| gpu.with(kind)),
        }
    }

    /// Adds what the links say. A GPU without NVLink adds nothing, or a count of zero if it knows as much.
    pub(super) fn sample(
        &mut self,
        device: &Device<'_>,
        calls: &mut Calls,
        reading: &mut NodeReading,
    ) {
        if self.links.is_none() {
            self.links = count_links(device, calls).map(|indices| {
                let link = |index| Link::new(index, &self.gpu);
                indices.into_iter().map(link).collect()
            });
        }
        let Some(links) = &mut self.links else {
            return;
        };
        for link in links.iter_mut() {
            link.sample(device, calls, reading);
        }
        if calls.lost().is_some() {
            return;
        }
        reading.push(&NVLINKS, &self.gpu, links.len() as u64);
        let states = || links.iter().filter_map(|link| link.up);
        if links.is_empty() || states().next().is_none() {
            return;
        }
        let active = states().filter(|up| *up).count();
        reading.push(&NVLINKS_ACTIVE, &self.gpu, active as u64);
        for (kind, labels) in self.kinds.iter().enumerate() {
            let known = || links.iter().filter_map(|link| link.errors[kind]);
            if known().next().is_some() {
                let sum = known().fold(0, u64::saturating_add);
                reading.push(&GPU_NVLINK_ERRORS, labels, sum);
            }
        }
        if let Some(worst) = links.iter().filter_map(Link::all_errors).max() {
            reading.push(&GPU_NVLINK_WORST_ERRORS, &self.gpu, worst);
        }
    }
}

/// The links of the GPU; none as long as it cannot say.
fn count_links(device: &Device<'_>, calls: &mut Calls) -> Option<Vec<u32>> {
    let count = calls.ask(("nvlink_count", None), || {
        let field = Field {
            id: NVML_FI_DEV_NVLINK_LINK_COUNT,
            scope: 0,
        };
        let mut values = field_values(device, &[field])?;
        let value = values.pop().ok_or(NvmlError::NoData)??;
        let count = value.count().and_then(|count| u32::try_from(count).ok());
        count.ok_or(NvmlError::Unknown)
    });
    if let Some(count) = count {
        return Some((0..count).collect());
    }
    if calls.lost().is_some() {
        return None;
    }
    let exists = |index: &u32| {
        let link = device.link_wrapper_for(*index);
        calls
            .ask(("nvlink_state", Some(*index)), || link.is_active())
            .is_some()
    };
    let indices: Vec<u32> = (0..LINKS_OF_OLD_DRIVERS).filter(exists).collect();
    (!indices.is_empty()).then_some(indices)
}

impl Link {
    fn new(index: u32, gpu: &Labels) -> Self {
        let labels = gpu.with(index);
        Self {
            index,
            kinds: KINDS.map(|(kind, _)| labels.with(kind)),
            labels,
            up: None,
            errors: [None; KINDS.len()],
            peer: None,
        }
    }

    fn sample(&mut self, device: &Device<'_>, calls: &mut Calls, reading: &mut NodeReading) {
        let link = device.link_wrapper_for(self.index);
        let of_link = Some(self.index);
        let up = calls.ask(("nvlink_state", of_link), || link.is_active());
        if up.is_some() && self.up.is_some() && up != self.up {
            calls.forget_link(self.index);
            self.peer = None; // a link that comes back may come back elsewhere
        }
        self.up = up;
        if let Some(up) = up {
            reading.push(&NVLINK_STATE, &self.labels, up);
        }
        for (kind, (name, counter)) in KINDS.into_iter().enumerate() {
            if let Some(errors) = calls.ask((name, of_link), || link.error_counter(counter)) {
                self.errors[kind] = Some(errors);
                reading.push(&NVLINK_ERRORS, &self.kinds[kind], errors);
            }
        }
        if self.peer.is_none() && up == Some(true) {
            self.peer = self.ask_peer(device, calls);
        }
        if let Some(peer) = &self.peer {
            reading.push(&NVLINK_PEER, peer, true);
        }
    }

    fn ask_peer(&self, device: &Device<'_>, calls: &mut Calls) -> Option<Labels> {
        let link = device.link_wrapper_for(self.index);
        let of_link = Some(self.index);
        let pci = calls.ask(("nvlink_peer_pci", of_link), || link.remote_pci_info());
        let kind = calls.ask(("nvlink_peer_type", of_link), || {
            remote_device_type(device, self.index)
        });
        if pci.is_none() && kind.is_none() {
            return None;
        }
        let pci = match pci.map(|pci| pci.bus_id.parse::<PciAddress>()) {
            Some(Ok(pci)) => pci.to_string(),
            Some(Err(_)) => {
                calls.count_failure();
                String::new()
            }
            None => String::new(),
        };
        let kind = match kind {
            Some(0) => "gpu",
            Some(1) => "npu",
            Some(2) => "switch",
            Some(_) | None => "",
        };
        Some(self.labels.with(pci).with(kind))
    }

    /// Errors of all kinds; none where no kind is known.
    fn all_errors(&self) -> Option<u64> {
        let known = self.errors.iter().flatten().copied();
        known.reduce(u64::saturating_add)
    }
}
