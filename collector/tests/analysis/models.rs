//! Devices of several models side by side: what one model reaches, another may not.

use railscope_collector::analyzer::Analyzer;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;

use super::cluster::{NODES, RAILS, as_planned, at, node, page, subnet};
use super::{check, incidents, run_from_the_start, set};

#[test]
fn a_link_that_says_no_maximum_is_held_against_those_of_its_model() {
    // As dcgm-exporter has it: the generation of now and the product name. Node 5 has an older board.
    let older = |product: &'static str| {
        move |node: usize, _: u64, page: String| {
            let lines = page.lines();
            let lines = lines.filter(|line| !line.contains("max_transfers"));
            let text: String = lines.map(|line| format!("{line}\n")).collect();
            if node != 5 {
                return text;
            }
            (0..RAILS).fold(text, |text, gpu| {
                let of = format!(
                    "transfers_per_second{{pci=\"0000:{:02x}:00.0\"}}",
                    0x20 + gpu
                );
                text.replace(&format!("{of} 32e9"), &format!("{of} 16e9"))
                    .replace("name=\"H100\"", &format!("name=\"{product}\""))
            })
        }
    };
    check(&older("A100"), &[]);
    let all = "[gpu/n5:0 gpu/n5:1 gpu/n5:2 gpu/n5:3]";
    let named = format!("pcie-degraded host/n5 gpus=4 {all}");
    check(&older("H100"), &[&named]);
}

#[test]
fn a_port_is_held_against_those_of_its_board_and_against_its_own_past() {
    let speed = |from: u64| {
        move |node: usize, seconds: u64, page: String| {
            let board = if node == 2 { "old" } else { "new" };
            let devices: String = (0..RAILS)
                .map(|rail| {
                    format!(
                        "railscope_rdma_device_info{{device=\"mlx5_{rail}\",board=\"{board}\",firmware=\"\",hca_type=\"\"}} 1\n"
                    )
                })
                .collect();
            let series = "railscope_rdma_port_speed_bytes_per_second{device=\"mlx5_1\",port=\"1\"}";
            let slow = set(2, series, move |now| if now < from { 5e10 } else { 2.5e10 });
            let page = if seconds < from {
                page
            } else {
                slow(node, seconds, page)
            };
            page + &devices
        }
    };
    let from_the_start = run_from_the_start(&speed(0));
    assert_eq!(incidents(&from_the_start), [""; 0]);
    check(
        &speed(20),
        &["port-degraded link/n2:mlx5_1/1 gpus=1 [gpu/n2:1]"],
    );
}

/// Nodes of which all ports run at half the speed from the start, by their own expositions and by the subnet.
fn half_as_fast(nodes: &'static [usize]) -> [Vec<String>; 2] {
    let told = |own: usize, _: u64, page: String| {
        if nodes.contains(&own) {
            page.replace("} 5e10", "} 2.5e10")
        } else {
            page
        }
    };
    let by_nodes = incidents(&run_from_the_start(&told));
    // The line of a NIC at its switch, and the block of the NIC itself.
    let mut slow_block = false;
    let swept: String = subnet(&as_planned)
        .lines()
        .map(|line| {
            let mut names = nodes.iter().map(|own| format!("\"n{own} mlx5_"));
            let is_slow = names.any(|name| line.contains(&name));
            slow_block = !line.is_empty() && (slow_block || is_slow && line.starts_with("Ca"));
            let speed = if is_slow || slow_block {
                "4xHDR"
            } else {
                "4xNDR"
            };
            line.replace("4xNDR", speed) + "\n"
        })
        .collect();
    let mut analyzer = Analyzer::default();
    analyzer.set_targets(&(0..NODES).map(node).collect::<Vec<_>>());
    let mut by_subnet = Vec::new();
    for seconds in [0, 5, 10, 15, 20] {
        for own in 0..NODES {
            let page = page(own, seconds);
            let lines = page.lines().filter(|line| !line.contains("port_speed"));
            let page: String = lines.map(|line| format!("{line}\n")).collect();
            analyzer.ingest(&node(own), &page, at(seconds));
        }
        analyzer.take_subnet(parse_ibnetdiscover(&swept), at(seconds));
        by_subnet = incidents(&analyzer.tick(at(seconds)));
    }
    [by_nodes, by_subnet]
}

#[test]
fn nodes_of_an_older_generation_are_no_slow_nodes_and_a_single_one_is() {
    let [by_nodes, by_subnet] = half_as_fast(&[2]);
    assert!(
        by_nodes[0].starts_with("port-degraded host/n2"),
        "{by_nodes:?}"
    );
    assert!(
        by_subnet[0].starts_with("port-degraded host/n2"),
        "{by_subnet:?}"
    );
    let [by_nodes, by_subnet] = half_as_fast(&[2, 5]);
    assert_eq!(by_nodes, [""; 0]);
    assert_eq!(by_subnet, [""; 0]);
}
