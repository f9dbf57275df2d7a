//! Rails on the cables: which rail each leaf serves, which NICs are connected to a leaf of another, which rails a host lacks.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;
use railscope_model::fabric::{Equipment, Fabric, PartId};
use railscope_model::identity::{NodeName, RdmaDevice, SwitchName};

use super::home_leaves;
use crate::fabric::graph::host_classes::{HostClass, HostRole, Shapes};
use crate::fabric::graph::index::Survey;
use crate::fabric::graph::tiers::Sets;

/// A leaf serves a rail when at least this share of its rail NICs is of that rail. One NIC in the wrong
/// port of a leaf of four leaves 3/4; hosts of four NICs spread at random leave 1/4, and two rails on one
/// leaf leave 1/2.
const LEAF_SHARE: f64 = 2.0 / 3.0;
/// Leaves that serve a rail make the fabric rail-wired at this share of the leaves with rail NICs.
/// Selene: 200 of 200; the NDR capture with one crossed pair: 31 of 31.
pub const FABRIC_SHARE: f64 = 0.9;
/// Two leaves are of one unit when more than this share of the smaller one's hosts are connected to both. In the
/// captures it is all of them or none; a cable in another unit's leaf is one of 4 to 32.
const UNIT_SHARE: f64 = 0.25;
/// Past this share of misplaced NICs in a class of hosts, the numbering of its devices is another one,
/// not its cables.
pub const MISPLACED_LIMIT: f64 = 0.25;

/// The rail that most NICs of a leaf are of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafRail {
    /// The leaf.
    pub leaf: SwitchName,
    /// Its rail, from 0.
    pub rail: u16,
    /// NICs on it that are of this rail.
    pub nics: usize,
    /// NICs on it that are of other rails.
    pub others: usize,
}

/// A NIC on a leaf of another rail, of its rail in another unit (then both rails are the same), or of other hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misplaced {
    /// The host.
    pub host: NodeName,
    /// Its device.
    pub device: RdmaDevice,
    /// Rail of the device, from 0.
    pub rail: u16,
    /// The leaf that it is connected to.
    pub leaf: SwitchName,
    /// Rail of that leaf; none where leaves serve hosts, not rails.
    pub leaf_rail: Option<u16>,
    /// The leaf of the device's rail in the host's unit, where there is one, or of the host's other NICs.
    pub expected_leaf: Option<SwitchName>,
    /// The NIC that is connected where this one should be, and the reverse.
    pub swapped_with: Option<(NodeName, RdmaDevice)>,
}

/// A rail on which a host has no cable, though its peers have one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRail {
    /// The host.
    pub host: NodeName,
    /// The rail, from 0.
    pub rail: u16,
    /// What its peers call the device.
    pub device: RdmaDevice,
    /// Whether the host has the device, without a cable.
    pub has_device: bool,
    /// Whether the host's unit has no leaf of this rail at all: then the leaf is gone, not the NIC.
    pub leaf_absent: bool,
    /// NICs without a host name on the leaf where the cable should be: one of them may be the missing
    /// one, without its name.
    pub unnamed_there: usize,
}

/// A rail of which a unit has no leaf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbsentLeaf {
    /// The rail, from 0.
    pub rail: u16,
    /// The other leaves of the unit.
    pub beside: Vec<SwitchName>,
    /// Hosts that lack the rail for that reason.
    pub hosts: usize,
}

/// How hosts are wired to leaves.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Wiring {
    /// Kinds of hosts with the devices that make their rails.
    pub classes: Vec<HostClass>,
    /// Leaves that serve a rail, in the order of the graph. Empty unless the fabric is rail-wired.
    pub leaf_rails: Vec<LeafRail>,
    /// NICs on leaves of other rails, or of other hosts, by host and device.
    pub misplaced: Vec<Misplaced>,
    /// Rails that hosts lack, by host and rail.
    pub missing: Vec<MissingRail>,
    /// Rails that units lack.
    pub absent_leaves: Vec<AbsentLeaf>,
    /// Groups of hosts behind the same leaves; 0 unless the fabric is rail-wired.
    pub units: usize,
    /// Leaves that carry NICs with a rail.
    pub rail_leaves: usize,
    /// Leaves all of whose rail NICs are of one rail.
    pub pure_leaves: usize,
    /// Most rails of any class of hosts.
    pub rails: usize,
}

impl Wiring {
    /// Whether leaves serve one rail each.
    pub fn is_rail_wired(&self) -> bool {
        !self.leaf_rails.is_empty()
    }

