//! The kernel's replies: ethtool by ioctl and netlink, data center bridging by its own netlink.

use std::net::IpAddr;

use super::addresses;
use super::ioctl::Ioctl;
use super::vf::{self, VirtualFunction};
use super::{Bridging, Fec, Nic, NicSource, PRIORITIES, Pause, TrafficClasses};
use crate::sources::netlink::{Attributes, Request, Socket, fixed};
use crate::sources::sysfs::Miss;

/// `sizeof(struct genlmsghdr)`, and of `struct dcbmsg`.
const FAMILY_HEADER: usize = 4;

/// `uapi/linux/genetlink.h`: the family that lists the others.
mod control {
    pub(super) const FAMILY: u16 = 0x10;
    pub(super) const GET_FAMILY: u8 = 3;
    pub(super) const FAMILY_ID: u16 = 1;
    pub(super) const FAMILY_NAME: u16 = 2;
}

/// `uapi/linux/ethtool_netlink.h`.
mod ethnl {
    pub(super) const LINKSTATE_GET: u8 = 6;
    pub(super) const PAUSE_GET: u8 = 21;
    pub(super) const FEC_GET: u8 = 29;
    /// The request header, the same in every message.
    pub(super) const HEADER: u16 = 1;
    pub(super) const HEADER_NAME: u16 = 2;
    pub(super) const HEADER_FLAGS: u16 = 3;
    /// `ETHTOOL_FLAG_STATS`.
    pub(super) const WITH_STATISTICS: u32 = 1 << 2;
    pub(super) const LINKSTATE_LINK: u16 = 2;
    pub(super) const LINKSTATE_EXT_STATE: u16 = 5;
    pub(super) const PAUSE_RX: u16 = 3;
    pub(super) const PAUSE_TX: u16 = 4;
    pub(super) const PAUSE_STATS: u16 = 5;
    pub(super) const PAUSE_STAT_TX_FRAMES: u16 = 2;
    pub(super) const PAUSE_STAT_RX_FRAMES: u16 = 3;
    pub(super) const FEC_ACTIVE: u16 = 4;
    pub(super) const FEC_STATS: u16 = 5;
    pub(super) const FEC_STAT_CORRECTED: u16 = 2;
    pub(super) const FEC_STAT_UNCORRECTABLE: u16 = 3;
    pub(super) const FEC_STAT_CORRECTED_BITS: u16 = 4;
}

/// `uapi/linux/dcbnl.h`.
mod dcb {
    /// `RTM_GETDCB`.
    pub(super) const GET: u16 = 78;
    pub(super) const IEEE_GET: u8 = 21;
    pub(super) const IFNAME: u16 = 1;
    pub(super) const IEEE: u16 = 13;
    pub(super) const IEEE_ETS: u16 = 1;
    pub(super) const IEEE_PFC: u16 = 2;
    pub(super) const IEEE_APP_TABLE: u16 = 3;
    /// `IEEE_8021QAZ_APP_SEL_DSCP`.
    pub(super) const SELECTOR_DSCP: u8 = 5;
    /// Offsets in `struct ieee_ets`, and its number for sharing by ETS.
    pub(super) const ETS_PERCENT: usize = 3;
    pub(super) const ETS_ALGORITHM: usize = 19;
    pub(super) const ETS_OF_PRIORITY: usize = 27;
    pub(super) const SHARED: u8 = 2;
    /// Offsets in `struct ieee_pfc`.
    pub(super) const PFC_ENABLED: usize = 1;
    pub(super) const PFC_REQUESTS: usize = 8;
    pub(super) const PFC_INDICATIONS: usize = 72;
}

/// `enum ethtool_link_ext_state`, by number.
const DOWN_REASONS: &[&str] = &[
    "autonegotiation",
    "link_training_failure",
    "link_logical_mismatch",
    "bad_signal_integrity",
    "no_cable",
    "cable_issue",
    "eeprom_issue",
    "calibration_failure",
    "power_budget_exceeded",
    "overheat",
    "module",
];

