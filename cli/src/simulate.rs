//! `railscope simulate`: a simulated cluster as files, to be read without this program.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use railscope_model::fabric::Timestamp;
use railscope_simulator::cluster::Cluster;
use railscope_simulator::examples;
use railscope_simulator::faults::CAUSES;
use railscope_simulator::show::ibnetdiscover::ibsim_net;
use railscope_simulator::show::tree::ClusterTree;
use railscope_simulator::spec::{ClusterSpec, Transport};

/// Write a simulated cluster into a folder: /sys, /proc and NVML of every node, its InfiniBand subnet as
/// ibnetdiscover prints it and as ibsim loads it, and the wiring plan. 6 MB per node.
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// Cluster: a TOML file, such as those in tests/fabrics.
    cluster: PathBuf,
    /// Folder to write, which must not exist yet.
    folder: PathBuf,
    /// Seed for the noise and the components that fail.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long the cluster has run, such as 2m.
    #[arg(long, default_value = "1m", value_parser = crate::duration::parse)]
    after: Duration,
    /// Fault from the start, at a component that the seed selects; can be given several times.
    #[arg(long, value_parser = PossibleValuesParser::new(CAUSES.iter().copied()))]
    fault: Vec<String>,
}

/// When the simulation starts: 2026-01-01. The same description and seed produce the same bytes on any day.
const STARTED: Timestamp = Timestamp(1_767_225_600_000);
/// Name of the file that ibsim loads.
const IBSIM_NET: &str = "subnet.ibsim";

/// Writes the cluster and reports what to do with it.
pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<()> {
    let (file, folder) = (args.cluster.display(), &args.folder);
    let text = fs::read_to_string(&args.cluster).with_context(|| format!("cannot read {file}"))?;
    let spec: ClusterSpec = toml::from_str(&text).map_err(|error| anyhow!("{file}: {error}"))?;
    if folder.exists() {
        bail!("{} is already there; name another folder", folder.display());
    }
    let mut cluster = Cluster::new(spec, args.seed).map_err(|error| anyhow!("{file}: {error}"))?;
    for (seed, cause) in (args.seed..).zip(&args.fault) {
        let fault = examples::fault(&cluster, cause, seed, 0.0)
            .with_context(|| format!("this cluster has nothing for --fault {cause}"))?;
        println!("{} {}.", fault.part, fault.effect);
        cluster.inject(fault)?;
    }
    cluster.advance(args.after);
    write(&cluster, folder)?;
    say(&cluster, folder);
    Ok(())
}

/// Everything is written beside the folder and moved there, so that no reader finds half a cluster.
fn write(cluster: &Cluster, folder: &Path) -> anyhow::Result<()> {
    let parent = match folder.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let tree = ClusterTree::create(cluster, STARTED, parent)?;
    // A cloud's cables are not visible.
    if cluster.spec().transport != Transport::Efa {
        let net = tree.path().join(IBSIM_NET);
        fs::write(&net, ibsim_net(cluster.wiring()))
            .with_context(|| format!("cannot write {}", net.display()))?;
    }
    Ok(tree.keep(folder)?)
}

fn say(cluster: &Cluster, folder: &Path) {
    let folder = folder.display();
    println!(
        "{} nodes with {} GPUs behind {} switches in {folder}. For example:\n",
        cluster.nodes().len(),
        cluster.spec().gpus(),
        cluster.plan().switches.len()
    );
    if let Some(node) = cluster.nodes().first() {
        let node = format!("{folder}/{}", node.name);
        println!(
            "  railscope exporter --path.sysfs {node}/sys --path.procfs {node}/proc --nvml.library {node}/nvml/libnvidia-ml.so.1"
        );
    }
    match cluster.spec().transport {
        Transport::Infiniband => {
            println!("  railscope topology show {folder}/subnet.ibnetdiscover");
        }
        Transport::Roce => {
            println!(
                "\n{folder}/switches has the LLDP neighbors of each switch: lldp_file of [[switches]] in the collector's configuration."
            );
        }
        Transport::Efa => {}
    }
}
