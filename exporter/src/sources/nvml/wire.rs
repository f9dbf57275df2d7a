//! What the NVML worker writes to the exporter: one JSON object a line.

use std::fmt;
use std::str::FromStr;

use railscope_model::identity::GpuIndex;
use railscope_model::reading::{NodeReading, Status};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Which part of NVML a line speaks for: `driver`, `gpu/3` or `events/3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The library and driver as a whole: the first line of a worker.
    Driver,
    /// One GPU, by its ordinal in PCI address order.
    Gpu(GpuIndex),
    /// What a GPU has told by events since the worker started.
    Events(GpuIndex),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver => f.write_str("driver"),
            Self::Gpu(gpu) => write!(f, "gpu/{gpu}"),
            Self::Events(gpu) => write!(f, "events/{gpu}"),
        }
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let scope = match text.split_once('/') {
            Some(("gpu", gpu)) => gpu.parse().ok().map(Self::Gpu),
            Some(("events", gpu)) => gpu.parse().ok().map(Self::Events),
            None if text == "driver" => Some(Self::Driver),
            _ => None,
        };
        scope.ok_or_else(|| format!("{text:?} is not driver, gpu/<ordinal> or events/<ordinal>"))
    }
}

impl Serialize for Scope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// What it speaks for.
    pub scope: Scope,
    /// How the scope could be read.
    pub status: Status,
    /// Why the status is not `ok`, for the log; empty where there is nothing to say.
    #[serde(default)]
    pub message: String,
    /// `driver` only: GPUs that the worker will write lines for.
    #[serde(default)]
    pub gpus: u16,
    /// What the board or driver does not have, and why.
    #[serde(default)]
    pub missing: Vec<(String, Status)>,
    /// Values that failed in this sample.
    #[serde(default)]
    pub errors: u64,
    /// Time that the sample took, seconds.
    #[serde(default)]
    pub seconds: f64,
    /// The values.
    #[serde(default)]
    pub reading: NodeReading,
}

impl Line {
    /// A line without values.
    pub fn new(scope: Scope, status: Status) -> Self {
        Self {
            scope,
            status,
            message: String::new(),
            gpus: 0,
            missing: Vec::new(),
            errors: 0,
            seconds: 0.0,
            reading: NodeReading::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use railscope_model::metric::{GPU_ENERGY, NVLINK_ERRORS};
    use railscope_model::reading::Labels;

    #[test]
    fn a_line_comes_back_as_it_was_written() {
        let mut line = Line::new(Scope::Gpu(GpuIndex(7)), Status::Unsupported);
        line.reading.push(&GPU_ENERGY, &Labels::new(["7"]), 9.0);
        line.reading.push(
            &NVLINK_ERRORS,
            &Labels::new(["7", "17", "replay"]),
            u64::MAX,
        );
        let text = serde_json::to_string(&line).expect("serialises");
        assert!(
            text.starts_with(r#"{"scope":"gpu/7","status":"unsupported""#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Line>(&text).expect("parses"), line);
    }

    #[test]
    fn a_line_that_is_not_ours_is_refused_with_its_reason() {
        for (text, reason) in [
            (
                r#"{"scope":"gpu/x","status":"ok"}"#,
                "driver, gpu/<ordinal> or events/<ordinal>",
            ),
            (r#"{"scope":"driver"}"#, "status"),
            (
                r#"{"scope":"driver","status":"ok","reading":[["x",[],1,false]]}"#,
                "no metric",
            ),
            (r#"{"scope":"driver","status":"ok","extra":1}"#, "extra"),
            ("", "EOF"),
        ] {
            let error = serde_json::from_str::<Line>(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
