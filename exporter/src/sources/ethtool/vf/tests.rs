//! Replies of the routing family, built byte for byte after `uapi/linux/if_link.h`, and the same as `ip` prints it.

use proptest::prelude::*;

use super::*;
use crate::sources::netlink::tests::{answer, kernel};
use crate::sources::netlink::{Message, Socket};

const INDEX: u32 = 7;

/// A setting of one function: a structure that begins with its number.
fn setting(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Function 1 of a ConnectX on InfiniBand, with everything, and function 2 of an old driver.
fn functions(list: Request) -> Request {
    let guid = [
        &setting(&[1, 0])[..],
        &0x98_03_9b_03_00_a1_b2_c3_u64.to_ne_bytes(),
    ]
    .concat();
    let list = list.nest(link::FUNCTION, |function| {
        let function = function
            .attribute(1, &[&setting(&[1])[..], &[0; 32]].concat())
            .attribute(link::VLAN, &setting(&[1, 100, 0]))
            .attribute(link::RATE, &setting(&[1, 0, 25_000]))
            .attribute(link::SPOOF_CHECK, &setting(&[1, 1]))
            .attribute(link::LINK_STATE, &setting(&[1, 1]))
            .attribute(link::TRUST, &setting(&[1, 0]))
            .attribute(link::PORT_GUID, &guid);
        function.nest(link::STATISTICS, |statistics| {
            let numbers = (0..9_u16).map(|kind| (kind, 100 + u64::from(kind)));
            numbers.fold(statistics, |statistics, (kind, count)| match kind {
                // Padding, by which the kernel aligns numbers of 64 bits.
                6 => statistics.attribute(kind, &[]),
                _ => statistics.attribute(kind, &count.to_ne_bytes()),
            })
        })
    });
    list.nest(link::FUNCTION, |function| {
        function
            .attribute(link::VLAN, &setting(&[2, 0, 0]))
            .attribute(link::SPOOF_CHECK, &setting(&[2, u32::MAX]))
            .attribute(link::TRUST, &setting(&[2, u32::MAX]))
            .attribute(link::LINK_STATE, &setting(&[2, 9]))
            .attribute(link::PORT_GUID, &setting(&[2, 0, 0, 0]))
    })
}

const PRINTED: &str = r#"[{"ifindex":7,"ifname":"ib0","num_vf":2,"vfinfo_list":[
    {"vf":1,"link_type":"infiniband","vlan_list":[{"vlan":100}],"rate":{"max_tx":25000,"min_tx":0},
     "spoofchk":true,"port guid":"98:03:9b:03:00:a1:b2:c3","link_state":"enable","trust":false,
     "stats":{"rx":{"bytes":102,"packets":100,"multicast":105,"broadcast":104,"dropped":107},
              "tx":{"tx_bytes":103,"tx_packets":101,"dropped":108}}},
    {"vf":2,"link_type":"infiniband"}]}]"#;

fn expected() -> Vec<VirtualFunction> {
    vec![
        VirtualFunction {
            number: 1,
            trust: Some(false),
            spoof_check: Some(true),
            link_state: Some("enable"),
            vlan: Some(100),
            max_transmit_bytes_per_second: Some(3_125_000_000),
            port_guid: Some(Guid(0x98_03_9b_03_00_a1_b2_c3)),
            counts: vec![
                ("rx_packets", 100),
                ("tx_packets", 101),
                ("rx_bytes", 102),
                ("tx_bytes", 103),
                ("rx_broadcast", 104),
                ("rx_multicast", 105),
                ("rx_dropped", 107),
                ("tx_dropped", 108),
            ],
        },
        VirtualFunction {
            number: 2,
            vlan: Some(0),
            ..VirtualFunction::default()
        },
    ]
}

fn header(index: u32) -> [u8; link::HEADER] {
    let mut header = [0; link::HEADER];
    header[link::INDEX].copy_from_slice(&index.to_ne_bytes());
    header
}

fn ask(mut socket: Socket) -> Result<Vec<VirtualFunction>, Miss> {
    let mut found = Err(Miss::Unparsed);
    socket.ask(question(INDEX), |message| {
        found = answered(message, INDEX);
        Ok(())
    })?;
    found
}

/// Content of a kernel's replies to a request for functions with their counters.
fn heard(
    kind: u16,
    index: u32,
    fill: impl Fn(Request) -> Request + Send + 'static,
) -> Result<Vec<VirtualFunction>, Miss> {
    let (socket, serving) = kernel(move |asked: &Message<'_>| {
        assert_eq!(
            (asked.kind, &asked.payload[..16]),
            (link::GET, &header(INDEX)[..])
        );
        let attributes = asked.attributes(link::HEADER).expect("whole");
        assert_eq!(attributes.number(link::EXT_MASK), Some(1));
        vec![answer(kind, asked.sequence(), &header(index), &fill)]
    });
    let found = ask(socket);
    serving.join().expect("served");
    found
}

#[test]
fn netlink_and_ip_say_the_same_of_a_function() {
    let list = |message: Request| message.text(3, "ib0").nest(link::FUNCTIONS, functions);
    assert_eq!(heard(link::NEW, INDEX, list), Ok(expected()));
    assert_eq!(printed(PRINTED), Some(expected()));
}

#[test]
fn an_answer_without_functions_is_none_and_a_wrong_one_a_miss() {
    let none = |message: Request| message.text(3, "eth0");
    assert_eq!(heard(link::NEW, INDEX, none), Ok(vec![]));
    assert_eq!(printed(r#"[{"ifname":"eth0"}]"#), Some(vec![]));
    assert_eq!(heard(link::NEW, 8, none), Err(Miss::Unparsed));
    assert_eq!(heard(17, INDEX, none), Err(Miss::Unparsed));
    // As older kernels reply with more functions than 16 bits of length can hold.
    let run_over = |message: Request| message.attribute(link::FUNCTIONS, &[200, 0, 1, 0, 5, 5]);
    assert_eq!(heard(link::NEW, INDEX, run_over), Err(Miss::Unparsed));
    let unnumbered = |message: Request| {
        message.nest(link::FUNCTIONS, |list| {
            list.nest(link::FUNCTION, |none| none)
        })
    };
    assert_eq!(heard(link::NEW, INDEX, unnumbered), Err(Miss::Unparsed));
    for text in [
        "",
        "[]",
        "{}",
        r#"[{"vfinfo_list":3}]"#,
        r#"[{"vfinfo_list":[{}]}]"#,
    ] {
        assert_eq!(printed(text), None, "{text}");
    }
}

proptest! {
    #[test]
    fn no_answer_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), nested in any::<bool>()) {
        if nested {
            let list = answer(0, 0, &[], |message| message.attribute(link::FUNCTION, &bytes));
            function_of(&list[16..]);
        }
        function_of(&bytes);
    }
}

fn function_of(bytes: &[u8]) {
    if let Ok(all) = Attributes::whole(bytes) {
        function(all);
        for inside in all.filter_map(|found| found.inside()) {
            function(inside);
        }
    }
}
