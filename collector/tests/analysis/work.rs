//! GPUs that need longer than their peers at the same clock: the slow one is named, and one that was only read at another time
//! is not.

use std::collections::BTreeSet;

use railscope_collector::analyzer::Analyzer;

use super::cluster::{NODES, RAILS, at, node, page};
use super::hosts::in_jobs;
use super::{Fault, check, incidents, of_gpus, set, with};

/// Tensor activity of the GPUs of a node, by GPU, in per cent.
fn activity(percent: impl Fn(usize) -> f64) -> String {
    of_gpus(|gpu| {
        format!(
            "railscope_gpu_tensor_active_ratio{{gpu=\"{gpu}\"}} {}\n",
            percent(gpu) / 100.0
        )
    })
}

/// Tensor activity by node and GPU, in per cent.
fn active(percent: fn(usize, usize) -> f64) -> Box<Fault> {
    with(move |node, _| activity(|gpu| percent(node, gpu)))
}

/// What is named at each scrape, with these lines by node and second.
fn by_the_page(
    every: usize,
    until: u64,
    told: impl Fn(usize, u64) -> String,
) -> Vec<(u64, Vec<String>)> {
    let mut analyzer = Analyzer::default();
    analyzer.set_targets(&(0..NODES).map(node).collect::<Vec<_>>());
    let pages = (0..until).step_by(every);
    let named = pages.map(|seconds| {
        for index in 0..NODES {
            let text = page(index, seconds) + &told(index, seconds);
            analyzer.ingest(&node(index), &text, at(seconds));
        }
        (seconds, incidents(&analyzer.tick(at(seconds))))
    });
    named.collect()
}

/// Everything that is ever named in two minutes.
fn ever_named(every: usize, told: impl Fn(usize, u64) -> String) -> BTreeSet<String> {
    let named = by_the_page(every, 120, told);
    named.into_iter().flat_map(|(_, named)| named).collect()
}

/// Tensor activity by node, GPU and second, in per cent.
fn sampled(percent: impl Fn(usize, usize, u64) -> f64) -> impl Fn(usize, u64) -> String {
    move |node, seconds| activity(|gpu| percent(node, gpu, seconds))
}

