//! Operations of a site on its own cluster: warm rooms, power caps, reboots, new firmware. None of it is a fault.

use serde::{Deserialize, Serialize};

use crate::conditions::{Conditions, GpuCondition};
use crate::faults::place::cables_at;
use crate::noise::Noise;
use crate::parts::gpu::ClockEvent;
use crate::spec::SpecError;
use crate::wiring::Wiring;

/// Update interval of the room temperature: over it the daily cycle changes clocks by less than 0.1 %.
const ROOM_STEP_SECONDS: f64 = 300.0;
/// Rows of nodes reach their warmest hour within this share of the period of each other (an engineering choice:
/// rooms have windows to different sides, and each its own cooling).
const ROOM_SPREAD: f64 = 0.25;

/// What the people of a site do, and what their building does. Serde-able, so that it can be in a scenario:
///
/// ```toml
/// rooms = { nodes_per_row = 8 }
/// power_caps = [{ share = 0.2, watts = 600 }]
/// reboots = { first_seconds = 600, every_seconds = 300, seconds = 240, count = 12 }
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Site {
    /// Clocks and temperatures that go with the time of day.
    pub rooms: Option<Rooms>,
    /// Power limits that the site has set on some of its nodes.
    pub power_caps: Vec<PowerLimit>,
    /// Nodes are restarted, one after another, from the first on.
    pub reboots: Option<Turns>,
    /// The NICs of nodes get new firmware, node after node.
    pub nic_firmware: Option<NicFirmware>,
    /// Switches get new firmware, one after another. No job runs from the first slot to the last.
    pub switch_firmware: Option<Turns>,
}

/// Rooms that are warmer by day: a sinusoid over each period, one for each row of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rooms {
    /// Nodes that are in one row and share their air.
    pub nodes_per_row: u16,
    /// How far clocks go in either direction from their mean, as a share of the full clock.
    #[serde(default = "two_percent")]
    pub swing: f64,
    /// How far the coolant goes in either direction, degrees.
    #[serde(default = "four_degrees")]
    pub celsius: f64,
    /// Length of a day.
    #[serde(default = "a_day")]
    pub period_seconds: f64,
}

const fn two_percent() -> f64 {
    0.02
}

const fn four_degrees() -> f64 {
    4.0
}

const fn a_day() -> f64 {
    86_400.0
}

/// A power limit of all GPUs of some nodes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerLimit {
    /// Share of the nodes that have it; the seed selects which.
    pub share: f64,
    /// The limit of each GPU. Those whose own is lower keep it.
    pub watts: f64,
}

/// One after another, each for a time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turns {
    /// Begin of the first slot.
    pub first_seconds: f64,
    /// Time from the begin of a slot to that of the next.
    pub every_seconds: f64,
    /// How long each takes, at most `every_seconds`.
    pub seconds: f64,
    /// How many have a slot, from the first on; all of them if omitted.
    #[serde(default)]
    pub count: Option<u16>,
    /// Time that a job needs to be launched again each time that its nodes change.
    #[serde(default = "a_minute")]
    pub launch_seconds: f64,
}

const fn a_minute() -> f64 {
    60.0
}

/// New firmware for NICs. A node has no job during its slot, and its NICs share the slot: the link of each is down
/// for its part of it, and its counters begin at zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicFirmware {
    /// What the NICs have then.
    pub version: String,
    /// Slots of the nodes.
    pub turns: Turns,
}

/// A current slot: its node or switch, and the elapsed share.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Turn {
    of: usize,
    done: f64,
}

impl Turns {
    fn problem(&self) -> Option<String> {
        let Self {
            first_seconds,
            every_seconds,
            seconds,
            launch_seconds,
            ..
        } = *self;
        let sound = first_seconds >= 0.0
            && 0.0 < seconds
            && seconds <= every_seconds
            && every_seconds.is_finite()
            && (0.0..=every_seconds).contains(&launch_seconds);
        (!sound).then(|| {
            format!(
                "found {seconds} s every {every_seconds} s from {first_seconds} s on with launches of {launch_seconds} s, expected turns and launches no longer than the time between them"
            )
        })
    }

    /// How many have a slot, of so many.
    fn count(&self, all: usize) -> usize {
        self.count.map_or(all, |count| all.min(count.into()))
    }

    /// Begin and end of a slot.
    fn span(&self, turn: usize) -> (f64, f64) {
        let begin = self.first_seconds + turn as f64 * self.every_seconds;
        (begin, begin + self.seconds)
    }

    fn at(&self, seconds: f64, all: usize) -> Option<Turn> {
        // As `Interval::place` has it.
        let since = seconds + 1e-6 - self.first_seconds;
        let of = (since / self.every_seconds).floor();
        let done = (since - of * self.every_seconds) / self.seconds;
        (since >= 0.0 && of < self.count(all) as f64 && done < 1.0).then_some(Turn {
            of: of as usize,
            done,
        })
    }

