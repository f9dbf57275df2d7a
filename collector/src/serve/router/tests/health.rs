//! The collector reports its own health.

use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::health::SourceStatus;
use crate::persist::Past;

/// One minute after the last analysis.
fn a_minute_later() -> Timestamp {
    Timestamp((START + SEEN + 60) * 1000)
}

fn with_clock(clock: crate::status::Clock) -> State {
    let cluster = Cluster {
        nodes: 2,
        rails: 1,
        nodes_in_unit: 2,
        spines: 1,
    };
    cluster.watch(|_, _, page| Some(page), &[], clock)
}

async fn metric(at: &str, line: &str) {
    let (_, metrics) = get_text(format!("{at}/metrics")).await;
    let line = format!("{line}\n");
    assert!(metrics.contains(&line), "{line}{metrics}");
}

#[tokio::test]
async fn it_is_not_ready_while_the_analysis_is_late() {
    let at = serve(with_clock(now)).await;
    assert_eq!(get_text(format!("{at}/-/ready")).await.0, StatusCode::OK);
    let state = with_clock(a_minute_later);
    state.record_tick(Instant::now() - Duration::from_secs(20));
    let at = serve(state).await;
    let (status, text) = get_text(format!("{at}/-/ready")).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(text.contains("the last analysis began 60 s ago"), "{text}");
    metric(&at, "railscope_collector_last_tick_age_seconds 60.0").await;
    metric(&at, "railscope_collector_late_ticks_total 1").await;
}

#[tokio::test]
async fn sources_that_time_out_or_stop_are_reported() {
    let state = with_clock(now);
    let slow = ("subnet", String::from("ibnetdiscover"));
    state.expect_source(&slow, Some(Duration::from_secs(30)));
    let heard = Timestamp((START + SEEN) * 1000);
    state.record_source(&slow, SourceStatus::Ok, Some(heard), None);
    let why = String::from("it did not end <in time>");
    state.record_source(&slow, SourceStatus::Timeout, None, Some(why));
    state.expect_source(&("switch", String::from("leaf-1")), None);
    let at = serve(state).await;
    let name = "source=\"subnet\",name=\"ibnetdiscover\"";
    for line in [
        format!("railscope_collector_source_status{{{name},status=\"timeout\"}} 1"),
        format!("railscope_collector_source_age_seconds{{{name}}} 3.0"),
        format!("railscope_collector_source_interval_seconds{{{name}}} 30.0"),
        String::from(
            "railscope_collector_source_status{source=\"switch\",name=\"leaf-1\",status=\"waiting\"} 1",
        ),
    ] {
        metric(&at, &line).await;
    }
    let (_, html) = get_text(format!("{at}/")).await;
    assert!(html.contains("did not end &lt;in time&gt;"), "{html}");
    let (_, fabric) = get_text(format!("{at}/api/v1/fabric")).await;
    assert!(
        fabric.contains("\"status\":\"timeout\",\"age_seconds\":3.0"),
        "{fabric}"
    );
}

#[tokio::test]
async fn unwritable_state_is_reported_until_a_write_succeeds() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    std::fs::write(&path, "in the way").expect("write");
    let state = with_clock(now);
    let view = state.snapshot().expect("a tick").view.clone();
    let mut past = Past::of(Some(path.clone()));
    let mut keep = || {
        past.keep(&view, &state);
        past.keep_incidents(&view, &state);
        let unwritable = state.unwritable();
        (unwritable["fabric"], unwritable["incidents"])
    };
    assert_eq!(keep(), (true, true));
    std::fs::remove_file(&path).expect("removed");
    // The fabric is written once a minute.
    assert_eq!(keep(), (true, false));
    let at = serve(state).await;
    let (_, html) = get_text(format!("{at}/")).await;
    let told = "<code>fabric</code>: the state file cannot be written";
    assert!(html.contains(told), "{html}");
    metric(
        &at,
        "railscope_collector_state_unwritable{state=\"incidents\"} 0",
    )
    .await;
    metric(
        &at,
        "railscope_collector_state_unwritable{state=\"fabric\"} 1",
    )
    .await;
}

#[test]
fn a_fabric_that_could_not_be_written_is_written_later_although_it_did_not_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = with_clock(now);
    let mut view = state.snapshot().expect("a tick").view.clone();
    let path = folder.path().join("state");
    std::fs::create_dir(&path).expect("a folder");
    // A full disk.
    let beside = path.join("topology.json.new");
    std::os::unix::fs::symlink("/dev/full", &beside).expect("a link");
    let mut past = Past::of(Some(path.clone()));
    past.keep(&view, &state);
    assert!(state.unwritable()["fabric"]);
    assert!(!beside.is_symlink(), "what is incomplete is removed");
    view.now = a_minute_later();
    past.keep(&view, &state);
    assert!(!state.unwritable()["fabric"]);
    assert!(path.join("topology.json").is_file());
}

#[tokio::test]
async fn removed_targets_are_counted() {
    let state = with_clock(now);
    let left: Vec<_> = state.targets().all.keys().skip(1).cloned().collect();
    state.set_targets(&left, true);
    let at = serve(state).await;
    metric(&at, "railscope_collector_targets 1").await;
    metric(&at, "railscope_collector_targets_removed_total 1").await;
}
