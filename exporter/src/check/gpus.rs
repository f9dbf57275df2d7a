//! Questions to the GPUs: NVLink, power limit, firmware.

use std::collections::BTreeMap;

use railscope_model::metric::{GPU, GPU_POWER_LIMIT, Metric, NVLINKS, NVLINKS_ACTIVE};

use super::View;
use super::report::Out;

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
