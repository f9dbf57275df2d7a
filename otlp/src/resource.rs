//! The resource of all signals: which service on which host reports.

use opentelemetry::KeyValue;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, KeyValue as ProtoKeyValue, any_value::Value,
};

use crate::Settings;

/// The schema that the attribute and metric names follow.
pub(crate) const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.44.0";

/// The instrumentation scope of all signals.
pub(crate) const SCOPE: &str = "railscope";

/// The program's own attributes; variables and settings can override each of these.
#[derive(Debug, Clone, Default)]
pub struct Service {
    /// `service.name`: `railscope-exporter`, `railscope-collector`.
    pub name: String,
    /// `service.version`.
    pub version: String,
    /// `service.instance.id`: unique among the instances of the service. Empty: not sent.
    pub instance: String,
    /// `host.name`. Empty: not sent.
    pub host: String,
}

/// The attributes of the resource, each name once: settings override the program's own.
pub(crate) fn attributes(service: &Service, settings: &Settings) -> Vec<(String, String)> {
    let own = [
        ("service.name", &service.name),
        ("service.version", &service.version),
        ("service.instance.id", &service.instance),
        ("host.name", &service.host),
    ];
    let mut all: Vec<(String, String)> = own
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect();
    let mut put = |name: &str, value: &str| match all.iter_mut().find(|(known, _)| known == name) {
        Some(known) => value.clone_into(&mut known.1),
        None => all.push((name.to_owned(), value.to_owned())),
    };
    for (name, value) in &settings.resource_attributes {
        put(name, value);
    }
    if let Some(name) = &settings.service_name {
        put("service.name", name);
    }
    all
}

/// The resource in the SDK's form.
pub(crate) fn sdk(attributes: &[(String, String)]) -> opentelemetry_sdk::Resource {
    let attributes = attributes
        .iter()
        .map(|(name, value)| KeyValue::new(name.clone(), value.clone()));
    opentelemetry_sdk::Resource::builder_empty()
        .with_attributes(attributes)
        .build()
}

/// One text attribute.
pub(crate) fn text(key: &str, value: String) -> ProtoKeyValue {
    ProtoKeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value)),
        }),
        key_strindex: 0,
    }
}
