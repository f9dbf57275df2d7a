//! Cables of idle nodes that lose their link: an operator who reseats one drains the node first, so a ticket is for those that
//! stay down, or come back down.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::{NodeName, Part};
use railscope_model::metric::{
    GPU_MEMORY_SIZE, GPU_MEMORY_USED, GPU_UTILIZATION, Metric, NIC_PRIORITY_BYTES,
    RDMA_PORT_RECEIVE_BYTES, RDMA_PORT_TRANSMIT_BYTES, RDMA_PORT_UP, WORKLOAD,
};
use railscope_model::reading::Labels;

use crate::assemble::netdev::has_gpus;
use crate::classes::{LINK_ERRORS, PORT_DOWN, PORT_FLAPPING};
use crate::detect::gpus::any_is_busy;
use crate::diagnose::incident::Finding;
use crate::diagnose::stages::job_impact::{IDLE_SECONDS, does_nothing};
use crate::diagnose::stages::lost_links::{PARENT_MIN_CHILDREN, cables_of_switches};
use crate::jobs::job::Jobs;
use crate::store::{History, Increase, NodeHistory, Window};

/// How long reseating, cleaning or swapping may take (a choice).
const RESEAT_SECONDS: f64 = 120.0;
/// How long an idle node may be off: a GPU server needs ten minutes to boot (a choice).
const OFF_SECONDS: f64 = 900.0;
/// How long the cables of a node that answers again may stay down: it answers before its links are up (a choice).
pub(crate) const BOOT_SECONDS: f64 = 120.0;
/// How long a cable that was down is remembered: one that goes down again is not reseated (a choice).
const REMEMBERED_SECONDS: f64 = 1_800.0;
/// A node that reports nothing any more was idle if it was so for as long before: nodes are switched off soon after the last job
/// (a choice).
const IDLE_BEFORE_OFF_SECONDS: f64 = 10.0;
/// Share of its memory that a GPU without a job has in use at most: a context of a monitoring agent (a choice).
const MOST_HELD: f64 = 0.02;
/// The same in bytes where no size is reported: contexts of a few agents.
const MOST_HELD_BYTES: f64 = 1e9;
/// How long the memory of a node's GPUs must have been free, and the node idle, until its job has ended: a job that loses a cable
/// waits longer for its timeouts than it takes to see the loss (a choice).
const FREED_SECONDS: f64 = 30.0;
/// Bytes per second of a port that keep-alives alone do not send (a choice).
const KEEP_ALIVE: f64 = 1e6;

/// Cables that were held.
#[derive(Debug, Default)]
pub(crate) struct Reseats(BTreeMap<Part, Held>);

#[derive(Debug)]
struct Held {
    /// When the cable was first found to be down.
    since: Timestamp,
    /// Whether an incident of its node asked then to switch the node off.
    is_in_repair: bool,
    /// When its node was last off.
    off: Option<Timestamp>,
    /// Whether it waits only because the node's next report was overdue.
    is_early: bool,
}

impl Held {
    /// Notes whether its node is off. What a node no longer reports is forgotten while its BMC still answers.
    fn see(&mut self, node: &NodeHistory, now: Timestamp) {
        let was_off = self.off.is_some();
        if reports(node, now).map_or(was_off, |reports| !reports) {
            self.off = Some(now);
        }
    }

    fn is_off(&self, now: Timestamp) -> bool {
        self.off == Some(now)
    }

    /// Whether there is time left, with what is known of its node.
    fn has_time(&self, now: Timestamp) -> bool {
        let waited = now.seconds_since(self.since);
        let boots = |off: Timestamp| now.seconds_since(off) < BOOT_SECONDS;
        waited < RESEAT_SECONDS || waited < OFF_SECONDS && self.off.is_some_and(boots)
    }
}

