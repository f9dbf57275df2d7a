//! Site operations have the configured size, show where they should, and cause no errors.

use std::time::Duration;

use railscope_model::identity::Part;
use railscope_model::metric::{RDMA_DEVICE, RDMA_PORT_TRANSMIT_BYTES};
use railscope_simulator::cluster::{Cluster, Node};
use railscope_simulator::faults::site::Site;
use railscope_simulator::parts::gpu::{ClockEvent, Gpu};
use railscope_simulator::parts::port::{Counter, PortState};
use railscope_simulator::show::readings::Exporters;
use railscope_simulator::spec::ClusterSpec;
use railscope_simulator::work::workload::{GarbageCollection, JobSpec};

const NODES: u16 = 8;

fn spec() -> ClusterSpec {
    ClusterSpec::demo(NODES).expect("a spec")
}

fn at_site(text: &str) -> Cluster {
    let site: Site = toml::from_str(text).expect("a site");
    let cluster = Cluster::new(spec(), 1).expect("a cluster");
    cluster.with_site(site).expect("a sound site")
}

fn advance(cluster: &mut Cluster, to: u64) {
    cluster.advance(Duration::from_secs(to));
}

fn errors(nodes: &[Node]) -> u64 {
    let ports = nodes.iter().flat_map(|node| &node.ports);
    let counters = Counter::ALL.iter().filter(|counter| !counter.is_traffic());
    let counters: Vec<Counter> = counters.copied().collect();
    ports
        .flat_map(|port| counters.iter().map(|counter| port.get(*counter)))
        .sum()
}

fn sent(node: &Node) -> u64 {
    let of = |port: &railscope_simulator::parts::port::Port| port.get(Counter::PortXmitData);
    node.ports.iter().map(of).sum()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    values.iter().sum::<f64>() / values.len() as f64
}

/// Time of a step over 2,000 s, and how idle the busiest and the laziest GPU were in it.
fn pausing(garbage_collection: Option<GarbageCollection>) -> (f64, Vec<f64>) {
    let mut job = JobSpec::on_first(NODES);
    job.workload.garbage_collection = garbage_collection;
    let mut cluster = Cluster::with_jobs(spec(), vec![job], 1).expect("a cluster");
    let before = errors(cluster.nodes());
    let mut idle = Vec::new();
    for second in (10..=2000).step_by(10) {
        advance(&mut cluster, second);
        let gpus = cluster.nodes().iter().map(|node| &node.gpus[3]);
        idle.extend(gpus.map(|gpu| 1.0 - gpu.utilization));
    }
    assert_eq!(errors(cluster.nodes()), before);
    (2000.0 / cluster.steps() as f64, idle)
}

#[test]
fn garbage_collection_costs_the_longest_pause_of_a_step_and_idles_only_who_pauses() {
    let (usual, idle) = pausing(None);
    assert!(idle.iter().all(|share| *share == 0.0));
    // The mean of a log-normal number is exp(0.5^2 / 2) times its median, and the largest of eight twice as much.
    for (together, extra) in [
        (false, 0.08 * 0.3 * 1.133),
        (true, 0.01 * 0.3 * 1.133 * 1.85),
    ] {
        let (step, idle) = pausing(Some(GarbageCollection {
            every_steps: 100.0,
            seconds: 0.3,
            together,
        }));
        let cost = step - usual;
        assert!(
            (0.7..1.3).contains(&(cost / extra)),
            "{together}: {cost} {extra}"
        );
        // In 0.6 s a step, each pauses 0.34 s in 100 steps.
        let share = mean(idle.iter().copied());
        assert!((0.004..0.008).contains(&share), "{together}: {share}");
    }
}

