//! What collective libraries and their tests leave in files: read here, judged in `jobs/straggler`.

pub mod flight_recorder;
pub mod inspector;
pub mod job_log;
pub mod nccl_tests;
pub mod ras;
pub mod watch;

/// What is wrong with a file, and where.
#[derive(Debug, thiserror::Error)]
#[error("{file}:{line}: {field}: found {found}, expected {expected}")]
pub struct CollectivesError {
    /// The file, as the caller named it.
    pub file: String,
    /// Its line, from one; zero where the format does not tell.
    pub line: usize,
    /// The field.
    pub field: String,
    /// What stands there.
    pub found: String,
    /// What should.
    pub expected: String,
}