impl Reseats {
    /// Cables whose incident waits, and hosts that lost such cables: their node is idle, or went off where an incident asks for it,
    /// they have been down for a short time, and not before. Errors of such a cable wait with it. Those of three or more hosts of
    /// one switch are no reseating.
    pub(crate) fn held(
        &mut self,
        fabric: &Fabric,
        (history, jobs, now): (&History, &Jobs, Timestamp),
        findings: &[Finding],
        was_open: impl Fn(&Part) -> bool,
        is_in_repair: impl Fn(&NodeName) -> bool,
    ) -> BTreeSet<Part> {
        self.0
            .retain(|_, held| now.seconds_since(held.since) <= REMEMBERED_SECONDS);
        let runs_job = |(name, node): (&NodeName, &NodeHistory), is_off: bool| {
            // Of a node that is off, the last page counts: jobs are remembered for longer.
            let is_reported = || node.series(&WORKLOAD).next().is_some();
            jobs.of_node(name).next().is_some() && (!is_off || is_reported())
        };
        let may_wait = |host: (&NodeName, &NodeHistory), is_off, is_in_repair| {
            // The incident that is open reports its job.
            is_idle(host.1, now) && !runs_job(host, is_off)
                || is_in_repair && may_be_off(host.1, now)
        };
        let of = |class| {
            let all = findings.iter().map(|found| &found.evidence);
            all.filter(move |evidence| evidence.class == class)
        };
        let down: BTreeSet<&Part> = of(&PORT_DOWN).map(|evidence| &evidence.part).collect();
        for part in down.iter().filter(|part| !was_open(part)) {
            let Some(host) = host_of(part, history) else {
                continue;
            };
            let is_in_repair = is_in_repair(host.0);
            if may_wait(host, is_off(host.1, now), is_in_repair) {
                let is_early = may_be_off(host.1, now) && !is_off(host.1, now);
                let new = Held {
                    since: now,
                    is_in_repair,
                    off: None,
                    is_early,
                };
                self.0.entry((*part).clone()).or_insert(new);
            }
        }
        // One that goes down repeatedly is not reseated.
        let flapping: BTreeSet<&Part> = of(&PORT_FLAPPING).map(|evidence| &evidence.part).collect();
        let errors = of(&LINK_ERRORS).map(|evidence| &evidence.part);
        let mut held: BTreeSet<Part> = down.iter().copied().chain(errors).cloned().collect();
        held.retain(|part| {
            let (Some(held), Some(host)) = (self.0.get_mut(part), host_of(part, history)) else {
                return false;
            };
            held.see(host.1, now);
            let is_off = held.is_off(now);
            held.is_early &= !is_off;
            // A node that boots has no past, and its switch may be read later.
            let is_unused = !any_is_busy(host.1) && !runs_job(host, is_off) && !held.is_early;
            !flapping.contains(part)
                && held.has_time(now)
                && (is_unused || may_wait(host, is_off, held.is_in_repair))
        });
        for cables in cables_of_switches(fabric, &down).into_values() {
            let lost = || cables.iter().filter(|(cable, _)| down.contains(cable));
            // No switch turns its hosts off.
            let is_off = |cable: &Part| self.0.get(cable).is_some_and(|held| held.is_off(now));
            let of_others = lost().filter(|(cable, _)| !is_off(cable));
            let hosts: BTreeSet<_> = of_others.filter_map(|(cable, _)| cable.node()).collect();
            if hosts.len() >= PARENT_MIN_CHILDREN {
                lost().for_each(|(cable, _)| {
                    held.remove(cable);
                });
            }
        }
        // What is found at a host itself does not wait.
        let of_itself: BTreeSet<&Part> = findings.iter().map(|own| &own.evidence.part).collect();
        let hosts = held
            .iter()
            .filter_map(|cable| Some(Part::Host(cable.node()?.clone())));
        let hosts = hosts.filter(|host| !was_open(host) && !of_itself.contains(host));
        let hosts: Vec<_> = hosts.collect();
        held.extend(hosts);
        held
    }
}

/// The node at whose NIC a cable ends.
fn host_of<'a>(cable: &'a Part, history: &'a History) -> Option<(&'a NodeName, &'a NodeHistory)> {
    let Part::HostLink(name, _) = cable else {
        return None;
    };
    Some((name, history.node(name)?))
}

