//! Devices that vanish, come back, return wrong data and block.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{copy, machine, our_root, sampler};
use railscope_exporter::sampler::{Presence, Sampler};
use railscope_model::reading::{NodeReading, Status};
use rustix::fs::{CWD, FileType, Mode, mknodat};

const MLX5_2: &str = "sys/devices/pci0000:37/0000:37:01.0/0000:38:00.0/0000:39:00.0/0000:3a:00.0";

fn hgx() -> (tempfile::TempDir, PathBuf) {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let root = temp.path().to_owned();
    copy(&our_root("hgx-h100-ib"), &root);
    (temp, root)
}

fn sample(sampler: &mut dyn Sampler) -> NodeReading {
    let mut reading = NodeReading::default();
    let presence = sampler.sample(&mut reading).expect("a sample");
    assert_eq!(presence, Presence::Present);
    reading
}

/// How many series carry this label value.
fn series(reading: &NodeReading, label: &str) -> usize {
    let samples = reading.samples().iter();
    samples
        .filter(|sample| sample.labels.values().any(|value| value == label))
        .count()
}

fn statuses(reading: &NodeReading) -> Vec<String> {
    let samples = reading.samples().iter();
    let statuses = samples.filter(|sample| sample.metric.name == "railscope_source_status");
    let texts = statuses.map(|sample| sample.labels.values().collect::<Vec<_>>().join(" "));
    texts.collect()
}

fn errors(reading: &NodeReading) -> f64 {
    let samples = reading.samples().iter();
    let errors = samples.filter(|sample| sample.metric.name == "railscope_source_errors_total");
    errors.map(|sample| sample.value.as_f64()).sum()
}

#[test]
fn a_device_that_vanishes_leaves_no_series_and_no_error_and_comes_back() {
    let (_temp, root) = hgx();
    let mut rdma = sampler("rdma", &machine(&root));
    let first = sample(rdma.as_mut());
    let before = series(&first, "mlx5_2");
    assert!(before > 20, "{before}");
    // From the second sample on there are peak rates too.
    let others = series(&sample(rdma.as_mut()), "mlx5_1");

    let hardware = root.join(MLX5_2).join("infiniband");
    let aside = root.join("aside");
    fs::rename(&hardware, &aside).expect("unplug");
    copy(&aside, &root.join("copy"));
    fs::remove_dir_all(&aside).expect("unplug");
    fs::remove_file(root.join("sys/class/infiniband/mlx5_2")).expect("unplug");
    for _ in 0..2 {
        let reading = sample(rdma.as_mut());
        assert_eq!(series(&reading, "mlx5_2"), 0);
        assert_eq!(series(&reading, "mlx5_1"), others);
        assert_eq!(statuses(&reading), statuses(&first));
        assert_eq!(errors(&reading), 0.0);
    }

    // A new device is found at the next sample.
    fs::rename(root.join("copy"), &hardware).expect("plug");
    let target = format!(
        "../../{}/infiniband/mlx5_2",
        MLX5_2.trim_start_matches("sys/")
    );
    std::os::unix::fs::symlink(target, root.join("sys/class/infiniband/mlx5_2")).expect("plug");
    let reading = sample(rdma.as_mut());
    assert_eq!(series(&reading, "mlx5_2"), before);
    assert_eq!(series(&reading, "mlx5_1"), others);
}

#[test]
fn a_gpu_that_falls_off_the_bus_leaves_the_others() {
    let (_temp, root) = hgx();
    let mut pcie = sampler("pcie", &machine(&root));
    let first = sample(pcie.as_mut());
    let gpu = "0000:1b:00.0";
    assert!(series(&first, gpu) > 3);
    let switch = root.join("sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0");
    fs::remove_dir_all(switch.join("0000:17:03.0").join(gpu)).expect("unplug");
    fs::remove_file(root.join("sys/bus/pci/devices").join(gpu)).expect("unplug");
    let reading = sample(pcie.as_mut());
    assert_eq!(series(&reading, gpu), 0);
    assert_eq!(
        series(&reading, "0000:18:00.0"),
        series(&first, "0000:18:00.0")
    );
    assert_eq!(errors(&reading), 0.0);
}

#[test]
fn one_bad_file_costs_one_value() {
    let (_temp, root) = hgx();
    let count = |root: &Path| {
        let reading = sample(sampler("rdma", &machine(root)).as_mut());
        (
            series(&reading, "mlx5_2"),
            series(&reading, "mlx5_1"),
            statuses(&reading),
            errors(&reading),
        )
    };
    let (before, others, quiet, _) = count(&root);
    let counter = root
        .join(MLX5_2)
        .join("infiniband/mlx5_2/ports/1/counters/symbol_error");
    for (text, status, failures) in [
        ("gibberish\n", Some(Status::Unparsed), 1.0),
        ("N/A (no PMA)\n", Some(Status::Unsupported), 0.0),
        ("", Some(Status::Unsupported), 0.0),
    ] {
        fs::write(&counter, text).expect("write");
        let (bad, same, statuses, errors) = count(&root);
        // One value less, one status more.
        assert_eq!((bad, same, errors), (before, others, failures), "{text:?}");
        let expected = status.map(|status| format!("rdma mlx5_2 {}", status.as_str()));
        let new = statuses.iter().find(|status| !quiet.contains(status));
        assert_eq!(new, expected.as_ref(), "{text:?}");
    }
    fs::remove_file(&counter).expect("remove");
    assert_eq!(count(&root).0, before - 1);
    // The effect of a driver without such a port on node_exporter: the rate file alone fails.
    let rate = root.join(MLX5_2).join("infiniband/mlx5_2/ports/1/rate");
    fs::write(rate, "gibberish\n").expect("write");
    let (bad, same, ..) = count(&root);
    assert_eq!(
        (bad, same),
        (before - 1 - 2 + 1, others),
        "speed and width less, one status more"
    );
}

