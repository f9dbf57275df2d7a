//! Reads the pages of one target, whosever they are: what the configuration does not say, its first page tells.

use std::sync::Arc;

use railscope_model::fabric::Timestamp;

use crate::config::Target;
use crate::mapping::{Mapping, Mappings, OWN_KIND, Recognised, Translation, Translator};
use crate::service::Event;
use crate::store::source_id::Speaker;

/// Reads the pages of one target.
#[derive(Debug)]
pub struct Reader {
    mappings: Mappings,
    target: Arc<Target>,
    /// Whether the configuration says what the target is. What a page tells, a later one may tell otherwise.
    is_told: bool,
    /// None for Railscope's own exporter.
    translator: Option<Translator>,
}

impl Reader {
    /// A reader of pages of this target.
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

    fn use_mapping(&mut self, mapping: Option<Arc<Mapping>>) {
        let now = self
            .translator
            .as_ref()
            .map(|translator| &translator.mapping().kind);
        if now == mapping.as_ref().map(|mapping| &mapping.kind) {
            return;
        }
        let about = self.target.about.clone();
        self.translator = mapping.map(|mapping| Translator::new(mapping, about));
    }

    /// What another exporter's page says, and who says it; `None` if the page is Railscope's own, or
    /// nobody's that is known.
    pub fn read(&mut self, page: &str, at: Timestamp) -> Option<(Speaker, Translation)> {
        if !self.is_told {
            match self.mappings.recognise(page) {
                Some(Recognised::Foreign(mapping)) => self.use_mapping(Some(mapping)),
                Some(Recognised::Own) => self.use_mapping(None),
                // An empty page, or one that has lost what it was known by, is still its exporter's.
                None => {}
            }
        }
        let translator = self.translator.as_mut()?;
        let speaker = Speaker {
            precedence: translator.mapping().precedence,
            name: Arc::from(&*self.target.url),
        };
        Some((speaker, translator.translate(page, at)))
    }

    /// Converts a scrape body into an event for the analysis.
    pub(crate) fn event(&mut self, page: String, at: Timestamp) -> Event {
        let target = Arc::clone(&self.target);
        match self.read(&page, at) {
            None => Event::Page { target, page, at },
            Some((speaker, translation)) => Event::Foreign {
                target,
                speaker,
                translation,
                at,
            },
        }
    }

    /// Which exporter the target is, where it is somebody else's.
    pub fn kind(&self) -> Option<&Arc<str>> {
        self.translator
            .as_ref()
            .map(|translator| &translator.mapping().kind)
    }
}
