//! Packets that vanish inside a switch, whose errors and discards do not explain it: it sends less than it receives.
//!
//! What a switch receives at all of its ports together, it sends. Where hosts lose packets and one switch alone sends less
//! than it receives, the packets are lost in it. A permanent difference (mirrored or unread ports) is no loss: the difference must have
//! begun within the window. A switch that sends more than it receives loses nothing: it mirrors a port, or repeats packets.

use std::collections::BTreeSet;

use railscope_model::identity::{Part, SwitchName};
use railscope_model::label;
use railscope_model::metric::{
    Metric, SWITCH_PORT_DISCARDS, SWITCH_PORT_ERRORS, SWITCH_PORT_PFC_FRAMES,
    SWITCH_PORT_RECEIVE_BYTES, SWITCH_PORT_TRANSMIT_BYTES,
};

use railscope_model::reading::Labels;

use super::{EXPLAINED, LOSS_SECONDS, Losses, MIN_RATE, NAME, broken, victims};
use crate::classes::UPLINK_LOSSY;
use crate::detect::detector::{Evidence, Explanation, View};
use crate::detect::ecn_marks::PACKET_BYTES;
use crate::detect::peers::{self, MIN_PEERS};
use crate::detect::registry::{Rule, Threshold};
use crate::store::{Increase, NodeHistory, SWITCH_WINDOW_SECONDS};

/// Length of a pause frame, bytes (IEEE 802.1Q, the shortest of Ethernet).
const PAUSE_BYTES: f64 = 64.0;
/// Times over which bytes are compared: bursts that a switch has received and not yet sent, and ports that are read one after another,
/// make less of a difference over the longer one.
const SECONDS: [f64; 2] = [60.0, 120.0];
/// Share of what a switch receives that it must send too little: the loss of one packet in 2,000 slows a flow down.
const MIN_MISSING: f64 = 3e-4;
/// How many times the largest difference of the other switches: ports are not read at the same time.
const ABOVE_OTHERS: f64 = 4.0;
/// A switch that receives less than this share of what the busiest receives is idle; so is one that had less than this share before.
const AS_BUSY: f64 = 0.1;
/// Share of the difference that there was before, at most.
const BEFORE: f64 = 0.5;

/// Share of the missing packets that hosts must see as lost, at least: a lost packet is noticed once, bursts are noticed as one.
const NOTICED: f64 = 0.03;

/// The rule's numbers, but for those of the hosts' losses.
pub(super) fn rule(of_hosts: Vec<Threshold>) -> Rule {
    let mut thresholds = peers::thresholds();
    thresholds.truncate(1);
    thresholds.extend(of_hosts);
    thresholds.extend([
        Threshold::new(
            "share of the bytes that a switch receives and does not send, at least",
            MIN_MISSING,
            "ratio",
            "one packet in 2,000 slows a flow down, and ports are not read at the same time (a choice)",
        ),
        Threshold::new(
            "of these, what each received frame of pause may be",
            PAUSE_BYTES,
            "B",
            "the shortest frame of Ethernet, which is not sent on (IEEE 802.1Q)",
        ),
        Threshold::new(
            "errors and discards of the switch as a share of the missing packets, and broken packets at any switch as a share of those that hosts lose, below",
            EXPLAINED,
            "ratio",
            "from this share, they explain it (a choice)",
        ),
        Threshold::new(
            "packets that hosts lose, as a share of the missing ones, at least",
            NOTICED,
            "ratio",
            "each is noticed, of a burst one, and not all hosts are read (a choice)",
        ),
        Threshold::new(
            "time over which bytes are compared",
            SECONDS[0],
            "s",
            "loss that has begun (a choice)",
        ),
        Threshold::new(
            "or",
            SECONDS[1],
            "s",
            "bursts make less of a difference (a choice)",
        ),
        Threshold::new(
            "times the largest difference of the other switches, at least",
            ABOVE_OTHERS,
            "times",
            "one must stand out (a choice)",
        ),
        Threshold::new(
            "traffic of a switch as a share of that of the busiest switch, and before as a share of the present, at least",
            AS_BUSY,
            "ratio",
            "idle switches differ by chance (a choice)",
        ),
        Threshold::new(
            "difference before, as a share of the present one, at most",
            BEFORE,
            "ratio",
            "mirrored or unread ports differ permanently (a choice)",
        ),
    ]);
    Rule {
        class: &UPLINK_LOSSY,
        signal: SWITCH_PORT_TRANSMIT_BYTES.name,
        thresholds,
    }
}

