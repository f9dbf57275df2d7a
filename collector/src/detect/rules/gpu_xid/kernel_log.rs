//! Events of GPUs and NVSwitches in the kernel log other than XIDs, and XIDs by their time.

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{GpuIndex, NodeName, Part, PciAddress};
use railscope_model::metric::{
    GPU, GPU_XID_TIMESTAMP, KERNEL_HARDWARE_EVENT_TIMESTAMP, NODE_BOOT_TIME, NVSWITCH_SXID_EVENTS,
    NVSWITCH_SXID_TIMESTAMP,
};

use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, GPU_ERROR, GPU_LOST, NVLINK_DOWN, NVLINK_ERRORS};
use crate::detect::detector::{Evidence, View};
use crate::detect::registry::Threshold;
use crate::store::NodeHistory;

/// Maximum clock difference between node and collector: a line further in the future has no usable time.
const CLOCK_SKEW_SECONDS: f64 = 60.0;
/// How often an error of an NVSwitch that is not fatal must have been reported: single ones are corrected.
const MIN_NONFATAL: f64 = 3.0;

/// The numbers.
pub(super) fn thresholds() -> [Threshold; 2] {
    [
        Threshold::new(
            "largest accepted lead of a node's clock",
            CLOCK_SKEW_SECONDS,
            "s",
            "nodes synchronize their clocks (a choice)",
        ),
        Threshold::new(
            "minimum number of nonfatal SXids",
            MIN_NONFATAL,
            "errors",
            "single ones are corrected (a choice)",
        ),
    ]
}

/// An exported time, if it is within the newest `seconds` and after the boot.
fn recent(history: &NodeHistory, now: Timestamp, seconds: f64, stated: f64) -> Option<Timestamp> {
    let boot = history.value(&NODE_BOOT_TIME, &[]).unwrap_or(0.0);
    let age = now.as_seconds() - stated;
    let is_recent = (-CLOCK_SKEW_SECONDS..=seconds).contains(&age);
    (is_recent && stated >= boot).then(|| Timestamp((1e3 * stated) as u64).min(now))
}

/// GPU, XID and time of every XID of the newest `seconds`: the first of its kind has no count before it that it could rise
/// from, but it has a time.
pub(super) fn dated_xids(
    history: &NodeHistory,
    now: Timestamp,
    seconds: f64,
) -> impl Iterator<Item = (GpuIndex, f64, Timestamp)> {
    let series = history.series(&GPU_XID_TIMESTAMP);
    series.filter_map(move |(labels, window)| {
        let mut labels = labels.values();
        let gpu = labels.next()?.parse().ok()?;
        let xid = labels.next()?.parse().ok()?;
        Some((gpu, xid, recent(history, now, seconds, window.value()?)?))
    })
}

/// GPUs that the driver could not start since the boot, or that were gone before it could, and that it does not list.
pub(super) fn unstarted_gpus(
    view: &View<'_>,
    node: &NodeName,
    history: &NodeHistory,
) -> Vec<Evidence> {
    let place = GPU.labels.iter().position(|label| *label == "pci");
    let is_listed = |pci: PciAddress| {
        let gpus = history.series(&GPU);
        let mut listed = gpus.filter_map(|(labels, _)| labels.values().nth(place?)?.parse().ok());
        listed.any(|listed: PciAddress| listed == pci)
    };
    let events = history.series(&KERNEL_HARDWARE_EVENT_TIMESTAMP);
    let found = events.filter_map(|(labels, window)| {
        let mut labels = labels.values();
        let pci: PciAddress = labels.next()?.parse().ok()?;
        let (class, what) = match labels.next()? {
            "gpu_lost" => (&GPU_LOST, "has fallen off the bus"),
            "gpu_init_failed" => (&GPU_ERROR, "could not be initialized"),
            _ => return None,
        };
        let boot = history.value(&NODE_BOOT_TIME, &[]).unwrap_or(0.0);
        (window.value()? >= boot && !is_listed(pci)).then(|| {
            let part = Part::PcieLink(node.clone(), pci);
            let statement = format!(
                "The kernel log of {node} reports that the GPU at {pci} {what}, and the driver does not list it."
            );
            evidence(view, part, class, 1.0, statement)
        })
    });
    found.collect()
}

/// Errors of NVSwitches in the newest `seconds`.
pub(super) fn switch_errors(
    view: &View<'_>,
    node: &NodeName,
    history: &NodeHistory,
    seconds: f64,
) -> Vec<Evidence> {
    let events = history.series(&NVSWITCH_SXID_TIMESTAMP);
    let found = events.filter_map(|(labels, window)| {
        recent(history, view.now, seconds, window.value()?)?;
        let labels: Vec<_> = labels.values().collect();
        let [pci, sxid, severity] = labels[..] else {
            return None;
        };
        let count = history.value(&NVSWITCH_SXID_EVENTS, &labels).unwrap_or(0.0);
        let is_fatal = severity == "fatal";
        let class: &'static Class = if is_fatal {
            &NVLINK_DOWN
        } else {
            &NVLINK_ERRORS
        };
        (is_fatal || count >= MIN_NONFATAL).then(|| {
            let part = Part::Host(node.clone());
            let kind = if is_fatal { "fatal " } else { "" };
            let statement = format!("The NVSwitch at {pci} of {node} reported {kind}SXid {sxid}.");
            evidence(view, part, class, f64::from(u8::from(is_fatal)), statement)
        })
    });
    found.collect()
}

fn evidence(
    view: &View<'_>,
    part: Part,
    class: &'static Class,
    effect: f64,
    statement: String,
) -> Evidence {
    let signal = match part {
        Part::Host(_) => NVSWITCH_SXID_TIMESTAMP.name,
        _ => KERNEL_HARDWARE_EVENT_TIMESTAMP.name,
    };
    Evidence {
        detector: "gpu-xid",
        signal,
        class,
        effect,
        statement,
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}
