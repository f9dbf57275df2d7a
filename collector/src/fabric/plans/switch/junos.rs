//! `show interfaces` of Junos, also `extensive`: links that are down, change often, or carry damaged frames.

use super::link_log::Stamp;
use super::{SwitchReport, some};
use crate::fabric::plans::Source;

/// Ports that can carry a fabric; the others are of the switch itself.
const PORTS: [&str; 4] = ["et-", "xe-", "ge-", "mge-"];
/// Fewest carrier transitions of a link that is known to flap, and how many times those of the other
/// ports.
const MANY_TRANSITIONS: u64 = 10;
const ABOVE_OTHERS: u64 = 5;
/// Seconds within which links change together after a restart.
const TOGETHER: i64 = 120;

const HEADING: &str = "Physical interface: ";

#[derive(Default)]
struct Interface {
    name: String,
    enabled: bool,
    up: bool,
    description: Option<String>,
    /// When the link changed last, as the switch prints it.
    changed: Option<String>,
    changed_at: Option<i64>,
    transitions: Option<u64>,
    /// Errors that a bad cable or module causes, by name.
    damage: Vec<(&'static str, u64)>,
    dropped: u64,
}

/// Counters of damaged frames: as the switch prints them, and their description.
const DAMAGE: [(&str, &str); 3] = [
    ("CRC/Align errors", "frames with a wrong checksum"),
    (
        "FEC Uncorrected Errors",
        "code words that FEC could not correct",
    ),
    ("Framing errors", "framing errors"),
];

pub(super) fn is_heading(line: &str) -> bool {
    line.trim_start().starts_with(HEADING) && line.contains("Physical link is")
}

pub(super) fn read(source: &mut Source<'_>, report: &mut SwitchReport) {
    let mut ports: Vec<Interface> = Vec::new();
    let mut is_sent = false;
    let mut inside = false;
    for (at, line) in source.text.lines().map(str::trim).enumerate() {
        if let Some(rest) = line.strip_prefix(HEADING) {
            let interface = heading(rest);
            inside = interface
                .as_ref()
                .is_some_and(|port| PORTS.iter().any(|kind| port.name.starts_with(kind)));
            match interface {
                Some(port) if inside => ports.push(port),
                Some(_) => {}
                None => source.problem(
                    at + 1,
                    "interface",
                    rest,
                    "NAME, Enabled, Physical link is Up",
                ),
            }
            continue;
        }
        // Logical interfaces count what their port counts.
        if line.starts_with("Logical interface ") {
            inside = false;
        }
        is_sent = match line {
            "Output errors:" => true,
            "Input errors:" => false,
            _ => is_sent,
        };
        if let (true, Some(port)) = (inside, ports.last_mut()) {
            port.take(line, is_sent);
        }
    }
    if !ports.is_empty() {
        judge(&ports, report);
    }
}

fn heading(rest: &str) -> Option<Interface> {
    let mut parts = rest.split(", ");
    let (name, state) = (parts.next()?, parts.next()?);
    let link = parts.next()?.strip_prefix("Physical link is ")?;
    Some(Interface {
        name: name.to_owned(),
        enabled: state == "Enabled",
        up: link.starts_with("Up"),
        ..Interface::default()
    })
}

impl Interface {
    fn take(&mut self, line: &str, is_sent: bool) {
        if let Some((name, value)) = line.split_once(':') {
            match name.trim_end() {
                "Description" => self.description = Some(value.trim().to_owned()),
                "Last flapped" => {
                    let value = value.trim();
                    self.changed_at = Stamp::of(value).map(|stamp| stamp.seconds);
                    self.changed = Some(value.to_owned()).filter(|value| value != "Never");
                }
                _ => self.counters(line, is_sent),
            }
            return;
        }
        for (name, meaning) in DAMAGE {
            if let Some(count) = line.strip_prefix(name).and_then(first_number) {
                self.damage.push((meaning, count));
            }
        }
    }

