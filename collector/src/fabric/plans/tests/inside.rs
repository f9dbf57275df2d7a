//! The inside of nodes: GPUs that differ are reported, hosts are separate, ports that are not NICs are not counted.

use super::super::Site;
use super::*;

/// `topo -m` of eight GPUs with NVSwitches and a NIC each; `cell` can override a cell.
fn matrix(cell: impl Fn(usize, usize) -> Option<&'static str>) -> String {
    let names: Vec<String> = (0..8)
        .map(|gpu| format!("GPU{gpu}"))
        .chain((0..8).map(|nic| format!("NIC{nic}")))
        .collect();
    let mut text = format!("\t{}\tCPU Affinity\tNUMA Affinity\n", names.join("\t"));
    for (row, name) in names.iter().enumerate() {
        let cells = (0..16).map(|column| {
            let usual = match (row, column) {
                (a, b) if a == b => "X",
                (a, b) if a < 8 && b < 8 => "NV18",
                (a, b) if a % 8 == b % 8 => "PIX",
                _ => "SYS",
            };
            cell(row, column).unwrap_or(usual)
        });
        let cells: Vec<&str> = cells.collect();
        text += &format!("{name}\t{}\t0-55\t0\n", cells.join("\t"));
    }
    text
}

#[test]
fn a_gpu_without_nvlink_is_reported_and_does_not_affect_the_others() {
    let is_off = |row: usize, column: usize| {
        row < 8 && column < 8 && row != column && (row == 3 || column == 3)
    };
    let text = matrix(|row, column| is_off(row, column).then_some("NODE"));
    let node = node(&text);
    assert_eq!(
        (0..8).map(|gpu| node.links_of(gpu)).collect::<Vec<_>>(),
        [18, 18, 18, 0, 18, 18, 18, 18]
    );
    assert!(
        node.findings()[0].starts_with("GPU3 has none of the 18 NVLinks"),
        "{:?}",
        node.findings()
    );
    let text = node.to_string();
    assert!(
        text.contains("nvlink     18 at most GPUs, 0 at GPU3"),
        "{text}"
    );
    let fewer = super::node(&matrix(|row, column| is_off(row, column).then_some("NV17")));
    assert_eq!(
        fewer.findings(),
        ["GPU3 has 17 NVLinks; the other GPUs have 18"]
    );
    let healthy = super::node(&matrix(|_, _| None));
    assert_eq!(healthy.findings(), ["x"; 0]);
}

#[test]
fn six_links_to_each_of_three_gpus_are_a_mesh() {
    let text = "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\nGPU0\tX\tNV6\tNV6\tNV6\t0\nGPU1\tNV6\tX\tNV6\tNV6\t0\n\
                GPU2\tNV6\tNV6\tX\tNV6\t0\nGPU3\tNV6\tNV6\tNV6\tX\t0\n";
    assert_eq!(node(text).links_of(2), 18);
}

#[test]
fn inactive_links_are_a_fault_of_boards_with_nvswitches_only() {
    let text = |model: &str| {
        format!(
            "$ nvidia-smi nvlink --status\nGPU 6: NVIDIA {model} (UUID: GPU-1)\nNVML: Unable to retrieve NVLink information as all links are inactive\n"
        )
    };
    let opened = document("f", &text("A100-SXM4-80GB"));
    assert_eq!(opened.problems, []);
    let board = node(&text("A100-SXM4-80GB"));
    assert_eq!(
        board.verdict(),
        "no active NVLink at 1 GPU, no data about NICs"
    );
    assert!(
        board.findings()[0].starts_with("all NVLinks of GPU6 are inactive: "),
        "{:?}",
        board.findings()
    );
    for card in ["A100 80GB PCIe", "H100 NVL", "GeForce RTX 3090"] {
        assert_eq!(node(&text(card)).findings(), [""; 0], "{card}");
    }
}

#[test]
fn errors_of_nvlinks_are_reported_by_link() {
    let text = "GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 0: Replay Errors: 0\n\t Link 0: Recovery Errors: 0\n\n\t Link 17: Replay Errors: 12\n\
                \t Link 17: CRC Errors: 3\n\t Link 17: Effective BER: 15e-255\n";
    assert_eq!(document("f", text).problems, []);
    let errors = node(text);
    assert_eq!(
        errors.verdict(),
        "NVLink error counters of 1 GPU, no data about NICs"
    );
    assert_eq!(
        errors.findings(),
        [
            "GPU3 has NVLink errors (link 17: 12 Replay Errors, 3 CRC Errors): if they grow, check Xid 74 in the kernel log and reset the GPU"
        ]
    );
    // Links and errors in one session, the links twice.
    let links = "GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n";
    let both = node(&format!("{links}{links}{text}"));
    assert_eq!((both.gpus.len(), both.links_of(0)), (1, 1));
    assert_eq!(both.findings(), errors.findings());
    assert_eq!(
        node(&text.replace("12", "0").replace(": 3\n", ": 0\n")).findings(),
        [""; 0]
    );
}

