//! What one RDMA port shows: state, rate and every counter with its width in hardware.

use std::sync::Arc;

use railscope_model::units::LinkSpeed;

use crate::parts::efa::Efa;
use crate::parts::ethernet;
use crate::parts::ethernet::Netdev;

/// Octets in one unit of `port_xmit_data` and `port_rcv_data`.
pub use railscope_model::units::BYTES_PER_PORT_DATA_WORD;

/// What a counter does at its largest value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtLimit {
    /// Stays there until it is cleared: counters of the performance management agent
    /// (InfiniBand Architecture Specification, volume 1, 16.1.3.5).
    Stops,
    /// Starts again at zero: Q counters of the mlx5 driver.
    Wraps,
}

/// One counter file of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterFile {
    /// Folder below the port: `counters` or `hw_counters`.
    pub folder: &'static str,
    /// File name.
    pub name: &'static str,
    /// Width in hardware.
    pub bits: u8,
    /// What happens at the end of the width.
    pub at_limit: AtLimit,
}

/// Turns rows into the enumeration of counters and their table.
macro_rules! counters {
    ($($id:ident = $folder:literal $name:literal $bits:literal $limit:ident;)+) => {
        /// A counter of a port.
        #[allow(missing_docs)] // the file names in the table describe them
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Counter { $($id),+ }

        impl Counter {
            /// Every counter.
            pub const ALL: &[Self] = &[$(Self::$id),+];
        }

        /// Every counter file, in the order of [`Counter`]. Widths of `counters` are those of the
        /// attributes in the kernel's drivers/infiniband/core/sysfs.c with the extended set; files are
        /// those of a ConnectX-7 (captured on an H100 node, firmware 28.41.1000).
        pub const COUNTERS: &[CounterFile] = &[$(CounterFile {
            folder: $folder, name: $name, bits: $bits, at_limit: AtLimit::$limit,
        }),+];
    };
}

counters! {
    Vl15Dropped = "counters" "VL15_dropped" 16 Stops;
    ExcessiveBufferOverrunErrors = "counters" "excessive_buffer_overrun_errors" 4 Stops;
    LinkDowned = "counters" "link_downed" 8 Stops;
    LinkErrorRecovery = "counters" "link_error_recovery" 8 Stops;
    LocalLinkIntegrityErrors = "counters" "local_link_integrity_errors" 4 Stops;
    MulticastRcvPackets = "counters" "multicast_rcv_packets" 64 Stops;
    MulticastXmitPackets = "counters" "multicast_xmit_packets" 64 Stops;
    PortRcvConstraintErrors = "counters" "port_rcv_constraint_errors" 8 Stops;
    PortRcvData = "counters" "port_rcv_data" 64 Stops;
    PortRcvErrors = "counters" "port_rcv_errors" 16 Stops;
    PortRcvPackets = "counters" "port_rcv_packets" 64 Stops;
    PortRcvRemotePhysicalErrors = "counters" "port_rcv_remote_physical_errors" 16 Stops;
    PortRcvSwitchRelayErrors = "counters" "port_rcv_switch_relay_errors" 16 Stops;
    PortXmitConstraintErrors = "counters" "port_xmit_constraint_errors" 8 Stops;
    PortXmitData = "counters" "port_xmit_data" 64 Stops;
    PortXmitDiscards = "counters" "port_xmit_discards" 16 Stops;
    PortXmitPackets = "counters" "port_xmit_packets" 64 Stops;
    PortXmitWait = "counters" "port_xmit_wait" 32 Stops;
    SymbolError = "counters" "symbol_error" 16 Stops;
    UnicastRcvPackets = "counters" "unicast_rcv_packets" 64 Stops;
    UnicastXmitPackets = "counters" "unicast_xmit_packets" 64 Stops;
    DuplicateRequest = "hw_counters" "duplicate_request" 32 Wraps;
    ImpliedNakSeqErr = "hw_counters" "implied_nak_seq_err" 32 Wraps;
    LocalAckTimeoutErr = "hw_counters" "local_ack_timeout_err" 32 Wraps;
    OutOfBuffer = "hw_counters" "out_of_buffer" 32 Wraps;
    OutOfSequence = "hw_counters" "out_of_sequence" 32 Wraps;
    PacketSeqErr = "hw_counters" "packet_seq_err" 32 Wraps;
    ReqCqeError = "hw_counters" "req_cqe_error" 32 Wraps;
    ReqCqeFlushError = "hw_counters" "req_cqe_flush_error" 32 Wraps;
    ReqRemoteAccessErrors = "hw_counters" "req_remote_access_errors" 32 Wraps;
    ReqRemoteInvalidRequest = "hw_counters" "req_remote_invalid_request" 32 Wraps;
    RespCqeError = "hw_counters" "resp_cqe_error" 32 Wraps;
    RespCqeFlushError = "hw_counters" "resp_cqe_flush_error" 32 Wraps;
    RespLocalLengthError = "hw_counters" "resp_local_length_error" 32 Wraps;
    RespRemoteAccessErrors = "hw_counters" "resp_remote_access_errors" 32 Wraps;
    RnrNakRetryErr = "hw_counters" "rnr_nak_retry_err" 32 Wraps;
    RoceAdpRetrans = "hw_counters" "roce_adp_retrans" 32 Wraps;
    RoceAdpRetransTo = "hw_counters" "roce_adp_retrans_to" 32 Wraps;
    RoceSlowRestart = "hw_counters" "roce_slow_restart" 32 Wraps;
    RoceSlowRestartCnps = "hw_counters" "roce_slow_restart_cnps" 32 Wraps;
    RoceSlowRestartTrans = "hw_counters" "roce_slow_restart_trans" 32 Wraps;
    RxAtomicRequests = "hw_counters" "rx_atomic_requests" 32 Wraps;
    RxDctConnect = "hw_counters" "rx_dct_connect" 32 Wraps;
    RxIcrcEncapsulated = "hw_counters" "rx_icrc_encapsulated" 64 Wraps;
    RxReadRequests = "hw_counters" "rx_read_requests" 32 Wraps;
    RxWriteRequests = "hw_counters" "rx_write_requests" 32 Wraps;
}

