//! Output for users and programs: API, web page, metrics.

pub mod api;
pub(crate) mod clients;
pub mod layout;
pub(crate) mod metrics;
pub(crate) mod otlp;
pub(crate) mod phrases;
pub mod router;
pub(crate) mod web;
pub(crate) mod wire;