/// Activity in a window of a second, anywhere in a step of several: any of 25 to 75 %.
fn window_of_a_step(node: usize, gpu: usize, seconds: u64) -> f64 {
    let mut draw = (1 + node as u64) << 40 | (1 + gpu as u64) << 32 | seconds;
    for _ in 0..3 {
        draw = (draw ^ draw >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    25.0 + (draw >> 32) as f64 / f64::from(u32::MAX) * 50.0
}

#[test]
fn activity_that_was_read_at_other_moments_accuses_no_gpu() {
    let slow = |node, gpu, _| if (node, gpu) == (1, 2) { 44.0 } else { 40.0 };
    assert!(ever_named(1, sampled(slow)).contains("gpu-slow gpu/n1:2 gpus=1 []"));
    // All of a job computes less from the 30th second on, and the reports of two GPUs are older than those of the others.
    let late = |node: usize, gpu: usize, seconds| {
        let told = if node == 2 && gpu < 2 { 3 } else { 0 };
        if seconds < 30 + told { 40.0 } else { 33.0 }
    };
    assert_eq!(ever_named(1, sampled(late)), BTreeSet::new());
    for every in [1, 5, 10] {
        let named = ever_named(every, sampled(window_of_a_step));
        assert_eq!(named, BTreeSet::new(), "a page every {every} s");
    }
}

#[test]
fn a_gpu_that_needs_longer_at_its_full_clock_is_slow_unless_its_role_or_its_stage_is() {
    check(
        &active(|node, gpu| if (node, gpu) == (1, 2) { 44.0 } else { 40.0 }),
        &["gpu-slow gpu/n1:2 gpus=1 []"],
    );
    check(&active(|_, gpu| if gpu == 0 { 44.0 } else { 40.0 }), &[]);
    check(&active(|node, _| if node == 7 { 56.0 } else { 40.0 }), &[]);
    check(
        &active(|node, gpu| f64::from((node + gpu) as u32) * 0.1),
        &[],
    );
}

/// A rank that waits in a collective is utilized; a GPU that serves fewer requests is not.
#[test]
fn a_gpu_with_more_to_do_than_gpus_that_are_idle_meanwhile_is_not_slow() {
    let busy = |others: f64| -> Box<Fault> {
        Box::new(move |index, _, page: String| {
            let line = |gpu| format!("railscope_gpu_utilization_ratio{{gpu=\"{gpu}\"}} ");
            let mut page = page;
            for gpu in (0..RAILS).filter(|gpu| (index, *gpu) != (1, 2)) {
                page = page.replace(&(line(gpu) + "1\n"), &format!("{}{others}\n", line(gpu)));
            }
            page + &activity(|gpu| if (index, gpu) == (1, 2) { 44.0 } else { 33.0 })
        })
    };
    check(&busy(0.95), &["gpu-slow gpu/n1:2 gpus=1 []"]);
    check(&busy(0.75), &[]);
}

#[test]
fn several_gpus_of_a_job_with_more_tensor_work_have_unequal_work() {
    let more = |of: &'static [(usize, usize)]| {
        let percent = move |node, gpu| {
            if of.contains(&(node, gpu)) {
                44.0
            } else {
                40.0
            }
        };
        in_jobs(with(move |node, _| activity(|gpu| percent(node, gpu))))
    };
    check(&more(&[(1, 2)]), &["gpu-slow gpu/n1:2 gpus=24 []"]);
    check(&more(&[(1, 2), (3, 0)]), &[]);
    // They are of different jobs.
    let named = [
        "gpu-slow gpu/n1:2 gpus=24 []",
        "gpu-slow gpu/n7:0 gpus=8 []",
    ];
    check(&more(&[(1, 2), (7, 0)]), &named);
}

#[test]
fn two_gpus_of_a_node_with_more_work_may_be_of_another_job() {
    check(
        &active(|node, gpu| if node == 1 && gpu < 2 { 44.0 } else { 40.0 }),
        &[],
    );
}

/// What an exporter has summed up of a GPU: the time that it has watched, and that with tensor operations.
fn sums(gpu: usize, monitored: f64, active: f64) -> String {
    format!(
        "railscope_gpu_monitored_seconds_total{{gpu=\"{gpu}\"}} {monitored}\n\
         railscope_gpu_tensor_active_seconds_total{{gpu=\"{gpu}\"}} {active}\n"
    )
}

/// Windows of activity that show nothing, and sums that show which GPU works more in the same time; cycles of tensor cores too.
fn counted(more: fn(usize, usize) -> f64, with_cycles: bool) -> Box<Fault> {
    with(move |node, seconds| {
        let sums = of_gpus(|gpu| {
            let monitored = 100.0 + seconds as f64;
            let more = more(node, gpu);
            // The share stays where the clock rises with the work.
            let share = if with_cycles { 0.4 } else { 0.4 * more };
            let cycles = with_cycles.then(|| {
                let count = 7e8 * more * monitored;
                format!("railscope_gpu_tensor_active_cycles_total{{gpu=\"{gpu}\"}} {count}\n")
            });
            sums(gpu, monitored, share * monitored) + &cycles.unwrap_or_default()
        });
        activity(|gpu| window_of_a_step(node, gpu, seconds)) + &sums
    })
}

#[test]
fn sums_tell_who_works_more_where_windows_of_activity_do_not() {
    for with_cycles in [false, true] {
        let named: &[&str] = &["gpu-slow gpu/n1:2 gpus=1 []"];
        let much = |node, gpu| if (node, gpu) == (1, 2) { 1.05 } else { 1.0 };
        check(&counted(much, with_cycles), named);
        let little = |node, gpu| if (node, gpu) == (1, 2) { 1.02 } else { 1.0 };
        check(&counted(little, with_cycles), named);
        let nothing = |node, gpu| if (node, gpu) == (1, 2) { 1.01 } else { 1.0 };
        check(&counted(nothing, with_cycles), &[]);
        let role = |_, gpu| if gpu == 0 { 1.1 } else { 1.0 };
        check(&counted(role, with_cycles), &[]);
        let stage = |node, _| if node == 7 { 1.4 } else { 1.0 };
        check(&counted(stage, with_cycles), &[]);
        check(&counted(|_, _| 0.0, with_cycles), &[]);
    }
}

/// Work of a job: the share of each instant with tensor operations, and so that of a window that ends now.
fn done(until: f64, share: impl Fn(f64) -> f64) -> f64 {
    let steps = (until * 100.0) as usize;
    (0..steps)
        .map(|step| share(step as f64 / 100.0) / 100.0)
        .sum()
}

#[test]
fn a_gpu_that_is_read_at_other_moments_is_not_slow_by_its_sums() {
    // Steps of 2.5 s of which 1 s is communication, scraped at each second one: a GPU read half a second later than
    // the others has more of the computing in its last second, always.
    let steps = |at: f64| if at % 2.5 < 1.5 { 0.6 } else { 0.0 };
    let starts = |at: f64| if at < 31.3 { 0.0 } else { 0.4 };
    let slows = |at: f64| if at < 31.3 { 0.4 } else { 0.3 };
    let stops = |at: f64| if at < 71.3 { 0.4 } else { 0.0 };
    let jobs: [(&str, &dyn Fn(f64) -> f64); 4] = [
        ("steps", &steps),
        ("starts", &starts),
        ("slows", &slows),
        ("stops", &stops),
    ];
    for (job, share) in jobs {
        let named = ever_named(5, |index, seconds| {
            let told = of_gpus(|gpu| {
                // One GPU is read late, another ever later, until it is read again; on one node all but one block briefly.
                let late = match (index, gpu) {
                    (1, 2) | (3, 3) => 0.9,
                    (2, 1) => 0.05 * (seconds % 60) as f64,
                    (3, _) => 4.4,
                    _ => 1.9,
                };
                let until = 10.0 + seconds as f64 - late;
                let active = done(until, |at| share(at - 10.0));
                let window = active - done(until - 1.0, |at| share(at - 10.0));
                sums(gpu, until, active)
                    + &format!("railscope_gpu_tensor_active_ratio{{gpu=\"{gpu}\"}} {window}\n")
            });
            let age = if index == 3 { 4.4 } else { 1.9 };
            told + &format!("railscope_source_age_seconds{{source=\"gpu\"}} {age}\n")
        });
        assert_eq!(named, BTreeSet::new(), "a job that {job}");
    }
}

#[test]
fn a_job_that_stands_still_is_not_judged_by_what_it_did_before() {
    // One GPU did half as much again in its last seconds, for whatever reason.
    let stopped = |stops: f64| {
        with(move |node, seconds| {
            let until = seconds as f64;
            of_gpus(|gpu| {
                let more = if (node, gpu) == (1, 2) { 1.5 } else { 1.0 };
                let late = (until.min(stops) - 60.0).max(0.0);
                let active = 0.4 * (until.min(60.0) + more * late);
                sums(gpu, 1.0 + until, active)
            })
        })
    };
    check(&stopped(65.0), &[]);
    check(&stopped(1e9), &["gpu-slow gpu/n1:2 gpus=1 []"]);
}

#[test]
fn a_gpu_that_was_held_back_for_a_while_does_not_need_longer_at_its_clock() {
    // At half of its clock it was active for longer, and all others waited; that is over.
    check(
        &|node, seconds, page: String| {
            let hot = seconds.clamp(55, 95) as f64 - 55.0;
            let well = seconds as f64 - hot;
            let told = of_gpus(|gpu| {
                let share = if (node, gpu) == (1, 2) { 0.6 } else { 0.3 };
                sums(gpu, 1.0 + seconds as f64, 0.4 * well + share * hot)
            });
            let clock = "railscope_gpu_clock_hertz{gpu=\"2\",clock=\"sm\"} ";
            let is_held = node == 1 && (55..95).contains(&seconds);
            let page = if is_held {
                page.replace(&format!("{clock}1.98e9"), &format!("{clock}0.99e9"))
            } else {
                page
            };
            page + &told
        },
        &[],
    );
}

#[test]
fn a_gpu_that_is_far_off_is_seen_a_sample_sooner() {
    let first_seen = |percent: f64| {
        let slow = move |node, gpu, seconds| match (node, gpu) {
            (1, 2) if seconds >= 55 => percent,
            _ => 40.0,
        };
        let seen = by_the_page(5, 150, sampled(slow));
        seen.into_iter().find(|(_, named)| !named.is_empty())
    };
    // The first sample is at 55 s, the next 5 s later; then it has to stay so for 45 s.
    let (far, near) = (first_seen(46.0), first_seen(42.0));
    let at = |seen: Option<(u64, Vec<String>)>| seen.map(|(seconds, _)| seconds);
    assert_eq!((at(far), at(near)), (Some(110), Some(115)));
}

#[test]
fn work_that_moves_from_gpu_to_gpu_makes_none_of_them_slow() {
    // For 20 s each two GPUs of eight have a sixth more to do, then the next two.
    let moving = |node: usize, gpu: usize, seconds: u64| {
        let turn = (seconds / 20) as usize % 2;
        if node == 1 && gpu / 2 == turn {
            47.0
        } else {
            40.0
        }
    };
    for every in [1, 5] {
        assert_eq!(ever_named(every, sampled(moving)), BTreeSet::new());
    }
    let told = |node: usize, seconds: u64| {
        of_gpus(|gpu| {
            let active = done(seconds as f64, |at| moving(node, gpu, at as u64) / 100.0);
            sums(gpu, 1.0 + seconds as f64, active)
        })
    };
    assert_eq!(ever_named(5, told), BTreeSet::new());
    // What stays on one GPU is named.
    let stays = |node, gpu, _| if (node, gpu) == (1, 2) { 47.0 } else { 40.0 };
    assert!(ever_named(5, sampled(stays)).contains("gpu-slow gpu/n1:2 gpus=1 []"));
}

#[test]
fn a_gpu_whose_sms_or_memory_are_busy_for_longer_with_the_same_tensor_work_is_slow() {
    let told = |metric: &'static str, share_of_it: f64, tensor: f64| {
        with(move |node, _| {
            let is_it = |gpu: usize| (node, gpu) == (1, 2);
            let busy = of_gpus(|gpu| {
                let share = if is_it(gpu) { share_of_it } else { 0.55 };
                format!("{metric}{{gpu=\"{gpu}\"}} {share}\n")
            });
            activity(|gpu| if is_it(gpu) { tensor } else { 30.0 }) + &busy
        })
    };
    for metric in [
        "railscope_gpu_sm_active_ratio",
        "railscope_gpu_dram_bandwidth_ratio",
    ] {
        check(&told(metric, 0.7, 30.0), &["gpu-slow gpu/n1:2 gpus=1 []"]);
        // Another program.
        check(&told(metric, 0.7, 10.0), &[]);
    }
    check(&told("railscope_gpu_dram_bandwidth_ratio", 0.58, 30.0), &[]);
    // One GPU that is behind in both is not two with more work.
    check(
        &told("railscope_gpu_dram_bandwidth_ratio", 0.62, 31.2),
        &["gpu-slow gpu/n1:2 gpus=1 []"],
    );
}

