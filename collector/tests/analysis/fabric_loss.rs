//! Loss inside the fabric that only hosts see: two leaves of four hosts, and spines that report nothing.

mod broken;

use railscope_collector::analyzer::Analyzer;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;
use railscope_model::metric::{
    SWITCH_PORT_DISCARDS, SWITCH_PORT_ERRORS, SWITCH_PORT_PFC_FRAMES, SWITCH_PORT_RECEIVE_BYTES,
    SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_TRANSMIT_PACKETS,
};
use railscope_model::reading::{Labels, NodeReading};

use super::cluster::{NODES, RAILS, at, node, page, subnet_of};
use super::jobs::held;

/// Packets a second that a NIC sends in vain, and that it misses, by node and rail.
type Rates = dyn Fn(usize, usize) -> (u64, u64);

/// All NICs of four hosts are connected to one leaf.
fn by_rack(node: usize, _: usize) -> Option<usize> {
    Some(node / 4)
}

/// What the node's NICs count: 40 GB/s in each direction, or 10 million packets.
fn counters(index: usize, seconds: u64, rates: &Rates) -> String {
    let of_rail = |rail| {
        let labels = format!("{{device=\"mlx5_{rail}\",port=\"1\"");
        let (in_vain, missed) = rates(index, rail);
        let lost = [("packet_seq_err", in_vain), ("out_of_sequence", missed)];
        let lost = lost.map(|(event, rate)| {
            format!(
                "railscope_rdma_transport_events_total{labels},event=\"{event}\"}} {}\n",
                rate * seconds
            )
        });
        let bytes = ["transmit", "receive"].map(|way| {
            format!(
                "railscope_rdma_port_{way}_bytes_total{labels}}} {}\n",
                40_000_000_000 * seconds
            )
        });
        [bytes.concat(), lost.concat()].concat()
    };
    (0..RAILS).map(of_rail).collect()
}

/// Class, part, its far end, what it may be as well and severity of the incidents of two minutes.
fn incidents(
    spines: usize,
    rates: &Rates,
    more: &dyn Fn(usize, u64, String) -> String,
) -> Vec<String> {
    incidents_with((spines, &|_, _| None), rates, more)
}

/// What a switch reports after so many seconds.
type OfSwitch = dyn Fn(&str, u64) -> Option<NodeReading>;

/// The same, where switches are read.
fn incidents_with(
    (spines, of_switch): (usize, &OfSwitch),
    rates: &Rates,
    more: &dyn Fn(usize, u64, String) -> String,
) -> Vec<String> {
    let mut analyzer = Analyzer::default();
    analyzer.set_targets(&(0..NODES).map(node).collect::<Vec<_>>());
    let subnet = subnet_of(NODES, spines, &by_rack);
    let mut view = analyzer.tick(at(0));
    for seconds in (5..=120).step_by(5) {
        for index in 0..NODES {
            let text = page(index, seconds) + &counters(index, seconds, rates);
            analyzer.ingest(&node(index), &more(index, seconds, text), at(seconds));
        }
        let leaves = (0..RAILS).map(|leaf| format!("leaf-{leaf}"));
        for name in leaves.chain((0..spines).map(|spine| format!("spine-{spine}"))) {
            if let Some(told) = of_switch(&name, seconds) {
                let switch = name.parse().expect("a name");
                analyzer.ingest_switch(&switch, &told, at(seconds));
            }
        }
        let subnet = parse_ibnetdiscover(&subnet);
        analyzer.take_subnet(subnet, at(seconds));
        view = analyzer.tick(at(seconds));
    }
    let told = view.incidents.iter().map(|incident| {
        let alternatives = incident.alternatives.iter().map(ToString::to_string);
        let alternatives: Vec<String> = alternatives.collect();
        let far_end = incident.far_end.as_ref();
        let far_end = far_end.map_or(String::new(), |end| format!(" to {end}"));
        format!(
            "{} {}{far_end} or {alternatives:?} {}",
            incident.class.name,
            incident.root,
            incident.severity.as_str()
        )
    });
    told.collect()
}

