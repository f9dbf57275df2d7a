//! Questions to the GPUs: driver, NVLink, power limit, firmware.

use std::collections::BTreeMap;

use railscope_model::metric::{
    GPU, GPU_POWER_LIMIT, Metric, NVLINKS, NVLINKS_ACTIVE, SOURCE_STATUS,
};

use super::View;
use super::report::{Out, list};
use super::view::End;

/// What to do about a GPU that NVML counts or the bus shows, and that does not answer while others do.
const LOST_FIX: &str = "look for its XID in the kernel log (79: fallen off the bus), drain the node, reset the GPU or power-cycle";

pub(super) fn driver(view: &View<'_>, out: &mut Out) {
    let on_bus: Vec<_> = view.ends().into_iter().filter(|end| end.is_gpu).collect();
    let lost = lost_gpus(view);
    let known: Vec<_> = view.all(&GPU).collect();
    for (gpu, status) in &lost {
        let pci = known.iter().find(|info| info.label("gpu") == *gpu);
        let pci = pci.map_or("", |info| info.label("pci"));
        let part = match pci {
            "" => format!("GPU {gpu}"),
            pci => format!("GPU {gpu} ({pci})"),
        };
        out.finding(part, "an answer of NVML", *status, LOST_FIX);
    }
    let answers = |end: &End<'_>| known.iter().any(|gpu| gpu.label("pci") == end.pci);
    let (fine, silent): (Vec<_>, Vec<_>) = on_bus
        .iter()
        .filter(|end| !lost.contains_key(end.name))
        .partition(|end| answers(end));
    fine.iter().for_each(|_| out.fine());
    if silent.is_empty() {
        return;
    }
    let parts = list(&silent.iter().map(|end| end.part()).collect::<Vec<_>>());
    if !view.asks_nvml {
        let fix = "run without --no-nvml";
        return out.unknown(parts, "NVML answers", "NVML was left out", fix);
    }
    let mut statuses = view.all(&SOURCE_STATUS);
    let status = statuses
        .find(|status| status.label("source") == "gpu" && status.label("device").is_empty())
        .map_or("no answer", |status| status.label("status"));
    let fix = if fine.is_empty() && lost.is_empty() {
        "load the NVIDIA driver and show libnvidia-ml.so.1 to this process (--nvml.library; in a container \
         NVIDIA_DRIVER_CAPABILITIES=utility and NVIDIA_VISIBLE_DEVICES=all)"
    } else {
        LOST_FIX
    };
    out.finding(parts, "an answer of NVML", status, fix);
}

/// GPUs that NVML counts and that do not answer, whether or not the node shows its PCI bus: status by ordinal.
pub(super) fn lost_gpus<'a>(view: &View<'a>) -> BTreeMap<&'a str, &'a str> {
    let statuses = view.all(&SOURCE_STATUS);
    statuses
        .filter(|status| status.label("source") == "gpu")
        .map(|status| (status.label("device"), status.label("status")))
        .filter(|(device, status)| {
            device.parse::<u16>().is_ok() && ["failed", "timeout"].contains(status)
        })
        .collect()
}

pub(super) fn nvlink(view: &View<'_>, out: &mut Out) {
    let gpus = view.ends().iter().filter(|end| end.is_gpu).count();
    let kinds = view.by_gpu_kind(&NVLINKS_ACTIVE);
    let most = kinds.values().flatten().map(|(_, up)| *up);
    let most = most.fold(0.0, f64::max);
    if most == 0.0 {
        return without_nvlink(view, gpus, out);
    }
    for (kind, gpus) in kinds {
        let most = gpus.iter().map(|(_, up)| *up).fold(0.0, f64::max);
        for (gpu, up) in gpus {
            if up < most {
                out.finding(
                    format!("GPU {gpu}"),
                    format!("{most} NVLinks, as other {kind}"),
                    format!("{up}"),
                    "read the link's errors (/metrics?profile=full, railscope_nvlink_errors_total), check the \
                     fabric manager's log, reseat the GPU or its bridge",
                );
            } else if most > 0.0 {
                out.fine();
            }
        }
    }
}

/// No NVLink is up on any GPU.
fn without_nvlink(view: &View<'_>, gpus: usize, out: &mut Out) {
    let links = view.all(&NVLINKS).map(|gpu| gpu.value());
    let links = links.fold(0.0, f64::max);
    if view.is_virtual() && gpus > 1 && view.all(&GPU).next().is_some() {
        // Both directions together, as vendors count: 18 links of NVLink 4 at 50 GB/s; 16 lanes of
        // PCIe 4.0 at 16 GT/s with 128b/130b.
        out.cost(
            format!("{gpus} GPUs"),
            "NVLink between GPUs of one board (an H100's gives 900 GB/s)",
            "PCIe only (4.0 x16 gives about 64 GB/s)",
            "pass all GPUs and NVSwitches of the board through to one virtual machine, or keep jobs that \
             span GPUs off this node",
        );
    } else if links > 0.0 {
        out.unknown(
            format!("{gpus} GPUs"),
            "NVLinks are up",
            format!("GPUs have {links} links each and none is up on any of them"),
            "on a board with NVSwitches start nvidia-fabricmanager; PCIe cards have links only with a bridge",
        );
    }
}

pub(super) fn power_limit(view: &View<'_>, out: &mut Out) {
    for (kind, gpus) in view.by_gpu_kind(&GPU_POWER_LIMIT) {
        let highest = gpus.iter().map(|(_, watts)| *watts).fold(0.0, f64::max);
        for (gpu, watts) in gpus {
            if watts < highest {
                out.finding(
                    format!("GPU {gpu}"),
                    format!("{highest} W, as other {kind}"),
                    format!("{watts} W"),
                    format!("nvidia-smi -i {gpu} -pl {highest}; find out who lowered it"),
                );
            } else {
                out.fine();
            }
        }
    }
}

pub(super) fn firmware(view: &View<'_>, out: &mut Out) {
    let fix = "flash the version of the siblings (or update all): mixed firmware makes parts behave differently";
    mixed(
        view,
        &GPU,
        &["name"],
        "vbios",
        |gpu| format!("GPU {gpu}"),
        fix,
        out,
    );
}

/// Holds a version label of a metric's series against that of most others of the same kind.
pub(super) fn mixed(
    view: &View<'_>,
    metric: &'static Metric,
    kind: &[&str],
    version: &str,
    part: impl Fn(&str) -> String,
    fix: &str,
    out: &mut Out,
) {
    let mut kinds: BTreeMap<Vec<&str>, Vec<(&str, &str)>> = BTreeMap::new();
    for series in view.all(metric) {
        let found = series.label(version);
        if !found.is_empty() {
            let kind = kind.iter().map(|label| series.label(label)).collect();
            let name = series.label(metric.labels[0]);
            kinds.entry(kind).or_default().push((name, found));
        }
    }
    for (kind, parts) in kinds {
        let count = |of: &str| parts.iter().filter(|(_, version)| *version == of).count();
        // Of versions that are equally common the later by name is the expected one.
        let usual = parts.iter().map(|(_, version)| *version);
        let usual = usual.max_by_key(|version| (count(version), *version));
        for (name, version) in &parts {
            if Some(*version) == usual {
                out.fine();
            } else {
                let usual = usual.unwrap_or_default();
                let kind = kind.join(" ");
                out.finding(
                    part(name),
                    format!("{usual}, as other {kind}"),
                    *version,
                    fix,
                );
            }
        }
    }
}
