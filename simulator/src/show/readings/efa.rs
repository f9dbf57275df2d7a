//! What the exporter would report about an EFA port: no state, as its driver makes one up, and its own
//! counters.

use railscope_model::metric::{
    Metric, RDMA_DEVICE_EVENTS, RDMA_NO_BUFFER, RDMA_OPERATION_BYTES, RDMA_PORT_RECEIVE_BYTES,
    RDMA_PORT_RECEIVE_PACKETS, RDMA_PORT_SPEED, RDMA_PORT_TRANSMIT_BYTES,
    RDMA_PORT_TRANSMIT_PACKETS, RDMA_PORT_WIDTH, RDMA_RETRANSMITS, RDMA_RETRIES_EXCEEDED,
    RDMA_TRANSPORT_EVENTS,
};
use railscope_model::reading::Labels;

use super::{From, NodeRows, OfPort};
use crate::parts::efa::{DEVICE_COUNTERS, EfaCounter};

const VALUES: &[(&Metric, OfPort)] = &[
    (&RDMA_PORT_SPEED, |port| {
        port.speed.bytes_per_second().into()
    }),
    (&RDMA_PORT_WIDTH, |port| u64::from(port.speed.lanes).into()),
];

/// The catalogue's row for a counter, and whether its name is a label there.
const fn named(counter: EfaCounter) -> (&'static Metric, bool) {
    use EfaCounter as Of;
    match counter {
        Of::TxBytes => (&RDMA_PORT_TRANSMIT_BYTES, false),
        Of::TxPkts => (&RDMA_PORT_TRANSMIT_PACKETS, false),
        Of::RxBytes => (&RDMA_PORT_RECEIVE_BYTES, false),
        Of::RxPkts => (&RDMA_PORT_RECEIVE_PACKETS, false),
        Of::SendBytes
        | Of::RecvBytes
        | Of::RdmaReadBytes
        | Of::RdmaReadRespBytes
        | Of::RdmaWriteBytes
        | Of::RdmaWriteRecvBytes
        | Of::RetransBytes => (&RDMA_OPERATION_BYTES, true),
        _ => (&RDMA_TRANSPORT_EVENTS, true),
    }
}

/// The row that means the same on every driver, beside the driver's own.
const fn neutral(counter: EfaCounter) -> Option<&'static Metric> {
    match counter {
        EfaCounter::RetransPkts => Some(&RDMA_RETRANSMITS),
        EfaCounter::UnresponsiveRemoteEvents => Some(&RDMA_RETRIES_EXCEEDED),
        EfaCounter::RxDrops => Some(&RDMA_NO_BUFFER),
        _ => None,
    }
}

impl NodeRows {
    /// The rows of one port, by its number in the node.
    pub(super) fn add_efa(&mut self, slot: usize, device: &str) {
        let labels = Labels::new([device, "1"]);
        for (metric, read) in VALUES {
            self.add(metric, &labels, From::Port(slot, *read));
        }
        for counter in EfaCounter::ALL {
            let from = From::Efa(slot, *counter);
            match named(*counter) {
                (metric, true) => self.add(metric, &labels.with(counter.name()), from),
                (metric, false) => self.add(metric, &labels, from),
            }
            if let Some(metric) = neutral(*counter) {
                self.add(metric, &labels, from);
            }
        }
        for (name, value) in DEVICE_COUNTERS {
            let labels = Labels::new([device, name]);
            self.add(&RDMA_DEVICE_EVENTS, &labels, From::Fixed(*value as f64));
        }
    }
}
