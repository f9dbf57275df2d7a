//! Panels: what one shows, in which unit, from which queries.

use crate::link::Link;
use crate::query::Query;
use crate::table::Column;

/// Unit of a value. Grafana shows a misspelt unit as text behind the number, hence the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Count,
    Ratio,
    Seconds,
    BytesPerSecond,
    BitsPerSecond,
    PerSecond,
    Hertz,
    Celsius,
    Watts,
    Time,
    GpuHours,
    IncidentHours,
}

impl Unit {
    pub(crate) fn grafana(self) -> &'static str {
        match self {
            Self::Count => "short",
            Self::Ratio => "percentunit",
            Self::Seconds => "s",
            Self::BytesPerSecond => "Bps",
            Self::BitsPerSecond => "bps",
            Self::PerSecond => "cps",
            Self::Hertz => "hertz",
            Self::Celsius => "celsius",
            Self::Watts => "watt",
            Self::Time => "dateTimeAsIso",
            Self::GpuHours => "suffix: GPU-h",
            Self::IncidentHours => "suffix: h",
        }
    }
}

/// A color with a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Color {
    None,
    Good,
    Neutral,
    Warning,
    Critical,
}

impl Color {
    pub(crate) fn grafana(self) -> &'static str {
        match self {
            Self::None => "transparent",
            Self::Good => "green",
            Self::Neutral => "blue",
            Self::Warning => "orange",
            Self::Critical => "red",
        }
    }
}

/// The color of values from a bound on; the first has no bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Threshold {
    pub(crate) from: Option<f64>,
    pub(crate) color: Color,
}

impl Threshold {
    pub(crate) const fn base(color: Color) -> Self {
        Self { from: None, color }
    }

    pub(crate) const fn from(from: f64, color: Color) -> Self {
        Self {
            from: Some(from),
            color,
        }
    }
}

/// How a panel draws its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A heading over the panels below it.
    Row,
    /// A number; or with `is_name` the legend of the series.
    Stat { is_name: bool },
    /// A table, sorted by this column downwards.
    Table { sorted_by: &'static str },
    /// A table with a cell for each value of two labels.
    Matrix {
        row: &'static str,
        column: &'static str,
    },
    /// Curves.
    Curves { is_stacked: bool },
    /// Bars over time.
    Bars,
    /// Buckets of a histogram over time.
    Heatmap,
    /// One bar for each series, colored while it is 1.
    States,
    /// The fabric as a graph.
    NodeGraph,
}

/// One panel.
#[derive(Debug, Clone)]
pub(crate) struct Panel {
    pub(crate) kind: Kind,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    pub(crate) unit: Unit,
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) queries: Vec<Query>,
    pub(crate) thresholds: Vec<Threshold>,
    pub(crate) columns: Vec<Column>,
    pub(crate) links: Vec<Link>,
    pub(crate) decimals: Option<u64>,
    pub(crate) max: Option<f64>,
    /// A variable: one panel for each of its values.
    pub(crate) repeat: Option<&'static str>,
}

impl Panel {
    fn new(kind: Kind, title: &'static str, unit: Unit, (width, height): (u64, u64)) -> Self {
        Self {
            kind,
            title,
            description: "",
            unit,
            width,
            height,
            queries: Vec::new(),
            thresholds: Vec::new(),
            columns: Vec::new(),
            links: Vec::new(),
            decimals: None,
            max: None,
            repeat: None,
        }
    }

    pub(crate) fn row(title: &'static str) -> Self {
        Self::new(Kind::Row, title, Unit::Count, (24, 1))
    }

    pub(crate) fn stat(title: &'static str, unit: Unit) -> Self {
        Self::new(Kind::Stat { is_name: false }, title, unit, (4, 4))
    }

    /// Shows the legend of the series: a name, not a number.
    pub(crate) fn name(title: &'static str) -> Self {
        Self::new(Kind::Stat { is_name: true }, title, Unit::Count, (4, 4))
    }

    pub(crate) fn table(title: &'static str, unit: Unit, sorted_by: &'static str) -> Self {
        Self::new(Kind::Table { sorted_by }, title, unit, (12, 9))
    }

    pub(crate) fn matrix(
        title: &'static str,
        unit: Unit,
        row: &'static str,
        column: &'static str,
    ) -> Self {
        Self::new(Kind::Matrix { row, column }, title, unit, (12, 9))
    }

    pub(crate) fn curves(title: &'static str, unit: Unit) -> Self {
        Self::new(Kind::Curves { is_stacked: false }, title, unit, (12, 8))
    }

    pub(crate) fn stacked(title: &'static str, unit: Unit) -> Self {
        Self::new(Kind::Curves { is_stacked: true }, title, unit, (12, 8))
    }

    pub(crate) fn bars(title: &'static str, unit: Unit) -> Self {
        Self::new(Kind::Bars, title, unit, (12, 8))
    }

    pub(crate) fn heatmap(title: &'static str, unit: Unit) -> Self {
        Self::new(Kind::Heatmap, title, unit, (24, 8))
    }

    pub(crate) fn states(title: &'static str) -> Self {
        Self::new(Kind::States, title, Unit::Count, (24, 6))
    }

    pub(crate) fn node_graph(title: &'static str) -> Self {
        Self::new(Kind::NodeGraph, title, Unit::Count, (24, 18))
    }

    /// What it shows, for the reader: whole sentences.
    pub(crate) fn shows(mut self, description: &'static str) -> Self {
        self.description = description;
        self
    }

    pub(crate) fn query(mut self, query: Query) -> Self {
        self.queries.push(query);
        self
    }

    pub(crate) fn size(mut self, width: u64, height: u64) -> Self {
        (self.width, self.height) = (width, height);
        self
    }

    pub(crate) fn thresholds(mut self, thresholds: &[Threshold]) -> Self {
        self.thresholds = thresholds.to_vec();
        self
    }

    /// Green, and this color from a value on.
    pub(crate) fn good_below(self, from: f64, color: Color) -> Self {
        self.thresholds(&[Threshold::base(Color::Good), Threshold::from(from, color)])
    }

    /// No judgment: blue.
    pub(crate) fn neutral(self) -> Self {
        self.thresholds(&[Threshold::base(Color::Neutral)])
    }

    pub(crate) fn column(mut self, column: Column) -> Self {
        self.columns.push(column);
        self
    }

    pub(crate) fn link(mut self, link: Link) -> Self {
        self.links.push(link);
        self
    }

    pub(crate) fn decimals(mut self, decimals: u64) -> Self {
        self.decimals = Some(decimals);
        self
    }

    pub(crate) fn max(mut self, max: f64) -> Self {
        self.max = Some(max);
        self
    }

    pub(crate) fn repeat(mut self, variable: &'static str) -> Self {
        self.repeat = Some(variable);
        self
    }

    /// Id in the dashboard. From the title, so that a new panel changes no other one's links.
    pub(crate) fn id(&self) -> u64 {
        const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0100_0000_01b3;
        let hash = self.title.bytes().fold(BASIS, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(PRIME)
        });
        1 + hash % 999_983
    }
}
