//! `railscope check`: what this node should give, what it gives, and how to repair the difference.
//!
//! [`run`] reads the machine once, as the exporter does, and [`judge`] compares it with [`RULES`]. Nothing
//! is compared with a list of products: a part is compared with its own maximum or with its siblings.

mod gpus;
mod lost;
mod paths;
mod ports;
mod report;
mod survey;
mod view;

pub use report::{Report, Row, Verdict};
pub use survey::BadFile;
pub use view::View;

use crate::sampler::Machine;
use crate::sources::kmsg::KernelLog;
use report::Out;
use survey::Survey;

/// One question to a node.
pub struct Rule {
    /// Its name in the table.
    pub name: &'static str,
    /// The components that it checks, in the plural.
    pub parts: &'static str,
    /// The condition that it checks.
    pub question: &'static str,
    check: fn(&View<'_>, &mut Out),
}

const fn rule(
    name: &'static str,
    parts: &'static str,
    question: &'static str,
    check: fn(&View<'_>, &mut Out),
) -> Rule {
    Rule {
        name,
        parts,
        question,
        check,
    }
}

/// Every question, in the order of the table.
pub const RULES: &[Rule] = &[
    rule(
        "gpu-driver",
        "GPUs",
        "does NVML answer for every GPU on the PCI bus?",
        lost::driver,
    ),
    rule(
        "nvlink",
        "GPUs",
        "are as many NVLinks up as on the GPU's siblings?",
        gpus::nvlink,
    ),
    rule(
        "power-limit",
        "GPUs",
        "is the power limit that of the GPU's siblings?",
        gpus::power_limit,
    ),
    rule(
        "gpu-firmware",
        "GPUs",
        "do GPUs of one kind have one VBIOS?",
        gpus::firmware,
    ),
    rule(
        "pcie-width",
        "links",
        "does every GPU and NIC run at its full PCIe width?",
        paths::width,
    ),
    rule(
        "pcie-speed",
        "links",
        "does it run at its full PCIe speed, a GPU under load only?",
        paths::speed,
    ),
    rule(
        "gpu-nic-distance",
        "GPUs",
        "is the nearest NIC as near as that of the GPU's siblings?",
        paths::distance,
    ),
    rule(
        "numa-node",
        "functions",
        "is the NUMA node of every GPU and NIC known?",
        paths::numa_node,
    ),
    rule(
        "acs",
        "switch ports",
        "does traffic between GPU and NIC stay below their PCIe switch?",
        paths::acs,
    ),
    rule(
        "iommu",
        "functions",
        "do GPUs and NICs reach memory without address translation?",
        paths::iommu,
    ),
    rule(
        "max-read-request",
        "NICs",
        "may every NIC read 4096 bytes at once?",
        paths::max_read_request,
    ),
    rule(
        "gpudirect",
        "drivers",
        "can NICs reach GPU memory without the CPU?",
        paths::gpudirect,
    ),
    rule(
        "port-state",
        "ports",
        "is every RDMA port active?",
        ports::state,
    ),
    rule(
        "port-rate",
        "ports",
        "does every port run at the rate of its siblings?",
        ports::rate,
    ),
    rule(
        "roce-mtu",
        "ports",
        "do frames of RoCE ports hold an RDMA packet of 4096 bytes?",
        ports::mtu,
    ),
    rule(
        "nic-firmware",
        "NICs",
        "do NICs of one kind have one firmware?",
        ports::firmware,
    ),
    rule(
        "saturated-counters",
        "ports",
        "do all error counters still count?",
        ports::saturated,
    ),
    rule(
        "unreadable",
        "sources",
        "could everything that is there be read?",
        ports::unreadable,
    ),
];

/// Reads the machine once and evaluates it. A source that blocks is a finding with the file that it
/// reads: after a few seconds the report comes without its values.
pub fn run(machine: &Machine) -> Report {
    let Survey {
        reading,
        setup,
        bad_files,
    } = Survey::of(machine);
    let view = View::new(&reading, &setup, machine.nvml.is_some());
    // The reading reports that there is such a line; which one, the log reports.
    let kmsg = machine.kmsg.as_deref();
    let kmsg = kmsg.filter(|_| view.is_unparsed("kernel_log"));
    let unreadable = kmsg.and_then(KernelLog::first_unreadable_of);
    judge(
        &view
            .with_bad_files(bad_files)
            .with_unreadable_line(unreadable),
    )
}

/// Compares what was read with [`RULES`]. Pure: the same view gives the same report.
pub fn judge(view: &View<'_>) -> Report {
    let mut report = Report::new(view.node());
    for rule in RULES {
        let mut out = Out::default();
        (rule.check)(view, &mut out);
        report.add(rule, out);
    }
    report
}
