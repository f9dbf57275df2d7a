//! Attributes of a point, from the labels of its series and the mapping of its metric.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use railscope_model::exposition::Series;

use crate::names::{Component, Mapping};
use crate::resource::text;

/// Labels keep their names; those of a mapped metric get the attributes of the conventions beside them. An empty label
/// is an absent one, as in Prometheus. `without` is the label of a bucket or a quantile.
pub(super) fn of(
    series: &Series<'_>,
    mapping: Option<&Mapping>,
    without: Option<&str>,
) -> Vec<KeyValue> {
    let mut all = Vec::with_capacity(8);
    let mut identity = Identity::default();
    for (name, value) in series.labels() {
        if value.is_empty() || Some(name) == without {
            continue;
        }
        if let Some(mapping) = mapping {
            identity.note(name, &value);
            if let Some(renamed) = mapping.renamed.filter(|renamed| renamed.label == name) {
                let known = renamed.values.iter().find(|(of, _)| *of == value);
                let value = known.map_or_else(|| value.into_owned(), |(_, to)| (*to).to_owned());
                all.push(text(renamed.attribute, value));
                continue;
            }
        }
        all.push(text(name, value.into_owned()));
    }
    if let Some(mapping) = mapping {
        identity.add(&mut all, mapping.component);
        all.extend(
            mapping
                .fixed
                .iter()
                .map(|(name, value)| text(name, (*value).to_owned())),
        );
    }
    all
}

/// The labels that name a component.
#[derive(Debug, Default)]
struct Identity {
    gpu: String,
    device: String,
    port: String,
}

impl Identity {
    fn note(&mut self, name: &str, value: &str) {
        match name {
            "gpu" => value.clone_into(&mut self.gpu),
            "device" => value.clone_into(&mut self.device),
            "port" => value.clone_into(&mut self.port),
            _ => {}
        }
    }

    fn add(self, all: &mut Vec<KeyValue>, component: Component) {
        match component {
            Component::Gpu => {
                all.push(text("hw.type", "gpu".to_owned()));
                all.push(text("hw.id", format!("gpu/{}", self.gpu)));
            }
            Component::Port => {
                all.push(text("hw.type", "network".to_owned()));
                all.push(text("hw.id", format!("{}/{}", self.device, self.port)));
                all.push(text("hw.parent", self.device));
            }
        }
    }
}