/// The rule as text.
pub(super) fn explain() -> Explanation {
    Explanation {
        check: "A switch sends less than it receives, which its errors and discards do not explain, and many NICs of several nodes lose packets.",
        threshold: format!(
            "at least {MIN_PEERS} NICs of two or more nodes with negative acknowledgments, {MIN_RATE:.0} per second each, and as many that detect gaps; at least {MIN_MISSING} of the bytes received not sent, in {:.0} or {:.0} s, and this {ABOVE_OTHERS:.0} times that of any other switch, of at least {MIN_PEERS}, twice what it was before at similar traffic, errors and discards below {:.0} % of the missing packets, and broken packets at all switches below that share of the packets that hosts lose",
            SECONDS[0],
            SECONDS[1],
            100.0 * EXPLAINED
        ),
        clears: "It sends what it receives, or packets arrive without loss.",
    }
}

/// What a switch receives and sends at all of its ports together, in bytes.
#[derive(Debug, Clone, Copy)]
struct Balance {
    received: f64,
    sent: f64,
    /// Of what it received: frames of pause, which it does not send on. Not every switch counts them as bytes.
    paused: f64,
}

impl Balance {
    /// Of so many seconds, per second.
    fn newest(history: &NodeHistory, seconds: f64) -> Self {
        Self {
            received: rate(history, &SWITCH_PORT_RECEIVE_BYTES, seconds),
            sent: rate(history, &SWITCH_PORT_TRANSMIT_BYTES, seconds),
            paused: PAUSE_BYTES
                * rate_where(history, &SWITCH_PORT_PFC_FRAMES, seconds, |labels| {
                    labels.get(label!(SWITCH_PORT_PFC_FRAMES, "direction")) == Some("receive")
                }),
        }
    }

    /// Of all the time before the `newest` seconds, per second, if it is long enough.
    fn before(history: &NodeHistory, newest: f64) -> Option<Self> {
        let [_, shortest] = LOSS_SECONDS;
        let total = |metric| {
            let (mut amount, mut longest) = (0.0, 0.0_f64);
            for (_, port) in history.moving(metric) {
                let whole = port.increase(SWITCH_WINDOW_SECONDS);
                if let (Some(whole), Some(newest)) = (whole, port.newest_increase(newest)) {
                    amount += whole.amount - newest.amount;
                    longest = longest.max(whole.seconds - newest.seconds);
                }
            }
            (longest >= shortest).then(|| amount / longest)
        };
        Some(Self {
            received: total(&SWITCH_PORT_RECEIVE_BYTES)?,
            sent: total(&SWITCH_PORT_TRANSMIT_BYTES)?,
            paused: 0.0,
        })
    }

    /// What it does not send of what it receives, as a share, without what may be pause; negative if it sends more.
    fn missing(self) -> f64 {
        let missing = match self.received - self.sent {
            missing if missing > 0.0 => (missing - self.paused).max(0.0),
            more => more,
        };
        missing / self.received.max(1.0)
    }

    /// The difference in packets per second.
    fn missing_packets(self) -> f64 {
        self.missing().abs() * self.received / PACKET_BYTES
    }

    /// Whether the difference is large enough to matter.
    fn is_large(self) -> bool {
        self.missing().abs() >= MIN_MISSING
    }
}

/// The switch in which packets vanish.
#[derive(Debug, Default)]
pub(super) struct Inside {
    /// The switch that was found: its difference becomes older than the window.
    found: Option<SwitchName>,
}

