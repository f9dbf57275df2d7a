//! The lines of `ibnetdiscover` text combined: sections to nodes, port lines to claims about cables.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use railscope_model::identity::Guid;
use railscope_model::units::LinkSpeed;

use super::cursor::{Flaw, NodeId};
use super::join::{Claim, join};
use super::line::{Line, Named, read};
use super::{
    Completeness, Counts, End, Gap, Header, MAX_FOUND, MAX_PROBLEMS, Node, NodeKind, Problem,
    Subnet,
};
use crate::fabric::subnet::silent_ports::{Complaint, complaint};

/// Reads the text of `ibnetdiscover`: the plain form, with `-f`, `-g` or `-p`, and netfiles of ibsim.
///
/// Nothing is guessed: what cannot be read is in [`Subnet::problems`] and [`Subnet::counts`], and what
/// must be missing is in [`Subnet::completeness`]. Any text gives a result, an empty one too.
pub fn parse_ibnetdiscover(text: &str) -> Subnet {
    let mut reader = Reader::default();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut flaws = Vec::new();
    for (index, line) in text.lines().enumerate() {
        reader.line = index + 1;
        reader.take(line, &mut flaws);
    }
    let ends_open = !text.is_empty() && !text.ends_with('\n');
    if ends_open && reader.last_line_flawed {
        reader.gaps.push(Gap::EndsInsideLine { line: reader.line });
    }
    reader.finish()
}

/// Ids seen so far, without the cost of a hash that resists attackers: the text comes from our own fabric.
type Ids<'a> = HashMap<NodeId<'a>, usize, FixedState>;

/// A node while the text is being read.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) node: Node,
    /// Not known for a free name without a section.
    pub(super) guid_known: bool,
    pub(super) first_line: usize,
}

/// What stands above a `Switch` or `Ca` line and belongs to it.
#[derive(Debug, Default, Clone, Copy)]
struct Preamble {
    line: Option<usize>,
    vendor: Option<u32>,
    device: Option<u32>,
    system: Option<Guid>,
    guid: Option<Guid>,
}

#[derive(Debug, Default)]
struct Reader<'a> {
    line: usize,
    last_line_flawed: bool,
    lost_lines: usize,
    complaints: Vec<Complaint>,
    header: Header,
    preamble: Preamble,
    /// The node whose section this is.
    section: Option<usize>,
    ids: Ids<'a>,
    drafts: Vec<Draft>,
    claims: Vec<Claim>,
    /// By draft and port.
    lids: Vec<(usize, u16, u16)>,
    problems: Problems,
    counts: Counts,
    gaps: Vec<Gap>,
}

/// Problems, with a limit on how many keep their text.
#[derive(Debug, Default)]
pub(super) struct Problems {
    pub(super) kept: Vec<Problem>,
    pub(super) all: usize,
}

impl Problems {
    pub(super) fn push(
        &mut self,
        line: usize,
        column: Option<usize>,
        what: (&'static str, &'static str),
        found: &str,
    ) {
        self.all += 1;
        if self.kept.len() < MAX_PROBLEMS {
            self.kept.push(Problem {
                line,
                column,
                field: what.0,
                expected: what.1,
                found: found.chars().take(MAX_FOUND).collect(),
            });
        }
    }
}

impl<'a> Reader<'a> {
    fn take(&mut self, text: &'a str, flaws: &mut Vec<Flaw<'a>>) {
        self.counts.lines += 1;
        flaws.clear();
        let line = read(text, flaws);
        self.last_line_flawed = line.is_err() || !flaws.is_empty();
        match line {
            Ok(Line::Blank) => self.counts.blank += 1,
            Ok(Line::Comment(comment)) => {
                self.counts.comments += 1;
                self.read_comment(comment);
            }
            Ok(line) => {
                self.counts.read += 1;
                self.understand(&line);
            }
            Err(flaw) => {
                self.counts.unread += 1;
                self.classify_unread(text.trim_start());
                flaws.push(flaw);
            }
        }
        for flaw in flaws.iter() {
            let what = (flaw.field, flaw.expected);
            self.problems
                .push(self.line, Some(flaw.column), what, flaw.found);
        }
    }

