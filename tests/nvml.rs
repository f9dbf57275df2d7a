//! GPUs end to end: the exporter, its NVML worker process and a `libnvidia-ml.so.1` without a GPU.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use railscope_exporter::sampler::{Machine, NvmlAccess, Sampler};
use railscope_exporter::samplers::gpu;
use railscope_exporter::{Exporter, Limits};
use railscope_model::exposition::Format;
use railscope_model::metric::Profile;
use railscope_simulator::show::nvml::{
    Fault, NodeGpus, install, install_old_driver, unload_driver, update_state,
};

const GPUS: usize = 8;
const LINKS: usize = 18;
/// `NVML_ERROR_NOT_SUPPORTED` and `NVML_ERROR_GPU_IS_LOST`.
const NOT_SUPPORTED: u32 = 3;
const LOST: u32 = 15;
/// Series of one GPU in the default profile: the budget of 600 a node leaves no more.
const BUDGET: usize = 38;

/// A node with a simulated NVML, and an exporter that reads nothing else.
struct Node {
    exporter: Exporter,
    state: NodeGpus,
    dir: tempfile::TempDir,
}

impl Node {
    fn start(state: NodeGpus) -> Self {
        Self::start_on(state, |dir, state| install(dir, state).expect("installs"))
    }

    fn start_on(state: NodeGpus, install: impl Fn(&Path, &NodeGpus) -> PathBuf) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let library = install(dir.path(), &state);
        Self {
            exporter: exporter(library, worker()),
            state,
            dir,
        }
    }

    /// Changes the state of the GPUs, while the worker runs.
    fn change(&mut self, change: impl FnOnce(&mut NodeGpus)) {
        change(&mut self.state);
        update_state(self.dir.path(), &self.state).expect("writes");
    }

    fn series(&self, profile: Profile) -> BTreeMap<String, f64> {
        series(&self.exporter, profile)
    }

    fn value(&self, series: &str) -> Option<f64> {
        self.series(Profile::Full).get(series).copied()
    }

    fn status(&self, device: &str, status: &str) -> bool {
        status_of(&self.exporter, device, status)
    }

    fn temperature(&self, gpu: usize) -> Option<f64> {
        self.value(&format!(
            r#"railscope_gpu_temperature_celsius{{gpu="{gpu}",sensor="gpu"}}"#
        ))
    }

    /// Waits until all GPUs but these show a change that is made now.
    #[track_caller]
    fn all_fresh_but(&mut self, silent: &[usize], celsius: u32) {
        self.change(|node| {
            for gpu in &mut node.gpus {
                gpu.temperature_celsius = celsius;
            }
        });
        eventually("the others are fresh", || {
            let fresh = |gpu| self.temperature(gpu) == Some(f64::from(celsius));
            (0..GPUS).filter(|gpu| !silent.contains(gpu)).all(fresh)
        });
    }
}

fn worker() -> Vec<PathBuf> {
    vec![env!("CARGO_BIN_EXE_railscope").into(), "nvml-worker".into()]
}

fn machine(library: PathBuf, worker: Vec<PathBuf>) -> Machine {
    Machine {
        nvml: Some(NvmlAccess {
            library,
            worker,
            period: Duration::from_secs(1),
        }),
        ..Machine::below("".as_ref())
    }
}

fn exporter(library: PathBuf, worker: Vec<PathBuf>) -> Exporter {
    let sampler: Box<dyn Sampler> = gpu::build(&machine(library, worker));
    Exporter::start_samplers(vec![sampler], Limits::default(), None).expect("a thread starts")
}

