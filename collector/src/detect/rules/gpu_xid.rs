//! Hardware errors of GPUs and NVSwitches that the driver reports: XIDs, SXids, and GPUs that it could not start. XIDs of
//! applications are not attributed to hardware.

mod applications;
mod catalogue;
mod kernel_log;

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{GpuIndex, NodeName, Part};
use railscope_model::metric::{GPU_LAST_XID, GPU_RECENT_XIDS, GPU_UTILIZATION, GPU_XID_EVENTS};

use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, NVLINK_DOWN, NVLINK_ERRORS};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::registry::{Rule, Threshold};
use crate::store::{NodeHistory, Window};
use applications::Applications;
use catalogue::{CATALOGUE, Xid};

/// Whether the last XID of a GPU, or one of the last minutes, is about its NVLinks.
pub(super) fn has_nvlink_xid(history: &NodeHistory, gpu: GpuIndex) -> bool {
    let of_nvlink = |xid: f64| catalogue::find(xid).is_some_and(|row| row.class == &NVLINK_ERRORS);
    let last = history.value(&GPU_LAST_XID, &[&gpu.to_string()]);
    let mut lately = counted(history).chain(recent(history));
    last.is_some_and(of_nvlink) || lately.any(|(of, xid, _)| of == gpu && of_nvlink(xid))
}

const NAME: &str = "gpu-xid";

/// How long an XID counts as new: as long as the history reaches at 5 s scrapes.
const NEW_SECONDS: f64 = 120.0;
/// How long an incident stays open after the last XID. Whether the GPU was reset is not visible in all exporters.
const HELD_SECONDS: f64 = 600.0;

/// Meaning of an XID that concerns hardware, and the action that NVIDIA recommends.
pub fn xid_advice(xid: u16) -> Option<(&'static str, &'static str)> {
    catalogue::find(f64::from(xid)).map(|row| (row.meaning, row.action))
}

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::<GpuXid>::default()
}

/// When a GPU last reported each XID of the catalogue.
#[derive(Default)]
struct GpuXid {
    last: BTreeMap<(NodeName, GpuIndex, u16), Timestamp>,
    applications: Applications,
}

impl Detector for GpuXid {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        for (node, history) in view.history.fresh_nodes(view.now) {
            let dated = kernel_log::dated_xids(history, view.now, HELD_SECONDS);
            for (gpu, xid, at) in dated {
                if let Some(row) = catalogue::find(xid) {
                    let last = self.last.entry((node.clone(), gpu, row.xid)).or_insert(at);
                    *last = at.max(*last);
                }
            }
            out.extend(kernel_log::unstarted_gpus(view, node, history));
            out.extend(kernel_log::switch_errors(view, node, history, HELD_SECONDS));
            for (gpu, xid, at) in counted(history)
                .chain(shown(history))
                .chain(recent(history))
            {
                if view.now.seconds_since(at) > NEW_SECONDS {
                    continue;
                }
                if let Some(row) = catalogue::find(xid) {
                    let last = self.last.entry((node.clone(), gpu, row.xid)).or_insert(at);
                    *last = at.max(*last);
                } else {
                    self.applications.note(view, (node, gpu), xid, at);
                }
            }
        }
        let is_held = |at: &Timestamp| view.now.seconds_since(*at) <= HELD_SECONDS;
        self.last.retain(|_, at| is_held(at));
        let rows = self.last.keys().filter_map(|(node, gpu, xid)| {
            let row = catalogue::find(f64::from(*xid))?;
            Some(evidence(Part::Gpu(node.clone(), *gpu), &row, view))
        });
        out.extend(rows);
        out.extend(self.applications.followed(view, HELD_SECONDS));
    }

    fn remembers(&self) -> bool {
        true
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "The driver reports an XID that requires a reset, a diagnosis or a replacement, one that the catalog does not expect, an application's XID that follows one GPU through several jobs, an NVSwitch error (SXid), or a GPU that it could not start.",
            threshold: String::from(
                "any (NVIDIA, Xid catalog); fatal SXids, and nonfatal SXids from the third on",
            ),
            clears: "10 minutes pass after the last error; reset the GPU before then.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let mut classes: Vec<&'static Class> = CATALOGUE.iter().map(|row| row.class).collect();
        classes.push(&NVLINK_DOWN);
        classes.sort_by_key(|class| class.order());
        classes.dedup();
        let thresholds = || {
            let mut thresholds = vec![
                Threshold::new(
                    "an XID is new for",
                    NEW_SECONDS,
                    "s",
                    "length of the stored history at 5 s scrapes",
                ),
                Threshold::new(
                    "the finding is held for",
                    HELD_SECONDS,
                    "s",
                    "a reset is not visible in every exporter (a choice)",
                ),
            ];
            thresholds.extend(kernel_log::thresholds());
            thresholds.extend(applications::thresholds());
            thresholds
        };
        let rules = classes.into_iter();
        rules.map(|class| Rule::new(class, thresholds())).collect()
    }
}

