//! One line of `ibnetdiscover` text, taken apart without knowing the lines around it.

use railscope_model::identity::Guid;
use railscope_model::units::LinkSpeed;

use super::NodeKind;
use super::cursor::{Cursor, Flaw, NodeId, decimal, hex};

/// A node that the line names, with what the line contains.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named<'a> {
    pub(super) id: NodeId<'a>,
    pub(super) kind: NodeKind,
    pub(super) port: u16,
    pub(super) lid: Option<u16>,
    pub(super) description: Option<&'a str>,
}

/// What a line reports.
#[derive(Debug)]
pub(super) enum Line<'a> {
    Blank,
    Comment(&'a str),
    /// `vendid=0x2c9`
    Vendor(u32),
    /// `devid=0xd2f0`
    Device(u32),
    /// `sysimgguid=0x…`
    System(Guid),
    /// `switchguid=0x…(…)`, `caguid=0x…`, `rtguid=0x…`
    NodeGuid(Guid),
    /// `Switch 41 "S-…" # "…" enhanced port 0 lid 1 lmc 0`; the port is the number of ports.
    Node(Named<'a>),
    /// `[1] "S-…"[2] # "…" lid 3 4xHDR`: near port, its lid, far end, speed.
    Port {
        port: u16,
        lid: Option<u16>,
        peer: Named<'a>,
        speed: Option<LinkSpeed>,
    },
    /// A line of the `-p` form.
    Report {
        near: Named<'a>,
        peer: Option<Named<'a>>,
        speed: Option<LinkSpeed>,
    },
}

/// Titles that `ibnetdiscover -g` prints above the nodes of a chassis.
fn is_title(line: &str) -> bool {
    line.starts_with("Chassis ") || line == "Non-Chassis Nodes"
}

/// Reads one line. Flaws that leave the rest of the line usable go to `flaws`.
///
/// # Errors
/// A line that cannot be used at all: the first thing in it that is wrong.
pub(super) fn read<'a>(text: &'a str, flaws: &mut Vec<Flaw<'a>>) -> Result<Line<'a>, Flaw<'a>> {
    let line = text.trim_end();
    let rest = line.trim_start();
    let mut cursor = Cursor { line, rest };
    let Some(first) = rest.bytes().next() else {
        return Ok(Line::Blank);
    };
    match first {
        b'[' => read_port(&mut cursor, flaws),
        b'#' => Ok(Line::Comment(rest[1..].trim())),
        _ if is_title(rest) => Ok(Line::Comment(rest)),
        b'a'..=b'z' => read_key(&cursor),
        _ => {
            let flaw = cursor.flaw(
                "line",
                "a node, a port, a key=value or a comment of ibnetdiscover",
            );
            match cursor.word() {
                "Switch" => read_node(&mut cursor, NodeKind::Switch, flaws),
                "Ca" | "Hca" => read_node(&mut cursor, NodeKind::Ca, flaws),
                "Rt" | "Router" => read_node(&mut cursor, NodeKind::Router, flaws),
                "SW" => read_report(&mut cursor, NodeKind::Switch, flaws),
                "CA" => read_report(&mut cursor, NodeKind::Ca, flaws),
                "RT" => read_report(&mut cursor, NodeKind::Router, flaws),
                _ => Err(flaw),
            }
        }
    }
}

fn read_key<'a>(cursor: &Cursor<'a>) -> Result<Line<'a>, Flaw<'a>> {
    let flaw = cursor.flaw(
        "line",
        "a node, a port, a key=value or a comment of ibnetdiscover",
    );
    let (key, value) = cursor.rest.split_once('=').ok_or(flaw)?;
    // `-g` puts remarks behind the value, and a switch's port GUID is in parentheses behind its own.
    let value = value
        .split(|char: char| char.is_whitespace() || char == '(')
        .next()
        .unwrap_or_default();
    let in_value = |field, expected| Flaw {
        column: flaw.column + key.len() + 1,
        field,
        expected,
        found: &cursor.rest[key.len() + 1..],
    };
    let guid = |field| {
        value
            .parse::<Guid>()
            .map_err(|_| in_value(field, "a GUID such as 0x1c34da0300728866"))
    };
    let id = |field| hex(value).ok_or_else(|| in_value(field, "a hexadecimal id such as 0x2c9"));
    match key {
        "vendid" => id("vendor id").map(Line::Vendor),
        "devid" => id("device id").map(Line::Device),
        "sysimgguid" => guid("system image GUID").map(Line::System),
        "switchguid" | "caguid" | "rtguid" => guid("node GUID").map(Line::NodeGuid),
        _ => Err(flaw),
    }
}

