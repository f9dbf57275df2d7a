//! What the hardware of nodes reports, and what is normal for such boards.

mod lone_worker;
mod low_clocks;

use std::collections::BTreeSet;

use railscope_collector::analyzer::Analyzer;

use super::cluster::{NODES, at, node, page};
use super::innocent::{Reported, reporting};
use super::{Fault, check, incidents, run_from_the_start, with};

const NAMED: &[&str] = &["host-hardware host/n3 gpus=4 [gpu/n3:0 gpu/n3:1 gpu/n3:2 gpu/n3:3]"];

/// The state of a fan by node and second.
fn fan(state: fn(usize, u64) -> u32) -> Box<Fault> {
    with(move |node, seconds| {
        format!(
            "railscope_sensor_info{{chip=\"c\",sensor=\"fan1\",driver=\"nct6775\",label=\"FAN1\"}} 1\n\
             railscope_sensor_alarm{{chip=\"c\",sensor=\"fan1\",kind=\"fan\"}} {}\n",
            state(node, seconds)
        )
    })
}

#[test]
fn a_fan_in_a_critical_state_is_named_unless_it_is_so_everywhere() {
    check(
        &fan(|node, _| if node == 3 { 2 } else { 0 }),
        &["host-cooling host/n3 gpus=4 [gpu/n3:0 gpu/n3:1 gpu/n3:2 gpu/n3:3]"],
    );
    check(&fan(|node, _| u32::from(node == 3)), &[]);
    check(&fan(|_, _| 2), &[]);
    check(&fan(|node, _| if node < NODES / 2 { 2 } else { 0 }), &[]);
    // It is intermittent.
    check(
        &fan(|node, seconds| if node == 3 && seconds % 20 < 10 { 2 } else { 0 }),
        &[],
    );
}

/// A counter by node, so many a second.
fn counts(series: &'static str, per_second: fn(usize) -> f64) -> Box<Fault> {
    with(move |node, seconds| {
        let count = (per_second(node) * seconds as f64).floor();
        format!("{series} {count}\n")
    })
}

#[test]
fn errors_of_memory_and_slowdowns_by_heat_are_named_if_others_have_none() {
    const UNCORRECTED: &str =
        "railscope_memory_errors_total{controller=\"mc0\",severity=\"uncorrected\"}";
    const CORRECTED: &str =
        "railscope_memory_errors_total{controller=\"mc0\",severity=\"corrected\"}";
    const THROTTLES: &str = "railscope_cpu_throttles_total{kind=\"package\"}";
    check(
        &counts(UNCORRECTED, |node| if node == 3 { 0.02 } else { 0.0 }),
        NAMED,
    );
    check(
        &counts(CORRECTED, |node| if node == 3 { 0.5 } else { 0.0 }),
        NAMED,
    );
    check(
        &counts(CORRECTED, |node| if node == 3 { 0.02 } else { 0.0 }),
        &[],
    );
    check(
        &counts(THROTTLES, |node| if node == 3 { 0.5 } else { 0.0 }),
        NAMED,
    );
    // A short peak of heat, counted by both packages.
    check(
        &counts(THROTTLES, |node| if node == 3 { 0.02 } else { 0.0 }),
        &[],
    );
    // The room is hot.
    check(&counts(THROTTLES, |_| 0.5), &[]);
}

#[test]
fn a_node_of_which_even_the_fastest_cpu_is_slow_is_named() {
    // GPUs of node 3 from this one on are idle.
    let fastest = |hertz: fn(usize) -> f64, idle_from: usize| -> Box<Fault> {
        Box::new(move |node, _, page: String| {
            let lines = page.lines().map(|line| {
                let mut idle = (idle_from..super::RAILS)
                    .map(|gpu| format!("railscope_gpu_utilization_ratio{{gpu=\"{gpu}\"}}"));
                let is_idle = node == 3 && idle.any(|series| line.starts_with(&series));
                match line.strip_suffix(" 1").filter(|_| is_idle) {
                    Some(series) => format!("{series} 0\n"),
                    None => format!("{line}\n"),
                }
            });
            lines.collect::<String>()
                + &format!(
                    "railscope_cpu_frequency_hertz{{statistic=\"min\"}} 8e8\n\
                     railscope_cpu_frequency_hertz{{statistic=\"max\"}} {}\n",
                    hertz(node)
                )
        })
    };
    let slow = |node| if node == 3 { 1.2e9 } else { 3.5e9 };
    check(&fastest(slow, 4), NAMED);
    check(&fastest(slow, 2), NAMED);
    // A notebook.
    check(&fastest(slow, 1), &[]);
    check(&fastest(slow, 0), &[]);
    // Another model of host.
    let other = |node| if node == 3 { 2.5e9 } else { 3.5e9 };
    check(&fastest(other, 4), &[]);
}

