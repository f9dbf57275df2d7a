//! Virtual functions as their physical one sees them: the routing family's reply, or what `ip` prints of it.

use railscope_model::identity::Guid;
use serde_json::Value;

use crate::sources::netlink::{Attributes, Message, Request, fixed};
use crate::sources::sysfs::{Buffer, Dir, Miss};

/// `uapi/linux/rtnetlink.h` and `uapi/linux/if_link.h`.
mod link {
    /// `RTM_GETLINK` and its reply, `RTM_NEWLINK`.
    pub(super) const GET: u16 = 18;
    pub(super) const NEW: u16 = 16;
    /// `sizeof(struct ifinfomsg)`, and where it holds the interface's index.
    pub(super) const HEADER: usize = 16;
    pub(super) const INDEX: std::ops::Range<usize> = 4..8;
    /// `IFLA_EXT_MASK`: `RTEXT_FILTER_VF`. Not `RTEXT_FILTER_SKIP_STATS`, which leaves their counters out.
    pub(super) const EXT_MASK: u16 = 29;
    pub(super) const WITH_FUNCTIONS: u32 = 1;
    /// `IFLA_VFINFO_LIST`, and what it holds one of for each function.
    pub(super) const FUNCTIONS: u16 = 22;
    pub(super) const FUNCTION: u16 = 1;
    pub(super) const VLAN: u16 = 2;
    pub(super) const SPOOF_CHECK: u16 = 4;
    pub(super) const LINK_STATE: u16 = 5;
    pub(super) const RATE: u16 = 6;
    pub(super) const STATISTICS: u16 = 8;
    pub(super) const TRUST: u16 = 9;
    pub(super) const PORT_GUID: u16 = 11;
}

/// `IFLA_VF_STATS_*` -> the name that drivers' files have for it. The first six are as old as the message,
/// drops came with Linux 4.18.
const STATISTICS: &[(u16, &str)] = &[
    (0, "rx_packets"),
    (1, "tx_packets"),
    (2, "rx_bytes"),
    (3, "tx_bytes"),
    (4, "rx_broadcast"),
    (5, "rx_multicast"),
    (7, "rx_dropped"),
    (8, "tx_dropped"),
];

/// Where `ip -s -j link show` prints the same; the words of one row are all that versions of it had.
const PRINTED: &[(&str, &[&str], &str)] = &[
    ("rx", &["packets"], "rx_packets"),
    ("tx", &["tx_packets", "packets"], "tx_packets"),
    ("rx", &["bytes"], "rx_bytes"),
    ("tx", &["tx_bytes", "bytes"], "tx_bytes"),
    ("rx", &["broadcast"], "rx_broadcast"),
    ("rx", &["multicast"], "rx_multicast"),
    ("rx", &["dropped"], "rx_dropped"),
    ("tx", &["dropped"], "tx_dropped"),
];

/// Counters that only drivers' files have.
const ONLY_IN_FILES: [&str; 2] = ["tx_broadcast", "tx_multicast"];

/// `IFLA_VF_LINK_STATE_*`, by number.
const LINK_STATES: [&str; 3] = ["auto", "enable", "disable"];

/// Megabits per second, the unit of rate limits, in bytes per second.
const BYTES_PER_MEGABIT: u64 = 1_000_000 / 8;

/// Counters by the names that drivers' files have for them. Directions are the function's own.
pub type Counts = Vec<(&'static str, u64)>;

/// One virtual function. `None` where the driver does not report it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VirtualFunction {
    /// Its number at the physical function.
    pub number: u32,
    /// Whether it may change its address and listen to all traffic.
    pub trust: Option<bool>,
    /// Whether frames with an address that is not its own are dropped.
    pub spoof_check: Option<bool>,
    /// Its link: `auto` follows the port's, `enable` and `disable` do not.
    pub link_state: Option<&'static str>,
    /// The VLAN that it is confined to; 0 is none.
    pub vlan: Option<u32>,
    /// The most that it may send, bytes per second; 0 is no limit.
    pub max_transmit_bytes_per_second: Option<u64>,
    /// Its port's GUID, on InfiniBand.
    pub port_guid: Option<Guid>,
    /// Its counters. A kernel writes zeros for a driver that has none.
    pub counts: Counts,
}

/// The question about the interface of this index.
pub(super) fn question(index: u32) -> Request {
    let mut header = [0; link::HEADER];
    header[link::INDEX].copy_from_slice(&index.to_ne_bytes());
    Request::new(link::GET, &header).word(link::EXT_MASK, link::WITH_FUNCTIONS)
}

/// The functions in a reply; none where the driver reports nothing of any.
pub(super) fn answered(message: &Message<'_>, index: u32) -> Result<Vec<VirtualFunction>, Miss> {
    let about = message.payload.get(link::INDEX);
    if message.kind != link::NEW || about != Some(&index.to_ne_bytes()[..]) {
        return Err(Miss::Unparsed);
    }
    let attributes = message.attributes(link::HEADER)?;
    if attributes.get(link::FUNCTIONS).is_none() {
        return Ok(Vec::new());
    }
    // With some two hundred functions older kernels let the length of the list wrap.
    let list = attributes.inside(link::FUNCTIONS).ok_or(Miss::Unparsed)?;
    let functions = list.filter(|found| found.kind == link::FUNCTION);
    functions
        .map(|found| found.inside().and_then(function).ok_or(Miss::Unparsed))
        .collect()
}