    /// The rail of a leaf, if the fabric is rail-wired and the leaf serves one.
    pub fn rail_of_leaf(&self, leaf: &SwitchName) -> Option<&LeafRail> {
        self.leaf_rails.iter().find(|entry| entry.leaf == *leaf)
    }
}

/// Writes its rail into every NIC of the fabric; NICs of service hosts and unnamed ones get none.
/// Returns how many NICs have a rail.
pub fn assign_rails(fabric: &mut Fabric) -> usize {
    let mut rails: Vec<(PartId, Option<u16>)> = Vec::new();
    let survey = Survey::of(fabric);
    let shapes = Shapes::of(&survey);
    for (host, own) in survey.hosts.iter().zip(&shapes.rails) {
        rails.extend(host.nics.iter().zip(own).map(|(nic, rail)| (nic.id, *rail)));
    }
    for (id, new) in &rails {
        if let Equipment::Nic { rail, .. } = fabric.equipment_mut(*id) {
            *rail = *new;
        }
    }
    rails.iter().filter(|(_, rail)| rail.is_some()).count()
}

/// Computes how hosts are wired to leaves, from devices and cables alone.
pub fn wiring(fabric: &Fabric) -> Wiring {
    let survey = Survey::of(fabric);
    let shapes = Shapes::of(&survey);
    Ground::new(&survey, &shapes).wiring()
}

/// The rail that a switch serves, by the rails of its NICs: rail, NICs of it, NICs of others.
type Served = Option<(u16, usize, usize)>;

/// A misplaced NIC by numbers.
struct Stray {
    host: usize,
    nic: usize,
    switch: usize,
    rail: u16,
    leaf_rail: u16,
    expected: Option<usize>,
}

/// The input of all results.
pub(crate) struct Ground<'a> {
    survey: &'a Survey<'a>,
    shapes: &'a Shapes,
    /// By switch; all none unless the fabric is rail-wired.
    served: Vec<Served>,
    rail_leaves: usize,
    pure_leaves: usize,
    /// Unit of each switch that serves a rail, of each host that is connected to one: roots of the sets.
    unit_of_switch: Vec<Option<usize>>,
    unit_of_host: Vec<Option<usize>>,
}

impl<'a> Ground<'a> {
    pub(crate) fn new(survey: &'a Survey<'a>, shapes: &'a Shapes) -> Self {
        let mut ground = Self {
            survey,
            shapes,
            served: Vec::new(),
            rail_leaves: 0,
            pure_leaves: 0,
            unit_of_switch: vec![None; survey.switches.len()],
            unit_of_host: vec![None; survey.hosts.len()],
        };
        ground.serve();
        ground.find_units();
        ground
    }

    fn rail(&self, host: usize, nic: usize) -> Option<u16> {
        // A rail needs a parallel rail: hosts with one NIC have none.
        self.class(host).filter(|class| class.devices.len() > 1)?;
        self.shapes.rails[host][nic]
    }

