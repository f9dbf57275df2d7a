//! The GPU sampler against NVML workers that do not do what they should.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use railscope_exporter::samplers::gpu;
use railscope_exporter::{Exporter, Limits, Machine, NvmlAccess};
use railscope_model::exposition::Format;
use railscope_model::metric::Profile;

const ERRORS: &str = r#"railscope_source_errors_total{source="gpu"}"#;

fn exporter(worker: &[&str]) -> Exporter {
    let machine = Machine {
        nvml: Some(NvmlAccess {
            library: PathBuf::from("libnvidia-ml.so.1"),
            worker: worker.iter().map(PathBuf::from).collect(),
            period: Duration::from_secs(1),
        }),
        ..Machine::below("".as_ref())
    };
    Exporter::start_samplers(vec![gpu::build(&machine)], Limits::default(), None)
        .expect("a thread starts")
}

/// A worker that is a shell script.
fn shell(script: &str) -> Exporter {
    exporter(&["/bin/sh", "-c", script])
}

#[track_caller]
fn eventually(exporter: &Exporter, line: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let body = exporter.page().body(Profile::Full, Format::Text, false);
        let text = String::from_utf8(body.to_vec()).expect("UTF-8");
        if text.contains(line) {
            return;
        }
        assert!(Instant::now() < deadline, "never: {line}\n{text}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn status(status: &str) -> String {
    format!("railscope_source_status{{source=\"gpu\",device=\"\",status=\"{status}\"}} 1\n")
}

#[test]
fn lines_that_are_none_are_counted_and_those_between_are_read() {
    let exporter = shell(
        r#"echo '{'; echo '{"scope":"driver","status":"ok","gpus":1}'
        echo '{"scope":"gpu/0","status":"ok","values":{"whole":[["railscope_gpu_power_watts",["0"],70.5,false]]}}'
        echo '{"scope":"gpu/0","status":"ok","values":{"whole":[["railscope_gpu_power_watts",[],1.0,false]]}}'
        echo; exec cat"#,
    );
    eventually(&exporter, "railscope_gpu_power_watts{gpu=\"0\"} 70.5\n");
    eventually(&exporter, &format!("{ERRORS} 3\n"));
    eventually(&exporter, &status("ok"));
}

#[test]
fn a_line_without_an_end_is_given_up() {
    let exporter = shell("exec tr '\\0' x < /dev/zero");
    eventually(&exporter, &status("failed"));
}

#[test]
fn a_worker_that_does_not_start_or_ends_at_once_is_a_failure() {
    for worker in [&["/nonexistent/railscope"][..], &["/bin/false"], &[]] {
        eventually(&exporter(worker), &status("failed"));
    }
}

#[test]
fn a_worker_that_is_killed_is_started_again() {
    let exporter = shell(
        r#"echo '{"scope":"driver","status":"ok","gpus":1}'
        echo '{"scope":"gpu/0","status":"ok","values":{"whole":[]}}'; kill -9 $$"#,
    );
    eventually(&exporter, &format!("{ERRORS} 2\n"));
}

#[test]
fn a_worker_that_says_nothing_is_a_timeout_and_ends_with_the_exporter() {
    let exporter = shell("exec cat");
    eventually(&exporter, &status("timeout"));
    let begun = Instant::now();
    drop(exporter);
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn without_nvml_the_source_is_absent() {
    let machine = Machine::below("".as_ref());
    let samplers = vec![gpu::build(&machine)];
    let exporter = Exporter::start_samplers(samplers, Limits::default(), None);
    eventually(&exporter.expect("a thread starts"), &status("absent"));
}
