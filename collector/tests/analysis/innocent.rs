//! What looks like a fault but is not: GPUs that compute while others wait, jobs that begin under a lower power limit,
//! single stalls; and one cause that would be several incidents.

use std::collections::BTreeSet;

use railscope_collector::analyzer::Analyzer;
use railscope_collector::classes::Severity;

use super::cluster::{NODES, at, node, page};
use super::hosts::in_jobs;
use super::{check, ever, incidents, of_gpus, run, run_from_the_start, views};

/// What a GPU reports: utilization, clock in MHz, power in watts and whether its power limit holds its clock.
pub(super) struct Reported {
    pub(super) utilization: f64,
    pub(super) megahertz: f64,
    pub(super) watts: f64,
    pub(super) is_capped: bool,
}

/// A node's exposition with these values of its GPUs.
pub(super) fn reporting(page: &str, seconds: u64, gpus: impl Fn(usize) -> Reported) -> String {
    let of = |line: &&str| {
        ["utilization_ratio", "clock_hertz", "clock_event_seconds"]
            .iter()
            .any(|name| line.starts_with(&format!("railscope_gpu_{name}")))
    };
    let kept: String = page
        .lines()
        .filter(|line| !of(line))
        .map(|line| format!("{line}\n"))
        .collect();
    kept + &of_gpus(|gpu| {
        let own = gpus(gpu);
        let event = if own.is_capped { seconds } else { 0 };
        format!(
            "railscope_gpu_utilization_ratio{{gpu=\"{gpu}\"}} {}\n\
             railscope_gpu_clock_hertz{{gpu=\"{gpu}\",clock=\"sm\"}} {}\n\
             railscope_gpu_power_watts{{gpu=\"{gpu}\"}} {}\n\
             railscope_gpu_clock_event_seconds_total{{gpu=\"{gpu}\",reason=\"sw_power_cap\"}} {event}\n",
            own.utilization,
            own.megahertz * 1e6,
            own.watts,
        )
    })
}

/// The exposition with this power limit of all GPUs, W.
fn with_limit(page: &str, watts: &str) -> String {
    page.to_owned()
        + &of_gpus(|gpu| format!("railscope_gpu_power_limit_watts{{gpu=\"{gpu}\"}} {watts}\n"))
}

#[test]
fn a_gpu_that_computes_at_its_power_limit_while_others_wait_is_not_slow() {
    let others_draw = |watts: f64, megahertz: f64| {
        move |index: usize, seconds: u64, page: String| {
            reporting(&page, seconds, |gpu| {
                let is_it = (index, gpu) == (4, 2);
                Reported {
                    utilization: 1.0,
                    megahertz: if is_it { 1600.0 } else { megahertz },
                    watts: if is_it { 650.0 } else { watts },
                    is_capped: is_it,
                }
            })
        }
    };
    let run = |watts, megahertz| incidents(&run_from_the_start(&others_draw(watts, megahertz)));
    assert_eq!(run(170.0, 1980.0), [""; 0]);
    assert_eq!(run(450.0, 1980.0), [""; 0]);
    let slow = ["gpu-slow gpu/n4:2 gpus=1 []"];
    assert_eq!(run(600.0, 1980.0), slow);
    // Memory that is active for longer shows heavier work, whatever the clock of the SMs.
    let with_memory = |own: f64| {
        let faulty = others_draw(600.0, 1980.0);
        move |index: usize, seconds: u64, page: String| {
            let memory = of_gpus(|gpu| {
                let active = if (index, gpu) == (4, 2) { own } else { 0.4 };
                format!("railscope_gpu_dram_bandwidth_ratio{{gpu=\"{gpu}\"}} {active}\n")
            });
            faulty(index, seconds, page) + &memory
        }
    };
    let run = |own: f64| incidents(&run_from_the_start(&with_memory(own)));
    assert_eq!(run(0.4), slow);
    assert_eq!(run(0.5), [""; 0]);
}

