//! The API and the page on a fixed view.