/// Link mode bits that name a forward error correction (`ETHTOOL_LINK_MODE_FEC_*_BIT`).
const FEC_MODES: &[(u64, &str)] = &[(49, "off"), (50, "rs"), (51, "baser"), (74, "llrs")];

/// The kernel. Sockets are opened at the first question, in the network namespace of the asking thread.
#[derive(Default)]
pub struct Kernel {
    ioctl: Option<Ioctl>,
    generic: Option<(Socket, u16)>,
    route: Option<Socket>,
}

impl NicSource for Kernel {
    fn names(&mut self, nic: &Nic) -> Result<Vec<String>, Miss> {
        Ok(self.ioctl(nic)?.names(&nic.name)?)
    }

    fn values(&mut self, nic: &Nic, into: &mut Vec<u64>) -> Result<(), Miss> {
        Ok(self.ioctl(nic)?.values(&nic.name, into)?)
    }

    fn pause(&mut self, nic: &Nic) -> Result<Pause, Miss> {
        self.ethtool(nic, ethnl::PAUSE_GET, |found| {
            let on = |kind| found.number(kind).map(|byte| byte != 0);
            let frames = |kind| found.inside(ethnl::PAUSE_STATS)?.number(kind);
            Some(Pause {
                receive: on(ethnl::PAUSE_RX)?,
                transmit: on(ethnl::PAUSE_TX)?,
                received_frames: frames(ethnl::PAUSE_STAT_RX_FRAMES),
                transmitted_frames: frames(ethnl::PAUSE_STAT_TX_FRAMES),
            })
        })
    }

    fn fec(&mut self, nic: &Nic) -> Result<Fec, Miss> {
        self.ethtool(nic, ethnl::FEC_GET, |found| {
            let bit = found.number(ethnl::FEC_ACTIVE);
            // The total stands before the lanes.
            let total = |kind| found.inside(ethnl::FEC_STATS)?.get(kind)?.first_long();
            Some(Fec {
                active: bit.and_then(fec_mode),
                corrected_blocks: total(ethnl::FEC_STAT_CORRECTED),
                uncorrectable_blocks: total(ethnl::FEC_STAT_UNCORRECTABLE),
                corrected_bits: total(ethnl::FEC_STAT_CORRECTED_BITS),
            })
        })
    }

    fn bridging(&mut self, nic: &Nic) -> Result<Bridging, Miss> {
        self.ioctl(nic)?;
        let socket = self.route()?;
        let request = Request::new(dcb::GET, &[0, dcb::IEEE_GET, 0, 0]);
        let mut answer = None;
        socket.ask(request.text(dcb::IFNAME, &nic.name), |message| {
            answer = bridging(message.attributes(FAMILY_HEADER)?);
            Ok(())
        })?;
        answer.ok_or(Miss::Unsupported)
    }

    fn down_reason(&mut self, nic: &Nic) -> Result<Option<&'static str>, Miss> {
        self.ethtool(nic, ethnl::LINKSTATE_GET, |found| {
            let up = found.number(ethnl::LINKSTATE_LINK)? != 0;
            let reason = found.number(ethnl::LINKSTATE_EXT_STATE).map(|state| {
                let state = usize::try_from(state).ok();
                let known = state.and_then(|state| DOWN_REASONS.get(state));
                known.map_or("other", |word| word)
            });
            Some(reason.filter(|_| !up))
        })
    }

    fn virtual_functions(&mut self, nic: &Nic) -> Result<Vec<VirtualFunction>, Miss> {
        self.ioctl(nic)?;
        let index = nic.index.ok_or(Miss::Absent)?;
        let mut functions = Err(Miss::Unparsed);
        self.route()?.ask(vf::question(index), |message| {
            functions = vf::answered(message, index);
            Ok(())
        })?;
        functions
    }

    fn addresses(&mut self, nic: &Nic) -> Result<Vec<IpAddr>, Miss> {
        self.ioctl(nic)?;
        let index = nic.index.ok_or(Miss::Absent)?;
        let mut found = Vec::new();
        self.route()?.ask(addresses::question(), |message| {
            found.extend(addresses::answered(message, index)?);
            Ok(())
        })?;
        found.sort_unstable();
        Ok(found)
    }
}