#[test]
fn memory_that_is_as_active_is_not_slow_whatever_the_clock_of_the_sms() {
    let capped: Box<Fault> = Box::new(|node, _, page: String| {
        let is_free = |gpu: usize| (node, gpu) == (1, 2);
        let clock = |gpu| format!("railscope_gpu_clock_hertz{{gpu=\"{gpu}\",clock=\"sm\"}} ");
        let capped = (0..8).filter(|gpu| !is_free(*gpu));
        let page = capped.fold(page, |page, gpu| {
            page.replace(&(clock(gpu) + "1.98e9"), &(clock(gpu) + "1.584e9"))
        });
        let memory =
            of_gpus(|gpu| format!("railscope_gpu_dram_bandwidth_ratio{{gpu=\"{gpu}\"}} 0.55\n"));
        page + &activity(|gpu| if is_free(gpu) { 24.0 } else { 30.0 }) + &memory
    });
    check(&capped, &[]);
}

/// Activity of SMs and of tensor cores, with these GPUs of a node whose SMs are busy for longer.
fn longer_sms(
    gpus: usize,
    tensor: f64,
    slow: std::ops::Range<usize>,
) -> impl Fn(usize, u64) -> String {
    move |node, _| {
        let of = |gpu: usize| {
            let share = if node == 1 && slow.contains(&gpu) {
                0.72
            } else {
                0.6
            };
            format!(
                "railscope_gpu_sm_active_ratio{{gpu=\"{gpu}\"}} {share}\n\
                 railscope_gpu_tensor_active_ratio{{gpu=\"{gpu}\"}} {tensor}\n"
            )
        };
        (0..gpus).map(of).collect()
    }
}

