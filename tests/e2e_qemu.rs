//! A real kernel in a virtual machine, with soft-RoCE devices and a PCI hierarchy: what the exporter reports in there is
//! what sysfs, `rdma statistic` and `lspci` print, before and after traffic, errors and devices that come and go.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves

#[path = "support/guest.rs"]
mod guest;
#[path = "qemu_rdma_probe.rs"]
mod rdma_probe;
mod support;

use std::collections::{BTreeMap, BTreeSet};

use guest::{Results, Series, Snapshot, run_in_guest, same, series};
use serde_json::Value;
use support::{need, skip};

/// Two NUMA nodes; an NVMe controller that can split itself, below a wider and faster port than it is; a network
/// card below a switch of the other node.
const HIERARCHY: &str = "
    -object memory-backend-ram,id=mem0,size=256M -numa node,nodeid=0,cpus=0,memdev=mem0
    -object memory-backend-ram,id=mem1,size=256M -numa node,nodeid=1,cpus=1,memdev=mem1
    -device pcie-root-port,id=port0,bus=pcie.0,chassis=1,slot=1,x-speed=8,x-width=8
    -device nvme-subsys,id=subsystem
    -device nvme,bus=port0,serial=railscope,subsys=subsystem,sriov_max_vfs=2,sriov_vq_flexible=4,sriov_vi_flexible=2,msix_qsize=7,max_ioqpairs=8
    -device pxb-pcie,id=expander,bus=pcie.0,bus_nr=80,numa_node=1
    -device pcie-root-port,id=port1,bus=expander,chassis=2,slot=2,x-speed=16,x-width=16
    -device x3130-upstream,id=switch,bus=port1
    -device xio3130-downstream,id=down0,bus=switch,chassis=3,slot=3
    -device xio3130-downstream,id=down1,bus=switch,chassis=3,slot=4
    -device e1000e,bus=down0,romfile=";

/// RDMA ports in the exposition, in the kernel's units.
const PORTS: &[&str] = &[
    "railscope_rdma_port_errors_total",
    "railscope_rdma_port_physical_state",
    "railscope_rdma_port_receive_packets_total",
    "railscope_rdma_port_speed_bytes_per_second",
    "railscope_rdma_port_state",
    "railscope_rdma_port_transmit_packets_total",
    "railscope_rdma_port_up",
    "railscope_rdma_port_width_lanes",
    "railscope_rdma_statistics_lifespan_seconds",
    "railscope_rdma_transport_events_total",
];

/// PCI functions in the exposition.
const FUNCTIONS: &[&str] = &[
    "railscope_pcie_aer_errors_total",
    "railscope_pcie_errors_total",
    "railscope_pcie_link_max_transfers_per_second",
    "railscope_pcie_link_max_width_lanes",
    "railscope_pcie_link_transfers_per_second",
    "railscope_pcie_link_width_lanes",
    "railscope_pcie_path_info",
];

/// How they are set up.
const SETTINGS: &[&str] = &[
    "railscope_pcie_config_info",
    "railscope_pcie_max_payload_bytes",
    "railscope_pcie_max_payload_supported_bytes",
    "railscope_pcie_max_read_request_bytes",
];

/// Split NVMe functions in the exposition.
const VIRTUAL: &[&str] = &[
    "railscope_nvme_max_virtual_functions",
    "railscope_nvme_sriov_info",
    "railscope_nvme_virtual_functions",
];

/// A number in a file of the kernel's.
fn number(text: &str) -> f64 {
    let first = text.split([' ', ':']).next();
    first
        .and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("no number: {text:?}"))
}

/// The series of RDMA ports that these files make.
fn ports(raw: &str) -> Series {
    let mut expected = Series::new();
    for line in raw.lines() {
        let Some(file) = line.strip_prefix("/sys/class/infiniband/") else {
            continue;
        };
        let (path, text) = file.split_once(':').expect("a file and its text");
        let parts: Vec<_> = path.split('/').collect();
        let [device, "ports", port, file @ ..] = &parts[..] else {
            panic!("no file of a port: {line}");
        };
        let at = [("device", *device), ("port", *port)];
        let value = number(text);
        let mut add = |name: &str, more: &[(&str, &str)], value: f64| {
            let labels = [&at, more].concat();
            expected.insert(series(&format!("railscope_rdma_{name}"), &labels), value);
        };
        match file {
            ["hw_counters", "lifespan"] => add("statistics_lifespan_seconds", &[], value / 1000.0),
            ["hw_counters", "sent_pkts"] => add("port_transmit_packets_total", &[], value),
            ["hw_counters", "rcvd_pkts"] => add("port_receive_packets_total", &[], value),
            ["hw_counters", "link_downed"] => {
                add("port_errors_total", &[("kind", "link_downed")], value);
            }
            ["hw_counters", event] => add("transport_events_total", &[("event", event)], value),
            ["state"] => {
                add("port_state", &[], value);
                add("port_up", &[], f64::from(u8::from(text == "4: ACTIVE")));
            }
            ["phys_state"] => add("port_physical_state", &[], value),
            ["rate"] => {
                let (_, lanes) = text.split_once('(').expect("lanes");
                let (lanes, _) = lanes.split_once('X').expect("lanes");
                add("port_speed_bytes_per_second", &[], value * 1e9 / 8.0);
                add("port_width_lanes", &[], number(lanes));
            }
            other => panic!("{other:?}"),
        }
    }
    expected
}

