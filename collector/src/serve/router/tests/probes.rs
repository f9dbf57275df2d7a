//! The list of probe targets that an exporter requests.

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::{get_text, now, serve};

const CLUSTER: Cluster = Cluster {
    nodes: 6,
    rails: 2,
    nodes_in_unit: 3,
    spines: 1,
};

/// Every port has an interface, at whose address it responds.
fn answering(index: usize, _: u64, page: String) -> Option<String> {
    let mut page = page;
    for rail in 0..CLUSTER.rails {
        let pci = format!("pci=\"0000:{:02x}:00.0\",netdev=\"", 0x10 + rail);
        page = page.replace(&format!("{pci}\""), &format!("{pci}eth{rail}\""));
        page += &format!(
            "railscope_netdev_address_info{{netdev=\"eth{rail}\",address=\"fd00::{rail}:{index}\"}} 1\n"
        );
    }
    Some(page)
}

#[tokio::test]
async fn a_node_is_told_whom_to_probe_as_exporters_read_it() {
    let at = serve(CLUSTER.watch(answering, &[], now)).await;
    let (status, text) = get_text(format!("{at}/api/v1/probes?node=gpu-002")).await;
    assert_eq!(status, 200, "{text}");
    let list: Value = serde_json::from_str(&text).expect("JSON");
    let mut keys: Vec<&String> = list.as_object().expect("an object").keys().collect();
    keys.sort();
    let all = [
        "dscp",
        "interval_seconds",
        "slow_seconds",
        "targets",
        "timeout_seconds",
    ];
    assert_eq!(keys, all);
    let targets = list["targets"].as_array().expect("a list");
    // On each of two rails two on its leaf and three behind the other.
    assert_eq!(targets.len(), 10, "{text}");
    let first = json!({
        "device": "mlx5_0",
        "peer_node": "gpu-003",
        "peer_device": "mlx5_0",
        "address": "[fd00::0:2]:10661",
        "flows": 1,
        "path_class": "same-leaf",
    });
    assert_eq!(targets[0], first);
}

#[tokio::test]
async fn where_nobody_answers_nobody_is_asked_and_a_wrong_question_is_refused() {
    let at = serve(CLUSTER.watch(|_, _, page| Some(page), &[], now)).await;
    for (query, status, said) in [
        ("?node=gpu-002", 200, "\"targets\":[]"),
        ("", 400, "missing field `node`"),
        ("?node=gpu-002&rail=1", 400, "unknown field `rail`"),
        ("?node=gpu-007", 404, "no node \\\"gpu-007\\\""),
    ] {
        let (found, text) = get_text(format!("{at}/api/v1/probes{query}")).await;
        assert_eq!(found, status, "{query}: {text}");
        assert!(text.contains(said), "{query}: {text}");
    }
}
