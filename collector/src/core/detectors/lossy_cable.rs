//! Cables between switches that lose packets without a word: what one end has sent and the other has not received.
//!
//! The two ends are read at different moments, so that each reading is off by what went between them. That error does
//! not grow with time, and what one direction seems to lose by it the other seems to gain: both directions are
//! added, over longer and longer times. What is left of the error shows on every cable, and as often as a surplus,
//! which no loss can make: cables that seem to gain packets say how far readings can be trusted.

mod rules;

use std::collections::HashMap;

use foldhash::fast::FixedState;
use railscope_model::fabric::{LinkId, LinkKind, PartId, Timestamp};
use railscope_model::identity::{Part, PortName};
use railscope_model::metric::{
    Metric, SWITCH_PORT_DISCARDS, SWITCH_PORT_ERRORS, SWITCH_PORT_RECEIVE_PACKETS,
    SWITCH_PORT_SATURATED, SWITCH_PORT_TRANSMIT_PACKETS,
};

use super::peers::{MIN_PEERS, median};
use crate::core::classes::{Class, LINK_ERRORS, UPLINK_LOSSY};
use crate::core::detector::{Detector, Evidence, Explanation, View};
use crate::core::history::Window;
use crate::core::inventory::gpus_behind;
use crate::core::rules::Rule;

/// Share of its packets that a cable may lose: what lossless traffic bears before collectives feel it (detection
/// method, section 3.5: p0 is 1e-4, and go-back-N at 400 Gb/s costs a quarter of a percent at 1e-5).
const MIN_LOST: f64 = 1e-5;
/// Fewest lost packets that are looked at.
const MIN_PACKETS_LOST: f64 = 100.0;
/// A direction with fewer packets in a third of the time is idle: keep-alives say nothing.
const MIN_PACKETS: f64 = 10_000.0;
/// Readings in a third of the time that is looked at; the shortest time that shows a loss is told.
const SCALES: [usize; 5] = [1, 2, 4, 6, 9];
/// How far a loss must be beyond the largest surplus of any cable. Of a hundred normal errors the largest is 2.5
/// standard deviations, so that a loss is beyond five.
const ABOVE_SURPLUS: f64 = 2.0;
/// How far a loss must be beyond the error that the cable's own readings show from one to the next, in standard
/// deviations: cables of switches that are read later than others are off by more.
const ABOVE_OWN: f64 = 6.0;
/// Share of the cables whose surplus is left out, the largest first: their counters may be broken.
const BROKEN: f64 = 1e-3;
/// Least that each third of the time must show of what all of it shows: a step in a counter is in one of them only.
const OF_EACH_THIRD: f64 = 0.25;
/// What every cable seems to lose is what its ends count differently, such as pause frames: one must stand out.
const ABOVE_PEERS: f64 = 10.0;
/// Share of a switch's cables that lose from which it is the switch, and fewest of them.
const OF_SWITCH: (f64, usize) = (0.5, 3);

struct LossyCable;

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(LossyCable)
}

const NAME: &str = "lossy-cable";

/// What a port has counted.
#[derive(Debug, Clone, Copy, Default)]
struct Port<'a> {
    sent: Option<Window<'a>>,
    received: Option<Window<'a>>,
    dropped: Option<Window<'a>>,
}

/// One direction of a cable over one span.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Flow {
    sent: f64,
    lost: f64,
}

/// A cable over some time, in thirds, the newest first.
#[derive(Debug, Clone)]
struct Balance {
    cable: LinkId,
    /// Switches and their ports.
    ends: [(PartId, u16); 2],
    /// By third: from the first end and from the second, where they carry something.
    thirds: [[Option<Flow>; 2]; 3],
    seconds: f64,
}

impl Balance {
    /// Ways that carry something in all thirds: from the first end, and from the second.
    fn busy(&self) -> [bool; 2] {
        [0, 1].map(|way| self.thirds.iter().all(|flows| flows[way].is_some()))
    }

    /// Share of the packets that is missing, of both ways that are busy together.
    fn share(&self) -> f64 {
        let busy = self.busy();
        let ways = (0..2).filter(|way| busy[*way]);
        ways.map(|way| self.total(way).share()).sum()
    }

    fn loses(&self, limit: f64) -> bool {
        let (busy, all) = (self.busy(), self.share());
        let lost: f64 = (0..2)
            .filter(|way| busy[*way])
            .map(|way| self.total(way).lost)
            .sum();
        let steady = self.thirds.iter().all(|flows| {
            let ways = flows.iter().zip(busy).filter(|(_, busy)| *busy);
            let share: f64 = ways.filter_map(|(flow, _)| *flow).map(Flow::share).sum();
            share > OF_EACH_THIRD * all
        });
        all > limit && lost >= MIN_PACKETS_LOST && steady
    }

