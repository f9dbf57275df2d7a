//! Lists: what is read, and what is reported about what is wrong.

use super::*;

const GOOD: &str = r#"{
  "interval_seconds": 0.2, "timeout_seconds": 1, "slow_seconds": 0.00005, "dscp": 26,
  "targets": [
    { "device": "mlx5_0", "peer_node": "gpu-2", "peer_device": "mlx5_0", "address": "10.0.1.2:10661", "flows": 4, "path_class": "same-rail" },
    { "device": "mlx5_1", "peer_node": "gpu-2", "peer_device": "mlx5_1", "address": "[fd00::2]:10661", "flows": 1 }
  ]
}"#;

#[test]
fn a_list_is_read_and_what_it_leaves_out_is_as_usual() {
    let list = ProbeList::parse("list.json", GOOD).expect("a list");
    assert_eq!(list.interval, Duration::from_millis(200));
    assert_eq!(list.timeout, Duration::from_secs(1));
    assert_eq!(list.slow, Duration::from_micros(50));
    assert_eq!((list.dscp, list.targets.len()), (26, 2));
    assert_eq!(list.targets[1].address.port(), 10_661);
    let classes = [0, 1].map(|target| list.targets[target].path_class);
    assert_eq!(classes, [PathClass::SameRail, PathClass::Unknown]);

    let list = ProbeList::parse("list.json", r#"{"targets": []}"#).expect("a list");
    assert_eq!(list.interval, Duration::from_millis(100));
    assert_eq!(list.timeout, Duration::from_millis(500));
    assert_eq!(list.slow, Duration::from_micros(100));
    assert_eq!((list.dscp, list.targets.len()), (0, 0));
}

fn check(from: &str, to: &str, expected: &str) {
    assert!(GOOD.contains(from), "{from}");
    let text = GOOD.replacen(from, to, 1);
    let error = ProbeList::parse("list.json", &text).expect_err(to);
    assert_eq!(error.to_string(), expected, "{from} -> {to}");
}

#[test]
fn what_is_wrong_is_said_with_its_place_its_field_and_what_was_expected() {
    check(
        "0.2",
        "0.01",
        "list.json:2:26: interval_seconds: expected 0.05 to 60 seconds",
    );
    check(
        "0.2",
        "\"0.2\"",
        "list.json:2:27: interval_seconds: invalid type: string \"0.2\", expected f64",
    );
    check("26", "64", "list.json:2:84: dscp: expected 0 to 63");
    check(
        "26",
        "-1",
        "list.json:2:84: dscp: invalid value: integer `-1`, expected u64",
    );
    check(
        "\"dscp\": 26",
        "\"service_level\": 16",
        "list.json:2:93: service_level: expected 0 to 15",
    );
    check(
        "\"flows\": 4",
        "\"flows\": 0",
        "list.json:4:112: flows: expected 1 to 64",
    );
    check(
        "same-rail",
        "rail",
        "list.json:4:136: path_class: \"rail\" is no path class: expected one of same-leaf, same-rail, cross-rail, cross-su, storage, management, unknown",
    );
    check(
        "\"gpu-2\"",
        "\"\"",
        "list.json:4:41: peer_node: expected a name of 1 to 128 bytes without slashes and line ends",
    );
    check(
        "10.0.1.2:10661",
        "10.0.1.2",
        "list.json:4:94: address: \"10.0.1.2\" is none of one NIC, expected such as 10.0.1.2:10661 or [fd00::2]:10661",
    );
    check(
        "\"timeout_seconds\"",
        "\"timeout\"",
        "list.json:2:36: unknown field `timeout`, expected one of `interval_seconds`, `timeout_seconds`, `slow_seconds`, `dscp`, `service_level`, `targets`",
    );
    check(
        "\"mlx5_1\", \"peer_node\": \"gpu-2\", \"peer_device\": \"mlx5_1\"",
        "\"mlx5_0\", \"peer_node\": \"gpu-2\", \"peer_device\": \"mlx5_0\"",
        "list.json: targets[1]: mlx5_0 to mlx5_0 of gpu-2 is listed twice",
    );
}

#[test]
fn more_than_a_node_may_send_is_an_error_that_says_so() {
    let target = |number: usize| {
        format!(
            r#"{{"device":"d","peer_node":"n{number}","peer_device":"d","address":"10.0.0.1:1","flows":64}}"#
        )
    };
    let list = |interval: f64, targets: usize| {
        let targets: Vec<_> = (0..targets).map(target).collect();
        let text = format!(
            r#"{{"interval_seconds":{interval},"targets":[{}]}}"#,
            targets.join(",")
        );
        ProbeList::parse("list", &text)
            .map(|list| list.targets.len())
            .map_err(|error| error.to_string())
    };
    assert_eq!(list(0.1, 4), Ok(4));
    assert_eq!(
        list(0.1, 5),
        Err("list: targets: 320 flows, at most 256 on one node".to_owned())
    );
    assert_eq!(
        list(0.05, 4),
        Err("list: interval_seconds: 256 flows make 5120 probes a second, at most 2560".to_owned())
    );
}

#[test]
fn a_file_that_is_not_there_is_said_to_be_so() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let path = temp.path().join("list.json");
    let error = ProbeList::load(&path).expect_err("no file");
    assert!(matches!(error, ListError::Unreadable { .. }), "{error}");
    std::fs::write(&path, GOOD).expect("write");
    assert_eq!(ProbeList::load(&path).map(|list| list.targets.len()), Ok(2));
}