/// A site lowers the limits of all GPUs: those of one job reach it now, those of another draw less all the time.
#[test]
fn gpus_at_a_limit_that_the_work_of_others_does_not_reach_are_not_slow() {
    let lowered = 100;
    let capped = move |index: usize, seconds: u64, page: String| {
        // The second half of the nodes is scraped before the limits are lowered, once.
        let is_lowered = seconds >= lowered + if index < 4 { 0 } else { 5 };
        let works = index < 3;
        let waits = |gpu: usize| (seconds / 5 + gpu as u64).is_multiple_of(5);
        let text = reporting(&page, seconds, |gpu| Reported {
            utilization: if works { 1.0 } else { 0.7 },
            megahertz: if works && is_lowered && !waits(gpu) {
                1600.0
            } else {
                1980.0
            },
            watts: match (works, is_lowered) {
                (true, true) => 440.0 - 70.0 * f64::from(u8::from(waits(gpu))),
                (true, false) => 640.0,
                _ => 245.0,
            },
            is_capped: works,
        });
        with_limit(&text, if is_lowered { "450" } else { "700" })
    };
    assert_eq!(ever(&capped), BTreeSet::new());
}

/// Of a node that loads data, only some GPUs count as busy at a time. Of its power limit that is one mistake, and with another such
/// node the site's choice, though that one idles.
#[test]
fn a_node_s_lower_power_limit_is_one_fault_and_that_of_several_none() {
    let lowered = |nodes: std::ops::Range<usize>| {
        move |index: usize, seconds: u64, page: String| {
            let is_lowered = nodes.contains(&index);
            let text = reporting(&page, seconds, |gpu| Reported {
                utilization: match (is_lowered, index == 4 && gpu < 2) {
                    (true, false) => 0.48,
                    _ => 0.52,
                },
                megahertz: if is_lowered { 1700.0 } else { 1965.0 },
                watts: 245.0,
                is_capped: is_lowered,
            });
            with_limit(&text, if is_lowered { "460" } else { "700" })
        }
    };
    let node = "power-limit host/n4 gpus=4 [gpu/n4:0 gpu/n4:1 gpu/n4:2 gpu/n4:3]";
    assert_eq!(ever(&lowered(4..5)), BTreeSet::from([node.to_owned()]));
    assert_eq!(ever(&lowered(4..6)), BTreeSet::new());
}

/// A node does heavier work than the others within the same power limit, and no exporter shows which job that is.
#[test]
fn all_gpus_of_a_node_at_a_lower_clock_within_the_same_power_limit_do_heavier_work() {
    let lower = |slow: fn(usize, usize) -> bool| {
        let works = move |index: usize, seconds: u64, page: String| {
            let text = reporting(&page, seconds, |gpu| Reported {
                utilization: 1.0,
                megahertz: if slow(index, gpu) { 1500.0 } else { 1850.0 },
                watts: 690.0,
                is_capped: true,
            });
            with_limit(&text, "700")
        };
        incidents(&run_from_the_start(&works))
    };
    assert_eq!(lower(|node, _| node == 1), [""; 0]);
    let one = lower(|node, gpu| (node, gpu) == (4, 2));
    assert_eq!(one, ["gpu-slow gpu/n4:2 gpus=1 []"]);
}

/// GPUs that serve requests are at their limit in bursts, draw less on average than those that train, and differ.
#[test]
fn a_gpu_that_serves_requests_is_not_slow_when_a_burst_lowers_its_clock() {
    for (megahertz, limit) in [(1755.0, ""), (1600.0, "700")] {
        let serves = move |index: usize, seconds: u64, page: String| {
            let text = reporting(&page, seconds, |gpu| {
                let is_it = (index, gpu) == (4, 2) && !(seconds / 5).is_multiple_of(3);
                Reported {
                    utilization: if index == 4 { 0.55 } else { 1.0 },
                    megahertz: if is_it { megahertz } else { 1980.0 },
                    watts: if index == 4 { 250.0 } else { 690.0 },
                    is_capped: is_it,
                }
            });
            if limit.is_empty() {
                text
            } else {
                with_limit(&text, limit)
            }
        };
        assert_eq!(incidents(&run_from_the_start(&serves)), [""; 0]);
    }
}

