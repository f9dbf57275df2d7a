//! The configuration as it is in the file: every key, its default and what it may hold.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use railscope_model::identity::{NodeName, SwitchName};
use serde::Deserialize;
use toml::Spanned;

use super::maintenance::{check_maintenance, read_token};
use super::push::{Push, RawPush};
use super::record::RawRecord;
use super::switches::{RawSwitch, check_switches};
use super::values::{Argv, Period, Positive, Text, Url};
use super::{Config, ConfigError, ScrapeProfile, SubnetFrom, SubnetSource, SwitchSource, Target};
use crate::diagnose::stages::maintenance::Window;
use crate::maintenance::RawWindow;
use crate::mapping::{Mappings, OWN_KIND};
use crate::sources::mad_sweep;
use crate::sources::targets::own_on_switch;
use crate::store::source_id::Subject;

/// Port of the collector where the file names none.
const DEFAULT_PORT: u16 = 10661;
/// Series of the fabric's graph: 1,000 GPUs switch by switch, 10,000 unit by unit. Grafana draws 1,500 vertices.
const GRAPH_SERIES: usize = 2_000;
const RUNBOOK: &str = concat!(
    env!("CARGO_PKG_REPOSITORY"),
    "/blob/main/alerts/runbooks/{class}.md"
);

/// A value that is right by itself and wrong beside another.
pub(super) struct Wrong {
    pub(super) span: Range<usize>,
    pub(super) field: String,
    pub(super) message: String,
}

/// Why a configuration is invalid.
pub(super) enum Stop {
    /// Something in the file itself.
    Wrong(Wrong),
    /// Something in a file that it names.
    Elsewhere(ConfigError),
}

