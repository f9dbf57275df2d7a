//! Ports of a node that move more than its job gives them: traffic from outside the job.

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, Part, RdmaPort};
use railscope_model::metric::{
    Metric, RDMA_PORT_RECEIVE_BYTES, RDMA_PORT_TRANSMIT_BYTES, RDMA_PORT_UP,
};
use railscope_model::reading::Labels;

use crate::assemble::netdev::port_named;
use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, NOISY_NEIGHBOR};
use crate::detect::cohort::Usual;
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::peers;
use crate::detect::peers::{MIN_PEERS, median};
use crate::detect::registry::{Rule, Threshold};
use crate::jobs::job::Job;
use crate::stages::Step;
use crate::store::per_node_cache::Kept;
use crate::store::{NodeHistory, Rows};

const BYTES: [&Metric; 2] = [&RDMA_PORT_TRANSMIT_BYTES, &RDMA_PORT_RECEIVE_BYTES];
/// The window over which bytes are compared.
const WINDOW_SECONDS: f64 = 60.0;
/// Shortest time over which they are: the ports of one scrape are sampled up to a second apart, which is less than
/// [`MIN_EXCESS`] then.
const MIN_SECONDS: f64 = 20.0;
/// Excess over the node's median port, both directions, from which there must be other traffic (an engineering
/// choice: rails of an even job differ by less than 1 % over a minute, those of uneven ones by 12 %).
const MIN_EXCESS: f64 = 0.15;
/// Excess from which a rail may be loaded by design, and most by which nodes with the same design differ.
const DESIGN_EXCESS: f64 = 0.1;
/// Minimum number of nodes with equal traffic on the ports of a rail that counts as a job's design, if no job is known.
const FEWEST_ALIKE: usize = 3;
/// Share of a node's ports that carry as much as each other, from which they work for another job than the rest, if no job is known.
const OF_ANOTHER_JOB: f64 = 0.3;
/// A node of which the median port moves less than this has no job to compare with, bytes per second.
const MIN_RATE: f64 = 1e8;

#[derive(Default)]
struct UnevenPorts {
    /// Rests on the rows of bytes.
    kept: Kept<[u64; 2], Vec<PortRows>>,
}

/// A port, and the rows of what it sends and receives.
type PortRows = (RdmaPort, [Option<u32>; 2]);

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::<UnevenPorts>::default()
}

/// A port and its traffic, as a multiple of that of the median port of its node.
struct Moves<'a> {
    node: &'a NodeName,
    port: &'a RdmaPort,
    bytes_per_second: f64,
    /// Sent and received.
    ratios: [f64; 2],
    /// Whether its traffic exceeds that of the median port, in both directions, in each of three equal parts of the window, and the
    /// node's ports have traffic in each: the last part of a job that stops takes longer on a slow rail.
    is_throughout: bool,
}

impl Moves<'_> {
    /// Whether a good part of these ports of the node carries as much throughout: they work for one job, or one virtual machine, and
    /// the others for another.
    fn is_one_of_many(&self, ports: &[Self]) -> bool {
        let is_alike =
            |(one, other): (&f64, &f64)| one.max(*other) <= (1.0 + DESIGN_EXCESS) * one.min(*other);
        let alike = ports.iter().filter(|other| {
            let mut ratios = self.ratios.iter().zip(&other.ratios);
            other.is_throughout && ratios.all(is_alike)
        });
        alike.count() as f64 >= OF_ANOTHER_JOB * ports.len() as f64
    }
}

/// What the ports of one rail move, as multiples of the median ports of their nodes.
struct OnRail {
    /// The median, where there are enough ports.
    usual: Option<f64>,
    /// How many ports there are.
    count: usize,
    /// Those that stand out, in order.
    high: Vec<f64>,
}

impl OnRail {
    fn of(ratios: Vec<f64>) -> Self {
        let stands_out = |ratio: &f64| *ratio >= 1.0 + DESIGN_EXCESS;
        let mut high: Vec<_> = ratios.iter().copied().filter(stands_out).collect();
        high.sort_unstable_by(f64::total_cmp);
        let count = ratios.len();
        let usual = (count >= MIN_PEERS).then(|| median(ratios));
        Self {
            usual: usual.flatten(),
            count,
            high,
        }
    }

    /// The median, if every one of several ports stands out.
    fn all_high(&self) -> Option<f64> {
        let all = self.count > 1 && self.high.len() == self.count;
        all.then(|| median(self.high.iter().copied()))?
    }

    /// Whether a pipeline can be the cause: [`FEWEST_ALIKE`] or more ports have about the same traffic.
    fn are_alike(&self, ratio: f64) -> bool {
        let until = |most: f64| self.high.partition_point(|other| *other < most);
        let alike = until((1.0 + DESIGN_EXCESS) * ratio) - until(ratio / (1.0 + DESIGN_EXCESS));
        alike >= FEWEST_ALIKE
    }
}