fn read_node<'a>(
    cursor: &mut Cursor<'a>,
    kind: NodeKind,
    flaws: &mut Vec<Flaw<'a>>,
) -> Result<Line<'a>, Flaw<'a>> {
    let ports = cursor.number("number of ports", "a number of ports")?;
    let (id, _) = cursor.node_id()?;
    let mut node = Named {
        id,
        kind,
        port: ports,
        lid: None,
        description: None,
    };
    cursor.skip_space();
    if cursor.rest.is_empty() {
        return Ok(Line::Node(node)); // a hand-written netfile of ibsim
    }
    cursor.need('#', "description", "# and a description")?;
    match cursor.description() {
        Ok(description) => node.description = Some(description),
        Err(flaw) => {
            flaws.push(flaw);
            return Ok(Line::Node(node));
        }
    }
    // A switch reports the lid of its port 0 here; a CA reports one per port.
    if kind == NodeKind::Switch && cursor.word() != "" {
        match read_switch_lid(cursor) {
            Ok(lid) => node.lid = Some(lid),
            Err(flaw) => flaws.push(flaw),
        }
    }
    Ok(Line::Node(node))
}

/// `port 0 lid 1600 lmc 0`, behind the word `enhanced` or `base`. A lid at the very end may have lost
/// digits with the rest of the line, so the `lmc` must follow.
fn read_switch_lid<'a>(cursor: &mut Cursor<'a>) -> Result<u16, Flaw<'a>> {
    let flaw = cursor.flaw("lid", "port 0 lid N lmc N");
    let (port, zero) = (cursor.word(), cursor.word());
    let lid = (cursor.word() == "lid")
        .then(|| decimal(cursor.word()))
        .flatten();
    let whole = (port, zero) == ("port", "0") && cursor.word() == "lmc";
    lid.filter(|_| whole).ok_or(flaw)
}

fn read_port<'a>(cursor: &mut Cursor<'a>, flaws: &mut Vec<Flaw<'a>>) -> Result<Line<'a>, Flaw<'a>> {
    let port = cursor.port("port")?;
    skip_external_port(cursor)?;
    cursor.port_guid()?;
    let (id, kind) = cursor.node_id()?;
    let peer_port = cursor.port("far port")?;
    skip_external_port(cursor)?;
    cursor.port_guid()?;
    let mut peer = Named {
        id,
        kind,
        port: peer_port,
        lid: None,
        description: None,
    };
    let mut lid = None;
    let mut speed = None;
    cursor.skip_space();
    if cursor.eat('#') {
        cursor.skip_space();
        if !cursor.rest.starts_with('"') {
            // A CA reports its own lid before the far end's description.
            lid = read_own_lid(cursor, flaws);
        }
        match cursor.description() {
            Ok(description) => {
                peer.description = Some(description);
                (peer.lid, speed) = read_attributes(cursor, flaws);
            }
            Err(flaw) => flaws.push(flaw),
        }
    } else if !cursor.rest.is_empty() {
        flaws.push(cursor.flaw("link", "# and the far end's description"));
    }
    Ok(Line::Port {
        port,
        lid,
        peer,
        speed,
    })
}

/// `[ext 5]`: the number on the front panel, which `-g` adds behind a port.
fn skip_external_port<'a>(cursor: &mut Cursor<'a>) -> Result<(), Flaw<'a>> {
    if cursor.rest.starts_with("[ext ") {
        let flaw = cursor.flaw("external port", "an external port such as [ext 5]");
        cursor.until(']').map(|_| ()).ok_or(flaw)
    } else {
        Ok(())
    }
}

fn read_own_lid<'a>(cursor: &mut Cursor<'a>, flaws: &mut Vec<Flaw<'a>>) -> Option<u16> {
    let flaw = cursor.flaw("lid", "lid N lmc N");
    let lid = (cursor.word() == "lid")
        .then(|| decimal(cursor.word()))
        .flatten();
    let lmc = (cursor.word() == "lmc")
        .then(|| decimal(cursor.word()))
        .flatten();
    let lid = lid.filter(|_| lmc.is_some());
    if lid.is_none() {
        flaws.push(flaw);
    }
    lid
}

