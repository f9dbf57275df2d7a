//! Full expositions of whole machines: every source of a fixture machine, NVML by the mock through the real worker,
//! read by the real binary and compared with golden files. `UPDATE_EXPECT=1` updates these.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::service::Exporter;
use expect_test::expect_file;
use railscope_simulator::show::nvml::{NodeGpus, STATE_FILE, install};

/// Series of the default profile of one node.
const BUDGET: usize = 600 - 2 * SERIES_OF_A_PATH_CLASS;
/// What probes of one class of paths add: a histogram of ten bounds, lost probes, three quantiles. The collector's lists
/// have two classes on fabrics of rails.
const SERIES_OF_A_PATH_CLASS: usize = 13 + 1 + 3;
/// When an exposition is complete: peak rates need a window, performance monitoring two samples, GPUs a worker.
const COMPLETE: Duration = Duration::from_secs(60);
/// How long to wait for an exposition without a golden file yet.
const UNKNOWN: Duration = Duration::from_secs(12);

/// Families whose values differ from run to run: the golden file holds the series and not the value.
const VOLATILE: [&str; 9] = [
    "railscope_exporter_series",
    "railscope_source_age_seconds",
    "railscope_source_duration_seconds",
    "railscope_source_late_seconds",
    // An error for each time that an unreadable counter was tried.
    "railscope_source_errors_total",
    "railscope_source_reads_total",
    "railscope_nvml_calls_total",
    "railscope_nvml_call_seconds_total",
    "railscope_gpu_monitored_seconds_total",
];

fn root(machine: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/machines")
        .join(machine)
}

/// The reproducible part of an exposition. The timer probe is omitted: it runs on this machine's CPUs.
fn lasting(page: &str) -> String {
    let probe = [
        "railscope_host_stalls",
        "railscope_host_timer",
        "source=\"jitter\"",
    ];
    let lasts = |line: &&str| !probe.iter().any(|word| line.contains(word));
    let masked = page.lines().filter(lasts).map(|line| {
        let volatile = VOLATILE.iter().any(|family| line.starts_with(family));
        match line.rsplit_once(' ') {
            Some((series, _)) if volatile => format!("{series} *\n"),
            _ => format!("{line}\n"),
        }
    });
    masked.collect()
}

fn check(machine: &str) {
    let root = root(machine);
    let text = fs::read_to_string(root.join(STATE_FILE)).expect("a state");
    let (gpus, errors) = NodeGpus::parse(&text);
    assert!(errors.is_empty(), "{errors:?}");
    let dir = tempfile::tempdir().expect("a folder");
    let library = install(dir.path(), &gpus).expect("installs");
    let below = |flag: &str, path: &str| format!("--{flag}={}", root.join(path).display());
    let exporter = Exporter::start_with(
        &library,
        &[
            below("path.sysfs", "sys"),
            below("path.procfs", "proc"),
            below("path.rootfs", ""),
            below("path.kmsg", "dev/kmsg"),
            below("path.network-recordings", "network"),
            below("workload.kubelet-socket", "kubelet.sock"),
        ],
    );
    let golden = |profile| format!("golden/{machine}.{profile}.prom");
    let blessed = fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../tests")
            .join(golden("full")),
    );
    let deadline = Instant::now() + blessed.as_ref().map_or(UNKNOWN, |_| COMPLETE);
    let mut full = String::new();
    while Instant::now() < deadline && blessed.as_ref().ok() != Some(&full) {
        thread::sleep(Duration::from_millis(250));
        full = lasting(&exporter.page("full"));
    }
    expect_file![golden("full")].assert_eq(&full);
    let default = exporter.page("default");
    expect_file![golden("default")].assert_eq(&lasting(&default));
    let series = |page: &str| page.lines().filter(|line| !line.starts_with('#')).count();
    let shown = series(&default);
    println!(
        "{machine}: {shown} series by default, {} in full",
        series(&full)
    );
    assert!(shown <= BUDGET, "{machine}: {shown} series by default");
}

#[test]
fn hgx_h100_on_infiniband() {
    check("hgx-h100-ib");
}

#[test]
fn hgx_h200_on_roce_with_pfc() {
    check("hgx-h200-roce");
}

#[test]
fn a_tray_of_a_gb200_rack() {
    check("gb200-nvl72-tray");
}

#[test]
fn a_dgx_a100_of_which_two_gpus_are_partitioned() {
    check("dgx-a100-mig");
}

#[test]
fn a_virtual_machine_with_a_virtual_function_and_a_gpu_passed_through() {
    check("vm-vf-passthrough");
}

#[test]
fn a_cloud_instance_with_efa() {
    check("efa-p5");
}
