//! The device at the far end of a cable, by the names and addresses that LLDP reports about it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::OnceLock;

use foldhash::fast::FixedState;
use railscope_model::identity::{NodeName, PortWord, SwitchName, without_domain};

use super::{End, Heard, Interfaces, Mac, SwitchNumber, SwitchPorts, SwitchWords, Words};

/// System names that report nothing: those of a machine without a name.
const NO_NAMES: [&str; 4] = ["localhost", "localhost.localdomain", "(none)", "switch"];
/// How names of management ports begin, before their number: NX-OS and Dell, EOS, Junos, most others.
const MANAGEMENT: [&str; 5] = ["mgmt", "ma", "management", "fxp", "oob"];
/// The same in a switch's terms: `eth0` of Cumulus and SONiC, Junos. A host may call a NIC so.
const OWN_MANAGEMENT: [&str; 3] = ["eth", "em", "me"];

/// The far end of a cable.
#[derive(Debug, PartialEq)]
pub(super) enum Far {
    /// A port of a known switch or NIC.
    End(End),
    /// A host, where a switch was looked for, or another port of a host than those of its NICs.
    Host,
    /// A management network.
    Management,
    /// Neither a known host nor a switch, as it calls itself.
    Stranger(String),
    /// A port without a name that can be one.
    Unreadable,
}

/// What is known of the far end by names that were reported beforehand.
#[derive(Debug)]
pub(super) enum Known<'a> {
    /// All of it.
    Far(Far),
    /// The switch, and what a port of it is called that the switch itself does not report about.
    Port(SwitchNumber, PortWord<'a>),
}

/// Names by which far ends are found: the full name, and the first label where only one has it.
pub(super) type Names<T> = HashMap<String, Option<T>, FixedState>;

/// Everything that is known of names.
#[derive(Debug)]
pub(super) struct Resolver<'a> {
    words: &'a Words<'a>,
    /// Switches and ports, more of them with every far end.
    pub(super) ports: SwitchPorts,
    hosts: Names<&'a Interfaces<'a>>,
    addresses: HashMap<Mac, End, FixedState>,
    speakers: Names<SwitchNumber>,
    /// Names that several switches have: one port of that name is on several chassis. Not used where all switches
    /// report their neighbors.
    ambiguous: OnceLock<HashSet<&'a str, FixedState>>,
    /// Switches as NICs report them.
    leaves: HashSet<SwitchNumber, FixedState>,
}

impl<'a> Resolver<'a> {
    pub(super) fn of(words: &'a Words<'a>, ports: SwitchPorts) -> Self {
        let hosts = words.hosts.iter();
        let addresses = hosts.clone().flat_map(|host| &host.addresses);
        let speakers = ports.speakers();
        Self {
            words,
            addresses: addresses.copied().collect(),
            hosts: names(hosts.map(|host| (host.host.as_str(), &host.interfaces))),
            speakers: names(speakers.map(|(switch, name)| (name.as_str(), switch))),
            ports,
            ambiguous: OnceLock::new(),
            leaves: HashSet::default(),
        }
    }

