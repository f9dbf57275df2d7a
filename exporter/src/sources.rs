//! Sources: the only code that touches the machine.

pub mod addresses;
pub mod numa;
pub mod nvme;
pub mod nvml;
pub mod pci;
pub mod rdma;
pub mod sysfs;
pub mod timer;
