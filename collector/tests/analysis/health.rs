//! Health reports of nodes and GPUs: each fault is named, and what all share is not.

use railscope_model::identity::Part;

use super::cluster::{NODES, RAILS};
use super::{Fault, check, of_gpus, run, with};

/// A series of one node that rises by so much a second, and is constant on all others.
pub(super) fn rises(
    series: &'static str,
    culprits: &'static [usize],
    per_second: f64,
) -> Box<Fault> {
    with(move |node, seconds| {
        let rate = if culprits.contains(&node) {
            per_second
        } else {
            0.0
        };
        format!("{series} {}\n", rate * seconds as f64)
    })
}

#[test]
fn a_gpu_that_answers_nothing_is_lost_and_holds_up_its_node() {
    let silent = |node: usize, _: u64, page: String| {
        let gone = |line: &&str| {
            node == 3
                && ["utilization_ratio", "clock_hertz", "clock_event"]
                    .iter()
                    .any(|name| line.starts_with(&format!("railscope_gpu_{name}")))
                && line.contains("gpu=\"2\"")
        };
        let left = page.lines().filter(|line| !gone(line));
        let mut page: String = left.map(|line| format!("{line}\n")).collect();
        if node == 3 {
            page += "railscope_gpu_xid_events_total{gpu=\"2\",xid=\"79\",source=\"nvml\"} 1\n";
        }
        page
    };
    check(
        &silent,
        &["gpu-lost gpu/n3:2 gpus=4 [gpu/n3:0 gpu/n3:1 gpu/n3:3]"],
    );
}

#[test]
fn a_node_whose_driver_answers_for_no_gpu_has_lost_none() {
    let silent = |node: usize, _: u64, page: String| {
        let gone = |line: &&str| {
            node == 3
                && ["utilization_ratio", "clock_hertz", "clock_event"]
                    .iter()
                    .any(|name| line.starts_with(&format!("railscope_gpu_{name}")))
        };
        let left = page.lines().filter(|line| !gone(line));
        left.map(|line| format!("{line}\n")).collect()
    };
    check(&silent, &[]);
}

#[test]
fn memory_that_waits_for_a_reset_is_named() {
    let pending = with(|node, _| {
        of_gpus(|gpu| {
            let waits = u8::from((node, gpu) == (2, 1));
            format!("railscope_gpu_row_remap_pending{{gpu=\"{gpu}\"}} {waits}\n")
        })
    });
    check(&pending, &["gpu-memory gpu/n2:1 gpus=1 []"]);
}

#[test]
fn sram_errors_above_the_threshold_are_named_and_below_it_not() {
    let exceeded = |value: u8| {
        with(move |node, _| {
            of_gpus(|gpu| {
                let exceeds = if (node, gpu) == (2, 1) { value } else { 0 };
                format!("railscope_gpu_sram_threshold_exceeded{{gpu=\"{gpu}\"}} {exceeds}\n")
            })
        })
    };
    let view = run(&exceeded(1));
    assert_eq!(super::incidents(&view), ["gpu-memory gpu/n2:1 gpus=1 []"]);
    let statement = &view.incidents[0].findings[0].evidence.statement;
    assert_eq!(
        statement,
        "GPU 1 of n2 has more uncorrected SRAM errors than NVIDIA's threshold: drain it, run the field diagnostic, and have it replaced."
    );
    check(&exceeded(0), &[]);
}

#[test]
fn a_recovery_action_is_named_with_what_the_driver_asks_for() {
    let asked = |value: f64| {
        with(move |node, _| {
            of_gpus(|gpu| {
                let action = if (node, gpu) == (2, 1) { value } else { 0.0 };
                format!("railscope_gpu_recovery_action{{gpu=\"{gpu}\"}} {action}\n")
            })
        })
    };
    for (action, class, expected) in [
        (1.0, "gpu-error", "end its processes and reset the GPU"),
        (2.0, "gpu-error", "reboot the node"),
        (3.0, "gpu-error", "peer-to-peer"),
        (4.0, "gpu-memory", "reset it when its processes have ended"),
        (6.0, "gpu-error", "recovery action 6"),
    ] {
        let view = run(&asked(action));
        let incident = format!("{class} gpu/n2:1 gpus=1 []");
        assert_eq!(super::incidents(&view), [incident]);
        let statement = &view.incidents[0].findings[0].evidence.statement;
        assert!(statement.contains(expected), "{statement}");
    }
    // None, and a value that DCGM does not have.
    for silent in [0.0, 9_223_372_036_854_775_792.0] {
        check(&asked(silent), &[]);
    }
}

