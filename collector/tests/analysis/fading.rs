//! What evidence leaves behind: an incident keeps what it is until it is over.

use railscope_collector::analyzer::Analyzer;

use super::cluster::{NODES, at, node, page};
use super::incidents;

const DOWNED: &str =
    "railscope_rdma_port_errors_total{device=\"mlx5_1\",port=\"1\",kind=\"link_downed\"}";

/// Classes named at each of so many scrapes, every 5 s; none where nothing is.
fn classes(pages: u64, told: impl Fn(usize, u64, String) -> String) -> Vec<String> {
    let mut analyzer = Analyzer::default();
    analyzer.set_targets(&(0..NODES).map(node).collect::<Vec<_>>());
    let mut all = Vec::new();
    for seconds in (1..=pages).map(|page| 5 * page) {
        for index in 0..NODES {
            let text = told(index, seconds, page(index, seconds));
            analyzer.ingest(&node(index), &text, at(seconds));
        }
        let named = incidents(&analyzer.tick(at(seconds)));
        let class = |line: &String| line.split(' ').next().unwrap_or_default().to_owned();
        all.extend(named.iter().map(class));
    }
    all.dedup();
    all
}

#[test]
fn a_port_that_flaps_does_until_its_link_has_held_for_the_whole_window() {
    let losses = [60, 120, 255];
    let told = |index: usize, seconds: u64, page: String| {
        let count = losses.iter().filter(|at| **at <= seconds).count();
        page + &format!("{DOWNED} {}\n", if index == 2 { count } else { 0 })
    };
    assert_eq!(classes(90, told), ["link-errors", "port-flapping"]);
}

#[test]
fn a_link_that_was_slow_does_not_become_one_with_errors_when_it_is_well_again() {
    let told = |index: usize, seconds: u64, page: String| {
        let is_slow = index == 2 && (100..160).contains(&seconds);
        // It loses its link once, when it becomes slow.
        let count = u32::from(index == 2 && seconds >= 100);
        let speed = if is_slow { 12.5e9 } else { 50e9 };
        let series = "railscope_rdma_port_speed_bytes_per_second{device=\"mlx5_1\",port=\"1\"}";
        let old = page.lines().filter(|line| !line.starts_with(series));
        let old: String = old.map(|line| format!("{line}\n")).collect();
        old + &format!("{series} {speed}\n{DOWNED} {count}\n")
    };
    assert_eq!(classes(70, told), ["port-degraded"]);
}

#[test]
fn a_pcie_link_that_is_well_again_is_no_long_way_while_its_pause_fades() {
    let told = |index: usize, seconds: u64, page: String| {
        let is_narrow = index == 2 && (100..200).contains(&seconds);
        let width =
            |lanes| format!("railscope_pcie_link_width_lanes{{pci=\"0000:11:00.0\"}} {lanes}\n");
        let page = if is_narrow {
            page.replace(&width(16), &width(8))
        } else {
            page
        };
        let paused = if index == 2 {
            0.3 * seconds.clamp(100, 200) as f64
        } else {
            0.0
        };
        page + &format!(
            "railscope_nic_info{{netdev=\"eth1\",pci=\"0000:11:00.0\",device=\"\",driver=\"mlx5_core\",numa_node=\"\"}} 1\n\
             railscope_nic_pfc_pause_seconds_total{{netdev=\"eth1\",priority=\"3\",direction=\"transmit\"}} {paused}\n"
        )
    };
    assert_eq!(classes(70, told), ["pcie-degraded"]);
}

#[test]
fn a_link_that_comes_back_slower_is_slow_at_once() {
    let told = |index: usize, seconds: u64, page: String| {
        let (is_down, is_slow) = ((100..120).contains(&seconds), (120..300).contains(&seconds));
        let (up, speed) = match (index, is_down, is_slow) {
            (2, true, _) => (0, 12.5e9),
            (2, _, true) => (1, 12.5e9),
            _ => (1, 50e9),
        };
        let series = [("up", f64::from(up)), ("speed_bytes_per_second", speed)];
        let series = series.map(|(name, value)| {
            (
                format!("railscope_rdma_port_{name}{{device=\"mlx5_1\",port=\"1\"}}"),
                value,
            )
        });
        let is_other = |line: &&str| !series.iter().any(|(name, _)| line.starts_with(name));
        let old: String = page
            .lines()
            .filter(is_other)
            .map(|line| format!("{line}\n"))
            .collect();
        let new = series
            .iter()
            .map(|(name, value)| format!("{name} {value}\n"));
        old + &new.collect::<String>()
    };
    assert_eq!(classes(50, told), ["port-down", "port-degraded"]);
}

/// A hypervisor or a storage server: no GPU, and no exporter reports RDMA ports.
#[test]
fn an_interface_of_a_node_without_gpus_that_falls_below_its_own_speed_is_slow() {
    let of = |netdev: &'static str, usual: f64, fallen: f64| {
        move |index: usize, seconds: u64, page: String| {
            if index != 3 {
                return page;
            }
            let speed = if (100..200).contains(&seconds) {
                fallen
            } else {
                usual
            };
            format!(
                "railscope_nic_carrier{{netdev=\"{netdev}\"}} 1\n\
                 railscope_nic_speed_bytes_per_second{{netdev=\"{netdev}\"}} {speed}\n"
            )
        }
    };
    assert_eq!(
        classes(70, of("ens2f0np0", 25e9, 12.5e9)),
        ["port-degraded"]
    );
    for (netdev, usual, fallen) in [
        ("ens2f0np0", 25e9, 25e9),
        ("ens2f0np0.100", 25e9, 12.5e9),
        // As fast as what is below them.
        ("vmbr0", 25e9, 12.5e9),
        ("storage0", 25e9, 12.5e9),
        // For management.
        ("eno1", 1.25e8, 1.25e7),
    ] {
        let none: [&str; 0] = [];
        assert_eq!(classes(70, of(netdev, usual, fallen)), none, "{netdev}");
    }
}
