//! What node descriptions report: host and device of a channel adapter, name of a switch.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use railscope_model::identity::{Guid, NodeName, SwitchName};

/// Device id of the SHARP aggregation node that Switch-IB 2, Quantum and Quantum-2 show as one more
/// channel adapter (all 666 of Selene's and all 40 of the NDR capture's have it).
const AGGREGATION_DEVICE: u32 = 0xcf09;
/// What their descriptions have in common: `Mellanox Technologies Aggregation Node`, `Quantum Aggregation Node`.
const AGGREGATION_DESCRIPTION: &str = "Aggregation Node";

/// How RDMA device names begin: drivers' own (`mlx5_0`, `hfi1_0`), rdma-core's persistent naming
/// (`ibp11s0f0`, `rocep1s0`, `rdmap16s27`: `rdma_rename` of rdma-core), and `HCA-N`, which the
/// description of an adapter holds before the operating system sets it.
const DEVICE_PREFIXES: [&str; 14] = [
    "mlx5_", "mlx4_", "HCA-", "ibp", "ibs", "ibo", "rocep", "roces", "rdmap", "hfi1_", "qib",
    "mthca", "bnxt_re", "irdma",
];

/// Words of the description that firmware gives to a part without a name.
const VENDOR_WORDS: [&str; 4] = [
    "Mellanox Technologies",
    "ConnectX",
    "Infiniscale",
    "Quantum Mellanox",
];

/// Host names that a machine has before it is named; several machines may be called so.
const UNSET_HOST_NAMES: [&str; 8] = [
    "localhost",
    "localhost.localdomain",
    "ubuntu",
    "debian",
    "centos",
    "rocky",
    "linux",
    "(none)",
];

/// Separator between a description and the GUID that distinguishes two hosts of that description.
const GUID_MARK: char = '@';

/// Whether a channel adapter is the SHARP aggregation node of a switch: neither a host nor a NIC.
pub fn is_aggregation_node(device: Option<u32>, description: &str) -> bool {
    device == Some(AGGREGATION_DEVICE) || description.contains(AGGREGATION_DESCRIPTION)
}

