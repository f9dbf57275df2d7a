//! Cables of Ethernet ports: their errors are counted by the network interface.

mod marked;

use super::cluster::RAILS;
use super::{Fault, check};

/// Every port has an interface, and that of rail 1 on node 2 counts so much.
fn counted(metric: &'static str, count: fn(u64) -> f64) -> Box<Fault> {
    Box::new(move |node, seconds, mut page: String| {
        for rail in 0..RAILS {
            let pci = format!("pci=\"0000:{:02x}:00.0\",netdev=\"", 0x10 + rail);
            page = page.replace(&format!("{pci}\""), &format!("{pci}eth{rail}\""));
            let is_culprit = (node, rail) == (2, 1);
            let value = if is_culprit { count(seconds) } else { 0.0 };
            page += &format!("{metric}{{netdev=\"eth{rail}\"}} {value}\n");
        }
        page
    })
}

#[test]
fn errors_that_an_interface_counts_are_those_of_the_cable_at_its_port() {
    let errors = ["link-errors link/n2:mlx5_1/1 gpus=1 [gpu/n2:1]"];
    let symbols = "railscope_nic_phy_symbol_errors_total";
    check(&counted(symbols, |seconds| seconds as f64), &errors);
    check(&counted(symbols, |seconds| 0.01 * seconds as f64), &[]);
    let frames = "railscope_nic_phy_crc_errors_total";
    check(&counted(frames, |seconds| 20.0 * seconds as f64), &errors);
    check(&counted(frames, |seconds| seconds as f64), &[]);
    let received = "railscope_nic_receive_errors_total";
    check(&counted(received, |seconds| 2.0 * seconds as f64), &errors);
    check(&counted(received, |seconds| 0.1 * seconds as f64), &[]);
}

#[test]
fn an_interface_that_loses_its_link_twice_is_a_port_that_flaps() {
    let downs = "railscope_nic_phy_link_down_events_total";
    let twice = |seconds| f64::from(u8::from(seconds >= 80) + u8::from(seconds >= 110));
    check(
        &counted(downs, twice),
        &["port-flapping link/n2:mlx5_1/1 gpus=1 [gpu/n2:1]"],
    );
}

#[test]
fn a_link_that_is_lost_once_is_counted_unless_its_counter_began_anew() {
    let downs = "railscope_nic_phy_link_down_events_total";
    let lost = |seconds| if seconds < 80 { 3.0 } else { 4.0 };
    check(
        &counted(downs, lost),
        &["link-errors link/n2:mlx5_1/1 gpus=1 [gpu/n2:1]"],
    );
    // A driver that was loaded again has counted the first link-up of its ports.
    check(
        &counted(downs, |seconds| if seconds < 80 { 3.0 } else { 1.0 }),
        &[],
    );
}

#[test]
fn an_interface_that_loses_its_link_is_named_where_nothing_else_tells_of_it() {
    // Gb/s, and what exporters call RDMA devices, if they report them.
    let lost = |gigabits: u64, device: &'static str, down: fn(usize) -> bool| -> Box<Fault> {
        Box::new(move |node, seconds, page: String| {
            let is_rdma = |line: &&str| line.starts_with("railscope_rdma_port_up");
            let kept = page
                .lines()
                .filter(|line| !device.is_empty() || !is_rdma(line));
            let mut page: String = kept.map(|line| format!("{line}\n")).collect();
            page = page.replace("up{device=\"mlx5_", &format!("up{{device=\"{device}"));
            let losses = u8::from(device == "mlx5_bond_" && down(node) && seconds >= 80);
            page += &format!(
                "railscope_rdma_port_errors_total{{device=\"mlx5_bond_0\",port=\"1\",kind=\"link_downed\"}} {losses}\n\
                 railscope_nic_phy_link_down_events_total{{netdev=\"eth4\"}} {losses}\n"
            );
            for netdev in ["eth4", "eth5"] {
                let is_down = netdev == "eth4" && down(node) && seconds >= 80;
                let carrier = u8::from(!is_down);
                page += &format!("railscope_nic_carrier{{netdev=\"{netdev}\"}} {carrier}\n");
                // The kernel reports no speed of an interface without a link.
                if !is_down {
                    let speed = gigabits * 125_000_000;
                    page += &format!(
                        "railscope_nic_speed_bytes_per_second{{netdev=\"{netdev}\"}} {speed}\n"
                    );
                }
            }
            page
        })
    };
    let down = ["port-down link/n2:eth4/1 gpus=0 []"];
    check(&lost(100, "", |node| node == 2), &down);
    // A bond is up as long as one of its interfaces is.
    check(&lost(100, "mlx5_bond_", |node| node == 2), &down);
    check(&lost(100, "mlx5_", |node| node == 2), &[]);
    check(&lost(1, "", |node| node == 2), &[]);
    // The site has disabled it everywhere.
    check(&lost(100, "", |_| true), &[]);
}

#[test]
fn errors_of_a_fast_interface_are_counted_where_no_rdma_ports_are_known() {
    let errors = |gigabits: u64| -> Box<Fault> {
        Box::new(move |node, seconds, page: String| {
            let is_rdma = |line: &&str| line.starts_with("railscope_rdma_port_up");
            let kept = page.lines().filter(|line| !is_rdma(line));
            let page: String = kept.map(|line| format!("{line}\n")).collect();
            let errors = if node == 2 { 8 * seconds } else { 0 };
            page + &format!(
                "railscope_nic_carrier{{netdev=\"eth4\"}} 1\n\
                 railscope_nic_speed_bytes_per_second{{netdev=\"eth4\"}} {}\n\
                 railscope_nic_receive_errors_total{{netdev=\"eth4\"}} {errors}\n",
                gigabits * 125_000_000
            )
        })
    };
    check(&errors(100), &["link-errors link/n2:eth4/1 gpus=0 []"]);
    check(&errors(1), &[]);
}

#[test]
fn an_interface_slower_than_on_other_nodes_is_named_where_no_rdma_ports_are_known() {
    let slow = |slow: fn(usize) -> bool| -> Box<Fault> {
        Box::new(move |node, _, page: String| {
            let is_rdma = |line: &&str| line.starts_with("railscope_rdma_port_up");
            let kept = page.lines().filter(|line| !is_rdma(line));
            let mut page: String = kept.map(|line| format!("{line}\n")).collect();
            for (netdev, speed) in [("eno1", 3_125_000_000_u64), ("eth4", 12_500_000_000)] {
                let halves = 1 + u64::from(netdev == "eth4" && slow(node));
                page += &format!(
                    "railscope_nic_carrier{{netdev=\"{netdev}\"}} 1\n\
                     railscope_nic_speed_bytes_per_second{{netdev=\"{netdev}\"}} {}\n",
                    speed / halves
                );
            }
            page
        })
    };
    check(
        &slow(|node| node == 2),
        &["port-degraded link/n2:eth4/1 gpus=0 []"],
    );
    check(&slow(|node| node < 4), &[]);
}
