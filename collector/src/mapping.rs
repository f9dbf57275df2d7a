//! Other people's exporters as sources: mappings from their series to ours, as data.

mod combined;
mod file;
mod translate;
mod unit;

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use railscope_model::exposition::{self, Line};
use railscope_model::metric::{CATALOGUE, Writer};

pub use crate::mapping::rows::Mapping;
pub use crate::sources::scrape::reader::Reader;
pub use translate::{ReportedHost, Translation, Translator};

use crate::config::ConfigError;
use crate::store::BAD_LINES_LIMIT;

/// `kind` of a target that is Railscope's own exporter.
pub const OWN_KIND: &str = "railscope";

/// Maximum number of metric names that are checked to recognize an exporter. Real exporters have less than 2,000.
const RECOGNIZED_BY: usize = 4_096;

/// Mappings that come with Railscope: file name and text.
const BUILT_IN: &[(&str, &str)] = &[
    (
        "dcgm-exporter.toml",
        include_str!("mapping/built_in/dcgm-exporter.toml"),
    ),
    (
        "amd-device-metrics-exporter.toml",
        include_str!("mapping/built_in/amd-device-metrics-exporter.toml"),
    ),
    (
        "nvidia_gpu_exporter.toml",
        include_str!("mapping/built_in/nvidia_gpu_exporter.toml"),
    ),
    ("nvitop.toml", include_str!("mapping/built_in/nvitop.toml")),
    (
        "rdma_exporter.toml",
        include_str!("mapping/built_in/rdma_exporter.toml"),
    ),
    (
        "node_exporter.toml",
        concat!(
            include_str!("mapping/built_in/node_exporter.toml"),
            "\n",
            include_str!("mapping/built_in/amazonefa.rows.toml")
        ),
    ),
    (
        "amazonefa.toml",
        concat!(
            include_str!("mapping/built_in/amazonefa.toml"),
            "\n",
            include_str!("mapping/built_in/amazonefa.rows.toml")
        ),
    ),
    (
        "ipmi_exporter.toml",
        include_str!("mapping/built_in/ipmi_exporter.toml"),
    ),
    (
        "infiniband_exporter.toml",
        include_str!("mapping/built_in/infiniband_exporter.toml"),
    ),
    (
        "snmp_exporter.toml",
        include_str!("mapping/built_in/snmp_exporter.toml"),
    ),
    ("gnmic.toml", include_str!("mapping/built_in/gnmic.toml")),
    (
        "cumulus-otlp.toml",
        include_str!("mapping/built_in/cumulus-otlp.toml"),
    ),
    (
        "sonic-exporter.toml",
        include_str!("mapping/built_in/sonic-exporter.toml"),
    ),
    (
        "nmx-telemetry.toml",
        include_str!("mapping/built_in/nmx-telemetry.toml"),
    ),
];

/// All mappings, in order of precedence.
#[derive(Debug, Clone)]
pub struct Mappings(Vec<Arc<Mapping>>);

impl Default for Mappings {
    /// Those that come with Railscope, read once per process. A test sees to it that each can be read.
    fn default() -> Self {
        static ALL: LazyLock<Mappings> = LazyLock::new(|| {
            let read = |(name, text): &(&str, &str)| file::parse(text, Path::new(name)).ok();
            let mut all = Mappings(Vec::new());
            BUILT_IN
                .iter()
                .filter_map(read)
                .for_each(|mapping| all.push(mapping));
            all
        });
        ALL.clone()
    }
}

/// What a scrape is.
#[derive(Debug, Clone)]
pub enum Recognized {
    /// Railscope's own.
    Own,
    /// Another exporter's.
    Foreign(Arc<Mapping>),
}

impl Mappings {
    /// Adds the mapping in a file's text; one of the same kind that comes with Railscope is replaced.
    ///
    /// # Errors
    /// The text is invalid; the error names the place and what was expected.
    pub fn add(&mut self, text: &str, path: &Path) -> Result<(), ConfigError> {
        self.push(file::parse(text, path)?);
        Ok(())
    }

    fn push(&mut self, mapping: Mapping) {
        self.0.retain(|other| other.kind != mapping.kind);
        let place = self
            .0
            .partition_point(|other| other.precedence <= mapping.precedence);
        self.0.insert(place, Arc::new(mapping));
    }

    /// The mapping of one kind of exporter.
    pub fn by_kind(&self, kind: &str) -> Option<&Arc<Mapping>> {
        self.0.iter().find(|mapping| &*mapping.kind == kind)
    }

    /// Every `kind` that a target can have.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        let foreign = self.0.iter().map(|mapping| &*mapping.kind);
        std::iter::once(OWN_KIND).chain(foreign)
    }

    /// Whether a target can be of this kind, or the sentence that reports why not.
    ///
    /// # Errors
    /// What was expected instead.
    pub fn check_kind(&self, kind: &str) -> Result<(), String> {
        if self.kinds().any(|known| known == kind) {
            return Ok(());
        }
        let known: Vec<_> = self.kinds().map(|kind| format!("{kind:?}")).collect();
        Err(format!(
            "no mapping for {kind:?}: expected one of {}",
            known.join(", ")
        ))
    }

    /// Recognizes the exporter of a scrape body by its first metric names; `None` if no mapping has any of them.
    pub fn recognize(&self, page: &str) -> Option<Recognized> {
        let mut names: HashSet<&str> = HashSet::new();
        let (mut newest, mut bad_lines) = ("", 0);
        for line in exposition::parse(page) {
            let name = match line {
                Ok(Line::Series(series)) => series.name,
                Ok(_) => continue,
                Err(_) => {
                    bad_lines += 1;
                    if bad_lines >= BAD_LINES_LIMIT {
                        break;
                    }
                    continue;
                }
            };
            // Series of one name are consecutive.
            if name == newest || !names.insert(name) {
                continue;
            }
            newest = name;
            if name.starts_with("railscope_") && !of_collector(name) {
                return Some(Recognized::Own);
            }
            if names.len() >= RECOGNIZED_BY {
                break;
            }
        }
        let known = |mapping: &&Arc<Mapping>| names.iter().any(|name| mapping.knows(name));
        self.0.iter().find(known).cloned().map(Recognized::Foreign)
    }
}

/// Whether a collector writes series of this name, and no exporter.
fn of_collector(name: &str) -> bool {
    static NAMES: LazyLock<HashSet<&str>> = LazyLock::new(|| {
        let metrics = CATALOGUE.iter();
        let written = metrics.filter(|metric| metric.writer == Writer::Collector);
        written.map(|metric| metric.name).collect()
    });
    NAMES.contains(name)
}

#[cfg(test)]
mod exporter_tests;
#[cfg(test)]
mod hostile_tests;
pub(crate) mod rows;
#[cfg(test)]
mod tests;
