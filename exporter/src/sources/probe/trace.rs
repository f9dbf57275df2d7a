//! Which routers a flow passes: packets with rising times to live, one at a time. Pure: time comes in as an argument.

use std::net::IpAddr;

/// Maximum number of hops that are traced: a three-tier fabric has five, a route over the site's core a few more.
pub(super) const MOST_HOPS: u8 = 8;
/// Packets for each hop: routers reply to some, and limit how often they do (Linux: once a second to each sender).
const TRIES: u8 = 3;
/// Timeout of a router's reply, nanoseconds: those that reply do so in milliseconds, by their slow path. Linux gives the
/// same sender one a second.
const PATIENCE_NANOS: u64 = 1_050_000_000;
/// Consecutive routers without a reply, after which none behind them is probed either.
const SILENT: u8 = 3;

/// A trace of the hops of one flow.
#[derive(Debug)]
pub(super) struct Trace {
    /// The time to live of the packet that is, or would be, in flight.
    hop: u8,
    tries: u8,
    silent: u8,
    asked_at: Option<u64>,
    found: Vec<(u8, IpAddr)>,
    /// The time to live with which the other node was reached.
    length: Option<u8>,
    over: bool,
}

impl Trace {
    /// From the first hop.
    pub(super) fn new() -> Self {
        Self {
            hop: 1,
            tries: 0,
            silent: 0,
            asked_at: None,
            found: Vec::new(),
            length: None,
            over: false,
        }
    }

    /// The time to live of the packet to send now, steady clock; none if none is due.
    pub(super) fn next(&mut self, now: u64) -> Option<u8> {
        if let Some(asked_at) = self.asked_at {
            if now.saturating_sub(asked_at) < PATIENCE_NANOS {
                return None;
            }
            self.asked_at = None;
            if self.tries >= TRIES {
                self.silent += 1;
                self.go_on();
            }
        }
        (!self.over).then_some(self.hop)
    }

    /// The packet was sent.
    pub(super) fn asked(&mut self, now: u64) {
        self.asked_at = Some(now);
        self.tries += 1;
    }

    /// A router reports that a packet's time to live has expired, and which packet, if it quotes it. If it does
    /// not, it can only be the one that is in flight.
    pub(super) fn expired(&mut self, quoted: Option<u8>, router: IpAddr) {
        let awaited = self.asked_at.is_some() && !self.over;
        if !awaited || quoted.is_some_and(|quoted| quoted != self.hop) {
            return;
        }
        self.found.push((self.hop, router));
        self.silent = 0;
        self.go_on();
    }

    /// The other node has answered a packet of this time to live: what is behind it is no router.
    pub(super) fn reached(&mut self, hop: u8) {
        if hop <= self.hop {
            self.found.retain(|(found, _)| *found < hop);
            self.length = Some(hop);
            self.over = true;
        }
    }

    /// The routers on the path, by hop, once it is over. One that reports nothing this time keeps its state of
    /// `before` if all that do are as they were: on a path that loses packets some are lost of these, too, and a dead
    /// path reports nothing.
    pub(super) fn outcome(&self, before: &[(u8, IpAddr)]) -> Option<Vec<(u8, IpAddr)>> {
        if !self.over {
            return None;
        }
        let same = self.found.iter().all(|hop| before.contains(hop));
        if !same {
            return Some(self.found.clone());
        }
        let within = |(hop, _): &&(u8, IpAddr)| self.length.is_none_or(|length| *hop < length);
        Some(before.iter().filter(within).copied().collect())
    }

    fn go_on(&mut self) {
        self.hop += 1;
        self.tries = 0;
        self.asked_at = None;
        self.over |= self.hop > MOST_HOPS || self.silent >= SILENT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn router(hop: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, hop).into()
    }

