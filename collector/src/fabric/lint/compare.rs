//! The plan against what was seen, cable by cable, once it is clear what the plan calls by other names.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use foldhash::fast::FixedState;
use railscope_model::fabric::{Fabric, LinkKind};
use railscope_model::identity::{Part, SwitchName};
use railscope_model::plan::{PlannedCable, Socket, WiringPlan};

use super::{
    ABSENT_DEVICE, CROSS_PLANE, CROSS_RAIL, Case, Covered, Finding, MISSING_CABLE, MOVED_CABLE,
    OTHER_PORT, PEER_SHARE, Place, SWAPPED_CABLES, UNEXPECTED_CABLE, UNPLANNED_DEVICE, cable_at,
    device, renamed, socket,
};
use crate::fabric::graph::tiers::Sets;
use crate::fabric::subnet::counted;

/// Cables as they were seen, from each of their ends.
pub(super) struct Seen<'a> {
    fabric: &'a Fabric,
    far: HashMap<Place, Place, FixedState>,
}

impl<'a> Seen<'a> {
    fn of(fabric: &'a Fabric) -> Self {
        let cables = fabric
            .links()
            .filter(|(.., link)| link.kind == LinkKind::Cable);
        let far = cables.flat_map(|(_, a, b, link)| {
            let (one, other) = ((a, link.ports.0), (b, link.ports.1));
            [(one, other), (other, one)]
        });
        Self {
            fabric,
            far: far.collect(),
        }
    }

    fn place(&self, socket: &Socket) -> Option<Place> {
        let part = self.fabric.find(&socket.part)?;
        Some((part, self.fabric.find_port(part, &socket.port)?))
    }

    fn far(&self, socket: &Socket) -> Option<Place> {
        self.far.get(&self.place(socket)?).copied()
    }

    /// What the cable in a port leads to.
    pub(super) fn far_part(&self, socket: &Socket) -> Option<&'a Part> {
        let (part, _) = self.far(socket)?;
        Some(&self.fabric.vertex(part).part)
    }

    /// Whether a part is in the fabric.
    pub(super) fn has(&self, part: &Part) -> bool {
        self.fabric.find(part).is_some()
    }

    /// Switches at the far ends of a switch's cables, one for each cable.
    pub(super) fn switches_at(
        &self,
        switch: &SwitchName,
    ) -> impl Iterator<Item = &'a SwitchName> + use<'a> {
        let fabric = self.fabric;
        let switch = fabric.find(&Part::Switch(switch.clone()));
        let cables = switch.into_iter().flat_map(|id| fabric.cables(id));
        cables.filter_map(|near| match &fabric.vertex(near.peer).part {
            Part::Switch(name) => Some(name),
            _ => None,
        })
    }
}

/// A planned cable that is not as planned.
struct Amiss {
    cable: usize,
    /// What is connected to each end instead.
    found: [Option<Place>; 2],
}

/// Compares what was seen with the plan, and returns the plan in the names of what was seen.
pub(super) fn check<'a>(
    case: &Case<'_>,
    plan: &'a WiringPlan,
    out: &mut Vec<Finding>,
) -> Cow<'a, WiringPlan> {
    let seen = Seen::of(case.fabric);
    let plan = renamed::find(plan, &seen, out).apply(plan);
    let mut compare = Compare {
        whole: case.whole,
        seen: &seen,
        planned: plan
            .cables
            .iter()
            .enumerate()
            .flat_map(|(index, cable)| cable.ends.iter().map(move |end| (end, index)))
            .filter_map(|(end, index)| Some((seen.place(end)?, index)))
            .collect(),
        plan: &plan,
        rails: Rails::of(&plan),
        joined: Joined::of(&plan),
        told: HashSet::default(),
    };
    let amiss = compare.amiss(out);
    compare.explain(&amiss, out);
    compare.unplanned(out);
    plan
}

struct Compare<'a> {
    whole: bool,
    seen: &'a Seen<'a>,
    plan: &'a WiringPlan,
    /// Which planned cable is to be in a port.
    planned: HashMap<Place, usize, FixedState>,
    rails: Rails<'a>,
    joined: Joined<'a>,
    /// Ports that a finding is already about.
    told: HashSet<Place, FixedState>,
}

/// Rail and plane of each switch, where enough of its planned cables are of one: the leaves of a plain tree have NICs of
/// every rail, and serve none.
struct Rails<'a>(HashMap<&'a Part, Served, FixedState>);

/// Rail and plane.
type Served = (Option<u16>, Option<u16>);

impl<'a> Rails<'a> {
    fn of(plan: &'a WiringPlan) -> Self {
        let mut votes: HashMap<&Part, [Vec<u16>; 2], FixedState> = HashMap::default();
        for cable in &plan.cables {
            let ends = cable.ends.iter().map(|end| &end.part);
            for switch in ends.filter(|part| matches!(part, Part::Switch(_))) {
                let [rails, planes] = votes.entry(switch).or_default();
                rails.extend(cable.rail);
                planes.extend(cable.plane);
            }
        }
        let served = votes.into_iter().map(|(switch, votes)| {
            let [rail, plane] = votes.map(most);
            (switch, (rail, plane))
        });
        Self(served.collect())
    }
}

