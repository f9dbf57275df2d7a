//! GPUs that do not respond, with their kernel log messages: a GPU that fell off the bus heads the report.

use std::collections::BTreeMap;

use railscope_model::metric::{GPU, GPU_XID_EVENTS, KERNEL_HARDWARE_EVENTS, SOURCE_STATUS};

use super::View;
use super::report::{Out, list};
use super::view::End;

/// XID "GPU has fallen off the bus" (NVIDIA, XID errors).
const OFF_THE_BUS: u32 = 79;
/// The kernel log's event of the same meaning, where the driver writes no XID.
const LOST_EVENT: &str = "gpu_lost";
const ANSWER: &str = "an answer of NVML";
/// What to do about a GPU that NVML counts or the bus shows, and that does not respond while others do.
const LOST_FIX: &str = "look for its XID in the kernel log (79: fallen off the bus), drain the node, reset the GPU or power-cycle";
const FALLEN_FIX: &str = "drain the node, save its log (nvidia-bug-report.sh), power-cycle it; if it recurs, reseat or replace the GPU";

/// What the kernel log reports of one GPU.
#[derive(Debug, Default)]
struct Reported {
    xids: Vec<u32>,
    is_off_the_bus: bool,
}

impl Reported {
    /// Of the GPU with this ordinal and address; both empty for a GPU that the node no longer shows.
    fn of(view: &View<'_>, ordinal: &str, pci: &str) -> Self {
        let events = view.all(&GPU_XID_EVENTS);
        let events = events.filter(|event| event.label("gpu") == ordinal);
        let mut xids: Vec<u32> = events
            .filter_map(|event| event.label("xid").parse().ok())
            .collect();
        // The XID that explains the others first.
        xids.sort_unstable_by_key(|xid| (*xid != OFF_THE_BUS, *xid));
        xids.dedup();
        let mut events = view.all(&KERNEL_HARDWARE_EVENTS);
        let is_lost = events.any(|event| {
            event.label("event") == LOST_EVENT && event.label("device") == pci && !pci.is_empty()
        });
        Self {
            is_off_the_bus: is_lost || xids.first() == Some(&OFF_THE_BUS),
            xids,
        }
    }

    /// `fell off the bus (XID 79)`, or the status with the XIDs.
    fn with(&self, status: &str) -> String {
        let what = if self.is_off_the_bus {
            "fell off the bus"
        } else {
            status
        };
        if self.xids.is_empty() {
            return what.to_owned();
        }
        format!("{what} (XID {})", list(&self.xids))
    }

    fn finding(&self, part: &str, status: &str, out: &mut Out) {
        let gives = self.with(status);
        let (headline, fix) = if self.is_off_the_bus {
            (format!("{part} {gives}"), FALLEN_FIX)
        } else {
            (format!("{part} does not answer: {gives}"), LOST_FIX)
        };
        out.headline(headline);
        out.finding(part, ANSWER, gives, fix);
    }
}

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
        Reported::of(view, gpu, pci).finding(&part, status, out);
    }
    let gone = Reported::of(view, "", "");
    if gone.is_off_the_bus {
        gone.finding("a GPU that the PCI bus no longer shows", "", out);
    }
    let answers = |end: &End<'_>| known.iter().any(|gpu| gpu.label("pci") == end.pci);
    let (fine, silent): (Vec<_>, Vec<_>) = on_bus
        .iter()
        .filter(|end| !lost.contains_key(end.name))
        .partition(|end| answers(end));
    fine.iter().for_each(|_| out.fine());
    let mut others = Vec::new();
    for end in silent {
        let reported = Reported::of(view, end.name, end.pci);
        match reported.is_off_the_bus {
            true => reported.finding(&end.part(), "", out),
            false => others.push(end.part()),
        }
    }
    if !others.is_empty() {
        silent_gpus(
            view,
            &list(&others),
            !fine.is_empty() || !lost.is_empty(),
            out,
        );
    }
}

/// GPUs on the bus of which NVML reports nothing.
fn silent_gpus(view: &View<'_>, parts: &str, others_answer: bool, out: &mut Out) {
    if !view.asks_nvml {
        let fix = "run without --no-nvml";
        return out.unknown(parts, "NVML answers", "NVML was omitted", fix);
    }
    let mut statuses = view.all(&SOURCE_STATUS);
    let status = statuses
        .find(|status| status.label("source") == "gpu" && status.label("device").is_empty())
        .map_or("no answer", |status| status.label("status"));
    let fix = if others_answer {
        LOST_FIX
    } else {
        "load the NVIDIA driver and show libnvidia-ml.so.1 to this process (--nvml.library; in a container \
         NVIDIA_DRIVER_CAPABILITIES=utility and NVIDIA_VISIBLE_DEVICES=all)"
    };
    out.finding(parts, ANSWER, status, fix);
}

/// GPUs that NVML counts and that do not respond, whether or not the node shows its PCI bus: status by ordinal.
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
