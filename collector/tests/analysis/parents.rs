//! The root cause of many lost cables: the switch, or the hosts, whether sweep or exporter reports it first.

use std::collections::{BTreeMap, BTreeSet};

use railscope_collector::analyzer::{Analyzer, ClusterView};
use railscope_collector::fabric::subnet::parse_ibnetdiscover;

use super::cluster::{Cabling, NODES, RAILS, as_planned, at, node, page, subnet_of};
use super::{incidents, of_gpus};

/// Enough for the cables of hosts to be less than 30 % of a leaf's.
const MANY: usize = 24;

/// Class and part of each open incident.
fn named(view: &ClusterView) -> Vec<String> {
    let words = |line: String| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    incidents(view).into_iter().map(words).collect()
}

/// All rails of a node on one leaf, two nodes on each.
fn by_rack(node: usize, _: usize) -> Option<usize> {
    Some(node / 2)
}

/// Ports that lose their link before any sweep shows it, and nodes that no longer report, whose cables
/// the sweep misses. Incidents 25 and 50 s later.
fn check(
    cabling: &'static Cabling,
    spines: usize,
    dark: impl Fn(usize, usize) -> bool + Copy + 'static,
    silent: &'static [usize],
    expected: &[&str],
) {
    let mut analyzer = Analyzer::default();
    for tick in 1..=20 {
        let seconds = 5 * tick;
        for index in (0..NODES).filter(|index| tick <= 10 || !silent.contains(index)) {
            let mut text = page(index, seconds);
            for rail in (0..RAILS).filter(|rail| tick > 10 && dark(index, *rail)) {
                let up = format!("railscope_rdma_port_up{{device=\"mlx5_{rail}\",port=\"1\"}}");
                text = text.replace(&format!("{up} 1"), &format!("{up} 0"));
            }
            analyzer.ingest(&node(index), &text, at(seconds));
        }
        let seen = move |node: usize, rail: usize| {
            let gone = tick > 10 && silent.contains(&node);
            cabling(node, rail).filter(|_| !gone)
        };
        analyzer.take_subnet(
            parse_ibnetdiscover(&subnet_of(NODES, spines, &seen)),
            at(seconds),
        );
        let view = analyzer.tick(at(seconds));
        if tick == 15 || tick == 20 {
            assert_eq!(named(&view), expected, "at {seconds} s");
        }
    }
}

#[test]
fn a_leaf_of_few_hosts_is_down_once_all_of_them_say_so_before_any_sweep() {
    let of_leaf_1 = |_: usize, rail: usize| rail == 1;
    check(
        &as_planned,
        MANY,
        of_leaf_1,
        &[],
        &["switch-down switch/leaf-1"],
    );
}

#[test]
fn a_leaf_that_took_whole_hosts_with_it_is_one_fault() {
    let of_leaf_1 = |node: usize, _: usize| node / 2 == 1;
    for spines in [2, MANY] {
        check(
            &by_rack,
            spines,
            of_leaf_1,
            &[],
            &["switch-down switch/leaf-1"],
        );
    }
}

#[test]
fn hosts_that_are_read_one_after_another_are_no_incidents_before_their_leaf_is() {
    let mut analyzer = Analyzer::default();
    let mut seen: Vec<String> = Vec::new();
    for second in 1..=70 {
        // One node of each leaf is read each second.
        for index in (0..NODES).filter(|index| second == 1 || index % 4 == second % 4) {
            let text = page(index, second as u64);
            let is_dark = second > 50 && index / 4 == 0;
            let text = if is_dark {
                text.replace("port=\"1\"} 1\n", "port=\"1\"} 0\n")
            } else {
                text
            };
            analyzer.ingest(&node(index), &text, at(second as u64));
        }
        let cabling: &Cabling = &|node, _| Some(node / 4);
        let subnet = parse_ibnetdiscover(&subnet_of(NODES, MANY, cabling));
        analyzer.take_subnet(subnet, at(second as u64));
        for words in named(&analyzer.tick(at(second as u64))) {
            if !seen.contains(&words) {
                seen.push(words);
            }
        }
    }
    assert_eq!(seen, ["switch-down switch/leaf-0"]);
}

#[test]
fn one_host_without_light_is_that_host() {
    let of_n2 = |node: usize, _: usize| node == 2;
    check(&by_rack, MANY, of_n2, &[], &["host-down host/n2"]);
}

