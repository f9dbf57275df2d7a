//! LLDP of hosts and switches in all dialects, read as in the collector; contradictions and unreadable parts are reported.

use super::super::Site;
use super::*;

const NXOS: &str = "    Chassis id: 7c21.d800.000a\n    Port id: Ethernet1/1\n    Local Port id: Eth1/49\n    System Name: spine-0\n    \
                    System Capabilities: B, R\n\n    Chassis id: 7c21.d800.000b\n    Port id: eth0\n    Local Port id: mgmt0\n    System Name: oob\n    System Capabilities: B\n";

const EOS_JSON: &str = r#"{"lldpNeighbors": {
  "Ethernet1": {"lldpNeighborInfo": [{"chassisId": "7c21.d800.000a", "systemName": "spine-0",
    "systemCapabilities": {"bridge": true, "router": true},
    "neighborInterfaceInfo": {"interfaceId": "\"Ethernet7\"", "interfaceId_v2": "Ethernet7"}}]},
  "Management1": {"lldpNeighborInfo": [{"chassisId": "7c21.d800.000b", "systemName": "oob",
    "neighborInterfaceInfo": {"interfaceId_v2": "swp9"}}]}}}"#;

const JUNOS: &str = "op@leaf-1> show lldp neighbors\nLocal Interface    Parent Interface    Chassis Id          Port info          System Name\n\
                     et-0/0/1           ae1                 7c:21:d8:00:00:0a   et-0/0/7.0         spine-0\n\
                     et-0/0/2           -                   7c:21:d8:00:00:0c   eth1               n1\n\
                     re0:mgmt-0         -                   7c:21:d8:00:00:0b   mgmt-7             oob\n\nop@leaf-1> \n";

const JUNOS_XML: &str = "<rpc-reply><lldp-neighbors-information><lldp-neighbor-information>\n<lldp-local-port-id>et-0/0/1</lldp-local-port-id>\
                         <lldp-remote-chassis-id>7c:21:d8:00:00:0a</lldp-remote-chassis-id><lldp-remote-port-id>et-0/0/7.0</lldp-remote-port-id>\
                         <lldp-remote-system-name>spine-0</lldp-remote-system-name></lldp-neighbor-information></lldp-neighbors-information></rpc-reply>";

/// `lldpctl` of a host.
const LLDPCTL: &str = "-----\nLLDP neighbors:\n-----\nInterface:    ens1, via: LLDP, RID: 1, Time: 0 day, 00:00:41\n  Chassis:\n    \
                       ChassisID:    mac 7c:21:d8:00:00:0a\n    SysName:      leaf-1\n    Capability:   Bridge, on\n  Port:\n    PortID:       ifname swp3\n-----\n";

/// `show lldp neighbors detail | display xml` of Junos: ports by number, the name in the description.
const JUNOS_DETAIL: &str = "<lldp-neighbors-information><lldp-neighbor-information><lldp-local-port-id>667</lldp-local-port-id>\
                            <lldp-local-interface>et-0/0/1</lldp-local-interface><lldp-remote-chassis-id>7c:21:d8:00:00:0a</lldp-remote-chassis-id>\
                            <lldp-remote-port-id>549</lldp-remote-port-id><lldp-remote-port-description>et-0/0/7</lldp-remote-port-description>\
                            <lldp-remote-system-name>spine-0</lldp-remote-system-name>\
                            <lldp-remote-system-capabilities-enabled>Bridge Router </lldp-remote-system-capabilities-enabled></lldp-neighbor-information></lldp-neighbors-information>";

/// Output of `lldpctl -f json0` of a host with a switch as neighbor on each port.
fn json0(ports: &[(&str, &str, &str)]) -> String {
    let ports = ports.iter().map(|(own, system, port)| {
        format!(
            r#"{{"name":"{own}","chassis":[{{"id":[{{"type":"mac","value":"7c:21:d8:00:00:0a"}}],"name":[{{"value":"{system}"}}],
            "capability":[{{"type":"Bridge","enabled":true}}]}}],"port":[{{"id":[{{"type":"ifname","value":"{port}"}}]}}]}}"#
        )
    });
    format!(
        r#"{{"lldp":[{{"interface":[{}]}}]}}"#,
        ports.collect::<Vec<_>>().join(",\n")
    )
}

