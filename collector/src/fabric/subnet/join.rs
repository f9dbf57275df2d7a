//! What both ends report about a cable, compared with each other.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use railscope_model::identity::Guid;
use railscope_model::units::LinkSpeed;

use super::parse::{Draft, Problems};
use super::{Cable, End, Gap, Node};

/// A port: index of the node, number of the port.
type Port = (usize, u16);

/// One line that reports what a port is cabled to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    pub(super) near: Port,
    pub(super) far: Port,
    pub(super) speed: Option<LinkSpeed>,
    pub(super) line: usize,
}

pub(super) struct Joined {
    pub(super) nodes: Vec<Node>,
    pub(super) cables: Vec<Cable>,
    pub(super) gaps: Vec<Gap>,
    pub(super) dropped: usize,
}

/// What the claims report about each port. A cable is accepted when both ends show it, or when one end
/// shows it and nothing contradicts it.
struct Ledger<'a> {
    claims: &'a [Claim],
    by_near: HashMap<Port, usize, FixedState>,
    /// Claims from one side only: how many claims name this far port.
    named: HashMap<Port, usize, FixedState>,
}

pub(super) fn join(drafts: Vec<Draft>, claims: &[Claim], problems: &mut Problems) -> Joined {
    let mut dropped = 0;
    let usable = check_guids(&drafts, problems);
    let ledger = Ledger::new(claims, problems, &mut dropped);
    let mut cables = Vec::with_capacity(claims.len() / 2 + 1);
    let mut has_cable = vec![false; drafts.len()];
    let (mut one_sided, mut example) = (0, None);
    for (index, claim) in claims.iter().enumerate() {
        if ledger.by_near.get(&claim.near) != Some(&index) {
            continue; // a second claim about the same port, reported already
        }
        let back = ledger.by_near.get(&claim.far).map(|index| &claims[*index]);
        let confirmed = back.is_some_and(|back| back.far == claim.near);
        if confirmed && claim.far < claim.near && claim.far != claim.near {
            // Shown again from its other end. A cable is entered where the lower end shows it, which
            // is the order of the text except for nodes whose sections come late.
            continue;
        }
        let ends_known = usable[claim.near.0] && usable[claim.far.0];
        if !ends_known || claim.far == claim.near || !confirmed && ledger.is_contradicted(claim) {
            dropped += 1;
            let what = if ends_known {
                ("cable", "a far end that shows the same cable")
            } else {
                ("cable", "two ends with a GUID each")
            };
            problems.push(claim.line, None, what, &describe(&drafts, claim));
            continue;
        }
        let speed = match back.filter(|_| confirmed) {
            Some(back) => agreed_speed(claim, back, &drafts, problems),
            None => claim.speed,
        };
        let ends = [end(&drafts, claim.near), end(&drafts, claim.far)];
        if !confirmed && drafts[claim.far.0].node.swept {
            one_sided += 1;
            example = example.or(Some(ends[0]));
        }
        has_cable[claim.near.0] = true;
        has_cable[claim.far.0] = true;
        cables.push(Cable {
            ends,
            speed,
            both_ends: confirmed,
        });
    }
    let mut gaps = node_gaps(&drafts, &usable, &has_cable);
    if let Some(example) = example {
        gaps.push(Gap::OneSided {
            cables: one_sided,
            example,
        });
    }
    let nodes = drafts
        .into_iter()
        .zip(usable)
        .filter_map(|(draft, usable)| usable.then_some(draft.node))
        .collect();
    Joined {
        nodes,
        cables,
        gaps,
        dropped,
    }
}

impl<'a> Ledger<'a> {
    fn new(claims: &'a [Claim], problems: &mut Problems, dropped: &mut usize) -> Self {
        let mut by_near = HashMap::with_capacity_and_hasher(claims.len(), FixedState::default());
        for (index, claim) in claims.iter().enumerate() {
            let first = *by_near.entry(claim.near).or_insert(index);
            if first != index {
                // The same line twice is untidy; two lines that differ cannot both be true.
                if claims[first].far != claim.far {
                    *dropped += 1;
                }
                let what = ("port", "one line per port");
                let port = claim.near.1.to_string();
                problems.push(claim.line, None, what, &port);
            }
        }
        let mut named: HashMap<_, usize, _> = HashMap::default();
        for index in by_near.values() {
            let far = claims[*index].far;
            if !by_near.contains_key(&far) {
                *named.entry(far).or_default() += 1;
            }
        }
        Self {
            claims,
            by_near,
            named,
        }
    }

    /// Whether the far port reports that it is cabled elsewhere, or two ports report that they are cabled
    /// to it.
    fn is_contradicted(&self, claim: &Claim) -> bool {
        match self.by_near.get(&claim.far) {
            Some(back) => self.claims[*back].far != claim.near,
            None => self.named.get(&claim.far).is_some_and(|claims| *claims > 1),
        }
    }
}

fn end(drafts: &[Draft], port: Port) -> End {
    End {
        guid: drafts[port.0].node.guid,
        port: port.1,
    }
}

fn describe(drafts: &[Draft], claim: &Claim) -> String {
    let name = |port: Port| format!("{}[{}]", drafts[port.0].node.description, port.1);
    format!("{} - {}", name(claim.near), name(claim.far))
}

/// Both ends of a link train to one width and speed; where they print two, neither is accepted.
fn agreed_speed(
    claim: &Claim,
    back: &Claim,
    drafts: &[Draft],
    problems: &mut Problems,
) -> Option<LinkSpeed> {
    match (claim.speed, back.speed) {
        (Some(near), Some(far)) if near != far => {
            let found = format!("{}: {near}, {far}", describe(drafts, claim));
            problems.push(
                back.line,
                None,
                ("speed", "the same speed at both ends"),
                &found,
            );
            None
        }
        (near, far) => near.or(far),
    }
}

/// Which nodes have a unique GUID.
fn check_guids(drafts: &[Draft], problems: &mut Problems) -> Vec<bool> {
    let mut owners: HashMap<Guid, usize, FixedState> = HashMap::default();
    let mut usable = Vec::with_capacity(drafts.len());
    for (index, draft) in drafts.iter().enumerate() {
        let (line, name) = (draft.first_line, draft.node.description.as_str());
        if !draft.guid_known {
            problems.push(
                line,
                None,
                ("node", "a section or an id with its GUID"),
                name,
            );
            usable.push(false);
            continue;
        }
        let owner = *owners.entry(draft.node.guid).or_insert(index);
        if owner != index {
            problems.push(
                line,
                None,
                ("node GUID", "a GUID that no other node has"),
                name,
            );
        }
        usable.push(owner == index);
    }
    usable
}

fn node_gaps(drafts: &[Draft], usable: &[bool], has_cable: &[bool]) -> Vec<Gap> {
    let mut gaps = Vec::new();
    if !usable.contains(&true) {
        gaps.push(Gap::Empty);
    }
    let mut unswept = drafts.iter().filter(|draft| !draft.node.swept).peekable();
    if let Some(first) = unswept.peek() {
        let example = match first.node.description.as_str() {
            "" => first.node.guid.to_string(),
            description => description.to_owned(),
        };
        gaps.push(Gap::NotSwept {
            nodes: unswept.count(),
            example,
        });
    }
    let nodes = drafts
        .iter()
        .zip(has_cable)
        .filter(|(draft, has_cable)| draft.node.swept && !**has_cable)
        .count();
    if nodes > 0 {
        gaps.push(Gap::WithoutCables { nodes });
    }
    gaps
}
