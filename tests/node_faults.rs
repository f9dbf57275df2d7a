//! The real exporter on a node where a source blocks, crashes or lacks descriptors: the rest stays fresh and complete.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::support::node::Node;
use railscope_simulator::show::nvml::{Fault, NodeGpus};
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// `NVML_ERROR_GPU_IS_LOST`.
const LOST: u32 = 15;
/// A source that is read every second and looks older has not been read. Generous: machines that run tests stall.
const FRESH_SECONDS: f64 = 5.0;
/// Older than any source that is read every second ever is by chance, and younger than 30 s, after which its
/// values leave the exposition.
const HUNG_SECONDS: f64 = 8.0;

/// A counter of `mlx5_2` in the tree of a machine.
fn counter(root: &Path) -> PathBuf {
    root.join("sys/class/infiniband/mlx5_2/ports/1/counters/symbol_error")
}

#[test]
fn a_fifo_in_the_place_of_a_counter_costs_that_value_and_it_comes_back_without_a_restart() {
    a_fifo_in_the_place_of_a_counter(Duration::from_secs(3));
}

#[test]
#[ignore = "slow: values of a source that hangs leave the page after 30 s"]
fn slow_a_fifo_in_the_place_of_a_counter_costs_nothing_else_for_as_long_as_it_stands() {
    a_fifo_in_the_place_of_a_counter(Duration::from_secs(45));
}

const PORT_UP: &str = r#"railscope_rdma_port_up{device="mlx5_2",port="1"}"#;

