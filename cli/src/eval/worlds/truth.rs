//! Reads the ground truth of a pack, `truth.json`: injected faults, and benign events that are no fault.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::Value;

use super::component::{Component, Peers};

/// File of a pack with its ground truth.
const FILE: &str = "truth.json";

/// The ground truth of one pack.
#[derive(Debug)]
pub(super) struct Truth {
    /// Name of the simulated cluster.
    pub(super) world: String,
    /// Begin of the recording, in seconds of Unix time.
    pub(super) start: f64,
    /// End of the recording, in seconds of Unix time.
    pub(super) end: f64,
    /// Faults and benign events, faults first.
    pub(super) events: Vec<Event>,
}

/// A fault, or a benign event.
#[derive(Debug)]
pub(super) struct Event {
    /// Whether it is a fault.
    pub(super) is_fault: bool,
    /// Kind of fault: a key of the table in [`super::classes`].
    pub(super) kind: String,
    /// What is faulty.
    pub(super) component: Component,
    /// Type of the component.
    pub(super) component_type: ComponentType,
    /// Nodes that the event slows.
    pub(super) victims: Vec<String>,
    /// Onset, in seconds of Unix time.
    pub(super) start: f64,
    /// End, in seconds of Unix time; that of the recording if it never ends.
    pub(super) end: f64,
    /// Whether the recorded series show it.
    pub(super) is_observable: bool,
}

/// The type of a component: how precisely an incident can name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ComponentType {
    /// An entire node.
    Node,
    /// A link, a switch, or unspecified: an incident on one end matches.
    LinkOrSwitch,
    /// Anything that one host has several of, or a job: an incident on the host is about it only with the right class.
    Small,
}

impl ComponentType {
    fn parse(text: Option<&str>) -> Self {
        match text {
            Some("node") => Self::Node,
            None | Some("link" | "switch") => Self::LinkOrSwitch,
            Some(_) => Self::Small,
        }
    }
}

#[derive(Deserialize)]
struct RawTruth {
    world: String,
    start: f64,
    end: f64,
    faults: Vec<Value>,
    benign: Vec<Value>,
    #[serde(default)]
    peers: Peers,
}

#[derive(Deserialize)]
struct RawEvent {
    id: String,
    kind: String,
    culprit: Option<BTreeMap<String, Value>>,
    start: f64,
    end: Option<f64>,
    #[serde(default = "yes")]
    observable: bool,
    part_type: Option<String>,
    victims: Option<Vec<String>>,
}

fn yes() -> bool {
    true
}

impl Truth {
    /// Reads the truth of the pack in this folder.
    ///
    /// # Errors
    /// The file is missing or invalid.
    pub(super) fn read(folder: &Path) -> anyhow::Result<Self> {
        let file = folder.join(FILE);
        let text = std::fs::read_to_string(&file);
        let text = text
            .with_context(|| format!("{}: expected the ground truth of a pack", file.display()))?;
        Self::parse(&text).with_context(|| file.display().to_string())
    }

    /// Reads the text of a truth.
    ///
    /// # Errors
    /// It is invalid.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let raw: RawTruth = serde_json::from_str(text)
            .context("expected an object with world, start, end, faults and benign")?;
        if raw.start >= raw.end {
            bail!(
                "end: {}: expected a time after start {}",
                raw.end,
                raw.start
            );
        }
        let mut truth = Self {
            world: raw.world,
            start: raw.start,
            end: raw.end,
            events: Vec::new(),
        };
        let mut ids = BTreeSet::new();
        for (list, is_fault, values) in
            [("faults", true, raw.faults), ("benign", false, raw.benign)]
        {
            for (index, value) in values.into_iter().enumerate() {
                let event = truth.event(value, is_fault, &raw.peers, &mut ids);
                let event = event.with_context(|| format!("{list}[{index}]"))?;
                truth.events.extend(event);
            }
        }
        Ok(truth)
    }

    /// An event; none for a benign one without a component, which no incident can match.
    fn event(
        &self,
        value: Value,
        is_fault: bool,
        peers: &Peers,
        ids: &mut BTreeSet<String>,
    ) -> anyhow::Result<Option<Event>> {
        let raw: RawEvent = serde_json::from_value(value)
            .context("expected an object with id, kind, culprit, start and end")?;
        if !ids.insert(raw.id.clone()) {
            bail!("id: {:?}: expected an id that no other event has", raw.id);
        }
        let end = raw.end.unwrap_or(self.end);
        if raw.start > end {
            bail!("end: {end}: expected a time after start {}", raw.start);
        }
        let culprit = raw.culprit.unwrap_or_default();
        if culprit.is_empty() && !is_fault {
            return Ok(None);
        }
        let component = Component::parse(culprit, peers).context("culprit")?;
        Ok(Some(Event {
            is_fault,
            kind: raw.kind,
            component,
            component_type: ComponentType::parse(raw.part_type.as_deref()),
            victims: raw.victims.unwrap_or_default(),
            start: raw.start,
            end,
            is_observable: raw.observable,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        format!("{:#}", Truth::parse(text).expect_err("invalid"))
    }

    #[test]
    fn a_fault_without_an_end_lasts_as_long_as_the_recording() {
        let truth = Truth::parse(
            r#"{"world": "w", "start": 0, "end": 900.5, "interval": 5,
                "faults": [{"id": "f0", "kind": "steal", "culprit": {"node": "n1"}, "start": 200, "end": null,
                            "observable": false, "victims": ["n2"], "part_type": "node", "severity": null}],
                "benign": [{"id": "f1", "kind": "healthy", "culprit": {}, "start": 1, "end": 2},
                           {"id": "f2", "kind": "price_cap", "culprit": null, "start": 1, "end": 2}]}"#,
        )
        .expect("valid");
        let [fault] = &*truth.events else {
            panic!("{truth:?}")
        };
        assert!(fault.is_fault && !fault.is_observable);
        assert_eq!(fault.component_type, ComponentType::Node);
        assert_eq!((fault.start, fault.end), (200.0, 900.5));
        assert_eq!(fault.victims, ["n2"]);
    }

    #[test]
    fn an_error_names_the_field_and_what_was_expected() {
        let with = |faults: &str| {
            format!(r#"{{"world": "w", "start": 0, "end": 9, "faults": [{faults}], "benign": []}}"#)
        };
        let fault = |rest: &str| with(&format!(r#"{{"id": "a", "kind": "steal", {rest}}}"#));
        for (text, field, expected) in [
            ("{}".to_owned(), "world", "expected an object with world"),
            (with("7"), "faults[0]", "expected an object with id"),
            (fault(r#""start": 1"#), "faults[0]", "culprit"),
            (
                fault(r#""start": 5, "end": 2, "culprit": {"node": "n"}"#),
                "faults[0]: end",
                "expected a time after start 5",
            ),
            (
                fault(r#""start": 1, "culprit": {}"#),
                "faults[0]: culprit",
                "expected",
            ),
        ] {
            let error = error(&text);
            assert!(error.contains(field) && error.contains(expected), "{error}");
        }
        let one = r#"{"id": "a", "kind": "steal", "start": 1, "culprit": {"node": "n"}}"#;
        let error = error(&with(&format!("{one}, {one}")));
        assert!(error.contains("faults[1]: id"), "{error}");
    }
}