/// Whether this host represents one card whose host is not known: its description reports no device,
/// or other cards have the very same description.
pub fn is_unnamed_host(name: &NodeName) -> bool {
    let guid = name.as_str().rsplit_once(GUID_MARK).map(|(_, guid)| guid);
    guid.is_some_and(|guid| guid.len() == 16 && guid.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Whether a host name is the one of an installation image, which several machines may have.
pub(crate) fn is_unset_host_name(name: &NodeName) -> bool {
    UNSET_HOST_NAMES.contains(&name.as_str())
}

/// Whether a name is that of an RDMA device, and of no network interface.
pub(crate) fn is_rdma_device(name: &str) -> bool {
    DEVICE_PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Host and device of a channel adapter, from its description; none where it does not report both.
pub(crate) fn host_and_device(description: &str) -> Option<(&str, &str)> {
    let (host, device) = description.trim().rsplit_once(char::is_whitespace)?;
    let host = host.trim();
    let numbered = device.ends_with(|char: char| char.is_ascii_digit());
    let is_device = numbered && is_rdma_device(device);
    let is_host = !host.is_empty() && !host.contains(char::is_whitespace);
    (is_device && is_host).then_some((host, device))
}

/// Text that can be a node name: no colon, which separates a node from its parts, and no control character.
fn clean(text: &str) -> String {
    text.chars()
        .map(|char| {
            if char == ':' || char.is_control() {
                '-'
            } else {
                char
            }
        })
        .collect()
}

/// The name of a host that reported one.
pub(crate) fn host_name(host: &str) -> Option<NodeName> {
    clean(host).parse().ok()
}

/// The name of a host that is known by one card only: the first word of what it reports, and the
/// GUID.
pub(crate) fn host_name_by_guid(description: &str, guid: Guid) -> Option<NodeName> {
    let word = description.split_whitespace().next().unwrap_or("unnamed");
    format!("{}{GUID_MARK}{:016x}", clean(word), guid.0)
        .parse()
        .ok()
}

/// The name in a switch's description: `NAME` of `MF0;NAME:MODEL/U1`, and a plain name as it is.
pub fn short_switch_name(description: &str) -> &str {
    SwitchWords::of(description).name
}

/// A switch's description taken apart: `MF0;NAME:MODEL/L01/U1` is `NAME`, `MODEL`, `L01/U1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SwitchWords<'a> {
    pub(crate) name: &'a str,
    pub(crate) model: Option<&'a str>,
    /// Place of the ASIC in its chassis.
    pub(crate) place: Option<&'a str>,
}

impl<'a> SwitchWords<'a> {
    pub(crate) fn of(description: &'a str) -> Self {
        let description = description.trim();
        let plain = Self {
            name: description,
            model: None,
            place: None,
        };
        // `MF0` is the management function; managed switches of the vendor begin with it.
        let Some(rest) = description.strip_prefix("MF0;") else {
            return plain;
        };
        let Some((name, rest)) = rest.rsplit_once(':') else {
            return Self {
                name: rest,
                ..plain
            };
        };
        let (model, place) = rest
            .split_once('/')
            .map_or((rest, None), |(model, place)| (model, Some(place)));
        Self {
            name,
            model: Some(model),
            place,
        }
    }

    /// Whether the words name a kind of switch, not one switch.
    fn is_generic(&self) -> bool {
        self.name.is_empty() || VENDOR_WORDS.iter().any(|words| self.name.contains(words))
    }

    /// `U1` is the only ASIC of most switches; any other place is one of several.
    fn is_one_of_several(&self) -> bool {
        self.place.is_some_and(|place| place != "U1")
    }
}

/// Names for all switches of a subnet: the short name where it is unique, with the place in the chassis
/// where the chassis has several ASICs, with the GUID where two would have the same name.
pub(crate) fn switch_names(switches: &[(Guid, &str)]) -> Vec<Option<SwitchName>> {
    let words: Vec<_> = switches
        .iter()
        .map(|(_, text)| SwitchWords::of(text))
        .collect();
    let mut users: HashMap<&str, usize, FixedState> = HashMap::default();
    for word in &words {
        *users.entry(word.name).or_default() += 1;
    }
    let first: Vec<String> = words
        .iter()
        .map(|word| match word.place {
            Some(place) if word.is_one_of_several() || users[word.name] > 1 => {
                format!("{}/{place}", word.name)
            }
            _ => word.name.to_owned(),
        })
        .collect();
    let mut users: HashMap<&str, usize, FixedState> = HashMap::default();
    for name in &first {
        *users.entry(name).or_default() += 1;
    }
    switches
        .iter()
        .zip(words.iter().zip(&first))
        .map(|((guid, _), (word, name))| {
            if word.is_generic() || users[name.as_str()] > 1 {
                let name = if word.name.is_empty() {
                    "unnamed"
                } else {
                    name
                };
                clean(&format!("{name}{GUID_MARK}{:016x}", guid.0))
                    .parse()
                    .ok()
            } else {
                // A colon is fine in a switch name, a control character is not.
                name.replace(char::is_control, "-").parse().ok()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_names_host_and_device_or_neither() {
        for (description, expected) in [
            ("luna-0541 mlx5_9", Some(("luna-0541", "mlx5_9"))),
            (
                "selene-cache-02 mlx5_1 ",
                Some(("selene-cache-02", "mlx5_1")),
            ),
            ("selene-swift-01  HCA-2", Some(("selene-swift-01", "HCA-2"))),
            (
                "RMD701091901003 ibp11s0f0",
                Some(("RMD701091901003", "ibp11s0f0")),
            ),
            ("localhost", None),
            ("MT4129 ConnectX7   Mellanox Technologies", None),
            ("two words mlx5_0", None),
            ("host mlx5_", None),
            ("", None),
        ] {
            assert_eq!(host_and_device(description), expected, "{description:?}");
        }
    }

    #[test]
    fn switch_names_are_short_where_that_is_unique() {
        let names = |descriptions: &[&str]| -> Vec<String> {
            let switches: Vec<_> = (1..).map(Guid).zip(descriptions.iter().copied()).collect();
            switch_names(&switches)
                .into_iter()
                .map(|name| name.map(|name| name.to_string()).unwrap_or_default())
                .collect()
        };
        assert_eq!(
            names(&[
                "MF0;LG28-08:MQM8700/U1",
                "MF0;big:MCS8500/L01/U1",
                "MF0;big:MCS8500/L02/U1",
                "MF0;q3:Q3400/U1",
                "MF0;q3:Q3400/U2",
                "ib-i1l1s01",
                "twin",
                "twin",
                "Infiniscale-IV Mellanox Technologies",
                "",
            ]),
            [
                "LG28-08",
                "big/L01/U1",
                "big/L02/U1",
                "q3/U1",
                "q3/U2",
                "ib-i1l1s01",
                "twin@0000000000000007",
                "twin@0000000000000008",
                "Infiniscale-IV Mellanox Technologies@0000000000000009",
                "unnamed@000000000000000a",
            ]
        );
    }
}
