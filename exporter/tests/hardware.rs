//! The node's own hardware: fans, power supplies, sensors, CPUs held back, memory errors.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::common::{machine, sampler};
use railscope_exporter::sampler::{Presence, Sampler};
use railscope_model::reading::{NodeReading, Status};

/// A Super-I/O chip, whose voltage limits are not set.
const SUPER_IO: &[(&str, &str)] = &[
    ("name", "nct6779\n"),
    ("fan1_input", "8940\n"),
    ("fan1_alarm", "0\n"),
    ("fan2_input", "9120\n"),
    ("fan2_alarm", "0\n"),
    ("in0_input", "880\n"),
    ("in0_alarm", "1\n"),
    ("intrusion0_alarm", "1\n"),
    ("temp1_input", "24500\n"),
    ("temp1_label", "MB Inlet\n"),
    ("temp1_alarm", "1\n"),
    ("temp2_input", "-2000\n"),
    ("temp2_fault", "0\n"),
];
/// A power supply on PMBus.
const SUPPLY: &[(&str, &str)] = &[
    ("name", "pmbus\n"),
    ("fan1_input", "5200\n"),
    ("fan1_alarm", "0\n"),
    ("fan1_fault", "0\n"),
    ("in1_label", "vin\n"),
    ("in1_input", "230000\n"),
    ("in1_min_alarm", "0\n"),
    ("in1_lcrit_alarm", "0\n"),
    ("in2_label", "vout1\n"),
    ("in2_crit_alarm", "0\n"),
    ("in2_min_alarm", "1\n"),
    ("power1_label", "pin\n"),
    ("power1_input", "1530000000\n"),
    ("power1_alarm", "0\n"),
    ("temp1_input", "38000\n"),
    ("temp1_max_alarm", "0\n"),
    ("temp1_crit_alarm", "0\n"),
];
/// The package of a CPU, and a core of it.
const CORETEMP: &[(&str, &str)] = &[
    ("name", "coretemp\n"),
    ("temp1_input", "71000\n"),
    ("temp1_label", "Package id 0\n"),
    ("temp1_crit_alarm", "0\n"),
    ("temp2_input", "70000\n"),
    ("temp2_label", "Core 0\n"),
    ("temp2_crit_alarm", "1\n"),
];
const SUPER_IO_AT: &str = "devices/platform/nct6775.2560";
const SUPPLY_AT: &str = "devices/pci0000:00/0000:00:1f.4/i2c-3/3-0058";

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join("sys").join(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
    fs::write(path, text).expect("write");
}

/// A chip with its links, as the kernel lays them out.
fn chip(root: &Path, device: &str, number: usize, files: &[(&str, &str)]) {
    let name = format!("hwmon{number}");
    let dir = format!("{device}/hwmon/{name}");
    for (file, text) in files {
        write(root, &format!("{dir}/{file}"), text);
    }
    symlink("../..", root.join("sys").join(&dir).join("device")).expect("link");
    let class = root.join("sys/class/hwmon");
    fs::create_dir_all(&class).expect("mkdir");
    symlink(format!("../../{dir}"), class.join(name)).expect("link");
}

fn subsystem(root: &Path, device: &str, target: &str) {
    let link = root.join("sys").join(device).join("subsystem");
    symlink(target, link).expect("link");
}

/// A node with a Super-I/O chip, a power supply, a CPU and an NVMe drive.
fn healthy(root: &Path) {
    chip(root, SUPER_IO_AT, 0, SUPER_IO);
    chip(root, SUPPLY_AT, 1, SUPPLY);
    subsystem(root, SUPPLY_AT, "../../../../../bus/i2c");
    chip(root, "devices/platform/coretemp.0", 2, CORETEMP);
    let drive = "devices/pci0000:00/0000:01:00.0/nvme/nvme0";
    chip(
        root,
        drive,
        3,
        &[("name", "nvme\n"), ("temp1_input", "41850\n")],
    );
    subsystem(root, drive, "../../../../../class/nvme");
    let nic = "devices/pci0000:00/0000:02:00.0";
    chip(
        root,
        nic,
        4,
        &[("name", "mlx5\n"), ("temp1_input", "61000\n")],
    );
    subsystem(root, nic, "../../../bus/pci");
    write(root, &format!("{nic}/class"), "0x020700\n");
    for (supply, kind, online) in [("AC0", "Mains", "1\n"), ("BAT0", "Battery", "0\n")] {
        let dir = format!("class/power_supply/{supply}");
        write(root, &format!("{dir}/type"), kind);
        write(root, &format!("{dir}/online"), online);
    }
}

