//! The names, units and attributes of every metric in OTLP: one table, and one rule for the rest.
//!
//! A metric that the semantic conventions name (v1.44, `hw.*`) is sent under that name: see [`MAPPED`]. Every other
//! metric keeps its name, with `railscope.` for `railscope_` and without `_total`; its unit is in the field `unit`,
//! too. The unit stays in the name because names differ only by it (`nic_pcie_stalled_seconds`,
//! `nic_pcie_stalled_ratio`). Prometheus' translation of OTLP names turns the dot into `_`, adds `_total` and no unit
//! twice: there a metric of this rule has its catalogue name.

use std::borrow::Cow;

use railscope_model::metric::{
    CATALOGUE, GPU_ECC_ERRORS, GPU_ENERGY, GPU_MEMORY_SIZE, GPU_MEMORY_USED, GPU_POWER,
    GPU_TEMPERATURE, GPU_TEMPERATURE_LIMIT, GPU_UTILIZATION, Kind, Metric, RDMA_PORT_ERRORS,
    RDMA_PORT_RECEIVE_BYTES, RDMA_PORT_RECEIVE_PACKETS, RDMA_PORT_SPEED, RDMA_PORT_TRANSMIT_BYTES,
    RDMA_PORT_TRANSMIT_PACKETS, RDMA_PORT_UP, Writer,
};

/// What a mapped metric measures, which decides `hw.type`, `hw.id` and `hw.parent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// A GPU: `hw.type=gpu`, `hw.id=gpu/GPU`, from the label `gpu`.
    Gpu,
    /// A port of an RDMA device: `hw.type=network`, `hw.id=DEVICE/PORT`, `hw.parent=DEVICE`.
    Port,
}

impl Component {
    /// The labels that identify it.
    pub(crate) fn labels(self) -> &'static [&'static str] {
        match self {
            Self::Gpu => &["gpu"],
            Self::Port => &["device", "port"],
        }
    }
}

/// The instrument of a mapped metric, as the semantic conventions define it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instrument {
    /// A monotonic sum.
    Counter,
    /// A sum that rises and falls.
    UpDownCounter,
    /// A gauge.
    Gauge,
}

/// A label that becomes an attribute of the conventions, with the values that are renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renamed {
    /// The label.
    pub label: &'static str,
    /// The attribute.
    pub attribute: &'static str,
    /// Values with a name in the conventions; others are kept.
    pub values: &'static [(&'static str, &'static str)],
}

/// One row of [`MAPPED`]. Railscope's base units are those of the conventions, so no value is converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// The catalogue's metric.
    pub metric: &'static Metric,
    /// The name in the conventions.
    pub name: &'static str,
    /// The UCUM unit.
    pub unit: &'static str,
    /// The kind of data.
    pub instrument: Instrument,
    /// What is measured.
    pub component: Component,
    /// Attributes that all points of the metric have.
    pub fixed: &'static [(&'static str, &'static str)],
    /// The label that becomes an attribute of the conventions. Other labels keep their names.
    pub renamed: Option<Renamed>,
}

impl Mapping {
    /// The attributes that no label has.
    pub(crate) fn added_attributes(&self) -> impl Iterator<Item = &'static str> + Clone + use<> {
        let fixed = self.fixed.iter().map(|(name, _)| *name);
        ["hw.type", "hw.id", "hw.parent"].into_iter().chain(fixed)
    }
}

const TRANSMIT: &[(&str, &str)] = &[("network.io.direction", "transmit")];
const RECEIVE: &[(&str, &str)] = &[("network.io.direction", "receive")];

const fn gpu(
    metric: &'static Metric,
    name: &'static str,
    unit: &'static str,
    instrument: Instrument,
) -> Mapping {
    Mapping {
        metric,
        name,
        unit,
        instrument,
        component: Component::Gpu,
        fixed: &[],
        renamed: None,
    }
}

