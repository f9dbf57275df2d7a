//! What a port of an Elastic Fabric Adapter counts: bytes, packets, and what its reliable datagrams went through.

use railscope_model::identity::Guid;
use railscope_model::units::BYTES_PER_PORT_DATA_WORD;

use crate::parts::port::Counter;

/// Payload of a packet: the MTU that the driver reports.
const PACKET_BYTES: u64 = 8928;
/// Payload of one RDMA write: NCCL cuts its 4 MiB buffer into 8 slots.
const WRITE_BYTES: u64 = 524_288;
/// Time after which a silent peer is found unresponsive again (an engineering estimate).
pub(crate) const UNRESPONSIVE_SECONDS: f64 = 1.0;
/// Counters of a device's command queue, and what they stand at: nothing that is simulated moves them.
pub(crate) const DEVICE_COUNTERS: &[(&str, u64)] = &[
    ("submitted_cmds", 4410),
    ("completed_cmds", 4410),
    ("cmds_err", 0),
    ("no_completion_cmds", 0),
    ("keep_alive_rcvd", 86_011),
    ("alloc_pd_err", 0),
    ("create_qp_err", 0),
    ("create_cq_err", 0),
    ("reg_mr_err", 0),
    ("alloc_ucontext_err", 0),
    ("create_ah_err", 0),
    ("mmap_err", 0),
];

/// Turns rows into the enumeration of counters and their names.
macro_rules! counters {
    ($($id:ident = $name:literal;)+) => {
        /// A counter of an EFA port.
        #[allow(missing_docs)] // the names in the table describe them
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum EfaCounter { $($id),+ }

        impl EfaCounter {
            /// Every counter.
            pub const ALL: &[Self] = &[$(Self::$id),+];
        }

        const NAMES: &[&str] = &[$($name),+];
    };
}

// Files of `ports/1/hw_counters` (the kernel's efa/efa_verbs.c). All have 64 bits. Jobs move their data by RDMA
// writes only, so counters of sends, receives and reads are constant.
counters! {
    TxBytes = "tx_bytes";
    TxPkts = "tx_pkts";
    RxBytes = "rx_bytes";
    RxPkts = "rx_pkts";
    RxDrops = "rx_drops";
    SendBytes = "send_bytes";
    SendWrs = "send_wrs";
    RecvBytes = "recv_bytes";
    RecvWrs = "recv_wrs";
    RdmaReadWrs = "rdma_read_wrs";
    RdmaReadBytes = "rdma_read_bytes";
    RdmaReadWrErr = "rdma_read_wr_err";
    RdmaReadRespBytes = "rdma_read_resp_bytes";
    RdmaWriteWrs = "rdma_write_wrs";
    RdmaWriteBytes = "rdma_write_bytes";
    RdmaWriteWrErr = "rdma_write_wr_err";
    RdmaWriteRecvBytes = "rdma_write_recv_bytes";
    RetransBytes = "retrans_bytes";
    RetransPkts = "retrans_pkts";
    RetransTimeoutEvents = "retrans_timeout_events";
    ImpairedRemoteConnEvents = "impaired_remote_conn_events";
    UnresponsiveRemoteEvents = "unresponsive_remote_events";
}

impl EfaCounter {
    /// Its file, and the driver's name of it.
    pub const fn name(self) -> &'static str {
        NAMES[self as usize]
    }
}

/// The counters of an EFA port. It has no others: its driver reports about no cable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Efa {
    values: [u64; NAMES.len()],
}

impl Efa {
    /// Value of a counter.
    pub const fn get(&self, counter: EfaCounter) -> u64 {
        self.values[counter as usize]
    }

    const fn add(&mut self, counter: EfaCounter, by: u64) {
        let value = &mut self.values[counter as usize];
        *value = value.wrapping_add(by);
    }

