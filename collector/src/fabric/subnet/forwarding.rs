//! Linear forwarding tables of an InfiniBand subnet: of each switch, the port by which it forwards each LID.
//!
//! [`parse_forwarding`] reads what `dump_fts`, `dump_lfts.sh`, `ibroute` and opensm write; an own sweep fills the same
//! [`Tables`].

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher as _;
use std::sync::Arc;

use foldhash::fast::FixedState;
use railscope_model::fabric::Timestamp;
use railscope_model::identity::Guid;

use super::parse::Problems;
use super::{Problem, Subnet};

/// LIDs of one block of a table (InfiniBand Architecture Specification, volume 1, 14.2.5.10).
pub const BLOCK_LIDS: usize = 64;
/// The port of a LID that a switch does not forward (the same section).
pub const NO_PORT: u8 = 255;
/// The first multicast LID; tables of this kind end before it.
pub const FIRST_MULTICAST_LID: u16 = 0xc000;

/// Tables by the node GUID of their switch.
pub type Tables = BTreeMap<Guid, Table>;

/// The forwarding table of one switch, as far as it was read: a byte for each LID of the blocks that were.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    blocks: BTreeMap<u16, [u8; BLOCK_LIDS]>,
}

impl Table {
    /// The port by which a LID leaves; none where the switch does not forward it, or that was not
    /// read.
    pub fn port(&self, lid: u16) -> Option<u8> {
        let (block, place) = place(lid);
        let port = *self.blocks.get(&block)?.get(place)?;
        (port != NO_PORT).then_some(port)
    }

    /// Notes the port of a LID.
    pub fn set(&mut self, lid: u16, port: u8) {
        let (block, place) = place(lid);
        self.blocks.entry(block).or_insert([NO_PORT; BLOCK_LIDS])[place] = port;
    }

    /// Notes a whole block.
    pub(crate) fn set_block(&mut self, block: u16, ports: [u8; BLOCK_LIDS]) {
        self.blocks.insert(block, ports);
    }

    /// LIDs that are forwarded, with their ports.
    pub fn entries(&self) -> impl Iterator<Item = (u16, u8)> {
        let of = |(block, ports): (&u16, &[u8; BLOCK_LIDS])| {
            let first = *block * BLOCK_LIDS as u16;
            (first..).zip(*ports)
        };
        let all = self.blocks.iter().flat_map(of);
        all.filter(|(_, port)| *port != NO_PORT)
    }
}

/// Block of a LID, and its place there.
pub(crate) const fn place(lid: u16) -> (u16, usize) {
    (lid / BLOCK_LIDS as u16, lid as usize % BLOCK_LIDS)
}

/// The tables of a subnet, and when they were read.
#[derive(Debug, Clone, PartialEq)]
pub struct Forwarding {
    /// By switch.
    pub tables: Arc<Tables>,
    /// When the oldest of them was read.
    pub read_at: Timestamp,
}

impl Subnet {
    /// What is another with every change after which switches may forward otherwise: devices, LIDs, cables.
    pub(crate) fn shape(&self) -> u64 {
        let nodes: Vec<_> = self
            .nodes
            .iter()
            .map(|node| (node.guid, node.lid))
            .collect();
        let cables: Vec<_> = self.links.iter().map(|cable| cable.ends).collect();
        FixedState::default().hash_one((nodes, cables, &self.lids))
    }
}

/// Text of tables that was read.
#[derive(Debug, Default)]
pub struct Dump {
    /// Tables of switches without a problem.
    pub tables: Tables,
    /// The first problems, in the order of their lines.
    pub problems: Vec<Problem>,
    /// How many there are.
    pub problem_count: usize,
}

/// Reads forwarding tables as `dump_fts`, `dump_lfts.sh`, `ibroute` and opensm (`opensm-lfts.dump`, `opensm.fdbs`) write them.
///
/// Nothing is guessed: a switch in whose section anything is wrong has no table.
pub fn parse_forwarding(text: &str) -> Dump {
    let mut reader = Reader::default();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (index, line) in text.lines().enumerate() {
        reader.line = index + 1;
        reader.take(line);
    }
    if reader.section.is_some() && !text.ends_with('\n') {
        // A port whose last digit is missing is another port.
        let last = text.lines().next_back().unwrap_or_default();
        reader.wrong(("text", "a line end at its end"), last);
    }
    reader.finish()
}

#[derive(Default)]
struct Reader {
    line: usize,
    /// The switch whose section this is, and its entries so far.
    section: Option<(Guid, usize)>,
    tables: Tables,
    flawed: BTreeSet<Guid>,
    problems: Problems,
}

/// What a line reports.
#[derive(Debug, PartialEq)]
enum Line {
    /// Nothing: blank, a comment, the title of a column.
    Title,
    /// The entries of this switch follow.
    Switch(Guid),
    /// A LID leaves by this port.
    Entry(u16, u8),
    /// The number of entries above, if the line counts those.
    End(Option<usize>),
}

