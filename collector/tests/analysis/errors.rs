//! Error counters of links, and messages without a buffer: what is named, and which part.

use railscope_collector::analyzer::Analyzer;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;

use super::cluster::{NODES, at, node, page, subnet};
use super::health::rises;
use super::{Fault, check, ever, with};

#[test]
fn errors_of_pcie_links_and_missing_buffers_are_named_by_what_makes_them() {
    check(
        &rises(
            "railscope_pcie_errors_total{pci=\"0000:12:00.0\",severity=\"correctable\"}",
            &[3],
            5.0,
        ),
        &["pcie-errors pcie/n3:0000:12:00.0 gpus=1 [gpu/n3:2]"],
    );
    let replays = |per_second| {
        rises(
            "railscope_gpu_pcie_replays_total{gpu=\"2\"}",
            &[3],
            per_second,
        )
    };
    check(&replays(0.08), &[]);
    check(
        &replays(0.2),
        &["pcie-errors pcie/n3:0000:22:00.0 gpus=1 [gpu/n3:2]"],
    );
    check(
        &rises(
            "railscope_rdma_no_buffer_total{device=\"mlx5_1\",port=\"1\"}",
            &[2],
            200.0,
        ),
        &["receiver-not-ready host/n2 gpus=4 [gpu/n2:0 gpu/n2:1 gpu/n2:2 gpu/n2:3]"],
    );
}

#[test]
fn a_pcie_link_that_trains_is_not_faulty_and_one_that_goes_on_is() {
    let replays = |lasts: u64| {
        with(move |node, seconds| {
            let seconds = if node == 3 {
                seconds.clamp(60, 60 + lasts) - 60
            } else {
                0
            };
            format!(
                "railscope_gpu_pcie_replays_total{{gpu=\"2\"}} {}\n",
                5 * seconds
            )
        })
    };
    check(&replays(4), &[]);
    check(
        &replays(60),
        &["pcie-errors pcie/n3:0000:22:00.0 gpus=1 [gpu/n3:2]"],
    );
}

/// As AMD's exporter does by default.
#[test]
fn a_gpu_without_a_known_address_is_itself_named_for_its_replays() {
    let addressed = rises("railscope_gpu_pcie_replays_total{gpu=\"2\"}", &[3], 0.2);
    let without: Box<Fault> = Box::new(move |node, seconds, page: String| {
        let page = addressed(node, seconds, page);
        page.replace(
            "uuid=\"GPU-3-2\",pci=\"0000:22:00.0\"",
            "uuid=\"GPU-3-2\",pci=\"\"",
        )
    });
    check(&without, &["pcie-errors gpu/n3:2 gpus=1 []"]);
}

#[test]
fn single_errors_of_a_link_s_integrity_are_no_fault() {
    let errors = |count: u32| {
        with(move |node, seconds| {
            let count = if node == 2 && seconds > 60 { count } else { 0 };
            let labels = "device=\"mlx5_1\",port=\"1\",kind=\"local_link_integrity_errors\"";
            format!("railscope_rdma_port_errors_total{{{labels}}} {count}\n")
        })
    };
    check(&errors(3), &[]);
    check(
        &errors(4),
        &["link-errors link/n2:mlx5_1/1 gpus=1 [gpu/n2:1]"],
    );
}

#[test]
fn missing_buffers_are_of_one_nic_where_it_has_nearly_all_of_them() {
    let missing = |of_others: f64| {
        with(move |node, seconds| {
            let count = |rail| match (node, rail) {
                (2, 1) => 200.0 * seconds as f64,
                (2, _) => of_others * seconds as f64,
                _ => 0.0,
            };
            let line = |rail| {
                let labels = format!("device=\"mlx5_{rail}\",port=\"1\"");
                format!(
                    "railscope_rdma_no_buffer_total{{{labels}}} {}\n",
                    count(rail)
                )
            };
            [0, 1, 2, 3].map(line).concat()
        })
    };
    check(
        &missing(1.0),
        &["receiver-not-ready nic/n2:mlx5_1 gpus=1 [gpu/n2:1]"],
    );
    check(
        &missing(50.0),
        &["receiver-not-ready host/n2 gpus=4 [gpu/n2:0 gpu/n2:1 gpu/n2:2 gpu/n2:3]"],
    );
}

/// Both ends of a link that loses packets count drops, and send again what the other did not receive.
#[test]
fn an_efa_device_that_drops_packets_and_retransmits_does_not_lack_buffers() {
    let dropping = |again: u64| {
        with(move |node, seconds| {
            let count = if node == 2 { 200 * seconds } else { 0 };
            let again = again * count / 100;
            format!(
                "railscope_rdma_no_buffer_total{{device=\"mlx5_1\",port=\"1\"}} {count}\n\
                 railscope_rdma_retransmits_total{{device=\"mlx5_1\",port=\"1\"}} {again}\n\
                 railscope_rdma_transport_events_total{{device=\"mlx5_1\",port=\"1\",event=\"retrans_pkts\"}} {again}\n"
            )
        })
    };
    check(
        &dropping(10),
        &["receiver-not-ready host/n2 gpus=4 [gpu/n2:0 gpu/n2:1 gpu/n2:2 gpu/n2:3]"],
    );
    check(&dropping(200), &[]);
}

