//! Questions to the paths between GPUs and NICs: PCIe links, distance, ACS, IOMMU, GPUDirect.

use std::collections::BTreeSet;

use railscope_model::metric::{
    GPU_NIC, GPU_UTILIZATION, Metric, NODE_NUMA_NODES, PCIE_CONFIG, PCIE_IOMMU, PCIE_LINK_SPEED,
    PCIE_LINK_SPEED_MAX, PCIE_LINK_WIDTH, PCIE_LINK_WIDTH_MAX, PCIE_MAX_READ_REQUEST, PCIE_PATH,
    SOURCE_STATUS,
};

use super::View;
use super::report::{Out, count, list};
use super::view::End;
use crate::sources::setup::PeerMemory;

/// From this share of busy time on a GPU has no reason to keep its PCIe link slow.
const BUSY: f64 = 0.1;
/// Classes of distance, nearest first.
const HOPS: [&str; 5] = ["PIX", "PXB", "PHB", "NODE", "SYS"];
/// Value that NVIDIA's tuning guides recommend for ConnectX adapters, bytes.
const READ_REQUEST: f64 = 4096.0;

pub(super) fn width(view: &View<'_>, out: &mut Out) {
    for end in view.ends() {
        let Some((now, most)) = now_and_most(view, &end, &PCIE_LINK_WIDTH, &PCIE_LINK_WIDTH_MAX)
        else {
            continue;
        };
        if now >= most {
            out.fine();
            continue;
        }
        let slot = view.value(&PCIE_LINK_WIDTH_MAX, end.parent);
        let fix = match slot {
            Some(slot) if slot < most => format!(
                "the port above ({}) has {slot} lanes: move the card to a wider slot",
                end.parent
            ),
            _ => format!(
                "reseat the card and its riser or cable; railscope_pcie_errors_total of {} and {} shows which end has errors",
                end.pci, end.parent
            ),
        };
        out.finding(end.part(), format!("x{most}"), format!("x{now}"), fix);
    }
}

pub(super) fn speed(view: &View<'_>, out: &mut Out) {
    let mut idle = Vec::new();
    for end in view.ends() {
        let Some((now, most)) = now_and_most(view, &end, &PCIE_LINK_SPEED, &PCIE_LINK_SPEED_MAX)
        else {
            continue;
        };
        // A card that is ahead of its host (Blackwell on Grace) runs at what the port above can.
        let port = view.value(&PCIE_LINK_SPEED_MAX, end.parent);
        let most = port.map_or(most, |port| most.min(port));
        let busy = view
            .value(&GPU_UTILIZATION, end.name)
            .is_some_and(|busy| busy >= BUSY);
        if now >= most {
            out.fine();
        } else if end.is_gpu && !busy {
            idle.push(end.part());
        } else {
            let fix = format!(
                "check the speed that the firmware allows the slot of {} and railscope_pcie_errors_total of both ends",
                end.parent
            );
            let gt = |transfers: f64| format!("{} GT/s", transfers / 1e9);
            out.finding(end.part(), gt(most), gt(now), fix);
        }
    }
    if !idle.is_empty() {
        out.unknown(
            list(&idle),
            "PCIe speed",
            "below its maximum, as GPUs are when idle",
            "run the check again while a job runs",
        );
    }
}

fn now_and_most(
    view: &View<'_>,
    end: &End<'_>,
    now: &'static Metric,
    most: &'static Metric,
) -> Option<(f64, f64)> {
    Some((view.value(now, end.pci)?, view.value(most, end.pci)?))
}

pub(super) fn distance(view: &View<'_>, out: &mut Out) {
    let nearest: Vec<_> = view
        .all(&GPU_NIC)
        .filter(|pair| pair.label("nearest") == "true")
        .map(|pair| (pair.label("gpu"), pair.label("device"), pair.label("hop")))
        .collect();
    let rank = |hop: &str| HOPS.iter().position(|known| *known == hop);
    let best = nearest
        .iter()
        .map(|(_, _, hop)| *hop)
        .min_by_key(|hop| rank(hop));
    let Some(best) = best else {
        return;
    };
    if view.is_virtual() && rank(best) >= rank("PHB") {
        return out.cost(
            count(nearest.len(), "GPUs"),
            "the host's PCIe switches, so that software can pair GPUs and NICs",
            format!("{best} at best: the hypervisor shows a flat topology"),
            "give the virtual machine the host's layout (a PCIe expander bus for each NUMA node), or NCCL a \
             NCCL_TOPO_FILE",
        );
    }
    for (gpu, device, hop) in nearest {
        if rank(hop) == rank(best) {
            out.fine();
        } else {
            out.finding(
                format!("GPU {gpu}"),
                format!("a NIC at {best}, as its siblings"),
                format!("{device} at {hop}"),
                "put a NIC below the GPU's own PCIe switch; until then leave this GPU out of jobs that need the network",
            );
        }
    }
}

pub(super) fn numa_node(view: &View<'_>, out: &mut Out) {
    let nodes = view.all(&NODE_NUMA_NODES).next();
    if nodes.is_none_or(|nodes| nodes.value() < 2.0) {
        return;
    }
    for end in view.ends() {
        if end.numa_node.is_empty() {
            let fix = "update the firmware (ACPI _PXM), or give the virtual machine virtual NUMA; until then pin by hand";
            out.finding(end.part(), "its NUMA node", "none", fix);
        } else {
            out.fine();
        }
    }
}

