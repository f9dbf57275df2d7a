//! Lays out the fabric of a view: one pass over the graph, one over the incidents.

use std::collections::{BTreeMap, HashMap};

use railscope_model::fabric::{Equipment, Fabric, LinkKind, PartId, Sightings};
use railscope_model::identity::{NodeName, Part, PciAddress, PortName};

use super::{Condition, Health, Host, Layout, Nic, Switch, Trunk, Uplink, units};
use crate::analyzer::ClusterView;
use crate::classes::{Class, HOST_DOWN, PORT_DOWN, SWITCH_DOWN};
use crate::fabric;
use crate::serve::phrases::natural;
use crate::serve::wire::witnesses::SeenTogether;

/// Where vertices of the graph are in the layout.
#[derive(Default)]
struct Places {
    hosts: HashMap<NodeName, usize>,
    nics: HashMap<PartId, (usize, usize)>,
    switches: HashMap<PartId, usize>,
    /// PCIe functions of NICs and GPUs.
    nic_at: HashMap<(usize, PciAddress), usize>,
}

impl Layout {
    /// Lays out a view.
    pub fn of(view: &ClusterView) -> Self {
        let mut layout = Self::default();
        let mut places = layout.place_hosts(view);
        layout.place_switches(view, &mut places);
        layout.place_cables(view, &places);
        layout.judge_unheard(view);
        layout.units = units::assign(&mut layout.hosts);
        layout.describe_leaves();
        layout.judge_incidents(view, &places);
        let order = layout.sort_switches();
        layout.renumber(&order);
        layout.host_places = places.hosts;
        layout.switch_places = layout
            .switches
            .iter()
            .enumerate()
            .map(|(place, switch)| (switch.name.clone(), place))
            .collect();
        layout
    }

    fn place_hosts(&mut self, view: &ClusterView) -> Places {
        let fabric = &view.fabric;
        let in_fabric = fabric
            .vertices()
            .filter_map(|(_, vertex)| vertex.part.node());
        let mut names: Vec<_> = in_fabric.chain(view.heard.keys()).cloned().collect();
        names.sort_unstable();
        names.dedup();
        names.sort_by(|a, b| natural(a.as_str(), b.as_str()));
        let heard = |name| {
            view.heard.get(name)?;
            Some(!view.freshness.unheard.contains(name))
        };
        self.hosts = names
            .iter()
            .map(|name| Host {
                name: name.clone(),
                gpus: 0,
                nics: Vec::new(),
                inside: Condition::plain(Health::Ok),
                heard: heard(name),
                unit: None,
            })
            .collect();
        let mut places = Places {
            hosts: names.into_iter().zip(0..).collect(),
            ..Places::default()
        };
        self.place_devices(fabric, &mut places);
        places
    }

    fn place_devices(&mut self, fabric: &Fabric, places: &mut Places) {
        let mut nics = Vec::new();
        for (id, vertex) in fabric.vertices() {
            let Some(host) = vertex
                .part
                .node()
                .and_then(|node| places.hosts.get(node))
                .copied()
            else {
                continue;
            };
            match (&vertex.part, &vertex.equipment) {
                (Part::Gpu(_, gpu), equipment) => {
                    if let Equipment::Gpu { pci: Some(pci), .. } = equipment {
                        self.functions.insert((host, *pci), format!("GPU {gpu}"));
                    }
                    self.hosts[host].gpus += 1;
                    self.gpus += 1;
                }
                (Part::Nic(_, device), Equipment::Nic { pci, rail, .. }) => {
                    nics.push((host, *rail, device.as_str().to_owned(), *pci, id));
                }
                _ => {}
            }
        }
        nics.sort_by(|a, b| {
            (a.0, a.1.is_none(), a.1)
                .cmp(&(b.0, b.1.is_none(), b.1))
                .then_with(|| natural(&a.2, &b.2))
        });
        let rails = rails_of_devices(nics.iter().map(|nic| (nic.1, nic.2.as_str())));
        let shown = |rail: Option<u16>, device: &str, id| {
            let of_peers = || rails.get(device).copied().flatten();
            rail.or_else(|| of_peers().filter(|_| !is_connected(fabric, id)))
        };
        self.columns = columns(
            nics.iter()
                .map(|(_, rail, device, _, id)| (shown(*rail, device, *id), device.as_str())),
        );
        for (host, rail, device, pci, id) in nics {
            let title = column_title(shown(rail, &device, id), &device);
            let column = self
                .columns
                .iter()
                .position(|column| *column == title)
                .unwrap_or_default();
            let condition = Condition::plain(Health::Unknown);
            let title_of_nic = format!("NIC {device}");
            let place = self.hosts[host].nics.len();
            self.hosts[host].nics.push(Nic {
                device,
                column,
                rail,
                uplinks: Vec::new(),
                condition,
            });
            places.nics.insert(id, (host, place));
            if let Some(pci) = pci {
                self.functions.insert((host, pci), title_of_nic);
                places.nic_at.insert((host, pci), place);
            }
        }
    }

