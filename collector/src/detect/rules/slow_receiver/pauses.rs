//! What a NIC's sent pause shows by itself: whether it has lasted, and whether it is that of a slow receiver at all.

use std::collections::BTreeSet;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{Part, PciAddress, RdmaDevice};
use railscope_model::metric::{
    Metric, NIC_PAUSE_SECONDS, NIC_PCIE_STALLED_SECONDS, NIC_PFC_PAUSE_SECONDS, NIC_PRIORITY_BYTES,
    PCIE_LINK_SPEED, PCIE_LINK_SPEED_MAX, PCIE_LINK_WIDTH, PCIE_LINK_WIDTH_MAX,
    RDMA_PORT_RECEIVE_BYTES, RDMA_PORT_SPEED,
};
use railscope_model::reading::Labels;

use super::own_past::{BackPressure, OwnPast, PAUSE_UNEXPLAINED, PAUSE_WITHOUT_PAST, Storms};
use super::stalls::stalled;
use super::{ABOVE_PEERS, MIN_PAUSE, NO_TRAFFIC, STORM, STORM_SECONDS, WINDOW_SECONDS};
use crate::assemble::netdev::nic_of;
use crate::detect::detector::View;
use crate::detect::peers::{MIN_PEERS, median};
use crate::detect::registry::Threshold;
use crate::stages::Step;
use crate::store::{Count, Increase, NodeHistory, Window};

/// A receiver is called slow for what it did longer ago than this: until then pause that has just begun may be a
/// storm, whose part is another.
pub(super) const SETTLED_SECONDS: f64 = 15.0;
/// Intervals between slow scrapes that reach back to the one before the newest, whatever their jitter.
const STEPS: f64 = 2.5;
/// Share of the time in pause from which a NIC that receives nothing is no slow receiver, and the share of its port's speed that
/// counts as nothing: the narrowest PCIe link, one lane of generation 3, takes 2 % of 400 Gb/s.
pub(super) const OF_IDLE: f64 = 0.1;
pub(super) const NOTHING: f64 = 0.01;
/// Shortest time without traffic in which that share of the time in pause is a storm: the usual interval of scrapes.
const IDLE_SECONDS: f64 = 4.5;

/// Share of the time in pause that has lasted from which it is a storm. In simulated clusters of six other authors 22 slow receivers
/// pause for at
/// most 0.55 of the time, and 8 of 9 storms for more than 0.75.
pub(super) const LASTING: f64 = 0.7;
/// The same of a NIC that counts the seconds in which its PCIe link lacked credits for more than 30 % of the second, and had fewer
/// than [`STALLS`] of them: nothing behind it is slow.
pub(super) const UNSTALLED: f64 = 0.4;
/// Share of these limits that is enough for pause to stay a storm, more than slow receivers reach.
const STILL_STORM: f64 = 0.8;
/// Share of such seconds, from which its host is slow, and it is no storm. It is more at 21 of those 22
/// slow receivers, and 0 at the storms.
const STALLS: f64 = 0.05;

/// The numbers of pause that has lasted.
pub(super) fn numbers() -> [Threshold; 2] {
    [
        Threshold::new(
            "longest time looked at for that, where scrapes are slow",
            STEPS,
            "scrape intervals",
            "the newest two, with jitter (a choice)",
        ),
        Threshold::new(
            "minimum duration of pause, because new pause can belong to a storm",
            SETTLED_SECONDS,
            "s",
            "another component causes a storm (a choice)",
        ),
    ]
}

/// The numbers of storms that are no full pause.
pub(super) fn numbers_of_storms() -> [Threshold; 7] {
    [
        Threshold::new(
            "share of the time in pause of a NIC while it receives nothing",
            OF_IDLE,
            "ratio",
            "nothing arrives that it could be slow to take (a choice)",
        ),
        Threshold::new(
            "time in which it receives next to nothing, at least, if it receives more before or after",
            IDLE_SECONDS,
            "s",
            "the usual interval of scrapes (a choice)",
        ),
        Threshold::new(
            "share of the port's speed that is nothing",
            NOTHING,
            "ratio",
            "one PCIe lane of generation 3 takes 2 % of 400 Gb/s",
        ),
        Threshold::new(
            "share of the time in pause that has lasted",
            LASTING,
            "ratio",
            "in simulated clusters of six other authors 22 slow receivers pause for at most 0.55 of the time, 8 of 9 storms for more than 0.75",
        ),
        Threshold::new(
            "the same, if the NIC counts seconds with a stalled PCIe link, and has hardly any",
            UNSTALLED,
            "ratio",
            "nothing behind the NIC is slow (a choice)",
        ),
        Threshold::new(
            "share of these limits that is enough for pause to stay a storm",
            STILL_STORM,
            "ratio",
            "pause near its limit is one incident; slow receivers pause for less (a choice)",
        ),
        Threshold::new(
            "share of the seconds with a stalled PCIe link, from which it is no storm",
            STALLS,
            "ratio",
            "the host is slow; 21 of these 22 slow receivers have more, none of these storms",
        ),
    ]
}

