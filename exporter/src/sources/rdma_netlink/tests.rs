//! The RDMA device interface against a kernel's other end of the socket.

use std::thread::JoinHandle;

use super::super::netlink::Message;
use super::super::netlink::tests::{answer, done, give, kernel as serve, pair, refusal};
use super::*;

/// Devices by index, and what each port's counters report: name, value where it counts, and for an
/// optional counter whether it is on.
pub(crate) type Ports = Vec<(
    u32,
    &'static str,
    Vec<(&'static str, Option<u64>, Option<bool>)>,
)>;

const EINVAL: i32 = 22;
/// One entry of the table of counters.
const ENTRY: u16 = 81;

/// A conversation with a kernel that has these devices, each with port 1.
pub(crate) fn kernel(ports: Ports) -> (Nldev, JoinHandle<usize>) {
    let (ours, serving) = serve(move |question| answers(&ports, question));
    (Nldev::over(ours), serving)
}

fn answers(ports: &Ports, question: &Message<'_>) -> Vec<Vec<u8>> {
    let asked = question.attributes(0).expect("whole");
    let (kind, sequence) = (question.kind, question.sequence());
    let handle =
        |reply: Request, index: u32, name: &str| reply.word(DEV_INDEX, index).text(DEV_NAME, name);
    if kind == NLDEV | GET {
        let device = |(index, name, _): &(u32, &str, _)| {
            answer(kind, sequence, &[], |reply| handle(reply, *index, name))
        };
        return ports.iter().map(device).chain([done(sequence)]).collect();
    }
    let device = ports
        .iter()
        .find(|(index, ..)| asked.number(DEV_INDEX) == Some((*index).into()));
    let Some((index, name, counters)) = device.filter(|_| asked.number(PORT_INDEX) == Some(1))
    else {
        return vec![refusal(EINVAL, sequence)];
    };
    let status = kind == NLDEV | STAT_GET_STATUS;
    let entry = |table: Request, (name, value, on): &(&str, Option<u64>, Option<bool>)| {
        let more = |entry: Request| match (status, value, on) {
            (true, _, Some(on)) => entry.attribute(ENTRY_DYNAMIC, &[u8::from(*on)]),
            (false, Some(value), _) => entry.attribute(ENTRY_VALUE, &value.to_ne_bytes()),
            _ => entry,
        };
        if !status && value.is_none() {
            return table;
        }
        table.nest(ENTRY, |entry| more(entry.text(ENTRY_NAME, name)))
    };
    vec![answer(kind, sequence, &[], |reply| {
        let reply = handle(reply, *index, name).word(PORT_INDEX, 1);
        if asked.number(STAT_RES) == Some(RES_QP.into()) {
            return reply.word(STAT_MODE, 1);
        }
        reply.nest(HWCOUNTERS, |table| counters.iter().fold(table, entry))
    })]
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
fn an_answer_about_another_port_or_to_another_question_or_cut_short_is_not_taken() {
    let (ours, theirs) = pair();
    let mut nldev = Nldev::over(ours);
    let about = |index: u32, sequence| {
        answer(NLDEV | STAT_GET, sequence, &[], |reply| {
            reply
                .word(DEV_INDEX, index)
                .word(PORT_INDEX, 1)
                .nest(HWCOUNTERS, |table| table)
        })
    };
    let cut = answer(NLDEV | STAT_GET, 4, &[], |reply| {
        reply
            .word(DEV_INDEX, 4)
            .word(PORT_INDEX, 1)
            .attribute(HWCOUNTERS, &[9, 0, ENTRY as u8, 0, 1])
    });
    let other = answer(NLDEV | GET, 3, &[], |reply| reply.word(DEV_INDEX, 4));
    for (answer, expected) in [
        (about(5, 1), Err(Miss::Unparsed)),
        (about(4, 2), Ok(vec![])),
        (other, Err(Miss::Unparsed)),
        (cut, Err(Miss::Unparsed)),
    ] {
        give(&theirs, &about(4, 77));
        give(&theirs, &answer);
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
