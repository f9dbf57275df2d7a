//! How PCIe functions are set up: packet sizes, ordering, access control on the upstream path, IOMMU group.

use railscope_model::metric::{
    PCIE_ACS_ON_PATH, PCIE_CONFIG, PCIE_IOMMU, PCIE_MAX_PAYLOAD, PCIE_MAX_PAYLOAD_SUPPORTED,
    PCIE_MAX_READ_REQUEST,
};
use railscope_model::reading::{Labels, NodeReading};

use crate::sources::pci::Function;
use crate::sources::pci_settings::{AccessControl, Settings, settings};
use crate::sources::sysfs::{Buffer, Dir, Miss};

/// How one function is set up. Changes when drivers start and when an operator changes it.
#[derive(Default)]
pub(super) struct Setup {
    labels: Labels,
    settings: Option<Settings>,
    about: Option<Labels>,
    iommu: Option<Labels>,
    redirecting_hops: Option<u64>,
}

impl Setup {
    /// Reads the function, and for an endpoint the hops above it.
    ///
    /// # Errors
    /// Why its settings could not be read; its IOMMU group needs no privilege.
    pub(super) fn read(
        function: &Function,
        is_endpoint: bool,
        sysfs: &Dir,
        buffer: &mut Buffer,
    ) -> (Self, Option<Miss>) {
        let labels = Labels::new([function.address]);
        let read = awake_settings(function, buffer);
        let miss = read.err();
        let settings = read.ok();
        let hops = is_endpoint
            .then(|| redirecting_hops(function, buffer))
            .flatten();
        let setup = Self {
            about: settings.map(|settings| about(&labels, &settings)),
            settings,
            iommu: iommu(function, &labels, sysfs, buffer),
            redirecting_hops: hops,
            labels,
        };
        (setup, miss)
    }

    /// Writes all of it.
    pub(super) fn push(&self, reading: &mut NodeReading) {
        for (metric, labels) in [(&PCIE_CONFIG, &self.about), (&PCIE_IOMMU, &self.iommu)] {
            if let Some(labels) = labels {
                reading.push(metric, labels, true);
            }
        }
        if let Some(hops) = self.redirecting_hops {
            reading.push(&PCIE_ACS_ON_PATH, &self.labels, hops);
        }
        let Some(settings) = &self.settings else {
            return;
        };
        for (metric, bytes) in [
            (&PCIE_MAX_PAYLOAD, settings.max_payload_bytes),
            (
                &PCIE_MAX_PAYLOAD_SUPPORTED,
                settings.max_payload_supported_bytes,
            ),
            (&PCIE_MAX_READ_REQUEST, settings.max_read_request_bytes),
        ] {
            reading.push(metric, &self.labels, bytes);
        }
    }
}

fn about(labels: &Labels, settings: &Settings) -> Labels {
    let switch = |on| if on { "on" } else { "off" };
    let controls = settings
        .access_control
        .map(|acs| acs.names().collect::<Vec<_>>());
    let controls = match controls.as_deref() {
        None => "none".to_owned(),
        Some([]) => "off".to_owned(),
        Some(names) => names.join("+"),
    };
    labels
        .with(switch(settings.relaxed_ordering))
        .with(switch(settings.extended_tags))
        .with(controls)
}

/// Settings of a function that is awake. Reading one that sleeps would wake it up, and every bridge above.
fn awake_settings(function: &Function, buffer: &mut Buffer) -> Result<Settings, Miss> {
    let power = function.dir.text("power/runtime_status", buffer);
    match power.as_deref() {
        Ok("suspended") => Err(Miss::Absent),
        _ => settings(&function.dir),
    }
}

/// Ports above an endpoint that send peer-to-peer packets up; none where one of them cannot be read.
fn redirecting_hops(function: &Function, buffer: &mut Buffer) -> Option<u64> {
    let mut hops = 0;
    for hop in function.hops() {
        let acs = awake_settings(&hop, buffer).ok()?.access_control;
        hops += u64::from(acs.is_some_and(AccessControl::redirects));
    }
    Some(hops)
}

/// Group and type; none where there is no IOMMU or it is switched off.
fn iommu(function: &Function, labels: &Labels, sysfs: &Dir, buffer: &mut Buffer) -> Option<Labels> {
    let group = function.dir.link_name("iommu_group")?;
    let dir = sysfs
        .dir("kernel/iommu_groups")
        .and_then(|groups| groups.dir(&group));
    let kind = dir
        .and_then(|dir| dir.text("type", buffer))
        .unwrap_or_default();
    Some(labels.with(&group).with(kind))
}
