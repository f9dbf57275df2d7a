//! What is wrong with a host as a whole: its settings, and what its processes wait for.

use std::collections::BTreeSet;

use super::{Fault, check, ever, incidents, of_gpus, run, run_from_the_start, views, with};

#[test]
fn a_host_whose_nics_all_have_another_mtu_is_one_incident() {
    let odd = with(|node, _| {
        of_gpus(|rail| {
            let bytes = if node == 3 { 1500 } else { 4200 };
            format!(
                "railscope_nic_info{{netdev=\"eth{rail}\",pci=\"0000:{:02x}:00.0\",device=\"mlx5_{rail}\",driver=\"mlx5_core\",numa_node=\"0\"}} 1\n\
                 railscope_nic_mtu_bytes{{netdev=\"eth{rail}\"}} {bytes}\n",
                0x10 + rail
            )
        })
    });
    let expected = "mtu-mismatch host/n3 gpus=4 [gpu/n3:0 gpu/n3:1 gpu/n3:2 gpu/n3:3]";
    check(&odd, &[expected]);
}

/// Interfaces of these names and speeds on each node, with an MTU of 1500 on the first of node 3, and of 9000 elsewhere.
fn unrelated(names: fn(usize) -> Vec<(String, f64)>) -> Box<Fault> {
    with(move |node, _| {
        let lines = names(node).into_iter().enumerate();
        let lines = lines.map(|(place, (netdev, speed))| {
            let bytes = if (node, place) == (3, 0) { 1500 } else { 9000 };
            format!(
                "railscope_nic_mtu_bytes{{netdev=\"{netdev}\"}} {bytes}\n\
                 railscope_nic_speed_bytes_per_second{{netdev=\"{netdev}\"}} {speed}\n"
            )
        });
        lines.collect()
    })
}

#[test]
fn an_mtu_is_compared_on_interfaces_without_rdma_and_on_those_with_names_of_places() {
    let bond = unrelated(|_| vec![(String::from("bond1"), 6.25e9)]);
    check(&bond, &["mtu-mismatch nic/n3:bond1 gpus=0 []"]);
    check(&unrelated(|_| vec![(String::from("eno1"), 1.25e8)]), &[]);
    let of_places = |node: usize| {
        let place = |rail: usize| format!("enp{}s0f0np0", 10 * node + rail + 1);
        (0..4).map(|rail| (place(rail), 5e10)).collect()
    };
    let first = &["mtu-mismatch nic/n3:mlx5_0 gpus=1 [gpu/n3:0]"];
    check(&unrelated(of_places), first);
}

#[test]
fn a_nic_that_sends_rdma_in_another_priority_than_its_peers_is_misconfigured() {
    let sends = |rate: u64, of_rdma: u64, priorities: fn(usize, usize) -> u8| {
        with(move |node, seconds| {
            of_gpus(|rail| {
                let own = priorities(node, rail);
                format!(
                    "railscope_nic_info{{netdev=\"eth{rail}\",pci=\"0000:{:02x}:00.0\",device=\"mlx5_{rail}\",driver=\"mlx5_core\",numa_node=\"0\"}} 1\n\
                     railscope_nic_priority_bytes_total{{netdev=\"eth{rail}\",priority=\"{own}\",direction=\"transmit\"}} {}\n\
                     railscope_nic_priority_bytes_total{{netdev=\"eth{rail}\",priority=\"6\",direction=\"transmit\"}} {}\n\
                     railscope_rdma_port_transmit_bytes_total{{device=\"mlx5_{rail}\",port=\"1\"}} {}\n",
                    0x10 + rail,
                    rate * seconds,
                    rate / 20 * seconds,
                    of_rdma * seconds
                )
            })
        })
    };
    let gigabyte = 1_000_000_000;
    let one = |node, rail| if (node, rail) == (3, 1) { 0 } else { 3 };
    let named = "pfc-mismatch nic/n3:mlx5_1 gpus=1 [gpu/n3:1]";
    check(&sends(gigabyte, gigabyte, one), &[named]);
    let storage = |_, rail| if rail == 1 { 0 } else { 3 };
    check(&sends(gigabyte, gigabyte, storage), &[]);
    check(&sends(gigabyte, 0, one), &[]);
    check(&sends(gigabyte / 100, gigabyte / 100, one), &[]);
    let host = "pfc-mismatch host/n3 gpus=4 [gpu/n3:0 gpu/n3:1 gpu/n3:2 gpu/n3:3]";
    let whole = |node, _| if node == 3 { 0 } else { 3 };
    check(&sends(gigabyte, gigabyte, whole), &[host]);
}

