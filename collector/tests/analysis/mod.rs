//! From exporters' expositions and subnet text to incidents: one fault in, one named part out.

mod ablation;
mod bad_input;
mod cluster;
mod detectors;
mod errors;
mod ethernet;
mod fabric_loss;
mod fading;
mod gpu_events;
mod hardware;
mod health;
mod hosts;
mod innocent;
mod jobs;
mod limits;
mod maintenance;
mod memory;
mod models;
mod moved_cables;
mod parents;
mod pause;
mod second_look;
mod starved;
mod sweeps;
mod work;

use std::collections::BTreeSet;

use cluster::{NODES, RAILS, as_planned, at, node, page, subnet};
use railscope_collector::analyzer::{Analyzer, ClusterView};
use railscope_collector::fabric::subnet::parse_ibnetdiscover;

/// How a fault changes a node's exposition: node, seconds since the start, exposition.
type Fault = dyn Fn(usize, u64, String) -> String;

/// A healthy cluster for ten ticks, then twenty with the fault.
fn run(fault: &Fault) -> ClusterView {
    run_after(10, fault)
}

/// Thirty ticks with the fault.
fn run_from_the_start(fault: &Fault) -> ClusterView {
    run_after(0, fault)
}

fn run_after(healthy_ticks: u64, fault: &Fault) -> ClusterView {
    run_every(5, healthy_ticks, fault)
}

/// The same, scraped and evaluated once in so many seconds.
fn run_every(interval: u64, healthy_ticks: u64, fault: &Fault) -> ClusterView {
    let views = views((interval, healthy_ticks), fault);
    views.last().expect("thirty ticks")
}

/// Incidents of all ticks of a run with the fault from the start, each once.
fn ever(fault: &Fault) -> BTreeSet<String> {
    let views = views((5, 0), fault);
    views.flat_map(|view| incidents(&view)).collect()
}

/// What is found in each of thirty ticks, so many seconds apart, the first of them without the fault.
fn views(
    (interval, healthy_ticks): (u64, u64),
    fault: &Fault,
) -> impl Iterator<Item = ClusterView> {
    let mut analyzer = Analyzer::default();
    analyzer.set_targets(&(0..NODES).map(node).collect::<Vec<_>>());
    analyzer.tick(at(0));
    let mut memory = memory::Memory::new();
    (1..=30).map(move |tick| {
        let seconds = interval * tick;
        for index in 0..NODES {
            let mut text = page(index, seconds);
            if tick > healthy_ticks {
                text = fault(index, seconds, text);
            }
            let result = analyzer.ingest(&node(index), &text, at(seconds));
            assert_eq!(
                (result.unknown, result.errors),
                (0, vec![]),
                "the test speaks the catalogue's words"
            );
        }
        let view = analyzer.tick(at(seconds));
        memory.look(&analyzer, &view);
        view
    })
}

