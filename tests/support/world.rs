//! Makes the packs of `tests/packs`: a simulated cluster in virtual time, recorded by the collector's own recorder.
//!
//! ```text
//! world.toml -> Cluster -> expositions -> Recorder -> railscope.toml, targets.json, fabric, scrapes.jsonl.zst
//!                       -> truth.json
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use railscope_collector::config::{Config, Target};
use railscope_collector::record::Recorder;
use railscope_model::exposition::{Format, Page};
use railscope_model::fabric::Timestamp;
use railscope_model::identity::Part;
use railscope_model::metric::Profile;
use railscope_model::reading::NodeReading;
use railscope_simulator::cluster::Cluster;
use railscope_simulator::faults::Fault;
use railscope_simulator::faults::site::Site;
use railscope_simulator::noise::Noise;
use railscope_simulator::show::ibnetdiscover::ibnetdiscover;
use railscope_simulator::show::plan;
use railscope_simulator::show::readings::Exporters;
use railscope_simulator::spec::{ClusterSpec, Transport};
use railscope_simulator::work::placement::{JobRequest, place};
use serde::Deserialize;
use serde_json::{Value, json};

/// Description of a pack: what this module reads.
pub(crate) const DESCRIPTION: &str = "world.toml";
/// Unix time at which each pack begins, in milliseconds.
const START: u64 = 1_764_000_000_000;
/// A scrape without a response ends after this time.
const TIMEOUT_MILLIS: u64 = 4_000;
/// The stream of noise that lost scrapes are drawn from: not the cluster's own.
const LOSSES: u64 = 0x1055;

/// A recording to make.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct World {
    seed: u64,
    /// Length of the recording.
    pub(crate) seconds: u64,
    /// Time between two scrapes of a node.
    interval_seconds: u64,
    /// Share of the scrapes that time out.
    #[serde(default)]
    lost: f64,
    #[serde(default)]
    restarts: Vec<Restart>,
    fabric: ClusterSpec,
    jobs: Vec<JobRequest>,
    #[serde(default)]
    site: Site,
    #[serde(default)]
    faults: Vec<Fault>,
}

/// An exporter that is restarted, together with the drivers of its node's NICs: their counters begin at 0.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Restart {
    node: usize,
    /// When it ends, in seconds after the start.
    at_seconds: u64,
    /// For so long no connection is possible.
    down_seconds: u64,
}

impl Restart {
    fn is_down(&self, node: usize, millis: u64) -> bool {
        let begin = self.at_seconds * 1_000;
        self.node == node && (begin..begin + self.down_seconds * 1_000).contains(&millis)
    }
}

/// One scrape: when, and of which node.
type Scrape = (u64, usize);

impl World {
    /// Reads the description of the pack in this folder.
    pub(crate) fn read(folder: &Path) -> Self {
        let file = folder.join(DESCRIPTION);
        let text = fs::read_to_string(&file).expect("a description");
        toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    }

    /// Writes the pack into a folder: everything but the description and the results.
    pub(crate) fn write(&self, folder: &Path, name: &str) {
        let wiring = railscope_simulator::wiring::Wiring::plan(&self.fabric).expect("a wiring");
        let jobs = place(&self.jobs, &wiring, self.seed).expect("jobs");
        let cluster = Cluster::with_jobs(self.fabric.clone(), jobs, self.seed).expect("a cluster");
        let mut cluster = cluster.with_site(self.site.clone()).expect("a site");
        let truth = self.truth(name, &mut cluster);
        let scratch = tempfile::tempdir().expect("a folder");
        let config = self.config(scratch.path(), name, &cluster);
        self.record(&config, &mut cluster);
        remove_old(folder);
        let mut scrapes = Vec::new();
        for file in files(&scratch.path().join("recording")) {
            let name = file.file_name().expect("a name").to_string_lossy();
            let bytes = fs::read(&file).expect("a file");
            match name.ends_with(".jsonl.zst") {
                // Segments in the order of time: frames of one file.
                true => scrapes.extend(bytes),
                false => fs::write(folder.join(&*name), bytes).expect("written"),
            }
        }
        fs::write(folder.join("scrapes.jsonl.zst"), scrapes).expect("written");
        let truth = serde_json::to_string_pretty(&truth).expect("JSON") + "\n";
        fs::write(folder.join("truth.json"), truth).expect("written");
    }

    /// A configuration of a collector that records this cluster.
    fn config(&self, folder: &Path, name: &str, cluster: &Cluster) -> Config {
        let fabric = match self.fabric.transport {
            Transport::Infiniband => "[subnet]\nfile = \"none.ibnetdiscover\"\n",
            Transport::Roce | Transport::Efa => "[plan]\nfile = \"plan.csv\"\n",
        };
        fs::write(folder.join("plan.csv"), plan::write(cluster.plan())).expect("written");
        let text = format!(
            "[cluster]\nname = \"{name}\"\n[scrape]\ninterval = \"{}s\"\ntimeout = \"{TIMEOUT_MILLIS}ms\"\n\
             {fabric}[record]\nfolder = \"recording\"\n",
            self.interval_seconds
        );
        Config::parse(&text, &folder.join("collector.toml")).expect("valid")
    }

    /// All scrapes in order of time: each node has its place in the interval.
    fn scrapes(&self, nodes: usize) -> Vec<Scrape> {
        let interval = self.interval_seconds * 1_000;
        let cycles = self.seconds / self.interval_seconds;
        let scrapes = (0..cycles).flat_map(|cycle| {
            (0..nodes).map(move |node| {
                let offset = interval * node as u64 / nodes as u64;
                (cycle * interval + offset, node)
            })
        });
        scrapes.collect()
    }

