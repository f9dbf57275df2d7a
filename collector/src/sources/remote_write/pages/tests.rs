//! Pages out of portions that come in any order.

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

fn portion(text: &str) -> Portion {
    Portion {
        text: text.to_owned(),
        samples: text.lines().count(),
        ..Portion::default()
    }
}

fn pages() -> Pages {
    Pages::new(Arc::default(), Mappings::default())
}

/// Takes up one portion; what it makes whole, in words.
fn take(pages: &mut Pages, instance: &str, at: Timestamp, portion: Portion) -> Vec<String> {
    let portions = BTreeMap::from([((origin(instance), at), portion)]);
    said(pages.take(portions, at))
}

fn said(told: Vec<Told>) -> Vec<String> {
    let said = |told| match told {
        Told::Targets(targets) => {
            let names: Vec<_> = targets.iter().map(Target::name).collect();
            format!("targets {}", names.join(" "))
        }
        Told::Page(Event::Page { target, page, at }, _) => {
            format!(
                "{} {} lines at {}",
                target.name(),
                page.lines().count(),
                at.0
            )
        }
        Told::Page(Event::Foreign { target, .. }, kind) => {
            format!("{} {}", target.name(), kind.as_deref().unwrap_or_default())
        }
        Told::Page(..) => String::from("another event"),
        Told::Down(target) => format!("{} is down", target.name()),
    };
    told.into_iter().map(said).collect()
}

#[test]
fn a_page_is_whole_with_as_many_samples_as_the_one_before_whatever_the_order() {
    let mut pages = pages();
    // Of the first one nobody knows how long it will be.
    assert!(take(&mut pages, "n1:1", NOW, portion(OWN)).is_empty());
    assert!(take(&mut pages, "n1:1", NOW, portion(OWN)).is_empty());
    assert!(said(pages.due(after(5))).is_empty());
    let first = ["targets n1", "n1 2 lines at 1000000"];
    assert_eq!(said(pages.due(after(6))), first);
    // Two scrapes side by side, in pieces.
    for at in [after(20), after(10)] {
        assert!(take(&mut pages, "n1:1", at, portion(OWN)).is_empty());
    }
    let whole = take(&mut pages, "n1:1", after(10), portion(OWN));
    assert_eq!(whole, ["n1 2 lines at 1010000"]);
    let whole = take(&mut pages, "n1:1", after(20), portion(&OWN.repeat(2)));
    assert_eq!(whole, ["n1 3 lines at 1020000"], "it has grown");
    // What follows is added, and the next page waits for it.
    assert!(take(&mut pages, "n1:1", after(20), portion(OWN)).is_empty());
    assert_eq!(said(pages.due(after(27))), ["n1 1 lines at 1020000"]);
    assert!(take(&mut pages, "n1:1", after(30), portion(&OWN.repeat(3))).is_empty());
    assert_eq!(pages.bytes, 3 * OWN.len());
    let whole = take(&mut pages, "n1:1", after(30), portion(OWN));
    assert_eq!(whole, ["n1 4 lines at 1030000"]);
    assert_eq!(pages.bytes, 0);
}

#[test]
fn what_has_no_time_of_an_up_is_no_page_once_up_is_sent() {
    let mut pages = pages();
    let up = || Portion {
        is_up: Some(true),
        ..Portion::default()
    };
    let whole = || Portion {
        is_up: Some(true),
        ..portion(&OWN.repeat(2))
    };
    take(&mut pages, "n1:1", NOW, whole());
    take(&mut pages, "n1:1", after(1), portion(OWN));
    let first = ["targets n1", "n1 2 lines at 1000000"];
    assert_eq!(
        said(pages.due(after(7))),
        first,
        "a rule's series are left out"
    );
    // What a rule makes is as long as a page; the page waits for its `up`.
    assert!(take(&mut pages, "n1:1", after(9), portion(&OWN.repeat(2))).is_empty());
    assert!(take(&mut pages, "n1:1", after(10), portion(&OWN.repeat(2))).is_empty());
    let whole = take(&mut pages, "n1:1", after(10), up());
    assert_eq!(whole, ["n1 2 lines at 1010000"]);
    assert_eq!(pages.bytes, 0);
    // What comes behind is of the same scrape.
    take(&mut pages, "n1:1", after(10), portion(OWN));
    assert_eq!(said(pages.due(after(16))), ["n1 1 lines at 1010000"]);
}

#[test]
fn labels_of_up_name_the_target_and_another_name_is_another_target() {
    let mut pages = pages();
    let named = |is_up, part: Option<&str>| Portion {
        is_up,
        part: part.map(str::to_owned),
        ..portion(OWN)
    };
    take(&mut pages, "n1:1", NOW, named(None, Some("of-the-page")));
    take(&mut pages, "n1:1", NOW, named(Some(true), None));
    take(&mut pages, "n2:1", NOW, named(None, Some("gpu-2")));
    let first = [
        "targets gpu-2 n1",
        "n1 2 lines at 1000000",
        "gpu-2 1 lines at 1000000",
    ];
    assert_eq!(said(pages.due(after(6))), first);
    assert_eq!(
        take(&mut pages, "n1:1", after(10), named(None, Some("x"))).len(),
        0
    );
    let whole = take(&mut pages, "n1:1", after(10), named(Some(true), None));
    assert_eq!(whole, ["n1 2 lines at 1010000"]);
    take(
        &mut pages,
        "n1:1",
        after(20),
        named(Some(true), Some("gpu-1")),
    );
    let told = said(pages.due(after(26)));
    assert_eq!(told, ["targets gpu-1 gpu-2", "gpu-1 1 lines at 1020000"]);
}

#[test]
fn another_exporter_is_recognised_and_what_nobody_knows_is_no_target() {
    let mut pages = pages();
    let dcgm = "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-1\",Hostname=\"n2\"} 40\n";
    take(&mut pages, "n2:9400", NOW, portion(dcgm));
    take(&mut pages, "n3:80", NOW, portion("http_requests_total 4\n"));
    take(&mut pages, "", NOW, portion(OWN));
    take(
        &mut pages,
        "c:1",
        NOW,
        portion("railscope_incident_active{node=\"n9\"} 1\n"),
    );
    let told = said(pages.due(after(6)));
    assert_eq!(told, ["targets n2", "n2 dcgm-exporter"]);
}

#[test]
fn a_target_is_down_when_its_sender_says_so_and_ends_with_it_or_with_time() {
    let mut pages = pages();
    for instance in ["n1:1", "n2:1"] {
        take(&mut pages, instance, NOW, portion(OWN));
    }
    pages.due(after(6));
    let down = || Portion {
        is_up: Some(false),
        ..Portion::default()
    };
    assert_eq!(take(&mut pages, "n1:1", after(10), down()), ["n1 is down"]);
    let ended = Portion {
        has_ended: true,
        ..Portion::default()
    };
    let told = take(&mut pages, "n1:1", after(20), ended);
    assert_eq!(told, ["targets n2"]);
    assert!(said(pages.due(after(3_600))).is_empty());
    assert_eq!(said(pages.due(after(3_601))), ["targets "]);
}