    /// Distinguishes lines whose loss leaves a gap from terminal noise.
    fn classify_unread(&mut self, text: &str) {
        let after = |prefix: &str| text.strip_prefix(prefix).map(str::trim_start);
        let begins_with_digit = |rest: &str| rest.starts_with(|char: char| char.is_ascii_digit());
        const NODE_WORDS: [&str; 8] = ["Switch", "Ca", "Hca", "Rt", "Router", "SW ", "CA ", "RT "];
        let is_node = NODE_WORDS
            .iter()
            .any(|word| after(word).is_some_and(begins_with_digit));
        if is_node {
            self.section = None; // the port lines that follow belong to no node
        }
        let is_key = [
            "vendid=",
            "devid=",
            "sysimgguid=",
            "switchguid=",
            "caguid=",
            "rtguid=",
        ]
        .iter()
        .any(|key| text.starts_with(key));
        if is_node || is_key || after("[").is_some_and(begins_with_digit) {
            self.lost_lines += 1;
        } else {
            self.complaints.extend(complaint(text));
        }
    }

    fn read_comment(&mut self, comment: &str) {
        if let Some(when) = comment.strip_prefix("Topology file: generated on ") {
            self.header.generated = Some(when.trim().to_owned());
        } else if let Some(start) = comment.strip_prefix("Initiated from node ") {
            let guid = start.split_whitespace().next().unwrap_or_default();
            match guid.parse() {
                Ok(guid) => self.header.started_at = Some(guid),
                Err(_) => {
                    self.problems
                        .push(self.line, None, ("start of the sweep", "a GUID"), guid);
                }
            }
        }
    }

    fn understand(&mut self, line: &Line<'a>) {
        match *line {
            Line::Blank | Line::Comment(_) => {}
            Line::Vendor(_) | Line::Device(_) | Line::System(_) | Line::NodeGuid(_) => {
                self.read_preamble(line);
            }
            Line::Node(named) => self.begin_section(named),
            Line::Port {
                port,
                lid,
                peer,
                speed,
            } => {
                let Some(section) = self.section else {
                    self.lost_lines += 1;
                    let what = ("port", "a Switch, Ca or Rt line above it");
                    self.problems.push(self.line, None, what, "");
                    return;
                };
                let draft = &mut self.drafts[section].node;
                draft.lid = draft.lid.or(lid);
                self.lids.extend(lid.map(|lid| (section, port, lid)));
                if port > draft.ports {
                    let what = ("port", "a port that the node has");
                    self.problems.push(self.line, None, what, &port.to_string());
                }
                // A port line that ends with the text, before its speed, was cut there.
                self.last_line_flawed |= speed.is_none();
                self.claim(section, port, peer, speed);
            }
            Line::Report { near, peer, speed } => {
                let (near_port, near_lid) = (near.port, near.lid);
                let index = self.name(near);
                let node = &mut self.drafts[index].node;
                node.swept = true;
                node.lid = node.lid.or(near_lid);
                if node.kind != NodeKind::Switch {
                    self.lids
                        .extend(near_lid.map(|lid| (index, near_port, lid)));
                }
                node.ports = node.ports.max(near_port);
                match peer {
                    Some(peer) => self.claim(index, near_port, peer, speed),
                    None => self.counts.ports_without_cable += 1,
                }
            }
        }
    }

    fn read_preamble(&mut self, line: &Line<'_>) {
        // The section above ends where the next one begins, even if that one never names its node.
        self.section = None;
        let starts_anew = match line {
            Line::Vendor(_) => self.preamble.vendor.is_some(),
            Line::NodeGuid(_) => self.preamble.guid.is_some(),
            _ => false,
        };
        if starts_anew {
            self.close_preamble();
        }
        let preamble = &mut self.preamble;
        preamble.line.get_or_insert(self.line);
        match *line {
            Line::Vendor(id) => preamble.vendor = Some(id),
            Line::Device(id) => preamble.device = Some(id),
            Line::System(guid) => preamble.system = Some(guid),
            Line::NodeGuid(guid) => preamble.guid = Some(guid),
            _ => {}
        }
    }