    fn record(&self, config: &Config, cluster: &mut Cluster) {
        let recorder = Recorder::open(config, Timestamp(START)).expect("a recording");
        let exporters = Exporters::of(cluster);
        let targets = exporters.names().iter().map(|name| {
            let url = format!("http://{name}:10660/metrics");
            Target::of_node(name.clone(), url)
        });
        let targets: Vec<_> = targets.collect();
        recorder.set_targets(&targets, false, Timestamp(START));
        let noise = Noise::new(self.seed).part(LOSSES);
        let (mut before, mut swept) = (0, None);
        for (number, (millis, node)) in self.scrapes(targets.len()).into_iter().enumerate() {
            cluster.advance(Duration::from_millis(millis));
            self.restart(cluster, before, millis);
            before = millis;
            let now = Timestamp(START + millis);
            if config.subnet.is_some() && swept.as_ref() != Some(cluster.wiring()) {
                // A batch has one version of the fabric.
                recorder.flush(now);
                recorder.fabric(now, ibnetdiscover(cluster.wiring(), now));
                swept = Some(cluster.wiring().clone());
            }
            let target = &targets[node];
            if self.restarts.iter().any(|one| one.is_down(node, millis)) {
                recorder.scrape(target, now, Err("refused"));
            } else if noise.uniform(number as u64) < self.lost {
                let ended = Timestamp(now.0 + TIMEOUT_MILLIS);
                recorder.scrape(target, ended, Err("timeout"));
            } else {
                let body = exposition(exporters.read_one(node, cluster));
                recorder.scrape(target, now, Ok(&body));
            }
        }
        recorder.flush(Timestamp(START + self.seconds * 1_000));
        let lost = recorder.counts().filter(|(result, _)| *result != "written");
        assert!(lost.map(|(_, lines)| lines).sum::<u64>() == 0);
    }

    /// Restarts what ends its restart between two times.
    fn restart(&self, cluster: &mut Cluster, after: u64, to: u64) {
        for one in &self.restarts {
            let end = (one.at_seconds + one.down_seconds) * 1_000;
            if after < end && end <= to {
                cluster.restart_exporter(one.node);
                for nic in cluster.plan().hosts[one.node].nics.clone() {
                    cluster.reload_driver(nic);
                }
            }
        }
    }

    /// Injects the faults, and returns their ground truth.
    fn truth(&self, name: &str, cluster: &mut Cluster) -> Value {
        let at = |seconds: f64| START as f64 / 1e3 + seconds;
        let faults = self.faults.iter().enumerate().map(|(number, fault)| {
            let truth = cluster.inject(fault.clone()).expect("a fault");
            json!({
                "id": format!("f{number}"),
                "kind": truth.class.replace('-', "_"),
                "culprit": culprit(&truth.part),
                "component": truth.part.to_string(),
                "class": truth.class,
                "start": at(fault.onset_seconds),
                "end": fault.end_seconds.map(at),
            })
        });
        let faults: Vec<_> = faults.collect();
        let node = |number: usize| cluster.nodes()[number].name.to_string();
        let restarts = self.restarts.iter().enumerate().map(|(number, one)| {
            json!({
                "id": format!("b{number}"),
                "kind": "restart",
                "culprit": {"node": node(one.node)},
                "part_type": "node",
                "start": at(one.at_seconds as f64),
                "end": at((one.at_seconds + one.down_seconds) as f64),
            })
        });
        let jobs = cluster
            .jobs()
            .filter(|job| job.schedule.checkpoint.is_some());
        let checkpoints = jobs.map(|job| {
            json!({
                "id": format!("checkpoint-{}", job.name),
                "kind": "checkpoint",
                "culprit": {"job": job.name},
                "part_type": "job",
                "start": at(0.0),
                "end": at(self.seconds as f64),
            })
        });
        let benign: Vec<_> = restarts.chain(checkpoints).collect();
        json!({
            "world": name,
            "generator": "railscope-simulator",
            "seed": self.seed,
            "interval": self.interval_seconds,
            "start": at(0.0),
            "end": at(self.seconds as f64),
            "nodes": cluster.nodes().len(),
            "faults": faults,
            "benign": benign,
        })
    }
}

/// A component in the terms of `truth.json`.
fn culprit(part: &Part) -> Value {
    match part {
        Part::HostLink(node, port) => {
            json!({"node": node.to_string(), "device": port.device.to_string()})
        }
        Part::PcieLink(node, pci) => json!({"node": node.to_string(), "pci": pci.to_string()}),
        Part::Gpu(node, gpu) => json!({"node": node.to_string(), "gpu": gpu.0}),
        Part::Host(node) => json!({"node": node.to_string()}),
        other => panic!("{other}: expected a host, or a GPU, a port or a PCIe link of one"),
    }
}

/// What the exporter would serve.
fn exposition(mut reading: NodeReading) -> String {
    reading.normalize();
    Page::new(Arc::new(reading)).write(Format::OpenMetrics, Profile::Default)
}

/// The files of a folder by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).expect("a folder");
    let mut files: Vec<_> = files.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

/// Removes what an earlier run wrote.
fn remove_old(folder: &Path) {
    for file in files(folder) {
        let name = file.file_name().expect("a name").to_string_lossy();
        if ![DESCRIPTION, "verdicts.jsonl"].contains(&&*name) {
            fs::remove_file(&file).expect("removed");
        }
    }
}
