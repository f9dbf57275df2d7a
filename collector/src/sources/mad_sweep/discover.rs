//! The shape of the subnet: from the sweeping host on, through every port that is up, until nothing is new.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::FixedState;
use railscope_model::identity::Guid;
use railscope_model::units::LinkSpeed;

use super::flight::{Failure, Job, Queue, Work};
use super::mad::{self, Attribute, Bytes, Destination, NodeInfo, Path, PortInfo};
use crate::fabric::subnet::{End, Node, NodeKind, PortClaim, Survey};

/// Place of the sweeping host among the nodes, once it has answered; before, the question that finds it.
const START: u32 = 0;
/// Consecutive requests to one device without a reply, after which it gets no more and is marked silent.
const SILENT_AFTER: u32 = 2;

/// What is known of a port.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Port {
    asked: bool,
    pub(super) info: Option<PortInfo>,
    /// What answered a question that left by this port: node, and port by which it came in.
    pub(super) peer: Option<(u32, u8)>,
}

/// A device that has answered.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) info: NodeInfo,
    pub(super) ports: Vec<Port>,
    pub(super) path: Path,
    /// The port that led here first.
    reached_by: Option<(u32, u8)>,
    lane: u32,
    description: String,
    failures: u32,
}

impl Found {
    /// Whether questions go through it to others.
    fn forwards(&self) -> bool {
        self.info.kind == NodeKind::Switch || self.reached_by.is_none()
    }

    /// Whether a port is taken to be cabled to where a request came in by it, since none can leave by it: it
    /// replied, and does not report that it is down.
    fn replies(&self, port: u8) -> bool {
        let port = self.ports[usize::from(port)];
        port.peer.is_none() && port.info.is_none_or(|info| info.link_up())
    }

    /// LIDs of the ports of an adapter; a switch's own LID is not the destination of a path between adapters.
    pub(super) fn lids(&self) -> impl Iterator<Item = (u16, u16)> {
        let is_adapter = self.info.kind == NodeKind::Ca;
        let ports = (1..=self.info.ports).filter(move |_| is_adapter);
        ports.filter_map(|port| Some((u16::from(port), self.lid(port)?)))
    }

    fn node(&self) -> Node {
        let mut lids = 0..=self.info.ports;
        Node {
            kind: self.info.kind,
            guid: self.info.guid,
            system_guid: Some(self.info.system_guid),
            vendor: Some(self.info.vendor),
            device: Some(u32::from(self.info.device)),
            ports: u16::from(self.info.ports),
            description: self.description.clone(),
            lid: lids.find_map(|port| self.lid(port)),
            swept: true,
        }
    }

    /// Width and speed of a port now.
    pub(super) fn speed(&self, port: u8) -> Option<LinkSpeed> {
        let info = self.ports.get(usize::from(port))?.info?;
        let spokesman = match self.info.kind {
            NodeKind::Switch => self.ports.first()?.info?,
            _ => info,
        };
        info.link_up()
            .then(|| info.link_speed(spokesman.extended_speeds))?
    }

    /// The LID that reaches a port's performance agent: of a switch its own, of others the port's.
    pub(super) fn lid(&self, port: u8) -> Option<u16> {
        let port = if self.info.kind == NodeKind::Switch {
            0
        } else {
            usize::from(port)
        };
        let lid = self.ports.get(port)?.info?.lid;
        // 0 before a subnet manager has given one; from 0xc000 on LIDs are multicast.
        (1..0xc000).contains(&lid).then_some(lid)
    }
}

/// The search.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    pub(super) nodes: Vec<Found>,
    by_guid: HashMap<Guid, u32, FixedState>,
    silent: BTreeSet<(u32, u8)>,
    /// Contradictions: field, what was expected, what was found.
    problems: Vec<(&'static str, &'static str, String)>,
    /// Why the sweeping host itself did not reply.
    pub(super) start_failed: Option<Failure>,
}

impl Discovery {
    /// Requests the sweeping host's own identity.
    pub(super) fn begin(queue: &mut Queue) {
        queue.push(Job::new(START, START, 0, Attribute::NodeInfo));
    }

    fn port(&mut self, node: u32, port: u8) -> Option<&mut Port> {
        self.nodes
            .get_mut(node as usize)?
            .ports
            .get_mut(usize::from(port))
    }

    fn ask_port(&mut self, node: u32, port: u8, queue: &mut Queue) {
        let lane = self.nodes[node as usize].lane;
        if let Some(known) = self.port(node, port).filter(|known| !known.asked) {
            known.asked = true;
            queue.push(Job::new(lane, node, port, Attribute::PortInfo(port)));
        }
    }

    /// A device answered a question that left by a port.
    fn meet(&mut self, from: Option<(u32, u8)>, info: NodeInfo, path: Path, queue: &mut Queue) {
        let node = match self.by_guid.get(&info.guid) {
            Some(node) => *node,
            None => self.add(from, info, path, queue),
        };
        let known = &self.nodes[node as usize].info;
        let same = (known.kind, known.ports, known.system_guid)
            == (info.kind, info.ports, info.system_guid);
        if !same || info.local_port > info.ports {
            let found = format!("{} behind {}", info.guid, self.words(from));
            self.problems
                .push(("node GUID", "a GUID that no other node has", found));
            return;
        }
        if info.kind != NodeKind::Switch {
            self.ask_port(node, info.local_port, queue);
        }
        if let Some((near, port)) = from
            && let Some(known) = self.port(near, port)
        {
            known.peer = Some((node, info.local_port));
        }
    }

