//! The collector's configuration: one TOML file, checked to the end before anything starts.

mod maintenance;
mod push;
mod raw;
mod record;
mod switches;
mod values;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use railscope_model::identity::{NodeName, PortName, SwitchName};
use railscope_model::plan::WiringPlan;

use crate::fabric::plans;

pub use crate::config::push::{About, Push, PushedJob};
pub use crate::config::record::Record;
pub use crate::file_error::ConfigError;
pub(crate) use crate::file_error::nearest;

use crate::diagnose::stages::maintenance::Window;
use crate::mapping::{Mappings, OWN_KIND};
use crate::store::source_id::Subject;

use crate::sources::mad_sweep;

/// The configuration after all checks. Paths are relative to the process, no longer to the file.
#[derive(Debug, Clone)]
pub struct Config {
    /// Name of the cluster, shown by the web page and the API.
    pub cluster: String,
    /// Where to serve the API, the web page and the metrics.
    pub listen: SocketAddr,
    /// Address of a runbook; `{class}` stands for the class of the incident.
    pub runbook: String,
    /// Most series that the graph of the fabric may have on the collector's metrics endpoint; 0 leaves it
    /// out.
    pub graph_series: usize,
    /// How exporters are scraped.
    pub scrape: Scrape,
    /// Exporters that are in the file itself.
    pub targets: Vec<Target>,
    /// Files of Prometheus' file_sd format (JSON) that name more exporters.
    pub file_sd: Vec<PathBuf>,
    /// How other people's exporters are read.
    pub mappings: Mappings,
    /// Files of further mappings; `mappings` has their content.
    pub mapping_files: Vec<PathBuf>,
    /// Where the InfiniBand subnet is read from, if anywhere.
    pub subnet: Option<SubnetSource>,
    /// Switches that report their LLDP neighbors.
    pub switches: Vec<SwitchSource>,
    /// The wiring plan that the fabric is compared with, if there is one.
    pub plan: Option<PathBuf>,
    /// Time between two ticks of the analysis.
    pub analysis_interval: Duration,
    /// Folder for state that survives a restart; none keeps nothing.
    pub state_dir: Option<PathBuf>,
    /// Folder into which jobs write dumps of their collectives; none reads none.
    pub collectives: Option<PathBuf>,
    /// Work that is announced in the file itself.
    pub maintenance: Vec<Window>,
    /// A file of maintenance windows, read again when it has changed.
    pub maintenance_file: Option<PathBuf>,
    /// The token that allows announcing maintenance over the API; without one, no client may.
    pub maintenance_token: Option<Arc<str>>,
    /// Settings of remote write; off if unset.
    pub push: Option<Push>,
    /// Settings of the recording; off if unset.
    pub record: Option<Record>,
    /// Where metrics, incidents and traces are sent by OTLP; variables of the environment win over it.
    pub otlp: railscope_otlp::Table,
}

/// How exporters are scraped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scrape {
    /// Time between two scrapes of one exporter.
    pub interval: Duration,
    /// Longest time that one scrape may take.
    pub timeout: Duration,
    /// Largest scrape body that is read, after decompression.
    pub max_body_bytes: usize,
    /// Scrapes that may be in flight at the same time.
    pub concurrency: usize,
    /// Profile that is requested from the exporter.
    pub profile: ScrapeProfile,
}

impl Default for Scrape {
    fn default() -> Self {
        raw::Scrape::default().checked()
    }
}

/// Which profile of the exporter is scraped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScrapeProfile {
    /// What Prometheus stores. Without probes by flow, and without the PCIe links that have all of their lanes, so that
    /// `probe-paths` is blind and a degraded PCIe link is found only beside others.
    Default,
    /// Every link and hop: what the detectors see best with.
    #[default]
    Full,
}

/// One exporter. A node may have several, of different kinds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The part that it reports about; none where its series name it, as those of a whole subnet
    /// do.
    pub about: Option<Subject>,
    /// Its kind; none where its scrape must report it.
    pub kind: Option<Arc<str>>,
    /// Address of its metrics endpoint, without a profile.
    pub url: String,
}

/// Prefix of the URL of a target whose samples are pushed.
const PUSHED: &str = "push:";

impl Target {
    /// Railscope's own exporter of a node.
    pub fn of_node(node: NodeName, url: String) -> Self {
        Self {
            about: Some(Subject::Node(node)),
            kind: None,
            url,
        }
    }

    /// The node that it reports about, if it is one.
    pub fn node(&self) -> Option<&NodeName> {
        self.about.as_ref()?.node()
    }

