//! The node exporter: what GPUs, PCIe links and RDMA ports of one machine report, as text for Prometheus.
//!
//! ```text
//! /sys /proc NVML -> sources -> samplers -> NodeReading -> exposition -> GET /metrics
//! ```
//!
//! Only [`sources`] access the machine; each sampler in [`sampler::SAMPLERS`] turns one
//! source into readings, on a separate thread, so that a blocked one affects only itself.
//!
//! A caller locates the machine, starts the exporter and serves it:
//!
//! ```no_run
//! use railscope_exporter::{Exporter, Machine, NetworkAccess, NvmlAccess, serve};
//! use std::{sync::Arc, time::Duration};
//!
//! # async fn example() -> std::io::Result<()> {
//! let machine = Machine {
//!     nvml: Some(NvmlAccess {
//!         library: "libnvidia-ml.so.1".into(),
//!         // A program that ends up in `run_worker`: NVML runs in a separate process.
//!         worker: vec![std::env::current_exe()?, "nvml-worker".into()],
//!         period: Duration::from_secs(5),
//!     }),
//!     ..Machine::below("/".as_ref())
//! };
//! // Samplers have separate threads; the server runs on the caller's tokio runtime.
//! let exporter = Arc::new(Exporter::start(machine)?);
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:10660").await?;
//! serve(exporter, listener, async { tokio::signal::ctrl_c().await.unwrap_or_default() }).await
//! # }
//! ```
//!
//! [`Config`] adds the node's name and the limits after which values are too old to be shown.

pub mod check;
pub mod extremes;
mod lateness;
pub mod mig_devices;
pub mod page;
pub mod runtime;
pub mod sampler;
pub mod samplers;
pub mod server;
pub mod sources;

pub use mig_devices::MigDevices;
pub use runtime::{Config, Exporter, Limits};
pub use sampler::{Machine, NvmlAccess, WorkloadAccess};
pub use server::{WebSecurity, serve, serve_secured};
pub use sources::allocator::keep_memory_flat;
pub use sources::ethtool::NetworkAccess;
pub use sources::nvml::run_worker;
pub use sources::probe::ProbeAccess;
