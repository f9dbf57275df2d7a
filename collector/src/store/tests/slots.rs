//! Slots of time: how long they reach, how good each is, and that they report what every scrape
//! reported.

use super::super::*;
use proptest::prelude::*;
use railscope_model::identity::Guid;
use railscope_model::metric::{GPU_POWER, Metric, RDMA_PORT_ERRORS, RDMA_PORT_UP, SWITCH_PORT_UP};
use railscope_model::reading::{Labels, NodeReading};

use crate::fabric::subnet::NodeKind;
use crate::fabric::subnet::counters::{DeviceReading, PortReading};
use crate::store::source_id::Speaker;

fn at(seconds: f64) -> Timestamp {
    Timestamp::default().plus_seconds(seconds)
}

const ERRORS: [&str; 3] = ["mlx5_0", "1", "symbol_error"];

/// Values of one counter, none where a scrape does not report it.
fn counted(values: &[Option<u64>], every_seconds: f64) -> NodeHistory {
    let mut node = NodeHistory::default();
    for (page, value) in values.iter().enumerate() {
        let mut reading = NodeReading::default();
        reading.push(&RDMA_PORT_UP, &Labels::new(&ERRORS[..2]), true);
        if let Some(value) = value {
            reading.push(&RDMA_PORT_ERRORS, &Labels::new(ERRORS), *value);
        }
        node.ingest_reading(&reading, at(page as f64 * every_seconds));
    }
    node
}

fn window<'a>(node: &'a NodeHistory, metric: &'static Metric, labels: &[&str]) -> Window<'a> {
    node.window(metric, labels).expect("a series")
}

#[test]
fn each_slot_says_whether_its_series_was_told_and_went_on_counting() {
    use Quality::{Gap, Ok, Reset};
    let some = Some;
    for (values, expected, amount) in [
        (&[some(5), some(5), some(5)][..], &[Ok, Ok, Ok][..], 0.0),
        (&[some(5), some(7), some(9)], &[Ok, Ok, Ok], 4.0),
        (&[some(5), some(2), some(3)], &[Ok, Reset, Ok], 3.0),
        (&[some(5), some(0), some(0)], &[Ok, Reset, Ok], 0.0),
        (&[some(5), None, some(9)], &[Ok, Gap, Ok], 4.0),
        (&[some(5), None, some(5)], &[Ok, Gap, Ok], 0.0),
        (&[some(5), None, None, some(1)], &[Ok, Gap, Gap, Reset], 1.0),
        (&[None, None, some(5), some(6)], &[Ok, Ok], 1.0),
    ] {
        let node = counted(values, 5.0);
        let window = window(&node, &RDMA_PORT_ERRORS, &ERRORS);
        let quality: Vec<_> = window.quality().collect();
        assert_eq!(quality, expected, "{values:?}");
        let rise = window.increase(120.0).expect("two points");
        assert_eq!(rise.amount, amount, "{values:?}");
    }
}

#[test]
fn a_count_between_two_pages_is_on_the_line_and_outside_or_before_a_reset_is_unknown() {
    let node = counted(&[Some(90), Some(10), Some(30), None, Some(30)], 2.0);
    let window = window(&node, &RDMA_PORT_ERRORS, &ERRORS);
    for (second, expected) in [
        (0.0, None),
        (1.9, None),
        (2.0, Some(10.0)),
        (3.5, Some(25.0)),
        (4.0, Some(30.0)),
        (7.0, Some(30.0)),
        (8.0, Some(30.0)),
        (8.1, None),
    ] {
        assert_eq!(window.count_at(at(second)), expected, "at {second} s");
    }
    let moments: Vec<_> = window.counts().map(|count| count.at).collect();
    assert_eq!(moments, [8.0, 4.0, 2.0, 0.0].map(at));
}

