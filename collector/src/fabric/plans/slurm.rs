//! Slurm's `topology.conf`: switches with their nodes (topology/tree) or blocks of nodes (topology/block).

use std::collections::BTreeSet;

use railscope_model::identity::NodeName;
use railscope_model::plan::PlanError;

use super::hostlist::Hostlists;
use super::{Block, PlacedSwitch, Placement, Source};

/// Reads the file; every error that is in it is found.
pub(super) fn read(source: &mut Source<'_>) -> Result<Placement, Vec<PlanError>> {
    let mut placement = Placement::default();
    let mut known = Known::default();
    let mut errors = Vec::new();
    for (line, text) in logical_lines(source.text) {
        if let Err(error) = read_line(source, line, &text, &mut known, &mut placement) {
            errors.push(error);
        }
    }
    if errors.is_empty() && placement == Placement::default() {
        errors.push(source.error(1, "text", "no line", "SwitchName=… or BlockName=…"));
    }
    if errors.is_empty() {
        Ok(placement)
    } else {
        Err(errors)
    }
}

/// Lines without comments, those that end in a backslash joined with the next, each with its first number.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim_end();
        let (line, goes_on) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        let (_, joined) = open.get_or_insert((number, String::new()));
        joined.push_str(line);
        if !goes_on {
            lines.extend(open.take().filter(|(_, line)| !line.trim().is_empty()));
        }
    }
    lines.extend(open);
    lines
}

/// What the lines before have used up.
#[derive(Default)]
struct Known {
    lists: Hostlists,
    switches: BTreeSet<String>,
}

fn read_line(
    source: &Source<'_>,
    line: usize,
    text: &str,
    known: &mut Known,
    placement: &mut Placement,
) -> Result<(), PlanError> {
    let mut switch: Option<PlacedSwitch> = None;
    let mut block: Option<Block> = None;
    for pair in text.split_whitespace() {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(source.error(line, "line", pair, "key=value"));
        };
        let mut list = |field: &str| {
            let names = known.lists.expand(value);
            names.map_err(|(found, expected)| source.error(line, field, &found, expected))
        };
        let mut nodes = || -> Result<Vec<NodeName>, PlanError> {
            let names = list("Nodes")?.into_iter();
            let read = |name: String| {
                name.parse()
                    .map_err(|_| source.error(line, "Nodes", &name, "a node name"))
            };
            names.map(read).collect()
        };
        match (key.to_ascii_lowercase().as_str(), &mut switch, &mut block) {
            ("switchname", None, None) => {
                switch = Some(PlacedSwitch {
                    name: value.to_owned(),
                    ..PlacedSwitch::default()
                });
            }
            ("blockname", None, None) => {
                block = Some(Block {
                    name: value.to_owned(),
                    nodes: Vec::new(),
                });
            }
            ("blocksizes", None, None) => {
                for size in value.split(',') {
                    let size = size.parse().ok().filter(|size| *size > 0);
                    let expected = "numbers of nodes, such as 18,36";
                    let size =
                        size.ok_or_else(|| source.error(line, "BlockSizes", value, expected))?;
                    placement.block_sizes.push(size);
                }
            }
            ("nodes", Some(switch), _) => switch.nodes.extend(nodes()?),
            ("nodes", _, Some(block)) => block.nodes.extend(nodes()?),
            ("switches", Some(switch), _) => switch.switches.extend(list("Switches")?),
            ("linkspeed", Some(_), _) => {} // Slurm itself does not use it
            _ => {
                let expected =
                    "SwitchName with Nodes or Switches, or BlockName with Nodes, or BlockSizes";
                return Err(source.error(line, key, pair, expected));
            }
        }
    }
    if let Some(switch) = switch {
        if !known.switches.insert(switch.name.clone()) {
            let found = format!("{} a second time", switch.name);
            return Err(source.error(line, "SwitchName", &found, "a unique name"));
        }
        placement.switches.push(switch);
    }
    placement.blocks.extend(block);
    Ok(())
}
