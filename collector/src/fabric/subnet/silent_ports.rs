//! Missing replies: what a sweeping tool reports about them, and what is known behind them all the
//! same.
//!
//! `ibnetdiscover` succeeds and prints a flawless text when a device does not reply. Only its
//! standard error distinguishes such a device from one that is gone: a directed route, and the
//! attribute requested.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::FixedState;
use railscope_model::identity::Guid;

use super::{Cable, Completeness, End, Gap, Node, Subnet};

/// Hops of a directed route after the first, which is the sweeping host itself. The specification
/// allows 63 (InfiniBand Architecture Specification, volume 1, 14.2.2).
const MAX_HOPS: usize = 63;

/// What a line of the tool's complaints reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Complaint {
    /// Nothing came back over this route: the ports to leave by, from the sweeping host on.
    Silence(Vec<u16>),
    /// Something else went wrong.
    Other,
}

/// Reads a line of the tool's own complaints; none if it is not one.
pub(super) fn complaint(line: &str) -> Option<Complaint> {
    const OWN_WORDS: [&str; 4] = ["ibwarn", "ibpanic", "ibdebug", "query_smp.c:"];
    if !OWN_WORDS.iter().any(|word| line.contains(word)) {
        return None;
    }
    Some(route(line).map_or(Complaint::Other, Complaint::Silence))
}

/// The route in `umad (DR path slid 0; dlid 0; 0,1,33 Attr 0x11:0) bad status 110; Connection timed out`.
fn route(line: &str) -> Option<Vec<u16>> {
    let (_, rest) = line.split_once("(DR path ")?;
    let (request, outcome) = rest.split_once(')')?;
    if !outcome.contains("timed out") {
        return None;
    }
    let (path, _) = request.split_once(" Attr ")?;
    let path = path.rsplit(';').next()?.trim();
    let hops: Option<Vec<u16>> = path.split(',').map(|hop| hop.parse().ok()).collect();
    hops.filter(|hops| hops.first() == Some(&0) && hops.len() <= MAX_HOPS + 1)
}

impl Subnet {
    /// Ingests what the sweeping tool complained of, apart from its text: ports behind which no device
    /// answered, and, as a [`Gap`], everything else.
    pub fn hear_complaints(&mut self, said: &str) {
        let complaints: Vec<_> = said.lines().filter_map(complaint).collect();
        self.take_complaints(complaints);
    }

    pub(super) fn take_complaints(&mut self, complaints: Vec<Complaint>) {
        let peers = peers(&self.links);
        let mut silent: BTreeSet<End> = self.silent.iter().copied().collect();
        let mut others = 0;
        for complaint in complaints {
            let end = match complaint {
                Complaint::Silence(route) => self.last_port(&route, &peers),
                Complaint::Other => None,
            };
            match end {
                Some(end) => {
                    silent.insert(end);
                }
                None => others += 1,
            }
        }
        self.silent = silent.into_iter().collect();
        let mut gaps = std::mem::take(&mut self.completeness).into_gaps();
        gaps.retain(|gap| !matches!(gap, Gap::Silent { .. }));
        if let Some(example) = self.silent.first() {
            gaps.push(Gap::Silent {
                ports: self.silent.len(),
                example: *example,
            });
        }
        if others > 0 {
            gaps.push(Gap::ToolWarned { lines: others });
        }
        self.completeness = Completeness::of(gaps);
    }

    /// The port by which a route leaves the last node that answered.
    fn last_port(&self, route: &[u16], peers: &Peers) -> Option<End> {
        let (last, way) = route.get(1..)?.split_last()?;
        let mut guid = self.header.started_at?;
        for port in way {
            guid = peers.get(&End { guid, port: *port })?.guid;
        }
        Some(End { guid, port: *last })
    }

    /// Whether all that is missing is behind ports whose silence was noticed, or is the node that the sweep started from.
    pub fn is_settled(&self) -> bool {
        let gaps = self.completeness.gaps();
        let is_known = |gap: &Gap| matches!(gap, Gap::Silent { .. } | Gap::StartMissing { .. });
        gaps.iter().all(is_known)
    }

    /// Whether the node that the sweep started from is in an older one and not in this one: a truncated text, though one from
    /// which a site removes that node every time is otherwise complete.
    pub(crate) fn has_lost_its_start(&self, older: &Self) -> bool {
        let mut gaps = self.completeness.gaps().iter();
        gaps.any(|gap| match gap {
            Gap::StartMissing { guid } => older.nodes.iter().any(|node| node.guid == *guid),
            _ => false,
        })
    }

