//! Readings near their limits, and scrapes that are farther apart than the windows of rules.

use super::health::pause_of_one;
use super::{check, incidents, of_gpus, run_every, set, with};

#[test]
fn pause_is_seen_however_slow_the_scrapes_are() {
    for interval in [5, 10, 15, 30, 60] {
        for (share, expected) in [
            (0.3, "slow-receiver pcie/n5:0000:11:00.0 gpus=1 [gpu/n5:1]"),
            (1.0, "pfc-storm nic/n5:mlx5_1 gpus=1 [gpu/n5:1]"),
        ] {
            let view = run_every(interval, 10, &pause_of_one(share));
            assert_eq!(incidents(&view), [expected], "every {interval} s");
        }
    }
}

#[test]
fn a_nic_that_pauses_its_switch_and_receives_nothing_is_a_storm_and_no_slow_receiver() {
    let receives = |bytes_per_second: f64| {
        let pauses = pause_of_one(0.3);
        let fault = move |node, seconds, page| {
            let bytes = bytes_per_second * seconds as f64;
            pauses(node, seconds, page)
                + &format!(
                    "railscope_rdma_port_receive_bytes_total{{device=\"mlx5_1\",port=\"1\"}} {bytes}\n"
                )
        };
        incidents(&run_every(5, 10, &fault))
    };
    let storm = "pfc-storm nic/n5:mlx5_1 gpus=1 [gpu/n5:1]";
    assert_eq!(receives(4000.0), [storm]);
    let slow = "slow-receiver pcie/n5:0000:11:00.0 gpus=1 [gpu/n5:1]";
    assert_eq!(receives(5e9), [slow]);
}

/// At a constant rate of errors, chance brings more of them in one window and fewer in the next.
#[test]
fn a_rate_near_its_limit_is_one_incident_until_it_is_below() {
    let found_after = |rises: &[f64]| {
        let rises = rises.to_vec();
        let errors = with(move |node, seconds| {
            let windows = rises.iter().enumerate();
            let so_far = windows.map(|(number, rise)| {
                let passed = (seconds as f64 - 120.0 * number as f64) / 120.0;
                rise * passed.clamp(0.0, 1.0)
            });
            let count = if node == 5 {
                so_far.sum::<f64>().floor()
            } else {
                0.0
            };
            format!("railscope_gpu_nvlink_errors_total{{gpu=\"1\",kind=\"replay\"}} {count}\n")
        });
        // Nearly four windows.
        incidents(&run_every(15, 0, &errors)).len()
    };
    // The limit is two in a window, the minimum that is evaluated is five.
    let at_the_end = |last: f64| found_after(&[30.0, last, last, last]);
    assert_eq!([at_the_end(8.0), at_the_end(3.0)], [1, 0]);
    assert_eq!(found_after(&[8.0; 4]), 0);
}

/// One error now here, now there is what such links do; many on one GPU are its fault.
#[test]
fn single_errors_that_many_gpus_have_in_turn_are_no_fault_of_one() {
    let recoveries = |broken: f64| {
        with(move |node, seconds| {
            of_gpus(|gpu| {
                let own = (seconds as usize + 7 * node + 3 * gpu) / 97;
                let count = match (node, gpu) {
                    (5, 1) => broken * seconds as f64,
                    _ => own as f64,
                };
                let labels = format!("gpu=\"{gpu}\",kind=\"recovery\"");
                format!(
                    "railscope_gpu_nvlink_errors_total{{{labels}}} {}\n",
                    count.floor()
                )
            })
        })
    };
    let found = |broken: f64| incidents(&run_every(5, 10, &recoveries(broken)));
    assert_eq!(found(0.01), [""; 0]);
    assert_eq!(found(0.2), ["nvlink-errors gpu/n5:1 gpus=1 []"]);
}

#[test]
fn a_faster_link_may_have_more_bit_errors() {
    const ERRORS: &str =
        "railscope_rdma_port_errors_total{device=\"mlx5_0\",port=\"1\",kind=\"symbol_error\"}";
    // 720 per hour: half of the limit at 400 Gb/s, and many times that of a link of unknown speed.
    let errors = set(6, ERRORS, |seconds| (seconds / 5) as f64);
    check(&errors, &[]);
    let unknown = move |node, seconds, page: String| {
        let lines = page.lines().map(|line| format!("{line}\n"));
        let lines = lines.filter(|line| !line.starts_with("railscope_rdma_port_speed"));
        errors(node, seconds, lines.collect())
    };
    check(
        &unknown,
        &["link-errors link/n6:mlx5_0/1 gpus=1 [gpu/n6:0]"],
    );
}
