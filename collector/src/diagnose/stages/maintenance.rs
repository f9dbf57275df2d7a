//! Maintenance windows of parts: incidents that they explain stay open and do not page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::Part;

use crate::classes::Severity;
use crate::diagnose::incident::{Incident, short_id};

/// How long after its end a window still explains what is seen: links train again, scrapes succeed again, a sweep
/// of the subnet is 30 to 60 s old. `railscope eval` evaluates by the same minute.
pub const SETTLE_SECONDS: f64 = 60.0;

/// Words before the slash of a part.
const CLASSES: [&str; 8] = [
    "host", "switch", "gpu", "nvlink", "pcie", "nic", "link", "storage",
];

/// A part, or many: `*` in its text matches any characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartPattern(Arc<str>);

impl PartPattern {
    /// What was expected of an invalid text.
    pub const EXPECTED: &'static str = "expected a part such as host/n7, switch/leaf-03 or link/n7:mlx5_4/1, with * for any characters";

    /// Whether a part is meant.
    pub fn matches(&self, part: &Part) -> bool {
        let text = part.to_string();
        let mut pieces = self.0.split('*');
        let Some(mut rest) = pieces.next().and_then(|first| text.strip_prefix(first)) else {
            return false;
        };
        let Some(last) = pieces.next_back() else {
            return rest.is_empty();
        };
        for piece in pieces {
            match rest.find(piece) {
                Some(at) => rest = &rest[at + piece.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

impl From<Part> for PartPattern {
    fn from(part: Part) -> Self {
        Self(part.to_string().into())
    }
}

impl FromStr for PartPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wild = text.contains('*');
        let class = text.split_once('/').map(|(class, _)| class);
        let is_class = class.is_some_and(|class| CLASSES.contains(&class));
        if (wild && is_class) || text.parse::<Part>().is_ok() {
            Ok(Self(text.into()))
        } else {
            Err(format!("{text:?}: {}", Self::EXPECTED))
        }
    }
}

impl fmt::Display for PartPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Maintenance windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Components under maintenance. A host includes its parts and their cables, a switch its cables.
    pub parts: Vec<PartPattern>,
    /// Its begin.
    pub from: Timestamp,
    /// Its end.
    pub until: Timestamp,
    /// Description of the work, shown with the incident.
    pub why: String,
}

impl Window {
    /// Short, and the same for the same window.
    pub fn id(&self) -> String {
        let parts: String = self.parts.iter().map(|part| format!("{part} ")).collect();
        short_id(&format!(
            "{parts}{} {} {}",
            self.from.0, self.until.0, self.why
        ))
    }

    /// Whether evidence of this time may come from the work.
    pub fn holds_at(&self, at: Timestamp) -> bool {
        self.from <= at && !self.is_over(at)
    }

    /// Whether it explains nothing any more.
    pub fn is_over(&self, now: Timestamp) -> bool {
        now.seconds_since(self.until) > SETTLE_SECONDS
    }
}

/// Marks the incidents that a maintenance window explains and removes their pages: those of its parts, and those
/// of which all evidence is of its parts. Evidence is compared with the windows of its own time, so that
/// a fault that outlasts the work pages.
pub fn mark(windows: &[Arc<Window>], fabric: &Fabric, incidents: &mut [Incident]) {
    if windows.is_empty() || incidents.is_empty() {
        return;
    }
    let ends = ends_of_cables(fabric);
    for incident in incidents {
        let seen = windows
            .iter()
            .filter(|window| window.holds_at(incident.last_seen));
        let seen: Vec<&Arc<Window>> = seen.collect();
        let explaining = |part: &Part| {
            let shown = shown_by(part, &ends);
            seen.iter().copied().find(|window| {
                let mut patterns = window.parts.iter();
                patterns.any(|pattern| shown.iter().any(|part| pattern.matches(part)))
            })
        };
        let of_all = || {
            let mut parts: BTreeSet<_> =
                incident.findings.iter().map(|f| &f.evidence.part).collect();
            let first = explaining(parts.pop_first()?)?;
            parts
                .into_iter()
                .all(|part| explaining(part).is_some())
                .then_some(first)
        };
        if let Some(window) = explaining(&incident.root).or_else(of_all) {
            incident.maintenance = Some(Arc::clone(window));
            incident.severity = Severity::Warning;
        }
    }
}

/// Parts on which work shows at a part: itself, what its cable joins, and the hosts of these.
fn shown_by(part: &Part, ends: &BTreeMap<Part, [Part; 2]>) -> Vec<Part> {
    let ends = ends.get(part).into_iter().flatten();
    let parts: Vec<Part> = std::iter::once(part).chain(ends).cloned().collect();
    let hosts = parts.iter().filter_map(Part::node).cloned().map(Part::Host);
    let hosts: Vec<Part> = hosts.collect();
    parts.into_iter().chain(hosts).collect()
}

/// What each cable joins.
pub(crate) fn ends_of_cables(fabric: &Fabric) -> BTreeMap<Part, [Part; 2]> {
    let links = fabric.links();
    let cables = links.filter_map(|(id, a, b, _)| {
        let ends = [a, b].map(|end| fabric.vertex(end).part.clone());
        Some((fabric.cable_part(id)?, ends))
    });
    cables.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_the_parts_of_its_text() {
        for (pattern, part, meant) in [
            ("host/n7", "host/n7", true),
            ("host/n7", "host/n71", false),
            ("host/n*", "host/n71", true),
            ("switch/leaf-*", "switch/spine-1", false),
            ("link/*:mlx5_*/1", "link/n7:mlx5_4/1", true),
            ("link/*:mlx5_*/2", "link/n7:mlx5_4/1", false),
            ("gpu/n*7:*", "gpu/n7:3", true),
            ("host/*7*7", "host/n7", false),
            ("storage/*", "storage/shared", true),
        ] {
            let pattern: PartPattern = pattern.parse().expect(pattern);
            let part: Part = part.parse().expect(part);
            assert_eq!(pattern.matches(&part), meant, "{pattern} {part}");
        }
    }

    #[test]
    fn what_is_no_part_is_no_pattern() {
        for text in ["", "*", "n7", "node/n7", "node/*", "link/n7", "host/"] {
            let error = text.parse::<PartPattern>().expect_err(text);
            assert!(error.contains("host/n7"), "{error}");
        }
    }

    #[test]
    fn a_window_holds_from_its_begin_until_a_minute_after_its_end() {
        let at = |seconds: u64| Timestamp(seconds * 1000);
        let window = Window {
            parts: Vec::new(),
            from: at(100),
            until: at(200),
            why: String::new(),
        };
        for (seconds, holds) in [(99, false), (100, true), (260, true), (261, false)] {
            assert_eq!(window.holds_at(at(seconds)), holds, "{seconds}");
        }
    }
}
