//! Who the far end of a cable is, by the names and addresses that LLDP tells of it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use foldhash::fast::FixedState;
use railscope_model::identity::{NodeName, PortName, SwitchName};

use super::{End, Heard, Words};

/// System names that say nothing: those of a machine that nobody has named.
const NO_NAMES: [&str; 4] = ["localhost", "localhost.localdomain", "(none)", "switch"];
/// How names of management ports begin, before their number: NX-OS and Dell, EOS, Junos, most others.
const MANAGEMENT: [&str; 5] = ["mgmt", "ma", "management", "fxp", "oob"];
/// The same in a switch's own words: `eth0` of Cumulus and SONiC, Junos. A host may call a NIC so.
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

/// Names by which far ends are found: the whole one, and the first label where only one has it.
type Names<'a, T> = HashMap<String, Option<&'a T>, FixedState>;

/// Everything that is known of names.
#[derive(Debug)]
pub(super) struct Resolver<'a> {
    words: &'a Words,
    hosts: Names<'a, NodeName>,
    speakers: Names<'a, SwitchName>,
    local_ports: HashMap<&'a SwitchName, HashSet<&'a PortName, FixedState>, FixedState>,
    /// Names that several switches have: one port of that name is on several chassis.
    ambiguous: BTreeSet<&'a str>,
    /// Switches by the words of NICs.
    leaves: HashSet<SwitchName, FixedState>,
}

impl<'a> Resolver<'a> {
    pub(super) fn of(words: &'a Words) -> Self {
        let mut resolver = Self {
            words,
            hosts: names(words.hosts.iter().map(|name| (name.as_str(), name))),
            speakers: names(words.speakers.iter().map(|name| (name.as_str(), name))),
            local_ports: HashMap::default(),
            ambiguous: ambiguous(words),
            leaves: HashSet::default(),
        };
        for heard in &words.heard {
            if let End::Switch(switch, port) = &heard.near {
                let ports = resolver.local_ports.entry(switch).or_default();
                ports.insert(port);
            }
        }
        for heard in &words.heard {
            if let (End::Nic(..), Far::End(End::Switch(switch, _))) =
                (&heard.near, resolver.far(heard))
            {
                resolver.leaves.insert(switch);
            }
        }
        resolver
    }

    /// Who is at the other end.
    pub(super) fn far(&self, heard: &Heard) -> Far {
        let (of_nic, port) = match &heard.near {
            End::Nic(..) => (true, None),
            End::Switch(_, port) => (false, Some(port)),
        };
        // A DPU tells its name to its own host through the representor of the host's function.
        if is_representor(&heard.port) || is_representor(&heard.description) {
            return Far::Host;
        }
        let own = |port: &PortName| is_management(port, &[&MANAGEMENT[..], &OWN_MANAGEMENT]);
        if port.is_some_and(own) {
            return Far::Management;
        }
        let speaker = find(&self.speakers, &heard.system);
        if speaker.is_none() {
            let host = find(&self.hosts, &heard.system);
            let nic = self.nic(host, heard);
            match (host, nic) {
                (_, Some(nic)) if !of_nic => return Far::End(nic.clone()),
                (None, None) => {}
                _ => return Far::Host,
            }
        }
        let Some(name) = self.switch_name(heard) else {
            return Far::Unreadable;
        };
        let is_switch = of_nic
            || speaker.is_some()
            || heard.forwards == Some(true)
            || self.leaves.contains(&name);
        if !is_switch {
            return Far::Stranger(name.to_string());
        }
        match self.port_of(&name, heard) {
            Some(port) if is_management(&port, &[&MANAGEMENT[..]]) => Far::Management,
            Some(port) => Far::End(End::Switch(name, port)),
            None => Far::Unreadable,
        }
    }

    /// Whether a switch that tells its own ports knows none of this name.
    pub(super) fn is_foreign(&self, switch: &SwitchName, port: &PortName) -> bool {
        let own = self.local_ports.get(switch);
        own.is_some_and(|own| !own.contains(port))
    }

    /// Chassis ids that several names share: a daemon that tells neighbours apart by it mixes them up.
    pub(super) fn shared_chassis(&self) -> Vec<(String, Vec<String>)> {
        let heard = self.words.heard.iter();
        let named = heard.filter(|heard| is_name(&heard.system));
        let told: HashSet<(&str, &str), FixedState> = named
            .map(|heard| (heard.chassis.as_str(), heard.system.as_str()))
            .collect();
        let mut names: BTreeMap<Cow<'_, str>, BTreeSet<&str>> = BTreeMap::new();
        for (chassis, system) in told {
            names.entry(spelled(chassis)).or_default().insert(system);
        }
        let shared = names.into_iter().filter(|(_, names)| names.len() > 1);
        shared
            .map(|(chassis, names)| {
                let names = names.into_iter().map(str::to_owned);
                (chassis.into_owned(), names.collect())
            })
            .collect()
    }

