//! Cables that other projects' exporters list, and those that they list no more.

use std::sync::Arc;

use railscope_collector::analyzer::{Analyzer, ClusterView};
use railscope_collector::mapping::{Mappings, Translator};
use railscope_collector::store::source_id::Subject;
use railscope_model::fabric::{LinkKind, Timestamp};
use railscope_model::identity::NodeName;

use crate::foreign::{named, page, take_up};

/// The cables of a graph, by name.
fn cables_of(view: &ClusterView) -> Vec<String> {
    let links = view.fabric.links();
    links
        .filter(|(.., link)| link.kind == LinkKind::Cable && link.is_present())
        .filter_map(|(id, ..)| view.fabric.cable_part(id))
        .map(|part| part.to_string())
        .collect()
}

/// LLDP-MIB of a switch of which one port has one neighbor, with or without its table of the switch's own ports.
fn neighbor(port: &str, system: &str, their_port: &str, has_own_ports: bool) -> String {
    let own = if has_own_ports {
        format!("lldpLocPortId{{lldpLocPortId=\"{port}\",lldpLocPortNum=\"5\"}} 1\n")
    } else {
        String::new()
    };
    let rem = "lldpRemIndex=\"1\",lldpRemLocalPortNum=\"5\",lldpRemTimeMark=\"0\"";
    format!(
        "ifHighSpeed{{ifIndex=\"5\",ifName=\"{port}\"}} 400000\n\
         {own}\
         lldpRemChassisId{{lldpRemChassisId=\"{system}-id\",{rem}}} 1\n\
         lldpRemPortId{{{rem},lldpRemPortId=\"{their_port}\"}} 1\n\
         lldpRemSysName{{{rem},lldpRemSysName=\"{system}\"}} 1\n"
    )
}

#[test]
fn switches_that_hear_each_other_by_somebody_else_s_exporter_share_a_cable_and_a_moved_one_moves() {
    let mapping = Mappings::default().by_kind("snmp_exporter").cloned();
    let mapping = mapping.expect("built in");
    for has_own_ports in [true, false] {
        let mut analyzer = Analyzer::default();
        let mut cables = |seconds: u64, leaf: &str, spine: &str| {
            let at = Timestamp(seconds * 1000);
            for (switch, page) in [
                ("leaf-01", neighbor(leaf, "spine-01", spine, has_own_ports)),
                ("spine-01", neighbor(spine, "leaf-01", leaf, has_own_ports)),
            ] {
                let about = Subject::Switch(switch.parse().expect("name"));
                let mut translator = Translator::new(mapping.clone(), Some(about));
                take_up(&mut analyzer, translator.translate(&page, at), at);
            }
            cables_of(&analyzer.tick(at))
        };
        assert_eq!(
            cables(0, "Ethernet1/1", "Ethernet1/9"),
            ["link/leaf-01[Ethernet1/1]"]
        );
        assert_eq!(
            cables(5, "Ethernet1/2", "Ethernet1/10"),
            ["link/leaf-01[Ethernet1/2]"]
        );
    }
}