#[test]
fn nvlinks_that_one_gpu_lacks_are_its_own_and_those_that_most_lack_are_the_nodes() {
    let links = |culprits: fn(usize, usize) -> bool| {
        with(move |node, _| {
            of_gpus(|gpu| {
                let active = if culprits(node, gpu) { 12 } else { 18 };
                format!("railscope_gpu_nvlinks_active{{gpu=\"{gpu}\"}} {active}\n")
            })
        })
    };
    check(
        &links(|node, gpu| (node, gpu) == (6, 0)),
        &["nvlink-down gpu/n6:0 gpus=4 [gpu/n6:1 gpu/n6:2 gpu/n6:3]"],
    );
    check(
        &links(|node, _| node == 6),
        &["nvlink-down host/n6 gpus=4 [gpu/n6:0 gpu/n6:1 gpu/n6:2 gpu/n6:3]"],
    );
    check(&links(|_, _| true), &[]);
}

/// The clock of some GPUs of a node falls to a half, for a reason.
fn held(gpus: &'static [usize], reason: &'static str) -> Box<Fault> {
    Box::new(move |node, seconds, page: String| {
        if node != 4 {
            return page;
        }
        gpus.iter().fold(page, |page, gpu| {
            let clock = format!("railscope_gpu_clock_hertz{{gpu=\"{gpu}\",clock=\"sm\"}} ");
            page.replace(&format!("{clock}1.98e9"), &format!("{clock}0.99e9"))
                + &format!(
                    "railscope_gpu_clock_event_seconds_total{{gpu=\"{gpu}\",reason=\"{reason}\"}} {seconds}\n"
                )
        })
    })
}

#[test]
fn a_brake_on_all_gpus_is_the_nodes_power_and_on_one_the_gpus_own() {
    let all = "[gpu/n4:0 gpu/n4:1 gpu/n4:2 gpu/n4:3]";
    for (gpus, reason, expected) in [
        (
            &[0, 1, 2, 3][..],
            "hw_power_brake",
            format!("host-power host/n4 gpus=4 {all}"),
        ),
        (
            &[0, 1, 2, 3],
            "sw_thermal",
            format!("host-cooling host/n4 gpus=4 {all}"),
        ),
        (
            &[1],
            "hw_power_brake",
            String::from("gpu-slow gpu/n4:1 gpus=1 []"),
        ),
    ] {
        check(&held(gpus, reason), &[&expected]);
    }
}

#[test]
fn a_capped_clock_counts_by_less_where_the_gpu_has_a_lower_limit_than_its_peers() {
    let capped = |[clock, rises]: [f64; 2], watts: f64, limits: Option<[u16; 2]>| {
        move |node: usize, seconds: u64, page: String| {
            let is_it = |gpu: usize| (node, gpu) == (4, 2);
            let power = of_gpus(|gpu| {
                let watts = if is_it(gpu) { watts } else { 650.0 };
                let limit = limits.map(|[own, other]| if is_it(gpu) { own } else { other });
                let limit = limit.map(|limit| {
                    format!("railscope_gpu_power_limit_watts{{gpu=\"{gpu}\"}} {limit}\n")
                });
                format!("railscope_gpu_power_watts{{gpu=\"{gpu}\"}} {watts}\n")
                    + &limit.unwrap_or_default()
            });
            let own = |line: &str| {
                let of = |series| line.strip_prefix(series).filter(|_| node == 4);
                let clock_of = "railscope_gpu_clock_hertz{gpu=\"2\",clock=\"sm\"}";
                let event =
                    "railscope_gpu_clock_event_seconds_total{gpu=\"2\",reason=\"sw_power_cap\"}";
                match (of(clock_of), of(event)) {
                    (Some(_), _) => format!("{clock_of} {}\n", clock + rises * seconds as f64),
                    (_, Some(_)) => format!("{event} {seconds}\n"),
                    _ => format!("{line}\n"),
                }
            };
            page.lines().map(own).collect::<String>() + &power
        }
    };
    let named: &[&str] = &["gpu-slow gpu/n4:2 gpus=1 []"];
    // Equal chips at one limit differ by as much.
    check(&capped([1.84e9, 0.0], 645.0, None), &[]);
    check(&capped([1.84e9, 0.0], 560.0, None), named);
    check(&capped([1.60e9, 0.0], 645.0, None), named);
    // Its firmware has not settled.
    let settles = super::run_from_the_start(&capped([1.0e9, 3e6], 645.0, None));
    assert_eq!(super::incidents(&settles), [""; 0]);
    // Where limits are known, they decide.
    check(&capped([1.84e9, 0.0], 560.0, Some([700, 700])), &[]);
    check(&capped([1.84e9, 0.0], 645.0, Some([600, 700])), named);
    check(&capped([1.60e9, 0.0], 645.0, Some([700, 700])), named);
}

