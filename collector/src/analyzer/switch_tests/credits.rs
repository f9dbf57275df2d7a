//! Findings from ports that wait for credits of hosts.

use std::collections::BTreeSet;

use railscope_model::metric::{
    RDMA_PORT_RECEIVE_BYTES, RDMA_PORT_SPEED, SWITCH_PORT_TRANSMIT_BYTES,
    SWITCH_PORT_TRANSMIT_WAIT, WORKLOAD,
};
use railscope_model::reading::{Labels, NodeReading};

use super::{Lab, at, leaves};
use crate::detect::rules::slow_receiver;
use crate::jobs::job::{JobTable, Jobs};

/// Ticks that a port waits in ten seconds.
const WAITS: f64 = 2e7;

/// Twelve hosts, of which the first four run a job, and some of which their leaf waits for.
fn waiting_for(hosts: &[usize]) -> Lab {
    let mut lab = leaves();
    for host in 0..12_u16 {
        let leaf = if host % 2 == 0 { "a" } else { "b" };
        lab.host(&format!("n{host}"), (leaf, 10 + host));
    }
    for _ in 0..6 {
        for host in 0..12 {
            let leaf = if host % 2 == 0 { "a" } else { "b" };
            let by = if hosts.contains(&host) { WAITS } else { 0.0 };
            let port = (10 + host).to_string();
            lab.add(leaf, &SWITCH_PORT_TRANSMIT_WAIT, &[&port], by);
        }
        lab.read();
    }
    for host in 0..4 {
        let mut reading = NodeReading::default();
        let labels = ["", "", "", "", "", "", "", "", "4711"];
        reading.push(&WORKLOAD, &Labels::new(labels), true);
        let node = format!("n{host}").parse().expect("a name");
        let history = lab.history.node_mut(&node);
        history.ingest_reading(&reading, at(lab.seconds));
    }
    let jobs = JobTable::default().refresh(&lab.history, at(lab.seconds));
    lab.jobs = Jobs::clone(&jobs);
    lab
}

#[test]
fn a_host_that_its_leaf_waits_for_is_named_unless_its_whole_job_is_waited_for() {
    let said = |hosts: &[usize]| waiting_for(hosts).said_by(slow_receiver::build);
    assert_eq!(said(&[2]), ["slow-receiver nic/n2:mlx5_0"]);
    assert_eq!(said(&[7]), ["slow-receiver nic/n7:mlx5_0"]);
    let pair = ["slow-receiver nic/n0:mlx5_0", "slow-receiver nic/n3:mlx5_0"];
    assert_eq!(said(&[0, 3]), pair);
    assert!(said(&[0, 1, 2, 3]).is_empty());
}

/// A NIC to which many send at once receives what its cable carries.
#[test]
fn a_host_whose_port_is_full_is_no_slow_receiver() {
    let said = |share: f64| {
        let mut lab = waiting_for(&[6]);
        let (node, speed) = ("n6".parse().expect("a name"), 5e10);
        for sample in 0..6 {
            let seconds = lab.seconds - 50.0 + 10.0 * f64::from(sample);
            // It is over by the last sample, and the window still has it.
            let bytes = share * speed * 10.0 * f64::from(sample.min(4));
            let mut reading = NodeReading::default();
            let port = Labels::new(["mlx5_0", "1"]);
            reading.push(&RDMA_PORT_SPEED, &port, speed);
            reading.push(&RDMA_PORT_RECEIVE_BYTES, &port, bytes);
            let history = lab.history.node_mut(&node);
            history.ingest_reading(&reading, at(seconds));
        }
        lab.said_by(slow_receiver::build)
    };
    assert_eq!(said(0.5), ["slow-receiver nic/n6:mlx5_0"]);
    assert!(said(0.75).is_empty());
}

/// Most ports of a fabric may be idle, and wait for nothing.
#[test]
fn a_host_that_its_leaf_waits_for_as_much_as_for_other_busy_ones_for_each_byte_is_not_named() {
    let said = |bytes: f64| {
        let mut lab = leaves();
        for host in 0..12_u16 {
            lab.host(&format!("n{host}"), ("a", 10 + host));
        }
        for _ in 0..6 {
            for host in 0..12_u16 {
                let (waits, bytes) = match host {
                    0 => (WAITS, bytes),
                    1..5 => (0.3 * WAITS, 5e10),
                    _ => (0.0, 0.0),
                };
                let port = (10 + host).to_string();
                lab.add("a", &SWITCH_PORT_TRANSMIT_WAIT, &[&port], waits);
                lab.add("a", &SWITCH_PORT_TRANSMIT_BYTES, &[&port], bytes);
            }
            lab.read();
        }
        lab.said_by(slow_receiver::build)
    };
    assert!(said(1e11).is_empty());
    assert_eq!(said(1e10), ["slow-receiver nic/n0:mlx5_0"]);
}

