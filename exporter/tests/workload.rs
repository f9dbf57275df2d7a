//! Whose work runs on the devices: a kubelet (a real gRPC server on a Unix socket) and a batch system.
mod kubelet;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::{copy, machine, our_root, sampler};
use kubelet::{Answer, Kubelet, container, pod};
use railscope_exporter::sampler::{Machine, Presence};
use railscope_exporter::sources::podresources::TIMEOUT;
use railscope_model::metric::MIG;
use railscope_model::reading::{Labels, NodeReading, Status};

/// Our HGX machine with its driver's list of GPUs; GPU 3's driver has not started it yet.
fn hgx() -> (tempfile::TempDir, Machine) {
    let temp = tempfile::tempdir().expect("a temporary directory");
    copy(&our_root("hgx-h100-ib"), temp.path());
    let buses = ["19", "1b", "3b", "3d", "9b", "9d", "bb", "bd"];
    for (ordinal, bus) in buses.into_iter().enumerate() {
        let uuid = match ordinal {
            3 => "GPU-????????-????-????-????-????????????".to_owned(),
            _ => format!("GPU-0000000{ordinal}-aaaa-bbbb-cccc-000000000000"),
        };
        let folder = temp
            .path()
            .join(format!("proc/driver/nvidia/gpus/0000:{bus}:00.0"));
        fs::create_dir_all(&folder).expect("mkdir");
        // Device files are numbered in another order than the bus.
        let text = format!(
            "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 16\nGPU UUID: \t {uuid}\n\
             Bus Location: \t 0000:{bus}:00.0\nDevice Minor: \t {}\n",
            7 - ordinal
        );
        fs::write(folder.join("information"), text).expect("write");
    }
    let machine = machine(temp.path());
    let folder = machine
        .workloads
        .kubelet_socket
        .parent()
        .map(Path::to_owned);
    fs::create_dir_all(folder.expect("a folder")).expect("mkdir");
    (temp, machine)
}

fn gpu(ordinal: u8) -> String {
    format!("GPU-0000000{ordinal}-aaaa-bbbb-cccc-000000000000")
}

/// What the sampler reports, and whether it found a source.
fn sample(machine: &Machine) -> (Presence, NodeReading) {
    let mut reading = NodeReading::default();
    let presence = sampler("workload", machine).sample(&mut reading);
    reading.normalize();
    (presence.expect("a sample"), reading)
}

/// Label values joined by `|`, of the metrics with this name.
fn series(reading: &NodeReading, name: &str) -> Vec<String> {
    let samples = reading.samples().iter();
    let samples = samples.filter(|sample| sample.metric.name == name);
    samples
        .map(|sample| sample.labels.values().collect::<Vec<_>>().join("|"))
        .collect()
}

fn workloads(reading: &NodeReading) -> Vec<String> {
    series(reading, "railscope_workload_info")
}

fn statuses(reading: &NodeReading) -> Vec<String> {
    series(reading, "railscope_source_status")
}

/// How many devices ended in this state.
fn devices(reading: &NodeReading, state: &str) -> Option<f64> {
    let mut samples = reading.samples().iter();
    let found = samples.find(|sample| {
        sample.metric.name == "railscope_workload_devices" && sample.labels.values().eq([state])
    });
    found.map(|sample| sample.value.as_f64())
}

#[test]
fn every_way_to_name_a_device_leads_to_it() {
    let (_temp, machine) = hgx();
    // gpu|mig|device|pci|claim|namespace|workload|container|job
    for (id, expected) in [
        (gpu(2), Some("2|||0000:3b:00.0||n|p|c|")),
        // Time slices of one GPU.
        (format!("{}::3", gpu(2)), Some("2|||0000:3b:00.0||n|p|c|")),
        ("MIG-1f2e-33".to_owned(), Some("|MIG-1f2e-33||||n|p|c|")),
        ("MIG-1f2e-33::0".to_owned(), Some("|MIG-1f2e-33||||n|p|c|")),
        (
            format!("MIG-{}/7/0", gpu(5)),
            Some("5|MIG-GPU-00000005-aaaa-bbbb-cccc-000000000000/7/0||0000:9d:00.0||n|p|c|"),
        ),
        // GKE names the device file.
        ("nvidia0".to_owned(), Some("7|||0000:bd:00.0||n|p|c|")),
        ("nvidia6/gi1".to_owned(), Some("1|1||0000:1b:00.0||n|p|c|")),
        // A GPU handed to a virtual machine, an SR-IOV function, an RDMA device.
        ("0000:3b:00.0".to_owned(), Some("2|||0000:3b:00.0||n|p|c|")),
        (
            "0000:18:00.0".to_owned(),
            Some("||mlx5_0|0000:18:00.0||n|p|c|"),
        ),
        ("mlx5_0".to_owned(), Some("||mlx5_0|0000:18:00.0||n|p|c|")),
        // Its driver has not started it, it is of another node, it is no device at all.
        (gpu(3), None),
        (gpu(9), None),
        ("0000:ff:00.0".to_owned(), None),
        ("17".to_owned(), None),
        (String::new(), None),
    ] {
        let devices_of = container("c", &[("example.com/device", &[&id])], &[]);
        let _kubelet = Kubelet::start(
            &machine,
            Answer::Pods(vec![pod("n", "p", vec![devices_of])]),
        );
        let (presence, reading) = sample(&machine);
        assert_eq!(presence, Presence::Present);
        assert_eq!(workloads(&reading), Vec::from_iter(expected), "{id}");
        let unknown = expected.is_none();
        assert_eq!(
            devices(&reading, "unknown"),
            Some(f64::from(u8::from(unknown)))
        );
        let said = ["workload|example.com/device|unsupported"];
        assert_eq!(statuses(&reading), said[..usize::from(unknown)]);
    }
}