fn as_it_is(_: usize, _: u64, page: String) -> String {
    page
}

/// Four NICs of two hosts of the first leaf send to as many of the second: 200 of 10 million packets are lost.
fn between_leaves(node: usize, rail: usize) -> (u64, u64) {
    let is_one = rail < 2;
    match node {
        0 | 1 if is_one => (200, 0),
        4 | 5 if is_one => (0, 200),
        _ => (0, 0),
    }
}

#[test]
fn what_many_send_and_many_miss_is_lost_at_a_switch_between_them() {
    let one = incidents(1, &between_leaves, &as_it_is);
    assert_eq!(one, ["uplink-lossy switch/spine-0 or [] critical"]);
}

#[test]
fn switches_that_hosts_cannot_tell_apart_are_all_named_and_page_nobody() {
    let two = incidents(2, &between_leaves, &as_it_is);
    let expected = r#"uplink-lossy switch/spine-0 or ["switch/spine-1"] warning"#;
    assert_eq!(two, [expected]);
}

#[test]
fn where_packets_of_a_switch_are_read_its_counters_speak() {
    let packets = |switch: &str, seconds: u64| {
        let mut told = NodeReading::default();
        told.push(
            &SWITCH_PORT_TRANSMIT_PACKETS,
            &Labels::new(["1"]),
            10_000_000 * seconds,
        );
        (switch == "spine-0").then_some(told)
    };
    assert!(incidents_with((2, &packets), &between_leaves, &as_it_is).is_empty());
}

/// A switch that receives 80 GB/s.
#[derive(Clone, Copy)]
struct Passing {
    /// The second from which it does.
    begins: u64,
    /// Bytes a second that it does not send of that, or sends as well, and the second from which it is so.
    missing: (i64, u64),
    /// Packets that it counts as discarded a second, from then on.
    discards: u64,
    /// Frames of pause that it receives a second, from then on.
    pauses: u64,
}

impl Passing {
    const SINCE: u64 = 65;

    fn losing(missing: i64) -> Self {
        Self {
            begins: 0,
            missing: (missing, Self::SINCE),
            discards: 0,
            pauses: 0,
        }
    }

    /// It did so before it was read, as one with a mirrored port does.
    fn always(missing: i64) -> Self {
        Self {
            missing: (missing, 0),
            ..Self::losing(missing)
        }
    }

    fn reading(self, seconds: u64) -> NodeReading {
        let (missing, since) = self.missing;
        let since = since.max(self.begins);
        let mut told = NodeReading::default();
        let affected = seconds.saturating_sub(since);
        let received = 10_000_000_000 * seconds.saturating_sub(self.begins);
        let sent = received.checked_add_signed(-missing * affected.cast_signed());
        let port = Labels::new(["1"]);
        told.push(&SWITCH_PORT_RECEIVE_BYTES, &port, received);
        let other = Labels::new(["2"]);
        told.push(&SWITCH_PORT_TRANSMIT_BYTES, &other, sent.expect("a count"));
        told.push(&SWITCH_PORT_TRANSMIT_PACKETS, &port, received / 4_000);
        let labels = Labels::new(["1", "receive"]);
        told.push(&SWITCH_PORT_DISCARDS, &labels, self.discards * affected);
        let labels = Labels::new(["1", "3", "receive"]);
        told.push(&SWITCH_PORT_PFC_FRAMES, &labels, self.pauses * affected);
        told
    }
}

