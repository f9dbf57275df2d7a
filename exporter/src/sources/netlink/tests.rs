//! A kernel's other end of the socket, and all kinds of invalid bytes from it.

use std::os::fd::OwnedFd;
use std::thread::JoinHandle;

use proptest::prelude::*;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown,
    socketpair,
};

use super::message::{Messages, NLM_F_MULTI, NLMSG_DONE, NLMSG_ERROR, verdict};
use super::*;
use crate::sources::sysfs::Miss;

/// Our end of a socket, and the kernel's.
pub(crate) fn pair() -> (Socket, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (ours, theirs) = pair.expect("a pair");
    (Socket::over(ours).expect("a socket"), theirs)
}

/// A kernel that sends these replies to each request until the connection is dropped; then how many
/// requests there were.
pub(crate) fn kernel(
    answers: impl Fn(&Message<'_>) -> Vec<Vec<u8>> + Send + 'static,
) -> (Socket, JoinHandle<usize>) {
    let (ours, theirs) = pair();
    let serving = std::thread::spawn(move || {
        let mut room = vec![0; 4096];
        let mut questions = 0;
        while let Ok((_, length @ 1..)) = recv(&theirs, &mut room[..], RecvFlags::empty()) {
            let question = Messages(&room[..length]).next();
            for answer in answers(&question.expect("one").expect("whole")) {
                give(&theirs, &answer);
            }
            questions += 1;
        }
        questions
    });
    (ours, serving)
}

pub(crate) fn give(theirs: &OwnedFd, answer: &[u8]) {
    send(theirs, answer, SendFlags::NOSIGNAL).expect("an answer");
}

/// A reply of this type to the request of this number.
pub(crate) fn answer(
    kind: u16,
    sequence: u32,
    header: &[u8],
    fill: impl FnOnce(Request) -> Request,
) -> Vec<u8> {
    fill(Request::flagged(kind, 0, header)).finish(sequence)
}

/// The last message of a list.
pub(crate) fn done(sequence: u32) -> Vec<u8> {
    answer(NLMSG_DONE, sequence, &0_i32.to_ne_bytes(), |end| end)
}

/// The kernel's error.
pub(crate) fn refusal(number: i32, sequence: u32) -> Vec<u8> {
    answer(NLMSG_ERROR, sequence, &(-number).to_ne_bytes(), |end| end)
}

#[test]
fn what_is_written_reads_the_same() {
    let request = Request::new(78, &[0, 21, 0, 0])
        .text(1, "eth0")
        .nest(13, |inner| {
            inner.word(2, 7).attribute(3, &9_u64.to_ne_bytes())
        })
        .attribute(4, &[5]);
    assert!(!request.is_dump() && Request::dump(1, &[]).is_dump());
    let bytes = request.finish(3);
    let messages: Vec<_> = Messages(&bytes).map(|read| read.expect("whole")).collect();
    assert_eq!(messages.len(), 1);
    assert_eq!((messages[0].kind, messages[0].sequence), (78, 3));
    let attributes = messages[0].attributes(4).expect("whole");
    let kinds: Vec<_> = attributes.map(|found| found.kind).collect();
    assert_eq!(kinds, [1, 13, 4]);
    let name = attributes.get(1).expect("a name");
    assert_eq!((name.text(), name.number()), (Some("eth0"), None));
    let inner = attributes.inside(13).expect("a nest");
    assert_eq!((inner.number(2), inner.number(3)), (Some(7), Some(9)));
    assert_eq!(inner.get(2).and_then(|word| word.first_long()), None);
    assert_eq!(attributes.number(4), Some(5));
    assert!(attributes.inside(4).is_none(), "a byte is no attribute");
}

#[test]
fn an_answer_that_says_no_is_the_kernels_error() {
    for (code, expected) in [
        (0, Ok(())),
        (-95, Err(Miss::Unsupported)),
        (-1, Err(Miss::Denied)),
        (i32::MIN, Err(Miss::Failed)),
        (-4096, Err(Miss::Failed)),
        (1, Err(Miss::Failed)),
    ] {
        assert_eq!(verdict(&i32::to_ne_bytes(code)), expected, "{code}");
    }
    assert_eq!(verdict(&[1, 2]), Err(Miss::Unparsed));
}

/// What a conversation receives: the types of the messages taken, or the miss.
fn heard(request: Request, datagrams: &[Vec<u8>]) -> Result<Vec<u16>, Miss> {
    let (mut ours, theirs) = pair();
    for datagram in datagrams {
        give(&theirs, datagram);
    }
    shutdown(&theirs, Shutdown::Write).expect("no more");
    let mut kinds = Vec::new();
    ours.ask(request, |message| {
        kinds.push(message.kind);
        Ok(())
    })?;
    Ok(kinds)
}

#[test]
fn an_answer_ends_where_the_kernel_says_so() {
    let part = |kind, sequence| Request::flagged(kind, NLM_F_MULTI, &[]).finish(sequence);
    let single = |kind, sequence| answer(kind, sequence, &[], |end| end);
    let one = || Request::new(20, &[]);
    for (request, datagrams, expected) in [
        (one(), vec![single(21, 1)], Ok(vec![21])),
        (one(), vec![single(21, 77), single(22, 1)], Ok(vec![22])),
        (
            one(),
            vec![part(21, 1), part(22, 1), done(1)],
            Ok(vec![21, 22]),
        ),
        (
            one(),
            vec![part(21, 1), refusal(95, 1)],
            Err(Miss::Unsupported),
        ),
        (one(), vec![part(21, 1)], Err(Miss::Failed)),
        (one(), vec![refusal(0, 1)], Ok(vec![])),
        (
            one(),
            vec![single(21, 1)[..12].to_vec()],
            Err(Miss::Unparsed),
        ),
        (one(), vec![vec![0; 200 * 1024]], Err(Miss::Failed)),
        (
            Request::dump(20, &[]),
            vec![
                [single(21, 1), single(22, 1)].concat(),
                single(23, 1),
                done(1),
            ],
            Ok(vec![21, 22, 23]),
        ),
        (
            Request::dump(20, &[]),
            vec![single(21, 1)],
            Err(Miss::Failed),
        ),
    ] {
        assert_eq!(heard(request, &datagrams), expected);
    }
}

#[test]
fn who_asks_may_refuse_an_answer_and_the_next_question_is_heard() {
    let (mut ours, theirs) = pair();
    give(&theirs, &answer(21, 1, &[], |end| end));
    give(&theirs, &answer(22, 2, &[], |end| end));
    let refused = ours.ask(Request::new(20, &[]), |_| Err(Miss::Unparsed));
    assert_eq!(refused, Err(Miss::Unparsed));
    assert_eq!(ours.ask(Request::new(20, &[]), |_| Ok(())), Ok(()));
}

/// Walks everything that can be walked: three levels of attributes inside every message.
fn walk(bytes: &[u8]) -> usize {
    fn attributes(bytes: &[u8], depth: usize) -> usize {
        let Ok(all) = Attributes::whole(bytes) else {
            return 0;
        };
        all.map(|found| {
            let known = found.number().is_some() || found.text().is_some();
            let inner = if depth > 0 {
                attributes(found.value, depth - 1)
            } else {
                0
            };
            inner + 1 + usize::from(known) + usize::from(found.first_long().is_some())
        })
        .sum()
    }
    let of = |message: Message<'_>| {
        usize::from(verdict(message.payload).is_ok()) + attributes(message.payload, 3)
    };
    Messages(bytes)
        .flatten()
        .map(|message| 1 + of(message))
        .sum()
}