#[test]
fn links_that_leave_the_root_are_not_followed() {
    let (_temp, root) = hgx();
    let link = root.join("sys/class/infiniband/mlx5_2");
    let outside = root.join("outside");
    copy(&root.join(MLX5_2), &outside);
    fs::remove_file(&link).expect("remove");
    std::os::unix::fs::symlink("../../../outside/infiniband/mlx5_2", &link).expect("link");
    let reading = sample(sampler("rdma", &machine(&root)).as_mut());
    assert_eq!(series(&reading, "mlx5_2"), 0);
    assert!(series(&reading, "mlx5_1") > 20);
}

#[test]
fn a_machine_without_devices_says_absent() {
    let machine = machine(&our_root("bare"));
    for name in ["rdma", "pcie", "placement"] {
        let mut reading = NodeReading::default();
        let presence = sampler(name, &machine)
            .sample(&mut reading)
            .expect("a sample");
        assert_eq!(presence, Presence::Absent(Status::Absent), "{name}");
        assert_eq!(reading.samples(), [], "{name}");
    }
}

#[test]
fn this_very_machine_is_read_without_an_error() {
    let machine = machine(Path::new("/"));
    let mut reading = NodeReading::default();
    for name in ["host", "pcie", "placement", "rdma"] {
        let mut of_source = NodeReading::default();
        sampler(name, &machine)
            .sample(&mut of_source)
            .expect("a sample");
        reading.extend(&of_source);
    }
    assert_eq!(errors(&reading), 0.0, "{:?}", statuses(&reading));
    let value = |name: &str| {
        let mut samples = reading.samples().iter();
        samples
            .find(|sample| sample.metric.name == name)
            .map(|sample| sample.value.as_f64())
    };
    assert!(value("railscope_node_cpus").is_some_and(|cpus| cpus >= 1.0));
    assert!(value("railscope_node_boot_time_seconds").is_some_and(|time| time > 1e9));
}

/// A FIFO without a writer blocks whoever opens it; the test fails instead of waiting for ever.
fn sample_within_seconds(mut sampler: Box<dyn Sampler>) -> (Box<dyn Sampler>, NodeReading) {
    let (done, answer) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let reading = sample(sampler.as_mut());
        done.send((sampler, reading))
    });
    let answer = answer.recv_timeout(std::time::Duration::from_secs(20));
    answer.unwrap_or_else(|_| panic!("the sample blocks"))
}

fn replace_by(path: &Path, kind: FileType) {
    fs::remove_file(path).expect("the file was there");
    mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, 0).expect("a special file");
}

#[test]
fn a_special_file_in_the_place_of_a_counter_costs_only_that_counter() {
    for kind in [FileType::Fifo, FileType::Socket] {
        let (_temp, root) = hgx();
        let healthy = sample(sampler("rdma", &machine(&root)).as_mut());
        let port = root.join(MLX5_2).join("infiniband/mlx5_2/ports/1");
        // A counter, a text that is read once, and one that is searched for at each discovery.
        for file in ["counters/symbol_error", "rate", "../../fw_ver"] {
            replace_by(&port.join(file), kind);
        }
        let rdma = sampler("rdma", &machine(&root));
        let (rdma, reading) = sample_within_seconds(rdma);
        for device in ["mlx5_0", "mlx5_1", "mlx5_3"] {
            assert_eq!(series(&reading, device), series(&healthy, device));
        }
        let left = series(&reading, "mlx5_2");
        assert!(left > 20 && left < series(&healthy, "mlx5_2"), "{left}");
        let status = "rdma mlx5_2 failed".to_owned();
        assert!(statuses(&reading).contains(&status), "{kind:?}");

        // A value that was lost comes back with its file.
        let counter = port.join("counters/symbol_error");
        fs::remove_file(&counter).expect("the special file");
        fs::write(&counter, "7\n").expect("write");
        let (_, mended) = sample_within_seconds(rdma);
        assert_eq!(
            series(&mended, "symbol_error"),
            series(&healthy, "symbol_error")
        );
    }
}

/// While a file is kept open, a FIFO takes its name.
#[test]
fn a_fifo_that_takes_the_place_of_an_open_counter_does_not_block_the_next_sample() {
    let (_temp, root) = hgx();
    let mut rdma = sampler("rdma", &machine(&root));
    sample(rdma.as_mut());
    let steady = sample(rdma.as_mut());
    let counters = root.join(MLX5_2).join("infiniband/mlx5_2/ports/1/counters");
    replace_by(&counters.join("symbol_error"), FileType::Fifo);
    let (_, reading) = sample_within_seconds(rdma);
    assert_eq!(series(&reading, "mlx5_1"), series(&steady, "mlx5_1"));
    assert_eq!(series(&reading, "mlx5_2"), series(&steady, "mlx5_2"));
}