    /// Copies what an older sweep found behind silent ports into this one: a device that does not reply is
    /// not removed. Nodes that were unknown before and have not reported their name are omitted until
    /// they do.
    pub fn recall(&mut self, older: Option<&Self>) {
        if self.silent.is_empty() {
            return;
        }
        let unknown = self.behind_silence(older);
        if let Some(older) = older {
            let mine: HashMap<Guid, usize, FixedState> = (0..)
                .zip(&self.nodes)
                .map(|(index, node)| (node.guid, index))
                .collect();
            for node in older
                .nodes
                .iter()
                .filter(|node| unknown.contains(&node.guid))
            {
                match mine.get(&node.guid) {
                    Some(index) => recall_name(&mut self.nodes[*index], node),
                    None => self.nodes.push(node.clone()),
                }
            }
            let used = peers(&self.links);
            let is_unknown =
                |cable: &&Cable| cable.ends.iter().any(|end| unknown.contains(&end.guid));
            let is_free = |cable: &&Cable| cable.ends.iter().all(|end| !used.contains_key(end));
            let recalled = older.links.iter().filter(is_unknown).filter(is_free);
            self.links.extend(recalled.copied());
        }
        let nameless = |node: &Node| node.description.is_empty() && unknown.contains(&node.guid);
        let left_out: BTreeSet<Guid> = self
            .nodes
            .iter()
            .filter(|node| nameless(node))
            .map(|node| node.guid)
            .collect();
        self.nodes.retain(|node| !left_out.contains(&node.guid));
        self.links
            .retain(|cable| cable.ends.iter().all(|end| !left_out.contains(&end.guid)));
    }

    /// Nodes right behind silent ports, and all that the older sweep found beyond them and this one does not show.
    fn behind_silence(&self, older: Option<&Self>) -> BTreeSet<Guid> {
        let old_links = older.map_or(&[][..], |older| &older.links);
        let (then, now) = (peers(old_links), peers(&self.links));
        let shown: BTreeSet<Guid> = self.nodes.iter().map(|node| node.guid).collect();
        let mut beyond: HashMap<Guid, Vec<Guid>, FixedState> = HashMap::default();
        for (near, far) in &then {
            beyond.entry(near.guid).or_default().push(far.guid);
        }
        let behind = |end: &End| [then.get(end), now.get(end)];
        let mut todo: Vec<Guid> = self
            .silent
            .iter()
            .flat_map(behind)
            .flatten()
            .map(|end| end.guid)
            .collect();
        let mut unknown = BTreeSet::new();
        while let Some(guid) = todo.pop() {
            if unknown.insert(guid) {
                let further = beyond.get(&guid).into_iter().flatten();
                todo.extend(further.filter(|guid| !shown.contains(guid)));
            }
        }
        unknown
    }
}

fn recall_name(node: &mut Node, known: &Node) {
    if node.description.is_empty() {
        node.description.clone_from(&known.description);
    }
    node.lid = node.lid.or(known.lid);
}

type Peers = HashMap<End, End, FixedState>;

/// What each port is cabled to.
fn peers(links: &[Cable]) -> Peers {
    let both = |cable: &Cable| {
        let [a, b] = cable.ends;
        [(a, b), (b, a)]
    };
    links.iter().flat_map(both).collect()
}

#[cfg(test)]
mod tests {
    use super::super::parse_ibnetdiscover;
    use super::*;

    /// Host A (1) - leaf (10) - spine (20) - leaf (11) - host B (2).
    const WHOLE: &str = "\
# Initiated from node 0000000000000001 port 0000000000000001
switchguid=0xa(a)
Switch\t4 \"S-000000000000000a\"\t\t# \"leaf-a\" base port 0 lid 10 lmc 0
[1]\t\"H-0000000000000001\"[1](1)\t\t# \"a mlx5_0\" lid 1 4xNDR
[2]\t\"S-0000000000000014\"[1]\t\t# \"spine\" lid 20 4xNDR

switchguid=0x14(14)
Switch\t4 \"S-0000000000000014\"\t\t# \"spine\" base port 0 lid 20 lmc 0
[1]\t\"S-000000000000000a\"[2]\t\t# \"leaf-a\" lid 10 4xNDR
[2]\t\"S-000000000000000b\"[2]\t\t# \"leaf-b\" lid 11 4xNDR

switchguid=0xb(b)
Switch\t4 \"S-000000000000000b\"\t\t# \"leaf-b\" base port 0 lid 11 lmc 0
[1]\t\"H-0000000000000002\"[1](2)\t\t# \"b mlx5_0\" lid 2 4xNDR
[2]\t\"S-0000000000000014\"[2]\t\t# \"spine\" lid 20 4xNDR

caguid=0x1
Ca\t1 \"H-0000000000000001\"\t\t# \"a mlx5_0\"
[1](1)\t\"S-000000000000000a\"[1]\t\t# lid 1 lmc 0 \"leaf-a\" lid 10 4xNDR

caguid=0x2
Ca\t1 \"H-0000000000000002\"\t\t# \"b mlx5_0\"
[1](2)\t\"S-000000000000000b\"[1]\t\t# lid 2 lmc 0 \"leaf-b\" lid 11 4xNDR
";

