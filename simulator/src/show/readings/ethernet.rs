//! What the exporter would report about a RoCE port's Ethernet interface.

use railscope_model::metric::{
    LLDP_NEIGHBOR, Metric, NIC, NIC_BUFFER_THRESHOLD, NIC_CARRIER, NIC_CARRIER_CHANGES,
    NIC_DISCARDS, NIC_MTU, NIC_PAUSE_SECONDS, NIC_PAUSE_STORMS, NIC_PCIE_OVERFLOW,
    NIC_PCIE_STALLED, NIC_PCIE_STALLED_SECONDS, NIC_PFC_ENABLED, NIC_PFC_FRAMES,
    NIC_PFC_PAUSE_SECONDS, NIC_PFC_TRANSITIONS, NIC_PHY_BITS, NIC_PHY_CORRECTED_BITS,
    NIC_PHY_CRC_ERRORS, NIC_PHY_FRAME_ERRORS, NIC_PHY_LINK_DOWN, NIC_PHY_SYMBOL_ERRORS,
    NIC_PRIORITY_BYTES, NIC_PRIORITY_DISCARDS, NIC_PRIORITY_PACKETS, NIC_SPEED, RDMA_CNP,
    RDMA_ECN_MARKED,
};
use railscope_model::reading::{Labels, NodeReading, Value};

use super::{From, INFO, NodeRows};
use crate::cluster::Node;
use crate::parts::ethernet::{EthernetCounter, LOSSLESS, Netdev, PRIORITIES, Source};
use crate::parts::port::Port;
use crate::spec::pci_layout::Function;
use crate::wiring::Nic;

/// The lossless priority as a label value.
const PRIORITY: &str = "3";

/// What one unit of a counter is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unit {
    One,
    Micro,
    Percent,
}

