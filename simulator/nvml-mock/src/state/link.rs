//! One NVLink of a GPU, as the state file describes it.

use super::pci::PciAddress;
use super::values::{Value, keyed_struct};

/// The NVSwitches of a DGX H100, as the links of [`LinkState::hgx`] reach them.
pub const SWITCHES: [PciAddress; 4] = [
    PciAddress::new(0x07, 0),
    PciAddress::new(0x08, 0),
    PciAddress::new(0x09, 0),
    PciAddress::new(0x0a, 0),
];

keyed_struct! {
    /// State of one NVLink. Lines: `nvlink <gpu|*> <link|*> <key> <value>`.
    LinkState {
        /// 0 inactive, 1 active, 2 asleep (healthy).
        state: u32 = 1,
        /// As `nvmlNvlinkVersion_t` counts: 4 is NVLink 3.0 (A100), 6 is 4.0 (H100), 7 is 5.0 (B200).
        version: u32 = 6,
        /// One direction, as `nvidia-smi nvlink -s` prints it on an H100 (26.562 GB/s).
        speed_megabytes_per_second: u32 = 26_562,
        /// Bit i is `nvmlNvLinkCapability_t` i: peer to peer, system memory, their atomics, SLI, valid.
        capabilities: u32 = 0b10_1111,
        /// 0 GPU, 1 IBM NPU, 2 NVSwitch, 255 unknown.
        remote_type: u32 = 2,
        /// The device at the other end.
        remote_pci_address: PciAddress = SWITCHES[0],
        /// PCI device and vendor of the other end; an NVSwitch of the third generation.
        remote_pci_device_id: u32 = 0x22a3_10de,
        /// The port at the other end.
        remote_link: u32 = 0,

        /// Payload sent; NVML counts KiB.
        data_transmit_kibibytes: u64 = 0,
        /// Payload received; NVML counts KiB.
        data_receive_kibibytes: u64 = 0,
        /// Payload and protocol sent; NVML counts KiB.
        raw_transmit_kibibytes: u64 = 0,
        /// Payload and protocol received; NVML counts KiB.
        raw_receive_kibibytes: u64 = 0,

        /// Replays of the data link layer. Documented as unsupported from Blackwell on.
        replay_errors: u64 = 0,
        /// Recoveries of the data link layer. Documented as unsupported from Blackwell on.
        recovery_errors: u64 = 0,
        /// CRC errors of flow control digits.
        crc_flit_errors: u64 = 0,
        /// CRC errors of data.
        crc_data_errors: u64 = 0,
        /// ECC errors of data; Ampere only.
        ecc_data_errors: Option<u64> = None,

        /// From here on: NVLink 5 only, unsupported before Blackwell. Packets sent.
        transmit_packets: u64 = 0,
        /// Bytes sent.
        transmit_bytes: u64 = 0,
        /// Packets received.
        receive_packets: u64 = 0,
        /// Bytes received.
        receive_bytes: u64 = 0,
        /// Malformed packets.
        malformed_packet_errors: u64 = 0,
        /// Packets lost because the receive buffer was full.
        buffer_overrun_errors: u64 = 0,
        /// Packets received with an error.
        receive_errors: u64 = 0,
        /// Packets that the other end had marked as bad.
        receive_remote_errors: u64 = 0,
        /// Packets with a header error.
        receive_general_errors: u64 = 0,
        /// Link integrity errors above the threshold.
        local_integrity_errors: u64 = 0,
        /// Packets not sent.
        transmit_discards: u64 = 0,
        /// Link recoveries that worked.
        recoveries_successful: u64 = 0,
        /// Link recoveries that did not.
        recoveries_failed: u64 = 0,
        /// Link recoveries.
        recoveries: u64 = 0,
        /// Symbols wrong after error correction.
        symbol_errors: u64 = 0,
        /// Symbol error rate as NVML packs it: mantissa and exponent.
        symbol_ber_packed: u64 = 0,
        /// Code words by the number of symbols that FEC corrected, 0 to 15.
        fec_history: [u64; 16] = [0; 16],
        /// Port register: times that the link went down.
        prm_link_downs: u64 = 0,
        /// Port register: recoveries of the physical layer.
        prm_physical_recoveries: u64 = 0,
        /// Port register: recoveries in all.
        prm_recoveries: u64 = 0,
        /// Port register: since the last of them.
        prm_seconds_since_recovery: u64 = 0,
        /// Port register: between the last two.
        prm_milliseconds_between_recoveries: u64 = 0,
        /// Port register: ticks without credit.
        prm_transmit_wait: u64 = 0,
        /// Port registers of physical layer retransmission, counters 301 to 307.
        prm_plr: [u64; 7] = [0; 7],
    }
    beside {}
}

impl LinkState {
    /// Link `link` of GPU `gpu` in an HGX board: spread over four NVSwitches, 5, 5, 4 and 4 links each. Which link
    /// connects to which switch and port is our choice; the real order is not documented.
    #[must_use]
    pub fn hgx(gpu: usize, link: usize) -> Self {
        let port = gpu * 5 + link / SWITCHES.len();
        Self {
            remote_pci_address: SWITCHES[link % SWITCHES.len()],
            remote_link: u32::try_from(port).unwrap_or(u32::MAX),
            ..Self::default()
        }
    }
}
