//! One vGPU instance on a host's GPU, as the state file describes it.

use std::fmt;

use super::values::Value;

/// A vGPU that a virtual machine holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Vgpu {
    /// Number of the instance, unique on the node.
    pub instance: u32,
    /// Its UUID.
    pub uuid: String,
    /// The virtual machine: a UUID, or the hypervisor's name for it. One word.
    pub vm: String,
    /// Framebuffer that the virtual machine uses.
    pub used_bytes: u64,
    /// `NVML_GRID_LICENSE_STATE_...`, 5 is licensed; none as long as the guest has no driver.
    pub license_state: Option<u32>,
    /// The type's name: `GRID A100-10C`.
    pub name: String,
}

impl Vgpu {
    pub(super) fn parse(rest: &str) -> Result<Self, String> {
        let words: Vec<_> = rest.split_whitespace().collect();
        let [instance, uuid, vm, used_bytes, license_state, name @ ..] = &words[..] else {
            return Err(
                "vgpu <instance> <uuid> <vm> <bytes used> <license state|unsupported> <type name>"
                    .into(),
            );
        };
        Ok(Self {
            instance: Value::parse(instance)?,
            uuid: (*uuid).into(),
            vm: (*vm).into(),
            used_bytes: Value::parse(used_bytes)?,
            license_state: Value::parse(license_state)?,
            name: name.join(" "),
        })
    }
}

impl fmt::Display for Vgpu {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "vgpu {} {} {} {} {} {}",
            self.instance,
            self.uuid,
            self.vm,
            self.used_bytes,
            self.license_state.render(),
            self.name
        )
    }
}
