//! Table of all input formats that Railscope reads, and of well-known ones that it does not. `docs/inputs.md` is
//! generated from it, and error messages name the format that an unrecognized text resembles most.

mod hints;

use std::fmt::Write as _;

pub use hints::{hint, is_binary, nearest};

/// The document that lists all formats.
pub const DOCUMENT: &str = "docs/inputs.md";

/// One input format.
#[derive(Debug, PartialEq, Eq)]
pub struct Input {
    /// Name of the format, as its users call it.
    pub form: &'static str,
    /// The command or service that reads it.
    pub reader: Reader,
    /// Data that it contains; what to use instead if it is unsupported.
    pub content: &'static str,
    /// Strings that identify the format, the most specific first.
    pub marks: &'static [&'static str],
}

/// What reads a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reader {
    /// `railscope topology`.
    Topology,
    /// `railscope check --file`, and also `railscope topology`.
    Node,
    /// `railscope collectives`.
    Collectives,
    /// The exporter, with this option.
    Exporter(&'static str),
    /// The collector, with this setting.
    Collector(&'static str),
    /// Nothing: the format is not supported.
    Unsupported,
}

impl Reader {
    /// The command or setting that reads the format.
    pub fn command(self) -> &'static str {
        match self {
            Self::Topology => "railscope topology show FILE",
            Self::Node => "railscope check --file FILE",
            Self::Collectives => "railscope collectives FILE",
            Self::Exporter(option) => option,
            Self::Collector(setting) => setting,
            Self::Unsupported => "nothing",
        }
    }
}

const fn input(
    form: &'static str,
    reader: Reader,
    content: &'static str,
    marks: &'static [&'static str],
) -> Input {
    Input {
        form,
        reader,
        content,
        marks,
    }
}

use Reader::{Collectives, Collector, Exporter, Node, Topology, Unsupported};

const SCRAPED: Reader = Collector("[[targets]] of the collector");
const RECORDED: Reader = Exporter("railscope exporter --path.network-recordings DIR");