proptest! {
    #[test]
    fn no_bytes_are_read_beyond_their_end(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        walk(&bytes);
        if let Ok(all) = Attributes::whole(&bytes) {
            prop_assert!(all.count() <= bytes.len());
        }
        prop_assert!(Messages(&bytes).count() <= bytes.len());
    }

    #[test]
    fn lengths_that_lie_end_the_walk(
        lengths in prop::collection::vec((0_u32..40, 0_u16..40, any::<u16>()), 0..20),
    ) {
        let mut bytes = Vec::new();
        for (message, attribute, kind) in lengths {
            bytes.extend(message.to_ne_bytes());
            bytes.extend([0; 12]);
            bytes.extend(attribute.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
        }
        // Each element is at least a header of four bytes, so a walk that ends has no more of them.
        prop_assert!(walk(&bytes) <= bytes.len());
    }

    #[test]
    fn what_was_written_is_what_is_read_and_a_cut_costs_what_stands_behind_it(
        messages in prop::collection::vec((any::<u16>(), any::<u32>(), prop::collection::vec((0..=0x3fff_u16, prop::collection::vec(any::<u8>(), 0..20)), 0..6)), 1..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = Vec::new();
        for (kind, sequence, attributes) in &messages {
            bytes.extend(answer(*kind, *sequence, &[], |message| {
                attributes.iter().fold(message, |message, (kind, value)| message.attribute(*kind, value))
            }));
        }
        let read: Vec<_> = Messages(&bytes).map(|read| {
            let read = read.expect("whole");
            let attributes = read.attributes(0).expect("whole");
            (read.kind, read.sequence, attributes.map(|found| (found.kind, found.value.to_vec())).collect::<Vec<_>>())
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
