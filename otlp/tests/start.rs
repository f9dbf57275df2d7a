//! Starting pipelines: settings from variables, a service, an exposition, an incident.

use std::time::{Duration, SystemTime};

use railscope_otlp::{Incident, Otlp, Service, Settings, Severity, Table};
use tokio::runtime::Handle;

/// Settings from variables alone.
pub(crate) fn settings(variables: &[(&str, &str)]) -> Settings {
    let variable = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Settings::resolve(&Table::default(), &variable).expect("valid settings")
}

/// Pipelines with settings from variables.
pub(crate) fn start(variables: &[(&str, &str)]) -> Otlp {
    let service = Service {
        name: "railscope-collector".to_owned(),
        version: "1.2.3".to_owned(),
        instance: "a:9401".to_owned(),
        host: "a".to_owned(),
    };
    Otlp::start(&settings(variables), &service, &Handle::current()).expect("pipelines")
}

/// An instant, in seconds since 1970.
pub(crate) fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

pub(crate) fn incident(id: &str) -> Incident {
    Incident {
        id: id.to_owned(),
        cluster: "east".to_owned(),
        component: "cable leaf1/3 node7/mlx5_0".to_owned(),
        far_end: None,
        alternatives: Vec::new(),
        related: vec!["node7/mlx5_0/1".to_owned()],
        class: "bad-cable".to_owned(),
        severity: Severity::Critical,
        posterior: 0.93,
        runbook: "https://example.org/bad-cable".to_owned(),
        summary: "Symbol errors on one cable".to_owned(),
        since: at(1_700_000_000),
        victims: 4,
        gpus: 64,
        jobs: 1,
        is_suppressed: false,
    }
}

pub(crate) const EXPOSITION: &str = "\
# TYPE railscope_gpu_power_watts gauge
railscope_gpu_power_watts{gpu=\"0\"} 71.5
# TYPE railscope_rdma_port_transmit_bytes_total counter
railscope_rdma_port_transmit_bytes_total{device=\"mlx5_0\",port=\"1\"} 1000
# TYPE railscope_rdma_port_receive_bytes_total counter
railscope_rdma_port_receive_bytes_total{device=\"mlx5_0\",port=\"1\"} 2000
# TYPE railscope_gpu_power_limit_watts gauge
railscope_gpu_power_limit_watts{gpu=\"0\"} 700
";