/// All formats, grouped by reader.
pub const INPUTS: &[Input] = &[
    input(
        "`ibnetdiscover`, all output variants",
        Topology,
        "every cable of an InfiniBand subnet",
        &[
            "vendid=",
            "switchguid=",
            "caguid=",
            "Topology file: generated",
        ],
    ),
    input(
        "`iblinkinfo`, in blocks or lines (`-l`)",
        Topology,
        "every cable of an InfiniBand subnet",
        &["==(", ")==>", "Gbps Active/"],
    ),
    input(
        "`db_csv` of ibdiagnet (`ibdiagnet2.db_csv`)",
        Topology,
        "every cable of an InfiniBand subnet",
        &["START_LINKS", "START_NODES", "START_PORTS"],
    ),
    input(
        "`net_dump` of ibdiagnet (`ibdiagnet2.net_dump`)",
        Topology,
        "every cable of an InfiniBand subnet",
        &["PhysSta", "Neighbor Guid", "Neighbor Description"],
    ),
    input(
        "opensm's node-name map, with `--node-name-map FILE`; in the collector with `[subnet] node_name_map`",
        Topology,
        "names of switches and hosts, so that a fabric matches a scheduler's file",
        &[],
    ),
    input(
        "saved scrape body of Railscope's exporter; the file name is the node",
        Topology,
        "devices, nearest NIC of each GPU, LLDP neighbors",
        &["railscope_"],
    ),
    input(
        "[wiring plan](wiring-plan.md), CSV or TOML",
        Topology,
        "planned cables",
        &["from_port", "to_port", "[[cables]]"],
    ),
    input(
        "cabling plan of NVIDIA UFM (NDT)",
        Topology,
        "planned cables",
        &["StartDevice", "EndDevice"],
    ),
    input(
        "NVIDIA NetQ: topology graph, compute nodes (JSON)",
        Topology,
        "every cable; the nodes of each NVLink domain",
        &["compounded_links", "GpuIDList"],
    ),
    input(
        "`lldpctl -f json0`, `lldpctl -f json`; the file name is the host or switch",
        Topology,
        "cables of one device",
        &["\"lldp\"", "\"lldp_status\""],
    ),
    input(
        "Arista EOS `show lldp neighbors detail`, also `| json`; the file name is the switch",
        Topology,
        "cables of one switch",
        &["lldpNeighborInfo", "lldpNeighbors", "LLDP neighbors:"],
    ),
    input(
        "Cisco NX-OS `show lldp neighbors detail`; the file name is the switch",
        Topology,
        "cables of one switch",
        &["Local Port id:", "Chassis id:"],
    ),
    input(
        "Junos `show lldp neighbors`, also `| display xml`; the file name is the switch",
        Topology,
        "cables of one switch",
        &[
            "lldp-neighbors-information",
            "Parent Interface    Chassis Id",
        ],
    ),
    input(
        "Slurm's `topology.conf`, tree and block",
        Topology,
        "switch of each node",
        &["SwitchName=", "BlockName="],
    ),
    input(
        "model of NVIDIA topograph, YAML or JSON",
        Topology,
        "switch of each node, NVLink domains",
        &["capacity_blocks"],
    ),
    input(
        "`nvidia-smi -q`, text and XML (`-x`)",
        Node,
        "ECC errors, retired pages, remapped rows, NVLink fabric, PCIe width, clock slowdowns; nodes that differ from their peers",
        &["NVSMI LOG", "<nvidia_smi_log", "Attached GPUs"],
    ),
    input(
        "`nvidia-smi topo -m`, also within other text or truncated",
        Node,
        "nearest NIC of each GPU, NVLinks",
        &["CPU Affinity", "NUMA Affinity"],
    ),
    input(
        "`nvidia-smi nvlink -s`, also with error output",
        Node,
        "NVLinks of each GPU",
        &["Link 0:", "Unable to retrieve NVLink information"],
    ),
    input(
        "topology XML of NCCL or RCCL (`NCCL_TOPO_DUMP_FILE`), of one host or several",
        Node,
        "nearest NIC of each GPU, NVLinks",
        &["<system", "<pci busid="],
    ),
    input(
        "XML of hwloc (`lstopo`)",
        Node,
        "nearest RDMA device of each GPU",
        &["<topology", "<object type="],
    ),
    input(
        "SONiC `show pfc counters`, `show pfcwd stats`; Junos `show interfaces`, also `extensive`, and its log of link messages",
        Node,
        "ports that pause the switch, PFC storms, links that are down, flap or damage frames; restarts and mass events",
        &[
            "STORM DETECTED/RESTORED",
            "Physical interface: ",
            "SNMP_TRAP_LINK_",
            "PFC0    PFC1",
        ],
    ),
    input(
        "logs of nccl-tests, many in one file or folder",
        Collectives,
        "bandwidth of each pair of nodes, compared with line rate, by message size, and with other pairs",
        &["Avg bus bandwidth", "busbw", "algbw"],
    ),
    input(
        "dumps of PyTorch's flight recorder, JSON, one for each rank",
        Collectives,
        "rank that a hung job waits for",
        &["\"pg_config\"", "\"pg_status\""],
    ),
    input(
        "dumps of NCCL's Inspector plugin, JSON lines",
        Collectives,
        "straggler: rank that delays the others",
        &["coll_perf", "dump_timestamp_us"],
    ),
    input(
        "outputs of NCCL's RAS client (`ncclras`), text and JSON, one or several",
        Collectives,
        "missing ranks, ranks that are behind (not always the listed ones), stalled operations",
        &[
            "Communicators... (",
            "collective_counts",
            "launched up to operation",
        ],
    ),
    input(
        "job logs: PyTorch's watchdog, NCCL INFO",
        Collectives,
        "timed-out collectives with their ranks, ranks that never joined; NICs, GPUDirect RDMA, NVLink SHARP",
        &[
            "Watchdog caught collective operation timeout",
            " NCCL INFO ",
            "last enqueued work:",
        ],
    ),
    input(
        "plain list `node node GB/s`, separated by blanks or commas",
        Collectives,
        "slow pairs, nodes or groups of nodes",
        &[],
    ),
    input(
        "kernel log: `dmesg`, `journalctl -k`, `/dev/kmsg` ([forms](kernel-log.md))",
        Exporter("railscope exporter --path.kmsg FILE"),
        "Xids, link-down events, PCIe errors",
        &[
            "NVRM:",
            "Xid (",
            "nvidia-nvswitch",
            "nvidia-peermem",
            "kern  :",
            "segfault at",
        ],
    ),
    input(
        "`ethtool -S`, as `DIR/INTERFACE/stats`, with or without its heading",
        RECORDED,
        "pause, discards, physical-layer errors",
        &["NIC statistics:", "rx_packets:", "tx_packets:"],
    ),
    input(
        "`ethtool -I -a`, `ethtool -I --show-fec`, `dcb ... show`, `ip -s -j -d link`, `ip -j addr`, as `pause`, `fec`, `pfc`, `app`, `ets`, `link`, `addr` in the same directory",
        RECORDED,
        "pause, FEC, PFC, virtual functions, addresses",
        &["Pause parameters for", "FEC parameters for", "prio-pfc"],
    ),
    input(
        "metrics of other exporters: DCGM, node_exporter, SNMP, gNMI, SONiC and more ([list](other-exporters.md))",
        SCRAPED,
        "what they export about nodes and switches",
        &[
            "# TYPE ",
            "# HELP ",
            "DCGM_FI_",
            "node_cpu_seconds_total",
            "node_amazonefa_",
            "Effective_BER{",
        ],
    ),
    input(
        "forwarding tables of an InfiniBand subnet: `dump_fts`, `dump_lfts.sh`, `ibroute`, opensm's `opensm-lfts.dump` and `opensm.fdbs`",
        Collector("forwarding_file in [subnet] of the collector"),
        "path between two NICs, so that [probes](probing.md) name a cable between switches",
        &["Unicast lids", "lids dumped", "dump_ucast_routes"],
    ),
    input(
        "`ibswitches`, `ibhosts`, `ibstat`",
        Unsupported,
        "`ibnetdiscover` contains the same data and all cables",
        &["CA type:", "Infiniband HCA", "enhanced port 0 lid"],
    ),
    input(
        "ibdiagnet's `net_dump_ext`, `lst` and log",
        Unsupported,
        "its `net_dump` and `db_csv` contain all cables; the collector's [sweep](subnet-sweep.md) reads the counters",
        &["Conn LID", "ibdiagnet"],
    ),
    input(
        "`perfquery`, `ibqueryerrors`",
        Unsupported,
        "the collector's [sweep](subnet-sweep.md) reads the counters of every port",
        &[
            "Port counters:",
            "Port extended counters:",
            "PortRcvErrorDetails",
            "SymbolErrorCounter",
        ],
    ),
    input(
        "telemetry of NVIDIA UFM, JSON",
        Unsupported,
        "the collector's [sweep](subnet-sweep.md) reads the same counters of every port",
        &["Infiniband_PckOut", "Infiniband_MBOut", "Infiniband_"],
    ),
    input(
        "short list of LLDP neighbors (`show lldp neighbors` of EOS, NX-OS, SONiC)",
        Unsupported,
        "the list omits the kind of a neighbor; use `show lldp neighbors detail`",
        &["Neighbor Device ID", "RemoteDevice"],
    ),
    input(
        "NCCL's graph (`NCCL_GRAPH_DUMP_FILE`)",
        Unsupported,
        "it contains NCCL's selected rings and trees; `NCCL_TOPO_DUMP_FILE` has the hardware topology",
        &["<graphs", "<graph id"],
    ),
    input(
        "output of `mlxlink`, `mlxcables`, `ibswinfo`",
        Unsupported,
        "the exporter and the collector's [sweep](subnet-sweep.md) read speed, width and errors of each port",
        &["Operational Info", "ibswinfo", "part number", "PSID"],
    ),
    input(
        "log of NVIDIA's fabric manager",
        Unsupported,
        "the exporter reads the NVLink fabric state of each GPU; `railscope check --file` reads it from `nvidia-smi -q`",
        &[
            "Received an inband message",
            "fabric manager",
            "Fabric Manager",
        ],
    ),
    input(
        "`ethtool IF`, `ethtool -i IF`",
        Unsupported,
        "the exporter reads the kernel directly; its recordings use `ethtool -S`",
        &[
            "Supported link modes:",
            "supports-statistics:",
            "Link detected:",
        ],
    ),
    input(
        "SONiC's `COUNTERS_DB`",
        Unsupported,
        "the [collector](other-exporters.md) reads the same data from `sonic-exporter`, gNMI or SNMP",
        &["COUNTERS:oid:", "COUNTERS_PORT_NAME_MAP"],
    ),
    input(
        "table of PyTorch's flight recorder analyzer",
        Unsupported,
        "`railscope collectives` reads the dumps that the table is made from",
        &["Process Group Desc"],
    ),
    input(
        "output of ib_write_bw, GPCNeT, nvbandwidth",
        Unsupported,
        "`railscope collectives` reads logs of nccl-tests; [probing](probing.md) measures the fabric",
        &[
            "BW peak",
            "Network Tests v",
            "NetworkLoad Tests",
            "nvbandwidth Version",
            "RDMA_Write BW Test",
        ],
    ),
];

