//! What the hardware of nodes says of itself, and what is only how such boards are.

use super::cluster::NODES;
use super::{Fault, check, with};

const NAMED: &[&str] = &["host-hardware host/n3 gpus=4 [gpu/n3:0 gpu/n3:1 gpu/n3:2 gpu/n3:3]"];

/// The state of a fan by node and second.
fn fan(state: fn(usize, u64) -> u32) -> Box<Fault> {
    with(move |node, seconds| {
        format!(
            "railscope_sensor_info{{chip=\"c\",sensor=\"fan1\",driver=\"nct6775\",label=\"FAN1\"}} 1\n\
             railscope_sensor_alarm{{chip=\"c\",sensor=\"fan1\",kind=\"fan\"}} {}\n",
            state(node, seconds)
        )
    })
}

#[test]
fn a_fan_in_a_critical_state_is_named_unless_it_is_so_everywhere() {
    check(&fan(|node, _| if node == 3 { 2 } else { 0 }), NAMED);
    check(&fan(|node, _| u32::from(node == 3)), &[]);
    check(&fan(|_, _| 2), &[]);
    check(&fan(|node, _| if node < NODES / 2 { 2 } else { 0 }), &[]);
    // It comes and goes.
    check(
        &fan(|node, seconds| if node == 3 && seconds % 20 < 10 { 2 } else { 0 }),
        &[],
    );
}

/// A counter by node, so many a second.
fn counts(series: &'static str, per_second: fn(usize) -> f64) -> Box<Fault> {
    with(move |node, seconds| {
        let count = (per_second(node) * seconds as f64).floor();
        format!("{series} {count}\n")
    })
}

#[test]
fn errors_of_memory_and_slowdowns_by_heat_are_named_if_others_have_none() {
    const UNCORRECTED: &str =
        "railscope_memory_errors_total{controller=\"mc0\",severity=\"uncorrected\"}";
    const CORRECTED: &str =
        "railscope_memory_errors_total{controller=\"mc0\",severity=\"corrected\"}";
    const THROTTLES: &str = "railscope_cpu_throttles_total{kind=\"package\"}";
    check(
        &counts(UNCORRECTED, |node| if node == 3 { 0.02 } else { 0.0 }),
        NAMED,
    );
    check(
        &counts(CORRECTED, |node| if node == 3 { 0.5 } else { 0.0 }),
        NAMED,
    );
    check(
        &counts(CORRECTED, |node| if node == 3 { 0.02 } else { 0.0 }),
        &[],
    );
    check(
        &counts(THROTTLES, |node| if node == 3 { 0.5 } else { 0.0 }),
        NAMED,
    );
    // The room is hot.
    check(&counts(THROTTLES, |_| 0.5), &[]);
}

#[test]
fn a_node_of_which_even_the_fastest_cpu_is_slow_is_named() {
    let fastest = |hertz: fn(usize) -> f64| {
        with(move |node, _| {
            format!(
                "railscope_cpu_frequency_hertz{{statistic=\"min\"}} 8e8\n\
                 railscope_cpu_frequency_hertz{{statistic=\"max\"}} {}\n",
                hertz(node)
            )
        })
    };
    check(
        &fastest(|node| if node == 3 { 1.2e9 } else { 3.5e9 }),
        NAMED,
    );
    check(&fastest(|node| if node == 3 { 3.1e9 } else { 3.5e9 }), &[]);
}