#[test]
fn a_mig_device_that_nvml_lists_has_its_gpu_and_the_nic_beside_it() {
    let (_temp, machine) = hgx();
    let mut of_gpus = NodeReading::default();
    for (gpu, uuid) in [
        ("5", "MIG-5a5a0000-0000-4000-8000-000000000001"),
        ("2", "MIG-GPU-00000002-aaaa-bbbb-cccc-000000000000/1/0"),
        ("64", "MIG-64"),
    ] {
        of_gpus.push(&MIG, &Labels::new([gpu, "1", "0", uuid, "3g.40gb"]), true);
    }
    machine.mig_devices.learn([&of_gpus]);
    // gpu|mig|device|pci|claim|namespace|workload|container|job
    for (ids, expected) in [
        (
            vec!["MIG-5a5a0000-0000-4000-8000-000000000001", "0000:9a:00.0"],
            "5|MIG-5a5a0000-0000-4000-8000-000000000001|mlx5_4|0000:9a:00.0||n|p|c|",
        ),
        (
            vec!["MIG-5a5a0000-0000-4000-8000-000000000001::3"],
            "5|MIG-5a5a0000-0000-4000-8000-000000000001||0000:9d:00.0||n|p|c|",
        ),
        (
            vec!["MIG-GPU-00000002-aaaa-bbbb-cccc-000000000000/1/0"],
            "2|MIG-GPU-00000002-aaaa-bbbb-cccc-000000000000/1/0||0000:3b:00.0||n|p|c|",
        ),
        // NVML shows a GPU that sysfs does not.
        (vec!["MIG-64"], "64|MIG-64||||n|p|c|"),
        // It was destroyed since.
        (vec!["MIG-gone"], "|MIG-gone||||n|p|c|"),
    ] {
        let held = container("c", &[("nvidia.com/mig-3g.40gb", &ids)], &[]);
        let pods = vec![pod("n", "p", vec![held])];
        let _kubelet = Kubelet::start(&machine, Answer::Pods(pods));
        let (_, reading) = sample(&machine);
        assert_eq!(workloads(&reading), [expected], "{ids:?}");
    }
}

#[test]
fn one_series_joins_a_gpu_with_the_nearest_nic_of_its_container() {
    let (_temp, machine) = hgx();
    let train = container(
        "train",
        // The NIC of GPU 5's own switch, and one of the other socket.
        &[
            ("nvidia.com/gpu", &[&gpu(0), &gpu(5)]),
            (
                "nvidia.com/hostdev",
                &["0000:9a:00.0", "0000:18:00.0", "0000:28:00.1"],
            ),
        ],
        &[
            ("gpu.nvidia.com", "hgx-1", "gpu-4"),
            ("sriov", "hgx-1", "0000-3a-00-0"),
            ("", "", ""),
        ],
    );
    let shares = |name| {
        container(
            name,
            &[("nvidia.com/gpu.shared", &[&format!("{}::0", gpu(6))])],
            &[],
        )
    };
    let idle = container("sidecar", &[], &[]);
    let pods = vec![
        pod("ml", "job-0", vec![train, idle]),
        pod("dev", "a", vec![shares("x")]),
        pod("dev", "b", vec![shares("y")]),
    ];
    let _kubelet = Kubelet::start(&machine, Answer::Pods(pods));
    let (_, reading) = sample(&machine);
    let expected = [
        "||||gpu.nvidia.com/hgx-1/gpu-4|ml|job-0|train|",
        "|||0000:28:00.1||ml|job-0|train|",
        "||mlx5_2|0000:3a:00.0|sriov/hgx-1/0000-3a-00-0|ml|job-0|train|",
        "0||mlx5_0|0000:18:00.0||ml|job-0|train|",
        "5||mlx5_4|0000:9a:00.0||ml|job-0|train|",
        "6|||0000:bb:00.0||dev|a|x|",
        "6|||0000:bb:00.0||dev|b|y|",
    ];
    assert_eq!(workloads(&reading), expected);
    assert_eq!(devices(&reading, "named"), Some(9.0));
    assert_eq!(devices(&reading, "unknown"), Some(0.0));
}