/// CPUs are slow as soon as a job has ended, and until one has begun; scrapes report GPUs sooner or later than CPUs.
#[test]
fn cpus_of_a_node_between_two_jobs_are_not_compared() {
    let between = (100..160).step_by(10);
    let mut analyzer = Analyzer::default();
    analyzer.set_targets(&(0..NODES).map(node).collect::<Vec<_>>());
    for seconds in (0..240).step_by(10) {
        for index in 0..NODES {
            let is_idle = |lag: u64| index == 3 && between.clone().any(|at| at + lag == seconds);
            let hertz = if is_idle(0) { 2e9 } else { 3.5e9 };
            let mut text = page(index, seconds);
            if is_idle(10) || is_idle(0) && seconds > 100 {
                text = text.replace("railscope_gpu_utilization_ratio", "# ");
                text += &super::of_gpus(|gpu| {
                    format!("railscope_gpu_utilization_ratio{{gpu=\"{gpu}\"}} 0\n")
                });
            }
            text += &format!("railscope_cpu_frequency_hertz{{statistic=\"max\"}} {hertz}\n");
            analyzer.ingest(&node(index), &text, at(seconds));
        }
        let named = incidents(&analyzer.tick(at(seconds)));
        assert_eq!(named, Vec::<String>::new(), "{seconds} s");
    }
}

/// Temperature of each GPU by node and GPU; all draw 500 W, but for GPU 2 of node 3.
fn heat(celsius: impl Fn(usize, usize) -> f64 + 'static, watts_of_one: f64) -> Box<Fault> {
    with(move |node, _| {
        super::of_gpus(|gpu| {
            let watts = if (node, gpu) == (3, 2) {
                watts_of_one
            } else {
                500.0
            };
            format!(
                "railscope_gpu_temperature_celsius{{gpu=\"{gpu}\",sensor=\"gpu\"}} {}\n\
                 railscope_gpu_power_watts{{gpu=\"{gpu}\"}} {watts}\n",
                celsius(node, gpu)
            )
        })
    })
}

/// GPUs at the end of the air are warmer everywhere.
fn usual(gpu: usize) -> f64 {
    55.0 + 5.0 * gpu as f64
}

#[test]
fn a_gpu_hotter_than_others_at_its_place_is_named_unless_it_draws_more_or_its_node_is_hot() {
    let named = ["gpu-thermal gpu/n3:2 gpus=1 []"];
    let by = |kelvin: f64, node, gpu| usual(gpu) + if (node, gpu) == (3, 2) { kelvin } else { 0.0 };
    check(&heat(|_, gpu| usual(gpu), 500.0), &[]);
    check(&heat(move |node, gpu| by(18.0, node, gpu), 500.0), &named);
    check(&heat(move |node, gpu| by(12.0, node, gpu), 500.0), &[]);
    // It works harder than all others.
    check(&heat(move |node, gpu| by(18.0, node, gpu), 620.0), &[]);
    check(
        &heat(
            |node, gpu| usual(gpu) + if node == 3 { 18.0 } else { 0.0 },
            500.0,
        ),
        &[],
    );
}

/// All GPUs of node 3 run at this clock, MHz, by so many kelvins hotter than those of other nodes, and draw so many watts; others
/// draw 500 W at 1980 MHz.
fn node_at(megahertz: f64, kelvin: f64, watts: f64) -> Box<Fault> {
    Box::new(move |node, seconds, page| {
        let is_it = node == 3;
        let page = reporting(&page, seconds, |_| Reported {
            utilization: 1.0,
            megahertz: if is_it { megahertz } else { 1980.0 },
            watts: if is_it { watts } else { 500.0 },
            is_capped: false,
        });
        let kelvin = if is_it { kelvin } else { 0.0 };
        let sensor = |gpu| {
            let celsius = usual(gpu) + kelvin;
            format!("railscope_gpu_temperature_celsius{{gpu=\"{gpu}\",sensor=\"gpu\"}} {celsius}\n")
        };
        page + &super::of_gpus(sensor)
    })
}

