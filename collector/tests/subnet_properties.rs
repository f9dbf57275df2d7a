//! For any text, the reader returns, accounts for every line, and reads back what was written.

use crate::topology_net as net;

use net::Net;
use proptest::prelude::*;
use railscope_collector::fabric::subnet::{Completeness, Subnet, parse_ibnetdiscover};

const FIXTURES: [&str; 3] = [
    include_str!("../../tests/fabrics/rail-2tier.ibnetdiscover"),
    include_str!("../../tests/fabrics/fat-tree-3tier.ibnetdiscover"),
    include_str!("../../tests/fabrics/debris.ibnetdiscover"),
];

/// Every line is accounted for, and every one not understood is a problem with its line.
fn accounts_for_every_line(text: &str, subnet: &Subnet) -> Result<(), TestCaseError> {
    let counts = subnet.counts;
    // The byte order mark is no text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    prop_assert_eq!(counts.lines, text.lines().count());
    prop_assert_eq!(
        counts.lines,
        counts.blank + counts.comments + counts.read + counts.unread
    );
    let mut lines: Vec<_> = subnet
        .problems
        .iter()
        .filter(|problem| problem.column.is_some())
        .map(|problem| problem.line)
        .collect();
    lines.dedup();
    prop_assert!(
        lines.len() >= counts.unread,
        "{} of {}",
        lines.len(),
        counts.unread
    );
    let known = |guid| subnet.nodes.iter().any(|node| node.guid == guid);
    prop_assert!(
        subnet
            .links
            .iter()
            .flat_map(|cable| cable.ends)
            .all(|end| known(end.guid))
    );
    Ok(())
}

/// Pieces that a line of this text is made of, so that random text gets past the first check.
fn fragment() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("\n".to_owned()),
        Just("[1]".to_owned()),
        Just("(c42a10300b00010)".to_owned()),
        Just("\"S-fc6a1c0300a00000\"".to_owned()),
        Just("\"H-0c42a10300b00010\"".to_owned()),
        Just("\t\t# \"x\" lid 3 4xNDR".to_owned()),
        Just("\nswitchguid=0xfc6a1c0300a00000".to_owned()),
        Just("\nSwitch\t64 ".to_owned()),
        Just("\nCa 2 ".to_owned()),
        Just("\nSW 3 1 0xfc6a1c0300a00000 4x NDR - CA 1 1 0x1 ( 'a' - 'b' )".to_owned()),
        "\\PC{0,6}",
        "[ -~]{0,6}",
    ]
}

proptest! {
    #[test]
    fn any_text_gets_an_answer(text in "(?s).{0,400}") {
        accounts_for_every_line(&text, &parse_ibnetdiscover(&text))?;
    }

    #[test]
    fn any_marked_text_gets_an_answer(text in "\u{feff}(?s).{0,20}") {
        accounts_for_every_line(&text, &parse_ibnetdiscover(&text))?;
    }

    #[test]
    fn any_likely_text_gets_an_answer(pieces in prop::collection::vec(fragment(), 0..60)) {
        let text = pieces.concat();
        accounts_for_every_line(&text, &parse_ibnetdiscover(&text))?;
    }

    #[test]
    fn valid_text_with_holes_gets_an_answer(
        which in 0..FIXTURES.len(),
        cut in any::<prop::sample::Index>(),
        hole in any::<prop::sample::Index>(),
        with in "\\PC{0,8}",
    ) {
        let mut text = FIXTURES[which].to_owned();
        text.truncate(text.floor_char_boundary(cut.index(text.len() + 1)));
        if !text.is_empty() {
            let at = text.floor_char_boundary(hole.index(text.len()));
            let to = text.ceil_char_boundary((at + with.len()).min(text.len()));
            text.replace_range(at..to, &with);
        }
        accounts_for_every_line(&text, &parse_ibnetdiscover(&text))?;
    }

    #[test]
    fn what_is_written_reads_back(
        names in prop::collection::vec("[a-zA-Z0-9 :;/_.'#-]{0,20}", 2..12),
        cables in prop::collection::vec((0usize..12, 0usize..12), 1..40),
    ) {
        let mut net = Net::default();
        let switches = names.len().div_ceil(2);
        for (index, name) in names.iter().enumerate() {
            if index < switches { net.switch(name) } else { net.ca(name) };
        }
        let mut drawn = 0;
        let mut used = vec![false; names.len()];
        for (a, b) in cables {
            let (a, b) = (a % names.len(), b % names.len());
            let free = |node: usize| node < switches || !used[node];
            // An adapter has one port; a switch may be cabled to itself.
            if free(a) && free(b) && (a != b || a < switches) {
                net.link(a, b);
                (used[a], used[b]) = (true, true);
                drawn += 1;
            }
        }
        let subnet = parse_ibnetdiscover(&net.text());
        prop_assert_eq!(subnet.counts.problems, 0, "{:?}", subnet.problems);
        prop_assert_eq!(subnet.links.len(), drawn);
        prop_assert!(subnet.links.iter().all(|cable| cable.both_ends && cable.speed.is_some()));
        prop_assert_eq!(subnet.nodes.len(), names.len());
        for (index, name) in names.iter().enumerate() {
            let guid = net.guid(index);
            let node = subnet.nodes.iter().find(|node| node.guid.0 == guid);
            prop_assert_eq!(node.map(|node| node.description.as_str()), Some(name.trim()));
        }
        let whole = used.iter().all(|used| *used);
        prop_assert_eq!(subnet.completeness == Completeness::Complete, whole);
    }
}
