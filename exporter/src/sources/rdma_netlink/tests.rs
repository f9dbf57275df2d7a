//! A kernel's other end of the socket, and every way in which its bytes can be wrong.

use std::thread::JoinHandle;

use proptest::prelude::*;
use rustix::net::{SocketFlags, socketpair};

use super::wire::push;
use super::*;

/// Devices by index, and what each port's counters say: name, value where it counts, and for an
/// optional counter whether it is on.
pub(crate) type Ports = Vec<(
    u32,
    &'static str,
    Vec<(&'static str, Option<u64>, Option<bool>)>,
)>;

/// A conversation with a kernel that has these devices, each with port 1. It answers until the
/// conversation is dropped; `None` answers every port with `EINVAL`.
pub(crate) fn kernel(ports: Ports) -> (Nldev, JoinHandle<usize>) {
    let (ours, theirs) = pair();
    let serving = std::thread::spawn(move || {
        let mut room = vec![0; ROOM];
        let mut questions = 0;
        while let Ok(length) = receive(&theirs, &mut room) {
            let question = Messages(&room[..length])
                .next()
                .expect("one")
                .expect("whole");
            for answer in answers(&ports, &question) {
                send(&theirs, &answer, SendFlags::NOSIGNAL).expect("an answer");
            }
            questions += 1;
        }
        questions
    });
    (Nldev::over(ours).expect("a socket"), serving)
}

fn pair() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair")
}

fn answers(ports: &Ports, question: &wire::Message<'_>) -> Vec<Vec<u8>> {
    let asked = Attributes(question.body);
    let find = |kind| asked.find(kind).expect("whole").and_then(number);
    let reply = |kind, parts: &[(u16, Vec<u8>)]| {
        let parts = parts.iter().map(|(kind, value)| (*kind, &value[..]));
        message(kind, 0, question.sequence, parts)
    };
    let handle = |index: u32, name: &str| {
        let name = [name.as_bytes(), &[0]].concat();
        vec![(DEV_INDEX, index.to_ne_bytes().to_vec()), (DEV_NAME, name)]
    };
    if question.kind == NLDEV | GET {
        let devices = ports
            .iter()
            .map(|(index, name, _)| reply(question.kind, &handle(*index, name)));
        let end = reply(DONE, &[]);
        return devices.chain([end]).collect();
    }
    let device = ports
        .iter()
        .find(|(index, ..)| find(DEV_INDEX) == Some((*index).into()));
    let Some((index, name, counters)) = device.filter(|_| find(PORT_INDEX) == Some(1)) else {
        let mut bytes = reply(ERROR, &[]);
        bytes.extend((-22_i32).to_ne_bytes());
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        return vec![bytes];
    };
    let mut parts = handle(*index, name);
    parts.push((PORT_INDEX, 1_u32.to_ne_bytes().to_vec()));
    if find(STAT_RES) == Some(RES_QP.into()) {
        parts.push((STAT_MODE, 1_u32.to_ne_bytes().to_vec()));
        return vec![reply(question.kind, &parts)];
    }
    let status = question.kind == NLDEV | STAT_GET_STATUS;
    let mut table = Vec::new();
    for (name, value, on) in counters {
        let mut entry = Vec::new();
        push(&mut entry, (ENTRY_NAME, &[name.as_bytes(), &[0]].concat()));
        match (status, value, on) {
            (true, _, Some(on)) => push(&mut entry, (ENTRY_DYNAMIC, &[u8::from(*on)])),
            (true, _, None) => {}
            (false, Some(value), _) => push(&mut entry, (ENTRY_VALUE, &value.to_ne_bytes())),
            (false, None, _) => continue,
        }
        push(&mut table, (81, &entry));
    }
    // Nested attributes carry the kernel's flag in their type.
    parts.push((HWCOUNTERS | 0x8000, table));
    vec![reply(question.kind, &parts)]
}

fn counters(nldev: &mut Nldev, index: u32, port: u8) -> Result<Vec<(String, u64)>, Miss> {
    let mut all = Vec::new();
    nldev.counters(index, port, |name, value| {
        all.push((name.to_owned(), value));
    })?;
    Ok(all)
}

