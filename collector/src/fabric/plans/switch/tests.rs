//! Texts of switches with a fault, and without one: what is named, and what is not.

use super::super::{Document, Format, read};
use super::SwitchReport;

fn report(text: &str) -> SwitchReport {
    let opened = read("leaf-1.txt", text, None).expect("a switch's text");
    assert_eq!(opened.format, Format::Switch);
    let Document::Switch(report) = opened.document else {
        unreachable!("{:?}", opened.document);
    };
    report
}

/// `show pfc counters` with these frames of priority 3 received by each port, and sent by the first.
fn counters(received: &[u64], sent: u64) -> String {
    let heading = |way: &str| {
        format!(
            "  Port {way}    PFC0    PFC1    PFC2    PFC3    PFC4    PFC5    PFC6    PFC7\n---------  ------  ------  ------  ------  ------  ------  ------  ------\n"
        )
    };
    let rows = |counts: &[u64]| -> String {
        let row = |(at, count): (usize, &u64)| {
            let text = count.to_string();
            // SONiC separates thousands.
            let split = text.len().saturating_sub(3);
            let text = if split > 0 {
                format!("{},{}", &text[..split], &text[split..])
            } else {
                text
            };
            format!(
                "Ethernet{}       0       0       0  {text}       0       0       0       0\n",
                at * 4
            )
        };
        counts.iter().enumerate().map(row).collect()
    };
    let mut all = vec![0; received.len()];
    all[0] = sent;
    format!(
        "{}{}\n{}{}",
        heading("Rx"),
        rows(received),
        heading("Tx"),
        rows(&all)
    )
}

#[test]
fn the_port_that_sends_most_pause_frames_is_named_with_its_priority() {
    let report = report(&counters(&[20, 400_000, 30, 0, 10, 5], 9_000));
    assert_eq!(report.findings.len(), 1, "{report:?}");
    let finding = &report.findings[0];
    assert!(
        finding.starts_with("Ethernet4: 400000 of 400065 pause frames of priority 3 (100.0 %)"),
        "{finding}"
    );
    assert!(
        report.answer[0]
            .starts_with("PFC counters of 6 ports: 400065 pause frames received, 9000 sent"),
        "{report:?}"
    );
}

#[test]
fn pause_that_all_ports_send_accuses_none_and_two_outputs_are_subtracted() {
    let even = report(&counters(&[50_000, 52_000, 48_000, 51_000], 0));
    assert!(even.findings.is_empty(), "{even:?}");
    // Old frames of Ethernet4 are not what happens now.
    let both = format!(
        "$ show pfc counters\n{}$ sleep 60; show pfc counters\n{}",
        counters(&[0, 900_000, 0, 0], 0),
        counters(&[0, 900_000, 0, 70_000], 0)
    );
    let moved = report(&both);
    assert_eq!(moved.findings.len(), 1, "{moved:?}");
    assert!(
        moved.findings[0].starts_with("Ethernet12: 70000 of 70000 pause frames of priority 3"),
        "{moved:?}"
    );
}

#[test]
fn counters_that_the_switch_does_not_keep_are_no_zeros() {
    let text = counters(&[0, 0, 0, 0], 0)
        .replace(" 0 ", " N/A ")
        .replace(" 0 ", " N/A ")
        .replace(" 0\n", " N/A\n");
    let report = report(&text);
    assert!(report.findings[0].contains("counterpoll"), "{report:?}");
}

const WATCHDOG: &str = "      QUEUE       STATUS    STORM DETECTED/RESTORED    TX OK/DROP    RX OK/DROP    TX LAST OK/DROP    RX LAST OK/DROP\n-----------  -----------  -------------------------  ------------  ------------  -----------------  -----------------\n";

#[test]
fn storms_of_the_watchdog_are_named_with_port_and_queue() {
    assert_eq!(report(WATCHDOG).answer, ["PFC watchdog: no storm"]);
    let report = report(&format!(
        "{WATCHDOG}Ethernet8:3      stormed                        4/3       100/700       100/300              0/200              0/200\nEthernet4:3  operational                        2/2       100/100       100/100                0/0                0/0\n"
    ));
    assert_eq!(
        report.answer,
        ["PFC watchdog: 1 in a storm now, 1 had one before"]
    );
    assert!(
        report.findings[0].starts_with(
            "Ethernet8 queue 3: pause storm now (detected 4, over 3), 1000 packets dropped"
        ),
        "{report:?}"
    );
    assert!(
        report.findings[1]
            .starts_with("Ethernet4 queue 3: pause storms in the past (2), 200 packets"),
        "{report:?}"
    );
}

