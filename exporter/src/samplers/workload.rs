//! Whose work runs on the devices: pods by the kubelet, jobs by a batch system's files and control groups.

mod devices;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use railscope_model::metric::{WORKLOAD, WORKLOAD_DEVICES};
use railscope_model::reading::{Labels, NodeReading, Status};

use self::devices::{Device, Inventory, Kind, pair};
use crate::mig_devices::MigDevices;
use crate::sampler::{Machine, Presence, SampleError, Sampler};
use crate::sources::slurm;
use crate::sources::sysfs::{Miss, Root};

/// Source label.
const NAME: &str = "workload";
/// Series of `workload_info` at most: whole GPUs need one for each GPU, time-sliced ones a few times that.
const LIMIT: usize = 256;

struct Workload {
    sysfs: Root,
    procfs: Root,
    #[cfg_attr(not(feature = "kubernetes"), allow(dead_code))]
    kubelet_socket: PathBuf,
    job_mapping: Option<Root>,
    mig_devices: MigDevices,
    /// Last logged state of the kubelet, so that one that does not respond is logged once.
    #[cfg_attr(not(feature = "kubernetes"), allow(dead_code))]
    said: Option<Status>,
}

/// Builds the sampler.
pub fn build(machine: &Machine) -> Box<dyn Sampler> {
    let workloads = &machine.workloads;
    Box::new(Workload {
        sysfs: Root::new(&machine.sysfs),
        procfs: Root::new(&machine.procfs),
        kubelet_socket: workloads.kubelet_socket.clone(),
        job_mapping: workloads.job_mapping.as_deref().map(Root::new),
        mig_devices: machine.mig_devices.clone(),
        said: None,
    })
}

impl Sampler for Workload {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Pods and jobs come and go in minutes; the kubelet holds a lock while it replies.
    fn period(&self) -> Duration {
        Duration::from_secs(15)
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let mut held = Held::default();
        let (sysfs, procfs) = (self.sysfs.open().ok(), self.procfs.open().ok());
        let running = sysfs.as_ref().and_then(slurm::running);
        let pods = self.ask_kubelet();
        let mapping = self.job_mapping.as_ref();
        let mapping = mapping.map(|root| root.open().and_then(|dir| slurm::job_mapping(&dir)));
        let asked = pods != Err(Status::Absent) || mapping.is_some() || running.is_some();
        if !asked {
            return Ok(Presence::Absent(Status::Absent));
        }
        let migs = self.mig_devices.known();
        let inventory = Inventory::read(sysfs, procfs.as_ref(), migs, &mut [0; 4096]);
        match &pods {
            Ok(pods) => pods.iter().for_each(|pod| held.add_pod(pod, &inventory)),
            Err(Status::Absent) => {}
            Err(status) => reading.push_status(NAME, "kubelet", *status),
        }
        match mapping {
            None => {}
            Some(Ok(mapping)) => held.add_jobs(&mapping, running.as_ref(), &inventory),
            // This directory is configured: that it is missing is an error.
            Some(Err(miss)) => reading.push_status(NAME, "job_mapping", miss.into()),
        }
        held.add_jobs_without_device(&running.unwrap_or_default());
        held.write(reading);
        Ok(Presence::Present)
    }
}

/// The fields of a pod that this sampler needs: its containers with the ids of their devices and claims.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pod {
    namespace: String,
    name: String,
    containers: Vec<Container>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Container {
    name: String,
    /// Resource and id.
    devices: Vec<(String, String)>,
    /// Driver, pool and device.
    claims: Vec<(String, String, String)>,
}

impl Workload {
    #[cfg(feature = "kubernetes")]
    fn ask_kubelet(&mut self) -> Result<Vec<Pod>, Status> {
        use crate::sources::podresources::{self, wire};
        let answer = podresources::list(&self.kubelet_socket);
        let status = answer.as_ref().err().map(Status::from);
        if self.said != status {
            if let (Err(error), true) = (&answer, status != Some(Status::Absent)) {
                tracing::warn!(source = NAME, %error, "the kubelet gave no list of pods");
            }
            self.said = status;
        }
        let container = |container: wire::ContainerResources| Container {
            name: container.name,
            devices: container
                .devices
                .into_iter()
                .flat_map(|of| {
                    let resource = of.resource_name;
                    let ids = of.device_ids.into_iter();
                    ids.map(move |id| (resource.clone(), id))
                })
                .collect(),
            claims: container
                .dynamic_resources
                .into_iter()
                .flat_map(|claim| claim.claim_resources)
                .map(|device| (device.driver_name, device.pool_name, device.device_name))
                .filter(|(driver, _, device)| !driver.is_empty() && !device.is_empty())
                .collect(),
        };
        let pods = answer.map_err(|error| Status::from(&error))?;
        let pods = pods.into_iter().map(|pod| Pod {
            namespace: pod.namespace,
            name: pod.name,
            containers: pod.containers.into_iter().map(container).collect(),
        });
        Ok(pods.collect())
    }