impl Counter {
    /// Its row in [`COUNTERS`].
    pub const fn file(self) -> &'static CounterFile {
        &COUNTERS[self as usize]
    }

    /// Whether the counter grows on a healthy port that carries traffic. Packets come out of sequence wherever
    /// switches choose the path of each.
    pub const fn is_traffic(self) -> bool {
        matches!(
            self,
            Self::MulticastRcvPackets
                | Self::MulticastXmitPackets
                | Self::PortRcvData
                | Self::PortRcvPackets
                | Self::PortXmitData
                | Self::PortXmitPackets
                | Self::PortXmitWait
                | Self::UnicastRcvPackets
                | Self::UnicastXmitPackets
                | Self::OutOfSequence
                | Self::RxAtomicRequests
                | Self::RxDctConnect
                | Self::RxReadRequests
                | Self::RxWriteRequests
        )
    }
}

/// State of a port's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortState {
    /// Carries traffic.
    Active,
    /// No optical signal: the port polls for a partner.
    Down,
    /// No optical signal, as mlx5 reports it of Ethernet (`mlx5_query_port_roce`).
    Disabled,
}

impl PortState {
    /// Numbers of the logical and of the physical state (InfiniBand Architecture Specification, volume 1,
    /// 14.2.5.6).
    pub const fn codes(self) -> (u64, u64) {
        match self {
            Self::Active => (4, 5),
            Self::Down => (1, 2),
            Self::Disabled => (1, 3),
        }
    }

    /// Text of the kernel's `state` file.
    pub const fn logical(self) -> &'static str {
        match self {
            Self::Active => "4: ACTIVE",
            Self::Down | Self::Disabled => "1: DOWN",
        }
    }

    /// Text of the kernel's `phys_state` file.
    pub const fn physical(self) -> &'static str {
        match self {
            Self::Active => "5: LinkUp",
            Self::Down => "2: Polling",
            Self::Disabled => "3: Disabled",
        }
    }
}

/// All that one port shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Port {
    /// State of its link.
    pub state: PortState,
    /// Width and speed of its link.
    pub speed: LinkSpeed,
    /// Local identifier; `0xffff` while the port is down, 0 on Ethernet.
    pub lid: u16,
    /// Firmware of its NIC, if it is not what the product came with.
    pub firmware: Option<Arc<str>>,
    /// The Ethernet interface of a RoCE port.
    pub netdev: Option<Box<Netdev>>,
    /// The counters of an EFA port, which has none of the others.
    pub efa: Option<Box<Efa>>,
    values: [u64; COUNTERS.len()],
}