#[test]
fn a_port_that_loses_its_link_twice_flaps_and_once_it_does_not() {
    let downs = |times: &'static [u64]| {
        with(move |node, seconds| {
            let count = times
                .iter()
                .filter(|at| node == 2 && seconds >= **at)
                .count();
            format!(
                "railscope_rdma_port_errors_total{{device=\"mlx5_1\",port=\"1\",kind=\"link_downed\"}} {count}\n"
            )
        })
    };
    check(
        &downs(&[80, 110]),
        &["port-flapping link/n2:mlx5_1/1 gpus=1 [gpu/n2:1]"],
    );
    check(
        &downs(&[80]),
        &["link-errors link/n2:mlx5_1/1 gpus=1 [gpu/n2:1]"],
    );
}

#[test]
fn a_link_that_goes_down_to_train_to_another_speed_does_not_flap() {
    let trained = |to: &'static str| {
        move |node: usize, seconds: u64, page: String| {
            let count = [80, 110]
                .iter()
                .filter(|at| node == 2 && seconds >= **at)
                .count();
            let series = "railscope_rdma_port_speed_bytes_per_second{device=\"mlx5_1\",port=\"1\"}";
            let page = if count == 1 {
                page.replace(&format!("{series} 5e10"), &format!("{series} {to}"))
            } else {
                page
            };
            page + &format!(
                "railscope_rdma_port_errors_total{{device=\"mlx5_1\",port=\"1\",kind=\"link_downed\"}} {count}\n"
            )
        }
    };
    let flaps = |to| {
        let named = ever(&trained(to));
        named.iter().any(|line| line.contains("port-flapping"))
    };
    assert!(!flaps("2.5e10"));
    assert!(flaps("5e10"));
}

#[test]
fn a_link_that_changes_its_speed_each_time_it_goes_down_flaps() {
    let bad = |node: usize, seconds: u64, page: String| {
        let times = [70, 85, 100, 115];
        let count = times
            .iter()
            .filter(|at| node == 2 && seconds >= **at)
            .count();
        let series = "railscope_rdma_port_speed_bytes_per_second{device=\"mlx5_1\",port=\"1\"}";
        let page = if count % 2 == 1 {
            page.replace(&format!("{series} 5e10"), &format!("{series} 2.5e10"))
        } else {
            page
        };
        page + &format!(
            "railscope_rdma_port_errors_total{{device=\"mlx5_1\",port=\"1\",kind=\"link_downed\"}} {count}\n"
        )
    };
    let named = ever(&bad);
    assert!(
        named.iter().any(|line| line.contains("port-flapping")),
        "{named:?}"
    );
}

#[test]
fn links_of_one_switch_that_flap_together_are_its_fault_and_one_after_another_their_own() {
    let found = |times: [[u64; 2]; 4], down: u64| {
        let mut analyzer = Analyzer::default();
        let mut view = analyzer.tick(at(0));
        for seconds in (5..=180).step_by(5) {
            let plan = |_, rail| Some(rail);
            analyzer.take_subnet(parse_ibnetdiscover(&subnet(&plan)), at(seconds));
            for index in 0..NODES {
                let downs = times.get(index).into_iter().flatten();
                let count = downs.filter(|at| seconds >= **at).count();
                let labels = "device=\"mlx5_1\",port=\"1\",kind=\"link_downed\"";
                let line = format!("railscope_rdma_port_errors_total{{{labels}}} {count}\n");
                let up = r#"railscope_rdma_port_up{device="mlx5_1",port="1"} 1"#;
                let is_down = index < times.len() && seconds >= down;
                let state = if is_down {
                    up.replace("} 1", "} 0")
                } else {
                    up.to_owned()
                };
                let text = page(index, seconds).replace(up, &state) + &line;
                analyzer.ingest(&node(index), &text, at(seconds));
            }
            view = analyzer.tick(at(seconds));
        }
        let incidents = view.incidents.iter();
        let found = incidents.map(|own| format!("{} {}", own.class.name, own.root));
        found.collect::<Vec<_>>()
    };
    let switch = ["switch-down switch/leaf-1"];
    let never = u64::MAX;
    assert_eq!(found([[80, 100]; 4], never), switch);
    assert_eq!(
        found([[60, 70], [90, 100], [120, 130], [150, 160]], never),
        switch
    );
    let own = [0, 1, 2, 3].map(|node| format!("port-flapping link/n{node}:mlx5_1/1"));
    let apart = [[10, 15], [20, 25], [150, 155], [165, 170]];
    assert_eq!(found(apart, never), own);
    // What is down now is so with its switch, whatever it was before.
    assert_eq!(found(apart, 170), switch);
}
