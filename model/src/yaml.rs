//! Checks YAML before it is loaded.

use saphyr_parser::{Event, Parser};

/// Deepest lists and maps inside of each other that are loaded.
pub const DEEPEST: usize = 64;

/// The line, from 1, in which lists and maps are nested deeper than [`DEEPEST`]: a loader recurses for
/// each, until the stack overflows. Events come without that; where they end with an error, the loader reports it.
pub fn too_deep(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (event, span) in Parser::new_from_str(text).map_while(Result::ok) {
        match event {
            Event::SequenceStart(..) | Event::MappingStart(..) => depth += 1,
            Event::SequenceEnd | Event::MappingEnd => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST {
            return Some(span.start.line());
        }
    }
    None
}
