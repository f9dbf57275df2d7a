//! The input of the rules of `railscope check`: a reading and a setup, by label.

use std::collections::BTreeMap;

use railscope_model::metric::{DEPLOYMENT, GPU, Metric, NODE, PCIE_PATH, RDMA_PORT, SOURCE_STATUS};
use railscope_model::reading::{NodeReading, Sample, Status};

use super::ports::is_software;
use super::report::Node;
use super::survey::BadFile;
use crate::sources::kmsg::Unreadable;
use crate::sources::setup::Setup;

/// One node, read once.
pub struct View<'a> {
    reading: &'a NodeReading,
    pub(super) setup: &'a Setup,
    pub(super) asks_nvml: bool,
    pub(super) unreadable_line: Option<Unreadable>,
    pub(super) bad_files: Vec<BadFile>,
}

/// A sample whose labels are looked up by name.
pub(super) struct Series<'a>(&'a Sample);

impl<'a> Series<'a> {
    /// The value of a label of the metric's; empty for another name.
    pub(super) fn label(&self, name: &str) -> &'a str {
        let place = self.0.metric.labels.iter().position(|label| *label == name);
        let value = place.and_then(|place| self.0.labels.values().nth(place));
        value.unwrap_or_default()
    }

    pub(super) fn value(&self) -> f64 {
        self.0.value.as_f64()
    }
}

/// A GPU or NIC on the PCI bus.
pub(super) struct End<'a> {
    pub(super) pci: &'a str,
    pub(super) is_gpu: bool,
    /// GPU ordinal or RDMA device.
    pub(super) name: &'a str,
    pub(super) parent: &'a str,
    /// Empty where it is connected to no port.
    pub(super) root_port: &'a str,
    pub(super) numa_node: &'a str,
}

impl End<'_> {
    /// `GPU 3 (0000:1b:00.0)` or `mlx5_0 (0000:18:00.0)`.
    pub(super) fn part(&self) -> String {
        let kind = if self.is_gpu { "GPU " } else { "" };
        format!("{kind}{} ({})", self.name, self.pci)
    }
}

impl<'a> View<'a> {
    /// A reading of all sources, the setup of the same machine, and whether NVML was queried.
    pub fn new(reading: &'a NodeReading, setup: &'a Setup, asks_nvml: bool) -> Self {
        Self {
            reading,
            setup,
            asks_nvml,
            unreadable_line: None,
            bad_files: Vec::new(),
        }
    }

    /// With the files that kept sources from values.
    #[must_use]
    pub fn with_bad_files(self, bad_files: Vec<BadFile>) -> Self {
        Self { bad_files, ..self }
    }

    /// With the first line of the kernel log that could not be read.
    #[must_use]
    pub fn with_unreadable_line(self, unreadable_line: Option<Unreadable>) -> Self {
        Self {
            unreadable_line,
            ..self
        }
    }

    /// Whether something that a source read was not what it should be.
    pub(super) fn is_unparsed(&self, source: &str) -> bool {
        self.all(&SOURCE_STATUS).any(|status| {
            status.label("source") == source && status.label("status") == Status::Unparsed.as_str()
        })
    }

    /// All series of a metric.
    pub(super) fn all(&self, metric: &'static Metric) -> impl Iterator<Item = Series<'a>> {
        let samples = self.reading.samples().iter();
        samples
            .filter(move |sample| sample.metric == metric)
            .map(Series)
    }

    /// The value of the series with this first label, `pci` or `gpu`.
    pub(super) fn value(&self, metric: &'static Metric, first: &str) -> Option<f64> {
        let mut all = self.all(metric);
        let found = all.find(|series| series.0.labels.values().next() == Some(first));
        found.map(|series| series.value())
    }

    /// Values of a metric by GPU, grouped by the kind of the GPU: siblings are of one kind.
    pub(super) fn by_gpu_kind(
        &self,
        metric: &'static Metric,
    ) -> BTreeMap<&'a str, Vec<(&'a str, f64)>> {
        let mut kinds: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for gpu in self.all(&GPU) {
            let ordinal = gpu.label("gpu");
            if let Some(value) = self.value(metric, ordinal) {
                kinds
                    .entry(gpu.label("name"))
                    .or_default()
                    .push((ordinal, value));
            }
        }
        kinds
    }

    /// GPUs and NICs on the PCI bus.
    pub(super) fn ends(&self) -> Vec<End<'a>> {
        let paths = self.all(&PCIE_PATH).map(|path| {
            let end = End {
                pci: path.label("pci"),
                is_gpu: path.label("kind") == "gpu",
                name: path.label("name"),
                parent: path.label("parent"),
                root_port: path.label("root_port"),
                numa_node: path.label("numa_node"),
            };
            (path.label("kind"), end)
        });
        paths
            .filter(|(kind, _)| matches!(*kind, "gpu" | "nic"))
            .map(|(_, end)| end)
            .collect()
    }

    pub(super) fn is_virtual(&self) -> bool {
        self.all(&DEPLOYMENT)
            .any(|deployment| deployment.label("model") == "virtual_machine")
    }

    /// What the table is headed with.
    pub(super) fn node(&self) -> Node {
        let ends = self.ends();
        let deployment = self.all(&DEPLOYMENT).next();
        let word = |name| {
            let word = deployment.as_ref().map(|found| found.label(name));
            word.unwrap_or_default().to_owned()
        };
        Node {
            name: self
                .all(&NODE)
                .next()
                .map(|node| node.label("node").to_owned())
                .unwrap_or_default(),
            model: word("model"),
            hypervisor: word("hypervisor"),
            cloud: word("cloud"),
            container: word("container"),
            orchestrator: word("orchestrator"),
            gpus: ends.iter().filter(|end| end.is_gpu).count(),
            nics: ends.iter().filter(|end| !end.is_gpu).count(),
            software_ports: self.all(&RDMA_PORT).filter(is_software).count(),
        }
    }
}