/// Two packages of two cores of two CPUs each.
fn cpus(root: &Path) {
    write(root, "devices/system/cpu/online", "0-7\n");
    for cpu in 0..8 {
        let dir = format!("devices/system/cpu/cpu{cpu}");
        let (package, core) = (cpu / 2 % 2, cpu % 2);
        for (file, text) in [
            ("topology/physical_package_id", package.to_string()),
            ("topology/core_id", core.to_string()),
            (
                "thermal_throttle/core_throttle_count",
                (10 * core).to_string(),
            ),
            (
                "thermal_throttle/package_throttle_count",
                (300 + package).to_string(),
            ),
            (
                "cpufreq/scaling_cur_freq",
                (800_000 + 100_000 * cpu).to_string(),
            ),
            ("cpufreq/cpuinfo_max_freq", String::from("3800000")),
            ("cpufreq/scaling_driver", String::from("intel_pstate")),
            ("cpufreq/scaling_governor", String::from("performance")),
        ] {
            write(root, &format!("{dir}/{file}"), &format!("{text}\n"));
        }
    }
}

/// The samples, `name labels value` without the common prefix of names; infos only if requested.
fn lines(sampler: &mut dyn Sampler) -> Vec<String> {
    let mut reading = NodeReading::default();
    let presence = sampler.sample(&mut reading).expect("a sample");
    assert_eq!(presence, Presence::Present);
    let samples = reading.samples().iter().map(|sample| {
        let name = sample.metric.name.trim_start_matches("railscope_");
        let labels: Vec<_> = sample.labels.values().collect();
        format!("{name} {} {}", labels.join("|"), sample.value.as_f64())
    });
    let mut lines: Vec<_> = samples.collect();
    lines.sort();
    lines
}

fn without_infos(mut lines: Vec<String>) -> Vec<String> {
    lines.retain(|line| !line.starts_with("sensor_info"));
    lines
}

const HEALTHY: &[&str] = &[
    "fan_speed_rpm i2c_3_3_0058|fan1 5200",
    "fan_speed_rpm platform_nct6775_2560|fan1 8940",
    "fan_speed_rpm platform_nct6775_2560|fan2 9120",
    "sensor_alarm AC0|online|power 0",
    "sensor_alarm i2c_3_3_0058|fan1|fan 0",
    "sensor_alarm i2c_3_3_0058|in1|power 0",
    "sensor_alarm i2c_3_3_0058|in2|voltage 0",
    "sensor_alarm i2c_3_3_0058|power1|power 0",
    "sensor_alarm i2c_3_3_0058|temp1|temperature 0",
    "sensor_alarm platform_coretemp_0|temp1|temperature 0",
    "sensor_alarm platform_nct6775_2560|fan1|fan 0",
    "sensor_alarm platform_nct6775_2560|fan2|fan 0",
    "sensor_alarm platform_nct6775_2560|temp2|temperature 0",
    "sensor_temperature_celsius i2c_3_3_0058|temp1 38",
    "sensor_temperature_celsius platform_coretemp_0|temp1 71",
    "sensor_temperature_celsius platform_nct6775_2560|temp1 24.5",
    "sensor_temperature_celsius platform_nct6775_2560|temp2 -2",
    "source_errors_total sensors 0",
];

#[test]
fn a_healthy_board_has_no_alarm_and_drives_nics_and_cores_are_left_out() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    healthy(temp.path());
    let found = lines(sampler("sensors", &machine(temp.path())).as_mut());
    assert_eq!(without_infos(found.clone()), HEALTHY);
    let info = "sensor_info platform_nct6775_2560|temp1|nct6779|MB Inlet 1";
    assert!(found.iter().any(|line| line == info), "{found:#?}");
}

