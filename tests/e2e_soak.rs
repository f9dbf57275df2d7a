//! A day of the real exporter in minutes: devices come and go, counters move, the NVML worker is killed, four
//! kinds of scrapes; memory, descriptors and threads stay flat.
//!
//! Samplers run 100 times as often as usual, so that a day of 86,400 samples takes a quarter of an hour:
//! `RAILSCOPE_SOAK_SAMPLES=86400 cargo test --release -p railscope --test e2e_soak -- --nocapture`. Without
//! it the test runs 2,000 samples. `RAILSCOPE_BINARY` names another build of the binary. NVML alone keeps its pace of a second, the shortest that it is asked at.

#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::node::{Node, copy};

/// How many times as often as usual samplers run.
const HURRY: u32 = 100;
/// Samples of a usual run, and of a day at one a second.
const USUAL_SAMPLES: u64 = 2_000;
/// Pause between two steps of the test.
const STEP: Duration = Duration::from_millis(50);
/// Steps between two scrapes of each kind: 15 s of the hurried node's time.
const SCRAPE_EVERY: u64 = 3;
/// Steps between two changes of devices.
const PLUG_EVERY: u64 = 16;
/// Time between two kills of the worker. One that lived for a minute is started again at once.
const KILL_EVERY: Duration = Duration::from_secs(65);
/// Samples of memory, descriptors and threads in the whole run.
const LOOKS: u64 = 200;

/// The rule of flatness. The first third warms up: caches fill and allocators take what they keep. Over the rest
/// [`growth`] stays below this: a leak of 12 bytes a sample, or of 9 descriptors in sixteen hours, does not. One step up is no leak: the heap ends where the last label above a
/// freed block is, and goes up and down by half a megabyte with each new NVML worker. A run of less
/// than five minutes is warming up all along (windows of 60 s fill): there memory may grow four times as much.
const MOST_GROWTH: [(&str, f64); 3] = [
    ("resident kB", 512.0),
    ("descriptors", 8.0),
    ("threads", 1.0),
];

/// PCI functions of two NICs, of which one is plugged at any time.
const NICS: [&str; 2] = ["mlx5_2", "mlx5_3"];

/// A NIC that is pulled out and put back, with the tree that its function's directory holds.
struct Nic {
    place: PathBuf,
    aside: PathBuf,
}

impl Nic {
    fn new(root: &Path, name: &str) -> Self {
        let device =
            fs::canonicalize(root.join("sys/class/infiniband").join(name)).expect("a device");
        // …/0000:3a:00.0/infiniband/mlx5_2
        let place = device.ancestors().nth(2).expect("a function").to_owned();
        let aside = root.join(name);
        copy(&place, &aside);
        Self { place, aside }
    }

    fn pull(&self) {
        fs::remove_dir_all(&self.place).expect("pulls");
    }

    fn put(&self) {
        copy(&self.aside, &self.place);
    }
}

/// What a process uses: resident memory in kB, open files, threads.
fn usage(pid: u32) -> [f64; 3] {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let number = |key: &str| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .expect("a line");
        let word = line.split_whitespace().next().expect("a word");
        word.parse::<f64>().expect("a number")
    };
    let open = fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("it runs")
        .count();
    [number("VmRSS:"), open as f64, number("Threads:")]
}

/// By how much the values rise from the first to the last, by the slopes between any two of them (after Theil 1950
/// and Sen 1968, who take the middle one). 40 % are smaller than the one taken here: a single step, wherever
/// it stands, parts at most half of all pairs and does not move it; a steady rise moves them all.
fn growth(values: &[f64]) -> f64 {
    let later = |(place, value): (usize, &f64)| {
        let (place, value) = (place + 1, *value);
        let after = values[place..].iter().enumerate();
        after
            .map(move |(more, later)| (later - value) / (more + 1) as f64)
            .collect::<Vec<_>>()
    };
    let mut slopes: Vec<_> = values.iter().enumerate().flat_map(later).collect();
    slopes.sort_by(f64::total_cmp);
    slopes[slopes.len() * 2 / 5] * (values.len() - 1) as f64
}

#[test]
fn growth_is_that_of_a_steady_rise_whatever_the_noise_and_the_steps() {
    let leaking = |each: f64, noise: f64| -> Vec<f64> {
        // 12 bytes a sample. The heap grows by 132 kB at a time, and its end goes up and down.
        let look = |look: u32| {
            let leaked = (f64::from(look) * each / 132.0).floor() * 132.0;
            leaked + noise * f64::from(look * 7 % 5 % 2)
        };
        (0..134).map(look).collect()
    };
    let step = |at: usize| -> Vec<f64> {
        let value = |place| if place < at { 19_330.0 } else { 19_890.0 };
        (0..134).map(value).collect()
    };
    for (values, least, most) in [
        (vec![5.0; 10], 0.0, 0.0),
        (vec![0.0, 1.0, 2.0, 3.0], 3.0, 3.0),
        (vec![9.0, 6.0, 3.0], -6.0, -6.0),
        (vec![7.0, 5.0, 7.0, 5.0, 7.0], 0.0, 0.0),
        (step(10), 0.0, 0.0),
        (step(67), 0.0, 0.0),
        (leaking(0.0, 612.0), 0.0, 0.0),
        (leaking(5.2, 0.0), 520.0, 700.0),
        (leaking(5.2, 612.0), 520.0, 700.0),
    ] {
        let grown = growth(&values);
        assert!((least..=most).contains(&grown), "{grown}: {values:?}");
    }
}