/// What a rail carries by design: in a job of enough nodes what is usual there; in a smaller one what all of its nodes show, and
/// where no job is known what several nodes show, as a pipeline loads the same rails on all of its nodes.
fn by_design(
    usual: &Usual<&RdmaPort, OnRail>,
    job: Option<&Job>,
    port: &RdmaPort,
    ratio: f64,
) -> f64 {
    let (own, all) = (usual.of_job(job, &port), usual.of_all(&port));
    let in_job = own.and_then(|rail| rail.usual.or_else(|| rail.all_high()));
    let alike = all.filter(|rail| own.is_none() && rail.are_alike(ratio));
    let outside = || alike.map(|_| ratio).or_else(|| all?.usual);
    in_job.or_else(outside).unwrap_or(1.0)
}

impl Detector for UnevenPorts {
    fn name(&self) -> &'static str {
        "uneven-ports"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        self.kept.begin();
        for (_, history) in view.history.fresh_nodes(view.now) {
            let rests_on = BYTES.map(|metric| history.rows_since(metric));
            self.kept.refresh(history, rests_on, || rows(history));
        }
        let nodes = view.history.fresh_nodes(view.now);
        let nodes = nodes.filter(|(_, history)| !has_lost_a_port(history, view.now));
        let ports = |history| self.kept.of(history).map_or(&[][..], Vec::as_slice);
        let all: Vec<_> = nodes
            .flat_map(|(node, history)| of_node(node, history, ports(history)))
            .collect();
        let job = |moves: &Moves<'_>| view.jobs.of_nic(moves.node, &moves.port.device);
        // Rails that carry more on every node of a job do so by design.
        let usual = [0, 1].map(|way| {
            let ratios = all.iter().filter(|_| !view.left_out.has(Step::RoleCohort));
            let ratios = ratios.map(|moves| (job(moves), moves.port, moves.ratios[way]));
            Usual::new(ratios, |ratios| Some(OnRail::of(ratios)))
        });
        let of_nodes = all.chunk_by(|one, other| one.node == other.node);
        let of_nodes = of_nodes.flat_map(|ports| ports.iter().map(move |moves| (moves, ports)));
        for (moves, ports) in of_nodes {
            let excess = moves.ratios.iter().zip(&usual).map(|(ratio, usual)| {
                // That others carry less on a rail makes nothing of a port that moves what its node's others do.
                ratio / by_design(usual, job(moves), moves.port, *ratio).max(1.0) - 1.0
            });
            let excess = excess.fold(f64::INFINITY, f64::min);
            let of_another_job = || job(moves).is_none() && moves.is_one_of_many(ports);
            if excess >= MIN_EXCESS && moves.is_throughout && !of_another_job() {
                out.push(evidence(view, moves, excess));
            }
        }
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "A port sends and receives more than the other ports of its node, and than the same port on other nodes of its job; a rail on which all nodes of a small job, or several nodes without a known job, move as much is loaded by design; so are ports that carry as much as each other, if they are a good part of those of a node without a known job. A node of which a port is down, or was in that time, is not judged: its job sends through the others.",
            threshold: format!(
                "{:.0} % above the median of at least {MIN_PEERS} ports of the node over {WINDOW_SECONDS:.0} s, half of it in each third of that time, in both directions (the rails of uneven jobs differ by 12 %)",
                100.0 * MIN_EXCESS
            ),
            clears: "The port moves as many bytes as its peers.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let mut thresholds = peers::thresholds();
        thresholds.truncate(1);
        thresholds.extend([
            Threshold::new(
                "bytes above the median, in both directions",
                MIN_EXCESS,
                "ratio",
                "the rails of even jobs differ by less than 1 % over a minute, those of uneven ones by 12 % (a choice)",
            ),
            Threshold::new(
                "excess from which nodes of one design are alike, and by which they differ at most",
                DESIGN_EXCESS,
                "ratio",
                "pipelines load rails unevenly (a choice)",
            ),
            Threshold::new(
                "window",
                WINDOW_SECONDS,
                "s",
                "several steps of a job (a choice)",
            ),
            Threshold::new(
                "shortest time covered by the byte counters",
                MIN_SECONDS,
                "s",
                "ports in one scrape are sampled up to 1 s apart",
            ),
            Threshold::new(
                "nodes that move as much on a rail, where no job is known, from which it is by design",
                FEWEST_ALIKE as f64,
                "nodes",
                "a pipeline loads the same rails on all of its nodes (a choice)",
            ),
            Threshold::new(
                "share of a node's ports that carry as much as each other, from which another job uses them, where no job is known",
                OF_ANOTHER_JOB,
                "ratio",
                "two virtual machines share a host (a choice)",
            ),
            Threshold::new(
                "bytes of the node's median port",
                MIN_RATE,
                "B/s",
                "below this rate there is no job to compare (a choice)",
            ),
        ]);
        vec![Rule::new(&NOISY_NEIGHBOR, thresholds)]
    }
}

