//! Cables that are moved to other ports: what is named meanwhile, and what then.

use railscope_collector::analyzer::Analyzer;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;

use super::cluster::{NODES, at, node, page, subnet};
use super::incidents;

/// What is named, one after the other, of two cables that are exchanged, where counters of this kind have risen after ten
/// ticks, or the ports are down (`port_up`), and the subnet shows it after so many.
fn named_of_moved_cables(kind: &str, swept_after: u64) -> Vec<Vec<String>> {
    let moved = |node: usize, seconds: u64| {
        if kind == "port_up" && node == 5 && (55..=5 * swept_after).contains(&seconds) {
            let down = |page: String, rail| {
                let port = format!("port_up{{device=\"mlx5_{rail}\",port=\"1\"}}");
                page.replace(&format!("{port} 1"), &format!("{port} 0"))
            };
            return down(down(page(node, seconds), 1), 2);
        }
        let count = if node == 5 && seconds > 50 { 6 } else { 0 };
        let line = |rail| {
            format!(
                "railscope_rdma_port_errors_total{{device=\"mlx5_{rail}\",port=\"1\",kind=\"{kind}\"}} {count}\n"
            )
        };
        page(node, seconds) + &line(1) + &line(2)
    };
    let mut analyzer = Analyzer::default();
    let mut seen: Vec<Vec<String>> = Vec::new();
    for tick in 1..=20 {
        let seconds = 5 * tick;
        for index in 0..NODES {
            analyzer.ingest(&node(index), &moved(index, seconds), at(seconds));
        }
        let swapped = move |node, rail| match (node, rail) {
            (5, 1) if tick > swept_after => Some(2),
            (5, 2) if tick > swept_after => Some(1),
            _ => Some(rail),
        };
        analyzer.take_subnet(parse_ibnetdiscover(&subnet(&swapped)), at(seconds));
        let view = analyzer.tick(at(seconds));
        let now: Vec<_> = incidents(&view)
            .iter()
            .map(|line| line.split(" gpus").next().unwrap_or(line).to_owned())
            .collect();
        if seen.last() != Some(&now) {
            seen.push(now);
        }
    }
    seen
}

#[test]
fn errors_of_moved_cables_become_one_miscabling() {
    let (errors, moved) = (
        vec![
            "link-errors link/n5:mlx5_1/1",
            "link-errors link/n5:mlx5_2/1",
        ],
        vec!["miscabled-rail link/n5:mlx5_1/1"],
    );
    for (kind, swept_after) in [("local_link_integrity_errors", 13), ("link_downed", 16)] {
        let named = named_of_moved_cables(kind, swept_after);
        assert_eq!(named, [vec![], errors.clone(), moved.clone()], "{kind}");
    }
    let down = ["port-down link/n5:mlx5_1/1", "port-down link/n5:mlx5_2/1"];
    let down = down.to_vec();
    assert_eq!(
        named_of_moved_cables("port_up", 14),
        [vec![], down, moved.clone()]
    );
    // A cable that is moved loses its link: that is no evidence until it should have been seen at its new port.
    assert_eq!(named_of_moved_cables("link_downed", 13), [vec![], moved]);
}

/// Two cables are exchanged and, a minute later, exchanged back. Each time their links go down.
#[test]
fn cables_that_are_moved_and_moved_back_do_not_flap() {
    for swept_after in [0, 15] {
        let mut analyzer = Analyzer::default();
        for seconds in (5..=240).step_by(5) {
            for index in 0..NODES {
                let downs = [60, 120].iter().filter(|at| index == 5 && seconds >= **at);
                let count = downs.count();
                let line = |rail| {
                    format!(
                        "railscope_rdma_port_errors_total{{device=\"mlx5_{rail}\",port=\"1\",kind=\"link_downed\"}} {count}\n"
                    )
                };
                let page = page(index, seconds) + &line(1) + &line(2);
                analyzer.ingest(&node(index), &page, at(seconds));
            }
            let is_swapped = (60 + swept_after..120 + swept_after).contains(&seconds);
            let cabling = move |node, rail| match (node, rail) {
                (5, 1) if is_swapped => Some(2),
                (5, 2) if is_swapped => Some(1),
                _ => Some(rail),
            };
            analyzer.take_subnet(parse_ibnetdiscover(&subnet(&cabling)), at(seconds));
            let named = incidents(&analyzer.tick(at(seconds)));
            let flaps = named.iter().any(|line| line.contains("port-flapping"));
            assert!(!flaps, "{swept_after} {seconds}: {named:?}");
        }
    }
}
