//! Faults that only hosts and switches report: the inside of nodes, GUIDs, and the cables of a RoCE leaf-spine.

use std::sync::Arc;

use railscope_collector::analyzer::Analyzer;
use railscope_collector::fabric::lint::Finding;
use railscope_collector::fabric::lldp::text::parse_neighbors;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;
use railscope_model::exposition::{Format, Page};
use railscope_model::identity::Part;
use railscope_model::metric::Profile;
use railscope_model::plan::WiringPlan;
use railscope_simulator::cluster::Cluster;
use railscope_simulator::show::ibnetdiscover::ibnetdiscover;
use railscope_simulator::show::readings::Exporters;
use railscope_simulator::show::{lldp, plan};
use railscope_simulator::spec::{Change, ClusterSpec, Transport};
use railscope_simulator::wiring::Wiring;

use super::{NOW, spec};

/// Rules that are shown here.
pub(super) const RULES: [&str; 3] = ["gpu-nic-affinity", "device-order", "duplicate-guid"];

/// Every node's exposition and what the switches report; `edit` is a change of one node.
fn heard(
    spec: &ClusterSpec,
    plan: Option<WiringPlan>,
    edit: impl Fn(&str, String) -> String,
) -> Vec<Finding> {
    let cluster = Cluster::new(spec.clone(), 1).expect("a cluster");
    let exporters = Exporters::of(&cluster);
    let mut analyzer = Analyzer::default();
    analyzer.set_targets(exporters.names());
    analyzer.set_plan(plan);
    for (name, reading) in exporters.read(&cluster) {
        let page = Page::new(Arc::new(reading)).write(Format::Text, Profile::Full);
        let ingested = analyzer.ingest(name, &edit(name.as_str(), page), NOW);
        assert_eq!(ingested.errors.len(), 0, "{name}");
    }
    if spec.transport == Transport::Infiniband {
        let subnet = ibnetdiscover(cluster.wiring(), NOW);
        analyzer.take_subnet(parse_ibnetdiscover(&subnet), NOW);
    } else {
        for (switch, text) in lldp::switches(&cluster) {
            analyzer.take_switch(&switch, parse_neighbors(&text), NOW);
        }
    }
    analyzer.tick(NOW).lint.to_vec()
}

fn said(findings: &[Finding]) -> String {
    findings.iter().map(ToString::to_string).collect()
}

/// One finding: its rule and its parts.
fn check(what: &str, findings: &[Finding], rule: &str, parts: &[&str]) {
    let text = format!("{what}:\n{}", said(findings));
    let [finding] = findings else {
        panic!("not one finding: {text}")
    };
    assert_eq!(finding.rule.name, rule, "{text}");
    let found: Vec<_> = finding.parts.iter().map(ToString::to_string).collect();
    assert_eq!(&found[..parts.len().min(found.len())], parts, "{text}");
}

fn small(transport: Transport) -> ClusterSpec {
    ClusterSpec {
        transport,
        ..ClusterSpec::demo(8).expect("a cluster")
    }
}

/// An exposition with two words swapped.
fn exchanged(page: &str, one: &str, other: &str) -> String {
    page.replace(one, "\0")
        .replace(other, one)
        .replace('\0', other)
}

#[test]
fn devices_with_each_others_names_are_named_and_their_cables_are_not() {
    for transport in [Transport::Infiniband, Transport::Roce] {
        let spec = small(transport);
        assert_eq!(said(&heard(&spec, None, |_, page| page)), "", "healthy");
        let findings = heard(&spec, None, |node, page| {
            if node == "gpu-node-03" {
                exchanged(&page, "\"mlx5_2\"", "\"mlx5_5\"")
            } else {
                page
            }
        });
        let parts = ["nic/gpu-node-03:mlx5_2", "nic/gpu-node-03:mlx5_5"];
        check(transport.name(), &findings, "device-order", &parts);
    }
}

#[test]
fn a_node_whose_gpus_are_nearest_to_other_nics_is_named() {
    for transport in [Transport::Infiniband, Transport::Roce] {
        let findings = heard(&small(transport), None, |node, page| {
            let lines = page.lines().map(|line| {
                let is_pair = node == "gpu-node-05" && line.starts_with("railscope_gpu_nic_info{");
                // GPU 0 sits where GPU 1 sits on the peers, and vice versa.
                if is_pair {
                    exchanged(line, "gpu=\"0\"", "gpu=\"1\"") + "\n"
                } else {
                    format!("{line}\n")
                }
            });
            lines.collect()
        });
        check(
            transport.name(),
            &findings,
            "gpu-nic-affinity",
            &["host/gpu-node-05"],
        );
    }
}

#[test]
fn two_devices_of_one_guid_are_named() {
    let spec = small(Transport::Roce);
    let guids: Vec<String> = Wiring::plan(&spec)
        .expect("a wiring")
        .nics
        .iter()
        .map(|nic| nic.guid.to_string())
        .collect();
    let findings = heard(&spec, None, |node, page| {
        // The first device of the seventh node has that of the first: an adapter's flash was cloned.
        if node == "gpu-node-06" {
            page.replace(&guids[6 * 8], &guids[0])
        } else {
            page
        }
    });
    let parts = ["nic/gpu-node-00:mlx5_0", "nic/gpu-node-06:mlx5_0"];
    check("RoCE", &findings, "duplicate-guid", &parts);
}

#[test]
fn in_a_roce_leaf_spine_each_slip_gives_its_finding_by_peers_and_by_the_plan() {
    let part = |text: &str| text.parse::<Part>().expect(text);
    let (one, other) = ("link/gpu-node-03:mlx5_2/1", "link/gpu-node-05:mlx5_4/1");
    let uplink = "link/leaf-su1-r2[swp17]";
    let (rails, grouped) = ("rail-optimized-3tier", "host-grouped");
    let missing = |cable: &str| vec![Change::Missing(part(cable))];
    let exchanged = vec![Change::Swapped([part(one), part(other)])];
    // Two units of two pods have no spines in common, so peers show the number of uplinks, but not their ends.
    let (lacks, which): (_, &[&str]) = ("uneven-uplinks", &["switch/leaf-su1-r2"]);
    for (fabric, changes, rule, parts, by_peers) in [
        (rails, Vec::new(), "", [].as_slice(), None),
        (rails, missing(one), "missing-cable", &[one], None),
        (rails, exchanged, "swapped-cables", &[one, other], None),
        (
            rails,
            missing(uplink),
            "missing-cable",
            &[uplink],
            Some((lacks, which)),
        ),
        (grouped, Vec::new(), "", &[], None),
        (grouped, missing(one), "missing-cable", &[one], None),
    ] {
        let spec = ClusterSpec {
            nodes: 8,
            transport: Transport::Roce,
            changes,
            ..spec(fabric)
        };
        let plan = plan::plan(&Wiring::plan(&spec).expect("a wiring"));
        for plan in [None, Some(plan)] {
            let what = format!("{fabric}, {:?}, plan {}", spec.changes, plan.is_some());
            let (rule, parts) = by_peers.filter(|_| plan.is_none()).unwrap_or((rule, parts));
            let findings = heard(&spec, plan, |_, page| page);
            if rule.is_empty() {
                assert_eq!(said(&findings), "", "{what}");
            } else {
                check(&what, &findings, rule, parts);
            }
        }
    }
}
