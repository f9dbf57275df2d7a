//! Step times that jobs write into a folder that is open to everybody.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use crate::common::{machine, sampler};
use railscope_exporter::sampler::{Presence, Sampler};
use railscope_model::reading::{NodeReading, Sample, Status};

fn append(path: &Path, lines: &str) {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(lines.as_bytes()))
        .expect("writes");
}

/// What a sample reports of jobs, `metric{labels} value` of each series, and of its own failures.
struct Said {
    presence: Presence,
    jobs: Vec<String>,
    failures: Vec<String>,
}

fn sample(sampler: &mut dyn Sampler) -> Said {
    let mut reading = NodeReading::default();
    let presence = sampler.sample(&mut reading).expect("a sample");
    reading.normalize();
    let line = |sample: &Sample| {
        let labels: Vec<&str> = sample.labels.values().collect();
        let name = sample.metric.name.trim_start_matches("railscope_");
        format!("{name}{{{}}} {}", labels.join("|"), sample.value.as_f64())
    };
    let lines = reading.samples().iter().map(line);
    let (jobs, failures) = lines.partition(|line: &String| line.starts_with("job_"));
    Said {
        presence,
        jobs,
        failures,
    }
}

#[test]
fn a_job_tells_its_steps_from_when_it_is_seen_to_write_them() {
    let temp = tempfile::tempdir().expect("a folder");
    let steps = temp.path().join("run/railscope/steps");
    fs::create_dir_all(steps.join("ml")).expect("mkdir");
    append(&steps.join("4711.0"), &"2.0\n".repeat(40));
    append(&steps.join("over.0"), "1\n");
    let mut sampler = sampler("step_times", &machine(temp.path()));
    // It is unknown yet whether these jobs still run.
    let said = sample(&mut *sampler);
    assert_eq!((said.presence, said.jobs), (Presence::Present, vec![]));

    append(
        &steps.join("4711.0"),
        "1764000000.5 2.0\n1764000003.5 3.0\n",
    );
    // Ranks of one job run the same steps: the lowest is read.
    append(&steps.join("ml/llama.12"), "9\n");
    append(&steps.join("ml/llama.3"), "0.5\n");
    assert_eq!(
        sample(&mut *sampler).jobs,
        [
            "job_steps_total{4711} 2",
            "job_steps_total{ml/llama} 1",
            "job_step_excess_seconds_total{4711} 1",
            "job_step_excess_seconds_total{ml/llama} 0",
            "job_step_quantile_seconds{4711|0.5} 2",
            "job_step_quantile_seconds{4711|0.99} 3",
            "job_step_quantile_seconds{4711|0.999} 3",
            "job_step_quantile_seconds{ml/llama|0.5} 0.5",
            "job_step_quantile_seconds{ml/llama|0.99} 0.5",
            "job_step_quantile_seconds{ml/llama|0.999} 0.5",
        ]
    );
    fs::remove_file(steps.join("4711.0")).expect("removes");
    fs::remove_dir_all(steps.join("ml")).expect("removes");
    assert_eq!(sample(&mut *sampler).jobs, [""; 0]);
}

#[test]
fn what_is_no_file_of_step_times_costs_only_itself() {
    let temp = tempfile::tempdir().expect("a folder");
    let steps = temp.path().join("run/railscope/steps");
    let mut sampler = sampler("step_times", &machine(temp.path()));
    let absent = Presence::Absent(Status::Absent);
    assert_eq!(sample(&mut *sampler).presence, absent);
    fs::create_dir_all(&steps).expect("mkdir");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        steps.join("fifo.0"),
        rustix::fs::FileType::Fifo,
        0o644.into(),
        0,
    )
    .expect("a FIFO");
    let outside = temp.path().join("outside");
    append(&outside, "1\n");
    std::os::unix::fs::symlink(&outside, steps.join("link.0")).expect("links");
    std::os::unix::fs::symlink(temp.path(), steps.join("up")).expect("links");
    append(
        &steps.join("noise.0"),
        "\u{0}\u{1}\nnot a number\n1 2 3\nNaN\n-1\n1e9\n",
    );
    append(&steps.join("good.0"), "1\n");
    let said = sample(&mut *sampler);
    assert!(said.jobs.iter().all(|line| line.contains("{good")));
    assert_eq!(said.jobs.len(), 5, "{:?}", said.jobs);
    let failures = [
        "source_status{step_times|files|unparsed} 1",
        "source_errors_total{step_times} 1",
    ];
    assert_eq!(said.failures, failures);
}

#[test]
fn jobs_beyond_the_limit_are_left_out_and_said() {
    let temp = tempfile::tempdir().expect("a folder");
    let steps = temp.path().join("run/railscope/steps");
    fs::create_dir_all(&steps).expect("mkdir");
    let mut sampler = sampler("step_times", &machine(temp.path()));
    sample(&mut *sampler);
    for job in 0..40 {
        append(&steps.join(format!("{job}.0")), "1\n");
    }
    let said = sample(&mut *sampler);
    let jobs = said.jobs.iter();
    let jobs = jobs.filter(|line| line.starts_with("job_steps_total"));
    assert_eq!(jobs.count(), 16, "{:?}", said.jobs);
    let failures = [
        "source_status{step_times|files|failed} 1",
        "source_errors_total{step_times} 24",
    ];
    assert_eq!(said.failures, failures);
}