#[test]
fn a_pause_is_the_time_of_its_host_and_others_wait_for_it() {
    let mut job = JobSpec::on_first(NODES);
    job.workload.garbage_collection = Some(GarbageCollection {
        every_steps: 1.0,
        seconds: 0.5,
        together: true,
    });
    let cluster = Cluster::with_jobs(spec(), vec![job], 1).expect("a cluster");
    let times: Vec<_> = cluster.rank_times().flatten().collect();
    let least = |value: fn(&railscope_simulator::cluster::RankTimes) -> f64| {
        times
            .iter()
            .min_by(|a, b| value(a).total_cmp(&value(b)))
            .expect("ranks")
    };
    let culprit = least(|times| times.wait_seconds);
    assert!(
        times
            .iter()
            .all(|times| times.host_seconds <= culprit.host_seconds)
    );
    assert!(
        culprit.wait_seconds < 0.02 && culprit.host_seconds > 0.5,
        "{culprit:?}"
    );
}

#[test]
fn clocks_go_with_the_day_by_two_percent_row_by_row_and_name_no_reason() {
    let mut cluster = at_site("rooms = { nodes_per_row = 4 }");
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); 2];
    let mut apart: f64 = 0.0;
    for minute in (10..=24 * 60).step_by(10) {
        advance(&mut cluster, minute * 60);
        let clock = |node: &Node| mean(node.gpus.iter().map(|gpu| gpu.clock_mhz / gpu.chip_clock));
        let rows = [0, 4].map(|first| {
            let row = &cluster.nodes()[first..first + 4];
            mean(row.iter().map(clock)) / row[0].gpus[0].model.full_clock_mhz
        });
        apart = apart.max((rows[0] - rows[1]).abs());
        for (ratios, row) in ratios.iter_mut().zip(rows) {
            ratios.push(row);
        }
        let quiet = |gpu: &Gpu| gpu.event.is_none() && gpu.event_seconds == [0.0; 3];
        assert!(
            cluster
                .nodes()
                .iter()
                .flat_map(|node| &node.gpus)
                .all(quiet)
        );
    }
    for row in ratios {
        let (low, high) = row.iter().fold((f64::MAX, 0.0_f64), |(low, high), ratio| {
            (low.min(*ratio), high.max(*ratio))
        });
        assert!((mean(row.into_iter()) - 0.98).abs() < 0.003);
        assert!((0.036..0.045).contains(&(high - low)), "{low} {high}");
    }
    assert!((0.003..0.03).contains(&apart), "{apart}");
}

#[test]
fn rooms_warm_their_gpus_with_the_day() {
    let text = "rooms = { nodes_per_row = 8, swing = 0.0, celsius = 5.0 }";
    let (mut still, mut warm) = (at_site(""), at_site(text));
    let differences = (0..24).map(|hour| {
        let of = |cluster: &mut Cluster| {
            advance(cluster, (hour + 1) * 3600);
            cluster.nodes()[0].gpus[0].temperature_celsius
        };
        of(&mut warm) - of(&mut still)
    });
    let differences: Vec<f64> = differences.collect();
    let most = differences.iter().copied().fold(0.0, f64::max);
    let least = differences.iter().copied().fold(0.0, f64::min);
    assert!(
        (4.5..5.2).contains(&most) && (-5.2..-4.5).contains(&least),
        "{least} {most}"
    );
}

#[test]
fn a_power_cap_holds_the_clocks_of_its_nodes_and_says_so() {
    let (mut free, mut capped) = (
        at_site(""),
        at_site("power_caps = [{ share = 0.4, watts = 560 }]"),
    );
    advance(&mut free, 100);
    advance(&mut capped, 100);
    let has_cap = |node: &&Node| node.gpus[0].limit_watts < 600.0;
    let count = capped.nodes().iter().filter(has_cap).count();
    assert!((1..=6).contains(&count), "{count}");
    for gpu in capped
        .nodes()
        .iter()
        .filter(has_cap)
        .flat_map(|node| &node.gpus)
    {
        // 640 W at the full clock, 40 % of it whatever the clock: (560 / 640 - 0.4) / 0.6.
        let clock = gpu.clock_mhz / gpu.chip_clock / gpu.model.full_clock_mhz;
        assert!((clock - 0.792).abs() < 0.006, "{clock}");
        assert_eq!(
            (gpu.event, gpu.limit_watts),
            (Some(ClockEvent::SwPowerCap), 560.0)
        );
        assert!((gpu.event_seconds[0] - 100.0).abs() < 1e-6 && gpu.power_watts < 560.0);
    }
    let others = capped.nodes().iter().filter(|node| !has_cap(node));
    for gpu in others.flat_map(|node| &node.gpus) {
        assert!(gpu.event.is_none() && gpu.limit_watts == 700.0);
        assert!(gpu.power_watts < free.nodes()[0].gpus[0].power_watts);
    }
    // 0.40 s of kernels take 1 / 0.792 of their time; 0.05 s inside the node and 0.15 s between nodes do not.
    let slowdown = free.steps() as f64 / capped.steps() as f64;
    assert!((slowdown - 1.17).abs() < 0.03, "{slowdown}");
}