#[test]
fn slow_sms_are_found_at_half_a_minute_between_scrapes_and_not_among_two_gpus() {
    let named = |every: usize, gpus: usize, tensor: f64| {
        let named = by_the_page(every, 400, longer_sms(gpus, tensor, 1..2));
        let all: BTreeSet<_> = named.into_iter().flat_map(|(_, named)| named).collect();
        all
    };
    let slow = BTreeSet::from(["gpu-slow gpu/n1:1 gpus=1 []".to_owned()]);
    for every in [5, 15, 30] {
        assert_eq!(named(every, 4, 0.3), slow, "every {every} s");
    }
    assert_eq!(named(5, 2, 0.3), BTreeSet::new());
    // No tensor work that could be compared.
    assert_eq!(named(5, 4, 0.001), BTreeSet::new());
    // Another job on half of the node.
    for half in [0..4, 4..8] {
        let named = by_the_page(5, 400, longer_sms(8, 0.3, half));
        assert!(named.iter().all(|(_, named)| named.is_empty()), "{named:?}");
    }
}

/// Samples of a second that fall into the time in which all compute, and into that in which the others wait for one of them.
#[test]
fn a_gpu_for_which_the_others_wait_is_slow_by_the_mean_of_its_samples() {
    let told = |tensor_while_others_wait: f64| {
        move |node: usize, seconds: u64| {
            let computes = (seconds / 10).is_multiple_of(2);
            let is_it = |gpu: usize| (node, gpu) == (1, 2);
            let sm = of_gpus(|gpu| {
                let share = match (computes, is_it(gpu)) {
                    (true, false) => 0.75,
                    (true, true) => 0.77,
                    (false, true) => 0.65,
                    (false, false) => 0.17,
                };
                format!("railscope_gpu_sm_active_ratio{{gpu=\"{gpu}\"}} {share}\n")
            });
            let tensor = activity(|gpu| match (computes, is_it(gpu)) {
                (true, false) => 47.0,
                (true, true) => 33.0,
                (false, true) => tensor_while_others_wait,
                (false, false) => 2.0,
            });
            tensor + &sm
        }
    };
    let named = |tensor: f64| {
        let named = by_the_page(10, 240, told(tensor));
        let all: BTreeSet<_> = named.into_iter().flat_map(|(_, named)| named).collect();
        all
    };
    let slow = BTreeSet::from(["gpu-slow gpu/n1:2 gpus=1 []".to_owned()]);
    assert_eq!(named(17.0), slow);
    // It does more work.
    assert_eq!(named(40.0), BTreeSet::new());
}

