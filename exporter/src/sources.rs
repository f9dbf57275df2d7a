//! Sources: the only code that touches the machine.

pub mod addresses;
pub mod allocator;
mod clock;
pub mod cpu;
pub mod edac;
pub mod ethtool;
pub mod hwmon;
pub mod kmsg;
pub mod lldp;
pub mod net;
pub mod netlink;
pub mod numa;
pub mod nvidia_proc;
pub mod nvme;
pub mod nvml;
pub mod pci;
pub mod pci_settings;
pub mod platform;
#[cfg(feature = "kubernetes")]
pub mod podresources;
pub mod probe;
pub mod rdma;
pub mod rdma_netlink;
pub mod setup;
pub mod slurm;
pub mod sriov;
pub mod step_times;
pub mod sysfs;
pub mod timer;
pub mod web_files;
