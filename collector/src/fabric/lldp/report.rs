//! What the merge of LLDP found, and what that costs the result.

use std::collections::BTreeSet;

use railscope_model::identity::SwitchName;

use crate::fabric::classify::verdict::{Confidence, Kind, Verdict};
use crate::fabric::subnet::counted;

/// Sentences of one kind in the doubts; the others are counted.
const MAX_SENTENCES: usize = 8;

/// An end that several cables claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// The end: part and port.
    pub end: String,
    /// The other ends that claim it.
    pub claims: Vec<String>,
    /// The one that takes precedence: confirmed from both sides, or much newer. None of them otherwise.
    pub kept: Option<String>,
}

/// What LLDP brought into the fabric, and what of it is not in the graph.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LldpMerge {
    /// Cables now in the graph.
    pub cables: usize,
    /// Switches that report their neighbors.
    pub speakers: usize,
    /// Switches that NICs are cabled to.
    pub leaves: BTreeSet<SwitchName>,
    /// Those of them that report their neighbors.
    pub speaking_leaves: usize,
    /// Neighbors that are hosts where none belongs, DPUs, or other ports of hosts than those of NICs.
    pub host_neighbors: usize,
    /// Neighbors on management ports.
    pub management: usize,
    /// NIC ports omitted because they are far slower than the fastest of their node.
    pub slow: usize,
    /// Cables that are still reported although the port at one of their ends reports that it has no
    /// optical signal.
    pub dark: usize,
    /// Neighbors of switches that are neither a known host nor a switch, as they call themselves.
    pub strangers: BTreeSet<String>,
    /// Ethernet ports of NICs that are up and receive no neighbor.
    pub silent: usize,
    /// Ends that several cables claim.
    pub contradictions: Vec<Contradiction>,
    /// Chassis ids with the names that share them.
    pub shared_chassis: Vec<(String, Vec<String>)>,
    /// Switches whose neighbors could not be read, and why.
    pub unread: Vec<(SwitchName, String)>,
    /// Neighbors that could not be read.
    pub unparsed: usize,
}

impl LldpMerge {
    /// What contradicts the fabric that LLDP shows, in sentences.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        let sentence = |contradiction: &Contradiction| {
            let claims = contradiction.claims.join(" and ");
            let fate = contradiction.kept.as_ref().map_or_else(
                || String::from("none is believed"),
                |kept| format!("{kept} is believed"),
            );
            format!(
                "LLDP contradicts itself: {} is cabled to {claims}; {fate}",
                contradiction.end
            )
        };
        limited(&mut doubts, self.contradictions.iter().map(sentence));
        let sentence = |(chassis, names): &(String, Vec<String>)| {
            format!(
                "LLDP chassis id {chassis:?} is that of {}: {}",
                counted(names.len(), "neighbor", "neighbors"),
                names.join(", ")
            )
        };
        limited(&mut doubts, self.shared_chassis.iter().map(sentence));
        let sentence = |(switch, why): &(SwitchName, String)| {
            format!("the neighbors of {switch} could not be read: {why}")
        };
        limited(&mut doubts, self.unread.iter().map(sentence));
        for (count, one, many) in [
            (
                self.silent,
                "Ethernet port is up and hears no LLDP",
                "Ethernet ports are up and hear no LLDP",
            ),
            (
                self.unparsed,
                "LLDP neighbor could not be read",
                "LLDP neighbors could not be read",
            ),
            (
                self.strangers.len(),
                "neighbor of a switch is neither a known host nor a switch",
                "neighbors of switches are neither known hosts nor switches",
            ),
        ] {
            if count > 0 {
                doubts.push(counted(count, one, many));
            }
        }
        doubts
    }

    /// Removes what LLDP cannot show: the tiers above leaves that do not report them.
    pub fn temper(&self, verdict: &mut Verdict) {
        verdict.doubts.extend(self.doubts());
        if !self.contradictions.is_empty() || !self.unread.is_empty() {
            verdict.confidence = verdict.confidence.min(Confidence::Medium);
        }
        let quiet = self.leaves.len() - self.speaking_leaves;
        if quiet == 0 || self.leaves.len() < 2 {
            return;
        }
        let above = format!(
            "{} of {} do not tell their LLDP neighbors, so what is above them is not known",
            quiet,
            counted(self.leaves.len(), "leaf", "leaves")
        );
        match &verdict.kind {
            Kind::RailOnly | Kind::Unknown { .. } | Kind::HostGrouped => {
                verdict.kind = Kind::Unknown { why: above };
                verdict.confidence = Confidence::Low;
            }
            _ => {
                verdict.doubts.push(above);
                verdict.confidence = verdict.confidence.min(Confidence::Medium);
            }
        }
    }
}

fn limited(doubts: &mut Vec<String>, mut sentences: impl ExactSizeIterator<Item = String>) {
    doubts.extend(sentences.by_ref().take(MAX_SENTENCES));
    if sentences.len() > 0 {
        doubts.push(format!("{} more such sentences", sentences.len()));
    }
}