    /// URL of a target whose samples are pushed.
    pub fn pushed_url(job: &str, instance: &str) -> String {
        format!("{PUSHED}{job}/{instance}")
    }

    /// Whether its samples are pushed.
    pub fn is_pushed(&self) -> bool {
        self.url.starts_with(PUSHED)
    }

    /// The labels `job` and `instance` of a target whose samples are pushed.
    pub(crate) fn pushed_labels(&self) -> Option<(&str, &str)> {
        self.url.strip_prefix(PUSHED)?.split_once('/')
    }

    /// Whether its configuration names another project's exporter.
    pub fn is_foreign(&self) -> bool {
        self.kind.as_ref().is_some_and(|kind| **kind != *OWN_KIND)
    }

    /// What to call it in logs and labels: the part that it reports about, or its address.
    pub fn name(&self) -> String {
        self.about
            .as_ref()
            .map_or_else(|| self.url.clone(), Subject::to_string)
    }
}

/// Where the InfiniBand subnet, or the neighbors of a switch, are read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubnetSource {
    /// File, command, or a port of this host.
    pub from: SubnetFrom,
    /// Time between two reads.
    pub interval: Duration,
    /// Longest time that a command or an own sweep may take.
    pub timeout: Duration,
    /// Names of an InfiniBand subnet's nodes, as opensm's `--node-name-map`.
    pub node_name_map: Option<PathBuf>,
    /// Forwarding tables of an InfiniBand subnet's switches, where an own sweep does not read them.
    pub forwarding_file: Option<PathBuf>,
}

/// File, command, or a port of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubnetFrom {
    /// A file, read again whenever it has changed.
    File(PathBuf),
    /// A program with its arguments that prints what would be in the file.
    Command(Vec<String>),
    /// An own sweep out of a port of this host; see [`crate::sources::mad_sweep::open`].
    Device(String, mad_sweep::Settings),
}

/// A switch that reports its LLDP neighbors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchSource {
    /// Its name, as its neighbors receive it.
    pub name: SwitchName,
    /// Where its neighbors are read; none if it runs an exporter, as a target of its name.
    pub source: Option<SubnetSource>,
    /// Addresses at which it responds to probes, as exporters print them; those of a port with the port.
    pub addresses: Vec<(String, Option<PortName>)>,
}

impl Default for Config {
    /// What an empty file means.
    fn default() -> Self {
        raw::File::default().config(Vec::new(), None, raw::Read::default(), Path::new(""))
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file cannot be read or is invalid; the error names the place and what was expected.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
            file: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    /// Reads the wiring plan that it names.
    ///
    /// # Errors
    /// The file cannot be read, or is no plan: everything that is wrong with it.
    pub fn read_plan(&self) -> Result<Option<WiringPlan>, ConfigError> {
        let Some(file) = &self.plan else {
            return Ok(None);
        };
        let text = std::fs::read_to_string(file).map_err(|source| ConfigError::Unreadable {
            file: file.clone(),
            source,
        })?;
        let opened =
            plans::read(&file.to_string_lossy(), &text, None).map_err(ConfigError::Plan)?;
        let site = plans::Site::of(vec![opened]);
        site.plan
            .map(Some)
            .ok_or_else(|| ConfigError::NoPlan(file.clone()))
    }

    /// Checks the text of a file, and the mapping files that it names; `path` is named in errors, and
    /// relative paths start beside it.
    ///
    /// # Errors
    /// A text is invalid; the error names the place and what was expected.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let raw: raw::File =
            toml::from_str(text).map_err(|error| ConfigError::from_toml(text, path, error))?;
        let beside = path.parent().unwrap_or(Path::new(""));
        raw.check(beside).map_err(|stop| match stop {
            raw::Stop::Wrong(wrong) => {
                ConfigError::at(text, path, wrong.span, wrong.field, wrong.message)
            }
            raw::Stop::Elsewhere(error) => error,
        })
    }
}

/// Whether text is an address that the collector can scrape, or the sentence that reports why not.
///
/// # Errors
/// What was expected instead.
pub fn check_url(url: &str) -> Result<(), String> {
    const EXPECTED: &str = "expected an address such as http://n1:10660/metrics";
    let parsed = reqwest::Url::parse(url).map_err(|error| format!("{EXPECTED}: {error}"))?;
    match parsed.scheme() {
        "http" if parsed.has_host() => Ok(()),
        "https" => Err(format!("{EXPECTED}: this version scrapes http, not https")),
        _ => Err(String::from(EXPECTED)),
    }
}

pub(crate) mod file_sd;
#[cfg(test)]
mod tests;
