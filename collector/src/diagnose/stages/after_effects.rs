//! What still shows of a fault that is over. The window of probes and transports is longer than that of the counters that named its part,
//! so that past losses would open a separate incident once the counters are quiet; GPUs that were slow because of their
//! host cool down one after another; receive buffers that were missing are counted for longer than their NIC is slow; what overflows beside lost cables is counted for longer than they are lost; a cable that is put
//! back where it belongs loses its link once more; and a host responds again before its links are up, or before the next sweep of
//! the subnet shows that they are.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::Part;
use railscope_model::metric::SWITCH_PORT_ECN_MARKED;

use crate::classes::signs::is_of_ends;
use crate::classes::{LINK_ERRORS, MISCABLED_RAIL, PORT_DOWN, RECEIVER_NOT_READY, UPLINK_DOWN};
use crate::detect::detector::Evidence;
use crate::detect::rules::{error_counters, probe_paths, slow_gpu, slow_receiver};
use crate::diagnose::incident::Finding;
use crate::diagnose::stages::posterior::pci_of;
use crate::diagnose::stages::reattribute::{late_at, paused_by};
use crate::diagnose::stages::reseats::BOOT_SECONDS;
use crate::diagnose::stages::short_of_cables::ShortOfCables;

/// What an open incident accounts for, each with the last time.
#[derive(Debug, Default)]
pub(crate) struct AfterEffects {
    /// Parts whose findings it explained, and its own unless only probes named that.
    accounted: BTreeMap<Part, Timestamp>,
    /// Switches that its part back-pressured.
    paused: BTreeMap<Part, Timestamp>,
    /// Cables that were where they do not belong.
    misplaced: BTreeMap<Part, Timestamp>,
    /// NICs whose PCIe link was slow.
    behind_links: BTreeMap<Part, Timestamp>,
    /// Cables that were down because their host was.
    of_hosts: BTreeMap<Part, Timestamp>,
    short: ShortOfCables,
}

/// Time within which a cable that was put back has its link.
const PUT_BACK_SECONDS: f64 = 60.0;

impl AfterEffects {
    /// Roots that only probes or transports name, or the clocks of a GPU, and that an open incident accounted for within their window: what
    /// was lost behind a dead switch is counted on each of its cables when it is back, and delay at a paused leaf by every
    /// node that sent through it. Likewise lost links and errors of cables that are put back, cables of a
    /// host that starts, and drops beside missing cables. They open no incident: a fault that
    /// persists names its part after that time.
    pub(crate) fn among(
        &mut self,
        fabric: &Fabric,
        groups: &BTreeMap<Part, Vec<Finding>>,
        is_open: impl Fn(&Part) -> bool,
        now: Timestamp,
    ) -> BTreeSet<Part> {
        self.forget(now);
        for (root, findings) in groups.iter().filter(|(root, _)| is_open(root)) {
            for Finding { evidence, .. } in findings {
                self.note(fabric, (root, evidence), now);
            }
        }
        let is_remaining = |root: &Part, evidence: &Evidence| {
            let explained = self.accounted.get(root).zip(window_of(evidence));
            let put_back = self
                .misplaced
                .get(&evidence.part)
                .zip(window_of_cable(evidence));
            let read_late = self
                .behind_links
                .get(root)
                .filter(|_| evidence.detector == slow_receiver::NAME);
            let read_late = read_late.map(|last| (last, probe_paths::WINDOW_SECONDS));
            let boots = self.of_hosts.get(&evidence.part);
            let boots = boots.filter(|_| evidence.class == &PORT_DOWN);
            let boots = boots.map(|last| (last, BOOT_SECONDS));
            let known = explained.into_iter().chain(put_back);
            let mut known = known.chain(read_late).chain(boots);
            self.short.explains(fabric, evidence, now)
                || known.any(|(last, window)| now.seconds_since(*last) <= window)
        };
        let was_late = |evidence: &Evidence| {
            let switches = late_at(fabric, evidence);
            switches
                .iter()
                .any(|switch| self.paused.contains_key(switch))
        };
        let is_after = |(root, findings): &(&Part, &Vec<Finding>)| {
            let mut findings = findings.iter().map(|found| &found.evidence);
            let may_be_late =
                |own: &Evidence| is_of_ends(own) || own.signal == SWITCH_PORT_ECN_MARKED.name;
            let is_late = findings
                .clone()
                .all(|own| may_be_late(own) && was_late(own));
            (is_late || findings.all(|own| is_remaining(root, own))) && !is_open(root)
        };
        let after = groups.iter().filter(is_after);
        after.map(|(root, _)| root.clone()).collect()
    }

