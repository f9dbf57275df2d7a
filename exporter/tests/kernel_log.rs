//! The kernel log sampler on logs that grow, are denied, flood, and were recorded on real machines.

use std::fs::{self, OpenOptions};
use std::io::Write;

use crate::common::{captures, copy, machine, our_root, sampler};
use railscope_exporter::check;
use railscope_exporter::sampler::{Machine, Presence, Sampler};
use railscope_model::reading::{NodeReading, Status};

/// `btime` of the fixture machine's `/proc/stat`.
fn boot_time() -> f64 {
    let stat = our_root("hgx-h100-ib").join("proc/stat");
    let stat = fs::read_to_string(stat).expect("stat");
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "));
    line.expect("btime").parse().expect("a number")
}

struct Log {
    temp: tempfile::TempDir,
    machine: Machine,
    sampler: Box<dyn Sampler>,
}

impl Log {
    /// A log of the HGX machine, whose eight GPUs are in sysfs.
    fn new(text: &str) -> Self {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let root = our_root("hgx-h100-ib");
        let mut machine = machine(&root);
        machine.kmsg = Some(temp.path().join("dev/kmsg"));
        Self::of(temp, machine, text)
    }

    /// A log of a copy of that machine.
    fn of_a_copy(text: &str) -> Self {
        let temp = tempfile::tempdir().expect("a temporary directory");
        copy(&our_root("hgx-h100-ib"), temp.path());
        let machine = machine(temp.path());
        Self::of(temp, machine, text)
    }

    fn of(temp: tempfile::TempDir, machine: Machine, text: &str) -> Self {
        fs::create_dir_all(temp.path().join("dev")).expect("mkdir");
        fs::write(temp.path().join("dev/kmsg"), text).expect("write");
        let sampler = sampler("kernel_log", &machine);
        Self {
            temp,
            machine,
            sampler,
        }
    }

    fn append(&self, text: &str) {
        let path = self.temp.path().join("dev/kmsg");
        let mut file = OpenOptions::new().append(true).open(path).expect("open");
        file.write_all(text.as_bytes()).expect("write");
    }

    /// One sample: `family labels value` of every fault and event.
    fn sample(&mut self) -> Vec<String> {
        let (presence, told) = self.sample_any();
        assert_eq!(presence, Presence::Present);
        told
    }

    /// The counts of one sample: `labels value`.
    fn counts(&mut self) -> Vec<String> {
        let told = self.sample();
        let counts = told.iter().filter_map(|line| {
            let (family, rest) = line.split_once(' ')?;
            family.ends_with("_total").then(|| rest.to_owned())
        });
        counts.collect()
    }

    fn sample_any(&mut self) -> (Presence, Vec<String>) {
        let mut reading = NodeReading::default();
        let presence = self.sampler.sample(&mut reading).expect("readable");
        reading.normalize();
        let faults = reading.samples().iter().filter(|sample| {
            FAMILIES
                .iter()
                .any(|family| sample.metric.name.contains(family))
        });
        let told = faults
            .map(|sample| {
                let labels: Vec<_> = sample.labels.values().collect();
                let name = sample.metric.name.trim_start_matches("railscope_");
                format!("{name} {} {}", labels.join(" "), sample.value.as_f64())
            })
            .collect();
        (presence, told)
    }
}

/// What the sampler reports of its log, and that there is something that it cannot read.
const FAMILIES: [&str; 3] = ["xid_", "kernel_hardware_", "source_status"];
const XIDS: &str = "gpu_xid_events_total";
const XID_TIME: &str = "gpu_xid_last_timestamp_seconds";

