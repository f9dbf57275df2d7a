//! Questions to RDMA ports and NICs, and to the sources themselves.

use std::collections::BTreeMap;

use railscope_model::metric::{
    RDMA_DEVICE, RDMA_PORT, RDMA_PORT_ERROR_SATURATED, RDMA_PORT_PHYSICAL_STATE, RDMA_PORT_SPEED,
    RDMA_PORT_UP, SOURCE_STATUS,
};

use super::View;
use super::gpus::mixed;
use super::lost::lost_gpus;
use super::report::{Out, list};
use super::survey::BadFile;
use super::view::Series;

/// An Ethernet frame that holds an RDMA packet of the largest path MTU (4096 bytes) with all its
/// headers needs so many bytes of interface MTU, by NVIDIA's and Broadcom's RoCE guides.
const ROCE_MTU: u32 = 4200;

/// Physical states by number, InfiniBand Architecture Specification, PortInfo:PortPhysicalState.
const PHYSICAL_STATES: [&str; 8] = [
    "no state",
    "Sleep",
    "Polling",
    "Disabled",
    "PortConfigurationTraining",
    "LinkUp",
    "LinkErrorRecovery",
    "PhyTest",
];

/// Source and status -> what to do.
const SOURCE_FIXES: &[(&str, &str, &str)] = &[
    (
        "gpu",
        "denied",
        "let this process open /dev/nvidiactl and /dev/nvidia* (device control group, file permissions)",
    ),
    (
        "gpu",
        "timeout",
        "the driver does not answer: look for XIDs in the kernel log and reset the GPU",
    ),
    (
        "kernel_log",
        "unparsed",
        "give --path.kmsg /dev/kmsg, or a file in one of the formats of docs/kernel-log.md: dmesg, syslog, journalctl",
    ),
    (
        "rdma",
        "denied",
        "mount the host's /sys read-only and let this process read /sys/class/infiniband",
    ),
    (
        "workload",
        "denied",
        "the kubelet's socket belongs to root: run as root or give the group access, and mount its directory",
    ),
];

/// Status -> what to do where the source has no better hint.
const STATUS_FIXES: &[(&str, &str)] = &[
    (
        "denied",
        "give this process the right to read it; railscope --log debug names the file",
    ),
    ("timeout", BLOCKED_FIX),
    (
        "unparsed",
        "railscope --log debug names the file: please report its text",
    ),
    (
        "failed",
        "railscope --log debug names the file; the kernel log may show why",
    ),
];

/// Statuses that a blocked or invalid file gives.
const BLAMED_ON_FILES: [&str; 2] = ["failed", "timeout"];
/// What to do about a read that does not end.
const BLOCKED_FIX: &str =
    "the driver does not answer: look in the kernel log, then reset the device";
/// What to do about a file that the kernel has not made.
const SPECIAL_FILE_FIX: &str = "give the kernel's own /sys and /proc (--path.sysfs, --path.procfs): no file there is of this kind";

fn name(port: &Series<'_>) -> String {
    format!("{}/{}", port.label("device"), port.label("port"))
}

/// Whether a port is soft-RoCE's or the like: there is neither a PCI function nor a driver behind it.
pub(super) fn is_software(port: &Series<'_>) -> bool {
    ["pci", "driver"]
        .iter()
        .all(|name| port.label(name).is_empty())
}

pub(super) fn state(view: &View<'_>, out: &mut Out) {
    for port in view.all(&RDMA_PORT_UP) {
        if port.value() > 0.0 {
            out.fine();
            continue;
        }
        let mut states = view.all(&RDMA_PORT_PHYSICAL_STATE);
        let state = states.find(|state| name(state) == name(&port));
        let state = state.and_then(|state| PHYSICAL_STATES.get(state.value() as usize));
        let fix = match state {
            Some(&"LinkUp") => {
                "the cable is fine: ask the subnet manager why it did not activate the port"
            }
            Some(&"Disabled") => {
                "the port is disabled: ibportstate <lid> <port> enable, or ip link set up"
            }
            _ => {
                "reseat or replace the cable or transceiver, then look at the switch port at its other end"
            }
        };
        let state = state.copied().unwrap_or("unknown");
        out.finding(
            name(&port),
            "ACTIVE",
            format!("not active, physically {state}"),
            fix,
        );
    }
}

