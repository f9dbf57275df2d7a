//! The whole cluster on disk: every node's trees and NVML, what switches report about the fabric, and the wiring
//! plan.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use railscope_model::fabric::Timestamp;
use railscope_model::identity::SwitchName;
use tempfile::TempDir;

use crate::cluster::Cluster;
use crate::show::ibnetdiscover::ibnetdiscover;
use crate::show::lldp;
use crate::show::machine::{Machine, MachineError, TreeError, at};
use crate::show::measured::Measured;
use crate::show::plan;
use crate::show::readings::Probing;
use crate::spec::Transport;
use crate::wiring::Wiring;

/// Folder of what Ethernet switches report.
const SWITCHES: &str = "switches";
/// What the names of cluster folders begin with.
pub const FOLDER_PREFIX: &str = "railscope-cluster-";
/// Space of a node's files: some 1,150 files, of which each uses at least a memory page, and
/// the NVML library.
pub const BYTES_PER_NODE: u64 = 6 << 20;
/// How long ago the nodes were booted when the simulation starts.
const UPTIME_SECONDS: u64 = 3 * 86_400;
/// Interval at which nodes write their measurements: each write costs as much as all their other files.
const MEASURED_SECONDS: f64 = 5.0;
/// Interval at which an Ethernet switch writes its neighbors: the file is then written again, whatever it
/// reports, as by a cron job that runs `lldpctl` there.
const LLDP_SECONDS: f64 = 10.0;
/// Time between two sweeps of an unchanged subnet. The collector warns of a file that is older than five of its
/// intervals, which are 2 s in the demo.
const SUBNET_SECONDS: f64 = 5.0;

/// A cluster's files in a temporary folder, which is removed when this is dropped.
#[derive(Debug)]
pub struct ClusterTree {
    folder: TempDir,
    machines: Vec<Machine>,
    subnet: PathBuf,
    plan: PathBuf,
    /// The wiring that was last reported, and when.
    written: Option<(Wiring, Timestamp)>,
    /// What nodes measure, and the second of the simulation at which they last wrote it.
    measured: Option<(Measured, f64)>,
}

impl ClusterTree {
    /// Writes the trees of all nodes as they are now, in a new folder below `parent`. `started` is the
    /// time at which the simulation starts: nodes were booted three days before.
    ///
    /// # Errors
    /// A file could not be written.
    pub fn create(
        cluster: &Cluster,
        started: Timestamp,
        parent: &Path,
    ) -> Result<Self, MachineError> {
        let folder = tempfile::Builder::new()
            .prefix(FOLDER_PREFIX)
            .tempdir_in(parent)
            .map_err(at(parent))?;
        let booted = Timestamp(started.0.saturating_sub(UPTIME_SECONDS * 1000));
        let plan = cluster.plan();
        let machines = cluster
            .nodes()
            .iter()
            .zip(&plan.hosts)
            .map(|(node, host)| {
                let nics = &plan.nics[host.nics.clone()];
                let root = folder.path().join(node.name.as_str());
                Machine::create(&root, node, nics, booted)
            })
            .collect::<Result<_, MachineError>>()?;
        let mut tree = Self {
            subnet: folder.path().join("subnet.ibnetdiscover"),
            plan: folder.path().join("wiring-plan.csv"),
            folder,
            machines,
            written: None,
            measured: None,
        };
        if cluster.spec().transport == Transport::Roce {
            let switches = tree.folder.path().join(SWITCHES);
            fs::create_dir(&switches).map_err(at(&switches))?;
        }
        tree.write_fabric(cluster, started)?;
        // A tenant of a cloud's nodes has no plan of its cables.
        if cluster.spec().transport != Transport::Efa {
            fs::write(&tree.plan, plan::write(cluster.plan())).map_err(at(&tree.plan))?;
        }
        Ok(tree)
    }

    /// Lets the nodes probe each other from now on and watch their timers, and writes what they measure.
    ///
    /// # Errors
    /// A file could not be written.
    pub fn measure(&mut self, cluster: &Cluster, probing: Probing) -> Result<(), TreeError> {
        self.measured = Some((Measured::of(cluster, probing), f64::NEG_INFINITY));
        self.write_measured(cluster)
    }

    fn write_measured(&mut self, cluster: &Cluster) -> Result<(), TreeError> {
        let now = cluster.seconds();
        let due = self.measured.as_mut();
        let due = due.filter(|(_, written)| now - *written >= MEASURED_SECONDS);
        let Some((measured, written)) = due else {
            return Ok(());
        };
        *written = now;
        measured.follow(cluster);
        let mut machines = self.machines.iter().enumerate();
        machines
            .try_for_each(|(node, machine)| measured.write(cluster, node, &machine.paths().root))
    }

