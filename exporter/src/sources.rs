//! Sources: the only code that touches the machine.

pub mod addresses;
pub mod ethtool;
pub mod kmsg;
pub mod lldp;
pub mod net;
pub mod netlink;
pub mod numa;
pub mod nvme;
pub mod nvml;
pub mod pci;
pub mod pci_settings;
pub mod rdma;
pub mod rdma_netlink;
pub mod sysfs;
pub mod timer;