/// A row of the catalogue, the labels behind the interface or port, and what a counter of it counts in.
type Row = (&'static Metric, &'static [&'static str], Unit);

const fn one(metric: &'static Metric, labels: &'static [&'static str]) -> Row {
    (metric, labels, Unit::One)
}

fn named(counter: EthernetCounter) -> Row {
    use EthernetCounter as Of;
    match counter {
        Of::RxCrcErrorsPhy => one(&NIC_PHY_CRC_ERRORS, &[]),
        Of::RxDiscardsPhy => one(&NIC_DISCARDS, &["receive", "buffer"]),
        Of::TxDiscardsPhy => one(&NIC_DISCARDS, &["transmit", "port"]),
        Of::RxOversizePktsPhy => one(&NIC_PHY_FRAME_ERRORS, &["receive", "oversize"]),
        Of::RxOutOfRangeLenPhy => one(&NIC_PHY_FRAME_ERRORS, &["receive", "out_of_range"]),
        Of::LinkDownEventsPhy => one(&NIC_PHY_LINK_DOWN, &[]),
        Of::RxBitsPhy => one(&NIC_PHY_BITS, &[]),
        Of::RxPcsSymbolErrPhy => one(&NIC_PHY_SYMBOL_ERRORS, &[]),
        Of::RxCorrectedBitsPhy => one(&NIC_PHY_CORRECTED_BITS, &[]),
        Of::RxBufferPassedThresPhy => one(&NIC_BUFFER_THRESHOLD, &[]),
        Of::OutboundPciBufferOverflow => one(&NIC_PCIE_OVERFLOW, &[]),
        Of::OutboundPciStalledWr => (&NIC_PCIE_STALLED, &["write"], Unit::Percent),
        Of::OutboundPciStalledWrEvents => one(&NIC_PCIE_STALLED_SECONDS, &["write"]),
        Of::TxPauseStormWarningEvents => one(&NIC_PAUSE_STORMS, &["warning"]),
        Of::TxPauseStormErrorEvents => one(&NIC_PAUSE_STORMS, &["error"]),
        Of::RxPrio3Bytes => one(&NIC_PRIORITY_BYTES, &[PRIORITY, "receive"]),
        Of::RxPrio3Packets => one(&NIC_PRIORITY_PACKETS, &[PRIORITY, "receive"]),
        Of::RxPrio3Discards => one(&NIC_PRIORITY_DISCARDS, &[PRIORITY, "buffer"]),
        Of::TxPrio3Bytes => one(&NIC_PRIORITY_BYTES, &[PRIORITY, "transmit"]),
        Of::TxPrio3Packets => one(&NIC_PRIORITY_PACKETS, &[PRIORITY, "transmit"]),
        Of::RxPrio3Pause => one(&NIC_PFC_FRAMES, &[PRIORITY, "receive"]),
        Of::RxPrio3PauseDuration => (&NIC_PFC_PAUSE_SECONDS, &[PRIORITY, "receive"], Unit::Micro),
        Of::TxPrio3Pause => one(&NIC_PFC_FRAMES, &[PRIORITY, "transmit"]),
        Of::TxPrio3PauseDuration => (&NIC_PFC_PAUSE_SECONDS, &[PRIORITY, "transmit"], Unit::Micro),
        Of::RxPrio3PauseTransition => one(&NIC_PFC_TRANSITIONS, &[PRIORITY, "receive"]),
        Of::NpCnpSent => one(&RDMA_CNP, &["np", "sent"]),
        Of::NpEcnMarkedRocePackets => one(&RDMA_ECN_MARKED, &[]),
        Of::RpCnpHandled => one(&RDMA_CNP, &["rp", "handled"]),
        Of::RpCnpIgnored => one(&RDMA_CNP, &["rp", "ignored"]),
    }
}

pub(super) type OfNetdev = fn(&Netdev, &Port) -> Option<Value>;

const VALUES: &[(&Metric, OfNetdev)] = &[
    (&NIC_CARRIER, |netdev, _| Some(netdev.carrier.into())),
    (&NIC_CARRIER_CHANGES, |netdev, _| {
        Some(netdev.carrier_changes.into())
    }),
    (&NIC_MTU, |netdev, _| Some(u64::from(netdev.mtu).into())),
    // An interface without an optical signal has none.
    (&NIC_SPEED, |netdev, port| {
        netdev.carrier.then(|| port.speed.bytes_per_second().into())
    }),
];

impl Unit {
    pub(super) fn value(self, count: u64) -> Value {
        match self {
            Self::One => count.into(),
            Self::Micro => (count as f64 / 1e6).into(),
            Self::Percent => (count as f64 / 100.0).into(),
        }
    }
}

impl NodeRows {
    /// The rows of one interface.
    pub(super) fn add_netdev(
        &mut self,
        slot: usize,
        function: &Function,
        nic: &Nic,
        netdev: &Netdev,
    ) {
        let (device, labels) = (nic.device.as_str(), Labels::new([&netdev.name]));
        let about = [
            netdev.name.as_str(),
            &function.pci.to_string(),
            device,
            "mlx5_core",
            &function.numa_node.to_string(),
        ];
        self.add(&NIC, &Labels::new(about), INFO);
        for (metric, read) in VALUES {
            self.add(metric, &labels, From::Netdev(slot, *read));
        }
        for priority in 0..PRIORITIES {
            let enabled = From::Fixed(f64::from(u8::from(priority == LOSSLESS)));
            self.add(&NIC_PFC_ENABLED, &labels.with(priority), enabled);
        }
        for counter in EthernetCounter::ALL {
            let (metric, more, unit) = named(*counter);
            let labels = match counter.source() {
                Source::Driver => labels.clone(),
                Source::Rdma => Labels::new([device, "1"]),
            };
            let labels = more.iter().fold(labels, |labels, more| labels.with(more));
            self.add(metric, &labels, From::Ethernet(slot, *counter, unit));
        }
        for (direction, counter) in [
            ("receive", EthernetCounter::RxPrio3PauseDuration),
            ("transmit", EthernetCounter::TxPrio3PauseDuration),
        ] {
            let from = From::Ethernet(slot, counter, Unit::Micro);
            self.add(&NIC_PAUSE_SECONDS, &labels.with(direction), from);
        }
    }
}

/// The device at the other end of each cable: that changes with the cables.
pub(super) fn push_neighbors(reading: &mut NodeReading, node: &Node) {
    for netdev in node.ports.iter().filter_map(|port| port.netdev.as_deref()) {
        if let Some(neighbor) = &netdev.neighbor {
            let labels = Labels::new([
                &netdev.name,
                &neighbor.chassis,
                &neighbor.port,
                &neighbor.system,
                &neighbor.port,
            ]);
            reading.push(&LLDP_NEIGHBOR, &labels, true);
        }
    }
}