/// Its driver is updated, for example.
#[test]
fn a_host_whose_cables_are_not_known_is_one_incident_too() {
    let of_n2 = |node: usize, _: usize| node == 2;
    check(&|_, _| None, MANY, of_n2, &[], &["host-down host/n2"]);
}

#[test]
fn hosts_that_are_gone_themselves_do_not_make_their_leaf_guilty() {
    let both = &["host-down host/n2", "host-down host/n3"];
    check(&by_rack, MANY, |_, _| false, &[2, 3], both);
}

/// With two NICs a node that is gone is one incident, and two dark ports of a node that lives may be a card's.
#[test]
fn a_host_of_two_nics_that_is_silent_and_lost_both_is_down() {
    let two: &Cabling = &|_, rail| (rail < 2).then_some(rail);
    check(two, MANY, |_, _| false, &[2], &["host-down host/n2"]);
    let dark = |node: usize, rail: usize| node == 2 && rail < 2;
    let ports = &["port-down link/n2:mlx5_0/1", "port-down link/n2:mlx5_1/1"];
    check(two, MANY, dark, &[], ports);
}

/// The node answers again before its ports are up and a sweep shows its cables.
#[test]
fn a_host_of_two_nics_that_goes_off_and_comes_back_is_one_incident() {
    let (mut analyzer, mut ever) = (Analyzer::default(), BTreeSet::new());
    for tick in 1..=50 {
        let seconds = 5 * tick;
        for index in (0..NODES).filter(|index| *index != 2 || !(11..30).contains(&tick)) {
            let boots = index == 2 && (30..36).contains(&tick);
            let is_there = |line: &&str| !boots || !line.contains("rdma");
            let text = page(index, seconds);
            let text: Vec<&str> = text.lines().filter(is_there).collect();
            analyzer.ingest(&node(index), &(text.join("\n") + "\n"), at(seconds));
        }
        let seen = move |node: usize, rail: usize| {
            let gone = node == 2 && (11..36).contains(&tick);
            (rail < 2 && !gone).then_some(rail)
        };
        let subnet = parse_ibnetdiscover(&subnet_of(NODES, MANY, &seen));
        analyzer.take_subnet(subnet, at(seconds));
        ever.extend(named(&analyzer.tick(at(seconds))));
    }
    assert_eq!(ever, BTreeSet::from(["host-down host/n2".to_owned()]));
}

/// The sweep shows that its cable is gone before the node is late.
#[test]
fn a_login_node_that_is_switched_off_is_no_lost_cable() {
    let (mut analyzer, mut ever) = (Analyzer::default(), BTreeSet::new());
    for tick in 1..=40 {
        let seconds = 5 * tick;
        for index in (0..NODES).filter(|index| *index != 2 || tick < 11 && tick % 2 == 0) {
            let mut text = page(index, seconds);
            if index == 2 {
                let kept = text.lines().filter(|line| !line.contains("gpu"));
                text = kept.collect::<Vec<_>>().join("\n") + "\n";
                for way in ["transmit", "receive"] {
                    text += &format!(
                        "railscope_rdma_port_{way}_bytes_total{{device=\"mlx5_0\",port=\"1\"}} 1000\n"
                    );
                }
            }
            analyzer.ingest(&node(index), &text, at(seconds));
        }
        let seen = move |node: usize, rail: usize| {
            let gone = node == 2 && tick >= 11;
            (rail == 0 && !gone).then_some(0)
        };
        let subnet = parse_ibnetdiscover(&subnet_of(NODES, MANY, &seen));
        analyzer.take_subnet(subnet, at(seconds));
        ever.extend(named(&analyzer.tick(at(seconds))));
    }
    assert_eq!(ever, BTreeSet::new());
}

