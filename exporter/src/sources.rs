//! Sources: the only code that touches the machine.

pub mod nvml;
pub mod pci;
pub mod pci_config;
pub mod platform;
pub mod rdma;
pub mod setup;
pub mod sriov;
pub mod sysfs;
