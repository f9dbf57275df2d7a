//! The root cause by one finding, by several, and by findings that cannot distinguish parts.

use railscope_model::fabric::{Link, Timestamp, Witness};

use super::*;
use crate::classes::belief::SURE_ENOUGH_TO_PAGE;
use crate::classes::{
    EDGE_LOSSY, GPU_SLOW, LINK_ERRORS, PCIE_DEGRADED, PORT_DOWN, PORT_FLAPPING, SLOW_RECEIVER,
    UPLINK_LOSSY,
};
use crate::detect::found::{found, part};

const CABLE: &str = "link/n1:mlx5_0/1";
const NIC: &str = "nic/n1:mlx5_0";
const PCIE: &str = "pcie/n1:0000:10:00.0";

/// A host whose NIC is connected to a leaf that has three cables to one spine.
fn fabric() -> Fabric {
    let mut fabric = Fabric::default();
    let switch = || Equipment::Switch {
        guid: None,
        ports: 64,
        description: String::new(),
    };
    let leaf = fabric.upsert(part("switch/leaf"), switch());
    let spine = fabric.upsert(part("switch/spine"), switch());
    let host = fabric.upsert(part("host/n1"), Equipment::Host);
    let nic = Equipment::Nic {
        guid: None,
        pci: Some("0000:10:00.0".parse().expect("an address")),
        rail: None,
    };
    let nic = fabric.upsert(part(NIC), nic);
    fabric.connect(
        host,
        nic,
        Link::plain(LinkKind::Inside, Witness::Exporter, Timestamp(0)),
    );
    let cable = |ports| Link::cable(ports, None, Witness::Subnet, Timestamp(0));
    fabric.connect(nic, leaf, cable((1, 1)));
    for port in 33..36 {
        fabric.add_link(leaf, spine, cable((port, port - 32)));
    }
    fabric
}

fn weighed(root: &str, findings: &[Finding], related: &[&str]) -> Weighed {
    let related = related.iter().map(|text| part(text)).collect();
    let weighed = weigh(&fabric(), &part(root), findings, &related);
    let all: f64 = weighed.candidates.iter().map(|one| one.posterior).sum();
    assert!(all + weighed.no_part <= 1.0 + 1e-9, "{weighed:?}");
    assert_eq!(weighed.candidates[0].part, part(root));
    weighed
}

fn names(weighed: &Weighed) -> Vec<String> {
    let parts = weighed.candidates.iter();
    parts.map(|one| one.part.to_string()).collect()
}

#[test]
fn one_finding_is_as_sure_as_its_class_and_leaves_the_rest_to_what_shows_the_same() {
    let one = weighed(CABLE, &[found("d", &PORT_DOWN, CABLE, &[])], &[]);
    assert!(
        (one.posterior() - belief(&PORT_DOWN)).abs() < 1e-9,
        "{one:?}"
    );
    assert_eq!(names(&one), [CABLE, NIC, "switch/leaf"]);
    let left: f64 = one.candidates[1..].iter().map(|one| one.posterior).sum();
    assert!((one.posterior() + left + one.no_part - 1.0).abs() < 1e-9);
    assert!(left > one.no_part, "light is not lost by software: {one:?}");
}

#[test]
fn a_second_detector_makes_surer_than_a_second_finding_of_the_same() {
    let sure = |detectors: &[&'static str]| {
        let findings = detectors
            .iter()
            .map(|name| found(name, &PORT_FLAPPING, CABLE, &[]));
        weighed(CABLE, &findings.collect::<Vec<_>>(), &[]).posterior()
    };
    let (alone, again, other) = (sure(&["a"]), sure(&["a", "a"]), sure(&["a", "b"]));
    assert!(
        alone < again && again < other && other <= AT_MOST,
        "{alone} {again} {other}"
    );
}

#[test]
fn what_a_part_explains_of_another_takes_the_blame_from_that() {
    let receiver = found("slow-receiver", &SLOW_RECEIVER, NIC, &[]);
    let alone = weighed(NIC, std::slice::from_ref(&receiver), &[]);
    assert_eq!(alone.candidates[1].part, part(PCIE), "{alone:?}");
    let width = found("degraded-link", &PCIE_DEGRADED, PCIE, &[]);
    let both = weighed(PCIE, &[width.clone(), receiver], &[NIC]);
    let width = weighed(PCIE, &[width], &[]);
    assert!(both.posterior() > width.posterior());
    assert!(
        !names(&both).contains(&NIC.to_owned()),
        "its symptom is no culprit: {both:?}"
    );
}

#[test]
fn parts_that_cannot_be_told_apart_share_the_blame_until_a_counter_names_one() {
    let uplinks = ["link/leaf:33", "link/leaf:34", "link/leaf:35"];
    let probes = found("probe-paths", &UPLINK_LOSSY, "switch/leaf", &uplinks);
    let leaf = weighed("switch/leaf", std::slice::from_ref(&probes), &[]);
    assert!(leaf.posterior() < 0.5 && leaf.posterior() < SURE_ENOUGH_TO_PAGE);
    assert_eq!(names(&leaf), ["switch/leaf", uplinks[0], uplinks[1]]);
    let counters = found("lossy-cable", &UPLINK_LOSSY, uplinks[1], &[]);
    let split = weighed(uplinks[1], &[counters, probes], &["switch/leaf"]);
    assert!(split.posterior() > SURE_ENOUGH_TO_PAGE, "{split:?}");
    assert!(split.candidates[1].posterior < 0.01, "{split:?}");
}

#[test]
fn two_faults_at_once_are_rarer_than_one() {
    let edge = found("probe-paths", &EDGE_LOSSY, CABLE, &[]);
    let errors = found("error-counters", &LINK_ERRORS, "link/n2:mlx5_0/1", &[]);
    // As a switch explains the cables that are connected to it.
    let both = weighed("switch/leaf", &[edge, errors], &[]);
    assert!(both.posterior() > 0.99, "{both:?}");
}

#[test]
fn a_gpu_that_computes_longer_may_have_more_to_do_and_one_whose_clock_is_down_has_not() {
    use railscope_model::metric::{GPU_CLOCK, GPU_TENSOR_ACTIVE};
    let no_part = |signal| {
        let mut slow = found("d", &GPU_SLOW, "gpu/n1:0", &[]);
        slow.evidence.signal = signal;
        weighed("gpu/n1:0", &[slow], &[]).no_part
    };
    assert!(no_part(GPU_TENSOR_ACTIVE.name) > no_part(GPU_CLOCK.name));
}

#[test]
fn many_findings_are_as_sure_as_can_be_and_no_surer() {
    let cables: Vec<String> = (0..200).map(|n| format!("link/n{n}:mlx5_0/1")).collect();
    let findings = cables
        .iter()
        .map(|cable| found("d", &PORT_DOWN, cable, &[]));
    let findings: Vec<Finding> = findings.collect();
    let related: Vec<&str> = cables.iter().map(String::as_str).collect();
    let dead = weighed("switch/leaf", &findings, &related);
    assert_eq!(dead.posterior(), AT_MOST);
    assert_eq!(
        dead.candidates.len(),
        1,
        "its cables are no culprits: {dead:?}"
    );
    assert_eq!(dead.candidates[0].nats.len(), MOST_FINDINGS);
}