    /// Completed slots.
    fn over(&self, seconds: f64, all: usize) -> usize {
        let ended = (seconds + 1e-6 - self.first_seconds - self.seconds) / self.every_seconds;
        ((ended + 1.0).floor().max(0.0) as usize).min(self.count(all))
    }

    /// The next time at which a slot begins or ends, or one of the equal parts of one.
    fn next_change(&self, seconds: f64, parts: usize) -> f64 {
        let later = |moment: &f64| *moment > seconds + 1e-6;
        let turn = ((seconds - self.first_seconds) / self.every_seconds).floor();
        let turn = turn.max(0.0) as usize;
        let moments = [turn, turn + 1].into_iter().flat_map(|turn| {
            let (begin, _) = self.span(turn);
            (0..=parts).map(move |part| begin + self.seconds * part as f64 / parts as f64)
        });
        moments.filter(later).fold(f64::INFINITY, f64::min)
    }
}

/// What holds of one node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NodeNow {
    /// Clock that the temperature leaves its GPUs, as a share of the full one.
    clock: f64,
    /// Coolant above or below its mean, degrees.
    celsius: f64,
    /// Power limit that the site has set, W.
    limit_watts: Option<f64>,
    /// Whether it has no job for now.
    pub(crate) drained: bool,
    /// Whether it is switched off.
    pub(crate) away: bool,
    /// Its NICs that have new firmware, from the first on.
    pub(crate) upgraded: usize,
    /// The NIC that is getting it.
    upgrading: Option<usize>,
}

/// A site's operations at one time; none by default.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Now {
    /// By node; none at all if there is nothing to report.
    pub(crate) nodes: Vec<NodeNow>,
    /// A switch that is being restarted.
    pub(crate) switch: Option<usize>,
}

/// Parts that people work on, and when.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Work {
    /// By number.
    Node(usize),
    /// By number.
    Switch(usize),
}

