//! InfiniBand subnets in the output of tools other than `ibnetdiscover`.

use super::super::{NodeNames, Site};
use super::*;

/// Two leaves with a host each below a spine, in `iblinkinfo`'s block form.
const BLOCKS: &str = "CA: n1 mlx5_0:
      0x0000000000000101     11    1[  ] ==( 4X        106.25 Gbps Active/  LinkUp)==>       1    1[  ] \"MF0;leaf-1:MQM9700/U1\" ( )
CA: n2 mlx5_0:
      0x0000000000000102     12    1[  ] ==( 4X        106.25 Gbps Active/  LinkUp)==>       2    1[  ] \"MF0;leaf-2:MQM9700/U1\" ( )
Switch: 0x0000000000000001 MF0;leaf-1:MQM9700/U1:
           1    1[  ] ==( 4X        106.25 Gbps Active/  LinkUp)==>      11    1[  ] \"n1 mlx5_0\" ( )
           1    2[  ] ==(                Down/ Polling)==>             [  ] \"\" ( )
           1   33[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>       3    1[  ] \"MF0;spine-1:MQM9700/U1\" ( Could be 106.25 Gbps)
Switch: 0x0000000000000002 MF0;leaf-2:MQM9700/U1:
           2    1[  ] ==( 4X        106.25 Gbps Active/  LinkUp)==>      12    1[  ] \"n2 mlx5_0\" ( )
           2   33[  ] ==( 4X        106.25 Gbps Active/  LinkUp)==>       3    2[  ] \"MF0;spine-1:MQM9700/U1\" ( )
Switch: 0x0000000000000003 MF0;spine-1:MQM9700/U1:
           3    1[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>       1   33[  ] \"MF0;leaf-1:MQM9700/U1\" ( )
           3    2[  ] ==( 4X        106.25 Gbps Active/  LinkUp)==>       2   33[  ] \"MF0;leaf-2:MQM9700/U1\" ( )
";

/// One of the cables in the line form.
const LINES: &str = "0x0000000000000001 \"      MF0;leaf-1:MQM9700/U1\"      1    1[  ] ==( 4X        106.25 Gbps Active/  LinkUp)==>  0x0000000000000101     11    1[  ] \"n1 mlx5_0\" ( )
0x0000000000000101 \"                 n1 mlx5_0\"     11    1[  ] ==( 4X        106.25 Gbps Active/  LinkUp)==>  0x0000000000000001      1    1[  ] \"MF0;leaf-1:MQM9700/U1\" ( )
";

const DB_CSV: &str = "START_NODES
NodeDesc,NumPorts,NodeType,ClassVersion,BaseVersion,SystemImageGUID,NodeGUID,PortGUID
\"MF0;leaf-1:MQM9700/U1\",65,2,1,1,0x0000000000000001,0x0000000000000001,0x0000000000000001
\"n1 mlx5_0\",1,1,1,1,0x0000000000000101,0x0000000000000101,0x0000000000000101
END_NODES

START_PORTS
NodeGuid,PortGuid,PortNum,LID,LinkWidthActv,LinkSpeedActv
0x0000000000000001,0x0000000000000001,1,1,2,2048
0x0000000000000101,0x0000000000000101,1,11,2,2048
END_PORTS

START_LINKS
NodeGuid1,PortNum1,NodeGuid2,PortNum2
0x0000000000000001,1,0x0000000000000101,1
END_LINKS
";

/// Cables of a fabric, with their speed.
fn cables_of(opened: Opened) -> Vec<String> {
    let site = Site::of(vec![opened]);
    let fabric = &site.fabric;
    let links = fabric
        .links()
        .filter(|(.., link)| link.kind == railscope_model::fabric::LinkKind::Cable);
    let mut cables: Vec<String> = links
        .map(|(_, a, b, link)| {
            let mut ends = [(a, link.ports.0), (b, link.ports.1)]
                .map(|(id, port)| format!("{} {port}", fabric.vertex(id).part));
            ends.sort();
            format!(
                "{} {}",
                ends.join(" - "),
                link.speed
                    .map(|speed| speed.to_string())
                    .unwrap_or_default()
            )
        })
        .collect();
    cables.sort();
    cables
}

#[test]
fn iblinkinfo_yields_the_cables_of_ibnetdiscover() {
    let opened = document("f", BLOCKS);
    assert_eq!(
        (opened.format, opened.problems.as_slice()),
        (Format::Linkinfo, [].as_slice())
    );
    assert_eq!(
        cables_of(opened),
        [
            "nic/n1:mlx5_0 1 - switch/leaf-1 1 4xNDR",
            "nic/n2:mlx5_0 1 - switch/leaf-2 1 4xNDR",
            "switch/leaf-1 33 - switch/spine-1 1 4xHDR",
            "switch/leaf-2 33 - switch/spine-1 2 4xNDR",
        ]
    );
    assert_eq!(
        cables_of(document("f", LINES)),
        ["nic/n1:mlx5_0 1 - switch/leaf-1 1 4xNDR"]
    );
}

#[test]
fn ibdiagnets_tables_yield_the_same_cables() {
    let opened = document("f", DB_CSV);
    assert_eq!(
        (opened.format, opened.problems.as_slice()),
        (Format::DbCsv, [].as_slice())
    );
    assert_eq!(
        cables_of(opened),
        ["nic/n1:mlx5_0 1 - switch/leaf-1 1 4xNDR"]
    );
    refused(
        "START_LINKS\nNodeGuid1,PortNum1\nEND_LINKS\n",
        &[
            "f:1: LINKS: found no cable, expected START_LINKS with NodeGuid1,PortNum1,NodeGuid2,PortNum2",
        ],
    );
}

#[test]
fn a_node_name_map_gives_switches_the_scheduler_names() {
    let names = NodeNames::read(
        "map",
        "# ours\n0x1 \"ibsw1\"\n0x0000000000000101 \"gpu001\"\n",
    )
    .expect("a map");
    let mut opened = document("f", BLOCKS);
    let Document::Subnet(subnet) = &mut opened.document else {
        panic!("{opened:?}")
    };
    assert_eq!(names.apply(subnet), 2);
    assert_eq!(
        cables_of(opened)[0],
        "nic/gpu001:mlx5_0 1 - switch/ibsw1 1 4xNDR"
    );
    let errors = NodeNames::read("map", "leaf-1\n")
        .map(|_| ())
        .expect_err("no map");
    assert_eq!(
        errors[0].to_string(),
        "map:1: node name map: found leaf-1, expected a GUID such as 0x0002c90300000001 and a name in quotes"
    );
}

/// The same fabric as `net_dump`: ports of a leaf by label, and a spine whose port is labeled
/// otherwise than it is numbered.
const NET_DUMP: &str = "# This database file was automatically generated by IBDIAG


\"MF0;leaf-1:MQM9700/U1\", Mellanox, 0x0000000000000001, LID 1
  #          : IB# : Sta  : PhysSta    : MTU : LWA     : LSA     : FEC mode            : Retran : Neighbor Guid      : N#         : NLID : Neighbor Description
  1/1/1      : 1   : ACT  : LINK UP    : 5   : 4x      : 100     : MLNX_RS_544_514_PLR : NO-RTR : 0x0000000000000101 : 1          : 11   : \"n1 mlx5_0\"
  1/1/2      : 2   : DOWN : POLLING    : N/A : N/A     : N/A     : N/A                 : N/A    :                    :            :      :
  1/17/1     : 33  : ACT  : LINK UP    : 5   : 4x      : 50      : MLNX_RS_271_257_PLR : NO-RTR : 0x0000000000000003 : 1/9/2      : 3    : \"MF0;spine-1:MQM9700/U1\"
  1/17/2     : 34  : INI  : LINK UP    : 5   : 4x      : 100     : MLNX_RS_544_514_PLR : NO-RTR :                    :            :      :
\"MF0;spine-1:MQM9700/U1\", Mellanox, 0x0000000000000003, LID 3
  #          : IB# : Sta  : PhysSta    : MTU : LWA     : LSA     : FEC mode            : Retran : Neighbor Guid      : N#         : NLID : Neighbor Description
  1/9/2      : 18  : ACT  : LINK UP    : 5   : 4x      : 50      : MLNX_RS_271_257_PLR : NO-RTR : 0x0000000000000001 : 1/17/1     : 1    : \"MF0;leaf-1:MQM9700/U1\"
";

#[test]
fn ibdiagnets_net_dump_yields_cables_with_the_numbers_of_both_ports() {
    let opened = document("f", NET_DUMP);
    assert_eq!(opened.format, Format::NetDump);
    let problems: Vec<String> = opened.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "f:9: port: found MF0;leaf-1:MQM9700/U1 port 1/17/2 (INI), expected a neighbor: the link is up, but no device answers"
        ]
    );
    assert_eq!(
        cables_of(opened),
        [
            "nic/n1:mlx5_0 1 - switch/leaf-1 1 4xNDR",
            "switch/leaf-1 33 - switch/spine-1 18 4xHDR",
        ]
    );
}

#[test]
fn a_list_of_switches_is_refused_with_the_tool_that_has_their_cables() {
    refused(
        "Switch\t: 0x0000000000000001 ports 65 \"MF0;leaf-1:MQM9700/U1\" enhanced port 0 lid 1 lmc 0\n",
        &[
            "f:1: text: found Switch	: 0x0000000000000001 ports 65 \"MF0;leaf-1:MQM9700/U1\" enhanced port 0 lid, expected a fabric, a node or a switch: this looks like `ibswitches`, `ibhosts`, `ibstat`, which is not supported: `ibnetdiscover` contains the same data and all cables; docs/inputs.md lists the supported formats",
        ],
    );
}
