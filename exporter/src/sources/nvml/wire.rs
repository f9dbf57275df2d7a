//! What the NVML worker writes to the exporter: one JSON object a line.

use std::fmt;
use std::str::FromStr;

use railscope_model::identity::GpuIndex;
use railscope_model::reading::{Changes, NodeReading, Status};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Which part of NVML a line reports about: `driver`, `gpu/3` or `events/3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The library and driver as a whole: the first line of a worker.
    Driver,
    /// One GPU, by its ordinal in PCI address order.
    Gpu(GpuIndex),
    /// What a GPU has reported by events since the worker started.
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
    /// What it reports about.
    pub scope: Scope,
    /// How the scope could be read.
    pub status: Status,
    /// Why the status is not `ok`, for the log; empty if there is none.
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
    /// Total delay of the scope's samples since the worker started, seconds.
    #[serde(default)]
    pub late_seconds: f64,
    /// Place of the line among those of its scope.
    #[serde(default)]
    pub number: u64,
    /// The values.
    #[serde(default)]
    pub values: Values,
}

/// The values of a scope. Of a GPU's thousand values a dozen change in a second; sending all of them each time
/// costs both sides more than reading them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Values {
    /// All of them.
    Whole(NodeReading),
    /// Those that differ from the line before, whose number is smaller by one.
    Changed(Changes),
}

impl Default for Values {
    fn default() -> Self {
        Self::Whole(NodeReading::default())
    }
}

/// After so many lines all values are sent again, so that a line that was lost, for example
/// because the driver printed into it, costs no more than these.
const WHOLE_EVERY: u64 = 30;

/// The worker's memory of what it reported about one scope.
#[derive(Debug, Default)]
pub struct Teller {
    number: u64,
    told: NodeReading,
}

impl Teller {
    /// Encodes the values into a line, as short as its reader allows.
    pub fn tell(&mut self, reading: NodeReading, line: &mut Line) {
        line.number = self.number;
        let changes = reading
            .changes_since(&self.told)
            .filter(|_| !self.number.is_multiple_of(WHOLE_EVERY));
        line.values = changes.map_or_else(|| Values::Whole(reading.clone()), Values::Changed);
        self.told = reading;
        self.number += 1;
    }
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
            late_seconds: 0.0,
            number: 0,
            values: Values::default(),
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
        let mut reading = NodeReading::default();
        reading.push(&GPU_ENERGY, &Labels::new(["7"]), 9.0);
        let link = Labels::new(["7", "17", "replay"]);
        reading.push(&NVLINK_ERRORS, &link, u64::MAX);
        line.values = Values::Whole(reading);
        let text = serde_json::to_string(&line).expect("serializes");
        assert!(
            text.starts_with(r#"{"scope":"gpu/7","status":"unsupported""#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Line>(&text).expect("parses"), line);
    }

    #[test]
    fn values_are_told_whole_at_first_then_as_changes_and_whole_again_now_and_then() {
        let mut teller = Teller::default();
        for number in 0..=WHOLE_EVERY {
            let mut reading = NodeReading::default();
            reading.push(&GPU_ENERGY, &Labels::new(["7"]), number);
            let mut line = Line::new(Scope::Gpu(GpuIndex(7)), Status::Ok);
            teller.tell(reading, &mut line);
            assert_eq!(line.number, number);
            let whole = matches!(line.values, Values::Whole(_));
            assert_eq!(whole, number == 0 || number == WHOLE_EVERY, "{number}");
        }
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
                r#"{"scope":"driver","status":"ok","values":{"whole":[["x",[],1,false]]}}"#,
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
