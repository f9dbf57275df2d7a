//! Messages of every event, and messages without an event.

use super::*;
use Mode::{Detail, Each, First, OnePerDevice, Summary, UnlessXid};

/// Spellings of kernels and drivers, with the resulting label values.
#[rustfmt::skip]
const MESSAGES: &[(&str, &str, &str, Mode)] = &[
    ("pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0", "pcie_corrected", "0000:3b:00.0", First),
    ("pcieport 0000:3a:00.0: AER: Multiple Corrected error received: 0000:3B:00.0", "pcie_corrected", "0000:3b:00.0", First),
    ("pcieport 0000:00:1c.4: AER: Correctable error message received from 0000:07:00.0", "pcie_corrected", "0000:07:00.0", First),
    ("pcieport 0000:00:03.1: AER: Multiple Correctable error message received from 0000:00:00.0", "pcie_corrected", "0000:00:03.1", First),
    ("pcieport 0001:00:1c.0: AER: Corrected error received: id=00e3", "pcie_corrected", "0001:00:1c.3", First),
    ("pcieport 0000:00:1c.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", "pcie_corrected", "0000:00:1c.0", Detail),
    ("nvidia 0000:9b:00.0: AER: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)", "pcie_corrected", "0000:9b:00.0", Detail),
    ("pcieport 0000:00:1d.0: AER: Multiple Uncorrected (Non-Fatal) error received: 0000:00:1d.0", "pcie_nonfatal", "0000:00:1d.0", First),
    ("pcieport 0000:00:1d.0: AER: Uncorrectable (Non-Fatal) error message received from 0000:02:00.0", "pcie_nonfatal", "0000:02:00.0", First),
    ("igb 0000:09:00.0: AER: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)", "pcie_nonfatal", "0000:09:00.0", Detail),
    ("pcieport 0000:c0:01.1: AER: Uncorrected (Fatal) error received: 0000:c1:00.0", "pcie_fatal", "0000:c1:00.0", First),
    ("pcieport 0000:c0:01.1: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)", "pcie_fatal", "0000:c0:01.1", Detail),
    ("pcieport 0000:17:01.0: pciehp: Slot(5-1): Link Down", "pcie_link_down", "0000:17:01.0", Each),
    ("pciehp 0000:17:01.0:pcie004: Slot(5): Link Down", "pcie_link_down", "0000:17:01.0", Each),
    ("mce: [Hardware Error]: Machine check events logged", "machine_check_corrected", "", Summary),
    ("[Hardware Error]: CPU:12 (19:1:1) MC17_STATUS[Over|CE|MiscV|AddrV|-|-|SyndV|CECC|-|-|-]: 0xdc2040000000011b", "machine_check_corrected", "cpu12", Each),
    ("mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 7: 8c00004000010091", "machine_check_corrected", "cpu12", Each),
    ("{1}[Hardware Error]: event severity: corrected", "machine_check_corrected", "", Each),
    ("[Hardware Error]: CPU:3 (17:31:0) MC2_STATUS[-|UE|MiscV|AddrV|-|-|-|UECC|-|-|-]: 0xbc00", "machine_check_uncorrected", "cpu3", Each),
    ("mce: [Hardware Error]: CPU 0: Machine Check Exception: 5 Bank 4: b200000000070f0f", "machine_check_uncorrected", "cpu0", Each),
    ("{27}[Hardware Error]: event severity: recoverable", "machine_check_uncorrected", "", Each),
    ("[Hardware Error]: event severity: fatal", "machine_check_uncorrected", "", Each),
    ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x1 offset:0x0)", "memory_corrected", "mc0", Each),
    ("EDAC MC1: CE page 0x1, offset 0x2, grain 8, syndrome 0x3, row 0, channel 0", "memory_corrected", "mc1", Each),
    ("EDAC MC3: 1 UE on mc#3csrow#2channel#1 (csrow:2 channel:1 page:0x0 offset:0x0 grain:64)", "memory_uncorrected", "mc3", Each),
    ("EDAC MC0: UE row 0, channel-a= 0 labels \"-\"", "memory_uncorrected", "mc0", Each),
    ("mlx5_core 0000:3b:00.0 enp59s0np0: Link down", "link_down", "enp59s0np0", Each),
    ("mlx5_core 0000:3b:00.0: Port: 1 Link DOWN", "link_down", "0000:3b:00.0", Each),
    ("ib0: link down", "link_down", "ib0", Each),
    ("bnxt_en 0000:17:00.0 ens3f0np0: NIC Link is Down", "link_down", "ens3f0np0", Each),
    ("igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Down", "link_down", "eno1", Each),
    ("e1000e: eth0 NIC Link is Down", "link_down", "eth0", Each),
    ("mlx4_en: eth0: Link Down", "link_down", "eth0", Each),
    ("tg3 0000:01:00.0 eno1: Link is down", "link_down", "eno1", Each),
    ("ice 0000:4b:00.0 ens1f0: NIC Link is up 100 Gbps Full Duplex, Requested FEC: RS-FEC", "link_up", "ens1f0", Each),
    ("mlx5_core 0000:3b:00.0 enp59s0np0: Link up", "link_up", "enp59s0np0", Each),
    ("i40e 0000:86:00.0 eth3: NIC Link is Up, 25 Gbps Full Duplex, Flow Control: None", "link_up", "eth3", Each),
    ("infiniband mlx5_0: Port: 1 Link ACTIVE", "link_up", "mlx5_0", Each),
    ("mlx5_core 0000:08:00.0: print_health_info:425:(pid 912): Health issue observed, firmware internal error, severity(3) ERROR:", "nic_error", "0000:08:00.0", Each),
    ("mlx5_core 0000:08:00.0: poll_health:739:(pid 0): device's health compromised - reached miss count", "nic_error", "0000:08:00.0", Each),
    ("mlx5_core 0000:08:00.0: poll_health:825:(pid 0): Fatal error 1 detected", "nic_error", "0000:08:00.0", Each),
    ("mlx5_core 0000:08:00.0: mlx5_health_try_recover:335:(pid 71): health recovery flow aborted, PCI reads still not working", "nic_error", "0000:08:00.0", Each),
    ("mlx5_core 0000:08:00.0: wait_func:1158:(pid 1283): MANAGE_PAGES(0x108) timeout. Will cause a leak of a command resource", "nic_error", "0000:08:00.0", Each),
    ("ena 0000:00:06.0 eth1: Trigger reset is on", "nic_error", "0000:00:06.0", OnePerDevice),
    ("ena 0000:00:06.0: Device reset completed successfully", "nic_error", "0000:00:06.0", OnePerDevice),
    ("NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out", "nic_error", "eth0", Each),
    ("mlx5_core 0000:08:00.0 eth0: NETDEV WATCHDOG: CPU: 12: transmit queue 3 timed out 5000 ms", "nic_error", "0000:08:00.0", Each),
    ("mlx5_core 0000:3b:00.0: Port module event[error]: module 0, Cable error, Bus stuck (I2C or data shorted)", "cable_error", "0000:3b:00.0", Each),
    ("mlx5_core 0000:3b:00.0: mlx5_pme_event:142:(pid 0): Port module event[error]: module 1, Cable error, Unknown identifier", "cable_error", "0000:3b:00.0", Each),
    ("mlx5_core 0000:3b:00.0: Port module event: module 0, Cable unplugged", "cable_unplugged", "0000:3b:00.0", Each),
    ("mlx5_core 0000:5e:00.1: Port module event: module 1, Cable unplugged", "cable_unplugged", "0000:5e:00.1", Each),
    ("mlx5_core 0000:3b:00.0: temp_warn:159:(pid 0): High temperature on sensors with bit set 0x0 0x1", "overheat", "0000:3b:00.0", Each),
    ("mce: CPU12: Core temperature above threshold, cpu clock throttled (total events = 1)", "overheat", "cpu12", Each),
    ("CPU3: Package temperature is above threshold, cpu clock is throttled (total events = 71)", "overheat", "cpu3", Each),
    ("NVRM: GPU 0000:9b:00.0: RmInitAdapter failed! (0x62:0x40:2142)", "gpu_init_failed", "0000:9b:00.0", Each),
    ("NVRM: RmInitAdapter failed! (0x26:0x38:1096)", "gpu_init_failed", "", Each),
    ("NVRM: The NVIDIA GPU 0000:9b:00.0 (PCI ID: 10de:2330) installed in this system has fallen off the bus and is not responding to commands.", "gpu_lost", "0000:9b:00.0", UnlessXid),
    ("NVRM: The NVIDIA GPU 0000:9b:00.0\\x0aNVRM: (PCI ID: 10de:2330) installed in this system has\\x0aNVRM: fallen off the bus and is not responding to commands.", "gpu_lost", "0000:9b:00.0", UnlessXid),
    ("NVRM: GPU at PCI:0000:9b:00: GPU has fallen off the bus", "gpu_lost", "0000:9b:00.0", UnlessXid),
    ("NVRM: GPU 0000:9b:00.0: GPU has fallen off the bus.", "gpu_lost", "0000:9b:00.0", UnlessXid),
    ("nvme nvme0: I/O 123 QID 4 timeout, aborting", "storage_error", "nvme0", Each),
    ("nvme nvme3: I/O tag 123 (707b) opcode 0x2 (I/O Cmd) QID 4 timeout, aborting req_op:READ(0) size:4096", "storage_error", "nvme3", Each),
    ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff", "storage_error", "nvme0", Each),
    ("blk_update_request: I/O error, dev sda, sector 123 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 0", "storage_error", "sda", Each),
    ("I/O error, dev nvme0n1, sector 123 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2", "storage_error", "nvme0n1", Each),
    ("print_req_error: critical medium error, dev sdb, sector 7", "storage_error", "sdb", Each),
    ("nfs: server storage-1 not responding, still trying", "nfs_timeout", "storage-1", Each),
    ("nfs: server 10.0.0.1 not responding, timed out", "nfs_timeout", "10.0.0.1", Each),
    ("Out of memory: Killed process 1234 (python) total-vm:1kB, anon-rss:1kB", "out_of_memory", "", Each),
    ("Memory cgroup out of memory: Killed process 1234 (python) total-vm:1kB", "out_of_memory", "", Each),
    ("INFO: task kworker/0:1:123 blocked for more than 120 seconds.", "hung_task", "", Each),
    ("INFO: task python:2024380 blocked for more than 241 seconds.", "hung_task", "", Each),
];

