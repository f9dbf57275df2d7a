//! Detectors: one file for each, listed in [`DETECTORS`](super::detector::DETECTORS).

pub mod degraded_link;
pub mod error_counters;
pub mod fabric_loss;
pub mod flapping_port;
pub mod gpu_health;
pub mod gpu_heat;
pub mod gpu_presence;
pub mod gpu_recovery;
pub mod gpu_work;
pub mod gpu_xid;
pub mod host_health;
pub mod late_rank;
pub mod lossy_cable;
pub mod marked_nics;
pub mod miscabled_rail;
pub mod nic_presence;
pub mod node_hardware;
pub mod node_silence;
pub mod odd_config;
pub mod pause_circle;
pub mod probe_paths;
pub mod slow_gpu;
pub mod slow_receiver;
pub mod storage_stall;
pub mod switch_ports;
pub mod uneven_ports;
