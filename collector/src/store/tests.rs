//! Scrapes and readings that come late, twice, with resets, and go away.

mod hostile;
mod since;
mod slots;
mod speakers;
mod templates;

use super::*;
use railscope_model::exposition::{Format, Page};
use railscope_model::metric::{
    HOST_TIMER_DELAY, NVML_CALLS, Profile, RDMA_PORT_ERRORS, RDMA_PORT_UP, SWITCH_PORT_UP,
};
use railscope_model::reading::{Histogram, Labels, NodeReading};

fn at(seconds: u64) -> Timestamp {
    Timestamp(seconds * 1000)
}

#[test]
fn known_series_are_kept_foreign_ones_counted_and_bad_lines_returned() {
    let mut node = NodeHistory::default();
    let page = format!(
        "railscope_rdma_port_up{{device=\"mlx5_0\",port=\"1\"}} 1\nnode_load1 3\nbroken{{\n{}{{call=\"a\"}} 3\n",
        NVML_CALLS.name
    );
    let result = node.ingest(&page, at(1));
    assert_eq!(
        (
            result.kept,
            result.unread,
            result.unknown,
            result.errors.len()
        ),
        (1, 1, 1, 1)
    );
    assert_eq!(node.value(&RDMA_PORT_UP, &["mlx5_0", "1"]), Some(1.0));
}

#[test]
fn a_histogram_is_kept_alike_as_text_and_as_a_reading() {
    let histogram = Histogram::new(&[50e-6, 200e-6, 1.0], vec![3, 2, 1, 4], 9.5);
    let mut reading = NodeReading::default();
    let labels = Labels::new(["1"]);
    reading.push(&HOST_TIMER_DELAY, &labels, histogram.expect("a histogram"));
    let mut by_reading = NodeHistory::default();
    by_reading.ingest_reading(&reading, at(1));
    let page = Page::new(std::sync::Arc::new(reading));
    for format in [Format::Text, Format::OpenMetrics] {
        let mut by_text = NodeHistory::default();
        let result = by_text.ingest(&page.write(format, Profile::Full), at(1));
        assert_eq!((result.kept, result.unknown), (6, 0));
        assert_eq!(result.errors, []);
        for (part, expected) in [
            ("0.00005", 3.0),
            ("0.0002", 5.0),
            ("1", 6.0),
            ("inf", 10.0),
            ("count", 10.0),
            ("sum", 9.5),
        ] {
            for node in [&by_text, &by_reading] {
                let value = node.value(&HOST_TIMER_DELAY, &["1", part]);
                assert_eq!(value, Some(expected), "{part}");
            }
        }
    }
}

#[test]
fn rows_of_a_reading_that_come_and_go_never_take_each_others_place() {
    let mut node = NodeHistory::default();
    let rows = |devices: &[&str], second: u64| {
        let mut reading = NodeReading::default();
        for device in devices {
            let value = device.len() as u64 + second;
            reading.push(&RDMA_PORT_UP, &Labels::new([device, "1"]), value);
        }
        reading
    };
    for (second, devices) in [
        (1, &["a", "ccc"][..]),
        (2, &["a", "bb", "ccc"]),
        (3, &["bb", "ccc"]),
        (100, &["ccc", "a"]),
        (101, &["a", "bb", "ccc"]),
    ] {
        node.ingest_reading(&rows(devices, second), at(second));
        for device in ["a", "bb", "ccc"] {
            let expected = devices.contains(&device);
            let expected = expected.then_some(device.len() as f64 + second as f64);
            assert_eq!(node.value(&RDMA_PORT_UP, &[device, "1"]), expected);
        }
    }
}

#[test]
fn a_series_that_left_the_page_is_not_current() {
    let mut node = NodeHistory::default();
    node.ingest("railscope_rdma_port_up{device=\"a\",port=\"1\"} 1\n", at(1));
    node.ingest("railscope_rdma_port_up{device=\"b\",port=\"1\"} 1\n", at(2));
    assert_eq!(node.value(&RDMA_PORT_UP, &["a", "1"]), None);
    assert_eq!(node.value(&RDMA_PORT_UP, &["b", "1"]), Some(1.0));
    node.ingest(
        "railscope_rdma_port_up{device=\"b\",port=\"1\"} 0\n",
        at(100),
    );
    assert_eq!(node.series, 1, "forgotten after the stale time");
    assert_eq!(
        node.value(&RDMA_PORT_UP, &["b", "1"]),
        Some(0.0),
        "places are found anew"
    );
}

#[test]
fn an_increase_survives_a_reset_and_ignores_what_is_older() {
    let mut node = NodeHistory::default();
    for (second, value) in [(0, 100), (10, 110), (20, 4), (30, 6), (30, 99), (25, 99)] {
        let page = format!(
            "railscope_rdma_port_errors_total{{device=\"a\",port=\"1\",kind=\"symbol_error\"}} {value}\n"
        );
        node.ingest(&page, at(second));
    }
    let window = node
        .window(&RDMA_PORT_ERRORS, &["a", "1", "symbol_error"])
        .expect("series");
    assert_eq!(
        window.increase(60.0),
        Some(Increase {
            amount: 16.0,
            seconds: 30.0
        })
    );
    assert_eq!(
        window.increase(10.0),
        Some(Increase {
            amount: 2.0,
            seconds: 10.0
        })
    );
}

#[test]
fn a_switch_is_kept_beside_the_nodes_and_forgotten_when_it_stays_silent() {
    let mut history = History::default();
    let leaf: SwitchName = "leaf".parse().expect("a name");
    let mut reading = NodeReading::default();
    reading.push(&SWITCH_PORT_UP, &Labels::new(["33"]), true);
    history.switch_mut(&leaf).ingest_reading(&reading, at(1));
    assert_eq!(history.nodes().count(), 0);
    let up = |(_, history): (_, &NodeHistory)| history.value(&SWITCH_PORT_UP, &["33"]);
    assert_eq!(history.fresh_switches(at(61)).find_map(up), Some(1.0));
    assert_eq!(history.fresh_switches(at(62)).count(), 0, "no longer heard");
    history.forget_silent(at(62));
    assert!(history.switch(&leaf).is_none());
    assert!(history.fell_silent(&leaf));
    history.forget_silent(at(62 + 901));
    assert!(!history.fell_silent(&leaf));
}