    /// All of the time.
    fn total(&self, way: usize) -> Flow {
        self.thirds.iter().filter_map(|flows| flows[way]).sum()
    }
}

impl Flow {
    fn share(self) -> f64 {
        self.lost / self.sent.max(1.0)
    }
}

impl std::iter::Sum for Flow {
    fn sum<I: Iterator<Item = Self>>(flows: I) -> Self {
        flows.fold(Self::default(), |sum, flow| Self {
            sent: sum.sent + flow.sent,
            lost: sum.lost + flow.lost,
        })
    }
}

impl Detector for LossyCable {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        let ports = ports(view);
        let mut accused: Vec<(Balance, f64)> = Vec::new();
        let mut judged: HashMap<PartId, usize, FixedState> = HashMap::default();
        for scale in SCALES {
            let balances = balances(view, &ports, scale);
            for ways in [1, 2] {
                let count = |own: &&Balance| own.busy().into_iter().filter(|b| *b).count();
                let own: Vec<&Balance> = balances.iter().filter(|own| count(own) == ways).collect();
                let Some(limit) = limit(&balances, &own) else {
                    continue;
                };
                for balance in own {
                    if scale == SCALES[0] {
                        for (switch, _) in balance.ends {
                            *judged.entry(switch).or_default() += 1;
                        }
                    }
                    let known = accused
                        .iter()
                        .any(|(other, _)| other.cable == balance.cable);
                    if known || !balance.loses(limit) {
                        continue;
                    }
                    let error = ABOVE_OWN * own_error(&ports, balance, scale);
                    if balance.share() > error {
                        accused.push((balance.clone(), limit.max(error)));
                    }
                }
            }
        }
        let (of_switch, cables) = by_switch(accused, &judged);
        out.extend(
            of_switch
                .into_iter()
                .filter_map(|(switch, own)| whole(view, switch, &own)),
        );
        out.extend(
            cables
                .iter()
                .filter_map(|(own, limit)| one(view, own, *limit)),
        );
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "One end of a cable between switches has sent packets that the other has neither received nor dropped.",
            threshold: format!(
                "more than {MIN_LOST} of the packets and {MIN_PACKETS_LOST:.0}, some in each third of the time, {ABOVE_SURPLUS} times the largest surplus of any cable, which tells how far readings are off, {ABOVE_OWN:.0} times what the cable's own are, and {ABOVE_PEERS} times the median cable"
            ),
            clears: "As many packets arrive as are sent.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        rules::rules()
    }
}

/// By switch and port: its counters.
type Ports<'a> = HashMap<(PartId, u16), Port<'a>, FixedState>;

fn ports<'a>(view: &View<'a>) -> Ports<'a> {
    let mut ports = Ports::default();
    for (switch, history) in view.history.fresh_switches(view.now) {
        let Some(id) = view.fabric.find(&Part::Switch(switch.clone())) else {
            continue;
        };
        let mut take = |metric: &'static Metric, set: fn(&mut Port<'a>, Window<'a>)| {
            for (labels, window) in history.series(metric) {
                let mut labels = labels.values();
                let port = labels.next().and_then(|name| name.parse::<PortName>().ok());
                let port = port.and_then(|port| view.fabric.find_port(id, &port));
                if let (Some(port), None | Some("receive")) = (port, labels.next()) {
                    set(ports.entry((id, port)).or_default(), window);
                }
            }
        };
        take(&SWITCH_PORT_TRANSMIT_PACKETS, |port, w| port.sent = Some(w));
        take(&SWITCH_PORT_RECEIVE_PACKETS, |port, w| {
            port.received = Some(w);
        });
        take(&SWITCH_PORT_DISCARDS, |port, w| port.dropped = Some(w));
    }
    ports
}

/// Every cable between switches that is there and whose ends count packets.
fn balances(view: &View<'_>, ports: &Ports<'_>, scale: usize) -> Vec<Balance> {
    let links = view.fabric.links();
    let cables = links.filter(|(.., link)| link.kind == LinkKind::Cable && link.is_present());
    cables
        .filter_map(|(cable, a, b, link)| {
            let ends = [(a, link.ports.0), (b, link.ports.1)];
            let [one, other] = [ports.get(&ends[0])?, ports.get(&ends[1])?];
            let moments = moments(one, other, scale)?;
            let (there, back) = (flows(one, other, moments)?, flows(other, one, moments)?);
            Some(Balance {
                cable,
                ends,
                thirds: [0, 1, 2].map(|third| [there[third], back[third]]),
                seconds: moments[0].seconds_since(moments[3]),
            })
        })
        .collect()
}

