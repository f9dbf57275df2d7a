//! Probe targets: a list in JSON, from a file or from a component that fetches it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use railscope_model::path_class::PathClass;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use crate::sources::web_files;

/// Flows of one node, of all targets together: each has a socket and three series.
pub const MOST_FLOWS: usize = 256;
/// Flows of one target: more source ports than a spine tier has paths show nothing new.
const MOST_FLOWS_OF_TARGET: u8 = 64;
/// Probes that one node sends a second, all flows together: 256 flows at the usual ten a second.
pub const MOST_PROBES_PER_SECOND: f64 = 2_560.0;
/// Seconds between two probes of a flow. R-Pingmesh (SIGCOMM 2024) probes its ToR-mesh ten times a second.
const INTERVAL_SECONDS: (f64, f64, f64) = (0.05, 60.0, 0.1);
/// Timeout of a reply, seconds. R-Pingmesh's is 0.5.
const TIMEOUT_SECONDS: (f64, f64, f64) = (0.01, 10.0, 0.5);
/// Seconds above which a round trip is slow. An idle fabric of three tiers takes below 20 us, software included.
const SLOW_SECONDS: (f64, f64, f64) = (0.000_001, 10.0, 0.000_1);
/// Bytes of a name in the list.
const LONGEST_NAME: usize = 128;

/// Probe targets, the interval, and the limits for slow and lost.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeList {
    /// Between two probes of one flow.
    pub interval: Duration,
    /// A reply after this time counts as lost.
    pub timeout: Duration,
    /// A round trip above this is slow.
    pub slow: Duration,
    /// Differentiated services code point of probes and replies, 0 to 63.
    pub dscp: u8,
    /// Service level of RDMA probes, 0 to 15: InfiniBand's virtual lane, RoCE's priority.
    pub service_level: u8,
    /// NICs of other nodes.
    pub targets: Vec<Target>,
}

/// A NIC of another node, and ours that probes it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Our NIC: its RDMA device, or the interface's name if it has none.
    #[serde(deserialize_with = "device")]
    pub device: String,
    /// Name of the other node.
    #[serde(deserialize_with = "peer_node")]
    pub peer_node: String,
    /// Its NIC.
    #[serde(deserialize_with = "peer_device")]
    pub peer_device: String,
    /// Where its responder listens.
    #[serde(deserialize_with = "address")]
    pub address: SocketAddr,
    /// Source ports, each of which takes a separate path.
    #[serde(deserialize_with = "flows")]
    pub flows: u8,
    /// How far apart the two are, by the source of the list.
    #[serde(default = "unknown_class", deserialize_with = "path_class")]
    pub path_class: PathClass,
}

/// What is wrong with a list, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// It is not what it should be.
    #[error("{file}:{line}:{column}: {problem}")]
    Malformed {
        /// Where the list is from.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong and what was expected.
        problem: String,
    },
    /// The list as a whole requests something that a node does not do.
    #[error("{file}: {problem}")]
    Refused {
        /// Where the list is from.
        file: String,
        /// What, and what is allowed.
        problem: String,
    },
    /// There is no list to read.
    #[error("{file}: {problem}")]
    Unreadable {
        /// Where it should be.
        file: String,
        /// Why not.
        problem: String,
    },
}

impl ProbeList {
    /// Reads a list; `file` names it in errors.
    ///
    /// # Errors
    /// [`ListError::Malformed`] reports where and what was expected.
    pub fn parse(file: &str, text: &str) -> Result<Self, ListError> {
        let file = file.to_owned();
        let wire: Wire = match serde_json::from_str(text) {
            Ok(wire) => wire,
            Err(error) => {
                let (line, column) = (error.line(), error.column());
                let said = error.to_string();
                let place = format!(" at line {line} column {column}");
                let problem = said.strip_suffix(&place).unwrap_or(&said).to_owned();
                return Err(ListError::Malformed {
                    file,
                    line,
                    column,
                    problem,
                });
            }
        };
        let list = Self {
            interval: wire.interval_seconds,
            timeout: wire.timeout_seconds,
            slow: wire.slow_seconds,
            dscp: wire.dscp,
            service_level: wire.service_level,
            targets: wire.targets,
        };
        match list.problem() {
            Some(problem) => Err(ListError::Refused { file, problem }),
            None => Ok(list),
        }
    }

    /// Reads a list from a file.
    ///
    /// # Errors
    /// As [`Self::parse`], and [`ListError::Unreadable`].
    pub fn load(path: &Path) -> Result<Self, ListError> {
        let file = path.display().to_string();
        let text = web_files::read(path).map_err(|error| ListError::Unreadable {
            file: file.clone(),
            problem: error.to_string(),
        })?;
        Self::parse(&file, &text)
    }

    /// Error of the list as a whole.
    fn problem(&self) -> Option<String> {
        let flows: usize = self
            .targets
            .iter()
            .map(|target| usize::from(target.flows))
            .sum();
        if flows > MOST_FLOWS {
            return Some(format!(
                "targets: {flows} flows, at most {MOST_FLOWS} on one node"
            ));
        }
        let rate = flows as f64 / self.interval.as_secs_f64();
        if rate > MOST_PROBES_PER_SECOND {
            return Some(format!(
                "interval_seconds: {flows} flows make {rate:.0} probes a second, at most {MOST_PROBES_PER_SECOND}"
            ));
        }
        let mut seen = BTreeSet::new();
        self.targets.iter().enumerate().find_map(|(place, target)| {
            let (device, node, nic) = (&target.device, &target.peer_node, &target.peer_device);
            let is_new = seen.insert((device, node, nic));
            (!is_new)
                .then(|| format!("targets[{place}]: {device} to {nic} of {node} is listed twice"))
        })
    }
}

