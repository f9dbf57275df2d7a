//! Every form of file and page that Railscope reads, and well-known ones that it does not: one table, from which
//! `docs/inputs.md` is written and by which an unknown text is told what it looks like.

use std::fmt::Write as _;

/// The page that lists all of them.
pub const PAGE: &str = "docs/inputs.md";

/// One form.
#[derive(Debug, PartialEq, Eq)]
pub struct Input {
    /// What it is, as who has it calls it.
    pub form: &'static str,
    /// Who reads it.
    pub reader: Reader,
    /// What it says; what to use instead where nobody reads it.
    pub says: &'static str,
    /// Words by which it is told, those that only it has first.
    pub marks: &'static [&'static str],
}

/// Who reads a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reader {
    /// `railscope topology`.
    Topology,
    /// `railscope check --file`, and `railscope topology` as well.
    Node,
    /// `railscope collectives`.
    Collectives,
    /// The exporter, with an option.
    Exporter(&'static str),
    /// The collector, by its configuration.
    Collector(&'static str),
    /// Nobody.
    Nobody,
}

impl Reader {
    /// What to type.
    pub fn command(self) -> &'static str {
        match self {
            Self::Topology => "railscope topology show FILE",
            Self::Node => "railscope check --file FILE",
            Self::Collectives => "railscope collectives FILE",
            Self::Exporter(option) => option,
            Self::Collector(setting) => setting,
            Self::Nobody => "nothing",
        }
    }
}

const fn input(
    form: &'static str,
    reader: Reader,
    says: &'static str,
    marks: &'static [&'static str],
) -> Input {
    Input {
        form,
        reader,
        says,
        marks,
    }
}

use Reader::{Collectives, Collector, Exporter, Nobody, Node, Topology};

const SCRAPED: Reader = Collector("[[targets]] of the collector");
const RECORDED: Reader = Exporter("railscope exporter --path.network-recordings DIR");

