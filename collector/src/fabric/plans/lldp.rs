//! LLDP neighbours as tools print them, as cables: the same reader as the collector's, whatever the dialect.
//!
//! The text does not say whose it is: the device is called by the name of the file.

use railscope_model::identity::PortWord;
use railscope_model::plan::{PlanError, WiringPlan};

use super::Source;
use super::cabling::{cable, socket};
use crate::fabric::Neighbour;
use crate::fabric::lldp::text::parse_neighbours;
use crate::fabric::lldp::{Mac, is_management_port};
use crate::fabric::subnet::counted;

/// Reads the neighbours of one device.
pub(super) fn read(source: &mut Source<'_>) -> Result<WiringPlan, Vec<PlanError>> {
    let told = parse_neighbours(source.text).map_err(|said| {
        let (found, expected) = said
            .split_once(": expected ")
            .unwrap_or((&said, "LLDP neighbours"));
        let line = line_in(found);
        vec![source.error(line, "lldp", found, expected)]
    })?;
    for wrong in &told.wrong {
        source.problem(wrong.line, "neighbour", &wrong.found, wrong.expected);
    }
    let locals = told.neighbours.iter().map(|one| one.local.as_str());
    let is_switch =
        !source.text.trim_start().starts_with(['{', '[']) || locals.clone().any(is_switch_port);
    let mut plan = WiringPlan::default();
    let mut management = 0;
    for neighbour in &told.neighbours {
        if is_management_port(&neighbour.local, is_switch)
            || is_management_port(&neighbour.port, false)
        {
            management += 1;
            continue;
        }
        let forwards = neighbour
            .forwards
            .unwrap_or_else(|| is_switch_port(&neighbour.port));
        let ends = (
            socket(source.stem(), is_switch, &neighbour.local),
            socket(&neighbour.system, forwards, port(neighbour)),
        );
        match ends {
            (Some(near), Some(far)) => plan.cables.push(cable([near, far])),
            _ => {
                let found = match neighbour.system.as_str() {
                    "" => format!("a neighbour of {} without a name", neighbour.local),
                    name => format!("{name} on {}", neighbour.local),
                };
                let mut lines = source.text.lines();
                let line = lines.position(|line| line.contains(&neighbour.chassis));
                let expected = "a System Name and a port, without control characters";
                source.problem(line.map_or(0, |at| at + 1), "neighbour", &found, expected);
            }
        }
    }
    if management > 0 {
        let neighbors = counted(management, "neighbor", "neighbors");
        source
            .notes
            .push(format!("{neighbors} on management ports left out"));
    }
    Ok(plan)
}

/// What a neighbour calls its port: the description where the id is an address or a mere number.
fn port(neighbour: &Neighbour) -> &str {
    let description = neighbour.description.trim();
    let is_number = neighbour.port.bytes().all(|byte| byte.is_ascii_digit());
    let named = !description.is_empty() && !description.contains(char::is_whitespace);
    let is_name = named && PortWord::read(description).is_ok();
    if is_name && (Mac::read(&neighbour.port).is_some() || is_number && is_switch_port(description))
    {
        description
    } else {
        &neighbour.port
    }
}

/// Whether a port is named as those of switches are: `swp1`, `Ethernet1/1`, `et-0/0/1`.
fn is_switch_port(name: &str) -> bool {
    let numbered = |stem: &str| {
        let rest = name.strip_prefix(stem);
        rest.is_some_and(|rest| rest.starts_with(|sign: char| sign.is_ascii_digit()))
    };
    name.contains('/') || numbered("swp") || numbered("Ethernet")
}

/// The line that a JSON reader names.
fn line_in(found: &str) -> usize {
    let (_, rest) = found.split_once("line ").unwrap_or_default();
    let digits = rest.split(|sign: char| !sign.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(1)
}