/// What a NIC does for this share of the time.
pub(super) fn paused_words(direction: &str, priority: &str, share: f64) -> String {
    let what = match direction {
        "transmit" => "pauses its switch",
        _ => "is paused by its switch",
    };
    let on = match priority {
        "" => String::new(),
        priority => format!(" on priority {priority}"),
    };
    format!("{what} {:.0} % of the time{on}", 100.0 * share)
}

/// Pause of each interface of a node, with interface, priority and direction: by priority if it has any such series, else the
/// sum of all priorities and of global pause, without a priority.
pub(in crate::detect::rules) fn pause_of(
    history: &NodeHistory,
) -> impl Iterator<Item = ([&str; 3], Window<'_>)> {
    let by_priority = history
        .series(&NIC_PFC_PAUSE_SECONDS)
        .filter_map(|(labels, window)| {
            let labels: Vec<_> = labels.values().collect();
            Some((<[&str; 3]>::try_from(labels).ok()?, window))
        });
    let by_priority: Vec<_> = by_priority.collect();
    let known: BTreeSet<_> = by_priority
        .iter()
        .map(|([netdev, ..], _)| *netdev)
        .collect();
    let of_port = history
        .series(&NIC_PAUSE_SECONDS)
        .filter_map(move |(labels, window)| {
            let labels: Vec<_> = labels.values().collect();
            let [netdev, direction] = <[&str; 2]>::try_from(labels).ok()?;
            (!known.contains(netdev)).then_some(([netdev, "", direction], window))
        });
    by_priority.into_iter().chain(of_port)
}

/// The largest share of so many seconds for which an interface for which `is_it` holds sends pause on a priority; `None` where it does
/// not count that.
pub(in crate::detect::rules) fn sent_pause(
    history: &NodeHistory,
    seconds: f64,
    is_it: impl Fn(&str) -> bool,
) -> Option<f64> {
    let sent = pause_of(history).filter_map(|([netdev, _, direction], window)| {
        let is_sent = direction == "transmit" && is_it(netdev);
        is_sent.then(|| window.newest_increase(seconds).map(Increase::rate))?
    });
    sent.reduce(f64::max)
}

/// Rate of a counter lately: of one of pause, the share of the time.
pub(super) fn share(window: Window<'_>) -> Option<f64> {
    window.newest_increase(WINDOW_SECONDS).map(Increase::rate)
}

/// The median share of NICs, and those that stand out from the others, if there are enough to compare.
pub(super) fn far<T>(all: &[T], share: impl Fn(&T) -> f64) -> (f64, impl Iterator<Item = &T>) {
    let usual = median(all.iter().map(&share)).unwrap_or(0.0);
    let enough = all.len() >= MIN_PEERS;
    let is_far = move |one: &&T| {
        let share = share(one);
        enough && share > MIN_PAUSE && share > ABOVE_PEERS * usual
    };
    (usual, all.iter().filter(is_far))
}

/// Whether a NIC sends so much pause that its peers must be compared.
pub(super) fn is_pausing(view: &View<'_>, (labels, window): (&Labels, Window<'_>)) -> bool {
    // The last label of both.
    let sends = labels.values().last() == Some("transmit");
    (sends || view.left_out.has(Step::PauseWalk))
        && share(window).is_some_and(|share| share > MIN_PAUSE)
}

/// A NIC that sends more pause than others.
pub(super) struct Pausing<'a> {
    pub(super) back_pressure: BackPressure<'a>,
    /// Whether it receives so little that it cannot be too slow for it.
    pub(super) receives_nothing: bool,
    /// Whether it has lately paused while it received next to nothing.
    pub(super) pauses_idle: bool,
    /// Whether its driver has counted a pause storm.
    pub(super) is_stormy: bool,
    /// Share of the seconds in which its PCIe link lacked credits, where that is known.
    pub(super) stalled: Option<f64>,
    /// Whether that link runs with less than it could.
    pub(super) has_narrow_link: bool,
}

