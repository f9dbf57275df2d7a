//! A receiver that is down, slow, hanging or picky costs bounded memory, and what is lost is counted.

use std::time::Duration;

use crate::receiver::{Mode, Receiver};
use crate::start::{EXPOSITION, at, incident, settings, start};
use railscope_otlp::{EventKind, IncidentEvent, IncidentLog, Otlp, SignalStats};
use tokio::time::{Instant, sleep};

const BOTH: [&str; 2] = ["grpc", "http/protobuf"];

fn emit(log: &IncidentLog, count: usize) {
    let event = IncidentEvent {
        kind: EventKind::Opened,
        at: at(1),
        incident: incident("i1"),
    };
    for _ in 0..count {
        log.emit(&event);
    }
}

/// Pipelines of logs and metrics to a receiver.
fn start_to(receiver: &Receiver, protocol: &str, more: &[(&str, &str)]) -> Otlp {
    let url = receiver.url();
    let mut variables = vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
    ];
    variables.extend_from_slice(more);
    start(&variables)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_hangs_costs_one_request_per_signal_and_bounded_queues() {
    const EVENTS: u64 = 4_000;
    for protocol in BOTH {
        let receiver = Receiver::start(Mode::Hang).await;
        let mut otlp = start_to(
            &receiver,
            protocol,
            &[
                ("OTEL_METRIC_EXPORT_INTERVAL", "20"),
                ("OTEL_TRACES_EXPORTER", "none"),
            ],
        );
        otlp.export_metrics(at(1), || EXPOSITION.to_owned());
        let log = otlp.incidents().expect("logs are on");
        emit(&log, usize::try_from(EVENTS).expect("small"));
        sleep(Duration::from_millis(300)).await;
        let dropped = otlp.stats().logs.items_queue_full;
        assert!(dropped >= EVENTS - 2_048 - 512, "{protocol}: {dropped}");
        let began = Instant::now();
        let stats = otlp.shutdown().await;
        let took = began.elapsed();
        assert!(
            took < Duration::from_secs(7),
            "{protocol}: shutdown took {took:?}"
        );
        assert_eq!(stats.logs.dropped(), EVENTS, "{protocol}: {:?}", stats.logs);
        assert_eq!(stats.logs.items_sent, 0, "{protocol}");
        assert!(
            stats.metrics.items_failed >= 4,
            "{protocol}: {:?}",
            stats.metrics
        );
        assert!(
            receiver.most_in_flight() <= 2,
            "{protocol}: one request for each of two signals"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_receiver_refuses_for_a_while_arrives_later() {
    let refusals = [
        (Mode::Unavailable(None), Duration::ZERO),
        // The delay before the first retry is 1.2 s at most.
        (Mode::Unavailable(Some(3)), Duration::from_secs(2)),
    ];
    for protocol in BOTH {
        for (mode, at_least) in &refusals {
            let receiver = Receiver::start(mode.clone()).await;
            let otlp = start_to(&receiver, protocol, &[]);
            emit(&otlp.incidents().expect("logs are on"), 3);
            receiver
                .until("a refused request", |got| !got.requests.is_empty())
                .await;
            let refused = Instant::now();
            receiver.set(Mode::Accept);
            receiver.until("the data", |got| !got.logs.is_empty()).await;
            let waited = refused.elapsed();
            let stats = otlp.shutdown().await.logs;
            assert_eq!(receiver.logs().len(), 3, "{protocol} {mode:?}");
            assert_eq!(
                (stats.exports_ok, stats.retries, stats.dropped()),
                (1, 1, 0),
                "{protocol} {mode:?}"
            );
            assert!(
                waited >= *at_least,
                "{protocol} {mode:?}: retried after {waited:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_comes_up_late_gets_what_waits() {
    for protocol in BOTH {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let url = format!("http://{address}");
        let otlp = start(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &url),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
        ]);
        emit(&otlp.incidents().expect("logs are on"), 2);
        sleep(Duration::from_millis(1_300)).await;
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .expect("the port");
        let receiver = Receiver::serve(listener, address, Mode::Accept);
        receiver.until("the data", |got| !got.logs.is_empty()).await;
        let stats = otlp.shutdown().await.logs;
        assert_eq!((stats.items_sent, stats.dropped()), (2, 0), "{protocol}");
        assert!(stats.retries >= 1, "{protocol}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_and_partly_accepted_items_are_counted() {
    let expected = |counts: &SignalStats| {
        (
            counts.exports_ok,
            counts.exports_partial,
            counts.exports_rejected,
            counts.items_sent,
            counts.items_rejected,
        )
    };
    for protocol in BOTH {
        let exhausted_is_final = protocol == "grpc";
        for (mode, wanted) in [
            (Mode::Partial(2), (0, 1, 0, 3, 2)),
            (Mode::Partial(0), (1, 0, 0, 5, 0)),
            (Mode::Reject, (0, 0, 1, 0, 5)),
            (
                Mode::Exhausted,
                (
                    0,
                    0,
                    u64::from(exhausted_is_final),
                    0,
                    if exhausted_is_final { 5 } else { 0 },
                ),
            ),
        ] {
            let receiver = Receiver::start(mode.clone()).await;
            let otlp = start_to(&receiver, protocol, &[]);
            emit(&otlp.incidents().expect("logs are on"), 5);
            let stats = otlp.shutdown().await.logs;
            assert_eq!(expected(&stats), wanted, "{protocol} {mode:?}");
            assert_eq!(stats.items_sent + stats.dropped(), 5, "{protocol} {mode:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_of_more_than_a_minute_drops_the_request_immediately() {
    for protocol in BOTH {
        let receiver = Receiver::start(Mode::Unavailable(Some(61))).await;
        let otlp = start_to(&receiver, protocol, &[]);
        emit(&otlp.incidents().expect("logs are on"), 5);
        while otlp.stats().logs.items_failed == 0 {
            sleep(Duration::from_millis(20)).await;
        }
        let stats = otlp.shutdown().await.logs;
        assert_eq!(
            (stats.exports_failed, stats.items_failed, stats.retries),
            (1, 5, 0),
            "{protocol}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_slow_export_skipped_intervals_are_counted_and_the_next_exposition_is_new() {
    let receiver = Receiver::start(Mode::Unavailable(Some(1))).await;
    let mut otlp = start_to(
        &receiver,
        "http/protobuf",
        &[("OTEL_METRIC_EXPORT_INTERVAL", "100")],
    );
    otlp.export_metrics(at(1), || EXPOSITION.to_owned());
    receiver
        .until("a refused request", |got| !got.requests.is_empty())
        .await;
    receiver.set(Mode::Accept);
    receiver
        .until("two exports", |got| got.metrics.len() >= 2)
        .await;
    let stats = otlp.shutdown().await.metrics;
    assert!(stats.exports_skipped >= 8, "{stats:?}");
    assert_eq!(stats.dropped(), 0, "{stats:?}");
    assert_eq!(receiver.most_in_flight(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_endpoint_nothing_starts() {
    assert!(!settings(&[]).is_on());
    let mut otlp = start(&[]);
    otlp.export_metrics(at(1), || panic!("never read"));
    assert!(otlp.incidents().is_none());
    assert!(otlp.trace_layer::<tracing_subscriber::Registry>().is_none());
    assert_eq!(otlp.shutdown().await, railscope_otlp::Stats::default());
}
