//! The host's own sources: timers that really fire, CPUs that vanish, storage paths that break.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{copy, machine, our_root, sampler};
use railscope_exporter::Machine;
use railscope_exporter::sampler::{Presence, Sampler};
use railscope_model::reading::{NodeReading, Status, Value};

fn write(root: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
        fs::write(path, text).expect("write");
    }
}

fn sample(sampler: &mut dyn Sampler) -> NodeReading {
    let mut reading = NodeReading::default();
    sampler.sample(&mut reading).expect("a sample");
    reading
}

/// `name labels value` of every sample, without what all names begin with; infos without value.
fn lines(reading: &NodeReading) -> Vec<String> {
    let samples = reading.samples().iter().map(|sample| {
        let name = sample.metric.name.trim_start_matches("railscope_");
        let labels: Vec<_> = sample.labels.values().collect();
        format!("{name} {} {}", labels.join("|"), sample.value.as_f64())
    });
    samples.collect()
}

fn has(reading: &NodeReading, line: &str) -> bool {
    lines(reading).iter().any(|found| found == line)
}

#[test]
fn timers_are_watched_on_every_numa_node_that_lets_us() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    // Every CPU that a mask can name; the last of them is on no machine that runs this.
    write(
        temp.path(),
        &[
            ("sys/devices/system/node/node0/cpulist", "0-1023\n"),
            ("sys/devices/system/node/node1/cpulist", "1023\n"),
            ("sys/devices/system/node/node2/cpulist", "\n"),
        ],
    );
    let watched = Machine {
        jitter_probe: true,
        ..machine(temp.path())
    };
    let mut jitter = sampler("jitter", &watched);
    let wake_ups = |reading: &NodeReading| {
        let histograms = reading.samples().iter().filter_map(|sample| {
            let Value::Histogram(histogram) = &sample.value else {
                return None;
            };
            assert_eq!(sample.labels.values().collect::<Vec<_>>(), ["0"]);
            Some((histogram.count(), histogram.sum()))
        });
        let found: Vec<_> = histograms.collect();
        assert_eq!(found.len(), 1, "{:?}", lines(reading));
        found[0]
    };
    let first = sample(jitter.as_mut());
    let (before, _) = wake_ups(&first);
    assert!(
        has(&first, "source_status jitter|numa1|unsupported 1"),
        "{:?}",
        lines(&first)
    );
    let begun = Instant::now();
    loop {
        let (count, sum) = wake_ups(&sample(jitter.as_mut()));
        if count >= before + 3 && sum > 0.0 {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{count} wake-ups"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_probe_that_is_left_out_starts_nothing() {
    let mut jitter = sampler("jitter", &machine(&our_root("bare")));
    let mut reading = NodeReading::default();
    let presence = jitter.sample(&mut reading).expect("a sample");
    assert_eq!(presence, Presence::Absent(Status::Absent));
    assert_eq!(reading.samples().len(), 0);
}

#[test]
fn one_broken_table_of_the_scheduler_leaves_the_others() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    copy(&our_root("hgx-h100-ib"), temp.path());
    write(
        temp.path(),
        &[
            ("proc/schedstat", "version 99\ncpu0 1 2 3 4 5 6 7 8 9\n"),
            ("proc/net/softnet_stat", "what is this\n"),
            ("proc/pressure/io", "some total=5000000\nfull total=many\n"),
        ],
    );
    fs::remove_file(temp.path().join("proc/pressure/irq")).expect("remove");
    let reading = sample(sampler("scheduler", &machine(temp.path())).as_mut());
    for line in [
        "cpu_steal_seconds_total 0 2.5",
        "cpu_steal_seconds_total 1 0",
        "host_pressure_seconds_total cpu|some 81.204117",
        "host_pressure_seconds_total io|some 5",
        "source_status scheduler|cpu|unsupported 1",
        "source_status scheduler|cpu|unparsed 1",
        "source_status scheduler|pressure|unparsed 1",
        "source_errors_total scheduler 2",
    ] {
        assert!(has(&reading, line), "{line}\n{:#?}", lines(&reading));
    }
    let others = ["cpu_run", "cpu_wait", "softnet", "io|full", "irq"];
    for line in lines(&reading) {
        assert!(!others.iter().any(|word| line.contains(word)), "{line}");
    }
}

