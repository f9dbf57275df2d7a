//! Reads `iblinkinfo` and ibdiagnet's `db_csv`. Both are converted, line by line, to the form of `ibnetdiscover -p` and read
//! by its parser.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use railscope_model::plan::PlanError;

use super::Source;
use crate::fabric::subnet::Subnet;

/// Rate of a lane in gigabits per second, and the name of the generation.
const LANES: [(&str, &str); 9] = [
    ("2.5", "SDR"),
    ("5.0", "DDR"),
    ("10.0", "QDR"),
    ("10.3125", "FDR10"),
    ("14.0625", "FDR"),
    ("25.78125", "EDR"),
    ("53.125", "HDR"),
    ("106.25", "NDR"),
    ("212.5", "XDR"),
];

/// The same as bits of PortInfo: base speeds, then extended speeds from 256 (ibdiagnet's `LinkSpeedActv`).
const SPEED_BITS: [(u32, &str); 9] = [
    (1, "SDR"),
    (2, "DDR"),
    (4, "QDR"),
    (256, "FDR"),
    (512, "EDR"),
    (1024, "HDR"),
    (2048, "NDR"),
    (4096, "XDR"),
    (65536, "FDR10"),
];

/// Whether a line is one of `iblinkinfo`.
pub(super) fn is_linkinfo(line: &str) -> bool {
    line.contains("==(") && line.contains(")==>")
}

/// Reads `iblinkinfo`, with blocks or in lines (`-l`).
pub(super) fn read_linkinfo(source: &mut Source<'_>) -> Result<Box<Subnet>, Vec<PlanError>> {
    let lines = links(source.text);
    // Without `-l` the far end has no GUID; its LID identifies the node.
    let mut by_lid: BTreeMap<&str, (&str, bool)> = BTreeMap::new();
    for link in lines.iter().flatten() {
        by_lid.insert(link.lid, (link.guid, link.is_switch));
    }
    let mut text = String::new();
    for link in &lines {
        if let Some(link) = link {
            // Writing to a string does not fail.
            link.write(&by_lid, &mut text).ok();
        }
        text.push('\n');
    }
    finish(source, &text)
}

/// A line of `iblinkinfo`.
struct Link<'a> {
    is_switch: bool,
    guid: &'a str,
    name: &'a str,
    lid: &'a str,
    port: &'a str,
    /// Width and generation; `None` if the port is down.
    speed: Option<(&'a str, &'static str)>,
    /// LID, port, name and GUID of the far end.
    far: Option<(&'a str, &'a str, &'a str, Option<&'a str>)>,
}

/// The links, one entry for each line.
fn links(text: &str) -> Vec<Option<Link<'_>>> {
    let mut block: Option<(bool, &str, &str)> = None;
    let link = |line| {
        let line: &str = line;
        let trimmed = line.trim();
        if let Some(rest) = trimmed
            .strip_prefix("Switch:")
            .or_else(|| trimmed.strip_prefix("Switch "))
        {
            let (guid, name) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
            block = Some((
                true,
                guid,
                name.trim().trim_end_matches(':').trim_matches('"'),
            ));
            return None;
        }
        if let Some(name) = trimmed
            .strip_prefix("CA:")
            .or_else(|| trimmed.strip_prefix("CA "))
        {
            block = Some((
                false,
                "",
                name.trim().trim_end_matches(':').trim_matches('"'),
            ));
            return None;
        }
        read_link(trimmed, block)
    };
    text.lines().map(link).collect()
}

fn read_link<'a>(line: &'a str, block: Option<(bool, &'a str, &'a str)>) -> Option<Link<'a>> {
    let (near, rest) = line.split_once("==(")?;
    let (middle, far) = rest.split_once(")==>")?;
    let mut near = near.trim();
    let (mut is_switch, mut guid, mut name) = block.unwrap_or((true, "", ""));
    // A CA's lines and all lines of `-l` begin with the GUID; lines of `-l` continue with the name.
    if near.starts_with("0x") {
        let (own, behind) = near.split_once(char::is_whitespace)?;
        guid = own;
        near = behind.trim();
        if let Some(quoted) = near.strip_prefix('"') {
            let (own, behind) = quoted.split_once('"')?;
            name = own.trim();
            near = behind.trim();
            // Only names of adapters contain a device.
            is_switch = crate::fabric::graph::names::host_and_device(name).is_none();
        }
    }
    let mut words = near.split_whitespace();
    let (lid, port) = (words.next()?, words.next()?);
    let port = port.split('[').next().unwrap_or(port);
    Some(Link {
        is_switch,
        guid,
        name,
        lid,
        port,
        speed: speed(middle),
        far: far_end(far),
    })
}

fn speed(middle: &str) -> Option<(&str, &'static str)> {
    let mut words = middle.split_whitespace();
    let (width, lane) = (words.next()?, words.next()?);
    let named = LANES
        .iter()
        .find(|(number, _)| *number == lane.trim_end_matches("Gbps"));
    let width = width.strip_suffix(['X', 'x'])?;
    Some((width, named?.1))
}

