//! The kernel log sampler on logs that grow, are denied, flood, and were recorded on real machines.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use crate::common::{captures, copy, machine, our_root, sampler};
use railscope_exporter::sampler::{Presence, Sampler};
use railscope_model::reading::{NodeReading, Status};

/// `btime` of the fixture machine's `/proc/stat`.
fn boot_time(root: &Path) -> f64 {
    let stat = fs::read_to_string(root.join("proc/stat")).expect("stat");
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "));
    line.expect("btime").parse().expect("a number")
}

struct Log {
    temp: tempfile::TempDir,
    sampler: Box<dyn Sampler>,
}

impl Log {
    /// The log of a copy of the HGX machine, whose eight GPUs are in sysfs.
    fn new(text: &str) -> Self {
        let temp = tempfile::tempdir().expect("a temporary directory");
        copy(&our_root("hgx-h100-ib"), temp.path());
        fs::create_dir_all(temp.path().join("dev")).expect("mkdir");
        fs::write(temp.path().join("dev/kmsg"), text).expect("write");
        let sampler = sampler("kernel_log", &machine(temp.path()));
        Self { temp, sampler }
    }

    fn append(&self, text: &str) {
        let path = self.temp.path().join("dev/kmsg");
        let mut file = OpenOptions::new().append(true).open(path).expect("open");
        file.write_all(text.as_bytes()).expect("write");
    }

    /// One sample: `family labels value` of every fault.
    fn sample(&mut self) -> Vec<String> {
        let mut reading = NodeReading::default();
        let presence = self.sampler.sample(&mut reading).expect("readable");
        assert_eq!(presence, Presence::Present);
        reading.normalise();
        let faults = reading
            .samples()
            .iter()
            .filter(|sample| sample.metric.name.contains("xid_"));
        faults
            .map(|sample| {
                let labels: Vec<_> = sample.labels.values().collect();
                let name = sample.metric.name.trim_start_matches("railscope_");
                format!("{name} {} {}", labels.join(" "), sample.value.as_f64())
            })
            .collect()
    }
}

const XIDS: &str = "gpu_xid_events_total";
const XID_TIME: &str = "gpu_xid_last_timestamp_seconds";

#[test]
fn old_faults_have_a_time_and_only_new_ones_count() {
    let mut log = Log::new("6,1,5000000,-;NVRM: Xid (PCI:0000:19:00): 63, row remapped\n");
    let boot = boot_time(log.temp.path());
    assert_eq!(
        log.sample(),
        [
            format!("{XIDS} 0 63 kmsg 0"),
            format!("{XID_TIME} 0 63 kmsg {}", boot + 5.0)
        ]
    );
    log.append("4,2,7250000,-;NVRM: Xid (PCI:0000:19:00): 63, row remapped\n SUBSYSTEM=pci\n");
    log.append(
        "4,3,8000000,-;nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20009, Non-fatal, Link 28\n",
    );
    log.append(
        "4,4,8000001,-;nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20009, Severity 0 Engine\n",
    );
    // Written into the log by a program, whatever it pretends.
    log.append("12,5,9000000,-;NVRM: Xid (PCI:0000:19:00): 79, fallen\n");
    let expected = [
        format!("{XIDS} 0 63 kmsg 1"),
        format!("{XID_TIME} 0 63 kmsg {}", boot + 7.25),
        "nvswitch_sxid_events_total 0000:c3:00.0 20009 nonfatal 1".to_owned(),
        format!(
            "nvswitch_sxid_last_timestamp_seconds 0000:c3:00.0 20009 nonfatal {}",
            boot + 8.0
        ),
    ];
    assert_eq!(log.sample(), expected);
    assert_eq!(log.sample(), expected, "nothing counts twice");
}