/// Share of the time in which a process waits for a resource, by node.
fn pressure(resource: &'static str, share: fn(usize) -> f64) -> Box<Fault> {
    with(move |node, seconds| {
        let waited = share(node) * seconds as f64;
        format!(
            "railscope_host_pressure_seconds_total{{resource=\"{resource}\",kind=\"some\"}} {waited}\n"
        )
    })
}

#[test]
fn where_no_exporter_reports_gpus_a_node_that_sends_by_rdma_computes() {
    let share = |node| if node == 2 { 0.6 } else { 0.01 };
    let waits = |rate, unknown| waits_without_gpus(share, rate, unknown);
    let waiting = "host-stalls host/n2 gpus=4 [gpu/n2:0 gpu/n2:1 gpu/n2:2 gpu/n2:3]";
    check(&waits(1_000_000_000, |_| true), &[waiting]);
    check(&waits(1_000, |_| true), &[]);
    // Of one node alone GPUs are not exported.
    check(&waits(1_000_000_000, |node| node == 2), &[waiting]);
    check(&waits(1_000, |node| node == 2), &[]);
    // Several of which nothing is known, beside a job: they may serve it.
    let servers = |node| if node >= 4 { 0.6 } else { 0.01 };
    let servers = waits_without_gpus(servers, 1_000_000_000, |node| node >= 4);
    let in_jobs = in_jobs(Box::new(|_, _, page| page));
    let beside_job: Box<Fault> = Box::new(move |node, seconds, page| {
        let page = if node < 4 {
            in_jobs(node, seconds, page)
        } else {
            page
        };
        servers(node, seconds, page)
    });
    check(&beside_job, &[]);
}

/// Nodes whose processes wait for a CPU for these shares of the time and that send so many bytes a second by each port, some of them
/// without their GPUs.
fn waits_without_gpus(
    share: fn(usize) -> f64,
    rate: u64,
    unknown: fn(usize) -> bool,
) -> Box<Fault> {
    let pressure = pressure("cpu", share);
    Box::new(move |node, seconds, page: String| {
        let page = pressure(node, seconds, page);
        let is_kept = |line: &&str| !(unknown(node) && line.contains("_gpu_"));
        let page: Vec<_> = page.lines().filter(is_kept).collect();
        let sent = of_gpus(|rail| {
            format!(
                "railscope_rdma_port_transmit_bytes_total{{device=\"mlx5_{rail}\",port=\"1\"}} {}\n",
                rate * seconds
            )
        });
        page.join("\n") + "\n" + &sent
    })
}

#[test]
fn a_host_whose_cpus_are_busy_is_named_where_no_waits_are_counted() {
    // Of 16 CPUs.
    let busy = |share: f64, usual: f64, counted: &'static str| {
        with(move |node, seconds| {
            let run = 16.0 * seconds as f64 * if node == 2 { share } else { usual };
            format!(
                "railscope_node_cpus 16\nrailscope_cpu_run_seconds_total{{numa_node=\"\"}} {run}\n{counted}"
            )
        })
    };
    let named = ["host-stalls host/n2 gpus=4 [gpu/n2:0 gpu/n2:1 gpu/n2:2 gpu/n2:3]"];
    check(&busy(0.8, 0.25, ""), &named);
    check(&busy(0.55, 0.25, ""), &[]);
    // Less than twice as busy; and a third of the time, where the others are idle.
    check(&busy(0.8, 0.45, ""), &[]);
    check(&busy(0.35, 0.01, ""), &[]);
    let waits = "railscope_cpu_wait_seconds_total{numa_node=\"\"} 0\n";
    check(&busy(0.8, 0.25, waits), &[]);
}

