//! vGPU: on a host the instances that run on a GPU and how they share it, in a guest the license.

use std::time::{Duration, Instant};

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::GpuVirtualizationMode;
use nvml_wrapper::enum_wrappers::vgpu::VmId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::vgpu::VgpuInstance;
use railscope_model::metric as m;
use railscope_model::metric::Metric;
use railscope_model::reading::{Labels, NodeReading, Value};
use railscope_model::units::NANOS;

use super::calls::{Calls, Of};
use super::structs::{
    Scheduler, active_vgpus, licensed_features, vgpu_heterogeneous, vgpu_scheduler,
};

/// Virtual machines come and go in minutes, and each costs five calls.
const PERIOD: Duration = Duration::from_secs(15);
/// More instances than any GPU holds (48 by time slices): a larger number is invalid.
const MOST_INSTANCES: usize = 64;
/// Longest text that becomes a label: a UUID has 36 characters.
const LONGEST_ID: usize = 36;

/// `NVML_VGPU_SCHEDULER_POLICY_...`.
const POLICIES: [&str; 4] = ["", "best_effort", "equal_share", "fixed_share"];
const BEST_EFFORT: u32 = 1;
/// `NVML_VGPU_SCHEDULER_ARR_...`.
const ADAPTIVE: [&str; 3] = ["default", "disabled", "enabled"];
/// `NVML_GRID_LICENSE_FEATURE_CODE_...`.
const FEATURES: [&str; 5] = ["", "vgpu", "workstation", "gaming", "compute"];

