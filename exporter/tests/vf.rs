//! Virtual functions on a host: what the kernel or the driver's files report, and the exported series.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::common::{machine, sampler};
use railscope_exporter::sampler::{Presence, Sampler};
use railscope_model::metric::Profile;
use railscope_model::reading::{NodeReading, Status};

const PF: &str = "sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0";

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
    fs::write(path, text).expect("write");
}

/// A physical function with an interface of this type, split into so many virtual ones.
fn host(root: &Path, netdev: &str, kind: u32, functions: u32) {
    write(
        root,
        &format!("{PF}/sriov_numvfs"),
        &format!("{functions}\n"),
    );
    let dir = format!("{PF}/net/{netdev}");
    write(root, &format!("{dir}/type"), &format!("{kind}\n"));
    write(root, &format!("{dir}/dev_port"), "0\n");
    symlink("../..", root.join(&dir).join("device")).expect("link");
    fs::create_dir_all(root.join("sys/class/net")).expect("mkdir");
    let link = root.join("sys/class/net").join(netdev);
    symlink(format!("../../../{dir}"), link).expect("link");
    for number in 0..functions {
        split(root, number);
    }
}

fn split(root: &Path, number: u32) {
    let target = format!("../0000:18:00.{}", number + 1);
    symlink(target, root.join(PF).join(format!("virtfn{number}"))).expect("link");
}

/// What `ip` prints of function 0, with this of its counters.
fn record(root: &Path, netdev: &str, stats: &str) {
    let text = format!(
        r#"[{{"vfinfo_list":[{{"vf":0,"vlan_list":[{{}}],"rate":{{"max_tx":1000,"min_tx":0}},
            "spoofchk":false,"link_state":"auto","trust":true,"stats":{stats}}}]}}]"#
    );
    write(root, &format!("network/{netdev}/link"), &text);
}

/// The sampler's series, `name labels value`, and statuses.
fn lines(sampler: &mut dyn Sampler) -> Vec<String> {
    let mut reading = NodeReading::default();
    let presence = sampler.sample(&mut reading).expect("a sample");
    assert_eq!(presence, Presence::Present);
    let mut lines: Vec<String> = reading
        .samples()
        .iter()
        .filter(|sample| sample.metric.name != "railscope_source_errors_total")
        .map(|sample| {
            let is_status = sample.metric.name == "railscope_source_status";
            assert!(is_status || sample.profile == Profile::Full);
            let labels: Vec<&str> = sample.labels.values().collect();
            let name = sample.metric.name.trim_start_matches("railscope_");
            format!("{name} {} {}", labels.join(","), sample.value.as_f64())
        })
        .collect();
    lines.sort();
    lines
}

fn check(root: &Path, expected: &[&str]) {
    assert_eq!(lines(sampler("vf", &machine(root)).as_mut()), expected);
}

const SOME: &str = r#"{"rx":{"bytes":5,"packets":1,"multicast":0,"broadcast":0},"tx":{"tx_bytes":0,"tx_packets":0}}"#;
const ZEROS: &str = r#"{"rx":{"bytes":0,"packets":0,"multicast":0,"broadcast":0},"tx":{"tx_bytes":0,"tx_packets":0}}"#;

#[test]
fn the_kernel_says_what_a_function_did_and_may_do() {
    // Ethernet, and IP over InfiniBand: a driver of either counts its functions.
    for (netdev, kind) in [("enp24s0np0", 1), ("ib0", 32)] {
        let temp = tempfile::tempdir().expect("a temporary directory");
        host(temp.path(), netdev, kind, 1);
        record(temp.path(), netdev, SOME);
        let expected = [
            "vf_cast_packets_total NETDEV,0,0000:18:00.1,broadcast,receive 0",
            "vf_cast_packets_total NETDEV,0,0000:18:00.1,multicast,receive 0",
            "vf_info NETDEV,0,0000:18:00.1,on,off,auto,, 1",
            "vf_max_transmit_bytes_per_second NETDEV,0,0000:18:00.1 125000000",
            "vf_receive_bytes_total NETDEV,0,0000:18:00.1 5",
            "vf_receive_packets_total NETDEV,0,0000:18:00.1 1",
            "vf_transmit_bytes_total NETDEV,0,0000:18:00.1 0",
            "vf_transmit_packets_total NETDEV,0,0000:18:00.1 0",
        ]
        .map(|line| line.replace("NETDEV", netdev));
        check(temp.path(), &expected.each_ref().map(String::as_str));
    }
}

