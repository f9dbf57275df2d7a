//! The one binary: `railscope exporter`, `collector`, `demo`.

fn main() {}
