//! Switch output in every form, synthetic; and recorded output, where it is available.

use super::*;
use crate::fabric::Neighbor;

/// `local: system port, chassis, forwards` of each neighbor, and how many could not be read.
fn read(text: &str) -> Result<(Vec<String>, usize), String> {
    let told = parse_neighbors(text)?;
    let line = |one: &Neighbor| {
        let Neighbor {
            local,
            chassis,
            port,
            system,
            forwards,
            ..
        } = one;
        format!("{local}: {system} {port}, {chassis}, {forwards:?}")
    };
    Ok((told.neighbors.iter().map(line).collect(), told.unparsed))
}

#[test]
fn both_forms_of_lldpd_say_the_same() {
    let capability =
        r#""capability":[{"type":"Bridge","enabled":true},{"type":"Wlan","enabled":false}]"#;
    let json0 = |id: &str| {
        format!(
            r#"{{"name":"swp1","chassis":[{{"id":[{{"type":"mac","value":"7c:21:d8:00:00:0a"}}],"name":[{{"value":"spine-0"}}],{capability}}}],"port":[{{{id}"descr":[{{"value":"x"}}]}}]}}"#
        )
    };
    let with_id = json0(r#""id":[{"type":"ifname","value":"swp3"}],"#);
    let json = format!(
        r#"{{"swp1":{{"chassis":{{"spine-0":{{"id":{{"type":"mac","value":"7c:21:d8:00:00:0a"}},{capability}}}}},"port":{{"id":{{"type":"ifname","value":"swp3"}},"descr":"x"}}}}}}"#
    );
    let one = vec![String::from(
        "swp1: spine-0 swp3, 7c:21:d8:00:00:0a, Some(true)",
    )];
    let nameless = r#"{"swp1":{"chassis":{"id":{"type":"local","value":"c"}},"port":{"id":{"type":"ifname","value":"p"}}}}"#;
    for (text, expected) in [
        (
            format!(r#"{{"lldp":[{{"interface":[{with_id}]}}]}}"#),
            (one.clone(), 0),
        ),
        (
            format!(r#"{{"lldp":[{{"interface":[{with_id},{}]}}]}}"#, json0("")),
            (one.clone(), 1),
        ),
        (r#"{"lldp":[{}]}"#.to_owned(), (vec![], 0)),
        (
            format!(r#"{{"lldp":{{"interface":[{json}]}}}}"#),
            (one.clone(), 0),
        ),
        (format!(r#"{{"lldp":{{"interface":{json}}}}}"#), (one, 0)),
        (
            format!(r#"{{"lldp":{{"interface":{nameless}}}}}"#),
            (vec![String::from("swp1:  p, c, None")], 0),
        ),
        (r#"{"lldp":{}}"#.to_owned(), (vec![], 0)),
    ] {
        assert_eq!(read(&text), Ok(expected), "{text}");
    }
}

#[test]
fn the_details_of_eos_and_nx_os_are_read_by_their_blocks() {
    let eos = "Interface Ethernet49/1 detected 1 LLDP neighbors:\n\n  Neighbor 7c21.d800.000a/\"Ethernet1/1\", age 12 seconds\n  - Chassis ID type: MAC address (4)\n    Chassis ID     : 7c21.d800.000a\n  - Port ID type: Interface name (5)\n    Port ID     : \"Ethernet1/1\"\n  - System Name: \"spine-0\"\n    Enabled Capabilities: Bridge, Router\n    Link Aggregation Status: Capable\n    Port ID                : 0\nInterface Ethernet50/1 detected 0 LLDP neighbors:\n\nInterface Ethernet3 detected 2 LLDP neighbors:\n  Neighbor x/y, age 1 seconds\n    Chassis ID     : x\n  Neighbor a/b, age 1 seconds\n    Chassis ID     : a\n    Port ID     : b\n";
    let nxos = "Device ID            Local Intf      Hold-time  Capability  Port ID  \n\nChassis id: 7c21.d800.000a\nPort id: Ethernet1/1\nLocal Port id: Eth1/49\nPort Description: to n1\nSystem Name: spine-0\nEnabled Capabilities: B, R\n\nChassis id: c\nPort id: p\nLocal Port id: mgmt0\nSystem Name: not advertised\nEnabled Capabilities: S\n\nChassis id: d\nTotal entries displayed: 3\n";
    for (text, expected) in [
        (
            eos,
            vec![
                "Ethernet49/1: spine-0 Ethernet1/1, 7c21.d800.000a, Some(true)",
                "Ethernet3:  b, a, None",
            ],
        ),
        (
            nxos,
            vec![
                "Ethernet1/49: spine-0 Ethernet1/1, 7c21.d800.000a, Some(true)",
                "mgmt0:  p, c, Some(false)",
            ],
        ),
    ] {
        let expected: Vec<_> = expected.into_iter().map(str::to_owned).collect();
        assert_eq!(read(text), Ok((expected, 1)), "{text}");
    }
}

#[test]
fn lldpd_as_text_and_as_key_value_pairs_says_the_same() {
    let text = "op@leaf-1:~$ show lldp neighbors\n-----\nLLDP neighbors:\n-----\n\
                Interface:    Ethernet8, via: LLDP, RID: 3, Time: 0 day, 12:20:49\n  Chassis:     \n    ChassisID:    mac 7c:21:d8:00:00:0a\n    \
                SysName:      spine-0\n    Capability:   Bridge, on\n    Capability:   Router, off\n  Port:        \n    PortID:       local Eth1/31\n    \
                PortDescr:    to leaf 1\n  LLDP-MED:\n    Capability:   Inventory, yes\n-----\n\
                Interface:    eth2.7, via: LLDP\n  Chassis:\n    ChassisID:    local c\n  Port:\n    PortID:       ifname p 1\n-----\n\
                Interface:    eth3, via: LLDP\n  Chassis:\n    SysName:      n2\n";
    let pairs = "lldp.Ethernet8.via=LLDP\nlldp.Ethernet8.rid=3\nlldp.Ethernet8.chassis.mac=7c:21:d8:00:00:0a\nlldp.Ethernet8.chassis.name=spine-0\n\
                 lldp.Ethernet8.chassis.Bridge.enabled=on\nlldp.Ethernet8.chassis.Router.enabled=off\nlldp.Ethernet8.port.local=Eth1/31\n\
                 lldp.Ethernet8.port.descr=to leaf 1\nlldp.Ethernet8.port.auto-negotiation.supported=yes\nlldp.eth2.7.via=LLDP\n\
                 lldp.eth2.7.chassis.local=c\nlldp.eth2.7.port.ifname=p 1\nlldp.eth3.vlan.pvid=yes\nlldp.eth3.via=LLDP\nlldp.eth3.chassis.name=n2\n";
    let expected = vec![
        "Ethernet8: spine-0 Eth1/31, 7c:21:d8:00:00:0a, Some(true)".to_owned(),
        "eth2.7:  p 1, c, None".to_owned(),
    ];
    for text in [text, pairs] {
        assert!(is_neighbors(text));
        assert_eq!(read(text), Ok((expected.clone(), 1)), "{text}");
    }
}

#[test]
fn the_json_of_nx_os_and_junos_and_the_text_of_ios_xr_are_read() {
    let nxos = r#"{"neigh_hdr":"neigh_hdr","TABLE_nbor":{"ROW_nbor":[
        {"chassis_type":"Locally Assigned","chassis_id":"spine-0","l_port_id":"Eth1/49","enabled_capability":"BR","port_id":"Ethernet1/1"},
        {"chassis_id":"n1","l_port_id":"Eth1/2"}]}}"#;
    let detail = r#"{"TABLE_nbor_detail":{"ROW_nbor_detail":{"chassis_id":"7c21.d800.000a","l_port_id":"Eth1/49","sys_name":"spine-0",
        "enabled_capability":"B, R","port_id":"Ethernet1/1"}}}"#;
    let junos = r#"{"lldp-neighbors-information":[{"attributes":{"junos:style":"detail"},"lldp-neighbor-information":[{
        "lldp-local-interface":[{"data":"et-0/0/3.0"}],"lldp-local-port-id":[{"data":"519"}],"lldp-remote-chassis-id":[{"data":"7c:21:d8:00:00:0a"}],
        "lldp-remote-port-id":[{"data":"517"}],"lldp-remote-system-name":[{"data":"spine-0"}],
        "lldp-remote-system-capabilities-enabled":[{"data":"Bridge Router "}]},{}]}]}"#;
    let xr = "Mon Mar 19 18:24:29.512 UTC\n------\nLocal Interface: HundredGigE0/0/0/3\nChassis id: 7c21.d800.000a\nPort id: Ethernet1/1\n\
              System Name: spine-0\n\nSystem Description:\nNX-OS\n\nSystem Capabilities: B,R\nEnabled Capabilities: R\n------\nLocal Intf: Hu0/0/0/4\nChassis id: x\n";
    for (text, expected, unparsed) in [
        (
            nxos,
            "Ethernet1/49: spine-0 Ethernet1/1, spine-0, Some(true)",
            1,
        ),
        (
            detail,
            "Ethernet1/49: spine-0 Ethernet1/1, 7c21.d800.000a, Some(true)",
            0,
        ),
        (
            junos,
            "et-0/0/3: spine-0 517, 7c:21:d8:00:00:0a, Some(true)",
            1,
        ),
        (
            xr,
            "HundredGigE0/0/0/3: spine-0 Ethernet1/1, 7c21.d800.000a, Some(true)",
            1,
        ),
    ] {
        assert_eq!(
            read(text),
            Ok((vec![expected.to_owned()], unparsed)),
            "{text}"
        );
    }
}