    fn place_switches(&mut self, view: &ClusterView, places: &mut Places) {
        let tiers = fabric::tiers(&view.fabric);
        for (id, vertex) in view.fabric.vertices() {
            if let (Part::Switch(name), Equipment::Switch { guid, ports, .. }) =
                (&vertex.part, &vertex.equipment)
            {
                places.switches.insert(id, self.switches.len());
                self.switches.push(Switch {
                    name: name.clone(),
                    guid: guid.map(|guid| guid.to_string()),
                    ports: *ports,
                    tier: tiers.of(id).unwrap_or(0),
                    hosts: Vec::new(),
                    trunks: Vec::new(),
                    rail: None,
                    unit: None,
                    condition: Condition::plain(Health::Unknown),
                });
            }
        }
    }

    fn place_cables(&mut self, view: &ClusterView, places: &Places) {
        for (id, a, b, link) in view
            .fabric
            .links()
            .filter(|(.., link)| link.kind == LinkKind::Cable)
        {
            let (present, seen_by) = (link.is_present(), view.sightings(id));
            let ends = [
                (a, link.ports.0, b, link.ports.1),
                (b, link.ports.1, a, link.ports.0),
            ];
            for (near, port_near, far, far_port) in ends {
                let Some(switch) = places.switches.get(&far).copied() else {
                    continue;
                };
                if let Some((host, nic)) = places.nics.get(&near).copied() {
                    self.switches[switch].hosts.push((host, nic));
                    let speed = link.speed.map(|speed| speed.to_string());
                    self.hosts[host].nics[nic].uplinks.push(Uplink {
                        port: port_near,
                        switch,
                        switch_port: view.fabric.port_name(far, far_port),
                        speed,
                        seen_by,
                        present,
                    });
                } else if let Some(place) = places
                    .switches
                    .get(&near)
                    .copied()
                    .filter(|near| *near != switch)
                {
                    let port = |id, port| view.fabric.port_name(id, port);
                    let ends = [
                        (place, port(near, port_near)),
                        (switch, port(far, far_port)),
                    ];
                    self.place_trunk_end(ends, present, &seen_by);
                }
            }
        }
    }

    fn place_trunk_end(
        &mut self,
        [near, far]: [(usize, PortName); 2],
        present: bool,
        seen_by: &Sightings,
    ) {
        let trunk = self.trunk(near.0, far.0);
        trunk.seen_by.add(seen_by);
        if present {
            trunk.present += 1;
        } else {
            trunk.lost += 1;
        }
        let end = |end: (usize, PortName)| (self.switches[end.0].name.clone(), end.1);
        let (near, far) = (end(near), end(far));
        self.far_ends.insert(near, far);
    }