/// The job of a node: `large` on six, `small` on the two others.
pub(crate) fn in_jobs(fault: Box<Fault>) -> Box<Fault> {
    Box::new(move |node, seconds, page: String| {
        let job = if node < 6 { "large" } else { "small" };
        let workload = of_gpus(|gpu| {
            format!(
                "railscope_workload_info{{gpu=\"{gpu}\",mig=\"\",device=\"\",pci=\"\",claim=\"\",namespace=\"\",workload=\"\",container=\"\",hpc_job=\"{job}\"}} 1\n"
            )
        });
        fault(node, seconds, page) + &workload
    })
}

/// A node that waits for I/O for some seconds, each of these series for a share of them.
fn waits_for_io(series: &'static [&'static str], share: f64, seconds: f64) -> Box<Fault> {
    with(move |node, now| {
        let waited = (now as f64 - 60.0).clamp(0.0, seconds);
        let waited = if node == 0 { share * waited } else { 0.0 };
        let lines = series.iter().map(|series| format!("{series} {waited}\n"));
        lines.collect()
    })
}

/// Of a kernel that measures pressure.
const PRESSURE: &[&str] = &["railscope_host_pressure_seconds_total{resource=\"io\",kind=\"some\"}"];
/// Of one that does not.
const IO_WAIT: &[&str] = &[
    "railscope_cpu_iowait_seconds_total{numa_node=\"0\"}",
    "railscope_cpu_iowait_seconds_total{numa_node=\"1\"}",
];

#[test]
fn a_node_that_saves_a_checkpoint_for_its_job_does_not_stall() {
    let stalls = "storage-stall host/n0 gpus=4 [gpu/n0:0 gpu/n0:1 gpu/n0:2 gpu/n0:3]";
    // Of I/O wait, neither NUMA node waits for long enough by itself.
    for (series, share) in [(PRESSURE, 0.5), (IO_WAIT, 0.1)] {
        assert_eq!(ever(&waits_for_io(series, share, 25.0)), BTreeSet::new());
        assert_eq!(
            ever(&waits_for_io(series, 1.8 * share, 25.0)),
            BTreeSet::new()
        );
        let long = ever(&waits_for_io(series, share, 90.0));
        assert_eq!(long, BTreeSet::from([stalls.to_owned()]), "{series:?}");
    }
}

/// One step between two scrapes does not show for how much of it a node waited.
#[test]
fn one_long_step_between_scrapes_is_no_stall_and_five_are() {
    let ever = |lasting: f64| -> BTreeSet<String> {
        let waits = waits_for_io(PRESSURE, 0.5, lasting);
        let views = views((60, 0), &waits);
        views.flat_map(|view| incidents(&view)).collect()
    };
    assert_eq!(ever(60.0), BTreeSet::new());
    assert_eq!(ever(300.0).len(), 1);
}

#[test]
fn a_node_that_waits_with_more_cpus_than_the_others_wait_with_does_not_stall() {
    let all_wait = with(|node, now| {
        let cpus = if node == 0 { 12.0 } else { 2.0 };
        format!("{} {}\n", IO_WAIT[0], cpus * now as f64)
    });
    assert_eq!(ever(&all_wait), BTreeSet::new());
}