const fn port(
    metric: &'static Metric,
    name: &'static str,
    unit: &'static str,
    instrument: Instrument,
) -> Mapping {
    Mapping {
        component: Component::Port,
        ..gpu(metric, name, unit, instrument)
    }
}

const fn with(mapping: Mapping, fixed: &'static [(&'static str, &'static str)]) -> Mapping {
    Mapping { fixed, ..mapping }
}

const fn rename(
    mapping: Mapping,
    label: &'static str,
    attribute: &'static str,
    values: &'static [(&'static str, &'static str)],
) -> Mapping {
    Mapping {
        renamed: Some(Renamed {
            label,
            attribute,
            values,
        }),
        ..mapping
    }
}

/// The metrics that the semantic conventions name. Not here: netdevs and virtual functions, whose bytes the RDMA port
/// counts too, so that a sum over `hw.network.io` counts no byte twice; `hw.gpu.io`, which does not separate PCIe from
/// NVLink.
pub const MAPPED: &[Mapping] = &[
    with(
        gpu(
            &GPU_UTILIZATION,
            "hw.gpu.utilization",
            "1",
            Instrument::Gauge,
        ),
        &[("hw.gpu.task", "general")],
    ),
    gpu(
        &GPU_MEMORY_USED,
        "hw.gpu.memory.usage",
        "By",
        Instrument::UpDownCounter,
    ),
    gpu(
        &GPU_MEMORY_SIZE,
        "hw.gpu.memory.limit",
        "By",
        Instrument::UpDownCounter,
    ),
    gpu(&GPU_POWER, "hw.power", "W", Instrument::Gauge),
    gpu(&GPU_ENERGY, "hw.energy", "J", Instrument::Counter),
    gpu(&GPU_TEMPERATURE, "hw.temperature", "Cel", Instrument::Gauge),
    rename(
        gpu(
            &GPU_TEMPERATURE_LIMIT,
            "hw.temperature.limit",
            "Cel",
            Instrument::Gauge,
        ),
        "limit",
        "hw.limit_type",
        &[("slowdown", "high.degraded"), ("shutdown", "high.critical")],
    ),
    rename(
        gpu(&GPU_ECC_ERRORS, "hw.errors", "{error}", Instrument::Counter),
        "severity",
        "error.type",
        &[],
    ),
    port(
        &RDMA_PORT_UP,
        "hw.network.up",
        "1",
        Instrument::UpDownCounter,
    ),
    port(
        &RDMA_PORT_SPEED,
        "hw.network.bandwidth.limit",
        "By/s",
        Instrument::UpDownCounter,
    ),
    with(
        port(
            &RDMA_PORT_TRANSMIT_BYTES,
            "hw.network.io",
            "By",
            Instrument::Counter,
        ),
        TRANSMIT,
    ),
    with(
        port(
            &RDMA_PORT_RECEIVE_BYTES,
            "hw.network.io",
            "By",
            Instrument::Counter,
        ),
        RECEIVE,
    ),
    with(
        port(
            &RDMA_PORT_TRANSMIT_PACKETS,
            "hw.network.packets",
            "{packet}",
            Instrument::Counter,
        ),
        TRANSMIT,
    ),
    with(
        port(
            &RDMA_PORT_RECEIVE_PACKETS,
            "hw.network.packets",
            "{packet}",
            Instrument::Counter,
        ),
        RECEIVE,
    ),
    rename(
        port(
            &RDMA_PORT_ERRORS,
            "hw.errors",
            "{error}",
            Instrument::Counter,
        ),
        "kind",
        "error.type",
        &[],
    ),
];