    fn class(&self, host: usize) -> Option<&'a HostClass> {
        match self.shapes.roles[host] {
            HostRole::Compute { class } => self.shapes.classes.get(class),
            _ => None,
        }
    }

    fn serve(&mut self) {
        let mut served: Vec<Served> = Vec::with_capacity(self.survey.switches.len());
        for switch in &self.survey.switches {
            let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
            for (host, nic, _) in &switch.nics {
                if let Some(rail) = self.rail(*host, *nic) {
                    *counts.entry(rail).or_default() += 1;
                }
            }
            let all: usize = counts.values().sum();
            let most = counts.iter().max_by_key(|(_, nics)| **nics);
            self.rail_leaves += usize::from(all > 0);
            self.pure_leaves += usize::from(counts.len() == 1);
            served.push(
                most.map(|(rail, nics)| (*rail, *nics, all - nics))
                    .filter(|(_, nics, _)| *nics as f64 >= LEAF_SHARE * all as f64),
            );
        }
        let serving = served.iter().flatten().count();
        let rails: std::collections::BTreeSet<u16> =
            served.iter().flatten().map(|(rail, ..)| *rail).collect();
        let rail_wired =
            serving as f64 >= FABRIC_SHARE * self.rail_leaves as f64 && rails.len() > 1;
        self.served = if rail_wired {
            served
        } else {
            vec![None; served.len()]
        };
    }

    /// NICs that are connected where their rail is: host, switch.
    fn well_placed(&self) -> impl Iterator<Item = (usize, usize)> {
        self.survey
            .switches
            .iter()
            .enumerate()
            .flat_map(move |(index, switch)| {
                let leaf = self.served[index].map(|(rail, ..)| rail);
                let fits =
                    move |host: usize, nic: usize| leaf.is_some() && self.rail(host, nic) == leaf;
                let nics = switch
                    .nics
                    .iter()
                    .filter(move |(host, nic, _)| fits(*host, *nic));
                nics.map(move |(host, ..)| (*host, index))
            })
    }

    /// Units: leaves joined by hosts that are connected to both. One host with a cable in another unit's leaf
    /// does not join the units.
    fn find_units(&mut self) {
        let mut leaves: Vec<Vec<usize>> = vec![Vec::new(); self.survey.hosts.len()];
        for (host, switch) in self.well_placed() {
            leaves[host].push(switch);
        }
        let mut votes: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for own in &leaves {
            for pair in own.windows(2) {
                *votes.entry((pair[0], pair[1])).or_default() += 1;
            }
        }
        let nics = |switch: usize| self.served[switch].map_or(0, |(_, nics, _)| nics);
        let mut sets = Sets::new(self.survey.switches.len());
        for ((a, b), hosts) in votes {
            if hosts as f64 > UNIT_SHARE * nics(a).min(nics(b)) as f64 {
                sets.union(a, b);
            }
        }
        for (host, own) in leaves.into_iter().enumerate() {
            let mut units: BTreeMap<usize, usize> = BTreeMap::new();
            for switch in own {
                let root = sets.find(switch);
                self.unit_of_switch[switch] = Some(root);
                *units.entry(root).or_default() += 1;
            }
            let most = units.into_iter().max_by_key(|(_, nics)| *nics);
            self.unit_of_host[host] = most.map(|(unit, _)| unit);
        }
    }

    pub(crate) fn wiring(&self) -> Wiring {
        let mut units: Vec<_> = self.unit_of_switch.iter().flatten().collect();
        units.sort_unstable();
        units.dedup();
        let (missing, absent_leaves) = self.missing();
        Wiring {
            classes: self.shapes.classes.clone(),
            leaf_rails: self.leaf_rails(),
            misplaced: if self.is_rail_wired() {
                self.misplaced()
            } else {
                home_leaves::misplaced(self.survey, self.shapes)
            },
            missing,
            absent_leaves,
            units: units.len(),
            rail_leaves: self.rail_leaves,
            pure_leaves: self.pure_leaves,
            rails: self
                .shapes
                .classes
                .iter()
                .map(|class| class.devices.len())
                .max()
                .unwrap_or(0),
        }
    }

    fn is_rail_wired(&self) -> bool {
        self.served.iter().any(Option::is_some)
    }

    fn leaf_rails(&self) -> Vec<LeafRail> {
        let served = self.survey.switches.iter().zip(&self.served);
        served
            .filter_map(|(switch, served)| {
                let (rail, nics, others) = (*served)?;
                Some(LeafRail {
                    leaf: switch.name.clone(),
                    rail,
                    nics,
                    others,
                })
            })
            .collect()
    }

    /// The leaf of each unit and rail, the one with most NICs where there are several.
    fn leaf_of_unit(&self) -> HashMap<(usize, u16), usize, FixedState> {
        let mut best: HashMap<(usize, u16), usize, FixedState> = HashMap::default();
        let nics = |switch: usize| self.served[switch].map_or(0, |(_, nics, _)| nics);
        for (switch, unit) in self.unit_of_switch.iter().enumerate() {
            if let (Some(unit), Some((rail, ..))) = (unit, self.served[switch]) {
                let entry = best.entry((*unit, rail)).or_insert(switch);
                if nics(switch) > nics(*entry) {
                    *entry = switch;
                }
            }
        }
        best
    }

    fn misplaced(&self) -> Vec<Misplaced> {
        let strays = self.strays();
        let mut crossed: HashMap<(usize, usize), Vec<&Stray>, FixedState> = HashMap::default();
        for stray in &strays {
            if let Some(expected) = stray.expected {
                crossed
                    .entry((stray.switch, expected))
                    .or_default()
                    .push(stray);
            }
        }
        let device = |stray: &Stray| self.survey.hosts[stray.host].nics[stray.nic].device.clone();
        let host = |stray: &Stray| self.survey.hosts[stray.host].name.clone();
        let name = |switch: usize| self.survey.switches[switch].name.clone();
        let mut misplaced: Vec<Misplaced> = strays
            .iter()
            .map(|stray| {
                let twins = stray
                    .expected
                    .and_then(|expected| crossed.get(&(expected, stray.switch)));
                // A pair crossed on one host is the likelier slip than one across two hosts.
                let twin = twins.and_then(|twins| {
                    let same_host = twins.iter().find(|twin| twin.host == stray.host);
                    same_host.or_else(|| twins.first())
                });
                Misplaced {
                    host: host(stray),
                    device: device(stray),
                    rail: stray.rail,
                    leaf: name(stray.switch),
                    leaf_rail: Some(stray.leaf_rail),
                    expected_leaf: stray.expected.map(name),
                    swapped_with: twin.map(|twin| (host(twin), device(twin))),
                }
            })
            .collect();
        misplaced.sort_by(|a, b| (&a.host, a.rail).cmp(&(&b.host, b.rail)));
        misplaced
    }

    /// NICs on leaves of other rails or units, except in classes where that is the rule.
    fn strays(&self) -> Vec<Stray> {
        let leaf_of_unit = self.leaf_of_unit();
        let mut strays = Vec::new();
        for (switch, view) in self.survey.switches.iter().enumerate() {
            let Some((leaf_rail, ..)) = self.served[switch] else {
                continue;
            };
            for (host, nic, _) in &view.nics {
                let Some(rail) = self.rail(*host, *nic) else {
                    continue;
                };
                let unit = self.unit_of_host[*host];
                if rail == leaf_rail && unit == self.unit_of_switch[switch] {
                    continue;
                }
                let unit = unit.or(self.unit_of_switch[switch]);
                let expected = unit.and_then(|unit| leaf_of_unit.get(&(unit, rail)).copied());
                strays.push(Stray {
                    host: *host,
                    nic: *nic,
                    switch,
                    rail,
                    leaf_rail,
                    expected,
                });
            }
        }
        let mut by_class: HashMap<HostRole, usize, FixedState> = HashMap::default();
        for stray in &strays {
            *by_class.entry(self.shapes.roles[stray.host]).or_default() += 1;
        }
        strays.retain(|stray| {
            let role = self.shapes.roles[stray.host];
            let nics = self
                .class(stray.host)
                .map_or(0, |class| class.hosts * class.devices.len());
            by_class[&role] as f64 <= MISPLACED_LIMIT * nics as f64
        });
        strays
    }

    fn missing(&self) -> (Vec<MissingRail>, Vec<AbsentLeaf>) {
        let leaf_of_unit = self.leaf_of_unit();
        let mut missing = Vec::new();
        let mut absent: BTreeMap<(usize, u16), usize> = BTreeMap::new();
        for (host, view) in self.survey.hosts.iter().enumerate() {
            let Some(class) = self.class(host) else {
                continue;
            };
            for (rail, device) in (0u16..).zip(&class.devices) {
                let mut nics = view.nics.iter().zip(&self.shapes.rails[host]);
                let nic = nics
                    .find(|(_, own)| **own == Some(rail))
                    .map(|(nic, _)| nic);
                if nic.is_some_and(|nic| !self.survey.has_cables || !nic.switches.is_empty()) {
                    continue;
                }
                let unit = self.unit_of_host[host];
                let gone = unit.filter(|unit| !leaf_of_unit.contains_key(&(*unit, rail)));
                if let Some(unit) = gone {
                    *absent.entry((unit, rail)).or_default() += 1;
                }
                missing.push(MissingRail {
                    host: view.name.clone(),
                    rail,
                    device: device.clone(),
                    has_device: nic.is_some(),
                    leaf_absent: gone.is_some(),
                    unnamed_there: unit.map_or(0, |unit| {
                        let leaf = leaf_of_unit.get(&(unit, rail));
                        leaf.map_or(0, |leaf| self.unnamed_on(*leaf))
                    }),
                });
            }
        }
        missing.sort_by(|a, b| (&a.host, a.rail).cmp(&(&b.host, b.rail)));
        let absent = absent
            .into_iter()
            .map(|((unit, rail), hosts)| AbsentLeaf {
                rail,
                beside: self.leaves_of(unit),
                hosts,
            })
            .collect();
        (missing, absent)
    }

    fn unnamed_on(&self, switch: usize) -> usize {
        let hosts = self.survey.switches[switch]
            .nics
            .iter()
            .map(|(host, ..)| *host);
        hosts
            .filter(|host| self.shapes.roles[*host] == HostRole::Unnamed)
            .count()
    }

    fn leaves_of(&self, unit: usize) -> Vec<SwitchName> {
        let switches = self.survey.switches.iter().zip(&self.unit_of_switch);
        let mut leaves: Vec<_> = switches
            .filter(|(_, own)| **own == Some(unit))
            .map(|(switch, _)| switch.name.clone())
            .collect();
        leaves.sort();
        leaves
    }
}