    fn forget(&mut self, now: Timestamp) {
        self.short.forget(now);
        for known in [
            &mut self.accounted,
            &mut self.paused,
            &mut self.misplaced,
            &mut self.behind_links,
            &mut self.of_hosts,
        ] {
            known.retain(|_, last| now.seconds_since(*last) <= probe_paths::WINDOW_SECONDS);
        }
    }

    /// Notes what a finding of an open incident accounts for.
    fn note(&mut self, fabric: &Fabric, (root, evidence): (&Part, &Evidence), now: Timestamp) {
        let is_lost = [&PORT_DOWN, &UPLINK_DOWN].contains(&evidence.class);
        if is_lost && matches!(evidence.part, Part::SwitchLink(..)) {
            self.short.note(fabric, evidence, now);
        }
        let is_cable = matches!(evidence.part, Part::HostLink(..));
        if matches!(root, Part::Host(_)) && is_cable && evidence.class == &PORT_DOWN {
            self.of_hosts.insert(evidence.part.clone(), now);
        }
        if evidence.part != *root || window_of(evidence).is_none() {
            self.accounted.insert(evidence.part.clone(), now);
        }
        // A finding of a host stands for those of its GPUs.
        if evidence.detector == slow_gpu::NAME && matches!(evidence.part, Part::Host(_)) {
            let gpus = evidence.victims.iter();
            self.accounted.extend(gpus.map(|gpu| (gpu.clone(), now)));
        }
        // So does one of a card's PCIe link for those of its NICs, which their switch may report later.
        if let Part::PcieLink(node, pci) = &evidence.part {
            let nics = fabric
                .nics(node)
                .filter(|nic| pci_of(fabric, *nic) == Some(*pci));
            let nics = nics.map(|nic| (fabric.vertex(nic).part.clone(), now));
            self.behind_links.extend(nics);
        }
        if evidence.class == &MISCABLED_RAIL {
            let cables = evidence.related.iter().chain([&evidence.part]);
            self.misplaced
                .extend(cables.map(|cable| (cable.clone(), now)));
        }
        let switches = paused_by(fabric, evidence).into_iter();
        self.paused.extend(switches.map(|switch| (switch, now)));
    }
}

/// For how many seconds a finding may show what is over; `None` of one that shows what is.
fn window_of(evidence: &Evidence) -> Option<f64> {
    if is_of_ends(evidence) {
        Some(probe_paths::WINDOW_SECONDS)
    } else if evidence.class == &RECEIVER_NOT_READY {
        Some(error_counters::WINDOW_SECONDS)
    } else if evidence.detector == slow_receiver::NAME
        && matches!(evidence.part, Part::Nic(..) | Part::PcieLink(..))
    {
        Some(slow_receiver::WINDOW_SECONDS)
    } else {
        (evidence.detector == slow_gpu::NAME).then_some(slow_gpu::WINDOW_SECONDS)
    }
}

