//! Reads the scrapes of one target, of any exporter: what the configuration does not specify, its
//! first scrape reports.

use std::sync::Arc;

use railscope_model::fabric::Timestamp;

use crate::config::Target;
use crate::mapping::{Mapping, Mappings, OWN_KIND, Recognized, Translation, Translator};
use crate::service::Event;
use crate::sources::node_names::reported_host;
use crate::sources::scrape::Held;
use crate::store::source_id::Speaker;

/// Reads the scrapes of one target.
#[derive(Debug)]
pub struct Reader {
    mappings: Mappings,
    target: Arc<Target>,
    /// Whether the configuration reports what the target is. What a scrape reports, a later one may
    /// report otherwise.
    is_told: bool,
    /// None for Railscope's own exporter.
    translator: Option<Translator>,
}

impl Reader {
    /// A reader of scrapes of this target.
    pub fn new(target: Arc<Target>, mappings: Mappings) -> Self {
        let kind = target.kind.as_deref();
        let mapping = kind.and_then(|kind| mappings.by_kind(kind)).cloned();
        let mut reader = Self {
            is_told: mapping.is_some() || kind == Some(OWN_KIND),
            mappings,
            target,
            translator: None,
        };
        reader.use_mapping(mapping);
        reader
    }

    /// Uses this mapping for further scrape bodies. Returns whether it changed.
    fn use_mapping(&mut self, mapping: Option<Arc<Mapping>>) -> bool {
        let is_new = self.kind() != mapping.as_ref().map(|mapping| &mapping.kind);
        if is_new {
            let about = self.target.about.clone();
            self.translator = mapping.map(|mapping| Translator::new(mapping, about));
        }
        is_new
    }

    /// Content of another exporter's scrape, and its source; `None` if the scrape is
    /// Railscope's own, or of no known exporter.
    pub fn read(&mut self, page: &str, at: Timestamp) -> Option<(Speaker, Translation)> {
        let mut translated = self.translate(page, at);
        // Recognition costs as much as reading: recognize only if the scrape body does not match.
        let fits = translated
            .as_ref()
            .is_some_and(|(_, translation)| !translation.readings.is_empty());
        if !self.is_told && !fits && self.recognize(page) {
            translated = self.translate(page, at);
        }
        translated
    }

    /// Recognizes the exporter of a scrape body. Returns whether it changed.
    fn recognize(&mut self, page: &str) -> bool {
        match self.mappings.recognize(page) {
            Some(Recognized::Foreign(mapping)) => self.use_mapping(Some(mapping)),
            Some(Recognized::Own) => self.use_mapping(None),
            // An empty scrape body, or one without known names, is still from the same exporter.
            None => false,
        }
    }

    fn translate(&mut self, page: &str, at: Timestamp) -> Option<(Speaker, Translation)> {
        let translator = self.translator.as_mut()?;
        let speaker = Speaker {
            precedence: translator.mapping().precedence,
            name: Arc::from(&*self.target.url),
        };
        let mut translation = translator.translate(page, at);
        if self.target.node().is_some() {
            translation.host = reported_host(page);
        }
        Some((speaker, translation))
    }

    /// Converts a scrape body into an event for the analysis, with its byte reservation until ingestion.
    pub(crate) fn event(&mut self, page: String, at: Timestamp, held: Option<Held>) -> Event {
        let target = Arc::clone(&self.target);
        match self.read(&page, at) {
            None => Event::Page {
                target,
                page,
                at,
                held,
            },
            Some((speaker, translation)) => Event::Foreign {
                target,
                speaker,
                translation,
                at,
                held,
            },
        }
    }

    /// Which exporter the target is, if it is another project's.
    pub fn kind(&self) -> Option<&Arc<str>> {
        self.translator
            .as_ref()
            .map(|translator| &translator.mapping().kind)
    }
}