#[test]
fn a_gpu_that_left_the_bus_keeps_its_ordinal_and_a_stranger_has_none() {
    let mut log = Log::new("");
    let gpus = log.temp.path().join("sys/bus/pci/devices");
    let mut addresses: Vec<_> = fs::read_dir(&gpus)
        .expect("devices")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            fs::read_to_string(path.join("class")).is_ok_and(|class| class.starts_with("0x0302"))
        })
        .map(|path| {
            path.file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    addresses.sort();
    let xid = |address: &str| format!("3,9,1,-;NVRM: Xid (PCI:{}): 79, fell\n", &address[..10]);
    log.append(&xid(&addresses[3]));
    log.sample();
    fs::remove_file(gpus.join(&addresses[3])).expect("unplugged");
    log.append(&xid(&addresses[3]));
    log.append(&xid(&addresses[5]));
    log.append(&xid("0000:ff:00.0"));
    let told = log.sample();
    let counts: Vec<_> = told.iter().filter(|line| line.starts_with(XIDS)).collect();
    let expected = ["  79 kmsg 1", " 3 79 kmsg 1", " 5 79 kmsg 1"];
    assert_eq!(
        counts,
        expected
            .map(|rest| format!("{XIDS}{rest}"))
            .iter()
            .collect::<Vec<_>>()
    );
}

#[test]
fn a_flood_of_different_faults_stays_bounded_and_counted() {
    let mut log = Log::new("");
    log.sample();
    for xid in 0..1000 {
        log.append(&format!("3,9,1,-;NVRM: Xid (PCI:0000:19:00): {xid}, x\n"));
    }
    let told = log.sample();
    let counts: Vec<_> = told.iter().filter(|line| line.starts_with(XIDS)).collect();
    assert_eq!(counts.len(), 129);
    let sum: u32 = counts
        .iter()
        .map(|line| {
            line.rsplit(' ')
                .next()
                .expect("a value")
                .parse::<u32>()
                .expect("a number")
        })
        .sum();
    assert_eq!(sum, 1000, "none is lost");
}

#[test]
fn no_log_is_absent_and_no_right_to_read_it_is_denied() {
    let empty = tempfile::tempdir().expect("a temporary directory");
    let mut sampler_of_none = sampler("kernel_log", &machine(empty.path()));
    let mut reading = NodeReading::default();
    let presence = sampler_of_none.sample(&mut reading).expect("no failure");
    assert_eq!(presence, Presence::Absent(Status::Absent));

    let log = Log::new("");
    let path = log.temp.path().join("dev/kmsg");
    let mut mode = fs::metadata(&path).expect("metadata").permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0);
    fs::set_permissions(&path, mode).expect("chmod");
    if fs::File::open(&path).is_ok() {
        eprintln!(
            "SKIPPED: the denied half of no_log_is_absent_and_no_right_to_read_it_is_denied: root may read all"
        );
        return;
    }
    let mut denied = sampler("kernel_log", &machine(log.temp.path()));
    let presence = denied.sample(&mut reading).expect("no failure");
    assert_eq!(presence, Presence::Absent(Status::Denied));
}

#[test]
fn recorded_logs_hold_the_faults_that_they_hold() {
    let test = "recorded_logs_hold_the_faults_that_they_hold";
    let Some(folder) = captures(test, "gpu_events") else {
        return;
    };
    let text = |name: &str| fs::read_to_string(folder.join(name)).expect("a recording");
    let mut log = Log::new("");
    log.sample();
    // Real records of /dev/kmsg without a fault: none may be invented, and all but a torn one are records.
    log.append(&text("kmsg-nvswitch-open.log"));
    log.append("\n");
    log.append(&text("kmsg-peermem.log"));
    log.append("\n");
    assert!(log.sample().is_empty());
    // `dmesg -T` of an Xid 119 of GPU4 at 0000:9b:00 (the fixture's fifth GPU as well), in the form in which /dev/kmsg gives the same records.
    for (sequence, line) in text("dmesg-with-xid-119.log").lines().enumerate() {
        let message = line.split_once("] ").map_or(line, |(_, message)| message);
        log.append(&format!("4,{sequence},{sequence}000000,-;{message}\n"));
    }
    let told = log.sample();
    assert_eq!(told[0], format!("{XIDS} 4 119 kmsg 5"), "{told:?}");
    assert_eq!(told.len(), 2);
}
