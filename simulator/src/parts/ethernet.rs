//! What the Ethernet interface of a RoCE port shows: carrier, neighbor, and what its driver counts.

use railscope_model::identity::{Guid, PciAddress};
use railscope_model::units::{BYTES_PER_PORT_DATA_WORD, LinkSpeed};

use crate::parts::port::Counter;

/// The priority on which RDMA travels, and pause is on: what most vendors' guides choose.
pub const LOSSLESS: usize = 3;
/// Priorities of an Ethernet link (IEEE 802.1Q).
pub(crate) const PRIORITIES: usize = 8;
/// MTU of interfaces that carry RoCE: 4 KiB of payload and headers fit.
pub const MTU: u32 = 9000;
/// Bits that forward error correction repairs on a healthy link, per bit: 1e-8 to 1e-5 is normal with four
/// levels a symbol (IEEE 802.3, clause 91, repairs up to about 2e-4).
const CORRECTED_PER_BIT: f64 = 1e-8;
/// Bytes of a packet of 4 KiB on the wire for each byte of payload: Ethernet, IP, UDP and InfiniBand headers,
/// preamble and gap.
const WIRE_PER_PAYLOAD: f64 = 1.0 / 0.98;

/// Where a counter is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Statistics of the network driver, as `ethtool -S` prints them.
    Driver,
    /// `hw_counters` of the RDMA port.
    Rdma,
}

/// Turns rows into the enumeration of counters and their table.
macro_rules! counters {
    ($($id:ident = $source:ident $name:literal;)+) => {
        /// A counter of an Ethernet port.
        #[allow(missing_docs)] // the names in the table describe them
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum EthernetCounter { $($id),+ }

        impl EthernetCounter {
            /// Every counter.
            pub const ALL: &[Self] = &[$(Self::$id),+];
        }

        const COUNTERS: &[(Source, &str)] = &[$((Source::$source, $name)),+];
    };
}

// Names of mlx5 (the kernel's mlx5/counters.rst and mlx5_ib's counters.c), of one priority only. All have 64 bits.
counters! {
    RxCrcErrorsPhy = Driver "rx_crc_errors_phy";
    RxDiscardsPhy = Driver "rx_discards_phy";
    TxDiscardsPhy = Driver "tx_discards_phy";
    RxOversizePktsPhy = Driver "rx_oversize_pkts_phy";
    RxOutOfRangeLenPhy = Driver "rx_out_of_range_len_phy";
    LinkDownEventsPhy = Driver "link_down_events_phy";
    RxBitsPhy = Driver "rx_bits_phy";
    RxPcsSymbolErrPhy = Driver "rx_pcs_symbol_err_phy";
    RxCorrectedBitsPhy = Driver "rx_corrected_bits_phy";
    RxBufferPassedThresPhy = Driver "rx_buffer_passed_thres_phy";
    OutboundPciBufferOverflow = Driver "outbound_pci_buffer_overflow";
    OutboundPciStalledWr = Driver "outbound_pci_stalled_wr";
    OutboundPciStalledWrEvents = Driver "outbound_pci_stalled_wr_events";
    TxPauseStormWarningEvents = Driver "tx_pause_storm_warning_events";
    TxPauseStormErrorEvents = Driver "tx_pause_storm_error_events";
    RxPrio3Bytes = Driver "rx_prio3_bytes";
    RxPrio3Packets = Driver "rx_prio3_packets";
    RxPrio3Discards = Driver "rx_prio3_discards";
    TxPrio3Bytes = Driver "tx_prio3_bytes";
    TxPrio3Packets = Driver "tx_prio3_packets";
    RxPrio3Pause = Driver "rx_prio3_pause";
    RxPrio3PauseDuration = Driver "rx_prio3_pause_duration";
    TxPrio3Pause = Driver "tx_prio3_pause";
    TxPrio3PauseDuration = Driver "tx_prio3_pause_duration";
    RxPrio3PauseTransition = Driver "rx_prio3_pause_transition";
    NpCnpSent = Rdma "np_cnp_sent";
    NpEcnMarkedRocePackets = Rdma "np_ecn_marked_roce_packets";
    RpCnpHandled = Rdma "rp_cnp_handled";
    RpCnpIgnored = Rdma "rp_cnp_ignored";
}

impl EthernetCounter {
    /// Where it is read.
    pub const fn source(self) -> Source {
        COUNTERS[self as usize].0
    }

    /// The driver's name of it.
    pub const fn name(self) -> &'static str {
        COUNTERS[self as usize].1
    }

    /// Whether it grows on a healthy port that carries traffic.
    pub const fn is_traffic(self) -> bool {
        matches!(
            self,
            Self::RxBitsPhy
                | Self::RxCorrectedBitsPhy
                | Self::RxPrio3Bytes
                | Self::RxPrio3Packets
                | Self::TxPrio3Bytes
                | Self::TxPrio3Packets
        )
    }
}

/// The neighbor at the other end of the cable, as its LLDP packets describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbor {
    /// MAC address of the switch.
    pub chassis: String,
    /// Name of the switch.
    pub system: String,
    /// Name of its port: `swp7` is the seventh.
    pub port: String,
}