    /// The device at the other end, by the names of those that report themselves. None of one that
    /// does not.
    pub(super) fn known(&self, heard: &Heard<'a>) -> Option<Known<'a>> {
        let near = match heard.near {
            End::Nic(..) => None,
            End::Switch(switch, port) => Some(self.ports.names(switch, port).1),
        };
        // A DPU reports its name to its own host through the representor of the host's function.
        if is_representor(heard.said.port()) || is_representor(heard.said.description()) {
            return Some(Known::Far(Far::Host));
        }
        let own = |port: PortWord<'_>| is_management(port, &[&MANAGEMENT[..], &OWN_MANAGEMENT]);
        if near.is_some_and(|port| own(port.as_word())) {
            return Some(Known::Far(Far::Management));
        }
        if let Some(speaker) = find(&self.speakers, heard.said.system()) {
            return Some(self.port_of(speaker, heard));
        }
        let host = find(&self.hosts, heard.said.system());
        match (host, self.nic(host, heard)) {
            (_, Some(nic)) if near.is_some() => Some(Known::Far(Far::End(nic))),
            (None, None) => None,
            _ => Some(Known::Far(Far::Host)),
        }
    }

    /// The full search. NICs are tried before switches: what they receive is a switch, whatever else is known of
    /// it.
    pub(super) fn far(&mut self, heard: &Heard<'a>, known: Option<Known<'a>>) -> Far {
        match known.unwrap_or_else(|| self.silent(heard)) {
            Known::Far(far) => far,
            Known::Port(switch, port) => {
                let end = self.ports.port(switch, port);
                end.map_or(Far::Unreadable, Far::End)
            }
        }
    }

    /// A device that does not report its neighbors.
    fn silent(&mut self, heard: &Heard<'a>) -> Known<'a> {
        let switch = match self.silent_switch(heard) {
            Ok(switch) => switch,
            Err(far) => return Known::Far(far),
        };
        let port = self.port_of(switch, heard);
        if let (End::Nic(..), Known::Port(..)) = (heard.near, &port) {
            self.leaves.insert(switch);
        }
        port
    }

    /// A switch that does not report its neighbors. By its system name; where several switches have it, with
    /// the chassis id; where there is none, by that.
    fn silent_switch(&mut self, heard: &Heard<'a>) -> Result<SwitchNumber, Far> {
        let system = heard.said.system().trim();
        let chassis = Chassis::of(heard);
        let ambiguous = self.ambiguous.get_or_init(|| ambiguous(self.words));
        let name = if !is_name(system) {
            Cow::Owned(chassis.to_string())
        } else if ambiguous.contains(system) {
            Cow::Owned(format!("{system}@{chassis}"))
        } else {
            Cow::Borrowed(system)
        };
        let known = self.ports.find(&name);
        let is_switch = matches!(heard.near, End::Nic(..))
            || heard.said.forwards() == Some(true)
            || known.is_some_and(|switch| self.leaves.contains(&switch));
        if let Some(known) = known.filter(|_| is_switch) {
            return Ok(known);
        }
        match name.parse::<SwitchName>() {
            Ok(name) if is_switch => Ok(self.ports.switch(&name)),
            Ok(name) => Err(Far::Stranger(name.to_string())),
            Err(_) => Err(Far::Unreadable),
        }
    }

    /// The port of a NIC that the far end calls by the host's interface or by its MAC address.
    fn nic(&self, host: Option<&Interfaces<'_>>, heard: &Heard<'_>) -> Option<End> {
        let by_interface = host.and_then(|host| {
            let port = host.get(heard.said.port());
            port.or_else(|| host.get(heard.said.description()))
        });
        let by_address = || self.addresses.get(&Mac::read(heard.said.port())?);
        by_interface.or_else(by_address).copied()
    }

    /// The far port as its switch calls it, as far as that is known. Many daemons give a MAC address as port
    /// id and the interface as description, lldpd among them; SONiC gives an alias and the interface.
    fn port_of(&self, switch: SwitchNumber, heard: &Heard<'a>) -> Known<'a> {
        let port = PortWord::read(heard.said.port()).ok();
        let description = || PortWord::read(heard.said.description()).ok();
        let own = |word: Option<PortWord<'a>>| Some((word?, self.ports.own(switch, word?)?));
        let management = |word| is_management(word, &[&MANAGEMENT[..]]);
        if let Some((word, end)) = own(port).or_else(|| own(description())) {
            let far = if management(word) {
                Far::Management
            } else {
                Far::End(end)
            };
            return Known::Far(far);
        }
        let has_space = heard
            .said
            .description()
            .trim()
            .contains(char::is_whitespace);
        let is_described = (port.is_none() || Mac::read(heard.said.port()).is_some()) && !has_space;
        let word = if is_described {
            description().or(port)
        } else {
            port
        };
        match word {
            Some(word) if management(word) => Known::Far(Far::Management),
            Some(word) => Known::Port(switch, word),
            None => Known::Far(Far::Unreadable),
        }
    }
}

/// Interfaces of hosts that switches have as neighbors.
pub type Neighbors<'a> = BTreeMap<&'a NodeName, Vec<&'a str>>;

/// The neighbors of switches, of these hosts alone. Many daemons give a MAC address as port and the interface as description.
pub fn neighbors_of_switches<'a>(
    words: &SwitchWords<'a>,
    hosts: impl Iterator<Item = &'a NodeName>,
) -> Neighbors<'a> {
    let hosts = names(hosts.map(|host| (host.as_str(), host)));
    let mut neighbors = Neighbors::new();
    for said in words.heard.iter().map(|heard| heard.said) {
        if let Some(host) = find(&hosts, said.system()) {
            let interfaces = neighbors.entry(host).or_default();
            interfaces.extend([said.port(), said.description()]);
        }
    }
    neighbors
}

/// Chassis ids that several names share: a daemon that distinguishes neighbors by it mixes them up.
pub(super) fn shared_chassis(words: &Words<'_>) -> Vec<(String, Vec<String>)> {
    let mut first: HashMap<Chassis<'_>, &str, FixedState> = HashMap::default();
    let mut shared: BTreeMap<Chassis<'_>, BTreeSet<&str>> = BTreeMap::new();
    for heard in words.heard() {
        let (chassis, system) = (Chassis::of(heard), heard.said.system());
        if !is_name(system) || heard.said.chassis().is_empty() {
            continue;
        }
        let first = *first.entry(chassis).or_insert(system);
        if first != system {
            shared.entry(chassis).or_default().extend([first, system]);
        }
    }
    let owned = |names: BTreeSet<&str>| names.into_iter().map(str::to_owned).collect();
    shared
        .into_iter()
        .map(|(chassis, names)| (chassis.to_string(), owned(names)))
        .collect()
}

/// A chassis id, MAC addresses in one spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Chassis<'a> {
    Mac(Mac),
    Text(&'a str),
}

impl<'a> Chassis<'a> {
    fn of(heard: &Heard<'a>) -> Self {
        let text = heard.said.chassis().trim();
        Mac::read(text).map_or(Self::Text(text), Self::Mac)
    }
}

impl fmt::Display for Chassis<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac(address) => address.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

pub(super) fn names<'a, T: Copy>(all: impl Iterator<Item = (&'a str, T)>) -> Names<T> {
    let mut names: Names<T> = HashMap::default();
    let all: Vec<_> = all.collect();
    for (name, value) in &all {
        let short = without_domain(name);
        if short != *name {
            let entry = names.entry(short.to_ascii_lowercase());
            entry
                .and_modify(|found| *found = None)
                .or_insert(Some(*value));
        }
    }
    // A full name is never ambiguous.
    for (name, value) in all {
        names.insert(name.to_ascii_lowercase(), Some(value));
    }
    names
}

