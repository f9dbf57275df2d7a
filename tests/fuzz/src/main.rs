//! One program with every fuzz target; the environment variable `FUZZ_TARGET` says which, `list` prints them all.
//!
//! A target gets bytes and must come back: no panic, no overflow, no endless loop. What it reads is used as the
//! program uses it, so that a graph that no tool would print meets the verdict and the lint too.

#![no_main]

mod files;
mod fabric;
mod hosts;
mod sweep;
mod web;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

/// What is done with the bytes.
type Target = fn(&[u8]);

/// Every target by name, the name of its folder of seeds.
const TARGETS: &[(&str, Target)] = &[
    ("api", web::api),
    ("collector-config", files::collector_config),
    ("exporter-web-config", hosts::web_config),
    ("exposition", hosts::exposition),
    ("file-sd", files::file_sd),
    ("flight-recorder", files::flight_recorder),
    ("foreign-mapping", files::foreign_mapping),
    ("foreign-page", files::foreign_page),
    ("hwloc", |bytes| fabric::plan(bytes, "hwloc")),
    ("ibnetdiscover", fabric::ibnetdiscover),
    ("kernel-log", hosts::kernel_log),
    ("lldp-frame", hosts::lldp_frame),
    ("lldp-json0", hosts::lldp_json0),
    ("lldp-neighbors", |bytes| fabric::plan(bytes, "lldp-neighbors")),
    ("lldp-switch", fabric::lldp_switch),
    ("lldpctl", |bytes| fabric::plan(bytes, "lldpctl")),
    ("mad", sweep::mad),
    ("maintenance", files::maintenance),
    ("nccl", |bytes| fabric::plan(bytes, "nccl")),
    ("nccl-tests", files::nccl_tests),
    ("ndt", |bytes| fabric::plan(bytes, "ndt")),
    ("netlink", hosts::netlink),
    ("netq", |bytes| fabric::plan(bytes, "netq")),
    ("nvml-mock", hosts::nvml_mock),
    ("plan", |bytes| fabric::plan(bytes, "plan")),
    ("plan-toml", |bytes| fabric::plan(bytes, "plan-toml")),
    ("slurm", |bytes| fabric::plan(bytes, "slurm")),
    ("smi-nvlink", |bytes| fabric::plan(bytes, "smi-nvlink")),
    ("smi-topo", |bytes| fabric::plan(bytes, "smi-topo")),
    ("state-file", files::state_file),
    ("topograph", |bytes| fabric::plan(bytes, "topograph")),
    ("topology-file", fabric::any_file),
];

/// The chosen target; prints the names and ends where there is none.
fn chosen() -> Target {
    let wanted = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(name, _)| *name == wanted);
    found.map_or_else(
        || {
            TARGETS.iter().for_each(|(name, _)| println!("{name}"));
            std::process::exit(i32::from(wanted != "list"))
        },
        |(_, target)| *target,
    )
}

static TARGET: OnceLock<Target> = OnceLock::new();

fuzz_target!(|bytes: &[u8]| {
    TARGET.get_or_init(chosen)(bytes);
});