#[test]
fn a_window_is_bounded_by_time_or_by_pages_that_come_slowly() {
    for (every, points) in [(0.25, 151), (1.0, 151), (5.0, 31), (10.0, 30), (60.0, 30)] {
        let values: Vec<_> = (0..1000).map(Some).collect();
        let node = counted(&values, every);
        let window = window(&node, &RDMA_PORT_ERRORS, &ERRORS);
        assert_eq!(window.values().count(), points, "a page each {every} s");
        let rise = window.increase(f64::INFINITY).expect("a rise");
        let lasted = WINDOW_SECONDS.max(every * f64::from(WINDOW_PAGES - 1));
        assert!(
            (rise.seconds - lasted).abs() <= MIN_STEP_SECONDS,
            "{rise:?}"
        );
        assert_eq!(rise.amount * every, rise.seconds, "every rise is in a slot");
        let up: Vec<_> = node
            .window(&RDMA_PORT_UP, &ERRORS[..2])
            .expect("up")
            .values()
            .collect();
        assert_eq!(
            up,
            vec![1.0; points],
            "what stands still is told by every page, too"
        );
    }
}

#[test]
fn what_comes_late_or_twice_is_counted_and_changes_nothing() {
    let page = |value: u64| {
        let mut reading = NodeReading::default();
        reading.push(&GPU_POWER, &Labels::new(["0"]), value);
        reading
    };
    let mut node = NodeHistory::default();
    let ours = Speaker::default();
    for (second, value, kept, late, newest) in [
        (10.0, 1, 1, 0, 1.0),
        (10.0, 2, 0, 1, 1.0),
        (5.0, 3, 0, 1, 1.0),
        (15.0, 4, 1, 0, 4.0),
        (14.9, 5, 0, 1, 4.0),
    ] {
        let taken = node.ingest_from(&ours, &page(value), at(second));
        assert_eq!((taken.kept, taken.late), (kept, late), "at {second} s");
        assert_eq!(
            node.value(&GPU_POWER, &["0"]),
            Some(newest),
            "at {second} s"
        );
    }
    let told: Vec<_> = window(&node, &GPU_POWER, &["0"]).values().collect();
    assert_eq!(told, [1.0, 4.0]);
}

/// A scrape: seconds since the one before, and what it reports about three counters and a gauge.
type Told = (f64, [Option<u64>; 3], Option<i32>);

fn pages() -> impl Strategy<Value = Vec<Told>> {
    let counter = || prop_oneof![2 => (0..4_u64).prop_map(Some), 1 => (0..1_000_000_u64).prop_map(Some), 1 => Just(None)];
    let gauge = prop_oneof![3 => Just(Some(7)), 1 => (0..6_i32).prop_map(Some), 1 => Just(None)];
    let page = (
        (2..40_u32).prop_map(|half_seconds| f64::from(half_seconds) / 2.0),
        [counter(), counter(), counter()],
        gauge,
    );
    prop::collection::vec(page, 1..120)
}