fn series(exporter: &Exporter, profile: Profile) -> BTreeMap<String, f64> {
    let body = exporter.page().body(profile, Format::Text, false);
    let text = String::from_utf8(body.to_vec()).expect("UTF-8");
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            (series.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

fn status_of(exporter: &Exporter, device: &str, status: &str) -> bool {
    let series_name =
        format!(r#"railscope_source_status{{source="gpu",device="{device}",status="{status}"}}"#);
    series(exporter, Profile::Default).contains_key(&series_name)
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Processes whose command line names a file below this folder.
fn processes_of(dir: &Path) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("procfs");
    entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let command = fs::read(path.join("cmdline")).ok()?;
            let names = String::from_utf8_lossy(&command).contains(dir.to_str()?);
            let pid = path.file_name()?.to_str()?.parse().ok()?;
            names.then_some(pid)
        })
        .collect()
}

/// Dead children of this process that were not reaped.
fn zombies() -> usize {
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc").expect("procfs").flatten();
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats
        .filter(|stat| {
            let (_, rest) = stat.rsplit_once(") ").unwrap_or_default();
            let mut fields = rest.split(' ');
            fields.next() == Some("Z") && fields.next() == Some(&own)
        })
        .count()
}

fn eight_gpus() -> NodeGpus {
    let mut node = NodeGpus::h100(GPUS);
    for gpu in &mut node.gpus {
        gpu.energy_millijoules = 1_500;
        gpu.sw_power_cap_nanoseconds = 2_000_000_000;
        gpu.hw_thermal_nanoseconds = 500_000_000;
        gpu.clocks_event_reasons = 0x4 | 0x40;
        gpu.remapped_rows_pending = true;
        gpu.ecc_volatile_uncorrected_dram = 3;
    }
    node.gpus[3].links[17].replay_errors = 40;
    node.gpus[3].links[17].crc_flit_errors = 2;
    node.gpus[3].links[0].replay_errors = 5;
    node.gpus[5].links[4].state = 0;
    node
}

/// Values of GPU 3 (and the links of GPU 5) of [`eight_gpus`]: the exposition's own lines.
const ROWS: &str = r#"
railscope_gpu_utilization_ratio{gpu="3"} 1.0
railscope_gpu_memory_utilization_ratio{gpu="3"} 0.11
railscope_gpu_memory_used_bytes{gpu="3"} 21282947072.0
railscope_gpu_memory_size_bytes{gpu="3"} 85520809984.0
railscope_gpu_memory_reserved_bytes{gpu="3"} 502267904.0
railscope_gpu_clock_hertz{gpu="3",clock="sm"} 1980000000.0
railscope_gpu_clock_hertz{gpu="3",clock="memory"} 2619000000.0
railscope_gpu_lowest_clock_hertz{gpu="3",clock="sm",window="15s"} 1980000000.0
railscope_gpu_peak_power_watts{gpu="3",window="60s"} 629.45
railscope_gpu_clock_hertz{gpu="3",clock="graphics"} 1980000000.0
railscope_gpu_clock_hertz{gpu="3",clock="video"} 1545000000.0
railscope_gpu_clock_max_hertz{gpu="3",clock="sm"} 1980000000.0
railscope_gpu_clock_max_hertz{gpu="3",clock="memory"} 2619000000.0
railscope_gpu_clock_event_active{gpu="3",reason="sw_power_cap"} 1.0
railscope_gpu_clock_event_active{gpu="3",reason="hw_thermal"} 1.0
railscope_gpu_clock_event_active{gpu="3",reason="hw_slowdown"} 0.0
railscope_gpu_clock_event_active{gpu="3",reason="gpu_idle"} 0.0
railscope_gpu_clock_event_seconds_total{gpu="3",reason="sw_power_cap"} 2.0
railscope_gpu_clock_event_seconds_total{gpu="3",reason="hw_thermal"} 0.5
railscope_gpu_clock_event_seconds_total{gpu="3",reason="hw_power_brake"} 0.0
railscope_gpu_power_watts{gpu="3"} 629.45
railscope_gpu_power_limit_watts{gpu="3"} 700.0
railscope_gpu_energy_joules_total{gpu="3"} 1.5
railscope_gpu_temperature_celsius{gpu="3",sensor="gpu"} 59.0
railscope_gpu_temperature_celsius{gpu="3",sensor="memory"} 55.0
railscope_gpu_temperature_limit_celsius{gpu="3",limit="slowdown"} 89.0
railscope_gpu_temperature_limit_celsius{gpu="3",limit="shutdown"} 95.0
railscope_gpu_ecc_errors_total{gpu="3",severity="corrected"} 0.0
railscope_gpu_ecc_errors_total{gpu="3",severity="uncorrected"} 3.0
railscope_gpu_ecc_enabled{gpu="3"} 1.0
railscope_gpu_row_remap_pending{gpu="3"} 1.0
railscope_gpu_row_remap_failed{gpu="3"} 0.0
railscope_gpu_performance_state{gpu="3"} 0.0
railscope_gpu_pcie_replays_total{gpu="3"} 9.0
railscope_gpu_pcie_link_generation{gpu="3"} 5.0
railscope_gpu_pcie_link_width_lanes{gpu="3"} 16.0
railscope_gpu_pcie_link_max_width_lanes{gpu="3"} 16.0
railscope_gpu_nvlinks{gpu="3"} 18.0
railscope_gpu_nvlinks_active{gpu="3"} 18.0
railscope_gpu_nvlinks_active{gpu="5"} 17.0
railscope_gpu_nvlink_errors_total{gpu="3",kind="replay"} 45.0
railscope_gpu_nvlink_errors_total{gpu="3",kind="crc_flit"} 2.0
railscope_gpu_nvlink_errors_total{gpu="3",kind="recovery"} 0.0
railscope_gpu_nvlink_worst_link_errors{gpu="3"} 42.0
railscope_nvlink_up{gpu="3",link="17"} 1.0
railscope_nvlink_up{gpu="5",link="4"} 0.0
railscope_nvlink_errors_total{gpu="3",link="17",kind="replay"} 40.0
railscope_nvlink_peer_info{gpu="3",link="1",peer_pci="0000:08:00.0",peer_type="switch"} 1.0
railscope_gpu_info{gpu="3",uuid="GPU-00000000-0000-0000-0000-000000000003",pci="0000:61:00.0",name="NVIDIA H100 80GB HBM3",serial="1650123000003",vbios="96.00.A5.00.01",driver="590.48.01",architecture="hopper",numa_node="0"} 1.0
"#;

/// Fails for the first row that is not in the exposition. Rows with one of these names have to be absent.
#[track_caller]
fn check_rows(page: &BTreeMap<String, f64>, absent: &[&str]) {
    for row in ROWS.trim().lines() {
        let (series, value) = row.rsplit_once(' ').expect("a value");
        let name = series.split('{').next().unwrap_or_default();
        let found = page.get(series).copied();
        if absent.contains(&name) {
            assert_eq!(found, None, "{series}");
            continue;
        }
        let value: f64 = value.parse().expect("a number");
        let near = found.is_some_and(|found| (found - value).abs() <= value.abs() * 1e-12);
        let alike: Vec<_> = page.keys().filter(|key| key.starts_with(name)).collect();
        assert!(
            near,
            "{series}: {found:?}, not {value}; there are {alike:#?}"
        );
    }
}

#[test]
fn every_row_of_eight_gpus_with_eighteen_links_is_right_and_within_the_budget() {
    let node = Node::start(eight_gpus());
    eventually("all GPUs are read", || {
        (0..GPUS).all(|gpu| node.temperature(gpu).is_some())
    });
    let full = node.series(Profile::Full);
    check_rows(&full, &[]);
    for (name, count) in [
        ("railscope_nvlink_up{", GPUS * LINKS),
        ("railscope_nvlink_errors_total{", GPUS * LINKS * 4),
    ] {
        assert_eq!(
            full.keys().filter(|key| key.starts_with(name)).count(),
            count,
            "{name}"
        );
    }
    assert!(node.status("", "ok"));
    let default = node.series(Profile::Default);
    // A flag costs a series there only while it is set; alerts read it from what Prometheus scrapes by default.
    let flags = ["row_remap_pending", "row_remap_failed", "sram_threshold"];
    let shown = flags.map(|flag| default.keys().filter(|key| key.contains(flag)).count());
    assert_eq!(shown, [GPUS, 0, 0]);
    for gpu in 0..GPUS {
        let labels = [
            format!("gpu=\"{gpu}\""),
            format!("source=\"gpu\",device=\"{gpu}\""),
        ];
        let of_gpu = default
            .keys()
            .filter(|key| labels.iter().any(|label| key.contains(label)));
        let of_gpu: Vec<_> = of_gpu.collect();
        println!("GPU {gpu}: {} series by default", of_gpu.len());
        assert!(of_gpu.len() <= BUDGET, "{of_gpu:#?}");
    }
}

#[test]
fn ordinals_are_in_the_order_of_pci_addresses() {
    let mut state = NodeGpus::h100(4);
    state.gpus.reverse();
    let node = Node::start(state);
    let info = |gpu: usize, pci: &str| {
        let wanted = [format!("{{gpu=\"{gpu}\""), format!("pci=\"{pci}\"")];
        let all = node.series(Profile::Default);
        all.keys()
            .any(|key| wanted.iter().all(|part| key.contains(part)))
    };
    eventually("sorted", || {
        info(0, "0000:1b:00.0") && info(3, "0000:61:00.0")
    });
}

#[test]
fn an_old_driver_costs_only_what_needs_what_it_lacks() {
    let old = |dir: &Path, state: &NodeGpus| install_old_driver(dir, state).expect("installs");
    let mut state = eight_gpus();
    state.driver = "390.157".into();
    let node = Node::start_on(state, old);
    eventually("all GPUs are read", || {
        (0..GPUS).all(|gpu| node.temperature(gpu).is_some())
    });
    let full = node.series(Profile::Full);
    check_rows(
        &full,
        &[
            "railscope_gpu_memory_reserved_bytes",
            "railscope_gpu_energy_joules_total",
            "railscope_gpu_info", // its driver differs
        ],
    );
    assert!(node.status("", "ok"));
    assert!((0..GPUS).all(|gpu| node.status(&gpu.to_string(), "unsupported")));
}

#[test]
fn a_gpu_that_hangs_costs_only_itself_and_comes_back() {
    let mut node = Node::start(NodeGpus::h100(GPUS));
    node.all_fresh_but(&[], 40);
    node.change(|node| node.gpus[2].faults.push(Fault::hang("*")));
    eventually("the GPU times out", || node.status("2", "timeout"));
    assert_eq!(node.temperature(2), None, "stale values are gone");
    node.all_fresh_but(&[2], 41);
    assert!(node.status("", "ok"));
    let age = node.value(r#"railscope_source_age_seconds{source="gpu"}"#);
    assert!(
        age > Some(5.0),
        "{age:?}: the source was not read to the end"
    );

    node.change(|node| node.gpus[2].faults.clear());
    node.all_fresh_but(&[], 42);
    assert!(!node.status("2", "timeout"));
}

#[test]
fn a_gpu_that_hangs_from_the_start_leaves_the_others_alone() {
    let mut state = NodeGpus::h100(GPUS);
    state.gpus[7]
        .faults
        .push(Fault::hang("nvmlDeviceGetTemperature"));
    let mut node = Node::start(state);
    node.all_fresh_but(&[7], 43);
    eventually("the GPU times out", || node.status("7", "timeout"));
    node.change(|node| node.gpus[7].faults.clear());
    node.all_fresh_but(&[], 44);
}

#[test]
fn a_lost_gpu_says_failed_and_keeps_its_identity() {
    let mut node = Node::start(NodeGpus::h100(GPUS));
    node.all_fresh_but(&[], 40);
    node.change(|node| node.gpus[0].faults.push(Fault::fail("*", LOST)));
    eventually("the GPU is lost", || node.status("0", "failed"));
    node.all_fresh_but(&[0], 41);
    assert_eq!(node.temperature(0), None);
    assert!(node.status("", "ok"));
    let info = "railscope_gpu_info{gpu=\"0\",uuid=\"GPU-0";
    assert!(
        node.series(Profile::Default)
            .keys()
            .any(|key| key.starts_with(info))
    );

    node.change(|node| node.gpus[0].faults.clear());
    node.all_fresh_but(&[], 42);
    assert!(!node.status("0", "failed"));
}

#[test]
fn a_lost_gpu_does_not_move_the_ordinals_of_the_others() {
    let mut state = NodeGpus::h100(4);
    state.gpus[1].faults.push(Fault::fail("*", LOST));
    let node = Node::start(state);
    let known = |gpu: usize| {
        let series = node.series(Profile::Default);
        let uuid = format!("{{gpu=\"{gpu}\",uuid=\"GPU-00000000-0000-0000-0000-{gpu:012}\"");
        series.keys().any(|key| key.contains(&uuid))
    };
    eventually("read", || [0, 2, 3].into_iter().all(known));
    eventually("said", || node.status("1", "failed"));
}

#[test]
fn what_one_gpu_does_not_support_is_absent_and_said_once() {
    let mut state = NodeGpus::h100(2);
    for function in ["nvmlDeviceGetPowerUsage", "field.82"] {
        state.gpus[1]
            .faults
            .push(Fault::fail(function, NOT_SUPPORTED));
    }
    let node = Node::start(state);
    eventually("read", || node.status("1", "unsupported"));
    assert_eq!(node.value(r#"railscope_gpu_power_watts{gpu="1"}"#), None);
    let memory = r#"railscope_gpu_temperature_celsius{gpu="1",sensor="memory"}"#;
    assert_eq!(node.value(memory), None);
    assert!(node.temperature(1).is_some());
    let power = r#"railscope_gpu_power_watts{gpu="0"}"#;
    eventually("the other GPU is read", || node.value(power).is_some());
    let statuses = node.series(Profile::Full);
    let of_gpu = statuses.keys().filter(|key| key.contains(r#"device="1""#));
    assert_eq!(of_gpu.count(), 1);
}

#[test]
fn the_errors_of_a_link_that_stops_answering_stay_in_the_sum() {
    let mut state = NodeGpus::h100(1);
    for (index, link) in state.gpus[0].links.iter_mut().enumerate() {
        link.replay_errors = 10 + index as u64;
    }
    let mut node = Node::start(state);
    let sum = r#"railscope_gpu_nvlink_errors_total{gpu="0",kind="replay"}"#;
    let before = (10..28).sum::<u64>() as f64;
    eventually("read", || node.value(sum) == Some(before));
    node.change(|node| {
        let fail = Fault::fail("nvmlDeviceGetNvLinkErrorCounter", NOT_SUPPORTED);
        node.gpus[0].faults.push(fail);
        node.gpus[0].temperature_celsius = 77;
    });
    eventually("changed", || node.temperature(0) == Some(77.0));
    assert_eq!(
        node.value(sum),
        Some(before),
        "a sum that falls reads as a reset"
    );
    let single = r#"railscope_nvlink_errors_total{gpu="0",link="3",kind="replay"}"#;
    assert_eq!(node.value(single), None, "the link itself says nothing");
}

#[test]
fn a_worker_that_crashes_is_started_again_and_leaves_no_zombie() {
    let mut node = Node::start(NodeGpus::h100(GPUS));
    node.all_fresh_but(&[], 40);
    let first = processes_of(node.dir.path());
    assert_eq!(first.len(), 1, "{first:?}");
    node.change(|node| node.crash = true);
    eventually("the worker dies", || processes_of(node.dir.path()) != first);
    node.change(|node| node.crash = false);
    node.all_fresh_but(&[], 41);
    let errors = node.value(r#"railscope_source_errors_total{source="gpu"}"#);
    assert!(errors >= Some(1.0), "{errors:?}");
    eventually("every dead worker is reaped", || zombies() == 0);
}

#[test]
fn the_worker_ends_with_the_exporter() {
    let mut node = Node::start(NodeGpus::h100(2));
    eventually("read", || node.temperature(1).is_some());
    // Even one whose GPU is blocked.
    node.change(|node| node.gpus[0].faults.push(Fault::hang("*")));
    eventually("hangs", || node.status("0", "timeout"));
    let Node { exporter, dir, .. } = node;
    assert_eq!(processes_of(dir.path()).len(), 1);
    drop(exporter);
    assert!(processes_of(dir.path()).is_empty());
}

#[test]
fn no_library_and_no_driver_are_absent_not_failed() {
    let dir = tempfile::tempdir().expect("a folder");
    let without = exporter(dir.path().join("libnvidia-ml.so.1"), worker());
    eventually("no library", || status_of(&without, "", "absent"));

    let library = install(dir.path(), &NodeGpus::h100(1)).expect("installs");
    unload_driver(dir.path()).expect("unloads");
    let without = exporter(library, worker());
    eventually("no driver", || status_of(&without, "", "absent"));
    let series = series(&without, Profile::Full);
    assert!(!series.keys().any(|key| key.starts_with("railscope_gpu_")));
}

#[test]
fn a_driver_that_is_unloaded_takes_its_values_along() {
    let node = Node::start(NodeGpus::h100(2));
    eventually("read", || node.temperature(1).is_some());
    unload_driver(node.dir.path()).expect("unloads");
    eventually("absent", || node.status("", "absent"));
    assert_eq!(node.temperature(1), None);
}
