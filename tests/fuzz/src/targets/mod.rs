//! Every fuzz target by name: libFuzzer's (`tests/fuzz/run`) and those of the quick test (`tests/fuzz.rs`) are the same.
//!
//! A target gets bytes and must return: no panic, no overflow, no endless loop. What it reads is used as the
//! program uses it, so that a graph that no tool would print reaches classification and lint too.

#![allow(clippy::expect_used)] // a test in all but name

mod analysis;
mod fabric;
pub(crate) mod files;
mod hosts;
mod identity;
mod machine;
mod sweep;
mod web;

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// As many bytes as a target is given.
pub(crate) const LONGEST: usize = 65_536;

/// What is done with the bytes.
pub(crate) type Run = fn(&[u8]);

/// Every target: the name of its folder of seeds, the function, and how many changed seeds the quick test tries.
pub(crate) const TARGETS: &[(&str, Run, usize)] = &[
    ("api", web::api, 300),
    ("collector-config", files::collector_config, 20),
    ("complaints", analysis::complaints, 50),
    ("exporter-web-config", hosts::web_config, 1000),
    ("exposition", hosts::exposition, 1000),
    ("file-sd", files::file_sd, 300),
    ("flight-recorder", files::flight_recorder, 1000),
    ("foreign-mapping", files::foreign_mapping, 300),
    ("foreign-page", files::foreign_page, 300),
    ("forwarding", fabric::forwarding, 1000),
    ("hwloc", |bytes| fabric::plan(bytes, "hwloc"), 1000),
    ("ibnetdiscover", fabric::ibnetdiscover, 100),
    ("ibdiagnet", |bytes| fabric::plan(bytes, "ibdiagnet"), 500),
    ("iblinkinfo", |bytes| fabric::plan(bytes, "iblinkinfo"), 500),
    ("identity", identity::identity, 500),
    ("incident-file", files::incident_file, 100),
    ("inspector", analysis::inspector, 50),
    ("job-log", files::job_log, 1000),
    ("kernel-log", hosts::kernel_log, 1000),
    ("lldp-frame", hosts::lldp_frame, 1000),
    ("lldp-json0", hosts::lldp_json0, 1000),
    (
        "lldp-neighbors",
        |bytes| fabric::plan(bytes, "lldp-neighbors"),
        1000,
    ),
    ("lldp-switch", fabric::lldp_switch, 1000),
    ("lldpctl", |bytes| fabric::plan(bytes, "lldpctl"), 1000),
    ("machine-files", machine::machine_files, 10),
    ("mad", sweep::mad, 300),
    ("maintenance", files::maintenance, 1000),
    ("metrics", |bytes| fabric::plan(bytes, "metrics"), 200),
    ("nccl", |bytes| fabric::plan(bytes, "nccl"), 1000),
    ("nccl-ras", files::nccl_ras, 1000),
    ("nccl-tests", files::nccl_tests, 1000),
    ("ndt", |bytes| fabric::plan(bytes, "ndt"), 500),
    ("net-dump", |bytes| fabric::plan(bytes, "net-dump"), 500),
    ("netlink", hosts::netlink, 1000),
    ("netq", |bytes| fabric::plan(bytes, "netq"), 1000),
    ("node-names", fabric::node_names, 1000),
    ("nvml-mock", hosts::nvml_mock, 500),
    ("otlp", web::otlp, 1000),
    ("own-page", analysis::own_page, 15),
    ("plan", |bytes| fabric::plan(bytes, "plan"), 1000),
    ("plan-toml", |bytes| fabric::plan(bytes, "plan-toml"), 1000),
    ("probe-list", hosts::probe_list, 1000),
    ("probe-packet", hosts::probe_packet, 1000),
    ("rdma-netlink", hosts::rdma_netlink, 1000),
    ("remote-write", web::remote_write, 1000),
    ("slurm", |bytes| fabric::plan(bytes, "slurm"), 1000),
    (
        "smi-nvlink",
        |bytes| fabric::plan(bytes, "smi-nvlink"),
        1000,
    ),
    ("smi-query", |bytes| fabric::plan(bytes, "smi-query"), 1000),
    ("smi-topo", |bytes| fabric::plan(bytes, "smi-topo"), 1000),
    ("state-file", files::state_file, 100),
    ("switch", |bytes| fabric::plan(bytes, "switch"), 1000),
    ("topograph", |bytes| fabric::plan(bytes, "topograph"), 1000),
    ("topology-file", fabric::any_file, 300),
];

/// Runs a target; returns this thread's processor time for it, independent of the machine's load.
pub(crate) fn timed(run: Run, bytes: &[u8]) -> Duration {
    let begun = processor_time();
    run(bytes);
    processor_time().saturating_sub(begun)
}

fn processor_time() -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(tv_sec.cast_unsigned(), tv_nsec as u32)
}