const REBOOTS: &str = "reboots = { first_seconds = 100, every_seconds = 200, seconds = 120, count = 2, launch_seconds = 20 }";

#[test]
fn a_rebooted_node_is_gone_while_its_job_goes_on_and_comes_back_with_counters_at_zero() {
    let mut cluster = at_site(REBOOTS);
    advance(&mut cluster, 99);
    let (steps, before) = (cluster.steps(), cluster.nodes().to_vec());
    advance(&mut cluster, 119);
    assert!(cluster.steps() - steps <= 2, "it is being launched");
    advance(&mut cluster, 219);
    let nodes = cluster.nodes();
    assert_eq!(
        nodes.iter().map(|node| node.away).collect::<Vec<_>>(),
        [true, false, false, false, false, false, false, false]
    );
    assert!(
        nodes[0]
            .ports
            .iter()
            .all(|port| port.state == PortState::Down)
    );
    assert!(cluster.wiring().cables[..8].iter().all(|cable| !cable.lit));
    let job = cluster.jobs().next().expect("a job").clone();
    assert_eq!((job.nodes.len(), job.nodes[0]), (7, 1));
    // The others made steps in the 100 s after the launch, and the fabric lost nothing.
    let moved = cluster.steps() - steps;
    assert!((155..175).contains(&moved), "{moved}");
    assert_eq!(errors(&nodes[1..]), errors(&before[1..]));
    advance(&mut cluster, 221);
    let node = &cluster.nodes()[0];
    assert!(
        !node.away
            && node
                .ports
                .iter()
                .all(|port| port.state == PortState::Active)
    );
    assert_eq!((sent(node), errors(&cluster.nodes()[..1])), (0, 0));
    assert!(node.gpus.iter().all(|gpu| gpu.energy_joules < 2000.0));
    advance(&mut cluster, 299);
    let node = &cluster.nodes()[0];
    assert!(sent(node) > 0 && sent(node) < sent(&before[0]) / 100);
    assert_eq!(cluster.jobs().next().expect("a job").nodes.len(), 8);
    advance(&mut cluster, 301);
    assert!(cluster.nodes()[1].away);
    advance(&mut cluster, 1000);
    assert!(cluster.nodes().iter().all(|node| !node.away));
    let works = cluster.maintenance(1000.0);
    let spans: Vec<_> = works.iter().map(|work| work.seconds).collect();
    assert_eq!(spans, [(100.0, 220.0), (300.0, 420.0)]);
    assert_eq!(
        works[1].parts,
        [Part::Host(cluster.nodes()[1].name.clone())]
    );
    assert_eq!(cluster.maintenance(300.0).len(), 1);
}

/// Firmware of each NIC of a node in its exposition.
fn firmware(cluster: &Cluster, node: usize) -> Vec<String> {
    let reading = Exporters::of(cluster).read_one(node, cluster);
    let samples = reading.samples().iter();
    let devices = samples.filter(|sample| std::ptr::eq(sample.metric, &RDMA_DEVICE));
    devices
        .map(|sample| sample.labels.values().nth(2).expect("firmware").to_owned())
        .collect()
}

