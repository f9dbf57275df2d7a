//! A synthetic cluster as its exporters' expositions and its subnet's text.

use railscope_model::fabric::Timestamp;
use railscope_model::identity::NodeName;

pub(crate) const NODES: usize = 8;
pub(crate) const RAILS: usize = 4;

pub(crate) fn at(seconds: u64) -> Timestamp {
    Timestamp(1_700_000_000_000 + seconds * 1000)
}

pub(crate) fn node(index: usize) -> NodeName {
    format!("n{index}").parse().expect("a name")
}

/// A healthy exposition of one node, with counters that have run for `seconds`.
pub(crate) fn page(node: usize, seconds: u64) -> String {
    let mut page = String::new();
    for rail in 0..RAILS {
        let (nic, gpu) = (
            format!("0000:{:02x}:00.0", 0x10 + rail),
            format!("0000:{:02x}:00.0", 0x20 + rail),
        );
        let guid = 0x1000 + 16 * node + rail;
        let events = seconds as f64 * 0.001;
        page += &format!(
            r#"railscope_rdma_port_info{{device="mlx5_{rail}",port="1",pci="{nic}",netdev="",node_guid="{guid:#018x}",port_guid="",link_layer="InfiniBand",driver="mlx5_core",numa_node="0"}} 1
railscope_rdma_port_up{{device="mlx5_{rail}",port="1"}} 1
railscope_rdma_port_speed_bytes_per_second{{device="mlx5_{rail}",port="1"}} 5e10
railscope_rdma_port_errors_total{{device="mlx5_{rail}",port="1",kind="symbol_error"}} 3
railscope_pcie_path_info{{pci="{nic}",kind="nic",name="mlx5_{rail}",parent="",root_port="",numa_node="0"}} 1
railscope_pcie_path_info{{pci="{gpu}",kind="gpu",name="{rail}",parent="",root_port="",numa_node="0"}} 1
railscope_pcie_link_width_lanes{{pci="{nic}"}} 16
railscope_pcie_link_max_width_lanes{{pci="{nic}"}} 16
railscope_pcie_link_transfers_per_second{{pci="{nic}"}} 32e9
railscope_pcie_link_max_transfers_per_second{{pci="{nic}"}} 32e9
railscope_pcie_link_width_lanes{{pci="{gpu}"}} 16
railscope_pcie_link_max_width_lanes{{pci="{gpu}"}} 16
railscope_pcie_link_transfers_per_second{{pci="{gpu}"}} 32e9
railscope_pcie_link_max_transfers_per_second{{pci="{gpu}"}} 32e9
railscope_gpu_info{{gpu="{rail}",uuid="GPU-{node}-{rail}",pci="{gpu}",name="H100",serial="",vbios="",driver="",architecture="",numa_node="0"}} 1
railscope_gpu_nic_info{{gpu="{rail}",device="mlx5_{rail}",hop="PIX",nearest="true"}} 1
railscope_gpu_utilization_ratio{{gpu="{rail}"}} 1
railscope_gpu_clock_hertz{{gpu="{rail}",clock="sm"}} 1.98e9
railscope_gpu_clock_event_active{{gpu="{rail}",reason="hw_thermal"}} 0
railscope_gpu_clock_event_seconds_total{{gpu="{rail}",reason="sw_power_cap"}} {events}
railscope_gpu_clock_event_seconds_total{{gpu="{rail}",reason="hw_thermal"}} 0
"#
        );
    }
    page
}

/// Which leaf a node's NIC of a rail is connected to, from 0; `None` for a cable that is cut.
pub(crate) type Cabling = dyn Fn(usize, usize) -> Option<usize>;

/// Every NIC on the leaf of its rail.
pub(crate) fn as_planned(_: usize, rail: usize) -> Option<usize> {
    Some(rail)
}

