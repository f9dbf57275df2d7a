//! Scrapes that follow the scrape of another node, more or less: they report what they would report
//! alone.

use super::super::*;
use proptest::prelude::*;
use railscope_model::metric::{GPU_POWER, NIC_MTU, RDMA_PORT_ERRORS};

/// What a scrape may have otherwise than the first of its kind, at a line.
#[derive(Debug, Clone, Copy)]
enum Twist {
    Gone,
    Twice,
    Other,
    Broken,
    Comment,
    BehindTheNext,
    /// Blanks, a time stamp, an end of line of another system.
    Written,
    NoNumber,
}

fn line(kind: usize, value: usize) -> String {
    match kind % 3 {
        0 => format!(
            "railscope_rdma_port_errors_total{{device=\"mlx5_0\",port=\"1\",kind=\"k{kind}\"}} {value}\n"
        ),
        1 => format!("railscope_nic_mtu_bytes{{netdev=\"eth{kind}\"}} {value}\n"),
        _ => format!("railscope_nvlink_state{{gpu=\"{kind}\",link=\"0\"}} {value}\n"),
    }
}

/// A scrape of a hundred lines with values from `first` on.
fn page(first: usize, twists: &[(usize, Twist)]) -> String {
    let mut lines: Vec<String> = (0..100).map(|kind| line(kind, first + kind)).collect();
    for (at, twist) in twists {
        let at = at % (lines.len() - 1);
        let known = lines[at].clone();
        let (head, value) = known.trim_end().rsplit_once(' ').unwrap_or((&known, "1"));
        match twist {
            Twist::Gone => lines[at].clear(),
            Twist::Twice => lines[at].push_str(&known),
            Twist::Other => lines[at] = line(1000 + at, first),
            Twist::Broken => lines[at] = format!("{head}\n"),
            Twist::Comment => lines[at].insert_str(0, "# HELP x y\n# TYPE x gauge\n\n"),
            Twist::BehindTheNext => lines.swap(at, at + 1),
            Twist::Written => lines[at] = format!("{head}  {value} 17 \r\n"),
            Twist::NoNumber => lines[at] = format!("{head} x{value}\n"),
        }
    }
    lines.concat() + "railscope_gpu_power_watts{gpu=\"0\"} 1\n# EOF\n"
}

fn twists() -> impl Strategy<Value = Vec<(usize, Twist)>> {
    use Twist::{BehindTheNext, Broken, Comment, Gone, NoNumber, Other, Twice, Written};
    let twist = proptest::sample::select(vec![
        Gone,
        Twice,
        Other,
        Broken,
        Comment,
        BehindTheNext,
        Written,
        NoNumber,
    ]);
    proptest::collection::vec((0usize..100, twist), 0..60)
}

/// All that a node reports about the metrics of these scrapes.
fn said(node: &NodeHistory) -> Vec<String> {
    let of = |metric| {
        let series = node.series(metric);
        series.map(|(labels, window)| format!("{labels:?} {:?}", window.value()))
    };
    let mut said: Vec<String> = of(&RDMA_PORT_ERRORS)
        .chain(of(&NIC_MTU))
        .chain(of(&GPU_POWER))
        .collect();
    said.sort();
    said
}

proptest! {
    #[test]
    fn a_page_says_the_same_whatever_pages_were_read_before_it(pages in proptest::collection::vec(twists(), 1..6)) {
        let mut history = History::default();
        let names = ["n1", "n2"].map(|name| name.parse::<NodeName>().expect(name));
        let at = |page: usize| Timestamp(1000 * page as u64);
        history.node_mut(&names[0]).ingest(&page(0, &[]), at(1));
        let mut alone = NodeHistory::default();
        for (number, twists) in pages.iter().enumerate() {
            let text = page(number, twists);
            // No node shares anything with it, and it remembers no scrape.
            alone.template = None;
            alone.shared = Shared::default();
            let expected = alone.ingest(&text, at(number + 2));
            let node = history.node_mut(&names[1]);
            let result = node.ingest(&text, at(number + 2));
            prop_assert_eq!(result, expected);
            prop_assert_eq!(said(node), said(&alone));
        }
    }
}