/// Every form, those of one reader together.
pub const INPUTS: &[Input] = &[
    input(
        "`ibnetdiscover`, any form of it",
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
        "node-name map of opensm, with `--node-name-map FILE`",
        Topology,
        "the names of switches and hosts, so that a fabric and a scheduler's file agree",
        &[],
    ),
    input(
        "saved page of Railscope's exporter, named by its node",
        Topology,
        "devices, which GPU is nearest to which NIC, LLDP",
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
        "`lldpctl -f json0`, `lldpctl -f json`, named by the host or switch",
        Topology,
        "cables of one device",
        &["\"lldp\"", "\"lldp_status\""],
    ),
    input(
        "Arista EOS `show lldp neighbors detail`, also `| json`, named by the switch",
        Topology,
        "cables of one switch",
        &["lldpNeighborInfo", "lldpNeighbors", "LLDP neighbors:"],
    ),
    input(
        "Cisco NX-OS `show lldp neighbors detail`, named by the switch",
        Topology,
        "cables of one switch",
        &["Local Port id:", "Chassis id:"],
    ),
    input(
        "Junos `show lldp neighbors`, also `| display xml`, named by the switch",
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
        "which node hangs behind which switch",
        &["SwitchName=", "BlockName="],
    ),
    input(
        "model of NVIDIA topograph, YAML or JSON",
        Topology,
        "which node hangs behind which switch, NVLink domains",
        &["capacity_blocks"],
    ),
    input(
        "`nvidia-smi -q`, text and XML (`-x`)",
        Node,
        "ECC errors, retired pages, remapped rows, NVLink fabric, PCIe width, slowdowns; the odd one of many nodes",
        &["NVSMI LOG", "<nvidia_smi_log", "Attached GPUs"],
    ),
    input(
        "`nvidia-smi topo -m`, also amid other text or cut",
        Node,
        "which GPU is nearest to which NIC, NVLinks",
        &["CPU Affinity", "NUMA Affinity"],
    ),
    input(
        "`nvidia-smi nvlink -s`, also where it fails",
        Node,
        "NVLinks of each GPU",
        &["Link 0:", "Unable to retrieve NVLink information"],
    ),
    input(
        "topology XML of NCCL or RCCL (`NCCL_TOPO_DUMP_FILE`), of one host or several",
        Node,
        "which GPU is nearest to which NIC, NVLinks",
        &["<system", "<pci busid="],
    ),
    input(
        "XML of hwloc (`lstopo`)",
        Node,
        "which GPU is nearest to which RDMA device",
        &["<topology", "<object type="],
    ),
    input(
        "logs of nccl-tests, many in one file or folder",
        Collectives,
        "bandwidth of each pair of nodes, against line rate, over sizes and against each other",
        &["Avg bus bandwidth", "busbw", "algbw"],
    ),
    input(
        "dumps of PyTorch's flight recorder, JSON, one for each rank",
        Collectives,
        "which rank a hung job waits for",
        &["\"pg_config\"", "\"pg_status\""],
    ),
    input(
        "dumps of NCCL's Inspector plugin, JSON lines",
        Collectives,
        "which rank the others wait for",
        &["coll_perf", "dump_timestamp_us"],
    ),
    input(
        "answers of NCCL's RAS client (`ncclras`), text and JSON, one or several",
        Collectives,
        "who is missing, who is behind (not always who is listed), what stands still",
        &[
            "Communicators... (",
            "collective_counts",
            "launched up to operation",
        ],
    ),
    input(
        "logs of jobs: PyTorch's watchdog, NCCL INFO",
        Collectives,
        "which collective timed out on which ranks and who never came; NICs, GPUDirect RDMA, NVLink SHARP",
        &[
            "Watchdog caught collective operation timeout",
            " NCCL INFO ",
            "last enqueued work:",
        ],
    ),
    input(
        "plain list `node node GB/s`, blanks or commas between",
        Collectives,
        "which pairs, nodes or groups of nodes are slow",
        &[],
    ),
    input(
        "kernel log: `dmesg`, `journalctl -k`, `/dev/kmsg` ([forms](kernel-log.md))",
        Exporter("railscope exporter --path.kmsg FILE"),
        "Xids, link losses, PCIe errors",
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
        "`ethtool -S`, as `DIR/INTERFACE/stats`, with and without its heading",
        RECORDED,
        "pause, drops, physical errors",
        &["NIC statistics:", "rx_packets:", "tx_packets:"],
    ),
    input(
        "`ethtool -I -a`, `ethtool -I --show-fec`, `dcb ... show`, `ip -s -j -d link`, `ip -j addr`, as `pause`, `fec`, `pfc`, `app`, `ets`, `link`, `addr` beside it",
        RECORDED,
        "pause, FEC, PFC, virtual functions, addresses",
        &["Pause parameters for", "FEC parameters for", "prio-pfc"],
    ),
    input(
        "pages of other exporters: DCGM, node_exporter, SNMP, gNMI, SONiC and more ([list](other-exporters.md))",
        SCRAPED,
        "their part of nodes and switches",
        &["# TYPE ", "# HELP ", "DCGM_FI_", "node_cpu_seconds_total"],
    ),
    input(
        "`ibswitches`, `ibhosts`, `ibstat`",
        Nobody,
        "`ibnetdiscover` says the same and what is cabled to what",
        &["CA type:", "Infiniband HCA", "enhanced port 0 lid"],
    ),
    input(
        "ibdiagnet's `net_dump` and log",
        Nobody,
        "`ibnetdiscover` says which cable is where, the collector's own [sweep](subnet-sweep.md) reads the counters",
        &["ibdiagnet"],
    ),
    input(
        "`perfquery`, `ibqueryerrors`",
        Nobody,
        "the collector's own [sweep](subnet-sweep.md) reads the counters of every port",
        &[
            "Port counters:",
            "Port extended counters:",
            "PortRcvErrorDetails",
            "SymbolErrorCounter",
        ],
    ),
    input(
        "short list of LLDP neighbors (`show lldp neighbors` of EOS, NX-OS, SONiC)",
        Nobody,
        "it does not say what a neighbor is; `show lldp neighbors detail` does",
        &["Neighbor Device ID", "RemoteDevice"],
    ),
    input(
        "NCCL's graph (`NCCL_GRAPH_DUMP_FILE`)",
        Nobody,
        "it is what NCCL chose; `NCCL_TOPO_DUMP_FILE` says what it chose from",
        &["<graphs", "<graph id"],
    ),
    input(
        "output of `mlxlink`, `mlxcables`, `ibswinfo`",
        Nobody,
        "the exporter and the collector's [sweep](subnet-sweep.md) read speed, width and errors of each port",
        &["Operational Info", "ibswinfo", "part number", "PSID"],
    ),
    input(
        "log of NVIDIA's fabric manager",
        Nobody,
        "the exporter reads each GPU's state of the NVLink fabric, and so does `railscope check --file` of `nvidia-smi -q`",
        &[
            "Received an inband message",
            "fabric manager",
            "Fabric Manager",
        ],
    ),
    input(
        "`ethtool IF`, `ethtool -i IF`",
        Nobody,
        "the exporter asks the kernel itself; its recordings take `ethtool -S`",
        &[
            "Supported link modes:",
            "supports-statistics:",
            "Link detected:",
        ],
    ),
    input(
        "SONiC's `COUNTERS_DB`",
        Nobody,
        "`sonic-exporter`, gNMI or SNMP give the same to the [collector](other-exporters.md)",
        &["COUNTERS:oid:", "COUNTERS_PORT_NAME_MAP"],
    ),
    input(
        "table of PyTorch's flight recorder analyzer",
        Nobody,
        "the dumps that it was made from are read by `railscope collectives`",
        &["Process Group Desc"],
    ),
    input(
        "output of ib_write_bw, GPCNeT, nvbandwidth",
        Nobody,
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

/// The form that a text looks most like; none if nothing speaks for any.
pub fn nearest(text: &str) -> Option<&'static Input> {
    // Marks are words that few other texts have: one is enough, more are better, the first is the best.
    let score = |input: &Input| {
        let marks = input.marks.iter();
        let found = marks.filter(|mark| text.contains(**mark)).count();
        let first = input.marks.first().is_some_and(|mark| text.contains(mark));
        (found > 0).then(|| (usize::from(first), 100 * found / input.marks.len().max(1)))
    };
    let known = INPUTS
        .iter()
        .filter_map(|input| Some((score(input)?, input)));
    known
        .max_by_key(|(score, _)| *score)
        .map(|(_, input)| input)
}

/// What to tell somebody whose text was not read.
pub fn hint(text: &str) -> String {
    match nearest(text) {
        Some(Input {
            form,
            reader: Nobody,
            says,
            ..
        }) => {
            format!("this looks like {form}, which is not read: {says}; {PAGE} lists what is")
        }
        Some(Input { form, reader, .. }) => {
            format!(
                "this looks like {form}, for which there is \"{}\"; {PAGE} lists all",
                reader.command()
            )
        }
        None => format!("{PAGE} lists every form that is read, with the command"),
    }
}

/// `docs/inputs.md`.
pub fn page() -> String {
    let mut text = String::from(
        "# What can be read\n\nFiles and pages, by what reads them. Generated from the table of readers (`collector/src/fabric/plans/inputs.rs`); do not edit.\n\
         A text that is not read is answered with the form that it looks most like. Files may be given together, and folders of files;\n\
         one that is of no use is named and does not hide the others.\n\n",
    );
    let titles = [
        (
            "Fabrics: `railscope topology show`, `lint`, `diff`, `export`",
            "The content says what a file is, `--format` forces it ([topology.md](topology.md)).",
        ),
        (
            "Nodes: `railscope check --file`",
            "One file for each node; many are compared with each other. `railscope topology` reads them, too.",
        ),
        (
            "Jobs: `railscope collectives`",
            "See [collectives.md](collectives.md).",
        ),
        ("Recordings for the exporter", "In place of a machine."),
        ("The collector", "Scraped or pushed."),
        ("Not read", "And what says the same."),
    ];
    for (group, (title, about)) in titles.iter().enumerate() {
        let of_group = INPUTS.iter().filter(|input| place(input.reader) == group);
        writeln!(text, "## {title}\n\n{about}\n").ok();
        let with_command = matches!(group, 3 | 4);
        text += if with_command {
            "| form | read by | says |\n|---|---|---|\n"
        } else {
            "| form | says |\n|---|---|\n"
        };
        for input in of_group {
            // Writing to a string does not fail.
            match with_command {
                true => writeln!(
                    text,
                    "| {} | `{}` | {} |",
                    input.form,
                    input.reader.command(),
                    input.says
                )
                .ok(),
                false => writeln!(text, "| {} | {} |", input.form, input.says).ok(),
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
        Nobody => 5,
    }
}
