//! Incidents that outlive a restart: those that are open, those that closed lately, and work announced over the API.

use std::path::Path;
use std::sync::Arc;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::Part;
use serde::{Deserialize, Serialize};

use crate::analyzer::ClusterView;
use crate::classes::belief::SURE_ENOUGH_TO_PAGE;
use crate::classes::{CLASSES, Severity};
use crate::clock;
use crate::diagnose::incident::{Incident, incident_id};
use crate::diagnose::pipeline::Closed;
use crate::diagnose::stages::maintenance::Window;
use crate::persist::fabric_file::{StateError, load_json, save_json};

/// Version of the file. A file of another version is ignored: the collector then has no previous
/// incidents.
const VERSION: u32 = 1;
const FILE: &str = "incidents.json";

/// What the file holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wire {
    version: u32,
    open: Vec<OpenWire>,
    closed: Vec<ClosedWire>,
    announced: Vec<WindowWire>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenWire {
    root: Part,
    class: String,
    since: Timestamp,
    reopenings: u32,
    /// `warning` or `critical`; earlier versions did not write it.
    #[serde(default)]
    severity: Option<String>,
    posterior: f64,
    effect: f64,
    related: Vec<Part>,
    victims: Vec<Part>,
    gpus_affected: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClosedWire {
    root: Part,
    since: Timestamp,
    at: Timestamp,
    reopenings: u32,
    /// Earlier versions neither wrote nor read it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_lost_uplink: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowWire {
    parts: Vec<String>,
    from: Timestamp,
    until: Timestamp,
    why: String,
}

/// State of an earlier run.
#[derive(Debug, Default)]
pub struct Remembered {
    /// Those that were open, without their findings.
    pub open: Vec<Incident>,
    /// Those that closed lately.
    pub closed: Vec<Closed>,
    /// Work that was announced over the API.
    pub announced: Vec<Arc<Window>>,
}

impl Wire {
    /// What is to be kept of a tick.
    pub(crate) fn of(view: &ClusterView, announced: &[Arc<Window>]) -> Self {
        let open = view.incidents.iter().map(|incident| OpenWire {
            root: incident.root.clone(),
            class: incident.class.name.to_owned(),
            since: clock::shown(incident.since),
            reopenings: incident.reopenings,
            severity: Some(incident.severity.as_str().to_owned()),
            posterior: incident.posterior,
            effect: incident.effect,
            related: incident.related.clone(),
            victims: incident.victims.clone(),
            gpus_affected: incident.gpus_behind().count(),
        });
        let closed = view.closed.iter().map(|closed| ClosedWire {
            root: closed.root.clone(),
            since: clock::shown(closed.since),
            at: clock::shown(closed.at),
            reopenings: closed.reopenings,
            is_lost_uplink: closed.is_lost_uplink,
        });
        let announced = announced.iter().map(|window| WindowWire {
            parts: window.parts.iter().map(ToString::to_string).collect(),
            from: window.from,
            until: window.until,
            why: window.why.clone(),
        });
        Self {
            version: VERSION,
            open: open.collect(),
            closed: closed.collect(),
            announced: announced.collect(),
        }
    }

    /// Whether both report about the same incidents and windows: effects and victims may differ from tick to
    /// tick.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let open = |wire: &OpenWire| {
            (
                wire.root.clone(),
                wire.class.clone(),
                wire.since,
                wire.reopenings,
            )
        };
        self.closed == other.closed
            && self.announced == other.announced
            && self.open.iter().map(open).eq(other.open.iter().map(open))
    }

    fn read(self) -> Result<Remembered, String> {
        if self.version != VERSION {
            return Err(format!(
                "version {} is not one that is read here: expected {VERSION}",
                self.version
            ));
        }
        let open = self.open.into_iter().enumerate();
        let open =
            open.map(|(place, open)| open.read().map_err(|said| format!("open[{place}].{said}")));
        let closed = self.closed.into_iter().map(|closed| Closed {
            root: closed.root,
            since: clock::restored(closed.since),
            at: clock::restored(closed.at),
            reopenings: closed.reopenings,
            is_lost_uplink: closed.is_lost_uplink,
        });
        let announced = self.announced.into_iter().map(|window| {
            let parts = window.parts.iter().map(|part| part.parse());
            Ok(Arc::new(Window {
                parts: parts.collect::<Result<_, String>>()?,
                from: window.from,
                until: window.until,
                why: window.why,
            }))
        });
        Ok(Remembered {
            open: open.collect::<Result<_, String>>()?,
            closed: closed.collect(),
            announced: announced.collect::<Result<_, String>>()?,
        })
    }
}

impl OpenWire {
    fn read(self) -> Result<Incident, String> {
        let class = CLASSES.iter().find(|class| class.name == self.class);
        let class = *class.ok_or_else(|| format!("class: {:?} is unknown", self.class))?;
        let pages = match self.severity.as_deref() {
            Some(severity) => severity == Severity::Critical.as_str(),
            None => self.posterior >= SURE_ENOUGH_TO_PAGE,
        };
        let severity = if pages {
            class.severity
        } else {
            Severity::Warning
        };
        Ok(Incident {
            id: incident_id(&self.root),
            root: self.root,
            far_end: None,
            alternatives: Vec::new(),
            class,
            severity,
            since: clock::restored(self.since),
            last_seen: clock::restored(self.since),
            posterior: self.posterior,
            weighed: None,
            effect: self.effect,
            findings: Vec::new(),
            related: self.related,
            victims: self.victims,
            gpus_affected: self.gpus_affected,
            jobs: Vec::new(),
            slowdown: None,
            reopenings: self.reopenings,
            maintenance: None,
            first_statement: String::new(),
        })
    }
}

/// Writes it into a folder; the file is complete at any time.
///
/// # Errors
/// The folder or the file cannot be written.
pub(crate) fn save(folder: &Path, wire: &Wire) -> Result<(), StateError> {
    save_json(folder, FILE, wire)
}

/// Loads the state of an earlier run; empty if there is none.
///
/// # Errors
/// The file cannot be read, or reports something that this version does not understand. Nothing of it is
/// used.
pub fn load(folder: &Path) -> Result<Remembered, StateError> {
    let wire: Option<Wire> = load_json(folder, FILE)?;
    wire.map_or_else(
        || Ok(Remembered::default()),
        |wire| {
            wire.read().map_err(|message| StateError::Content {
                file: folder.join(FILE),
                message,
            })
        },
    )
}
