//! An HGX H200 server on RoCE: eight 400 Gb/s Ethernet NICs with PFC on priority 3.

use super::pcie::{function, nic_function};
use super::rdma::{Port, rdma_device};
use super::tree::Tree;
use super::{gpus, hgx};

/// What is not as it should be with some of the NICs.
///
/// `Storm`: it has paused its switch for minutes. `OtherPriority`: PFC is on priority 4, and it
/// trusts VLAN tags. `Dirty`: the cable has more errors than FEC can correct, most on its lane 2. `GlobalPause`:
/// 802.3x in place of PFC. `Down`: no optical signal.
#[derive(Clone, Copy, PartialEq)]
enum Case {
    Healthy,
    Storm,
    OtherPriority,
    Dirty,
    GlobalPause,
    Down,
}

impl Case {
    fn of(rail: usize) -> Self {
        match rail {
            2 => Self::Storm,
            4 => Self::OtherPriority,
            5 => Self::Dirty,
            6 => Self::GlobalPause,
            7 => Self::Down,
            _ => Self::Healthy,
        }
    }

    fn pfc_priority(self) -> Option<u8> {
        match self {
            Self::GlobalPause => None,
            Self::OtherPriority => Some(4),
            _ => Some(3),
        }
    }
}

/// The server, its management NIC, whose driver was not recorded, and interfaces that are no hardware: a
/// loopback, a bond and a representor, whose counters repeat those of its port.
pub(super) fn hgx_h200_roce() -> Tree {
    let mut tree = hgx(
        "hgx-2",
        "HGX H200 8-GPU",
        "0x2335",
        |tree, path, rail, numa_node| {
            nic_function(tree, path, "0x1021", "0x020000", numa_node);
            roce(tree, path, rail);
        },
    );
    let management = "sys/devices/pci0000:00/0000:00:1f.0/0000:03:00.0";
    function(&mut tree, management, "0x8086", "0x1533", "0x020000", 0);
    tree.link(&format!("{management}/driver"), "sys/bus/pci/drivers/igb");
    netdev(&mut tree, management, "eno1", 2, 1_000, true);
    for (name, kind) in [("lo", 772), ("bond0", 1)] {
        let path = format!("sys/devices/virtual/net/{name}");
        tree.file(format!("{path}/type"), kind);
        tree.link(&format!("sys/class/net/{name}"), &path);
    }
    tree.file("network/lldp.json0", neighbors());
    gpus::hgx(&mut tree, &gpus::H200);
    tree
}

pub(super) fn netdev(
    tree: &mut Tree,
    function: &str,
    name: &str,
    index: usize,
    megabits: i64,
    up: bool,
) {
    let path = format!("{function}/net/{name}");
    tree.link(&format!("sys/class/net/{name}"), &path);
    tree.link(&format!("{path}/device"), function);
    for (file, value) in [
        ("type", 1),
        ("dev_port", 0),
        ("ifindex", index as i64),
        ("mtu", if megabits > 1_000 { 9_000 } else { 1_500 }),
        ("carrier", up.into()),
        ("carrier_changes", if up { 2 } else { 9 }),
        ("speed", if up { megabits } else { -1 }),
    ] {
        tree.file(format!("{path}/{file}"), value);
    }
    tree.file(
        format!("{path}/duplex"),
        if up { "full" } else { "unknown" },
    );
}

fn roce(tree: &mut Tree, function: &str, rail: usize) {
    let case = Case::of(rail);
    let up = case != Case::Down;
    let name = netdev_name(rail);
    netdev(tree, function, &name, 3 + rail, 400_000, up);
    tree.file(format!("{function}/net/{name}/phys_port_name"), "p0");
    congestion(tree, &format!("{function}/net/{name}/ecn"), case);
    if rail == 0 {
        netdev(tree, function, "rep0", 30, 400_000, true);
        tree.file(format!("{function}/net/rep0/phys_port_name"), "pf0vf0");
        tree.file(
            "network/rep0/stats",
            "NIC statistics:\n     rx_discards_phy: 1",
        );
    }
    let device = format!("mlx5_{rail}");
    let port = Port {
        name: &device,
        link_layer: "Ethernet",
        state: if up { "4: ACTIVE" } else { "1: DOWN" },
        physical_state: if up { "5: LinkUp" } else { "3: Disabled" },
        rate: if up {
            "400 Gb/sec (4X NDR)"
        } else {
            "40 Gb/sec (4X QDR)"
        },
        seed: 0x40 + rail as u64,
    };
    rdma_device(tree, function, &port, "MT4129", "MT_0000000838");
    let path = format!("{function}/infiniband/{device}/ports/1");
    tree.file(format!("{path}/gid_attrs/ndevs/0"), &name);
    for (counter, value) in [
        ("np_cnp_sent", 3_001 * port.seed),
        ("np_ecn_marked_roce_packets", 3_011 * port.seed),
        ("rp_cnp_handled", 2_999 * port.seed),
        ("rp_cnp_ignored", 0),
    ] {
        tree.file(format!("{path}/hw_counters/{counter}"), value);
    }
    let recorded = format!("network/{name}");
    tree.file(format!("{recorded}/stats"), stats(case, port.seed));
    tree.file(format!("{recorded}/pause"), pause(case));
    tree.file(format!("{recorded}/fec"), fec(case, port.seed));
    tree.file(format!("{recorded}/pfc"), pfc(case));
    let app = match case {
        Case::OtherPriority => "",
        _ => "dscp-prio 26:3 48:6",
    };
    tree.file(format!("{recorded}/app"), app);
}

