//! Requests byte by byte, and replies with every field set to a different value.

use super::*;

/// A reply with bytes of its attribute set.
pub(crate) fn answer(attribute: Attribute, data: &[(usize, &[u8])]) -> Bytes {
    let mut mad = get(&Destination::Directed(Path::HERE), attribute, 7);
    mad[3] = METHOD_GET_RESPONSE;
    for (at, bytes) in data {
        mad[DATA + at..][..bytes.len()].copy_from_slice(bytes);
    }
    mad
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_directed_question_names_every_port_on_its_way() {
    let path = Path::HERE.through(1).and_then(|path| path.through(33));
    let mad = get(
        &Destination::Directed(path.expect("two hops")),
        Attribute::PortInfo(7),
        0x0102_0304,
    );
    assert_eq!(
        hex(&mad[..40]),
        // Version, class, version, Get, status, hop pointer and count, transaction, attribute, modifier, M_Key, LIDs.
        "01810101000000020000000001020304001500000000000700000000000000\
         00ffffffff00000000"
    );
    assert_eq!(
        mad[40..128],
        [0; 88],
        "nothing is written into an attribute"
    );
    assert_eq!(hex(&mad[128..133]), "0001210000");
    assert_eq!(transaction(&mad), 0x0102_0304);
}

#[test]
fn a_performance_question_selects_its_port_in_the_attribute() {
    for (attribute, head, port) in [
        (
            Attribute::PortCounters(12),
            "0104010100000000000000000000000500120000",
            12,
        ),
        (
            Attribute::PortCountersExtended(ALL_PORTS),
            "01040101000000000000000000000005001d0000",
            255,
        ),
        (
            Attribute::ClassPortInfo,
            "0104010100000000000000000000000500010000",
            0,
        ),
    ] {
        let mad = get(&Destination::Lid(9), attribute, 5);
        assert_eq!(hex(&mad[..20]), head);
        assert_eq!((mad[65], &mad[66..]), (port, &[0; 190][..]));
    }
}

#[test]
fn every_question_is_a_get() {
    use Attribute::*;
    for destination in [Destination::Lid(1), Destination::Directed(Path::HERE)] {
        for attribute in [
            NodeInfo,
            NodeDescription,
            PortInfo(1),
            ClassPortInfo,
            PortCounters(1),
            PortCountersExtended(1),
        ] {
            assert_eq!(get(&destination, attribute, 1)[3], 0x01);
        }
    }
}

#[test]
fn a_route_has_63_hops_and_no_more() {
    let mut path = Path::HERE;
    for hop in 1..=63 {
        path = path.through(hop).expect("room");
    }
    assert_eq!(path.through(1), None);
    let mad = get(&Destination::Directed(path), Attribute::NodeInfo, 1);
    assert_eq!((mad[7], mad[128], mad[191], mad[192]), (63, 0, 63, 0));
}

#[test]
fn node_info_is_read_field_by_field() {
    let mad = answer(
        Attribute::NodeInfo,
        &[
            (0, &[1, 1, 2, 64]),
            (4, &0xfc6a_1c03_0000_0001_u64.to_be_bytes()),
            (12, &0xfc6a_1c03_0000_0002_u64.to_be_bytes()),
            (30, &[0xd2, 0xf0]),
            (36, &[33, 0x00, 0x02, 0xc9]),
        ],
    );
    let expected = NodeInfo {
        kind: NodeKind::Switch,
        ports: 64,
        system_guid: Guid(0xfc6a_1c03_0000_0001),
        guid: Guid(0xfc6a_1c03_0000_0002),
        device: 0xd2f0,
        local_port: 33,
        vendor: 0x2c9,
    };
    assert_eq!(NodeInfo::read(&mad), Some(expected));
    let unknown = answer(Attribute::NodeInfo, &[(2, &[9])]);
    assert_eq!(NodeInfo::read(&unknown), None);
}

#[test]
fn a_description_ends_at_its_nul_and_holds_any_bytes() {
    for (bytes, expected) in [
        (&b" leaf-3 \0garbage"[..], "leaf-3"),
        (b"a\xffb", "a\u{fffd}b"),
        (b"", ""),
        (&[b'x'; 64], &*"x".repeat(64)),
    ] {
        let mad = answer(Attribute::NodeDescription, &[(0, bytes)]);
        assert_eq!(node_description(&mad), expected);
    }
}

#[test]
fn width_and_speed_are_those_that_the_device_can_mean() {
    // Width, speed (upper half), extended (upper half), extended 2, whether the device supports those.
    for (width, speed, extended, extended_2, knows, expected) in [
        (2, 0x40, 0x40, 0, true, Some("4xHDR")),
        (2, 0x40, 0x40, 0, false, Some("4xQDR")),
        (1, 0x40, 0x20, 0, true, Some("1xEDR")),
        (4, 0x40, 0x80, 0, true, Some("8xNDR")),
        (16, 0x40, 0x80, 0, true, Some("2xNDR")),
        (2, 0x40, 0x00, 0b0000_1000, true, Some("4xXDR")),
        (2, 0x40, 0x10, 0, true, Some("4xFDR")),
        (8, 0x10, 0, 0, true, Some("12xSDR")),
        (2, 0x20, 0, 0, false, Some("4xDDR")),
        (2, 0, 0, 0, false, None),
        (3, 0x40, 0, 0, false, None),
    ] {
        let mad = answer(
            Attribute::PortInfo(1),
            &[
                (31, &[width]),
                (35, &[speed]),
                (56, &[extended_2]),
                (62, &[extended]),
            ],
        );
        let found = PortInfo::read(&mad).link_speed(knows);
        assert_eq!(found.map(|speed| speed.to_string()).as_deref(), expected);
    }
}

#[test]
fn port_info_tells_both_states_lid_and_capability() {
    let mad = answer(
        Attribute::PortInfo(1),
        &[
            (16, &[0xbf, 0xff]),
            (20, &[0, 0, 0x40, 0]),
            (32, &[0x24, 0x52]),
        ],
    );
    let port = PortInfo::read(&mad);
    assert_eq!((port.lid, port.state, port.physical_state), (0xbfff, 4, 5));
    assert!(port.active() && port.link_up() && port.extended_speeds);
    let down = PortInfo::read(&answer(Attribute::PortInfo(1), &[(32, &[0x21, 0x22])]));
    assert!(!down.active() && !down.link_up() && !down.extended_speeds);
}

#[test]
fn capabilities_are_bits_of_two_masks() {
    let read = |mask: u16, second: u32| {
        let data = [(2, &mask.to_be_bytes()[..]), (4, &second.to_be_bytes())];
        Capabilities::read(&answer(Attribute::ClassPortInfo, &data))
    };
    let none = Capabilities::default();
    assert_eq!(read(0, 0x1f), none, "the response time is no capability");
    for (found, expected) in [
        (
            read(1 << 8, 0),
            Capabilities {
                all_ports: true,
                ..none
            },
        ),
        (
            read(1 << 9, 0),
            Capabilities {
                extended: true,
                ..none
            },
        ),
        (
            read(1 << 10, 0),
            Capabilities {
                extended: true,
                ..none
            },
        ),
        (
            read(1 << 12, 0),
            Capabilities {
                transmit_wait: true,
                ..none
            },
        ),
        (
            read(0, 2 << 5),
            Capabilities {
                extended_errors: true,
                ..none
            },
        ),
    ] {
        assert_eq!(found, expected);
    }
}

#[test]
fn the_status_of_a_directed_answer_has_no_direction_bit() {
    let mut mad = answer(Attribute::NodeInfo, &[]);
    mad[4] = 0x80;
    assert_eq!(status(&mad), 0);
    mad[5] = 0x0c;
    assert_eq!(status(&mad), 0x0c);
    assert!(answers(&mad, Attribute::NodeInfo) && !answers(&mad, Attribute::PortInfo(1)));
    mad[3] = METHOD_GET;
    assert!(!answers(&mad, Attribute::NodeInfo), "the question itself");
}
