//! Cables of a text as a wiring plan.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use railscope_model::identity::{Part, PortName};
use railscope_model::plan::{PlannedCable, Socket, WiringPlan};

/// A cable of which only the ends are known.
pub(super) fn cable(ends: [Socket; 2]) -> PlannedCable {
    PlannedCable {
        ends,
        rail: None,
        plane: None,
        length_meters: None,
        serial: None,
    }
}

/// A port of a switch, or a host's device by the name of its interface; none where a name is no name.
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

/// A port that cables to different others end in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contested {
    /// The port.
    pub end: Socket,
    /// What it is said to be cabled to.
    pub claims: Vec<Socket>,
    /// The one that both ends tell of; without it all are left out.
    pub kept: Option<Socket>,
}

impl fmt::Display for Contested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let claims: Vec<String> = self.claims.iter().map(ToString::to_string).collect();
        write!(
            f,
            "{} cannot have {} cables: {}",
            self.end,
            claims.len(),
            claims.join(", ")
        )?;
        match &self.kept {
            Some(kept) => write!(f, "; {kept} says so, too, and is believed"),
            None => f.write_str("; none of them is believed"),
        }
    }
}

/// Leaves out cables that end where another one does, but for those that both ends tell of.
pub(crate) fn settle(plan: WiringPlan) -> (WiringPlan, Vec<Contested>) {
    // Far ends by port, and whether the far end said so itself.
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
        let said = |a, b| {
            claims
                .get(a)
                .and_then(|of: &BTreeMap<Socket, bool>| of.get(b))
                == Some(&true)
        };
        said(a, b) && said(b, a)
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
    let is_out = |[a, b]: &[Socket; 2]| {
        let leaves_out = |end, other| {
            let one = by_end.get(end);
            one.is_some_and(|one| one.kept.as_ref() != Some(other))
        };
        leaves_out(a, b) || leaves_out(b, a)
    };
    let cables = plan
        .cables
        .into_iter()
        .filter(|cable| !is_out(&cable.ends))
        .collect();
    (WiringPlan { cables }, contested)
}

/// A cable that both of its ends told of stands once.
pub(crate) fn once(plan: WiringPlan) -> WiringPlan {
    let mut told: BTreeSet<[Socket; 2]> = BTreeSet::new();
    let mut cables = plan.cables;
    cables.retain(|cable| {
        let mut ends = cable.ends.clone();
        ends.sort();
        told.insert(ends)
    });
    WiringPlan { cables }
}
