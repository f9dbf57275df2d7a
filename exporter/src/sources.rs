//! Sources: the only code that touches the machine.

pub mod kmsg;
pub mod nvml;
pub mod pci;
pub mod rdma;
pub mod sysfs;
