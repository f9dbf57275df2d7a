//! The exporter on NVIDIA's own mock of NVML, beside the checkout: each fault that it can inject shows on its GPU only.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::service::{Exporter, RAILSCOPE};
use crate::support::skip;

const GPUS: usize = 8;
/// Profiles of the mock.
const PROFILES: [&str; 7] = ["a100", "b200", "gb200", "gb300", "h100", "l40s", "t4"];
/// Families in which no other GPU may change.
const WATCHED: [&str; 16] = [
    "railscope_gpu_clock_event_active",
    "railscope_gpu_ecc_errors_total",
    "railscope_gpu_ecc_lifetime_errors_total",
    "railscope_gpu_fabric_unhealthy",
    "railscope_gpu_nvlink_errors_total",
    "railscope_gpu_pcie_link_generation",
    "railscope_gpu_pcie_link_width_lanes",
    "railscope_gpu_power_limit_watts",
    "railscope_gpu_row_remap_failed",
    "railscope_gpu_row_remap_pending",
    "railscope_gpu_row_remaps_total",
    "railscope_gpu_sram_errors_total",
    "railscope_gpu_sram_threshold_exceeded",
    "railscope_gpu_temperature_celsius",
    "railscope_gpu_xid_events_total",
    "railscope_source_status",
];

/// What becomes of a series of the GPU that has the fault.
#[derive(Debug, Clone, Copy)]
enum Becomes {
    Value(f64),
    More,
    Absent,
}
use Becomes::{Absent, More, Value};

/// A fault of the mock and the series that show it; `GPU` is replaced by the GPU's number.
struct Fault {
    gpu: usize,
    command: &'static [&'static str],
    shows: &'static [(&'static str, Becomes)],
}

const fn fault(
    gpu: usize,
    command: &'static [&'static str],
    shows: &'static [(&'static str, Becomes)],
) -> Fault {
    Fault {
        gpu,
        command,
        shows,
    }
}