/// The incidents as `class part [victims]` lines.
fn incidents(view: &ClusterView) -> Vec<String> {
    let parts = |parts: &[railscope_model::identity::Part]| {
        parts
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let line = |i: &railscope_collector::diagnose::incident::Incident| {
        format!(
            "{} {} gpus={} [{}]",
            i.class.name,
            i.root,
            i.gpus_affected,
            parts(&i.victims)
        )
    };
    view.incidents.iter().map(line).collect()
}

fn check(fault: &Fault, expected: &[&str]) {
    let view = run(fault);
    assert_eq!(incidents(&view), expected, "{:#?}", view.incidents);
}

/// Adds lines to every exposition: `line` is given the node and the seconds since the start.
fn with(line: impl Fn(usize, u64) -> String + 'static) -> Box<Fault> {
    Box::new(move |node, seconds, page: String| page + &line(node, seconds))
}

/// One line for each GPU.
fn of_gpus(line: impl Fn(usize) -> String) -> String {
    (0..RAILS).map(line).collect()
}

/// Replaces the value of one series on one node.
fn set(node: usize, series: &'static str, value: impl Fn(u64) -> f64 + 'static) -> Box<Fault> {
    Box::new(move |index, seconds, page: String| {
        if index != node {
            return page;
        }
        let replace = |line: &str| match line.strip_prefix(series) {
            Some(_) => format!("{series} {}\n", value(seconds)),
            None => format!("{line}\n"),
        };
        let changed: String = page.lines().map(replace).collect();
        assert_ne!(changed, page, "{series} stands on the page");
        changed
    })
}

#[test]
fn a_healthy_cluster_has_no_incident() {
    check(&|_, _, page| page, &[]);
}

#[test]
fn a_narrow_pcie_link_of_a_nic_is_named_with_the_gpu_that_uses_it() {
    check(
        &set(
            3,
            r#"railscope_pcie_link_width_lanes{pci="0000:12:00.0"}"#,
            |_| 8.0,
        ),
        &["pcie-degraded pcie/n3:0000:12:00.0 gpus=1 [gpu/n3:2]"],
    );
}

#[test]
fn a_narrow_pcie_link_is_named_where_the_pcie_tree_is_not_visible() {
    let width = r#"railscope_pcie_link_width_lanes{pci="0000:12:00.0"}"#;
    let narrow = set(3, width, |_| 8.0);
    let is_tree = |line: &&str| line.starts_with("railscope_pcie_path_info");
    check(
        &move |node, seconds, page| {
            let page = narrow(node, seconds, page);
            let without = page.lines().filter(|line| !is_tree(line));
            without.map(|line| format!("{line}\n")).collect()
        },
        &["pcie-degraded pcie/n3:0000:12:00.0 gpus=1 [gpu/n3:2]"],
    );
}

/// The default profile of the exporter has the maximum of links only that fall short of it.
#[test]
fn a_narrow_pcie_link_is_named_where_only_its_own_maximum_is_reported() {
    let narrow = set(
        3,
        r#"railscope_pcie_link_width_lanes{pci="0000:12:00.0"}"#,
        |_| 8.0,
    );
    let is_other = |node: usize, line: &str| {
        let own = node == 3 && line.contains("\"0000:12:00.0\"");
        line.starts_with("railscope_pcie_link_max_width_lanes") && !own
    };
    check(
        &move |node, seconds, page| {
            let page = narrow(node, seconds, page);
            let kept = page.lines().filter(|line| !is_other(node, line));
            kept.map(|line| format!("{line}\n")).collect()
        },
        &["pcie-degraded pcie/n3:0000:12:00.0 gpus=1 [gpu/n3:2]"],
    );
}

#[test]
fn the_ports_of_a_card_share_one_link_and_one_incident() {
    check(
        &|node, _, page| {
            let width = |function, lanes| {
                format!(
                    "railscope_pcie_link_width_lanes{{pci=\"0000:12:00.{function}\"}} {lanes}\n"
                )
            };
            let lanes = if node == 3 { 8 } else { 16 };
            let second = r#"railscope_pcie_path_info{pci="0000:12:00.1",kind="nic",name="mlx5_9",parent="",root_port="",numa_node="0"} 1
railscope_pcie_link_max_width_lanes{pci="0000:12:00.1"} 16
"#;
            page.replace(&width(0, 16), &width(0, lanes)) + second + &width(1, lanes)
        },
        &["pcie-degraded pcie/n3:0000:12:00.0 gpus=1 [gpu/n3:2]"],
    );
}

#[test]
fn a_narrow_pcie_link_of_a_local_disk_slows_no_fabric() {
    let with_disk = |node, _, page: String| {
        let lanes = if node == 3 { 1 } else { 4 };
        page + &format!(
            r#"railscope_pcie_path_info{{pci="0000:30:00.0",kind="nvme",name="nvme0",parent="",root_port="",numa_node="0"}} 1
railscope_pcie_link_width_lanes{{pci="0000:30:00.0"}} {lanes}
railscope_pcie_link_max_width_lanes{{pci="0000:30:00.0"}} 4
"#
        )
    };
    check(&with_disk, &[]);
}

#[test]
fn a_slow_pcie_link_of_an_idle_gpu_is_power_saving_and_of_a_busy_one_a_fault() {
    let slow = set(
        5,
        r#"railscope_pcie_link_transfers_per_second{pci="0000:21:00.0"}"#,
        |_| 8e9,
    );
    let idle = set(5, r#"railscope_gpu_utilization_ratio{gpu="1"}"#, |_| 0.0);
    check(
        &slow,
        &["pcie-degraded pcie/n5:0000:21:00.0 gpus=1 [gpu/n5:1]"],
    );
    check(
        &move |node, seconds, page| idle(node, seconds, slow(node, seconds, page)),
        &[],
    );
}

#[test]
fn a_port_that_goes_down_is_named() {
    check(
        &set(
            2,
            r#"railscope_rdma_port_up{device="mlx5_1",port="1"}"#,
            |_| 0.0,
        ),
        &["port-down link/n2:mlx5_1/1 gpus=1 [gpu/n2:1]"],
    );
}

#[test]
fn a_port_below_its_peers_rate_is_named() {
    check(
        &set(
            2,
            r#"railscope_rdma_port_speed_bytes_per_second{device="mlx5_1",port="1"}"#,
            |_| 2.5e10,
        ),
        &["port-degraded link/n2:mlx5_1/1 gpus=1 [gpu/n2:1]"],
    );
}

#[test]
fn errors_that_rise_fast_are_named_and_slow_ones_and_common_ones_are_not() {
    let series =
        r#"railscope_rdma_port_errors_total{device="mlx5_0",port="1",kind="symbol_error"}"#;
    check(
        &set(6, series, |seconds| 2.0 * seconds as f64),
        &["link-errors link/n6:mlx5_0/1 gpus=1 [gpu/n6:0]"],
    );
    check(&set(6, series, |seconds| (seconds / 60) as f64), &[]);
    // 60 in two minutes, where 48 are the limit at 400 Gb/s: among many ports that is chance.
    check(&set(6, series, |seconds| (seconds / 2) as f64), &[]);
    let everywhere = |_: usize, seconds: u64, page: String| {
        page.replace(
            r#"kind="symbol_error"} 3"#,
            &format!(r#"kind="symbol_error"}} {}"#, 2 * seconds),
        )
    };
    check(&everywhere, &[]);
}

#[test]
fn a_gpu_with_a_low_clock_and_a_reason_is_slow_and_with_a_low_clock_alone_is_not() {
    let clock = set(
        1,
        r#"railscope_gpu_clock_hertz{gpu="3",clock="sm"}"#,
        |_| 1.85e9,
    );
    let event = set(
        1,
        r#"railscope_gpu_clock_event_seconds_total{gpu="3",reason="hw_thermal"}"#,
        |s| s as f64,
    );
    check(&clock, &[]);
    check(&event, &[]);
    check(
        &move |node, seconds, page| event(node, seconds, clock(node, seconds, page)),
        &["gpu-slow gpu/n1:3 gpus=1 []"],
    );
}

#[test]
fn a_node_that_falls_silent_says_nothing_about_its_parts() {
    // Its last scrape had a port down, once: one tick opens nothing, and later nothing is known.
    let down = set(
        4,
        r#"railscope_rdma_port_up{device="mlx5_1",port="1"}"#,
        |_| 0.0,
    );
    let mut analyzer = Analyzer::default();
    for index in 0..NODES {
        analyzer.ingest(&node(index), &page(index, 5), at(5));
    }
    analyzer.ingest(&node(4), &down(4, 10, page(4, 10)), at(10));
    let opened = |view: ClusterView| incidents(&view).len();
    let ticks: Vec<_> = (0..30)
        .map(|tick| opened(analyzer.tick(at(200 + 5 * tick))))
        .collect();
    assert_eq!(ticks, vec![0; 30]);
}

#[test]
fn one_bad_scrape_opens_nothing_and_a_closed_incident_waits_for_twelve_quiet_ticks() {
    let down = |port| set(0, port, |_| 0.0);
    let once = down(r#"railscope_rdma_port_up{device="mlx5_1",port="1"}"#);
    let twice = down(r#"railscope_rdma_port_up{device="mlx5_2",port="1"}"#);
    let mut analyzer = Analyzer::default();
    let mut open = Vec::new();
    for tick in 1..=24 {
        for index in 0..NODES {
            let mut text = page(index, 5 * tick);
            if tick == 2 {
                text = once(index, 5 * tick, text);
            } else if [5, 6].contains(&tick) {
                text = twice(index, 5 * tick, text);
            }
            analyzer.ingest(&node(index), &text, at(5 * tick));
        }
        if !incidents(&analyzer.tick(at(5 * tick))).is_empty() {
            open.push(tick);
        }
    }
    assert_eq!(open, (6..=17).collect::<Vec<_>>());
}

/// Two sweeps: the first complete, the second as cut; then enough ticks to open.
fn run_subnet(second: &str) -> ClusterView {
    let mut analyzer = Analyzer::default();
    analyzer.take_subnet(parse_ibnetdiscover(&subnet(&as_planned)), at(0));
    assert_eq!(
        incidents(&analyzer.tick(at(0))),
        [""; 0],
        "a whole subnet is healthy"
    );
    analyzer.take_subnet(parse_ibnetdiscover(second), at(60));
    analyzer.tick(at(60));
    analyzer.tick(at(65))
}

#[test]
fn a_cable_that_leaves_the_subnet_is_named_without_any_exporter() {
    let cut = |node, rail| (node != 5 || rail != 2).then_some(rail);
    assert_eq!(
        incidents(&run_subnet(&subnet(&cut))),
        ["port-down link/n5:mlx5_2/1 gpus=0 []"]
    );
}

#[test]
fn a_host_that_loses_every_cable_is_one_incident() {
    let cut = |node, rail| (node != 5).then_some(rail);
    assert_eq!(
        incidents(&run_subnet(&subnet(&cut))),
        ["host-down host/n5 gpus=0 []"]
    );
}

#[test]
fn a_leaf_that_loses_its_hosts_is_one_incident() {
    let cut = |_, rail| (rail != 1).then_some(rail);
    assert_eq!(
        incidents(&run_subnet(&subnet(&cut))),
        ["switch-down switch/leaf-1 gpus=0 []"]
    );
}

#[test]
fn two_swapped_cables_are_one_incident_that_names_both() {
    let swapped = |node, rail| match (node, rail) {
        (5, 1) => Some(2),
        (5, 2) => Some(1),
        _ => Some(rail),
    };
    let view = run_subnet(&subnet(&swapped));
    assert_eq!(
        incidents(&view),
        ["miscabled-rail link/n5:mlx5_1/1 gpus=0 []"]
    );
    let related: Vec<_> = view.incidents[0]
        .related
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(related, ["link/n5:mlx5_2/1"]);
}

#[test]
fn a_dead_leaf_is_one_incident_though_every_port_on_it_counts_errors_and_is_down() {
    let dead_leaf = |_: usize, _: u64, page: String| {
        page.replace(
            r#"railscope_rdma_port_up{device="mlx5_1",port="1"} 1"#,
            r#"railscope_rdma_port_up{device="mlx5_1",port="1"} 0"#,
        ) + "railscope_rdma_port_errors_total{device=\"mlx5_1\",port=\"1\",kind=\"link_downed\"} 1\n"
    };
    let mut analyzer = Analyzer::default();
    let mut view = analyzer.tick(at(0));
    let mut memory = memory::Memory::new();
    for tick in 1..=20 {
        let seconds = 5 * tick;
        for index in 0..NODES {
            // On one node the error counter also rises, which makes it stand out among its peers.
            let zero = "railscope_rdma_port_errors_total{device=\"mlx5_1\",port=\"1\",kind=\"link_downed\"} 0\n";
            let text = page(index, seconds);
            let text = if tick > 10 && index == 3 {
                dead_leaf(index, seconds, text)
            } else if tick > 10 {
                dead_leaf(index, seconds, text).replace("\"link_downed\"} 1", "\"link_downed\"} 0")
            } else {
                text + zero
            };
            analyzer.ingest(&node(index), &text, at(seconds));
        }
        let cabling = move |_, rail| (tick <= 10 || rail != 1).then_some(rail);
        analyzer.take_subnet(parse_ibnetdiscover(&subnet(&cabling)), at(seconds));
        view = analyzer.tick(at(seconds));
        memory.look(&analyzer, &view);
    }
    assert_eq!(
        incidents(&view),
        [
            "switch-down switch/leaf-1 gpus=8 [gpu/n0:1 gpu/n1:1 gpu/n2:1 gpu/n3:1 gpu/n4:1 gpu/n5:1 gpu/n6:1 gpu/n7:1]"
        ]
    );
}

#[test]
fn a_rail_that_died_stays_an_incident_for_as_long_as_it_is_dead() {
    let mut analyzer = Analyzer::default();
    let up = r#"railscope_rdma_port_up{device="mlx5_1",port="1"}"#;
    let mut ticks = |is_up: bool, ticks: std::ops::Range<u64>| {
        let mut view = analyzer.tick(at(5 * ticks.start));
        for seconds in ticks.map(|tick| 5 * (tick + 1)) {
            for index in 0..NODES {
                let text = page(index, seconds);
                let down = text.replace(&format!("{up} 1"), &format!("{up} 0"));
                analyzer.ingest(&node(index), if is_up { &text } else { &down }, at(seconds));
            }
            view = analyzer.tick(at(seconds));
        }
        incidents(&view).len()
    };
    assert_eq!(ticks(true, 0..5), 0);
    let at_first = ticks(false, 5..10);
    assert!(at_first > 0);
    assert_eq!(ticks(false, 10..60), at_first);
    assert_eq!(ticks(true, 60..80), 0);
}

#[test]
fn a_sweep_that_ends_early_takes_nothing_away() {
    let whole = subnet(&as_planned);
    let view = run_subnet(&whole[..whole.len() / 3]);
    assert_eq!(incidents(&view), [""; 0]);
    assert_eq!(view.fabric.count_parts().get("switch"), Some(&(RAILS + 2)));
}

#[test]
fn the_same_pages_give_the_same_incidents_to_the_byte() {
    let fault = set(
        3,
        r#"railscope_pcie_link_width_lanes{pci="0000:12:00.0"}"#,
        |_| 8.0,
    );
    assert_eq!(
        format!("{:?}", run(&fault).incidents),
        format!("{:?}", run(&fault).incidents)
    );
}
