//! InfiniBand: NICs whose switch has data for them and no credit.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

use foldhash::fast::FixedState;
use railscope_model::fabric::{Equipment, PartId, Timestamp};
use railscope_model::identity::{NodeName, Part, RdmaDevice, SwitchName};
use railscope_model::metric::{
    RDMA_PORT_RECEIVE_BYTES, RDMA_PORT_SPEED, SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_TRANSMIT_WAIT,
};
use railscope_model::reading::Labels;

use super::by_byte::ByByte;
use super::onsets::Onsets;
use super::own_past::{BackPressure, OwnPast, STILL, WAIT_WITHOUT_PAST};
use super::{
    ABOVE_PEERS, BUSY, FASTER, FROM_OTHERS, FULL, HEARD_SECONDS, Holds, MIN_TICKS, MORE,
    MOST_TICKS, NO_TRAFFIC, SPAN_SECONDS, WINDOW_SECONDS,
};
use crate::detect::detector::View;
use crate::detect::peers::{MIN_PEERS, median};
use crate::detect::port_series::PortSeries;
use crate::jobs::job::{Job, JobName};
use crate::store::{Count, Window};

/// Ports of switches before NICs, as the fabric shows them.
#[derive(Debug, Default)]
struct BeforeNics {
    epoch: Option<u64>,
    switches: Vec<SwitchName>,
    /// NIC, place of its switch, and the switch's port.
    ports: Vec<(PartId, usize, u16)>,
}

impl BeforeNics {
    fn refresh(&mut self, view: &View<'_>) {
        if self.epoch.replace(view.epoch) == Some(view.epoch) {
            return;
        }
        let mut places: BTreeMap<PartId, usize> = BTreeMap::new();
        self.switches.clear();
        self.ports.clear();
        let nics = view.fabric.vertices();
        for (nic, _) in nics.filter(|(_, vertex)| matches!(vertex.part, Part::Nic(..))) {
            for near in view.fabric.cables(nic) {
                if let Part::Switch(switch) = &view.fabric.vertex(near.peer).part {
                    let place = *places.entry(near.peer).or_insert_with(|| {
                        self.switches.push(switch.clone());
                        self.switches.len() - 1
                    });
                    self.ports.push((nic, place, near.peer_port));
                }
            }
        }
    }

    /// Counters of each port whose wait, if there is one, has lasted long enough.
    fn waits<'a>(&'a self, view: &View<'a>, counts: &'a PortSeries<2>) -> Vec<Waits<'a>> {
        let switches = self.switches.iter();
        let switches: Vec<_> = switches.map(|switch| counts.of(view, switch)).collect();
        let rates = self.ports.iter().filter_map(|port| {
            let [wait, bytes] = switches[port.1]?.of(port.2);
            let wait = wait?;
            let ticks = wait.newest_increase(WINDOW_SECONDS)?.rate();
            let heard = ticks <= MIN_TICKS || lasts(wait, view.now) >= HEARD_SECONDS;
            heard.then_some(Waits {
                port,
                ticks,
                wait,
                bytes,
            })
        });
        rates.collect()
    }

    /// What a waiting port shows of the NIC behind it, unless the NIC drains all that its cable carries.
    fn holds<'a>(&self, view: &View<'a>, own: &Waits<'_>, usual: f64) -> Option<Holds<'a>> {
        let (nic, place, port) = own.port;
        let vertex = view.fabric.vertex(*nic);
        let (Part::Nic(node, device), Equipment::Nic { pci, .. }) =
            (&vertex.part, &vertex.equipment)
        else {
            return None;
        };
        if is_full(view, node, device) {
            return None;
        }
        let switch = view
            .fabric
            .find(&Part::Switch(self.switches[*place].clone()))?;
        let times = if usual > 0.0 {
            format!("{:.0}", own.ticks / usual)
        } else {
            "many".to_owned()
        };
        Some(Holds {
            node,
            device: device.clone(),
            pci: *pci,
            signal: &SWITCH_PORT_TRANSMIT_WAIT,
            share: None,
            ticks: own.ticks,
            storm: false,
            words: format!(
                "Port {} of {} waits for credits from {device} of {node}, {times} times as much as the median port towards a host",
                view.fabric.port_name(switch, *port),
                self.switches[*place],
            ),
        })
    }
}

