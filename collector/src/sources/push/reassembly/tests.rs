//! Scrapes from fragments that arrive in any order.

use super::*;

const NOW: Timestamp = Timestamp(1_000_000);
const OWN: &str = "railscope_rdma_port_up{device=\"mlx5_0\",port=\"1\"} 1\n";

fn after(seconds: u64) -> Timestamp {
    Timestamp(NOW.0 + seconds * 1_000)
}

fn origin(instance: &str) -> Origin {
    Origin {
        job: String::from("gpu"),
        instance: instance.to_owned(),
    }
}

fn fragment(text: &str) -> Fragment {
    Fragment {
        text: text.to_owned(),
        samples: text.lines().count(),
        ..Fragment::default()
    }
}

fn reassembly() -> Reassembly {
    Reassembly::new(Arc::default(), Mappings::default())
}

/// Adds one fragment; shows the output.
fn take(
    reassembly: &mut Reassembly,
    instance: &str,
    at: Timestamp,
    fragment: Fragment,
) -> Vec<String> {
    let fragments = BTreeMap::from([((origin(instance), at), fragment)]);
    shown(reassembly.add(fragments, at))
}

fn shown(outputs: Vec<Output>) -> Vec<String> {
    let shown = |outputs| match outputs {
        Output::Targets(targets) => {
            let names: Vec<_> = targets.iter().map(Target::name).collect();
            format!("targets {}", names.join(" "))
        }
        Output::Scrape(event, kind) => match *event {
            Event::Page {
                target, page, at, ..
            } => {
                let lines = page.lines().count();
                format!("{} {lines} lines at {}", target.name(), at.0)
            }
            Event::Foreign { target, .. } => {
                format!("{} {}", target.name(), kind.as_deref().unwrap_or_default())
            }
            _ => String::from("another event"),
        },
        Output::Recorded(target, at, text) => {
            format!("{} {} bytes at {}", target.name(), text.len(), at.0)
        }
        Output::Down(target) => format!("{} is down", target.name()),
    };
    outputs.into_iter().map(shown).collect()
}

#[test]
fn a_recording_receives_the_text_before_each_scrape() {
    let mut reassembly = reassembly();
    reassembly.record();
    take(&mut reassembly, "n1:1", NOW, fragment(OWN));
    let bytes = format!("n1 {} bytes at 1000000", OWN.len());
    let expected = ["targets n1", &bytes, "n1 1 lines at 1000000"];
    assert_eq!(shown(reassembly.due(after(6))), expected);
}

#[test]
fn a_scrape_is_complete_with_as_many_samples_as_the_previous_one_in_any_order() {
    let mut reassembly = reassembly();
    // The size of the first one is unknown.
    assert!(take(&mut reassembly, "n1:1", NOW, fragment(OWN)).is_empty());
    assert!(take(&mut reassembly, "n1:1", NOW, fragment(OWN)).is_empty());
    assert!(shown(reassembly.due(after(5))).is_empty());
    let first = ["targets n1", "n1 2 lines at 1000000"];
    assert_eq!(shown(reassembly.due(after(6))), first);
    // Two scrapes in parallel, in fragments.
    for at in [after(20), after(10)] {
        assert!(take(&mut reassembly, "n1:1", at, fragment(OWN)).is_empty());
    }
    let whole = take(&mut reassembly, "n1:1", after(10), fragment(OWN));
    assert_eq!(whole, ["n1 2 lines at 1010000"]);
    let whole = take(&mut reassembly, "n1:1", after(20), fragment(&OWN.repeat(2)));
    assert_eq!(whole, ["n1 3 lines at 1020000"], "it has grown");
    // Later samples are added, and expected of the next scrape.
    assert!(take(&mut reassembly, "n1:1", after(20), fragment(OWN)).is_empty());
    assert_eq!(shown(reassembly.due(after(27))), ["n1 1 lines at 1020000"]);
    assert!(take(&mut reassembly, "n1:1", after(30), fragment(&OWN.repeat(3))).is_empty());
    assert_eq!(reassembly.bytes, 3 * OWN.len());
    let whole = take(&mut reassembly, "n1:1", after(30), fragment(OWN));
    assert_eq!(whole, ["n1 4 lines at 1030000"]);
    assert_eq!(reassembly.bytes, 0);
}