type What = (&'static str, &'static str);

impl Reader {
    /// Notes a problem, which costs the switch of the section its table.
    fn wrong(&mut self, what: What, found: &str) {
        self.problems.push(self.line, None, what, found);
        self.flawed.extend(self.section.map(|(switch, _)| switch));
    }

    fn take(&mut self, text: &str) {
        match read(text.trim()) {
            Ok(Line::Title) => {}
            Ok(Line::Switch(guid)) => {
                self.section = Some((guid, 0));
                if self.tables.insert(guid, Table::default()).is_some() {
                    self.wrong(("switch", "one section for each switch"), text);
                }
            }
            Ok(Line::Entry(lid, port)) => {
                let Some((switch, entries)) = &mut self.section else {
                    self.wrong(("entry", "a line that names the switch above it"), text);
                    return;
                };
                *entries += 1;
                let table = self.tables.entry(*switch).or_default();
                let known = table.port(lid).unwrap_or(port);
                table.set(lid, port);
                if known != port {
                    self.wrong(("LID", "one port for each LID"), text);
                }
            }
            Ok(Line::End(count)) => {
                let entries = self.section.map_or(0, |(_, entries)| entries);
                if count.is_some_and(|count| count != entries) {
                    self.wrong(
                        ("number of LIDs", "as many entries as the line declares"),
                        text,
                    );
                }
                self.section = None;
            }
            Err((what, found)) => {
                self.wrong(what, found);
                if what.0 == "switch" {
                    // The entries that follow belong to no switch.
                    self.section = None;
                }
            }
        }
    }

    fn finish(mut self) -> Dump {
        self.tables
            .retain(|switch, _| !self.flawed.contains(switch));
        Dump {
            tables: self.tables,
            problems: self.problems.kept,
            problem_count: self.problems.all,
        }
    }
}

fn read(line: &str) -> Result<Line, (What, &str)> {
    const HEADER: What = (
        "switch",
        "\"Unicast lids [..] of switch .. guid 0x..\" or \"Switch 0x..\"",
    );
    let lower = |prefix: &str| {
        let begin = line.get(..prefix.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(prefix))
    };
    if line.is_empty() || line.starts_with('#') || lower("lid ") || lower("port ") {
        return Ok(Line::Title);
    }
    if line.starts_with("0x") {
        return entry(line);
    }
    if line.starts_with("Unicast lids") {
        let guid = line.split_once(" guid ").and_then(|(_, rest)| guid(rest));
        return guid.map(Line::Switch).ok_or((HEADER, line));
    }
    // `osm_ucast_mgr_dump_ucast_routes: Switch 0x0002c902400ac8f8`
    if let Some((_, rest)) = line.split_once("Switch 0x") {
        return guid_digits(rest).map(Line::Switch).ok_or((HEADER, line));
    }
    if let Some(count) = line.strip_suffix("lids dumped") {
        // opensm reports the highest LID there, ibroute the number of entries.
        let Some(count) = count.trim_end().strip_suffix("valid") else {
            return Ok(Line::End(None));
        };
        let count = count.trim().parse().ok();
        let what = ("number of LIDs", "\"N valid lids dumped\"");
        return count
            .map(|count| Line::End(Some(count)))
            .ok_or((what, line));
    }
    if line.starts_with("Multicast") {
        return Err((HEADER, line));
    }
    Err((
        (
            "line",
            "the name of a switch, a LID with a port, or \"N lids dumped\"",
        ),
        line,
    ))
}

/// `0x0001 011 : (Channel Adapter portguid ..)`, `0x0001 : 011  : 01   : yes` or `0x0002 : UNREACHABLE`.
fn entry(line: &str) -> Result<Line, (What, &str)> {
    let mut words = line.split_whitespace().filter(|word| *word != ":");
    let lid = words.next().and_then(|word| {
        let digits = word.strip_prefix("0x")?.trim_end_matches(':');
        let lid = hexadecimal(digits).filter(|_| digits.len() <= 4)?;
        u16::try_from(lid).ok()
    });
    let lid = lid.filter(|lid| *lid < FIRST_MULTICAST_LID);
    let Some(lid) = lid else {
        return Err((("LID", "0x0001 to 0xbfff"), line));
    };
    let port = match words.next() {
        Some("UNREACHABLE") => Some(NO_PORT),
        Some(word) if word.bytes().all(|byte| byte.is_ascii_digit()) => word.parse().ok(),
        _ => None,
    };
    port.map(|port| Line::Entry(lid, port))
        .ok_or((("port", "0 to 255, or UNREACHABLE"), line))
}

fn guid(text: &str) -> Option<Guid> {
    guid_digits(text.trim_start().strip_prefix("0x")?)
}

