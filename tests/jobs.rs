//! Jobs on a simulated cluster, watched by the collector: stragglers, their cost, and which incidents page.

use std::time::Duration;

use railscope_collector::analyzer::{Analyzer, ClusterView};
use railscope_collector::classes::Severity;
use railscope_collector::jobs::straggler::{Answer, Basis, Cause, Waiting};
use railscope_collector::sources::collectives::inspector::Lines;
use railscope_model::fabric::Timestamp;
use railscope_simulator::cluster::Cluster;
use railscope_simulator::examples;
use railscope_simulator::show::inspector::Inspector;
use railscope_simulator::show::readings::Exporters;
use railscope_simulator::spec::ClusterSpec;
use railscope_simulator::work::workload::JobSpec;

const START: Timestamp = Timestamp(1_800_000_000_000);
/// Nodes of the cluster, with eight GPUs each; all but the last run the job.
const NODES: u16 = 5;
const GPUS: usize = 32;
/// Time between two ticks, and between two reads of the steps of the job.
const TICK_SECONDS: u64 = 5;
const LOOKS: u64 = 20;

/// A cluster whose work is so unevenly dealt out.
fn cluster(imbalance: f64) -> Cluster {
    let spec = ClusterSpec::demo(NODES).expect("a spec");
    let mut job = JobSpec::on_first(NODES - 1);
    job.workload.imbalance = imbalance;
    Cluster::with_jobs(spec, vec![job], 5).expect("a cluster")
}

/// A fault of an example's kind on one of the first nodes from a given time on.
fn inject(cluster: &mut Cluster, cause: &str, onset: f64) -> String {
    let seeds = 0..64;
    let mut faults = seeds.filter_map(|seed| examples::fault(cluster, cause, seed, onset));
    let idle = format!("{}", cluster.nodes()[usize::from(NODES) - 1].name);
    let fault = faults.find(|fault| !format!("{:?}", fault.part).contains(&idle));
    let truth = cluster.inject(fault.expect(cause)).expect(cause);
    truth.part.to_string()
}

/// Watches the cluster for a while, with dumps of its collectives or without; calls for each view.
fn watch(
    mut cluster: Cluster,
    seconds: u64,
    dumps: bool,
    mut seen: impl FnMut(u64, &ClusterView),
) -> ClusterView {
    let exporters = Exporters::of(&cluster);
    let mut analyzer = Analyzer::default();
    analyzer.set_targets(exporters.names());
    let (mut inspector, mut last) = (Inspector::default(), None);
    for tick in 0..=seconds / TICK_SECONDS {
        let mut operations = Vec::new();
        for look in 1..=LOOKS {
            let millis = (tick * LOOKS + look) * TICK_SECONDS * 1000 / LOOKS;
            cluster.advance(Duration::from_millis(millis));
            if dumps {
                for (file, text) in inspector.lines(&cluster, (START.0 + millis) * 1000) {
                    let mut reader = Lines::default();
                    let lines = text
                        .lines()
                        .map(|line| reader.read(&file, 1, line).expect("a line"));
                    operations.extend(lines.flatten());
                }
            }
        }
        let at = START.plus_seconds(((tick + 1) * TICK_SECONDS) as f64);
        analyzer.take_collectives(operations, Vec::new(), at);
        for (name, reading) in exporters.read(&cluster) {
            analyzer.ingest_reading(name, &reading, at);
        }
        let view = analyzer.tick(at);
        seen((tick + 1) * TICK_SECONDS, &view);
        last = Some(view);
    }
    last.expect("a tick")
}

fn answer(view: &ClusterView) -> &Waiting {
    let [waiting] = &view.waiting[..] else {
        panic!("one job: {:?}", view.waiting);
    };
    assert_eq!(waiting.job.as_deref(), Some("training"));
    waiting
}

/// Severities that incidents had, in time.
fn levels(levels: &mut Vec<Severity>, view: &ClusterView) {
    levels.extend(view.incidents.iter().map(|incident| incident.severity));
    levels.dedup();
}

#[test]
fn uneven_work_is_answered_as_such_and_pages_nobody_with_timings_and_without() {
    for (dumps, basis) in [(false, Basis::Activity), (true, Basis::Collectives)] {
        for (imbalance, expected) in [(0.3, Answer::SoftwareImbalance), (0.0, Answer::Balanced)] {
            let mut said = Vec::new();
            let view = watch(cluster(imbalance), 180, dumps, |_, view| {
                levels(&mut said, view);
            });
            let waiting = answer(&view);
            assert_eq!(
                (waiting.basis, &waiting.answer),
                (basis, &expected),
                "{waiting:#?}"
            );
            assert_eq!(said, [], "{:#?}", view.incidents);
        }
    }
}

#[test]
fn a_gpu_that_is_slow_without_a_word_is_named_by_its_ranks_timings() {
    let mut cluster = cluster(0.005);
    let part = inject(&mut cluster, "gpu-slow", 20.0);
    let view = watch(cluster, 180, true, |_, _| {});
    let waiting = answer(&view);
    assert_eq!(waiting.answer, Answer::Stragglers, "{waiting:#?}");
    let first = &waiting.ranking[0];
    let named = (first.part.as_ref().map(ToString::to_string), first.cause);
    assert_eq!(named, (Some(part), Some(Cause::Gpu)));
    // The network moves the data of the job as fast as before: waiting for the slow rank is no transfer.
    let tail = &view.collective_tails[0];
    let [median, p99] = ["0.5", "0.99"].map(|q| tail.quantiles[q]);
    assert!(&*tail.job == "training" && tail.count > 100, "{tail:?}");
    assert!(0.0 < median && p99 < 1.1 * median, "{tail:?}");
}

#[test]
fn one_slow_gpu_holds_up_all_of_its_job_and_what_that_costs_is_counted_to_it() {
    let mut cluster = cluster(0.005);
    let onset = 400;
    let part = inject(&mut cluster, "gpu-thermal", f64::from(onset));
    let mut said = Vec::new();
    let view = watch(cluster, 600, false, |_, view| levels(&mut said, view));
    let [incident] = &view.incidents[..] else {
        panic!("{:#?}", view.incidents);
    };
    assert_eq!(incident.root.to_string(), part);
    assert_eq!(
        (incident.gpus_affected, incident.gpus_behind().count()),
        (GPUS, 1)
    );
    assert!(
        incident.slowdown.is_some_and(|slowdown| slowdown > 0.05),
        "{incident:#?}"
    );
    assert_eq!(said.last(), Some(&Severity::Critical), "{said:?}");
    let lost: f64 = view.costs.lost.iter().map(|lost| lost.gpu_seconds).sum();
    let to_it = view
        .costs
        .lost
        .iter()
        .filter(|lost| lost.fault_domain == part);
    let to_it: f64 = to_it.map(|lost| lost.gpu_seconds).sum();
    let expected = incident.slowdown.unwrap_or_default() * GPUS as f64 * f64::from(600 - onset);
    assert!(
        (0.8..=1.05).contains(&(lost / expected)),
        "{lost} of {expected}"
    );
    // In its first seconds it was not named yet.
    assert!(to_it >= 0.8 * lost, "{to_it} of {lost}");
}
