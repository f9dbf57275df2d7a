//! Prometheus' file_sd, as the collector reads it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use crate::config::{Target, check_url};
use crate::mapping::{Mappings, OWN_KIND};
use crate::sources::push::fragments::Origin;
use crate::sources::targets::own_on_switch;
use crate::store::source_id::Subject;

/// Label that specifies which exporter a target is, as `kind` does in the configuration.
pub(crate) const KIND: &str = "__railscope_kind";
/// Label that names the switch that a target reports about.
pub(crate) const SWITCH: &str = "__railscope_switch";

/// Label of a target whose series name the nodes and switches: its only value is `series`.
pub(crate) const ABOUT: &str = "__railscope_about";
/// Label of recordings: when the target was in the list of targets.
pub(crate) const LISTED: &str = "__railscope_listed";

/// One group of a file_sd file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    targets: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

impl Group {
    /// Label `job`, empty without one, and label `instance`, or the address.
    fn origin(&self, address: &str) -> Origin {
        let label = |name| self.labels.get(name).cloned();
        Origin {
            job: label("job").unwrap_or_default(),
            instance: label("instance").unwrap_or_else(|| address.to_owned()),
        }
    }
}

/// A valid or an invalid entry.
pub(crate) type Entry = Result<Labeled, Invalid>;

/// A target with the labels that identify it in a recording.
pub(crate) struct Labeled {
    /// What identifies its scrapes.
    pub(crate) origin: Origin,
    /// Label `__railscope_listed`.
    pub(crate) listed: Option<String>,
    /// The target.
    pub(crate) target: Target,
}

/// An entry that is no target.
#[derive(Debug)]
pub(crate) struct Invalid {
    /// Its address and what was expected.
    pub(crate) why: String,
    /// What identifies its scrapes in a recording.
    pub(crate) origins: Vec<Origin>,
}

/// Valid and invalid entries of a file_sd file.
pub(crate) struct FileSd {
    /// The valid targets.
    pub(crate) targets: Vec<Target>,
    /// Address and error of each invalid entry.
    pub(crate) left_out: Vec<String>,
}

/// Reads the text of a file_sd file. An invalid entry is ignored and the others are used, so that one mistake does not stop
/// the monitoring of all targets.
///
/// # Errors
/// The text is not valid file_sd JSON; the error has line and column.
pub(crate) fn parse_file_sd(text: &str, mappings: &Mappings) -> Result<FileSd, String> {
    let (mut targets, mut left_out) = (Vec::new(), Vec::new());
    for entry in parse_entries(text, mappings)? {
        match entry {
            Ok(labeled) => targets.push(labeled.target),
            Err(invalid) => left_out.push(invalid.why),
        }
    }
    Ok(FileSd { targets, left_out })
}

/// Reads the text of a recording's file_sd file: targets with their identifying labels, and invalid entries.
///
/// # Errors
/// As for [`parse_file_sd`].
pub(crate) fn parse_entries(text: &str, mappings: &Mappings) -> Result<Vec<Entry>, String> {
    let groups: Vec<Group> = serde_json::from_str(text).map_err(|error| {
        format!(
            "line {}, column {}: expected JSON like [{{\"targets\": [\"n1:10660\"], \"labels\": {{\"node\": \"n1\"}}}}]: {error}",
            error.line(),
            error.column()
        )
    })?;
    let mut entries = Vec::new();
    for group in &groups {
        if group.labels.contains_key("node") && group.targets.len() > 1 {
            entries.push(Err(Invalid {
                why: format!(
                    "targets {:?} share one node label: expected a group for each node",
                    group.targets
                ),
                origins: group.targets.iter().map(|one| group.origin(one)).collect(),
            }));
            continue;
        }
        for address in &group.targets {
            let origin = group.origin(address);
            entries.push(match target(address, &group.labels, mappings) {
                Ok(target) => Ok(Labeled {
                    origin,
                    listed: group.labels.get(LISTED).cloned(),
                    target,
                }),
                Err(why) => Err(Invalid {
                    why: format!("target {address:?}: {why}"),
                    origins: vec![origin],
                }),
            });
        }
    }
    Ok(entries)
}

