//! Neighbors by LLDP: from lldpd where it runs, else from the packets themselves.

mod listener;
mod lldpctl;
mod packet;
mod parse;

pub use listener::Listener;
pub use lldpctl::ask;
pub use parse::{Advertisement, parse_frame, parse_json0};

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::ethtool::{NetworkAccess, Nic};
use super::sysfs::{Miss, Root};

/// Interval at which lldpd is queried: a program is started each time, and cables are seldom moved.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// Neighbors of one interface that are kept. A cable has one other end; more of them is a hub, or a
/// switch that passes on what it should not.
const MOST_OF_INTERFACE: usize = 4;
/// Neighbors that are kept in all.
const MOST: usize = 256;

/// What is at the other end of a cable, in its own terms.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbor {
    /// Our interface.
    pub netdev: String,
    /// Chassis id: mostly a MAC address.
    pub chassis: String,
    /// Port id: an interface's name, a MAC address or a number.
    pub port: String,
    /// System name; may be empty.
    pub system: String,
    /// Port description; may be empty.
    pub description: String,
}

/// All neighbors of one instant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Neighbors {
    /// In order, without duplicates.
    pub found: Vec<Neighbor>,
    /// How many were omitted because there were too many.
    pub dropped: usize,
    /// Neighbors or frames that could not be read, since the last time.
    pub unparsed: usize,
    /// Why lldpd gave no reply and packets were captured instead.
    pub without_lldpd: Option<Miss>,
}

impl Neighbors {
    /// Sorts, and keeps within the limits.
    fn bounded(mut found: Vec<Neighbor>, unparsed: usize) -> Self {
        found.sort_unstable();
        found.dedup();
        let all = found.len();
        let mut run = 0;
        let mut last = String::new();
        found.retain(|neighbor| {
            run = if neighbor.netdev == last { run + 1 } else { 1 };
            last.clone_from(&neighbor.netdev);
            run <= MOST_OF_INTERFACE
        });
        found.truncate(MOST);
        Self {
            dropped: all - found.len(),
            found,
            unparsed,
            without_lldpd: None,
        }
    }
}

/// What lldpd reports: neighbors, and how many it named that could not be read.
type Answer = Result<(Vec<Neighbor>, usize), Miss>;

/// The source of the neighbors.
pub enum NeighborSource {
    /// lldpd by its `lldpctl`, else packets.
    Kernel {
        /// The program.
        lldpctl: PathBuf,
        /// Its last report and the time of the next query.
        answer: Option<(Answer, Instant)>,
        /// Sockets, while there is no reply.
        listener: Listener,
    },
    /// `lldp.json0` below this directory, as `lldpctl -f json0` prints it.
    Recorded(Root),
}

impl NeighborSource {
    /// The source that this is; touches nothing.
    pub fn new(access: &NetworkAccess) -> Self {
        match access {
            NetworkAccess::Kernel { lldpctl } => Self::Kernel {
                lldpctl: lldpctl.clone(),
                answer: None,
                listener: Listener::default(),
            },
            NetworkAccess::Recorded(root) => Self::Recorded(Root::new(root)),
        }
    }

    /// Every neighbor; where lldpd does not run, those of these interfaces.
    ///
    /// # Errors
    /// [`Miss::Denied`] if there is no lldpd and no capability to listen.
    pub fn neighbors(&mut self, nics: &[Nic]) -> Result<Neighbors, Miss> {
        match self {
            Self::Recorded(root) => {
                let text = root.open()?.long_text("lldp.json0")?;
                let (found, unparsed) = parse_json0(&text).ok_or(Miss::Unparsed)?;
                Ok(Neighbors::bounded(found, unparsed))
            }
            Self::Kernel {
                lldpctl,
                answer,
                listener,
            } => {
                let now = Instant::now();
                let old = answer.take().filter(|(_, until)| now < *until);
                let (said, _) =
                    answer.insert(old.unwrap_or_else(|| (ask(lldpctl), now + ASK_AGAIN)));
                match said {
                    Ok((found, unparsed)) => {
                        listener.close();
                        Ok(Neighbors::bounded(found.clone(), *unparsed))
                    }
                    Err(miss) => {
                        let heard = listener.hear(nics, now)?;
                        Ok(Neighbors {
                            without_lldpd: Some(*miss),
                            ..Neighbors::bounded(heard, listener.take_unparsed())
                        })
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbor(netdev: &str, chassis: usize) -> Neighbor {
        Neighbor {
            netdev: netdev.to_owned(),
            chassis: format!("{chassis:04}"),
            port: String::new(),
            system: String::new(),
            description: String::new(),
        }
    }

    #[test]
    fn neighbors_are_bounded_and_what_is_dropped_is_counted() {
        let mut found: Vec<_> = (0..7).map(|chassis| neighbor("a", chassis)).collect();
        found.push(neighbor("b", 1));
        found.push(neighbor("b", 1));
        let kept = Neighbors::bounded(found, 0);
        assert_eq!(kept.dropped, 3);
        assert_eq!(kept.found.len(), MOST_OF_INTERFACE + 1);
        let many = (0..1000).map(|place| neighbor(&format!("n{place:04}"), 0));
        let kept = Neighbors::bounded(many.collect(), 0);
        assert_eq!((kept.found.len(), kept.dropped), (MOST, 1000 - MOST));
    }
}