/// The list as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default = "usual_interval", deserialize_with = "interval")]
    interval_seconds: Duration,
    #[serde(default = "usual_timeout", deserialize_with = "timeout")]
    timeout_seconds: Duration,
    #[serde(default = "usual_slow", deserialize_with = "slow")]
    slow_seconds: Duration,
    #[serde(default, deserialize_with = "dscp")]
    dscp: u8,
    #[serde(default, deserialize_with = "service_level")]
    service_level: u8,
    targets: Vec<Target>,
}

fn usual_interval() -> Duration {
    Duration::from_secs_f64(INTERVAL_SECONDS.2)
}

fn usual_timeout() -> Duration {
    Duration::from_secs_f64(TIMEOUT_SECONDS.2)
}

fn usual_slow() -> Duration {
    Duration::from_secs_f64(SLOW_SECONDS.2)
}

fn interval<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    seconds(from, "interval_seconds", INTERVAL_SECONDS)
}

fn timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    seconds(from, "timeout_seconds", TIMEOUT_SECONDS)
}

fn slow<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    seconds(from, "slow_seconds", SLOW_SECONDS)
}

fn seconds<'de, D: Deserializer<'de>>(
    from: D,
    field: &str,
    (least, most, _): (f64, f64, f64),
) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(from).map_err(|error| named(field, &error))?;
    let valid = (least..=most).contains(&seconds);
    let seconds = Some(seconds).filter(|_| valid);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| D::Error::custom(format!("{field}: expected {least} to {most} seconds")))
}

fn dscp<'de, D: Deserializer<'de>>(from: D) -> Result<u8, D::Error> {
    whole(from, "dscp", 0, 63)
}

fn service_level<'de, D: Deserializer<'de>>(from: D) -> Result<u8, D::Error> {
    whole(from, "service_level", 0, 15)
}

fn flows<'de, D: Deserializer<'de>>(from: D) -> Result<u8, D::Error> {
    whole(from, "flows", 1, MOST_FLOWS_OF_TARGET)
}

fn whole<'de, D: Deserializer<'de>>(
    from: D,
    field: &str,
    least: u8,
    most: u8,
) -> Result<u8, D::Error> {
    let number = u64::deserialize(from).map_err(|error| named(field, &error))?;
    let number = u8::try_from(number).ok();
    let number = number.filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| D::Error::custom(format!("{field}: expected {least} to {most}")))
}

fn unknown_class() -> PathClass {
    PathClass::Unknown
}

fn path_class<'de, D: Deserializer<'de>>(from: D) -> Result<PathClass, D::Error> {
    PathClass::deserialize(from).map_err(|error| named("path_class", &error))
}

fn device<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    name(from, "device")
}

fn peer_node<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    name(from, "peer_node")
}

fn peer_device<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    name(from, "peer_device")
}

fn name<'de, D: Deserializer<'de>>(from: D, field: &str) -> Result<String, D::Error> {
    let name = String::deserialize(from).map_err(|error| named(field, &error))?;
    let valid = !name.is_empty() && name.len() <= LONGEST_NAME && !name.contains(['\0', '\n', '/']);
    let expected = || {
        D::Error::custom(format!(
            "{field}: expected a name of 1 to {LONGEST_NAME} bytes without slashes and line ends"
        ))
    };
    Some(name).filter(|_| valid).ok_or_else(expected)
}

fn address<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(from).map_err(|error| named("address", &error))?;
    let address: Option<SocketAddr> = text.parse().ok();
    let usable = |address: &SocketAddr| {
        let one = match address.ip() {
            IpAddr::V4(ip) => !ip.is_multicast() && !ip.is_broadcast() && !ip.is_unspecified(),
            IpAddr::V6(ip) => !ip.is_multicast() && !ip.is_unspecified(),
        };
        one && address.port() != 0
    };
    address.filter(usable).ok_or_else(|| {
        D::Error::custom(format!(
            "address: {text:?} is none of one NIC, expected such as 10.0.1.2:10661 or [fd00::2]:10661"
        ))
    })
}

/// The error with its field before it; it keeps its place.
fn named<E: serde::de::Error>(field: &str, error: &E) -> E {
    E::custom(format!("{field}: {error}"))
}

/// Where the list comes from.
#[derive(Debug, Clone)]
pub enum ListAccess {
    /// A file, read again whenever it has changed.
    File(PathBuf),
    /// The component that fetches it reports it.
    Told(Told),
}

/// What was last reported about a list.
pub(super) type Said = Result<Arc<ProbeList>, ListError>;

/// A list that another component fetches, for example over HTTP, shared with the prober.
#[derive(Debug, Clone, Default)]
pub struct Told(Arc<Mutex<Option<Said>>>);

impl Told {
    /// Publishes a new list, or why there is none.
    pub fn tell(&self, said: Result<ProbeList, ListError>) {
        *self.lock() = Some(said.map(Arc::new));
    }

    /// What was reported last.
    pub(super) fn said(&self) -> Option<Said> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Said>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