    fn timed_out(route: &str, attribute: u16) -> String {
        format!(
            "./libibnetdisc/query_smp.c:186; umad (DR path slid 0; dlid 0; {route} Attr 0x{attribute:x}:0) bad status 110; Connection timed out\n"
        )
    }

    /// The subnet without the sections and the lines that name these.
    fn without(words: &[&str]) -> String {
        let sections = WHOLE.split("\n\n").filter(|section| {
            let head = section
                .lines()
                .find(|line| line.starts_with("Switch") || line.starts_with("Ca"));
            !head.is_some_and(|head| words.iter().any(|word| head.contains(word)))
        });
        let kept = |line: &&str| !words.iter().any(|word| line.contains(word));
        let sections =
            sections.map(|section| section.lines().filter(kept).collect::<Vec<_>>().join("\n"));
        sections.collect::<Vec<_>>().join("\n\n") + "\n"
    }

    #[test]
    fn complaints_are_told_from_other_lines() {
        let silence = |hops: &[u16]| Some(Complaint::Silence(hops.to_vec()));
        for (line, expected) in [
            (
                timed_out("0,1,33,41", 0x11).trim(),
                silence(&[0, 1, 33, 41]),
            ),
            (
                "ibwarn: [12] mad_rpc: _do_madrpc failed; dport (DR path slid 0; dlid 0; 0,1)",
                Some(Complaint::Other),
            ),
            (
                "x query_smp.c:186; umad (DR path slid 0; dlid 0; 0,1 Attr 0x11:0) bad status 5; I/O error",
                Some(Complaint::Other),
            ),
            (
                "x query_smp.c:186; umad (DR path slid 0; dlid 0; 0,x Attr 0x11:0) bad status 110; Connection timed out",
                Some(Complaint::Other),
            ),
            (
                "Warning: Permanently added 'sm1' to the list of known hosts.",
                None,
            ),
            ("", None),
        ] {
            assert_eq!(complaint(line), expected, "{line}");
        }
    }

    #[test]
    fn who_does_not_answer_is_not_gone_and_neither_is_who_is_behind() {
        let whole = parse_ibnetdiscover(WHOLE);
        assert!(whole.is_settled(), "{:?}", whole.completeness);
        let mut swept = parse_ibnetdiscover(&without(&["leaf-b", "b mlx5_0"]));
        assert_eq!((swept.nodes.len(), swept.links.len()), (3, 2));
        // From host A by its port 1, by the leaf's 2, by the spine's 2.
        swept.hear_complaints(&timed_out("0,1,2,2", 0x11));
        assert_eq!(
            swept.silent,
            [End {
                guid: Guid(0x14),
                port: 2
            }]
        );
        assert!(swept.is_settled(), "{:?}", swept.completeness);
        swept.recall(Some(&whole));
        assert_eq!((swept.nodes.len(), swept.links.len()), (5, 4));
    }

    #[test]
    fn what_is_gone_without_a_word_is_gone() {
        let whole = parse_ibnetdiscover(WHOLE);
        let mut swept = parse_ibnetdiscover(&without(&["b mlx5_0"]));
        swept.hear_complaints("");
        swept.recall(Some(&whole));
        assert_eq!((swept.nodes.len(), swept.links.len()), (4, 3));
        // Another port is silent: that is no evidence about this one.
        swept.hear_complaints(&timed_out("0,1,3", 0x11));
        swept.recall(Some(&whole));
        assert_eq!((swept.nodes.len(), swept.links.len()), (4, 3));
    }

    #[test]
    fn a_node_that_has_not_said_its_name_keeps_the_one_it_had_or_waits() {
        let whole = parse_ibnetdiscover(WHOLE);
        let nameless = WHOLE.replace("b mlx5_0", "");
        let swept = |older| {
            let mut swept = parse_ibnetdiscover(&nameless);
            swept.hear_complaints(&timed_out("0,1,2,2,1", 0x10));
            swept.recall(older);
            swept
        };
        let known = swept(Some(&whole));
        let host = known.nodes.iter().find(|node| node.guid == Guid(2));
        assert_eq!(host.map(|node| node.description.as_str()), Some("b mlx5_0"));
        let fresh = swept(None);
        assert_eq!((fresh.nodes.len(), fresh.links.len()), (4, 3));
    }

    #[test]
    fn a_complaint_that_leads_nowhere_makes_the_sweep_partial() {
        for said in [
            timed_out("0,1,3,1", 0x11),
            String::from("ibwarn: [1] something\n"),
        ] {
            let mut swept = parse_ibnetdiscover(WHOLE);
            swept.hear_complaints(&said);
            assert!(!swept.is_settled(), "{said}");
        }
    }
}