/// Every setting is a structure that begins with the function's number.
fn function(about: Attributes<'_>) -> Option<VirtualFunction> {
    let word = |kind, at| {
        let bytes = fixed(about.get(kind)?.value, at)?;
        Some(u32::from_ne_bytes(bytes))
    };
    // -1 where the driver does not know the setting.
    let switch = |kind| match word(kind, 4)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    };
    let guid = |kind| {
        let bytes = fixed(about.get(kind)?.value, 8)?;
        Some(Guid(u64::from_ne_bytes(bytes))).filter(|guid| *guid != Guid(0))
    };
    let numbers = [link::VLAN, link::LINK_STATE, link::RATE];
    let statistics = about.inside(link::STATISTICS);
    Some(VirtualFunction {
        number: numbers.into_iter().find_map(|kind| word(kind, 0))?,
        trust: switch(link::TRUST),
        spoof_check: switch(link::SPOOF_CHECK),
        link_state: word(link::LINK_STATE, 4)
            .and_then(|state| LINK_STATES.get(usize::try_from(state).ok()?).copied()),
        vlan: word(link::VLAN, 4),
        max_transmit_bytes_per_second: word(link::RATE, 8).map(rate),
        port_guid: guid(link::PORT_GUID),
        counts: STATISTICS
            .iter()
            .filter_map(|(kind, name)| Some((*name, statistics?.number(*kind)?)))
            .collect(),
    })
}

fn rate(megabits: u32) -> u64 {
    u64::from(megabits) * BYTES_PER_MEGABIT
}

/// The functions in what `ip -s -j -d link show dev IF` prints.
pub(super) fn printed(text: &str) -> Option<Vec<VirtualFunction>> {
    let json: Value = serde_json::from_str(text).ok()?;
    let list = match json.get(0)?.get("vfinfo_list") {
        Some(list) => list.as_array()?,
        None => return Some(Vec::new()),
    };
    list.iter().map(printed_function).collect()
}

fn printed_function(json: &Value) -> Option<VirtualFunction> {
    let number = |value: &Value| u32::try_from(value.as_u64()?).ok();
    let state = json.get("link_state").and_then(Value::as_str);
    let vlans = json.get("vlan_list").unwrap_or(&Value::Null);
    let vlan = vlans.get(0).or(Some(json)).and_then(|it| it.get("vlan"));
    let guid = json.get("port guid").and_then(Value::as_str);
    let guid = guid.map(|guid| guid.replace(':', ""));
    let stats = json.get("stats").unwrap_or(&Value::Null);
    let count = |(direction, words, name): &(&str, &[&str], &'static str)| {
        let of = stats.get(direction)?;
        let value = words.iter().find_map(|word| of.get(word))?;
        Some((*name, value.as_u64()?))
    };
    Some(VirtualFunction {
        number: number(json.get("vf")?)?,
        trust: json.get("trust").and_then(Value::as_bool),
        spoof_check: json.get("spoofchk").and_then(Value::as_bool),
        link_state: LINK_STATES.into_iter().find(|word| state == Some(word)),
        // A VLAN of 0 is not printed.
        vlan: Some(vlan.and_then(number).unwrap_or(0)),
        max_transmit_bytes_per_second: json
            .get("rate")
            .and_then(|rate| number(rate.get("max_tx")?))
            .map(rate),
        port_guid: guid.and_then(|guid| u64::from_str_radix(&guid, 16).ok().map(Guid)),
        counts: PRINTED.iter().filter_map(count).collect(),
    })
}

/// The counters of a function from its physical function's directory, `sriov/N/stats`: one file with a line
/// each (mlx5_core of MLNX_OFED, bnxt_en of Broadcom) or a directory with a file each (Intel's packages).
/// No kernel has them. Unlike in a netlink reply, zeros here were counted.
///
/// # Errors
/// [`Miss::Absent`] where the driver has no such file.
pub fn counted(physical: &Dir, number: u32, buffer: &mut Buffer) -> Result<Counts, Miss> {
    let names = STATISTICS.iter().map(|(_, name)| *name);
    let names = names.chain(ONLY_IN_FILES);
    let function = physical.dir(&format!("sriov/{number}"))?;
    if let Ok(files) = function.dir("stats") {
        let count = |name| Some((name, files.file(name).count(buffer).ok()?));
        return Ok(names.filter_map(count).collect());
    }
    let text = function.text("stats", buffer)?;
    let rows = text.lines().map(|line| {
        let (name, count) = line.split_once(':')?;
        Some((name.trim(), count.trim().parse::<u64>().ok()?))
    });
    let rows: Option<Vec<_>> = rows.collect();
    let rows = rows.ok_or(Miss::Unparsed)?;
    let known = names.filter_map(|name| {
        let (_, count) = rows.iter().find(|(other, _)| *other == name)?;
        Some((name, *count))
    });
    Ok(known.collect())
}

#[cfg(test)]
mod tests;
