//! A node whose GPUs are a text file: the mock NVML, a worker process, and an exporter that reads nothing else.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use railscope_exporter::sampler::{Machine, NvmlAccess};
use railscope_exporter::samplers::gpu;
use railscope_exporter::{Exporter, Limits, MigDevices};
use railscope_model::exposition::Format;
use railscope_model::metric::Profile;
use railscope_simulator::show::nvml::{InstallError, NodeGpus, install, update_state};

pub(crate) struct Node {
    exporter: Exporter,
    pub(crate) state: NodeGpus,
    /// What the GPU sampler shares with the others.
    pub(crate) mig_devices: MigDevices,
    dir: tempfile::TempDir,
}

impl Node {
    pub(crate) fn start(state: NodeGpus) -> Self {
        Self::start_on(state, install)
    }

    /// With the library that `install` puts in place.
    pub(crate) fn start_on(
        state: NodeGpus,
        install: fn(&Path, &NodeGpus) -> Result<PathBuf, InstallError>,
    ) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let library = install(dir.path(), &state).expect("installs");
        let machine = Machine {
            nvml: Some(NvmlAccess {
                library,
                worker: vec![env!("CARGO_BIN_EXE_railscope").into(), "nvml-worker".into()],
                period: Duration::from_secs(1),
            }),
            ..Machine::below("".as_ref())
        };
        let samplers = vec![gpu::build(&machine)];
        Self {
            exporter: Exporter::start_samplers(samplers, Limits::default(), None)
                .expect("a thread starts"),
            state,
            mig_devices: machine.mig_devices,
            dir,
        }
    }

    /// Changes the state of the GPUs, while the worker runs.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut NodeGpus)) {
        change(&mut self.state);
        update_state(self.dir.path(), &self.state).expect("writes");
    }

    pub(crate) fn text(&self, profile: Profile, format: Format) -> String {
        let body = self.exporter.page().body(profile, format, false);
        String::from_utf8(body.to_vec()).expect("UTF-8")
    }

    pub(crate) fn series(&self, profile: Profile) -> BTreeMap<String, f64> {
        let text = self.text(profile, Format::Text);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| {
                let (series, value) = line.rsplit_once(' ').expect("a value");
                (series.to_owned(), value.parse().expect("a number"))
            })
            .collect()
    }

    pub(crate) fn value(&self, series: &str) -> Option<f64> {
        self.series(Profile::Full).get(series).copied()
    }

    /// Waits until the exposition contains this.
    #[track_caller]
    pub(crate) fn shows(&self, series: &str, value: f64) {
        let mut last = None;
        let shown = eventually(|| {
            last = self.value(series);
            last == Some(value)
        });
        assert!(
            shown,
            "{series}: {last:?}, never {value}\n{}",
            self.text(Profile::Full, Format::Text)
        );
    }
}

pub(crate) fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if holds() {
            return true;
        }
        thread::sleep(Duration::from_millis(50));
    }
    false
}