/// Storage or another job may send to a NIC of a job, whose others receive as before; in a pipeline some always receive more.
#[test]
fn a_host_that_receives_more_than_before_and_than_its_job_is_sent_to_by_others() {
    let said = |before: f64, now: f64, others: f64| {
        let (mut lab, mut detector) = (waiting_for(&[]), slow_receiver::build());
        let mut said = Vec::new();
        // Longer than the history reaches.
        for round in 0..42 {
            for host in 0..12 {
                let leaf = if host % 2 == 0 { "a" } else { "b" };
                let (waits, bytes) = match (host, round < 6) {
                    (2, true) => (0.0, before),
                    (2, false) => (WAITS, now),
                    (_, true) => (0.0, 1e10),
                    (_, false) => (0.0, others),
                };
                let port = (10 + host).to_string();
                lab.add(leaf, &SWITCH_PORT_TRANSMIT_WAIT, &[&port], waits);
                lab.add(leaf, &SWITCH_PORT_TRANSMIT_BYTES, &[&port], bytes);
            }
            lab.read();
            let mut out = Vec::new();
            detector.observe(&lab.view(), &mut out);
            said.push(
                out.iter()
                    .map(|own| own.part.to_string())
                    .collect::<Vec<_>>(),
            );
        }
        let named = said.iter().filter(|named| !named.is_empty()).count();
        assert!(named == 0 || named > 30, "{said:?}");
        said.pop().unwrap_or_default()
    };
    assert_eq!(said(1e10, 9e9, 1e10), ["nic/n2:mlx5_0"]);
    assert_eq!(said(2e10, 1.9e10, 1e10), ["nic/n2:mlx5_0"]);
    assert!(said(1e10, 3e10, 1e10).is_empty());
    let no_slower = said(1e10, 1.1e10, 1.1e10);
    assert!(no_slower.is_empty(), "its job runs no slower");
    assert_eq!(said(1e10, 1.1e10, 2e10), ["nic/n2:mlx5_0"]);
}

/// NICs named in each of so many rounds of twelve hosts behind one leaf, by what the port before each waits and sends.
fn rounds(count: u16, of: impl Fn(u16, u16) -> (f64, f64)) -> Vec<Vec<String>> {
    let (mut lab, mut detector) = (leaves(), slow_receiver::build());
    for host in 0..12_u16 {
        lab.host(&format!("n{host}"), ("a", 10 + host));
    }
    let rounds = (0..count).map(|round| {
        for host in 0..12_u16 {
            let (waits, bytes) = of(host, round);
            let port = (10 + host).to_string();
            lab.add("a", &SWITCH_PORT_TRANSMIT_WAIT, &[&port], waits);
            lab.add("a", &SWITCH_PORT_TRANSMIT_BYTES, &[&port], bytes);
        }
        lab.read();
        let mut out = Vec::new();
        detector.observe(&lab.view(), &mut out);
        out.iter().map(|own| own.part.to_string()).collect()
    });
    rounds.collect()
}

/// Twelve busy hosts; the switch port of the first waits so many ticks, before and after a minute, while it sends so many bytes, and
/// those of the others wait for `usual` ticks. Returns the components named in each round.
fn rounds_of((before, after): (f64, f64), usual: f64, bytes: f64) -> Vec<Vec<String>> {
    rounds(20, |host, round| match (host, round) {
        (0, ..10) => (before, bytes),
        (0, _) => (after, bytes),
        _ => (usual, 1e11),
    })
}

#[test]
fn a_port_that_always_waits_longer_is_not_named_and_one_that_begins_to_is() {
    let named = |before, after| {
        let rounds = rounds_of((before, after), 1e6, 1e11);
        let count = |rounds: &[Vec<String>]| rounds.iter().filter(|own| !own.is_empty()).count();
        [count(&rounds[..10]), count(&rounds[10..])]
    };
    // 30 times as long as the others, always.
    assert_eq!(named(3e7, 3e7), [0, 0]);
    let [early, late] = named(1e6, 3e7);
    assert!(early == 0 && late >= 7, "{early} {late}");
    // From the beginning, and far too long for what healthy ports do.
    let [early, late] = named(1e8, 1e8);
    assert!(early >= 7 && late == 10, "{early} {late}");
}

#[test]
fn a_host_that_receives_nothing_is_named_only_where_its_port_waits_all_the_time() {
    let named = |waits| !rounds_of((waits, waits), 1e5, 1e6).concat().is_empty();
    assert!(!named(2e7));
    assert!(named(5e7));
}

/// NICs named in any of the [`rounds`].
fn ever_named(count: u16, of: impl Fn(u16, u16) -> (f64, f64)) -> Vec<String> {
    let named: BTreeSet<_> = rounds(count, of).into_iter().flatten().collect();
    named.into_iter().collect()
}

/// Storage that many read, or a job that gathers at some ranks: several hosts do not break in the same seconds.
#[test]
fn hosts_that_are_waited_for_from_the_same_seconds_on_are_not_named() {
    let named = |other_begins: u16| {
        ever_named(24, |host, round| match host {
            0 if round >= 8 => (1e8, 1e11),
            1 if round >= other_begins => (9e7, 1e11),
            _ => (0.0, 1e11),
        })
    };
    assert!(named(8).is_empty(), "{:?}", named(8));
    assert_eq!(named(99), ["nic/n0:mlx5_0"]);
    // Its wait began a scrape later.
    assert_eq!(named(9), ["nic/n0:mlx5_0"]);
    assert_eq!(named(14), ["nic/n0:mlx5_0", "nic/n1:mlx5_0"]);
}

/// The other is sent more than before, which explains its own wait.
#[test]
fn a_host_that_is_waited_for_since_another_is_sent_more_is_not_named() {
    let named = |other: f64| {
        ever_named(24, |host, round| match (host, round >= 8) {
            (0, true) => (1e8, 1e11),
            (1, true) => (other, 3e11),
            _ => (0.0, 1e11),
        })
    };
    assert!(named(9e7).is_empty());
    assert_eq!(named(0.0), ["nic/n0:mlx5_0"]);
}