/// A node of a few with another kernel, and a node with exporters of both kinds, which count the same time.
#[test]
fn nodes_that_measure_pressure_and_nodes_that_do_not_are_compared_among_themselves() {
    let mixed = |share: f64| {
        with(move |node, now| {
            let waited = (now as f64 - 60.0).max(0.0);
            let waited = if node == 7 { share * waited } else { 0.0 };
            match node {
                0..4 => format!("{} 0\n", PRESSURE[0]),
                _ => format!(
                    "{} {waited}\nrailscope_cpu_iowait_seconds_total{{numa_node=\"\"}} {waited}\n",
                    IO_WAIT[0]
                ),
            }
        })
    };
    let stalls = "storage-stall host/n7 gpus=4 [gpu/n7:0 gpu/n7:1 gpu/n7:2 gpu/n7:3]";
    assert_eq!(ever(&mixed(0.2)), BTreeSet::from([stalls.to_owned()]));
    assert_eq!(ever(&mixed(0.05)), BTreeSet::new());
}

#[test]
fn a_host_whose_processes_wait_for_cpu_or_memory_is_named_in_its_job() {
    let one = |node| if node == 2 { 0.45 } else { 0.02 };
    let named = ["host-stalls host/n2 gpus=4 [gpu/n2:0 gpu/n2:1 gpu/n2:2 gpu/n2:3]"];
    for resource in ["cpu", "memory"] {
        check(&pressure(resource, one), &named);
        let in_job = incidents(&run(&in_jobs(pressure(resource, one))));
        assert_eq!(in_job.len(), 1, "{in_job:?}");
        assert!(in_job[0].starts_with("host-stalls host/n2"), "{in_job:?}");
    }
    // The two nodes of another job use more by design.
    let small = |node| if node >= 6 { 0.45 } else { 0.02 };
    check(&in_jobs(pressure("cpu", small)), &[]);
    check(&pressure("cpu", small), &[]);
    // All of a job do, and one not by much.
    check(
        &in_jobs(pressure("cpu", |node| if node < 6 { 0.3 } else { 0.0 })),
        &[],
    );
    check(
        &pressure("cpu", |node| if node == 2 { 0.15 } else { 0.02 }),
        &[],
    );
    // The others hardly wait.
    check(
        &pressure("cpu", |node| if node == 2 { 0.15 } else { 0.005 }),
        &named,
    );
}

#[test]
fn a_host_of_a_job_of_few_is_named_if_the_others_of_the_job_do_not_wait() {
    let named = |share: fn(usize) -> f64| incidents(&run(&in_jobs(pressure("cpu", share))));
    let of_small = named(|node| if node == 7 { 0.45 } else { 0.002 });
    assert_eq!(of_small.len(), 1, "{of_small:?}");
    assert!(
        of_small[0].starts_with("host-stalls host/n7"),
        "{of_small:?}"
    );
    assert!(named(|node| if node >= 6 { 0.45 } else { 0.002 }).is_empty());
}

/// A kernel without pressure stall information.
#[test]
fn a_host_is_named_by_its_run_queues_where_no_pressure_is_measured() {
    let queues = |share: f64, has_pressure: bool| {
        with(move |node, seconds| {
            let share = if node == 2 { share } else { 0.002 };
            let waited = 64.0 * share * seconds as f64;
            let pressure = if has_pressure {
                "railscope_host_pressure_seconds_total{resource=\"cpu\",kind=\"some\"} 0\n"
            } else {
                ""
            };
            format!(
                "railscope_node_cpus 64\nrailscope_cpu_wait_seconds_total{{numa_node=\"\"}} {waited}\n{pressure}"
            )
        })
    };
    let named = ["host-stalls host/n2 gpus=4 [gpu/n2:0 gpu/n2:1 gpu/n2:2 gpu/n2:3]"];
    check(&queues(0.12, false), &named);
    check(&queues(0.06, false), &named);
    check(&queues(0.02, false), &[]);
    check(&queues(0.12, true), &[]);
}

