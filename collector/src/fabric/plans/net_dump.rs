//! Reads ibdiagnet's `net_dump`: one block for each switch, one row for each port. It is converted, row by row, to the form
//! of `ibnetdiscover -p` and read by its parser.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use railscope_model::plan::PlanError;

use super::Source;
use crate::fabric::subnet::Subnet;

/// Gigabits per second of a lane as ibdiagnet prints them, and the name of the generation.
const LANES: [(&str, &str); 8] = [
    ("2.5", "SDR"),
    ("5", "DDR"),
    ("10", "QDR"),
    ("14", "FDR"),
    ("25", "EDR"),
    ("50", "HDR"),
    ("100", "NDR"),
    ("200", "XDR"),
];

/// Columns of a row, up to the description of the neighbor, which may contain colons.
const COLUMNS: usize = 13;

/// Whether a line is the heading of a block.
pub(super) fn is_heading(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ["ib#", "physsta", "neighbor guid"]
        .iter()
        .all(|column| line.contains(column))
}

/// A port of a switch.
struct Port<'a> {
    guid: &'a str,
    lid: &'a str,
    name: &'a str,
    /// The port as it is printed on the switch, and its number.
    label: &'a str,
    number: &'a str,
    state: &'a str,
    physical: &'a str,
    width: &'a str,
    lane: &'a str,
    far: Option<Far<'a>>,
}

/// What is at the other end.
struct Far<'a> {
    guid: &'a str,
    label: &'a str,
    lid: &'a str,
    name: &'a str,
}

/// Reads all blocks.
pub(super) fn read(source: &mut Source<'_>) -> Result<Box<Subnet>, Vec<PlanError>> {
    let ports = ports(source);
    // Neighbors are named by their label; the number of the port is in their own block.
    let labels: BTreeMap<(&str, &str), &str> = ports
        .iter()
        .map(|(_, port)| ((port.guid, port.label), port.number))
        .collect();
    let switches: BTreeMap<&str, ()> = ports.iter().map(|(_, port)| (port.guid, ())).collect();
    let mut text = String::new();
    for (_, port) in &ports {
        let far = port.far.as_ref().and_then(|far| {
            let number = labels.get(&(far.guid, far.label)).copied();
            let number =
                number.or_else(|| far.label.rsplit('/').next().filter(|part| is_number(part)))?;
            Some((far, number, switches.contains_key(far.guid)))
        });
        // Writing to a string does not fail.
        port.write(far, &mut text).ok();
    }
    for (line, port) in &ports {
        if port.far.is_none() && port.physical.eq_ignore_ascii_case("LINK UP") {
            let found = format!("{} port {} ({})", port.name, port.label, port.state);
            source.problem(
                *line,
                "port",
                &found,
                "a neighbor: the link is up, but no device answers",
            );
        }
    }
    let expected = "ports with a neighbor in blocks of switches";
    super::swept(source, &text, "no cable", expected)
}

/// The ports of all switches, with their lines.
fn ports<'a>(source: &mut Source<'a>) -> Vec<(usize, Port<'a>)> {
    let mut ports = Vec::new();
    let mut switch: Option<(&str, &str, &str)> = None;
    let text = source.text;
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.starts_with('"') {
            switch = block(line);
            if switch.is_none() {
                source.problem(
                    number,
                    "switch",
                    line,
                    "\"NAME\", VENDOR, 0xGUID, LID NUMBER",
                );
            }
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some(switch) = switch else {
            continue;
        };
        match row(line, switch) {
            Some(port) => ports.push((number, port)),
            None => source.problem(
                number,
                "port",
                line,
                "a row with the columns of its heading",
            ),
        }
    }
    ports
}

/// `"NAME", VENDOR, 0xGUID, LID NUMBER`: name, GUID and LID.
fn block(line: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = line.strip_prefix('"')?.split_once('"')?;
    let mut words = rest.trim_start_matches(',').split(',').map(str::trim);
    let (_, guid, lid) = (words.next()?, words.next()?, words.next()?);
    let lid = lid.strip_prefix("LID")?.trim();
    (guid.starts_with("0x") && is_number(lid)).then_some((name, guid, lid))
}

fn row<'a>(line: &'a str, (name, guid, lid): (&'a str, &'a str, &'a str)) -> Option<Port<'a>> {
    let mut cells = line.splitn(COLUMNS, ':').map(str::trim);
    let mut next = || cells.next();
    let (label, number, state, physical) = (next()?, next()?, next()?, next()?);
    let _mtu = next()?;
    let (width, lane) = (next()?, next()?);
    let (_fec, _retransmission) = (next(), next());
    let (far_guid, far_label, far_lid) = (next(), next(), next());
    let far_name = next().map(|name| name.trim_matches('"').trim());
    let far = far_guid
        .zip(far_label)
        .zip(far_name)
        .map(|((guid, label), name)| Far {
            guid,
            label,
            lid: far_lid.filter(|lid| is_number(lid)).unwrap_or("0"),
            name,
        })
        .filter(|far| far.guid.starts_with("0x"));
    is_number(number).then_some(Port {
        guid,
        lid,
        name,
        label,
        number,
        state,
        physical,
        width,
        lane,
        far,
    })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

impl Port<'_> {
    /// The port, and for a neighbor without a separate block the neighbor's view of the cable.
    fn write(&self, far: Option<(&Far<'_>, &str, bool)>, text: &mut String) -> std::fmt::Result {
        let plain = |name: &str| name.replace('\'', " ");
        let (lid, number, guid, name) = (self.lid, self.number, self.guid, plain(self.name));
        let Some((far, far_number, is_switch)) = far else {
            return writeln!(text, "SW {lid} {number} {guid} 4x ??? '{name}'");
        };
        let lane = LANES.iter().find(|(rate, _)| *rate == self.lane);
        let lane = lane.map_or("???", |(_, name)| name);
        let (width, far_name) = (self.width, plain(far.name));
        let (far_lid, far_guid) = (far.lid, far.guid);
        let kind = if is_switch { "SW" } else { "CA" };
        writeln!(
            text,
            "SW {lid} {number} {guid} {width} {lane} - {kind} {far_lid} {far_number} {far_guid} ( '{name}' - '{far_name}' )"
        )?;
        if is_switch {
            return Ok(());
        }
        writeln!(
            text,
            "CA {far_lid} {far_number} {far_guid} {width} {lane} - SW {lid} {number} {guid} ( '{far_name}' - '{name}' )"
        )
    }
}