/// Whether a node did not compute, send or receive lately, or before it became silent. A host without GPUs, such as a login node,
/// is only idle if it is off. A node whose next report is overdue may be off already.
fn is_idle(node: &NodeHistory, now: Timestamp) -> bool {
    let is_off = may_be_off(node, now);
    let is_free = holds_nothing(node);
    let seconds = if is_off {
        IDLE_BEFORE_OFF_SECONDS
    } else if is_free {
        // A job that pauses keeps its memory.
        FREED_SECONDS
    } else {
        IDLE_SECONDS
    };
    let is_unused = does_nothing(node, seconds) || is_off && !has_gpus(node);
    // What a node without a job reads and writes is of no other node's concern.
    is_unused && (is_free || carries_nothing(node, seconds))
}

/// Whether all GPUs of a node have had at most [`MOST_HELD`] of their memory in use for the last [`FREED_SECONDS`] that it reported;
/// where its size is not reported, of the most that was in use lately, or [`MOST_HELD_BYTES`].
fn holds_nothing(node: &NodeHistory) -> bool {
    let mut all = node.series(&GPU_MEMORY_USED).peekable();
    let is_free = |(labels, used): (&Labels, Window<'_>)| {
        let labels: Vec<&str> = labels.values().collect();
        let of_most = || MOST_HELD * used.values().fold(0.0, f64::max);
        let size = node.value(&GPU_MEMORY_SIZE, &labels);
        let limit = size.map_or_else(|| of_most().max(MOST_HELD_BYTES), |size| MOST_HELD * size);
        let newest = used.latest().map(|(newest, _)| newest);
        let mut free = used.told().take_while(|(_, used)| *used <= limit);
        free.any(|(at, _)| newest.is_some_and(|newest| newest.seconds_since(at) >= FREED_SECONDS))
    };
    all.peek().is_some() && all.all(is_free)
}

/// Whether a node's next report of GPUs and RDMA ports is overdue, or it reports neither any more.
fn may_be_off(node: &NodeHistory, now: Timestamp) -> bool {
    reports_unless(node, |window| window.is_overdue(now)) == Some(false)
}

/// Whether a node reports neither GPUs nor RDMA ports any more.
fn is_off(node: &NodeHistory, now: Timestamp) -> bool {
    reports(node, now) == Some(false)
}

/// Whether a node still reports GPUs or RDMA ports; none of a node of which neither is known.
fn reports(node: &NodeHistory, now: Timestamp) -> Option<bool> {
    reports_unless(node, |window| window.is_late(now))
}

