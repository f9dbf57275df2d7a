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
    /// `service.instance.id` if it is an address with a port, as the Prometheus receiver sets it; the host's name replaces a
    /// loopback address. Otherwise the host's name: many SDKs draw an id at each start.
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
            instance: match (find("service.instance.id"), &host) {
                (Some(id), host) if has_port(&id) => with_host(&id, host.as_deref()),
                (_, Some(host)) => Some(host.clone()),
                (Some(id), None) => Some(id.into_owned()).filter(|id| !is_loopback(id)),
                (None, None) => None,
            },
            host,
        }
    }
}

fn has_port(id: &str) -> bool {
    let port = id.rsplit_once(':').map(|(_, port)| port);
    port.is_some_and(|port| port.parse::<u16>().is_ok())
}

/// An address with a loopback address replaced by the host's name: every host has the same ones. None without a name.
fn with_host(id: &str, host: Option<&str>) -> Option<String> {
    let (address, port) = id.rsplit_once(':')?;
    if is_loopback(address) {
        host.map(|host| format!("{host}:{port}"))
    } else {
        Some(id.to_owned())
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let address: Result<std::net::IpAddr, _> = address.parse();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