type Sample = (&'static Metric, Labels, Value);

/// What was last read of a GPU's vGPUs.
#[derive(Debug, Default)]
pub(super) struct Vgpus {
    read_at: Option<Instant>,
    held: Vec<Sample>,
}

impl Vgpus {
    /// Adds vGPUs or licenses, depending on the GPU. One that is neither host nor guest is not queried.
    pub(super) fn sample(
        &mut self,
        device: &Device<'_>,
        gpu: &Labels,
        mode: Option<&GpuVirtualizationMode>,
        calls: &mut Calls,
        reading: &mut NodeReading,
    ) {
        if self.read_at.is_none_or(|at| at.elapsed() >= PERIOD) && mode.is_some() {
            self.read_at = Some(Instant::now());
            self.held.clear();
            calls.section("vgpu");
            match mode {
                Some(GpuVirtualizationMode::HostVgpu) => self.host(device, gpu, calls),
                Some(GpuVirtualizationMode::Vgpu) => self.guest(device, gpu, calls),
                _ => {}
            }
        }
        for (metric, labels, value) in &self.held {
            reading.push(metric, labels, value.clone());
        }
    }

    fn host(&mut self, device: &Device<'_>, gpu: &Labels, calls: &mut Calls) {
        let ids = calls.ask(("vgpus", Of::Feature), || active_vgpus(device));
        let ids = ids.unwrap_or_default();
        if ids.len() > MOST_INSTANCES {
            calls.count_failure();
        }
        for id in ids.into_iter().take(MOST_INSTANCES) {
            self.instance(&VgpuInstance::new(id, device), &gpu.with(id), calls);
        }
        let scheduler = calls.ask(("vgpu_scheduler", Of::Feature), || vgpu_scheduler(device));
        let mixed = calls.ask(("vgpu_heterogeneous", Of::Feature), || {
            vgpu_heterogeneous(device)
        });
        if let Some(scheduler) = scheduler {
            self.push_scheduler(scheduler, mixed, gpu);
        }
    }

    fn instance(&mut self, vgpu: &VgpuInstance<'_>, labels: &Labels, calls: &mut Calls) {
        // A virtual machine may end between two of these.
        let Some(uuid) = calls.try_once(|| vgpu.uuid()) else {
            return;
        };
        let name = calls.try_once(|| vgpu.instance_type()?.name());
        let vm = calls.try_once(|| vgpu.vm_id());
        let vm = vm.map(|(VmId::Domain(id) | VmId::Uuid(id))| id);
        let info = labels
            .with(id_only(&uuid))
            .with(name.unwrap_or_default())
            .with(id_only(&vm.unwrap_or_default()));
        self.held.push((&m::VGPU, info, true.into()));
        if let Some(bytes) = calls.try_once(|| vgpu.fb_usage()) {
            let sample = (&m::VGPU_MEMORY_USED, labels.clone(), bytes.into());
            self.held.push(sample);
        }
        let license = calls.try_once(|| match vgpu.license_info_v2() {
            // The guest's, not ours: ours would mean that all GPUs are gone.
            Err(NvmlError::DriverNotLoaded) => Ok(None),
            answer => answer.map(Some),
        });
        if let Some(license) = license.flatten() {
            let state = license.state as u32;
            let sample = (&m::VGPU_LICENSE_STATE, labels.clone(), state.into());
            self.held.push(sample);
        }
    }

    fn push_scheduler(&mut self, scheduler: Scheduler, mixed: Option<bool>, gpu: &Labels) {
        let name = |names: &[&'static str], code: u32| {
            let name = usize::try_from(code).ok().and_then(|code| names.get(code));
            name.copied().unwrap_or_default()
        };
        let mixed = match mixed {
            Some(true) => "enabled",
            Some(false) => "disabled",
            None => "",
        };
        let info = gpu
            .with(name(&POLICIES, scheduler.policy))
            .with(name(&ADAPTIVE, scheduler.adaptive))
            .with(mixed);
        self.held.push((&m::VGPU_SCHEDULER, info, true.into()));
        if scheduler.policy > BEST_EFFORT {
            let seconds = f64::from(scheduler.timeslice_nanoseconds) / NANOS;
            let sample = (&m::VGPU_TIMESLICE, gpu.clone(), seconds.into());
            self.held.push(sample);
        }
    }

    fn guest(&mut self, device: &Device<'_>, gpu: &Labels, calls: &mut Calls) {
        let features = calls.ask(("licenses", Of::Feature), || licensed_features(device));
        for feature in features.unwrap_or_default() {
            let name = usize::try_from(feature.code).ok();
            let name = name.and_then(|code| FEATURES.get(code)).copied();
            let labels = gpu.with(name.unwrap_or_default()).with(feature.product);
            let sample = (&m::GPU_FEATURE_LICENSED, labels, feature.licensed.into());
            self.held.push(sample);
        }
    }
}

/// The text if it is a UUID or a number; nothing if it is a name, which a user chose.
fn id_only(text: &str) -> &str {
    let id = text
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if id && text.len() <= LONGEST_ID {
        text
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_virtual_machines_are_no_labels() {
        for (text, expected) in [
            (
                "1f2e3d4c-0000-4000-8000-0123456789ab",
                "1f2e3d4c-0000-4000-8000-0123456789ab",
            ),
            ("12", "12"),
            ("training-vm-of-alice", ""),
            ("1f2e3d4c-0000-4000-8000-0123456789ab-and-more", ""),
            ("", ""),
        ] {
            assert_eq!(id_only(text), expected, "{text}");
        }
    }

    #[test]
    fn best_effort_has_no_time_slice_and_unknown_codes_have_no_name() {
        for (policy, adaptive, mixed, expected, slices) in [
            (1, 0, None, ["3", "best_effort", "default", ""], 0),
            (
                2,
                2,
                Some(true),
                ["3", "equal_share", "enabled", "enabled"],
                1,
            ),
            (
                3,
                1,
                Some(false),
                ["3", "fixed_share", "disabled", "disabled"],
                1,
            ),
            (0, 9, None, ["3", "", "", ""], 0),
            (9, 0, None, ["3", "", "default", ""], 1),
        ] {
            let scheduler = Scheduler {
                policy,
                adaptive,
                timeslice_nanoseconds: 2_000_000,
            };
            let mut vgpus = Vgpus::default();
            vgpus.push_scheduler(scheduler, mixed, &Labels::new(["3"]));
            let (_, labels, _) = &vgpus.held[0];
            assert!(labels.values().eq(expected), "{policy}: {labels:?}");
            assert_eq!(vgpus.held.len() - 1, slices, "{policy}");
        }
    }
}
