//! Which jobs hold which GPUs, and stragglers in them.

pub mod collective_times;
pub mod job;
pub mod step_tails;
pub mod straggler;
pub(crate) mod tensor_activity;
