//! What the reader of `ibnetdiscover` text makes of the dialects and the debris that it is given.
use railscope_collector::fabric::subnet::{
    Completeness, Gap, MAX_PROBLEMS, Subnet, parse_ibnetdiscover,
};

/// Every line is accounted for, and every one that was not understood has a problem.
fn parse(text: &str) -> Subnet {
    let subnet = parse_ibnetdiscover(text);
    let counts = subnet.counts;
    assert_eq!(
        counts.lines,
        counts.blank + counts.comments + counts.read + counts.unread
    );
    assert!(counts.problems >= counts.unread);
    subnet
}

fn summary(text: &str) -> String {
    let subnet = parse(text);
    let mut lines = Vec::new();
    for node in &subnet.nodes {
        let swept = if node.swept { "" } else { " (not swept)" };
        let lid = node.lid.map_or("-".to_owned(), |lid| lid.to_string());
        lines.push(format!(
            "{:?} {} {:?} ports {} lid {lid}{swept}",
            node.kind, node.guid, node.description, node.ports
        ));
    }
    for cable in &subnet.links {
        let [a, b] = cable.ends;
        let speed = cable
            .speed
            .map_or("?".to_owned(), |speed| speed.to_string());
        let sides = if cable.both_ends { "" } else { " one end" };
        lines.push(format!(
            "{}[{}] - {}[{}] {speed}{sides}",
            a.guid, a.port, b.guid, b.port
        ));
    }
    lines.extend(subnet.problems.iter().map(ToString::to_string));
    lines.extend(
        subnet
            .completeness
            .gaps()
            .iter()
            .map(|gap| format!("gap: {gap}")),
    );
    lines.join("\n")
}

fn check(text: &str, expected: &str) {
    let expected: Vec<_> = expected
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!(
        summary(text).lines().collect::<Vec<_>>(),
        expected,
        "{text}"
    );
}

/// A complete switch and adapter.
const PAIR: &str = r##"
vendid=0x2c9
devid=0xd2f2
sysimgguid=0xfc6a1c0300a00000
switchguid=0xfc6a1c0300a00000(fc6a1c0300a00000)
Switch	65 "S-fc6a1c0300a00000"		# "MF0;leaf:MQM9700/U1" enhanced port 0 lid 3 lmc 0
[1]	"H-0c42a10300b00010"[1](c42a10300b00010) 		# "gpu-01 mlx5_0" lid 17 4xNDR

vendid=0x2c9
devid=0x1021
sysimgguid=0xc42a10300b00010
caguid=0xc42a10300b00010
Ca	1 "H-0c42a10300b00010"		# "gpu-01 mlx5_0"
[1](c42a10300b00010) 	"S-fc6a1c0300a00000"[1]		# lid 17 lmc 0 "MF0;leaf:MQM9700/U1" lid 3 4xNDR
"##;

const PAIR_READ: &str = r#"
    Switch 0xfc6a1c0300a00000 "MF0;leaf:MQM9700/U1" ports 65 lid 3
    Ca 0x0c42a10300b00010 "gpu-01 mlx5_0" ports 1 lid 17
    0xfc6a1c0300a00000[1] - 0x0c42a10300b00010[1] 4xNDR
"#;

#[test]
fn a_cable_printed_from_both_ends_is_one_cable() {
    check(PAIR, PAIR_READ);
}

#[test]
fn terminals_and_options_change_nothing() {
    check(&PAIR.replace('\n', "\r\n"), PAIR_READ);
    check(&PAIR.replace('\t', "    "), PAIR_READ);
    check(&PAIR.replace("4xNDR", "4xNDR s=128 w=2 v=4 e=4"), PAIR_READ);
    check(&PAIR.replace("enhanced", "base"), PAIR_READ);
    check(
        &format!("\u{feff}# a comment\n\n{PAIR}\n# another"),
        PAIR_READ,
    );
    check(&PAIR.replace("H-0c42a", "H-c42a"), PAIR_READ);
    check(
        &format!(
            "\nChassis 1 (guid 0x2c9)\n{}",
            PAIR.replace("\"[1]", "\"[1][ext 7]")
        ),
        PAIR_READ,
    );
    check(
        &PAIR.replace("gpu-01 mlx5_0\"", "gpu-01 mlx5_0 \""),
        PAIR_READ,
    );
    check(PAIR.trim_end(), PAIR_READ);
}