/// `lid 226 4xHDR s=4 w=2 v=4 e=4`: what stands behind the description of a far end.
fn read_attributes<'a>(
    cursor: &mut Cursor<'a>,
    flaws: &mut Vec<Flaw<'a>>,
) -> (Option<u16>, Option<LinkSpeed>) {
    let (mut lid, mut speed, mut speed_seen) = (None, None, false);
    let end = cursor.flaw("speed", "a width and speed such as 4xHDR");
    loop {
        cursor.skip_space();
        let flaw = cursor.flaw("link", "lid N and a width and speed such as 4xHDR");
        let word = cursor.word();
        match word {
            "" => break,
            "lid" => match decimal(cursor.word()) {
                Some(number) => lid = Some(number),
                None => flaws.push(flaw),
            },
            "slot" => match decimal(cursor.word()) {
                Some(_) => {}
                None => flaws.push(flaw),
            },
            "(scp)" => {}
            // `-f` adds the raw fields of PortInfo.
            _ if matches!(word.as_bytes(), [b's' | b'w' | b'v' | b'e', b'=', ..]) => {}
            _ if !speed_seen => {
                speed_seen = true;
                speed = word.parse().ok();
                if speed.is_none() {
                    flaws.push(Flaw {
                        field: "speed",
                        expected: end.expected,
                        ..flaw
                    });
                }
            }
            _ => {
                flaws.push(flaw);
                break;
            }
        }
    }
    if !speed_seen {
        flaws.push(end);
    }
    (lid, speed)
}

/// `134  1 0x7cfe9003003b4bde 4x EDR - SW  1719 10 0x7cfe9003009ce5b0 ( 'o0001 HCA-1' - 'ib-i1l1s01' )`
fn read_report<'a>(
    cursor: &mut Cursor<'a>,
    kind: NodeKind,
    flaws: &mut Vec<Flaw<'a>>,
) -> Result<Line<'a>, Flaw<'a>> {
    let mut near = read_report_end(cursor, kind)?;
    cursor.skip_space();
    let flaw = cursor.flaw("speed", "a width and speed such as 4x EDR");
    let (width, speed) = (cursor.word(), cursor.word());
    let known = format!("{width}{speed}").parse::<LinkSpeed>().ok();
    cursor.skip_space();
    if !cursor.eat('-') {
        // A port without a cable has no meaningful speed, and tools print `???` for it.
        match quoted_name(cursor.rest) {
            Some(name) => near.description = Some(name),
            None => flaws.push(cursor.flaw("description", "a description in single quotes")),
        }
        return Ok(Line::Report {
            near,
            peer: None,
            speed: known,
        });
    }
    if known.is_none() {
        flaws.push(flaw);
    }
    let kind = match cursor.word() {
        "SW" => NodeKind::Switch,
        "CA" => NodeKind::Ca,
        "RT" => NodeKind::Router,
        _ => return Err(cursor.flaw("far end", "SW, CA or RT")),
    };
    let mut peer = read_report_end(cursor, kind)?;
    cursor.skip_space();
    match report_names(cursor.rest) {
        Some((name, peer_name)) => {
            near.description = Some(name);
            peer.description = Some(peer_name);
        }
        None => flaws.push(cursor.flaw("descriptions", "( 'near end' - 'far end' )")),
    }
    Ok(Line::Report {
        near,
        peer: Some(peer),
        speed: known,
    })
}

fn read_report_end<'a>(cursor: &mut Cursor<'a>, kind: NodeKind) -> Result<Named<'a>, Flaw<'a>> {
    let lid = cursor.number("lid", "a lid")?;
    let port = cursor.number("port", "a port number")?;
    let flaw = cursor.flaw("GUID", "a GUID such as 0x1c34da0300728866");
    let word = cursor.word();
    let guid = word.strip_prefix("0x").and(word.parse::<Guid>().ok());
    Ok(Named {
        id: NodeId::Guid(guid.ok_or(flaw)?.0),
        kind,
        port,
        lid: Some(lid),
        description: None,
    })
}

fn quoted_name(text: &str) -> Option<&str> {
    let name = text.trim().strip_prefix('\'')?.strip_suffix('\'')?;
    Some(name.trim())
}

/// Both names, if there is only one possible split.
fn report_names(text: &str) -> Option<(&str, &str)> {
    const BETWEEN: &str = "' - '";
    let inner = text.trim().strip_prefix("( '")?.strip_suffix("' )")?;
    let (near, far) = inner.split_once(BETWEEN)?;
    (!far.contains(BETWEEN)).then(|| (near.trim(), far.trim()))
}