impl Port {
    /// A port that is up, with all counters at zero.
    pub const fn new(speed: LinkSpeed, lid: u16) -> Self {
        Self {
            state: PortState::Active,
            speed,
            lid,
            firmware: None,
            netdev: None,
            efa: None,
            values: [0; COUNTERS.len()],
        }
    }

    /// A RoCE port that is up, with all counters at zero.
    pub fn roce(speed: LinkSpeed, netdev: Netdev) -> Self {
        Self {
            netdev: Some(Box::new(netdev)),
            ..Self::new(speed, 0)
        }
    }

    /// An EFA port, with all counters at zero.
    pub fn efa(speed: LinkSpeed) -> Self {
        Self {
            efa: Some(Box::default()),
            ..Self::new(speed, 0)
        }
    }

    /// Value of a counter.
    pub const fn get(&self, counter: Counter) -> u64 {
        self.values[counter as usize]
    }

    /// All values, in the order of [`COUNTERS`].
    pub const fn values(&self) -> &[u64] {
        &self.values
    }

    /// Counts on, within the width that the counter has in hardware.
    pub fn add(&mut self, counter: Counter, by: u64) {
        if let Some(efa) = &mut self.efa {
            efa.see(counter, by);
            return;
        }
        if let Some(netdev) = &mut self.netdev {
            netdev.see(counter, by);
            if !ethernet::is_counted(counter) {
                return;
            }
        }
        let CounterFile { bits, at_limit, .. } = *counter.file();
        let largest = u64::MAX >> (64 - u32::from(bits));
        let value = &mut self.values[counter as usize];
        *value = match at_limit {
            AtLimit::Stops => value.saturating_add(by).min(largest),
            AtLimit::Wraps => value.wrapping_add(by) & largest,
        };
    }

    /// Counts replies that never came. RoCE restarts slowly after each.
    pub(crate) fn time_out(&mut self, times: u64) {
        self.add(Counter::LocalAckTimeoutErr, times);
        if self.netdev.is_some() {
            self.add(Counter::RoceSlowRestart, times);
            self.add(Counter::RoceSlowRestartTrans, times);
        }
    }

    /// Counts that a peer does not respond, where the driver has a name for it.
    pub(crate) fn miss_peer(&mut self, times: u64) {
        if let Some(efa) = &mut self.efa {
            efa.miss_peer(times);
        }
    }

    /// Sets all counters to zero.
    pub(crate) fn reset(&mut self) {
        self.values = [0; COUNTERS.len()];
        if let Some(netdev) = &mut self.netdev {
            netdev.reset();
        }
        if let Some(efa) = &mut self.efa {
            **efa = Efa::default();
        }
    }

    /// Sets a counter to a value from which it counts so many before it has reached its end.
    pub(crate) fn leave(&mut self, counter: Counter, left: u64) {
        let largest = u64::MAX >> (64 - u32::from(counter.file().bits));
        self.values[counter as usize] = largest.saturating_sub(left);
    }

    /// Text of the kernel's `rate` file: `400 Gb/sec (4X NDR)`.
    pub fn rate(&self) -> String {
        let gbits = self.speed.bytes_per_second() * 8.0 / 1e9;
        format!(
            "{gbits} Gb/sec ({}X {})",
            self.speed.lanes, self.speed.speed
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NDR: LinkSpeed = LinkSpeed {
        lanes: 4,
        speed: "NDR",
    };

    #[test]
    fn counters_end_as_their_hardware_does() {
        let mut port = Port::new(NDR, 1);
        port.add(Counter::LinkDowned, 300);
        assert_eq!(port.get(Counter::LinkDowned), 255);
        port.add(Counter::RxWriteRequests, (1 << 32) + 5);
        assert_eq!(port.get(Counter::RxWriteRequests), 5);
        port.add(Counter::PortXmitData, 1 << 40);
        assert_eq!(port.get(Counter::PortXmitData), 1 << 40);
    }

    #[test]
    fn rates_are_written_as_the_kernel_writes_them() {
        for (lanes, speed, text) in [
            (4, "NDR", "400 Gb/sec (4X NDR)"),
            (4, "HDR", "200 Gb/sec (4X HDR)"),
            (1, "NDR", "100 Gb/sec (1X NDR)"),
            (1, "SDR", "2.5 Gb/sec (1X SDR)"),
        ] {
            assert_eq!(Port::new(LinkSpeed { lanes, speed }, 1).rate(), text);
        }
    }
}
