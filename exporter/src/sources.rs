//! Sources: the only code that touches the machine.

pub mod ethtool;
pub mod kmsg;
pub mod lldp;
pub mod net;
pub mod netlink;
pub mod nvml;
pub mod pci;
pub mod pci_settings;
pub mod rdma;
pub mod rdma_netlink;
pub mod sysfs;
