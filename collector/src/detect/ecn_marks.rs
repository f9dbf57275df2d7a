//! Packets that switches mark for congestion (ECN), as a share of all packets.

use super::registry::Threshold;

/// Bytes of a packet, the largest of RDMA: counters of bytes and of marked packets are known where those of packets are not.
pub(crate) const PACKET_BYTES: f64 = 4096.0;

/// The size of a packet as a threshold.
pub(crate) fn packet_size() -> Threshold {
    Threshold::new(
        "bytes of a packet",
        PACKET_BYTES,
        "bytes",
        "the largest RDMA MTU; smaller packets lower the share",
    )
}

/// Share of the packets that is marked, by marked packets and bytes of the same time.
pub(crate) fn marked_share(marked: f64, bytes: f64) -> f64 {
    marked * PACKET_BYTES / bytes
}
