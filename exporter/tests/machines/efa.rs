//! A cloud instance with EFA: two of the eight GPUs of a p5.48xlarge, each with its four EFA devices.

use super::gpus;
use super::host_files::cpus;
use super::pcie::{aer, function, gpu_function, pcie_link};
use super::tree::Tree;

/// Everything is below emulated switches, four EFA devices and one GPU to each. EFA has no
/// `counters`, bytes and retransmissions in `hw_counters`, and counters of its command queue beside the
/// ports. The third device has lost packets and given up on a peer; the second of the other switch has
/// had a command fail.
pub(super) fn efa_p5() -> Tree {
    let mut tree = Tree::default();
    tree.kernel("ip-10-0-0-7", "0-191", "0-1");
    cpus(&mut tree, &["0-47,96-143", "48-95,144-191"], 192);
    tree.file("sys/class/dmi/id/sys_vendor", "Amazon EC2");
    tree.file("sys/class/dmi/id/product_name", "p5.48xlarge");
    for (gpu, bus) in [0x44_u8, 0x55].into_iter().enumerate() {
        let root = format!("sys/devices/pci0000:{bus:02x}/0000:{bus:02x}:00.0");
        let switch = format!("{root}/0000:{:02x}:00.0", bus + 1);
        for bridge in [&root, &switch] {
            function(&mut tree, bridge, "0x1d0f", "0x0200", "0x060400", gpu as u8);
        }
        for slot in 0..5_u8 {
            let port = format!("{switch}/0000:{:02x}:{slot:02x}.0", bus + 2);
            function(&mut tree, &port, "0x1d0f", "0x0200", "0x060400", gpu as u8);
            let end = format!("{port}/0000:{:02x}:00.0", bus + 3 + slot);
            if slot == 4 {
                gpu_function(&mut tree, &end, "0x2330", gpu as u8, gpu as u8);
            } else {
                efa(
                    &mut tree,
                    &end,
                    bus + 3 + slot,
                    gpu as u8,
                    4 * gpu as u64 + u64::from(slot),
                );
            }
        }
    }
    gpus::p5(&mut tree);
    tree
}

fn efa(tree: &mut Tree, path: &str, bus: u8, numa_node: u8, place: u64) {
    function(tree, path, "0x1d0f", "0xefa2", "0x020000", numa_node);
    pcie_link(tree, path, 16, 16);
    aer(tree, path, 0, 0);
    tree.link(&format!("{path}/driver"), "sys/bus/pci/drivers/efa");
    let name = format!("rdmap{bus}s0");
    let device = format!("{path}/infiniband/{name}");
    tree.link(&format!("sys/class/infiniband/{name}"), &device);
    tree.link(&format!("{device}/device"), path);
    let guid = format!("0000:0000:{bus:02x}00:c5d1");
    tree.file(format!("{device}/node_guid"), &guid);
    tree.file(format!("{device}/fw_ver"), "0.0.0.0");
    for (file, text) in [
        ("state", "4: ACTIVE"),
        ("phys_state", "5: LinkUp"),
        ("rate", "100 Gb/sec (4X EDR)"),
        ("link_layer", "Unknown"),
        (
            "gids/0",
            &format!("fe80:0000:0000:0000:0c5d:11ff:fe00:{bus:04x}"),
        ),
    ] {
        tree.file(format!("{device}/ports/1/{file}"), text);
    }
    let bytes = 8_800_000_003 * (place + 1);
    let (lost, given_up) = if place == 2 { (917, 3) } else { (0, 0) };
    for (file, value) in [
        ("lifespan", 10),
        ("tx_bytes", bytes),
        ("tx_pkts", bytes / 8928),
        ("rx_bytes", bytes - 8928),
        ("rx_pkts", bytes / 8928 - 1),
        ("rx_drops", place % 2),
        ("send_bytes", bytes / 100),
        ("send_wrs", 7001 * (place + 1)),
        ("recv_bytes", bytes / 101),
        ("recv_wrs", 7000 * (place + 1)),
        ("rdma_read_wrs", 0),
        ("rdma_read_bytes", 0),
        ("rdma_read_wr_err", 0),
        ("rdma_read_resp_bytes", 0),
        ("rdma_write_wrs", 91_003 * (place + 1)),
        ("rdma_write_bytes", bytes - bytes / 100),
        ("rdma_write_wr_err", 0),
        ("rdma_write_recv_bytes", bytes - bytes / 99),
        ("retrans_bytes", lost * 8928),
        ("retrans_pkts", lost),
        ("retrans_timeout_events", lost / 90),
        ("impaired_remote_conn_events", given_up),
        ("unresponsive_remote_events", given_up),
    ] {
        tree.file(format!("{device}/ports/1/hw_counters/{file}"), value);
    }
    let failed = u64::from(place == 5);
    for (file, value) in [
        ("lifespan", 10),
        ("submitted_cmds", 4410 + place),
        ("completed_cmds", 4410 + place - failed),
        ("cmds_err", failed),
        ("no_completion_cmds", 0),
        ("keep_alive_rcvd", 86_011),
        ("alloc_pd_err", 0),
        ("create_qp_err", 0),
        ("create_cq_err", 0),
        ("reg_mr_err", failed),
        ("alloc_ucontext_err", 0),
        ("create_ah_err", 0),
        ("mmap_err", 0),
    ] {
        tree.file(format!("{device}/hw_counters/{file}"), value);
    }
}
