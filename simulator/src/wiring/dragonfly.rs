//! Dragonflies: groups of routers, all joined to all within a group and each group to each other group.
//!
//! Canonical form: Kim, Dally, Scott and Abts, "Technology-Driven, Highly-Scalable Dragonfly Topology",
//! ISCA 2008.

use railscope_model::units::LinkSpeed;

use super::{Device, Socket, Tier, Wiring};
use crate::spec::{ClusterSpec, SpecError, WiringSpec};

pub(super) fn wire(wiring: &mut Wiring, spec: &ClusterSpec) -> Result<(), SpecError> {
    let WiringSpec::Dragonfly {
        routers_per_group,
        nodes_per_group,
        global_ports,
    } = spec.wiring
    else {
        return Ok(());
    };
    let groups = usize::from(spec.nodes.div_ceil(nodes_per_group));
    for plane in 0..spec.planes {
        let mut dragonfly = Dragonfly {
            wiring,
            speed: spec.uplink_speed().link(),
            groups: Vec::new(),
        };
        let prefix = if spec.planes > 1 {
            format!("p{plane}-")
        } else {
            String::new()
        };
        for group in 0..groups {
            dragonfly.add_group(
                &prefix,
                group as u16,
                routers_per_group,
                spec.switches.radix,
            )?;
        }
        dragonfly.join_nics(plane, nodes_per_group, spec);
        dragonfly.join_routers();
        dragonfly.join_groups(usize::from(global_ports))?;
    }
    wiring.cables.sort_by_key(|cable| cable.ends[0]);
    Ok(())
}

/// A router and how many of its ports have a cable.
struct Router {
    switch: usize,
    used: u16,
}

impl Router {
    fn next_port(&mut self) -> Socket {
        self.used += 1;
        (Device::Switch(self.switch), self.used)
    }
}

struct Dragonfly<'a> {
    wiring: &'a mut Wiring,
    speed: LinkSpeed,
    groups: Vec<Vec<Router>>,
}

impl Dragonfly<'_> {
    fn add_group(
        &mut self,
        prefix: &str,
        group: u16,
        routers: u16,
        radix: u16,
    ) -> Result<(), SpecError> {
        let routers = (0..routers).map(|router| {
            let name = format!("{prefix}router-{group}-{router}");
            let switch = self
                .wiring
                .add_switch(&name, Tier::Router { group }, radix)?;
            Ok(Router { switch, used: 0 })
        });
        let routers = routers.collect::<Result<_, SpecError>>()?;
        self.groups.push(routers);
        Ok(())
    }

    /// The NICs of a node are distributed over the routers of its group in order, and the next node continues there.
    fn join_nics(&mut self, plane: u8, nodes_per_group: u16, spec: &ClusterSpec) {
        let mut next = vec![0; self.groups.len()];
        for nic in 0..self.wiring.nics.len() {
            if self.wiring.nics[nic].plane != plane {
                continue;
            }
            let group = usize::from(self.wiring.nics[nic].node / nodes_per_group);
            let routers = &mut self.groups[group];
            let router = next[group] % routers.len();
            next[group] += 1;
            let port = routers[router].next_port();
            let speed = spec.nic_speed(self.wiring.nics[nic].kind).link();
            self.wiring.join((Device::Nic(nic), 1), port, speed);
        }
    }

    fn join_routers(&mut self) {
        for group in &mut self.groups {
            for upper in 1..group.len() {
                for lower in 0..upper {
                    let ends = (group[lower].next_port(), group[upper].next_port());
                    self.wiring.join(ends.0, ends.1, self.speed);
                }
            }
        }
    }

    /// As many cables between any two groups as the global ports allow, on routers in turn.
    fn join_groups(&mut self, global_ports: usize) -> Result<(), SpecError> {
        let count = self.groups.len();
        let Some(others) = count.checked_sub(1).filter(|others| *others > 0) else {
            return Ok(());
        };
        let routers = self.groups[0].len();
        let cables = routers * global_ports / others;
        if cables == 0 {
            return Err(SpecError::new(
                "wiring.global_ports",
                format!(
                    "found {global_ports}, expected enough for a cable to each of {others} other groups from {routers} routers"
                ),
            ));
        }
        for upper in 1..count {
            for lower in 0..upper {
                for cable in 0..cables {
                    // Counted from each group round the others, so that every group is cabled alike.
                    let ends = [(lower, upper), (upper, lower)].map(|(from, to)| {
                        let distance = (to + count - from - 1) % count;
                        let router = (distance * cables + cable) % routers;
                        self.groups[from][router].next_port()
                    });
                    self.wiring.join(ends[0], ends[1], self.speed);
                }
            }
        }
        Ok(())
    }
}
