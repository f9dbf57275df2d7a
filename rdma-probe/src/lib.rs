//! Probes other nodes by RDMA datagrams: schedule, results and wire format.
//!
//! ```text
//! exporter -- Plan --> stdin  -> worker, one thread for each device -> Prober, Responder   (pure: no clock, no IO)
//!          <- Report -- stdout <-                    |
//!                                                 verbs    the only code that calls libibverbs
//! ```
//!
//! What is pure is built and tested everywhere; the feature `verbs` adds what needs libibverbs.

pub mod addresses;
pub mod prober;
pub mod resolver;
pub mod responder;
pub mod wake;
pub mod wire;

#[cfg(feature = "verbs")]
pub mod verbs;
#[cfg(feature = "verbs")]
pub mod worker;
