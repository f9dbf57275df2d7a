//! What hardware prints, turned into base units at the door.

use std::str::FromStr;

use crate::identity::IdentityError;

/// Bytes in one word of InfiniBand's port data counters: PortXmitData and PortRcvData count 4-octet
/// words for any link width (InfiniBand Architecture Specification, volume 1, 16.1.3.5).
pub const BYTES_PER_PORT_DATA_WORD: u64 = 4;
/// NVML prints clocks in MHz.
pub const HERTZ_PER_MEGAHERTZ: u64 = 1_000_000;
/// NVML prints power in mW and energy in mJ. Divided by, because no binary fraction is a thousandth: the
/// quotient is the nearest number that there is.
pub const MILLIS: f64 = 1e3;
/// The kernel log's clock and NIC drivers' pauses count in us.
pub const MICROS: f64 = 1e6;
/// NVML prints clock event durations in ns.
pub const NANOS: f64 = 1e9;
/// NVML prints NVLink speed in MB/s (decimal).
pub const BYTES_PER_MEGABYTE: u64 = 1_000_000;
/// NVML counts NVLink payload before Blackwell in binary kilobytes.
pub const BYTES_PER_KIBIBYTE: u64 = 1 << 10;
/// GPU performance monitoring gives traffic in binary megabytes per second.
pub const BYTES_PER_MEBIBYTE: u64 = 1 << 20;
/// A network gigabit per second is decimal.
pub const BYTES_PER_SECOND_PER_GBIT: f64 = 125e6;

fn number_before<'a>(text: &'a str, unit: &str) -> Option<(f64, &'a str)> {
    let (number, rest) = text.trim().split_once(unit)?;
    let number: f64 = number.trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some((number, rest.trim()))
}

/// Speed and width of an RDMA port: `400 Gb/sec (4X NDR)`.
#[derive(Debug, Clone, PartialEq)]
pub struct PortRate {
    /// Data rate of the whole port.
    pub bytes_per_second: f64,
    /// Lanes, 1 to 12; none where the text has none.
    pub lanes: Option<u8>,
    /// Name of the per-lane speed: `SDR` … `XDR`; none where the text has none.
    pub speed: Option<String>,
}

impl FromStr for PortRate {
    type Err = IdentityError;

    /// Reads the kernel's `rate` file, format `%d[.5] Gb/sec (%dX %s)`.
    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let bad = || IdentityError {
            found: text.trim().to_owned(),
            expected: "a port rate such as \"400 Gb/sec (4X NDR)\"",
        };
        let (gbit, rest) = number_before(text, "Gb/sec").ok_or_else(bad)?;
        let bytes_per_second = gbit * BYTES_PER_SECOND_PER_GBIT;
        if rest.is_empty() {
            return Ok(Self {
                bytes_per_second,
                lanes: None,
                speed: None,
            });
        }
        let inner = rest
            .strip_prefix('(')
            .and_then(|rest| rest.strip_suffix(')'))
            .ok_or_else(bad)?;
        let (lanes, speed) = inner.split_once('X').ok_or_else(bad)?;
        let lanes = lanes.parse().map_err(|_| bad())?;
        let speed = speed.trim();
        Ok(Self {
            bytes_per_second,
            lanes: Some(lanes),
            speed: (!speed.is_empty()).then(|| speed.to_owned()),
        })
    }
}

/// Gigabits per second and lane of each InfiniBand speed, as the kernel's `rate` file counts them, and of
/// whole Ethernet links by their usual names (IEEE 802.3), which do not specify lanes.
const LANE_GBITS: &[(&str, f64)] = &[
    ("SDR", 2.5),
    ("DDR", 5.0),
    ("QDR", 10.0),
    ("FDR10", 10.0),
    ("FDR", 14.0),
    ("EDR", 25.0),
    ("HDR", 50.0),
    ("NDR", 100.0),
    ("XDR", 200.0),
    ("1G", 1.0),
    ("2.5G", 2.5),
    ("5G", 5.0),
    ("10G", 10.0),
    ("25G", 25.0),
    ("40G", 40.0),
    ("50G", 50.0),
    ("100G", 100.0),
    ("200G", 200.0),
    ("400G", 400.0),
    ("800G", 800.0),
    ("1600G", 1600.0),
];

/// Width and speed of a link as subnet tools print it: `4xHDR`, `4X NDR`, `12xFDR10`; of Ethernet, `400G`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkSpeed {
    /// Lanes: 1, 2, 4, 8 or 12. Of Ethernet 1: the whole link.
    pub lanes: u8,
    /// Name of the per-lane speed: `SDR` … `XDR`; `400G` of an Ethernet link.
    pub speed: &'static str,
}

impl LinkSpeed {
    /// The Ethernet speed of this data rate, within 1 %; none if there is no such speed.
    pub fn ethernet(bytes_per_second: f64) -> Option<Self> {
        let gbit = bytes_per_second / BYTES_PER_SECOND_PER_GBIT;
        let is_it =
            |(name, rate): &&(&str, f64)| name.ends_with('G') && (gbit - rate).abs() <= 0.01 * rate;
        let (speed, _) = LANE_GBITS.iter().find(is_it)?;
        Some(Self { lanes: 1, speed })
    }

    fn is_ethernet(self) -> bool {
        self.speed.ends_with('G')
    }