    /// The port of a NIC that the far end calls by the host's interface or by its MAC address.
    fn nic(&self, host: Option<&NodeName>, heard: &Heard) -> Option<&'a End> {
        let by_interface = host.and_then(|host| {
            let interface = |name: &String| {
                let key = (host.clone(), name.clone());
                self.words.interfaces.get(&key)
            };
            interface(&heard.port).or_else(|| interface(&heard.description))
        });
        by_interface.or_else(|| {
            let address = mac(&heard.port)?;
            self.words.addresses.get(&address)
        })
    }

    /// By its system name; where several switches have it, with the chassis id; where there is none, by that.
    fn switch_name(&self, heard: &Heard) -> Option<SwitchName> {
        if let Some(speaker) = find(&self.speakers, &heard.system) {
            return Some(speaker.clone());
        }
        let system = heard.system.trim();
        let name = if !is_name(system) {
            spelled(&heard.chassis).into_owned()
        } else if self.ambiguous.contains(system) {
            format!("{system}@{}", spelled(&heard.chassis))
        } else {
            system.to_owned()
        };
        name.parse().ok()
    }

    /// The far port as its switch calls it, as far as that is known. Many daemons give a MAC address as port
    /// id and the interface as description, lldpd among them; SONiC gives an alias and the interface.
    fn port_of(&self, switch: &SwitchName, heard: &Heard) -> Option<PortName> {
        let own = self.local_ports.get(switch);
        let is_own = |port: &PortName| own.is_some_and(|own| own.contains(port));
        let port = heard.port.parse::<PortName>().ok();
        if port.as_ref().is_some_and(is_own) {
            return port;
        }
        let description = heard.description.parse::<PortName>().ok();
        if description.as_ref().is_some_and(is_own) {
            return description;
        }
        let has_space = heard.description.trim().contains(char::is_whitespace);
        if (mac(&heard.port).is_some() || port.is_none()) && !has_space {
            return description.or(port);
        }
        port
    }
}

fn names<'a, T: Ord>(all: impl Iterator<Item = (&'a str, &'a T)>) -> Names<'a, T> {
    let mut names: Names<'a, T> = HashMap::default();
    let all: Vec<_> = all.collect();
    for (name, value) in &all {
        let short = short(name);
        if short != *name {
            let entry = names.entry(short.to_ascii_lowercase());
            entry
                .and_modify(|found| *found = None)
                .or_insert(Some(*value));
        }
    }
    // A whole name is never ambiguous.
    for (name, value) in all {
        names.insert(name.to_ascii_lowercase(), Some(value));
    }
    names
}

fn find<'a, T>(names: &Names<'a, T>, name: &str) -> Option<&'a T> {
    let name = lower(name.trim());
    if !is_name(&name) {
        return None;
    }
    let found = names.get(&*name).or_else(|| names.get(short(&name)));
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

/// The first label of a domain name.
fn short(name: &str) -> &str {
    name.split_once('.').map_or(name, |(short, _)| short)
}

fn is_name(system: &str) -> bool {
    !system.is_empty() && !NO_NAMES.iter().any(|no| no.eq_ignore_ascii_case(system))
}

/// Names under which one port is on several chassis. One switch may well have several chassis ids: NX-OS
/// tells the MAC address of each port.
fn ambiguous(words: &Words) -> BTreeSet<&str> {
    let mut first: HashMap<(&str, &str), &str, FixedState> =
        HashMap::with_capacity_and_hasher(words.heard.len(), FixedState::default());
    let mut ambiguous = BTreeSet::new();
    for heard in &words.heard {
        let (system, chassis) = (heard.system.trim(), heard.chassis.as_str());
        let first = *first
            .entry((system, heard.port.as_str()))
            .or_insert(chassis);
        if first != chassis && spelled(first) != spelled(chassis) && is_name(system) {
            ambiguous.insert(system);
        }
    }
    ambiguous
}

/// A chassis id, MAC addresses in one spelling.
fn spelled(chassis: &str) -> Cow<'_, str> {
    mac(chassis).map_or(Cow::Borrowed(chassis.trim()), Cow::Owned)
}

/// A MAC address, which tools write `7c:21:d8:00:00:0a`, `7c21.d800.000a` or with dashes, as the first.
fn mac(text: &str) -> Option<String> {
    // Twelve digits with two marks or five.
    if !matches!(text.len(), 14 | 17) {
        return None;
    }
    let is_mark = |char: &char| matches!(char, ':' | '.' | '-');
    let mut address = String::with_capacity(17);
    let mut digits = 0;
    for char in text.chars().filter(|char| !is_mark(char)) {
        if !char.is_ascii_hexdigit() {
            return None;
        }
        if digits > 0 && digits % 2 == 0 {
            address.push(':');
        }
        address.push(char.to_ascii_lowercase());
        digits += 1;
    }
    (digits == 12).then_some(address)
}

/// Whether a port is named as management ports are: one of these words, then a number.
fn is_management(port: &PortName, words: &[&[&str]]) -> bool {
    let PortName::Name(name) = port else {
        return false;
    };
    let digits_at = name.find(|char: char| char.is_ascii_digit());
    let stem = digits_at.map_or("", |at| &name[..at]);
    let is_word = |word: &&str| word.eq_ignore_ascii_case(stem);
    words.iter().any(|words| words.iter().any(is_word))
}

/// Names that mlx5 gives to representors of a host's functions on a DPU: `pf0hpf`.
fn is_representor(port: &str) -> bool {
    port.strip_prefix("pf")
        .and_then(|rest| rest.strip_suffix("hpf"))
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}
