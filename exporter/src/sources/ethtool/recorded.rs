//! Recordings of what `ethtool` and `dcb` print, in place of a kernel.

use std::net::IpAddr;
use std::path::Path;

use super::addresses;
use super::vf::{self, VirtualFunction};
use super::{Bridging, Fec, Nic, NicSource, PRIORITIES, Pause, TrafficClasses};
use crate::sources::sysfs::{Miss, Root};

/// Recordings below a directory, one directory for each interface:
///
/// | file | as printed by |
/// |---|---|
/// | `stats` | `ethtool -S IF` |
/// | `pause` | `ethtool -I -a IF` |
/// | `fec` | `ethtool -I --show-fec IF` |
/// | `pfc` | `dcb -s pfc show dev IF` |
/// | `app` | `dcb app show dev IF` |
/// | `ets` | `dcb ets show dev IF` |
/// | `link` | `ip -s -j -d link show dev IF` |
/// | `addr` | `ip -j addr show dev IF` |
pub struct Recorded(Root);

impl Recorded {
    /// Names the directory; touches nothing.
    pub fn new(root: &Path) -> Self {
        Self(Root::new(root))
    }

    fn text(&self, nic: &Nic, file: &str) -> Result<String, Miss> {
        self.0.open()?.dir(&nic.name)?.long_text(file)
    }

    fn classes(&self, nic: &Nic) -> Result<Option<TrafficClasses>, Miss> {
        let text = match self.text(nic, "ets") {
            Err(Miss::Absent) => return Ok(None),
            text => text?,
        };
        let number = |word: &str| word.parse().ok();
        let shared = |word: &str| Some(u64::from(word == "ets"));
        let parts = (
            row(&text, "prio-tc", number),
            row(&text, "tc-bw", number),
            row(&text, "tc-tsa", shared),
        );
        let (Some(of_priority), Some(percent), Some(shared)) = parts else {
            return Err(Miss::Unparsed);
        };
        let byte = |value: u64| u8::try_from(value).unwrap_or(u8::MAX);
        let share = |class: usize| (shared[class] == 1).then(|| byte(percent[class]));
        Ok(Some(TrafficClasses {
            of_priority: of_priority.map(byte),
            guaranteed_percent: std::array::from_fn(share),
        }))
    }
}

impl NicSource for Recorded {
    fn names(&mut self, nic: &Nic) -> Result<Vec<String>, Miss> {
        let rows = counters(&self.text(nic, "stats")?).ok_or(Miss::Unparsed)?;
        Ok(rows.into_iter().map(|(name, _)| name).collect())
    }

    fn values(&mut self, nic: &Nic, into: &mut Vec<u64>) -> Result<(), Miss> {
        let rows = counters(&self.text(nic, "stats")?).ok_or(Miss::Unparsed)?;
        into.clear();
        into.extend(rows.into_iter().map(|(_, value)| value));
        Ok(())
    }

    fn pause(&mut self, nic: &Nic) -> Result<Pause, Miss> {
        let text = self.text(nic, "pause")?;
        let on = |key| match value(&text, key)? {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        };
        Ok(Pause {
            receive: on("RX").ok_or(Miss::Unparsed)?,
            transmit: on("TX").ok_or(Miss::Unparsed)?,
            received_frames: number(&text, "rx_pause_frames")?,
            transmitted_frames: number(&text, "tx_pause_frames")?,
        })
    }

    fn fec(&mut self, nic: &Nic) -> Result<Fec, Miss> {
        let text = self.text(nic, "fec")?;
        let active = match value(&text, "Active FEC encoding") {
            None => None,
            Some("Off" | "None") => Some("off"),
            Some("RS") => Some("rs"),
            Some("BaseR") => Some("baser"),
            Some("LLRS") => Some("llrs"),
            Some(_) => return Err(Miss::Unparsed),
        };
        Ok(Fec {
            active,
            corrected_blocks: number(&text, "corrected_blocks")?,
            uncorrectable_blocks: number(&text, "uncorrectable_blocks")?,
            corrected_bits: number(&text, "corrected_bits")?,
        })
    }

    fn bridging(&mut self, nic: &Nic) -> Result<Bridging, Miss> {
        let text = self.text(nic, "pfc")?;
        let enabled = row(&text, "prio-pfc", |word| match word {
            "on" => Some(1),
            "off" => Some(0),
            _ => None,
        });
        let count = |word: &str| word.parse().ok();
        let app = match self.text(nic, "app") {
            Ok(text) => Some(text.lines().any(|line| line.starts_with("dscp-prio "))),
            Err(Miss::Absent) => None,
            Err(miss) => return Err(miss),
        };
        Ok(Bridging {
            pfc_enabled: enabled.ok_or(Miss::Unparsed)?.map(|on| on == 1),
            pfc_requests: row(&text, "requests", count).ok_or(Miss::Unparsed)?,
            pfc_indications: row(&text, "indications", count).ok_or(Miss::Unparsed)?,
            has_dscp_table: app,
            classes: self.classes(nic)?,
        })
    }

