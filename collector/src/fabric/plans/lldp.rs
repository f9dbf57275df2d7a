//! Reads LLDP neighbors printed by tools as cables, with the collector's parser for all dialects.
//!
//! The text does not name its device; the file name does.

use railscope_model::identity::PortWord;
use railscope_model::plan::{PlanError, WiringPlan};

use super::Source;
use super::cabling::{cable, socket};
use crate::fabric::Neighbor;
use crate::fabric::lldp::text::{is_lldpd, parse_neighbors};
use crate::fabric::lldp::{Mac, is_management_port};
use crate::fabric::subnet::counted;

/// Reads the neighbors of one device.
pub(super) fn read(source: &mut Source<'_>) -> Result<WiringPlan, Vec<PlanError>> {
    let parsed = parse_neighbors(source.text).map_err(|error| {
        let (found, expected) = error
            .split_once(": expected ")
            .unwrap_or((&error, "LLDP neighbors"));
        let line = line_in(found);
        vec![source.error(line, "lldp", found, expected)]
    })?;
    for wrong in &parsed.wrong {
        source.problem(wrong.line, "neighbor", &wrong.found, wrong.expected);
    }
    let locals = parsed.neighbors.iter().map(|one| one.local.as_str());
    let is_of_host = source.text.trim_start().starts_with(['{', '[']) || is_lldpd(source.text);
    let is_switch = !is_of_host || locals.clone().any(is_switch_port);
    let mut plan = WiringPlan::default();
    let mut management = 0;
    for neighbor in &parsed.neighbors {
        if is_management_port(&neighbor.local, is_switch)
            || is_management_port(&neighbor.port, false)
        {
            management += 1;
            continue;
        }
        let forwards = neighbor
            .forwards
            .unwrap_or_else(|| is_switch_port(port(neighbor)));
        let ends = (
            socket(source.stem(), is_switch, &neighbor.local),
            socket(&neighbor.system, forwards, port(neighbor)),
        );
        match ends {
            (Some(near), Some(far)) => plan.cables.push(cable([near, far])),
            _ => {
                let found = match neighbor.system.as_str() {
                    "" => format!("an unnamed neighbor of {}", neighbor.local),
                    name => format!("{name} on {}", neighbor.local),
                };
                let mut lines = source.text.lines();
                let line = lines.position(|line| line.contains(&neighbor.chassis));
                let expected = "a System Name and a port, without control characters";
                source.problem(line.map_or(0, |at| at + 1), "neighbor", &found, expected);
            }
        }
    }
    if management > 0 {
        let neighbors = counted(management, "neighbor", "neighbors");
        source
            .notes
            .push(format!("{neighbors} on management ports ignored"));
    }
    Ok(plan)
}

/// The port name of a neighbor: the port description if the port id is an address or a number.
fn port(neighbor: &Neighbor) -> &str {
    let description = neighbor.description.trim();
    let is_number = neighbor.port.bytes().all(|byte| byte.is_ascii_digit());
    let named = !description.is_empty() && !description.contains(char::is_whitespace);
    let is_name = named && PortWord::read(description).is_ok();
    if is_name && (Mac::read(&neighbor.port).is_some() || is_number && is_switch_port(description))
    {
        description
    } else {
        &neighbor.port
    }
}

/// Whether a port name is in a form used by switches: `swp1`, `Ethernet1/1`, `et-0/0/1`.
fn is_switch_port(name: &str) -> bool {
    let numbered = |stem: &str| {
        let rest = name.strip_prefix(stem);
        rest.is_some_and(|rest| rest.starts_with(|sign: char| sign.is_ascii_digit()))
    };
    name.contains('/') || numbered("swp") || numbered("Ethernet")
}

/// The line number in an error of the JSON reader.
fn line_in(found: &str) -> usize {
    let (_, rest) = found.split_once("line ").unwrap_or_default();
    let digits = rest.split(|sign: char| !sign.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(1)
}