fn far_end(far: &str) -> Option<(&str, &str, &str, Option<&str>)> {
    let (numbers, rest) = far.split_once('"')?;
    let (name, _) = rest.rsplit_once('"')?;
    let mut words = numbers.split_whitespace();
    let mut first = words.next()?;
    let guid = first.starts_with("0x").then_some(first);
    if guid.is_some() {
        first = words.next()?;
    }
    let port = words.next()?.split('[').next()?;
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit()) && !word.is_empty();
    (is_number(first) && is_number(port)).then_some((first, port, name.trim(), guid))
}

impl Link<'_> {
    fn write(&self, by_lid: &BTreeMap<&str, (&str, bool)>, text: &mut String) -> std::fmt::Result {
        let kind = |is_switch| if is_switch { "SW" } else { "CA" };
        let plain = |name: &str| name.replace('\'', " ");
        let (own, guid, name) = (kind(self.is_switch), self.guid, plain(self.name));
        let (Some((width, lane)), Some((lid, port, far, far_guid))) = (self.speed, self.far) else {
            return write!(
                text,
                "{own} {} {} {guid} 4x ??? '{name}'",
                self.lid, self.port
            );
        };
        let known = by_lid.get(lid);
        let is_switch = known.is_none_or(|(_, is_switch)| *is_switch);
        let Some(far_guid) = far_guid.or(known.map(|(guid, _)| *guid)) else {
            return Ok(());
        };
        write!(
            text,
            "{own} {} {} {guid} {width}x {lane} - {} {lid} {port} {far_guid} ( '{name}' - '{}' )",
            self.lid,
            self.port,
            kind(is_switch),
            plain(far)
        )
    }
}

/// Reads the sections NODES, LINKS and PORTS of ibdiagnet's `db_csv`.
pub(super) fn read_db_csv(source: &mut Source<'_>) -> Result<Box<Subnet>, Vec<PlanError>> {
    let tables = Tables::of(source);
    let links = Section::of(source.text, "LINKS");
    let mut text = String::new();
    for (line, row) in &links.rows {
        let names = ["NodeGuid1", "PortNum1", "NodeGuid2", "PortNum2"];
        let [Some(a), Some(a_port), Some(b), Some(b_port)] =
            names.map(|name| links.cell(row, name))
        else {
            let expected = "NodeGuid1, PortNum1, NodeGuid2 and PortNum2";
            source.problem(*line, "LINKS", &row.join(","), expected);
            continue;
        };
        // Writing to a string does not fail.
        tables.write((a, a_port), (b, b_port), &mut text).ok();
        tables.write((b, b_port), (a, a_port), &mut text).ok();
    }
    if text.is_empty() {
        let expected = "START_LINKS with NodeGuid1,PortNum1,NodeGuid2,PortNum2";
        return Err(vec![source.error(1, "LINKS", "no cable", expected)]);
    }
    finish(source, &text)
}

/// The nodes and ports of `db_csv`.
struct Tables<'a> {
    /// Kind and description by GUID.
    nodes: BTreeMap<&'a str, (&'a str, &'a str)>,
    /// Width with speed, and LID, by GUID and port.
    ports: BTreeMap<(&'a str, &'a str), (String, &'a str)>,
}

impl<'a> Tables<'a> {
    fn of(source: &mut Source<'a>) -> Self {
        let section = Section::of(source.text, "NODES");
        let mut nodes = BTreeMap::new();
        for (line, row) in &section.rows {
            let cell = |name| section.cell(row, name);
            match (cell("NodeGUID"), cell("NodeType"), cell("NodeDesc")) {
                (Some(guid), Some(kind), Some(name)) => drop(nodes.insert(guid, (kind, name))),
                _ => {
                    let expected = "NodeGUID, NodeType and NodeDesc";
                    source.problem(*line, "NODES", &row.join(","), expected);
                }
            }
        }
        let section = Section::of(source.text, "PORTS");
        let mut ports = BTreeMap::new();
        for (_, row) in &section.rows {
            let end = section
                .cell(row, "NodeGuid")
                .zip(section.cell(row, "PortNum"));
            if let Some(end) = end {
                let lid = section.cell(row, "LID").unwrap_or("0");
                ports.insert(end, (active(&section, row), lid));
            }
        }
        Self { nodes, ports }
    }

    /// One end's view of a cable.
    fn write(&self, own: (&str, &str), far: (&str, &str), text: &mut String) -> std::fmt::Result {
        let kind = |guid| match self.nodes.get(guid).map(|(kind, _)| *kind) {
            Some("1") => "CA",
            Some("3") => "RT",
            _ => "SW",
        };
        let name = |guid| {
            let name = self.nodes.get(guid).map_or("", |(_, name)| *name);
            name.replace('\'', " ")
        };
        let lid = |end| self.ports.get(&end).map_or("0", |(_, lid)| *lid);
        let speed = self.ports.get(&own).map_or("4x ???", |(speed, _)| speed);
        writeln!(
            text,
            "{} {} {} {} {speed} - {} {} {} {} ( '{}' - '{}' )",
            kind(own.0),
            lid(own),
            own.1,
            own.0,
            kind(far.0),
            lid(far),
            far.1,
            far.0,
            name(own.0),
            name(far.0)
        )
    }
}

