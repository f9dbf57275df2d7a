//! One exposition: what all sources last reported, rendered at most once for each profile, media
//! type and encoding.

use std::sync::OnceLock;

use axum::body::Bytes;
use railscope_model::exposition::{MediaType, Page, gzip};
use railscope_model::metric::Profile;

const PROFILES: [Profile; 2] = [Profile::Default, Profile::Full];
const ENCODINGS: [bool; 2] = [false, true];
const BODIES: usize = PROFILES.len() * MediaType::ALL.len() * ENCODINGS.len();

/// An exposition with its rendered bodies: each body is written once, for any number of scrapers.
#[derive(Debug)]
pub struct RenderedPage {
    page: Page,
    bodies: [OnceLock<Bytes>; BODIES],
}

impl RenderedPage {
    /// An exposition of which nothing is rendered yet.
    pub fn new(page: Page) -> Self {
        Self {
            page,
            bodies: Default::default(),
        }
    }

    /// The exposition itself.
    pub fn page(&self) -> &Page {
        &self.page
    }

    /// The exposition as bytes, compressed if `gzipped`. Cloning the result copies no text.
    pub fn body(&self, profile: Profile, media_type: impl Into<MediaType>, gzipped: bool) -> Bytes {
        let media_type = media_type.into();
        let place = MediaType::ALL.iter().position(|known| *known == media_type);
        let index = usize::from(profile == Profile::Full)
            + PROFILES.len() * place.unwrap_or_default()
            + PROFILES.len() * MediaType::ALL.len() * usize::from(gzipped);
        let body = self.bodies[index].get_or_init(|| {
            if gzipped {
                let plain = self.body(profile, media_type, false);
                // Writing into memory does not fail; should it, an empty body fails the scrape aloud.
                gzip(&plain).unwrap_or_default().into()
            } else {
                self.page.encode(media_type, profile).into()
            }
        });
        body.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use railscope_model::metric::{GPU_PERFORMANCE_STATE, GPU_POWER};
    use railscope_model::reading::{Labels, NodeReading};
    use std::collections::HashSet;
    use std::sync::Arc;

    #[test]
    fn every_profile_media_type_and_encoding_has_a_body_of_its_own_and_is_written_once() {
        let mut reading = NodeReading::default();
        reading.push(&GPU_POWER, &Labels::new(["0"]), 1.0);
        reading.push(&GPU_PERFORMANCE_STATE, &Labels::new(["0"]), 0_u32);
        let page = RenderedPage::new(Page::new(Arc::new(reading)));
        let mut seen = HashSet::new();
        for profile in PROFILES {
            for media_type in MediaType::ALL {
                for gzipped in ENCODINGS {
                    let body = page.body(profile, media_type, gzipped);
                    assert_eq!(body.starts_with(&[0x1f, 0x8b]), gzipped);
                    assert_eq!(
                        body.as_ptr(),
                        page.body(profile, media_type, gzipped).as_ptr()
                    );
                    assert!(seen.insert(body));
                }
            }
        }
        assert_eq!(seen.len(), BODIES);
    }
}