#[test]
fn a_node_whose_gpus_are_slower_hotter_and_draw_less_than_those_of_others_is_cooled_too_little() {
    let named = ["host-cooling host/n3 gpus=4 [gpu/n3:0 gpu/n3:1 gpu/n3:2 gpu/n3:3]"];
    check(&node_at(1200.0, 25.0, 300.0), &named);
    // Lighter work or a locked clock, heavier work, a warm place.
    check(&node_at(1200.0, 5.0, 300.0), &[]);
    check(&node_at(1200.0, 25.0, 600.0), &[]);
    check(&node_at(1900.0, 25.0, 300.0), &[]);
}

#[test]
fn a_gpu_that_becomes_hotter_than_the_others_of_its_node_is_named_unless_they_do_or_it_draws_more()
{
    let rise = |[of_it, of_others]: [f64; 2], watts: f64| {
        with(move |node, seconds| {
            super::of_gpus(|gpu| {
                let (by, watts) = match (node == 3 && seconds > 100, gpu) {
                    (true, 2) => (of_it, watts),
                    (true, _) => (of_others, 500.0),
                    _ => (0.0, 500.0),
                };
                format!(
                    "railscope_gpu_temperature_celsius{{gpu=\"{gpu}\",sensor=\"gpu\"}} {}\n\
                     railscope_gpu_power_watts{{gpu=\"{gpu}\"}} {watts}\n",
                    usual(gpu) + by
                )
            })
        })
    };
    let check = |fault: &Fault, expected: &[&str]| {
        assert_eq!(incidents(&run_from_the_start(fault)), expected);
    };
    check(
        &rise([9.0, 0.0], 500.0),
        &["gpu-thermal gpu/n3:2 gpus=1 []"],
    );
    check(&rise([9.0, 8.0], 500.0), &[]);
    check(&rise([4.0, 0.0], 500.0), &[]);
    check(&rise([9.0, 0.0], 620.0), &[]);
    // It works alone since 100 s and warms up for some minutes.
    let alone = with(|node, seconds| {
        super::of_gpus(|gpu| {
            let (celsius, watts) = match (node, gpu) {
                (3, 2) if seconds > 100 => {
                    let warm = 1.0 - (-(seconds as f64 - 100.0) / 60.0).exp();
                    (usual(gpu) + 16.0 * warm, 220.0)
                }
                (3, _) => (usual(gpu), 50.0),
                _ => (usual(gpu), 500.0),
            };
            format!(
                "railscope_gpu_temperature_celsius{{gpu=\"{gpu}\",sensor=\"gpu\"}} {celsius}\n\
                 railscope_gpu_power_watts{{gpu=\"{gpu}\"}} {watts}\n"
            )
        })
    });
    let views = super::views((10, 0), &alone);
    let found: BTreeSet<_> = views.flat_map(|view| incidents(&view)).collect();
    assert_eq!(found, BTreeSet::new());
    // Two samples of the power do not show the load.
    for (kelvin, named) in [(9.0, 0), (14.0, 1)] {
        let fault = rise([kelvin, 0.0], 500.0);
        let views = super::views((30, 0), &fault);
        let found: BTreeSet<_> = views.flat_map(|view| incidents(&view)).collect();
        assert_eq!(found.len(), named, "{kelvin} K: {found:?}");
    }
}

#[test]
fn a_gpu_that_was_slowed_and_warms_up_again_is_not_named_unless_it_becomes_hotter_than_it_was() {
    // It is 12 K hotter than others, then slowed, and so hot again minutes after it draws its power again.
    let slowed = |at_last: f64| {
        with(move |node, seconds| {
            super::of_gpus(|gpu| {
                let is_it = (node, gpu) == (3, 2);
                let (by, watts) = match seconds {
                    40..65 if is_it => (0.0, 300.0),
                    65..290 if is_it => (0.0, 500.0),
                    290.. if is_it => (at_last, 500.0),
                    _ if is_it => (12.0, 500.0),
                    _ => (0.0, 500.0),
                };
                format!(
                    "railscope_gpu_temperature_celsius{{gpu=\"{gpu}\",sensor=\"gpu\"}} {}\n\
                     railscope_gpu_power_watts{{gpu=\"{gpu}\"}} {watts}\n",
                    usual(gpu) + by
                )
            })
        })
    };
    for (at_last, expected) in [(12.0, &[][..]), (19.0, &["gpu-thermal gpu/n3:2 gpus=1 []"])] {
        assert_eq!(
            incidents(&super::run_every(12, 0, &slowed(at_last))),
            expected
        );
    }
}