    fn trunk(&mut self, switch: usize, peer: usize) -> &mut Trunk {
        let trunks = &mut self.switches[switch].trunks;
        let place = trunks
            .iter()
            .position(|trunk| trunk.switch == peer)
            .unwrap_or_else(|| {
                trunks.push(Trunk {
                    switch: peer,
                    present: 0,
                    lost: 0,
                    seen_by: SeenTogether::default(),
                    condition: Condition::plain(Health::Ok),
                });
                trunks.len() - 1
            });
        &mut trunks[place]
    }

    /// Rail and unit of a leaf: those of most of its NICs.
    fn describe_leaves(&mut self) {
        for switch in &mut self.switches {
            let of_nics = |nic: &(usize, usize)| self.hosts[nic.0].nics[nic.1].rail;
            switch.rail = most(switch.hosts.iter().filter_map(of_nics));
            switch.unit = most(
                switch
                    .hosts
                    .iter()
                    .filter_map(|(host, _)| self.hosts[*host].unit),
            );
        }
    }

    fn judge_incidents(&mut self, view: &ClusterView, places: &Places) {
        // Incidents stand worst first, and equals do not replace each other.
        for (index, incident) in view.incidents.iter().enumerate() {
            let parts = [&incident.root].into_iter().chain(&incident.related);
            for part in parts {
                let condition = Condition {
                    health: health_of(incident.class),
                    incident: Some(index),
                };
                self.judge_part(&view.fabric, places, part, condition);
            }
        }
    }

    fn judge_part(&mut self, fabric: &Fabric, places: &Places, part: &Part, condition: Condition) {
        let at = |part: &Part| fabric.find(part);
        match part {
            Part::Switch(_) => {
                if let Some(switch) = at(part).and_then(|id| places.switches.get(&id)) {
                    self.switches[*switch].condition.worsen(condition);
                }
            }
            Part::SwitchLink(..) => {
                let place = |id| places.switches.get(&id).copied();
                for (near, far) in fabric.cables_named(part) {
                    if let (Some(a), Some(b)) = (place(near), place(far.peer)) {
                        self.judge_trunk(a, b, condition);
                    }
                }
            }
            Part::HostLink(node, port) => {
                self.judge_nic(
                    at(&Part::Nic(node.clone(), port.device.clone())),
                    places,
                    condition,
                    true,
                );
            }
            Part::Nic(..) => self.judge_nic(at(part), places, condition, false),
            Part::PcieLink(node, pci) => {
                let Some(host) = places.hosts.get(node).copied() else {
                    return;
                };
                match places.nic_at.get(&(host, *pci)) {
                    Some(nic) => self.hosts[host].nics[*nic].condition.worsen(condition),
                    None => self.hosts[host].inside.worsen(condition),
                }
            }
            Part::Host(node) | Part::Gpu(node, _) | Part::NvLink(node, _) => {
                if let Some(host) = places.hosts.get(node) {
                    self.hosts[*host].inside.worsen(condition);
                }
            }
            // Not part of the picture.
            Part::SharedStorage => {}
        }
    }

    fn judge_trunk(&mut self, a: usize, b: usize, condition: Condition) {
        // One cable of a switch is not the switch.
        let mild = Condition {
            health: Health::Degraded,
            ..condition
        };
        for (near, far) in [(a, b), (b, a)] {
            self.switches[near].condition.worsen(mild);
            self.trunk(near, far).condition.worsen(condition);
        }
    }

    /// A NIC, and the leaf of its cable where it is the cable that is ill.
    fn judge_nic(
        &mut self,
        id: Option<PartId>,
        places: &Places,
        condition: Condition,
        cable: bool,
    ) {
        let Some((host, nic)) = id.and_then(|id| places.nics.get(&id)).copied() else {
            return;
        };
        let nic = &mut self.hosts[host].nics[nic];
        nic.condition.worsen(condition);
        if cable {
            for uplink in &nic.uplinks {
                let mild = Condition {
                    health: Health::Degraded,
                    ..condition
                };
                self.switches[uplink.switch].condition.worsen(mild);
            }
        }
    }

