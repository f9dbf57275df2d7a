//! Packets that vanish inside a switch that counts neither errors nor discards: it sends another amount than it receives.
//!
//! What a switch receives at all of its ports together, it sends. Where hosts lose packets and one switch alone sends less
//! than it receives, the packets are lost in it. A permanent difference (mirrored or unread ports) is no loss: the difference must have
//! begun within the window.

use railscope_model::identity::{Part, SwitchName};
use railscope_model::metric::{
    Metric, SWITCH_PORT_DISCARDS, SWITCH_PORT_ERRORS, SWITCH_PORT_RECEIVE_BYTES,
    SWITCH_PORT_TRANSMIT_BYTES,
};

use super::{EXPLAINED, LOSS_SECONDS, Losses, NAME, victims};
use crate::classes::UPLINK_LOSSY;
use crate::detect::detector::{Evidence, Explanation, View};
use crate::detect::ecn_marks::PACKET_BYTES;
use crate::detect::peers::{self, MIN_PEERS};
use crate::detect::registry::{Rule, Threshold};
use crate::store::{Increase, NodeHistory, SWITCH_WINDOW_SECONDS};

/// Share of what a switch receives that it must send too little or too much.
const MIN_DIFFERENCE: f64 = 1e-3;
/// How many times the largest difference of the other switches: ports are not read at the same time.
const ABOVE_OTHERS: f64 = 4.0;
/// A switch that receives less than this share of what another receives is no measure of it.
const AS_BUSY: f64 = 0.1;
/// Share of the difference that there was before, at most.
const BEFORE: f64 = 0.5;

/// The rule's numbers, but for those of the hosts' losses.
pub(super) fn rule(of_hosts: Vec<Threshold>) -> Rule {
    let mut thresholds = peers::thresholds();
    thresholds.truncate(1);
    thresholds.extend(of_hosts);
    thresholds.extend([
        Threshold::new(
            "difference between the bytes that a switch sends and receives, at least",
            MIN_DIFFERENCE,
            "ratio",
            "ports are not read at the same time (a choice)",
        ),
        Threshold::new(
            "times the largest difference of the other switches, at least",
            ABOVE_OTHERS,
            "times",
            "one must stand out (a choice)",
        ),
        Threshold::new(
            "traffic of a switch that it is compared with, as a share of its own, at least",
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
        check: "A switch sends another amount than it receives, without errors or discards, and many NICs of several nodes lose packets.",
        threshold: format!(
            "at least {MIN_PEERS} NICs of two or more nodes with negative acknowledgments, and as many that detect gaps; a difference of at least {MIN_DIFFERENCE} of the bytes received in {:.0} s, {ABOVE_OTHERS:.0} times that of any other switch, of at least {MIN_PEERS}, twice what it was before, and errors and discards below {:.0} % of the missing packets",
            LOSS_SECONDS[0],
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
}

impl Balance {
    /// Of the longer of [`LOSS_SECONDS`], per second.
    fn newest(history: &NodeHistory) -> Self {
        let total = |metric| {
            let ports = history.moving(metric);
            let rates = ports.filter_map(|(_, port)| port.newest_increase(LOSS_SECONDS[0]));
            rates.map(Increase::rate).sum()
        };
        Self {
            received: total(&SWITCH_PORT_RECEIVE_BYTES),
            sent: total(&SWITCH_PORT_TRANSMIT_BYTES),
        }
    }

    /// Of all the time before [`LOSS_SECONDS`], if it is long enough.
    fn before(history: &NodeHistory) -> Option<Self> {
        let [newest, shortest] = LOSS_SECONDS;
        let total = |metric| {
            let (mut amount, mut longest) = (0.0, 0.0_f64);
            for (_, port) in history.moving(metric) {
                let whole = port.increase(SWITCH_WINDOW_SECONDS);
                if let (Some(whole), Some(newest)) = (whole, port.newest_increase(newest)) {
                    amount += whole.amount - newest.amount;
                    longest = longest.max(whole.seconds - newest.seconds);
                }
            }
            (longest >= shortest).then_some(amount)
        };
        Some(Self {
            received: total(&SWITCH_PORT_RECEIVE_BYTES)?,
            sent: total(&SWITCH_PORT_TRANSMIT_BYTES)?,
        })
    }

    /// What it does not send of what it receives, as a share; negative if it sends more.
    fn missing(self) -> f64 {
        (self.received - self.sent) / self.received.max(1.0)
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
        let are_many = senders.are_of_several_nodes() && receivers.are_of_several_nodes();
        let standing_out = are_many.then(|| stands_out(view)).flatten();
        let found = standing_out.filter(|(switch, history, balance)| {
            self.found.as_ref() == Some(*switch) || is_new(history, *balance)
        });
        self.found = found.map(|(switch, ..)| switch.clone());
        let (switch, _, balance) = found?;
        let part = Part::Switch(switch.clone());
        let (amount, more) = match balance.missing() {
            missing if missing < 0.0 => (-missing, "more"),
            missing => (missing, "less"),
        };
        let statement = format!(
            "{part} sends {:.2} % {more} than it receives, counts neither errors nor discards, and no other switch does; {} NICs of {} nodes send packets that do not arrive, {:.0} per second, and {} NICs of {} nodes miss packets.",
            100.0 * amount,
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
}

/// The switch whose difference is far larger than that of any other, if it counts nothing that explains it.
fn stands_out<'a>(view: &View<'a>) -> Option<(&'a SwitchName, &'a NodeHistory, Balance)> {
    let switches = view.history.fresh_switches(view.now);
    let balances = switches.map(|(switch, history)| (switch, history, Balance::newest(history)));
    let mut balances: Vec<_> = balances.collect();
    balances.sort_by(|(.., a), (.., b)| b.missing().abs().total_cmp(&a.missing().abs()));
    let is_busy = |of: &Balance, beside: f64| of.received > AS_BUSY * beside;
    let place = balances.iter().position(|(.., own)| is_busy(own, 0.0))?;
    let (switch, history, own) = *balances.get(place)?;
    let others = balances.iter().skip(place + 1);
    let others: Vec<_> = others
        .filter(|(.., other)| is_busy(other, own.received))
        .collect();
    let (.., largest) = others.first()?;
    let difference = own.missing().abs();
    let is_alone = others.len() + 1 >= MIN_PEERS
        && difference >= MIN_DIFFERENCE.max(ABOVE_OTHERS * largest.missing().abs());
    let packets = difference * own.received / PACKET_BYTES;
    (is_alone && counted(history)? < EXPLAINED * packets).then_some((switch, history, own))
}

/// Errors and discards a second of a switch; none if it does not count discards.
fn counted(history: &NodeHistory) -> Option<f64> {
    history.series(&SWITCH_PORT_DISCARDS).next()?;
    let rate = |metric: &'static Metric| -> f64 {
        let ports = history.moving(metric);
        let rates = ports.filter_map(|(_, port)| port.newest_increase(LOSS_SECONDS[0]));
        rates.map(Increase::rate).sum()
    };
    Some(rate(&SWITCH_PORT_DISCARDS) + rate(&SWITCH_PORT_ERRORS))
}

/// Whether the difference of a switch began within the window.
fn is_new(history: &NodeHistory, now: Balance) -> bool {
    let before = Balance::before(history);
    before.is_some_and(|before| before.missing().abs() <= BEFORE * now.missing().abs())
}