#[test]
fn stalls_and_steal_are_named_on_the_node_that_has_more_than_others() {
    for (series, per_second, expected) in [
        (
            "railscope_host_stalls_total{numa_node=\"0\",threshold=\"1000us\"}",
            0.5,
            "host-stalls",
        ),
        (
            "railscope_cpu_steal_seconds_total{numa_node=\"0\"}",
            0.05,
            "host-steal",
        ),
    ] {
        let named = format!("{expected} host/n5 gpus=4 [gpu/n5:0 gpu/n5:1 gpu/n5:2 gpu/n5:3]");
        check(&rises(series, &[5], per_second), &[&named]);
        check(&rises(series, &[0, 1, 2, 3, 4, 5, 6, 7], per_second), &[]);
        check(&rises(series, &[5], per_second / 100.0), &[]);
    }
}

#[test]
fn steal_that_two_exporters_report_counts_once() {
    let reported_by_both = |per_second: f64| {
        with(move |node, seconds| {
            let rate = if node == 5 { per_second } else { 0.0 };
            let stolen = rate * seconds as f64;
            // node_exporter's, mapped, is of all CPUs.
            ["0", ""]
                .map(|numa_node| {
                    format!(
                        "railscope_cpu_steal_seconds_total{{numa_node=\"{numa_node}\"}} {stolen}\n"
                    )
                })
                .concat()
        })
    };
    let named: &[&str] = &["host-steal host/n5 gpus=4 [gpu/n5:0 gpu/n5:1 gpu/n5:2 gpu/n5:3]"];
    check(&reported_by_both(0.03), named);
    check(&reported_by_both(0.015), &[]);
}

#[test]
fn stalls_are_the_hypervisors_where_stolen_time_explains_them() {
    let stalls_and = |stolen: f64| {
        with(move |node, seconds| {
            let of = |rate: f64| {
                if node == 5 {
                    rate * seconds as f64
                } else {
                    0.0
                }
            };
            format!(
                "railscope_host_stalls_total{{numa_node=\"0\",threshold=\"200us\"}} {}\n\
                 railscope_cpu_steal_seconds_total{{numa_node=\"0\"}} {}\n",
                of(2.0),
                of(stolen)
            )
        })
    };
    // Too little to be reported by itself, and a negligible value.
    for (stolen, expected) in [(0.004, "host-steal"), (0.0004, "host-stalls")] {
        let named = format!("{expected} host/n5 gpus=4 [gpu/n5:0 gpu/n5:1 gpu/n5:2 gpu/n5:3]");
        check(&stalls_and(stolen), &[&named]);
    }
}

#[test]
fn storage_is_to_blame_when_many_nodes_wait_and_not_when_one_does() {
    let series = "railscope_host_pressure_seconds_total{resource=\"io\",kind=\"full\"}";
    const WAITING: &[usize] = &[1, 3, 4, 5, 6, 7];
    let view = run(&rises(series, WAITING, 0.4));
    assert_eq!(view.incidents.len(), 1);
    let incident = &view.incidents[0];
    let named = (incident.class.name, &incident.root);
    assert_eq!(named, ("storage-stall", &Part::SharedStorage));
    assert_eq!(incident.gpus_affected, WAITING.len() * RAILS);
    let is_host = |part: &&Part| matches!(part, Part::Host(_));
    let hosts = incident.victims.iter().filter(is_host).count();
    assert_eq!(hosts, WAITING.len());
    // The other half computes: one job loads or saves.
    check(&rises(series, &[1, 3, 4, 6], 0.4), &[]);
    check(&rises(series, &[1], 0.4), &[]);
    check(&rises(series, &[1, 3, 4, 6], 0.01), &[]);
}

