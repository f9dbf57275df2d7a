//! How an Ethernet NIC is configured, and the counters that have to be read one by one.

use railscope_model::metric::{
    Metric, NIC, NIC_CLASS_BANDWIDTH, NIC_DCQCN_SETTING, NIC_ECN_ENABLED, NIC_FEC, NIC_FEC_BLOCKS,
    NIC_FULL_DUPLEX, NIC_GLOBAL_PAUSE_ENABLED, NIC_GLOBAL_PAUSE_FRAMES, NIC_LINK_DOWN_REASON,
    NIC_MTU, NIC_PFC_ENABLED, NIC_PFC_FRAMES, NIC_PHY_CORRECTED_BITS, NIC_PRIORITY_CLASS,
    NIC_SPEED, NIC_TRUST,
};
use railscope_model::reading::{Labels, Value};

use super::super::discovery::Misses;
use super::{DIRECTIONS, Watched};
use crate::sources::ethtool::{NicSource, PRIORITIES};
use crate::sources::sysfs::{Buffer, Dir, Miss};

/// Megabits per second, the unit of sysfs, in bytes per second.
const BYTES_PER_MEGABIT: u64 = 1_000_000 / 8;
/// `SPEED_UNKNOWN` as an unsigned number, which some kernels print.
const UNKNOWN_SPEED: i64 = u32::MAX as i64;
/// Driver whose trust state the DSCP table shows: in the kernel's `mlx5/core/en_dcbnl.c` it is set exactly
/// while the NIC trusts DSCP.
const TRUST_BY_TABLE: &str = "mlx5_core";

type About = Vec<(&'static Metric, Labels, Value)>;

/// Everything of a NIC that changes seldom.
pub(super) fn about(
    nic: &Watched,
    network: &mut dyn NicSource,
    misses: &mut Misses,
    buffer: &mut Buffer,
) -> About {
    let mut about = vec![(&NIC, identity(nic, buffer), true.into())];
    link(nic, misses, buffer, &mut about);
    congestion(nic, misses, buffer, &mut about);
    bridging(nic, network, misses, &mut about);
    pause(nic, network, misses, &mut about);
    fec(nic, network, misses, &mut about);
    if nic.seen.0 == Some(false) {
        let reason = asked(network.down_reason(&nic.netdev.nic), misses);
        if let Some(reason) = reason.flatten() {
            let labels = nic.labels.with(reason);
            about.push((&NIC_LINK_DOWN_REASON, labels, true.into()));
        }
    }
    about
}

/// A reply. That a driver cannot report is not an error: most support little of this.
fn asked<T>(answer: Result<T, Miss>, misses: &mut Misses) -> Option<T> {
    match answer {
        Err(Miss::Unsupported) => None,
        other => misses.keep(other),
    }
}

fn identity(nic: &Watched, buffer: &mut Buffer) -> Labels {
    let function = nic.netdev.function.as_ref();
    let numa_node = function.and_then(|function| function.numa_node(buffer));
    nic.labels
        .with(function.map_or(String::new(), |function| function.address.to_string()))
        .with(nic.rdma.as_deref().unwrap_or_default())
        .with(nic.driver.as_deref().unwrap_or_default())
        .with(numa_node.map_or(String::new(), |node| node.to_string()))
}

fn link(nic: &Watched, misses: &mut Misses, buffer: &mut Buffer, about: &mut About) {
    let mut text = |file: &str| asked(nic.netdev.dir.text(file, buffer), misses);
    let speed = text("speed");
    let duplex = text("duplex");
    let mtu = text("mtu");
    let mut parsed = |value: Option<Option<u64>>, metric| match value {
        Some(Some(value)) => about.push((metric, nic.labels.clone(), value.into())),
        Some(None) => misses.note(Miss::Unparsed),
        None => {}
    };
    // A link that is down has a speed of -1.
    let speed = speed.map(|text| text.parse::<i64>());
    let speed = speed.filter(|speed| !matches!(speed, Ok(..=0 | UNKNOWN_SPEED)));
    let bytes = |megabits: i64| u64::try_from(megabits).ok()?.checked_mul(BYTES_PER_MEGABIT);
    parsed(speed.map(|speed| speed.ok().and_then(bytes)), &NIC_SPEED);
    let duplex = duplex.filter(|text| text != "unknown");
    let full = |text: String| match text.as_str() {
        "full" => Some(1),
        "half" => Some(0),
        _ => None,
    };
    parsed(duplex.map(full), &NIC_FULL_DUPLEX);
    parsed(mtu.map(|text| text.parse().ok()), &NIC_MTU);
}

/// RoCE congestion control (DCQCN), from the `ecn` directory of NVIDIA's driver packages.
fn congestion(nic: &Watched, misses: &mut Misses, buffer: &mut Buffer, about: &mut About) {
    for (directory, point) in [("ecn/roce_np", "np"), ("ecn/roce_rp", "rp")] {
        let Ok(dir) = nic.netdev.dir.dir(directory) else {
            continue;
        };
        let labels = nic.labels.with(point);
        let mut numbers = |dir: &Dir, metric: &'static Metric| {
            for name in dir.names().unwrap_or_default() {
                // `enable` is a directory.
                if dir.dir(&name).is_ok() {
                    continue;
                }
                let count = dir.file(&name).count(buffer);
                if let Some(value) = asked(count, misses) {
                    about.push((metric, labels.with(name), value.into()));
                }
            }
        };
        numbers(&dir, &NIC_DCQCN_SETTING);
        if let Ok(enable) = dir.dir("enable") {
            numbers(&enable, &NIC_ECN_ENABLED);
        }
    }
}