/// Lets the counters of every port grow, in place as a kernel does.
fn move_counters(root: &Path, step: u64) {
    for device in 0..8 {
        let port = root.join(format!("sys/class/infiniband/mlx5_{device}/ports/1"));
        for file in [
            "counters/port_xmit_data",
            "counters/port_rcv_data",
            "hw_counters/rx_write_requests",
        ] {
            // The device that is pulled has none.
            if port.join(file).exists() {
                fs::write(port.join(file), format!("{}\n", 1_000_000 + step * 1_000))
                    .expect("writes");
            }
        }
    }
}

/// Fails where one rises by more than [`MOST_GROWTH`] allows.
fn assert_flat(seen: &[[f64; 3]], lasting: Duration) {
    let warming = lasting < Duration::from_secs(300);
    let steady = &seen[seen.len() / 3..];
    for (place, (what, most)) in MOST_GROWTH.into_iter().enumerate() {
        let of = |looks: &[[f64; 3]]| looks.iter().map(|look| look[place]).collect::<Vec<_>>();
        let (all, values) = (of(seen), of(steady));
        let (low, high) = values
            .iter()
            .fold((f64::MAX, 0.0_f64), |(low, high), value| {
                (low.min(*value), high.max(*value))
            });
        let grown = growth(&values);
        let most = if warming && place == 0 {
            4.0 * most
        } else {
            most
        };
        println!(
            "{what}: first {}, then {low} to {high}, last {}; it rises by {grown:.1}",
            all[0],
            all[all.len() - 1]
        );
        assert!(
            grown < most,
            "{what}: grew by {grown:.1}, most {most}: {values:?}"
        );
    }
}

fn samples_taken(node: &Node) -> u64 {
    let series = r#"railscope_source_reads_total{source="rdma"}"#;
    node.value(series).unwrap_or_default() as u64
}

#[test]
fn a_day_of_samples_leaves_memory_descriptors_and_threads_flat() {
    let wanted = std::env::var("RAILSCOPE_SOAK_SAMPLES");
    let wanted = wanted.map_or(USUAL_SAMPLES, |text| {
        text.parse().expect("a number of samples")
    });
    let hurry = HURRY.to_string();
    let mut node = Node::start("hgx-h200-roce", ":", &["--sample.hurry", &hurry]);
    let nics = NICS.map(|name| Nic::new(&node.root, name));
    nics[1].pull();
    let began = Instant::now();
    let (mut step, mut scrapes, mut kills, mut plugs) = (0_u64, 0_u64, 0_u64, 0_u64);
    let (mut killed_at, mut taken) = (began, 0);
    let mut seen: Vec<[f64; 3]> = Vec::new();
    while taken < wanted {
        step += 1;
        move_counters(&node.root, step);
        if step.is_multiple_of(PLUG_EVERY) {
            // One comes as the other goes: that one is missed makes the exporter look for new ones.
            nics[usize::from(plugs.is_multiple_of(2))].put();
            nics[usize::from(!plugs.is_multiple_of(2))].pull();
            plugs += 1;
        }
        let first = kills == 0 && taken > wanted / 8;
        if (first || killed_at.elapsed() > KILL_EVERY)
            && let Some(worker) = node.worker()
        {
            let worker = Pid::from_raw(worker.cast_signed()).expect("a process");
            kill_process(worker, Signal::KILL).expect("it runs");
            (kills, killed_at) = (kills + 1, Instant::now());
        }
        if step.is_multiple_of(SCRAPE_EVERY) {
            for (path, gzip) in [
                ("/metrics", true),
                ("/metrics", false),
                ("/metrics?profile=full", true),
            ] {
                assert!(!node.scrape(path, gzip).is_empty());
            }
            taken = samples_taken(&node);
            scrapes += 4;
        }
        if taken >= seen.len() as u64 * wanted / LOOKS {
            seen.push(usage(node.process.id()));
        }
        thread::sleep(STEP);
    }
    println!(
        "{taken} samples, {scrapes} scrapes, {plugs} changes of devices, {kills} kills of the worker in {:.0} s",
        began.elapsed().as_secs_f64()
    );
    assert_flat(&seen, began.elapsed());
    assert!(kills > 0 && plugs > 0);
    node.change_gpus(|node| node.gpus[5].temperature_celsius = 77);
    node.eventually("the node is well at the end", |node| {
        let gpu = r#"railscope_gpu_temperature_celsius{gpu="5",sensor="gpu"}"#;
        node.value(gpu) == Some(77.0) && node.has_status("rdma", "", "ok") && node.age("rdma") < 5.0
    });
    let dropped = node.value("railscope_exporter_dropped_samples_total");
    assert_eq!(dropped, Some(0.0));
}