#[test]
fn an_interface_that_is_set_up_otherwise_than_most_is_named_unless_it_is_not_on_the_fabric() {
    let mtu = |culprit: usize, device: &'static str| {
        with(move |node, _| {
            let bytes = if node == culprit { 1500 } else { 4200 };
            format!(
                "railscope_nic_info{{netdev=\"eth2\",pci=\"0000:12:00.0\",device=\"{device}\",driver=\"mlx5_core\",numa_node=\"0\"}} 1\n\
                 railscope_nic_mtu_bytes{{netdev=\"eth2\"}} {bytes}\n"
            )
        })
    };
    check(
        &mtu(3, "mlx5_2"),
        &["mtu-mismatch nic/n3:mlx5_2 gpus=1 [gpu/n3:2]"],
    );
    check(&mtu(3, ""), &[]);
    check(&mtu(NODES, "mlx5_2"), &[]);
    // An exporter that relates no interface to an RDMA device: an interface that counts pause by priority is on the fabric.
    let pauses = with(|_, _| {
        String::from(
            "railscope_nic_pfc_frames_total{netdev=\"eth2\",priority=\"3\",direction=\"receive\"} 1\n",
        )
    });
    let unrelated = mtu(3, "");
    check(
        &move |node, seconds, page| pauses(node, seconds, unrelated(node, seconds, page)),
        &["mtu-mismatch nic/n3:eth2 gpus=0 []"],
    );
}

#[test]
fn a_node_that_waits_for_its_storage_alone_is_named_and_a_job_that_loads_data_is_not() {
    const NAMED: &str = "storage-stall host/n3 gpus=4 [gpu/n3:0 gpu/n3:1 gpu/n3:2 gpu/n3:3]";
    let waits = |share: fn(usize) -> f64| {
        with(move |node, seconds| {
            let waited = share(node) * seconds as f64;
            format!(
                "railscope_host_pressure_seconds_total{{resource=\"io\",kind=\"some\"}} {waited}\n"
            )
        })
    };
    check(&waits(|node| if node == 3 { 0.3 } else { 0.01 }), &[NAMED]);
    check(&waits(|node| if node == 3 { 0.3 } else { 0.1 }), &[]);
    // A slow disk; where the others hardly wait, less is enough.
    check(&waits(|node| if node == 3 { 0.1 } else { 0.002 }), &[NAMED]);
    check(&waits(|node| if node == 3 { 0.1 } else { 0.01 }), &[]);
    check(&waits(|_| 0.3), &[]);
    // Others of its job wait for its data for a part of the time.
    let of_job = |node| [0.16, 0.16, 0.01, 0.6, 0.01][usize::min(node, 4)];
    let alike = |node| [0.25, 0.25, 0.01, 0.6, 0.01][usize::min(node, 4)];
    check(&waits(of_job), &[NAMED]);
    check(&waits(alike), &[]);
    // A job of two nodes loads a checkpoint.
    check(&waits(|node| if node < 2 { 0.3 } else { 0.0 }), &[]);
    // Its GPUs lack data, but compute; a node that loads a checkpoint does not.
    for (utilization, found) in [("0.3", true), ("0.05", false)] {
        let alone = waits(|node| if node == 3 { 0.3 } else { 0.01 });
        let starved = move |node: usize, seconds: u64, page: String| {
            let lines = alone(node, seconds, page);
            let lines = lines.lines().map(|line| match line.split_once("} ") {
                Some((series, _)) if node == 3 && series.starts_with("railscope_gpu_util") => {
                    format!("{series}}} {utilization}\n")
                }
                _ => format!("{line}\n"),
            });
            lines.collect()
        };
        check(&starved, found.then_some(NAMED).as_slice());
    }
}

/// Pause that interfaces send, as a share of the time, by node and rail.
fn pause(share: impl Fn(usize, usize) -> f64 + 'static) -> Box<Fault> {
    with(move |node, seconds| {
        of_gpus(|rail| {
            let (pci, paused) = (0x10 + rail, share(node, rail) * seconds as f64);
            format!(
                "railscope_nic_info{{netdev=\"eth{rail}\",pci=\"0000:{pci:02x}:00.0\",device=\"mlx5_{rail}\",driver=\"mlx5_core\",numa_node=\"0\"}} 1\n\
                 railscope_nic_pfc_pause_seconds_total{{netdev=\"eth{rail}\",priority=\"3\",direction=\"transmit\"}} {paused}\n\
                 railscope_nic_pfc_pause_seconds_total{{netdev=\"eth{rail}\",priority=\"3\",direction=\"receive\"}} {}\n",
                0.4 * seconds as f64
            )
        })
    })
}