    /// Traces a path of so many routers, some without a reply; every packet takes its time. Returns
    /// what was found and how many packets it took.
    fn look(routers: u8, silent: &[u8], quotes: bool, answers: bool) -> (Vec<(u8, IpAddr)>, usize) {
        let (mut trace, mut now, mut sent) = (Trace::new(), 0, 0);
        while trace.outcome(&[]).is_none() {
            now += PATIENCE_NANOS / 4;
            let Some(hop) = trace.next(now) else {
                continue;
            };
            trace.asked(now);
            sent += 1;
            assert!(sent < 100, "no end");
            if hop > routers && answers {
                trace.reached(hop);
            } else if hop <= routers && !silent.contains(&hop) {
                trace.expired(quotes.then_some(hop), router(hop));
            }
        }
        (trace.outcome(&[]).unwrap_or_default(), sent)
    }

    #[test]
    fn every_router_that_answers_is_found_at_its_hop() {
        for quotes in [false, true] {
            let all = |hops: &[u8]| {
                hops.iter()
                    .map(|hop| (*hop, router(*hop)))
                    .collect::<Vec<_>>()
            };
            assert_eq!(look(0, &[], quotes, true), (vec![], 1));
            assert_eq!(look(3, &[], quotes, true), (all(&[1, 2, 3]), 4));
            assert_eq!(look(3, &[2], quotes, true), (all(&[1, 3]), 6));
            // The other node is dead: what is on the path is reported all the same.
            assert_eq!(look(3, &[], quotes, false), (all(&[1, 2, 3]), 3 + 9));
            assert_eq!(look(3, &[1, 2, 3], quotes, true), (vec![], 9));
            // No more than are traced.
            assert_eq!(look(20, &[], quotes, true).0.len(), usize::from(MOST_HOPS));
        }
    }

    #[test]
    fn a_late_word_of_one_hop_is_not_taken_for_the_next() {
        let mut trace = Trace::new();
        assert_eq!(trace.next(0), Some(1));
        trace.asked(0);
        assert_eq!(trace.next(PATIENCE_NANOS - 1), None);
        trace.expired(Some(1), router(1));
        trace.expired(Some(1), router(1));
        assert_eq!(trace.next(PATIENCE_NANOS), Some(2));
        trace.asked(PATIENCE_NANOS);
        trace.expired(Some(1), router(9));
        trace.expired(Some(2), router(2));
        // No trace runs now: a reply that quotes nothing cannot be assigned.
        trace.expired(None, router(9));
        trace.reached(3);
        assert_eq!(
            trace.outcome(&[]),
            Some(vec![(1, router(1)), (2, router(2))])
        );
    }

    #[test]
    fn an_answer_that_came_over_a_shorter_way_ends_it_there() {
        let mut trace = Trace::new();
        for hop in 1..=3 {
            let now = u64::from(hop) * PATIENCE_NANOS;
            assert_eq!(trace.next(now), Some(hop));
            trace.asked(now);
            trace.expired(Some(hop), router(hop));
        }
        trace.reached(3);
        assert_eq!(
            trace.outcome(&[]),
            Some(vec![(1, router(1)), (2, router(2))])
        );
    }

    #[test]
    fn a_router_that_says_nothing_this_time_stays_unless_the_way_is_another() {
        let all = [1, 2, 3].map(|hop| (hop, router(hop)));
        let look = |found: &[(u8, IpAddr)], length: Option<u8>| {
            let trace = Trace {
                found: found.to_vec(),
                length,
                over: true,
                ..Trace::new()
            };
            trace.outcome(&all)
        };
        let other = (2, router(9));
        assert_eq!(look(&[all[0], all[2]], Some(4)), Some(all.to_vec()));
        assert_eq!(look(&[all[0]], None), Some(all.to_vec()));
        assert_eq!(look(&[all[0]], Some(3)), Some(all[..2].to_vec()));
        let changed = [all[0], other];
        assert_eq!(look(&changed, Some(4)), Some(changed.to_vec()));
        assert_eq!(look(&[], None), Some(all.to_vec()));
        assert_eq!(look(&[], Some(1)), Some(Vec::new()));
    }
}
