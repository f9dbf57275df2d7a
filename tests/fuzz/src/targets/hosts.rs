//! What the exporter receives and reads on a host, and the text that it serves.

use std::net::Shutdown;
use std::os::unix::net::UnixDatagram;

use railscope_exporter::WebSecurity;
use railscope_exporter::sources::kmsg::KernelLog;
use railscope_exporter::sources::lldp::{parse_frame, parse_json0};
use railscope_exporter::sources::netlink::{Attributes, Socket};
use railscope_exporter::sources::probe::wire::{LENGTH, Packet, quoted_hop};
use railscope_exporter::sources::probe::{MOST_FLOWS, ProbeList};
use railscope_exporter::sources::rdma_netlink::Nldev;
use railscope_model::exposition::parse;

use super::files::folder;

#[path = "../../../../simulator/nvml-mock/src/state/mod.rs"]
#[allow(dead_code, unreachable_pub, unused_imports, missing_docs)]
mod state;

/// Messages of netlink itself, and the family of RDMA devices in the others' kind.
const ERROR: u8 = 2;
const DONE: u8 = 3;
const NLDEV: u16 = 5 << 10;
/// As many as [`rdma_netlink`] requests.
const QUESTIONS: u32 = 4;

/// An exposition of any exporter.
pub(crate) fn exposition(bytes: &[u8]) {
    for line in parse(&String::from_utf8_lossy(bytes)) {
        match line {
            Ok(line) => assert!(!format!("{line:?}").is_empty()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// An LLDP frame from the wire.
pub(crate) fn lldp_frame(bytes: &[u8]) {
    parse_frame("eth0", bytes);
}

/// What `lldpctl -f json0` prints.
pub(crate) fn lldp_json0(bytes: &[u8]) {
    parse_json0(&String::from_utf8_lossy(bytes));
}

/// Attributes of a reply of the kernel, nested as deep as they specify.
pub(crate) fn netlink(bytes: &[u8]) {
    if let Ok(attributes) = Attributes::whole(bytes) {
        walk(attributes, 8);
    }
}

fn walk(attributes: Attributes<'_>, depth: u8) {
    for attribute in attributes {
        attribute.number();
        attribute.first_long();
        attribute.text();
        if depth > 0
            && let Some(inside) = attribute.inside()
        {
            walk(inside, depth - 1);
        }
    }
}

/// Replies of the kernel's RDMA device interface: to each request one datagram with one message, numbered as it is.
pub(crate) fn rdma_netlink(bytes: &[u8]) {
    let (ours, kernels) = UnixDatagram::pair().expect("a pair of sockets");
    let mut rest = bytes;
    for sequence in 1..=QUESTIONS {
        // Length, kind and flags of the reply.
        let [low, high, kind, flags, behind @ ..] = rest else {
            break;
        };
        // Four of them are less than a socket's buffer holds.
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(8_192);
        let (payload, next) = behind.split_at(length.min(behind.len()));
        rest = next;
        let answer = message([*kind, *flags], sequence, payload);
        kernels.send(&answer).expect("room");
        if sequence == 1 {
            // The first question is for a list, which has an end.
            let end = message([DONE, 0], sequence, &[0; 4]);
            kernels.send(&end).expect("room");
        }
    }
    // Nothing follows: a reader that waits for more gets an error at once.
    ours.shutdown(Shutdown::Read).expect("a socket");
    let Ok(socket) = Socket::over(ours.into()) else {
        return;
    };
    let mut nldev = Nldev::over(socket);
    nldev.devices().ok();
    nldev
        .counters(0, 1, |name, _| assert!(name.len() <= 8_192))
        .ok();
    nldev.optional_counters(0, 1).ok();
    nldev.counter_mode(0, 1).ok();
}

/// A message of netlink's own kinds, or of the family.
fn message([kind, flags]: [u8; 2], sequence: u32, payload: &[u8]) -> Vec<u8> {
    let family = if kind == ERROR || kind == DONE {
        0
    } else {
        NLDEV
    };
    let length = 16 + u32::try_from(payload.len()).expect("short");
    let mut message = length.to_ne_bytes().to_vec();
    message.extend((family | u16::from(kind)).to_ne_bytes());
    message.extend(u16::from(flags).to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend([0; 4]);
    message.extend(payload);
    message
}

/// A datagram that came to the responder or to the prober, and what a router quotes of one.
pub(crate) fn probe_packet(bytes: &[u8]) {
    quoted_hop(bytes);
    if let Some(packet) = Packet::read(bytes) {
        let written = packet.write();
        assert_eq!(Packet::read(&written), Some(packet));
        assert!(bytes.len() >= LENGTH, "an answer longer than its question");
    }
}

/// The targets to probe.
pub(crate) fn probe_list(bytes: &[u8]) {
    match ProbeList::parse("list", &String::from_utf8_lossy(bytes)) {
        Ok(list) => {
            let flows = list.targets.iter().map(|target| usize::from(target.flows));
            assert!(flows.sum::<usize>() <= MOST_FLOWS);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Records of the kernel's log.
pub(crate) fn kernel_log(bytes: &[u8]) {
    let file = folder().join("kmsg");
    std::fs::write(&file, bytes).expect("a file");
    let mut log = KernelLog::new(&file);
    while let Ok(batch) = log.read() {
        if batch.at_end {
            break;
        }
    }
}

/// The exporter's web configuration.
pub(crate) fn web_config(bytes: &[u8]) {
    let file = folder().join("web.yml");
    std::fs::write(&file, bytes).expect("a file");
    if let Err(error) = WebSecurity::load(&file) {
        assert!(!error.to_string().is_empty());
    }
}

/// The file that the simulated NVML reads.
pub(crate) fn nvml_mock(bytes: &[u8]) {
    drop(state::NodeGpus::parse(&String::from_utf8_lossy(bytes)));
}