/// Pause that the interface of rail 1 of node 5 sends, as a share of the time.
pub(super) fn pause_of_one(share: f64) -> Box<Fault> {
    pause(move |node, rail| if (node, rail) == (5, 1) { share } else { 0.0 })
}

/// GPUs of these rails of node 5 have no NIC on their own socket.
fn across_sockets(rails: &'static [usize], fault: Box<Fault>) -> Box<Fault> {
    Box::new(move |node, seconds, text: String| {
        let rails = rails.iter().filter(|_| node == 5);
        rails.fold(fault(node, seconds, text), |text, rail| {
            let near = format!("device=\"mlx5_{rail}\",hop=\"PIX\"");
            text.replace(&near, &near.replace("PIX", "SYS"))
        })
    })
}

#[test]
fn a_nic_is_on_the_wrong_socket_only_if_its_node_says_so_of_the_few() {
    let slow = || pause_of_one(0.3);
    let of = |class| format!("{class} pcie/n5:0000:11:00.0 gpus=1 [gpu/n5:1]");
    check(&across_sockets(&[1], slow()), &[&of("numa-affinity")]);
    check(&across_sockets(&[2], slow()), &[&of("slow-receiver")]);
    // A virtual machine that shows all NICs this way is no evidence about one of them.
    check(
        &across_sockets(&[0, 1, 2, 3, 4, 5, 6, 7], slow()),
        &[&of("slow-receiver")],
    );
}

#[test]
fn who_sends_pause_is_the_root_by_slot_by_node_or_as_a_storm_and_who_is_paused_is_not() {
    check(&pause(|_, _| 0.0), &[]);
    check(
        &pause_of_one(0.3),
        &["slow-receiver pcie/n5:0000:11:00.0 gpus=1 [gpu/n5:1]"],
    );
    check(
        &pause_of_one(1.0),
        &["pfc-storm nic/n5:mlx5_1 gpus=1 [gpu/n5:1]"],
    );
    check(&pause(|_, _| 0.3), &[]);
}

#[test]
fn a_port_that_moves_more_than_the_nodes_others_has_a_neighbor_unless_its_rail_does_everywhere() {
    let moves = |factor: fn(usize, usize) -> f64| {
        with(move |node, seconds| {
            of_gpus(|rail| {
                let bytes = 1e9 * factor(node, rail) * seconds as f64;
                ["transmit", "receive"]
                    .map(|way| {
                        format!(
                            "railscope_rdma_port_{way}_bytes_total{{device=\"mlx5_{rail}\",port=\"1\"}} {bytes}\n"
                        )
                    })
                    .concat()
            })
        })
    };
    check(
        &moves(|node, rail| if (node, rail) == (4, 3) { 1.4 } else { 1.0 }),
        &["noisy-neighbour link/n4:mlx5_3/1 gpus=1 [gpu/n4:3]"],
    );
    // Rails of uneven jobs differ by as much.
    let uneven = |node, rail| if (node, rail) == (4, 3) { 1.12 } else { 1.0 };
    check(&moves(uneven), &[]);
    check(&moves(|_, rail| if rail == 0 { 1.4 } else { 1.0 }), &[]);
    check(&moves(|node, _| if node == 4 { 1.4 } else { 1.0 }), &[]);
    // A job of three nodes, a pipeline, loads one rail more than the others by its design.
    let pipeline = moves(|node, rail| {
        if (3..6).contains(&node) && rail == 3 {
            1.4
        } else {
            1.0
        }
    });
    check(&pipeline, &[]);
    // On the other nodes the rail carries less.
    let less = |node, rail| if rail == 3 && node != 4 { 0.7 } else { 1.0 };
    check(&moves(less), &[]);
    // Two virtual machines of one host work for two jobs.
    let halves = |node, rail| if node == 4 && rail >= 2 { 1.8 } else { 1.0 };
    check(&moves(halves), &[]);
}

#[test]
fn a_port_on_which_a_job_that_stops_ends_last_has_no_neighbor() {
    let moves = with(|node, seconds| {
        of_gpus(|rail| {
            // All stop at 120 s, one rail continues for 10 s more.
            let until = if (node, rail) == (4, 3) { 130 } else { 120 };
            let bytes = 1e9 * seconds.min(until) as f64;
            let way = |way| {
                format!(
                    "railscope_rdma_port_{way}_bytes_total{{device=\"mlx5_{rail}\",port=\"1\"}} {bytes}\n"
                )
            };
            ["transmit", "receive"].map(way).concat()
        })
    });
    check(&moves, &[]);
}
