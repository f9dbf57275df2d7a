//! The program as the exporter starts it, on a machine that need not have an RDMA device.
#![allow(clippy::expect_used)]

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str], input: &str) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_railscope-rdma-probe"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut stdin = program.stdin.take().expect("stdin");
    // It may have ended already without reading.
    stdin.write_all(input.as_bytes()).ok();
    drop(stdin);
    program.wait_with_output().expect("ends")
}

#[test]
fn it_tells_its_version_and_takes_no_other_argument() {
    let version = run(&["--version"], "");
    assert!(version.status.success());
    let version = String::from_utf8(version.stdout).expect("text");
    assert_eq!(
        version.trim(),
        concat!("railscope-rdma-probe ", env!("CARGO_PKG_VERSION"))
    );

    let refused = run(&["--device", "mlx5_0"], "");
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).expect("text");
    assert!(said.contains("railscope exporter --probe.rdma"), "{said}");
}

#[test]
fn an_unreadable_plan_is_told_and_the_end_of_input_ends_it() {
    let ended = run(&[], "{\"flows\": 3\n");
    let said = String::from_utf8(ended.stderr).expect("text");
    assert!(said.contains("a plan that cannot be read"), "{said}");
    assert!(ended.status.success(), "{said}");
}
