//! What the NVIDIA driver reports about its GPUs in `/proc/driver/nvidia/gpus`: their identities,
//! without NVML.

use railscope_model::identity::PciAddress;

use super::sysfs::{Dir, Miss};

/// A GPU that the driver holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverGpu {
    /// Its PCI address.
    pub address: PciAddress,
    /// Its UUID, `GPU-8a1c…`; none until the driver has started it.
    pub uuid: Option<String>,
    /// The number of its device file, `/dev/nvidia3`.
    pub minor: Option<u32>,
}

/// Every GPU that the driver holds, by address.
///
/// # Errors
/// There is no NVIDIA driver.
pub fn gpus(procfs: &Dir) -> Result<Vec<DriverGpu>, Miss> {
    let folder = procfs.dir("driver/nvidia/gpus")?;
    let gpus = folder.names()?.into_iter().filter_map(|name| {
        let address = name.parse().ok()?;
        // A GPU that goes away while it is read is treated as absent.
        let text = folder.long_text(&format!("{name}/information")).ok()?;
        let field = |key: &str| {
            let fields = text.lines().filter_map(|line| line.split_once(':'));
            let mut values = fields.filter(|(name, _)| name.trim() == key);
            Some(values.next()?.1.trim().to_owned())
        };
        Some(DriverGpu {
            address,
            uuid: field("GPU UUID").filter(|uuid| !uuid.contains('?')),
            minor: field("Device Minor").and_then(|minor| minor.parse().ok()),
        })
    });
    let mut gpus: Vec<_> = gpus.collect();
    gpus.sort_by_key(|gpu| gpu.address);
    Ok(gpus)
}
