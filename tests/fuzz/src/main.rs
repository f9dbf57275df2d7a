//! libFuzzer's program with every target; the environment variable `FUZZ_TARGET` selects one, `list` prints them all.

#![no_main]

mod targets;

use std::sync::OnceLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use targets::{LONGEST, Run, TARGETS, timed};

/// The chosen target; prints the names and ends where there is none.
fn chosen() -> Run {
    let wanted = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(name, ..)| *name == wanted);
    found.map_or_else(
        || {
            TARGETS.iter().for_each(|(name, ..)| println!("{name}"));
            std::process::exit(i32::from(wanted != "list"))
        },
        |(_, run, _)| *run,
    )
}

/// What grows with the square of its input takes longer, on any machine.
const MOST: Duration = Duration::from_secs(3);

static TARGET: OnceLock<Run> = OnceLock::new();

fuzz_target!(|bytes: &[u8]| {
    if bytes.len() <= LONGEST {
        let took = timed(*TARGET.get_or_init(chosen), bytes);
        assert!(took < MOST, "{took:?} for {} bytes", bytes.len());
    }
});