/// Whether a port of the node that has carried traffic is down, or was within the window: its job sends through the others then.
fn has_lost_a_port(history: &NodeHistory, now: Timestamp) -> bool {
    let ports = history.series(&RDMA_PORT_UP);
    let mut ports = ports.filter(|(_, up)| up.moves() || up.value() == Some(0.0));
    ports.any(|(labels, up)| {
        let mut lately = up.told_within(now, WINDOW_SECONDS);
        lately.any(|(_, is_up)| is_up == 0.0) && {
            let labels: Vec<_> = labels.values().collect();
            history
                .value(BYTES[0], &labels)
                .is_some_and(|bytes| bytes > 0.0)
        }
    })
}

/// The ports of a node.
fn rows(history: &NodeHistory) -> Vec<PortRows> {
    let [sent, received] = BYTES.map(|metric| {
        let rows = history.rows(metric);
        let labels = rows.into_iter().flat_map(Rows::labels);
        (0..).zip(labels).collect::<Vec<(u32, _)>>()
    });
    let port = |(row, labels): &(u32, &Labels)| {
        let mut names = labels.values();
        let port = port_named(names.next()?, names.next()?)?;
        let twin = received.iter().find(|(_, other)| other == labels);
        let rows = [Some(*row), twin.map(|(row, _)| *row)];
        Some((port, rows))
    };
    sent.iter().filter_map(port).collect()
}

fn of_node<'a>(
    node: &'a NodeName,
    history: &'a NodeHistory,
    ports: &'a [PortRows],
) -> Vec<Moves<'a>> {
    let series = BYTES.map(|metric| history.rows(metric));
    let window = |rows: &[Option<u32>; 2], way: usize| series[way]?.window(rows[way]?);
    let mut rates = Vec::with_capacity(ports.len());
    for (port, rows) in ports {
        let rate = |way: usize| {
            let rise = window(rows, way)?.increase(WINDOW_SECONDS)?;
            (rise.seconds >= MIN_SECONDS).then(|| rise.rate())
        };
        if let (Some(sent), Some(received)) = (rate(0), rate(1)) {
            rates.push((port, rows, [sent, received]));
        }
    }
    let middle = |way: usize| median(rates.iter().map(|(.., rates)| rates[way])).unwrap_or(0.0);
    let usual = [middle(0), middle(1)];
    if rates.len() < MIN_PEERS || usual.iter().any(|rate| *rate < MIN_RATE) {
        return Vec::new();
    }
    // Bytes of a port in one of the three parts.
    let moved = |rows: &[Option<u32>; 2], way: usize, third: usize| {
        let until = |thirds: usize| {
            let seconds = WINDOW_SECONDS * thirds as f64 / 3.0;
            let rise = window(rows, way)?.increase(seconds)?;
            Some(rise.amount)
        };
        Some(until(third + 1)? - until(third).unwrap_or(0.0))
    };
    let third = |rows: &[Option<u32>; 2], third: usize| {
        let ratio = |way: usize| {
            let others = rates
                .iter()
                .filter_map(|(_, rows, _)| moved(rows, way, third));
            let usual = median(others).filter(|usual| *usual > MIN_RATE * WINDOW_SECONDS / 3.0)?;
            Some(moved(rows, way, third)? / usual)
        };
        Some([ratio(0)?, ratio(1)?])
    };
    let moves = rates.iter().map(|(port, rows, rates)| {
        let ratios = [rates[0] / usual[0], rates[1] / usual[1]];
        let stands_out = ratios.iter().all(|ratio| *ratio >= 1.0 + MIN_EXCESS);
        let is_more = |place| {
            let ratios = third(rows, place);
            ratios.is_some_and(|ratios| ratios.iter().all(|ratio| *ratio >= 1.0 + MIN_EXCESS / 2.0))
        };
        Moves {
            node,
            port,
            bytes_per_second: rates[0],
            ratios,
            is_throughout: stands_out && (0..3).all(is_more),
        }
    });
    moves.collect()
}

fn evidence(view: &View<'_>, moves: &Moves<'_>, excess: f64) -> Evidence {
    let statement = format!(
        "Port {} of {} sends {:.1} GB/s, and sends and receives {:.0} % more than the node's other ports: other traffic uses the NIC.",
        moves.port,
        moves.node,
        moves.bytes_per_second * 1e-9,
        100.0 * excess
    );
    let part = Part::HostLink(moves.node.clone(), moves.port.clone());
    Evidence {
        detector: "uneven-ports",
        signal: RDMA_PORT_TRANSMIT_BYTES.name,
        class: &NOISY_NEIGHBOR,
        effect: excess / (1.0 + excess),
        statement,
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}