/// What differs from a healthy node after these files have changed.
fn differences(changes: &[(&str, &str, &str)]) -> Vec<String> {
    let temp = tempfile::tempdir().expect("a temporary directory");
    healthy(temp.path());
    for (device, file, text) in changes {
        write(temp.path(), &format!("{device}/{file}"), text);
    }
    let found = lines(sampler("sensors", &machine(temp.path())).as_mut());
    let mut found = without_infos(found);
    found.retain(|line| !HEALTHY.contains(&line.as_str()));
    found
}

#[test]
fn a_failed_fan_and_a_supply_without_mains_are_critical() {
    let board = format!("{SUPER_IO_AT}/hwmon/hwmon0");
    let supply = format!("{SUPPLY_AT}/hwmon/hwmon1");
    let (board, supply) = (board.as_str(), supply.as_str());
    for (changes, expected) in [
        (
            vec![(board, "fan1_input", "0\n"), (board, "fan1_alarm", "1\n")],
            vec![
                "fan_speed_rpm platform_nct6775_2560|fan1 0",
                "sensor_alarm platform_nct6775_2560|fan1|fan 2",
            ],
        ),
        (
            vec![
                (supply, "in1_input", "0\n"),
                (supply, "in1_min_alarm", "1\n"),
                (supply, "in1_lcrit_alarm", "1\n"),
                ("class/power_supply/AC0", "online", "0\n"),
            ],
            vec![
                "sensor_alarm AC0|online|power 2",
                "sensor_alarm i2c_3_3_0058|in1|power 2",
            ],
        ),
        (
            vec![
                (supply, "temp1_max_alarm", "1\n"),
                (supply, "power1_alarm", "1\n"),
            ],
            vec![
                "sensor_alarm i2c_3_3_0058|power1|power 1",
                "sensor_alarm i2c_3_3_0058|temp1|temperature 1",
            ],
        ),
    ] {
        assert_eq!(differences(&changes), expected);
    }
}

#[test]
fn a_damaged_value_is_counted_and_costs_only_itself() {
    let board = format!("{SUPER_IO_AT}/hwmon/hwmon0");
    let found = differences(&[
        (&board, "fan1_input", "-1\n"),
        (&board, "fan1_alarm", "maybe\n"),
        (&board, "fan2_input", "\n"),
        (&board, "temp1_input", "99999999999999999999\n"),
        // A broken sensor measures nothing.
        (&board, "temp2_fault", "1\n"),
    ]);
    assert_eq!(
        found,
        [
            "sensor_alarm platform_nct6775_2560|temp2|temperature 1",
            "source_errors_total sensors 3",
            "source_status sensors|platform_nct6775_2560|unparsed 1",
            "source_status sensors|platform_nct6775_2560|unsupported 1",
        ]
    );
}

#[test]
fn a_supply_that_is_pulled_leaves_no_series_and_comes_back() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    healthy(temp.path());
    let mut sensors = sampler("sensors", &machine(temp.path()));
    assert_eq!(without_infos(lines(sensors.as_mut())), HEALTHY);
    let at = temp.path().join("sys").join(SUPPLY_AT);
    let link = temp.path().join("sys/class/hwmon/hwmon1");
    fs::rename(&at, temp.path().join("aside")).expect("unplug");
    fs::remove_file(&link).expect("unplug");
    let found = lines(sensors.as_mut());
    let left = found.iter().filter(|line| line.contains("i2c")).count();
    assert_eq!(left, 0, "{found:#?}");
    assert!(found.contains(&String::from("source_errors_total sensors 0")));
    fs::rename(temp.path().join("aside"), &at).expect("plug");
    symlink(format!("../../{SUPPLY_AT}/hwmon/hwmon1"), link).expect("plug");
    assert_eq!(without_infos(lines(sensors.as_mut())), HEALTHY);
}