/// A site lowers the power limits of all GPUs for a while, and a job begins then: what others drew before is no measure.
#[test]
fn a_gpu_whose_job_began_under_a_lower_limit_is_not_slow() {
    let (lowered, began) = (105, 110);
    let begins_late = move |index: usize, seconds: u64, page: String| {
        reporting(&page, seconds, |gpu| {
            let is_idle = index == 4 && seconds < began;
            let is_capped = !is_idle && seconds >= lowered;
            let slowest = if (index, gpu) == (4, 2) { 105.0 } else { 0.0 };
            Reported {
                utilization: if is_idle { 0.1 } else { 1.0 },
                megahertz: if is_capped { 1815.0 - slowest } else { 1950.0 },
                watts: match (is_idle, is_capped) {
                    (true, _) => 100.0,
                    (_, true) => 540.0,
                    _ => 690.0,
                },
                is_capped,
            }
        })
    };
    assert_eq!(incidents(&run_from_the_start(&begins_late)), [""; 0]);
}

/// A site lowers the limits of all GPUs: one is read while the new limit throttles it in its step, the others are not.
#[test]
fn power_drawn_under_the_old_limit_accuses_nobody_under_the_new_one() {
    let lowered = 100;
    let capped = move |index: usize, seconds: u64, page: String| {
        let is_lowered = seconds >= lowered;
        let text = reporting(&page, seconds, |gpu| {
            let is_read_at_the_limit =
                (index, gpu) == (4, 2) && (lowered..lowered + 10).contains(&seconds);
            Reported {
                utilization: 1.0,
                megahertz: if is_read_at_the_limit { 1530.0 } else { 1890.0 },
                watts: if is_lowered { 385.0 } else { 530.0 },
                is_capped: true,
            }
        });
        with_limit(&text, if is_lowered { "434" } else { "700" })
    };
    assert_eq!(ever(&capped), BTreeSet::new());
}

/// Where no limits are known, the power that another job draws is no measure of a GPU's limit.
#[test]
fn a_gpu_whose_job_draws_less_than_others_is_not_limited() {
    let draws = |index: usize, seconds: u64, page: String| {
        reporting(&page, seconds, |gpu| {
            let is_it = (index, gpu) == (7, 2);
            Reported {
                utilization: 1.0,
                megahertz: if is_it { 1830.0 } else { 1980.0 },
                watts: match (index < 6, is_it) {
                    (true, _) => 585.0,
                    (_, true) => 520.0,
                    _ => 530.0,
                },
                is_capped: true,
            }
        })
    };
    assert_eq!(ever(&in_jobs(Box::new(draws))), BTreeSet::new());
}

#[test]
fn a_single_stall_in_the_first_seconds_is_no_rate() {
    let named_after =
        |stalls: u64| {
            let mut analyzer = Analyzer::default();
            analyzer.set_targets(&(0..NODES).map(node).collect::<Vec<_>>());
            let ticks = (0..=20).step_by(5).flat_map(|seconds| {
            for index in 0..NODES {
                let count = if index == 5 && seconds >= 5 { stalls } else { 0 };
                let line = format!(
                    "railscope_host_stalls_total{{numa_node=\"0\",threshold=\"1000us\"}} {count}\n"
                );
                analyzer.ingest(&node(index), &(page(index, seconds) + &line), at(seconds));
            }
            incidents(&analyzer.tick(at(seconds)))
        });
            ticks.collect::<Vec<_>>()
        };
    assert_eq!(named_after(5), [""; 0]);
    assert!(named_after(6)[0].starts_with("host-stalls host/n5"));
}