#[test]
fn a_switch_that_does_not_send_what_it_receives_is_named_if_hosts_lose_packets() {
    let loss = 20_000_000;
    let named_beside = |leaf: Passing, spine: Passing, rates: &Rates| {
        let of_switch = move |name: &str, seconds| match name {
            "spine-1" => Some(spine.reading(seconds)),
            "leaf-0" => Some(leaf.reading(seconds)),
            _ => Some(Passing::always(1_250_000).reading(seconds)),
        };
        incidents_with((2, &of_switch), rates, &as_it_is)
    };
    let usual = Passing::always(1_250_000);
    let spine = ["uplink-lossy switch/spine-1 or [] critical"];
    let lossy = Passing::losing(loss);
    assert_eq!(named_beside(usual, lossy, &between_leaves), spine);
    assert!(named_beside(usual, lossy, &|_, _| (0, 0)).is_empty());
    let far_more = Passing::losing(20 * loss);
    let named = named_beside(usual, far_more, &between_leaves);
    assert!(named.is_empty(), "most of it was not lost");
    // Not every lost packet makes a negative acknowledgment.
    let few: &Rates = &|node, rail| {
        let (in_vain, missed) = between_leaves(node, rail);
        (in_vain / 4, missed / 4)
    };
    assert_eq!(named_beside(usual, lossy, few), spine);
    // A leaf with a mirrored port does not hide it.
    let mirrored = Passing::always(-500_000_000);
    assert_eq!(named_beside(mirrored, lossy, &between_leaves), spine);
    let is_none = |spine| named_beside(usual, spine, &between_leaves).is_empty();
    assert!(is_none(Passing::always(loss)), "it was always so");
    assert!(is_none(Passing::losing(loss / 16)), "too small");
    assert!(is_none(Passing::losing(-loss)), "a mirror set up later");
    let discarding = Passing {
        discards: 4_900,
        ..lossy
    };
    assert!(is_none(discarding), "its discards explain it");
    let small = Passing::losing(8_000_000);
    assert_eq!(named_beside(usual, small, &between_leaves), spine);
    let paused = Passing {
        pauses: 125_000,
        ..small
    };
    assert!(is_none(paused), "the pause frames are as many bytes");
    let unread = Passing {
        begins: Passing::SINCE,
        ..lossy
    };
    assert!(is_none(unread), "it was idle before");
}

#[test]
fn a_switch_that_loses_is_named_where_the_cables_of_the_nics_are_not_known() {
    let of_switch = |name: &str, seconds| {
        let loss = if name == "spine-1" { 20_000_000 } else { 0 };
        Some(Passing::losing(loss).reading(seconds))
    };
    // Switches report the members of a bond as their neighbors.
    let bonds = |_: usize, _: u64, page: String| page.replace("mlx5_", "mlx5_bond_");
    let found = incidents_with((2, &of_switch), &between_leaves, &bonds);
    assert_eq!(found, ["uplink-lossy switch/spine-1 or [] critical"]);
}

#[test]
fn a_loss_too_small_to_be_felt_is_no_incident() {
    let small = |node, rail| {
        let (in_vain, missed) = between_leaves(node, rail);
        (in_vain / 4, missed / 4)
    };
    assert!(incidents(1, &small, &as_it_is).is_empty());
}

/// Loss at rail 0 of node 4, which sends to and receives from four hosts of the other leaf, in one direction or in both.
fn at_one_nic((sends, misses): (u64, u64)) -> impl Fn(usize, usize) -> (u64, u64) {
    move |node, rail| match (node, rail) {
        (4, 0) => (4 * sends, 4 * misses),
        (0..4, 0) => (misses, sends),
        _ => (0, 0),
    }
}

#[test]
fn what_one_nic_misses_or_loses_in_both_directions_is_lost_at_its_cable() {
    let cable = "edge-lossy link/n4:mlx5_0/1 to link/leaf-1:5 or [] critical";
    for way in [(0, 200), (200, 0), (200, 200), (200, 300)] {
        assert_eq!(
            incidents(1, &at_one_nic(way), &as_it_is),
            [cable],
            "{way:?}"
        );
    }
    // The intended receiver may be the cause.
    let of_a_pair = |node, rail| match (node, rail) {
        (4, 0) => (200, 0),
        (0, 0) => (0, 200),
        _ => (0, 0),
    };
    assert!(incidents(1, &of_a_pair, &as_it_is).is_empty());
    // With adaptive routing packets overtake each other everywhere: which NICs miss its packets is not known.
    let overtaken = |node, rail| match (node, rail) {
        (4, 0) => (400, 0),
        (0..4, 0) => (0, 600),
        _ => (0, 0),
    };
    assert!(incidents(1, &overtaken, &as_it_is).is_empty());
    let ring = |node, rail| match (node, rail) {
        (4, 0) => (400, 500),
        (3, 0) => (500, 0),
        (5, 0) => (0, 400),
        _ => (0, 0),
    };
    assert_eq!(incidents(1, &ring, &as_it_is), [cable]);
}