/// Which switches the planned cables between switches join, over however many.
struct Joined<'a>(HashMap<&'a Part, usize, FixedState>);

impl<'a> Joined<'a> {
    fn of(plan: &'a WiringPlan) -> Self {
        let is_switch = |end: &Socket| matches!(end.part, Part::Switch(_));
        let trunks = plan
            .cables
            .iter()
            .filter(|cable| cable.ends.iter().all(is_switch));
        let trunks: Vec<_> = trunks
            .map(|cable| cable.ends.each_ref().map(|end| &end.part))
            .collect();
        let mut sets_of: HashMap<&Part, usize, FixedState> = HashMap::default();
        for switch in trunks.iter().flatten() {
            let number = sets_of.len();
            sets_of.entry(switch).or_insert(number);
        }
        let mut sets = Sets::new(sets_of.len());
        for [one, other] in trunks {
            sets.union(sets_of[one], sets_of[other]);
        }
        for set in sets_of.values_mut() {
            *set = sets.find(*set);
        }
        Self(sets_of)
    }

    /// Whether both are joined to others by the plan, and not to each other.
    fn apart(&self, one: &Part, other: &Part) -> bool {
        let sets = (self.0.get(one), self.0.get(other));
        matches!(sets, (Some(one), Some(other)) if one != other)
    }
}

/// The number that enough of them are.
fn most(mut votes: Vec<u16>) -> Option<u16> {
    votes.sort_unstable();
    let runs = votes.chunk_by(|a, b| a == b);
    let longest = runs.max_by_key(|run| run.len())?;
    (longest.len() as f64 >= PEER_SHARE * votes.len() as f64).then(|| longest[0])
}

