//! Where the points of a resource come from.

use std::borrow::Cow;

use opentelemetry_proto::tonic::common::v1::KeyValue;

use super::{names, text};

/// Attributes with the name of the host that is observed, the most specific one first. The OpenTelemetry Collector's
/// Prometheus receiver sets `server.address`, Cumulus `net.host.name`, and a collector's own host may be in `host.name`.
const HOST: [&str; 4] = [
    "k8s.node.name",
    "net.host.name",
    "server.address",
    "host.name",
];

/// The resource of points, as the labels of a Prometheus target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// All attributes of the resource as labels, without `job`, `instance` and `node`.
    pub labels: Vec<(String, String)>,
    /// `service.namespace/service.name`, or the second alone; empty without a name.
    pub job: String,
    /// `service.instance.id`, with the host's name if it has a loopback address; without the attribute the host's name.
    pub instance: Option<String>,
    /// The host that is observed, by the first of its attributes that is no loopback address.
    pub host: Option<String>,
}

impl Origin {
    pub(super) fn of(attributes: &[KeyValue]) -> Self {
        let find = |wanted: &str| {
            let found = attributes.iter().find(|attribute| attribute.key == wanted);
            found.and_then(|attribute| text(attribute.value.as_ref()))
        };
        let mut hosts = HOST.iter().filter_map(|name| find(name));
        let host = hosts.find(|host| !is_loopback(host)).map(Cow::into_owned);
        let name = find("service.name").unwrap_or_default();
        let job = match find("service.namespace") {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.into_owned(),
        };
        let label = |attribute: &KeyValue| {
            let value = text(attribute.value.as_ref())?;
            Some((
                names::label(&attribute.key).into_owned(),
                value.into_owned(),
            ))
        };
        Self {
            labels: attributes.iter().filter_map(label).collect(),
            job,
            instance: find("service.instance.id")
                .map(|id| with_host(&id, host.as_deref()))
                .or_else(|| host.clone()),
            host,
        }
    }
}

/// Loopback addresses are those of different hosts, so the host's name takes their place.
fn with_host(id: &str, host: Option<&str>) -> String {
    let (address, port) = id.rsplit_once(':').unwrap_or((id, ""));
    match host {
        Some(host) if is_loopback(address) && port.is_empty() => host.to_owned(),
        Some(host) if is_loopback(address) => format!("{host}:{port}"),
        _ => id.to_owned(),
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let address: Result<std::net::IpAddr, _> = address.parse();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