/// The same by what tells that it no longer does.
fn reports_unless(node: &NodeHistory, is_gone: impl Fn(Window<'_>) -> bool) -> Option<bool> {
    let gpus = node.series(&GPU_UTILIZATION);
    let mut all = gpus.chain(node.series(&RDMA_PORT_UP)).peekable();
    all.peek()?;
    Some(!all.all(|(_, window)| is_gone(window)))
}

/// Whether its RDMA ports have counters of bytes, and neither these nor their priorities have carried more than keep-alives for the
/// last `seconds` that they reported, or in the newest step.
fn carries_nothing(node: &NodeHistory, seconds: f64) -> bool {
    let rates = |metric: &'static Metric| {
        let ports = node.series(metric);
        ports.map(move |(_, window)| window.newest_increase(seconds).map(Increase::rate))
    };
    let mut of_rdma = rates(&RDMA_PORT_RECEIVE_BYTES)
        .chain(rates(&RDMA_PORT_TRANSMIT_BYTES))
        .peekable();
    of_rdma.peek().is_some()
        && of_rdma
            .chain(rates(&NIC_PRIORITY_BYTES))
            .all(|rate| rate.is_some_and(|rate| rate < KEEP_ALIVE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::detector::{Evidence, Explanation};

    const DOWN_AT: u64 = 125;

    fn at(seconds: u64) -> Timestamp {
        Timestamp(1_700_000_000_000 + seconds * 1000)
    }

    /// A node that computes and sends until a second, then neither, and is last heard of at second 115.
    fn switched_off(busy_until: u64) -> History {
        switched_off_with(busy_until, true)
    }

    /// The same of a node with or without GPUs.
    fn switched_off_with(busy_until: u64, has_gpus: bool) -> History {
        let node: NodeName = "node-1".parse().expect("a name");
        let mut history = History::default();
        for seconds in (5..=115).step_by(5) {
            let busy = u64::from(seconds <= busy_until);
            let bytes = seconds.min(busy_until) * 1_000_000_000;
            let labels = "device=\"mlx5_0\",port=\"1\"";
            let of_gpu = "gpu=\"0\",uuid=\"GPU-0\",pci=\"\",name=\"\",serial=\"\",vbios=\"\",driver=\"\",architecture=\"\",numa_node=\"\"";
            let gpu = format!(
                "railscope_gpu_info{{{of_gpu}}} 1\nrailscope_gpu_utilization_ratio{{gpu=\"0\"}} {busy}\n"
            );
            let gpu = if has_gpus { gpu } else { String::new() };
            let page = format!(
                "{gpu}railscope_rdma_port_up{{{labels}}} 1\n\
                 railscope_rdma_port_transmit_bytes_total{{{labels}}} {bytes}\n"
            );
            history.node_mut(&node).ingest(&page, at(seconds));
        }
        history
    }

    /// Whether the loss of its cable waits at a time, where an incident asks to switch the node off or none does.
    fn waits_now(reseats: &mut Reseats, history: &History, is_in_repair: bool, now: u64) -> bool {
        let cable: Part = "link/node-1:mlx5_0/1".parse().expect("a cable");
        let evidence = Evidence {
            detector: "test",
            signal: "",
            class: &PORT_DOWN,
            effect: 1.0,
            statement: String::new(),
            victims: Vec::new(),
            related: Vec::new(),
            alike: Vec::new(),
            part: cable.clone(),
        };
        let explanation = Explanation {
            check: "",
            threshold: String::new(),
            clears: "",
        };
        let found = [Finding {
            evidence,
            explanation,
        }];
        let (fabric, jobs) = (Fabric::default(), Jobs::default());
        let seen = (history, &jobs, at(now));
        let held = reseats.held(&fabric, seen, &found, |_| false, |_| is_in_repair);
        held.contains(&cable)
    }

    /// The same once it has been down since [`DOWN_AT`]. The incident may be over before the node is back.
    fn waits(history: &History, is_in_repair: bool, now: u64) -> bool {
        let mut reseats = Reseats::default();
        waits_now(&mut reseats, history, is_in_repair, DOWN_AT);
        waits_now(&mut reseats, history, false, now)
    }

    #[test]
    fn a_node_that_is_switched_off_soon_after_its_job_was_idle() {
        let history = switched_off(100);
        assert!(waits(&history, false, 130) && waits(&history, false, 1020));
        assert!(!waits(&history, false, 1030));
        assert!(!waits(&switched_off(110), false, 130));
    }

    #[test]
    fn a_cable_that_is_lost_before_its_node_is_late_waits_once_the_next_report_is_overdue() {
        let history = switched_off(100);
        let mut reseats = Reseats::default();
        // Last heard of at 115, each 5 s.
        assert!(!waits_now(&mut reseats, &history, false, 120));
        assert!(waits_now(&mut reseats, &history, false, 122));
        assert!(!waits_now(
            &mut Reseats::default(),
            &switched_off(110),
            false,
            122
        ));
        // It was only late, and has computed until shortly before.
        let (mut reseats, mut history) = (Reseats::default(), switched_off(100));
        assert!(waits_now(&mut reseats, &history, false, 122));
        let node: NodeName = "node-1".parse().expect("a name");
        let page = "railscope_gpu_utilization_ratio{gpu=\"0\"} 0\n";
        history.node_mut(&node).ingest(page, at(123));
        assert!(!waits_now(&mut reseats, &history, false, 125));
    }

    /// The switch shows the ports of a node that has booted to be down until its driver has them up.
    #[test]
    fn the_cables_of_a_node_that_was_off_wait_a_little_longer() {
        let (mut reseats, mut history) = (Reseats::default(), switched_off(100));
        for seconds in (DOWN_AT..=600).step_by(5) {
            waits_now(&mut reseats, &history, false, seconds);
        }
        let node: NodeName = "node-1".parse().expect("a name");
        let page = "railscope_gpu_utilization_ratio{gpu=\"0\"} 0\n";
        for seconds in (605..=735).step_by(5) {
            history.node_mut(&node).ingest(page, at(seconds));
            let still = waits_now(&mut reseats, &history, false, seconds);
            assert_eq!(still, seconds < 720, "{seconds}");
        }
    }

    #[test]
    fn a_node_that_is_off_waits_although_its_bmc_answers() {
        off_with_bmc(100, false);
        // It computed until an incident asked to switch it off.
        off_with_bmc(115, true);
    }

    fn off_with_bmc(busy_until: u64, is_in_repair: bool) {
        let (mut reseats, mut history) = (Reseats::default(), switched_off(busy_until));
        for seconds in (DOWN_AT..=170).step_by(5) {
            assert!(waits_now(&mut reseats, &history, is_in_repair, seconds));
        }
        let node: NodeName = "node-1".parse().expect("a name");
        let page = "railscope_fan_speed_rpm{chip=\"bmc\",sensor=\"fan1\"} 9000\n";
        for seconds in (175..=1_030).step_by(5) {
            history.node_mut(&node).ingest(page, at(seconds));
            let still = waits_now(&mut reseats, &history, is_in_repair, seconds);
            assert_eq!(still, seconds < DOWN_AT + 900, "{seconds}");
        }
    }

    /// Its next report is not due yet.
    #[test]
    fn a_node_whose_job_has_freed_the_memory_waits_sooner_and_one_that_pauses_does_not() {
        const STOPS: u64 = 80;
        let node: NodeName = "node-1".parse().expect("a name");
        const SIZE: &str = "railscope_gpu_memory_size_bytes{gpu=\"0\"} 80e9\n";
        // Its monitoring and file systems continue.
        let others = 3_000_000;
        for (used, freed_at, size, others, expected) in [
            (1, STOPS, SIZE, 0, true),
            (1, STOPS, SIZE, others, true),
            (1, STOPS, "", 0, true),
            (1, DOWN_AT - 20, SIZE, 0, false),
            (50, STOPS, SIZE, 0, false),
            (50, STOPS, "", 0, false),
        ] {
            let mut history = History::default();
            for seconds in (5..=DOWN_AT).step_by(5) {
                let used = if seconds < freed_at { 50 } else { used };
                let page = format!(
                    "railscope_gpu_utilization_ratio{{gpu=\"0\"}} {}\n\
                     {size}railscope_gpu_memory_used_bytes{{gpu=\"0\"}} {used}e9\n\
                     railscope_rdma_port_transmit_bytes_total{{device=\"mlx5_0\",port=\"1\"}} {}\n",
                    u8::from(seconds < STOPS),
                    seconds.min(STOPS) * 1_000_000_000 + seconds * others
                );
                history.node_mut(&node).ingest(&page, at(seconds));
            }
            let waits = waits_now(&mut Reseats::default(), &history, false, DOWN_AT + 1);
            assert_eq!(waits, expected, "{used} {freed_at} {size} {others}");
        }
    }

    #[test]
    fn a_host_without_gpus_that_carried_nothing_may_be_switched_off() {
        assert!(waits(&switched_off_with(100, false), false, 130));
        assert!(!waits(&switched_off_with(110, false), false, 130));
    }

    /// The switch shows the port to be down for one scrape more.
    #[test]
    fn a_node_that_boots_still_waits_and_one_that_computes_does_not() {
        for (busy, expected) in [(0, true), (1, false)] {
            let (mut reseats, mut history) = (Reseats::default(), switched_off(100));
            assert!(waits_now(&mut reseats, &history, false, DOWN_AT));
            assert!(waits_now(&mut reseats, &history, false, 295));
            let node: NodeName = "node-1".parse().expect("a name");
            let page = format!("railscope_gpu_utilization_ratio{{gpu=\"0\"}} {busy}\n");
            history.node_mut(&node).ingest(&page, at(300));
            let still = waits_now(&mut reseats, &history, false, 305);
            assert_eq!(still, expected, "{busy}");
        }
    }

    #[test]
    fn a_node_with_a_lost_gpu_may_be_switched_off_while_it_computes() {
        let history = switched_off(115);
        assert!(!waits(&history, false, 130));
        assert!(waits(&history, true, 130) && waits(&history, true, 1020));
        assert!(!waits(&history, true, 1030));
    }
}