#[test]
fn every_event_is_known_with_its_device() {
    for (text, name, device, mode) in MESSAGES {
        let expected = Event {
            name,
            device: (*device).to_owned(),
            count: 1,
            mode: *mode,
        };
        assert_eq!(parse(text), Some(expected), "{text}");
    }
    let count = |text: &str| parse(text).map(|event| event.count);
    assert_eq!(
        count("EDAC MC0: 32765 CE memory read error on x"),
        Some(32_765)
    );
    assert_eq!(count("EDAC MC0: 2 UE memory read error on x"), Some(2));
    let line = |text| parse(text).map(|event| (event.name, event.device));
    assert_eq!(
        line("NVRM: fallen off the bus and is not responding to commands."),
        Some(("gpu_lost", String::new()))
    );
}

#[test]
fn messages_around_an_event_and_quotes_of_one_are_none() {
    for text in [
        "",
        "audit: type=1400 audit(1.2:3): comm=\"ib0: link down\"",
        "audit: EDAC MC0: 1 CE memory read error",
        "systemd[1]: EDAC MC0: 1 CE memory read error",
        "python[7]: Out of memory: Killed process 7",
        "pcieport 0000:3a:00.0:   device [8086:a33d] error status/mask=00000001/00002000",
        "pcieport 0000:3a:00.0: AER: enabled with IRQ 30",
        "AER: Corrected error received: 0000:3b:00.0",
        "pcieport 0000:17:01.0: pciehp: Slot(5): Link Up",
        "pcieport 0000:17:01.0: pciehp: Slot(5): Card present",
        "mce: [Hardware Error]: TSC 0 ADDR 1 MISC 2",
        "[Hardware Error]: Corrected error, no action required.",
        "{1}[Hardware Error]: event severity: info",
        "{1}[Hardware Error]:  Error 0, type: corrected",
        "x[Hardware Error]: event severity: fatal",
        "mce: CPU12: Core temperature/speed normal (total events = 1)",
        "EDAC MC: Ver: 3.0.0",
        "EDAC MC0: Giving out device to module skx_edac",
        "EDAC sbridge MC0: HANDLING MCE MEMORY ERROR",
        "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
        "ata1: SATA link down (SStatus 0 SControl 300)",
        "bond0: (slave eth0): link status definitely down, disabling slave",
        "br-switch: port 6(eth5) entered disabled state",
        "mlx5_core 0000:3b:00.0: firmware version: 28.39.1002",
        "mlx5_core 0000:3b:00.0: Port module event: module 0, Cable plugged",
        "mlx5_core 0000:3b:00.0: 252.048 Gb/s available PCIe bandwidth (32.0 GT/s PCIe x8 link)",
        "mlx5_core 0000:3b:00.0: wait_func_handle_exec_timeout:1128:(pid 7): cmd[0]: CREATE_EQ(0x301) recovered after timeout",
        "mlx5_core 0000:08:00.0: print_health_info:429:(pid 912): assert_var[0] 0x08040700",
        "NVRM: GPU 0000:9b:00.0: rm_init_adapter failed, device minor number 0",
        "NVRM: GPU 0000:9b:00.0: GPU serial number is 1650124014249.",
        "NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d",
        "NVRM: The NVIDIA GPU 0000:03:00.0 (PCI ID: 10de:2bb1) installed in this system requires use of the NVIDIA open kernel modules.",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15",
        "nvme nvme0: 16/0/0 default/read/poll queues",
        "nvme nvme0: pci function 0000:01:00.0",
        "blk_update_request: operation not supported error, dev loop0, sector 0",
        "Buffer I/O error on dev sda1, logical block 0, async page read",
        "nfs: server storage-1 OK",
        "Killed process 1234 (python) total-vm:1kB",
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null)",
        "INFO: rcu_sched self-detected stall on CPU",
        "EDAC MC99999999999: 1 CE x",
        "[Hardware Error]: CPU:",
        "mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 7: zz",
    ] {
        assert_eq!(parse(text), None, "{text}");
    }
}