/// Switch ports before NICs and what they count of waiting.
pub(super) struct Credits {
    counts: PortSeries<2>,
    before: BeforeNics,
    /// NICs that their switches wait for, with what they received before that, if it is known.
    before_wait: BTreeMap<Part, Option<Received>>,
    past: OwnPast,
    onsets: Onsets,
}

impl Credits {
    pub(super) fn new() -> Self {
        Self {
            counts: PortSeries::new([
                (&SWITCH_PORT_TRANSMIT_WAIT, None),
                (&SWITCH_PORT_TRANSMIT_BYTES, None),
            ]),
            before: BeforeNics::default(),
            before_wait: BTreeMap::new(),
            past: OwnPast::default(),
            onsets: Onsets::default(),
        }
    }

    /// Begins a tick.
    pub(super) fn refresh(&mut self, view: &View<'_>) {
        self.counts.refresh(view);
        self.before.refresh(view);
    }

    /// NICs for whose credit the switch port before them waits.
    pub(super) fn lacking<'a>(&mut self, view: &View<'a>) -> Vec<Holds<'a>> {
        let Self {
            counts,
            before,
            before_wait,
            past,
            onsets,
        } = self;
        let rates = before.waits(view, counts);
        let usual = median(rates.iter().map(|own| own.ticks)).unwrap_or(0.0);
        let in_job = usual_in_job(view, &rates);
        let enough = rates.len() >= MIN_PEERS;
        let far = |own: &&Waits<'_>| {
            enough && own.ticks > STILL * MIN_TICKS && own.ticks > ABOVE_PEERS * usual
        };
        let far_in_job = |own: &&Waits<'_>| {
            let usual = job_of(view, own.port.0).and_then(|job| in_job.get(&job.name));
            usual.is_none_or(|usual| own.ticks > ABOVE_PEERS * usual)
        };
        // Evaluated only where one waits.
        let sent_beside = OnceCell::new();
        let group_of = |own: &Waits<'_>| {
            let groups = sent_beside.get_or_init(|| {
                let sending = rates
                    .iter()
                    .filter_map(|own| Some((beside(view, own.port.0), own.sent()?)));
                grouped(sending)
            });
            groups.get(&beside(view, own.port.0))
        };
        let could_send = |own: &&Waits<'_>| {
            own.ticks >= MOST_TICKS || own.sent().is_none_or(|sent| sent > NO_TRAFFIC)
        };
        let waiting = rates.iter().filter(far).filter(could_send);
        let waiting = waiting.filter(far_in_job);
        // Evaluated only where one waits.
        let by_byte = OnceCell::new();
        let far_by_byte = |own: &&Waits<'_>| {
            let usual = |sent| by_byte.get_or_init(|| ByByte::of(&rates)).usual(sent);
            let of_busy = own.sent().and_then(|sent| Some(usual(sent)? * sent));
            of_busy.is_none_or(|usual| own.ticks > ABOVE_PEERS * usual)
        };
        let waiting: Vec<_> = waiting.filter(far_by_byte).collect();
        remember(before_wait, view, &rates, &waiting);
        let is_slow = |own: &&&Waits<'_>| {
            let Some((sent, group)) = own.sent().zip(group_of(own)) else {
                return true;
            };
            let before = before_wait.get(own.nic(view)).copied().flatten();
            let grew_alone = |before| Received::of(sent, group.clone()).grew_alone(before);
            let runs_no_slower = |before| Received::of(sent, group.clone()).runs_no_slower(before);
            let more = before.map(|before| sent > MORE * before.own);
            !before.is_some_and(runs_no_slower)
                && !before.is_some_and(grew_alone)
                && !is_sent_too_much(is_more_than_most(sent, group), more)
        };
        past.forget(view.now);
        let limits = (MIN_TICKS, WAIT_WITHOUT_PAST * usual);
        let mut is_new = |own: &&&Waits<'_>| {
            own.bytes.is_none() && own.ticks > MIN_TICKS
                || past.is_new((own.nic(view), ""), own.back_pressure(), limits, view.now)
        };
        let slow = waiting.iter().filter(is_slow).filter(|own| is_new(own));
        let slow = slow.copied().collect();
        let alone = onsets.alone(view, &waiting, slow).into_iter();
        alone
            .filter_map(|own| before.holds(view, own, usual))
            .collect()
    }
}