#[test]
fn new_firmware_takes_one_nic_after_the_other_off_its_cable_and_shows_on_its_page() {
    let mut cluster = at_site(
        "nic_firmware = { version = '28.43.2026', turns = { first_seconds = 100, every_seconds = 200, seconds = 160, count = 2 } }",
    );
    advance(&mut cluster, 50);
    assert_eq!(firmware(&cluster, 0), ["28.41.1000"; 8]);
    // Eight NICs in 160 s: the third has 140 to 160 s.
    advance(&mut cluster, 145);
    let node = &cluster.nodes()[0];
    let dark: Vec<usize> = (0..8)
        .filter(|slot| node.ports[*slot].state == PortState::Down)
        .collect();
    assert_eq!((dark, node.away), (vec![2], false));
    let new = firmware(&cluster, 0);
    assert_eq!(new[..2], ["28.43.2026"; 2]);
    assert_eq!(new[2..], ["28.41.1000"; 6]);
    assert!(node.ports[1].get(Counter::PortXmitData) == 0);
    assert!(node.ports[3].get(Counter::PortXmitData) > 0);
    advance(&mut cluster, 1000);
    assert_eq!(firmware(&cluster, 0), ["28.43.2026"; 8]);
    assert_eq!(firmware(&cluster, 2), ["28.41.1000"; 8]);
    let sends = |node: usize| {
        let reading = Exporters::of(&cluster).read_one(node, &cluster);
        let samples = reading.samples().iter();
        let bytes = samples.filter(|sample| std::ptr::eq(sample.metric, &RDMA_PORT_TRANSMIT_BYTES));
        bytes.map(|sample| sample.value.as_f64()).sum::<f64>()
    };
    assert!(sends(0) > 0.0 && sends(0) < sends(2));
}

#[test]
fn a_switch_with_new_firmware_is_dark_for_its_turn_and_no_job_runs_meanwhile() {
    let mut cluster = at_site(
        "switch_firmware = { first_seconds = 100, every_seconds = 60, seconds = 40, count = 2, launch_seconds = 10 }",
    );
    advance(&mut cluster, 99);
    let (before, steps) = (cluster.nodes().to_vec(), cluster.steps());
    advance(&mut cluster, 130);
    let down = |nodes: &[Node]| {
        let ports = nodes.iter().flat_map(|node| &node.ports);
        ports.filter(|port| port.state == PortState::Down).count()
    };
    // A rail's leaf: one port of each node.
    assert_eq!(down(cluster.nodes()), 8);
    let idle = |gpu: &Gpu| gpu.utilization == 0.0;
    assert!(cluster.nodes().iter().flat_map(|node| &node.gpus).all(idle));
    advance(&mut cluster, 150);
    assert_eq!(down(cluster.nodes()), 0);
    advance(&mut cluster, 165);
    assert_eq!(down(cluster.nodes()), 8);
    advance(&mut cluster, 209);
    assert!(cluster.steps() - steps <= 2);
    // Each of sixteen ports has lost its link once.
    assert_eq!(errors(cluster.nodes()) - errors(&before), 16);
    advance(&mut cluster, 300);
    assert!(cluster.steps() - steps > 130);
}

#[test]
fn a_site_that_cannot_be_says_what_was_expected() {
    for (text, said) in [
        (
            "reboots = { first_seconds = 0, every_seconds = 10, seconds = 20 }",
            "site.reboots: found 20 s every 10 s",
        ),
        (
            "power_caps = [{ share = 0.6, watts = 500 }, { share = 0.6, watts = 600 }]",
            "site.power_caps: expected",
        ),
        ("rooms = { nodes_per_row = 0 }", "site.rooms: found"),
    ] {
        let site: Site = toml::from_str(text).expect(text);
        let cluster = Cluster::new(spec(), 1).expect("a cluster");
        let error = cluster.with_site(site).expect_err(text).to_string();
        assert!(error.starts_with(said), "{error}");
    }
}