    /// Brings all files up to date with the cluster; `now` dates what is reported about the fabric.
    ///
    /// # Errors
    /// A file could not be written.
    pub fn update(&mut self, cluster: &Cluster, now: Timestamp) -> Result<(), MachineError> {
        for (machine, node) in self.machines.iter_mut().zip(cluster.nodes()) {
            machine.update(node)?;
        }
        self.write_measured(cluster)?;
        self.write_step_times(cluster, now)?;
        Ok(self.write_fabric(cluster, now)?)
    }

    /// The first rank of each job writes how long its steps took, as required by docs/step-times.md.
    fn write_step_times(&self, cluster: &Cluster, now: Timestamp) -> Result<(), TreeError> {
        for (job, node, steps) in cluster.finished_steps() {
            let folder = self.machines[node].paths().step_times();
            fs::create_dir_all(&folder).map_err(at(&folder))?;
            let path = folder.join(format!("{job}.0"));
            let file = fs::File::options().create(true).append(true).open(&path);
            let ended = now.0 as f64 / 1000.0;
            let lines: String = steps
                .iter()
                .map(|seconds| format!("{ended:.3} {seconds:.6}\n"))
                .collect();
            file.and_then(|mut file| file.write_all(lines.as_bytes()))
                .map_err(at(&path))?;
        }
        Ok(())
    }

    /// The cables of a fabric that is neither InfiniBand nor Ethernet are not visible.
    fn write_fabric(&mut self, cluster: &Cluster, now: Timestamp) -> Result<(), TreeError> {
        let known = self.written.as_ref();
        let age = known
            .filter(|(wiring, _)| wiring == cluster.wiring())
            .map(|(_, at)| now.seconds_since(*at));
        match (cluster.spec().transport, age) {
            (Transport::Efa, _) => return Ok(()),
            (Transport::Infiniband, Some(age)) if age < SUBNET_SECONDS => return Ok(()),
            (Transport::Roce, Some(age)) if age < LLDP_SECONDS => return Ok(()),
            (Transport::Infiniband, _) => {
                replace(&self.subnet, &ibnetdiscover(cluster.wiring(), now))?;
            }
            // A switch without an optical signal writes nothing any more.
            (Transport::Roce, _) => {
                for (switch, text) in lldp::switches(cluster) {
                    replace(&self.lldp(&switch), &text)?;
                }
            }
        }
        self.written = Some((cluster.wiring().clone(), now));
        Ok(())
    }

    /// The folder that holds everything.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Trees of the nodes, in the cluster's order.
    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }

    /// File with what `ibnetdiscover` prints now; only with InfiniBand.
    pub fn subnet(&self) -> &Path {
        &self.subnet
    }

    /// File with what a switch receives by LLDP, as `lldpctl -f json0` prints it there; of Ethernet
    /// only.
    pub fn lldp(&self, switch: &SwitchName) -> PathBuf {
        let file = format!("{switch}.lldp.json");
        self.folder.path().join(SWITCHES).join(file)
    }

    /// File with the wiring that was planned, independent of its current state; none for a cloud.
    pub fn plan(&self) -> &Path {
        &self.plan
    }

    /// Moves everything to a folder that is not there yet, on the same file system, where it stays for good.
    ///
    /// # Errors
    /// It could not be moved; then it is gone.
    pub fn keep(self, folder: &Path) -> Result<(), TreeError> {
        // Temporary folders are private; this one is shared.
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.folder.path(), open).map_err(at(self.folder.path()))?;
        fs::rename(self.folder.path(), folder).map_err(at(folder))?;
        // What is not there any more cannot be removed.
        let _moved = self.folder.keep();
        Ok(())
    }

    /// Removes everything now, and reports it if that fails. Dropping ignores failures.
    ///
    /// # Errors
    /// A file could not be removed.
    pub fn close(self) -> Result<(), TreeError> {
        let path = self.folder.path().to_owned();
        self.folder.close().map_err(at(&path))
    }
}

/// No process keeps this file open, as with the output of a command: it is replaced atomically, so that no reader
/// sees a part of it.
pub(super) fn replace(file: &Path, text: &str) -> Result<(), TreeError> {
    let beside = file.with_extension("tmp");
    fs::write(&beside, text).map_err(at(&beside))?;
    fs::rename(&beside, file).map_err(at(file))
}
