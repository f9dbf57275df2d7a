//! What the exporter hears and reads on a host, and the text that it serves.

use railscope_exporter::WebSecurity;
use railscope_exporter::sources::kmsg::KernelLog;
use railscope_exporter::sources::lldp::{parse_frame, parse_json0};
use railscope_exporter::sources::netlink::Attributes;
use railscope_model::exposition::parse;

use crate::files::folder;

#[path = "../../../simulator/nvml-mock/src/state/mod.rs"]
#[allow(dead_code, unreachable_pub, missing_docs)]
mod state;

/// A page of any exporter.
pub(crate) fn exposition(bytes: &[u8]) {
    for line in parse(&String::from_utf8_lossy(bytes)) {
        match line {
            Ok(line) => assert!(!format!("{line:?}").is_empty()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// An LLDP frame from the wire.
pub(crate) fn lldp_frame(bytes: &[u8]) {
    parse_frame("eth0", bytes);
}

/// What `lldpctl -f json0` prints.
pub(crate) fn lldp_json0(bytes: &[u8]) {
    parse_json0(&String::from_utf8_lossy(bytes));
}

/// Attributes of an answer of the kernel, nested as deep as they say.
pub(crate) fn netlink(bytes: &[u8]) {
    if let Ok(attributes) = Attributes::whole(bytes) {
        walk(attributes, 8);
    }
}

fn walk(attributes: Attributes<'_>, depth: u8) {
    for attribute in attributes {
        attribute.number();
        attribute.first_long();
        attribute.text();
        if depth > 0
            && let Some(inside) = attribute.inside()
        {
            walk(inside, depth - 1);
        }
    }
}

/// Records of the kernel's log.
pub(crate) fn kernel_log(bytes: &[u8]) {
    let file = folder().join("kmsg");
    std::fs::write(&file, bytes).expect("a file");
    let mut log = KernelLog::new(&file);
    while let Ok(batch) = log.read() {
        if batch.at_end {
            break;
        }
    }
}

/// The exporter's web configuration.
pub(crate) fn web_config(bytes: &[u8]) {
    let file = folder().join("web.yml");
    std::fs::write(&file, bytes).expect("a file");
    if let Err(error) = WebSecurity::load(&file) {
        assert!(!error.to_string().is_empty());
    }
}

/// The file that the simulated NVML answers from.
pub(crate) fn nvml_mock(bytes: &[u8]) {
    state::NodeGpus::parse(&String::from_utf8_lossy(bytes));
}