/// Name of a switch, and ports of it, each with the switch and the port at the other end.
type SwitchWithPorts = (&'static str, &'static [[&'static str; 3]]);

const TWO_LEAVES_AND_TWO_SPINES: [SwitchWithPorts; 4] = [
    (
        "leaf-01",
        &[
            ["Eth1/9", "spine-01", "Eth1/1"],
            ["Eth1/10", "spine-02", "Eth1/1"],
        ],
    ),
    (
        "leaf-02",
        &[
            ["Eth1/9", "spine-01", "Eth1/2"],
            ["Eth1/10", "spine-02", "Eth1/2"],
        ],
    ),
    (
        "spine-01",
        &[
            ["Eth1/1", "leaf-01", "Eth1/9"],
            ["Eth1/2", "leaf-02", "Eth1/9"],
        ],
    ),
    (
        "spine-02",
        &[
            ["Eth1/1", "leaf-01", "Eth1/10"],
            ["Eth1/2", "leaf-02", "Eth1/10"],
        ],
    ),
];

/// IF-MIB and LLDP-MIB of such a switch, with these ports down.
fn page_of((switch, ports): &SwitchWithPorts, down: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (number, [port, system, their_port]) in (1..).zip(*ports) {
        let is_up = !down.contains(&(switch, port));
        let status = if is_up { 1 } else { 2 };
        text += &format!(
            "ifOperStatus{{ifName=\"{port}\"}} {status}\n\
             ifHighSpeed{{ifName=\"{port}\"}} 200000\n\
             lldpLocPortId{{lldpLocPortId=\"{port}\",lldpLocPortNum=\"{number}\"}} 1\n"
        );
        let rem =
            format!("lldpRemIndex=\"1\",lldpRemLocalPortNum=\"{number}\",lldpRemTimeMark=\"0\"");
        if is_up {
            text += &format!(
                "lldpRemChassisId{{lldpRemChassisId=\"{system}-id\",{rem}}} 1\n\
                 lldpRemPortId{{{rem},lldpRemPortId=\"{their_port}\"}} 1\n\
                 lldpRemSysName{{{rem},lldpRemSysName=\"{system}\"}} 1\n"
            );
        }
    }
    text
}

/// What is named of switches over time, which are scraped a minute apart, each at another time. `page` is that of a switch, none
/// while it does not respond.
fn named_each_5_s(
    switches: &[SwitchWithPorts],
    seconds: u64,
    page: impl Fn(u64, &SwitchWithPorts) -> Option<String>,
) -> Vec<(u64, Vec<String>)> {
    let mapping = Mappings::default().by_kind("snmp_exporter").cloned();
    let mapping = mapping.expect("built in");
    let translator = |(switch, _): &SwitchWithPorts| {
        let about = Subject::Switch(switch.parse().expect("name"));
        Translator::new(mapping.clone(), Some(about))
    };
    let mut translators: Vec<_> = switches.iter().map(translator).collect();
    let mut analyzer = Analyzer::default();
    let mut tick = |seconds: u64| {
        let at = Timestamp(seconds * 1000);
        let switches = switches.iter().zip(&mut translators);
        for (number, (switch, translator)) in (0..).zip(switches) {
            let is_due = seconds % 60 == 10 * number;
            if let Some(page) = page(seconds, switch).filter(|_| is_due) {
                take_up(&mut analyzer, translator.translate(&page, at), at);
            }
        }
        (seconds, named(&analyzer.tick(at)))
    };
    (0..seconds).step_by(5).map(&mut tick).collect()
}

/// A spine with four leaves, each with another one, too.
const FOUR_LEAVES_AND_A_SPINE: [SwitchWithPorts; 5] = [
    (
        "leaf-01",
        &[
            ["Eth1/9", "spine-02", "Eth1/1"],
            ["Eth1/10", "spine-01", "Eth1/1"],
        ],
    ),
    (
        "leaf-02",
        &[
            ["Eth1/9", "spine-02", "Eth1/2"],
            ["Eth1/10", "spine-01", "Eth1/2"],
        ],
    ),
    (
        "leaf-03",
        &[
            ["Eth1/9", "spine-02", "Eth1/3"],
            ["Eth1/10", "spine-01", "Eth1/3"],
        ],
    ),
    (
        "spine-01",
        &[
            ["Eth1/1", "leaf-01", "Eth1/10"],
            ["Eth1/2", "leaf-02", "Eth1/10"],
            ["Eth1/3", "leaf-03", "Eth1/10"],
            ["Eth1/4", "leaf-04", "Eth1/10"],
        ],
    ),
    (
        "leaf-04",
        &[
            ["Eth1/9", "spine-02", "Eth1/4"],
            ["Eth1/10", "spine-01", "Eth1/4"],
        ],
    ),
];

#[test]
fn a_switch_that_starts_again_leaves_no_cable_down_until_its_neighbors_are_read() {
    // It is read before some of its neighbors, or after one of them.
    for back in [560, 575] {
        let page = |seconds, switch: &SwitchWithPorts| match switch.0 {
            _ if !(300..back).contains(&seconds) => Some(page_of(switch, &[])),
            "spine-01" => None,
            leaf => Some(page_of(switch, &[(leaf, "Eth1/10")])),
        };
        let ever = named_each_5_s(&FOUR_LEAVES_AND_A_SPINE, 900, page);
        let mut after: Vec<_> = ever
            .into_iter()
            .filter(|(seconds, _)| *seconds > 500)
            .flat_map(|(_, named)| named)
            .collect();
        after.dedup();
        assert_eq!(after, ["switch-down switch/spine-01"], "{back} s");
    }
}

#[test]
fn a_cable_whose_ports_are_down_on_pages_of_a_minute_is_down() {
    let lost = [("leaf-01", "Eth1/10"), ("spine-02", "Eth1/1")];
    let page = |seconds, switch: &SwitchWithPorts| {
        let down = if seconds < 300 { &[] } else { &lost[..] };
        Some(page_of(switch, down))
    };
    for (seconds, named) in named_each_5_s(&TWO_LEAVES_AND_TWO_SPINES, 600, page) {
        match seconds {
            ..300 => assert_eq!(named, Vec::<String>::new(), "{seconds} s"),
            420.. => assert_eq!(named, ["uplink-down link/leaf-01[Eth1/10]"], "{seconds} s"),
            _ => {}
        }
    }
}

/// Switches are read, and of hosts the network interfaces alone.
#[test]
fn interfaces_of_hosts_without_rdma_ports_are_nics_where_switches_have_them_as_neighbors() {
    let built_in = |kind: &str| Mappings::default().by_kind(kind).cloned().expect(kind);
    let leaf: SwitchWithPorts = (
        "leaf-01",
        &[["Eth1/1", "n1.site", "eth4"], ["Eth1/2", "n2.site", "eth4"]],
    );
    let about = Subject::Switch("leaf-01".parse().expect("name"));
    let mut of_leaf = Translator::new(built_in("snmp_exporter"), Some(about));
    let mut analyzer = Analyzer::default();
    let hosts = ["n1", "n2"].map(|host| host.parse::<NodeName>().expect("name"));
    analyzer.set_targets(&hosts);
    let mut of_hosts =
        hosts.map(|host| Translator::new(built_in("node_exporter"), Some(Subject::Node(host))));
    let mut cables = |seconds: u64| {
        let at = Timestamp(seconds * 1000);
        let is_down = seconds >= 60;
        let down = if is_down {
            &[("leaf-01", "Eth1/1")][..]
        } else {
            &[]
        };
        let page = page_of(&leaf, down);
        take_up(&mut analyzer, of_leaf.translate(&page, at), at);
        for (host, translator) in of_hosts.iter_mut().enumerate() {
            // The first page may be from before the link came up.
            let is_up = seconds > 0 && !(is_down && host == 0);
            let speed = if is_up { 25e9 } else { -125_000.0 };
            let page = format!(
                "node_network_speed_bytes{{device=\"eno1\"}} 125000000\n\
                 node_network_carrier{{device=\"eth4\"}} {}\n\
                 node_network_speed_bytes{{device=\"eth4\"}} {speed}\n",
                u8::from(is_up)
            );
            take_up(&mut analyzer, translator.translate(&page, at), at);
        }
        let view = analyzer.tick(at);
        (cables_of(&view), named(&view))
    };
    let (up, none) = cables(0);
    assert_eq!(up, ["link/n1:eth4/1", "link/n2:eth4/1"]);
    assert_eq!(none, Vec::<String>::new());
    let ever: Vec<_> = (5..90).step_by(5).map(&mut cables).collect();
    let (up, down) = &ever[ever.len() - 1];
    assert_eq!(up, &["link/n2:eth4/1"]);
    assert_eq!(down, &["port-down link/n1:eth4/1"]);
}

#[test]
fn cables_of_an_infiniband_subnet_are_those_that_its_exporter_lists() {
    let mapping = Mappings::default().by_kind("infiniband_exporter").cloned();
    let mut translator = Translator::new(mapping.expect("built in"), None);
    let mut analyzer = Analyzer::default();
    let at = Timestamp(1000);
    let page = page("infiniband_exporter");
    take_up(&mut analyzer, translator.translate(&page, at), at);
    let mut cables = cables_of(&analyzer.tick(at));
    cables.sort();
    assert_eq!(cables, ["link/leaf-01:33", "link/n1:mlx5_0/1"]);
}

#[test]
fn boards_of_a_director_are_switches_of_their_own() {
    let mapping = Mappings::default().by_kind("infiniband_exporter").cloned();
    let mapping = mapping.expect("built in");
    for (description, name) in [
        ("MF0;dir:MCS7500/L02/U1", "dir/L02/U1"),
        ("MF0;dir:MCS7500/U2", "dir/U2"),
        ("MF0;dir:MQM9790/U1", "dir"),
        ("dir", "dir"),
    ] {
        let mut translator = Translator::new(Arc::clone(&mapping), None);
        let page = page("infiniband_exporter").replace("MF0;leaf-01:MQM9700/U1", description);
        let read = translator.translate(&page, Timestamp(1000)).readings;
        let named = |(subject, _): &(Subject, _)| matches!(subject, Subject::Switch(own) if own.as_str() == name);
        assert!(read.iter().any(named), "{description}: {read:?}");
    }
}

#[test]
fn releases_of_infiniband_exporter_name_switches_on_different_series() {
    let mapping = Mappings::default().by_kind("infiniband_exporter").cloned();
    let mapping = mapping.expect("built in");
    let read = |page: &str| {
        let mut translator = Translator::new(Arc::clone(&mapping), None);
        format!("{:?}", translator.translate(page, Timestamp(1000)).readings)
    };
    let page = page("infiniband_exporter");
    let is_info = |line: &&str| line.contains("_switch_info") || line.contains("_hca_info");
    let oldest: Vec<&str> = page.lines().filter(|line| !is_info(line)).collect();
    assert!(oldest.len() < page.lines().count());
    assert_eq!(read(&oldest.join("\n")), read(&page));
    let names = [
        ("guid=\"0xb83fd20300a1c0e0\",port", "switch=\"leaf-01\""),
        ("guid=\"0xb83fd20300a1c1e0\",port", "switch=\"spine-01\""),
        ("guid=\"0xb83fd20300b00001\",port", "hca=\"n1 mlx5_0\""),
    ];
    let named = |line: &str| {
        names.iter().fold(line.to_owned(), |line, (guid, name)| {
            line.replace(guid, &format!("{name},{guid}"))
        })
    };
    let is_uplink = |line: &&str| line.contains("_uplink_info");
    let counters: Vec<&str> = page.lines().filter(|line| !is_uplink(line)).collect();
    let newest = counters.iter().filter(|line| !is_info(line));
    let newest: Vec<String> = newest.map(|line| named(line)).collect();
    assert_eq!(read(&newest.join("\n")), read(&counters.join("\n")));
}

/// Two leaves and two spines of an InfiniBand subnet as infiniband_exporter lists them, with these cables between them and a
/// hundred others, and an HCA on the first leaf while it runs.
fn subnet(cables: &[(&str, &str, &str, &str)], has_hca: bool) -> String {
    let mut text = String::new();
    for name in ["leaf-1", "leaf-2", "spine-1", "spine-2"] {
        text += &format!("infiniband_switch_info{{guid=\"{name}\",switch=\"{name}\"}} 1\n");
    }
    let mut uplink = |near: &str, port: &str, far: &str, far_port: &str, kind: &str| {
        text += &format!(
            "infiniband_switch_uplink_info{{guid=\"{near}\",port=\"{port}\",switch=\"{near}\",uplink=\"{far}\",uplink_guid=\"{far}\",uplink_port=\"{far_port}\",uplink_type=\"{kind}\"}} 1\n"
        );
    };
    for (a, a_port, b, b_port) in cables {
        uplink(a, a_port, b, b_port, "SW");
        uplink(b, b_port, a, a_port, "SW");
    }
    for port in (101..=200).map(|port| port.to_string()) {
        uplink("leaf-2", &port, "spine-2", &port, "SW");
        uplink("spine-2", &port, "leaf-2", &port, "SW");
    }
    if has_hca {
        uplink("leaf-1", "1", "n1 mlx5_0", "1", "CA");
        text += "infiniband_hca_info{guid=\"0x1\",hca=\"n1 mlx5_0\"} 1\n";
    }
    text
}

#[test]
fn a_cable_between_switches_that_infiniband_exporter_no_longer_lists_is_down_until_it_is_listed_again()
 {
    let cables = [
        ("leaf-1", "33", "spine-1", "1"),
        ("leaf-1", "34", "spine-2", "1"),
        ("leaf-2", "33", "spine-1", "2"),
        ("leaf-2", "34", "spine-2", "2"),
    ];
    let mapping = Mappings::default().by_kind("infiniband_exporter").cloned();
    let mut translator = Translator::new(mapping.expect("built in"), None);
    let mut analyzer = Analyzer::default();
    let mut incidents = |seconds: std::ops::Range<u64>, page: &str| {
        let mut last = Vec::new();
        for second in seconds.step_by(10) {
            let at = Timestamp(second * 1000);
            take_up(&mut analyzer, translator.translate(page, at), at);
            last = named(&analyzer.tick(at));
        }
        last
    };
    let none = Vec::<String>::new();
    let whole = subnet(&cables, true);
    assert_eq!(incidents(0..60, &whole), none);
    // A switch that does not answer a query lists nothing of its cables.
    assert_eq!(incidents(60..80, &subnet(&cables[2..], true)), none);
    assert_eq!(incidents(80..140, &whole), none);
    let down = ["uplink-down link/leaf-1:33"];
    assert_eq!(incidents(140..200, &subnet(&cables[1..], true)), down);
    // Other HCAs on the list change what its lines mean, and the exporter may fail.
    assert_eq!(incidents(200..230, &subnet(&cables[1..], false)), down);
    let fails = "infiniband_exporter_collect_errors{collector=\"ibnetdiscover\"} 1\n";
    assert_eq!(incidents(230..250, fails), down);
    assert_eq!(incidents(250..300, &subnet(&cables[1..], false)), down);
    assert_eq!(incidents(300..520, &whole), none);
}

/// node_exporter relates no interface to an RDMA device; the addresses in the names of interfaces are in the order of the devices.
#[test]
fn a_switch_that_names_interfaces_by_their_places_has_cables_to_rdma_devices() {
    let interfaces = ["enp24s0f0np0", "enp64s0f0np0"];
    assert_eq!(cable_of(&interfaces, "enp64s0f0np0"), ["link/n1:mlx5_1/1"]);
}

/// lldpd calls a port by its MAC address unless it is configured otherwise.
#[test]
fn a_switch_that_names_interfaces_by_their_mac_addresses_has_cables_to_rdma_devices() {
    let interfaces = ["benic1p1", "benic2p1"];
    assert_eq!(
        cable_of(&interfaces, "b8:3f:d2:00:00:01"),
        ["link/n1:mlx5_1/1"]
    );
    assert_eq!(cable_of(&interfaces, "b8:3f:d2:00:00:07"), [""; 0]);
}

/// The cable from a leaf to a host with these interfaces, whose LLDP names one of them so.
fn cable_of(interfaces: &[&str], port: &str) -> Vec<String> {
    let mut analyzer = Analyzer::default();
    let at = Timestamp(1000);
    let mut node = String::new();
    for (number, interface) in interfaces.iter().enumerate() {
        node += &format!(
            "node_infiniband_info{{device=\"mlx5_{number}\",board_id=\"b\",firmware_version=\"28\",hca_type=\"MT4129\"}} 1\n\
             node_infiniband_state_id{{device=\"mlx5_{number}\",port=\"1\"}} 4\n\
             node_infiniband_rate_bytes_per_second{{device=\"mlx5_{number}\",port=\"1\"}} 25000000000\n\
             node_network_info{{device=\"{interface}\",address=\"b8:3f:d2:00:00:0{number}\",operstate=\"up\"}} 1\n\
             node_network_carrier{{device=\"{interface}\"}} 1\n\
             node_network_mtu_bytes{{device=\"{interface}\"}} 9000\n\
             node_network_speed_bytes{{device=\"{interface}\"}} 25000000000\n"
        );
    }
    let leaf = neighbor("Ethernet17/1", "n1", port, true);
    for (kind, about, text) in [
        (
            "node_exporter",
            Subject::Node("n1".parse().expect("name")),
            &node,
        ),
        (
            "snmp_exporter",
            Subject::Switch("leaf-01".parse().expect("name")),
            &leaf,
        ),
    ] {
        let mapping = Mappings::default().by_kind(kind).cloned();
        let mut translator = Translator::new(mapping.expect("built in"), Some(about));
        take_up(&mut analyzer, translator.translate(text, at), at);
    }
    cables_of(&analyzer.tick(at))
}
