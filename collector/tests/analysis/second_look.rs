//! Nodes that have just lost a link are scraped again before the next tick, which then waits for no other.

use std::collections::BTreeSet;

use railscope_collector::analyzer::Analyzer;

use super::cluster::{NODES, at, node, page};
use super::{incidents, of_gpus};

const LOSER: usize = 6;

/// The exposition of a node, with its GPUs' NVLinks, of which one GPU of the loser may have lost one.
fn linked(index: usize, seconds: u64, is_lost: bool) -> String {
    let links = of_gpus(|gpu| {
        let lost = u64::from(is_lost && (index, gpu) == (LOSER, 1));
        format!(
            "railscope_gpu_nvlinks_active{{gpu=\"{gpu}\"}} {}\n",
            18 - lost
        )
    });
    page(index, seconds) + &links
}

/// Open incidents at the tick after a loss, with scrapes of the loser at these seconds after it, and whether a confirmation was
/// requested after each.
fn after_a_loss(pages: &[(u64, bool)]) -> (Vec<String>, Vec<bool>) {
    let mut analyzer = Analyzer::default();
    analyzer.set_targets(&(0..NODES).map(node).collect::<Vec<_>>());
    for seconds in (0..60).step_by(5) {
        for index in 0..NODES {
            analyzer.ingest(&node(index), &linked(index, seconds, false), at(seconds));
            assert_eq!(analyzer.second_look(&node(index)), BTreeSet::new());
        }
        analyzer.tick(at(seconds));
    }
    let asked = pages.iter().map(|(second, is_lost)| {
        let seconds = 56 + second;
        let text = linked(LOSER, seconds, *is_lost);
        analyzer.ingest(&node(LOSER), &text, at(seconds));
        analyzer.second_look(&node(LOSER)) == BTreeSet::from([node(LOSER)])
    });
    let asked = asked.collect();
    (incidents(&analyzer.tick(at(60))), asked)
}

#[test]
fn a_gpu_that_still_lacks_an_nvlink_at_the_second_look_is_named_at_the_first_tick() {
    let named = [String::from(
        "nvlink-down gpu/n6:1 gpus=4 [gpu/n6:0 gpu/n6:2 gpu/n6:3]",
    )];
    let (open, asked) = after_a_loss(&[(0, true), (2, true)]);
    assert_eq!((&open[..], asked), (&named[..], vec![true, false]));
    // Once is not twice, nor is twice within one sample of the exporter; and what is back was nothing.
    for pages in [
        &[(0, true)][..],
        &[(0, true), (1, true)],
        &[(0, true), (2, false)],
    ] {
        let (open, asked) = after_a_loss(pages);
        assert_eq!(open, Vec::<String>::new(), "{pages:?}");
        assert!(asked[0], "{pages:?}");
    }
}
