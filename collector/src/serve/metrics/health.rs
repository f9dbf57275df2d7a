//! Exports the collector's health: known components, unreadable inputs, lateness of the analysis.

use railscope_model::metric::{
    ANALYSIS_INTERVAL, CLIENTS, CLIENTS_CLOSED, CLOCK_STEPS, COLLECTOR_SOURCE_AGE,
    COLLECTOR_SOURCE_STATUS, FABRIC_PARTS_BY_STATE, LAST_TICK_AGE, LATE_TICKS, OPEN_FILES_SHORT,
    SOURCE_INTERVAL, STATE_UNWRITABLE, TARGET_FILES_UNREADABLE, TARGET_UNREADABLE, TARGETS,
    TARGETS_LEFT_OUT, TARGETS_REMOVED, TICK_LATENESS,
};
use railscope_model::reading::{Labels, NodeReading};

use crate::clock;
use crate::serve::layout::{Health, Layout};
use crate::status::State;

/// Exports the number of components by state.
pub(super) fn push_parts(reading: &mut NodeReading, layout: &Layout) {
    for (class, counts) in layout.states() {
        for (health, count) in Health::ALL.into_iter().zip(counts) {
            let labels = Labels::new([class, health.as_str()]);
            reading.push(&FABRIC_PARTS_BY_STATE, &labels, count as u64);
        }
    }
}

/// Exports the lateness of the analysis and the steps of the wall clock.
pub(super) fn push_clocks(reading: &mut NodeReading, state: &State) {
    for (direction, count) in clock::steps() {
        reading.push(&CLOCK_STEPS, &Labels::new([direction]), count);
    }
    let none = Labels::default();
    let interval = state.analysis_interval.as_secs_f64();
    reading.push(&ANALYSIS_INTERVAL, &none, interval);
    if let Some(snapshot) = state.snapshot() {
        let age = state.now().seconds_since(snapshot.view.now);
        reading.push(&LAST_TICK_AGE, &none, age);
        let (lateness, ticks) = state.lateness();
        reading.push(&TICK_LATENESS, &none, lateness);
        reading.push(&LATE_TICKS, &none, ticks);
    }
}

/// Exports sources other than exporters, and unwritable state.
pub(super) fn push_sources(reading: &mut NodeReading, state: &State) {
    let now = state.now();
    for ((kind, name), source) in state.sources().iter() {
        let labels = Labels::new([*kind, name]);
        let status = Labels::new([*kind, name, source.status.as_str()]);
        reading.push(&COLLECTOR_SOURCE_STATUS, &status, true);
        if let Some(at) = source.last_ok {
            reading.push(&COLLECTOR_SOURCE_AGE, &labels, now.seconds_since(at));
        }
        if let Some(interval) = source.interval {
            reading.push(&SOURCE_INTERVAL, &labels, interval.as_secs_f64());
        }
    }
    for (what, fails) in state.unwritable().iter() {
        reading.push(&STATE_UNWRITABLE, &Labels::new([*what]), *fails);
    }
}

/// Exports the clients of the server.
pub(super) fn push_clients(reading: &mut NodeReading, state: &State) {
    let clients = state.clients();
    reading.push(&CLIENTS, &Labels::default(), clients.open() as u64);
    for (reason, count) in clients.closed() {
        reading.push(&CLIENTS_CLOSED, &Labels::new([reason]), count);
    }
}

/// Exports unreadable targets, and problems of target files.
pub(super) fn push_targets(reading: &mut NodeReading, state: &State) {
    for (target, state) in &state.targets().all {
        if let Some(last) = state.last.filter(|last| last.is_unreadable()) {
            let name = target.name();
            let labels = Labels::new([&*name, state.exporter(target), last.as_str()]);
            reading.push(&TARGET_UNREADABLE, &labels, true);
        }
    }
    let listed = state.targets().count() as u64;
    reading.push(&TARGETS, &Labels::default(), listed);
    let removed = state.targets_removed();
    reading.push(&TARGETS_REMOVED, &Labels::default(), removed);
    let short = state.open_files_short();
    reading.push(&OPEN_FILES_SHORT, &Labels::default(), short);
    let problems = state.file_problems();
    let left_out = problems.iter().filter(|one| one.left_out).count();
    let none = Labels::default();
    reading.push(&TARGETS_LEFT_OUT, &none, left_out as u64);
    let unreadable = problems.len() - left_out;
    reading.push(&TARGET_FILES_UNREADABLE, &none, unreadable as u64);
}