#[test]
fn what_full_queues_drop_is_not_lost_at_a_cable() {
    let notified = |congested: std::ops::Range<usize>| {
        move |index: usize, seconds: u64, page: String| {
            let rate = if congested.contains(&index) { 2000 } else { 0 };
            let labels = "device=\"mlx5_0\",port=\"1\",point=\"reaction\",action=\"handled\"";
            format!(
                "{page}railscope_rdma_cnp_total{{{labels}}} {}\n",
                rate * seconds
            )
        }
    };
    let lossy = at_one_nic((200, 200));
    assert_eq!(incidents(1, &lossy, &notified(4..5)), [""; 0]);
    // Where all have notifications, congestion is usual.
    let cable = ["edge-lossy link/n4:mlx5_0/1 to link/leaf-1:5 or [] critical"];
    assert_eq!(incidents(1, &lossy, &notified(0..NODES)), cable);
}

#[test]
fn what_a_job_s_only_nic_on_its_leaf_loses_may_be_lost_on_the_path_to_the_other_leaves() {
    let of_job = |members: &'static [usize]| {
        move |index: usize, _: u64, page: String| {
            if members.contains(&index) {
                held(page, "7")
            } else {
                page
            }
        }
    };
    let lossy = at_one_nic((200, 200));
    let cable = ["edge-lossy link/n4:mlx5_0/1 to link/leaf-1:5 or [] critical"];
    assert_eq!(incidents(1, &lossy, &of_job(&[0, 1, 2, 3, 4, 5])), cable);
    let either = [r#"edge-lossy link/n4:mlx5_0/1 to link/leaf-1:5 or ["switch/spine-0"] warning"#];
    assert_eq!(incidents(1, &lossy, &of_job(&[0, 1, 2, 3, 4])), either);
}

#[test]
fn two_nics_of_one_job_that_lose_on_different_rails_are_both_named() {
    let two = |node, rail| match (node, rail) {
        (4, 0) | (5, 1) => (800, 0),
        (0..4, 0 | 1) => (0, 200),
        // No job feels what is lost on a third rail now and then.
        (2, 2) => (1, 0),
        _ => (0, 0),
    };
    let cables = [
        "edge-lossy link/n4:mlx5_0/1 to link/leaf-1:5 or [] critical",
        "edge-lossy link/n5:mlx5_1/1 to link/leaf-1:14 or [] critical",
    ];
    assert_eq!(incidents(1, &two, &as_it_is), cables);
}

#[test]
fn of_two_nics_that_lose_what_one_sends_to_the_other_none_is_named() {
    let pair = |node, rail| match (node, rail) {
        (0, 0) => (400, 0),
        (4, 0) => (0, 500),
        _ => (0, 0),
    };
    assert!(incidents(1, &pair, &as_it_is).is_empty());
}

#[test]
fn errors_of_a_hosts_port_explain_the_loss() {
    let errors = |node: usize, seconds, page: String| {
        if node != 4 {
            return page;
        }
        page.replace(
            "kind=\"symbol_error\"} 3",
            &format!("kind=\"symbol_error\"}} {}", 3 + 400 * seconds),
        )
    };
    let told = incidents(1, &between_leaves, &errors);
    assert!(!told.is_empty());
    assert!(
        told.iter().all(|one| one.starts_with("link-errors")),
        "{told:?}"
    );
}

/// Incidents where all devices are of EFA, and send and retransmit so many packets a second.
fn of_efa(rate: &dyn Fn(usize, usize) -> [u64; 2]) -> Vec<String> {
    of_efa_and(rate, &|_, _| String::new())
}