/// One port of `show interfaces extensive`.
fn interface(port: usize, link: &str, changed: &str, transitions: u64, crc: u64) -> String {
    format!(
        "Physical interface: et-0/0/{port}, Enabled, Physical link is {link}\n  Interface index: {port}, SNMP ifIndex: 5{port:02}\n  Description: gpu-{port:03}\n  Last flapped   : {changed}\n  Input errors:\n    Errors: {crc}, Drops: 3, Framing errors: 0, Runts: 0, Policed discards: 0, L3 incompletes: 0, FIFO errors: 0\n  Output errors:\n    Carrier transitions: {transitions}, Errors: 0, Drops: 7, Collisions: 0, Aged packets: 0\n  MAC statistics:                      Receive         Transmit\n    CRC/Align errors                {crc}                0\n\n  Logical interface et-0/0/{port}.0 (Index 1003) (SNMP ifIndex 6{port:02})\n    Description: nothing\n\n"
    )
}

#[test]
fn links_that_are_down_flap_or_are_damaged_are_named_and_a_restart_is_none_of_them() {
    let mut text = String::from(
        "Physical interface: pfe-0/0/0, Enabled, Physical link is Down\n  Last flapped   : Never\n\n",
    );
    for port in 0..8 {
        let changed = format!("2026-03-01 10:00:{:02} UTC (2w1d 03:00 ago)", 10 + port);
        text += &match port {
            3 => interface(port, "Up", "2026-03-09 11:12:13 UTC (6d 01:48 ago)", 41, 0),
            5 => interface(port, "Down", "2026-03-14 01:02:03 UTC (1d 11:58 ago)", 3, 0),
            6 => interface(port, "Up", &changed, 2, 118),
            _ => interface(port, "Up", &changed, 2, 0),
        };
    }
    let report = report(&text);
    assert_eq!(
        report.answer,
        [
            "show interfaces: 7 of 8 ports are up; 6 links changed last within 2 minutes of 2026-03-01 10:00:10 UTC (2w1d 03:00 ago) (et-0/0/0, et-0/0/1, et-0/0/2, et-0/0/4 and 2 more): a restart of the switch or of a line card, not 6 bad cables; 56 packets dropped at full output queues"
        ]
    );
    let expected = [
        "et-0/0/5 (gpu-005): enabled, but its link is down since 2026-03-14 01:02:03 UTC",
        "et-0/0/6 (gpu-006): received 118 frames with a wrong checksum",
        "et-0/0/3 (gpu-003): 41 carrier transitions (median of 8 ports: 2)",
    ];
    assert_eq!(report.findings.len(), expected.len(), "{report:?}");
    for (finding, expected) in report.findings.iter().zip(expected) {
        assert!(finding.starts_with(expected), "{finding}");
    }
}

fn message(at: &str, way: &str, port: &str) -> String {
    format!(
        "{at}  leaf-1 mib2d[4086]: SNMP_TRAP_LINK_{}: ifIndex 550, ifAdminStatus up(1), ifOperStatus {}, ifName {port}\n",
        way.to_uppercase(),
        if way == "up" { "up(1)" } else { "down(2)" }
    )
}