/// What `ibnetdiscover` prints of one end of a cable to a switch.
pub(crate) fn switch_end(
    port: usize,
    far: &str,
    far_port: usize,
    name: &str,
    lid: usize,
) -> String {
    format!("[{port}]\t\"{far}\"[{far_port}]\t\t# \"{name}\" lid {lid} 4xNDR\n")
}

pub(crate) fn switch_head(guid: usize, name: &str, lid: usize) -> String {
    format!(
        "\nvendid=0x2c9\ndevid=0xd2f2\nsysimgguid={guid:#x}\nswitchguid={guid:#x}({guid:x})\n\
         Switch\t65 \"S-{guid:016x}\"\t\t# \"MF0;{name}:MQM9790/U1\" enhanced port 0 lid {lid} lmc 0\n"
    )
}

/// What `ibnetdiscover` prints of four leaves and two spines; node `n` uses port n+1 of its leaf.
pub(crate) fn subnet(cabling: &Cabling) -> String {
    subnet_of(NODES, 2, cabling)
}

/// The same of so many nodes and spines. Rails that share a leaf have eight ports of it each.
pub(crate) fn subnet_of(nodes: usize, spines: usize, cabling: &Cabling) -> String {
    let first_uplink = nodes.max(32) + 1;
    let shared = cabling(0, 0) == cabling(0, 1);
    let port_of = |node: usize, rail: usize| node + 1 + if shared { NODES * rail } else { 0 };
    let mut text = String::from("#\n# Topology file: generated on Thu Nov 19 10:00:00 2026\n#\n");
    let (leaf_guid, spine_guid) = (|leaf: usize| 0xa000 + leaf, |spine: usize| 0xb000 + spine);
    let hca = |node: usize, rail: usize| 0x1000 + 16 * node + rail;
    for leaf in 0..RAILS {
        text += &switch_head(leaf_guid(leaf), &format!("leaf-{leaf}"), 10 + leaf);
        for (node, rail) in (0..nodes).flat_map(|node| (0..RAILS).map(move |rail| (node, rail))) {
            if cabling(node, rail) == Some(leaf) {
                let (guid, name) = (hca(node, rail), format!("n{node} mlx5_{rail}"));
                text += &format!(
                    "[{}]\t\"H-{guid:016x}\"[1]({guid:x}) \t\t# \"{name}\" lid {} 4xNDR\n",
                    port_of(node, rail),
                    100 + guid
                );
            }
        }
        for spine in 0..spines {
            let far = format!("S-{:016x}", spine_guid(spine));
            text += &switch_end(
                first_uplink + spine,
                &far,
                leaf + 1,
                &format!("MF0;spine-{spine}:MQM9790/U1"),
                20 + spine,
            );
        }
    }
    for spine in 0..spines {
        text += &switch_head(spine_guid(spine), &format!("spine-{spine}"), 20 + spine);
        for leaf in 0..RAILS {
            let far = format!("S-{:016x}", leaf_guid(leaf));
            text += &switch_end(
                leaf + 1,
                &far,
                first_uplink + spine,
                &format!("MF0;leaf-{leaf}:MQM9790/U1"),
                10 + leaf,
            );
        }
    }
    for (node, rail) in (0..nodes).flat_map(|node| (0..RAILS).map(move |rail| (node, rail))) {
        let Some(leaf) = cabling(node, rail) else {
            continue;
        };
        let guid = hca(node, rail);
        text += &format!(
            "\nvendid=0x2c9\ndevid=0x1021\nsysimgguid={guid:#x}\ncaguid={guid:#x}\n\
             Ca\t1 \"H-{guid:016x}\"\t\t# \"n{node} mlx5_{rail}\"\n\
             [1]({guid:x}) \t\"S-{:016x}\"[{}]\t\t# lid {} lmc 0 \"MF0;leaf-{leaf}:MQM9790/U1\" lid {} 4xNDR\n",
            leaf_guid(leaf),
            port_of(node, rail),
            100 + guid,
            10 + leaf
        );
    }
    text
}