/// Four moments that part three times of so many readings, the newest first, by the end that is read more rarely.
fn moments(one: &Port<'_>, other: &Port<'_>, scale: usize) -> Option<[Timestamp; 4]> {
    let windows = [one.sent?, one.received?, other.sent?, other.received?];
    let newest = windows.map(|window| window.moments().next_back());
    let parts = [0, scale, 2 * scale, 3 * scale];
    if newest.iter().all(|at| *at == newest[0]) {
        let fewest = windows
            .into_iter()
            .min_by_key(|window| window.moments().len())?;
        let [a, b, c, d] = parts.map(|back| fewest.moments().nth_back(back));
        return Some([a?, b?, c?, d?]);
    }
    let newest = newest.into_iter().min()??;
    let within = |window: Window<'_>| window.moments().filter(|at| *at <= newest).count();
    let fewest = windows.into_iter().min_by_key(|window| within(*window))?;
    let later = fewest.moments().len() - within(fewest);
    let [a, b, c, d] = parts.map(|back| fewest.moments().nth_back(later + back));
    Some([a?, b?, c?, d?])
}

/// What went one way in each third; nothing of one in which next to nothing went. `None`: nobody can say, for a
/// counter fell or does not reach back so far.
fn flows(from: &Port<'_>, to: &Port<'_>, moments: [Timestamp; 4]) -> Option<[Option<Flow>; 3]> {
    let rises = |window: Window<'_>| {
        let [a, b, c, d] = moments.map(|at| window.count_at(at));
        let (a, b, c, d) = (a?, b?, c?, d?);
        let rises = [a - b, b - c, c - d];
        rises.iter().all(|rise| *rise >= 0.0).then_some(rises)
    };
    let (sent, received) = (rises(from.sent?)?, rises(to.received?)?);
    // Who tells no drops has none that could be told.
    let dropped = to.dropped.and_then(rises).unwrap_or_default();
    Some([0, 1, 2].map(|third| {
        let flow = Flow {
            sent: sent[third],
            lost: sent[third] - received[third] - dropped[third],
        };
        (flow.sent >= MIN_PACKETS).then_some(flow)
    }))
}

/// Share beyond which cables with as many busy ways as these lose packets; none if they are too few to tell.
fn limit(all: &[Balance], alike: &[&Balance]) -> Option<f64> {
    if alike.len() < MIN_PEERS {
        return None;
    }
    let usual = median(alike.iter().map(|own| own.share()))?;
    let one_way = alike.iter().all(|own| own.busy() != [true, true]);
    let mut shares: Vec<f64> = if one_way {
        let ways = all.iter().flat_map(|own| {
            let busy = own.busy();
            [0, 1].map(|way| busy[way].then(|| own.total(way).share()))
        });
        ways.flatten().collect()
    } else {
        alike.iter().map(|own| own.share()).collect()
    };
    let broken = (shares.len() as f64 * BROKEN) as usize;
    let surplus = -*shares.select_nth_unstable_by(broken, f64::total_cmp).1;
    Some(
        MIN_LOST
            .max(ABOVE_SURPLUS * surplus)
            .max(ABOVE_PEERS * usual),
    )
}

/// By how much the share that a cable seems to lose is off, by how much it changes from each reading to the next: what is
/// off at the beginning and at the end of the time is off once, however many readings lie between.
fn own_error(ports: &Ports<'_>, own: &Balance, scale: usize) -> f64 {
    let [Some(one), Some(other)] = own.ends.map(|end| ports.get(&end)) else {
        return f64::INFINITY;
    };
    let steps = (3 * scale) as f64;
    let ways = [(0, one, other), (1, other, one)].map(|(way, from, to)| {
        let sent = own.busy()[way].then(|| own.total(way).sent / steps)?;
        Some((from.sent?, to.received?, to.dropped, sent))
    });
    let Some(moments) = one.sent.map(|window| window.moments().collect::<Vec<_>>()) else {
        return f64::INFINITY;
    };
    let lost = |begin, end| -> Option<f64> {
        let rise = |window: Window<'_>| Some(window.count_at(end)? - window.count_at(begin)?);
        let mut all = 0.0;
        for (sent, received, dropped, usual) in ways.iter().flatten() {
            let dropped = dropped.and_then(rise).unwrap_or(0.0);
            all += (rise(*sent)? - rise(*received)? - dropped) / usual;
        }
        Some(all)
    };
    let steps_lost = moments.windows(2).filter_map(|step| lost(step[0], step[1]));
    let steps_lost: Vec<f64> = steps_lost.collect();
    let count = steps_lost.len().max(1) as f64;
    let mean = steps_lost.iter().sum::<f64>() / count;
    let squares = steps_lost.iter().map(|lost| (lost - mean) * (lost - mean));
    (squares.sum::<f64>() / count).sqrt() / steps
}

type Accused = Vec<(Balance, f64)>;