    fn down_reason(&mut self, _nic: &Nic) -> Result<Option<&'static str>, Miss> {
        Err(Miss::Absent)
    }

    fn virtual_functions(&mut self, nic: &Nic) -> Result<Vec<VirtualFunction>, Miss> {
        vf::printed(&self.text(nic, "link")?).ok_or(Miss::Unparsed)
    }

    fn addresses(&mut self, nic: &Nic) -> Result<Vec<IpAddr>, Miss> {
        addresses::printed(&self.text(nic, "addr")?).ok_or(Miss::Unparsed)
    }
}

/// First line of `ethtool -S`; copies of its output often lack it.
const HEADING: &str = "NIC statistics:";

/// The lines `     rx_packets: 17`, after the optional heading; `None` if there is any other line. Without the heading, a
/// name must begin with a lowercase letter or the bracket of a ring, which excludes error messages.
fn counters(text: &str) -> Option<Vec<(String, u64)>> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let has_heading = text.lines().any(|line| line.trim() == HEADING);
    if has_heading {
        lines.find(|line| line.trim() == HEADING)?;
    }
    let row = |line: &str| {
        let (name, value) = line.trim().rsplit_once(':')?;
        let begun = name.starts_with(|sign: char| sign == '[' || sign.is_ascii_lowercase());
        let value = value.trim().parse().ok()?;
        (has_heading || begun).then(|| (name.to_owned(), value))
    };
    let rows: Option<Vec<_>> = lines
        .filter(|line| has_heading || !line.starts_with('#'))
        .map(row)
        .collect();
    rows.filter(|rows| has_heading || !rows.is_empty())
}

/// The value of the line `key:  value`.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(name, _)| name.trim() == key)?;
    Some(value.trim())
}

/// The number of a line that may be missing.
fn number(text: &str, key: &str) -> Result<Option<u64>, Miss> {
    let word = value(text, key);
    word.map(|word| word.parse().map_err(|_| Miss::Unparsed))
        .transpose()
}

/// The line `key 0:off 1:off … 7:on`: one value for each priority.
fn row(text: &str, key: &str, parse: impl Fn(&str) -> Option<u64>) -> Option<[u64; PRIORITIES]> {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(' '))?;
    let mut values = [None; PRIORITIES];
    for word in line.split_whitespace() {
        let (priority, value) = word.split_once(':')?;
        *values.get_mut(priority.parse::<usize>().ok()?)? = Some(parse(value)?);
    }
    let mut complete = [0; PRIORITIES];
    for (to, from) in complete.iter_mut().zip(values) {
        *to = from?;
    }
    Some(complete)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_lines_with_any_name_and_a_whole_number() {
        let rows = |text| {
            let rows = counters(text)?.into_iter();
            Some(
                rows.map(|(name, value)| format!("{name}={value}"))
                    .collect::<Vec<_>>()
                    .join(" "),
            )
        };
        for (text, expected) in [
            (
                "# ethtool -S eth0\nNIC statistics:\n     rx: 1\n     port.rx_dropped: 12028\n     two words: 3\n     [0]: tx: 4\n",
                Some("rx=1 port.rx_dropped=12028 two words=3 [0]: tx=4".to_owned()),
            ),
            ("NIC statistics:\n", Some(String::new())),
            (
                "# ethtool -S eth0\n     rx: 1\n[0]: rx_discards: 7\n",
                Some("rx=1 [0]: rx_discards=7".to_owned()),
            ),
            ("     rx: 1\n     tx: many\n", None),
            ("ERROR: 1\n", None),
            ("NIC statistics:\n  rx: -1\n", None),
            ("NIC statistics:\n  rx\n", None),
            ("ERROR: 1sys\n", None),
            ("", None),
        ] {
            assert_eq!(rows(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_row_has_one_value_for_each_priority() {
        let parse = |word: &str| word.parse().ok();
        let whole = "pfc-cap 8\nrequests 0:0 1:1 2:2 3:9 4:0 5:0 6:0 7:7 \n";
        assert_eq!(
            row(whole, "requests", parse),
            Some([0, 1, 2, 9, 0, 0, 0, 7])
        );
        for bad in [
            "requests 0:0 1:1",
            "requests 0:0 1:1 2:2 3:9 4:0 5:0 6:0 8:7",
            "requests 0:0 1:1 2:2 3:9 4:0 5:0 6:0 7:x",
            "requests2 0:0",
            "",
        ] {
            assert_eq!(row(bad, "requests", parse), None, "{bad:?}");
        }
    }
}