pub(super) fn rate(view: &View<'_>, out: &mut Out) {
    let kind_of = |series: &Series<'_>| {
        let mut devices = view.all(&RDMA_DEVICE);
        let device = devices.find(|device| device.label("device") == series.label("device"));
        let mut ports = view.all(&RDMA_PORT);
        let port = ports.find(|port| name(port) == name(series));
        (
            device.map(|device| device.label("hca_type")),
            port.map(|port| port.label("link_layer")),
        )
    };
    // A port that is down runs at no rate: the question about its state reports it.
    let up: Vec<String> = view
        .all(&RDMA_PORT_UP)
        .filter(|port| port.value() > 0.0)
        .map(|port| name(&port))
        .collect();
    let mut kinds: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for port in view
        .all(&RDMA_PORT_SPEED)
        .filter(|port| up.contains(&name(port)))
    {
        kinds.entry(kind_of(&port)).or_default().push(port);
    }
    for (kind, ports) in kinds {
        let highest = ports.iter().map(Series::value).fold(0.0, f64::max);
        let gigabits = |bytes: f64| format!("{} Gb/s", bytes * 8.0 / 1e9);
        for port in ports {
            if port.value() < highest {
                out.finding(
                    name(&port),
                    format!("{}, as other {}", gigabits(highest), kind.0.unwrap_or("ports")),
                    gigabits(port.value()),
                    "reseat or replace the cable or transceiver; check the rate that the switch port allows",
                );
            } else {
                out.fine();
            }
        }
    }
}

pub(super) fn mtu(view: &View<'_>, out: &mut Out) {
    for port in view.all(&RDMA_PORT) {
        let netdev = port.label("netdev");
        // Soft-RoCE is for experiments: no production network uses it.
        if port.label("link_layer") != "Ethernet" || is_software(&port) {
            continue;
        }
        match view.setup.mtu.get(netdev) {
            Some(mtu) if *mtu >= ROCE_MTU => out.fine(),
            Some(mtu) => out.finding(
                format!("{} ({netdev})", name(&port)),
                format!("an MTU of at least {ROCE_MTU}"),
                format!("{mtu}"),
                format!("ip link set {netdev} mtu 9000, and the same on the switch; keep it in the network configuration"),
            ),
            None => out.unknown(
                name(&port),
                "MTU",
                format!("network interface {netdev:?} is not in /sys/class/net"),
                "it is in another network namespace: run the check there, or mount the host's sysfs",
            ),
        }
    }
}

pub(super) fn firmware(view: &View<'_>, out: &mut Out) {
    let fix = "flash the version of the siblings (or update all): mixed firmware makes rails behave differently";
    let kind = ["hca_type", "board"];
    mixed(
        view,
        &RDMA_DEVICE,
        &kind,
        "firmware",
        str::to_owned,
        fix,
        out,
    );
}

pub(super) fn saturated(view: &View<'_>, out: &mut Out) {
    let mut stopped: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for counter in view
        .all(&RDMA_PORT_ERROR_SATURATED)
        .filter(|counter| counter.value() > 0.0)
    {
        stopped
            .entry(name(&counter))
            .or_default()
            .push(counter.label("kind"));
    }
    for port in view.all(&RDMA_PORT) {
        match stopped.remove(&name(&port)) {
            None => out.fine(),
            Some(kinds) => out.finding(
                name(&port),
                "counters that count",
                format!("{} at the end of their width", list(&kinds)),
                "read them, then clear them: perfquery -R <lid> <port>",
            ),
        }
    }
}

pub(super) fn unreadable(view: &View<'_>, out: &mut Out) {
    let lost = lost_gpus(view);
    let mut unnamed: Vec<&BadFile> = view.bad_files.iter().collect();
    for source in view.all(&SOURCE_STATUS) {
        let (of, device, status) = (
            source.label("source"),
            source.label("device"),
            source.label("status"),
        );
        // Absent and unsupported are properties of the machine, not failures to read it.
        let Some((_, general)) = STATUS_FIXES.iter().find(|(known, _)| *known == status) else {
            if status == "ok" {
                out.fine();
            }
            continue;
        };
        if (of, device) == ("pcie", "config") {
            // The questions that need it report it, and most people do not run this as root.
            continue;
        }
        // `gpu-driver` names these.
        let gpu = device.split_once('/').map_or(device, |(gpu, _)| gpu);
        if of == "gpu" && lost.contains_key(gpu) {
            continue;
        }
        let mut special = SOURCE_FIXES.iter();
        let special = special.find(|(source, known, _)| (*source, *known) == (of, status));
        let part = match device {
            "" => of.to_owned(),
            device => format!("{of} {device}"),
        };
        let fix = special.map_or(*general, |(_, _, fix)| *fix);
        let line = view.unreadable_line.as_ref();
        let line = line.filter(|_| (of, status) == ("kernel_log", "unparsed"));
        let mut gives = line.map_or_else(|| status.to_owned(), |line| format!("{status}, {line}"));
        let mut fix = fix;
        if BLAMED_ON_FILES.contains(&status) {
            let (named, others) = unnamed.into_iter().partition(|file| file.is_of(of, device));
            unnamed = others;
            if status == "failed" && !named.is_empty() {
                fix = SPECIAL_FILE_FIX;
            }
            for file in named {
                gives += &format!(", {file}");
            }
        }
        out.finding(part, "readable values", gives, fix);
    }
    // For values that are looked up if no status reports.
    for file in unnamed {
        let fix = file.kind.map_or(BLOCKED_FIX, |_| SPECIAL_FILE_FIX);
        out.finding(file.source, "readable values", file.to_string(), fix);
    }
}
