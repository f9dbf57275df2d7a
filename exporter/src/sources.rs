//! Sources: the only code that touches the machine.

pub mod ethtool;
pub mod lldp;
pub mod net;
pub mod netlink;
pub mod nvml;
pub mod pci;
pub mod rdma;
pub mod sysfs;
