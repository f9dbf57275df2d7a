//! The output of `railscope topology` as JSON.

use railscope_collector::fabric::lint::Finding;
use railscope_collector::fabric::plans::{NodeTopology, Site};
use railscope_model::fabric::LinkKind;
use railscope_model::plan::PlanError;
use railscope_model::units::LinkSpeed;
use serde_json::{Value, json};

use super::diff::Change;

/// What `show` reports.
pub(super) fn site(site: &Site, refused: &[PlanError]) -> Value {
    let verdict = site.verdict.as_ref().map(|verdict| {
        let over = verdict.oversubscription.map(|over| {
            json!({ "min": over.min, "median": over.median, "max": over.max, "leaves": over.leaves, "unknown": over.unknown })
        });
        let text = |items: &[&dyn ToString]| items.iter().map(|item| item.to_string()).collect::<Vec<_>>();
        let wiring = &verdict.wiring;
        let missing: Vec<&dyn ToString> = wiring.missing.iter().map(|one| one as &dyn ToString).collect();
        let misplaced: Vec<&dyn ToString> = wiring.misplaced.iter().map(|one| one as &dyn ToString).collect();
        let absent: Vec<&dyn ToString> = wiring.absent_leaves.iter().map(|one| one as &dyn ToString).collect();
        json!({
            "kind": verdict.kind.to_string(),
            "tiers": verdict.levels,
            "confidence": verdict.confidence.to_string(),
            "switches_by_tier": verdict.switches_by_tier,
            "hosts": verdict.hosts,
            "compute_hosts": verdict.compute_hosts,
            "gpus": verdict.gpus,
            "nics": verdict.nics,
            "unnamed_nics": verdict.unnamed_nics,
            "rails": wiring.rails,
            "scalable_units": wiring.units,
            "oversubscription": over,
            "missing": text(&missing),
            "misplaced": text(&misplaced),
            "absent_leaves": text(&absent),
            "service_hosts": verdict.service_hosts.iter().map(|host| json!({ "host": host.host.to_string(), "nics": host.nics })).collect::<Vec<_>>(),
            "odd_switches": verdict.odd_switches,
            "self_loops": verdict.self_loops.iter().map(|cable| json!({ "switch": cable.switch.to_string(), "ports": [cable.ports.0.to_string(), cable.ports.1.to_string()] })).collect::<Vec<_>>(),
            "speeds": json!({
                "hosts": speeds(&verdict.speeds.hosts),
                "switches": speeds(&verdict.speeds.switches),
                "unknown": verdict.speeds.unknown,
            }),
            "bisection": verdict.structure.bisection.map(|half| json!({ "bytes_per_second": half.bytes_per_second, "share": half.share(), "limited_by_tier": half.limited_by })),
            "single_points": verdict.structure.single_points.worst.iter().map(|point| json!({ "part": point.part.to_string(), "hosts": point.hosts })).collect::<Vec<_>>(),
            "evidence": verdict.evidence,
            "ruled_out": verdict.ruled_out,
            "doubts": verdict.doubts,
        })
    });
    let placements: Vec<Value> = site
        .placements
        .iter()
        .map(|(file, placement)| {
            json!({
                "file": file,
                "nodes": placement.nodes().len(),
                "switches": placement.switches.len(),
                "tiers": placement.levels(),
                "blocks": placement.blocks.len(),
                "defects": placement.defects(),
            })
        })
        .collect();
    let nodes = site.nodes.iter().map(|(file, inside)| node(file, inside));
    let nodes: Vec<Value> = nodes.collect();
    json!({
        "seen": site.seen,
        "verdict": verdict,
        "cables_of_one_device": site.verdict.is_none().then(|| cables(site)),
        "contradictions": site.contested.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "placements": placements,
        "nodes": nodes,
        "gpus": site.gpus.iter().map(|(file, gpus)| json!({ "file": file, "gpus": gpus.gpus.len(), "findings": gpus.findings(), "has": gpus.identity() })).collect::<Vec<_>>(),
        "notes": site.notes,
        "problems": problems(&site.problems),
        "refused": problems(refused),
    })
}

/// Cables by speed.
fn speeds(speeds: &[(LinkSpeed, usize)]) -> Vec<Value> {
    let one = |(speed, cables): &(LinkSpeed, usize)| json!({ "speed": speed.to_string(), "cables": cables });
    speeds.iter().map(one).collect()
}

/// The inside of a node.
fn node(file: &str, node: &NodeTopology) -> Value {
    let affinity = node.affinity().into_iter().zip(&node.gpus).enumerate();
    let gpus: Vec<Value> = affinity
        .map(|(place, ((distance, nics), gpu))| {
            json!({
                "gpu": gpu.name,
                "pci": gpu.pci.map(|pci| pci.to_string()),
                "numa": gpu.numa,
                "distance": distance.map(railscope_collector::fabric::plans::Distance::word),
                "nics": nics,
                "nvlinks": node.links_of(place),
            })
        })
        .collect();
    json!({
        "file": file,
        "verdict": node.verdict(),
        "findings": node.findings(),
        "gpus": gpus,
        "nics": node.nics.len(),
        "other_network_ports": node.other_ports,
    })
}

/// Every cable with its two ends.
fn cables(site: &Site) -> Vec<Value> {
    let fabric = &site.fabric;
    let links = fabric
        .links()
        .filter(|(.., link)| link.kind == LinkKind::Cable);
    links
        .map(|(_, a, b, link)| {
            json!({
                "from": fabric.vertex(a).part.to_string(),
                "from_port": fabric.port_name(a, link.ports.0),
                "to": fabric.vertex(b).part.to_string(),
                "to_port": fabric.port_name(b, link.ports.1),
                "speed": link.speed.map(|speed: LinkSpeed| speed.to_string()),
            })
        })
        .collect()
}

/// Problems by file and line.
fn problems(problems: &[PlanError]) -> Vec<Value> {
    problems
        .iter()
        .map(|problem| {
            json!({
                "file": problem.file,
                "line": problem.line,
                "field": problem.field,
                "found": problem.found,
                "expected": problem.expected,
            })
        })
        .collect()
}

/// What `lint` reports.
pub(super) fn findings(
    findings: &[Finding],
    defects: &[(&'static str, String)],
    site: &Site,
    refused: &[PlanError],
) -> Value {
    let findings: Vec<Value> = findings
        .iter()
        .map(|finding| {
            json!({
                "rule": finding.rule.name,
                "severity": finding.rule.severity.word(),
                "parts": finding.parts.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "sentence": finding.sentence,
                "evidence": finding.evidence,
                "action": finding.rule.action,
            })
        })
        .collect();
    let of = |wanted: &str| -> Vec<&String> {
        let own = defects.iter().filter(|(rule, _)| *rule == wanted);
        own.map(|(_, defect)| defect).collect()
    };
    json!({
        "findings": findings,
        "contradictions": of("contradiction"),
        "placement": of("placement"),
        "inside_node": of("inside-node"),
        "problems": problems(&site.problems),
        "refused": problems(refused),
    })
}

/// What `diff` reports.
pub(super) fn changes(changes: &[Change]) -> Value {
    let changes: Vec<Value> = changes
        .iter()
        .map(|change| {
            json!({
                "change": change.kind.word(),
                "what": change.what,
                "before": change.before,
                "after": change.after,
            })
        })
        .collect();
    json!({ "changes": changes })
}