/// `enp24s0np0`: as the kernel's naming scheme has it, after the bus in decimal.
fn netdev_name(rail: usize) -> String {
    let bus = [0x15, 0x37, 0x97, 0xb7][rail / 2] + 3 + 2 * (rail % 2);
    format!("enp{bus}s0np0")
}

/// The `ecn` directory: enabled on the lossless priority only.
fn congestion(tree: &mut Tree, path: &str, case: Case) {
    for (point, settings) in [
        (
            "roce_np",
            &[
                ("cnp_802p_prio", 6),
                ("cnp_dscp", 48),
                ("min_time_between_cnps", 4),
            ][..],
        ),
        (
            "roce_rp",
            &[
                ("dce_tcp_g", 1_019),
                ("initial_alpha_value", 1_023),
                ("rpg_ai_rate", 5),
                ("rpg_hai_rate", 50),
                ("rpg_min_rate", 1),
                ("rpg_time_reset", 300),
            ][..],
        ),
    ] {
        for (setting, value) in settings {
            tree.file(format!("{path}/{point}/{setting}"), value);
        }
        for priority in 0..8 {
            let on = case.pfc_priority().unwrap_or(3) == priority;
            tree.file(format!("{path}/{point}/enable/{priority}"), u8::from(on));
        }
    }
}

/// `ethtool -S`.
fn stats(case: Case, seed: u64) -> String {
    let traffic = 1_000_003 * seed;
    let storm = u64::from(case == Case::Storm);
    let mut rows = port_counters(case, seed, traffic);
    rows.extend([
        ("tx_pause_storm_warning_events", 6 * storm),
        ("tx_pause_storm_error_events", storm),
        ("module_unplug", u64::from(case == Case::Down)),
        ("module_bus_stuck", 0),
        ("module_high_temp", u64::from(case == Case::Dirty)),
        ("module_bad_shorted", 0),
        // Not exported: no row of the driver's table has these names.
        ("rx0_packets", traffic / 2),
        ("rx1_packets", traffic / 2),
    ]);
    let rows = rows
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    let rows = rows.chain(priority_counters(case, seed, traffic));
    let lines = rows.map(|(name, value)| format!("\n     {name}: {value}"));
    format!("NIC statistics:{}", lines.collect::<String>())
}

fn port_counters(case: Case, seed: u64, traffic: u64) -> Vec<(&'static str, u64)> {
    let dirty = u64::from(case == Case::Dirty);
    vec![
        ("rx_packets", traffic),
        ("tx_packets", traffic),
        ("rx_out_of_buffer", seed % 3),
        ("rx_steer_missed_packets", 12 * seed),
        ("rx_if_down_packets", 0),
        ("rx_packets_phy", 9 * traffic),
        ("rx_crc_errors_phy", 5 * dirty),
        (
            "rx_discards_phy",
            if case == Case::Storm { 1_904 } else { 0 },
        ),
        ("tx_discards_phy", 0),
        (
            "link_down_events_phy",
            if case == Case::Down { 4 } else { 0 },
        ),
        ("rx_bits_phy", 72_000 * traffic),
        ("rx_pcs_symbol_err_phy", 1_311 * dirty),
        ("rx_corrected_bits_phy", 77 * seed + 4_000_000 * dirty),
        ("rx_err_lane_0_phy", 31 * seed),
        ("rx_err_lane_1_phy", 29 * seed),
        ("rx_err_lane_2_phy", 30 * seed + 4_000_000 * dirty),
        ("rx_err_lane_3_phy", 28 * seed),
        (
            "rx_buffer_passed_thres_phy",
            if case == Case::Storm { 733 } else { 0 },
        ),
        ("rx_pci_signal_integrity", 0),
        ("tx_pci_signal_integrity", 3),
        ("outbound_pci_buffer_overflow", 0),
        ("outbound_pci_stalled_rd", 0),
        (
            "outbound_pci_stalled_wr",
            if case == Case::Storm { 62 } else { 0 },
        ),
        ("outbound_pci_stalled_rd_events", 0),
        (
            "outbound_pci_stalled_wr_events",
            if case == Case::Storm { 411 } else { 0 },
        ),
    ]
}

