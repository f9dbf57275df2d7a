//! Every reader on small texts of our own: what it reads, and the error messages for what it refuses.

use super::*;

mod exports;
mod inside;
mod neighbors;
mod subnets;

fn document(file: &str, text: &str) -> Opened {
    read(file, text, None).unwrap_or_else(|errors| panic!("{file}: {}", errors[0]))
}

fn refused(text: &str, expected: &[&str]) {
    let errors = read("f", text, None).expect_err(text);
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors, expected, "{text}");
}

fn cables(opened: &Opened) -> Vec<String> {
    let Document::Cables(plan, _) = &opened.document else {
        panic!("{opened:?}");
    };
    let ends = plan
        .cables
        .iter()
        .map(|cable| format!("{} - {}", cable.ends[0], cable.ends[1]));
    ends.collect()
}

fn placement(text: &str) -> Placement {
    match document("f", text).document {
        Document::Placement(placement) => placement,
        other => panic!("{other:?}"),
    }
}

fn node(text: &str) -> NodeTopology {
    match document("f", text).document {
        Document::Nodes(mut nodes) if nodes.len() == 1 => nodes.remove(0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hostlist_stands_for_its_names_and_comes_back_short() {
    for (list, names) in [
        ("tux[0-2,12]", "tux0 tux1 tux2 tux12"),
        ("r[1-2]n[08-10]", "r1n08 r1n09 r1n10 r2n08 r2n09 r2n10"),
        ("a,b[1-2]-ib,c", "a b1-ib b2-ib c"),
        ("", ""),
    ] {
        assert_eq!(expand_hosts(list).expect(list).join(" "), names);
    }
    for (list, found) in [
        ("n[1-", "a closing bracket"),
        ("n1]", "an opening bracket before this one"),
        ("n[3-1]", "a range that runs upwards"),
        ("n[x]", "a number, or a range such as 0-3"),
        ("n[0-99999999]", "at most 262144 names in a file"),
        ("n[0-9999][0-9999]", "at most 262144 names in a file"),
        ("n[0-199999],m[0-199999]", "at most 262144 names in a file"),
        (
            &format!("{}[0-1]", "n".repeat(245)),
            "names of at most 253 bytes",
        ),
        (
            &format!("n[0-1]{}", "n".repeat(245)),
            "names of at most 253 bytes",
        ),
    ] {
        assert_eq!(expand_hosts(list).expect_err(list).1, found);
    }
    for (names, list) in [
        (vec!["n8", "n9", "n10", "n12"], "n[8-10,12]"),
        (vec!["n08", "n09", "n10", "login"], "login,n[08-10]"),
        (vec!["n1"], "n1"),
    ] {
        assert_eq!(compress_hosts(names.clone()), list);
        let mut back = expand_hosts(list).expect(list);
        back.sort();
        let mut names: Vec<_> = names.into_iter().map(str::to_owned).collect();
        names.sort();
        assert_eq!(back, names);
    }
}

#[test]
fn an_ndt_plan_is_read_by_its_columns_and_refused_by_line() {
    let text = "#StartDevice,StartPort,EndDevice,EndPort,LinkType\n\
                n1,n1 ibp11s0f0,leaf-1,Port 1, Data\n\
                leaf-1,Port 33,spine-1,Port 1,Data\n";
    let opened = document("f", text);
    assert_eq!(opened.format, Format::Ndt);
    assert_eq!(
        cables(&opened),
        [
            "nic/n1:ibp11s0f0 port 1 - switch/leaf-1 port 1",
            "switch/leaf-1 port 33 - switch/spine-1 port 1"
        ]
    );
    refused(
        "#StartDevice,StartPort,EndDevice,EndPort\nn1,n1 a,leaf-1,\n,n2 a,leaf-1,Port 2\n",
        &[
            "f:2: EndPort: found nothing, expected a name",
            "f:3: StartDevice: found nothing, expected a name",
        ],
    );
    refused(
        "#StartDevice,StartPort,EndDevice\n",
        &["f:1: header: found no column EndPort, expected StartDevice,StartPort,EndDevice,EndPort"],
    );
}

#[test]
fn the_own_plan_means_the_same_as_a_table_and_as_toml() {
    let table = "from,from_port,to,to_port,rail\nnic/n1:mlx5_0,1,switch/leaf-1,1,0\n";
    let toml = "[[cables]]\nfrom = \"nic/n1:mlx5_0\"\nfrom_port = 1\nto = \"switch/leaf-1\"\nto_port = 1\nrail = 0\n";
    let plan = |text: &str| match document("f", text).document {
        Document::Cables(plan, Told::Planned) => plan,
        other => panic!("{other:?}"),
    };
    assert_eq!(plan(table), plan(toml));
    let named = |text: &str| {
        text.replace("to_port = 1", "to_port = \"swp1s2\"")
            .replace(",1,0\n", ",swp1s2,0\n")
    };
    assert_eq!(plan(&named(table)), plan(&named(toml)));
    assert_eq!(
        plan(&named(toml)).cables[0].ends[1].to_string(),
        "switch/leaf-1 port swp1s2"
    );
    refused(
        &format!("{toml}\n{}", toml.replace("n1", "n2")),
        &[
            "f:8: to_port: found switch/leaf-1 port 1, which has a cable in line 2, expected a port without a cable",
        ],
    );
    refused(
        &toml.replace("rail = 0", "rial = 0"),
        &[
            "f:6: cables: found unknown field `rial`, expected [[cables]] with from, from_port, to, to_port and optional rail, plane, length_m, serial",
        ],
    );
}

#[test]
fn netq_tells_of_ports_by_name() {
    let text = r#"[{"nodes":[{"compounded_nodes":[
        {"id":"a","name":"leaf-1","device_type":"switch"},
        {"id":"b","name":"dgx-1","device_type":"discovered_via_lldp"}]}],
        "links":[{"compounded_links":[
        {"id":"1","interfaces":[{"node":"a","interface":"swp10s0"},{"node":"b","interface":"ens2"}]},
        {"id":"2","interfaces":[{"node":"a","interface":"swp9s0"},{"node":"b","interface":"ens1"}]},
        {"id":"3","interfaces":[{"node":"a","interface":"swp1"},{"node":"gone","interface":"ens1"}]}]}]}]"#;
    let opened = document("f", text);
    assert_eq!(
        cables(&opened),
        [
            "switch/leaf-1 port swp10s0 - nic/dgx-1:ens2 port 1",
            "switch/leaf-1 port swp9s0 - nic/dgx-1:ens1 port 1"
        ]
    );
    assert_eq!(
        opened.problems[0].to_string(),
        "f:0: interfaces: found 3, expected two, of devices among the nodes"
    );
    let domains = placement(
        r#"[{"Name":"node1","DomainUUID":"d","GpuIDList":[]},{"Name":"node2","DomainUUID":"d","GpuIDList":[]}]"#,
    );
    assert_eq!(
        (domains.blocks.len(), domains.blocks[0].nodes.len()),
        (1, 2)
    );
}