/// A port before a NIC.
pub(super) struct Waits<'a> {
    port: &'a (PartId, usize, u16),
    /// What it waits, ticks a second.
    pub(super) ticks: f64,
    pub(super) wait: Window<'a>,
    /// Bytes that it sends.
    bytes: Option<Window<'a>>,
}

impl Waits<'_> {
    pub(super) fn nic<'v>(&self, view: &'v View<'_>) -> &'v Part {
        &view.fabric.vertex(self.port.0).part
    }

    fn back_pressure(&self) -> BackPressure<'_> {
        BackPressure {
            rate: self.ticks,
            counter: self.wait,
            bytes: self.bytes,
        }
    }

    /// What it sends, bytes a second.
    pub(super) fn sent(&self) -> Option<f64> {
        self.back_pressure().sent()
    }

    /// Bytes a second that it sent in an equal time before this.
    fn sent_before(&self, end: Timestamp) -> Option<f64> {
        let bytes = self.bytes?;
        let earlier = bytes.count_at(end.plus_seconds(-WINDOW_SECONDS))?;
        Some((bytes.count_at(end)? - earlier) / WINDOW_SECONDS)
    }
}

/// What a NIC received, and the median NIC beside it, bytes a second.
#[derive(Debug, Clone, Copy)]
struct Received {
    own: f64,
    beside: f64,
}

impl Received {
    /// `group`: what the NICs beside it received, itself included.
    fn of(own: f64, group: Vec<f64>) -> Self {
        Self {
            own,
            beside: lower_median(group),
        }
    }

