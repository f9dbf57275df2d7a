//! RDMA devices and ports of the fixture machines.

use super::pcie::{function, nic_function, pcie_link};
use super::tree::Tree;

/// What differs between the ports of the server.
pub(super) struct Port<'a> {
    pub(super) name: &'a str,
    pub(super) link_layer: &'a str,
    pub(super) state: &'a str,
    pub(super) physical_state: &'a str,
    pub(super) rate: &'a str,
    /// Lower half of the GUIDs and scale of the counters.
    pub(super) seed: u64,
}

pub(super) fn infiniband(tree: &mut Tree, function: &str, rail: usize) {
    let name = format!("mlx5_{rail}");
    let up = rail != 7;
    let port = Port {
        name: &name,
        link_layer: "InfiniBand",
        state: if up { "4: ACTIVE" } else { "1: DOWN" },
        physical_state: if up { "5: LinkUp" } else { "2: Polling" },
        rate: if up {
            "400 Gb/sec (4X NDR)"
        } else {
            "10 Gb/sec (4X SDR)"
        },
        seed: 0x20 + rail as u64,
    };
    rdma_device(tree, function, &port, "MT4129", "MT_0000000838");
    let path = format!("{function}/infiniband/{name}/ports/1");
    tree.file(
        format!("{path}/lid"),
        format!("{:#x}", if up { 0x140 + rail } else { 0 }),
    );
    tree.file(format!("{path}/sm_lid"), if up { "0x1" } else { "0x0" });
    tree.file(format!("{function}/net/ibp{rail}s0/dev_port"), 0);
    match rail {
        3 => {
            tree.file(format!("{path}/counters/symbol_error"), 4711);
            tree.file(format!("{path}/counters/link_error_recovery"), 9);
            tree.file(format!("{path}/counters/link_downed"), 255);
            tree.file(format!("{path}/hw_counters/local_ack_timeout_err"), 118);
        }
        6 => tree.file(format!("{path}/counters/VL15_dropped"), "N/A (no PMA)"),
        _ => {}
    }
}

/// Two 100 Gb/s Ethernet ports of one card as one bonded RDMA device, on a separate root port.
pub(super) fn storage_bond(tree: &mut Tree) {
    let root = "sys/devices/pci0000:27/0000:27:01.0";
    function(tree, root, "0x8086", "0x352a", "0x060400", 0);
    pcie_link(tree, root, 16, 16);
    let card = format!("{root}/0000:28:00.0");
    nic_function(tree, &card, "0x101d", "0x020000", 0);
    nic_function(
        tree,
        &format!("{root}/0000:28:00.1"),
        "0x101d",
        "0x020000",
        0,
    );
    let port = Port {
        name: "mlx5_bond_0",
        link_layer: "Ethernet",
        state: "4: ACTIVE",
        physical_state: "5: LinkUp",
        rate: "200 Gb/sec (2X NDR)",
        seed: 0x90,
    };
    rdma_device(tree, &card, &port, "MT4125", "MT_0000000359");
    let path = format!("{card}/infiniband/mlx5_bond_0/ports/1");
    tree.file(format!("{path}/gid_attrs/ndevs/0"), "bond0");
    for (counter, value) in [
        ("np_cnp_sent", 51_203),
        ("np_ecn_marked_roce_packets", 51_977),
        ("rp_cnp_handled", 48_811),
        ("rp_cnp_ignored", 0),
    ] {
        tree.file(format!("{path}/hw_counters/{counter}"), value);
    }
}

pub(super) fn rdma_device(
    tree: &mut Tree,
    function: &str,
    port: &Port<'_>,
    hca_type: &str,
    board: &str,
) {
    let device = format!("{function}/infiniband/{}", port.name);
    tree.link(&format!("sys/class/infiniband/{}", port.name), &device);
    tree.link(&format!("{device}/device"), function);
    let guid = format!("9c63:c003:00a1:{:04x}", port.seed);
    for (file, text) in [
        ("node_guid", guid.as_str()),
        ("sys_image_guid", &guid),
        ("board_id", board),
        ("fw_ver", "28.41.1000"),
        ("hca_type", hca_type),
    ] {
        tree.file(format!("{device}/{file}"), text);
    }
    let path = format!("{device}/ports/1");
    for (file, text) in [
        ("state", port.state),
        ("phys_state", port.physical_state),
        ("rate", port.rate),
        ("link_layer", port.link_layer),
        ("gids/0", &format!("fe80:0000:0000:0000:{guid}")),
    ] {
        tree.file(format!("{path}/{file}"), text);
    }
    counters(tree, &path, port.seed);
}

/// Counters that differ from port to port; errors are zero until a caller writes others.
fn counters(tree: &mut Tree, path: &str, seed: u64) {
    let traffic = 10_000_000_007 * seed;
    for (file, value) in [
        ("port_xmit_data", 1021 * traffic),
        ("port_rcv_data", 1019 * traffic),
        ("port_xmit_packets", traffic),
        ("port_rcv_packets", traffic - seed),
        ("unicast_xmit_packets", traffic),
        ("unicast_rcv_packets", traffic - seed),
        ("multicast_xmit_packets", seed),
        ("multicast_rcv_packets", 3 * seed),
        ("port_xmit_wait", 1009 * seed),
    ] {
        tree.file(format!("{path}/counters/{file}"), value);
    }
    for file in [
        "symbol_error",
        "link_error_recovery",
        "link_downed",
        "port_rcv_errors",
        "port_rcv_remote_physical_errors",
        "port_rcv_switch_relay_errors",
        "port_xmit_discards",
        "port_xmit_constraint_errors",
        "port_rcv_constraint_errors",
        "local_link_integrity_errors",
        "excessive_buffer_overrun_errors",
        "VL15_dropped",
    ] {
        tree.file(format!("{path}/counters/{file}"), 0);
    }
    for (file, value) in [
        ("lifespan", 10),
        ("rx_write_requests", (7919 * traffic) & 0xffff_ffff),
        ("rx_read_requests", 104_729 * seed),
        ("out_of_sequence", seed % 5),
        ("roce_adp_retrans", seed % 3),
        // Not exported: no row of the driver's table has this name.
        ("vendor_private", 1),
    ] {
        tree.file(format!("{path}/hw_counters/{file}"), value);
    }
    for file in [
        "rx_atomic_requests",
        "rx_dct_connect",
        "out_of_buffer",
        "duplicate_request",
        "rnr_nak_retry_err",
        "packet_seq_err",
        "implied_nak_seq_err",
        "local_ack_timeout_err",
        "resp_local_length_error",
        "resp_cqe_error",
        "req_cqe_error",
        "req_remote_invalid_request",
        "req_remote_access_errors",
        "resp_remote_access_errors",
        "resp_cqe_flush_error",
        "req_cqe_flush_error",
        "req_transport_retries_exceeded",
        "req_rnr_retries_exceeded",
        "roce_adp_retrans_to",
        "roce_slow_restart",
        "roce_slow_restart_cnps",
        "roce_slow_restart_trans",
        "rx_icrc_encapsulated",
    ] {
        tree.file(format!("{path}/hw_counters/{file}"), 0);
    }
}
