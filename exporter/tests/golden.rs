//! Whole pages of whole machines, held against golden files; `UPDATE_EXPECT=1` blesses them anew.
#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use std::sync::Arc;

use common::{captures, copy, machine, ours};
use expect_test::expect_file;
use railscope_exporter::sampler::{Machine, sample_once};
use railscope_model::exposition::{Format, Page};
use railscope_model::metric::Profile;
use railscope_model::reading::Sample;

/// Series that Prometheus stores of a node, and what these machines do not show of them: 34 of each of 8
/// GPUs, the exporter's own (3 of each of its sources, 4 in all), 4 of the timer probe of each of 2 NUMA nodes.
const BUDGET: usize = 600;
/// What the GPU page of 8 GPUs and the runtime's own series take: 8 GPUs x 37, four series a sampler, the jitter probe.
const BUDGET_OF_OTHERS: usize = 8 * 37 + 4 + 2 * 4;
fn check(name: &str, machine: &Machine) {
    let reading = Arc::new(sample_once(machine));
    for (word, profile) in [("default", Profile::Default), ("full", Profile::Full)] {
        let text = Page::new(Arc::clone(&reading)).write(Format::OpenMetrics, profile);
        expect_file![format!("golden/{name}.{word}.prom")].assert_eq(&text);
    }
}

#[test]
fn hgx_h100_on_infiniband() {
    check("hgx-h100-ib", &ours("hgx-h100-ib"));
}

#[test]
fn hgx_h200_on_roce() {
    check("hgx-h200-roce", &ours("hgx-h200-roce"));
}

#[test]
fn a_cloud_instance_with_efa() {
    check("efa-p5", &ours("efa-p5"));
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
fn a_virtual_machine_with_a_virtual_function_and_a_gpu_passed_through() {
    check("vm-vf-passthrough", &ours("vm-vf-passthrough"));
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

#[test]
fn the_default_profile_leaves_room_for_gpus_and_nvlinks() {
    let reading = sample_once(&ours("hgx-h100-ib"));
    let shown = |profile| {
        let samples = reading.samples().iter();
        samples
            .filter(|sample| sample.profile <= profile)
            .map(Sample::series)
            .sum::<usize>()
    };
    let (default, full) = (shown(Profile::Default), shown(Profile::Full));
    println!("hgx-h100-ib: {default} series by default, {full} in full");
    assert!(
        default <= BUDGET - BUDGET_OF_OTHERS,
        "{default} series by default"
    );
}