#[test]
fn storage_that_many_nodes_wait_for_stays_one_incident_while_they_end_one_by_one() {
    let waits = |index: usize, seconds: u64, page: String| {
        let until = match index {
            1 | 2 => 40,
            3 | 4 | 6 | 7 => 110,
            _ => 0,
        };
        let waited = 0.4 * seconds.min(until) as f64;
        // The last node is a server of files.
        let is_shown = |line: &&str| index < 7 || !line.contains("gpu");
        let page: Vec<&str> = page.lines().filter(is_shown).collect();
        page.join("\n")
            + &format!(
                "\nrailscope_host_pressure_seconds_total{{resource=\"io\",kind=\"full\"}} {waited}\n"
            )
    };
    let view = run_from_the_start(&waits);
    let roots = view
        .incidents
        .iter()
        .map(|incident| incident.root.to_string());
    assert_eq!(roots.collect::<Vec<_>>(), ["storage/shared"]);
    let server: Vec<String> = view.incidents[0]
        .alternatives
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(server, ["host/n7"]);
    // It reports the current state.
    let now = &view.incidents[0].findings[0].evidence.statement;
    let expected = "4 of 8 nodes waited for I/O at the same time, n7 for 32 s of the last 120 s. Without GPUs among them: host/n7. One that serves the files may be the cause.";
    assert_eq!(now, expected);
}

/// Nodes 0 to 3 wait for I/O for 30 % of the time, 4 to 6 from then on, and 7, which has no GPUs, for this share.
fn with_server(share: f64, from: u64) -> Box<Fault> {
    Box::new(move |index, seconds, page: String| {
        let waited = match index {
            0..4 => 0.3 * seconds as f64,
            7 => share * seconds as f64,
            _ => 0.3 * seconds.saturating_sub(from) as f64,
        };
        let is_shown = |line: &&str| index < 7 || !line.contains("gpu");
        let page: Vec<&str> = page.lines().filter(is_shown).collect();
        page.join("\n")
            + &format!(
                "\nrailscope_host_pressure_seconds_total{{resource=\"io\",kind=\"full\"}} {waited}\n"
            )
    })
}

#[test]
fn a_server_of_files_that_waits_longer_than_its_clients_is_named_where_other_nodes_continue() {
    let named = |share: f64| {
        let view = run_from_the_start(&with_server(share, u64::MAX));
        let incidents = view.incidents.iter();
        let named = incidents.map(|incident| (incident.root.to_string(), incident.victims.len()));
        named.collect::<Vec<_>>()
    };
    assert_eq!(named(0.8), [("host/n7".to_owned(), 16)]);
    assert!(named(0.35).is_empty(), "it may be a client");
    let ever = ever(&with_server(0.8, 90));
    assert!(
        !ever.iter().any(|named| named.contains("storage/shared")),
        "{ever:?}"
    );
}

#[test]
fn steal_of_a_node_without_work_is_not_reported() {
    let stolen = |idle_gpus: usize, share: f64| -> Box<Fault> {
        Box::new(move |node, seconds, page: String| {
            let lines = page.lines().map(|line| {
                let mut gpus = 0..if node == 5 { idle_gpus } else { 0 };
                let idle = gpus.find_map(|gpu| {
                    let series = format!("railscope_gpu_utilization_ratio{{gpu=\"{gpu}\"}}");
                    line.starts_with(&series)
                        .then(|| format!("{series} {share}\n"))
                });
                idle.unwrap_or_else(|| format!("{line}\n"))
            });
            let seconds = if node == 5 {
                0.05 * seconds as f64
            } else {
                0.0
            };
            lines.collect::<String>()
                + &format!("railscope_cpu_steal_seconds_total{{numa_node=\"0\"}} {seconds}\n")
        })
    };
    let named = "host-steal host/n5 gpus=4 [gpu/n5:0 gpu/n5:1 gpu/n5:2 gpu/n5:3]";
    let found = |idle_gpus, share| incidents(&run_from_the_start(&stolen(idle_gpus, share)));
    // Those that wait for their host still do something.
    for (idle_gpus, share) in [(0, 0.0), (3, 0.0), (4, 0.3)] {
        assert_eq!(found(idle_gpus, share), [named], "{idle_gpus} {share}");
    }
    assert_eq!(found(4, 0.0), [""; 0]);
}
