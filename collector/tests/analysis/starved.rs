//! A collector, nodes or exporters that are short of CPU: late samples accuse no component, and what was open stays open.

use railscope_collector::analyzer::{Analyzer, ClusterView};
use railscope_collector::diagnose::observer::Late;

use super::cluster::{NODES, at, node, page};
use super::{incidents, of_gpus};

/// Scrapes and analysis cycles of a demo.
const SCRAPE_SECONDS: u64 = 2;

/// What happens in one second of a cluster that is scraped every 2 s and analyzed every second.
struct Second<'a> {
    /// Whether the node's scrape of this second succeeds.
    answers: &'a dyn Fn(usize, u64) -> bool,
    /// Whether the collector runs.
    runs: &'a dyn Fn(u64) -> bool,
    /// The exposition of a node.
    exposition: &'a dyn Fn(usize, u64) -> String,
}

impl Second<'_> {
    /// The analysis of each cycle until `end`, with its second.
    fn views(&self, end: u64) -> Vec<(u64, ClusterView)> {
        let mut analyzer = Analyzer::default();
        analyzer.set_targets(&(0..NODES).map(node).collect::<Vec<_>>());
        let mut views = Vec::new();
        for second in (0..end).filter(|second| (self.runs)(*second)) {
            for index in 0..NODES {
                let is_due = (second + index as u64).is_multiple_of(SCRAPE_SECONDS);
                if is_due && (self.answers)(index, second) {
                    let text = (self.exposition)(index, second);
                    analyzer.ingest(&node(index), &text, at(second));
                }
            }
            views.push((second, analyzer.tick(at(second))));
        }
        views
    }

    /// When a part first has an incident.
    fn opened(&self, part: &str, end: u64) -> Option<u64> {
        let views = self.views(end);
        let mut views = views.iter();
        let is_open = |view: &ClusterView| incidents(view).iter().any(|open| open.contains(part));
        views
            .find(|(_, view)| is_open(view))
            .map(|(second, _)| *second)
    }
}

/// Everything that is ever named, and every cause of a suspension.
fn named(views: &[(u64, ClusterView)]) -> (Vec<String>, Vec<Late>) {
    let mut all: Vec<_> = views.iter().flat_map(|(_, view)| incidents(view)).collect();
    all.dedup();
    let late = views.iter();
    let late = late.filter_map(|(_, view)| Some(view.observation.suspension?.late));
    let mut late: Vec<_> = late.collect();
    late.dedup();
    (all, late)
}

/// Four busy loops for 4 s, every 15 s.
fn is_pulse(second: u64) -> bool {
    second % 15 >= 11
}

/// Sums of a GPU whose step takes 2 s, half of it communication, as an exporter has read them `late` seconds after each
/// second of a pulse was due. Its thread lost the CPU between the driver's sample and the clock, so that what it
/// adds for the first half of a step covers more time than that had, and for the second half less.
fn gpu_sums(gpu: usize, second: u64, late: f64) -> String {
    let share = |second: u64| if second.is_multiple_of(2) { 0.8 } else { 0.2 };
    let lateness = |second: u64| {
        let is_late = is_pulse(second) && second.is_multiple_of(2);
        if is_late { late } else { 0.0 }
    };
    let active: f64 = (0..second)
        .map(|now| {
            let begun_late = now.checked_sub(1).map_or(0.0, lateness);
            share(now) * (1.0 + lateness(now) - begun_late)
        })
        .sum();
    format!(
        "railscope_gpu_monitored_seconds_total{{gpu=\"{gpu}\"}} {second}\n\
         railscope_gpu_tensor_active_seconds_total{{gpu=\"{gpu}\"}} {active}\n"
    )
}

/// The exposition of a node of which one GPU's thread is read late during pulses; the exporter reports it.
fn in_pulses(index: usize, second: u64) -> String {
    let late = if index == 2 { 0.6 } else { 0.0 };
    let sums = of_gpus(|gpu| gpu_sums(gpu, second, if gpu == 1 { late } else { 0.0 }));
    let pulses = (0..second).filter(|second| is_pulse(*second) && second.is_multiple_of(2));
    let total = pulses.count() as f64 * late;
    let reported = format!("railscope_source_late_seconds_total{{source=\"gpu\"}} {total}\n");
    page(index, second) + &sums + &reported
}