/// Cables of switches most of whose cables lose, by switch, and the rest. `judged`: cables of each switch that
/// could be judged.
fn by_switch(
    accused: Accused,
    judged: &HashMap<PartId, usize, FixedState>,
) -> (Vec<(PartId, Accused)>, Accused) {
    let (share, fewest) = OF_SWITCH;
    let mut rest = accused;
    let mut switches = Vec::new();
    loop {
        let mut counts: HashMap<PartId, usize, FixedState> = HashMap::default();
        for (switch, _) in rest.iter().flat_map(|(own, _)| own.ends) {
            *counts.entry(switch).or_default() += 1;
        }
        let is_most = |(switch, count): &(PartId, usize)| {
            let all = judged.get(switch).copied().unwrap_or(0);
            *count >= fewest && *count as f64 >= share * all as f64
        };
        // Of two with as many the first of the graph.
        let worst = counts.into_iter().filter(is_most);
        let worst = worst.max_by_key(|(switch, count)| (*count, std::cmp::Reverse(*switch)));
        let Some((switch, _)) = worst else {
            return (switches, rest);
        };
        let at_it = |(own, _): &(Balance, f64)| own.ends.iter().any(|(end, _)| *end == switch);
        let (own, others) = rest.into_iter().partition(at_it);
        rest = others;
        switches.push((switch, own));
    }
}

/// `1 in 1,000`.
fn one_in(share: f64) -> String {
    format!("1 in {:.0}", 1.0 / share)
}

fn evidence(
    view: &View<'_>,
    part: Part,
    class: &'static Class,
    effect: f64,
    statement: String,
) -> Evidence {
    Evidence {
        detector: NAME,
        signal: SWITCH_PORT_RECEIVE_PACKETS.name,
        class,
        effect: effect.min(1.0),
        statement,
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        part,
    }
}

/// A cable that loses.
fn one(view: &View<'_>, own: &Balance, limit: f64) -> Option<Evidence> {
    let mut ways = Vec::new();
    let (mut lossy, mut counted) = (Vec::new(), 0.0);
    for (way, [from, to]) in [(0, own.ends), (1, [own.ends[1], own.ends[0]])] {
        let flow = own.total(way);
        if !(own.busy()[way] && flow.share() > MIN_LOST) {
            continue;
        }
        lossy.push(flow);
        counted += errors(view, to, own.seconds)?;
        ways.push(format!(
            "{} port {} has sent {:.0} packets, of which {:.0} never came to {}",
            view.fabric.vertex(from.0).part,
            view.fabric.port_name(from.0, from.1),
            flow.sent,
            flow.lost,
            view.fabric.vertex(to.0).part
        ));
    }
    let all: Flow = lossy.into_iter().sum();
    let share = all.share();
    // What the far end has counted as broken is no secret.
    let class = if counted >= 0.5 * all.lost {
        &LINK_ERRORS
    } else {
        &UPLINK_LOSSY
    };
    let statement = format!(
        "In {:.0} s {} ({}); readings of such cables are off by less than {}.",
        own.seconds,
        ways.join(", "),
        one_in(share),
        one_in(limit)
    );
    (share > 0.0).then_some(())?;
    Some(evidence(
        view,
        view.fabric.cable_part(own.cable)?,
        class,
        share,
        statement,
    ))
}

/// A switch most of whose cables lose.
fn whole(view: &View<'_>, switch: PartId, own: &[(Balance, f64)]) -> Option<Evidence> {
    let all = own.iter().flat_map(|(own, _)| [own.total(0), own.total(1)]);
    let share = all.sum::<Flow>().share();
    let part = view.fabric.vertex(switch).part.clone();
    let statement = format!(
        "Packets vanish on {} of the cables of {part}, {}: more than half of those that it uses.",
        own.len(),
        one_in(share)
    );
    (share > 0.0).then(|| evidence(view, part, &UPLINK_LOSSY, share, statement))
}

/// Packets that a port has received and found broken. None if it counts packets no more, so that nothing follows.
fn errors(view: &View<'_>, (switch, port): (PartId, u16), seconds: f64) -> Option<f64> {
    let Part::Switch(name) = &view.fabric.vertex(switch).part else {
        return None;
    };
    let history = view.history.switch(name)?;
    let port = view.fabric.port_name(switch, port).to_string();
    if history.value(&SWITCH_PORT_SATURATED, &[&port, "port_rcv_packets"]) == Some(1.0) {
        return None;
    }
    let broken = ["port_rcv_errors", "receive"].map(|kind| {
        let window = history.window(&SWITCH_PORT_ERRORS, &[&port, kind]);
        window
            .and_then(|window| window.increase(seconds))
            .map_or(0.0, |rise| rise.amount)
    });
    Some(broken.iter().sum())
}
