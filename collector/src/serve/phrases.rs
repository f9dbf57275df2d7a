//! Parts, times and counts in readable form.

use railscope_model::fabric::civil;
use railscope_model::identity::Part;
pub(crate) use railscope_model::identity::natural;

use super::layout::Layout;
use crate::fabric::{Change, Ends, Socket};

mod action;
mod unit;

pub(crate) use action::action;
pub(crate) use unit::{amount, measured};

/// A part in plain text, with what it is connected to.
pub(crate) fn part(part: &Part, layout: &Layout) -> String {
    match part {
        Part::Host(node) => format!("Host {node}"),
        Part::Gpu(node, gpu) => format!("GPU {gpu} of {node}"),
        Part::NvLink(node, link) => format!("NVLink {} of GPU {} in {node}", link.link, link.gpu),
        Part::PcieLink(node, pci) => match layout.function(node, *pci) {
            Some(function) => format!("PCIe link of {function} in {node} ({pci})"),
            None => format!("PCIe link of {pci} in {node}"),
        },
        Part::Nic(node, device) => format!("NIC {device} of {node}{}", hangs(part, layout, "at")),
        Part::HostLink(node, port) => {
            format!("Cable from {node} {port}{}", hangs(part, layout, "to"))
        }
        Part::SwitchLink(switch, port) => match layout.far_end(switch, port) {
            Some((far, far_port)) => {
                format!("Cable from {switch} port {port} to {far} port {far_port}")
            }
            None => format!("Cable at {switch} port {port}"),
        },
        Part::Switch(switch) => match layout.switch(switch) {
            Some(found) if found.tier == 1 => match found.rail {
                Some(rail) => format!("Leaf switch {switch} (rail {rail})"),
                None => format!("Leaf switch {switch}"),
            },
            Some(found) => {
                format!(
                    "{} switch {switch}",
                    capital(super::layout::tier_name(found.tier, layout.levels()))
                )
            }
            None => format!("Switch {switch}"),
        },
        Part::SharedStorage => "Shared storage".to_owned(),
    }
}

/// The API's name of a kind of change.
pub(crate) fn change_word(change: &Change) -> &'static str {
    match change {
        Change::PartCame(_) => "part_came",
        Change::PartWent(_) => "part_went",
        Change::CableCame(_) => "cable_came",
        Change::CableWent(_) => "cable_went",
        Change::CableMoved { .. } => "cable_moved",
        Change::SpeedChanged { .. } => "speed_changed",
    }
}

/// A change in a sentence.
pub(crate) fn change(change: &Change) -> String {
    let socket = |end: &Socket| format!("{} port {}", end.part, end.port);
    let cable = |[a, b]: &Ends| format!("{} to {}", socket(a), socket(b));
    match change {
        Change::PartCame(part) => format!("{part} appeared"),
        Change::PartWent(part) => format!("{part} disappeared"),
        Change::CableCame(ends) => format!("Cable from {} appeared", cable(ends)),
        Change::CableWent(ends) => format!("Cable from {} disappeared", cable(ends)),
        Change::CableMoved { from, to } => format!(
            "Cable from {} moved: from {} to {}",
            socket(&to[0]),
            socket(&from[1]),
            socket(&to[1])
        ),
        Change::SpeedChanged {
            cable: ends,
            from,
            to,
        } => format!(
            "Cable from {} runs at {to}, previously at {from}",
            cable(ends)
        ),
    }
}

/// The parts that a change is about, each once.
pub(crate) fn parts_of(change: &Change) -> Vec<String> {
    let of = |ends: &Ends| ends.iter().map(|end| end.part.to_string()).collect();
    let mut parts: Vec<String> = match change {
        Change::PartCame(part) | Change::PartWent(part) => vec![part.to_string()],
        Change::CableCame(ends) | Change::CableWent(ends) => of(ends),
        Change::SpeedChanged { cable, .. } => of(cable),
        Change::CableMoved { from, to } => {
            let both: Vec<String> = of(from);
            both.into_iter().chain(of(to)).collect()
        }
    };
    parts.sort_unstable();
    parts.dedup();
    parts
}

fn hangs(part: &Part, layout: &Layout, word: &str) -> String {
    let Some(nic) = layout.nic(part) else {
        return String::new();
    };
    let rail = nic
        .rail
        .map_or_else(String::new, |rail| format!(" (rail {rail})"));
    match nic.uplinks.first() {
        Some(uplink) => {
            format!(
                " {word} {} port {}{rail}",
                layout.switches[uplink.switch].name, uplink.switch_port
            )
        }
        None => rail,
    }
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

/// A span of time in its largest two units: `45 s`, `12 min`, `3 h 5 min`, `2 d 4 h`.
pub(crate) fn span(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let two = |large: u64, large_unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {large_unit}"),
        _ => format!("{large} {large_unit} {small} {small_unit}"),
    };
    match seconds {
        0..120 => format!("{seconds} s"),
        120..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// A count with its noun: `1 GPU`, `3 GPUs`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    let many = match noun {
        "switch" => "switches",
        "leaf" => "leaves",
        "component" => "components",
        _ if number == 1 => return format!("1 {noun}"),
        _ => return format!("{number} {noun}s"),
    };
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {many}")
    }
}

/// Unix time as `2026-11-20 14:03:07 UTC`.
pub(crate) fn utc(seconds: f64) -> String {
    let [year, month, day, hour, minute, second] = civil(seconds);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_sort_by_value() {
        let mut names = vec!["n10", "n2", "n1", "a", "n02", "n2-b", "n", ""];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["", "a", "n", "n1", "n02", "n2", "n2-b", "n10"]);
    }

    #[test]
    fn times_read_as_people_say_them() {
        for (seconds, said) in [
            (0.0, "0 s"),
            (119.9, "119 s"),
            (120.0, "2 min"),
            (3_600.0, "1 h"),
            (11_100.0, "3 h 5 min"),
            (187_200.0, "2 d 4 h"),
        ] {
            assert_eq!(span(seconds), said);
        }
        assert_eq!(utc(0.0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400.0), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_700_000_000.0), "2023-11-14 22:13:20 UTC");
    }
}
