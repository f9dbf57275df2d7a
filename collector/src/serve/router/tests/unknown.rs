//! Components without fresh data are unknown on the web page, in the API and in metrics, and never healthy.

use super::*;
use crate::sources::targets::FileProblem;
use crate::status::ScrapeResult;

/// A cluster in which one of four nodes has fresh data.
fn one_of_four() -> State {
    let cluster = Cluster {
        nodes: 4,
        rails: 2,
        nodes_in_unit: 4,
        spines: 1,
    };
    let change = |index: usize, _: u64, page: String| (index == 0).then_some(page);
    cluster.watch(change, &[], now)
}

#[tokio::test]
async fn a_node_without_data_for_three_intervals_is_unknown_everywhere() {
    let at = serve(one_of_four()).await;
    let (_, html) = get_text(format!("{at}/")).await;
    assert!(!html.contains("all well") && !html.contains("✓"), "{html}");
    assert!(
        html.contains("This is based on 1 of 4 nodes, 2 of 8 NICs and 3 switches."),
        "{html}"
    );
    let (_, nodes) = get_text(format!("{at}/api/v1/nodes")).await;
    assert_eq!(
        nodes.matches("\"state\":\"unknown\"").count(),
        3 * 3,
        "{nodes}"
    );
    let (_, fabric) = get_text(format!("{at}/api/v1/fabric")).await;
    let known = "\"host\":{\"total\":4,\"unknown\":3},\"nic\":{\"total\":8,\"unknown\":6}";
    assert!(fabric.contains(known), "{fabric}");
    let (_, metrics) = get_text(format!("{at}/metrics")).await;
    for (class, state, count) in [
        ("host", "ok", 1),
        ("host", "unknown", 3),
        ("nic", "ok", 2),
        ("nic", "unknown", 6),
    ] {
        let line = format!(
            "railscope_fabric_parts_by_state{{class=\"{class}\",state=\"{state}\"}} {count}\n"
        );
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}

#[tokio::test]
async fn unreadable_targets_are_reported_with_the_reason() {
    let state = small();
    let target = state
        .targets()
        .all
        .keys()
        .next()
        .cloned()
        .expect("a target");
    let why = String::from("the response is HTML, not <metrics>");
    state.record_scrape(&target, ScrapeResult::Html, None, Some(why));
    state.set_file_problems(vec![FileProblem {
        file: String::from("targets.json"),
        left_out: true,
        why: String::from("target \"n9:1\": no mapping for \"dcgm\""),
    }]);
    let at = serve(state).await;
    let (_, html) = get_text(format!("{at}/")).await;
    for expected in ["not &lt;metrics&gt;", "targets.json", "n9:1"] {
        assert!(html.contains(expected), "{expected}: {html}");
    }
    let (_, metrics) = get_text(format!("{at}/metrics")).await;
    for line in [
        "railscope_collector_target_unreadable{node=\"gpu-001\",exporter=\"railscope\",reason=\"html\"} 1\n",
        "railscope_collector_targets_left_out 1\n",
        "railscope_collector_target_files_unreadable 0\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
    let (_, fabric) = get_text(format!("{at}/api/v1/fabric")).await;
    assert!(
        fabric.contains("\"target_files\":[{\"file\":\"targets.json\""),
        "{fabric}"
    );
}
