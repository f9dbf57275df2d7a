//! `[push]`: clients that may push samples, and how their targets are identified.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;

use super::maintenance::read_token;
use super::raw::{Stop, Wrong};
use super::values::Text;
use crate::mapping::{Mappings, OWN_KIND};

/// Settings of pushed samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// The bearer token of senders; if unset, any sender is accepted.
    pub token: Option<Arc<str>>,
    /// Target label with the name of the node; without the label, the host part of `instance`.
    pub node_label: String,
    /// The same for switches.
    pub switch_label: String,
    /// Settings by the label `job`.
    pub jobs: BTreeMap<String, PushedJob>,
}

/// Settings of the targets of one job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PushedJob {
    /// Kind of the exporter; detected if unset.
    pub kind: Option<Arc<str>>,
    /// What a target is about.
    pub about: About,
}

/// What a target is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum About {
    /// One node.
    #[default]
    Node,
    /// One switch.
    Switch,
    /// The nodes and switches that its series name.
    Series,
}

impl Default for Push {
    fn default() -> Self {
        Self {
            token: None,
            node_label: String::from("node"),
            switch_label: String::from("switch"),
            jobs: BTreeMap::new(),
        }
    }
}

impl Push {
    /// The kind of the exporters of a job; none if it is detected.
    pub fn kind(&self, job: &str) -> Option<Arc<str>> {
        self.jobs.get(job)?.kind.clone()
    }

    /// What the targets of a job are about.
    pub fn about(&self, job: &str) -> About {
        self.jobs.get(job).map(|job| job.about).unwrap_or_default()
    }

    /// The label with the name of the node or switch; none if series name them.
    pub fn part_label(&self, job: &str) -> Option<&str> {
        match self.about(job) {
            About::Node => Some(&self.node_label),
            About::Switch => Some(&self.switch_label),
            About::Series => None,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPush {
    token_file: Option<PathBuf>,
    node_label: Option<Text>,
    switch_label: Option<Text>,
    #[serde(default)]
    jobs: Vec<RawJob>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawJob {
    /// Empty for senders without a job.
    job: Spanned<String>,
    kind: Option<Spanned<String>>,
    #[serde(default)]
    about: About,
}

impl RawPush {
    pub(super) fn check(self, mappings: &Mappings, beside: &Path) -> Result<Push, Stop> {
        let token = read_token(self.token_file.as_ref(), beside).map_err(Stop::Elsewhere)?;
        let default = Push::default();
        let label = |given: Option<Text>, default| given.map_or(default, |Text(label)| label);
        let mut jobs = BTreeMap::new();
        for (index, raw) in self.jobs.into_iter().enumerate() {
            let (span, name) = (raw.job.span(), raw.job.into_inner());
            let job = check_job(index, raw.kind, raw.about, span.clone(), mappings)?;
            if jobs.insert(name.clone(), job).is_some() {
                let message = format!("{name:?} stands here already: expected each job once");
                return Err(wrong(index, "job", span, message).into());
            }
        }
        Ok(Push {
            token,
            node_label: label(self.node_label, default.node_label),
            switch_label: label(self.switch_label, default.switch_label),
            jobs,
        })
    }
}

fn wrong(index: usize, field: &str, span: std::ops::Range<usize>, message: String) -> Wrong {
    Wrong {
        span,
        field: format!("push.jobs[{index}].{field}"),
        message,
    }
}

fn check_job(
    index: usize,
    kind: Option<Spanned<String>>,
    about: About,
    job: std::ops::Range<usize>,
    mappings: &Mappings,
) -> Result<PushedJob, Wrong> {
    let span = kind.as_ref().map_or(job, Spanned::span);
    let kind = kind.map(Spanned::into_inner);
    if let Some(kind) = &kind {
        let known = mappings.check_kind(kind);
        known.map_err(|message| wrong(index, "kind", span.clone(), message))?;
    }
    if about != About::Node && kind.as_deref().is_none_or(|kind| kind == OWN_KIND) {
        let message = "expected the kind of an exporter of switches, or of one whose series name nodes and switches";
        return Err(wrong(index, "kind", span, message.to_owned()));
    }
    Ok(PushedJob {
        kind: kind.map(Arc::from),
        about,
    })
}
