//! What the node is to its software, and which NICs and NVMe controllers are split by SR-IOV.

use std::path::PathBuf;
use std::time::Duration;

use railscope_model::metric::{
    DEPLOYMENT, NIC_SRIOV, NIC_VFS, NIC_VFS_MAX, NVME_SRIOV, NVME_VFS, NVME_VFS_MAX, Profile,
};
use railscope_model::reading::{Labels, NodeReading, Status};

use super::discovery::REDISCOVER;
use crate::sampler::{Machine, Presence, SampleError, Sampler};
use crate::sources::platform::{Model, Platform};
use crate::sources::sriov::{self, Kind, Participant, Role};
use crate::sources::sysfs::{Miss, Root};

/// Source label.
const NAME: &str = "deployment";
/// Number of samples for which the platform is cached: a kubelet may appear, but a machine does not turn virtual.
const PLATFORM_SAMPLES: u32 = 20;

struct Deployment {
    sysfs: Root,
    procfs: Root,
    rootfs: Root,
    kubelet_socket: PathBuf,
    platform: Option<Platform>,
    samples: u32,
}

/// Builds the sampler.
pub fn build(machine: &Machine) -> Box<dyn Sampler> {
    Box::new(Deployment {
        sysfs: Root::new(&machine.sysfs),
        procfs: Root::new(&machine.procfs),
        rootfs: Root::new(&machine.rootfs),
        kubelet_socket: machine.workloads.kubelet_socket.clone(),
        platform: None,
        samples: 0,
    })
}

impl Sampler for Deployment {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Changes only when an operator reconfigures the node.
    fn period(&self) -> Duration {
        REDISCOVER
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        if self.samples.is_multiple_of(PLATFORM_SAMPLES) {
            self.platform = None;
        }
        self.samples = self.samples.wrapping_add(1);
        let platform = *self.platform.get_or_insert_with(|| {
            Platform::read(
                &self.sysfs,
                &self.procfs,
                &self.rootfs,
                &self.kubelet_socket,
            )
        });
        let mut buffer = [0; 4096];
        let functions = self
            .sysfs
            .open()
            .and_then(|sysfs| sriov::participants(&sysfs, &mut buffer));
        if platform == Platform::default() && functions.is_err() {
            return Ok(Presence::Absent(Status::Absent));
        }
        push_platform(&platform, reading);
        match functions {
            Ok(functions) => functions.iter().for_each(|function| match function.kind {
                Kind::Nic => push_nic(function, reading),
                Kind::Nvme => push_nvme(function, reading),
            }),
            // A machine without PCI devices has nothing to report here.
            Err(Miss::Absent) => {}
            Err(miss) => reading.push_status(NAME, "sriov", miss.into()),
        }
        Ok(Presence::Present)
    }
}

fn push_platform(platform: &Platform, reading: &mut NodeReading) {
    let labels = Labels::new([
        platform.model.as_str(),
        platform.hypervisor,
        platform.cloud,
        platform.container,
        platform.orchestrator,
    ]);
    reading.push(&DEPLOYMENT, &labels, true);
    if platform.model == Model::Unknown {
        reading.push_status(NAME, "model", Status::Unsupported);
    }
}

/// A host with hundreds of virtual functions shows its few physical ones by default; a guest its virtual
/// ones, as it sees no others.
fn push_nic(nic: &Participant, reading: &mut NodeReading) {
    let device = nic.device.as_deref().unwrap_or_default();
    let address = nic.address.map(|address| address.to_string());
    let at = Labels::new([device, &address.unwrap_or_default()]);
    let push = |reading: &mut NodeReading, role: &str, pf: &str, default: bool| {
        let profile = Profile::default_if(default);
        reading.push_in(profile, &NIC_SRIOV, &at.with(role).with(pf), true);
    };
    match nic.role {
        Role::Physical { active, possible } => {
            push(reading, "physical", "", active > 0);
            reading.push_in(Profile::default_if(active > 0), &NIC_VFS, &at, active);
            reading.push(&NIC_VFS_MAX, &at, possible);
        }
        Role::Virtual(Some(physical)) => push(reading, "virtual", &physical.to_string(), false),
        Role::Virtual(None) => push(reading, "virtual", "", true),
        Role::Part(function) => push(reading, "subfunction", &function.to_string(), false),
    }
}

/// All of it in the full profile: no compute fabric is connected to it.
fn push_nvme(nvme: &Participant, reading: &mut NodeReading) {
    let device = nvme.device.as_deref().unwrap_or_default();
    let address = nvme.address.map(|address| address.to_string());
    let at = Labels::new([device, &address.unwrap_or_default()]);
    let (role, physical) = match nvme.role {
        Role::Physical { active, possible } => {
            reading.push(&NVME_VFS, &at, active);
            reading.push(&NVME_VFS_MAX, &at, possible);
            ("physical", None)
        }
        Role::Virtual(physical) => ("virtual", physical),
        // The kernel has such parts of network functions only.
        Role::Part(function) => ("subfunction", Some(function)),
    };
    let physical = physical.map(|address| address.to_string());
    let labels = at.with(role).with(physical.unwrap_or_default());
    reading.push(&NVME_SRIOV, &labels, true);
}