impl Inside {
    pub(super) fn evidence(
        &mut self,
        view: &View<'_>,
        senders: &Losses<'_>,
        receivers: &Losses<'_>,
    ) -> Option<Evidence> {
        if !(senders.are_of_several_nodes() && receivers.are_of_several_nodes()) {
            *self = Self::default();
            return None;
        }
        let found = SECONDS
            .into_iter()
            .find_map(|seconds| self.stands_out(view, seconds));
        // A mirror that is set up to find the loss sends more than is received.
        let found = found.filter(|(switch, balance)| {
            balance.missing() > 0.0 && are_connected(view, switch, senders)
        });
        self.found = found.map(|(switch, _)| switch.clone());
        // The switch stays known meanwhile.
        let is_broken_elsewhere = || broken::of_all(view) >= EXPLAINED * senders.rate();
        let (switch, balance) = found.filter(|(_, balance)| {
            let is_noticed = senders.rate() >= NOTICED * balance.missing_packets();
            is_noticed && !is_broken_elsewhere()
        })?;
        let part = Part::Switch(switch.clone());
        let statement = format!(
            "{part} sends {:.2} % less than it receives, which its errors and discards do not explain, and no other switch does; {} NICs of {} nodes send packets that do not arrive, {:.0} per second, and {} NICs of {} nodes miss packets.",
            100.0 * balance.missing(),
            senders.0.len(),
            senders.nodes(),
            senders.rate(),
            receivers.0.len(),
            receivers.nodes(),
        );
        Some(Evidence {
            detector: NAME,
            signal: SWITCH_PORT_TRANSMIT_BYTES.name,
            class: &UPLINK_LOSSY,
            // What a flow loses by it depends on how it sends again.
            effect: 0.0,
            statement,
            victims: victims(view, senders, receivers),
            related: Vec::new(),
            alike: Vec::new(),
            part,
        })
    }

    /// The switch whose difference is new and far larger than that of any other, if it counts nothing that explains it.
    fn stands_out<'a>(&self, view: &View<'a>, seconds: f64) -> Option<(&'a SwitchName, Balance)> {
        let switches = view.history.fresh_switches(view.now);
        let balances =
            switches.map(|(switch, history)| (switch, history, Balance::newest(history, seconds)));
        let mut balances: Vec<_> = balances.collect();
        let received = balances.iter().map(|(.., own)| own.received);
        let busiest = received.fold(0.0, f64::max);
        balances.retain(|(switch, history, own)| {
            let is_small = || !own.is_large();
            let is_known = || self.found.as_ref() == Some(*switch);
            own.received > AS_BUSY * busiest
                && (is_small() || is_known() || is_new(history, *own, seconds))
        });
        balances.sort_by(|(.., a), (.., b)| b.missing().abs().total_cmp(&a.missing().abs()));
        let [(switch, history, own), others @ ..] = &balances[..] else {
            return None;
        };
        let (.., next) = others.first()?;
        let difference = own.missing().abs();
        let is_alone = others.len() + 1 >= MIN_PEERS
            && own.is_large()
            && difference >= ABOVE_OTHERS * next.missing().abs();
        let is_unexplained =
            is_alone && counted(history, seconds)? < EXPLAINED * own.missing_packets();
        is_unexplained.then_some((*switch, *own))
    }
}

/// Whether a switch is of the network of the NICs that lose packets, as far as their cables are known.
fn are_connected(view: &View<'_>, switch: &SwitchName, senders: &Losses<'_>) -> bool {
    let leaves = senders.0.iter().filter_map(|loss| loss.leaf(view.fabric));
    let leaves: BTreeSet<SwitchName> = leaves.collect();
    leaves.is_empty()
        || leaves.contains(switch)
        || leaves
            .iter()
            .any(|leaf| view.routes.between(view.fabric, leaf, switch).is_some())
}

/// Errors and discards a second of a switch; none if it does not count discards.
fn counted(history: &NodeHistory, seconds: f64) -> Option<f64> {
    history.series(&SWITCH_PORT_DISCARDS).next()?;
    let [discards, errors] =
        [&SWITCH_PORT_DISCARDS, &SWITCH_PORT_ERRORS].map(|metric| rate(history, metric, seconds));
    Some(discards + errors)
}

/// Rate of a counter of all ports of a switch together, over so many seconds.
fn rate(history: &NodeHistory, metric: &'static Metric, seconds: f64) -> f64 {
    rate_where(history, metric, seconds, |_| true)
}

/// The same of some of its series.
fn rate_where(
    history: &NodeHistory,
    metric: &'static Metric,
    seconds: f64,
    is_of_it: impl Fn(&Labels) -> bool,
) -> f64 {
    let ports = history
        .moving(metric)
        .filter(|(labels, _)| is_of_it(labels));
    let rates = ports.filter_map(|(_, port)| port.newest_increase(seconds));
    rates.map(Increase::rate).sum()
}

/// Whether the difference of a switch over so many seconds began within the window, in which it carried traffic before.
fn is_new(history: &NodeHistory, now: Balance, seconds: f64) -> bool {
    let before = Balance::before(history, seconds);
    before.is_some_and(|before| {
        before.received >= AS_BUSY * now.received
            && before.missing().abs() <= BEFORE * now.missing().abs()
    })
}
