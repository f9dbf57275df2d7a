//! LLDP data units (IEEE 802.1AB) and lldpd's own list of them.

use serde_json::Value;

use super::Neighbor;

/// Longest text of a type-length-value: its length has 9 bits, its subtype takes one byte of them.
const LONGEST: usize = 255;

const END: u8 = 0;
const CHASSIS_ID: u8 = 1;
const PORT_ID: u8 = 2;
const TIME_TO_LIVE: u8 = 3;
const PORT_DESCRIPTION: u8 = 4;
const SYSTEM_NAME: u8 = 5;

/// Subtypes of a chassis id and of a port id that are not text.
const CHASSIS_MAC: u8 = 4;
const CHASSIS_ADDRESS: u8 = 5;
const PORT_MAC: u8 = 3;
const PORT_ADDRESS: u8 = 4;

/// What one data unit reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertisement {
    /// The advertising device.
    pub neighbor: Neighbor,
    /// Time to live, seconds; 0 withdraws it.
    pub time_to_live: u16,
}

/// Reads a data unit, the part of the frame behind the EtherType; none if it is malformed or lacks one of
/// the three values that each must begin with.
pub fn parse_frame(netdev: &str, bytes: &[u8]) -> Option<Advertisement> {
    let mut rest = bytes;
    let (mut chassis, mut port, mut time_to_live) = (None, None, None);
    let (mut system, mut description) = (String::new(), String::new());
    while let [first, second, behind @ ..] = rest {
        let kind = first >> 1;
        let length = usize::from(first & 1) << 8 | usize::from(*second);
        let value = behind.get(..length)?;
        rest = &behind[length..];
        match kind {
            END => break,
            CHASSIS_ID => chassis = Some(id(value, CHASSIS_MAC, CHASSIS_ADDRESS)?),
            PORT_ID => port = Some(id(value, PORT_MAC, PORT_ADDRESS)?),
            TIME_TO_LIVE => {
                time_to_live = Some(u16::from_be_bytes(value.get(..2)?.try_into().ok()?));
            }
            PORT_DESCRIPTION => description = text(value),
            SYSTEM_NAME => system = text(value),
            _ => {}
        }
    }
    Some(Advertisement {
        neighbor: Neighbor {
            netdev: netdev.to_owned(),
            chassis: chassis?,
            port: port?,
            system,
            description,
        },
        time_to_live: time_to_live?,
    })
}

/// An id behind its subtype, spelled as lldpd does.
fn id(value: &[u8], mac: u8, address: u8) -> Option<String> {
    let (subtype, bytes) = value.split_first()?;
    if *subtype == mac {
        let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        return Some(label(&pairs.join(":")));
    }
    if *subtype == address {
        // IANA address family numbers: 1 is IPv4, 2 is IPv6.
        return match bytes.split_first()? {
            (1, bytes) => {
                Some(std::net::Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).to_string())
            }
            (2, bytes) => {
                Some(std::net::Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_string())
            }
            _ => None,
        };
    }
    Some(text(bytes))
}

fn text(bytes: &[u8]) -> String {
    label(&String::from_utf8_lossy(bytes))
}

/// A text as a label value: of bounded length and printable, as it comes from the wire.
fn label(text: &str) -> String {
    let clean = text.trim().chars().take(LONGEST);
    clean
        .map(|char| if char.is_control() { ' ' } else { char })
        .collect()
}

/// Reads what `lldpctl -f json0` prints, and how many of its neighbors have no id; none if it is of
/// another shape. Neighbors that use another protocol (CDP, EDP) are neighbors as well. No neighbors
/// are `{"lldp":[{}]}`.
pub fn parse_json0(text: &str) -> Option<(Vec<Neighbor>, usize)> {
    let json: Value = serde_json::from_str(text).ok()?;
    let lldp = json.get("lldp")?.as_array()?;
    let (mut found, mut unparsed) = (Vec::new(), 0);
    for interface in lldp.iter().filter_map(|part| part.get("interface")) {
        for interface in interface.as_array()? {
            match neighbor(interface) {
                Some(neighbor) => found.push(neighbor),
                None => unparsed += 1,
            }
        }
    }
    Some((found, unparsed))
}

