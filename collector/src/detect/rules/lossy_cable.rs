//! Cables between switches that lose packets silently: what one end has sent and the other has not received.
//!
//! The two ends are read at different times, so that each reading is off by the packets in between. That error does
//! not grow with time, and an apparent loss in one direction is an apparent gain in the other: both directions are
//! added, over increasing times. The remaining error shows on every cable, and as often as a surplus,
//! which no loss can cause: cables that seem to gain packets show how far readings can be trusted.

mod balance;
mod rules;

use std::collections::HashMap;

use foldhash::fast::FixedState;
use railscope_model::fabric::{LinkKind, PartId};
use railscope_model::identity::{Part, SwitchName};
use railscope_model::metric::{
    SWITCH_PORT_DISCARDS, SWITCH_PORT_ERRORS, SWITCH_PORT_RECEIVE_PACKETS, SWITCH_PORT_SATURATED,
    SWITCH_PORT_TRANSMIT_PACKETS,
};

use balance::{Balance, Cable, Flow, Port, Sheets, missing};

use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, LINK_ERRORS, UPLINK_LOSSY};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::peers::{MIN_PEERS, median};
use crate::detect::port_series::{PortSeries, SwitchSeries};
use crate::detect::registry::Rule;
use crate::store::Window;

/// Share of its packets that a cable may lose: what lossless traffic bears before collectives feel it
/// (go-back-N at 400 Gb/s costs a quarter of a percent at 1e-5).
const MIN_LOST: f64 = 1e-5;
/// Fewest lost packets that are evaluated.
const MIN_PACKETS_LOST: f64 = 100.0;
/// A direction with fewer packets in a third of the time is idle: keep-alives are no evidence.
const MIN_PACKETS: f64 = 10_000.0;
/// A step between two readings this much longer than the mean one lacks a reading.
const GAP: f64 = 1.5;
/// Readings in a third of the window; the shortest window that shows a loss is reported. The longest are
/// for readings 5 s apart: for 10 s and more fewer are stored.
const SCALES: [usize; 7] = [1, 2, 4, 6, 9, 12, 18];
/// How far a loss must be beyond the largest surplus of any of three hundred cables and more. Of so many normal errors the largest is
/// three standard deviations, so that a loss is beyond six; see [`above_surplus`] for fewer.
const ABOVE_SURPLUS: f64 = 2.0;
/// The same limit in standard deviations, whatever the number of cables: the largest of a few tens of errors is itself uncertain by a
/// quarter, and every new reading compares all cables again.
const BEYOND: f64 = 6.0;
/// How far a loss must be beyond the error that the cable's own readings show from one to the next, in standard
/// deviations: cables of switches that are read later than others are off by more.
const ABOVE_OWN: f64 = 6.0;
/// The same where the errors of successive readings are independent, and add up: no longer by the two ends of the window alone.
const ABOVE_SUM: f64 = 4.0;
/// Correlation of successive differences from which their errors compensate: that of errors of readings is a half, negative, and that
/// of independent errors of increases nought.
const COMPENSATE: f64 = -0.25;
/// Share of the cables whose surplus is omitted, the largest first: their counters may be broken.
const BROKEN: f64 = 1e-3;
/// Least that each third of the time must show of what all of it shows: a step in a counter is in one of them only.
const OF_EACH_THIRD: f64 = 0.25;
/// What every cable seems to lose is what its ends count differently, such as pause frames: one must stand out.
const ABOVE_PEERS: f64 = 10.0;
/// Share of a switch's cables that lose from which it is the switch, and fewest of them.
const OF_SWITCH: (f64, usize) = (0.5, 3);

struct LossyCable {
    series: PortSeries<3>,
    cables: Cables,
}

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(LossyCable {
        series: PortSeries::new([
            (&SWITCH_PORT_TRANSMIT_PACKETS, None),
            (&SWITCH_PORT_RECEIVE_PACKETS, None),
            (&SWITCH_PORT_DISCARDS, Some("receive")),
        ]),
        cables: Cables::default(),
    })
}

const NAME: &str = "lossy-cable";

/// Share of the packets that is missing on a cable, by busy direction.
#[derive(Debug, Clone, Copy)]
struct Missing {
    /// Among the cables.
    place: usize,
    shares: [Option<f64>; 2],
}

impl Missing {
    fn ways(&self) -> usize {
        self.shares.iter().flatten().count()
    }

    fn share(&self) -> f64 {
        missing(self.shares)
    }
}