/// Every node is read once in [`NODES`] ticks, one after another. All incidents that were ever open after such
/// ports went dark.
fn ever_open_with_slow_scrapes(dark: impl Fn(usize) -> bool) -> BTreeSet<String> {
    let (mut analyzer, mut ever) = (Analyzer::default(), BTreeSet::new());
    for tick in 1..=8 * NODES as u64 {
        let seconds = 5 * tick;
        for index in 0..NODES {
            if tick > 1 && tick as usize % NODES != index {
                continue;
            }
            let mut text = page(index, seconds);
            if tick > 3 * NODES as u64 && dark(index) {
                let up = r#"railscope_rdma_port_up{device="mlx5_1",port="1"}"#;
                text = text.replace(&format!("{up} 1"), &format!("{up} 0"));
            }
            analyzer.ingest(&node(index), &text, at(seconds));
        }
        if tick == 1 {
            let text = subnet_of(NODES, MANY, &as_planned);
            analyzer.take_subnet(parse_ibnetdiscover(&text), at(seconds));
        }
        let view = analyzer.tick(at(seconds));
        ever.extend(named(&view));
    }
    ever
}

#[test]
fn what_the_first_hosts_say_of_a_dead_leaf_waits_for_the_others() {
    let all = ever_open_with_slow_scrapes(|_| true);
    assert_eq!(
        all,
        BTreeSet::from(["switch-down switch/leaf-1".to_owned()])
    );
    let one = ever_open_with_slow_scrapes(|node| node == 2);
    assert_eq!(
        one,
        BTreeSet::from(["port-down link/n2:mlx5_1/1".to_owned()])
    );
}

/// How ports of rail 1 go dark, and how that is scraped.
#[derive(Debug, Default, Clone, Copy)]
struct Dark<'a> {
    hosts: &'a [usize],
    /// Hosts that go dark are read at the end of a round, not at its beginning.
    read_last: bool,
    /// They count the loss themselves.
    counts: bool,
    /// Nodes that need a confirmation scrape get it as soon as it can return new data.
    looked_at_again: bool,
}

/// Rounds of scrapes, with a tick at the end of each, until there is an incident.
fn rounds_to_an_incident(dark: Dark<'_>) -> (usize, BTreeSet<String>) {
    const HEALTHY: usize = 4;
    let mut analyzer = Analyzer::default();
    let text = subnet_of(NODES, MANY, &as_planned);
    analyzer.take_subnet(parse_ibnetdiscover(&text), at(0));
    let mut order: Vec<usize> = (0..NODES).collect();
    order.sort_by_key(|node| dark.hosts.contains(node) == dark.read_last);
    let mut due: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
    for round in 0..HEALTHY + 4 {
        let end = 20 * (round as u64 + 1);
        for (turn, index) in (end - NODES as u64..).zip(&order) {
            due.entry(turn).or_default().insert(*index);
        }
        while let Some(seconds) = due.keys().next().copied().filter(|next| *next < end) {
            for index in due.remove(&seconds).expect("it is there") {
                let is_dark = round >= HEALTHY && dark.hosts.contains(&index);
                let text = rail_1(index, seconds, is_dark, dark.counts);
                analyzer.ingest(&node(index), &text, at(seconds));
                let again = analyzer.second_look(&node(index));
                let again = (0..NODES).filter(|other| again.contains(&node(*other)));
                if dark.looked_at_again {
                    due.entry(seconds + 2).or_default().extend(again);
                }
            }
        }
        let open: BTreeSet<String> = named(&analyzer.tick(at(end))).into_iter().collect();
        if !open.is_empty() {
            return (round + 1 - HEALTHY, open);
        }
    }
    (usize::MAX, BTreeSet::new())
}

/// The exposition of a host whose port of rail 1 is down, and may count that, or is not.
fn rail_1(index: usize, seconds: u64, is_dark: bool, counts: bool) -> String {
    let mut text = page(index, seconds);
    if is_dark {
        let up = r#"railscope_rdma_port_up{device="mlx5_1",port="1"}"#;
        text = text.replace(&format!("{up} 1"), &format!("{up} 0"));
    }
    if counts {
        let labels = r#"{device="mlx5_1",port="1",kind="link_downed"}"#;
        let losses = u32::from(is_dark);
        text += &format!("railscope_rdma_port_errors_total{labels} {losses}\n");
    }
    text
}

