//! GPUs for which the others of their node wait, where no activity of SMs or tensor cores is exported.

use super::super::{Fault, incidents, of_gpus, run_every};

/// Utilization, memory activity in percent, and power in W of a GPU.
type Load = (f64, u32, f64);

const WORKS: Load = (1.0, 19, 188.0);
const WAITS: Load = (0.99, 15, 162.0);

/// GPUs report so by node, GPU and time.
fn loads(of: impl Fn(usize, usize, u64) -> Load + 'static) -> Box<Fault> {
    const REPLACED: [&str; 4] = [
        "tensor_active",
        "sm_active",
        "utilization",
        "gpu_power_watts",
    ];
    Box::new(move |node, seconds, page| {
        let is_kept = |line: &&str| !REPLACED.iter().any(|name| line.contains(name));
        let kept = page.lines().filter(is_kept);
        let kept: String = kept.map(|line| format!("{line}\n")).collect();
        kept + &of_gpus(|gpu| {
            let (utilization, percent, watts) = of(node, gpu, seconds);
            let memory = f64::from(percent) / 100.0;
            format!(
                "railscope_gpu_utilization_ratio{{gpu=\"{gpu}\"}} {utilization}\n\
                 railscope_gpu_memory_utilization_ratio{{gpu=\"{gpu}\"}} {memory}\n\
                 railscope_gpu_power_watts{{gpu=\"{gpu}\"}} {watts}\n"
            )
        })
    })
}

/// What is open after 300 s if from 100 s on GPU 2 of node 3 has the one load and the others of its node the other, until a time.
fn found(one: Load, others: Load, until: u64) -> Vec<String> {
    incidents(&run_every(
        10,
        0,
        &loads(move |node, gpu, seconds| match (node, gpu) {
            _ if !(100..until).contains(&seconds) => WORKS,
            (3, 2) => one,
            (3, _) => others,
            _ => WORKS,
        }),
    ))
}

#[test]
fn a_gpu_that_works_on_while_the_others_of_its_node_begin_to_wait_is_slow() {
    assert_eq!(found(WORKS, WAITS, 400), ["gpu-slow gpu/n3:2 gpus=1 []"]);
    assert_eq!(found(WORKS, WAITS, 130), [""; 0], "work that moves on");
    assert_eq!(
        found(WORKS, (1.0, 1, 80.0), 400),
        [""; 0],
        "one saves the model for all"
    );
    assert_eq!(
        found(WAITS, WAITS, 400),
        [""; 0],
        "they wait for another node"
    );
    assert_eq!(found(WORKS, (0.6, 15, 162.0), 400), [""; 0], "less work");
    assert_eq!(found(WORKS, (0.99, 15, 188.0), 400), [""; 0], "other work");
}

#[test]
fn several_gpus_that_work_on_at_once_have_more_work() {
    let of = |node, gpu, seconds| match (node, gpu) {
        (3 | 5, 2) => WORKS,
        (3 | 5, _) if seconds >= 100 => WAITS,
        _ => WORKS,
    };
    assert_eq!(incidents(&run_every(10, 0, &loads(of))), [""; 0]);
}