    /// What EFA counts of what an InfiniBand port would. It sends what was lost again by itself, and has no name
    /// for what happens on the cable or for a receiver that is not ready.
    pub(crate) fn see(&mut self, counter: Counter, by: u64) {
        use EfaCounter as To;
        let bytes = by.saturating_mul(BYTES_PER_PORT_DATA_WORD);
        match counter {
            Counter::PortXmitData => {
                self.add(To::TxBytes, bytes);
                self.add(To::TxPkts, bytes / PACKET_BYTES);
                self.add(To::RdmaWriteBytes, bytes);
                self.add(To::RdmaWriteWrs, bytes / WRITE_BYTES);
            }
            Counter::PortRcvData => {
                self.add(To::RxBytes, bytes);
                self.add(To::RxPkts, bytes / PACKET_BYTES);
                self.add(To::RdmaWriteRecvBytes, bytes);
            }
            Counter::PacketSeqErr => {
                self.add(To::RetransPkts, by);
                self.add(To::RetransBytes, by.saturating_mul(PACKET_BYTES));
            }
            Counter::LocalAckTimeoutErr => self.add(To::RetransTimeoutEvents, by),
            Counter::OutOfBuffer => self.add(To::RxDrops, by),
            _ => {}
        }
    }

    /// Counts that a peer does not respond: its connection is impaired first, then it is unresponsive.
    pub(crate) const fn miss_peer(&mut self, times: u64) {
        self.add(EfaCounter::ImpairedRemoteConnEvents, times);
        self.add(EfaCounter::UnresponsiveRemoteEvents, times);
    }
}

/// Node GUID of a device: its bus in its node, as EFA's own have it, and its node.
pub(crate) fn node_guid(node: u16, bus: u8) -> Guid {
    Guid((u64::from(node) + 1) << 32 | u64::from(bus) << 24 | 0xc5d1)
}

/// Lower half of the only address of a device's port.
pub(crate) fn port_guid(node_guid: Guid) -> Guid {
    let (node, bus) = (node_guid.0 >> 32 & 0xffff, node_guid.0 >> 24 & 0xff);
    Guid(0x0c5d_11ff_fe00_0000 | node << 8 | bus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_show_in_the_counters_that_there_are_and_cables_in_none() {
        let mut efa = Efa::default();
        efa.see(Counter::PortXmitData, 1 << 20);
        efa.see(Counter::PacketSeqErr, 3);
        efa.see(Counter::LocalAckTimeoutErr, 2);
        efa.see(Counter::OutOfBuffer, 5);
        efa.miss_peer(1);
        let moved = efa.clone();
        for counter in [
            Counter::SymbolError,
            Counter::LinkDowned,
            Counter::PortXmitWait,
        ] {
            efa.see(counter, 7);
        }
        assert_eq!(efa, moved);
        for (counter, value) in [
            (EfaCounter::TxBytes, 4 << 20),
            (EfaCounter::TxPkts, (4 << 20) / 8928),
            (EfaCounter::RdmaWriteWrs, 8),
            (EfaCounter::RetransPkts, 3),
            (EfaCounter::RetransBytes, 3 * 8928),
            (EfaCounter::RetransTimeoutEvents, 2),
            (EfaCounter::RxDrops, 5),
            (EfaCounter::UnresponsiveRemoteEvents, 1),
            (EfaCounter::ImpairedRemoteConnEvents, 1),
            (EfaCounter::RxBytes, 0),
        ] {
            assert_eq!(efa.get(counter), value, "{}", counter.name());
        }
    }

    #[test]
    fn no_two_devices_have_one_guid() {
        let guids = [(0, 0x47), (0, 0x48), (1, 0x47), (0xffff, 0x47)].map(|(n, b)| node_guid(n, b));
        assert_eq!(guids[0].to_string(), "0x000000014700c5d1");
        assert_eq!(port_guid(guids[0]).to_string(), "0x0c5d11fffe000147");
        let mut all: Vec<u64> = guids.iter().flat_map(|g| [g.0, port_guid(*g).0]).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 8);
    }
}