/// Text of `docs/inputs.md`.
pub fn document() -> String {
    let mut text = String::from(
        "# Input formats\n\nSupported formats by reader. Generated from the table in `collector/src/fabric/plans/inputs.rs`; do not edit.\n\
         For an unrecognized text the error names the most similar format. Commands accept several files and directories;\n\
         an unusable file is reported and the others are read. [Ten files with a fault](answers.md) show what the answers look like.\n\n",
    );
    let titles = [
        (
            "Fabrics: `railscope topology show`, `lint`, `diff`, `export`",
            "The format is detected from the content; `--format` overrides it ([topology.md](topology.md)).",
        ),
        (
            "Nodes and switches: `railscope check --file`",
            "One file for each node; several are compared with each other. `railscope topology` also reads those of nodes.",
        ),
        (
            "Jobs: `railscope collectives`",
            "See [collectives.md](collectives.md).",
        ),
        (
            "Recordings for the exporter",
            "Used instead of the live host.",
        ),
        ("The collector", "Scraped, pushed, or read from a file."),
        ("Unsupported", "With alternatives."),
    ];
    for (group, (title, about)) in titles.iter().enumerate() {
        let of_group = INPUTS.iter().filter(|input| place(input.reader) == group);
        writeln!(text, "## {title}\n\n{about}\n").ok();
        let with_command = matches!(group, 3 | 4);
        text += if with_command {
            "| format | read by | content |\n|---|---|---|\n"
        } else {
            "| format | content |\n|---|---|\n"
        };
        for input in of_group {
            // Writing to a string does not fail.
            match with_command {
                true => writeln!(
                    text,
                    "| {} | `{}` | {} |",
                    input.form,
                    input.reader.command(),
                    input.content
                )
                .ok(),
                false => writeln!(text, "| {} | {} |", input.form, input.content).ok(),
            };
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

fn place(reader: Reader) -> usize {
    match reader {
        Topology => 0,
        Node => 1,
        Collectives => 2,
        Exporter(_) => 3,
        Collector(_) => 4,
        Unsupported => 5,
    }
}