/// The eleven faults. No two in a row are on one GPU, so that each also shows that the one before is cleared.
const FAULTS: [Fault; 11] = [
    fault(
        3,
        &["throttle", "hw_thermal_slowdown"],
        &[(
            r#"railscope_gpu_clock_event_active{gpu="GPU",reason="hw_thermal"}"#,
            Value(1.0),
        )],
    ),
    fault(
        4,
        &["nvlink-error", "100"],
        &[
            (
                r#"railscope_gpu_nvlink_errors_total{gpu="GPU",kind="crc_flit"}"#,
                More,
            ),
            (
                r#"railscope_gpu_nvlink_errors_total{gpu="GPU",kind="replay"}"#,
                More,
            ),
        ],
    ),
    fault(
        5,
        &["fabric-health", "degraded_bandwidth"],
        &[(
            r#"railscope_gpu_fabric_unhealthy{gpu="GPU",cause="degraded_bandwidth"}"#,
            Value(1.0),
        )],
    ),
    fault(
        2,
        &["fabric-health", "insufficient_nvlinks"],
        &[(
            r#"railscope_gpu_fabric_unhealthy{gpu="GPU",cause="insufficient_nvlinks"}"#,
            Value(1.0),
        )],
    ),
    fault(
        6,
        &[
            "set",
            "remapped_rows.uncorrectable=1",
            "remapped_rows.pending=true",
        ],
        &[
            (r#"railscope_gpu_row_remap_pending{gpu="GPU"}"#, Value(1.0)),
            (
                r#"railscope_gpu_row_remaps_total{gpu="GPU",cause="uncorrectable"}"#,
                Value(1.0),
            ),
        ],
    ),
    fault(
        1,
        &["set", "pcie.current_link_width=8"],
        &[(
            r#"railscope_gpu_pcie_link_width_lanes{gpu="GPU"}"#,
            Value(8.0),
        )],
    ),
    fault(
        7,
        &["set", "pcie.current_link_gen=3"],
        &[(
            r#"railscope_gpu_pcie_link_generation{gpu="GPU"}"#,
            Value(3.0),
        )],
    ),
    fault(
        2,
        &["set", "power.enforced_limit_mw=400000"],
        &[(
            r#"railscope_gpu_power_limit_watts{gpu="GPU"}"#,
            Value(400.0),
        )],
    ),
    fault(
        3,
        &["fail", "--mode", "ecc_uncorrectable", "--xid", "48"],
        &[
            (
                r#"railscope_gpu_ecc_errors_total{gpu="GPU",severity="uncorrected"}"#,
                More,
            ),
            (
                r#"railscope_gpu_xid_events_total{gpu="GPU",xid="48",source="nvml"}"#,
                Value(1.0),
            ),
        ],
    ),
    fault(
        4,
        &[
            "sram-ecc",
            "7",
            "--type",
            "parity",
            "--source",
            "sm",
            "--threshold-exceeded",
        ],
        &[
            (
                r#"railscope_gpu_sram_errors_total{gpu="GPU",kind="parity"}"#,
                Value(7.0),
            ),
            (
                r#"railscope_gpu_sram_lifetime_errors_total{gpu="GPU",unit="sm"}"#,
                Value(7.0),
            ),
            (
                r#"railscope_gpu_sram_threshold_exceeded{gpu="GPU"}"#,
                Value(1.0),
            ),
        ],
    ),
    fault(
        5,
        &["fail", "--mode", "fallen_off_bus", "--xid", "79"],
        &[
            (
                r#"railscope_source_status{source="gpu",device="GPU",status="failed"}"#,
                Value(1.0),
            ),
            (
                r#"railscope_gpu_temperature_celsius{gpu="GPU",sensor="gpu"}"#,
                Absent,
            ),
            (
                r#"railscope_gpu_xid_events_total{gpu="GPU",xid="79",source="nvml"}"#,
                Value(1.0),
            ),
        ],
    ),
];

/// The folder of the mock; none if it does not exist.
fn mock() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/testbeds/nvml_nvidia");
    folder.join("libnvidia-ml.so.1").exists().then_some(folder)
}

/// An exporter on the mock with one of its profiles.
struct Node {
    mock: PathBuf,
    config: PathBuf,
    folder: tempfile::TempDir,
    exporter: Exporter,
}

type Series = BTreeMap<String, f64>;

impl Node {
    fn start(mock: PathBuf, profile: &str) -> Self {
        let config = mock.join(format!("configs/mock-nvml-config-{profile}.yaml"));
        let folder = tempfile::tempdir().expect("a folder");
        let arguments = ["--web.listen-address", "127.0.0.1:0", "--nvml.period", "1s"];
        let mut process = railscope("exporter", &mock, &config, folder.path())
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut log = BufReader::new(process.stderr.take().expect("a pipe"));
        let address = loop {
            let mut line = String::new();
            assert!(log.read_line(&mut line).expect("a log") > 0, "it ended");
            if let Some((_, rest)) = line.split_once("listening on http://") {
                break rest.split_once('/').expect("an address").0.to_owned();
            }
        };
        // The exporter blocks on a full pipe.
        thread::spawn(move || log.read_to_end(&mut Vec::new()));
        Self {
            mock,
            config,
            folder,
            exporter: Exporter { process, address },
        }
    }

    /// Changes the state of the mock.
    fn inject(&self, arguments: &[&str]) {
        let output = Command::new(self.mock.join("nvml-mock-ctl"))
            .arg("--file")
            .arg(overrides(self.folder.path()))
            .arg("--config")
            .arg(&self.config)
            .args(arguments)
            .output()
            .expect("runs");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }

    fn series(&self) -> Series {
        let page = self.exporter.page("full");
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        let series = lines.filter_map(|line| line.rsplit_once(' '));
        series
            .map(|(series, value)| (series.to_owned(), value.parse().expect("a number")))
            .collect()
    }