    /// The order of switches: old places by new place.
    fn sort_switches(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.switches.len()).collect();
        order.sort_by(|a, b| {
            let key = |place: &usize| {
                let switch = &self.switches[*place];
                (
                    switch.tier,
                    switch.unit.unwrap_or(usize::MAX),
                    switch.rail.unwrap_or(u16::MAX),
                )
            };
            let name = |place: &usize| self.switches[*place].name.as_str();
            key(a).cmp(&key(b)).then_with(|| natural(name(a), name(b)))
        });
        order
    }

    fn renumber(&mut self, order: &[usize]) {
        let mut new = vec![0; order.len()];
        for (place, old) in order.iter().enumerate() {
            new[*old] = place;
        }
        self.switches = order
            .iter()
            .map(|old| self.switches[*old].clone())
            .collect();
        for switch in &mut self.switches {
            switch
                .trunks
                .iter_mut()
                .for_each(|trunk| trunk.switch = new[trunk.switch]);
            switch.trunks.sort_by_key(|trunk| trunk.switch);
            switch.hosts.sort_unstable();
        }
        for nic in self.hosts.iter_mut().flat_map(|host| &mut host.nics) {
            nic.uplinks
                .iter_mut()
                .for_each(|uplink| uplink.switch = new[uplink.switch]);
            nic.uplinks
                .sort_by_key(|uplink| (uplink.port, uplink.switch));
        }
        for unit in &mut self.units {
            unit.leaves.iter_mut().for_each(|leaf| *leaf = new[*leaf]);
            unit.leaves.sort_unstable();
        }
    }
}

fn health_of(class: &Class) -> Health {
    if [&PORT_DOWN, &SWITCH_DOWN, &HOST_DOWN]
        .into_iter()
        .any(|down| down == class)
    {
        Health::Down
    } else {
        Health::Degraded
    }
}

/// The value that stands most often; the smaller of equals.
fn most<T: Ord>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    counts
        .into_iter()
        .find(|(_, count)| *count == most)
        .map(|(value, _)| value)
}

/// Whether a NIC has a cable with a link.
fn is_connected(fabric: &Fabric, nic: PartId) -> bool {
    fabric.cables(nic).any(|near| near.link.is_present())
}

/// The rail of each device name that has the same on all nodes where it has one. A NIC without a link has none: it is shown with
/// its peers.
fn rails_of_devices<'a>(
    nics: impl Iterator<Item = (Option<u16>, &'a str)>,
) -> BTreeMap<String, Option<u16>> {
    let mut rails: BTreeMap<String, Option<u16>> = BTreeMap::new();
    for (rail, device) in nics.filter(|(rail, _)| rail.is_some()) {
        let known = rails.entry(device.to_owned()).or_insert(rail);
        *known = known.filter(|known| Some(*known) == rail);
    }
    rails
}

fn column_title(rail: Option<u16>, device: &str) -> String {
    rail.map_or_else(|| device.to_owned(), |rail| format!("rail {rail}"))
}

/// Columns: the rails, then the devices of NICs without one.
fn columns<'a>(nics: impl Iterator<Item = (Option<u16>, &'a str)>) -> Vec<String> {
    let mut keys: Vec<_> = nics
        .map(|(rail, device)| (rail.is_none(), rail, rail.map_or(device, |_| "")))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| natural(a.2, b.2)));
    keys.into_iter()
        .map(|(_, rail, device)| column_title(rail, device))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nic_without_a_link_has_the_rail_of_its_device_on_other_nodes() {
        let nics = [
            (Some(0), "mlx5_0"),
            (None, "mlx5_0"),
            (Some(1), "mlx5_1"),
            (Some(2), "mlx5_1"),
            (Some(1), "mlx5_1"),
            (None, "mlx5_2"),
        ];
        let rails = rails_of_devices(nics.into_iter());
        let of = |device: &str| rails.get(device).copied().flatten();
        assert_eq!(
            ["mlx5_0", "mlx5_1", "mlx5_2"].map(of),
            [Some(0), None, None]
        );
    }
}