#[test]
fn a_gpu_that_is_slow_at_its_work_behind_a_narrow_pcie_link_is_that_link() {
    let work = |node: usize, gpu: usize| if (node, gpu) == (3, 2) { 0.66 } else { 0.6 };
    let told = move |node: usize, seconds: u64, page: String| {
        let page = if node == 3 {
            let width = |lanes| {
                format!("railscope_pcie_link_width_lanes{{pci=\"0000:22:00.0\"}} {lanes}\n")
            };
            page.replace(&width(16), &width(8))
        } else {
            page
        };
        page + &super::of_gpus(|gpu| {
            let active = work(node, gpu) * seconds as f64;
            format!(
                "railscope_gpu_monitored_seconds_total{{gpu=\"{gpu}\"}} {seconds}\n\
                 railscope_gpu_tensor_active_seconds_total{{gpu=\"{gpu}\"}} {active}\n"
            )
        })
    };
    check(
        &told,
        &["pcie-degraded pcie/n3:0000:22:00.0 gpus=1 [gpu/n3:2]"],
    );
}

/// So many of the ports of node 3 run at a quarter of their speed.
fn slow_ports(slow: usize) -> Box<Fault> {
    Box::new(move |node, _, mut page: String| {
        for rail in (0..super::RAILS).filter(|rail| node == 3 && *rail < slow) {
            let series = format!(
                "railscope_rdma_port_speed_bytes_per_second{{device=\"mlx5_{rail}\",port=\"1\"}}"
            );
            page = page.replace(&format!("{series} 5e10"), &format!("{series} 1.25e10"));
        }
        page
    })
}

#[test]
fn most_ports_of_a_node_at_a_part_of_their_speed_are_one_fault_of_the_node() {
    let gpus = "[gpu/n3:0 gpu/n3:1 gpu/n3:2 gpu/n3:3]";
    let of_node = format!("port-degraded host/n3 gpus=4 {gpus}");
    check(&slow_ports(4), &[of_node.as_str()]);
    check(&slow_ports(3), &[of_node.as_str()]);
    check(
        &slow_ports(2),
        &[
            "port-degraded link/n3:mlx5_0/1 gpus=1 [gpu/n3:0]",
            "port-degraded link/n3:mlx5_1/1 gpus=1 [gpu/n3:1]",
        ],
    );
}

/// What a port of node 3 receives, bytes a second, and when its device leaves the node's pages and is back.
fn leaving(rate: f64, device: &'static str, away: std::ops::Range<u64>) -> Box<Fault> {
    Box::new(move |node, seconds, mut page: String| {
        for rail in 0..super::RAILS {
            let bytes = rate * seconds as f64;
            page += &format!(
                "railscope_rdma_port_receive_bytes_total{{device=\"mlx5_{rail}\",port=\"1\"}} {bytes}\n"
            );
        }
        if node != 3 || !away.contains(&seconds) {
            return page;
        }
        let is_left = |line: &&str| !line.contains(&format!("device=\"{device}"));
        let left = page.lines().filter(is_left);
        left.map(|line| format!("{line}\n")).collect()
    })
}

#[test]
fn a_nic_that_leaves_the_pages_of_its_node_in_the_midst_of_traffic_is_down() {
    let named = |rate, device, away| {
        let fault = leaving(rate, device, away);
        let views = super::views((5, 0), &fault);
        views.map(|view| incidents(&view)).collect::<Vec<_>>()
    };
    let gone = named(1e10, "mlx5_1", 60..1000);
    assert_eq!(gone[29], ["port-down link/n3:mlx5_1/1 gpus=0 []"]);
    let nothing = |named: Vec<Vec<String>>| named.iter().all(Vec::is_empty);
    assert!(nothing(named(1e6, "mlx5_1", 60..1000)), "given away");
    assert!(nothing(named(1e10, "mlx5_1", 60..75)), "a driver restarts");
    assert!(
        nothing(named(1e10, "mlx5_", 60..1000)),
        "no port is exported"
    );
    // EFA has no state of its ports.
    let fault = leaving(1e10, "mlx5_1", 60..1000);
    let stateless: Box<Fault> = Box::new(move |node, seconds, page| {
        let page = fault(node, seconds, page);
        let is_left = |line: &&str| !line.starts_with("railscope_rdma_port_up");
        let left = page.lines().filter(is_left);
        left.map(|line| format!("{line}\n")).collect()
    });
    let views = super::views((5, 0), &stateless);
    let last = views.last().map(|view| incidents(&view));
    assert_eq!(last.as_ref(), gone.last());
}