#[test]
fn lldp_of_a_host_and_of_a_switch_is_called_by_the_file() {
    let json = r#"{"lldp":{"interface":{"ens1":{"chassis":{"leaf-1":{"capability":{"type":"Bridge","enabled":true}}},
        "port":{"id":{"type":"ifname","value":"swp3"}}}}}}"#;
    assert_eq!(
        cables(&document("lldp/n7.json", json)),
        ["nic/n7:ens1 port 1 - switch/leaf-1 port swp3"]
    );
    let eos = "Interface Ethernet1 detected 1 LLDP neighbors:\n\n  Neighbor 0c/\"Ethernet9\", age 12 seconds\n  \
               - Port ID type: Interface name (5)\n    Port ID     : \"Ethernet9\"\n  - System Name: \"spine-2\"\n  \
               - System Capabilities : Bridge, Router\n    Port ID                : 0\n\nInterface Ethernet2 detected 0 LLDP neighbors:\n";
    assert_eq!(
        cables(&document("leaf-1.txt", eos)),
        ["switch/leaf-1 port Ethernet1 - switch/spine-2 port Ethernet9"]
    );
    let nxos = "Chassis id: 00\nPort id: 7\nLocal Port id: Eth1/2\nSystem Name: n7\nSystem Capabilities: S\n\n\
                Chassis id: 01\nPort id: 7\nLocal Port id: Eth1/3\nSystem Capabilities: B, R\n";
    let opened = document("leaf-1.txt", nxos);
    assert_eq!(
        cables(&opened),
        ["switch/leaf-1 port Ethernet1/2 - nic/n7:7 port 1"]
    );
    assert_eq!(
        opened.problems[0].to_string(),
        "leaf-1.txt:7: neighbor: found an unnamed neighbor of Ethernet1/3, expected a System Name and a port, without control characters"
    );
}