impl Pausing<'_> {
    /// Whether its PCIe link often lacks credits.
    fn lacks_credits(&self) -> bool {
        self.stalled.is_some_and(|share| share >= STALLS)
    }

    /// Of a NIC and priority, whether it is a storm, and the share of the time in pause; none if it is neither a storm nor a slow receiver.
    pub(super) fn classify(
        &self,
        lane: (&Part, &str),
        (past, storms): (&mut OwnPast, &mut Storms),
        now: Timestamp,
    ) -> Option<(bool, f64)> {
        let BackPressure { rate, counter, .. } = self.back_pressure;
        let lately = counter.newest_increase(STORM_SECONDS);
        let lately = lately.map_or(0.0, Increase::rate);
        let most = lately.max(rate);
        // Pause that has just begun may become a storm, and pause that has ended may be the rest of a storm.
        let has_lasted = has_settled(counter) && lately > MIN_PAUSE;
        let least = match self.stalled {
            _ if self.lacks_credits() => STORM,
            _ if self.receives_nothing => OF_IDLE,
            _ if self.has_narrow_link => STORM,
            _ if self.pauses_idle => OF_IDLE,
            Some(_) => UNSTALLED,
            None => LASTING,
        };
        let before = storms.lately(lane.0, now);
        let enough = match before {
            // A slow PCIe link pauses for less, and may follow a short storm.
            Some(before) if least < STORM => STILL_STORM * before.min(least),
            _ => least,
        };
        let is_storm = lately > STORM
            || (self.is_stormy && most > STORM / 2.0)
            || (has_lasted && lately >= enough);
        if is_storm {
            past.note_storm(lane, self.back_pressure, now);
            storms.note(lane.0, least, now);
            return Some((true, most));
        }
        let least = if self.has_narrow_link || self.lacks_credits() {
            MIN_PAUSE
        } else {
            PAUSE_UNEXPLAINED
        };
        let limits = (least, PAUSE_WITHOUT_PAST);
        // A little pause while nothing arrives delays nothing.
        let is_slow = has_lasted
            && before.is_none()
            && !self.receives_nothing
            && past.is_new(lane, self.back_pressure, limits, now);
        is_slow.then_some((false, rate))
    }
}

/// Increase of a counter in the rest of a window, and in its newest seconds. With slow scrapes, of which the newest step may be all of the
/// window, in the step before, too; none if that is not known.
pub(in crate::detect::rules) fn in_parts(
    counter: Window<'_>,
    newest: f64,
    window: f64,
) -> Option<[Increase; 2]> {
    let late = counter.newest_increase(newest)?;
    let all = counter.increase(window.max(STEPS * late.seconds))?;
    let rest = Increase {
        amount: all.amount - late.amount,
        seconds: all.seconds - late.seconds,
    };
    (rest.seconds > 0.0).then_some([rest, late])
}

/// Whether a counter of pause rose before it could still be the beginning of a storm.
pub(super) fn has_settled(counter: Window<'_>) -> bool {
    let parts = in_parts(counter, SETTLED_SECONDS, WINDOW_SECONDS);
    parts.is_some_and(|[earlier, _]| earlier.rate() > MIN_PAUSE)
}

/// Share of the seconds in which the PCIe link of a NIC lacked credits for writes, where its driver counts that.
pub(super) fn stalled_share(history: &NodeHistory, device: &RdmaDevice) -> Option<f64> {
    let of_nic = |netdev| nic_of(history, netdev).is_some_and(|(_, own)| own == *device);
    let mut series = history.series(&NIC_PCIE_STALLED_SECONDS);
    series.find_map(|series| {
        let share = stalled(series)?;
        series
            .0
            .values()
            .next()
            .is_some_and(of_nic)
            .then_some(share)
    })
}

/// Whether a PCIe link runs with fewer lanes, or slower, than it could.
pub(super) fn is_narrow(history: &NodeHistory, pci: PciAddress) -> bool {
    let address = pci.to_string();
    let pairs = [
        (&PCIE_LINK_WIDTH, &PCIE_LINK_WIDTH_MAX),
        (&PCIE_LINK_SPEED, &PCIE_LINK_SPEED_MAX),
    ];
    pairs.into_iter().any(|(runs_with, could)| {
        let [now, most] = [runs_with, could].map(|metric| history.value(metric, &[&address]));
        now.zip(most).is_some_and(|(now, most)| now < most)
    })
}