/// Opening a FIFO without a writer would block forever. It exists for this long.
fn a_fifo_in_the_place_of_a_counter(stands: Duration) {
    let mut before = String::new();
    let node = Node::start_with(
        "hgx-h200-roce",
        |root| {
            let file = counter(root);
            before = fs::read_to_string(&file).expect("a counter");
            fs::remove_file(&file).expect("removes");
            mknodat(CWD, &file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("mkfifo");
        },
        ":",
        &[],
    );
    let errors = |device: &str| {
        format!(
            r#"railscope_rdma_port_errors_total{{device="{device}",port="1",kind="symbol_error"}}"#
        )
    };
    let (lost, other) = (errors("mlx5_2"), errors("mlx5_1"));
    node.eventually("the device says that a value is missing", |node| {
        node.has_status("rdma", "mlx5_2", "failed")
    });
    thread::sleep(stands);
    assert!(node.has_status("rdma", "", "ok"));
    assert_eq!(node.value(PORT_UP), Some(1.0));
    assert!(node.value(&other).is_some());
    assert_eq!(node.value(&lost), None);
    for source in ["rdma", "ethernet", "gpu", "kernel_log"] {
        let age = node.age(source);
        assert!(age < FRESH_SECONDS, "{source}: {age} s old");
    }
    let named = counter(&node.root).canonicalize().expect("the FIFO");
    let log = node.process.output();
    let warnings = log
        .lines()
        .filter(|line| line.contains(&*named.to_string_lossy()));
    assert_eq!(warnings.count(), 1, "the log names the file once: {log}");

    fs::remove_file(&named).expect("removes");
    fs::write(&named, before).expect("writes");
    node.eventually("the counter is read again", |node| {
        node.value(&lost).is_some() && !node.has_status("rdma", "mlx5_2", "failed")
    });
}

/// What can happen to a GPU, by name, and how its status then reads: none where all GPUs go with the worker.
type Case = (&'static str, fn(&mut NodeGpus), Option<&'static str>);

#[test]
fn whatever_a_driver_does_to_one_gpu_the_rest_of_the_page_is_fresh_and_it_comes_back() {
    let mut node = Node::start("hgx-h200-roce", ":", &[]);
    let cases: [Case; 3] = [
        (
            "hangs",
            |node| node.gpus[2].faults.push(Fault::hang("*")),
            Some("timeout"),
        ),
        (
            "is lost",
            |node| node.gpus[2].faults.push(Fault::fail("*", LOST)),
            Some("failed"),
        ),
        ("crashes the library", |node| node.crash = true, None),
    ];
    let mut celsius = 40;
    for (case, fault, status) in cases {
        celsius += 1;
        all_but(&mut node, &[], celsius);
        let worker = node.worker();
        node.change_gpus(fault);
        match status {
            Some(status) => {
                node.eventually(case, |node| node.has_status("gpu", "2", status));
                assert_eq!(temperature(&node, 2), None, "{case}: stale values are gone");
                celsius += 1;
                all_but(&mut node, &[2], celsius);
            }
            None => node.eventually(case, |node| node.worker() != worker),
        }
        for source in ["rdma", "ethernet", "kernel_log"] {
            assert!(
                node.age(source) < FRESH_SECONDS,
                "{case}: {source}: {} s old",
                node.age(source)
            );
        }
        if status == Some("timeout") {
            node.eventually("the age shows it", |node| node.age("gpu") > HUNG_SECONDS);
        }
        node.change_gpus(|node| {
            node.gpus[2].faults.clear();
            node.crash = false;
        });
        celsius += 1;
        all_but(&mut node, &[], celsius);
        node.eventually("young again", |node| node.age("gpu") < FRESH_SECONDS);
        for status in ["timeout", "failed"] {
            assert!(
                !node.has_status("gpu", "2", status),
                "{case}: still {status}"
            );
        }
    }
}

fn temperature(node: &Node, gpu: usize) -> Option<f64> {
    node.value(&format!(
        r#"railscope_gpu_temperature_celsius{{gpu="{gpu}",sensor="gpu"}}"#
    ))
}

/// Waits until all GPUs but these show a change that is made now.
fn all_but(node: &mut Node, silent: &[usize], celsius: u32) {
    node.change_gpus(|node| {
        for gpu in &mut node.gpus {
            gpu.temperature_celsius = celsius;
        }
    });
    node.eventually("the others are fresh", |node| {
        let mut others = (0..node.gpus.gpus.len()).filter(|gpu| !silent.contains(gpu));
        others.all(|gpu| temperature(node, gpu) == Some(f64::from(celsius)))
    });
}

/// Series that any two exporters on equal machines have in common: all but those that take time to appear.
fn names(node: &Node) -> BTreeSet<String> {
    // Peak rates come with the second sample, GPUs with the worker's first lines.
    node.eventually("the page is complete", |node| {
        let page = node.page("/metrics?profile=full");
        let has = |start: &str| page.keys().any(|key| key.starts_with(start));
        has("railscope_rdma_port_peak_transmit")
            && temperature(node, 7).is_some()
            && has("railscope_pcie_link_width")
    });
    thread::sleep(Duration::from_secs(2));
    let page = node.page("/metrics?profile=full");
    page.into_keys()
        .filter(|key| !key.starts_with("railscope_host_") && !key.contains("jitter"))
        .collect()
}

#[test]
fn under_a_low_limit_of_open_files_no_value_is_lost() {
    let whole = names(&Node::start("hgx-h200-roce", ":", &["--no-jitter-probe"]));
    assert!(whole.len() > 2000, "{} series", whole.len());
    for limit in [128, 256] {
        let node = Node::start(
            "hgx-h200-roce",
            &format!("ulimit -n {limit}"),
            &["--no-jitter-probe"],
        );
        let page = names(&node);
        let lost: Vec<_> = whole.difference(&page).collect();
        let more: Vec<_> = page.difference(&whole).collect();
        assert!(
            lost.is_empty() && more.is_empty(),
            "limit {limit}: lost {lost:#?}, more {more:#?}"
        );
        let open = fs::read_dir(format!("/proc/{}/fd", node.process.id()))
            .expect("procfs")
            .count();
        println!("limit {limit}: {open} descriptors open");
        assert!(
            open <= limit * 3 / 4,
            "limit {limit}: {open} descriptors leave too little room"
        );
    }
}