pub(super) fn find<T: Copy>(names: &Names<T>, name: &str) -> Option<T> {
    let name = lower(name.trim());
    if !is_name(&name) {
        return None;
    }
    let found = names
        .get(&*name)
        .or_else(|| names.get(without_domain(&name)));
    found.copied().flatten()
}

/// In small letters, as most names are anyway.
fn lower(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        Cow::Borrowed(text)
    }
}

pub(super) fn is_name(system: &str) -> bool {
    !system.is_empty() && !NO_NAMES.iter().any(|no| no.eq_ignore_ascii_case(system))
}

/// Names under which one port is on several chassis. One switch may well have several chassis ids: NX-OS
/// reports the MAC address of each port.
fn ambiguous<'a>(words: &'a Words<'a>) -> HashSet<&'a str, FixedState> {
    let mut first: HashMap<(&str, &str), Chassis<'_>, FixedState> = HashMap::default();
    let mut ambiguous = HashSet::default();
    for heard in words
        .heard()
        .filter(|heard| is_name(heard.said.system().trim()))
    {
        let (system, chassis) = (heard.said.system().trim(), Chassis::of(heard));
        if *first.entry((system, heard.said.port())).or_insert(chassis) != chassis {
            ambiguous.insert(system);
        }
    }
    ambiguous
}

/// Whether a port is one of management by its name. `by_a_switch`: the switch itself calls it so.
pub(crate) fn is_management_port(name: &str, by_a_switch: bool) -> bool {
    let words: &[&[&str]] = if by_a_switch {
        &[&MANAGEMENT, &OWN_MANAGEMENT]
    } else {
        &[&MANAGEMENT]
    };
    PortWord::read(name).is_ok_and(|port| is_management(port, words))
}

/// Whether a port is named as management ports are: one of these words, then a number.
fn is_management(port: PortWord<'_>, words: &[&[&str]]) -> bool {
    let PortWord::Name(name) = port else {
        return false;
    };
    // Junos: `re0:mgmt-0`.
    let name = name.rsplit(':').next().unwrap_or(name);
    let digits_at = name.find(|char: char| char.is_ascii_digit());
    let stem = digits_at.map_or("", |at| name[..at].trim_end_matches('-'));
    let is_word = |word: &&str| word.eq_ignore_ascii_case(stem);
    // `eth0` is a management port, `Eth1/9` a port of the front panel.
    let words = if name.contains('/') {
        &words[..1]
    } else {
        words
    };
    words.iter().any(|words| words.iter().any(is_word))
}

/// Names that mlx5 gives to representors of a host's functions on a DPU: `pf0hpf`.
pub(super) fn is_representor(port: &str) -> bool {
    port.strip_prefix("pf")
        .and_then(|rest| rest.strip_suffix("hpf"))
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}