/// A GUID at the beginning of a text.
fn guid_digits(text: &str) -> Option<Guid> {
    let end = text.find(|char: char| !char.is_ascii_hexdigit());
    hexadecimal(&text[..end.unwrap_or(text.len())]).map(Guid)
}

fn hexadecimal(digits: &str) -> Option<u64> {
    let plain = (1..=16).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    plain
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP_FTS: &str = "\
Unicast lids [0x0-0x8] of switch DR path slid 0; dlid 0; 0,1 guid 0x0002c902400ac8f8 (leaf guid 0x1 of 'rack 2'):
  Lid  Out   Destination
       Port     Info 
0x0001 011 : (Channel Adapter portguid 0x0002c903000a1b2d: 'host1 HCA-1')
0x0006 000 : (Switch portguid 0x0002c902400ac8f8: 'leaf')
0x0041 255 : (Channel Adapter portguid 0x0002c903000a1b2e: 'host2 HCA-1')
3 valid lids dumped 

Unicast lids [0x0-0x8] of switch Lid 7 guid 0x0002c902400ac8f9 (spine):
0x0001 033 : (Channel Adapter portguid 0x0002c903000a1b2d: 'host1 HCA-1')
1 valid lids dumped 
";

    fn entries(dump: &Dump, switch: u64) -> Option<Vec<(u16, u8)>> {
        let table = dump.tables.get(&Guid(switch))?;
        Some(table.entries().collect())
    }

    #[test]
    fn tables_of_all_tools_are_read() {
        let opensm = "\
Unicast lids [0-8] of switch Lid 6 guid 0x0002c902400ac8f8 ('leaf'):
0x0001 011 # Channel Adapter portguid 0x0002c903000a1b2d: 'host1 HCA-1'
0x0006 000 # Switch portguid 0x0002c902400ac8f8: 'leaf'
8 lids dumped
";
        let fdbs = "\
osm_ucast_mgr_dump_ucast_routes: Switch 0x0002c902400ac8f8
LID    : Port : Hops : Optimal
0x0001 : 011  : 01   : yes
0x0002 : UNREACHABLE
0x0006 : 000  : 00   : yes
";
        for text in [DUMP_FTS, opensm, fdbs] {
            let dump = parse_forwarding(text);
            assert_eq!(dump.problems, [], "{text}");
            let of_leaf = entries(&dump, 0x0002_c902_400a_c8f8);
            assert_eq!(of_leaf, Some(vec![(1, 11), (6, 0)]), "{text}");
        }
        let dump = parse_forwarding(DUMP_FTS);
        assert_eq!(entries(&dump, 0x0002_c902_400a_c8f9), Some(vec![(1, 33)]));
    }

    #[test]
    fn a_flaw_costs_the_table_of_its_switch_and_says_where_it_is() {
        for (from, to, expected) in [
            (
                "0x0001 011",
                "0xzz01 011",
                "line 4: LID: expected 0x0001 to 0xbfff, found ",
            ),
            (
                "0x0001 011",
                "0xc001 011",
                "line 4: LID: expected 0x0001 to 0xbfff, found ",
            ),
            (
                "0x0001 011",
                "0x0001 256",
                "line 4: port: expected 0 to 255, or UNREACHABLE, found ",
            ),
            ("0x0001 011", "0x0001", "line 4: port: expected "),
            (
                "0x0041 255",
                "0x0001 012",
                "line 6: LID: expected one port for each LID, found ",
            ),
            (
                "3 valid",
                "4 valid",
                "line 7: number of LIDs: expected as many entries",
            ),
            (
                "0x0006 000",
                "ibroute: iberror",
                "line 5: line: expected the name of a switch",
            ),
        ] {
            let dump = parse_forwarding(&DUMP_FTS.replacen(from, to, 1));
            let said: Vec<String> = dump.problems.iter().map(ToString::to_string).collect();
            assert!(said[0].starts_with(expected), "{said:?}");
            assert_eq!(dump.tables.len(), 1, "{to}");
            assert!(
                dump.tables.contains_key(&Guid(0x0002_c902_400a_c8f9)),
                "{to}"
            );
        }
    }

    #[test]
    fn a_text_that_was_cut_or_is_another_has_no_table_of_it() {
        for end in [DUMP_FTS.len() - 24, 300] {
            let dump = parse_forwarding(&DUMP_FTS[..end]);
            assert!(dump.problem_count > 0, "{end}");
            assert!(dump.tables.len() < 2, "{end}");
        }
        for text in [
            "0x0001 011\n",
            "Multicast mlids [0xc000-0xc3ff] of switch Lid 6\n",
        ] {
            let dump = parse_forwarding(text);
            assert_eq!((dump.tables.len(), dump.problem_count), (0, 1), "{text}");
        }
        // Twice the same switch: which of the two holds?
        let dump = parse_forwarding(&format!("{DUMP_FTS}{DUMP_FTS}"));
        assert_eq!(dump.tables.len(), 0);
    }
}
