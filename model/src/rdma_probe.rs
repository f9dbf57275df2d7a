//! The protocol between the exporter and its RDMA prober, `railscope-rdma-probe`: one JSON object a line.
//!
//! The prober is a separate process, so that the exporter needs no libibverbs and a blocked driver affects only these probes. It reads
//! [`Plan`]s from its standard input and writes a [`Report`] every [`REPORT_INTERVAL`] to its standard output; it ends when its
//! input ends.

use core::net::Ipv6Addr;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Time between two reports of the prober. They are its heartbeat, too.
pub const REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// Where an unreliable-datagram queue pair can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// Its port's GID. On RoCE v2 an IP address, IPv4 ones mapped (`::ffff:10.0.0.1`).
    pub gid: Ipv6Addr,
    /// Its port's LID; 0 on Ethernet.
    pub lid: u16,
    /// Number of the queue pair, 24 bits.
    pub queue_pair: u32,
    /// Its key, which a sender must know.
    pub queue_key: u32,
}

/// The flows to probe. Each plan replaces the one before.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Nanoseconds between two probes of one flow.
    pub interval_nanos: u64,
    /// Nanoseconds after which a probe without a reply is lost.
    pub timeout_nanos: u64,
    /// Traffic class of probes and replies: eight bits, of which the upper six are the DSCP.
    pub traffic_class: u8,
    /// Service level: on InfiniBand it selects the virtual lane, on RoCE the priority.
    pub service_level: u8,
    /// The flows; each has a unique `id`.
    pub flows: Vec<PlannedFlow>,
}

/// One flow of a [`Plan`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedFlow {
    /// What reports call it.
    pub id: u32,
    /// Our RDMA device.
    pub device: String,
    /// Flow label, 20 bits: drivers derive the UDP source port of RoCE v2 from it, and so switches the path.
    pub flow_label: u32,
    /// The responder.
    pub peer: Endpoint,
}

/// Results of probes since the last report, and the prober's current state.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Where this node responds, by RDMA device.
    pub endpoints: BTreeMap<String, Endpoint>,
    /// Answered probes: the flow, and the round trip through the network in nanoseconds; none where a process was stopped
    /// or short of CPU meanwhile, so that the time does not describe the network.
    pub answered: Vec<(u32, Option<u64>)>,
    /// Flows of probes without a reply in time, each as often as it lost one.
    pub lost: Vec<u32>,
    /// By RDMA device: nanoseconds that probes of other nodes spent in this process.
    pub responded: BTreeMap<String, Vec<u64>>,
    /// By RDMA device: why it cannot probe or respond.
    pub problems: BTreeMap<String, Problem>,
    /// Packets that are neither a request nor a reply to one of ours.
    pub unparsed: u64,
    /// Requests above the limit that got no reply, and probes that were due and not sent.
    pub limited: u64,
    /// Whether the times of some device are the NIC's own.
    pub hardware_timestamps: bool,
}

/// Why a device cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Problem {
    /// There is no such device, or it has no active port.
    Absent,
    /// This process may not open it.
    Denied,
    /// Anything else.
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written_and_an_unknown_field_is_an_error() {
        let endpoint = Endpoint {
            gid: "::ffff:10.0.0.1".parse().expect("an address"),
            lid: 0,
            queue_pair: 17,
            queue_key: 0x1234_5678,
        };
        let report = Report {
            endpoints: [("mlx5_0".to_owned(), endpoint)].into(),
            answered: vec![(3, Some(4_200)), (4, None)],
            lost: vec![3, 3],
            problems: [("mlx5_1".to_owned(), Problem::Denied)].into(),
            ..Report::default()
        };
        let line = serde_json::to_string(&report).expect("a line");
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Report>(&line).expect(&line), report);
        assert!(serde_json::from_str::<Plan>(r#"{"interval":1}"#).is_err());
    }
}
