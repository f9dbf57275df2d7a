//! `railscope check` over whole machines, and each of its rules over one fault.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::common::{copy, machine, our_root, ours};
use expect_test::expect_file;
use railscope_exporter::check::{self, RULES, Report, Row, Verdict, View};
use railscope_exporter::sources::setup::Setup;
use railscope_model::metric::{
    DEPLOYMENT, GPU, GPU_POWER_LIMIT, GPU_UTILIZATION, GPU_XID_EVENTS, KERNEL_HARDWARE_EVENTS,
    Metric, NVLINKS, NVLINKS_ACTIVE, PCIE_LINK_SPEED, PCIE_LINK_SPEED_MAX, PCIE_PATH,
};
use railscope_model::reading::{Labels, NodeReading, Status, Value};

#[test]
fn whole_machines() {
    for name in [
        "bare",
        "hgx-h100-ib",
        "vm-vf-passthrough",
        "gb200-nvl72-tray",
        "dgx-a100-mig",
    ] {
        let report = check::run(&ours(name));
        expect_file![format!("golden/{name}.check.txt")].assert_eq(&report.text());
    }
}

#[test]
fn the_table_as_json_has_every_row_and_names_its_verdicts() {
    let report = check::run(&ours("hgx-h100-ib"));
    let json = serde_json::to_value(&report).expect("serializes");
    let rows = json["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), report.rows.len());
    assert_eq!(json["node"]["name"], "hgx-1");
    assert_eq!(json["node"]["gpus"], 8);
    let verdict = |row: &serde_json::Value| row["verdict"].as_str().map(str::to_owned);
    for row in rows {
        let fix = row["fix"].as_str().expect("a fix");
        assert_eq!(
            fix.is_empty(),
            verdict(row).as_deref() == Some("ok"),
            "{row}"
        );
    }
}

/// Rows of the rule that are not fine, over a machine that a test has modified: `verdict part gives`.
fn spoilt(rule: &str, base: &str, spoil: impl FnOnce(&Path)) -> Vec<String> {
    let temp = tempfile::tempdir().expect("a temporary directory");
    copy(&our_root(base), temp.path());
    spoil(temp.path());
    rows(&check::run(&machine(temp.path())), rule)
}

fn rows(report: &Report, rule: &str) -> Vec<String> {
    assert!(RULES.iter().any(|known| known.name == rule), "{rule}");
    let line = |row: &Row| format!("{} {}: {}", row.verdict, row.part, row.gives);
    let rows = report.rows.iter();
    rows.filter(|row| row.check == rule && row.verdict != Verdict::Ok)
        .map(line)
        .collect()
}

const HGX: &str = "hgx-h100-ib";
const SWITCH: &str = "sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0";
const PORT: &str = "sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0";
const NIC: &str = "sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0";

fn write(path: &Path, text: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
    fs::write(path, text).expect("write");
}

/// A configuration space with 512 bytes for read requests and redirects peers.
fn config(max_read_request: u8, access_control: u8) -> Vec<u8> {
    let mut space = vec![0; 4096];
    for (at, byte) in [
        (0x06, 0x10),
        (0x34, 0x60),
        (0x60, 0x10),
        (0x69, max_read_request),
        (0x100, 0x0d),
        (0x106, access_control),
    ] {
        space[at] = byte;
    }
    space
}

#[test]
fn configuration_space_tells_of_read_requests_and_redirected_peers() {
    let unread = |_: &Path| {};
    assert_eq!(spoilt("acs", HGX, unread), Vec::<String>::new());
    let header_only = |root: &Path| {
        write(&root.join(PORT).join("config"), &config(0x20, 0)[..64]);
        write(&root.join(NIC).join("config"), &config(0x20, 0)[..64]);
    };
    let denied = ["unknown 20 switch ports: denied"];
    assert_eq!(spoilt("acs", HGX, header_only), denied);
    let denied = ["unknown 9 NICs: denied"];
    assert_eq!(spoilt("max-read-request", HGX, header_only), denied);
    let as_root = |root: &Path| {
        write(&root.join(SWITCH).join("config"), config(0x20, 0));
        write(&root.join(PORT).join("config"), config(0x20, 0x1d));
        write(&root.join(NIC).join("config"), config(0x20, 0));
    };
    let redirected = spoilt("acs", HGX, as_root);
    assert_eq!(redirected.len(), 1, "{redirected:?}");
    assert!(redirected[0].starts_with("FINDING 0000:17:00.0: every transfer"));
    let small = ["FINDING mlx5_0 (0000:18:00.0): 512 bytes"];
    assert_eq!(spoilt("max-read-request", HGX, as_root), small);
    let large = |root: &Path| write(&root.join(NIC).join("config"), config(0x50, 0));
    assert_eq!(spoilt("max-read-request", HGX, large), Vec::<String>::new());
}

#[test]
fn the_iommu_may_pass_addresses_through_but_not_translate_them() {
    for (kind, expected) in [
        ("identity", None),
        (
            "DMA-FQ",
            Some("FINDING mlx5_0 (0000:18:00.0): every transfer"),
        ),
        ("DMA", Some("FINDING mlx5_0 (0000:18:00.0): every transfer")),
        (
            "none-of-these",
            Some("unknown mlx5_0 (0000:18:00.0): the kernel reports"),
        ),
    ] {
        let rows = spoilt("iommu", HGX, |root| {
            write(&root.join("sys/kernel/iommu_groups/7/type"), kind);
            symlink("../../x/7", root.join(NIC).join("iommu_group")).expect("link");
        });
        match expected {
            None => assert_eq!(rows, Vec::<String>::new(), "{kind}"),
            Some(begin) => assert!(rows.len() == 1 && rows[0].starts_with(begin), "{rows:?}"),
        }
    }
}

#[test]
fn nics_reach_gpu_memory_by_peermem_or_by_dma_buf() {
    let gpudirect = |driver: Option<&str>, module: bool, release: &str| {
        let rows = spoilt("gpudirect", HGX, |root| {
            let version = root.join("proc/driver/nvidia/version");
            match driver {
                Some(driver) => write(&version, driver),
                None => fs::remove_file(version).expect("the machine has a driver"),
            }
            if !module {
                let module = root.join("sys/module/nvidia_peermem");
                fs::remove_dir_all(module).expect("the machine has the module");
            }
            write(&root.join("proc/sys/kernel/osrelease"), release);
        });
        rows.first()
            .map(|row| row.split(' ').next().unwrap_or_default().to_owned())
    };
    let closed = Some("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15");
    let open = Some("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15");
    assert_eq!(gpudirect(None, true, "6.8.0").as_deref(), Some("unknown"));
    assert_eq!(
        gpudirect(closed, false, "6.8.0").as_deref(),
        Some("FINDING")
    );
    assert_eq!(gpudirect(closed, true, "6.8.0"), None);
    assert_eq!(gpudirect(open, false, "6.8.0"), None);
    assert_eq!(
        gpudirect(open, false, "5.4.0-150-generic").as_deref(),
        Some("FINDING")
    );
}

#[test]
fn frames_of_roce_ports_must_hold_an_rdma_packet() {
    let mtu = |mtu: &str| {
        let file = "sys/class/net/bond0/mtu";
        spoilt("roce-mtu", HGX, |root| write(&root.join(file), mtu))
    };
    assert_eq!(mtu("9000"), Vec::<String>::new());
    assert_eq!(mtu("1500"), ["FINDING mlx5_bond_0/1 (bond0): 1500"]);
}

#[test]
fn one_port_below_its_siblings_rate_and_one_firmware_beside_the_others_stand_out() {
    let slow = |root: &Path| {
        write(
            &root.join(NIC).join("infiniband/mlx5_0/ports/1/rate"),
            "200 Gb/sec (4X HDR)",
        );
        write(
            &root.join(NIC).join("infiniband/mlx5_0/fw_ver"),
            "28.39.1002",
        );
    };
    // Port 7 is down: that is another question's finding.
    assert_eq!(
        spoilt("port-rate", HGX, slow),
        ["FINDING mlx5_0/1: 200 Gb/s"]
    );
    assert_eq!(
        spoilt("nic-firmware", HGX, slow),
        ["FINDING mlx5_0: 28.39.1002"]
    );
}

#[test]
fn a_gpu_whose_nearest_nic_is_farther_than_its_siblings_stands_out() {
    let rows = spoilt("gpu-nic-distance", HGX, |root| {
        // Both NICs of the first switch are gone.
        for nic in ["mlx5_0", "mlx5_1"] {
            fs::remove_file(root.join("sys/class/infiniband").join(nic)).expect("unplug");
        }
    });
    assert_eq!(
        rows,
        [
            "FINDING GPU 0: mlx5_2 at NODE",
            "FINDING GPU 1: mlx5_3 at NODE"
        ]
    );
}

#[test]
fn a_file_that_may_not_be_read_is_a_finding_with_its_source() {
    let rows = spoilt("unreadable", HGX, |root| {
        let counter = root
            .join(NIC)
            .join("infiniband/mlx5_0/ports/1/counters/symbol_error");
        write(&counter, "gibberish\n");
    });
    assert!(
        rows.contains(&"FINDING rdma mlx5_0: unparsed".to_owned()),
        "{rows:?}"
    );
}

/// A node of four H100s, seen by NVML, on bare metal or in a virtual machine.
fn gpus(model: &str) -> NodeReading {
    let mut reading = NodeReading::default();
    reading.push(&DEPLOYMENT, &Labels::new([model, "", "", "", ""]), true);
    for gpu in 0..4 {
        let (gpu, pci) = (gpu.to_string(), format!("0000:0{gpu}:00.0"));
        let about = [&gpu, "uuid", &pci, "H100", "", "96.00", "", "", ""].map(str::to_owned);
        reading.push(&GPU, &Labels::new(about), true);
        reading.push(
            &PCIE_PATH,
            &Labels::new([&pci, "gpu", &gpu, "", "", ""]),
            true,
        );
    }
    reading
}

fn judge(reading: &NodeReading, rule: &str) -> Vec<String> {
    rows(
        &check::judge(&View::new(reading, &Setup::default(), true)),
        rule,
    )
}

/// One value a GPU.
fn each(reading: &mut NodeReading, metric: &'static Metric, values: [impl Into<Value>; 4]) {
    for (gpu, value) in values.into_iter().enumerate() {
        reading.push(metric, &Labels::new([gpu]), value);
    }
}

#[test]
fn nvlinks_are_held_against_siblings_and_missed_in_a_virtual_machine() {
    let nvlink = |model: &str, links: u64, up: [u64; 4]| {
        let mut reading = gpus(model);
        each(&mut reading, &NVLINKS, [links; 4]);
        each(&mut reading, &NVLINKS_ACTIVE, up);
        judge(&reading, "nvlink")
    };
    let none = Vec::<String>::new();
    assert_eq!(nvlink("bare_metal", 18, [18; 4]), none);
    assert_eq!(
        nvlink("bare_metal", 18, [18, 17, 18, 18]),
        ["FINDING GPU 1: 17"]
    );
    assert_eq!(nvlink("bare_metal", 0, [0; 4]), none);
    assert!(nvlink("bare_metal", 18, [0; 4])[0].starts_with("unknown 4 GPUs"));
    assert!(nvlink("virtual_machine", 18, [0; 4])[0].starts_with("cost 4 GPUs: PCIe only"));
}

#[test]
fn a_gpu_capped_below_its_siblings_stands_out() {
    let mut reading = gpus("bare_metal");
    each(&mut reading, &GPU_POWER_LIMIT, [700.0, 700.0, 450.0, 700.0]);
    assert_eq!(judge(&reading, "power-limit"), ["FINDING GPU 2: 450 W"]);
}

#[test]
fn a_gpu_on_the_bus_for_which_nvml_has_no_answer_stands_out() {
    let mut reading = gpus("bare_metal");
    assert_eq!(judge(&reading, "gpu-driver"), Vec::<String>::new());
    let lost = Labels::new(["0000:09:00.0", "gpu", "4", "", "", ""]);
    reading.push(&PCIE_PATH, &lost, true);
    reading.push_status("gpu", "", Status::Ok);
    assert_eq!(
        judge(&reading, "gpu-driver"),
        ["FINDING GPU 4 (0000:09:00.0): ok"]
    );
}

#[test]
fn a_gpu_that_fell_off_the_bus_heads_the_report_with_its_xid() {
    let report = |spoil: &dyn Fn(&mut NodeReading), asks_nvml: bool| {
        let mut reading = gpus("bare_metal");
        spoil(&mut reading);
        check::judge(&View::new(&reading, &Setup::default(), asks_nvml))
    };
    let xid = |reading: &mut NodeReading, gpu: &str, xid: &str| {
        // Of /dev/kmsg, what came before the check is not counted.
        reading.push(&GPU_XID_EVENTS, &Labels::new([gpu, xid, "kmsg"]), 0_u64);
    };
    let silent = |reading: &mut NodeReading| {
        let path = Labels::new(["0000:09:00.0", "gpu", "4", "", "", ""]);
        reading.push(&PCIE_PATH, &path, true);
        let about = Labels::new(["0000:09:00.0", "gpu_lost"]);
        reading.push(&KERNEL_HARDWARE_EVENTS, &about, 0_u64);
    };
    for (spoil, asks_nvml, headlines) in [
        // NVML lists the GPU and gets no response from it.
        (
            &(|reading: &mut NodeReading| {
                reading.push_status("gpu", "2", Status::Failed);
                xid(reading, "2", "119");
                xid(reading, "2", "79");
            }) as &dyn Fn(&mut NodeReading),
            true,
            &["GPU 2 (0000:02:00.0) fell off the bus (XID 79, 119)"][..],
        ),
        // It has another reason, or none.
        (
            &|reading| {
                reading.push_status("gpu", "2", Status::Timeout);
                xid(reading, "2", "119");
                reading.push_status("gpu", "3", Status::Failed);
            },
            true,
            &[
                "GPU 2 (0000:02:00.0) does not answer: timeout (XID 119)",
                "GPU 3 (0000:03:00.0) does not answer: failed",
            ],
        ),
        // The driver no longer counts it, and wrote no XID; with and without NVML.
        (&silent, true, &["GPU 4 (0000:09:00.0) fell off the bus"]),
        (&silent, false, &["GPU 4 (0000:09:00.0) fell off the bus"]),
        // The bus no longer shows it.
        (
            &|reading| xid(reading, "", "79"),
            true,
            &["a GPU that the PCI bus no longer shows fell off the bus (XID 79)"],
        ),
        // It is back: the log is history.
        (&|reading| xid(reading, "2", "79"), true, &[]),
    ] {
        let report = report(spoil, asks_nvml);
        assert_eq!(report.headlines, headlines);
        let first: Vec<_> = report.text().lines().map(str::to_owned).collect();
        assert!(first.starts_with(&report.headlines), "{first:?}");
        assert_eq!(rows(&report, "gpu-driver").len(), headlines.len());
    }
}

#[test]
fn a_slow_pcie_link_counts_against_a_gpu_only_while_it_works() {
    for (busy, expected) in [
        (0.9, "FINDING GPU 0 (0000:00:00.0): 2.5 GT/s"),
        (
            0.0,
            "unknown GPU 0 (0000:00:00.0): below its maximum, as GPUs are when idle",
        ),
    ] {
        let mut reading = gpus("bare_metal");
        reading.push(&GPU_UTILIZATION, &Labels::new(["0"]), busy);
        let pci = Labels::new(["0000:00:00.0"]);
        reading.push(&PCIE_LINK_SPEED, &pci, 2.5e9);
        reading.push(&PCIE_LINK_SPEED_MAX, &pci, 32e9);
        assert_eq!(judge(&reading, "pcie-speed"), [expected]);
    }
}

/// As a port of soft-RoCE is: no PCI function, no driver, and an interface that was not created for it.
#[test]
fn software_ports_are_counted_and_their_network_is_not_judged() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let port = temp.path().join("sys/class/infiniband/rxe0/ports/1");
    for (file, text) in [
        ("state", "4: ACTIVE\n"),
        ("link_layer", "Ethernet\n"),
        ("../../parent", "eth0\n"),
        ("../../../../net/eth0/mtu", "1500\n"),
    ] {
        fs::create_dir_all(&port).expect("mkdir");
        write(&port.join(file), text);
    }
    let report = check::run(&machine(temp.path()));
    assert_eq!((report.node.nics, report.node.software_ports), (0, 1));
    assert!(
        report
            .text()
            .contains("0 RDMA devices and 1 port in software")
    );
    assert!(report.not_applicable.contains(&"roce-mtu"));
    assert_eq!(rows(&report, "port-state"), Vec::<String>::new());
}

#[test]
fn a_pcie_link_has_to_run_at_what_both_of_its_ends_can() {
    for (port, expected) in [
        (32e9, &[][..]),
        (64e9, &["FINDING GPU 0 (0000:0a:00.0): 32 GT/s"]),
    ] {
        let mut reading = gpus("bare_metal");
        let path = Labels::new(["0000:0a:00.0", "gpu", "0", "0000:01:00.0", "", ""]);
        reading.push(&PCIE_PATH, &path, true);
        reading.push(&GPU_UTILIZATION, &Labels::new(["0"]), 0.9);
        for (pci, metric, speed) in [
            ("0000:0a:00.0", &PCIE_LINK_SPEED, 32e9),
            ("0000:0a:00.0", &PCIE_LINK_SPEED_MAX, 64e9),
            ("0000:01:00.0", &PCIE_LINK_SPEED_MAX, port),
        ] {
            reading.push(metric, &Labels::new([pci]), speed);
        }
        assert_eq!(judge(&reading, "pcie-speed"), expected);
    }
}