#[test]
fn nobody_who_cannot_be_read_is_made_up() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    write(temp.path(), &[("proc/stat", "cpu0 1 2 3 4 5 6 7 8 9 0\n")]);
    // Without a map of the CPUs nothing can be summed.
    let mut scheduler = sampler("scheduler", &machine(temp.path()));
    let mut reading = NodeReading::default();
    let presence = scheduler.sample(&mut reading).expect("a sample");
    assert_eq!(presence, Presence::Absent(Status::Absent));
    assert_eq!(lines(&reading), Vec::<String>::new());
}

fn storage_of(root: &Path) -> (PathBuf, Box<dyn Sampler>) {
    copy(&our_root("hgx-h100-ib"), root);
    let fabrics = root.join("sys/devices/virtual/nvme-fabrics/ctl");
    (fabrics, sampler("storage", &machine(root)))
}

#[test]
fn a_path_that_is_lost_and_then_removed_is_down_and_then_gone() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let (fabrics, mut storage) = storage_of(temp.path());
    assert!(has(&sample(storage.as_mut()), "nvme_path_up nvme1 1"));
    fs::write(fabrics.join("nvme1/state"), "resetting\n").expect("write");
    assert!(has(&sample(storage.as_mut()), "nvme_path_up nvme1 0"));
    fs::remove_dir_all(fabrics.join("nvme1")).expect("remove");
    fs::remove_file(temp.path().join("sys/class/nvme/nvme1")).expect("remove");
    for _ in 0..2 {
        let reading = sample(storage.as_mut());
        let named = lines(&reading).iter().any(|line| line.contains("nvme1"));
        assert!(!named, "{:#?}", lines(&reading));
        assert!(has(&reading, "nvme_path_up nvme2 0"));
    }
}

#[test]
fn a_path_whose_way_nobody_knows_has_no_nic() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let (fabrics, mut storage) = storage_of(temp.path());
    fs::write(fabrics.join("nvme1/address"), "somewhere\n").expect("write");
    fs::write(temp.path().join("proc/net/route"), "title\nbond0 XX\n").expect("write");
    for _ in 0..2 {
        let reading = sample(storage.as_mut());
        for line in [
            "nvme_path_info nvme1|nvme-subsys1|rdma||||||| 1",
            "nvme_path_info nvme2|nvme-subsys1|rdma|10.50.0.201|||||| 1",
            "source_status storage|nvme1|unparsed 1",
            "source_status storage|routes|unparsed 1",
        ] {
            assert!(has(&reading, line), "{line}\n{:#?}", lines(&reading));
        }
    }
}

#[test]
fn a_path_over_a_vlan_of_a_bond_leaves_by_the_device_below_both() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let (fabrics, mut storage) = storage_of(temp.path());
    let link = |at: &str, target: &str| {
        let at = temp.path().join(at);
        fs::create_dir_all(at.parent().expect("a parent")).expect("mkdir");
        std::os::unix::fs::symlink(target, at).expect("link");
    };
    fs::create_dir_all(temp.path().join("sys/devices/virtual/net/vlan50")).expect("mkdir");
    link("sys/class/net/vlan50", "../../devices/virtual/net/vlan50");
    link("sys/devices/virtual/net/vlan50/lower_bond0", "../bond0");
    let address = "traddr=fd00::5,trsvcid=4420,host_iface=vlan50,src_addr=fd00::1\n";
    fs::write(fabrics.join("nvme1/address"), address).expect("write");
    let reading = sample(storage.as_mut());
    let expected = "nvme_path_info nvme1|nvme-subsys1|rdma|fd00::5|fd00::1|vlan50|mlx5_bond_0|0000:28:00.0|0|host_iface 1";
    assert!(has(&reading, expected), "{:#?}", lines(&reading));
}
