//! Broken packets that are counted elsewhere, and explain what hosts lose.

use super::*;

#[test]
fn broken_packets_that_switches_count_elsewhere_explain_the_loss_of_one_nic() {
    let named = |at: (&'static str, &'static str), rate: f64| {
        let of_switch = move |switch: &str, seconds: u64| {
            let mut told = NodeReading::default();
            let labels = Labels::new([at.1, "port_rcv_errors"]);
            told.push(&SWITCH_PORT_ERRORS, &labels, rate * seconds as f64);
            (switch == at.0).then_some(told)
        };
        incidents_with((1, &of_switch), &at_one_nic((200, 200)), &as_it_is)
    };
    let is_named = |incidents: &[String]| {
        let cable = "edge-lossy link/n4:mlx5_0/1";
        incidents.iter().any(|incident| incident.starts_with(cable))
    };
    for elsewhere in [("leaf-0", "1"), ("spine-0", "1")] {
        assert!(!is_named(&named(elsewhere, 20.0)), "{elsewhere:?}");
    }
    assert!(is_named(&named(("leaf-0", "1"), 0.5)), "too few");
    assert!(is_named(&named(("leaf-1", "5"), 20.0)), "its own cable");
}

/// Whether a cable is named at which packets are lost from second 60 on, if a switch on the way breaks so many a second, and is read
/// at second 55 and 115; and when.
fn lossy_cable_named(broken: f64) -> Option<u64> {
    let late = |seconds: u64| seconds.saturating_sub(60);
    let mut analyzer = Analyzer::default();
    analyzer.set_targets(&(0..NODES).map(node).collect::<Vec<_>>());
    let subnet = subnet_of(NODES, 1, &by_rack);
    (5..=150).step_by(5).find(|seconds| {
        let seconds = *seconds;
        let rates = at_one_nic((200, 200));
        // Rates over all the time until now.
        let lost = move |node, rail| {
            let (sent, missed) = rates(node, rail);
            let [sent, missed] = [sent, missed].map(|rate| rate * late(seconds) / seconds);
            (sent, missed)
        };
        for index in 0..NODES {
            let text = page(index, seconds) + &counters(index, seconds, &lost);
            analyzer.ingest(&node(index), &text, at(seconds));
        }
        if seconds % 60 == 55 {
            let mut told = NodeReading::default();
            let labels = Labels::new(["1", "port_rcv_errors"]);
            told.push(&SWITCH_PORT_ERRORS, &labels, broken * late(seconds) as f64);
            analyzer.ingest_switch(&"spine-0".parse().expect("a name"), &told, at(seconds));
        }
        analyzer.take_subnet(parse_ibnetdiscover(&subnet), at(seconds));
        let view = analyzer.tick(at(seconds));
        let mut classes = view.incidents.iter().map(|incident| incident.class.name);
        classes.any(|class| class == "edge-lossy")
    })
}

#[test]
fn a_loss_at_one_nic_waits_for_the_switches_on_the_way() {
    assert_eq!(lossy_cable_named(20.0), None);
    let clean = lossy_cable_named(0.0).expect("named");
    assert!((115..=125).contains(&clean), "{clean}");
}

#[test]
fn a_switch_that_differs_is_not_named_if_packets_are_broken_elsewhere() {
    let named_if_broken = |rate: f64| {
        let of_switch = move |name: &str, seconds| {
            let passing = match name {
                "spine-1" => Passing::losing(20_000_000),
                _ => Passing::always(1_250_000),
            };
            let mut told = passing.reading(seconds);
            if name == "leaf-1" {
                let labels = Labels::new(["1", "receive"]);
                told.push(&SWITCH_PORT_ERRORS, &labels, rate * seconds as f64);
            }
            Some(told)
        };
        let incidents = incidents_with((2, &of_switch), &between_leaves, &as_it_is);
        let spine = "uplink-lossy switch/spine-1";
        incidents.iter().any(|incident| incident.starts_with(spine))
    };
    assert!(named_if_broken(100.0));
    assert!(!named_if_broken(400.0));
}
