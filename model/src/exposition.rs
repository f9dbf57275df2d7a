//! Readings as text, and any exporter's text as series.
//!
//! Writing goes through `prometheus-client`, so the format is its authors' business; reading is our own,
//! because the collector reads the pages of a whole cluster.

mod labels;
mod page;
mod parse;
mod write;

pub use page::Page;
pub use parse::{Line, ParseError, Parser, Series, Type, parse};
pub use write::{Format, gzip};
