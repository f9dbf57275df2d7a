//! Pages of recorded machines and of those with next to nothing, held against golden files.
//!
//! Whole fixture machines, GPUs included, stand in the repository's `tests/machines.rs`. `UPDATE_EXPECT=1` blesses
//! both anew.

use std::sync::Arc;

use crate::common::{captures, copy, machine, ours};
use expect_test::expect_file;
use railscope_exporter::sampler::{Machine, sample_once};
use railscope_model::exposition::{Format, Page};
use railscope_model::metric::Profile;

fn check(name: &str, machine: &Machine) {
    let reading = Arc::new(sample_once(machine));
    for (word, profile) in [("default", Profile::Default), ("full", Profile::Full)] {
        let text = Page::new(Arc::clone(&reading)).write(Format::OpenMetrics, profile);
        expect_file![format!("golden/{name}.{word}.prom")].assert_eq(&text);
    }
}

#[test]
fn a_machine_with_nothing_but_a_kernel() {
    check("bare", &ours("bare"));
}

#[test]
fn a_machine_without_even_that() {
    let empty = tempfile::tempdir().expect("a temporary directory");
    check("empty", &machine(empty.path()));
}

#[test]
fn captured_h100_ports() {
    let test = "captured_h100_ports";
    let Some(captured) = captures(test, "sysfs/gpud-h100-class-infiniband") else {
        return;
    };
    let temp = tempfile::tempdir().expect("a temporary directory");
    copy(&captured, &temp.path().join("sys/class/infiniband"));
    check("captured-h100-ports", &machine(temp.path()));
}

#[test]
fn captured_mixed_ports() {
    let Some(captured) = captures("captured_mixed_ports", "sysfs/procfs-fixtures") else {
        return;
    };
    check("captured-mixed-ports", &machine(&captured));
}