/// Old versions of dcgm-exporter, and exporters of chosen fields, report no PCI addresses.
#[test]
fn a_narrow_pcie_link_without_an_address_is_that_of_its_gpu() {
    let told = |node: usize, _: u64, page: String| {
        let is_link = |line: &&str| line.starts_with("railscope_pcie_");
        let others = page.lines().filter(|line| !is_link(line));
        let others = others.map(|line| match line.split_once(",pci=\"") {
            Some((begin, rest)) if line.starts_with("railscope_gpu_info{") => {
                let (_, end) = rest.split_once('"').expect("the end of the label");
                format!("{begin},pci=\"\"{end}\n")
            }
            _ => format!("{line}\n"),
        });
        let others: String = others.collect();
        others
            + &super::of_gpus(|gpu| {
                let lanes = if (node, gpu) == (3, 2) { 8 } else { 16 };
                format!(
                    "railscope_gpu_pcie_link_width_lanes{{gpu=\"{gpu}\"}} {lanes}\n\
                     railscope_gpu_pcie_link_max_width_lanes{{gpu=\"{gpu}\"}} 16\n"
                )
            })
    };
    check(&told, &["pcie-degraded gpu/n3:2 gpus=1 []"]);
}

/// As of AMD's exporter, which reports neither addresses nor lanes by default.
#[test]
fn a_pcie_link_below_the_speed_of_the_nodes_others_is_named_while_its_gpu_is_busy() {
    let generations = |of: fn(usize, usize) -> u32, utilization: f64| {
        move |node: usize, _: u64, page: String| {
            let is_other = |line: &&str| {
                ![
                    "railscope_pcie_",
                    "railscope_gpu_info{",
                    "railscope_gpu_utilization",
                ]
                .iter()
                .any(|name| line.starts_with(name))
            };
            let others = page.lines().filter(is_other);
            let others: String = others.map(|line| format!("{line}\n")).collect();
            others
                + &super::of_gpus(|gpu| {
                    format!(
                        "railscope_gpu_info{{gpu=\"{gpu}\",uuid=\"u{node}-{gpu}\",pci=\"\",name=\"MI300X\",serial=\"\",vbios=\"\",driver=\"\",architecture=\"\",numa_node=\"\"}} 1\n\
                         railscope_gpu_utilization_ratio{{gpu=\"{gpu}\"}} {utilization}\n\
                         railscope_gpu_pcie_link_generation{{gpu=\"{gpu}\"}} {}\n",
                        of(node, gpu)
                    )
                })
        }
    };
    let one = |node, gpu| if (node, gpu) == (3, 2) { 3 } else { 5 };
    check(
        &generations(one, 0.9),
        &["pcie-degraded gpu/n3:2 gpus=1 []"],
    );
    check(&generations(one, 0.1), &[]);
    let board = |node, _| if node == 3 { 4 } else { 5 };
    check(&generations(board, 0.9), &[]);
}

/// As of an MI300X whose firmware holds down the clock of its HBM: it works while the others wait.
#[test]
fn a_gpu_whose_memory_runs_below_that_of_its_peers_is_slow_unless_it_has_less_to_do() {
    let clocks = |low: f64, watts: f64, also: &'static str| {
        with(move |node, _| {
            let lines = super::of_gpus(|gpu| {
                let (clock, watts) = if (node, gpu) == (3, 2) {
                    (low, watts)
                } else {
                    (1.3e9, 550.0)
                };
                format!(
                    "railscope_gpu_clock_hertz{{gpu=\"{gpu}\",clock=\"memory\"}} {clock}\n\
                     railscope_gpu_power_watts{{gpu=\"{gpu}\"}} {watts}\n"
                )
            });
            lines + if node == 3 { also } else { "" }
        })
    };
    check(&clocks(793e6, 620.0, ""), &["gpu-slow gpu/n3:2 gpus=1 []"]);
    check(&clocks(1.25e9, 620.0, ""), &[]);
    check(&clocks(793e6, 400.0, ""), &[]);
    // A reason that is reported has its own rule.
    let brake = "railscope_gpu_clock_event_active{gpu=\"2\",reason=\"hw_power_brake\"} 1\n";
    check(&clocks(793e6, 620.0, brake), &[]);
}