#[test]
fn restarts_mass_events_and_flapping_links_are_told_apart() {
    let mut log = String::new();
    let all = |log: &mut String, at: &str, way: &str| {
        for port in 0..10 {
            *log += &message(
                &format!("{at}:{:02}", port / 4),
                way,
                &format!("et-0/0/{port}"),
            );
            *log += &message(
                &format!("{at}:{:02}", port / 4),
                way,
                &format!("et-0/0/{port}.0"),
            );
        }
    };
    all(&mut log, "Dec 30 03:00", "down");
    log += "Dec 30 03:03:10  leaf-1 eventd[1967]: SYSTEM_OPERATIONAL: System is operational\n";
    all(&mut log, "Dec 30 03:04", "up");
    for hour in 10..15 {
        log += &message(&format!("Dec 31 {hour}:00:01"), "down", "et-0/0/7");
        log += &message(&format!("Dec 31 {hour}:00:03"), "up", "et-0/0/7");
    }
    log += &message("Dec 31 20:00:00", "down", "et-0/0/2")
        .replace("ifAdminStatus up(1)", "ifAdminStatus down(2)");
    all(&mut log, "Jan  2 09:30", "down");
    all(&mut log, "Jan  2 09:31", "up");
    log += &message("Jan  3 00:00:00", "down", "et-0/0/1");
    let report = report(&log);
    assert_eq!(
        report.answer[0],
        "link messages from Dec 30 03:00:00 to Jan  3 00:00:00: 27 times down at 10 ports, 1 of them switched off by an operator"
    );
    assert!(
        report.answer[1].contains("10 links of leaf-1 went down")
            && report.answer[1].contains("with a restart at Dec 30 03:03:10"),
        "{report:?}"
    );
    let expected = [
        "Jan  2 09:30:00: 10 links of leaf-1 went down within 10 s (et-0/0/0, et-0/0/1, et-0/0/2, et-0/0/3 and 6 more) without a message of a restart",
        "leaf-1 et-0/0/1: down since Jan  3 00:00:00",
        "leaf-1 et-0/0/7: flaps, 5 times down alone from Dec 31 10:00:01 to Dec 31 14:00:01",
    ];
    assert_eq!(report.findings.len(), expected.len(), "{report:?}");
    for (finding, expected) in report.findings.iter().zip(expected) {
        assert!(finding.starts_with(expected), "{finding}");
    }
}

#[test]
fn a_damaged_row_is_reported_with_its_line() {
    let text = counters(&[1, 2, 3, 4], 0).replacen("Ethernet8       0", "Ethernet8       x", 1);
    let opened = read("leaf-1.txt", &text, None).expect("the rest");
    assert_eq!(opened.problems.len(), 1);
    assert_eq!(opened.problems[0].line, 5);
}

/// `show interfaces counters` of SONiC: frames received and damaged, sent and dropped, of each port.
fn interfaces(ports: &[[&str; 4]]) -> String {
    let row = |(at, [good, damaged, sent, dropped]): (usize, &[&str; 4])| {
        format!(
            "  Ethernet{}        U  {good}  286.58 KB/s      0.00%  {damaged}  7  N/A  {sent}  0.00 B/s  0.00%  N/A  {dropped}  0\n",
            at * 4
        )
    };
    let rows = ports.iter().enumerate().map(row);
    format!(
        "admin@leaf-1:~$ show interfaces counters\n      IFACE    STATE    RX_OK    RX_BPS    RX_UTIL    RX_ERR    RX_DRP    RX_OVR    TX_OK    TX_BPS    TX_UTIL    TX_ERR    TX_DRP    TX_OVR\n-----  ----\n{}\nadmin@leaf-1:~$\n",
        rows.collect::<String>()
    )
}

#[test]
fn ports_that_damage_or_drop_frames_are_named_and_a_few_errors_in_years_are_not() {
    let text = interfaces(&[
        ["61,115,381", "0", "51,847,244", "9,268,210"],
        ["1,000", "12", "10", "0"],
        ["900,000,000,000", "9", "900,000,000,000", "9"],
    ]);
    let found = report(&text);
    assert_eq!(
        found.findings,
        [
            "Ethernet0: 9268210 frames dropped on their way out (TX_DRP) beside 51847244 sent since the counters were last cleared: more arrives for this port than it can send; check its speed, and PFC and ECN if it carries RoCE",
            "Ethernet4: 12 damaged frames (RX_ERR) beside 1000 good ones since the counters were last cleared: clean or replace the cable or module at this port",
        ]
    );
    assert_eq!(
        found.answer,
        [
            "interface counters: 3 of 3 ports are up; frames dropped on arrival (no route, VLAN or buffer): Ethernet8 7, Ethernet4 7, Ethernet0 7"
        ]
    );
    // Two outputs: only what was counted in between.
    let later = interfaces(&[
        ["61,115,381", "0", "51,847,244", "9,268,210"],
        ["2,000", "15", "10", "0"],
        ["900,000,000,000", "9", "900,000,000,000", "9"],
    ]);
    let found = report(&(text + &later));
    assert_eq!(found.findings.len(), 1, "{found:?}");
    assert!(
        found.findings[0]
            .starts_with("Ethernet4: 3 damaged frames (RX_ERR) beside 1000 good ones between"),
        "{found:?}"
    );
}