#[test]
fn a_port_that_has_counted_its_loss_waits_for_a_second_look_too() {
    let port = BTreeSet::from(["port-down link/n2:mlx5_1/1".to_owned()]);
    // A scrape returns the last sample: the others' up state may be from before the loss.
    for (read_last, counts) in [(false, true), (true, true), (false, false)] {
        let dark = Dark {
            hosts: &[2],
            read_last,
            counts,
            ..Dark::default()
        };
        let found = rounds_to_an_incident(dark);
        assert_eq!(found, (2, port.clone()), "{dark:?}");
    }
    let all: Vec<usize> = (0..NODES).collect();
    for (counts, looked_at_again) in [(false, false), (true, false), (false, true)] {
        let dark = Dark {
            hosts: &all,
            counts,
            looked_at_again,
            ..Dark::default()
        };
        let (_, named) = rounds_to_an_incident(dark);
        let leaf = BTreeSet::from(["switch-down switch/leaf-1".to_owned()]);
        assert_eq!(named, leaf, "{dark:?}");
    }
}

#[test]
fn a_port_that_was_looked_at_again_before_the_tick_waits_for_no_other() {
    let port = BTreeSet::from(["port-down link/n2:mlx5_1/1".to_owned()]);
    // Read last, its confirmation scrape comes after the tick.
    for (read_last, rounds) in [(false, 1), (true, 2)] {
        let dark = Dark {
            hosts: &[2],
            read_last,
            looked_at_again: true,
            ..Dark::default()
        };
        let found = rounds_to_an_incident(dark);
        assert_eq!(found, (rounds, port.clone()), "{dark:?}");
    }
}

#[test]
fn a_port_is_no_sooner_named_because_another_on_its_leaf_has_long_been_down() {
    let mut analyzer = Analyzer::default();
    let text = subnet_of(NODES, MANY, &as_planned);
    analyzer.take_subnet(parse_ibnetdiscover(&text), at(0));
    let mut take = |seconds: u64, index: usize, is_dark: bool| {
        let page = rail_1(index, seconds, is_dark, false);
        analyzer.ingest(&node(index), &page, at(seconds));
        incidents(&analyzer.tick(at(seconds)))
    };
    for round in 1..10 {
        for index in 0..NODES {
            take(20 * round, index, round > 4 && index == 5);
        }
    }
    let long = ["port-down link/n5:mlx5_1/1 gpus=1 [gpu/n5:1]"];
    assert_eq!(take(200, 5, true), long);
    // Two scrapes of one host are no evidence about the others yet: they may be down as well.
    let (page, again) = (rail_1(2, 206, true, false), rail_1(2, 208, true, false));
    analyzer.ingest(&node(2), &page, at(206));
    analyzer.ingest(&node(2), &again, at(208));
    assert_eq!(incidents(&analyzer.tick(at(209))), long);
    for index in (0..NODES).filter(|index| ![2, 5].contains(index)) {
        let page = rail_1(index, 210, true, false);
        analyzer.ingest(&node(index), &page, at(210));
    }
    let open = incidents(&analyzer.tick(at(211)));
    assert!(
        !open.is_empty()
            && open
                .iter()
                .all(|line| line.starts_with("switch-down switch/leaf-1 ")),
        "{open:?}"
    );
}

/// Every incident that is ever open while all ports on a leaf are dark for so many seconds, and their hosts count that.
fn ever_open_of_a_restarted_leaf(dark_seconds: u64) -> BTreeSet<String> {
    let mut analyzer = Analyzer::default();
    let text = subnet_of(NODES, MANY, &as_planned);
    let mut ever = BTreeSet::new();
    for seconds in (0..400).step_by(5) {
        let (is_dark, counts) = ((100..100 + dark_seconds).contains(&seconds), seconds >= 100);
        for index in 0..NODES {
            let page = rail_1(index, seconds, is_dark, false);
            let losses = of_gpus(|rail| {
                let labels = format!(r#"{{device="mlx5_{rail}",port="1",kind="link_downed"}}"#);
                let losses = u32::from(counts && rail == 1);
                format!("railscope_rdma_port_errors_total{labels} {losses}\n")
            });
            analyzer.ingest(&node(index), &(page + &losses), at(seconds));
        }
        analyzer.take_subnet(parse_ibnetdiscover(&text), at(seconds));
        ever.extend(named(&analyzer.tick(at(seconds))));
    }
    ever
}

#[test]
fn links_that_were_lost_with_their_leaf_are_no_errors_of_their_own() {
    for dark_seconds in [20, 60, 100] {
        let leaf = BTreeSet::from([String::from("switch-down switch/leaf-1")]);
        assert_eq!(
            ever_open_of_a_restarted_leaf(dark_seconds),
            leaf,
            "{dark_seconds} s"
        );
    }
}
