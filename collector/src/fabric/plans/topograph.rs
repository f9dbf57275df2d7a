//! The model of NVIDIA topograph, YAML or JSON: `switches`, `nodes`, `capacity_blocks`, each a map by name.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::identity::NodeName;
use railscope_model::plan::PlanError;
use railscope_model::yaml::too_deep;
use saphyr::{LoadableYamlNode as _, MarkedYaml, Scalar, YamlData};

use super::hostlist::Hostlists;
use super::{Block, PlacedSwitch, Placement, Source};

/// Reads the model. Metadata and attributes contain no connections; the NVLink domain is the capacity
/// block.
pub(super) fn read(source: &mut Source<'_>) -> Result<Placement, Vec<PlanError>> {
    if let Some(line) = too_deep(source.text) {
        return Err(vec![source.error(
            line,
            "text",
            "too much nesting",
            "at most 64 levels",
        )]);
    }
    let documents = MarkedYaml::load_from_str(source.text).map_err(|error| {
        vec![source.error(error.marker().line(), "text", error.info(), "YAML or JSON")]
    })?;
    let mut model = Model {
        source,
        errors: Vec::new(),
        placement: Placement::default(),
        lists: Hostlists::default(),
        blocks: BTreeMap::new(),
    };
    let Some(document) = documents.first() else {
        return Err(vec![source.error(
            1,
            "text",
            "nothing",
            "switches, nodes or capacity_blocks",
        )]);
    };
    for (key, section) in model.entries("text", document) {
        match key.as_str() {
            "switches" => model.switches(section),
            "capacity_blocks" => model.blocks(section),
            "nodes" => model.nodes(section),
            _ => model.wrong(
                section,
                &key,
                "this section",
                "switches, nodes or capacity_blocks",
            ),
        }
    }
    if model.errors.is_empty() {
        Ok(model.placement)
    } else {
        Err(model.errors)
    }
}

struct Model<'a, 's> {
    source: &'a Source<'s>,
    errors: Vec<PlanError>,
    placement: Placement,
    lists: Hostlists,
    /// Where in the placement a block stands, and its nodes.
    blocks: BTreeMap<String, (usize, BTreeSet<NodeName>)>,
}

impl Model<'_, '_> {
    fn wrong(&mut self, at: &MarkedYaml<'_>, field: &str, found: &str, expected: &str) {
        let line = at.span.start.line();
        self.errors
            .push(self.source.error(line, field, found, expected));
    }

    /// A map's keys as text with their values; an empty value is an empty map.
    fn entries<'y>(
        &mut self,
        field: &str,
        node: &'y MarkedYaml<'y>,
    ) -> Vec<(String, &'y MarkedYaml<'y>)> {
        match &node.data {
            YamlData::Mapping(map) => {
                let pairs = map.iter();
                pairs
                    .filter_map(|(key, value)| Some((text(key)?, value)))
                    .collect()
            }
            YamlData::Value(Scalar::Null) => Vec::new(),
            _ => {
                self.wrong(node, field, "no map", "a map by name");
                Vec::new()
            }
        }
    }

    /// A list of names, ranges grown out.
    fn names(&mut self, field: &str, node: &MarkedYaml<'_>) -> Vec<String> {
        let YamlData::Sequence(items) = &node.data else {
            self.wrong(node, field, "no list", "a list of names");
            return Vec::new();
        };
        let mut names = Vec::new();
        for item in items {
            match text(item).map(|text| self.lists.expand(&text)) {
                Some(Ok(grown)) => names.extend(grown),
                Some(Err((found, expected))) => self.wrong(item, field, &found, expected),
                None => self.wrong(item, field, "no text", "a name"),
            }
        }
        names
    }

    fn node_names(&mut self, field: &str, node: &MarkedYaml<'_>) -> Vec<NodeName> {
        let names = self.names(field, node);
        names.iter().filter_map(|name| name.parse().ok()).collect()
    }

    fn switches(&mut self, section: &MarkedYaml<'_>) {
        for (name, value) in self.entries("switches", section) {
            let mut switch = PlacedSwitch {
                name,
                ..PlacedSwitch::default()
            };
            for (key, value) in self.entries("switch", value) {
                match key.as_str() {
                    "switches" => switch.switches = self.names("switches", value),
                    "nodes" => switch.nodes = self.node_names("nodes", value),
                    "metadata" => {}
                    _ => self.wrong(value, &key, "this key", "switches, nodes or metadata"),
                }
            }
            self.placement.switches.push(switch);
        }
    }

    fn blocks(&mut self, section: &MarkedYaml<'_>) {
        for (name, value) in self.entries("capacity_blocks", section) {
            for (key, value) in self.entries("capacity block", value) {
                if key == "nodes" {
                    for node in self.node_names("nodes", value) {
                        self.put(&name, node);
                    }
                }
            }
        }
    }

    /// Nodes that name their capacity block.
    fn nodes(&mut self, section: &MarkedYaml<'_>) {
        for (name, value) in self.entries("nodes", section) {
            let Ok(node) = name.parse::<NodeName>() else {
                continue;
            };
            for (key, value) in self.entries("node", value) {
                if key == "capacity_block"
                    && let Some(block) = text(value)
                {
                    self.put(&block, node.clone());
                }
            }
        }
    }

    fn put(&mut self, block: &str, node: NodeName) {
        let blocks = &mut self.placement.blocks;
        let (place, known) = self.blocks.entry(block.to_owned()).or_insert_with(|| {
            blocks.push(Block {
                name: block.to_owned(),
                nodes: Vec::new(),
            });
            (blocks.len() - 1, BTreeSet::new())
        });
        if known.insert(node.clone()) {
            blocks[*place].nodes.push(node);
        }
    }
}

fn text(node: &MarkedYaml<'_>) -> Option<String> {
    match &node.data {
        YamlData::Value(Scalar::String(text)) => Some(text.to_string()),
        YamlData::Value(Scalar::Integer(number)) => Some(number.to_string()),
        YamlData::Representation(text, ..) => Some(text.to_string()),
        _ => None,
    }
}