/// The tensor cores of a rank that has more to do are active for longer, as those of a slow GPU are.
#[test]
fn more_tensor_activity_at_the_same_clock_pages_nobody() {
    let more = |index: usize, _: u64, page: String| {
        page + &of_gpus(|gpu| {
            let percent = if (index, gpu) == (1, 2) { 0.5 } else { 0.4 };
            format!("railscope_gpu_tensor_active_ratio{{gpu=\"{gpu}\"}} {percent}\n")
        })
    };
    check(&more, &["gpu-slow gpu/n1:2 gpus=1 []"]);
    assert_eq!(run(&more).incidents[0].severity, Severity::Warning);
}

/// When so many ports of node 1 that are down from second 120 `until` another are reported, where the node's GPUs compute or not
/// and its ports carry so many bytes a second.
fn reported_at((utilization, bytes): (f64, u64), down: usize, until: u64) -> Option<u64> {
    let mut analyzer = Analyzer::default();
    analyzer.set_targets(&(0..NODES).map(node).collect::<Vec<_>>());
    (5..=600).step_by(5).find(|seconds| {
        for index in 0..NODES {
            let mut text = page(index, *seconds);
            if index == 1 {
                let idle = |gpu| format!("railscope_gpu_utilization_ratio{{gpu=\"{gpu}\"}} ");
                for gpu in 0..4 {
                    text =
                        text.replace(&(idle(gpu) + "1"), &(idle(gpu) + &utilization.to_string()));
                }
                for rail in 0..down {
                    let labels = format!("device=\"mlx5_{rail}\",port=\"1\"");
                    if (120..until).contains(seconds) {
                        let up = |up| format!("railscope_rdma_port_up{{{labels}}} {up}\n");
                        text = text.replace(&up(1), &up(0));
                    }
                    for way in ["transmit", "receive"] {
                        let bytes = bytes * *seconds;
                        text +=
                            &format!("railscope_rdma_port_{way}_bytes_total{{{labels}}} {bytes}\n");
                    }
                }
            }
            analyzer.ingest(&node(index), &text, at(*seconds));
        }
        !analyzer.tick(at(*seconds)).incidents.is_empty()
    })
}

#[test]
fn a_cable_of_an_idle_node_may_be_reseated_for_two_minutes() {
    for ports in [1, 4] {
        assert_eq!(reported_at((0.0, 10), ports, 240), None, "{ports}");
        assert_eq!(reported_at((0.0, 10), ports, 600), Some(240), "{ports}");
        for busy in [(1.0, 10), (0.0, 1_000_000_000)] {
            assert_eq!(reported_at(busy, ports, 600), Some(125), "{busy:?} {ports}");
        }
    }
}

/// Another process that a GPU runs makes its SMs work for longer, and holds memory.
#[test]
fn a_gpu_that_holds_more_memory_may_be_shared_and_pages_nobody() {
    let shared = |gigabytes: u32| {
        move |index: usize, _: u64, page: String| {
            page + &of_gpus(|gpu| {
                let is_it = (index, gpu) == (1, 2);
                let sm = if is_it { 0.9 } else { 0.8 };
                let used = 60 + if is_it { gigabytes } else { 0 };
                format!(
                    "railscope_gpu_tensor_active_ratio{{gpu=\"{gpu}\"}} 0.4\n\
                     railscope_gpu_sm_active_ratio{{gpu=\"{gpu}\"}} {sm}\n\
                     railscope_gpu_memory_used_bytes{{gpu=\"{gpu}\"}} {used}e9\n"
                )
            })
        }
    };
    for (gigabytes, severity) in [(0, Severity::Critical), (5, Severity::Warning)] {
        let view = run_from_the_start(&shared(gigabytes));
        let found = view
            .incidents
            .iter()
            .map(|one| (one.root.to_string(), one.severity));
        assert_eq!(
            found.collect::<Vec<_>>(),
            [("gpu/n1:2".to_owned(), severity)]
        );
    }
}