#[test]
fn every_dialect_that_the_collector_reads_is_read_here() {
    for (file, text, expected) in [
        (
            "leaf-1.txt",
            NXOS,
            vec!["switch/leaf-1 port Ethernet1/49 - switch/spine-0 port Ethernet1/1"],
        ),
        (
            "leaf-1.json",
            EOS_JSON,
            vec!["switch/leaf-1 port Ethernet1 - switch/spine-0 port Ethernet7"],
        ),
        (
            "leaf-1.txt",
            JUNOS,
            vec![
                "switch/leaf-1 port et-0/0/1 - switch/spine-0 port et-0/0/7",
                "switch/leaf-1 port et-0/0/2 - nic/n1:eth1 port 1",
            ],
        ),
        (
            "leaf-1.xml",
            JUNOS_XML,
            vec!["switch/leaf-1 port et-0/0/1 - switch/spine-0 port et-0/0/7"],
        ),
        (
            "leaf-1.xml",
            JUNOS_DETAIL,
            vec!["switch/leaf-1 port et-0/0/1 - switch/spine-0 port et-0/0/7"],
        ),
        (
            "n1.txt",
            LLDPCTL,
            vec!["nic/n1:ens1 port 1 - switch/leaf-1 port swp3"],
        ),
        (
            "leaf-1.txt",
            &format!("Port  Neighbor Device ID  Neighbor Port ID\n\n{NXOS}"),
            vec!["switch/leaf-1 port Ethernet1/49 - switch/spine-0 port Ethernet1/1"],
        ),
        (
            "leaf-2.txt",
            &LLDPCTL.replace("ens1", "Ethernet8"),
            vec!["switch/leaf-2 port Ethernet8 - switch/leaf-1 port swp3"],
        ),
        (
            "n1.json",
            &json0(&[("ens1", "leaf-1", "swp3")]),
            vec!["nic/n1:ens1 port 1 - switch/leaf-1 port swp3"],
        ),
        (
            "leaf-1.json",
            &json0(&[("swp3", "spine-0", "swp4")]),
            vec!["switch/leaf-1 port swp3 - switch/spine-0 port swp4"],
        ),
    ] {
        let opened = document(file, text);
        assert_eq!(cables(&opened), expected, "{text}");
        assert_eq!(opened.problems, [], "{text}");
        assert!(crate::fabric::lldp::text::parse_neighbors(text).is_ok());
    }
}

#[test]
fn a_port_with_three_cables_is_reported_and_all_are_ignored() {
    let host = json0(&[
        ("ens1", "mgmt-sw", "swp7"),
        ("ens2", "mgmt-sw", "swp7"),
        ("ens3", "mgmt-sw", "swp7"),
        ("ens4", "leaf-1", "swp1"),
    ]);
    let site = Site::of(vec![document("n1.json", &host)]);
    assert_eq!(
        site.fabric
            .links()
            .filter(|(.., link)| link.kind == railscope_model::fabric::LinkKind::Cable)
            .count(),
        1
    );
    let reported: Vec<String> = site.contested.iter().map(ToString::to_string).collect();
    assert_eq!(
        reported,
        [
            "switch/mgmt-sw port swp7 is reported with 3 cables: nic/n1:ens1 port 1, nic/n1:ens2 port 1, nic/n1:ens3 port 1; all are ignored"
        ]
    );
    // The switch's report resolves it.
    let files = vec![
        document("n1.json", &host),
        document(
            "mgmt-sw.json",
            &json0(&[("swp7", "n1", "ens2")]).replace("Bridge", "Station"),
        ),
    ];
    let site = Site::of(files);
    assert!(
        site.contested[0]
            .to_string()
            .ends_with("; used: nic/n1:ens2 port 1, which both ends report"),
        "{:?}",
        site.contested
    );
}

#[test]
fn redacted_or_truncated_text_is_rejected_with_its_line() {
    let blacked = json0(&[("ens1", "leaf-1", "swp3")]).replace("7c:21:d8:00:00:0a", "mac_value");
    refused(
        &blacked,
        &[
            "f:1: lldp: found line 1: chassis id mac_value, expected a MAC address, according to its type; it may be redacted",
        ],
    );
    let eos = "Interface Ethernet1 detected 1 LLDP neighbors:\n\n  Neighbor <redacted>/\"Ethernet9\", age 12 seconds\n    Chassis ID     : <redacted>\n    Port ID     : \"Ethernet9\"\n";
    refused(
        eos,
        &[
            "f:3: lldp: found line 3: \"<redacted>\", expected the actual name or address: this one is redacted",
        ],
    );
    let cut = &EOS_JSON[..EOS_JSON.len() / 2];
    let errors = read("f", cut, None).expect_err("cut");
    assert_eq!(errors[0].line, 4, "{}", errors[0]);
    let cut = &JUNOS_XML[..JUNOS_XML.len() - 60];
    let errors = read("f", cut, None).expect_err("cut");
    assert!(
        errors[0].to_string().contains("the text is truncated"),
        "{}",
        errors[0]
    );
}