/// Width and speed of a port, such as `4x HDR`; `4x ???` if ibdiagnet does not report it.
fn active(ports: &Section<'_>, row: &[&str]) -> String {
    let number = |name: &str| {
        ports
            .cell(row, name)
            .and_then(|text| text.parse::<u32>().ok())
    };
    let width = match number("LinkWidthActv") {
        Some(1) => "1x",
        Some(4) => "8x",
        Some(8) => "12x",
        Some(16) => "2x",
        _ => "4x",
    };
    let bits = number("LinkSpeedActv").unwrap_or(0);
    let lane = SPEED_BITS.iter().rev().find(|(bit, _)| bits & bit != 0);
    format!("{width} {}", lane.map_or("???", |(_, lane)| lane))
}

/// A section of `db_csv`: `START_NAME`, a heading, rows, `END_NAME`.
#[derive(Default)]
struct Section<'a> {
    columns: Vec<&'a str>,
    rows: Vec<(usize, Vec<&'a str>)>,
}

impl<'a> Section<'a> {
    fn of(text: &'a str, name: &str) -> Self {
        let mut section = Self::default();
        let lines = (1..).zip(text.lines());
        let mut lines = lines
            .skip_while(|(_, line)| line.trim().strip_prefix("START_") != Some(name))
            .skip(1);
        let Some((_, heading)) = lines.next() else {
            return section;
        };
        section.columns = heading.split(',').map(str::trim).collect();
        for (number, line) in lines.take_while(|(_, line)| !line.trim().starts_with("END_")) {
            if !line.trim().is_empty() {
                section.rows.push((number, cells(line)));
            }
        }
        section
    }

    fn cell(&self, row: &[&'a str], name: &str) -> Option<&'a str> {
        let place = self
            .columns
            .iter()
            .position(|column| column.eq_ignore_ascii_case(name))?;
        row.get(place).copied().filter(|cell| !cell.is_empty())
    }
}

/// Cells of a row; quoted cells can contain commas.
fn cells(line: &str) -> Vec<&str> {
    let mut cells = Vec::new();
    let mut rest = line.trim();
    loop {
        let (cell, behind) = match rest
            .strip_prefix('"')
            .and_then(|quoted| quoted.split_once('"'))
        {
            Some((cell, behind)) => (cell, behind.strip_prefix(',')),
            None => match rest.split_once(',') {
                Some((cell, behind)) => (cell, Some(behind)),
                None => (rest, None),
            },
        };
        cells.push(cell.trim());
        match behind {
            Some(behind) => rest = behind,
            None => return cells,
        }
    }
}

fn finish(source: &mut Source<'_>, text: &str) -> Result<Box<Subnet>, Vec<PlanError>> {
    super::swept(source, text, "no link that is up", "links between nodes")
}

/// Names by GUID, as opensm's `--node-name-map` has them: `0x0002c90300000001 "leaf-1"`.
pub struct NodeNames(BTreeMap<u64, String>);

impl NodeNames {
    /// Reads the map.
    ///
    /// # Errors
    /// Every line that is not a GUID and a name.
    pub fn read(file: &str, text: &str) -> Result<Self, Vec<PlanError>> {
        let source = Source::new(file, text);
        let (mut names, mut errors) = (BTreeMap::new(), Vec::new());
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let (guid, name) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let name = name.trim().trim_matches('"').trim();
            // Without 0x a word such as "a" would be a GUID, unless it has all digits.
            let digits = guid.strip_prefix("0x");
            let digits = digits.or_else(|| (guid.len() == 16).then_some(guid));
            let guid = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
            match guid.filter(|_| !name.is_empty()) {
                Some(guid) => drop(names.insert(guid, name.to_owned())),
                None => errors.push(source.error(
                    number,
                    "node name map",
                    line,
                    "a GUID such as 0x0002c90300000001 and a name in quotes",
                )),
            }
        }
        if errors.is_empty() {
            Ok(Self(names))
        } else {
            Err(errors)
        }
    }

    /// Sets the names of nodes from the map; an adapter keeps its device. Returns the number of renamed nodes.
    pub fn apply(&self, subnet: &mut Subnet) -> usize {
        let mut named = 0;
        for node in &mut subnet.nodes {
            if let Some(name) = self.0.get(&node.guid.0) {
                let device = crate::fabric::graph::names::host_and_device(&node.description);
                node.description = match device {
                    Some((_, device)) if !name.contains(device) => format!("{name} {device}"),
                    _ => name.clone(),
                };
                named += 1;
            }
        }
        named
    }
}