/// The source of counts that begin when another exporter does: their first value may be of old events.
pub(super) const COUNTED_BEFORE: &str = "dcgm";

/// GPU, XID and time of every event that is counted.
fn counted(history: &NodeHistory) -> impl Iterator<Item = (GpuIndex, f64, Timestamp)> {
    let series = history.series(&GPU_XID_EVENTS);
    series.filter_map(|(labels, window)| {
        let mut labels = labels.values();
        let (gpu, xid) = (labels.next()?, labels.next()?.parse().ok()?);
        let source = labels.next();
        let at = last_rise(window).or_else(|| {
            // The first event of an XID begins its series. It is an event if the same exporter exported the GPU before.
            source.filter(|source| *source != COUNTED_BEFORE)?;
            let watched = history.window(&GPU_UTILIZATION, &[gpu])?;
            let first = window.told().last()?.0;
            let begun = watched.told().last()?.0;
            (first > begun).then_some(first)
        })?;
        Some((gpu.parse().ok()?, xid, at))
    })
}

/// When a counter last rose.
fn last_rise(window: Window<'_>) -> Option<Timestamp> {
    let mut later: Option<(Timestamp, f64)> = None;
    for count in window.counts() {
        if let Some((at, value)) = later
            && count.count < value
        {
            return Some(at);
        }
        later = Some((count.at, count.count));
    }
    None
}

/// GPU, XID and time of every change of a gauge with the last XID. The first value has no time: it may be old.
fn shown(history: &NodeHistory) -> impl Iterator<Item = (GpuIndex, f64, Timestamp)> {
    let series = history.moving(&GPU_LAST_XID);
    series.filter_map(|(labels, window)| {
        let xid = window.value()?;
        let mut since = None;
        for (at, value) in window.told() {
            if value != xid {
                return Some((labels.values().next()?.parse().ok()?, xid, since?));
            }
            since = Some(at);
        }
        None
    })
}

/// GPU, XID and time of the newest event that a gauge with the number of recent events shows. It shows no old ones, so its first
/// value is an event; when one becomes too old, it falls.
fn recent(history: &NodeHistory) -> impl Iterator<Item = (GpuIndex, f64, Timestamp)> {
    let series = history.series(&GPU_RECENT_XIDS);
    series.filter_map(|(labels, window)| {
        let mut labels = labels.values();
        let (gpu, xid) = (labels.next()?, labels.next()?);
        let mut newer: Option<(Timestamp, f64)> = None;
        for (at, number) in window.unbroken() {
            if newer.is_some_and(|(_, later)| later > number) {
                break;
            }
            newer = Some((at, number));
        }
        let (at, number) = newer?;
        (number > 0.0).then_some((gpu.parse().ok()?, xid.parse().ok()?, at))
    })
}

fn evidence(part: Part, row: &Xid, view: &View<'_>) -> Evidence {
    let Xid { xid, meaning, .. } = row;
    Evidence {
        detector: NAME,
        signal: GPU_XID_EVENTS.name,
        class: row.class,
        effect: row.effect(),
        statement: format!("{part} reported XID {xid} ({meaning}): {}.", row.action),
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}