/// All power limits of a site end at once, and each node is read at another time.
#[test]
fn one_old_sample_of_a_clock_is_no_slow_gpu_and_two_are() {
    let mut analyzer = Analyzer::default();
    analyzer.set_targets(&(0..NODES).map(node).collect::<Vec<_>>());
    let mut critical = |seconds: u64, is_slow: bool| {
        for index in 0..NODES {
            // One node is read every 15 s.
            if index == 1 && !seconds.is_multiple_of(15) {
                continue;
            }
            let text = reporting(&page(index, seconds), seconds, |gpu| Reported {
                utilization: 1.0,
                megahertz: if (index, gpu) == (1, 2) && is_slow {
                    1700.0
                } else {
                    1980.0
                },
                watts: 600.0,
                is_capped: false,
            });
            let events = "railscope_gpu_clock_event_seconds_total";
            let text = text.lines().filter(|line| !line.starts_with(events));
            let mut text: String = text.map(|line| format!("{line}\n")).collect();
            let active = i32::from(index == 1 && is_slow);
            text += &format!(
                "railscope_gpu_clock_event_active{{gpu=\"2\",reason=\"hw_slowdown\"}} {active}\n"
            );
            analyzer.ingest(&node(index), &text, at(seconds));
        }
        analyzer.tick(at(seconds)).incidents.len()
    };
    for seconds in (5..=600).step_by(5) {
        let is_slow = (120..135).contains(&seconds);
        assert_eq!(critical(seconds, is_slow), 0, "{seconds}");
    }
    let first = (605..=720)
        .step_by(5)
        .find(|seconds| critical(*seconds, true) > 0);
    assert_eq!(first, Some(635));
}

/// The port of rail 0 of node 4 is down from second 100 to 450, and rail 3 carries its bytes, too.
#[test]
fn a_port_that_carries_the_bytes_of_one_that_is_down_has_no_neighbor() {
    let fault = |index: usize, seconds: u64, page: String| {
        let is_it = index == 4;
        let before = seconds.min(100) as f64;
        let after = seconds as f64 - before;
        let bytes = of_gpus(|rail| {
            let share = match rail {
                0 if is_it => 0.0,
                3 if is_it => 2.0,
                _ => 1.0,
            };
            let bytes = 1e9 * (before + share * after);
            let way = |way| {
                format!(
                    "railscope_rdma_port_{way}_bytes_total{{device=\"mlx5_{rail}\",port=\"1\"}} {bytes}\n"
                )
            };
            ["transmit", "receive"].map(way).concat()
        });
        let up = |up| format!("railscope_rdma_port_up{{device=\"mlx5_0\",port=\"1\"}} {up}\n");
        let is_down = is_it && seconds > 100;
        let page = if is_down {
            page.replace(&up(1), &up(0))
        } else {
            page
        };
        page + &bytes
    };
    // For longer than the history lasts.
    for view in views((15, 0), &fault) {
        let found = incidents(&view);
        assert!(
            found
                .iter()
                .all(|one| one.starts_with("port-down link/n4:mlx5_0/1")),
            "{found:?}"
        );
    }
}

/// GPU 2 of node 1 is idle until second 100, and its clock rises within the first samples of its job.
#[test]
fn a_gpu_whose_clock_was_low_while_it_was_idle_is_not_slow() {
    let fault = |lowest: f64| {
        move |index: usize, seconds: u64, page: String| {
            reporting(&page, seconds, |gpu| {
                let is_it = (index, gpu) == (1, 2);
                Reported {
                    utilization: if is_it && seconds < 100 { 0.0 } else { 1.0 },
                    megahertz: match seconds {
                        ..100 if is_it => 345.0,
                        100..115 if is_it => 1200.0,
                        _ if is_it => lowest,
                        _ => 1980.0,
                    },
                    watts: 600.0,
                    is_capped: false,
                }
            })
        }
    };
    let found = |lowest| !ever(&fault(lowest)).is_empty();
    assert!(!found(1980.0));
    assert!(found(1200.0));
}