#[test]
fn zeros_of_a_kernel_are_no_counts_but_zeros_of_a_file_are() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    host(temp.path(), "eth0", 1, 1);
    record(temp.path(), "eth0", ZEROS);
    let settings = [
        "vf_info eth0,0,0000:18:00.1,on,off,auto,, 1",
        "vf_max_transmit_bytes_per_second eth0,0,0000:18:00.1 125000000",
    ];
    check(temp.path(), &settings);
    let file = format!("{PF}/sriov/0/stats");
    write(
        temp.path(),
        &file,
        "tx_packets    : 0\ntx_bytes      : 0\ntx_multicast  : 3\nrx_dropped    : 2\nnews : 9\n",
    );
    let counts = [
        "vf_cast_packets_total eth0,0,0000:18:00.1,multicast,transmit 3",
        "vf_discards_total eth0,0,0000:18:00.1,receive 2",
    ];
    let zeros = [
        "vf_transmit_bytes_total eth0,0,0000:18:00.1 0",
        "vf_transmit_packets_total eth0,0,0000:18:00.1 0",
    ];
    check(temp.path(), &[&counts[..], &settings, &zeros].concat());
    write(temp.path(), &file, "tx_packets : many\n");
    let unparsed = ["source_status vf,eth0,unparsed 1"];
    check(temp.path(), &[&unparsed[..], &settings].concat());
    // One file for each counter.
    fs::remove_file(temp.path().join(&file)).expect("remove");
    write(temp.path(), &format!("{file}/tx_bytes"), "11\n");
    let counts = ["vf_transmit_bytes_total eth0,0,0000:18:00.1 11"];
    check(temp.path(), &[&settings[..], &counts].concat());
}

#[test]
fn functions_are_listed_anew_each_time_and_only_those_that_are_switched_on() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    host(temp.path(), "eth0", 1, 0);
    record(temp.path(), "eth0", SOME);
    let mut vf = sampler("vf", &machine(temp.path()));
    assert_eq!(lines(vf.as_mut()), Vec::<String>::new());
    for number in 0..2 {
        split(temp.path(), number);
    }
    write(
        temp.path(),
        &format!("{PF}/sriov/1/stats"),
        "rx_bytes : 7\n",
    );
    let found = lines(vf.as_mut());
    assert!(found.contains(&"vf_receive_bytes_total eth0,0,0000:18:00.1 5".to_owned()));
    assert!(found.contains(&"vf_receive_bytes_total eth0,1,0000:18:00.2 7".to_owned()));
    fs::remove_file(temp.path().join(PF).join("virtfn0")).expect("remove");
    let found = lines(vf.as_mut());
    assert_eq!(found, ["vf_receive_bytes_total eth0,1,0000:18:00.2 7"]);
}

#[test]
fn a_second_partition_and_a_representor_do_not_show_functions_again() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    host(temp.path(), "ib0", 32, 1);
    for (name, port, text) in [
        ("ib0.8001", "dev_port", "0"),
        ("pf0vf0", "phys_port_name", "pf0vf0"),
    ] {
        let dir = format!("{PF}/net/{name}");
        write(temp.path(), &format!("{dir}/{port}"), text);
        symlink("../..", temp.path().join(&dir).join("device")).expect("link");
        let link = temp.path().join("sys/class/net").join(name);
        symlink(format!("../../../{dir}"), link).expect("link");
    }
    write(
        temp.path(),
        &format!("{PF}/sriov/0/stats"),
        "rx_bytes : 7\n",
    );
    let expected = [
        "source_status vf,ib0,absent 1",
        "vf_receive_bytes_total ib0,0,0000:18:00.1 7",
    ];
    check(temp.path(), &expected);
}

#[test]
fn a_machine_without_physical_functions_is_absent() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    write(temp.path(), "sys/class/net/eth0/type", "1\n");
    let mut reading = NodeReading::default();
    let presence = sampler("vf", &machine(temp.path())).sample(&mut reading);
    let presence = presence.expect("a sample");
    assert_eq!(presence, Presence::Absent(Status::Absent));
    assert!(reading.samples().is_empty());
}
