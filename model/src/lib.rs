//! The shared vocabulary of Railscope: identity, units, metric catalogue, reading, exposition, fabric graph.
//!
//! Nothing here does IO, reads a clock or is asynchronous: the same input gives the same output.
//!
//! | module | holds |
//! |---|---|
//! | [`identity`] | what a thing is called: PCI address, GUID, node, RDMA port, GPU, NVLink, part |
//! | [`units`] | what hardware prints, turned into base units |
//! | [`metric`] | the catalogue: every series that Railscope writes, once |
//! | [`reading`] | what one node reported at one instant |
//! | [`exposition`] | readings as text, and any exporter's text as series |
//! | [`fabric`] | the graph of parts and what joins them |
//! | [`path_class`] | how far apart the two ends of a path are |
//! | [`plan`] | the cables that a site has planned |
//! | [`rate_limit`] | a limit on events a second |
//! | [`rdma_probe`] | the protocol between the exporter and its RDMA prober |
//! | [`step_times`] | how long the steps of a training job took |

pub mod exposition;
pub mod fabric;
pub mod identity;
pub mod metric;
pub mod path_class;
pub mod plan;
pub mod rate_limit;
pub mod rdma_probe;
pub mod reading;
pub mod step_times;
pub mod units;
pub mod yaml;