fn neighbor(interface: &Value) -> Option<Neighbor> {
    let (chassis, port) = (&interface["chassis"][0], &interface["port"][0]);
    let value = |of: &Value, key: &str| Some(label(of[key][0]["value"].as_str()?));
    Some(Neighbor {
        netdev: label(interface["name"].as_str()?),
        chassis: value(chassis, "id")?,
        port: value(port, "id")?,
        system: value(chassis, "name").unwrap_or_default(),
        description: value(port, "descr").unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(kind: u8, value: &[u8]) -> Vec<u8> {
        let length = value.len();
        let mut bytes = vec![kind << 1 | u8::from(length > 255), (length & 0xff) as u8];
        bytes.extend(value);
        bytes
    }

    fn unit(values: &[(u8, &[u8])]) -> Vec<u8> {
        let values = values.iter().map(|(kind, bytes)| value(*kind, bytes));
        values.flatten().collect()
    }

    /// Chassis, port, system, description and time to live, or nothing.
    fn read(bytes: &[u8]) -> Option<String> {
        let said = parse_frame("eth0", bytes)?;
        let Neighbor {
            chassis,
            port,
            system,
            description,
            ..
        } = said.neighbor;
        let life = said.time_to_live;
        Some(format!("{chassis}|{port}|{system}|{description}|{life}"))
    }

    #[test]
    fn a_data_unit_is_read_by_its_types() {
        let mac: &[u8] = &[4, 0x7c, 0x21, 0xd8, 0, 0, 0x0a];
        let whole = [
            (1, mac),
            (2, b"\x05swp1"),
            (3, &[0, 120]),
            (4, b"to \x07 n1"),
            (5, b"leaf-1"),
            (127, &[0, 0x12, 0x0f, 1]),
            (0, &[]),
            (5, b"behind the end"),
        ];
        let expected = "7c:21:d8:00:00:0a|swp1|leaf-1|to   n1|120";
        assert_eq!(read(&unit(&whole)).as_deref(), Some(expected));
        // Neither an end nor an order is insisted on, as lldpd does not either.
        assert_eq!(
            read(&unit(&[
                (3, &[0, 0]),
                (2, b"\x07x"),
                (1, &[5, 1, 10, 0, 0, 1])
            ]))
            .as_deref(),
            Some("10.0.0.1|x|||0")
        );
        let address: &[u8] = &[5, 2, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(
            read(&unit(&[(1, address), (2, &[3, 1, 2]), (3, &[1, 0, 9])])).as_deref(),
            Some("fe80::1|01:02|||256")
        );
        let long = [b'x'; 400];
        let said = read(&unit(&[(1, mac), (2, b"\x05p"), (3, &[0, 1]), (5, &long)]));
        assert_eq!(said.expect("read").len(), 17 + 1 + 1 + 1 + LONGEST + 1 + 2);
    }

    #[test]
    fn a_data_unit_without_its_three_parts_is_none() {
        let (chassis, port, life) = ((1, &b"\x07c"[..]), (2, &b"\x07p"[..]), (3, &[0, 9][..]));
        assert!(read(&unit(&[chassis, port, life])).is_some());
        for bad in [
            unit(&[port, life]),
            unit(&[chassis, life]),
            unit(&[chassis, port]),
            unit(&[(1, &[]), port, life]),
            unit(&[(1, &[5, 1, 10, 0]), port, life]),
            unit(&[(1, &[5, 9, 10, 0]), port, life]),
            unit(&[chassis, port, (3, &[9])]),
            // Claims to be longer than it is.
            [&unit(&[chassis, port, life])[..], &[9, 200, 1]].concat(),
            Vec::new(),
        ] {
            assert_eq!(read(&bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_list_of_lldpd_is_read_by_its_shape() {
        let id = |value| format!(r#"[{{"type":"local","value":"{value}"}}]"#);
        let interface = format!(
            r#"{{"name":"rail0","chassis":[{{"id":{},"name":[{{"value":"leaf"}}]}}],"port":[{{"id":{}}}]}}"#,
            id("c"),
            id("p")
        );
        for (text, expected) in [
            (
                format!(r#"{{"lldp":[{{"interface":[{interface}]}}]}}"#),
                Some((1, 0)),
            ),
            (r#"{"lldp":[{}]}"#.to_owned(), Some((0, 0))),
            (
                r#"{"lldp":[{"interface":[{"name":"a"}]}]}"#.to_owned(),
                Some((0, 1)),
            ),
            (r#"{"lldp":{}}"#.to_owned(), None),
            ("{}".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(
                parse_json0(&text).map(|(found, unparsed)| (found.len(), unparsed)),
                expected,
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_frame_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            read(&bytes);
        }

        #[test]
        fn no_well_formed_values_make_it_panic(
            values in proptest::collection::vec(
                (0_u8..8, proptest::collection::vec(any::<u8>(), 0..20)), 0..8),
        ) {
            let bytes: Vec<u8> = values.iter().flat_map(|(kind, bytes)| value(*kind, bytes)).collect();
            read(&bytes);
        }

        #[test]
        fn no_json_makes_it_panic(text in r#"[\{\}\[\]",:a-z0-9]{0,60}"#) {
            parse_json0(&text);
        }
    }
}