#[test]
fn one_question_gives_every_counter_of_a_port_and_errors_are_typed() {
    let ports = vec![
        (
            3,
            "mlx5_0",
            vec![
                ("out_of_sequence", Some(7), None),
                ("cc_rx_ce_pkts", Some(u64::MAX), Some(true)),
                ("cc_rx_cnp_pkts", None, Some(false)),
            ],
        ),
        (9, "mlx5_1", vec![]),
    ];
    let (mut nldev, serving) = kernel(ports);
    let named = |name: &str, value| (name.to_owned(), value);
    assert_eq!(
        nldev.devices(),
        Ok(vec![(3, "mlx5_0".to_owned()), (9, "mlx5_1".to_owned())])
    );
    assert_eq!(
        counters(&mut nldev, 3, 1),
        Ok(vec![
            named("out_of_sequence", 7),
            named("cc_rx_ce_pkts", u64::MAX)
        ])
    );
    let optional = vec![
        ("cc_rx_ce_pkts".to_owned(), true),
        ("cc_rx_cnp_pkts".to_owned(), false),
    ];
    assert_eq!(nldev.optional_counters(3, 1), Ok(optional));
    assert_eq!(nldev.counter_mode(3, 1), Ok("auto"));
    assert_eq!(counters(&mut nldev, 9, 1), Ok(vec![]));
    for (index, port) in [(4, 1), (3, 2)] {
        assert_eq!(counters(&mut nldev, index, port), Err(Miss::Unsupported));
    }
    drop(nldev);
    assert_eq!(serving.join().expect("served"), 7);
}

#[test]
fn an_answer_about_another_port_or_to_another_question_is_not_taken() {
    let (ours, theirs) = pair();
    let mut nldev = Nldev::over(ours).expect("a socket");
    let about = |index: u32, sequence| {
        let (index, port) = (index.to_ne_bytes(), 1_u32.to_ne_bytes());
        let parts = [
            (DEV_INDEX, &index[..]),
            (PORT_INDEX, &port),
            (HWCOUNTERS, &[]),
        ];
        message(NLDEV | STAT_GET, 0, sequence, parts.into_iter())
    };
    for (answer, expected) in [
        (about(5, 1), Err(Miss::Unparsed)),
        (about(4, 2), Ok(vec![])),
    ] {
        let late = about(4, 77);
        send(&theirs, &late, SendFlags::empty()).expect("late");
        send(&theirs, &answer, SendFlags::empty()).expect("an answer");
        assert_eq!(counters(&mut nldev, 4, 1), expected);
    }
    drop(theirs);
    assert_eq!(counters(&mut nldev, 4, 1), Err(Miss::Failed));
}

/// This machine's kernel: with RDMA the devices that sysfs shows, without it a typed refusal.
#[test]
fn this_very_kernel_answers_or_says_that_it_has_none() {
    match Nldev::open() {
        Ok(mut nldev) => {
            let devices = nldev.devices().expect("a list");
            for (_, name) in devices {
                assert!(
                    std::path::Path::new("/sys/class/infiniband")
                        .join(name)
                        .exists()
                );
            }
        }
        Err(miss) => assert!(matches!(miss, Miss::Unsupported | Miss::Denied), "{miss:?}"),
    }
}

proptest! {
    #[test]
    fn whatever_the_bytes_reading_ends_and_nothing_is_read_past_the_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for message in Messages(&bytes).flatten() {
            prop_assert!(message.body.len() <= bytes.len());
            prop_assert!(Attributes(message.body).count() <= message.body.len());
        }
        prop_assert!(Attributes(&bytes).count() <= bytes.len());
        prop_assert!(Messages(&bytes).count() <= bytes.len());
    }

    #[test]
    fn what_was_written_is_what_is_read(
        messages in prop::collection::vec((any::<u16>(), any::<u32>(), prop::collection::vec((0..=0x3fff_u16, prop::collection::vec(any::<u8>(), 0..20)), 0..6)), 1..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = Vec::new();
        for (kind, sequence, attributes) in &messages {
            let attributes = attributes.iter().map(|(kind, value)| (*kind, &value[..]));
            bytes.extend(message(*kind, 0, *sequence, attributes));
        }
        let read: Vec<_> = Messages(&bytes).map(|read| {
            let read = read.expect("whole");
            let attributes = Attributes(read.body).map(|read| read.expect("whole"));
            (read.kind, read.sequence, attributes.map(|(kind, value)| (kind, value.to_vec())).collect::<Vec<_>>())
        }).collect();
        prop_assert_eq!(&read, &messages);
        // Cut anywhere, the whole messages before the cut are read, then one error at most.
        let cut = cut.index(bytes.len());
        let whole: Vec<_> = Messages(&bytes[..cut]).collect();
        let good = whole.iter().take_while(|read| read.is_ok()).count();
        prop_assert!(whole.len() - good <= 1);
        for (read, written) in whole.iter().flatten().zip(&messages) {
            prop_assert_eq!((read.kind, read.sequence), (written.0, written.1));
        }
    }
}