#[test]
fn what_is_none_of_these_is_refused_with_what_was_expected() {
    for (text, begins) in [
        ("", "line 1: no text: expected the output of \"lldpctl"),
        (
            "% Invalid input detected\n",
            "line 1: \"% Invalid input detected\": expected",
        ),
        (
            "{\"lldp\":[",
            "EOF while parsing a list at line 1 column 9: expected",
        ),
        ("{}", "JSON without \"lldp\": expected"),
        (
            r#"{"lldpNeighbors":[{"port":"Ethernet1","neighborDevice":"n1","neighborPort":"eth0"}]}"#,
            "the short list of neighbors, without their kind: expected",
        ),
    ] {
        let said = read(text).expect_err(text);
        assert!(said.starts_with(begins), "{said}");
    }
}

#[test]
fn the_recorded_words_of_switches_and_of_a_host_are_read_whole() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../shared/captures/switch/lldp/"
    );
    // Neighbors, own ports with any, neighbors with a name, those that forward.
    for (file, expected) in [
        (
            "arista_eos_show_lldp_neighbors_detail.raw",
            [20, 13, 20, 20],
        ),
        ("cisco_nxos_show_lldp_neighbors_detail.raw", [4, 4, 4, 4]),
        ("cisco_nxos_show_lldp_neighbors_detail2.raw", [2, 2, 2, 2]),
    ] {
        let Ok(text) = std::fs::read_to_string(format!("{folder}{file}")) else {
            eprintln!("SKIPPED: no capture {file}");
            continue;
        };
        let told = parse_neighbors(&text).expect(file);
        let all = &told.neighbors;
        let locals: std::collections::BTreeSet<_> = all.iter().map(|one| &one.local).collect();
        let named = all.iter().filter(|one| !one.system.is_empty()).count();
        let forward = all.iter().filter(|one| one.forwards == Some(true)).count();
        assert_eq!(
            ([all.len(), locals.len(), named, forward], told.unparsed),
            (expected, 0),
            "{file}: {all:#?}"
        );
    }
}

#[test]
fn a_recorded_host_with_redacted_ids_is_rejected_with_its_line() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../shared/captures/switch/lldp/meta-gcm-eth_learn_good.json"
    );
    let Ok(text) = std::fs::read_to_string(file) else {
        eprintln!("SKIPPED: no capture {file}");
        return;
    };
    let error = parse_neighbors(&text).expect_err("redacted");
    assert!(
        error.contains(": chassis id mac_value, and 1 more: expected a MAC address"),
        "{error}"
    );
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(Interface E detected 1 LLDP neighbors:\n|Interface: e, via: L\n|lldp.e.via=L\n|lldp.e.port.mac=|Neighbor |Chassis id: |Port id: |Chassis ID: |[a-z0-9:/\"\n ]{0,12}){0,12}") {
        parse_neighbors(&text).ok();
    }

    #[test]
    fn no_json_makes_it_panic(text in r#"\{"lldp":[\{\}\[\]",:a-z0-9]{0,60}"#) {
        parse_neighbors(&text).ok();
    }
}