/// Healthy GPUs of a job differ by a few percent at the same clock; of one node, too few show by how much.
#[test]
fn a_gpu_that_differs_as_all_do_is_not_slow() {
    let differs = |node: usize, gpu: usize| {
        // Node 1 has three alike and one that needs 3 % longer, as many GPUs of other nodes do.
        let usual = [0.985, 1.0, 1.012, 1.022][(gpu + node) % 4];
        match (node, gpu) {
            (1, 2) => 1.032,
            (1, _) => 1.0,
            _ => usual,
        }
    };
    check(&counted(differs, false), &[]);
}

#[test]
fn a_gpu_far_below_its_node_is_slow_without_a_reason_unless_it_draws_more_power() {
    let clock = || {
        let series = r#"railscope_gpu_clock_hertz{gpu="3",clock="sm"}"#;
        set(1, series, |_| 1.2e9)
    };
    check(&clock(), &["gpu-slow gpu/n1:3 gpus=1 []"]);
    // At a power limit a GPU that works harder runs slower.
    let watts = |node, gpu: usize| {
        let more = if (node, gpu) == (1, 3) { 1.1 } else { 1.0 };
        format!(
            "railscope_gpu_power_watts{{gpu=\"{gpu}\"}} {}\n",
            600.0 * more
        )
    };
    let low = clock();
    let with_power = move |node: usize, seconds: u64, page: String| {
        low(node, seconds, page) + &of_gpus(|gpu| watts(node, gpu))
    };
    check(&with_power, &[]);
}
