//! Converts cables of a text to a wiring plan.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use railscope_model::identity::{Part, PortName};
use railscope_model::plan::{PlannedCable, Socket, WiringPlan};

/// A cable with known ends only.
pub(super) fn cable(ends: [Socket; 2]) -> PlannedCable {
    PlannedCable {
        ends,
        rail: None,
        plane: None,
        length_meters: None,
        serial: None,
    }
}

/// A port of a switch, or a host's device by the name of its interface; `None` for an invalid name.
pub(super) fn socket(device: &str, is_switch: bool, port: &str) -> Option<Socket> {
    Some(if is_switch {
        Socket {
            part: Part::Switch(device.parse().ok()?),
            port: port.parse().ok()?,
        }
    } else {
        Socket {
            part: Part::Nic(device.parse().ok()?, port.parse().ok()?),
            port: PortName::Number(1),
        }
    })
}

/// A port with cables to several others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contested {
    /// The port.
    pub end: Socket,
    /// The reported far ends.
    pub claims: Vec<Socket>,
    /// The cable that both ends report; without one, all are ignored.
    pub kept: Option<Socket>,
}

impl fmt::Display for Contested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let claims: Vec<String> = self.claims.iter().map(ToString::to_string).collect();
        write!(
            f,
            "{} is reported with {} cables: {}",
            self.end,
            claims.len(),
            claims.join(", ")
        )?;
        match &self.kept {
            Some(kept) => write!(f, "; used: {kept}, which both ends report"),
            None => f.write_str("; all are ignored"),
        }
    }
}

/// Removes cables that share an end with another cable, except those that both ends report.
pub(crate) fn settle(plan: WiringPlan) -> (WiringPlan, Vec<Contested>) {
    // Far ends by port, and whether the far end reports the cable itself.
    let mut claims: BTreeMap<Socket, BTreeMap<Socket, bool>> = BTreeMap::new();
    for cable in &plan.cables {
        let [near, far] = &cable.ends;
        claims
            .entry(far.clone())
            .or_default()
            .insert(near.clone(), true);
        claims
            .entry(near.clone())
            .or_default()
            .entry(far.clone())
            .or_default();
    }
    let both = |a: &Socket, b: &Socket| {
        let reports = |a, b| {
            claims
                .get(a)
                .and_then(|of: &BTreeMap<Socket, bool>| of.get(b))
                == Some(&true)
        };
        reports(a, b) && reports(b, a)
    };
    let mut contested = Vec::new();
    for (end, of) in claims.iter().filter(|(_, of)| of.len() > 1) {
        let mut confirmed = of.keys().filter(|other| both(end, other));
        let kept = confirmed.next().filter(|_| confirmed.next().is_none());
        contested.push(Contested {
            end: end.clone(),
            claims: of.keys().cloned().collect(),
            kept: kept.cloned(),
        });
    }
    let by_end: BTreeMap<&Socket, &Contested> =
        contested.iter().map(|one| (&one.end, one)).collect();
    let is_removed = |[a, b]: &[Socket; 2]| {
        let is_ignored = |end, other| {
            let one = by_end.get(end);
            one.is_some_and(|one| one.kept.as_ref() != Some(other))
        };
        is_ignored(a, b) || is_ignored(b, a)
    };
    let cables = plan
        .cables
        .into_iter()
        .filter(|cable| !is_removed(&cable.ends))
        .collect();
    (WiringPlan { cables }, contested)
}

/// Removes duplicates of cables that both ends report.
pub(crate) fn once(plan: WiringPlan) -> WiringPlan {
    let mut seen: BTreeSet<[Socket; 2]> = BTreeSet::new();
    let mut cables = plan.cables;
    cables.retain(|cable| {
        let mut ends = cable.ends.clone();
        ends.sort();
        seen.insert(ends)
    });
    WiringPlan { cables }
}