    /// Before the switch of a NIC began to wait; where it always waits a little, before it was noticed.
    fn before(view: &View<'_>, own: &Waits<'_>, read: &[Waits<'_>]) -> Option<Self> {
        let times = [lasts(own.wait, view.now), WINDOW_SECONDS];
        let mut times = times.map(|ago| view.now.plus_seconds(-ago)).into_iter();
        let (begin, sent) = times.find_map(|begin| Some((begin, own.sent_before(begin)?)))?;
        let group = beside(view, own.port.0);
        let group = read
            .iter()
            .filter(|other| beside(view, other.port.0) == group);
        let group = group.filter_map(|other| other.sent_before(begin));
        Some(Self::of(sent, group.collect()))
    }

    /// Whether it is somewhat more than before, and so is what the NICs beside it receive: the job runs no slower. Much more is
    /// another phase of the job.
    fn runs_no_slower(self, before: Self) -> bool {
        let [least, most] = FASTER;
        let pairs = [(self.own, before.own), (self.beside, before.beside)];
        pairs
            .into_iter()
            .all(|(now, before)| before > NO_TRAFFIC && (least..=most).contains(&(now / before)))
    }

    /// Whether it is more than before against what the NICs beside it received then and now: a job that pauses sends less to all,
    /// and others may still send to this one.
    fn grew_alone(self, before: Self) -> bool {
        before.beside > NO_TRAFFIC && self.own * before.beside > MORE * before.own * self.beside
    }
}

/// Whether a port sends more than most of its group, itself included. `None` where the others have no traffic to compare with.
fn is_more_than_most(sent: f64, group: &[f64]) -> Option<bool> {
    let busy = group.iter().copied().filter(|other| *other >= BUSY * sent);
    let busy: Vec<_> = busy.collect();
    let is_measured = busy.len() > 1 || group.len() == 1;
    is_measured.then(|| sent > FROM_OTHERS * lower_median(busy))
}

/// Whether many send to a NIC at once: it receives more than the NICs beside it, where others of them receive, and more than
/// before it let its switch wait.
fn is_sent_too_much(more_than_others: Option<bool>, more_than_before: Option<bool>) -> bool {
    match more_than_others {
        // One whose past is not known may have received less.
        Some(more) => more && more_than_before != Some(false),
        None => more_than_before == Some(true),
    }
}

/// Whether a NIC received nearly all that its port can carry at some time of the window, over two scrapes and more: then many
/// send to it at once, and its switch waits for the cable.
fn is_full(view: &View<'_>, node: &NodeName, device: &RdmaDevice) -> bool {
    let Some(history) = view.history.node(node) else {
        return false;
    };
    let is_its = |labels: &Labels| labels.values().next() == Some(device.as_str());
    let mut ports = history.series(&RDMA_PORT_RECEIVE_BYTES);
    ports.any(|(labels, received)| {
        let speed = history.series(&RDMA_PORT_SPEED);
        let mut speed = speed.filter(|(of, _)| is_its(labels) && *of == labels);
        let Some((_, speed)) = speed.next().and_then(|(_, speed)| speed.latest()) else {
            return false;
        };
        // Newest first. The times of scrapes are exact to a second or so, which is much of a short step.
        let counts: Vec<_> = received.counts().collect();
        let is_full = |(newer, later): (usize, &Count)| {
            let seconds = |earlier: &&Count| later.at.seconds_since(earlier.at);
            let earlier = counts[newer..]
                .iter()
                .find(|one| seconds(one) >= SPAN_SECONDS);
            earlier.is_some_and(|earlier| {
                later.count - earlier.count >= FULL * speed * seconds(&earlier)
            })
        };
        let lately = |(_, one): &(usize, &Count)| view.now.seconds_since(one.at) <= WINDOW_SECONDS;
        speed > 0.0 && counts.iter().enumerate().take_while(lately).any(is_full)
    })
}

/// Stores what NICs received before their switches began to wait, until a switch reports that it no longer does.
fn remember(
    before_wait: &mut BTreeMap<Part, Option<Received>>,
    view: &View<'_>,
    read: &[Waits<'_>],
    waiting: &[&Waits<'_>],
) {
    if !before_wait.is_empty() {
        let waiting: BTreeSet<&Part> = waiting.iter().map(|own| own.nic(view)).collect();
        let read = read.iter().map(|own| own.nic(view));
        for over in read.filter(|nic| !waiting.contains(nic)) {
            before_wait.remove(over);
        }
    }
    for own in waiting {
        let nic = own.nic(view);
        if !before_wait.contains_key(nic) {
            before_wait.insert(nic.clone(), Received::before(view, own, read));
        }
    }
}

/// The job of a NIC, if it spans nodes.
fn job_of<'a>(view: &View<'a>, nic: PartId) -> Option<&'a Job> {
    let Part::Nic(node, device) = &view.fabric.vertex(nic).part else {
        return None;
    };
    let job = view.jobs.of_nic(node, device);
    job.filter(|job| job.nodes.len() > 1)
}

/// The NICs that receive as much as this one while they have no other senders: those of its job, or of its node where no job over
/// several nodes is known.
fn beside<'a>(view: &View<'a>, nic: PartId) -> (Option<&'a JobName>, Option<&'a NodeName>) {
    match job_of(view, nic) {
        Some(job) => (Some(&job.name), None),
        None => (None, view.fabric.vertex(nic).part.node()),
    }
}

