//! Prometheus' file_sd, as the collector reads it.

use std::collections::BTreeMap;

use railscope_model::identity::NodeName;
use serde::Deserialize;

use crate::config::{Target, check_url};

/// One group of a file_sd file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    targets: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Reads the text of a file_sd file.
///
/// # Errors
/// What is wrong, with line and column where it is not JSON of that form, or the target it is about.
pub(crate) fn parse_file_sd(text: &str) -> Result<Vec<Target>, String> {
    let groups: Vec<Group> = serde_json::from_str(text).map_err(|error| {
        format!(
            "line {}, column {}: expected JSON like [{{\"targets\": [\"n1:10660\"], \"labels\": {{\"node\": \"n1\"}}}}]: {error}",
            error.line(),
            error.column()
        )
    })?;
    let mut targets = Vec::new();
    for group in &groups {
        if group.labels.contains_key("node") && group.targets.len() > 1 {
            return Err(format!(
                "targets {:?} share one node label: expected a group for each node",
                group.targets
            ));
        }
        for address in &group.targets {
            targets.push(
                target(address, &group.labels)
                    .map_err(|why| format!("target {address:?}: {why}"))?,
            );
        }
    }
    Ok(targets)
}

fn target(address: &str, labels: &BTreeMap<String, String>) -> Result<Target, String> {
    let label = |name, default| labels.get(name).map_or(default, String::as_str);
    let url = format!(
        "{}://{address}{}",
        label("__scheme__", "http"),
        label("__metrics_path__", "/metrics")
    );
    check_url(&url)?;
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let node: NodeName = label("node", host)
        .parse()
        .map_err(|error| format!("{error}"))?;
    Ok(Target { node, url })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_sd_names_nodes_by_label_or_by_host() {
        let text = r#"[
            {"targets": ["10.0.0.1:10660"], "labels": {"node": "n1", "rack": "r1"}},
            {"targets": ["n2:10660", "n3:10660"], "labels": {"__metrics_path__": "/m"}}
        ]"#;
        let targets = parse_file_sd(text).expect("valid");
        let names: Vec<_> = targets
            .iter()
            .map(|t| (t.node.as_str(), t.url.as_str()))
            .collect();
        assert_eq!(
            names,
            [
                ("n1", "http://10.0.0.1:10660/metrics"),
                ("n2", "http://n2:10660/m"),
                ("n3", "http://n3:10660/m")
            ]
        );
    }

    #[test]
    fn a_wrong_file_sd_says_where_and_what_was_expected() {
        for (text, expected) in [
            ("", "line 1, column 0: expected JSON like ["),
            ("{}", "line 1, column 0: expected JSON like ["),
            (
                "[{\"target\": []}]",
                "unknown field `target`, expected `targets` or `labels`",
            ),
            (
                "[{\"targets\": [\"a:1\", \"b:1\"], \"labels\": {\"node\": \"n\"}}]",
                "expected a group for each node",
            ),
            (
                "[{\"targets\": [\"a b:1\"]}]",
                "target \"a b:1\": expected an address such as",
            ),
        ] {
            let error = parse_file_sd(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