    /// Whether both may be the same setting of a link: they are equal, or InfiniBand and Ethernet names of one data rate. A source
    /// that reports only the rate has an Ethernet name for it.
    pub fn agrees_with(self, other: Self) -> bool {
        let is_one_rate = self.bytes_per_second() == other.bytes_per_second();
        self == other || self.is_ethernet() != other.is_ethernet() && is_one_rate
    }

    /// Data rate of the whole link.
    pub fn bytes_per_second(self) -> f64 {
        let lane = LANE_GBITS
            .iter()
            .find(|(name, _)| *name == self.speed)
            .map_or(0.0, |(_, gbit)| *gbit);
        f64::from(self.lanes) * lane * BYTES_PER_SECOND_PER_GBIT
    }
}

impl std::fmt::Display for LinkSpeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.is_ethernet() {
            true => f.write_str(self.speed),
            false => write!(f, "{}x{}", self.lanes, self.speed),
        }
    }
}

impl FromStr for LinkSpeed {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let bad = || IdentityError {
            found: text.to_owned(),
            expected: "a link width and speed such as 4xNDR",
        };
        let text = text.trim();
        let ethernet = LANE_GBITS.iter().map(|(name, _)| *name);
        if let Some(speed) = ethernet
            .filter(|name| name.ends_with('G'))
            .find(|name| *name == text)
        {
            return Ok(Self { lanes: 1, speed });
        }
        let (lanes, speed) = text.split_once(['x', 'X']).ok_or_else(bad)?;
        let lanes = lanes
            .parse()
            .ok()
            .filter(|lanes| matches!(lanes, 1 | 2 | 4 | 8 | 12))
            .ok_or_else(bad)?;
        let (speed, _) = LANE_GBITS
            .iter()
            .find(|(name, _)| *name == speed.trim() && !name.ends_with('G'))
            .ok_or_else(bad)?;
        Ok(Self { lanes, speed })
    }
}

/// Transfers per second of one PCIe lane, from `current_link_speed`: `32.0 GT/s PCIe`, `8 GT/s`.
/// `None` for the kernel's `Unknown`, which is a valid value, not an error.
///
/// # Errors
/// Text that is neither.
pub fn pcie_transfers_per_second(text: &str) -> Result<Option<f64>, IdentityError> {
    if text.trim().starts_with("Unknown") {
        return Ok(None);
    }
    number_before(text, "GT/s")
        .map(|(giga, _)| Some(giga * 1e9))
        .ok_or_else(|| IdentityError {
            found: text.trim().to_owned(),
            expected: "a PCIe speed such as \"32.0 GT/s PCIe\"",
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_rates_are_decimal_bytes_per_second() {
        for (text, rate, lanes, speed) in [
            ("400 Gb/sec (4X NDR)\n", 50e9, Some(4), Some("NDR")),
            ("200 Gb/sec (2X NDR)", 25e9, Some(2), Some("NDR")),
            ("2.5 Gb/sec (1X SDR)", 312.5e6, Some(1), Some("SDR")),
            ("40 Gb/sec (4X )", 5e9, Some(4), None),
            ("100 Gb/sec", 12.5e9, None, None),
        ] {
            let read: PortRate = text.parse().expect(text);
            assert_eq!(
                (read.bytes_per_second, read.lanes, read.speed.as_deref()),
                (rate, lanes, speed),
                "{text}"
            );
        }
        for text in [
            "",
            "fast",
            "-5 Gb/sec (4X NDR)",
            "400 Gb/sec (NDR)",
            "inf Gb/sec",
        ] {
            assert!(text.parse::<PortRate>().is_err(), "{text}");
        }
    }

    #[test]
    fn link_speeds_multiply_lanes() {
        let read: LinkSpeed = "4xHDR".parse().expect("4xHDR");
        assert_eq!(
            (read.bytes_per_second(), read.to_string().as_str()),
            (25e9, "4xHDR")
        );
        let ethernet = LinkSpeed::ethernet(50e9).expect("400G");
        assert_eq!("400G".parse(), Ok(ethernet));
        assert_eq!(
            (ethernet.bytes_per_second(), ethernet.to_string().as_str()),
            (50e9, "400G")
        );
        assert_eq!(LinkSpeed::ethernet(51e9), None);
        let [ndr, hdr, wide] = ["4xNDR", "4xHDR", "8xHDR"].map(|text| text.parse().expect("IB"));
        assert!(ethernet.agrees_with(ndr) && wide.agrees_with(ethernet) && hdr.agrees_with(hdr));
        assert!(
            !ethernet.agrees_with(hdr) && !ndr.agrees_with(wide),
            "another rate or width"
        );
        for text in ["", "???", "4x", "3xHDR", "4xZDR", "HDR", "1x400G", "3G"] {
            assert!(text.parse::<LinkSpeed>().is_err(), "{text}");
        }
    }

    #[test]
    fn pcie_speed_unknown_is_an_answer() {
        assert_eq!(
            pcie_transfers_per_second("32.0 GT/s PCIe\n"),
            Ok(Some(32e9))
        );
        assert_eq!(pcie_transfers_per_second("2.5 GT/s PCIe"), Ok(Some(2.5e9)));
        assert_eq!(pcie_transfers_per_second("Unknown speed"), Ok(None));
        assert_eq!(pcie_transfers_per_second("Unknown"), Ok(None));
        assert!(pcie_transfers_per_second("fast").is_err());
    }
}
