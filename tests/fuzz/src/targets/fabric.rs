//! Texts that describe a fabric, up to the classification and the lint.

use railscope_collector::analyzer::Analyzer;
use railscope_collector::fabric::lint::lint;
use railscope_collector::fabric::lldp::text::parse_neighbors;
use railscope_collector::fabric::plans::{Format, NodeNames, Placement, Site, export, read};
use railscope_collector::fabric::subnet::{parse_forwarding, parse_ibnetdiscover};
use railscope_collector::fabric::{assign_rails, diff, merge_subnet, understand};
use railscope_model::fabric::Fabric;

use super::web::{NOW, show};

/// A sweep's text, then everything that is computed of it.
pub(crate) fn ibnetdiscover(bytes: &[u8]) {
    let subnet = parse_ibnetdiscover(&String::from_utf8_lossy(bytes));
    let mut fabric = Fabric::default();
    let merge = merge_subnet(&mut fabric, &subnet, NOW);
    assign_rails(&mut fabric);
    let (verdict, _) = understand(&fabric, &merge);
    let findings = lint(&fabric, &verdict, None);
    assert!(
        findings
            .iter()
            .all(|finding| !finding.to_string().is_empty())
    );
    assert!(!verdict.to_string().is_empty());
    assert!(diff(&fabric, &fabric.clone()).is_empty());
    let mut analyzer = Analyzer::default();
    analyzer.take_subnet(subnet, NOW);
    show(analyzer.tick(NOW));
}

/// Forwarding tables of switches.
pub(crate) fn forwarding(bytes: &[u8]) {
    let dump = parse_forwarding(&String::from_utf8_lossy(bytes));
    assert!(dump.problems.len() <= dump.problem_count);
    for table in dump.tables.values() {
        assert!(
            table
                .entries()
                .all(|(lid, port)| table.port(lid) == Some(port))
        );
    }
}

/// What a switch prints of its neighbors.
pub(crate) fn lldp_switch(bytes: &[u8]) {
    if let Err(error) = parse_neighbors(&String::from_utf8_lossy(bytes)) {
        assert!(error.contains("expected"), "{error}");
    }
}

/// One format of topology file.
pub(crate) fn plan(bytes: &[u8], format: &str) {
    file(bytes, format.parse().ok());
}

/// A file whose format must be detected.
pub(crate) fn any_file(bytes: &[u8]) {
    file(bytes, None);
}

/// opensm's node-name map.
pub(crate) fn node_names(bytes: &[u8]) {
    if let Err(errors) = NodeNames::read("map", &String::from_utf8_lossy(bytes)) {
        assert!(!errors.is_empty());
    }
}

fn file(bytes: &[u8], format: Option<Format>) {
    let Ok(opened) = read("node-1.txt", &String::from_utf8_lossy(bytes), format) else {
        return;
    };
    let site = Site::of(vec![opened]);
    if let Some(verdict) = &site.verdict {
        lint(&site.fabric, verdict, site.plan.as_ref());
        export::graphml(&site.fabric);
        export::slurm_tree(&Placement::of(&site.fabric));
        export::nccl_hints(&site.fabric, verdict);
    }
    for (_, placement) in &site.placements {
        assert!(!placement.to_string().is_empty());
        export::slurm_block(placement);
        export::slurm_tree(placement);
        export::node_labels(placement);
    }
    for (_, node) in &site.nodes {
        assert!(!node.to_string().is_empty());
        node.affinity();
        node.identity();
    }
    for (_, gpus) in &site.gpus {
        assert!(!gpus.to_string().is_empty());
    }
    for contested in &site.contested {
        assert!(!contested.to_string().is_empty());
    }
}