impl Site {
    /// What is wrong with it.
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        let turns = [
            ("site.reboots", self.reboots.as_ref()),
            (
                "site.nic_firmware",
                self.nic_firmware.as_ref().map(|new| &new.turns),
            ),
            ("site.switch_firmware", self.switch_firmware.as_ref()),
        ];
        for (field, turns) in turns {
            if let Some(problem) = turns.and_then(Turns::problem) {
                return Err(SpecError::new(field, problem));
            }
        }
        if let Some(rooms) = &self.rooms {
            let sound = rooms.nodes_per_row > 0
                && (0.0..0.25).contains(&rooms.swing)
                && (0.0..=20.0).contains(&rooms.celsius)
                && rooms.period_seconds >= ROOM_STEP_SECONDS;
            if !sound {
                let problem = format!(
                    "found {rooms:?}, expected nodes in each row, a swing of 0 to 0.25, 0 to 20 degrees, and a period of at least {ROOM_STEP_SECONDS} s"
                );
                return Err(SpecError::new("site.rooms", problem));
            }
        }
        let shares: f64 = self.power_caps.iter().map(|cap| cap.share).sum();
        let sound = |cap: &PowerLimit| (0.0..=1.0).contains(&cap.share) && cap.watts > 0.0;
        if shares > 1.0 || !self.power_caps.iter().all(sound) {
            let problem = "expected watts above 0, and shares of 0 to 1 that are no more together";
            return Err(SpecError::new("site.power_caps", problem));
        }
        Ok(())
    }

    /// The next time at which something of it changes.
    pub(crate) fn next_change(&self, seconds: f64, plan: &Wiring) -> f64 {
        let nics = plan.hosts.iter().map(|host| host.nics.len()).max();
        let rooms = self
            .rooms
            .map(|_| (((seconds + 1e-6) / ROOM_STEP_SECONDS).floor() + 1.0) * ROOM_STEP_SECONDS);
        let reboots = self.reboots.map(|turns| turns.next_change(seconds, 1));
        let nic_firmware = self
            .nic_firmware
            .as_ref()
            .map(|new| new.turns.next_change(seconds, nics.unwrap_or(1).max(1)));
        let switch_firmware = self
            .switch_firmware
            .map(|turns| turns.next_change(seconds, 1));
        [rooms, reboots, nic_firmware, switch_firmware]
            .into_iter()
            .flatten()
            .fold(f64::INFINITY, f64::min)
    }

    /// Time that a job needs to be launched on other nodes.
    pub(crate) fn launch_seconds(&self) -> f64 {
        let nics = self.nic_firmware.as_ref().map(|new| new.turns);
        let turns = [self.reboots, nics, self.switch_firmware].into_iter();
        let launches = turns.flatten().map(|turns| turns.launch_seconds);
        launches.fold(0.0, f64::max)
    }

    /// Slots of a run of so many seconds: node, begin and end.
    pub(crate) fn works(&self, duration: f64, plan: &Wiring) -> Vec<(Work, f64, f64)> {
        let nics = self.nic_firmware.as_ref().map(|new| &new.turns);
        let (nodes, switches) = (plan.hosts.len(), plan.switches.len());
        let all = [
            (
                self.reboots.as_ref(),
                Work::Node as fn(usize) -> Work,
                nodes,
            ),
            (nics, Work::Node, nodes),
            (self.switch_firmware.as_ref(), Work::Switch, switches),
        ];
        let mut works = Vec::new();
        for (turns, of, count) in all {
            let Some(turns) = turns else { continue };
            for turn in 0..turns.count(count) {
                let (begin, end) = turns.span(turn);
                if begin < duration {
                    works.push((of(turn), begin, end));
                }
            }
        }
        works
    }

    /// Its operations at one time. `noise` distinguishes its rows and nodes.
    pub(crate) fn at(&self, seconds: f64, plan: &Wiring, noise: Noise) -> Now {
        let switches = plan.switches.len();
        let stopped = self.switch_firmware.is_some_and(|turns| {
            let last = turns.count(switches).saturating_sub(1);
            let now = seconds + 1e-6;
            turns.span(0).0 <= now && now < turns.span(last).1
        });
        let node = |node: usize| {
            let (clock, celsius) = self.room(seconds, node, noise);
            NodeNow {
                clock,
                celsius,
                limit_watts: self.limit(noise.part(1).uniform(node as u64)),
                drained: stopped,
                away: false,
                upgraded: 0,
                upgrading: None,
            }
        };
        let mut nodes: Vec<NodeNow> = (0..plan.hosts.len()).map(node).collect();
        let count = nodes.len();
        if let Some(turn) = self.reboots.and_then(|turns| turns.at(seconds, count)) {
            (nodes[turn.of].drained, nodes[turn.of].away) = (true, true);
        }
        if let Some(NicFirmware { turns, .. }) = &self.nic_firmware {
            let nics = |node: usize| plan.hosts[node].nics.len();
            for (number, node) in nodes
                .iter_mut()
                .enumerate()
                .take(turns.over(seconds, count))
            {
                node.upgraded = nics(number);
            }
            if let Some(turn) = turns.at(seconds, count) {
                let nic = (turn.done * nics(turn.of) as f64) as usize;
                let node = &mut nodes[turn.of];
                (node.drained, node.upgraded, node.upgrading) = (true, nic, Some(nic));
            }
        }
        let switch = self
            .switch_firmware
            .and_then(|turns| turns.at(seconds, switches));
        Now {
            nodes,
            switch: switch.map(|turn| turn.of),
        }
    }

    /// Clock share of a node's GPUs at the temperature of its room, and how much warmer the room is than on average.
    fn room(&self, seconds: f64, node: usize, noise: Noise) -> (f64, f64) {
        let Some(rooms) = self.rooms else {
            return (1.0, 0.0);
        };
        let row = node as u64 / u64::from(rooms.nodes_per_row);
        let step = ((seconds + 1e-6) / ROOM_STEP_SECONDS).floor() * ROOM_STEP_SECONDS;
        let time = step / rooms.period_seconds + ROOM_SPREAD * noise.part(0).uniform(row);
        let warmth = (time * std::f64::consts::TAU).sin();
        (1.0 - rooms.swing * (1.0 + warmth), rooms.celsius * warmth)
    }

    /// The limit of the node that has drawn this number from 0 to 1.
    fn limit(&self, drawn: f64) -> Option<f64> {
        let mut below = 0.0;
        let cap = self.power_caps.iter().find(|cap| {
            below += cap.share;
            drawn < below
        });
        cap.map(|cap| cap.watts)
    }
}

impl Now {
    /// Lets it hold beside everything else.
    pub(crate) fn apply(&self, now: &mut Conditions) {
        for (number, node) in self.nodes.iter().enumerate() {
            for gpu in now.gpus_of(number) {
                node.hold(&mut now.gpus[gpu]);
            }
            let nics = now.wiring.hosts[number].nics.clone();
            let dark = |slot: usize| node.away || node.upgrading == Some(slot);
            for (slot, nic) in nics.enumerate() {
                if dark(slot) {
                    now.ports[nic].speed = None;
                }
            }
        }
        let Some(switch) = self.switch else { return };
        let cables: Vec<usize> = cables_at(&now.wiring, switch).collect();
        for cable in cables {
            now.wiring.cables[cable].lit = false;
            if let Some(port) = now.ports.get_mut(cable) {
                port.speed = None;
            }
        }
    }
}

impl NodeNow {
    fn hold(&self, gpu: &mut GpuCondition) {
        // The driver lowers the clock of a warm chip step by step and names no reason (GPU Boost).
        gpu.clock *= self.clock;
        gpu.coolant_celsius += self.celsius;
        let Some(watts) = self.limit_watts else {
            return;
        };
        gpu.limit_watts = gpu.limit_watts.min(watts);
        let clock = gpu.model.clock_at(watts);
        if clock < gpu.clock {
            gpu.clock = clock;
            gpu.event = Some(ClockEvent::SwPowerCap);
        }
    }
}
