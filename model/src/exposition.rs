//! Readings as text or protobuf, and any exporter's text as series.
//!
//! Writing text goes through `prometheus-client`, so the format is its authors' business; reading is our own,
//! because the collector reads the expositions of a whole cluster.

mod labels;
mod media_type;
mod page;
mod parse;
pub mod protobuf;
mod write;

pub use media_type::MediaType;
pub use page::Page;
pub use parse::{Line, ParseError, Parser, Series, Type, parse};
pub use write::{Format, gzip};