#[test]
fn descriptions_may_hold_quotes_and_be_empty() {
    check(
        &PAIR.replace("gpu-01 mlx5_0", r#"the "old" one"#),
        &PAIR_READ.replace("gpu-01 mlx5_0", r#"the \"old\" one"#),
    );
    check(
        &PAIR.replace("gpu-01 mlx5_0", ""),
        &PAIR_READ.replace("gpu-01 mlx5_0", ""),
    );
}

#[test]
fn free_node_ids_of_a_simulated_subnet_are_ids() {
    check(
        &PAIR
            .replace("S-fc6a1c0300a00000", "leaf-r0")
            .replace("H-0c42a10300b00010", "gpu-01-h0"),
        PAIR_READ,
    );
}

#[test]
fn the_report_form_gives_the_same_cable_and_unused_ports() {
    check(
        "SW     3  1 0xfc6a1c0300a00000 4x NDR - CA    17  1 0x0c42a10300b00010 ( 'MF0;leaf:MQM9700/U1' - 'gpu-01 mlx5_0' )\n\
         CA    17  1 0x0c42a10300b00010 4x NDR - SW     3  1 0xfc6a1c0300a00000 ( 'gpu-01 mlx5_0' - 'MF0;leaf:MQM9700/U1' )\n\
         SW     3 65 0xfc6a1c0300a00000 4x ???                                    'MF0;leaf:MQM9700/U1'\n",
        PAIR_READ,
    );
}

#[test]
fn what_cannot_be_read_is_said_and_not_guessed() {
    check(
        &PAIR
            .replace("lid 3 4xNDR", "lid 3 4x???")
            .replace("lid 17 4xNDR", "lid x 4xZDR"),
        r#"
        Switch 0xfc6a1c0300a00000 "MF0;leaf:MQM9700/U1" ports 65 lid 3
        Ca 0x0c42a10300b00010 "gpu-01 mlx5_0" ports 1 lid 17
        0xfc6a1c0300a00000[1] - 0x0c42a10300b00010[1] ?
        line 7, column 66: link: expected lid N and a width and speed such as 4xHDR, found "lid x 4xZDR"
        line 7, column 72: speed: expected a width and speed such as 4xHDR, found "4xZDR"
        line 14, column 91: speed: expected a width and speed such as 4xHDR, found "4x???"
        "#,
    );
    check(
        &format!("$ ibnetdiscover\n{PAIR}[root@ufm ~]# \n[7]\t\"S-fc6a\n"),
        &format!(
            "{PAIR_READ}
            line 1, column 1: line: expected a node, a port, a key=value or a comment of ibnetdiscover, found \"$ ibnetdiscover\"
            line 16, column 1: port: expected a port such as [12], found \"[root@ufm ~]#\"
            line 17, column 5: node id: expected a node id between quotes, found \"\\\"S-fc6a\"
            gap: 1 line of nodes or cables could not be read"
        ),
    );
}

#[test]
fn ends_that_contradict_each_other_are_a_problem() {
    check(
        &PAIR.replace("lid 3 4xNDR", "lid 3 1xNDR"),
        r#"
        Switch 0xfc6a1c0300a00000 "MF0;leaf:MQM9700/U1" ports 65 lid 3
        Ca 0x0c42a10300b00010 "gpu-01 mlx5_0" ports 1 lid 17
        0xfc6a1c0300a00000[1] - 0x0c42a10300b00010[1] ?
        line 14: speed: expected the same speed at both ends, found "MF0;leaf:MQM9700/U1[1] - gpu-01 mlx5_0[1]: 4xNDR, 1xNDR"
        "#,
    );
    check(
        &PAIR.replace("\"[1]\t\t# lid", "\"[2]\t\t# lid"),
        r#"
        Switch 0xfc6a1c0300a00000 "MF0;leaf:MQM9700/U1" ports 65 lid 3
        Ca 0x0c42a10300b00010 "gpu-01 mlx5_0" ports 1 lid 17
        0x0c42a10300b00010[1] - 0xfc6a1c0300a00000[2] 4xNDR one end
        line 7: cable: expected a far end that shows the same cable, found "MF0;leaf:MQM9700/U1[1] - gpu-01 mlx5_0[1]"
        gap: 1 cable shown by one end only, such as port 1 of 0x0c42a10300b00010
        "#,
    );
}

#[test]
fn a_cut_text_is_partial_wherever_it_is_cut() {
    for cut in 1..PAIR.len() - 1 {
        let subnet = parse(&PAIR[..cut]);
        assert_ne!(
            subnet.completeness,
            Completeness::Complete,
            "{:?}",
            &PAIR[..cut]
        );
    }
}

#[test]
fn nothing_and_noise_are_no_subnet() {
    for text in [
        "",
        "\n\n",
        "# only a comment\n",
        "ibpanic: [1] main: mad_rpc_open_port failed\n",
    ] {
        let subnet = parse(text);
        assert!(
            subnet.nodes.is_empty() && subnet.completeness.gaps().contains(&Gap::Empty),
            "{text}"
        );
    }
    let noise = "noise\n".repeat(MAX_PROBLEMS + 5);
    let subnet = parse(&noise);
    assert_eq!(
        (subnet.problems.len(), subnet.counts.problems),
        (MAX_PROBLEMS, MAX_PROBLEMS + 5)
    );
}

#[test]
fn a_node_without_any_identity_is_dropped_with_its_cables() {
    let text = PAIR.replace("S-fc6a1c0300a00000", "leaf-r0");
    let (_, adapter) = text.split_once("\n\n").expect("two sections");
    check(
        adapter,
        r#"
        Ca 0x0c42a10300b00010 "gpu-01 mlx5_0" ports 1 lid 17
        line 6: node: expected a section or an id with its GUID, found "MF0;leaf:MQM9700/U1"
        line 6: cable: expected two ends with a GUID each, found "gpu-01 mlx5_0[1] - MF0;leaf:MQM9700/U1[1]"
        gap: 1 node known only from the far end of a cable, such as "MF0;leaf:MQM9700/U1"
        gap: 1 node without any cable
        "#,
    );
}

#[test]
fn a_text_twice_is_the_subnet_once_and_a_problem() {
    let subnet = parse(&format!("{PAIR}{PAIR}"));
    assert_eq!(
        (
            subnet.nodes.len(),
            subnet.links.len(),
            subnet.counts.dropped_cables
        ),
        (2, 1, 0)
    );
    assert_eq!(
        subnet.counts.problems, 4,
        "two nodes and two ports more than there should be"
    );
}