    fn check(&self) -> Output {
        let empty = self.folder.path();
        railscope("check", &self.mock, &self.config, empty)
            .arg("--path.sysfs")
            .arg(empty)
            .arg("--path.procfs")
            .arg(empty)
            .arg("--path.rootfs")
            .arg(empty)
            .output()
            .expect("runs")
    }
}

fn railscope(command: &str, mock: &Path, config: &Path, folder: &Path) -> Command {
    let mut process = Command::new(RAILSCOPE);
    process
        .arg(command)
        .arg("--nvml.library")
        .arg(mock.join("libnvidia-ml.so.1"))
        .env("MOCK_NVML_CONFIG", config)
        .env("MOCK_NVML_OVERRIDES", overrides(folder));
    process
}

fn overrides(folder: &Path) -> PathBuf {
    folder.join("overrides.yaml")
}

#[track_caller]
fn eventually<T>(mut look: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match look() {
            Ok(found) => return found,
            Err(why) => assert!(Instant::now() < deadline, "{why}"),
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// How many samples of each GPU but this one there were.
fn samples(series: &Series, but: Option<usize>) -> Vec<f64> {
    let name = |gpu| format!(r#"railscope_nvml_calls_total{{gpu="{gpu}",call="sram"}}"#);
    let gpus = (0..GPUS).filter(|gpu| Some(*gpu) != but);
    gpus.map(|gpu| series.get(&name(gpu)).copied().unwrap_or_default())
        .collect()
}

fn are_sampled_twice(series: &Series, before: &[f64], but: Option<usize>) -> Result<(), String> {
    let now = samples(series, but);
    let mut pairs = before.iter().zip(&now);
    if pairs.all(|(before, now)| *now >= before + 2.0) {
        return Ok(());
    }
    Err(format!("samples: {before:?} before, {now:?} now"))
}

fn is_watched(series: &str) -> bool {
    let (family, labels) = series.split_once('{').unwrap_or((series, ""));
    // The status of a single feature is read again occasionally.
    WATCHED.contains(&family) && !labels.contains('/')
}

/// The watched series of other GPUs.
fn of_others(series: &Series, gpu: usize) -> Series {
    let own = [format!(r#"gpu="{gpu}""#), format!(r#"device="{gpu}""#)];
    let others = series.iter().filter(|(name, _)| {
        is_watched(name) && !own.iter().any(|label| name.contains(label.as_str()))
    });
    others.map(|(name, value)| (name.clone(), *value)).collect()
}

/// Injects a fault and waits until all of it shows, every other GPU was sampled twice, and the other GPUs are as
/// they were when healthy.
fn inject(node: &Node, fault: &Fault, healthy: &Series) -> Series {
    let gpu = fault.gpu.to_string();
    let (command, rest) = fault.command.split_first().expect("a command");
    node.inject(&[&[*command, "--gpu", &gpu], rest].concat());
    let others = of_others(healthy, fault.gpu);
    let samples = samples(&node.series(), Some(fault.gpu));
    eventually(|| {
        let now = node.series();
        for (series, becomes) in fault.shows {
            let series = series.replace("GPU", &gpu);
            let (before, now) = (healthy.get(&series), now.get(&series));
            let shows = match becomes {
                Value(value) => now == Some(value) && before != now,
                More => now > before && before.is_some(),
                Absent => now.is_none() && before.is_some(),
            };
            if !shows {
                return Err(format!("{series}: {now:?}, not {becomes:?}"));
            }
        }
        let now_others = of_others(&now, fault.gpu);
        let changed = others
            .iter()
            .find(|(name, value)| now_others.get(*name) != Some(value));
        let new = now_others
            .iter()
            .find(|(name, _)| !others.contains_key(*name));
        if let Some((name, _)) = changed.or(new) {
            let (before, now) = (others.get(name), now_others.get(name));
            return Err(format!("{:?}: {name}: {before:?}, {now:?}", fault.command));
        }
        are_sampled_twice(&now, &samples, Some(fault.gpu))?;
        Ok(now)
    })
}

#[test]
fn each_fault_of_nvidias_mock_shows_on_its_gpu_only() {
    let Some(mock) = mock() else {
        skip!(
            "no mock of NVML beside the checkout: 0 of {} faults",
            FAULTS.len()
        );
    };
    let node = Node::start(mock, "h100");
    let mut healthy = eventually(|| {
        let now = node.series();
        are_sampled_twice(&now, &[0.0; GPUS], None)?;
        Ok(now)
    });
    for fault in &FAULTS {
        let now = inject(&node, fault, &healthy);
        // XIDs stay, all else is as before.
        let xids = now
            .into_iter()
            .filter(|(name, _)| name.starts_with("railscope_gpu_xid_events"));
        healthy.extend(xids);
        if fault.command.contains(&"fallen_off_bus") {
            is_a_finding_of_check(&node);
        }
        node.inject(&["reset"]);
    }
    no_link_carries_more_than_it_can(&node.series());
}

fn is_a_finding_of_check(node: &Node) {
    let output = node.check();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let findings: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("FINDING"))
        .collect();
    assert_eq!(findings.len(), 1, "{text}");
    assert!(findings[0].contains("gpu-driver"), "{text}");
    assert!(findings[0].contains("GPU 5 (0000:8b:00.0)"), "{text}");
}

/// The mock's bytes rise four times as fast as the links can carry: they are omitted, and marked.
fn no_link_carries_more_than_it_can(series: &Series) {
    for gpu in [0, 7] {
        for direction in ["receive", "transmit"] {
            let mark = format!(
                r#"railscope_gpu_statistic_implausible{{gpu="{gpu}",counter="nvlink_{direction}_bytes"}}"#
            );
            assert_eq!(series.get(&mark), Some(&1.0), "{mark}");
        }
    }
    let bytes = series.keys().filter(|name| {
        name.contains("nvlink_")
            && (name.contains("e_bytes_total") || name.contains("t_bytes_total"))
    });
    assert_eq!(bytes.count(), 0);
}

#[test]
#[ignore = "slow: seven exporters, one after the other"]
fn slow_all_profiles_of_nvidias_mock_are_read() {
    let Some(mock) = mock() else {
        skip!(
            "no mock of NVML beside the checkout: 0 of {} profiles",
            PROFILES.len()
        );
    };
    for profile in PROFILES {
        let node = Node::start(mock.clone(), profile);
        let config = std::fs::read_to_string(&node.config).expect("a profile");
        let gpus = config
            .lines()
            .filter(|line| line.starts_with("  - index:"))
            .count();
        assert!(gpus > 0, "{profile}");
        let series = eventually(|| {
            let series = node.series();
            for family in ["info", "power_watts", "memory_size_bytes"] {
                let start = format!("railscope_gpu_{family}{{");
                let shown = series.keys().filter(|name| name.starts_with(&start));
                let shown = shown.count();
                if shown != gpus {
                    return Err(format!("{profile}: {family} of {shown} of {gpus} GPUs"));
                }
            }
            Ok(series)
        });
        let families: BTreeSet<_> = series
            .keys()
            .filter_map(|name| Some(name.split_once('{')?.0))
            .filter(|family| family.contains("_gpu_") || family.contains("nvlink"))
            .collect();
        assert!(families.len() >= 30, "{profile}: {families:?}");
        let lost = series.keys().filter(|name| {
            name.starts_with("railscope_source_status{source=\"gpu\"") && name.contains("failed")
        });
        assert_eq!(lost.count(), 0, "{profile}");
        println!("{profile}: {gpus} GPUs, {} families", families.len());
    }
}