impl Kernel {
    /// The ioctl socket, once it is certain that the name means the requested interface.
    fn ioctl(&mut self, nic: &Nic) -> Result<&mut Ioctl, Miss> {
        let index = nic.index.ok_or(Miss::Absent)?;
        let ioctl = match &mut self.ioctl {
            Some(ioctl) => ioctl,
            none => none.insert(Ioctl::open()?),
        };
        // sysfs shows the namespace in which it was mounted, which may not be ours.
        if ioctl.index(&nic.name)? != index {
            return Err(Miss::Absent);
        }
        Ok(ioctl)
    }

    fn route(&mut self) -> Result<&mut Socket, Miss> {
        Ok(match &mut self.route {
            Some(socket) => socket,
            none => none.insert(Socket::route()?),
        })
    }

    /// Sends one request to ethtool's netlink family.
    fn ethtool<T>(
        &mut self,
        nic: &Nic,
        command: u8,
        read: impl Fn(Attributes<'_>) -> Option<T>,
    ) -> Result<T, Miss> {
        self.ioctl(nic)?;
        let (socket, family) = match &mut self.generic {
            Some(known) => known,
            none => {
                let mut socket = Socket::generic()?;
                let family = family(&mut socket, "ethtool")?;
                none.insert((socket, family))
            }
        };
        let request = Request::new(*family, &[command, 1, 0, 0]).nest(ethnl::HEADER, |header| {
            header
                .text(ethnl::HEADER_NAME, &nic.name)
                .word(ethnl::HEADER_FLAGS, ethnl::WITH_STATISTICS)
        });
        let mut answer = None;
        socket.ask(request, |message| {
            answer = read(message.attributes(FAMILY_HEADER)?);
            Ok(())
        })?;
        answer.ok_or(Miss::Unparsed)
    }
}

/// The number of a generic netlink family; it never changes while the kernel runs.
fn family(socket: &mut Socket, name: &str) -> Result<u16, Miss> {
    let request = Request::new(control::FAMILY, &[control::GET_FAMILY, 1, 0, 0]);
    let mut id = None;
    socket.ask(request.text(control::FAMILY_NAME, name), |message| {
        id = message
            .attributes(FAMILY_HEADER)?
            .number(control::FAMILY_ID);
        Ok(())
    })?;
    let id = id.and_then(|id| u16::try_from(id).ok());
    id.ok_or(Miss::Absent)
}

fn fec_mode(bit: u64) -> Option<&'static str> {
    let (_, word) = FEC_MODES.iter().find(|(mode, _)| *mode == bit)?;
    Some(word)
}

/// The attributes of an `IEEE_GET` reply.
fn bridging(attributes: Attributes<'_>) -> Option<Bridging> {
    let ieee = attributes.inside(dcb::IEEE)?;
    let pfc = ieee.get(dcb::IEEE_PFC)?.value;
    let enabled = *pfc.get(dcb::PFC_ENABLED)?;
    let counts = |at: usize| {
        let mut counts = [0; PRIORITIES];
        for (priority, count) in counts.iter_mut().enumerate() {
            *count = u64::from_ne_bytes(fixed(pfc, at + 8 * priority)?);
        }
        Some(counts)
    };
    // `struct dcb_app`: selector, priority, protocol.
    let mut table = ieee.inside(dcb::IEEE_APP_TABLE);
    let has_dscp_table = table
        .as_mut()
        .map(|table| table.any(|app| app.value.first() == Some(&dcb::SELECTOR_DSCP)));
    Some(Bridging {
        pfc_enabled: std::array::from_fn(|priority| enabled >> priority & 1 == 1),
        pfc_requests: counts(dcb::PFC_REQUESTS)?,
        pfc_indications: counts(dcb::PFC_INDICATIONS)?,
        has_dscp_table,
        classes: ieee.get(dcb::IEEE_ETS).and_then(|ets| classes(ets.value)),
    })
}