    fn add(
        &mut self,
        from: Option<(u32, u8)>,
        info: NodeInfo,
        path: Path,
        queue: &mut Queue,
    ) -> u32 {
        let node = self.nodes.len() as u32;
        let lane = match from {
            Some((near, _)) if info.kind != NodeKind::Switch => near,
            _ => node,
        };
        self.by_guid.insert(info.guid, node);
        self.nodes.push(Found {
            info,
            ports: vec![Port::default(); usize::from(info.ports) + 1],
            path,
            reached_by: from,
            lane,
            description: String::new(),
            failures: 0,
        });
        queue.push(Job::new(lane, node, 0, Attribute::NodeDescription));
        if info.kind == NodeKind::Switch {
            (0..=info.ports).for_each(|port| self.ask_port(node, port, queue));
        }
        node
    }

    fn words(&self, end: Option<(u32, u8)>) -> String {
        end.map_or_else(
            || String::from("the sweeping host"),
            |(node, port)| format!("port {port} of {}", self.nodes[node as usize].info.guid),
        )
    }

    fn learn_port(&mut self, node: u32, port: u8, info: PortInfo, queue: &mut Queue) {
        let found = &self.nodes[node as usize];
        // An adapter passes nothing on. Out of the sweeping host itself a question leaves by the port it is opened on.
        let leads_on = found.forwards()
            && (found.info.kind == NodeKind::Switch || port == found.info.local_port);
        if leads_on && port != 0 && info.link_up() {
            queue.push(Job::new(found.lane, node, port, Attribute::NodeInfo));
        }
        if let Some(known) = self.port(node, port) {
            known.info = Some(info);
        }
    }

    /// What is to be merged into the fabric, in an order that does not depend on the order of
    /// replies.
    pub(super) fn survey(&self) -> Survey {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(|index| self.nodes[*index].info.guid);
        let mut place = vec![0; self.nodes.len()];
        for (new, old) in order.iter().enumerate() {
            place[*old] = new;
        }
        let end = |(node, port): (u32, u8)| (place[node as usize], u16::from(port));
        let guid = |node: u32| self.nodes[node as usize].info.guid;
        let mut claims = Vec::new();
        let mut callers: HashMap<(u32, u8), (u32, u8), FixedState> = HashMap::default();
        for index in &order {
            let found = &self.nodes[*index];
            for port in 1..=found.info.ports {
                let near = (*index as u32, port);
                if let Some(peer) = found.ports[usize::from(port)].peer {
                    callers.entry(peer).or_insert(near);
                    claims.push(PortClaim {
                        near: end(near),
                        far: end(peer),
                        speed: found.speed(port),
                    });
                }
            }
        }
        for index in &order {
            let found = &self.nodes[*index];
            for port in 1..=found.info.ports {
                let near = (*index as u32, port);
                let caller = callers.get(&near).filter(|_| found.replies(port));
                claims.extend(caller.map(|caller| PortClaim {
                    near: end(near),
                    far: end(*caller),
                    speed: found.speed(port),
                }));
            }
        }
        let lids = order.iter().flat_map(|index| {
            let found = &self.nodes[*index];
            let of = |(port, lid)| {
                (
                    End {
                        guid: found.info.guid,
                        port,
                    },
                    lid,
                )
            };
            found.lids().map(of)
        });
        let silent = self.silent.iter().map(|(node, port)| End {
            guid: guid(*node),
            port: u16::from(*port),
        });
        Survey {
            started_at: self.nodes.first().map(|start| start.info.guid),
            nodes: order.iter().map(|old| self.nodes[*old].node()).collect(),
            claims,
            lids: lids.collect(),
            silent: silent.collect(),
            problems: self.problems.clone(),
        }
    }

    /// The port that leads to a device, or the port itself where the device is the sweeping host.
    fn way_to(&self, job: &Job) -> Option<(u32, u8)> {
        if job.attribute == Attribute::NodeInfo {
            return Some((job.node, job.port));
        }
        self.nodes.get(job.node as usize)?.reached_by
    }
}

impl Work for Discovery {
    fn destination(&self, job: &Job) -> Option<Destination> {
        let Some(found) = self.nodes.get(job.node as usize) else {
            return Some(Destination::Directed(Path::HERE));
        };
        if job.attribute == Attribute::NodeInfo {
            // A route that is too long leads nowhere; so far no fabric has one.
            return found.path.through(job.port).map(Destination::Directed);
        }
        (found.failures < SILENT_AFTER).then_some(Destination::Directed(found.path))
    }

    fn answered(&mut self, job: &Job, mad: &Bytes, queue: &mut Queue) {
        if job.attribute != Attribute::NodeInfo
            && let Some(found) = self.nodes.get_mut(job.node as usize)
        {
            found.failures = 0;
        }
        match job.attribute {
            Attribute::NodeInfo => {
                let from = self
                    .nodes
                    .get(job.node as usize)
                    .map(|found| ((job.node, job.port), found.path.through(job.port)));
                let path = from.and_then(|(_, path)| path).unwrap_or(Path::HERE);
                match NodeInfo::read(mad) {
                    Some(info) => self.meet(from.map(|(end, _)| end), info, path, queue),
                    None => self.failed(job, Failure::Refused, queue),
                }
            }
            Attribute::NodeDescription => {
                self.nodes[job.node as usize].description = mad::node_description(mad);
            }
            Attribute::PortInfo(port) => {
                self.learn_port(job.node, port, PortInfo::read(mad), queue);
            }
            _ => {}
        }
    }

    fn failed(&mut self, job: &Job, why: Failure, _: &mut Queue) {
        if job.attribute != Attribute::NodeInfo
            && let Some(found) = self.nodes.get_mut(job.node as usize)
        {
            found.failures += 1;
        }
        match self.way_to(job) {
            Some(end) if !self.nodes.is_empty() => {
                self.silent.insert(end);
            }
            _ => self.start_failed = Some(why),
        }
    }
}
