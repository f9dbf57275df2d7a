//! Probing as samplers: off unless the machine enables it; a responder reports its addresses.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::{copy, machine, our_root};
use railscope_exporter::sampler::{Machine, ON_DEMAND, Presence, Sampler, sample_once};
use railscope_exporter::sources::probe::wire::{LENGTH, Packet, Question};
use railscope_exporter::sources::probe::{ListAccess, ProbeAccess, ProbeList, Told};
use railscope_model::metric::{
    Metric, NETDEV_ADDRESS, PROBE_RESPONDER, PROBES_SENT, SOURCE_STATUS,
};
use railscope_model::reading::NodeReading;

const PATIENCE: Duration = Duration::from_secs(60);

/// The samplers that a machine enables.
fn wanted(machine: &Machine) -> Vec<Box<dyn Sampler>> {
    ON_DEMAND
        .iter()
        .filter_map(|build| build(machine))
        .collect()
}

fn sample(sampler: &mut dyn Sampler) -> NodeReading {
    let mut reading = NodeReading::default();
    sampler.sample(&mut reading).expect("a reading");
    reading
}

/// Labels of all samples of a metric.
fn labels(reading: &NodeReading, metric: &Metric) -> Vec<String> {
    let samples = reading.samples().iter();
    let of = samples.filter(|sample| sample.metric == metric);
    let mut labels: Vec<_> = of
        .map(|sample| sample.labels.values().collect::<Vec<_>>().join(" "))
        .collect();
    labels.sort();
    labels
}

/// What `ip -j addr show dev IF` prints.
fn has_address(root: &Path, netdev: &str, address: Option<&str>) {
    let folder = root.join("network").join(netdev);
    fs::create_dir_all(&folder).expect("mkdir");
    let list = address.map(|ip| format!(r#"{{"local":"{ip}","scope":"global"}}"#));
    let text = format!(r#"[{{"addr_info":[{}]}}]"#, list.unwrap_or_default());
    fs::write(folder.join("addr"), text).expect("write");
}

#[test]
fn nobody_is_asked_and_nobody_answered_unless_the_machine_says_so() {
    let machine = machine(&our_root("hgx-h200-roce"));
    assert!(wanted(&machine).is_empty());
    let reading = sample_once(&machine);
    assert_eq!(labels(&reading, &NETDEV_ADDRESS), [""; 0]);
    let sources = labels(&reading, &SOURCE_STATUS);
    let probing = |line: &&String| line.starts_with("prober") || line.starts_with("responder");
    assert_eq!(sources.iter().find(probing), None);
}

#[test]
fn who_answers_says_where_and_how_long_it_took() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let root = temp.path();
    copy(&our_root("hgx-h200-roce"), root);
    has_address(root, "enp24s0np0", Some("10.0.1.7"));
    has_address(root, "enp26s0np0", Some("fd00:0:0:2::7"));
    // A port of a bond has no own address.
    has_address(root, "enp58s0np0", None);
    has_address(root, "bond0", Some("10.0.3.7"));
    symlink("../bond0", root.join("sys/class/net/enp58s0np0/master")).expect("link");
    fs::write(root.join("network/enp60s0np0/addr"), "not JSON").expect("write");

    // A port that is free now, and most likely still when it is used.
    let free = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let at = free.local_addr().expect("an address");
    drop(free);
    let machine = Machine {
        probes: ProbeAccess {
            listen: vec![at],
            list: None,
            rdma: None,
        },
        ..machine(root)
    };
    let mut samplers = wanted(&machine);
    assert_eq!(samplers.len(), 1);
    let responder = samplers[0].as_mut();
    let reading = sample(responder);
    let expected = [
        "bond0 10.0.3.7",
        "enp24s0np0 10.0.1.7",
        "enp26s0np0 fd00:0:0:2::7",
        "enp58s0np0 10.0.3.7",
    ];
    assert_eq!(labels(&reading, &NETDEV_ADDRESS), expected);
    assert_eq!(
        labels(&reading, &SOURCE_STATUS),
        ["responder mlx5_3 unparsed"]
    );

    let asking = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    asking.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let question = Question {
        token: 1,
        sequence: 2,
        hop: 0,
    };
    let begun = Instant::now();
    // The kernel begins to take timestamps shortly after the request.
    while labels(&sample(responder), &PROBE_RESPONDER).is_empty() {
        assert!(begun.elapsed() < PATIENCE, "no time was told");
        let bytes = Packet::Question(question).write();
        asking.send_to(&bytes, at).expect("sent");
        let mut answer = [0; 2 * LENGTH];
        let length = asking.recv(&mut answer).expect("an answer");
        assert_eq!(length, LENGTH);
    }
    // The interface that it came by has no RDMA device.
    assert_eq!(labels(&sample(responder), &PROBE_RESPONDER), ["lo udp"]);
}

#[test]
fn a_list_that_cannot_be_had_is_said_and_one_that_can_is_followed() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    copy(&our_root("hgx-h200-roce"), temp.path());
    let told = Told::default();
    let machine = Machine {
        probes: ProbeAccess {
            listen: Vec::new(),
            list: Some(ListAccess::Told(told.clone())),
            rdma: None,
        },
        ..machine(temp.path())
    };
    let mut samplers = wanted(&machine);
    let prober = samplers[0].as_mut();
    let mut wait = |done: &dyn Fn(Presence, &NodeReading) -> bool| {
        let begun = Instant::now();
        loop {
            let mut reading = NodeReading::default();
            let presence = prober.sample(&mut reading).expect("a reading");
            if done(presence, &reading) {
                return reading;
            }
            assert!(begun.elapsed() < PATIENCE, "{reading:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    wait(&|presence, _| matches!(presence, Presence::Absent(_)));
    told.tell(ProbeList::parse("list", "{"));
    wait(&|_, reading| labels(reading, &SOURCE_STATUS) == ["prober list unparsed"]);
    let list = r#"{"targets":[{"device":"mlx5_0","peer_node":"n","peer_device":"mlx5_0","address":"192.0.2.1:10661","flows":2}]}"#;
    told.tell(ProbeList::parse("list", list));
    // The NIC of a recorded machine is not on this one: nothing is sent, and that is reported.
    let reading = wait(&|presence, reading| {
        presence == Presence::Present && labels(reading, &PROBES_SENT) == ["mlx5_0 udp"]
    });
    assert_eq!(labels(&reading, &SOURCE_STATUS), ["prober mlx5_0 absent"]);
}
