//! Who holds which GPUs, and who waits for whom.

pub mod collective_times;
pub mod job;
pub mod step_tails;
pub mod straggler;
pub(crate) mod tensor_activity;
