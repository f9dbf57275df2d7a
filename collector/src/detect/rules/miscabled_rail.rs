//! Host ports that are connected to a leaf of another rail, or of other hosts.

use railscope_model::identity::{NodeName, Part, RdmaDevice, RdmaPort};

use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, MISCABLED_RAIL};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::registry::{Rule, Threshold};
use crate::fabric::{FABRIC_SHARE, MISPLACED_LIMIT, Misplaced};

struct MiscabledRail;

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(MiscabledRail)
}

impl Detector for MiscabledRail {
    fn name(&self) -> &'static str {
        "miscabled-rail"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        for wrong in view.misplaced {
            out.push(evidence(view, wrong));
        }
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "A host port is connected to a leaf whose other ports belong to another rail, or to other hosts.",
            threshold: String::from(
                "most leaves show that the fabric is rail-optimized, or hosts have all of their NICs on one leaf, and this cable does not match",
            ),
            clears: "The subnet shows the cable at a leaf of its own rail, or at the leaf of the host's other NICs.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let thresholds = vec![
            Threshold::new(
                "share of a leaf's NICs that belong to its rail",
                FABRIC_SHARE,
                "ratio",
                "two recorded fabrics: 200 of 200, and 31 of 31 next to one crossed pair",
            ),
            Threshold::new(
                "share of misplaced NICs from which hosts number their NICs differently",
                MISPLACED_LIMIT,
                "ratio",
                "so many cables are not miswired (a choice)",
            ),
        ];
        vec![Rule::new(&MISCABLED_RAIL, thresholds)]
    }
}

fn evidence(view: &View<'_>, wrong: &Misplaced) -> Evidence {
    let link = |host: &NodeName, device: &RdmaDevice| {
        let part = Part::Nic(host.clone(), device.clone());
        Part::HostLink(host.clone(), cabled_port(view, &part, device))
    };
    let part = link(&wrong.host, &wrong.device);
    let (device, host, leaf) = (&wrong.device, &wrong.host, &wrong.leaf);
    let mut statement = match wrong.leaf_rail {
        Some(rail) => format!(
            "{device} of {host} belongs to rail {} and is connected to {leaf} of rail {rail}",
            wrong.rail
        ),
        None => {
            format!("{device} of {host} is connected to {leaf}, and the host's other NICs are not")
        }
    };
    if let Some(expected) = &wrong.expected_leaf {
        statement += &format!("; it belongs on {expected}");
    }
    if let Some((host, device)) = &wrong.swapped_with {
        statement += &format!("; it is swapped with {device} of {host}");
    }
    statement.push('.');
    Evidence {
        detector: "miscabled-rail",
        signal: "subnet",
        class: &MISCABLED_RAIL,
        // One or two hops more for this NIC's traffic; what that costs depends on the load of the spines.
        effect: 0.0,
        statement,
        victims: gpus_behind(view.fabric, &part),
        related: wrong
            .swapped_with
            .iter()
            .map(|(host, device)| link(host, device))
            .collect(),
        alike: Vec::new(),
        part,
    }
}

/// The port of a device that has a cable, as the fabric has it; else port 1.
fn cabled_port(view: &View<'_>, nic: &Part, device: &RdmaDevice) -> RdmaPort {
    let id = view.fabric.find(nic);
    let mut cables = id.into_iter().flat_map(|id| view.fabric.cables(id));
    let port = cables.find_map(|near| u8::try_from(near.port).ok());
    RdmaPort {
        device: device.clone(),
        port: port.unwrap_or(1),
    }
}