#[test]
fn all_faults_of_a_file_count_with_the_time_of_the_last() {
    let mut log = Log::new("6,1,5000000,-;NVRM: Xid (PCI:0000:19:00): 63, row remapped\n");
    let boot = boot_time();
    assert_eq!(
        log.sample(),
        [
            format!("{XIDS} 0 63 kmsg 1"),
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
    // Written into the log by a program, whatever sender it claims.
    log.append("12,5,9000000,-;NVRM: Xid (PCI:0000:19:00): 79, fallen\n");
    let expected = [
        format!("{XIDS} 0 63 kmsg 2"),
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
    let mut log = Log::of_a_copy("");
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
    let expected = ["  79 kmsg 1", " 3 79 kmsg 2", " 5 79 kmsg 1"];
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
    let mut denied = sampler("kernel_log", &log.machine);
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
    // Real records of /dev/kmsg without a fault: none may be invented.
    for name in ["kmsg-nvswitch-open.log", "kmsg-peermem.log"] {
        assert_eq!(
            Log::new(&text(name)).sample(),
            Vec::<String>::new(),
            "{name}"
        );
    }
    // `dmesg -x --time-format iso` of a program that crashed in NCCL.
    let crashes = Log::new(&text("dmesg-nccl-segfault.log")).sample();
    assert_eq!(crashes, Vec::<String>::new());
    // `dmesg -T` of an Xid 119 of GPU4 at 0000:9b:00 (the fixture's fifth GPU as well), last at 16:30:13.
    let told = Log::new(&text("dmesg-with-xid-119.log")).sample();
    let last = 1_740_328_213;
    assert_eq!(
        told,
        [
            format!("{XIDS} 4 119 kmsg 5"),
            format!("{XID_TIME} 4 119 kmsg {last}")
        ]
    );
    // The fabric manager's log is another file.
    let (presence, told) = Log::new(&text("fabricmanager.log")).sample_any();
    assert_eq!(presence, Presence::Absent(Status::Unparsed));
    assert_eq!(told, Vec::<String>::new());
}

/// The same three records in every format: an XID, a lost link, and a program that forges an XID.
#[test]
fn a_log_is_read_in_every_format_in_which_people_have_it() {
    let xid = "NVRM: Xid (PCI:0000:19:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.";
    let link = "mlx5_core 0000:3b:00.0 enp59s0np0: Link down";
    let forged = "NVRM: Xid (PCI:0000:9b:00): 95, pid=7";
    let unix = 1_740_327_858.5;
    let export = |transport: &str, text: &str| {
        format!(
            "__CURSOR=s=1\n__REALTIME_TIMESTAMP=1740327858500000\n_TRANSPORT={transport}\nMESSAGE={text}\n\n"
        )
    };
    let json = |transport: &str, text: &str| {
        format!(
            "{{\"__REALTIME_TIMESTAMP\":\"1740327858500000\",\"_TRANSPORT\":\"{transport}\",\"MESSAGE\":\"{text}\"}}\n"
        )
    };
    let lines =
        |kernel: &str, program: &str| format!("{kernel}{xid}\n{kernel}{link}\n{program}{forged}\n");
    #[rustfmt::skip]
    let formats = [
        ("kmsg", lines("3,1,5000000,-;", "11,2,5000000,-;"), None),
        ("dmesg", format!("[    5.000000] {xid}\n[    5.000000] {link}\n"), None),
        ("dmesg -x", lines("kern  :err   : [    5.000000] ", "user  :err   : [    5.000000] "), None),
        ("dmesg -T", format!("[Sun Feb 23 16:24:18 2025] {xid}\n[Sun Feb 23 16:24:18 2025] {link}\n"), Some(unix - 0.5)),
        ("dmesg iso", format!("2025-02-23T16:24:18,500000+00:00 {xid}\n2025-02-23T16:24:18,500000+00:00 {link}\n"), Some(unix)),
        ("syslog iso", lines("2025-02-23T16:24:18.500000+00:00 gpu-7 kernel: [    5.000000] ", "2025-02-23T16:24:18.500000+00:00 gpu-7 python[7]: "), Some(unix)),
        ("journal export", export("kernel", xid) + &export("kernel", link) + &export("syslog", forged), Some(unix)),
        ("journal json", json("kernel", xid) + &json("kernel", link) + &json("stdout", forged), Some(unix)),
        ("talos", lines("172.20.0.2: kern:     err: [2025-02-23T16:24:18.5Z]: ", "172.20.0.2: user: warning: [2025-02-23T16:24:18.5Z]: "), Some(unix)),
    ];
    for (format, text, at) in formats {
        let mut log = Log::new(&text);
        let at = at.unwrap_or(boot_time() + 5.0);
        let event = "enp59s0np0 link_down";
        let expected = [
            format!("{XIDS} 0 79 kmsg 1"),
            format!("{XID_TIME} 0 79 kmsg {at}"),
            format!("kernel_hardware_events_total {event} 1"),
            format!("kernel_hardware_event_last_timestamp_seconds {event} {at}"),
        ];
        assert_eq!(log.sample(), expected, "{format}");
        assert_eq!(log.sample(), expected, "{format}");
        log.append(&text);
        assert_eq!(
            log.counts(),
            ["0 79 kmsg 2", "enp59s0np0 link_down 2"],
            "{format}"
        );
    }
    // Without a year: the last such day.
    let mut log = Log::new(&lines(
        "Feb 23 16:24:18 gpu-7 kernel: ",
        "Feb 23 16:24:18 gpu-7 python[7]: ",
    ));
    assert_eq!(log.counts(), ["0 79 kmsg 1", "enp59s0np0 link_down 1"]);
}

#[test]
fn lines_about_one_event_count_once() {
    for (lines, expected) in [
        // One corrected error of PCIe, then one that comes without its first line.
        (
            "[1.0] pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0\n\
             [1.0] mlx5_core 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)\n\
             [1.1] mlx5_core 0000:3b:00.0:   device [15b3:1021] error status/mask=00001000/00002000\n\
             [9.0] pcieport 0000:00:1b.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)\n",
            &[
                "0000:00:1b.0 pcie_corrected 1",
                "0000:3b:00.0 pcie_corrected 1",
            ][..],
        ),
        // XID 79 and the driver's next lines; a GPU without an XID, in separate lines.
        (
            "[1.0] NVRM: Xid (PCI:0000:19:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n\
             [1.0] NVRM: GPU 0000:19:00.0: GPU has fallen off the bus.\n\
             [2.0] NVRM: The NVIDIA GPU 0000:9b:00.0\n\
             [2.0] NVRM: (PCI ID: 10de:2330) installed in this system has\n\
             [2.0] NVRM: fallen off the bus and is not responding to commands.\n\
             [3.0] NVRM: The NVIDIA GPU 0000:ab:00.0\n              NVRM: (PCI ID: 10de:2330) installed in this system has\n              NVRM: fallen off the bus and is not responding to commands.\n",
            &[
                "0 79 kmsg 1",
                "0000:9b:00.0 gpu_lost 1",
                "0000:ab:00.0 gpu_lost 1",
            ],
        ),
        // Machine checks: the line that there are some, and the lines with details.
        (
            "[1.0] mce: [Hardware Error]: Machine check events logged\n\
             [1.0] [Hardware Error]: Corrected error, no action required.\n\
             [1.0] [Hardware Error]: CPU:12 (19:1:1) MC17_STATUS[Over|CE|MiscV|-|-|-|SyndV|CECC|-|-|-]: 0x1\n\
             [9.0] mce: [Hardware Error]: Machine check events logged\n\
             [20.0] mce: [Hardware Error]: Machine check events logged\n",
            &[
                " machine_check_corrected 2",
                "cpu12 machine_check_corrected 1",
            ],
        ),
        (
            "[1.0] ena 0000:00:06.0 eth1: Trigger reset is on\n[2.0] ena 0000:00:06.0: Device reset completed successfully\n\
             [99.0] ena 0000:00:06.0 eth1: Trigger reset is on\n",
            &["0000:00:06.0 nic_error 2"],
        ),
        (
            "[1.0] EDAC MC0: 3 CE memory read error on x\n[2.0] EDAC MC0: 2 CE memory read error on x\n",
            &["mc0 memory_corrected 5"],
        ),
    ] {
        assert_eq!(Log::new(lines).counts(), expected, "{lines}");
    }
}

#[test]
fn a_damaged_log_gives_what_can_be_read_and_says_that_not_all_could() {
    let unparsed = "source_status kernel_log lines unparsed 1";
    let garbage = b"[    1.0] ib0: link down\n\x00\xff\xfe\x7fELF\x02\n[    2.0] ib0: link down\n";
    let mut log = Log::new("");
    let path = log.temp.path().join("dev/kmsg");
    fs::write(&path, garbage).expect("write");
    assert!(log.sample().contains(&unparsed.to_owned()));
    assert_eq!(log.counts(), ["ib0 link_down 2"]);

    let long = format!(
        "[    1.0] ib0: link down\n[    2.0] {}\n[    3.0] ib0: link down\n",
        "x".repeat(1 << 20)
    );
    let mut log = Log::new(&long);
    assert!(log.sample().contains(&unparsed.to_owned()));
    assert_eq!(log.counts(), ["ib0 link_down 2"]);

    // A last line without an end counts as far as it goes, and once: but half a number is none.
    let mut log = Log::new("[    1.0] NVRM: Xid (PCI:0000:19:00): 7");
    assert_eq!(log.counts(), Vec::<String>::new());
    log.append("9, pid=");
    assert_eq!(log.counts(), ["0 79 kmsg 1"]);
    log.append("7, name=x\n");
    assert_eq!(log.counts(), ["0 79 kmsg 1"]);

    for nothing in [
        "nonsense\n",
        "nonsense",
        "\u{0}\u{1}\n\u{2}",
        "MESSAGE=NVRM: Xid\n\n",
    ] {
        let (presence, told) = Log::new(nothing).sample_any();
        assert_eq!(presence, Presence::Absent(Status::Unparsed), "{nothing:?}");
        assert_eq!(told, Vec::<String>::new());
    }
}

#[test]
fn a_file_that_takes_the_place_of_another_counts_alone() {
    let mut log = Log::new("[    1.0] ib0: link down\n[    2.0] ib0: link down\n");
    assert_eq!(log.counts(), ["ib0 link_down 2"]);
    fs::write(
        log.temp.path().join("dev/kmsg"),
        "[    3.0] ib1: link down\n",
    )
    .expect("write");
    assert_eq!(log.counts(), ["ib1 link_down 1"]);
}

#[test]
fn the_check_shows_the_first_line_that_is_none_of_a_kernel_log() {
    for (text, part) in [
        ("GPU 0: 31 C\n", "kernel_log: "),
        ("[    1.0] text\nGPU 0: 31 C\n", "kernel_log lines: "),
    ] {
        let log = Log::new(text);
        let report = check::run(&log.machine);
        let mut rows = report.rows.iter();
        let row = rows.find(|row| row.part.starts_with("kernel_log"));
        let row = row.expect("a finding");
        assert_eq!(row.verdict, check::Verdict::Finding);
        let line = text.lines().count();
        assert_eq!(
            format!("{}: {}", row.part, row.gives),
            format!("{part}unparsed, line {line}: not a kernel log line: \"GPU 0: 31 C\"")
        );
    }
    let log = Log::new("[    1.0] text\n");
    let report = check::run(&log.machine);
    assert!(
        report
            .rows
            .iter()
            .all(|row| !row.part.starts_with("kernel_log"))
    );
}