/// Suffixes that name a unit, with the UCUM unit (OpenTelemetry specification, "Prometheus and OpenMetrics compatibility").
/// The first suffix that fits counts.
pub(crate) const UNITS: &[(&str, &str)] = &[
    ("_bytes_per_second", "By/s"),
    ("_bytes", "By"),
    ("_kibibytes", "KiBy"),
    ("_mebibytes", "MiBy"),
    ("_gibibytes", "GiBy"),
    ("_seconds", "s"),
    ("_milliseconds", "ms"),
    ("_microseconds", "us"),
    ("_nanoseconds", "ns"),
    ("_minutes", "min"),
    ("_hours", "h"),
    ("_joules", "J"),
    ("_watts", "W"),
    ("_volts", "V"),
    ("_amperes", "A"),
    ("_celsius", "Cel"),
    ("_hertz", "Hz"),
    ("_percent", "%"),
    ("_ratio", "1"),
];

/// A name and a unit in OTLP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpName {
    /// The metric's name.
    pub name: Cow<'static, str>,
    /// The UCUM unit; empty for a count or a state.
    pub unit: &'static str,
    /// The row of [`MAPPED`], if the conventions name the metric.
    pub mapping: Option<&'static Mapping>,
}

/// The name of a Prometheus series in OTLP, by [`MAPPED`] or by the rule.
pub fn otlp_name(series: &str) -> OtlpName {
    if let Some(mapping) = MAPPED.iter().find(|row| row.metric.name == series) {
        return OtlpName {
            name: Cow::Borrowed(mapping.name),
            unit: mapping.unit,
            mapping: Some(mapping),
        };
    }
    let base = series.strip_suffix("_total").unwrap_or(series);
    let unit = UNITS
        .iter()
        .find(|(suffix, _)| base.ends_with(suffix))
        .map_or("", |(_, unit)| *unit);
    let name = match base.strip_prefix("railscope_") {
        Some(rest) => format!("railscope.{rest}"),
        None => base.to_owned(),
    };
    OtlpName {
        name: Cow::Owned(name),
        unit,
        mapping: None,
    }
}

/// The whole catalogue as a Markdown table: names, kinds and units in OTLP, and the attributes that are added.
pub fn names_table() -> String {
    let mut text = String::from(
        "| catalogue | OTLP name | kind | unit | attributes |\n\
         |---|---|---|---|---|\n",
    );
    for metric in CATALOGUE
        .iter()
        .filter(|metric| metric.writer != Writer::Switch)
    {
        let name = otlp_name(metric.name);
        let kind = match (name.mapping.map(|mapping| mapping.instrument), metric.kind) {
            (Some(Instrument::Counter), _) | (None, Kind::Counter) => "counter",
            (Some(Instrument::UpDownCounter), _) => "updowncounter",
            (Some(Instrument::Gauge), _) | (None, Kind::Gauge | Kind::Info) => "gauge",
            (None, Kind::Histogram) => "histogram",
        };
        let attributes = attributes_text(metric, name.mapping);
        text += &format!(
            "| `{}` | `{}` | {kind} | {} | {attributes} |\n",
            metric.name, name.name, name.unit
        );
    }
    text
}

fn attributes_text(metric: &Metric, mapping: Option<&Mapping>) -> String {
    let mut all = Vec::new();
    if let Some(mapping) = mapping {
        all.push(match mapping.component {
            Component::Gpu => "`hw.type=gpu`, `hw.id`".to_owned(),
            Component::Port => "`hw.type=network`, `hw.id`, `hw.parent`".to_owned(),
        });
        all.extend(
            mapping
                .fixed
                .iter()
                .map(|(name, value)| format!("`{name}={value}`")),
        );
        all.extend(
            mapping
                .renamed
                .map(|renamed| format!("`{}` from `{}`", renamed.attribute, renamed.label)),
        );
    }
    let renamed = mapping
        .and_then(|mapping| mapping.renamed)
        .map(|renamed| renamed.label);
    let kept = metric
        .labels
        .iter()
        .filter(|label| Some(**label) != renamed);
    all.extend(kept.map(|label| format!("`{label}`")));
    all.join(", ")
}
