//! A state folder that cannot be written.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{Collector, targets};

#[tokio::test(flavor = "multi_thread")]
async fn state_that_cannot_be_written_is_reported_and_nothing_else_suffers() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    // Root may write everywhere: a file in the place of the folder fails for everyone.
    std::fs::write(&state, "in the way").expect("written");
    let address = targets::start().await;
    let collector = Collector::start(&format!(
        "[scrape]\ninterval = \"500ms\"\n[analysis]\ninterval = \"100ms\"\nstate_dir = {state:?}\n[[targets]]\nnode = \"good\"\nurl = \"http://{address}/good\"\n"
    ))
    .await;
    let line =
        |value| format!("railscope_collector_state_unwritable{{state=\"incidents\"}} {value}\n");
    let reports = async |expected: &str| {
        while !collector.get("/metrics").await.1.contains(expected) {
            sleep(Duration::from_millis(100)).await;
        }
    };
    let patience = Duration::from_secs(20);
    timeout(patience, reports(&line(1)))
        .await
        .expect("reported");
    let (_, page) = collector.get("/").await;
    assert!(page.contains("the state file cannot be written"), "{page}");
    assert_eq!(collector.get("/-/ready").await.0, 200);
    let up = "railscope_collector_target_up{node=\"good\",exporter=\"railscope\"} 1\n";
    timeout(patience, reports(up)).await.expect("scraped");
    // There is room again: the next analysis writes what is due.
    std::fs::remove_file(&state).expect("removed");
    timeout(patience, reports(&line(0))).await.expect("written");
    collector.stop().await;
    assert!(state.is_dir());
}
