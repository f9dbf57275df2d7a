//! Who holds which GPUs, and who waits for whom.

pub mod job;
pub mod straggler;
pub(crate) mod tensor_activity;