impl From<Wrong> for Stop {
    fn from(wrong: Wrong) -> Self {
        Self::Wrong(wrong)
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    cluster: Cluster,
    #[serde(default)]
    web: Web,
    #[serde(default)]
    scrape: Scrape,
    #[serde(default)]
    targets: Vec<RawTarget>,
    #[serde(default)]
    file_sd: Vec<PathBuf>,
    #[serde(default)]
    mapping: Vec<RawMapping>,
    subnet: Option<Spanned<Subnet>>,
    plan: Option<Plan>,
    #[serde(default)]
    switches: Vec<Spanned<RawSwitch>>,
    #[serde(default)]
    analysis: Analysis,
    collectives: Option<Collectives>,
    #[serde(default)]
    maintenance: Vec<Spanned<RawWindow>>,
    push: Option<RawPush>,
    record: Option<RawRecord>,
    #[serde(default)]
    otlp: railscope_otlp::Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cluster {
    name: Text,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            name: Text(String::from("cluster")),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Web {
    listen: SocketAddr,
    runbook: Text,
    maintenance_token_file: Option<PathBuf>,
    graph_series: usize,
}

impl Default for Web {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::UNSPECIFIED, DEFAULT_PORT).into(),
            runbook: Text(RUNBOOK.to_owned()),
            maintenance_token_file: None,
            graph_series: GRAPH_SERIES,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Scrape {
    interval: Period,
    timeout: Option<Spanned<Period>>,
    max_body_bytes: Positive,
    concurrency: Positive,
    profile: ScrapeProfile,
}

impl Default for Scrape {
    fn default() -> Self {
        Self {
            interval: Period(Duration::from_secs(5)),
            timeout: None,
            // The full-profile scrape of an 8-GPU, 8-NIC node has 0.33 MB.
            max_body_bytes: Positive(16 << 20),
            concurrency: Positive(64),
            profile: ScrapeProfile::Full,
        }
    }
}

impl Scrape {
    pub(super) fn checked(self) -> super::Scrape {
        let interval = self.interval.0;
        let timeout = self
            .timeout
            .map_or(interval * 4 / 5, |timeout| timeout.into_inner().0);
        super::Scrape {
            interval,
            timeout,
            max_body_bytes: self.max_body_bytes.0,
            concurrency: self.concurrency.0,
            profile: self.profile,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTarget {
    node: Option<Spanned<NodeName>>,
    switch: Option<Spanned<SwitchName>>,
    kind: Option<Spanned<String>>,
    url: Spanned<Url>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMapping {
    file: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Subnet {
    file: Option<PathBuf>,
    command: Option<Argv>,
    device: Option<Text>,
    sweep: Option<Spanned<Sweep>>,
    node_name_map: Option<PathBuf>,
    forwarding_file: Option<Spanned<PathBuf>>,
    #[serde(default)]
    adaptive_routing: bool,
    #[serde(default = "Subnet::default_period")]
    interval: Period,
    #[serde(default = "Subnet::default_period")]
    timeout: Period,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    file: PathBuf,
}

impl Subnet {
    pub(super) fn default_period() -> Period {
        Period(Duration::from_secs(30))
    }
}

/// How hard an own sweep may work; see [`crate::sources::mad_sweep::Settings`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Sweep {
    counters: bool,
    window: Spanned<Positive>,
    per_switch: Positive,
    mads_per_second: NonZeroU32,
    timeout: Period,
    retries: u32,
}

impl Default for Sweep {
    fn default() -> Self {
        let settings = mad_sweep::Settings::default();
        Self {
            counters: settings.counters,
            window: Spanned::new(0..0, Positive(settings.window)),
            per_switch: Positive(settings.per_switch),
            mads_per_second: settings.mads_per_second.unwrap_or(NonZeroU32::MAX),
            timeout: Period(settings.timeout),
            retries: settings.retries,
        }
    }
}

impl Sweep {
    /// The settings of a sweep with this time limit.
    fn check(self, limit: Duration, forwarding: bool) -> Result<mad_sweep::Settings, Wrong> {
        let (span, window) = (self.window.span(), self.window.into_inner().0);
        if window > mad_sweep::MAX_WINDOW {
            return Err(Wrong {
                span,
                field: String::from("subnet.sweep.window"),
                message: format!("expected 1 to {}", mad_sweep::MAX_WINDOW),
            });
        }
        Ok(mad_sweep::Settings {
            window,
            per_switch: self.per_switch.0,
            mads_per_second: Some(self.mads_per_second),
            timeout: self.timeout.0,
            retries: self.retries,
            limit,
            counters: self.counters,
            forwarding,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Analysis {
    interval: Period,
    state_dir: Option<PathBuf>,
    maintenance_file: Option<PathBuf>,
}

impl Default for Analysis {
    fn default() -> Self {
        Self {
            interval: Period(Duration::from_secs(5)),
            state_dir: None,
            maintenance_file: None,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Collectives {
    dir: PathBuf,
}

/// What is read and checked beyond the file's own values.
#[derive(Default)]
pub(super) struct Read {
    mappings: Mappings,
    switches: Vec<SwitchSource>,
    maintenance: Vec<Window>,
    token: Option<Arc<str>>,
    push: Option<Push>,
}

impl File {
    /// Checks what only several values together can get wrong.
    pub(super) fn check(mut self, beside: &Path) -> Result<Config, Stop> {
        if let Some(timeout) = &self.scrape.timeout
            && timeout.get_ref().0 > self.scrape.interval.0
        {
            return Err(Wrong {
                span: timeout.span(),
                field: String::from("scrape.timeout"),
                message: format!(
                    "{:?} is longer than the interval: expected at most scrape.interval ({:?})",
                    timeout.get_ref().0,
                    self.scrape.interval.0
                ),
            }
            .into());
        }
        let subnet = self.subnet.take();
        let subnet = subnet
            .map(|subnet| check_subnet(subnet, beside))
            .transpose()?;
        let mappings = read_mappings(&self.mapping, beside).map_err(Stop::Elsewhere)?;
        let push = self.push.take();
        let read = Read {
            push: push.map(|raw| raw.check(&mappings, beside)).transpose()?,
            mappings,
            switches: check_switches(std::mem::take(&mut self.switches), beside)?,
            maintenance: check_maintenance(&self.maintenance)?,
            token: read_token(self.web.maintenance_token_file.as_ref(), beside)
                .map_err(Stop::Elsewhere)?,
        };
        let targets = check_targets(std::mem::take(&mut self.targets), &read.mappings)?;
        Ok(self.config(targets, subnet, read, beside))
    }

    /// The configuration with targets and subnet that were checked.
    pub(super) fn config(
        self,
        targets: Vec<Target>,
        subnet: Option<SubnetSource>,
        read: Read,
        beside: &Path,
    ) -> Config {
        let file_sd = self.file_sd.into_iter();
        let mapping_files = self
            .mapping
            .iter()
            .map(|mapping| beside.join(&mapping.file));
        Config {
            cluster: self.cluster.name.0,
            listen: self.web.listen,
            runbook: self.web.runbook.0,
            graph_series: self.web.graph_series,
            scrape: self.scrape.checked(),
            targets,
            file_sd: file_sd.map(|path| beside.join(path)).collect(),
            subnet,
            switches: read.switches,
            mappings: read.mappings,
            mapping_files: mapping_files.collect(),
            plan: self.plan.map(|plan| beside.join(plan.file)),
            analysis_interval: self.analysis.interval.0,
            state_dir: self.analysis.state_dir.map(|path| beside.join(path)),
            collectives: self.collectives.map(|read| beside.join(read.dir)),
            maintenance: read.maintenance,
            maintenance_file: self.analysis.maintenance_file.map(|path| beside.join(path)),
            maintenance_token: read.token,
            push: read.push,
            record: self.record.map(|record| record.checked(beside)),
            otlp: self.otlp,
        }
    }
}

/// The mappings that come with Railscope, and those of files.
fn read_mappings(files: &[RawMapping], beside: &Path) -> Result<Mappings, ConfigError> {
    let mut mappings = Mappings::default();
    for mapping in files {
        let file = beside.join(&mapping.file);
        match std::fs::read_to_string(&file) {
            Ok(text) => mappings.add(&text, &file)?,
            Err(source) => return Err(ConfigError::Unreadable { file, source }),
        }
    }
    Ok(mappings)
}

fn check_targets(raw: Vec<RawTarget>, mappings: &Mappings) -> Result<Vec<Target>, Wrong> {
    let mut seen = BTreeMap::new();
    let mut targets = Vec::with_capacity(raw.len());
    for (index, target) in raw.into_iter().enumerate() {
        let at = |name: &str| format!("targets[{index}].{name}");
        let wrong = |span, name: &str, message| Wrong {
            span,
            field: at(name),
            message,
        };
        let kind = target.kind.as_ref();
        if let Some(kind) = kind {
            let known = mappings.check_kind(kind.get_ref());
            known.map_err(|message| wrong(kind.span(), "kind", message))?;
        }
        let (about, span) = match (target.node, target.switch) {
            (Some(node), None) => (Some(Subject::Node(node.get_ref().clone())), node.span()),
            (None, Some(switch)) => (
                Some(Subject::Switch(switch.get_ref().clone())),
                switch.span(),
            ),
            (None, None) if kind.is_some_and(|kind| kind.get_ref() != OWN_KIND) => (None, 0..0),
            (node, _) => {
                let span = target.url.span();
                let message = if node.is_some() {
                    "node and switch: expected one of them"
                } else {
                    "missing field `node`: expected it, or switch, or the kind of an exporter that names its parts itself"
                };
                return Err(wrong(span, "node", message.to_owned()));
            }
        };
        if let (Some(Subject::Switch(switch)), Some(kind)) = (&about, kind)
            && kind.get_ref() == OWN_KIND
        {
            return Err(wrong(kind.span(), "kind", own_on_switch(switch)));
        }
        let kind = target.kind.map(|kind| Arc::from(kind.into_inner()));
        // Without a kind, the exporter is detected from its first scrape.
        if let (Some(subject), Some(_)) = (&about, &kind)
            && let Some(first) = seen.insert((subject.clone(), kind.clone()), index)
        {
            let message = format!(
                "{:?} is already named by targets[{first}]: expected one target of each kind for each of them",
                subject.to_string()
            );
            return Err(wrong(span, "node", message));
        }
        targets.push(Target {
            about,
            kind,
            url: target.url.into_inner().0,
        });
    }
    Ok(targets)
}

fn check_subnet(raw: Spanned<Subnet>, beside: &Path) -> Result<SubnetSource, Wrong> {
    let span = raw.span();
    let raw = raw.into_inner();
    let timeout = raw.timeout.0;
    if let (Some(settings), None) = (&raw.sweep, &raw.device) {
        return Err(Wrong {
            span: settings.span(),
            field: String::from("subnet.sweep"),
            message: String::from("only an own sweep is set here: expected device beside it"),
        });
    }
    let unfit = match (&raw.device, raw.adaptive_routing) {
        (_, true) => Some("with adaptive_routing forwarding tables do not determine the paths"),
        (Some(_), _) => Some("an own sweep reads the tables itself"),
        (None, false) => None,
    };
    if let (Some(file), Some(why)) = (&raw.forwarding_file, unfit) {
        return Err(Wrong {
            span: file.span(),
            field: String::from("subnet.forwarding_file"),
            message: format!("{why}: expected no file of them"),
        });
    }
    let from = match (raw.file, raw.command, raw.device) {
        (Some(file), None, None) => SubnetFrom::File(beside.join(file)),
        (None, Some(Argv(command)), None) => SubnetFrom::Command(command),
        (None, None, Some(Text(device))) => {
            let settings = raw.sweep.map(Spanned::into_inner).unwrap_or_default();
            SubnetFrom::Device(device, settings.check(timeout, !raw.adaptive_routing)?)
        }
        (None, None, None) => return Err(wrong_source(span, "none stands here")),
        _ => return Err(wrong_source(span, "more than one stands here")),
    };
    Ok(SubnetSource {
        from,
        interval: raw.interval.0,
        timeout,
        node_name_map: raw.node_name_map.map(|file| beside.join(file)),
        forwarding_file: (raw.forwarding_file).map(|file| beside.join(file.into_inner())),
    })
}

fn wrong_source(span: Range<usize>, found: &str) -> Wrong {
    Wrong {
        span,
        field: String::from("subnet"),
        message: format!("{found}: expected one of file, command and device"),
    }
}