#[test]
fn a_kubelet_that_hangs_costs_five_seconds_and_its_own_series() {
    for answer in [Answer::Never, Answer::NoHttp] {
        let (temp, mut machine) = hgx();
        machine.workloads.job_mapping = Some(mapping(temp.path(), &[("0", "4711\n")]));
        let _kubelet = Kubelet::start(&machine, answer);
        let begun = Instant::now();
        let (presence, reading) = sample(&machine);
        let waited = begun.elapsed();
        assert!(
            waited >= TIMEOUT && waited < TIMEOUT + Duration::from_secs(5),
            "{waited:?}"
        );
        assert_eq!(presence, Presence::Present);
        assert_eq!(statuses(&reading), ["workload|kubelet|timeout"]);
        assert_eq!(workloads(&reading), ["0|||0000:19:00.0|||||4711"]);
    }
}

#[test]
fn an_answer_may_be_as_large_as_the_kubelet_makes_it_and_no_larger() {
    for (mebibytes, status) in [(15, None), (17, Some("workload|kubelet|failed"))] {
        let (_temp, machine) = hgx();
        let pods = vec![pod("n", &"x".repeat(mebibytes << 20), vec![])];
        let _kubelet = Kubelet::start(&machine, Answer::Pods(pods));
        let (_, reading) = sample(&machine);
        assert_eq!(
            statuses(&reading),
            Vec::from_iter(status),
            "{mebibytes} MiB"
        );
    }
}

#[test]
fn no_kubelet_no_listener_and_no_such_service_are_three_things() {
    let (_temp, machine) = hgx();
    assert_eq!(sample(&machine).0, Presence::Absent(Status::Absent));

    let socket = &machine.workloads.kubelet_socket;
    drop(std::os::unix::net::UnixListener::bind(socket).expect("binds"));
    assert_eq!(statuses(&sample(&machine).1), ["workload|kubelet|failed"]);
    fs::remove_file(socket).expect("removes");

    let _kubelet = Kubelet::start(&machine, Answer::Unimplemented);
    assert_eq!(
        statuses(&sample(&machine).1),
        ["workload|kubelet|unsupported"]
    );
}

#[test]
fn more_holders_than_the_limit_are_dropped_and_counted() {
    let (_temp, machine) = hgx();
    let shared = |number: usize| {
        let id = format!("{}::{number}", gpu(1));
        pod(
            "n",
            &format!("p{number:03}"),
            vec![container("c", &[("gpu", &[&id])], &[])],
        )
    };
    let _kubelet = Kubelet::start(&machine, Answer::Pods((0..300).map(shared).collect()));
    let (_, reading) = sample(&machine);
    assert_eq!(workloads(&reading).len(), 256);
    assert_eq!(devices(&reading, "named"), Some(300.0));
    assert_eq!(devices(&reading, "dropped"), Some(44.0));
}

/// A job mapping directory with these files.
fn mapping(root: &Path, files: &[(&str, &str)]) -> PathBuf {
    let folder = root.join("jobs");
    fs::create_dir_all(&folder).expect("mkdir");
    for (name, text) in files {
        fs::write(folder.join(name), text).expect("write");
    }
    folder
}

#[test]
fn jobs_are_those_of_the_mapping_that_still_run_and_those_without_a_gpu() {
    let (temp, mut machine) = hgx();
    let files = [
        ("0", "4711\n"),
        ("1", "4711\n"),
        ("5.2", "4712\n"),
        ("6", "9\n"),
        ("44", "4712\n"),
    ];
    machine.workloads.job_mapping = Some(mapping(temp.path(), &files));
    let (_, reading) = sample(&machine);
    // Without Slurm's control groups the running jobs are unknown: the mapping is used.
    let believed = [
        "0|||0000:19:00.0|||||4711",
        "1|||0000:1b:00.0|||||4711",
        "5|2||0000:9d:00.0|||||4712",
        "6|||0000:bb:00.0|||||9",
    ];
    assert_eq!(workloads(&reading), believed);
    // There is no GPU 44.
    assert_eq!(devices(&reading, "unknown"), Some(1.0));

    for job in ["job_4711/step_0", "job_4712", "job_5000"] {
        let scope = temp
            .path()
            .join("sys/fs/cgroup/system.slice/slurmstepd.scope");
        fs::create_dir_all(scope.join(job)).expect("mkdir");
    }
    let (_, reading) = sample(&machine);
    let running = [
        "||||||||5000",
        "0|||0000:19:00.0|||||4711",
        "1|||0000:1b:00.0|||||4711",
        "5|2||0000:9d:00.0|||||4712",
    ];
    assert_eq!(workloads(&reading), running);
    assert_eq!(devices(&reading, "stale"), Some(1.0));

    machine.workloads.job_mapping = Some(temp.path().join("elsewhere"));
    let (_, reading) = sample(&machine);
    assert_eq!(statuses(&reading), ["workload|job_mapping|absent"]);
    assert_eq!(workloads(&reading).len(), 3);
}
