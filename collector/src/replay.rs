//! Replays a recorded cluster: the analysis of the collector on the times of the recording.
//!
//! ```text
//! pack          scrapes.jsonl.zst, targets.json, railscope.toml, fabric files
//! -> Reader     as for a live scrape
//! -> Analysis   as in the service; a cycle at each recorded time, or after each interval of recorded time
//! -> IncidentEvent
//! ```

pub mod pack;
pub mod read_back;
pub(crate) mod recorded;
mod scrapes;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use railscope_model::fabric::Timestamp;
use railscope_otlp::{IncidentEvent, OpenIncidents};

use crate::config::Target;
use crate::fabric::subnet::parse_ibnetdiscover;
use crate::serve::otlp::{event, time};
use crate::service::Event;
use crate::service::analysis::Analysis;
use crate::sources::push::fragments::Origin;
use crate::sources::scrape::ScrapeError;
use crate::sources::scrape::reader::Reader;
use crate::status::{ScrapeResult, State};

use pack::{FabricFile, Line, Pack, PackError, Place, unknown_target};
use recorded::{Cycles, Listings};

/// What was replayed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Scrapes with an exposition.
    pub scrapes: u64,
    /// Failed scrapes.
    pub failures: u64,
    /// Scrapes of invalid targets.
    pub ignored: u64,
    /// Cycles of the analysis.
    pub ticks: u64,
    /// Time of the first and of the last scrape; none without a scrape.
    pub span: Option<(Timestamp, Timestamp)>,
}

/// Which part of a recording is replayed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Window {
    /// Earlier scrapes are omitted: the analysis does not know what they showed.
    pub from: Option<Timestamp>,
    /// Later scrapes are omitted.
    pub until: Option<Timestamp>,
}

/// A replay of one pack.
pub struct Replay {
    analysis: Analysis,
    state: Arc<State>,
    readers: HashMap<Origin, (Arc<Target>, Reader)>,
    /// Versions of the fabric file that are not yet valid, the next one last.
    fabric: Vec<FabricFile>,
    listings: Listings,
    interval: Duration,
    max_body_bytes: usize,
    open: OpenIncidents,
    replayed: Replayed,
}

impl Replay {
    /// Reads everything of a pack but its scrapes.
    ///
    /// # Errors
    /// A file of the pack is missing or invalid.
    pub fn open(pack: &mut Pack) -> Result<Self, PackError> {
        let state = State::new(&pack.config, || Timestamp(0));
        let plan = pack.config.read_plan()?;
        let mut analysis = Analysis::new(&mut pack.config, plan, None);
        let targets = pack.listings.list();
        state.set_targets(&targets, true);
        analysis.take(Event::Targets(targets), &state);
        let readers = pack.origins.iter().map(|(origin, target)| {
            let reader = Reader::new(Arc::clone(target), pack.config.mappings.clone());
            (origin.clone(), (Arc::clone(target), reader))
        });
        Ok(Self {
            analysis,
            state: Arc::new(state),
            readers: readers.collect(),
            fabric: pack.fabric.iter().rev().cloned().collect(),
            listings: pack.listings.clone(),
            interval: pack.config.analysis_interval,
            max_body_bytes: pack.config.scrape.max_body_bytes,
            open: OpenIncidents::default(),
            replayed: Replayed::default(),
        })
    }

    /// Replays the scrapes of a pack and calls `each` with every change of an incident.
    ///
    /// # Errors
    /// The scrapes cannot be read; `each` was called with what the scrapes before the error showed.
    pub fn run(
        &mut self,
        pack: &Pack,
        window: Window,
        mut each: impl FnMut(&IncidentEvent),
    ) -> Result<Replayed, PackError> {
        let mut cycles = Cycles::new(&pack.cycles, self.interval, window);
        for line in pack.scrapes()? {
            let (place, line) = line?;
            if window.from.is_some_and(|from| line.at < from) {
                continue;
            }
            if window.until.is_some_and(|until| line.at > until) {
                break;
            }
            cycles.begin(line.at);
            while let Some(cycle) = cycles.before(line.at) {
                self.tick(cycle, &mut each)?;
            }
            let first = self.replayed.span.map_or(line.at, |(first, _)| first);
            self.replayed.span = Some((first, line.at));
            let has_target = self.readers.contains_key(&line.origin);
            if !has_target && pack.ignored.contains(&line.origin) {
                self.replayed.ignored += 1;
            } else {
                self.take(&place, line)?;
            }
        }
        for cycle in cycles.rest() {
            self.tick(cycle, &mut each)?;
        }
        Ok(self.replayed)
    }

    /// What the API shows at the end.
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    fn take(&mut self, place: &Place, line: Line) -> Result<(), PackError> {
        self.update_targets(line.at);
        let Some((target, reader)) = self.readers.get_mut(&line.origin) else {
            return Err(unknown_target(place, &line.origin));
        };
        match line.answer {
            Ok(body) if body.len() > self.max_body_bytes => {
                self.replayed.failures += 1;
                let result = ScrapeResult::TooLarge;
                self.state.record_scrape(target, result, None, None);
            }
            Ok(body) => {
                self.replayed.scrapes += 1;
                let event = reader.event(body, line.samples_at, None);
                if let (None, Some(kind)) = (&target.kind, reader.kind()) {
                    self.state.record_kind(target, kind);
                }
                // The recording has all scrapes: including those that a loss triggered.
                self.analysis.take(event, &self.state);
            }
            Err(error) => {
                self.replayed.failures += 1;
                let result = ScrapeError::result_of(&error);
                self.state.record_scrape(target, result, None, Some(error));
            }
        }
        Ok(())
    }

    fn update_targets(&mut self, now: Timestamp) {
        if let Some(targets) = self.listings.due(now) {
            self.state.set_targets(&targets, true);
            self.analysis.take(Event::Targets(targets), &self.state);
        }
    }

    fn tick(
        &mut self,
        now: Timestamp,
        each: &mut impl FnMut(&IncidentEvent),
    ) -> Result<(), PackError> {
        self.update_targets(now);
        while let Some(file) = self
            .fabric
            .pop_if(|file| file.from.is_none_or(|from| from <= now))
        {
            let subnet = parse_ibnetdiscover(&file.read()?);
            let event = Event::Subnet {
                subnet: Box::new(subnet),
                readings: Vec::new(),
                at: file.from.unwrap_or(now),
            };
            self.analysis.take(event, &self.state);
        }
        self.analysis.tick(now, &self.state);
        self.replayed.ticks += 1;
        let Some(snapshot) = self.state.snapshot() else {
            return Ok(());
        };
        let open = snapshot.view.incidents.iter();
        let open = open.map(|incident| event(incident, &self.state));
        self.open.update(open, time(now)).iter().for_each(each);
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
