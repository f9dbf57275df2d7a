//! Reads topology files of other tools: cables, placement of nodes, or the inside of one node.
//!
//! Readers convert text to a [`Document`] or return all [`PlanError`]s; nothing here accesses files.

pub(crate) mod cabling;
pub mod export;
mod hostlist;
mod hwloc;
pub mod inputs;
mod lldp;
mod nccl;
mod ndt;
mod net_dump;
mod netq;
mod node;
mod placement;
mod query;
mod recognize;
mod slurm;
mod smi;
mod subnets;
mod switch;
mod table;
mod topograph;

pub use crate::fabric::plan_fabric;
pub use crate::offline::Site;
pub use cabling::Contested;
pub use hostlist::{compress as compress_hosts, expand as expand_hosts};
pub use node::{Distance, Endpoint, NodeTopology};
pub use placement::{Block, PlacedSwitch, Placement};
pub use query::{Query, odd_nodes};
pub use recognize::Format;
pub use subnets::NodeNames;
pub use switch::SwitchReport;

use railscope_model::plan::{PlanError, WiringPlan};

use crate::fabric::subnet::{Subnet, parse_ibnetdiscover};

/// The content of one file.
#[derive(Debug, Clone)]
pub enum Document {
    /// A sweep of an InfiniBand subnet.
    Subnet(Box<Subnet>),
    /// The scrape body of one node's exporter.
    Page(String),
    /// Cables, and the kind of their source.
    Cables(WiringPlan, Told),
    /// The switch of each node, without ports.
    Placement(Placement),
    /// GPUs and NICs inside one node, or inside each of several.
    Nodes(Vec<NodeTopology>),
    /// State of the GPUs of one node.
    Gpus(Query),
    /// State of the ports of one switch.
    Switch(SwitchReport),
}

/// The kind of source of cables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// A plan: expected cables.
    Planned,
    /// A source that covers the complete fabric.
    Whole,
    /// One device, for its own ports.
    ByOneEnd,
}

/// A file that was read.
#[derive(Debug, Clone)]
pub struct Opened {
    /// As the caller named it.
    pub file: String,
    /// The format as which it was read.
    pub format: Format,
    /// Its content.
    pub document: Document,
    /// Unreadable parts of a tool's output whose rest is usable. A plan with an error is rejected completely.
    pub problems: Vec<PlanError>,
    /// Parts that were intentionally ignored, one sentence each.
    pub notes: Vec<String>,
}

/// Reads one file. `file` is its name in errors; without a `format` it is detected from the content.
///
/// # Errors
/// All errors of the file, or one error that names its actual format.
pub fn read(file: &str, text: &str, format: Option<Format>) -> Result<Opened, Vec<PlanError>> {
    let text = text.trim_start_matches('\u{feff}');
    let mut source = Source::new(file, text);
    let format = match format {
        Some(format) => format,
        None => recognize::recognize(&source).map_err(|error| vec![error])?,
    };
    let one = |node| Document::Nodes(vec![node]);
    let planned = |plan| Document::Cables(plan, Told::Planned);
    let document = match format {
        Format::Ibnetdiscover => subnet(&mut source).map(Document::Subnet),
        Format::Linkinfo => subnets::read_linkinfo(&mut source).map(Document::Subnet),
        Format::DbCsv => subnets::read_db_csv(&mut source).map(Document::Subnet),
        Format::NetDump => net_dump::read(&mut source).map(Document::Subnet),
        Format::Page => Ok(Document::Page(text.to_owned())),
        Format::Plan => WiringPlan::parse(file, text).map(planned),
        Format::PlanToml => table::read_toml(&source).map(planned),
        Format::Ndt => ndt::read(&mut source).map(planned),
        Format::Netq => netq::read(&mut source),
        Format::LldpJson | Format::LldpText => {
            lldp::read(&mut source).map(|cables| Document::Cables(cables, Told::ByOneEnd))
        }
        Format::Slurm => slurm::read(&mut source).map(Document::Placement),
        Format::Topograph => topograph::read(&mut source).map(Document::Placement),
        Format::Nccl => nccl::read(&mut source).map(Document::Nodes),
        Format::Hwloc => hwloc::read(&mut source).map(one),
        Format::SmiTopo => smi::read_topo(&mut source).map(one),
        Format::SmiQuery => query::read(&mut source).map(Document::Gpus),
        Format::Switch => switch::read(&mut source).map(Document::Switch),
        Format::SmiNvlink => smi::read_nvlink(&mut source).map(one),
    }?;
    Ok(Opened {
        file: file.to_owned(),
        format,
        document,
        problems: source.problems,
        notes: source.notes,
    })
}

/// A sweep; its own account of problems stays with it.
fn subnet(source: &mut Source<'_>) -> Result<Box<Subnet>, Vec<PlanError>> {
    let expected = "the output of ibnetdiscover (infiniband-diags)";
    swept(source, source.text, "no node in it", expected)
}

/// A sweep in the form of ibnetdiscover, or what is wrong with a source that has no node.
fn swept(
    source: &mut Source<'_>,
    text: &str,
    found: &str,
    expected: &str,
) -> Result<Box<Subnet>, Vec<PlanError>> {
    let subnet = parse_ibnetdiscover(text);
    if subnet.nodes.is_empty() {
        return Err(vec![source.error(1, "text", found, expected)]);
    }
    for problem in &subnet.problems {
        source.problem(
            problem.line,
            problem.field,
            &problem.found,
            problem.expected,
        );
    }
    Ok(Box::new(subnet))
}

/// A text with its file name and its unreadable parts.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    file: &'a str,
    text: &'a str,
    problems: Vec<PlanError>,
    notes: Vec<String>,
    /// Ends of lines, computed on first use.
    ends: Option<Vec<usize>>,
}

/// Characters of a text that an error repeats.
const SHOWN: usize = 80;

impl<'a> Source<'a> {
    fn new(file: &'a str, text: &'a str) -> Self {
        Self {
            file,
            text,
            problems: Vec::new(),
            notes: Vec::new(),
            ends: None,
        }
    }

    /// The line of a byte.
    fn line_of(&mut self, at: usize) -> usize {
        let ends = || self.text.match_indices('\n').map(|(end, _)| end).collect();
        let ends: &Vec<usize> = self.ends.get_or_insert_with(ends);
        ends.partition_point(|end| *end < at) + 1
    }

    /// The file name without directories and extensions, which names the device of a text without a device name.
    fn stem(&self) -> &'a str {
        let name = self.file.rsplit('/').next().unwrap_or(self.file);
        name.split('.').next().unwrap_or(name)
    }

    fn error(&self, line: usize, field: &str, found: &str, expected: &str) -> PlanError {
        PlanError {
            file: self.file.to_owned(),
            line,
            field: field.to_owned(),
            found: found.chars().take(SHOWN).collect(),
            expected: expected.to_owned(),
        }
    }

    fn problem(&mut self, line: usize, field: &str, found: &str, expected: &str) {
        let problem = self.error(line, field, found, expected);
        self.problems.push(problem);
    }
}

#[cfg(test)]
mod tests;