/// What the switches of most NICs of each job wait, ticks a second.
fn usual_in_job<'a>(view: &View<'a>, rates: &[Waits<'_>]) -> HashMap<&'a JobName, f64, FixedState> {
    let ticks = rates
        .iter()
        .filter_map(|own| Some((&job_of(view, own.port.0)?.name, own.ticks)));
    let jobs = grouped(ticks).into_iter();
    jobs.map(|(job, ticks)| (job, lower_median(ticks)))
        .collect()
}

fn grouped<K: Hash + Eq>(
    ports: impl Iterator<Item = (K, f64)>,
) -> HashMap<K, Vec<f64>, FixedState> {
    let mut groups: HashMap<K, Vec<f64>, FixedState> = HashMap::default();
    for (of, rate) in ports {
        groups.entry(of).or_default().push(rate);
    }
    groups
}

/// The wait or rate that at least half of some ports do not exceed. Where all of a job's ports wait, the job sends more than
/// it drains, and no receiver is slow; where half of them do, they are those of one node of two.
fn lower_median(mut rates: Vec<f64>) -> f64 {
    let middle = (rates.len() - 1) / 2;
    *rates.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// How long ago a switch began to wait, in seconds: not every scrape shows an increase.
fn lasts(wait: Window<'_>, now: Timestamp) -> f64 {
    // Newest first.
    let counts: Vec<_> = wait.counts().collect();
    let ago = |count: &Count| now.seconds_since(count.at);
    let waits = |pair: &&[Count]| {
        let rise = pair[0].count - pair[1].count;
        let seconds = pair[0].at.seconds_since(pair[1].at);
        ago(&pair[0]) <= WINDOW_SECONDS && rise > MIN_TICKS * seconds
    };
    let first = counts.windows(2).rev().find(waits);
    first.map_or(0.0, |first| ago(&first[1]))
}

#[cfg(test)]
mod tests {
    use super::{Received, is_more_than_most, is_sent_too_much};

    #[test]
    fn a_port_is_compared_with_those_that_have_traffic() {
        for (group, expected) in [
            (&[9.0, 1.0, 1.0, 1.0][..], Some(true)),
            (&[9.0, 9.0, 9.0, 1.0], Some(false)),
            (&[9.0, 0.0, 8.0, 0.0], Some(false)),
            // The others are idle.
            (&[9.0, 0.0, 0.0, 0.1], None),
            // There are no others.
            (&[9.0], Some(false)),
        ] {
            assert_eq!(is_more_than_most(9.0, group), expected, "{group:?}");
        }
    }

    #[test]
    fn what_a_nic_receives_is_compared_with_before_as_the_nics_beside_it_are() {
        let received = |own, beside| Received { own, beside };
        for (before, now, grew) in [
            // All receive less, and it as they do.
            (received(29e9, 29e9), received(12e9, 12e9), false),
            // Their job pauses, and others still send to it.
            (received(29e9, 29e9), received(12e9, 0.0), true),
            // It always received twice as much as the others.
            (received(20e9, 10e9), received(10e9, 5e9), false),
            // The others had no traffic.
            (received(10e9, 0.0), received(20e9, 0.0), false),
        ] {
            assert_eq!(now.grew_alone(before), grew, "{before:?} {now:?}");
        }
    }

    #[test]
    fn a_nic_that_receives_more_than_others_or_than_before_is_not_slow() {
        for (than_others, than_before, expected) in [
            (Some(true), Some(true), true),
            (Some(true), None, true),
            // It always received more: its rank has more to do.
            (Some(true), Some(false), false),
            (Some(false), Some(true), false),
            (Some(false), None, false),
            // The NICs beside it are idle, and so was it.
            (None, Some(true), true),
            (None, Some(false), false),
            (None, None, false),
        ] {
            let found = is_sent_too_much(than_others, than_before);
            assert_eq!(found, expected, "{than_others:?} {than_before:?}");
        }
    }
}