fn bridging(nic: &Watched, network: &mut dyn NicSource, misses: &mut Misses, about: &mut About) {
    let Some(found) = asked(network.bridging(&nic.netdev.nic), misses) else {
        return;
    };
    let counted = nic.counts(&NIC_PFC_FRAMES);
    for priority in 0..PRIORITIES {
        let labels = nic.labels.with(priority);
        let enabled = found.pfc_enabled[priority];
        about.push((&NIC_PFC_ENABLED, labels.clone(), enabled.into()));
        if !counted && enabled {
            let frames = [
                found.pfc_indications[priority],
                found.pfc_requests[priority],
            ];
            for (direction, count) in DIRECTIONS.into_iter().zip(frames) {
                about.push((&NIC_PFC_FRAMES, labels.with(direction), count.into()));
            }
        }
    }
    if let Some(classes) = found.classes {
        for (priority, class) in classes.of_priority.into_iter().enumerate() {
            let labels = nic.labels.with(priority);
            about.push((&NIC_PRIORITY_CLASS, labels, u64::from(class).into()));
        }
        for (class, percent) in classes.guaranteed_percent.into_iter().enumerate() {
            if let Some(percent) = percent {
                let share = f64::from(percent) / 100.0;
                about.push((&NIC_CLASS_BANDWIDTH, nic.labels.with(class), share.into()));
            }
        }
    }
    if nic.driver.as_deref() == Some(TRUST_BY_TABLE)
        && let Some(by_dscp) = found.has_dscp_table
    {
        let trust = if by_dscp { "dscp" } else { "pcp" };
        about.push((&NIC_TRUST, nic.labels.with(trust), true.into()));
    }
}

fn pause(nic: &Watched, network: &mut dyn NicSource, misses: &mut Misses, about: &mut About) {
    let Some(found) = asked(network.pause(&nic.netdev.nic), misses) else {
        return;
    };
    let counted = nic.counts(&NIC_GLOBAL_PAUSE_FRAMES);
    let rows = [
        (found.receive, found.received_frames),
        (found.transmit, found.transmitted_frames),
    ];
    for (direction, (enabled, frames)) in DIRECTIONS.into_iter().zip(rows) {
        let labels = nic.labels.with(direction);
        about.push((&NIC_GLOBAL_PAUSE_ENABLED, labels.clone(), enabled.into()));
        if let Some(frames) = frames.filter(|_| !counted) {
            about.push((&NIC_GLOBAL_PAUSE_FRAMES, labels, frames.into()));
        }
    }
}

fn fec(nic: &Watched, network: &mut dyn NicSource, misses: &mut Misses, about: &mut About) {
    let Some(found) = asked(network.fec(&nic.netdev.nic), misses) else {
        return;
    };
    if let Some(mode) = found.active {
        about.push((&NIC_FEC, nic.labels.with(mode), true.into()));
    }
    if !nic.counts(&NIC_FEC_BLOCKS) {
        for (outcome, blocks) in [
            ("corrected", found.corrected_blocks),
            ("uncorrectable", found.uncorrectable_blocks),
        ] {
            if let Some(blocks) = blocks {
                about.push((&NIC_FEC_BLOCKS, nic.labels.with(outcome), blocks.into()));
            }
        }
    }
    if let Some(bits) = found.corrected_bits
        && !nic.counts(&NIC_PHY_CORRECTED_BITS)
    {
        about.push((&NIC_PHY_CORRECTED_BITS, nic.labels.clone(), bits.into()));
    }
}
