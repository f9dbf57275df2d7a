//! No bytes make a reader of topology files panic, and what is damaged is either read or refused with its place.

use proptest::prelude::*;
use railscope_collector::fabric::lint::lint;
use railscope_collector::fabric::plans::{
    Format, Placement, Site, compress_hosts, expand_hosts, export, read,
};

/// A text of every format, to damage.
const SEEDS: [&str; 11] = [
    "from,from_port,to,to_port,rail\nnic/n1:mlx5_0,1,switch/leaf-1,1,0\nswitch/leaf-1,33,switch/spine,swp1s2,\n",
    "[[cables]]\nfrom = \"nic/n1:mlx5_0\"\nfrom_port = 1\nto = \"switch/leaf-1\"\nto_port = 1\n",
    "#StartDevice,StartPort,EndDevice,EndPort,LinkType\nn1,n1 ibp11s0f0,leaf-1,Port 1, Data\n\"a\"\"b\",x,leaf-1,Port 2\n",
    "SwitchName=s0 Nodes=tux[0-3,07-09]\nSwitchName=s1 Switches=s[0-0]\nBlockName=b Nodes=tux0\nBlockSizes=1,2\n",
    "switches:\n  core:\n    switches: [leaf]\n  leaf:\n    nodes: [\"n[1-2]\", n3]\ncapacity_blocks:\n  cb1:\n    nodes: [n1]\n",
    "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0001:00:00.0\" class=\"0x030200\"><gpu dev=\"0\"><nvlink target=\"0001:00:00.0\" count=\"4\"/></gpu></pci><pci busid=\"0101:00:00.0\" class=\"0x020700\"/></cpu></system>",
    "<topology version=\"2.0\"><object type=\"Package\"><object type=\"Bridge\" bridge_type=\"0-1\"><object type=\"PCIDev\" pci_busid=\"0000:34:00.0\" pci_type=\"0302 [10de:1db8] a1\"/></object></object></topology>",
    "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV18\tPIX\t0-23\t0\nGPU1\tNV18\t X \tSYS\t24-47\t1\nNIC0\tPIX\tSYS\t X \n\n  NIC0: mlx5_4\n",
    "GPU 0: NVIDIA A100\n\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n",
    "[{\"nodes\":[{\"compounded_nodes\":[{\"id\":\"a\",\"name\":\"leaf\",\"device_type\":\"switch\"},{\"id\":\"b\",\"name\":\"n1\"}]}],\"links\":[{\"compounded_links\":[{\"id\":\"1\",\"interfaces\":[{\"node\":\"a\",\"interface\":\"swp1\"},{\"node\":\"b\",\"interface\":\"e1\"}]}]}]}]",
    "Interface Ethernet1 detected 1 LLDP neighbors:\n\n  Neighbor 0c/\"E9\", age 12 seconds\n    Port ID     : \"E9\"\n  - System Name: \"spine-2\"\n  - System Capabilities : Bridge, Router\n",
];

/// Reads a text as every format, and processes the result further.
fn try_all(text: &str) {
    let formats = Format::names().map(|name| name.parse().ok());
    for format in formats.chain([None]) {
        match read("f", text, format) {
            Ok(opened) => {
                for problem in &opened.problems {
                    assert!(!problem.expected.is_empty());
                }
                let site = Site::of(vec![opened]);
                if let Some(verdict) = &site.verdict {
                    lint(&site.fabric, verdict, site.plan.as_ref());
                    export::slurm_tree(&Placement::of(&site.fabric));
                    export::graphml(&site.fabric);
                }
                for (_, placement) in &site.placements {
                    assert!(placement.to_string().ends_with('\n'));
                    export::node_labels(placement);
                }
                for (_, node) in &site.nodes {
                    assert!(!node.to_string().is_empty());
                }
            }
            Err(errors) => {
                assert!(!errors.is_empty() && errors.iter().all(|error| error.file == "f"));
            }
        }
    }
}

/// A seed with some bytes changed, taken out, put in twice.
fn damaged() -> impl Strategy<Value = String> {
    let edit = (
        any::<prop::sample::Index>(),
        0..4u8,
        any::<u8>(),
        1..20usize,
    );
    (0..SEEDS.len(), prop::collection::vec(edit, 1..6)).prop_map(|(seed, edits)| {
        let mut bytes = SEEDS[seed].as_bytes().to_vec();
        for (at, kind, byte, length) in edits {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            let end = (at + length).min(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, b"\t\n,:=[]{}<>\"'#-0129aZ\\ "[usize::from(byte) % 23]),
                2 => drop(bytes.drain(at..end)),
                _ => {
                    let copy = bytes[at..end].to_vec();
                    bytes.splice(at..at, copy);
                }
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

proptest! {
    #[test]
    fn damaged_files_are_read_or_refused(text in damaged()) {
        try_all(&text);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        try_all(&text);
    }

    #[test]
    fn a_compressed_hostlist_stands_for_the_same_names(names in prop::collection::btree_set("[a-c]{1,2}-?[0-9]{0,4}[a-z]?", 1..40)) {
        let list = compress_hosts(names.iter().map(String::as_str));
        let back: std::collections::BTreeSet<String> = expand_hosts(&list).expect("a hostlist").into_iter().collect();
        prop_assert_eq!(back, names, "{}", list);
    }
}