/// Counters by device, port and name, as files have them.
fn counters_of_files(raw: &str) -> BTreeMap<String, u64> {
    let files = raw.lines().filter_map(|line| {
        let (file, count) = line
            .strip_prefix("/sys/class/infiniband/")?
            .split_once(':')?;
        let (port, name) = file.split_once("/hw_counters/")?;
        // A setting.
        let (device, port) = port.split_once("/ports/").filter(|_| name != "lifespan")?;
        Some((
            format!("{device} {port} {name}"),
            count.parse().expect("a count"),
        ))
    });
    files.collect()
}

/// The same as `rdma -j statistic show` has them.
fn counters_of_tool(raw: &str) -> BTreeMap<String, u64> {
    let json = raw.lines().find_map(|line| line.strip_prefix("statistic:"));
    let json: Value = serde_json::from_str(json.expect("an answer")).expect("JSON");
    let mut counters = BTreeMap::new();
    for port in json.as_array().expect("ports") {
        let port = port.as_object().expect("a port");
        for (name, count) in port
            .iter()
            .filter(|(name, _)| !["ifname", "port"].contains(&name.as_str()))
        {
            let key = format!(
                "{} {} {name}",
                port["ifname"].as_str().expect("a name"),
                port["port"]
            );
            counters.insert(key, count.as_u64().expect("a count"));
        }
    }
    counters
}

/// The exposition, the files and the tool agree. Returns it.
fn ports_agree(name: &str, snapshot: &Snapshot) -> Series {
    let expected = ports(&snapshot.raw);
    same(name, &snapshot.page.only(PORTS), &expected);
    let tool = counters_of_tool(&snapshot.raw);
    same(name, &tool, &counters_of_files(&snapshot.raw));
    assert_eq!(snapshot.page.failures(), BTreeSet::new(), "{name}");
    expected
}

fn stopped_well(results: &Results) {
    assert_eq!(results.text("exporter.status"), "0\n");
    let log = results.text("exporter.log");
    assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
}

#[test]
fn soft_roce_ports_are_what_the_kernel_says_through_traffic_and_removal() {
    need!("qemu-system-x86_64", "timeout");
    let results = match run_in_guest("rxe", "", &[]) {
        Ok(results) => results,
        Err(why) => skip!("{why}"),
    };
    let snapshot = |name: &str| {
        let snapshot = results.snapshot(name);
        let series = ports_agree(name, &snapshot);
        (snapshot, series)
    };
    let of = |device: &str, name: &str| series(name, &[("device", device), ("port", "1")]);
    let (received, sent) = (
        "railscope_rdma_port_receive_packets_total",
        "railscope_rdma_port_transmit_packets_total",
    );

    let (none, _) = snapshot("none");
    let absent = r#"railscope_source_status{source="rdma",device="",status="absent"}"#;
    assert!(none.page.statuses().contains(absent));
    let (_, idle) = snapshot("idle");
    let (_, traffic) = snapshot("traffic");
    for (device, peer) in [("rxe0", "rxe1"), ("rxe1", "rxe0")] {
        assert_eq!(idle[&of(device, sent)], 0.0);
        // 200 messages there and 200 back, each of two packets.
        assert!(traffic[&of(device, sent)] >= 400.0, "{traffic:#?}");
        assert_eq!(
            traffic[&of(device, sent)],
            traffic[&of(peer, received)],
            "no packet was lost"
        );
    }

    let (_, down) = snapshot("down");
    let (_, up) = snapshot("up");
    let is_up = of("rxe1", "railscope_rdma_port_up");
    assert_eq!((down[&is_up], up[&is_up]), (0.0, 1.0));

    let (removed, ports) = snapshot("removed");
    assert!(
        ports.keys().all(|series| series.contains("rxe0")),
        "{ports:#?}"
    );
    assert_eq!(removed.page.about("rxe1"), Vec::<&str>::new());
    assert_eq!(removed.page.about("veth1"), Vec::<&str>::new());
    let (returned, ports) = snapshot("returned");
    assert_eq!(ports[&of("rxe1", sent)], 0.0, "a new device");
    assert_eq!(
        ports[&of("rxe0", sent)],
        up[&of("rxe0", sent)],
        "the other went on"
    );
    assert_eq!(
        returned.page.statuses(),
        results.snapshot("idle").page.statuses()
    );
    assert_eq!(removed.page.statuses(), returned.page.statuses());

    let check = results.text("check.text");
    assert!(
        check.contains("2 ports in software, model virtual_machine, hypervisor qemu"),
        "{check}"
    );
    assert!(check.contains("\n0 findings"), "{check}");
    stopped_well(&results);
}

