//! The kernel's own replies: ethtool and netlink on real interfaces, beside what `ethtool` and `ip` print.

use std::fs;
use std::process::Command;
use std::time::Instant;

use crate::common::namespace::Namespace;
use railscope_exporter::sources::ethtool::{Kernel, Nic, NicSource, Recorded, VirtualFunction};
use railscope_exporter::sources::sysfs::Miss;

fn nic(name: &str, index: &str) -> Nic {
    Nic {
        name: name.to_owned(),
        index: index.trim().parse().ok(),
    }
}

/// `ethtool -S` as names and values.
fn printed(text: &str) -> Vec<(String, u64)> {
    let rows = text
        .lines()
        .filter_map(|line| line.trim().rsplit_once(": "));
    rows.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect()
}

fn has_ethtool(test: &str) -> bool {
    let there = Command::new("ethtool").arg("--version").output().is_ok();
    if !there {
        eprintln!("SKIPPED: {test}: no ethtool command");
    }
    there
}

#[test]
fn a_veth_counts_what_ethtool_prints() {
    let test = "a_veth_counts_what_ethtool_prints";
    let Some(namespace) = Namespace::new(test, "veth") else {
        return;
    };
    namespace.ip("link add left type veth peer name right");
    namespace.ip("link set left up");
    namespace.ip("link set right up");
    let left = nic("left", &namespace.output("cat /sys/class/net/left/ifindex"));
    let (names, values) = namespace.inside(|| {
        let mut kernel = Kernel::default();
        let mut values = Vec::new();
        kernel.values(&left, &mut values).expect("values");
        (kernel.names(&left).expect("names"), values)
    });
    assert_eq!(names.len(), values.len());
    assert_eq!(names.first().map(String::as_str), Some("peer_ifindex"));
    let peer = namespace.output("cat /sys/class/net/right/ifindex");
    assert_eq!(Some(values[0].to_string().as_str()), Some(peer.trim()));
    if has_ethtool(test) {
        let expected = printed(&namespace.output("ethtool -S left"));
        assert_eq!(names.into_iter().zip(values).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn addresses_are_those_that_ip_prints() {
    let test = "addresses_are_those_that_ip_prints";
    let Some(namespace) = Namespace::new(test, "addr") else {
        return;
    };
    namespace.ip("link add left type veth peer name right");
    namespace.ip("link set left up");
    namespace.ip("link set right up");
    for address in ["10.0.1.7/24", "10.0.1.8/24", "10.0.9.1/32"] {
        namespace.ip(&format!("addr add {address} dev left"));
    }
    namespace.ip("addr add 10.0.2.7/24 dev right");
    namespace.ip("addr add 10.0.3.7/24 scope link dev left");
    namespace.ip("-6 addr add fd00::7/64 dev left nodad");
    let left = nic("left", &namespace.output("cat /sys/class/net/left/ifindex"));
    let answered = namespace.inside(|| Kernel::default().addresses(&left));
    let found: Vec<_> = answered.iter().flatten().map(ToString::to_string).collect();
    assert_eq!(found, ["10.0.1.7", "10.0.1.8", "10.0.9.1", "fd00::7"]);

    let recordings = tempfile::tempdir().expect("a temporary directory");
    fs::create_dir(recordings.path().join("left")).expect("mkdir");
    let printed = namespace.output("ip -j addr show dev left");
    fs::write(recordings.path().join("left/addr"), printed).expect("write");
    let mut recorded = Recorded::new(recordings.path());
    assert_eq!(recorded.addresses(&left), answered);
}

#[test]
fn what_a_driver_lacks_is_unsupported_and_what_is_not_there_is_absent() {
    let test = "what_a_driver_lacks_is_unsupported_and_what_is_not_there_is_absent";
    let Some(namespace) = Namespace::new(test, "lacks") else {
        return;
    };
    namespace.ip("link add left type veth peer name right");
    let index = namespace.output("cat /sys/class/net/left/ifindex");
    let left = nic("left", &index);
    namespace.inside(|| {
        let mut kernel = Kernel::default();
        // The kernel refuses each of these after it has parsed the request.
        assert_eq!(kernel.pause(&left), Err(Miss::Unsupported));
        assert_eq!(kernel.fec(&left), Err(Miss::Unsupported));
        assert_eq!(kernel.bridging(&left), Err(Miss::Unsupported));
        // Its driver has no virtual functions to report, which is a valid reply.
        assert_eq!(kernel.virtual_functions(&left), Ok(vec![]));
        let elsewhere = kernel.virtual_functions(&nic("nothing", "1"));
        assert_eq!(elsewhere, Err(Miss::Absent));
        // Down, as its peer is, and the driver names no reason.
        assert_eq!(kernel.down_reason(&left), Ok(None));
        assert_eq!(kernel.names(&nic("lo", "1")), Err(Miss::Unsupported));
        assert_eq!(kernel.names(&nic("nothing", "1")), Err(Miss::Absent));
        let long = nic("a-name-that-is-far-too-long", "1");
        assert_eq!(kernel.names(&long), Err(Miss::Absent));
    });
    // The same name elsewhere, and a name out of a tree of files, are other interfaces.
    let other = nic("left", &format!("{}1", index.trim()));
    let unknown = nic("left", "");
    namespace.inside(|| {
        let mut kernel = Kernel::default();
        assert_eq!(kernel.names(&other), Err(Miss::Absent));
        assert_eq!(kernel.names(&unknown), Err(Miss::Absent));
    });
}

#[test]
fn the_interfaces_of_this_machine_count_what_ethtool_prints() {
    let test = "the_interfaces_of_this_machine_count_what_ethtool_prints";
    if !has_ethtool(test) {
        return;
    }
    let mut compared = 0;
    for entry in fs::read_dir("/sys/class/net").into_iter().flatten() {
        let entry = entry.expect("an interface");
        let name = entry.file_name().into_string().expect("a name");
        let Ok(index) = fs::read_to_string(entry.path().join("ifindex")) else {
            continue;
        };
        let this = nic(&name, &index);
        let mut kernel = Kernel::default();
        let Ok(names) = kernel.names(&this) else {
            continue;
        };
        let before = printed(&ethtool(&name));
        let begun = Instant::now();
        let mut values = Vec::new();
        kernel.values(&this, &mut values).expect("values");
        let took = begun.elapsed();
        let after = printed(&ethtool(&name));
        println!("{name}: {} counters in {took:?}", names.len());
        assert_eq!(names.len(), before.len(), "{name}");
        for (place, (counter, value)) in names.iter().zip(values).enumerate() {
            assert_eq!(counter, &before[place].0, "{name}");
            // It may count between the three reads.
            let range = before[place].1..=after[place].1;
            assert!(
                range.contains(&value),
                "{name} {counter}: {value} {range:?}"
            );
        }
        compared += 1;
    }
    if compared == 0 {
        eprintln!("SKIPPED: {test}: no interface with counters");
    }
}

/// Settings only: counters move between two questions.
fn settings(functions: Vec<VirtualFunction>) -> Vec<VirtualFunction> {
    let without = |function| VirtualFunction {
        counts: Vec::new(),
        ..function
    };
    functions.into_iter().map(without).collect()
}

#[test]
fn the_virtual_functions_of_this_machine_are_those_that_ip_prints() {
    let mut compared = 0;
    for entry in fs::read_dir("/sys/class/net").into_iter().flatten() {
        let entry = entry.expect("an interface");
        if !entry.path().join("device/virtfn0").exists() {
            continue;
        }
        let name = entry.file_name().into_string().expect("a name");
        let index = fs::read_to_string(entry.path().join("ifindex")).expect("an index");
        let this = nic(&name, &index);
        let arguments = ["-s", "-d", "-j", "link", "show", "dev", &name];
        let run = Command::new("ip").args(arguments).output().expect("ip");
        let temp = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(temp.path().join(&name)).expect("mkdir");
        fs::write(temp.path().join(&name).join("link"), run.stdout).expect("write");
        let printed = Recorded::new(temp.path()).virtual_functions(&this);
        let told = Kernel::default().virtual_functions(&this);
        println!("{name}: {told:?}");
        let (printed, told) = (printed.expect("what ip prints"), told.expect("an answer"));
        assert!(!told.is_empty(), "{name}");
        for (one, other) in told.iter().zip(&printed) {
            let names = |function: &VirtualFunction| {
                let counts = function.counts.iter();
                counts.map(|(name, _)| *name).collect::<Vec<_>>()
            };
            assert_eq!(names(one), names(other), "{name}");
        }
        assert_eq!(settings(told), settings(printed), "{name}");
        compared += 1;
    }
    if compared == 0 {
        eprintln!("SKIPPED: no interface of this machine has virtual functions");
    }
}

fn ethtool(name: &str) -> String {
    let run = Command::new("ethtool").args(["-S", name]).output();
    String::from_utf8_lossy(&run.expect("ethtool").stdout).into_owned()
}
