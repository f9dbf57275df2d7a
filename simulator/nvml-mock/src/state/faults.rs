//! Injected faults, events, and the processes on a GPU.

use std::fmt;

use super::values::Value;

/// Makes one NVML function misbehave, on one GPU or on the whole node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fault {
    /// `nvmlDeviceGetTemperature`, `field.186` for one id of `nvmlDeviceGetFieldValues`, or `*` for all functions.
    pub function: String,
    /// How it misbehaves.
    pub effect: Effect,
}

/// How a function misbehaves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    /// `fail <function> <code>`: returns this `nvmlReturn_t`; 15 is "GPU is lost", 3 "not supported".
    Fail(u32),
    /// `hang <function>`: blocks until the line is gone.
    Hang,
    /// `delay <function> <milliseconds>`: returns late.
    Delay(u32),
    /// `spoil field.<id> <code>`: fails every call for several fields of which this one is in. Alone it succeeds.
    Spoil(u32),
}

impl Fault {
    /// Returns `code` from `function`.
    #[must_use]
    pub fn fail(function: &str, code: u32) -> Self {
        Self {
            function: function.into(),
            effect: Effect::Fail(code),
        }
    }

    /// Fails every call for several fields that holds this one, as some pairs of fields do (NVIDIA/DCGM#581).
    #[must_use]
    pub fn spoil(field: u32, code: u32) -> Self {
        Self {
            function: format!("field.{field}"),
            effect: Effect::Spoil(code),
        }
    }

    /// Blocks `function` until the fault is taken away.
    #[must_use]
    pub fn hang(function: &str) -> Self {
        Self {
            function: function.into(),
            effect: Effect::Hang,
        }
    }

    /// Returns from `function` after `milliseconds`.
    #[must_use]
    pub fn delay(function: &str, milliseconds: u32) -> Self {
        Self {
            function: function.into(),
            effect: Effect::Delay(milliseconds),
        }
    }

    /// Whether it concerns this function. `*` leaves single fields alone: their call has failed already.
    #[must_use]
    pub fn concerns(&self, function: &str) -> bool {
        self.function == function || (self.function == "*" && !function.starts_with("field."))
    }

    pub(super) fn parse(word: &str, rest: &str) -> Result<Self, String> {
        let (function, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        if function != "*" && !function.starts_with("nvml") && !function.starts_with("field.") {
            return Err("a function such as nvmlDeviceGetTemperature, field.<id>, or *".into());
        }
        let effect = match word {
            "fail" => Effect::Fail(Value::parse(argument.trim())?),
            "spoil" if function.starts_with("field.") => {
                Effect::Spoil(Value::parse(argument.trim())?)
            }
            "spoil" => return Err("spoil field.<id> <code>".into()),
            "delay" => Effect::Delay(Value::parse(argument.trim())?),
            "hang" if argument.is_empty() => Effect::Hang,
            _ => return Err("hang <function|*>".into()),
        };
        Ok(Self {
            function: function.into(),
            effect,
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.effect {
            Effect::Fail(code) => write!(out, "fail {} {code}", self.function),
            Effect::Spoil(code) => write!(out, "spoil {} {code}", self.function),
            Effect::Hang => write!(out, "hang {}", self.function),
            Effect::Delay(milliseconds) => write!(out, "delay {} {milliseconds}", self.function),
        }
    }
}

/// An event that NVML delivers, once per event set.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Event {
    /// `nvmlEventType...`: 8 an XID, 0x4000 GPU unavailable, 0x8000 recovery action.
    pub kind: u64,
    /// The XID, or 0.
    pub data: u64,
    /// Distinguishes two equal events.
    pub sequence: u64,
}

impl Event {
    /// `nvmlEventTypeXidCriticalError`.
    pub const XID: u64 = 8;

    /// An XID; `sequence` differs for every one of a GPU.
    #[must_use]
    pub fn xid(code: u64, sequence: u64) -> Self {
        Self {
            kind: Self::XID,
            data: code,
            sequence,
        }
    }

    pub(super) fn parse(word: &str, rest: &str) -> Result<Self, String> {
        let numbers: Vec<u64> = rest
            .split_whitespace()
            .map(Value::parse)
            .collect::<Result<_, _>>()?;
        match (word, numbers.as_slice()) {
            ("xid", &[code, sequence]) => Ok(Self::xid(code, sequence)),
            ("event", &[kind, data, sequence]) => Ok(Self {
                kind,
                data,
                sequence,
            }),
            _ => Err("xid <code> <sequence> or event <type> <data> <sequence>".into()),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Self::XID => write!(out, "xid {} {}", self.data, self.sequence),
            kind => write!(out, "event {kind:#x} {} {}", self.data, self.sequence),
        }
    }
}

/// A process that uses the GPU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Process {
    /// Compute or graphics: NVML lists them apart.
    pub kind: ProcessKind,
    /// Process id on the host.
    pub pid: u32,
    /// Memory that it allocated.
    pub used_bytes: u64,
}

/// What a process does with the GPU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProcessKind {
    /// CUDA.
    Compute,
    /// Graphics.
    Graphics,
}

impl Process {
    pub(super) fn parse(rest: &str) -> Result<Self, String> {
        let mut words = rest.split_whitespace();
        let expected = || String::from("process compute|graphics <pid> <bytes>");
        let kind = match words.next() {
            Some("compute") => ProcessKind::Compute,
            Some("graphics") => ProcessKind::Graphics,
            _ => return Err(expected()),
        };
        let pid = words.next().ok_or_else(expected).and_then(Value::parse)?;
        let used_bytes = words.next().ok_or_else(expected).and_then(Value::parse)?;
        if words.next().is_some() {
            Err(expected())
        } else {
            Ok(Self {
                kind,
                pid,
                used_bytes,
            })
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ProcessKind::Compute => "compute",
            ProcessKind::Graphics => "graphics",
        };
        write!(out, "process {kind} {} {}", self.pid, self.used_bytes)
    }
}