#[test]
fn a_gpu_that_is_read_late_in_pulses_of_load_is_not_slow() {
    let pulses = Second {
        // 10 % of the scrapes fail: those of two nodes during a pulse.
        answers: &|index, second| !(is_pulse(second) && index % 4 == 1),
        runs: &|_| true,
        exposition: &in_pulses,
    };
    let (named, _) = named(&pulses.views(300));
    assert_eq!(named, Vec::<String>::new());
}

/// Sums of GPUs that all do the same.
fn working(index: usize, second: u64) -> String {
    let sums = of_gpus(|gpu| gpu_sums(gpu, second, 0.0));
    page(index, second) + &sums + "railscope_source_late_seconds_total{source=\"gpu\"} 0\n"
}

#[test]
fn nodes_that_are_stopped_for_5_s_are_late_and_accuse_nobody() {
    let is_stopped = |second: u64| (60..65).contains(&second) || (90..95).contains(&second);
    let stopped = Second {
        answers: &|index, second| !(is_stopped(second) && index < NODES / 2),
        runs: &|_| true,
        exposition: &working,
    };
    let views = stopped.views(150);
    assert_eq!(named(&views), (vec![], vec![Late::Targets]));
    let suspended = |second: u64| views[second as usize].1.observation.suspension.is_some();
    // Scrapes fail from 60 s on. At 66 s all have succeeded again, and two intervals later all are complete.
    assert_eq!([59, 64, 68, 70].map(suspended), [false, true, true, false]);
}

#[test]
fn a_collector_that_is_stopped_for_20_s_accuses_nobody() {
    let stopped = Second {
        answers: &|_, _| true,
        runs: &|second| !(100..120).contains(&second),
        exposition: &working,
    };
    let views = stopped.views(200);
    assert_eq!(named(&views), (vec![], vec![Late::Analysis]));
}

/// A port of node 6 that is down from 62 s on, and one of node 5 from 30 s on.
fn with_ports_down(index: usize, second: u64) -> String {
    let down =
        |rail: usize| format!("railscope_rdma_port_up{{device=\"mlx5_{rail}\",port=\"1\"}} ");
    let mut text = working(index, second);
    for (node, rail, since) in [(6, 1, 62), (5, 2, 30)] {
        if index == node && second >= since {
            text = text.replace(&format!("{}1", down(rail)), &format!("{}0", down(rail)));
        }
    }
    text
}

#[test]
fn while_many_targets_are_late_nothing_opens_and_what_is_open_stays_open() {
    let is_late = |second: u64| (60..65).contains(&second);
    let (answer, late) = (
        |_: usize, _: u64| true,
        // The node with the open incident is late, too.
        |index: usize, second: u64| !(is_late(second) && (3..6).contains(&index)),
    );
    let cluster = |answers| Second {
        answers,
        runs: &|_| true,
        exposition: &with_ports_down,
    };
    let new = "n6:mlx5_1";
    let in_time = cluster(&answer).opened(new, 100).expect("named");
    assert!((63..=66).contains(&in_time), "{in_time}");
    let after = cluster(&late).opened(new, 100).expect("named");
    assert!((69..=73).contains(&after), "{after}");
    let views = cluster(&late).views(100);
    let is_open = |(second, view): &(u64, ClusterView)| {
        *second < 40
            || incidents(view)
                .iter()
                .any(|open| open.contains("n5:mlx5_2"))
    };
    assert!(views.iter().all(is_open));
}

#[test]
fn a_rack_that_is_gone_suspends_only_until_it_counts_as_silent() {
    let cluster = Second {
        answers: &|index, second| !(second >= 40 && index < 3),
        runs: &|_| true,
        exposition: &with_ports_down,
    };
    // Late from 42 s on, silent from 47 s on: the fault at 62 s is named in time.
    let opened = cluster.opened("n6:mlx5_1", 100).expect("named");
    assert!((63..=66).contains(&opened), "{opened}");
}