/// Bytes that a NIC receives by RDMA; none of one with several ports.
pub(super) fn received<'a>(history: &'a NodeHistory, device: &RdmaDevice) -> Option<Window<'a>> {
    let mut ports = of_device(history, device, &RDMA_PORT_RECEIVE_BYTES);
    let only = ports.next();
    only.filter(|_| ports.next().is_none())
}

/// The series of a metric that a NIC has.
pub(in crate::detect::rules) fn of_device<'a>(
    history: &'a NodeHistory,
    device: &RdmaDevice,
    metric: &'static Metric,
) -> impl Iterator<Item = Window<'a>> {
    let is_its = |labels: &Labels| labels.values().next() == Some(device.as_str());
    let series = history.series(metric);
    series.filter_map(move |(labels, window)| is_its(labels).then_some(window))
}

/// Whether a NIC receives so little that it cannot be too slow for it: if it pauses, its receive pipe is stuck, or a driver or firmware
/// sends pause for nothing.
pub(super) fn receives_nothing(history: &NodeHistory, device: &RdmaDevice) -> bool {
    let of_device = |metric| of_device(history, device, metric);
    let mut received = of_device(&RDMA_PORT_RECEIVE_BYTES)
        .map(|bytes| bytes.increase(WINDOW_SECONDS).map(Increase::rate))
        .peekable();
    let is_counted = received.peek().is_some();
    let received = received.sum::<Option<f64>>().filter(|_| is_counted);
    let speed = of_device(&RDMA_PORT_SPEED).filter_map(|speed| speed.value());
    let known = received.zip(speed.reduce(f64::max));
    known.is_some_and(|(bytes, speed)| bytes.max(of_interface(history, device)) < NOTHING * speed)
}

/// Whether a NIC has lately paused its switch for [`OF_IDLE`] of at least [`IDLE_SECONDS`] in which next to nothing arrived. A slow
/// receiver has nothing to hold back then. Each of `received` counts bytes, as a sum.
pub(super) fn pauses_idle(pause: Window<'_>, received: &[Vec<Window<'_>>]) -> bool {
    let is_idle = |from: Timestamp, to: Timestamp| {
        let between = |bytes: &Window<'_>| Some(bytes.count_at(to)? - bytes.count_at(from)?);
        let limit = NO_TRAFFIC * to.seconds_since(from);
        received.iter().all(|all| {
            let sum = all.iter().map(between).sum::<Option<f64>>();
            sum.is_some_and(|bytes| bytes < limit)
        })
    };
    let mut idle = Increase {
        amount: 0.0,
        seconds: 0.0,
    };
    let newest = pause.latest().map(|(at, _)| at);
    let is_recent = |count: &Count| {
        newest.is_some_and(|newest| newest.seconds_since(count.at) <= WINDOW_SECONDS)
    };
    let steps = pause.counts().take_while(is_recent);
    steps.zip(pause.counts().skip(1)).any(|(later, earlier)| {
        if is_idle(earlier.at, later.at) {
            idle.amount += earlier.rise;
            idle.seconds += later.at.seconds_since(earlier.at);
        } else {
            (idle.amount, idle.seconds) = (0.0, 0.0);
        }
        idle.seconds >= IDLE_SECONDS && idle.rate() >= OF_IDLE
    })
}

/// [`pauses_idle`] by the counters of the NIC itself.
pub(super) fn pauses_idle_itself(
    history: &NodeHistory,
    device: &RdmaDevice,
    pause: Window<'_>,
) -> bool {
    let ports: Vec<_> = of_device(history, device, &RDMA_PORT_RECEIVE_BYTES).collect();
    !ports.is_empty() && pauses_idle(pause, &[ports, interface_bytes(history, device).collect()])
}

/// Bytes a second that a NIC's interface receives, where it counts them by priority: TCP, too.
fn of_interface(history: &NodeHistory, device: &RdmaDevice) -> f64 {
    let received = interface_bytes(history, device);
    let rates = received.filter_map(|bytes| bytes.newest_increase(WINDOW_SECONDS));
    rates.map(Increase::rate).sum()
}

/// What a NIC's interface receives by priority.
fn interface_bytes<'a>(
    history: &'a NodeHistory,
    device: &RdmaDevice,
) -> impl Iterator<Item = Window<'a>> {
    let series = history.moving(&NIC_PRIORITY_BYTES);
    series.filter_map(move |(labels, bytes)| {
        let is_own = |netdev| nic_of(history, netdev).is_some_and(|(_, nic)| nic == *device);
        let netdev = labels.values().next();
        let is_received = labels.values().last() == Some("receive");
        (is_received && netdev.is_some_and(is_own)).then_some(bytes)
    })
}