    fn close_preamble(&mut self) {
        if let Some(line) = std::mem::take(&mut self.preamble).line {
            self.gaps.push(Gap::HeadlessSection { line });
            let what = ("section", "a Switch, Ca or Rt line at its end");
            self.problems.push(line, None, what, "");
        }
    }

    fn begin_section(&mut self, named: Named<'a>) {
        let preamble = std::mem::take(&mut self.preamble);
        let index = self.name(named);
        self.section = Some(index);
        let draft = &mut self.drafts[index];
        if draft.node.swept {
            let what = ("node", "one section per node");
            self.problems
                .push(self.line, None, what, &draft.node.description);
            return;
        }
        if let Some(guid) = preamble.guid {
            if draft.guid_known && draft.node.guid != guid {
                let what = ("node GUID", "the GUID of the node id");
                self.problems.push(self.line, None, what, &guid.to_string());
            }
            draft.node.guid = guid;
            draft.guid_known = true;
        } else if !draft.guid_known {
            let what = ("node GUID", "switchguid=, caguid= or rtguid= above");
            self.problems.push(self.line, None, what, "");
        }
        let node = &mut draft.node;
        node.swept = true;
        node.kind = named.kind;
        node.ports = named.port;
        node.vendor = preamble.vendor;
        node.device = preamble.device;
        node.system_guid = preamble.system;
        node.lid = named.lid.or(node.lid);
        if let Some(description) = named.description {
            // What the node reports about itself counts, not what the far end of a cable printed.
            if node.description != description {
                description.clone_into(&mut node.description);
            }
        }
    }

    /// The draft of a node, made where it is named first.
    fn name(&mut self, named: Named<'a>) -> usize {
        if let Some(index) = self.ids.get(&named.id) {
            return *index;
        }
        let index = self.drafts.len();
        self.ids.insert(named.id, index);
        let guid = match named.id {
            NodeId::Guid(guid) => Some(Guid(guid)),
            NodeId::Name(_) => None,
        };
        self.drafts.push(Draft {
            node: Node {
                kind: named.kind,
                guid: guid.unwrap_or(Guid(0)),
                system_guid: None,
                vendor: None,
                device: None,
                ports: 0,
                description: named.description.unwrap_or_default().to_owned(),
                lid: named.lid.filter(|_| named.kind == NodeKind::Switch),
                swept: false,
            },
            guid_known: guid.is_some(),
            first_line: self.line,
        });
        index
    }

    fn claim(&mut self, node: usize, port: u16, peer: Named<'a>, speed: Option<LinkSpeed>) {
        let claim = Claim {
            near: (node, port),
            far: (self.name(peer), peer.port),
            speed,
            line: self.line,
        };
        self.claims.push(claim);
    }

    fn finish(mut self) -> Subnet {
        self.close_preamble();
        if self.lost_lines > 0 {
            let lines = self.lost_lines;
            self.gaps.push(Gap::LostLines { lines });
        }
        let lid = |(draft, port, lid): &(usize, u16, u16)| {
            let draft = &self.drafts[*draft];
            let guid = draft.guid_known.then_some(draft.node.guid)?;
            Some((End { guid, port: *port }, *lid))
        };
        let lids = self.lids.iter().filter_map(lid).collect();
        let joined = join(self.drafts, &self.claims, &mut self.problems);
        self.gaps.extend(joined.gaps);
        if let Some(guid) = self.header.started_at
            && !joined.nodes.is_empty()
            && !joined.nodes.iter().any(|node| node.guid == guid)
        {
            self.gaps.push(Gap::StartMissing { guid });
        }
        self.problems.kept.sort_by_key(|problem| problem.line);
        let mut subnet = Subnet {
            header: self.header,
            nodes: joined.nodes,
            links: joined.cables,
            lids,
            forwarding: None,
            silent: Vec::new(),
            counts: Counts {
                problems: self.problems.all,
                dropped_cables: joined.dropped,
                ..self.counts
            },
            problems: self.problems.kept,
            completeness: Completeness::of(self.gaps),
        };
        subnet.take_complaints(self.complaints);
        subnet
    }
}