impl Detector for LossyCable {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        self.series.refresh(view);
        self.cables.refresh(view);
        let ports = Ports::of(view, &self.series, &self.cables);
        let mut sheets = Sheets::default();
        let mut accused: Accused = Vec::new();
        let mut judged: HashMap<PartId, usize, FixedState> = HashMap::default();
        for (scale, balances) in SCALES.into_iter().zip(balances(&ports, &mut sheets)) {
            for ways in [1, 2] {
                let Some(limit) = limit(&balances, ways) else {
                    continue;
                };
                for own in balances.iter().filter(|own| own.ways() == ways) {
                    let cable = ports.cables[own.place].0;
                    if scale == SCALES[0] {
                        for (switch, _) in cable.ends {
                            *judged.entry(switch).or_default() += 1;
                        }
                    }
                    let known = |(other, _): &(Balance, f64)| other.cable.id == cable.id;
                    if own.share() > limit
                        && !accused.iter().any(known)
                        && let Some(found) = ports.accuse(&mut sheets, own.place, scale, limit)
                    {
                        accused.push(found);
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
            check: "One end of a cable between switches has sent packets that the other end has neither received nor dropped.",
            threshold: format!(
                "more than {MIN_LOST} of the packets and more than {MIN_PACKETS_LOST:.0}, some in each third of the time, {ABOVE_SURPLUS} times the largest surplus of any of three hundred cables (the error of readings; of fewer more, {BEYOND:.0} standard deviations), {ABOVE_OWN:.0} times the reading error of the cable itself, and {ABOVE_PEERS} times the median cable"
            ),
            clears: "As many packets arrive as are sent.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        rules::rules()
    }
}

/// Every cable between switches that is there, as the fabric shows it.
#[derive(Debug, Default)]
struct Cables {
    epoch: Option<u64>,
    switches: Vec<SwitchName>,
    /// Each with the places of the switches at its ends.
    cables: Vec<(Cable, [usize; 2])>,
}

impl Cables {
    fn refresh(&mut self, view: &View<'_>) {
        if self.epoch.replace(view.epoch) == Some(view.epoch) {
            return;
        }
        let mut places: HashMap<PartId, usize, FixedState> = HashMap::default();
        self.switches.clear();
        self.cables.clear();
        for (id, a, b, link) in view.fabric.links() {
            let parts = [a, b].map(|end| &view.fabric.vertex(end).part);
            let ([Part::Switch(one), Part::Switch(other)], LinkKind::Cable, true) =
                (parts, link.kind, link.is_present())
            else {
                continue;
            };
            let mut place = |end: PartId, name: &SwitchName| {
                *places.entry(end).or_insert_with(|| {
                    self.switches.push(name.clone());
                    self.switches.len() - 1
                })
            };
            let switches = [place(a, one), place(b, other)];
            let ends = [(a, link.ports.0), (b, link.ports.1)];
            self.cables.push((Cable { id, ends }, switches));
        }
    }
}

/// The same with what their ends report now.
struct Ports<'a> {
    cables: &'a [(Cable, [usize; 2])],
    switches: Vec<Option<SwitchSeries<'a, 3>>>,
}

impl<'a> Ports<'a> {
    fn of(view: &View<'a>, series: &'a PortSeries<3>, cables: &'a Cables) -> Self {
        let switches = cables.switches.iter();
        // On most switches nothing is ever dropped.
        let moving = |series: SwitchSeries<'a, 3>| series.moving(&SWITCH_PORT_DISCARDS);
        let of = |switch: &SwitchName| series.of(view, switch).map(moving);
        Self {
            cables: &cables.cables,
            switches: switches.map(of).collect(),
        }
    }

    fn ends(&self, place: usize) -> [Port<'a>; 2] {
        let (cable, switches) = &self.cables[place];
        [0, 1].map(|end| {
            let series = self.switches[switches[end]];
            let windows = series.map_or([None; 3], |series| series.of(cable.ends[end].1));
            let [sent, received, dropped] = windows;
            Port {
                sent,
                received,
                dropped,
            }
        })
    }

    /// A cable that loses more than the limit and than its own readings are off, with how far readings may be off.
    fn accuse(
        &self,
        sheets: &mut Sheets,
        place: usize,
        scale: usize,
        limit: f64,
    ) -> Option<(Balance, f64)> {
        let [one, other] = self.ends(place);
        sheets.read([&one, &other])?;
        let balance = sheets.balance(self.cables[place].0, scale)?;
        let loses = balance.loses(limit).then_some(balance)?;
        let error = own_error([&one, &other], &loses, scale);
        (missing(loses.shares()) > error).then(|| (loses, limit.max(error)))
    }
}

/// By scale: what is missing on every cable whose ends count packets.
fn balances(ports: &Ports<'_>, sheets: &mut Sheets) -> [Vec<Missing>; SCALES.len()] {
    let mut all = SCALES.map(|_| Vec::new());
    for (place, (cable, _)) in ports.cables.iter().enumerate() {
        let [one, other] = ports.ends(place);
        if sheets.read([&one, &other]).is_none() {
            continue;
        }
        for (scale, all) in SCALES.into_iter().zip(&mut all) {
            let Some(balance) = sheets.balance(*cable, scale) else {
                continue;
            };
            let shares = balance.shares();
            all.push(Missing { place, shares });
        }
    }
    all
}

/// Share beyond which cables with so many busy directions lose packets; none if they are too few to
/// decide.
fn limit(all: &[Missing], ways: usize) -> Option<f64> {
    let alike = || all.iter().filter(|own| own.ways() == ways);
    let shares: Vec<f64> = alike().map(Missing::share).collect();
    if shares.len() < MIN_PEERS {
        return None;
    }
    let usual = median(shares.iter().copied())?;
    let mut shares = if ways == 1 {
        all.iter().flat_map(|own| own.shares).flatten().collect()
    } else {
        shares
    };
    let errors = shares.len() as f64;
    let broken = (errors * BROKEN) as usize;
    let surplus = -*shares.select_nth_unstable_by(broken, f64::total_cmp).1;
    Some(
        MIN_LOST
            .max(above_surplus(errors) * surplus)
            .max(ABOVE_PEERS * usual),
    )
}

/// How far a loss must be beyond the largest of so many errors, in times of it. The mean of the largest of `n` normal errors is
/// about .39 + .46 ln n standard deviations: 1.03 of 4, 1.54 of 10, 2.25 of 50 (Harter, Biometrika 48, 1961; within 6 %).
fn above_surplus(errors: f64) -> f64 {
    let largest = 0.46f64.mul_add(errors.ln(), 0.39);
    (BEYOND / largest).max(ABOVE_SURPLUS)
}

/// Most that the share that a cable seems to lose may be off, from how much it changes between readings. Where these changes
/// compensate, the error at both ends of the window counts once, however many readings lie between; elsewhere errors add up.
fn own_error([one, other]: [&Port<'_>; 2], own: &Balance, scale: usize) -> f64 {
    let steps = (3 * scale) as f64;
    let ways = [(0, one, other), (1, other, one)].map(|(way, from, to)| {
        let sent = own.busy()[way].then(|| own.total(way).sent / steps)?;
        Some((from.sent?, to.received?, to.dropped, sent))
    });
    let Some(sent) = one.sent else {
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
    let mut moments: Vec<_> = sent.counts().map(|count| count.at).collect();
    moments.reverse();
    let steps_lost = moments.windows(2).filter_map(|step| lost(step[0], step[1]));
    let steps_lost: Vec<f64> = steps_lost.collect();
    let count = steps_lost.len().max(1) as f64;
    let mean = steps_lost.iter().sum::<f64>() / count;
    let changes: Vec<f64> = steps_lost.iter().map(|lost| lost - mean).collect();
    let squares: f64 = changes.iter().map(|change| change * change).sum();
    let products: f64 = changes.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let deviation = (squares / count).sqrt();
    if products <= COMPENSATE * squares {
        ABOVE_OWN * deviation / steps
    } else {
        ABOVE_SUM * deviation / steps.sqrt()
    }
}

type Accused = Vec<(Balance, f64)>;

/// Cables of switches that lose on most of their cables, by switch, and the rest. `judged`: cables of each switch that
/// could be evaluated.
fn by_switch(
    accused: Accused,
    judged: &HashMap<PartId, usize, FixedState>,
) -> (Vec<(PartId, Accused)>, Accused) {
    let (share, fewest) = OF_SWITCH;
    let mut rest = accused;
    let mut switches = Vec::new();
    loop {
        let mut counts: HashMap<PartId, usize, FixedState> = HashMap::default();
        for (switch, _) in rest.iter().flat_map(|(own, _)| own.cable.ends) {
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
        let at_it =
            |(own, _): &(Balance, f64)| own.cable.ends.iter().any(|(end, _)| *end == switch);
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
        alike: Vec::new(),
        part,
    }
}

/// A cable that loses.
fn one(view: &View<'_>, own: &Balance, limit: f64) -> Option<Evidence> {
    let mut ways = Vec::new();
    let (mut lossy, mut counted) = (Vec::new(), 0.0);
    let ends = own.cable.ends;
    for (way, [from, to]) in [(0, ends), (1, [ends[1], ends[0]])] {
        let flow = own.total(way);
        if !(own.busy()[way] && flow.share() > MIN_LOST) {
            continue;
        }
        lossy.push(flow);
        counted += errors(view, to, own.seconds)?;
        ways.push(format!(
            "{} port {} has sent {:.0} packets, of which {:.0} did not reach {}",
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
        "In {:.0} s {} ({} of both directions together); the reading error of such cables is less than {}.",
        own.seconds,
        ways.join(", "),
        one_in(missing(own.shares())),
        one_in(limit)
    );
    (share > 0.0).then_some(())?;
    Some(evidence(
        view,
        view.fabric.cable_part(own.cable.id)?,
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
        "Packets are lost on {} of the cables of {part}, {}: more than half of those that it uses.",
        own.len(),
        one_in(share)
    );
    (share > 0.0).then(|| evidence(view, part, &UPLINK_LOSSY, share, statement))
}

/// Packets that a port has received with errors. None if it no longer counts packets, so that nothing follows.
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