#[test]
fn missing_rows_are_not_counted_as_nics() {
    let whole = matrix(|_, _| None);
    let lines: Vec<&str> = whole
        .lines()
        .filter(|line| !line.starts_with("GPU6") && !line.starts_with("GPU7"))
        .collect();
    let opened = document("f", &lines.join("\n"));
    let Document::Nodes(nodes) = &opened.document else {
        panic!("{opened:?}")
    };
    assert_eq!(
        nodes[0].verdict(),
        "6 of 8 GPUs (no data for GPU6, GPU7): each GPU has its own NIC, reached without the CPU (PIX); 2 NICs are not the nearest of any GPU"
    );
    assert_eq!(
        nodes[0].findings(),
        ["no data for GPU6, GPU7: the text is truncated, or the driver no longer lists them"]
    );
    assert_eq!(opened.problems.len(), 1, "{:?}", opened.problems);
    // A truncated line.
    let cut = whole.replace(
        "GPU2\tNV18\tNV18\tX\tNV18\tNV18\tNV18\tNV18\tNV18\tSYS\tSYS\tPIX",
        "GPU2\tNV18",
    );
    let cut: String = cut
        .lines()
        .map(|line| {
            if line.starts_with("GPU2") {
                "GPU2\tNV18\tNV18\n".to_owned()
            } else {
                format!("{line}\n")
            }
        })
        .collect();
    let problems: Vec<_> = document("f", &cut)
        .problems
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        problems,
        [
            "f:4: GPU2: found 2 cells under 16 columns, expected a cell for each column: the line is truncated"
        ]
    );
}

/// A tray of GPUs with a NIC each; `links` is the number of NVLinks of the last GPU.
fn tray(hash: &str, links: u16) -> String {
    let gpu = |place: usize, links: u16| {
        let nvlink = match links {
            0 => String::new(),
            links => format!(
                "<nvlink target=\"fffffff:ffff:ff\" count=\"{links}\" tclass=\"0x068000\"/>"
            ),
        };
        format!(
            "<pci busid=\"000{place}:06:00.0\" class=\"0x030200\"><gpu dev=\"{place}\">{nvlink}</gpu></pci>\
             <pci busid=\"000{place}:03:00.0\" class=\"0x020700\" link_width=\"16\"><nic><net name=\"mlx5_{place}\" gdr=\"1\"/></nic></pci>"
        )
    };
    let bridged = |place: usize, links: u16| {
        format!(
            "<pci busid=\"000{place}:01:00.0\" class=\"0x060400\">{}</pci>",
            gpu(place, links)
        )
    };
    format!(
        "<cpu host_hash=\"{hash}\" numaid=\"0\">{}{}{}</cpu>",
        bridged(1, 18),
        bridged(2, 18),
        bridged(3, links)
    )
}

#[test]
fn two_trays_of_one_file_are_two_nodes_and_a_gpu_without_links_is_reported() {
    let text = format!(
        "<system version=\"1\">{}{}</system>",
        tray("0xa", 18),
        tray("0xb", 0)
    );
    let site = Site::of(vec![document("rack.xml", &text)]);
    let names: Vec<&str> = site.nodes.iter().map(|(file, _)| file.as_str()).collect();
    assert_eq!(names, ["rack.xml (host 0xa)", "rack.xml (host 0xb)"]);
    for (_, node) in &site.nodes {
        assert_eq!(
            node.verdict(),
            "each GPU has its own NIC, reached without the CPU (PIX)"
        );
    }
    assert_eq!(site.nodes[0].1.findings(), ["x"; 0]);
    assert!(site.nodes[1].1.findings()[0].starts_with("GPU2 has none of the 18 NVLinks"));
}

#[test]
fn management_ports_of_nvswitches_are_not_nics() {
    let port = "<pci busid=\"0009:05:00.0\" class=\"0x020700\" link_width=\"2\"><nic><net name=\"mlx5_9\" gdr=\"1\"/></nic></pci>";
    let bare = "<pci busid=\"0009:06:00.0\" class=\"0x020700\"/>";
    let text = format!(
        "<system version=\"1\">{}</system>",
        tray("0xa", 18).replace("</cpu>", &format!("{port}{bare}</cpu>"))
    );
    let node = node(&text);
    assert_eq!((node.nics.len(), node.other_ports), (3, 2));
    assert_eq!(
        node.verdict(),
        "each GPU has its own NIC, reached without the CPU (PIX)"
    );
}
