//! Columns of tables.

use crate::link::Link;
use crate::panel::{Threshold, Unit};

/// How a cell looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cell {
    Plain,
    ColoredText,
    ColoredBackground,
    /// A bar as long as the value, up to 1.
    Gauge,
}

/// What a column shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// A label of the series.
    Label(&'static str),
    /// The value of a query, counted from 0.
    Value(usize),
}

/// One column.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) field: Field,
    pub(crate) title: &'static str,
    pub(crate) unit: Option<Unit>,
    pub(crate) cell: Cell,
    pub(crate) thresholds: Vec<Threshold>,
    /// Colors of severities.
    pub(crate) is_severity: bool,
    pub(crate) links: Vec<Link>,
}

impl Column {
    fn new(field: Field, title: &'static str) -> Self {
        Self {
            field,
            title,
            unit: None,
            cell: Cell::Plain,
            thresholds: Vec::new(),
            is_severity: false,
            links: Vec::new(),
        }
    }

    pub(crate) fn label(label: &'static str, title: &'static str) -> Self {
        Self::new(Field::Label(label), title)
    }

    pub(crate) fn severity() -> Self {
        Self {
            cell: Cell::ColoredBackground,
            is_severity: true,
            ..Self::label("severity", "Severity")
        }
    }

    pub(crate) fn value(query: usize, title: &'static str) -> Self {
        Self::new(Field::Value(query), title)
    }

    pub(crate) fn unit(mut self, unit: Unit) -> Self {
        self.unit = Some(unit);
        self
    }

    pub(crate) fn cell(mut self, cell: Cell) -> Self {
        self.cell = cell;
        self
    }

    pub(crate) fn thresholds(mut self, thresholds: &[Threshold]) -> Self {
        self.thresholds = thresholds.to_vec();
        self
    }

    pub(crate) fn link(mut self, link: Link) -> Self {
        self.links.push(link);
        self
    }
}