#[test]
fn slurms_tree_and_blocks_are_read_and_what_does_not_hold_together_is_said() {
    let tree = placement(
        "# a comment\nSwitchName=s0 Nodes=tux[0-3]\nswitchname=s1 nodes=tux[4-5],\\\ntux6\nSwitchName=top Switches=s[0-1] LinkSpeed=400\n",
    );
    assert_eq!(
        (tree.nodes().len(), tree.levels(), tree.roots()),
        (7, 2, vec!["top"])
    );
    assert_eq!(tree.defects(), ["x"; 0]);
    let blocks =
        placement("BlockName=b1 Nodes=n[1-18]\nBlockName=b2 Nodes=n[18-36]\nBlockSizes=18,36\n");
    assert_eq!(blocks.block_sizes, [18, 36]);
    assert_eq!(blocks.defects(), ["node n18 is in blocks b1 and b2"]);
    let broken = placement("SwitchName=s0 Nodes=a,b\nSwitchName=s1 Nodes=b Switches=s9\n");
    assert_eq!(
        broken.defects(),
        [
            "switch s9 stands below another and is nowhere described",
            "node b is behind s0 and s1",
            "2 switches at the top that nothing joins: s0, s1",
        ]
    );
    refused(
        "SwitchName=s0 Nodes=tux[0-\nSwitchName=s0 Node=a\nSwitchName=s1\nSwitchName=s1\n",
        &[
            "f:1: Nodes: found tux[0-, expected a closing bracket",
            "f:2: Node: found Node=a, expected SwitchName with Nodes or Switches, or BlockName with Nodes, or BlockSizes",
            "f:4: SwitchName: found s1 a second time, expected a unique name",
        ],
    );
}

#[test]
fn a_topograph_model_is_read_from_yaml_and_json() {
    let yaml = "switches:\n  core:\n    switches: [leaf]\n  leaf:\n    metadata:\n      group: cb1\n    nodes: [\"n[1-2]\", n3]\n\
                capacity_blocks:\n  cb1:\n    nodes: [\"n[1-2]\"]\nnodes:\n  n3:\n    capacity_block: cb2\n";
    let json = r#"{"switches":{"core":{"switches":["leaf"]},"leaf":{"nodes":["n[1-3]"]}},
        "capacity_blocks":{"cb1":{"nodes":["n1","n2"]},"cb2":{"nodes":["n3"]}}}"#;
    assert_eq!(placement(yaml), placement(json));
    assert_eq!(placement(yaml).levels(), 2);
    refused(
        "switches:\n  leaf:\n    nodes: n1\n    ports: 3\n",
        &[
            "f:3: nodes: found no list, expected a list of names",
            "f:4: ports: found this key, expected switches, nodes or metadata",
        ],
    );
}

const NCCL: &str = r#"<system version="1">
  <cpu numaid="0">
    <pci busid="ffff:ff:01.0" class="0x060400">
      <pci busid="0001:00:00.0" class="0x030200"><gpu dev="0"><nvlink target="0002:00:00.0" count="4" tclass="0x030200"/></gpu></pci>
      <pci busid="0101:00:00.0" class="0x020700"><nic><net name="mlx5_0" gdr="1"/></nic></pci>
    </pci>
    <nic><net name="eth0" gdr="0"/></nic>
  </cpu>
  <cpu numaid="1">
    <pci busid="ffff:ff:02.0" class="0x060400">
      <pci busid="ffff:ff:03.0" class="0x060400">
        <pci busid="0002:00:00.0" class="0x030200"><gpu dev="1"><nvlink target="0001:00:00.0" count="4" tclass="0x030200"/></gpu></pci>
      </pci>
      <pci busid="0102:00:00.0" class="0x020700"><nic><net name="mlx5_1" gdr="1"/></nic></pci>
    </pci>
  </cpu>
</system>"#;

#[test]
fn few_bytes_of_a_placement_never_take_much_memory_or_stack() {
    let lines = "SwitchName=a Nodes=n[0-199999]\nSwitchName=b Nodes=m[0-199999]\n";
    refused(
        lines,
        &["f:2: Nodes: found 0-199999, expected at most 262144 names in a file"],
    );
    refused(
        &format!("switches:\n  {}", "- ".repeat(30_000)),
        &["f:2: text: found too much nesting, expected at most 64 levels"],
    );
    // A node that is in its block already is found without a walk over all others.
    let model = "capacity_blocks:\n  a:\n    nodes: ['n[0-199999]', 'n[0-9]']\n";
    assert_eq!(placement(model).blocks[0].nodes.len(), 200_000);
}

