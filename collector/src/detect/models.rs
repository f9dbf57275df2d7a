//! Models of devices: what one device of a model reaches, the others can, and no device of another model need.

use std::collections::BTreeMap;

use railscope_model::label;
use railscope_model::metric::{GPU, Label, Metric, RDMA_DEVICE};

use crate::store::NodeHistory;

/// The models of a node's GPUs, by number, and of its RDMA devices, by name.
#[derive(Debug)]
pub(crate) struct Models<'a> {
    gpus: BTreeMap<&'a str, &'a str>,
    nics: BTreeMap<&'a str, &'a str>,
}

impl<'a> Models<'a> {
    pub(crate) fn of(history: &'a NodeHistory) -> Self {
        let by = |metric: &'static Metric, device: Label, model: Label| {
            let series = history.series(metric);
            let pairs =
                series.filter_map(|(labels, _)| Some((labels.get(device)?, labels.get(model)?)));
            pairs.collect()
        };
        Self {
            gpus: by(&GPU, label!(GPU, "gpu"), label!(GPU, "name")),
            nics: by(
                &RDMA_DEVICE,
                label!(RDMA_DEVICE, "device"),
                label!(RDMA_DEVICE, "board"),
            ),
        }
    }

    /// Product name of a GPU; empty where no exporter reports it.
    pub(crate) fn gpu(&self, gpu: &str) -> &'a str {
        self.gpus.get(gpu).copied().unwrap_or_default()
    }

    /// Board of an RDMA device; empty where no exporter reports it.
    pub(crate) fn nic(&self, device: &str) -> &'a str {
        self.nics.get(device).copied().unwrap_or_default()
    }
}