/// One PCI function in the files.
type Function = BTreeMap<String, Vec<String>>;

/// Functions by address, each with its files' lines.
fn functions(raw: &str) -> BTreeMap<String, Function> {
    let mut functions: BTreeMap<String, Function> = BTreeMap::new();
    for line in raw.lines() {
        let file = line.strip_prefix("/sys/bus/pci/devices/").expect("a file");
        let (address, file) = file.split_once('/').expect("a file");
        let (file, text) = file.split_once(':').expect("a text");
        let of = functions.entry(address.to_owned()).or_default();
        of.entry(file.to_owned()).or_default().push(text.to_owned());
    }
    functions
}

fn first<'a>(function: &'a Function, file: &str) -> Option<&'a str> {
    function.get(file).map(|lines| lines[0].as_str())
}

/// Bridges above a function, the uppermost first.
fn above(function: &Function) -> Vec<&str> {
    let path = first(function, "path").expect("a path");
    let mut path: Vec<_> = path
        .split('/')
        .skip_while(|part| !part.starts_with("pci"))
        .skip(1)
        .collect();
    path.pop();
    path
}

/// The addresses in the exposition: endpoints with a driver, and the bridges above them.
fn watched(functions: &BTreeMap<String, Function>) -> BTreeSet<&str> {
    let named = functions
        .iter()
        .filter(|(_, function)| function.contains_key("name"));
    let chains =
        named.flat_map(|(address, function)| above(function).into_iter().chain([address.as_str()]));
    chains.collect()
}

/// The series of PCI functions that these files make.
fn links(functions: &BTreeMap<String, Function>) -> Series {
    let mut expected = Series::new();
    for address in watched(functions) {
        let function = &functions[address];
        let mut add = |name: &str, more: &[(&str, &str)], value: f64| {
            let labels = [&[("pci", address)], more].concat();
            expected.insert(series(&format!("railscope_pcie_{name}"), &labels), value);
        };
        for (file, name, unit) in [
            ("current_link_width", "link_width_lanes", 1.0),
            ("max_link_width", "link_max_width_lanes", 1.0),
            ("current_link_speed", "link_transfers_per_second", 1e9),
            ("max_link_speed", "link_max_transfers_per_second", 1e9),
        ] {
            // QEMU's switches report it as unknown.
            let known = first(function, file).filter(|text| !["0", "Unknown"].contains(text));
            if let Some(text) = known {
                add(name, &[], number(text) * unit);
            }
        }
        for severity in ["correctable", "nonfatal", "fatal"] {
            let at = ("severity", severity);
            for line in function
                .get(&format!("aer_dev_{severity}"))
                .into_iter()
                .flatten()
            {
                let (error, count) = line.split_once(' ').expect("a name and a count");
                match error.strip_prefix("TOTAL_") {
                    Some(_) => add("errors_total", &[at], number(count)),
                    None if count == "0" => {}
                    None => add("aer_errors_total", &[at, ("error", error)], number(count)),
                }
            }
        }
        let name = first(function, "name").unwrap_or_default();
        let kind = match name {
            "" => "bridge",
            name if name.starts_with("nvme") => "nvme",
            _ => "netdev",
        };
        let above = above(function);
        let text = |bridge: Option<&&str>| bridge.copied().unwrap_or_default().to_owned();
        let numa_node = first(function, "numa_node").filter(|node| *node != "-1");
        add(
            "path_info",
            &[
                ("kind", kind),
                ("name", name),
                ("parent", &text(above.last())),
                ("root_port", &text(above.first())),
                ("numa_node", numa_node.unwrap_or_default()),
            ],
            1.0,
        );
    }
    expected
}

/// The series of split NVMe functions that these files make.
fn virtual_functions(functions: &BTreeMap<String, Function>) -> Series {
    let mut expected = Series::new();
    for (address, function) in functions {
        let device = first(function, "name").unwrap_or_default();
        let at = [("device", device), ("pci", address)];
        let role = match (first(function, "physfn"), first(function, "sriov_totalvfs")) {
            (Some(physical), _) => [("role", "virtual"), ("pf", physical)],
            (None, Some(possible)) if possible != "0" => {
                let active = number(first(function, "sriov_numvfs").expect("a count"));
                expected.insert(series(VIRTUAL[0], &at), number(possible));
                expected.insert(series(VIRTUAL[2], &at), active);
                [("role", "physical"), ("pf", "")]
            }
            _ => continue,
        };
        expected.insert(series(VIRTUAL[1], &[at, role].concat()), 1.0);
    }
    expected
}

