//! An LLDP listener of our own, for nodes without lldpd.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::packet::PacketSocket;
use super::{Neighbor, parse_frame};
use crate::sources::ethtool::Nic;
use crate::sources::sysfs::Miss;

/// Frames of one interface that are read at once; the rest waits in the socket's bounded queue.
const MOST_FRAMES: usize = 64;
/// Neighbors that are remembered. Beyond, new ones are omitted until old ones expire.
const MOST_REMEMBERED: usize = 1024;
/// No Ethernet frame is longer, jumbo frames included.
const LONGEST_FRAME: usize = 10_000;

/// Sockets on interfaces, and the neighbors received on them.
#[derive(Debug, Default)]
pub struct Listener {
    sockets: Vec<(Nic, PacketSocket)>,
    /// The neighbor, by interface, chassis and port, and its expiry.
    heard: BTreeMap<(String, String, String), (Neighbor, Instant)>,
    unparsed: usize,
}

impl Listener {
    /// Reads what has come in on these interfaces, and returns their current neighbors.
    ///
    /// # Errors
    /// [`Miss::Denied`] without `CAP_NET_RAW`, [`Miss::Absent`] without an interface.
    pub fn hear(&mut self, nics: &[Nic], now: Instant) -> Result<Vec<Neighbor>, Miss> {
        self.follow(nics)?;
        let mut buffer = vec![0; LONGEST_FRAME];
        let sockets = std::mem::take(&mut self.sockets);
        for (nic, socket) in &sockets {
            for _ in 0..MOST_FRAMES {
                match socket.receive(&mut buffer) {
                    Ok(Some(frame)) => self.take(&nic.name, frame, now),
                    Ok(None) => break,
                    // An interface that went down returns one error.
                    Err(error) => {
                        tracing::debug!(netdev = nic.name, %error, "no LLDP frame");
                        break;
                    }
                }
            }
        }
        self.sockets = sockets;
        self.heard.retain(|_, (_, until)| now < *until);
        let heard = self.heard.values();
        Ok(heard.map(|(neighbor, _)| neighbor.clone()).collect())
    }

    /// Frames that could not be read, since the last call.
    pub fn take_unparsed(&mut self) -> usize {
        std::mem::take(&mut self.unparsed)
    }

    /// Closes all sockets and forgets everybody.
    pub fn close(&mut self) {
        self.sockets.clear();
        self.heard.clear();
    }

    /// Listens on exactly these interfaces.
    fn follow(&mut self, nics: &[Nic]) -> Result<(), Miss> {
        self.sockets.retain(|(nic, _)| nics.contains(nic));
        self.heard
            .retain(|(netdev, ..), _| nics.iter().any(|nic| nic.name == *netdev));
        let mut miss = Miss::Absent;
        for nic in nics {
            if self.sockets.iter().any(|(known, _)| known == nic) {
                continue;
            }
            let Some(index) = nic.index else {
                continue;
            };
            match PacketSocket::open(index) {
                Ok(socket) => self.sockets.push((nic.clone(), socket)),
                // As systemd's RestrictAddressFamilies= refuses it.
                Err(Errno::AFNOSUPPORT) => miss = Miss::Denied,
                Err(error) => miss = error.into(),
            }
        }
        if self.sockets.is_empty() {
            return Err(miss);
        }
        Ok(())
    }

    fn take(&mut self, netdev: &str, frame: &[u8], now: Instant) {
        let Some(said) = parse_frame(netdev, frame) else {
            self.unparsed += 1;
            return;
        };
        let neighbor = said.neighbor;
        let who = (
            neighbor.netdev.clone(),
            neighbor.chassis.clone(),
            neighbor.port.clone(),
        );
        if said.time_to_live == 0 {
            self.heard.remove(&who);
        } else if self.heard.len() < MOST_REMEMBERED || self.heard.contains_key(&who) {
            let until = now + Duration::from_secs(said.time_to_live.into());
            self.heard.insert(who, (neighbor, until));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(chassis: &str, system: &str, time_to_live: u8) -> Vec<u8> {
        let mut bytes = vec![2, 1 + chassis.len() as u8, 7];
        bytes.extend(chassis.as_bytes());
        bytes.extend([4, 2, 7, b'p', 6, 2, 0, time_to_live]);
        bytes.extend([10, system.len() as u8]);
        bytes.extend(system.as_bytes());
        bytes
    }

    fn systems(listener: &mut Listener, now: Instant) -> Vec<String> {
        listener.heard.retain(|_, (_, until)| now < *until);
        let heard = listener.heard.values();
        heard.map(|(neighbor, _)| neighbor.system.clone()).collect()
    }

    #[test]
    fn a_neighbor_stays_as_long_as_it_said_and_goes_when_it_says_so() {
        let mut listener = Listener::default();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        listener.take("eth0", &frame("a", "one", 10), start);
        listener.take("eth0", &frame("b", "two", 100), start);
        assert_eq!(systems(&mut listener, after(9)), ["one", "two"]);
        listener.take("eth0", &frame("a", "renamed", 10), after(9));
        assert_eq!(systems(&mut listener, after(18)), ["renamed", "two"]);
        assert_eq!(systems(&mut listener, after(19)), ["two"]);
        listener.take("eth0", &frame("b", "two", 0), after(20));
        assert!(systems(&mut listener, after(20)).is_empty());
    }

    #[test]
    fn a_flood_of_neighbors_and_of_nonsense_is_bounded() {
        let mut listener = Listener::default();
        let now = Instant::now();
        for chassis in 0..2 * MOST_REMEMBERED {
            listener.take("eth0", &frame(&chassis.to_string(), "x", 9), now);
        }
        assert_eq!(listener.heard.len(), MOST_REMEMBERED);
        listener.take("eth0", &frame("0", "heard again", 9), now);
        let again = systems(&mut listener, now);
        assert!(again.contains(&"heard again".to_owned()));
        listener.take("eth0", b"nonsense", now);
        assert_eq!((listener.take_unparsed(), listener.take_unparsed()), (1, 0));
    }
}