proptest! {
    /// Compared with plain lists of points.
    #[test]
    fn columns_tell_what_pages_told(pages in pages(), seconds in 10.0..150.0_f64) {
        let mut node = NodeHistory::default();
        let mut lists: [Vec<(f64, f64)>; 4] = Default::default();
        let (mut now, mut moments) = (0.0, Vec::new());
        for (step, counters, gauge) in pages {
            now += step;
            moments.push(now);
            let slow = moments[moments.len().saturating_sub(WINDOW_PAGES as usize)];
            let mut reading = NodeReading::default();
            reading.push(&RDMA_PORT_UP, &Labels::new(&ERRORS[..2]), true);
            let mut told = [None; 4];
            for (number, value) in counters.into_iter().enumerate() {
                if let Some(value) = value {
                    let labels = Labels::new(&ERRORS[..2]).with(number);
                    reading.push(&RDMA_PORT_ERRORS, &labels, value);
                    told[number] = Some(value as f64);
                }
            }
            if let Some(value) = gauge {
                reading.push(&GPU_POWER, &Labels::new(["0"]), f64::from(value));
                told[3] = Some(f64::from(value));
            }
            node.ingest_reading(&reading, at(now));
            for (list, told) in lists.iter_mut().zip(told) {
                // A scrape that still lacks a series after so long makes it forgotten.
                let away = list.last().is_some_and(|(at, _)| now - at > STALE_AFTER_SECONDS);
                if away && told.is_none() {
                    list.clear();
                }
                list.extend(told.map(|told| (now, told)));
            }
            for (number, list) in lists.iter().enumerate() {
                let name = number.to_string();
                let labels = [ERRORS[0], ERRORS[1], &name];
                let found = if number == 3 {
                    node.window(&GPU_POWER, &["0"])
                } else {
                    node.window(&RDMA_PORT_ERRORS, &labels)
                };
                let current = list.last().filter(|(at, _)| *at == now);
                prop_assert_eq!(found.is_some(), current.is_some());
                let (Some(window), Some((_, value))) = (found, current) else { continue };
                prop_assert_eq!(window.value(), Some(*value));
                if number == 3 {
                    let expected: Vec<f64> = list.iter().filter(|(at, _)| now - at <= WINDOW_SECONDS || *at >= slow).map(|(_, value)| *value).collect();
                    prop_assert_eq!(window.values().collect::<Vec<_>>(), expected);
                } else {
                    let within: Vec<_> = list.iter().filter(|(at, _)| now - at <= seconds).collect();
                    let rises = within.windows(2).map(|pair| if pair[1].1 >= pair[0].1 { pair[1].1 - pair[0].1 } else { pair[1].1 });
                    let lasted = now - within[0].0;
                    let expected = (lasted > 0.0).then(|| Increase { amount: rises.sum(), seconds: lasted });
                    prop_assert_eq!(window.increase(seconds), expected);
                }
            }
        }
    }
}

#[test]
fn a_switch_has_each_port_once_however_often_it_is_read_and_whichever_ports_come_first() {
    let reading = |ports: &[u8]| DeviceReading {
        guid: Guid(1),
        kind: NodeKind::Switch,
        vendor: 0x2c9,
        device: 0xd2f2,
        ports: ports
            .iter()
            .map(|port| PortReading {
                port: *port,
                active: true,
                speed: None,
                counters: None,
            })
            .collect(),
    };
    let mut switch = NodeHistory::default();
    // Twice within a slot, at the very same time, and later in another order.
    for (seconds, ports, expected) in [
        (0.0, &[1, 2][..], &["1", "2"][..]),
        (0.3, &[1, 2, 3], &["1", "2", "3"]),
        (0.3, &[3, 4], &["1", "2", "3", "4"]),
        (5.0, &[4, 3, 2, 1, 5], &["1", "2", "3", "4", "5"]),
    ] {
        switch.ingest_switch(&reading(ports), at(seconds));
        let told = switch.series(&SWITCH_PORT_UP);
        let mut told: Vec<&str> = told.filter_map(|(of, _)| of.values().next()).collect();
        told.sort_unstable();
        assert_eq!(told, expected, "at {seconds} s");
    }
}

#[test]
fn a_value_that_the_metric_cannot_have_is_refused_and_said() {
    let mut node = NodeHistory::default();
    let pages = [
        ("railscope_gpu_power_watts{gpu=\"0\"} 500", 1, 0),
        ("railscope_gpu_power_watts{gpu=\"0\"} -1", 0, 1),
        ("railscope_gpu_power_watts{gpu=\"0\"} +Inf", 0, 1),
        ("railscope_gpu_power_watts{gpu=\"0\"} 1e300", 0, 1),
        (
            "railscope_gpu_temperature_celsius{gpu=\"0\",sensor=\"gpu\"} -1",
            1,
            0,
        ),
        ("railscope_gpu_power_watts{gpu=\"0\"} 400", 1, 0),
    ];
    for (second, (text, kept, refused)) in (0..).zip(pages) {
        let taken = node.ingest(&format!("{text}\n"), at(f64::from(second)));
        assert_eq!((taken.kept, taken.unfit), (kept, refused), "{text}");
        assert_eq!(taken.first_unfit.is_some(), refused == 1, "{text}");
    }
    let told: Vec<_> = window(&node, &GPU_POWER, &["0"]).values().collect();
    assert_eq!(told, [500.0, 400.0]);
}
