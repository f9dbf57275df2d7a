//! Questions to the paths between GPUs and NICs: PCIe links, distance, ACS, IOMMU, GPUDirect.

use std::collections::BTreeMap;

use railscope_model::metric::{
    GPU_NIC, GPU_UTILIZATION, Metric, NODE_NUMA_NODES, PCIE_LINK_SPEED, PCIE_LINK_SPEED_MAX,
    PCIE_LINK_WIDTH, PCIE_LINK_WIDTH_MAX,
};
use railscope_model::reading::Status;

use super::View;
use super::report::{Out, count, list};
use super::view::End;
use crate::sources::setup::{Iommu, PeerMemory};
use crate::sources::sysfs::Miss;

/// From this share of busy time on a GPU has no reason to keep its PCIe link slow.
const BUSY: f64 = 0.1;
/// Classes of distance, nearest first.
const HOPS: [&str; 5] = ["PIX", "PXB", "PHB", "NODE", "SYS"];
/// What NVIDIA's tuning guides ask of ConnectX adapters, bytes.
const READ_REQUEST: u32 = 4096;

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
                "reseat the card and its riser or cable; railscope_pcie_errors_total of {} and {} says which end errs",
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
    let mut redirecting = Vec::new();
    let mut unread = Unread::default();
    for (port, redirects) in &view.setup.redirects_peers {
        match redirects {
            Ok(false) => out.fine(),
            Ok(true) => redirecting.push(port),
            Err(miss) => unread.add(*miss, port.to_string()),
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
    unread.report("peer traffic stays below the switch", out);
}

pub(super) fn iommu(view: &View<'_>, out: &mut Out) {
    let mut translated = Vec::new();
    let mut unread = Unread::default();
    for (address, iommu) in &view.setup.iommu {
        match iommu {
            Ok(Iommu::Off | Iommu::Identity) => out.fine(),
            Ok(Iommu::Translated) => translated.push(view.part(*address)),
            Err(miss) => unread.add(*miss, view.part(*address)),
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
    unread.report("addresses are passed through", out);
}

pub(super) fn max_read_request(view: &View<'_>, out: &mut Out) {
    let mut unread = Unread::default();
    for (address, size) in &view.setup.max_read_request {
        match size {
            Ok(size) if *size >= READ_REQUEST => out.fine(),
            // A guest may not set it; the hypervisor's answer says nothing of the hardware.
            Ok(_) if view.is_virtual() => {}
            Ok(size) => out.finding(
                view.part(*address),
                format!("read requests of {READ_REQUEST} bytes"),
                format!("{size} bytes"),
                format!("set MaxReadReq in the PCIe capability: setpci -s {address} CAP_EXP+8.w=5000:7000"),
            ),
            Err(miss) => unread.add(*miss, view.part(*address)),
        }
    }
    unread.report("read requests are large enough", out);
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

/// Settings that could not be read, by reason.
#[derive(Default)]
struct Unread(BTreeMap<Miss, Vec<String>>);

impl Unread {
    fn add(&mut self, miss: Miss, part: String) {
        // What the hardware does not have, and what has just gone, is no news.
        if !matches!(miss, Miss::Unsupported | Miss::Absent) {
            self.0.entry(miss).or_default().push(part);
        }
    }

    fn report(self, what: &str, out: &mut Out) {
        for (miss, parts) in self.0 {
            let fix = match miss {
                Miss::Denied => {
                    "run the check as root (CAP_SYS_ADMIN): others may read 64 bytes of configuration space"
                }
                _ => "lspci -vvv of the part shows what the kernel makes of it",
            };
            out.unknown(list(&parts), what, Status::from(miss).as_str(), fix);
        }
    }
}
