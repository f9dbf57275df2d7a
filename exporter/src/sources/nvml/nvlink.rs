//! NVLinks of one GPU: state, errors, traffic and the other end of each.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::sys_exports::field_id as fi;
use railscope_model::identity::PciAddress;
use railscope_model::metric::{
    GPU_NVLINK_ERRORS, GPU_NVLINK_WORST_ERRORS, NVLINK_ERRORS, NVLINK_PEER, NVLINK_STATE, NVLINKS,
    NVLINKS_ACTIVE, Profile,
};
use railscope_model::reading::{Labels, NodeReading};

use super::calls::{Calls, Of};
use super::gpm::Gpm;
use super::raw::{Field, field_values, remote_device_type};
use super::traffic::{Row, Traffic, read};

/// Links to try where the driver cannot report their number. Drivers that old support no more than
/// the 12 links of an A100; each link too many costs one refused call.
const LINKS_OF_OLD_DRIVERS: u32 = 18;

/// What is in the place of an address that the driver does not know; the address of a host bridge.
const NO_ADDRESS: PciAddress = PciAddress {
    domain: 0,
    bus: 0,
    device: 0,
    function: 0,
};

/// NVML counter -> `kind`. Blackwell has no replay and recovery any more.
const COUNTERS: [(&str, ErrorCounter); 4] = [
    ("replay", ErrorCounter::DlReplay),
    ("recovery", ErrorCounter::DlRecovery),
    ("crc_flit", ErrorCounter::DlCrcFlit),
    ("crc_data", ErrorCounter::DlCrcData),
];

const fn field(kind: &'static str, field: u32) -> Row {
    Row {
        call: kind,
        field,
        metric: &NVLINK_ERRORS,
        factor: 1,
    }
}

/// Counters of NVLink 5 (Blackwell and later), each named by its `kind`.
const FIELDS: [Row; 11] = [
    field(
        "malformed",
        fi::NVML_FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS,
    ),
    field(
        "overrun",
        fi::NVML_FI_DEV_NVLINK_COUNT_BUFFER_OVERRUN_ERRORS,
    ),
    field("receive", fi::NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS),
    field("remote", fi::NVML_FI_DEV_NVLINK_COUNT_RCV_REMOTE_ERRORS),
    field("general", fi::NVML_FI_DEV_NVLINK_COUNT_RCV_GENERAL_ERRORS),
    field(
        "integrity",
        fi::NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS,
    ),
    field("discard", fi::NVML_FI_DEV_NVLINK_COUNT_XMIT_DISCARDS),
    field(
        "recovery_ok",
        fi::NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS,
    ),
    field(
        "recovery_failed",
        fi::NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS,
    ),
    field(
        "recovery_event",
        fi::NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS,
    ),
    field("symbol", fi::NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS),
];

/// Kinds of errors: those of [`COUNTERS`], then those of [`FIELDS`].
const KINDS: usize = COUNTERS.len() + FIELDS.len();
/// Kinds whose sum over the links only the full profile shows.
const FULL_ONLY: [&str; 11] = [
    "crc_flit",
    "crc_data",
    "malformed",
    "overrun",
    "receive",
    "remote",
    "general",
    "integrity",
    "discard",
    "recovery_ok",
    "recovery_failed",
];
/// Kinds that "recovery_event" counts already.
const COUNTED_TWICE: [&str; 2] = ["recovery_ok", "recovery_failed"];

fn kinds() -> impl Iterator<Item = &'static str> {
    let fields = FIELDS.iter().map(|row| row.call);
    COUNTERS.iter().map(|(kind, _)| *kind).chain(fields)
}

/// All NVLinks of one GPU.
pub(super) struct NvLinks {
    gpu: Labels,
    /// None before they were counted.
    links: Option<Vec<Link>>,
    /// Numbers and labels of the same links.
    numbered: Vec<(u32, Labels)>,
    traffic: Traffic,
}

struct Link {
    index: u32,
    labels: Labels,
    up: Option<bool>,
    /// Last known, because the sum over links may never fall: a link that stops responding would look like
    /// a counter reset, and Prometheus would count all errors of the other links again.
    errors: [Option<u64>; KINDS],
    /// Of [`COUNTERS`].
    kinds: [Labels; COUNTERS.len()],
    peer: Option<Labels>,
}

impl NvLinks {
    pub(super) fn new(gpu: &Labels) -> Self {
        Self {
            gpu: gpu.clone(),
            links: None,
            numbered: Vec::new(),
            traffic: Traffic::new(gpu),
        }
    }