/// The Ethernet interface of a port.
#[derive(Debug, Clone, PartialEq)]
pub struct Netdev {
    /// Name: `enp27s0np0`.
    pub name: String,
    /// MAC address.
    pub mac: String,
    /// Largest packet that it accepts, bytes.
    pub mtu: u32,
    /// Whether there is an optical signal.
    pub carrier: bool,
    /// Number of changes of the optical signal.
    pub carrier_changes: u64,
    /// The device that advertised its name over the cable.
    pub neighbor: Option<Neighbor>,
    /// Whether it takes part in congestion control.
    pub dcqcn: bool,
    values: [u64; COUNTERS.len()],
}

impl Netdev {
    /// An interface that came up when its node was booted.
    pub fn new(guid: Guid, pci: PciAddress, ports: u8, dcqcn: bool) -> Self {
        Self {
            name: name(pci, ports),
            mac: mac(guid),
            mtu: MTU,
            carrier: true,
            carrier_changes: 1,
            neighbor: None,
            dcqcn,
            values: [0; COUNTERS.len()],
        }
    }

    /// Value of a counter.
    pub const fn get(&self, counter: EthernetCounter) -> u64 {
        self.values[counter as usize]
    }

    /// Counts on.
    pub const fn add(&mut self, counter: EthernetCounter, by: u64) {
        let value = &mut self.values[counter as usize];
        *value = value.wrapping_add(by);
    }

    /// Sets all counters to zero.
    pub(crate) const fn reset(&mut self) {
        self.values = [0; COUNTERS.len()];
    }

    /// Shows a value that is not always present.
    pub const fn set(&mut self, counter: EthernetCounter, value: u64) {
        self.values[counter as usize] = value;
    }

    /// Sets the link up or down; link-down events are counted where such a counter exists.
    pub const fn set_carrier(&mut self, carrier: bool) {
        if carrier && !self.carrier {
            self.carrier_changes += 1;
        }
        self.carrier = carrier;
    }

    /// What this interface counts of what the RDMA port counts.
    pub(crate) fn see(&mut self, counter: Counter, by: u64) {
        use EthernetCounter as To;
        let bytes = by.saturating_mul(BYTES_PER_PORT_DATA_WORD);
        match counter {
            Counter::PortXmitData => self.add(To::TxPrio3Bytes, bytes),
            Counter::PortRcvData => {
                let bits = bytes as f64 * 8.0 * WIRE_PER_PAYLOAD;
                self.add(To::RxPrio3Bytes, bytes);
                self.add(To::RxBitsPhy, bits as u64);
                self.add(To::RxCorrectedBitsPhy, (bits * CORRECTED_PER_BIT) as u64);
            }
            Counter::PortXmitPackets => self.add(To::TxPrio3Packets, by),
            Counter::PortRcvPackets => self.add(To::RxPrio3Packets, by),
            Counter::SymbolError => self.add(To::RxPcsSymbolErrPhy, by),
            Counter::PortRcvErrors => self.add(To::RxCrcErrorsPhy, by),
            Counter::LinkDowned => {
                self.add(To::LinkDownEventsPhy, by);
                // It is back already, or it will be counted when it comes back.
                self.carrier_changes += if self.carrier { 2 * by } else { by };
            }
            _ => {}
        }
    }

    /// Text of the kernel's `speed` file, megabits per second; -1 without an optical signal.
    pub(crate) fn speed(&self, link: LinkSpeed) -> String {
        if self.carrier {
            format!("{:.0}", link.bytes_per_second() * 8.0 / 1e6)
        } else {
            "-1".to_owned()
        }
    }
}

/// Whether mlx5 counts this of an Ethernet port below the RDMA port: not what the management agent of
/// InfiniBand counts of the cable.
pub(crate) const fn is_counted(counter: Counter) -> bool {
    !matches!(
        counter,
        Counter::SymbolError
            | Counter::PortRcvErrors
            | Counter::LinkErrorRecovery
            | Counter::LinkDowned
            | Counter::PortXmitWait
    )
}

/// The name by systemd's scheme: bus and slot in decimal, the function where the adapter has several.
fn name(pci: PciAddress, ports: u8) -> String {
    let PciAddress {
        bus,
        device,
        function,
        ..
    } = pci;
    if ports > 1 {
        format!("enp{bus}s{device}f{function}np{function}")
    } else {
        format!("enp{bus}s{device}np0")
    }
}

/// The MAC address in a GUID of this vendor: without the two bytes in its middle.
pub(crate) fn mac(guid: Guid) -> String {
    let [a, b, c, _, _, d, e, f] = guid.0.to_be_bytes();
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

/// Addresses that RoCE has on a port, by index: link-local and IPv4, version 1 and 2 of each.
pub(crate) fn gids(guid: Guid, node: u16, slot: usize) -> [(String, &'static str); 4] {
    let local = format!("fe80:0000:0000:0000:{}", groups(interface_id(guid)));
    let ipv4 = 0x0000_ffff_0a00_0000 | (slot as u64 & 0xff) << 16 | u64::from(node) & 0xffff;
    let mapped = format!("0000:0000:0000:0000:{}", groups(ipv4));
    [
        (local.clone(), "IB/RoCE v1"),
        (local, "RoCE v2"),
        (mapped.clone(), "IB/RoCE v1"),
        (mapped, "RoCE v2"),
    ]
}

/// The lower half of a link-local address: the MAC address with its universal bit turned (RFC 4291, A).
pub(crate) const fn interface_id(guid: Guid) -> u64 {
    let [a, b, c, _, _, d, e, f] = guid.0.to_be_bytes();
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// Four groups of four digits.
fn groups(number: u64) -> String {
    let digits = format!("{number:016x}");
    [0, 4, 8, 12].map(|at| &digits[at..at + 4]).join(":")
}