pub(super) fn acs(view: &View<'_>, out: &mut Out) {
    // A root port alone is no switch: a function that shares it with none has the root between itself
    // and others.
    let shared: BTreeSet<&str> = {
        let below = |gpu: bool| -> BTreeSet<&str> {
            let ends = view.ends().into_iter().filter(|end| end.is_gpu == gpu);
            ends.map(|end| end.root_port).collect()
        };
        below(true).intersection(&below(false)).copied().collect()
    };
    let ports: BTreeSet<&str> = view
        .all(&PCIE_PATH)
        .filter(|path| path.label("kind") == "bridge" && !path.label("root_port").is_empty())
        .filter(|path| shared.contains(path.label("root_port")))
        .map(|path| path.label("pci"))
        .collect();
    let mut redirecting = Vec::new();
    for config in view.all(&PCIE_CONFIG) {
        let port = config.label("pci");
        if !ports.contains(port) {
            continue;
        }
        let controls = config.label("acs").split('+');
        if controls
            .into_iter()
            .any(|control| control.ends_with("_redirect"))
        {
            redirecting.push(port);
        } else {
            out.fine();
        }
    }
    if !redirecting.is_empty() {
        out.finding(
            list(&redirecting),
            "no redirection of peer traffic (ACS)",
            "every transfer between GPU and NIC takes the way over the CPU's root",
            "bare metal: switch ACS off in the firmware, or setpci -s <port> ECAP_ACS+0x6.w=0000 at each boot; \
             virtual machines need it on: use ATS there",
        );
    }
    if !ports.is_empty() {
        unreadable_config(
            view,
            count(ports.len(), "switch ports"),
            "peer traffic stays below the switch",
            out,
        );
    }
}

/// One row where configuration spaces could not be read.
fn unreadable_config(view: &View<'_>, parts: String, what: &str, out: &mut Out) {
    let mut statuses = view.all(&SOURCE_STATUS);
    let status = statuses
        .find(|status| status.label("source") == "pcie" && status.label("device") == "config");
    let Some(status) = status.map(|status| status.label("status")) else {
        return;
    };
    let fix = match status {
        "denied" => {
            "run the check as root (CAP_SYS_ADMIN): others may read 64 bytes of configuration space"
        }
        _ => "lspci -vvv of the part shows what the kernel makes of it",
    };
    out.unknown(parts, what, status, fix);
}

pub(super) fn iommu(view: &View<'_>, out: &mut Out) {
    let mut translated = Vec::new();
    for end in view.ends() {
        let mut groups = view.all(&PCIE_IOMMU);
        let group = groups.find(|group| group.label("pci") == end.pci);
        // In no group: there is no IOMMU, or it is off.
        match group.map_or("off", |group| group.label("type")) {
            "off" | "identity" => out.fine(),
            "DMA" | "DMA-FQ" => translated.push(end.part()),
            other => out.unknown(
                end.part(),
                "addresses are passed through",
                format!("the kernel reports {other:?}"),
                "cat /proc/cmdline shows whether it was booted with iommu=pt",
            ),
        }
    }
    if !translated.is_empty() {
        out.finding(
            list(&translated),
            "addresses passed through (identity) or no IOMMU",
            "every transfer is translated by the IOMMU",
            "boot with iommu=pt (Intel: intel_iommu=on iommu=pt), or switch the IOMMU off in the firmware",
        );
    }
}

pub(super) fn max_read_request(view: &View<'_>, out: &mut Out) {
    let ends = view.ends();
    let nics: Vec<_> = ends.iter().filter(|end| !end.is_gpu).collect();
    for nic in &nics {
        let Some(size) = view.value(&PCIE_MAX_READ_REQUEST, nic.pci) else {
            continue;
        };
        if size >= READ_REQUEST {
            out.fine();
        } else if !view.is_virtual() {
            // A guest may not set it; the hypervisor's value does not describe the hardware.
            let fix = format!(
                "set MaxReadReq in the PCIe capability: setpci -s {} CAP_EXP+8.w=5000:7000",
                nic.pci
            );
            let should = format!("read requests of {READ_REQUEST} bytes");
            out.finding(nic.part(), should, format!("{size} bytes"), fix);
        }
    }
    if !nics.is_empty() {
        unreadable_config(
            view,
            count(nics.len(), "NICs"),
            "read requests are large enough",
            out,
        );
    }
}

pub(super) fn gpudirect(view: &View<'_>, out: &mut Out) {
    let ends = view.ends();
    if !ends.iter().any(|end| end.is_gpu) || ends.iter().all(|end| end.is_gpu) {
        return;
    }
    match view.setup.peer_memory {
        Some(PeerMemory::Peermem | PeerMemory::DmaBuf) => out.fine(),
        Some(PeerMemory::Neither) => out.finding(
            "GPUDirect RDMA",
            "nvidia_peermem, or the open kernel modules with dma-buf (Linux 5.12)",
            "neither: NICs copy GPU memory through the CPU's",
            "modprobe nvidia_peermem, or install the open kernel modules of the NVIDIA driver",
        ),
        None => out.unknown(
            "GPUDirect RDMA",
            "NICs reach GPU memory",
            "no NVIDIA driver in /proc/driver/nvidia",
            "load the driver, or mount the host's procfs and pass --path.procfs",
        ),
    }
}