/// The same, with more on each page.
fn of_efa_and(
    rate: &dyn Fn(usize, usize) -> [u64; 2],
    more: &dyn Fn(usize, u64) -> String,
) -> Vec<String> {
    incidents(2, &|_, _| (0, 0), &|index, seconds, _| {
        let counters = (0..RAILS).map(|rail| {
            let labels = format!("device=\"mlx5_{rail}\",port=\"1\"");
            let [sent, again] = rate(index, rail).map(|rate| rate * seconds);
            format!(
                "railscope_rdma_port_transmit_packets_total{{{labels}}} {sent}\n\
                 railscope_rdma_retransmits_total{{{labels}}} {again}\n\
                 railscope_rdma_transport_events_total{{{labels},event=\"retrans_pkts\"}} {again}\n"
            )
        });
        page(index, seconds) + &counters.collect::<String>() + &more(index, seconds)
    })
}

#[test]
fn an_efa_device_that_alone_retransmits_is_a_ticket_and_of_two_either_may_be_the_cause() {
    let at = |nics: &'static [(usize, usize)]| {
        of_efa(&move |node, rail| match nics.contains(&(node, rail)) {
            true => [1_000_000, 200 + node as u64],
            false => [1_000_000, 1],
        })
    };
    assert_eq!(
        at(&[(3, 1)]),
        ["edge-lossy link/n3:mlx5_1/1 to link/leaf-0:12 or [] warning"]
    );
    assert_eq!(
        at(&[(3, 1), (4, 1)]),
        ["edge-lossy link/n4:mlx5_1/1 to link/leaf-1:13 or [\"link/n3:mlx5_1/1\"] warning"]
    );
    for none in [&[(3, 1), (4, 0)][..], &[(1, 1), (2, 1), (3, 1)], &[]] {
        assert!(at(none).is_empty(), "{none:?}");
    }
    // Under load all retransmit; idle devices are no measure; where none else retransmits, a job must be known.
    let is_it = |node, rail| (node, rail) == (3, 1);
    let loaded = |node, rail| [1_000_000_u64, if is_it(node, rail) { 900 } else { 100 }];
    let alone_busy = |node, rail| {
        if is_it(node, rail) {
            [1_000_000_u64, 200]
        } else {
            [10, 0]
        }
    };
    let no_other = |node, rail| [1_000_000_u64, if is_it(node, rail) { 200 } else { 0 }];
    let dropping = |node: usize, seconds: u64| match node {
        3 => format!(
            "railscope_rdma_no_buffer_total{{device=\"mlx5_1\",port=\"1\"}} {}\n",
            100 * seconds
        ),
        _ => String::new(),
    };
    let lossy = of_efa_and(&no_other, &dropping);
    assert_eq!(
        lossy,
        ["edge-lossy link/n3:mlx5_1/1 to link/leaf-0:12 or [] warning"]
    );
    for rates in [
        &loaded as &dyn Fn(usize, usize) -> [u64; 2],
        &alone_busy,
        &no_other,
    ] {
        assert!(of_efa(rates).is_empty());
    }
}

#[test]
fn an_efa_device_without_receive_buffers_is_named_in_place_of_those_that_send_to_it() {
    let senders = |node, rail| {
        [
            1_000_000,
            if (3..5).contains(&node) && rail == 1 {
                200
            } else {
                1
            },
        ]
    };
    let dropping = |by: usize| {
        of_efa_and(&senders, &move |node: usize, seconds: u64| {
            let labels = "device=\"mlx5_1\",port=\"1\"";
            let dropped = 390 * seconds * u64::from(node == by);
            format!("railscope_rdma_no_buffer_total{{{labels}}} {dropped}\n")
        })
    };
    let receiver = dropping(6);
    assert_eq!(receiver.len(), 1, "{receiver:?}");
    assert!(
        receiver[0].starts_with("receiver-not-ready host/n6 "),
        "{receiver:?}"
    );
    // It retransmits itself: its link loses packets in both directions.
    let lossy = dropping(4);
    let is_lossy = |incident: &String| {
        incident.starts_with("edge-lossy") && incident.contains("link/n4:mlx5_1/1")
    };
    assert!(lossy.iter().any(is_lossy), "{lossy:?}");
}
