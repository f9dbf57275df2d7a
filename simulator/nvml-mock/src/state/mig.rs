//! One MIG device of a GPU, as the state file describes it.

use std::fmt;

use super::values::Value;

/// Most MIG devices of a GPU.
pub const MAX_MIG_DEVICES: usize = 7;

/// A compute instance and the GPU instance around it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MigDevice {
    /// Number of the GPU instance, which owns the memory.
    pub gpu_instance: u32,
    /// Number of the compute instance in it.
    pub compute_instance: u32,
    /// `1g.10gb`.
    pub profile: String,
    /// Memory of the GPU instance.
    pub total_bytes: u64,
    /// Allocated part of it.
    pub used_bytes: u64,
    /// SMs, tensor cores and memory bandwidth in use, thousandths each.
    pub active_permille: u32,
}

impl MigDevice {
    pub(super) fn parse(rest: &str) -> Result<Self, String> {
        let words: Vec<_> = rest.split_whitespace().collect();
        let &[
            gpu_instance,
            compute_instance,
            profile,
            total_bytes,
            used_bytes,
            active_permille,
        ] = &words[..]
        else {
            return Err(
                "mig <gpu instance> <compute instance> <profile> <bytes> <bytes used> <permille>"
                    .into(),
            );
        };
        Ok(Self {
            gpu_instance: Value::parse(gpu_instance)?,
            compute_instance: Value::parse(compute_instance)?,
            profile: profile.into(),
            total_bytes: Value::parse(total_bytes)?,
            used_bytes: Value::parse(used_bytes)?,
            active_permille: Value::parse(active_permille)?,
        })
    }
}

impl fmt::Display for MigDevice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "mig {} {} {} {} {} {}",
            self.gpu_instance,
            self.compute_instance,
            self.profile,
            self.total_bytes,
            self.used_bytes,
            self.active_permille
        )
    }
}
