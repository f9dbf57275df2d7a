//! A site without any exporter of Railscope: its own exporters' data is enough to name a part.

use crate::others as foreign;

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use foreign::{Dcgm, node_exporter};
use railscope_collector::analyzer::{Analyzer, ClusterView};
use railscope_collector::config::Target;
use railscope_collector::mapping::{Mappings, Reader};
use railscope_model::fabric::Timestamp;
use railscope_simulator::cluster::Cluster;
use railscope_simulator::examples;
use railscope_simulator::show::readings::Exporters;
use railscope_simulator::show::tree::ClusterTree;
use railscope_simulator::spec::ClusterSpec;

use crate::support::{Http, Process, free_port, need, wait_for};

const STARTED: Timestamp = Timestamp(1_800_000_000_000);
const NODES: u16 = 4;
const TICK_SECONDS: usize = 5;
const ONSET_SECONDS: f64 = 30.0;

/// The exporters of one node, as the collector reads them.
struct Site {
    dcgm: Dcgm,
    readers: [Reader; 2],
}

impl Site {
    /// The configuration does not give the targets' kinds: their expositions must.
    fn new(node: &railscope_model::identity::NodeName) -> Self {
        let reader = |port| {
            let url = format!("http://{node}:{port}/metrics");
            Reader::new(
                Arc::new(Target::of_node(node.clone(), url)),
                Mappings::default(),
            )
        };
        Self {
            dcgm: Dcgm::default(),
            readers: [reader(9400), reader(9100)],
        }
    }
}

/// Runs a cluster before the collector's analysis, through other exporters' text alone; the last view, and
/// all incidents as class and part.
fn run(cluster: &mut Cluster, seconds: usize) -> (ClusterView, BTreeSet<(String, String)>) {
    let exporters = Exporters::of(cluster);
    let mut sites: Vec<_> = exporters.names().iter().map(Site::new).collect();
    let mut analyzer = Analyzer::default();
    analyzer.set_targets(exporters.names());
    let mut view = analyzer.tick(STARTED);
    let mut heard = BTreeSet::new();
    for second in (0..=seconds).step_by(TICK_SECONDS) {
        cluster.advance(Duration::from_secs(second as u64));
        let at = STARTED.plus_seconds(second as f64);
        for (site, (_, reading)) in sites.iter_mut().zip(exporters.read(cluster)) {
            let pages = [site.dcgm.page(&reading), node_exporter(&reading)];
            for (reader, page) in site.readers.iter_mut().zip(&pages) {
                let (speaker, said) = reader.read(page, at).expect("a page of theirs");
                assert_eq!(said.unfit, None, "{page}");
                assert_eq!(said.counts.errors, [], "{page}");
                for (subject, reading) in &said.readings {
                    let taken = analyzer.ingest_from(&speaker, subject, reading, at, false);
                    assert_eq!((taken.overruled, taken.over_limit), (0, 0));
                }
            }
        }
        view = analyzer.tick(at);
        heard.extend(
            view.incidents
                .iter()
                .map(|incident| (incident.class.name.to_owned(), incident.root.to_string())),
        );
    }
    (view, heard)
}

fn cluster() -> Cluster {
    Cluster::new(ClusterSpec::demo(NODES).expect("a cluster"), 11).expect("a cluster")
}

#[test]
fn a_healthy_site_is_a_graph_of_hosts_gpus_and_nics_and_raises_nothing() {
    let (view, heard) = run(&mut cluster(), 120);
    assert_eq!(heard, BTreeSet::new());
    let parts = view.fabric.count_parts();
    let count = |class: &str| parts.get(class).copied();
    let nodes = usize::from(NODES);
    assert_eq!(
        (count("host"), count("gpu"), count("nic")),
        (Some(nodes), Some(8 * nodes), Some(8 * nodes)),
        "{parts:?}"
    );
}

#[test]
fn a_fault_that_other_exporters_show_is_named_without_ours() {
    for (seed, cause) in (0..).zip([
        "port-down",
        "port-degraded",
        "link-errors",
        "gpu-thermal",
        "gpu-power-cap",
        "gpu-memory",
    ]) {
        let mut cluster = cluster();
        let fault = examples::fault(&cluster, cause, seed, ONSET_SECONDS).expect(cause);
        let truth = cluster.inject(fault).expect(cause);
        let (_, heard) = run(&mut cluster, 140);
        let expected = (truth.class.to_owned(), truth.part.to_string());
        assert_eq!(heard, BTreeSet::from([expected]), "{cause}");
    }
}

/// The converter writes what the real exporter writes, or the tests above would prove nothing.
#[test]
fn the_real_node_exporter_says_of_a_simulated_node_what_the_converter_says() {
    need!("prometheus-node-exporter");
    let mut cluster = cluster();
    let fault = examples::fault(&cluster, "link-errors", 1, 5.0).expect("a fault");
    cluster.inject(fault).expect("a fault");
    cluster.advance(Duration::from_secs(60));
    let tree = ClusterTree::create(&cluster, STARTED, &std::env::temp_dir()).expect("a tree");
    let (http, folder) = (Http::new(), tempfile::tempdir().expect("a folder"));
    let exporters = Exporters::of(&cluster);
    let readings = exporters.read(&cluster);
    for (machine, (name, reading)) in tree.machines().iter().zip(readings).take(2) {
        let port = free_port();
        let mut command = Command::new("prometheus-node-exporter");
        command
            .arg(format!(
                "--path.sysfs={}",
                machine.paths().sysfs().display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .args(["--collector.disable-defaults", "--collector.infiniband"]);
        let _process = Process::start("node-exporter", folder.path(), &mut command);
        let page = wait_for("node_exporter", Duration::from_secs(20), || {
            http.get(&format!("http://127.0.0.1:{port}/metrics"))
        });
        let lines = |page: &str| -> BTreeSet<(String, String)> {
            let lines = page
                .lines()
                .filter(|line| line.starts_with("node_infiniband_"));
            let number = |line: &str| {
                let (series, value) = line.rsplit_once(' ').expect("a value");
                let value: f64 = value.parse().expect("a number");
                (series.to_owned(), value.to_string())
            };
            lines.map(number).collect()
        };
        let (theirs, ours) = (lines(&page), lines(&node_exporter(&reading)));
        let differ: Vec<_> = theirs.symmetric_difference(&ours).take(20).collect();
        assert!(differ.is_empty(), "{name}: {differ:#?}");
        assert!(ours.len() > 100, "{}", ours.len());
    }
}