    /// A build without the feature queries no kubelet.
    #[cfg(not(feature = "kubernetes"))]
    fn ask_kubelet(&mut self) -> Result<Vec<Pod>, Status> {
        Err(Status::Absent)
    }
}

/// Label values of one series.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    gpu: String,
    mig: String,
    device: String,
    pci: String,
    claim: String,
    namespace: String,
    workload: String,
    container: String,
    job: String,
}

impl Row {
    /// Identifies the devices: the pair's NIC gives the address, or the GPU if there is no NIC.
    fn holding(&self, gpu: Option<&Device>, nic: Option<&Device>) -> Self {
        let mut row = self.clone();
        for device in [gpu, nic].into_iter().flatten() {
            row.pci = device.pci();
            match &device.kind {
                Kind::Gpu(ordinal, mig) => {
                    row.gpu = ordinal.map(|gpu| gpu.to_string()).unwrap_or_default();
                    row.mig.clone_from(mig);
                }
                Kind::Nic(name) => row.device.clone_from(name),
            }
        }
        row
    }

    fn labels(self) -> Labels {
        Labels::new([
            self.gpu,
            self.mig,
            self.device,
            self.pci,
            self.claim,
            self.namespace,
            self.workload,
            self.container,
            self.job,
        ])
    }
}

/// Which job holds which device, and what could not be read.
#[derive(Default)]
struct Held {
    rows: BTreeSet<Row>,
    jobs_with_device: BTreeSet<String>,
    named: usize,
    unknown: usize,
    stale: usize,
    /// Resources, `nvidia.com/gpu`, with ids that name no device of this node.
    unknown_resources: BTreeMap<String, usize>,
}

impl Held {
    fn add_pod(&mut self, pod: &Pod, inventory: &Inventory) {
        for container in &pod.containers {
            let row = Row {
                namespace: pod.namespace.clone(),
                workload: pod.name.clone(),
                container: container.name.clone(),
                ..Row::default()
            };
            let mut devices = Vec::new();
            for (resource, id) in &container.devices {
                match inventory.identify(id) {
                    Some(device) => devices.push(device),
                    None => *self.unknown_resources.entry(resource.clone()).or_default() += 1,
                }
            }
            // Replicas of a shared GPU are one device to their container.
            let mut seen = BTreeSet::new();
            devices.retain(|device| seen.insert(row.holding(Some(device), None)));
            self.named += devices.len() + container.claims.len();
            for (gpu, nic) in pair(devices) {
                self.rows.insert(row.holding(gpu.as_ref(), nic.as_ref()));
            }
            for (driver, pool, device) in &container.claims {
                let known = inventory.identify(device);
                let mut row = row.holding(known.as_ref(), None);
                row.claim = format!("{driver}/{pool}/{device}");
                self.rows.insert(row);
            }
        }
    }

    fn add_jobs(
        &mut self,
        mappings: &[slurm::Mapping],
        running: Option<&BTreeSet<String>>,
        inventory: &Inventory,
    ) {
        for mapping in mappings {
            self.unknown += mapping.bad_lines;
            let mig = mapping.mig.map(|mig| mig.to_string()).unwrap_or_default();
            let device = inventory.gpu(mapping.gpu, mig);
            for job in &mapping.jobs {
                // An epilog that failed leaves its file behind.
                if running.is_some_and(|running| !running.contains(job)) {
                    self.stale += 1;
                    continue;
                }
                let Some(device) = &device else {
                    self.unknown += 1;
                    continue;
                };
                let row = Row {
                    job: job.clone(),
                    ..Row::default()
                };
                self.rows.insert(row.holding(Some(device), None));
                self.jobs_with_device.insert(job.clone());
                self.named += 1;
            }
        }
    }

    fn add_jobs_without_device(&mut self, running: &BTreeSet<String>) {
        for job in running.difference(&self.jobs_with_device) {
            self.rows.insert(Row {
                job: job.clone(),
                ..Row::default()
            });
        }
    }

    fn write(self, reading: &mut NodeReading) {
        let dropped = self.rows.len().saturating_sub(LIMIT);
        for row in self.rows.into_iter().take(LIMIT) {
            reading.push(&WORKLOAD, &row.labels(), true);
        }
        let unknown = self.unknown + self.unknown_resources.values().sum::<usize>();
        for (state, count) in [
            ("named", self.named),
            ("unknown", unknown),
            ("stale", self.stale),
            ("dropped", dropped),
        ] {
            reading.push(&WORKLOAD_DEVICES, &Labels::new([state]), count as u64);
        }
        // A node has few resources; one with many ids that mean nothing here is one status.
        for resource in self.unknown_resources.keys().take(LIMIT / 32) {
            reading.push_status(NAME, resource, Miss::Unsupported.into());
        }
    }
}