impl Compare<'_> {
    /// Planned cables that are not there; those of devices that are not there as one finding each.
    fn amiss(&mut self, out: &mut Vec<Finding>) -> Vec<Amiss> {
        let mut absent: BTreeMap<Part, Vec<Part>> = BTreeMap::new();
        let mut amiss = Vec::new();
        for (index, cable) in self.plan.cables.iter().enumerate() {
            let found = cable.ends.each_ref().map(|end| self.seen.far(end));
            if found[0].is_some() && found[0] == self.seen.place(&cable.ends[1]) {
                continue;
            }
            let gone = cable
                .ends
                .iter()
                .map(|end| device(&end.part))
                .find(|part| !self.seen.has(part));
            match gone {
                Some(part) => absent
                    .entry(part)
                    .or_default()
                    .push(cable_at(&cable.ends[0])),
                None => amiss.push(Amiss {
                    cable: index,
                    found,
                }),
            }
        }
        if self.whole {
            out.extend(absent.into_iter().map(|(part, cables)| Finding {
                rule: &ABSENT_DEVICE,
                sentence: format!("{part} is planned and not in the fabric."),
                evidence: vec![format!(
                    "{} planned to it",
                    counted(cables.len(), "cable is", "cables are")
                )],
                parts: std::iter::once(part).chain(cables).collect(),
            }));
        }
        amiss
    }

    fn explain(&mut self, amiss: &[Amiss], out: &mut Vec<Finding>) {
        let by_cable: BTreeMap<usize, &Amiss> =
            amiss.iter().map(|amiss| (amiss.cable, amiss)).collect();
        let mut done: BTreeSet<usize> = BTreeSet::new();
        for one in amiss {
            if !done.insert(one.cable) {
                continue;
            }
            let cable = &self.plan.cables[one.cable];
            let twin = self.twin(one).and_then(|twin| by_cable.get(&twin));
            let finding = match (twin, &one.found) {
                (Some(twin), _) if !done.contains(&twin.cable) => {
                    done.insert(twin.cable);
                    Some(self.swapped(cable, &self.plan.cables[twin.cable]))
                }
                (_, [None, None]) => self.whole.then(|| missing(cable)),
                (_, [Some(at), _]) => Some(self.moved(cable, (0, 1), *at)),
                (_, [None, Some(at)]) => Some(self.moved(cable, (1, 0), *at)),
            };
            let ends = cable.ends.iter().filter_map(|end| self.seen.place(end));
            self.told.extend(ends);
            self.told.extend(one.found.iter().flatten());
            out.extend(finding);
        }
    }

    /// The planned cable with which this one has exchanged an end.
    fn twin(&self, amiss: &Amiss) -> Option<usize> {
        let [a, b] = &self.plan.cables[amiss.cable].ends;
        let one = self.planned.get(&amiss.found[0]?)?;
        let other = self.planned.get(&amiss.found[1]?)?;
        // What a leads to and what b leads to must be the two ends of one planned cable.
        (one == other && self.seen.far(a) != self.seen.place(b)).then_some(*one)
    }

    fn swapped(&self, one: &PlannedCable, other: &PlannedCable) -> Finding {
        let same_device = |a: usize| one.ends[a].part == other.ends[a].part;
        let crosses = one.plane != other.plane || self.plane_of(one) != self.plane_of(other);
        let rule = match () {
            () if same_device(0) && same_device(1) => &OTHER_PORT,
            () if same_device(1) && matches!(one.ends[1].part, Part::Switch(_)) => &OTHER_PORT,
            () if crosses => &CROSS_PLANE,
            () => &SWAPPED_CABLES,
        };
        Finding {
            rule,
            parts: vec![cable_at(&one.ends[0]), cable_at(&other.ends[0])],
            sentence: format!(
                "The cables of {} and {} have each other's place at {} and {}.",
                one.ends[0], other.ends[0], one.ends[1], other.ends[1]
            ),
            evidence: rails_said(one, other).into_iter().collect(),
        }
    }

    fn plane_of(&self, cable: &PlannedCable) -> Option<u16> {
        let planes = cable
            .ends
            .iter()
            .filter_map(|end| self.rails.0.get(&end.part)?.1);
        cable.plane.or_else(|| planes.max())
    }

    /// A cable of which one end is where it should be, and the other is not.
    fn moved(&self, cable: &PlannedCable, (end, other): (usize, usize), at: Place) -> Finding {
        let (end, planned, at) = (
            &cable.ends[end],
            &cable.ends[other],
            socket(self.seen.fabric, at),
        );
        let served = self.rails.0.get(&at.part).copied().unwrap_or_default();
        let differs = |own: Option<u16>, theirs: Option<u16>| {
            own.zip(theirs).is_some_and(|(own, theirs)| own != theirs)
        };
        let rule = match () {
            () if at.part == planned.part => &OTHER_PORT,
            () if differs(cable.plane, served.1) => &CROSS_PLANE,
            () if self.joined.apart(&end.part, &at.part) => &CROSS_PLANE,
            () if differs(cable.rail, served.0) => &CROSS_RAIL,
            () => &MOVED_CABLE,
        };
        let rails = differs(cable.rail, served.0).then(|| {
            format!(
                "it is of rail {}, and {} serves rail {}",
                cable.rail.unwrap_or(0),
                at.part,
                served.0.unwrap_or(0)
            )
        });
        Finding {
            rule,
            parts: vec![cable_at(end)],
            sentence: format!("The cable of {end} leads to {at} and not to {planned}."),
            evidence: rails.into_iter().collect(),
        }
    }

    /// Cables that are not planned, those of unplanned devices as one finding each.
    fn unplanned(&mut self, out: &mut Vec<Finding>) {
        let planned = Covered::by(self.plan);
        let mut strangers: BTreeMap<Part, usize> = BTreeMap::new();
        let known = |end: &Place| self.planned.contains_key(end) || self.told.contains(end);
        let unknown = self.seen.far.iter();
        let unknown = unknown.filter(|(near, far)| near <= far && !known(near) && !known(far));
        let fabric = self.seen.fabric;
        let cables: BTreeSet<_> = unknown
            .map(|(near, far)| {
                let (a, b) = (socket(fabric, *near), socket(fabric, *far));
                if a <= b { (a, b) } else { (b, a) }
            })
            .collect();
        for (near, far) in cables {
            let strange: Vec<Part> = [&near, &far]
                .iter()
                .map(|end| device(&end.part))
                .filter(|part| !planned.0.contains(part))
                .collect();
            for part in &strange {
                *strangers.entry(part.clone()).or_default() += 1;
            }
            if strange.is_empty() {
                out.push(Finding {
                    rule: &UNEXPECTED_CABLE,
                    // Named by the host, or by the first of two switches, as the fabric does.
                    parts: vec![cable_at(if matches!(far.part, Part::Nic(..)) {
                        &far
                    } else {
                        &near
                    })],
                    sentence: format!("The cable between {near} and {far} is in no plan."),
                    evidence: Vec::new(),
                });
            }
        }
        out.extend(strangers.into_iter().map(|(part, cables)| Finding {
            rule: &UNPLANNED_DEVICE,
            sentence: format!("{part} is in no plan."),
            evidence: vec![format!("it has {}", counted(cables, "cable", "cables"))],
            parts: vec![part],
        }));
    }
}

fn missing(cable: &PlannedCable) -> Finding {
    Finding {
        rule: &MISSING_CABLE,
        parts: vec![cable_at(&cable.ends[0])],
        sentence: format!(
            "The cable between {} and {} is not there.",
            cable.ends[0], cable.ends[1]
        ),
        evidence: vec!["it is in the plan, and both its ports are dark".to_owned()],
    }
}

fn rails_said(one: &PlannedCable, other: &PlannedCable) -> Option<String> {
    let (one, other) = one.rail.zip(other.rail)?;
    (one != other).then(|| format!("one is of rail {one}, the other of rail {other}"))
}