    /// Adds what the links report. A GPU without NVLink adds nothing, or a count of zero if it reports
    /// that.
    pub(super) fn sample(
        &mut self,
        device: &Device<'_>,
        gpm: &mut Gpm,
        calls: &mut Calls,
        reading: &mut NodeReading,
    ) {
        calls.section("nvlink_state");
        if self.links.is_none() {
            self.links = count_links(device, calls).map(|indices| {
                let link = |index| Link::new(index, &self.gpu);
                indices.into_iter().map(link).collect()
            });
            let links = self.links.iter().flatten();
            self.numbered = links
                .map(|link| (link.index, link.labels.clone()))
                .collect();
        }
        let Some(links) = &mut self.links else {
            return;
        };
        for link in links.iter_mut() {
            link.sample(device, calls, reading);
        }
        calls.section("nvlink_errors");
        for link in links.iter_mut() {
            link.count_errors(device, calls, reading);
        }
        for (row, link, errors) in read(device, &FIELDS, &self.numbered, calls) {
            links[link].errors[COUNTERS.len() + row] = Some(errors);
            let labels = links[link].labels.with(FIELDS[row].call);
            reading.push(&NVLINK_ERRORS, &labels, errors);
        }
        if calls.lost().is_some() {
            return;
        }
        reading.push(&NVLINKS, &self.gpu, links.len() as u64);
        push_sums(links, &self.gpu, reading);
        self.traffic
            .sample(device, &self.numbered, gpm, calls, reading);
    }
}

/// Adds what the links amount to. Nothing where no link reports its state.
fn push_sums(links: &[Link], gpu: &Labels, reading: &mut NodeReading) {
    let states = || links.iter().filter_map(|link| link.up);
    if states().next().is_none() {
        return;
    }
    let active = states().filter(|up| *up).count();
    reading.push(&NVLINKS_ACTIVE, gpu, active as u64);
    for (place, kind) in kinds().enumerate() {
        let known = links.iter().filter_map(|link| link.errors[place]);
        let Some(sum) = known.reduce(u64::saturating_add) else {
            continue;
        };
        let profile = Profile::default_if(!FULL_ONLY.contains(&kind));
        reading.push_in(profile, &GPU_NVLINK_ERRORS, &gpu.with(kind), sum);
    }
    if let Some(worst) = links.iter().filter_map(Link::all_errors).max() {
        reading.push(&GPU_NVLINK_WORST_ERRORS, gpu, worst);
    }
}

/// The links of the GPU; none as long as it does not report them.
fn count_links(device: &Device<'_>, calls: &mut Calls) -> Option<Vec<u32>> {
    let count = calls.ask(("nvlink_count", Of::Feature), || {
        let field = Field {
            id: fi::NVML_FI_DEV_NVLINK_LINK_COUNT,
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
            .ask(("nvlink_state", Of::Link(*index)), || link.is_active())
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
            kinds: COUNTERS.map(|(kind, _)| labels.with(kind)),
            labels,
            up: None,
            errors: [None; KINDS],
            peer: None,
        }
    }

    fn sample(&mut self, device: &Device<'_>, calls: &mut Calls, reading: &mut NodeReading) {
        let link = device.link_wrapper_for(self.index);
        let of_link = Of::Link(self.index);
        let up = calls.ask(("nvlink_state", of_link), || link.is_active());
        if up.is_some() && self.up.is_some() && up != self.up {
            calls.forget_link(self.index);
            self.peer = None; // a link that comes back may come back elsewhere
        }
        self.up = up;
        if let Some(up) = up {
            reading.push(&NVLINK_STATE, &self.labels, up);
        }
        if self.peer.is_none() && up == Some(true) {
            self.peer = self.ask_peer(device, calls);
        }
        if let Some(peer) = &self.peer {
            reading.push(&NVLINK_PEER, peer, true);
        }
    }

    fn count_errors(&mut self, device: &Device<'_>, calls: &mut Calls, reading: &mut NodeReading) {
        let link = device.link_wrapper_for(self.index);
        for (place, (kind, counter)) in COUNTERS.into_iter().enumerate() {
            let call = (kind, Of::Link(self.index));
            if let Some(errors) = calls.ask(call, || link.error_counter(counter)) {
                self.errors[place] = Some(errors);
                reading.push(&NVLINK_ERRORS, &self.kinds[place], errors);
            }
        }
    }

    fn ask_peer(&self, device: &Device<'_>, calls: &mut Calls) -> Option<Labels> {
        let link = device.link_wrapper_for(self.index);
        let of_link = Of::Link(self.index);
        let pci = calls.ask(("nvlink_peer_pci", of_link), || link.remote_pci_info());
        let kind = calls.ask(("nvlink_peer_type", of_link), || {
            remote_device_type(device, self.index)
        });
        if pci.is_none() && kind.is_none() {
            return None;
        }
        let pci = match pci.map(|pci| pci.bus_id.parse::<PciAddress>()) {
            // A switch in another tray of the rack has no address on this node.
            Some(Ok(pci)) if pci == NO_ADDRESS => String::new(),
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
        let counted = kinds().zip(self.errors);
        let counted = counted.filter(|(kind, _)| !COUNTED_TWICE.contains(kind));
        let known = counted.filter_map(|(_, errors)| errors);
        known.reduce(u64::saturating_add)
    }
}
