//! What collective libraries and their tests leave in files: read here, evaluated in
//! `jobs/straggler`.

pub mod flight_recorder;
pub mod inspector;
pub mod job_log;
pub mod nccl_tests;
mod pickle;
pub mod ras;
pub mod watch;

/// What is wrong with a file, and where.
#[derive(Debug, thiserror::Error)]
#[error("{file}:{line}: {field}: found {found}, expected {expected}")]
pub struct CollectivesError {
    /// The file, as the caller named it.
    pub file: String,
    /// Its line, from one; zero where the format does not report.
    pub line: usize,
    /// The field.
    pub field: String,
    /// What is there.
    pub found: String,
    /// What should.
    pub expected: String,
}

/// A line without the label of the launcher: `[1,0]<stdout>:` of mpirun, `0: ` of srun, `[0]` of Hydra.
fn unlabeled(line: &str) -> &str {
    let line = line.trim_start();
    let is_number = |word: &str| {
        !word.is_empty() && word.len() < 8 && word.bytes().all(|byte| byte.is_ascii_digit())
    };
    if let Some((label, rest)) = line
        .strip_prefix('[')
        .and_then(|line| line.split_once("]<std"))
    {
        let known = rest.split_once(">:").filter(|_| !label.contains(' '));
        return known.map_or(line, |(_, rest)| rest.trim_start());
    }
    if let Some((_, rest)) = line.split_once(':').filter(|(number, _)| is_number(number)) {
        return rest.strip_prefix(' ').map_or(line, str::trim_start);
    }
    match line.strip_prefix('[').and_then(|line| line.split_once(']')) {
        Some((number, rest)) if is_number(number) => rest.trim_start(),
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::unlabeled;

    #[test]
    fn labels_of_launchers_are_removed_and_nothing_else() {
        for (line, expected) in [
            ("   [1,0]<stdout>:# Avg", "# Avg"),
            (
                "[prterun-n1-7@1,0]<stderr>: n1:1:2 [0] NCCL INFO x",
                "n1:1:2 [0] NCCL INFO x",
            ),
            (" 0:   8  2 float", "8  2 float"),
            ("12: n1:1:2 [0] NCCL", "n1:1:2 [0] NCCL"),
            ("[0]#  size", "#  size"),
            ("n1:1:2 [0] NCCL INFO", "n1:1:2 [0] NCCL INFO"),
            ("[rank7]:[E816 x]", "[rank7]:[E816 x]"),
            ("10:20:30 x", "10:20:30 x"),
            ("[1,0]<stdout", "[1,0]<stdout"),
            ("", ""),
        ] {
            assert_eq!(unlabeled(line), expected, "{line}");
        }
    }
}