/// The same of a cable that is put back.
fn window_of_cable(evidence: &Evidence) -> Option<f64> {
    match evidence.class {
        class if class == &LINK_ERRORS => Some(probe_paths::WINDOW_SECONDS),
        class if class == &PORT_DOWN => Some(PUT_BACK_SECONDS),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::{
        EDGE_LOSSY, GPU_SLOW, HOST_COOLING, PATH_SLOW, PCIE_DEGRADED, PFC_STORM, SLOW_RECEIVER,
    };
    use crate::detect::found::{found, part};
    use crate::diagnose::stages::reattribute::tests::fabric;

    const NIC: &str = "nic/n1:mlx5_0";
    const LINK: &str = "link/n1:mlx5_0/1";

    #[test]
    fn losses_of_probes_that_an_open_incident_explained_open_none_after_it() {
        let probed = || found(probe_paths::NAME, &EDGE_LOSSY, LINK, &[]);
        let paused = || found("pause", &PFC_STORM, NIC, &[]);
        let errors = || found("error-counters", &LINK_ERRORS, LINK, &[]);
        let explained = || BTreeMap::from([(part(NIC), vec![paused(), probed()])]);
        let alone = |findings| BTreeMap::from([(part(LINK), findings)]);
        let at = |seconds: u64| Timestamp(seconds * 1_000);
        let [nic, link] = [part(NIC), part(LINK)];

        let (fabric, mut known) = (Fabric::default(), AfterEffects::default());
        let mut among = |groups, open: &[&Part], seconds| {
            let after = known.among(&fabric, &groups, |part| open.contains(&part), at(seconds));
            after.contains(&link)
        };
        // An explanation that is no incident yet may be noise.
        assert!(!among(explained(), &[], 0));
        assert!(!among(alone(vec![probed()]), &[], 1));

        assert!(!among(explained(), &[&nic], 10));
        assert!(among(alone(vec![probed()]), &[&nic], 20), "the rest of it");
        assert!(
            !among(alone(vec![probed(), errors()]), &[], 30),
            "counters say so, too"
        );
        assert!(!among(alone(vec![probed()]), &[&link], 40), "it is open");
        assert!(among(alone(vec![probed()]), &[], 160));
        assert!(
            !among(alone(vec![probed()]), &[], 161),
            "still lost: a fault of its own"
        );
    }

    #[test]
    fn gpus_that_were_slow_because_of_their_host_open_none_while_they_cool_down() {
        let [host, gpu] = ["host/n1", "gpu/n1:0"];
        let slow = || found(slow_gpu::NAME, &GPU_SLOW, gpu, &[]);
        let mut hot = found(slow_gpu::NAME, &HOST_COOLING, host, &[]);
        hot.evidence.victims.push(part(gpu));
        let alone = || BTreeMap::from([(part(gpu), vec![slow()])]);
        let at = |seconds: u64| Timestamp(seconds * 1_000);
        let (fabric, mut known) = (Fabric::default(), AfterEffects::default());
        let all = BTreeMap::from([(part(host), vec![hot])]);
        known.among(&fabric, &all, |root| *root == part(host), at(0));
        let mut is_after = |seconds| {
            let after = known.among(&fabric, &alone(), |_| false, at(seconds));
            after.contains(&part(gpu))
        };
        assert!(is_after(10) && is_after(60));
        assert!(!is_after(61), "still slow: a separate fault");
    }

    #[test]
    fn a_cable_that_is_put_back_opens_no_incident_by_the_link_that_it_lost() {
        let swapped = "link/n2:mlx5_1/1";
        let mut wrong = found("miscabled-rail", &MISCABLED_RAIL, LINK, &[]);
        wrong.evidence.related.push(part(swapped));
        let exchanged = BTreeMap::from([(part(LINK), vec![wrong])]);
        let at = |seconds: u64| Timestamp(seconds * 1_000);
        let (fabric, mut known) = (Fabric::default(), AfterEffects::default());
        known.among(&fabric, &exchanged, |root| *root == part(LINK), at(0));
        let mut is_after = |class, named: &str, seconds| {
            let alone = BTreeMap::from([(part(named), vec![found("", class, named, &[])])]);
            let after = known.among(&fabric, &alone, |_| false, at(seconds));
            after.contains(&part(named))
        };
        assert!(is_after(&LINK_ERRORS, LINK, 20) && is_after(&LINK_ERRORS, swapped, 20));
        assert!(is_after(&PORT_DOWN, swapped, 60));
        assert!(!is_after(&PORT_DOWN, swapped, 61), "it stays down");
        assert!(!is_after(&LINK_ERRORS, swapped, 151), "still losing links");
        assert!(!is_after(&LINK_ERRORS, "link/n3:mlx5_1/1", 20));
    }

    #[test]
    fn cables_of_a_host_that_responds_again_open_none_until_its_links_are_up() {
        let down = || found("port-state", &PORT_DOWN, LINK, &[]);
        let at = |seconds: u64| Timestamp(seconds * 1_000);
        let (fabric, mut known) = (Fabric::default(), AfterEffects::default());
        let mut is_after = |root: &str, open: bool, seconds| {
            let groups = BTreeMap::from([(part(root), vec![down()])]);
            let after = known.among(&fabric, &groups, |_| open, at(seconds));
            after.contains(&part(LINK))
        };
        assert!(!is_after("switch/leaf-1", true, 0));
        assert!(!is_after(LINK, false, 1), "of a switch");
        assert!(!is_after("host/n1", true, 10));
        assert!(is_after(LINK, false, 130));
        assert!(!is_after(LINK, false, 131), "they stay down");
    }

    #[test]
    fn losses_behind_a_dead_switch_open_none_when_it_is_back() {
        const SWITCH: &str = "switch/leaf-1";
        let down = |on: &str| found("port-state", &PORT_DOWN, on, &[]);
        let probed = || found(probe_paths::NAME, &EDGE_LOSSY, LINK, &[]);
        let dead = BTreeMap::from([(part(SWITCH), vec![down(LINK)])]);
        let alone = BTreeMap::from([(part(LINK), vec![probed()])]);
        let own = BTreeMap::from([(part(LINK), vec![down(LINK), probed()])]);
        let at = |seconds: u64| Timestamp(seconds * 1_000);
        let (switch, link) = (part(SWITCH), part(LINK));

        let (fabric, mut known) = (Fabric::default(), AfterEffects::default());
        known.among(&fabric, &dead, |part| *part == switch, at(0));
        let after = known.among(&fabric, &alone, |part| *part == switch, at(100));
        assert!(after.contains(&link));
        assert!(known.among(&fabric, &alone, |_| false, at(151)).is_empty());
        // The same of a cable whose port is up again.
        known.among(&fabric, &own, |part| *part == link, at(200));
        assert!(
            known
                .among(&fabric, &alone, |_| false, at(350))
                .contains(&link)
        );
    }

    #[test]
    fn what_was_late_at_a_paused_leaf_opens_none_after_the_pause() {
        const LEAF: &str = "switch/leaf";
        let named =
            |by, class, on: &str| BTreeMap::from([(part(on), vec![found(by, class, on, &[])])]);
        let paused = named("pause", &PFC_STORM, NIC);
        let at = |seconds: u64| Timestamp(seconds * 1_000);
        let (fabric, mut known) = (fabric(), AfterEffects::default());
        known.among(&fabric, &paused, |root| *root == part(NIC), at(0));
        let probed = |class, on| named(probe_paths::NAME, class, on);
        let mut after = |groups, seconds| {
            !known
                .among(&fabric, &groups, |_| false, at(seconds))
                .is_empty()
        };
        assert!(after(probed(&PATH_SLOW, LEAF), 100));
        assert!(after(probed(&PATH_SLOW, LINK), 100));
        assert!(!after(probed(&PATH_SLOW, "switch/spine"), 100));
        assert!(
            !after(probed(&EDGE_LOSSY, LINK), 100),
            "pause loses nothing"
        );
        assert!(
            !after(named("any", &PATH_SLOW, LEAF), 100),
            "a counter names it"
        );
        let mut marked = found("any", &PATH_SLOW, "link/leaf:33", &[]);
        marked.evidence.signal = SWITCH_PORT_ECN_MARKED.name;
        let marked = || BTreeMap::from([(part("link/leaf:33"), vec![marked.clone()])]);
        assert!(after(marked(), 100), "its queues empty last");
        assert!(!after(probed(&PATH_SLOW, LEAF), 151));
        assert!(!after(marked(), 151));
    }

    #[test]
    fn a_nic_whose_pcie_link_was_slow_opens_none_where_its_switch_is_read_later() {
        const PCIE: &str = "pcie/n1:0000:10:00.0";
        let slow = |on: &str| {
            let found = found(slow_receiver::NAME, &SLOW_RECEIVER, on, &[]);
            BTreeMap::from([(part(on), vec![found])])
        };
        let at = |seconds: u64| Timestamp(seconds * 1_000);
        let (fabric, mut known) = (fabric(), AfterEffects::default());
        let mut after = |groups, open: bool, seconds| {
            let after = known.among(&fabric, &groups, |_| open, at(seconds));
            !after.is_empty()
        };
        assert!(!after(slow(NIC), false, 0));
        assert!(!after(slow(PCIE), true, 10));
        let unready = || {
            let found = found("error-counters", &RECEIVER_NOT_READY, "host/n1", &[]);
            BTreeMap::from([(part("host/n1"), vec![found])])
        };
        let both = [slow(PCIE), unready()].into_iter().flatten();
        let both = both.flat_map(|(_, found)| found).collect();
        assert!(!after(BTreeMap::from([(part(PCIE), both)]), true, 10));
        assert!(after(unready(), false, 130) && !after(unready(), false, 131));
        assert!(
            after(slow(NIC), false, 160),
            "by a switch that is read once a minute"
        );
        assert!(!after(slow(NIC), false, 161), "it is still slow");
    }

    #[test]
    fn a_nic_that_waited_for_a_slow_gpu_opens_none_while_its_pause_fades() {
        const GPU: &str = "pcie/n1:0000:20:00.0";
        const OF_NIC: &str = "pcie/n1:0000:10:00.0";
        let pauses = || found(slow_receiver::NAME, &SLOW_RECEIVER, OF_NIC, &[]);
        let narrow = || found("degraded-link", &PCIE_DEGRADED, GPU, &[]);
        let at = |seconds: u64| Timestamp(seconds * 1_000);
        let (fabric, mut known) = (fabric(), AfterEffects::default());
        let mut after = |of: &str, findings, open: bool, seconds| {
            let groups = BTreeMap::from([(part(of), findings)]);
            !known
                .among(&fabric, &groups, |_| open, at(seconds))
                .is_empty()
        };
        assert!(!after(OF_NIC, vec![pauses()], false, 0));
        assert!(!after(GPU, vec![narrow(), pauses()], true, 10));
        let window = slow_receiver::WINDOW_SECONDS as u64;
        assert!(after(OF_NIC, vec![pauses()], false, 10 + window));
        assert!(
            !after(OF_NIC, vec![pauses()], false, 11 + window),
            "it still pauses"
        );
    }
}