fn priority_counters(case: Case, seed: u64, traffic: u64) -> Vec<(String, u64)> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: u64| rows.push((name.to_owned(), value));
    for priority in 0..8 {
        let share = if Some(priority) == case.pfc_priority() {
            900
        } else {
            u64::from(priority)
        };
        row(&format!("rx_prio{priority}_bytes"), 4_096 * share * traffic);
        row(&format!("rx_prio{priority}_packets"), share * traffic);
        row(&format!("rx_prio{priority}_discards"), 0);
        row(&format!("tx_prio{priority}_bytes"), 4_096 * share * traffic);
        row(&format!("tx_prio{priority}_packets"), share * traffic);
        row(&format!("rx_prio{priority}_buf_discard"), 0);
        row(&format!("rx_prio{priority}_cong_discard"), 0);
        row(&format!("rx_prio{priority}_marked"), 0);
    }
    let (sent, micros) = if case == Case::Storm {
        (88_123, 194_500_250)
    } else {
        (17 * seed, 40 * seed)
    };
    let group = case
        .pfc_priority()
        .map_or("global".to_owned(), |priority| format!("prio{priority}"));
    for (name, value) in [
        (format!("rx_{group}_pause"), 23 * seed),
        (format!("rx_{group}_pause_duration"), 61 * seed),
        (format!("tx_{group}_pause"), sent),
        (format!("tx_{group}_pause_duration"), micros),
        (format!("rx_{group}_pause_transition"), 11 * seed),
    ] {
        row(&name, value);
    }
    rows
}

/// `ethtool -I -a`.
fn pause(case: Case) -> String {
    let (on, frames) = match case {
        Case::GlobalPause => (
            "on",
            "\nStatistics:\n  tx_pause_frames: 1190\n  rx_pause_frames: 1610",
        ),
        _ => ("off", ""),
    };
    format!("Pause parameters:\nAutonegotiate:\toff\nRX:\t\t{on}\nTX:\t\t{on}{frames}")
}

/// `ethtool -I --show-fec`.
fn fec(case: Case, seed: u64) -> String {
    let bad = if case == Case::Dirty { 37 } else { 0 };
    let mode = if case == Case::Down { "None" } else { "RS" };
    format!(
        "FEC parameters:\nSupported/Configured FEC encodings: Auto RS\nActive FEC encoding: {mode}\n\
         Statistics:\n  corrected_blocks: {}\n  uncorrectable_blocks: {bad}",
        71 * seed
    )
}

/// `dcb -s pfc show`.
fn pfc(case: Case) -> String {
    let row = |word: &dyn Fn(u8) -> String| (0..8).map(word).collect::<Vec<_>>().join(" ");
    let on = |priority| Some(priority) == case.pfc_priority();
    format!(
        "pfc-cap 8 macsec-bypass off delay 0\nprio-pfc {}\nrequests {}\nindications {}",
        row(&|priority| format!("{priority}:{}", if on(priority) { "on" } else { "off" })),
        row(&|priority| format!("{priority}:{}", if on(priority) { 17 } else { 0 })),
        row(&|priority| format!("{priority}:{}", if on(priority) { 23 } else { 0 })),
    )
}

/// `lldpctl -f json0`: every rail is connected to its own leaf, except the last, which is down.
fn neighbors() -> String {
    let interface = |rail: usize| {
        format!(
            r#"{{"name":"{}","via":"LLDP","rid":"{}","age":"0 day, 05:12:0{rail}","chassis":[{{"id":[{{"type":"mac","value":"7c:21:d8:00:00:{rail:02x}"}}],"name":[{{"value":"leaf-r{rail}"}}],"descr":[{{"value":"Example Switch OS"}}]}}],"port":[{{"id":[{{"type":"ifname","value":"swp17s0"}}],"descr":[{{"value":"hgx-2 rail {rail}"}}],"ttl":[{{"value":"120"}}]}}]}}"#,
            netdev_name(rail),
            rail + 1
        )
    };
    let interfaces: Vec<String> = (0..7).map(interface).collect();
    format!(r#"{{"lldp":[{{"interface":[{}]}}]}}"#, interfaces.join(","))
}