fn target(
    address: &str,
    labels: &BTreeMap<String, String>,
    mappings: &Mappings,
) -> Result<Target, String> {
    let label = |name, default| labels.get(name).map_or(default, String::as_str);
    let url = format!(
        "{}://{address}{}",
        label("__scheme__", "http"),
        label("__metrics_path__", "/metrics")
    );
    check_url(&url)?;
    let kind = labels.get(KIND);
    if let Some(kind) = kind {
        mappings
            .check_kind(kind)
            .map_err(|why| format!("{KIND}: {why}"))?;
    }
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    if let Some(about) = labels.get(ABOUT) {
        let is_foreign = kind.is_some_and(|kind| kind != OWN_KIND);
        if about != "series" || !is_foreign {
            return Err(format!(
                "{ABOUT}: expected \"series\", beside {KIND} of another exporter"
            ));
        }
    }
    let mapping = kind.and_then(|kind| mappings.by_kind(kind));
    let of_one_switch = mapping.is_some_and(|mapping| mapping.is_of_one_switch());
    let of_series = mapping.is_some_and(|mapping| mapping.names_its_subjects());
    let about = match labels.get(SWITCH) {
        _ if labels.contains_key(ABOUT) => None,
        Some(switch) => Some(switch.parse().map(Subject::Switch)),
        None if of_one_switch => {
            let switch = label("switch", label("node", host));
            Some(switch.parse().map(Subject::Switch))
        }
        None if of_series && !labels.contains_key("node") => None,
        None => Some(label("node", host).parse().map(Subject::Node)),
    };
    let about = about.transpose().map_err(|error| error.to_string())?;
    if let (Some(Subject::Switch(switch)), Some(OWN_KIND)) = (&about, kind.map(String::as_str)) {
        return Err(format!("{KIND}: {}", own_on_switch(switch)));
    }
    Ok(Target {
        about,
        kind: kind.map(|kind| Arc::from(kind.as_str())),
        url,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;

    #[test]
    fn file_sd_names_nodes_by_label_or_by_host() {
        let text = r#"[
            {"targets": ["10.0.0.1:10660"], "labels": {"node": "n1", "rack": "r1"}},
            {"targets": ["n2:10660", "n3:10660"], "labels": {"__metrics_path__": "/m"}}
        ]"#;
        let targets = parse_file_sd(text, &Mappings::default()).expect("valid");
        assert!(targets.left_out.is_empty());
        let targets = targets.targets;
        let names: Vec<_> = targets.iter().map(|t| (t.name(), t.url.as_str())).collect();
        let names: Vec<_> = names.iter().map(|(name, url)| (&**name, *url)).collect();
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
    fn an_exporter_of_one_switch_names_it_by_label_or_by_host() {
        let text = r#"[
            {"targets": ["tor1:9101"], "labels": {"__railscope_kind": "sonic-exporter"}},
            {"targets": ["10.0.0.2:9101"], "labels": {"__railscope_kind": "sonic-exporter", "switch": "tor2"}},
            {"targets": ["snmp:9116"], "labels": {"__railscope_kind": "snmp_exporter", "__railscope_switch": "tor3"}},
            {"targets": ["n1:9100"], "labels": {"__railscope_kind": "node_exporter"}}
        ]"#;
        let read = parse_file_sd(text, &Mappings::default()).expect("valid");
        let about = read.targets.into_iter().map(|target| target.about);
        let about: Vec<_> = about.map(|about| about.expect("a part")).collect();
        let switch = |name: &str| Subject::Switch(name.parse().expect("a name"));
        let node = Subject::Node("n1".parse().expect("a name"));
        assert_eq!(
            about,
            [switch("tor1"), switch("tor2"), switch("tor3"), node]
        );
    }

    /// Kinds of exporters whose mapping is so.
    fn kinds_that(is_so: fn(&Mapping) -> bool) -> Vec<String> {
        let mappings = Mappings::default();
        let kinds = mappings.kinds().filter_map(|kind| mappings.by_kind(kind));
        let kinds = kinds.filter(|mapping| is_so(mapping));
        kinds.map(|mapping| mapping.kind.to_string()).collect()
    }

    #[test]
    fn only_exporters_that_run_on_or_for_one_switch_are_of_one() {
        let of_one = kinds_that(Mapping::is_of_one_switch);
        assert_eq!(of_one, ["snmp_exporter", "sonic-exporter"]);
    }

    #[test]
    fn a_target_whose_series_name_what_they_are_about_is_no_part_itself() {
        let of_series = kinds_that(Mapping::names_its_subjects);
        assert_eq!(
            of_series,
            [
                "infiniband_exporter",
                "gnmic",
                "cumulus-otlp",
                "nmx-telemetry"
            ]
        );
        let text = r#"[
            {"targets": ["otel:8889"], "labels": {"__railscope_kind": "cumulus-otlp"}},
            {"targets": ["otel2:8889"], "labels": {"__railscope_kind": "cumulus-otlp", "node": "n1"}},
            {"targets": ["otel3:8889"], "labels": {"__railscope_kind": "cumulus-otlp", "__railscope_switch": "s1"}}
        ]"#;
        let read = parse_file_sd(text, &Mappings::default()).expect("valid");
        let about: Vec<_> = read
            .targets
            .into_iter()
            .map(|target| target.about)
            .collect();
        let node = Subject::Node("n1".parse().expect("a name"));
        let switch = Subject::Switch("s1".parse().expect("a name"));
        assert_eq!(about, [None, Some(node), Some(switch)]);
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
            (
                "[{\"targets\": [\"a:1\"], \"labels\": {\"__railscope_kind\": \"dcgm\"}}]",
                "target \"a:1\": __railscope_kind: no mapping for \"dcgm\": expected one of \"railscope\"",
            ),
            (
                "[{\"targets\": [\"a:1\"], \"labels\": {\"__railscope_kind\": \"railscope\", \"__railscope_switch\": \"leaf-1\"}}]",
                "target \"a:1\": __railscope_kind: of a switch another exporter's page is expected",
            ),
            (
                "[{\"targets\": [\"a:1\"], \"labels\": {\"__railscope_about\": \"series\"}}]",
                "target \"a:1\": __railscope_about: expected \"series\", beside __railscope_kind",
            ),
        ] {
            let error = match parse_entries(text, &Mappings::default()) {
                Ok(entries) => entries.into_iter().find_map(Result::err).expect(text).why,
                Err(error) => error,
            };
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn an_entry_that_is_no_target_is_left_out_alone() {
        let text = r#"[
            {"targets": ["n1:1", "n2:1"]},
            {"targets": ["n3:1"], "labels": {"__railscope_kind": "dcgm"}},
            {"targets": ["n4:1", "n5:1"], "labels": {"node": "n4"}},
            {"targets": ["n 6:1", "n7:1"]}
        ]"#;
        let read = parse_file_sd(text, &Mappings::default()).expect("JSON");
        let names: Vec<_> = read.targets.iter().map(Target::name).collect();
        assert_eq!(names, ["n1", "n2", "n7"]);
        let expected = ["no mapping for \"dcgm\"", "share one node label", "n 6:1"];
        assert_eq!(read.left_out.len(), expected.len());
        for (left_out, expected) in read.left_out.iter().zip(expected) {
            assert!(left_out.contains(expected), "{left_out}");
        }
    }
}
