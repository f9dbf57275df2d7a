//! When the analysis loads the state of an earlier run, and when it saves its own.

pub mod fabric_file;
pub mod incidents_file;

use std::path::PathBuf;
use std::sync::Arc;

use railscope_model::fabric::{Fabric, Timestamp};

use crate::analyzer::{Analyzer, ClusterView};
use crate::assemble::changes::ChangeLog;
use crate::fabric::has_cables;
use crate::status::State;

/// Least time between two writes: of 100,000 GPUs the file has tens of megabytes.
const WRITE_SECONDS: f64 = 60.0;

/// The state file, if one is configured, and what is in it.
pub(crate) struct Past {
    folder: Option<PathBuf>,
    /// When the last write was tried.
    tried: Option<Timestamp>,
    /// What the file holds.
    written: Option<(Arc<Fabric>, Arc<ChangeLog>)>,
    /// Whether the file reports about cables.
    has_cables: bool,
    incidents: Option<incidents_file::Wire>,
    /// Whether the last write failed: reported once, not every minute.
    failing: bool,
    incidents_failing: bool,
}

impl Past {
    pub(crate) fn of(folder: Option<PathBuf>) -> Self {
        Self {
            folder,
            tried: None,
            written: None,
            has_cables: false,
            incidents: None,
            failing: false,
            incidents_failing: false,
        }
    }

    /// Ingests the incidents of an earlier run, and the work that was announced to it.
    pub(crate) fn restore_incidents(&self, analyzer: &mut Analyzer, state: &State) {
        let Some(folder) = &self.folder else { return };
        match incidents_file::load(folder) {
            Ok(past) => {
                analyzer.restore_incidents(past.open, past.closed);
                state.posted().extend(past.announced);
            }
            Err(error) => {
                tracing::error!("cannot load the saved incidents; starting without them: {error}");
            }
        }
    }

    /// Writes down incidents and maintenance windows, if they are other ones than before.
    pub(crate) fn keep_incidents(&mut self, view: &ClusterView, state: &State) {
        let Some(folder) = &self.folder else { return };
        let wire = incidents_file::Wire::of(view, &state.posted());
        let is_like = |before: &incidents_file::Wire| before.is_like(&wire);
        if self.incidents.as_ref().is_some_and(is_like) {
            return;
        }
        let saved = incidents_file::save(folder, &wire);
        state.record_kept("incidents", saved.is_ok());
        match saved {
            Ok(()) => {
                self.incidents = Some(wire);
                self.incidents_failing = false;
            }
            Err(error) if !self.incidents_failing => {
                tracing::error!(
                    "cannot write the incidents: {error}; retrying at the next analysis"
                );
                self.incidents_failing = true;
            }
            Err(_) => {}
        }
    }

    /// Loads the state of an earlier run. If a file cannot be read, the error is logged and the state starts empty.
    pub(crate) fn restore(&mut self, analyzer: &mut Analyzer) {
        let Some(folder) = &self.folder else { return };
        match fabric_file::load(folder) {
            Ok(Some(past)) => {
                tracing::info!(
                    written = past.at.as_seconds(),
                    "loaded the fabric of an earlier run"
                );
                self.has_cables = has_cables(&past.fabric);
                analyzer.restore(past.fabric, past.changes);
            }
            Ok(None) => {}
            Err(error) => tracing::error!("starting without a past: {error}"),
        }
    }

    /// Saves the state of a tick, if it has changed and the last save is long enough ago.
    pub(crate) fn keep(&mut self, view: &ClusterView, state: &State) {
        let Some(folder) = &self.folder else { return };
        // A subnet that was not read yet shows nothing; what is remembered of it stays.
        if self.has_cables && !has_cables(&view.fabric) {
            return;
        }
        let is_written = match &self.written {
            None => view.fabric.links().next().is_none(),
            Some((fabric, changes)) => {
                Arc::ptr_eq(fabric, &view.fabric) && Arc::ptr_eq(changes, &view.changes)
            }
        };
        let is_early = |tried| view.now.seconds_since(tried) < WRITE_SECONDS;
        if is_written || self.tried.is_some_and(is_early) {
            return;
        }
        self.tried = Some(view.now);
        let saved = fabric_file::save(folder, view);
        state.record_kept("fabric", saved.is_ok());
        match saved {
            Ok(()) => {
                self.has_cables = has_cables(&view.fabric);
                self.written = Some((Arc::clone(&view.fabric), Arc::clone(&view.changes)));
                self.failing = false;
            }
            Err(error) if !self.failing => {
                tracing::error!("cannot write the fabric: {error}; retrying in {WRITE_SECONDS} s");
                self.failing = true;
            }
            Err(_) => {}
        }
    }
}