#[test]
fn a_timestamp_without_up_is_no_scrape_if_up_is_sent() {
    let mut reassembly = reassembly();
    let up = || Fragment {
        is_up: Some(true),
        ..Fragment::default()
    };
    let whole = || Fragment {
        is_up: Some(true),
        ..fragment(&OWN.repeat(2))
    };
    take(&mut reassembly, "n1:1", NOW, whole());
    take(&mut reassembly, "n1:1", after(1), fragment(OWN));
    let first = ["targets n1", "n1 2 lines at 1000000"];
    assert_eq!(
        shown(reassembly.due(after(7))),
        first,
        "series of rules are ignored"
    );
    // A rule writes as many series as a scrape has; the scrape is complete with its `up`.
    assert!(take(&mut reassembly, "n1:1", after(9), fragment(&OWN.repeat(2))).is_empty());
    assert!(take(&mut reassembly, "n1:1", after(10), fragment(&OWN.repeat(2))).is_empty());
    let whole = take(&mut reassembly, "n1:1", after(10), up());
    assert_eq!(whole, ["n1 2 lines at 1010000"]);
    assert_eq!(reassembly.bytes, 0);
    // Later samples belong to the same scrape.
    take(&mut reassembly, "n1:1", after(10), fragment(OWN));
    assert_eq!(shown(reassembly.due(after(16))), ["n1 1 lines at 1010000"]);
}

#[test]
fn labels_of_up_name_the_target_and_a_changed_label_replaces_it() {
    let mut reassembly = reassembly();
    let named = |is_up, part: Option<&str>| Fragment {
        is_up,
        part: part.map(str::to_owned),
        ..fragment(OWN)
    };
    take(
        &mut reassembly,
        "n1:1",
        NOW,
        named(None, Some("of-the-body")),
    );
    take(&mut reassembly, "n1:1", NOW, named(Some(true), None));
    take(&mut reassembly, "n2:1", NOW, named(None, Some("gpu-2")));
    let first = [
        "targets gpu-2 n1",
        "n1 2 lines at 1000000",
        "gpu-2 1 lines at 1000000",
    ];
    assert_eq!(shown(reassembly.due(after(6))), first);
    assert_eq!(
        take(&mut reassembly, "n1:1", after(10), named(None, Some("x"))).len(),
        0
    );
    let whole = take(&mut reassembly, "n1:1", after(10), named(Some(true), None));
    assert_eq!(whole, ["n1 2 lines at 1010000"]);
    take(
        &mut reassembly,
        "n1:1",
        after(20),
        named(Some(true), Some("gpu-1")),
    );
    let outputs = shown(reassembly.due(after(26)));
    assert_eq!(outputs, ["targets gpu-1 gpu-2", "gpu-1 1 lines at 1020000"]);
}

#[test]
fn another_exporter_is_detected_and_an_unsupported_one_is_no_target() {
    let mut reassembly = reassembly();
    let dcgm = "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-1\",Hostname=\"n2\"} 40\n";
    take(&mut reassembly, "n2:9400", NOW, fragment(dcgm));
    take(
        &mut reassembly,
        "n3:80",
        NOW,
        fragment("http_requests_total 4\n"),
    );
    take(&mut reassembly, "", NOW, fragment(OWN));
    take(
        &mut reassembly,
        "c:1",
        NOW,
        fragment("railscope_incident_active{node=\"n9\"} 1\n"),
    );
    let outputs = shown(reassembly.due(after(6)));
    assert_eq!(outputs, ["targets n2", "n2 dcgm-exporter"]);
}

#[test]
fn a_target_is_down_with_up_0_and_removed_by_a_stale_marker_or_after_an_hour() {
    let mut reassembly = reassembly();
    for instance in ["n1:1", "n2:1"] {
        take(&mut reassembly, instance, NOW, fragment(OWN));
    }
    reassembly.due(after(6));
    let down = || Fragment {
        is_up: Some(false),
        ..Fragment::default()
    };
    assert_eq!(
        take(&mut reassembly, "n1:1", after(10), down()),
        ["n1 is down"]
    );
    let ended = Fragment {
        has_ended: true,
        ..Fragment::default()
    };
    let outputs = take(&mut reassembly, "n1:1", after(20), ended);
    assert_eq!(outputs, ["targets n2"]);
    assert!(shown(reassembly.due(after(3_600))).is_empty());
    assert_eq!(shown(reassembly.due(after(3_601))), ["targets "]);
}
