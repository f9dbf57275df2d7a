//! What the fixture machines' own sources read: CPUs, scheduler, pressure, storage.

use super::pcie::function;
use super::tree::Tree;

/// CPUs of each NUMA node, and the times of each in `/proc/stat`: 2.5 s of CPU 3 were stolen.
pub(super) fn cpus(tree: &mut Tree, nodes: &[&str], count: usize) {
    for (node, list) in nodes.iter().enumerate() {
        tree.file(format!("sys/devices/system/node/node{node}/cpulist"), list);
    }
    let mut stat = vec!["cpu  7120 0 5300 991000 12 0 3 250 0 0".to_owned()];
    stat.extend((0..count).map(|cpu| {
        let steal = if cpu == 3 { 250 } else { 0 };
        format!("cpu{cpu} 31 0 23 {} 0 0 0 {steal} 0 0", 4424 + cpu)
    }));
    stat.push("intr 5511\nctxt 40211\nbtime 1781000000\nprocesses 3012".to_owned());
    tree.file("proc/stat", stat.join("\n"));
}

/// Scheduler, packet backlogs and pressure of the server. CPU 60 has dropped packets.
pub(super) fn host(tree: &mut Tree, cpus: u64) {
    let mut schedstat = vec!["version 16\ntimestamp 4299201311".to_owned()];
    let mut softnet = Vec::new();
    for cpu in 0..cpus {
        let (run, wait) = (540_000_000 + 1_000_003 * cpu, 7_000_000 + 1_009 * cpu);
        schedstat.push(format!("cpu{cpu} 0 0 911 402 509 77 {run} {wait} 508"));
        let (dropped, squeezed) = if cpu == 60 {
            (0x1f, 0x20a)
        } else {
            (0, cpu % 3)
        };
        softnet.push(format!(
            "{:08x} {dropped:08x} {squeezed:08x}{} {cpu:08x} 00000000 00000000",
            9_000 + cpu,
            " 00000000".repeat(9)
        ));
    }
    tree.file("proc/schedstat", schedstat.join("\n"));
    tree.file("proc/net/softnet_stat", softnet.join("\n"));
    for (resource, some, full) in [
        ("cpu", Some(81_204_117_u64), 0_u64),
        ("memory", Some(20_113), 18_007),
        ("io", Some(5_400_220), 5_100_001),
        ("irq", None, 933_870),
    ] {
        let line = |kind: &str, total: u64| {
            format!("{kind} avg10=0.00 avg60=0.12 avg300=0.07 total={total}")
        };
        let some = some.map(|total| line("some", total));
        let lines: Vec<String> = some.into_iter().chain([line("full", full)]).collect();
        tree.file(format!("proc/pressure/{resource}"), lines.join("\n"));
    }
}

/// A local drive, and two paths over the bond to one subsystem, of which the second is lost; GPUDirect
/// Storage with its statistics on.
pub(super) fn storage(tree: &mut Tree) {
    let drive = "sys/devices/pci0000:57/0000:57:05.0/0000:5c:00.0";
    function(tree, drive, "0x144d", "0xa824", "0x010802", 0);
    let fabrics = "sys/devices/virtual/nvme-fabrics/ctl";
    for (name, at, transport, address, state, subsystem) in [
        (
            "nvme0",
            format!("{drive}/nvme/nvme0"),
            "pcie",
            "0000:5c:00.0",
            "live",
            0,
        ),
        (
            "nvme1",
            format!("{fabrics}/nvme1"),
            "rdma",
            "traddr=10.50.0.200,trsvcid=4420,host_traddr=10.50.0.1",
            "live",
            1,
        ),
        (
            "nvme2",
            format!("{fabrics}/nvme2"),
            "rdma",
            "traddr=10.50.0.201,trsvcid=4420",
            "connecting",
            1,
        ),
    ] {
        for (file, text) in [
            ("transport", transport),
            ("address", address),
            ("state", state),
        ] {
            tree.file(format!("{at}/{file}"), text);
        }
        tree.link(&format!("sys/class/nvme/{name}"), &at);
        let subsystem = format!("sys/devices/virtual/nvme-subsystem/nvme-subsys{subsystem}");
        tree.link(&format!("{subsystem}/{name}"), &at);
    }
    for (number, nqn, model) in [
        (
            0,
            "nqn.2026-01.com.example:drive:5c00",
            "Example Drive 3.84 TB",
        ),
        (1, "nqn.2026-01.com.example:pool-7", "Example Array"),
    ] {
        let name = format!("nvme-subsys{number}");
        let subsystem = format!("sys/devices/virtual/nvme-subsystem/{name}");
        for (file, text) in [("subsysnqn", nqn), ("model", model), ("iopolicy", "numa")] {
            tree.file(format!("{subsystem}/{file}"), text);
        }
        tree.link(&format!("sys/class/nvme-subsystem/{name}"), &subsystem);
    }
    routes(tree);
    gpudirect(tree);
}

/// The path to the array: the bond's own network.
fn routes(tree: &mut Tree) {
    tree.file("sys/devices/virtual/net/bond0/mtu", 9000);
    tree.link("sys/class/net/bond0", "sys/devices/virtual/net/bond0");
    tree.file(
        "proc/net/route",
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
         bond0\t0000320A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0",
    );
}

/// The driver and modules of GPUDirect, and what nvidia-fs has counted.
fn gpudirect(tree: &mut Tree) {
    for module in ["nvidia", "nvidia_peermem", "nvidia_fs"] {
        tree.file(format!("sys/module/{module}/refcnt"), 0);
    }
    tree.file(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build",
    );
    tree.file(
        "proc/driver/nvidia-fs/stats",
        "GDS Version: 1.13.0.11 \n\
         NVFS statistics(ver: 4.0)\n\
         NVFS Driver(version: 2.24.2)\n\
         Mellanox PeerDirect Supported: True\n\
         IO stats: Enabled, peer IO stats: Disabled\n\
         Logging level: info\n\n\
         Active Shadow-Buffer (MiB): 128\n\
         Active Process: 8\n\
         Batches\t\t\t\t: n=0 ok=0 err=0 Avg-Submit-Latency(usec)=0\n\
         Reads\t\t\t\t: n=401220 ok=401219 err=1 readMiB=401219 io_state_err=0\n\
         Reads\t\t\t\t: Bandwidth(MiB/s)=11020 Avg-Latency(usec)=88\n\
         Sparse Reads\t\t        : n=0 io=0 holes=0 pages=0 \n\
         Writes\t\t\t\t: n=9120 ok=9120 err=0 writeMiB=72960 io_state_err=0 pg-cache=0 pg-cache-fail=0 pg-cache-eio=0\n\
         Writes\t\t\t\t: Bandwidth(MiB/s)=4100 Avg-Latency(usec)=240\n\
         Mmap\t\t\t\t: n=64 ok=64 err=0 munmap=56\n\
         Bar1-map\t\t\t: n=64 ok=64 err=0 free=56 callbacks=0 active=8 delay-frees=0\n\
         Error\t\t\t\t: cpu-gpu-pages=0 sg-ext=0 dma-map=0 dma-ref=0\n\
         Ops\t\t\t\t: Read=2 Write=0 BatchIO=0",
    );
}