#[test]
fn a_node_of_a_text_has_no_more_than_a_node_can_have() {
    let deep = "<pci class=\"0x06\">".repeat(3_000);
    for (text, expected) in [
        (
            format!(
                "<system version=\"1\"><cpu>{deep}{}</cpu></system>",
                "</pci>".repeat(3_000)
            ),
            "f:1: text: found too much nesting, expected at most 64 levels",
        ),
        (
            format!(
                "<system version=\"1\"><cpu>{}</cpu></system>",
                "<pci class=\"0x03\"/>".repeat(600)
            ),
            "f:1: text: found 600 GPUs and 0 NICs, expected at most 512 of each in a node",
        ),
        (
            format!("\tGPU0{}\tCPU Affinity\n", "\tmlx5_0".repeat(600)),
            "f:1: text: found 1 GPUs and 600 NICs, expected at most 512 of each in a node",
        ),
    ] {
        refused(&text, &[expected]);
    }
    let links = "<nvlink target=\"x\" count=\"65535\" tclass=\"0x06\"/>".repeat(2);
    let text = format!(
        "<system version=\"1\"><cpu><pci busid=\"0000:1b:00.0\" class=\"0x030200\"><gpu>{links}</gpu></pci></cpu></system>"
    );
    assert_eq!(node(&text).links_of(0), u16::MAX);
    let matrix = "\tGPU0\tGPU1\tGPU2\tCPU Affinity\nGPU0\tX\tNV65535\tNV65535\nGPU1\tX\tX\tX\nGPU2\tX\tX\tX\n";
    assert_eq!(node(matrix).links_of(0), u16::MAX);
}

#[test]
fn nccls_topology_says_which_nic_is_nearest_to_which_gpu() {
    let node = node(NCCL);
    assert_eq!(
        node.verdict(),
        "each GPU has its own NIC, reached without the CPU (PXB)"
    );
    assert_eq!(node.nearest(0), Some((Distance::Pix, vec![0])));
    assert_eq!(node.nearest(1), Some((Distance::Pxb, vec![1])));
    assert_eq!(node.distances[&(0, 1)], Distance::Sys);
    assert_eq!((node.links_of(0), node.gpus[1].numa), (4, Some(1)));
    let errors = read("f", "<graphs version=\"1\"/>", None).expect_err("no topology");
    assert!(errors[0].found.starts_with("NCCL's graph"), "{}", errors[0]);
}

#[test]
fn the_matrix_of_nvidia_smi_is_read_amid_other_text() {
    let text = "some log\n\t\u{1b}[4mGPU0\tGPU1\tGPU2\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\u{1b}[0m\n\
                GPU0\t X \tNV18\tNV18\tPIX\tSYS\t0-23\t0\t\tN/A\n\
                GPU1\tNV18\t X \tNV18\tSYS\tPIX\t24-47\t1\t\tN/A\n\
                GPU2\tNV18\tNV18\t X \tSYS\tPXB\t24-47\t1\t\tN/A\n\
                NIC0\tPIX\tSYS\tSYS\t X \tSYS\n\
                NIC1\tSYS\tPIX\tPXB\tSYS\t X \n\nLegend:\n  NV#  = links\nNIC Legend:\n\n  NIC0: mlx5_4\n  NIC1: mlx5_7\n";
    let node = node(text);
    assert_eq!(
        node.affinity(),
        [
            (Some(Distance::Pix), vec!["mlx5_4"]),
            (Some(Distance::Pix), vec!["mlx5_7"]),
            (Some(Distance::Pxb), vec!["mlx5_7"]),
        ]
    );
    assert_eq!((node.links_of(1), node.gpus[2].numa), (18, Some(1)));
    let short = document(
        "f",
        &text
            .replace("NIC1\tSYS", "NICX\tSYS")
            .replace("PXB\t24", "PXY\t24"),
    );
    let problems: Vec<_> = short.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "f:5: NIC1: found PXY, expected X, NV with a number, PIX, PXB, PHB, NODE or SYS",
            "f:2: table: found 4 rows under 5 columns, expected a row for each column",
        ]
    );
}

#[test]
fn what_is_no_topology_is_refused_by_what_it_is() {
    for (text, found) in [
        ("", "f:1: text: found an empty file, expected a fabric"),
        ("hello\n", "f:1: text: found hello, expected a fabric"),
        ("<nvidia_smi_log/>", "f:1: gpu: found no GPU"),
        ("{\"a\":1}", "f:1: text: found {\"a\":1}, expected a fabric"),
        (
            "Port  Neighbor Device ID\n",
            "f:1: text: found the short list of LLDP neighbors",
        ),
    ] {
        let errors = read("f", text, None).expect_err(text);
        assert!(errors[0].to_string().starts_with(found), "{}", errors[0]);
    }
    assert_eq!("plan".parse(), Ok(Format::Plan));
    assert!("plans".parse::<Format>().is_err());
}