#[test]
fn a_node_with_very_many_sensors_shows_some_and_those_of_the_board_first() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    for module in 0..48 {
        let device = format!("devices/platform/dimm.{module:02}");
        let files = [("name", "jc42\n"), ("temp1_input", "40000\n")];
        chip(temp.path(), &device, module, &files);
    }
    let files = [("temp1_input", "21000\n"), ("temp1_label", "Inlet\n")];
    chip(temp.path(), "devices/platform/zone", 99, &files);
    let found = lines(sampler("sensors", &machine(temp.path())).as_mut());
    let shown = |name: &str| found.iter().filter(|line| line.contains(name)).count();
    assert_eq!(shown("celsius"), 32, "{found:#?}");
    assert_eq!(shown("celsius platform_zone"), 1, "{found:#?}");
}

#[test]
fn throttles_count_once_a_core_and_frequencies_are_three_numbers() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    cpus(temp.path());
    let mut cpu = sampler("cpu", &machine(temp.path()));
    let found = lines(cpu.as_mut());
    assert_eq!(
        found,
        [
            "cpu_frequency_hertz max 1500000000",
            "cpu_frequency_hertz median 1100000000",
            "cpu_frequency_hertz min 800000000",
            "cpu_frequency_policy_info intel_pstate|performance 1",
            "cpu_max_frequency_hertz  3800000000",
            "cpu_throttles_total core 20",
            "cpu_throttles_total package 601",
            "source_errors_total cpu 0",
        ]
    );
    let throttle = "devices/system/cpu/cpu1/thermal_throttle/core_throttle_count";
    write(temp.path(), throttle, "13\n");
    assert!(lines(cpu.as_mut()).contains(&String::from("cpu_throttles_total core 23")));
    // A CPU that goes offline does not lower the sum.
    let dir = temp
        .path()
        .join("sys/devices/system/cpu/cpu1/thermal_throttle");
    fs::remove_dir_all(dir).expect("offline");
    assert!(lines(cpu.as_mut()).contains(&String::from("cpu_throttles_total core 23")));
    for (file, text) in [
        ("cpu2/thermal_throttle/core_throttle_count", "many\n"),
        ("cpu0/cpufreq/scaling_cur_freq", "0\n"),
        ("cpu2/cpufreq/scaling_cur_freq", "<unknown>\n"),
    ] {
        write(temp.path(), &format!("devices/system/cpu/{file}"), text);
    }
    let found = lines(cpu.as_mut());
    for line in [
        "cpu_frequency_hertz min 900000000",
        "cpu_throttles_total core 23",
        "source_errors_total cpu 2",
        "source_status cpu|frequency|unparsed 1",
        "source_status cpu|throttles|unparsed 1",
    ] {
        assert!(
            found.iter().any(|other| other == line),
            "{line}\n{found:#?}"
        );
    }
}

#[test]
fn memory_controllers_count_both_kinds_of_error() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let edac = "devices/system/edac/mc";
    for (file, text) in [
        ("mc0/ce_count", "12\n"),
        ("mc0/ue_count", "1\n"),
        ("mc1/ce_count", "0\n"),
        ("mc1/ue_count", "a few\n"),
        ("mc10/ce_count", "3\n"),
        ("power/control", "auto\n"),
    ] {
        write(temp.path(), &format!("{edac}/{file}"), text);
    }
    let found = lines(sampler("memory", &machine(temp.path())).as_mut());
    assert_eq!(
        found,
        [
            "memory_errors_total mc0|corrected 12",
            "memory_errors_total mc0|uncorrected 1",
            "memory_errors_total mc10|corrected 3",
            "memory_errors_total mc1|corrected 0",
            "source_errors_total memory 1",
            "source_status memory|mc1|unparsed 1",
        ]
    );
}

#[test]
fn a_machine_without_any_of_it_says_only_that_it_is_absent() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    write(temp.path(), "devices/system/cpu/online", "0-3\n");
    write(
        temp.path(),
        "devices/system/cpu/cpu0/topology/core_id",
        "0\n",
    );
    write(temp.path(), "class/hwmon/hwmon0/name", "acpitz\n");
    for name in ["sensors", "cpu", "memory"] {
        let mut reading = NodeReading::default();
        let presence = sampler(name, &machine(temp.path())).sample(&mut reading);
        assert_eq!(presence.expect(name), Presence::Absent(Status::Absent));
        assert_eq!(reading.samples().len(), 0, "{name}");
    }
}
