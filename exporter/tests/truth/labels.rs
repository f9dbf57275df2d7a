//! Which file each label of an info series is from, and what its text comes to as a label.

use std::fs;
use std::path::Path;

use railscope_model::reading::Sample;

/// A label's value as exported, the file below `sys` that it is from, and the value of that text.
pub(super) struct Said {
    pub(super) label: String,
    pub(super) file: String,
    pub(super) expected: String,
}

/// A family, the place of a label, its file with the labels before it, and what the file's text comes to.
type Row = (&'static str, usize, &'static str, fn(&str) -> String);

/// Labels of info series that are the text of a file. Names of devices and PCI addresses are of the tree's shape.
const TEXTS: &[Row] = &[
    ("rdma_port_info", 4, "class/infiniband/{0}/node_guid", guid),
    (
        "rdma_port_info",
        5,
        "class/infiniband/{0}/ports/{1}/gids/0",
        lower_half,
    ),
    (
        "rdma_port_info",
        6,
        "class/infiniband/{0}/ports/{1}/link_layer",
        plain,
    ),
    (
        "rdma_port_info",
        8,
        "class/infiniband/{0}/device/numa_node",
        node,
    ),
    (
        "rdma_device_info",
        1,
        "class/infiniband/{0}/board_id",
        plain,
    ),
    ("rdma_device_info", 2, "class/infiniband/{0}/fw_ver", plain),
    (
        "rdma_device_info",
        3,
        "class/infiniband/{0}/hca_type",
        plain,
    ),
    (
        "rdma_port_address_info",
        2,
        "class/infiniband/{0}/ports/{1}/lid",
        from_hex,
    ),
    (
        "rdma_port_address_info",
        3,
        "class/infiniband/{0}/ports/{1}/sm_lid",
        from_hex,
    ),
    ("pcie_path_info", 5, "bus/pci/devices/{0}/numa_node", node),
    ("nic_info", 4, "class/net/{0}/device/numa_node", node),
    ("node_info", 0, "../proc/sys/kernel/hostname", plain),
    ("node_info", 1, "../proc/sys/kernel/osrelease", plain),
    ("node_info", 3, "class/dmi/id/sys_vendor", plain),
    ("node_info", 4, "class/dmi/id/product_name", plain),
];

fn plain(text: &str) -> String {
    text.to_owned()
}

/// `-1` is no node.
fn node(text: &str) -> String {
    text.replace("-1", "")
}

fn guid(text: &str) -> String {
    format!("0x{}", text.replace(':', ""))
}

fn lower_half(gid: &str) -> String {
    let groups: Vec<_> = gid.split(':').skip(4).collect();
    format!("0x{}", groups.concat())
}

fn from_hex(text: &str) -> String {
    let digits = text.strip_prefix("0x").expect("a prefix");
    u32::from_str_radix(digits, 16)
        .expect("a number")
        .to_string()
}

/// The labels of one sample from files. If a file is missing, the label must be empty.
pub(super) fn said(sample: &Sample, sys: &Path) -> Vec<Said> {
    let labels: Vec<_> = sample.labels.values().collect();
    let name = sample.metric.name.strip_prefix("railscope_").expect("ours");
    let rows = TEXTS.iter().filter(|(family, ..)| *family == name);
    rows.map(|(_, place, file, expected)| {
        let file = file.replace("{0}", labels[0]);
        let file = labels
            .get(1)
            .map_or(file.clone(), |label| file.replace("{1}", label));
        let text = fs::read_to_string(sys.join(&file)).unwrap_or_default();
        let text = text.trim();
        let unset = text.is_empty() || text.ends_with(":0000:0000:0000:0000");
        Said {
            label: labels[*place].to_owned(),
            expected: if unset { String::new() } else { expected(text) },
            file,
        }
    })
    .collect()
}