fn classes(ets: &[u8]) -> Option<TrafficClasses> {
    let percent: [u8; PRIORITIES] = fixed(ets, dcb::ETS_PERCENT)?;
    let algorithm: [u8; PRIORITIES] = fixed(ets, dcb::ETS_ALGORITHM)?;
    let shared = |class: usize| (algorithm[class] == dcb::SHARED).then_some(percent[class]);
    Some(TrafficClasses {
        of_priority: fixed(ets, dcb::ETS_OF_PRIORITY)?,
        guaranteed_percent: std::array::from_fn(shared),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(bytes: &[u8]) -> Option<Bridging> {
        bridging(Attributes::whole(bytes).ok()?)
    }

    /// An attribute as the kernel writes it.
    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = 4 + u16::try_from(value.len()).expect("short");
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn answer_pfc() -> Vec<u8> {
        attribute(dcb::IEEE_PFC, &[0; 136])
    }

    fn answer(enabled: u8, apps: &[[u8; 4]]) -> Vec<u8> {
        let mut pfc = vec![8, enabled, 0, 0, 0, 0, 0, 0];
        for count in 0..16_u64 {
            pfc.extend((100 + count).to_ne_bytes());
        }
        let table: Vec<u8> = apps.iter().flat_map(|app| attribute(1, app)).collect();
        let ieee = [
            attribute(dcb::IEEE_PFC, &pfc),
            attribute(dcb::IEEE_APP_TABLE | 0x8000, &table),
        ];
        [
            attribute(dcb::IFNAME, b"eth0\0"),
            attribute(dcb::IEEE, &ieee.concat()),
        ]
        .concat()
    }

    #[test]
    fn pfc_is_a_mask_and_two_rows_of_counts() {
        let read = parse(&answer(0b1000, &[[1, 3, 0x15, 0x89]])).expect("an answer");
        let enabled: Vec<_> = (0..8).filter(|place| read.pfc_enabled[*place]).collect();
        assert_eq!(enabled, [3]);
        assert_eq!((read.pfc_requests[3], read.pfc_indications[3]), (103, 111));
        assert_eq!(read.has_dscp_table, Some(false));
        let read = parse(&answer(0, &[[1, 3, 0, 0], [5, 3, 26, 0]])).expect("an answer");
        assert_eq!(read.has_dscp_table, Some(true));
    }

    #[test]
    fn traffic_classes_share_the_link_by_percents_where_they_share() {
        // willing, ets_cap, cbs; tc_tx_bw, tc_rx_bw, tc_tsa, prio_tc; three recommendations.
        let mut ets = vec![0, 8, 0];
        ets.extend([50, 0, 0, 50, 0, 0, 0, 0]);
        ets.extend([9; 8]);
        ets.extend([2, 0, 0, 2, 0, 0, 255, 1]);
        ets.extend([0, 0, 0, 3, 0, 0, 6, 0]);
        ets.extend([7; 24]);
        let read = classes(&ets).expect("classes");
        assert_eq!(read.of_priority, [0, 0, 0, 3, 0, 0, 6, 0]);
        let percents = [Some(50), None, None, Some(50), None, None, None, None];
        assert_eq!(read.guaranteed_percent, percents);
        let ieee = attribute(
            dcb::IEEE,
            &[attribute(dcb::IEEE_ETS, &ets), answer_pfc()].concat(),
        );
        assert_eq!(parse(&ieee).and_then(|read| read.classes), Some(read));
        assert_eq!(classes(&ets[..34]), None);
    }

    #[test]
    fn an_answer_that_is_cut_short_is_none() {
        let whole = answer(0b1000, &[]);
        assert!(parse(&whole).is_some());
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length]), None, "{length}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            parse(&bytes);
        }
    }
}
