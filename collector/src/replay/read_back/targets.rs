//! Which targets a store has: those that the configuration names, and those of exporters that a mapping recognizes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use railscope_model::fabric::Timestamp;
use reqwest::Url;

use super::ReadBackError;
use super::client::{Client, Labels};
use super::samples::Carry;
use crate::config::file_sd::parse_entries;
use crate::config::{About, Config, Push, Target};
use crate::mapping::Mappings;
use crate::sources::push::fragments::{Origin, write_escaped};
use crate::sources::push::target_of;

/// A target with samples.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) target: Target,
    /// Matches all of its series.
    pub(super) selector: String,
    /// Whether its series name nodes and switches.
    pub(super) names_parts: bool,
    pub(super) carry: Carry,
    /// When it was scraped last.
    pub(super) last: Option<Timestamp>,
}

/// What there is.
#[derive(Debug, Default)]
pub(super) struct Discovered {
    pub(super) found: Vec<Found>,
    /// Exporters that no mapping recognizes: their number by job.
    pub(super) unknown: BTreeMap<String, usize>,
    /// Targets without a valid name of a node or switch.
    pub(super) unnamed: Vec<String>,
    /// Targets of the configuration without samples.
    pub(super) missing: Vec<String>,
}

/// A target of the configuration.
struct Configured {
    /// Empty if any.
    job: String,
    instance: String,
    target: Target,
}

/// The targets of the configuration with the labels by which Prometheus would know them.
fn configured(config: &Config) -> Result<Vec<Configured>, ReadBackError> {
    let mut all = Vec::new();
    for target in &config.targets {
        let url = Url::parse(&target.url).ok();
        let address = url.and_then(|url| {
            let port = url.port_or_known_default()?;
            Some(format!("{}:{port}", url.host_str()?))
        });
        all.push(Configured {
            job: String::new(),
            instance: address.unwrap_or_default(),
            target: target.clone(),
        });
    }
    for file in &config.file_sd {
        let invalid = |why: String| ReadBackError::Targets {
            file: file.clone(),
            why,
        };
        let text = std::fs::read_to_string(file).map_err(|error| invalid(error.to_string()))?;
        for entry in parse_entries(&text, &config.mappings).map_err(invalid)? {
            match entry {
                Ok(labeled) => all.push(Configured {
                    job: labeled.origin.job,
                    instance: labeled.origin.instance,
                    target: labeled.target,
                }),
                Err(error) => {
                    tracing::error!(file = %file.display(), "invalid target ignored: {}", error.why);
                }
            }
        }
    }
    Ok(all)
}

/// Whether targets that the configuration does not name are read, too.
fn takes_others(config: &Config) -> bool {
    config.push.is_some() || (config.targets.is_empty() && config.file_sd.is_empty())
}

fn quoted(value: &str) -> String {
    let mut text = String::from("\"");
    write_escaped(&mut text, value);
    text.push('"');
    text
}

/// Whether a mapping recognizes the exporter that has metrics of these names.
fn is_known(mappings: &Mappings, names: &[String]) -> bool {
    let exposition = names.iter().fold(String::new(), |mut text, name| {
        // Writing to a string never fails.
        writeln!(text, "{name} 1").ok();
        text
    });
    mappings.recognize(&exposition).is_some()
}

/// Finds the targets of a store that were scraped in a span of time.
pub(super) async fn discover(
    client: &Client,
    config: &Config,
    jobs: &[String],
    span: (Timestamp, Timestamp),
) -> Result<Discovered, ReadBackError> {
    let selectors = match jobs {
        [] => vec![String::from("up")],
        jobs => {
            let jobs = jobs.iter();
            jobs.map(|job| format!("up{{job={}}}", quoted(job)))
                .collect()
        }
    };
    let ups = client.label_sets(&selectors, span).await?;
    let mut search = Search {
        configured: configured(config)?,
        takes_others: takes_others(config),
        push: config.push.clone().unwrap_or_default(),
        mappings: &config.mappings,
        client,
        span,
        known_jobs: BTreeMap::new(),
        used: BTreeSet::new(),
        out: Discovered::default(),
    };
    for ((origin, part), is_alone) in origins(&ups, &search.push) {
        search.take(origin, part, is_alone).await?;
    }
    let missing = search.configured.iter();
    let missing = missing.filter(|one| !search.used.contains(&one.target));
    search.out.missing = missing.map(|one| one.instance.clone()).collect();
    Ok(search.out)
}

