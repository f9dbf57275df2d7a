//! Jobs of a batch system: the files that its prolog writes for each GPU, and Slurm's control groups.

use std::collections::BTreeSet;

use super::sysfs::{Dir, Miss};

/// Longest valid job id; Slurm's are numbers, others append a host name.
const LONGEST_JOB: usize = 64;

/// The jobs of one GPU, or of one MIG instance of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Ordinal of the GPU.
    pub gpu: u16,
    /// GPU instance id.
    pub mig: Option<u16>,
    /// Ids of its jobs.
    pub jobs: Vec<String>,
    /// Lines that are no job id.
    pub bad_lines: usize,
}

/// Reads a job mapping directory: one file a GPU, one job id a line. Files of other names are ignored.
///
/// # Errors
/// The directory cannot be read.
pub fn job_mapping(dir: &Dir) -> Result<Vec<Mapping>, Miss> {
    let mut mappings = Vec::new();
    for name in dir.names()? {
        let Some((gpu, mig)) = gpu_of(&name) else {
            continue;
        };
        // When a job ends, its file is removed.
        let Ok(text) = dir.long_text(&name) else {
            continue;
        };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let (jobs, bad): (Vec<_>, Vec<_>) = lines.partition(|line| is_job(line));
        mappings.push(Mapping {
            gpu,
            mig,
            jobs: jobs.into_iter().map(str::to_owned).collect(),
            bad_lines: bad.len(),
        });
    }
    Ok(mappings)
}

/// `3` or `3.1`: a GPU's ordinal, and a MIG instance of it.
fn gpu_of(name: &str) -> Option<(u16, Option<u16>)> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten()
    };
    match name.split_once('.') {
        None => Some((number(name)?, None)),
        Some((gpu, mig)) => Some((number(gpu)?, Some(number(mig)?))),
    }
}

fn is_job(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-[]@".contains(&byte);
    text.len() <= LONGEST_JOB && text.bytes().all(plain)
}

/// Ids of the jobs that Slurm runs here, from its control groups; none where it makes no control groups.
pub fn running(sysfs: &Dir) -> Option<BTreeSet<String>> {
    // Version 2 of the hierarchy has one folder for all users.
    if let Ok(scope) = sysfs.dir("fs/cgroup/system.slice/slurmstepd.scope") {
        return Some(jobs_in(&scope));
    }
    let controllers = ["cpuset", "memory", "devices", "freezer"];
    let mut trees = controllers
        .iter()
        .filter_map(|controller| sysfs.dir(&format!("fs/cgroup/{controller}/slurm")).ok());
    let tree = trees.next()?;
    let mut jobs = BTreeSet::new();
    for user in tree.names().unwrap_or_default() {
        if let (true, Ok(user)) = (user.starts_with("uid_"), tree.dir(&user)) {
            jobs.extend(jobs_in(&user));
        }
    }
    Some(jobs)
}

/// Folders named `job_4711`.
fn jobs_in(folder: &Dir) -> BTreeSet<String> {
    let names = folder.names().unwrap_or_default();
    let jobs = names.iter().filter_map(|name| name.strip_prefix("job_"));
    jobs.filter(|job| !job.is_empty() && is_job(job))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::sysfs::Root;
    use std::fs;

    #[test]
    fn a_mapping_file_is_named_by_its_gpu_and_holds_a_job_a_line() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        for (name, text) in [
            ("0", "4711\n"),
            ("3.1", "4711\n  4712  \n\n"),
            ("7", ""),
            ("12", "has space\n99\n"),
            ("gpu0", "1\n"),
            ("3.", "1\n"),
            (".swp", "1\n"),
            ("1.2.3", "1\n"),
            ("+1", "1\n"),
            ("99999", "1\n"),
        ] {
            fs::write(temp.path().join(name), text).expect("write");
        }
        let dir = Root::new(temp.path()).open().expect("the root");
        let found: Vec<_> = job_mapping(&dir)
            .expect("readable")
            .into_iter()
            .map(|found| (found.gpu, found.mig, found.jobs.join(" "), found.bad_lines))
            .collect();
        let row = |gpu, mig, jobs: &str, bad| (gpu, mig, jobs.to_owned(), bad);
        let expected = [
            row(0, None, "4711", 0),
            row(12, None, "99", 1),
            row(3, Some(1), "4711 4712", 0),
            row(7, None, "", 0),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn both_versions_of_control_groups_list_the_running_jobs() {
        for (folders, expected) in [
            (&["fs/cgroup/cpuset/docker"][..], None),
            (
                &["fs/cgroup/system.slice/slurmstepd.scope/system"],
                Some(""),
            ),
            (
                &[
                    "fs/cgroup/system.slice/slurmstepd.scope/job_12/step_0",
                    "fs/cgroup/system.slice/slurmstepd.scope/job_7",
                ],
                Some("12 7"),
            ),
            (
                &[
                    "fs/cgroup/memory/slurm/uid_1000/job_12/step_0",
                    "fs/cgroup/memory/slurm/uid_1001/job_13",
                    "fs/cgroup/memory/slurm/system",
                ],
                Some("12 13"),
            ),
        ] {
            let temp = tempfile::tempdir().expect("a temporary directory");
            for folder in folders {
                fs::create_dir_all(temp.path().join(folder)).expect("mkdir");
            }
            let sysfs = Root::new(temp.path()).open().expect("the root");
            let jobs = running(&sysfs).map(|jobs| jobs.into_iter().collect::<Vec<_>>().join(" "));
            assert_eq!(jobs.as_deref(), expected, "{folders:?}");
        }
    }
}
