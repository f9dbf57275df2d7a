//! Tail latency: classes of paths, and where probes are slow, in API, metrics and view.

use std::fmt::Write as _;

use serde_json::Value;

use super::cluster::Cluster;
use super::{get_text, now, serve};

const CLUSTER: Cluster = Cluster {
    nodes: 6,
    rails: 1,
    nodes_in_unit: 3,
    spines: 1,
};
/// The node whose NIC makes probes slow.
const SLOW: usize = 4;

/// Every node probes every other once a second; a fifth of the probes to and from one NIC takes between 200 us and 1 ms.
fn probing(index: usize, seconds: u64, page: String) -> Option<String> {
    let mut page = page;
    let mut by_class = [("same-leaf", 0, 0), ("same-rail", 0, 0)];
    for peer in (0..CLUSTER.nodes).filter(|peer| *peer != index) {
        let slow = if [index, peer].contains(&SLOW) {
            seconds / 5
        } else {
            0
        };
        let flow = format!(
            "device=\"mlx5_0\",peer_node=\"{}\",peer_device=\"mlx5_0\",flow=\"0\",transport=\"udp\"",
            Cluster::name(peer)
        );
        for (name, count) in [("sent", seconds), ("lost", 0), ("slow", slow)] {
            writeln!(page, "railscope_probe_flow_{name}_total{{{flow}}} {count}")
                .expect("a string");
        }
        let is_far = index / CLUSTER.nodes_in_unit != peer / CLUSTER.nodes_in_unit;
        let (_, all, of_them) = &mut by_class[usize::from(is_far)];
        (*all, *of_them) = (*all + seconds, *of_them + slow);
    }
    for (class, all, slow) in by_class {
        let class = format!("path_class=\"{class}\",transport=\"udp\"");
        let fast = all - slow;
        for (bound, count) in [
            ("0.00001", fast / 2),
            ("0.00005", fast),
            ("0.0002", fast),
            ("0.001", all),
            ("+Inf", all),
        ] {
            let labels = format!("le=\"{bound}\",{class}");
            writeln!(
                page,
                "railscope_probe_path_rtt_seconds_bucket{{{labels}}} {count}"
            )
            .expect("a string");
        }
        let series = "railscope_probe_path_rtt";
        let worst = if index == SLOW { 0.0009 } else { 0.00004 };
        write!(
            page,
            "{series}_seconds_sum{{{class}}} 0\n{series}_seconds_count{{{class}}} {all}\n\
             railscope_probe_path_lost_total{{{class}}} 0\n\
             {series}_quantile_seconds{{{class},q=\"0.999\"}} {worst}\n"
        )
        .expect("a string");
    }
    Some(page)
}

#[tokio::test]
async fn each_class_of_paths_has_its_tail_and_the_slow_nic_is_first() {
    let at = serve(CLUSTER.watch(probing, &[], now)).await;
    let (status, text) = get_text(format!("{at}/api/v1/tail")).await;
    assert_eq!(status, 200, "{text}");
    let tail: Value = serde_json::from_str(&text).expect("JSON");
    let class = &tail["classes"][1];
    assert_eq!(class["path_class"], "same-rail", "{text}");
    assert_eq!(
        (&class["nodes"], &class["transport"]),
        (&6.into(), &"udp".into())
    );
    assert_eq!(class["worst_node"]["node"], "gpu-005");
    let number = |value: &Value| value.as_f64().expect("a number");
    // Of 18 pairs six are slow, to a fifth each.
    let stalls = number(&class["stall_ratios"]["200us"]);
    assert!((stalls - 6.0 / 18.0 / 5.0).abs() < 0.005, "{stalls}");
    assert_eq!(number(&class["stall_ratios"]["1000us"]), 0.0);
    let p99 = &class["quantiles"]["p99"];
    assert_eq!(number(&p99["at_least_seconds"]), 0.0002);
    assert_eq!(number(&p99["at_most_seconds"]), 0.001);
    let causes = &tail["causes"];
    let by_nic = number(&causes["explained"]["nic or its cable"]) / number(&causes["slow"]);
    assert!(by_nic > 0.9, "{causes}");
    // No router reported the path of any flow.
    let coverage = &tail["coverage"];
    for (field, cables) in [
        ("host_cables_probed", 6),
        ("host_cables", 6),
        ("switch_cables_probed", 0),
        ("switch_cables", 2),
    ] {
        assert_eq!(coverage[field], cables, "{coverage}");
    }
    let first = &tail["components"][0];
    assert_eq!(first["component"], "link/gpu-005:mlx5_0/1", "{text}");
    assert!((number(&first["ratio"]) - 0.2).abs() < 0.01, "{first}");
    assert!(number(&first["expected_ratio"]) < 0.1, "{first}");
    // All ten pairs of the NIC, and no other.
    let pairs = tail["pairs"].as_array().expect("a list");
    assert_eq!(pairs.len(), 10, "{text}");
    let is_of_it = |pair: &Value| [&pair["node"], &pair["peer_node"]].contains(&&"gpu-005".into());
    assert!(pairs.iter().all(is_of_it), "{text}");

    let (_, metrics) = get_text(format!("{at}/metrics")).await;
    let line = "railscope_probe_component_slow_ratio{component=\"link/gpu-005:mlx5_0/1\"} 0.2";
    assert!(metrics.contains(line), "{line}");
    assert!(metrics.contains("railscope_probe_pair_slow_ratio{node=\"gpu-005\""));

    let (_, view) = get_text(format!("{at}/tail")).await;
    for words in [
        "Packets are delayed on the path: Cable from gpu-005 mlx5_0/1",
        "<th scope=\"col\">p99.9</th>",
        "<th scope=\"row\">same-rail <small>udp</small></th>",
        "gpu-005, 900 µs",
        "Probes cross 6 of 6 host cables and, with known paths, 0 of 2 cables between switches.",
        "<th scope=\"row\">no cause found</th>",
    ] {
        assert!(view.contains(words), "{words}: {view}");
    }
}

#[tokio::test]
async fn without_probes_the_tail_is_not_known() {
    let at = serve(CLUSTER.watch(|_, _, page| Some(page), &[], now)).await;
    let (_, text) = get_text(format!("{at}/api/v1/tail")).await;
    assert!(text.contains("\"classes\":[]"), "{text}");
    let (_, view) = get_text(format!("{at}/tail")).await;
    assert!(
        view.contains("No probes: the tail latency is unknown"),
        "{view}"
    );
}