/// The settings that `lspci -vv` prints for functions.
fn settings(lspci: &str, watched: &BTreeSet<&str>) -> Series {
    let mut expected = Series::new();
    for function in lspci
        .split("\n\n")
        .filter(|function| !function.trim().is_empty())
    {
        let address = function.split(' ').next().expect("an address");
        let Some((_, express)) = function
            .split_once("DevCap:")
            .filter(|_| watched.contains(address))
        else {
            continue;
        };
        let (supported, control) = express.split_once("DevCtl:").expect("settings");
        let bytes = |text: &str, name: &str| {
            let (_, value) = text
                .split_once(name)
                .unwrap_or_else(|| panic!("no {name}: {text}"));
            number(value.trim_start())
        };
        for (name, value) in [
            (SETTINGS[1], bytes(control, "MaxPayload")),
            (SETTINGS[2], bytes(supported, "MaxPayload")),
            (SETTINGS[3], bytes(control, "MaxReadReq")),
        ] {
            expected.insert(series(name, &[("pci", address)]), value);
        }
        let switch = |name: &str| {
            if control.contains(&format!("{name}+")) {
                "on"
            } else {
                "off"
            }
        };
        let acs = if function.contains("ACSCtl:") {
            "off"
        } else {
            "none"
        };
        let labels = [
            ("pci", address),
            ("relaxed_ordering", switch("RlxdOrd")),
            ("extended_tags", switch("ExtTag")),
            ("acs", acs),
        ];
        expected.insert(series(SETTINGS[0], &labels), 1.0);
    }
    expected
}

#[test]
fn pci_functions_are_what_the_kernel_says_through_errors_splitting_and_removal() {
    need!("qemu-system-x86_64", "timeout");
    let results = match run_in_guest("pci", HIERARCHY, &[]) {
        Ok(results) => results,
        Err(why) => skip!("{why}"),
    };
    let snapshot = |name: &str| {
        let Snapshot { raw, page } = results.snapshot(name);
        let functions = functions(&raw);
        let expected = links(&functions);
        same(name, &page.only(FUNCTIONS), &expected);
        assert_eq!(page.failures(), BTreeSet::new(), "{name}");
        (page, functions, expected)
    };
    let (network, _nvme) = results
        .text("functions")
        .trim()
        .split_once(' ')
        .expect("two addresses");

    let (page, idle, links) = snapshot("idle");
    let lspci = settings(results.text("lspci"), &watched(&idle));
    same("lspci", &page.only(SETTINGS), &lspci);
    let reads = series(SETTINGS[3], &[("pci", network)]);
    assert_eq!(lspci[&reads], 4096.0, "unlike the other functions'");
    same("whole", &page.only(VIRTUAL), &virtual_functions(&idle));
    // The card is below a switch, on the second NUMA node.
    assert_eq!(above(&idle[network]).len(), 3);
    assert_eq!(first(&idle[network], "numa_node"), Some("1"));
    assert!(
        links
            .iter()
            .all(|(series, count)| !series.contains("errors") || *count == 0.0),
        "{links:#?}"
    );

    let (page, _, errors) = snapshot("errors");
    // The log has both kinds; several errors may be one message.
    let logged = page.only(&["railscope_kernel_hardware_events_total"]);
    assert_eq!(logged.len(), 2, "{logged:?}");
    for (severity, error, count) in [
        ("correctable", "BadTLP", 2.0),
        ("correctable", "RxErr", 1.0),
        ("nonfatal", "UnsupReq", 1.0),
    ] {
        let labels = [("pci", network), ("severity", severity), ("error", error)];
        assert_eq!(
            errors.get(&series(FUNCTIONS[0], &labels)),
            Some(&count),
            "{error}"
        );
    }

    let (removed, _, _) = snapshot("removed");
    let mut left = removed.about(network);
    left.retain(|series| !series.contains("_kernel_hardware_event"));
    assert_eq!(left, Vec::<&str>::new());
    let (_, _, returned) = snapshot("returned");
    // Its counters restart; everything else is as it was.
    same("back", &returned, &links);

    let (page, split, _) = snapshot("split");
    let expected = virtual_functions(&split);
    same("split", &page.only(VIRTUAL), &expected);
    assert_eq!(
        expected.len(),
        5,
        "a physical function of three series and two virtual ones: {expected:#?}"
    );

    let check = results.text("check.text");
    assert!(
        check.contains("0 GPUs, 0 RDMA devices, model virtual_machine, hypervisor qemu"),
        "{check}"
    );
    assert!(check.contains("\n0 findings"), "{check}");
    stopped_well(&results);
}
