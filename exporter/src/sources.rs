//! Sources: the only code that touches the machine.

pub mod nvml;
pub mod pci;
pub mod platform;
pub mod rdma;
pub mod sriov;
pub mod sysfs;