/// Job, instance and name of the node or switch of each target, and whether job and instance had no other name.
fn origins(ups: &[Labels], push: &Push) -> Vec<((Origin, Option<String>), bool)> {
    let mut parts = BTreeMap::<Origin, BTreeSet<Option<String>>>::new();
    for labels in ups {
        let value = |wanted: &str| {
            let found = labels.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.clone())
        };
        // Without an instance it is no target's: a rule may be named so, too.
        let Some(instance) = value("instance") else {
            continue;
        };
        let job = value("job").unwrap_or_default();
        let part = push.part_label(&job).and_then(value);
        parts
            .entry(Origin { job, instance })
            .or_default()
            .insert(part);
    }
    let all = parts.into_iter().flat_map(|(origin, parts)| {
        let is_alone = parts.len() == 1;
        let parts = parts.into_iter();
        parts.map(move |part| ((origin.clone(), part), is_alone))
    });
    all.collect()
}

struct Search<'a> {
    configured: Vec<Configured>,
    takes_others: bool,
    push: Push,
    mappings: &'a Mappings,
    client: &'a Client,
    span: (Timestamp, Timestamp),
    /// By job: whether any of its exporters is known.
    known_jobs: BTreeMap<String, bool>,
    /// The targets that were found.
    used: BTreeSet<Target>,
    out: Discovered,
}

impl Search<'_> {
    async fn take(
        &mut self,
        origin: Origin,
        part: Option<String>,
        is_alone: bool,
    ) -> Result<(), ReadBackError> {
        let (job, instance) = (&*origin.job, &*origin.instance);
        let mut selector = format!("{{job={},instance={}", quoted(job), quoted(instance));
        if let (false, Some(label), Some(part)) = (is_alone, self.push.part_label(job), &part) {
            write!(selector, ",{label}={}", quoted(part)).ok();
        }
        selector.push('}');
        let target = match self.named(&origin) {
            Some(target) => target,
            None if !self.takes_others => {
                *self.out.unknown.entry(origin.job.clone()).or_default() += 1;
                return Ok(());
            }
            None => {
                let Ok(target) = target_of(&origin, part.as_deref(), &self.push) else {
                    self.out.unnamed.push(format!("{job}/{instance}"));
                    return Ok(());
                };
                if target.kind.is_none() && !self.is_known(job, &selector).await? {
                    *self.out.unknown.entry(origin.job.clone()).or_default() += 1;
                    return Ok(());
                }
                target
            }
        };
        self.used.insert(target.clone());
        self.out.found.push(Found {
            names_parts: target.about.is_none() || self.push.about(job) == About::Series,
            target,
            selector,
            carry: Carry::new(),
            last: None,
        });
        Ok(())
    }

    /// The target of the configuration with this job and instance; of several at one address that whose kind the job is named by.
    fn named(&self, origin: &Origin) -> Option<Target> {
        let fits = |one: &&Configured| {
            one.instance == origin.instance
                && (one.job.is_empty() || one.job == origin.job)
                && !self.used.contains(&one.target)
        };
        let rank = |one: &&Configured| {
            (
                one.job == origin.job,
                one.target.kind.as_deref() == Some(&*origin.job),
            )
        };
        let fitting = self.configured.iter().filter(fits);
        // The last one of equal ones is taken: in reverse, the first.
        let best = fitting.rev().max_by_key(rank)?;
        Some(best.target.clone())
    }

    async fn is_known(&mut self, job: &str, selector: &str) -> Result<bool, ReadBackError> {
        let is_known_job = match self.known_jobs.get(job) {
            Some(known) => *known,
            None => {
                let of_job = format!("{{job={}}}", quoted(job));
                let names = self.client.metric_names(&of_job, self.span).await?;
                let known = is_known(self.mappings, &names);
                self.known_jobs.insert(job.to_owned(), known);
                known
            }
        };
        if !is_known_job {
            return Ok(false);
        }
        let names = self.client.metric_names(selector, self.span).await?;
        Ok(is_known(self.mappings, &names))
    }
}
