//! The answers of `railscope topology` as JSON.

use railscope_collector::fabric::lint::Finding;
use railscope_collector::fabric::plans::Site;
use serde_json::{Value, json};

use super::diff::Change;

/// What `show` says.
pub(super) fn site(site: &Site) -> Value {
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
            "evidence": verdict.evidence,
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
    let nodes: Vec<Value> = site.nodes.iter().map(|(file, node)| {
        let affinity: Vec<Value> = node.affinity().into_iter().zip(&node.gpus).map(|((distance, nics), gpu)| json!({
            "gpu": gpu.name,
            "pci": gpu.pci.map(|pci| pci.to_string()),
            "numa": gpu.numa,
            "distance": distance.map(railscope_collector::fabric::plans::Distance::word),
            "nics": nics,
        })).collect();
        json!({ "file": file, "verdict": node.verdict(), "gpus": affinity, "nics": node.nics.len() })
    }).collect();
    let problems: Vec<String> = site.problems.iter().map(ToString::to_string).collect();
    json!({
        "seen": site.seen,
        "verdict": verdict,
        "placements": placements,
        "nodes": nodes,
        "problems": problems,
    })
}

/// What `lint` says.
pub(super) fn findings(findings: &[Finding], defects: &[String]) -> Value {
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
    json!({ "findings": findings, "placement": defects })
}

/// What `diff` says.
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