    /// Counters as `name: number` with commas between them.
    fn counters(&mut self, line: &str, is_sent: bool) {
        let pairs = line.split(',').filter_map(|pair| pair.split_once(':'));
        for (name, number) in pairs {
            let Some(number) = first_number(number) else {
                continue;
            };
            match name.trim() {
                "Carrier transitions" => self.transitions = Some(number),
                "Drops" if is_sent => self.dropped = number,
                name => {
                    let known = DAMAGE.iter().find(|(known, _)| *known == name);
                    self.damage
                        .extend(known.map(|(_, meaning)| (*meaning, number)));
                }
            }
        }
    }

    fn named(&self) -> String {
        match &self.description {
            Some(description) => format!("{} ({description})", self.name),
            None => self.name.clone(),
        }
    }

    /// Whether the port has been used: it is described, or had a link before.
    fn is_used(&self) -> bool {
        self.description.is_some() || self.transitions.is_some_and(|number| number > 1)
    }
}

fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

fn judge(ports: &[Interface], report: &mut SwitchReport) {
    let up = ports.iter().filter(|port| port.up).count();
    let dropped = ports
        .iter()
        .fold(0_u64, |sum, port| sum.saturating_add(port.dropped));
    let mut answer = format!("show interfaces: {up} of {} ports are up", ports.len());
    if let Some(together) = restart(ports) {
        answer += &format!("; {together}");
    }
    if dropped > 0 {
        answer += &format!("; {dropped} packets dropped at full output queues");
    }
    report.answer.push(answer);
    for port in ports
        .iter()
        .filter(|port| port.enabled && !port.up && port.is_used())
    {
        let since = port
            .changed
            .as_ref()
            .map_or(String::new(), |at| format!(" since {at}"));
        report.findings.push(format!(
            "{}: enabled, but its link is down{since}: check the device at the other end, then cable and modules",
            port.named()
        ));
    }
    for port in ports {
        let damage: Vec<String> = port
            .damage
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(meaning, count)| format!("{count} {meaning}"))
            .collect();
        if !damage.is_empty() {
            report.findings.push(format!(
                "{}: received {}: clean or replace the cable or its modules",
                port.named(),
                damage.join(", ")
            ));
        }
    }
    report.findings.extend(flapping(ports));
}

/// Links that change far more often than those of the other ports.
fn flapping(ports: &[Interface]) -> Vec<String> {
    let mut all: Vec<u64> = ports.iter().filter_map(|port| port.transitions).collect();
    all.sort_unstable();
    let Some(usual) = all.get(all.len() / 2).copied() else {
        return Vec::new();
    };
    // A single port is compared with nothing: it must be conclusive by itself.
    let usual = if all.len() > 2 { usual } else { 0 };
    let limit = MANY_TRANSITIONS.max(usual.saturating_mul(ABOVE_OTHERS));
    let flapping = ports.iter().filter_map(|port| {
        let number = port.transitions.filter(|number| *number >= limit)?;
        let last = port.changed.as_deref().unwrap_or("unknown");
        Some(format!(
            "{}: {number} carrier transitions (median of {} ports: {usual}), the last {last}: the link flaps; reseat or replace cable and modules",
            port.named(),
            all.len()
        ))
    });
    flapping.collect()
}

/// Most links changed last at the same time: the switch or a line card restarted, and no single link did.
fn restart(ports: &[Interface]) -> Option<String> {
    let mut changed: Vec<(i64, &Interface)> = ports
        .iter()
        .filter_map(|port| Some((port.changed_at?, port)))
        .collect();
    changed.sort_by_key(|(at, _)| *at);
    let group_from = |from: usize| {
        let (begin, _) = changed[from];
        let group = changed[from..].iter();
        group.take_while(|(at, _)| at - begin <= TOGETHER).count()
    };
    let from = (0..changed.len()).max_by_key(|from| (group_from(*from), changed.len() - from))?;
    let count = group_from(from);
    if count < 3 || count * 2 < ports.len() {
        return None;
    }
    let names: Vec<String> = changed[from..from + count]
        .iter()
        .map(|(_, port)| port.name.clone())
        .collect();
    let at = changed[from].1.changed.as_deref().unwrap_or_default();
    Some(format!(
        "{count} links changed last within 2 minutes of {at} ({}): a restart of the switch or of a line card, not {count} bad cables",
        some(&names)
    ))
}
